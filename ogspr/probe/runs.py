"""Trained runs, opened to look at what they have learned to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ogspr.agents.methods import METHODS
from ogspr.agents.protocol import AgentConfig, Representation
from ogspr.envs import EnvOptions
from ogspr.errors import UserError
from ogspr.records.checkpoints import Checkpoint, Checkpoints
from ogspr.records.run import RunFolder
from ogspr.train.run_config import RunConfig, read_config
from ogspr.train.state_file import as_tensors
from ogspr.types import EnvSpec


@dataclass(frozen=True)
class ProbedRun:
    """One run, with the newest of its checkpoints that is whole."""

    path: Path
    config: RunConfig
    agent: AgentConfig
    env_options: EnvOptions
    checkpoint: Checkpoint

    @property
    def agent_steps(self) -> int:
        """Of training, up to the checkpoint."""
        return self.checkpoint.agent_steps

    def representation(self, spec: EnvSpec, device: torch.device) -> Representation:
        """Frozen, as it is in the checkpoint; a UserError where that is of other networks."""
        make = METHODS[self.config.method].representation
        if make is None:
            raise UserError(f"{self.path}: the method {self.config.method} has no representation to probe.")
        try:
            tensors = as_tensors(self.checkpoint.state()["learner"]["tensors"])
            return make(self.agent, spec, tensors, device=device)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{self.checkpoint.path} does not fit the settings of its run: {error}; probe another run."
            ) from None


def open_run(path: Path, report: Callable[[str], None]) -> ProbedRun:
    """A UserError where it is no run, or has no checkpoint that can be used.

    Args:
        report: Told about newer checkpoints that are damaged.
    """
    folder = RunFolder(path)
    config = read_config(folder)
    options: Any = config.train_options(str(folder.config))
    checkpoint = Checkpoints(folder, options.keep.checkpoints).newest_to_read(report)
    return ProbedRun(path, config, options.agent, options.env, checkpoint)
