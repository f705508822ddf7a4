"""The methods there are: how each is configured, built, and put to use once it has learned.

Importing this needs no torch: a command line reads configurations, and builds nothing yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ogspr.agents import drqv2
from ogspr.agents.mrq import MRQConfig
from ogspr.agents.mrq.config import run_settings as mrq_run_settings
from ogspr.agents.ogspr import OGSPRConfig, preset, preset_names
from ogspr.errors import UserError, unknown

if TYPE_CHECKING:
    from ogspr.agents.protocol import Agent, AgentConfig, Policy, Representation


@dataclass(frozen=True)
class Makers:
    """What is made of a configuration; agents and policies of all methods with the same arguments."""

    agent: Callable[..., Agent]
    policy: Callable[..., Policy]
    representation: Callable[..., Representation] | None = None
    """Made of a configuration, a spec, the tensors of an agent's state, and a device; None: it has none."""


@dataclass(frozen=True)
class Method:
    """One method."""

    name: str
    config: type[Any]
    presets: tuple[str, ...]
    preset: Callable[[str, str], AgentConfig]
    """The configuration of a preset for a task: `dmc:walker-walk`, `atari:Pong`, or anything else."""
    makers: Callable[[], Makers]
    """A function, because they need torch."""
    run_settings: Callable[[str], dict[str, Any]] = lambda _task: {}
    """What its presets say about a run beside the agent, for a task: settings of environment, replay, ..."""
    revision: int = 1
    """Rises where runs and policies that were saved before cannot be used any more."""
    revised: str = ""
    """Why it rose: what was saved before, as an end to "... is of"."""


def suite_of(task: str) -> str:
    """The suite of the paper whose settings fit a task."""
    return "atari100k" if task.startswith("atari:") else "dmc"


def _ogspr_run_settings(task: str) -> dict[str, Any]:
    """What its authors do on Atari, beside the protocol."""
    if not task.startswith("atari:"):
        return {}
    return {"env": {"atari_protocol": "ogspr"}, "evaluation": {"final_episodes": 100}}


def _ogspr_makers() -> Makers:
    from ogspr.agents.ogspr.agent import OGSPRAgent
    from ogspr.agents.ogspr.policy import OGSPRPolicy
    from ogspr.agents.ogspr.representation import OGSPRRepresentation

    return Makers(OGSPRAgent, OGSPRPolicy, OGSPRRepresentation)


def _mrq_makers() -> Makers:
    from ogspr.agents.mrq.agent import MRQAgent
    from ogspr.agents.mrq.policy import MRQPolicy
    from ogspr.agents.mrq.representation import MRQRepresentation

    return Makers(MRQAgent, MRQPolicy, MRQRepresentation)


def _drqv2_makers() -> Makers:
    from ogspr.agents.drqv2.agent import DrQv2Agent
    from ogspr.agents.drqv2.policy import DrQv2Policy

    return Makers(DrQv2Agent, DrQv2Policy)


METHODS: dict[str, Method] = {
    "ogspr": Method(
        "ogspr",
        OGSPRConfig,
        preset_names(),
        lambda name, task: preset(name, suite_of(task)),
        _ogspr_makers,
        revision=2,
        revised="ogspr 0.1, which trained another method: its loss of predicted frames was a mean over "
        "pixels, where the authors of OG-SPR add them up",
        run_settings=_ogspr_run_settings,
    ),
    "mrq": Method(
        "mrq",
        MRQConfig,
        ("mrq",),
        lambda _name, _task: MRQConfig(),  # one set of numbers for all suites
        _mrq_makers,
        run_settings=mrq_run_settings,
    ),
    "drqv2": Method(
        "drqv2",
        drqv2.DrQv2Config,
        drqv2.preset_names(),
        lambda _, task: drqv2.preset(task),
        _drqv2_makers,
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
    method = METHODS.get(name)
    found = content.get("revision", 1)
    if method is None or found == method.revision:
        return
    if found in range(1, method.revision):
        raise UserError(f"{source} is of {method.revised}; train anew, or use ogspr 0.1 for it.")
    raise UserError(
        f"{source} is of revision {found} of {name}, and this version of ogspr knows {method.revision}; "
        "use a newer one."
    )


def method_of(config: AgentConfig) -> Method:
    """The method that a configuration belongs to."""
    return next(method for method in METHODS.values() if type(config) is method.config)


def method_with_preset(name: str) -> Method:
    """The method that has a preset of that name; a UserError where none has."""
    for method in METHODS.values():
        if name in method.presets:
            return method
    raise unknown("preset", name, [preset for method in METHODS.values() for preset in method.presets])
