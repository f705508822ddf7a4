"""How much each loss moves the encoder.

A loss may be computed exactly as it was specified and still move nothing: nothing fails then, and only the
gradient tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import nn

from ogspr.agents.actions import ActionKind
from ogspr.agents.ogspr.config import OGSPRConfig
from ogspr.agents.ogspr.forward import Forward
from ogspr.agents.ogspr.networks import Networks
from ogspr.agents.protocol import WindowSource

T = TypeVar("T")

_MOST_WINDOWS = 32  # enough to compare losses, and little memory beside an update
COMBINED = "combined"


class Influence:
    """Norms of the gradients on the encoder f: of each weighted loss alone, and of their sum.

    Of a batch of its own, as written and in float32, with random numbers of its own: a run that is looked at
    goes on as one that is not.

    Args:
        config: The variant.
        networks: What it looks at.
        actions: The kind of actions.
        device: Where they are.
    """

    def __init__(
        self, config: OGSPRConfig, networks: Networks, actions: ActionKind, device: torch.device
    ) -> None:
        self._weights = config.weights
        self._value = networks.value
        self._generator = torch.Generator(device)
        fewer = replace(config, batch_size=min(config.batch_size, _MOST_WINDOWS))
        self._forward = Forward(fewer, networks, actions, self._generator, _AsWritten())

    def measured(self, replay: WindowSource, updates: int) -> dict[str, float]:
        """By the names of `unknown`; the same after the same number of updates. Waits for the device."""
        self._generator.manual_seed(updates)
        encoder = list(self._value.core.encoder.parameters())
        with _no_power_iteration(self._value):
            terms = self._forward(self._forward.sample(replay.peek)).terms
            gradients = {
                name: torch.cat(
                    [
                        gradient.flatten()
                        for gradient in torch.autograd.grad(weight * terms[name], encoder, retain_graph=True)
                    ]
                )
                for name, weight in self._weights.items()
            }
        gradients[COMBINED] = torch.stack(list(gradients.values())).sum(0)
        norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients.values()])
        return dict(zip(self._names(), norms.tolist(), strict=True))

    def unknown(self) -> dict[str, float]:
        """NaN for each, before the first update."""
        return dict.fromkeys(self._names(), math.nan)

    def _names(self) -> list[str]:
        return [f"encoder_gradient_{name}" for name in (*self._weights, COMBINED)]


class _AsWritten:
    """Runs functions plainly, one after the other."""

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function

    def branches(self, branches: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        return {name: branch() for name, branch in branches.items()}


@contextmanager
def _no_power_iteration(module: nn.Module) -> Iterator[None]:
    """Inside, a look at the weights with spectral normalisation does not change them."""
    module.eval()
    try:
        yield
    finally:
        module.train()
