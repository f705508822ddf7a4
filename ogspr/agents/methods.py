"""The methods there are: how each is configured, built, and put to use after training.

Importing this needs no torch: a command line reads configurations and builds nothing yet. Methods of other
packages join through the entry point group `ogspr.methods`, or through `register`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, NamedTuple

from ogspr.agents import drqv2
from ogspr.agents.mrq import MRQConfig
from ogspr.agents.mrq.config import run_settings as mrq_run_settings
from ogspr.agents.ogspr import OGSPRConfig, preset, preset_names
from ogspr.errors import UserError, unknown

if TYPE_CHECKING:
    import torch

    from ogspr.agents.protocol import Actor, AgentConfig, Method, Representation, Runner
    from ogspr.types import EnvSpec

ENTRY_POINTS = "ogspr.methods"
SMALL = "small"
"""The preset for laptops, which changes more of a run than its method: `training/presets.py`."""


@dataclass(frozen=True)
class Factories:
    """What is built from a configuration. Initial weights are drawn from torch's global generator."""

    method: Callable[[Any, EnvSpec, torch.device, Runner], Method]
    """The method, with networks on the device."""
    actor: Callable[[Any, EnvSpec, Runner], Actor]
    """Its acting half alone, on the CPU, with weights to be loaded."""
    representation: Callable[[Any, EnvSpec], Representation] | None = None
    """What it learned to see, on the CPU, with weights to be loaded; None: nothing to probe."""


@dataclass(frozen=True)
class MethodEntry:
    """One method, as the rest of the package knows it."""

    name: str
    config: type[Any]
    """Its configuration: a frozen dataclass that can be built without arguments."""
    presets: tuple[str, ...]
    preset: Callable[[str, str], AgentConfig]
    """The configuration of a preset for a task: `dmc:walker-walk`, `atari:Pong`, or anything else."""
    factories: Callable[[], Factories]
    """A function, so that torch is imported only when something is built."""
    run_settings: Callable[[str], dict[str, Any]] = lambda _task: {}
    """Settings of a run besides the agent that its presets change for a task: environment, replay, ..."""
    revision: int = 1
    """Rises when saved runs and policies can no longer be used."""
    revised: str = ""
    """Why it rose: what was saved before, as an ending of "... is from"."""


def suite_of(task: str) -> str:
    """The suite of the paper whose settings fit a task."""
    return "atari100k" if task.startswith("atari:") else "dmc"


def _ogspr_run_settings(task: str) -> dict[str, Any]:
    """What its authors do on Atari, besides the protocol."""
    if not task.startswith("atari:"):
        return {}
    return {"env": {"atari_protocol": "ogspr"}, "evaluation": {"final_episodes": 100}}


def _ogspr_factories() -> Factories:
    from ogspr.agents.ogspr import method

    return Factories(method.OGSPR, method.make_actor, method.make_representation)


def _mrq_factories() -> Factories:
    from ogspr.agents.mrq import method

    return Factories(method.MRQ, method.make_actor, method.make_representation)


def _drqv2_factories() -> Factories:
    from ogspr.agents.drqv2 import method

    return Factories(method.DrQv2, method.make_actor)


METHODS: dict[str, MethodEntry] = {
    "ogspr": MethodEntry(
        "ogspr",
        OGSPRConfig,
        preset_names(),
        lambda name, task: preset(name, suite_of(task)),
        _ogspr_factories,
        revision=2,
        revised="ogspr 0.1, which trained another method: its loss of predicted frames was a mean over "
        "pixels, where the authors of OG-SPR add them up",
        run_settings=_ogspr_run_settings,
    ),
    "mrq": MethodEntry(
        "mrq",
        MRQConfig,
        ("mrq",),
        lambda _name, _task: MRQConfig(),  # one set of numbers for all suites
        _mrq_factories,
        run_settings=mrq_run_settings,
    ),
    "drqv2": MethodEntry(
        "drqv2",
        drqv2.DrQv2Config,
        drqv2.preset_names(),
        lambda _, task: drqv2.preset(task),
        _drqv2_factories,
        run_settings=drqv2.run_settings,
    ),
}


def check_revision(name: str, content: dict[str, Any], source: str) -> None:
    """A UserError where what was saved of a method means something else today.

    Args:
        name: Of the method; others than those there are have nothing to be checked.
        content: What was saved; `revision` is in it, unless that was 1.
        source: Names it.
    """
    method = methods().get(name)
    found = content.get("revision", 1)
    if method is None or found == method.revision:
        return
    if found in range(1, method.revision):
        raise UserError(f"{source} is from {method.revised}; retrain, or use ogspr 0.1 for it.")
    raise UserError(
        f"{source} has revision {found} of {name}, and this version of ogspr supports {method.revision}; "
        "use a newer version."
    )


def register(entry: MethodEntry) -> None:
    """Adds a method of your own, or replaces the one of the same name that you added before.

    A UserError if it cannot work, or if its name or one of its presets belongs to another method.
    """
    others = {name: other for name, other in methods().items() if not _replaces(entry, other)}
    if problem := _problem(entry, others):
        raise UserError(problem)
    _registered[entry.name] = entry


def methods() -> dict[str, MethodEntry]:
    """All methods by name: those of this package, of installed ones, and registered ones."""
    return METHODS | _installed().usable | _registered


def unusable_methods() -> dict[str, str]:
    """Methods of installed packages that cannot be used, by name, with why and what to do, in one line."""
    return _installed().unusable


_registered: dict[str, MethodEntry] = {}


class _Installed(NamedTuple):
    usable: dict[str, MethodEntry]
    unusable: dict[str, str]


@cache
def _installed() -> _Installed:
    """One package that is broken breaks nothing else: only who needs its method is told."""
    found = _Installed({}, {})
    for point in entry_points(group=ENTRY_POINTS):
        try:
            entry = point.load()
            problem = _problem(entry, METHODS | found.usable)
        except Exception as error:  # whatever the code of others runs into
            problem = " ".join(f"{type(error).__name__}: {error}".split())
        if problem:
            package = f"the package {point.dist.name}" if point.dist else point.value
            found.unusable[point.name] = (
                f"the method {point.name} of {package} cannot be used: {problem.rstrip('.')}; "
                "repair that package, or uninstall it."
            )
        else:
            found.usable[entry.name] = entry
    return found


def _replaces(entry: MethodEntry, other: MethodEntry) -> bool:
    """Whether `other` is an earlier version of it, or the same method as its package offers it."""
    if not isinstance(entry, MethodEntry) or entry.name != other.name or entry.name in METHODS:
        return False
    return entry.name in _registered or entry.config is other.config


_ASKED_FOR = ("batch_size", "random_steps", "longest_horizon", "tolerated_failures")  # as in `AgentConfig`


def _problem(entry: Any, others: Mapping[str, MethodEntry]) -> str:
    """Why it cannot be a method beside others; nothing if it can."""
    if not isinstance(entry, MethodEntry):
        return f"expected an ogspr.MethodEntry, got {entry!r}."
    if isinstance(entry.presets, str) or not entry.presets:
        return f"{entry.name} needs one or more presets, got {entry.presets!r}; give it a tuple of names."
    return _taken(entry, others) or _problem_of_config(entry)


def _taken(entry: MethodEntry, others: Mapping[str, MethodEntry]) -> str:
    names = dict.fromkeys((entry.name, *entry.presets))  # in their order, so that always the same one is told
    if SMALL in names:
        return f"{SMALL} is a preset of this package for every task; choose another name."
    for other in others.values():
        for name in names:
            if name in (other.name, *other.presets):
                return f"there is a method or preset called {name} already; choose another name."
        if entry.config is other.config:
            return (
                f"{entry.name} has the configuration of {other.name}, {entry.config.__name__}; "
                "make a class of its own, by which a method is recognised."
            )
    return ""


def _problem_of_config(entry: MethodEntry) -> str:
    kind = getattr(entry.config, "__name__", repr(entry.config))
    parameters = getattr(entry.config, "__dataclass_params__", None)
    if not isinstance(entry.config, type) or parameters is None or not parameters.frozen:
        return f"the configuration of {entry.name}, {kind}, must be a frozen dataclass."
    try:
        config = entry.config()
    except TypeError as error:
        return f"{kind} must be a dataclass whose fields all have defaults: {error}."
    missing = [name for name in _ASKED_FOR if not hasattr(config, name)]
    if missing:
        return f"{kind} must also have {', '.join(missing)}; docs/add-a-method.md says what for."
    return ""


def method_named(name: str, source: str) -> MethodEntry:
    """A method by name; a UserError, in which `source` names what was saved, if there is none."""
    if name in methods():
        return methods()[name]
    if name in unusable_methods():
        raise UserError(f"{source} needs a method that fails: {unusable_methods()[name]}")
    raise UserError(
        f"{source} needs the method {name!r}, which is not installed; install its package, or name it: "
        f"--method MODULE:NAME, in Python method=. Installed: {', '.join(methods())}."
    )


def method_of(config: AgentConfig) -> MethodEntry:
    """The method that a configuration belongs to."""
    return next(method for method in methods().values() if type(config) is method.config)


def method_with_preset(name: str) -> MethodEntry:
    """The method that has a preset of that name; a UserError if none has."""
    for method in methods().values():
        if name in method.presets:
            return method
    raise unknown_preset(name)


def all_preset_names() -> tuple[str, ...]:
    """Of all methods, those of this package first, and the one for laptops."""
    return (*(name for method in methods().values() for name in method.presets), SMALL)


def unknown_preset(name: str) -> UserError:
    """Names all there are, and the methods whose presets are missing because they cannot be used."""
    known = unknown("preset", name, all_preset_names(), every=True)
    return UserError("\n".join([str(known), *unusable_methods().values()]))
