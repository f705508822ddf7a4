"""Visual reinforcement learning with observation-grounded self-predictive representations."""

from ogspr._version import __version__
from ogspr.envs import make as make_env
from ogspr.errors import UserError

__all__ = ["UserError", "__version__", "make_env"]
