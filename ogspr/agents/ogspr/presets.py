"""The variants of the paper, by name, for its two suites."""

from __future__ import annotations

from dataclasses import replace

from ogspr.agents.ogspr.adapters import NONE, SECOND_ONLY, SHARED
from ogspr.agents.ogspr.config import OGSPRConfig
from ogspr.agents.ogspr.tasks import ObservationPrediction, SelfPrediction, ShortTermValue, without
from ogspr.errors import unknown

_SUITES: dict[str, OGSPRConfig] = {
    "dmc": OGSPRConfig(),
    "atari100k": OGSPRConfig(
        tasks=(ObservationPrediction(1.0), ShortTermValue(1.0), SelfPrediction(2.0)),
        random_steps=2_000,
        updates_per_step=2,
        exploration_noise=0.2,
    ),
}
_LEFT_OUT = {
    "ogspr-op": "observation",
    "ogspr-sp": "self_prediction",
    "ogspr-svp": "short_term_value",
}
_ADAPTERS = {"shared-adapter": SHARED, "no-adapter": NONE, "adapter2-only": SECOND_ONLY}


def preset_names() -> tuple[str, ...]:
    return ("ogspr", *_LEFT_OUT, *_ADAPTERS, "anonmethod")


def preset(name: str, suite: str = "dmc") -> OGSPRConfig:
    """A variant of the paper as it ran on a suite, dmc or atari100k."""
    if suite not in _SUITES:
        raise unknown("suite", suite, _SUITES)
    if name not in preset_names():
        raise unknown("preset", name, preset_names())
    base = _SUITES[suite]
    if name in _LEFT_OUT:
        return replace(base, tasks=without(base.tasks, _LEFT_OUT[name]))
    if name in _ADAPTERS:
        return replace(base, adapters=_ADAPTERS[name])
    if name == "anonmethod":
        return replace(base, tasks=without(base.tasks, "self_prediction"), adapters=NONE)
    return base
