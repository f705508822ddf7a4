"""The methods there are: how each is configured, built, and put to use once it has learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ogspr.agents import drqv2
from ogspr.agents.drqv2.policy import DrQv2Policy
from ogspr.agents.mrq import MRQAgent, MRQConfig
from ogspr.agents.mrq.config import run_settings as mrq_run_settings
from ogspr.agents.mrq.policy import MRQPolicy
from ogspr.agents.mrq.representation import MRQRepresentation
from ogspr.agents.ogspr import OGSPRAgent, OGSPRConfig, preset, preset_names
from ogspr.agents.ogspr.policy import OGSPRPolicy
from ogspr.agents.ogspr.representation import OGSPRRepresentation
from ogspr.agents.protocol import Agent, AgentConfig, Policy, Representation
from ogspr.errors import unknown


@dataclass(frozen=True)
class Method:
    """One method. Agents and policies of all methods are built with the same arguments."""

    name: str
    config: type[Any]
    presets: tuple[str, ...]
    preset: Callable[[str, str], AgentConfig]
    """The configuration of a preset for a task: `dmc:walker-walk`, `atari:Pong`, or anything else."""
    agent: Callable[..., Agent]
    policy: Callable[..., Policy]
    representation: Callable[..., Representation] | None = None
    """Made of a configuration, a spec, the tensors of an agent's state, and a device; None: it has none."""
    run_settings: Callable[[str], dict[str, Any]] = lambda _task: {}
    """What its presets say about a run beside the agent, for a task: settings of environment, replay, ..."""


def suite_of(task: str) -> str:
    """The suite of the paper whose settings fit a task."""
    return "atari100k" if task.startswith("atari:") else "dmc"


METHODS: dict[str, Method] = {
    "ogspr": Method(
        "ogspr",
        OGSPRConfig,
        preset_names(),
        lambda name, task: preset(name, suite_of(task)),
        OGSPRAgent,
        OGSPRPolicy,
        OGSPRRepresentation,
    ),
    "mrq": Method(
        "mrq",
        MRQConfig,
        ("mrq",),
        lambda _name, _task: MRQConfig(),  # one set of numbers for all suites
        MRQAgent,
        MRQPolicy,
        MRQRepresentation,
        run_settings=mrq_run_settings,
    ),
    "drqv2": Method(
        "drqv2",
        drqv2.DrQv2Config,
        drqv2.preset_names(),
        lambda _, task: drqv2.preset(task),
        drqv2.DrQv2Agent,
        DrQv2Policy,
        run_settings=drqv2.run_settings,
    ),
}


def method_of(config: AgentConfig) -> Method:
    """The method that a configuration belongs to."""
    return next(method for method in METHODS.values() if type(config) is method.config)


def method_with_preset(name: str) -> Method:
    """The method that has a preset of that name; a UserError where none has."""
    for method in METHODS.values():
        if name in method.presets:
            return method
    raise unknown("preset", name, [preset for method in METHODS.values() for preset in method.presets])
