"""Visual reinforcement learning with observation-grounded self-predictive representations."""

# Everything else is imported when it is asked for: `python -m ogspr` reads this file while modules are still
# looked for in the current folder first. `ogspr.__main__` ends that.
from ogspr._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ogspr.agents.methods import Factories, MethodEntry
    from ogspr.agents.methods import register as register_method
    from ogspr.api import TrainedRun, train
    from ogspr.callbacks import Callback, Evaluated, StopTraining
    from ogspr.envs import make as make_env
    from ogspr.envs.gym_view import make_gym
    from ogspr.errors import UserError
    from ogspr.loading import TrainedAgent, load

__all__ = [
    "Callback",
    "Evaluated",
    "Factories",
    "MethodEntry",
    "StopTraining",
    "TrainedAgent",
    "TrainedRun",
    "UserError",
    "__version__",
    "load",
    "make_env",
    "make_gym",
    "register_method",
    "train",
]

_OFFERED = {
    "Callback": ("ogspr.callbacks", "Callback"),
    "Evaluated": ("ogspr.callbacks", "Evaluated"),
    "Factories": ("ogspr.agents.methods", "Factories"),
    "MethodEntry": ("ogspr.agents.methods", "MethodEntry"),
    "StopTraining": ("ogspr.callbacks", "StopTraining"),
    "TrainedAgent": ("ogspr.loading", "TrainedAgent"),
    "TrainedRun": ("ogspr.api", "TrainedRun"),
    "UserError": ("ogspr.errors", "UserError"),
    "load": ("ogspr.loading", "load"),
    "make_env": ("ogspr.envs", "make"),
    "make_gym": ("ogspr.envs.gym_view", "make_gym"),
    "register_method": ("ogspr.agents.methods", "register"),
    "train": ("ogspr.api", "train"),
}
_PARTS = ("envs", "errors", "loading", "types")  # `import ogspr` is enough to use these, too


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _PARTS:
        return import_module(f"ogspr.{name}")
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _OFFERED[name]
    found: object = getattr(import_module(module), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_OFFERED, *_PARTS})
