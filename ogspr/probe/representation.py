"""What trained runs have learned to see."""

from __future__ import annotations

import torch

from ogspr.agents.methods import METHODS
from ogspr.agents.protocol import Representation
from ogspr.errors import UserError
from ogspr.train.opened import OpenedRun
from ogspr.train.state_file import as_tensors
from ogspr.types import EnvSpec


def learned_representation(run: OpenedRun, spec: EnvSpec, device: torch.device) -> Representation:
    """Frozen, as it is in the checkpoint; a UserError where that is of other networks."""
    make = METHODS[run.config.method].makers().representation
    if make is None:
        raise UserError(
            f"{run.path}: the method {run.config.method} has no representation to probe; "
            "it can collect for others (--collectors)."
        )
    try:
        tensors = as_tensors(run.checkpoint.state()["learner"]["tensors"])
        return make(run.options.agent, spec, tensors, device=device)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{run.checkpoint.path} does not fit the settings of its run: {error}; probe another run."
        ) from None
