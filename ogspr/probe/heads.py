"""Linear predictors, many at once: each has its own examples, and learns as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_CLIP_EPSILON = 1e-6  # as in torch.nn.utils.clip_grad_norm_
_REPORT_EVERY = 500  # updates; also how many batches are drawn at once
_ROWS_AT_ONCE = 8192


class Examples(NamedTuple):
    """What one predictor learns from or is judged by."""

    inputs: Tensor  # (N, D)
    targets: Tensor  # (N, P)


@dataclass(frozen=True)
class HeadTraining:
    """How predictors are trained; the numbers that have a default are the paper's."""

    updates: int = 100_000
    batch_size: int = 256
    learning_rate: float = 3e-4
    clip_norm: float = 20.0


class LinearHeads:
    """`count` linear predictors of one size.

    They begin at zero: the problem is convex, so that chance at the start would only add noise.
    """

    def __init__(self, count: int, inputs: int, outputs: int, device: torch.device) -> None:
        self.weight = torch.zeros(count, inputs, outputs, device=device, requires_grad=True)
        self.bias = torch.zeros(count, 1, outputs, device=device, requires_grad=True)

    def predict(self, inputs: Tensor) -> Tensor:
        """(count, B, D) -> (count, B, P)."""
        return torch.baddbmm(self.bias, inputs, self.weight)

    def errors(self, examples: Sequence[Examples]) -> list[float]:
        """Mean squared norm of the error of each predictor on examples of its own."""
        return [self._error(place, each) for place, each in enumerate(examples)]

    @torch.no_grad()
    def _error(self, place: int, examples: Examples) -> float:
        total = torch.zeros((), dtype=torch.float64, device=examples.inputs.device)
        parts = (torch.split(tensor, _ROWS_AT_ONCE) for tensor in examples)
        for inputs, targets in zip(*parts, strict=True):
            predicted = torch.addmm(self.bias[place], inputs, self.weight[place])
            total += squared_norm(predicted - targets).double().sum()
        return float(total) / len(examples.inputs)


def squared_norm(errors: Tensor) -> Tensor:
    """The paper's loss, ||p - x||^2: summed over the dimensions of a state, (..., P) -> (...)."""
    return errors.square().sum(-1)


def train_heads(
    examples: Sequence[Examples],
    training: HeadTraining,
    seed: int,
    report: Callable[[int], None] = lambda _updates: None,
) -> LinearHeads:
    """One predictor for each of `examples`, which are alike in D and P but not in number.

    A batch is drawn as numbers in [0, 1), the same ones for all. So a predictor's batches depend on the seed
    and on how many examples it has, but not on who is trained beside it; and representations of the same
    episodes are compared on the same batches.

    Args:
        report: Told from time to time how many updates are done.
    """
    (inputs, targets), device = examples[0], examples[0].inputs.device
    heads = LinearHeads(len(examples), inputs.shape[1], targets.shape[1], device)
    optimiser = torch.optim.Adam((heads.weight, heads.bias), lr=training.learning_rate)
    pool = _Pool(examples)
    generator = torch.Generator(device)
    generator.manual_seed(seed)
    for first in range(0, training.updates, _REPORT_EVERY):
        updates = min(_REPORT_EVERY, training.updates - first)
        uniforms = torch.rand(
            updates, training.batch_size, dtype=torch.float64, device=device, generator=generator
        )
        for numbers in uniforms:
            update_heads(heads, optimiser, pool.batch(numbers), training.clip_norm)
        report(first + updates)
    return heads


def update_heads(
    heads: LinearHeads, optimiser: torch.optim.Optimizer, batch: Examples, clip_norm: float
) -> None:
    """One step of each on its own batch, (count, B, D) and (count, B, P); each gradient is clipped alone."""
    optimiser.zero_grad()
    losses = squared_norm(heads.predict(batch.inputs) - batch.targets).mean(1)
    losses.sum().backward()  # type: ignore[no-untyped-call]
    _clip_each(heads, clip_norm)
    optimiser.step()


def _clip_each(heads: LinearHeads, largest: float) -> None:
    gradients = [parameter.grad for parameter in (heads.weight, heads.bias) if parameter.grad is not None]
    norms = torch.stack([gradient.square().sum((1, 2)) for gradient in gradients]).sum(0).sqrt()
    factors = (largest / (norms + _CLIP_EPSILON)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factors[:, None, None])


class _Pool:
    """The examples of all predictors one after the other, so that a batch for all is one look-up."""

    def __init__(self, examples: Sequence[Examples]) -> None:
        inputs, targets = zip(*examples, strict=True)
        device = inputs[0].device
        counts = torch.tensor([len(each) for each in inputs], device=device)
        self._inputs, self._targets = torch.cat(inputs), torch.cat(targets)
        self._counts = counts[:, None]
        self._starts = (counts.cumsum(0) - counts)[:, None]

    def batch(self, uniforms: Tensor) -> Examples:
        """Numbers in [0, 1), (B,) -> a batch for each predictor: (count, B, D) and (count, B, P)."""
        rows = self._starts + (uniforms * self._counts).long()
        return Examples(self._inputs[rows], self._targets[rows])
