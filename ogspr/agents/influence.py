"""How much each loss moves the encoder.

A loss may be computed exactly as specified and still move nothing: nothing fails then, and only the gradient
shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import ParamSpec, TypeVar

import torch
from torch import nn

from ogspr.agents.learning import Sampler
from ogspr.agents.protocol import Update, WindowSource

T = TypeVar("T")
P = ParamSpec("P")

_MOST_WINDOWS = 32  # enough to compare losses, and little memory compared with an update
COMBINED = "combined"


class Influence:
    """Norms of the gradients on an encoder: of each weighted loss alone, and of their sum.

    On a separate batch, not compiled and in float32, with separate random numbers: observing a run does
    not change it.

    Args:
        declare: The update with at most `windows` windows in each batch, run eagerly.
        terms: The losses that matter, and their weights.
        encoder: Where gradients are measured.
        network: What has to be in evaluation mode meanwhile: its spectral normalisation must not move.
        device: Where it computes.
    """

    def __init__(
        self,
        declare: Callable[[int], Update],
        *,
        terms: Mapping[str, float],
        encoder: nn.Module,
        network: nn.Module,
        device: torch.device,
    ) -> None:
        self._declare = declare
        self._terms = terms
        self._encoder = encoder
        self._network = network
        self._generator = torch.Generator(device)

    def measured(self, replay: WindowSource | None, updates: int) -> dict[str, float]:
        """By name; the same after the same number of updates. NaN without a replay. Waits for the device."""
        names = [f"encoder_gradient_{name}" for name in (*self._terms, COMBINED)]
        if replay is None:
            return dict.fromkeys(names, math.nan)
        self._generator.manual_seed(updates)
        encoder = list(self._encoder.parameters())
        with _evaluation_mode(self._network):
            found = self._update.losses(*self._sampler(replay.peek))
            gradients = [
                torch.cat(
                    [
                        gradient.flatten()
                        for gradient in torch.autograd.grad(
                            weight * found.terms[name], encoder, retain_graph=True
                        )
                    ]
                )
                for name, weight in self._terms.items()
            ]
        gradients.append(torch.stack(gradients).sum(0))
        norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
        return dict(zip(names, norms.tolist(), strict=True))

    @cached_property
    def _update(self) -> Update:
        """Declared at the first use, when the optimisers have moved the parameters to where they stay."""
        return self._declare(_MOST_WINDOWS)

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self._update, self._generator)


class Plain:
    """Runs functions as they are, one after the other."""

    def function(self, function: Callable[P, T]) -> Callable[P, T]:
        return function

    def branches(self, branches: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        return {name: branch() for name, branch in branches.items()}


@contextmanager
def _evaluation_mode(module: nn.Module) -> Iterator[None]:
    module.eval()
    try:
        yield
    finally:
        module.train()
