"""Policies that act, as a device runs them best."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ogspr.agents.methods import method_of
from ogspr.agents.protocol import AgentConfig, Policy
from ogspr.train.execution import Execution
from ogspr.train.graph import make_accelerator, on_stream
from ogspr.types import Action, EnvSpec, UInt8Array


def make_policy(config: AgentConfig, spec: EnvSpec, device: torch.device, execution: Execution) -> Policy:
    """The policy of a method, on a CUDA stream of its own: it neither waits for learners nor stops them."""
    accelerator = make_accelerator(execution, device)
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    with on_stream(stream):
        make = method_of(config).makers().policy
        policy = make(config, spec, device=device, accelerator=accelerator)
    return _OnStream(policy, stream)


class _OnStream:
    def __init__(self, policy: Policy, stream: torch.cuda.Stream | None) -> None:
        self._policy = policy
        self._stream = stream

    def act(self, observation: UInt8Array, rng: np.random.Generator) -> Action:
        with on_stream(self._stream):
            return self._policy.act(observation, rng)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        with on_stream(self._stream):
            self._policy.load_weights(weights)
