"""The variants of the paper, by name, for its two suites."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ogspr.agents.ogspr.adapters import NONE, SECOND_ONLY, SHARED
from ogspr.agents.ogspr.config import OGSPRConfig
from ogspr.agents.ogspr.tasks import ObservationPrediction, SelfPrediction
from ogspr.errors import unknown

_SUITES: dict[str, OGSPRConfig] = {
    "dmc": OGSPRConfig(),
    "atari100k": OGSPRConfig(
        observation=ObservationPrediction(1.0),
        self_prediction=SelfPrediction(2.0),  # as in the paper; the code's default is 5
        priority_exponent=0.0,
        random_steps=2_000,
        updates_per_step=2,
        exploration_noise=0.2,
        sampled_evaluation=True,
    ),
}
# What a variant changes.
_VARIANTS: dict[str, dict[str, Any]] = {
    "ogspr": {},
    # The paper's text, where its authors' code does something else.
    "as-written": {"auxiliary_input": "latent", "value_reduction": "sum", "priority_exponent": 0.4},
    "ogspr-op": {"observation": None},
    "ogspr-sp": {"self_prediction": None},
    "ogspr-svp": {"short_term_value": None},
    "shared-adapter": {"adapters": SHARED},
    "no-adapter": {"adapters": NONE},
    "adapter2-only": {"adapters": SECOND_ONLY},
    "anonmethod": {"self_prediction": None, "adapters": NONE},
}


def preset_names() -> tuple[str, ...]:
    return tuple(_VARIANTS)


def preset(name: str, suite: str = "dmc") -> OGSPRConfig:
    """A variant of the paper as it ran on a suite, dmc or atari100k."""
    if suite not in _SUITES:
        raise unknown("suite", suite, _SUITES)
    if name not in _VARIANTS:
        raise unknown("preset", name, _VARIANTS)
    return replace(_SUITES[suite], **_VARIANTS[name])
