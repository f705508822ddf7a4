"""Visual reinforcement learning with observation-grounded self-predictive representations."""

from ogspr._version import __version__
from ogspr.envs import make as make_env
from ogspr.errors import UserError
from ogspr.loading import TrainedAgent, load

__all__ = ["TrainedAgent", "UserError", "__version__", "load", "make_env"]
