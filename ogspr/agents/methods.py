"""The methods there are: how each is configured, built, and put to use after training.

Importing this needs no torch: a command line reads configurations and builds nothing yet. Methods of other
packages join through the entry point group `ogspr.methods`, or through `register`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

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

    A UserError if the name, or one of its presets, belongs to another method.
    """
    for other in methods().values():
        taken = {other.name, *other.presets} & {entry.name, *entry.presets}
        if taken and (other.name != entry.name or entry.name in METHODS):
            raise UserError(f"a method or preset called {taken.pop()} already exists; choose another name.")
    _registered[entry.name] = entry


def methods() -> dict[str, MethodEntry]:
    """All methods by name: those of this package, of installed ones, and registered ones."""
    return METHODS | _installed() | _registered


_registered: dict[str, MethodEntry] = {}


@cache
def _installed() -> dict[str, MethodEntry]:
    found: dict[str, MethodEntry] = {}
    for point in entry_points(group=ENTRY_POINTS):
        entry = point.load()
        if not isinstance(entry, MethodEntry):
            raise UserError(f"the entry point {point.name} of {ENTRY_POINTS} is not an ogspr.MethodEntry.")
        found[entry.name] = entry
    return found


def method_named(name: str, source: str) -> MethodEntry:
    """A method by name; a UserError, in which `source` names what was saved, if there is none."""
    if name not in methods():
        raise UserError(
            f"{source} needs the method {name!r}, which is not installed; "
            f"install its package, or name it with --method MODULE:NAME. Installed: {', '.join(methods())}."
        )
    return methods()[name]


def method_of(config: AgentConfig) -> MethodEntry:
    """The method that a configuration belongs to."""
    return next(method for method in methods().values() if type(config) is method.config)


def method_with_preset(name: str) -> MethodEntry:
    """The method that has a preset of that name; a UserError if none has."""
    for method in methods().values():
        if name in method.presets:
            return method
    raise unknown("preset", name, [preset for method in methods().values() for preset in method.presets])
