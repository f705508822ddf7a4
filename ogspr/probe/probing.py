"""Linear probing: from episodes to the losses of linear predictors on frozen representations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ogspr.agents.acting import FrozenRepresentation
from ogspr.analysis.probing import NEXT_STATE, STATE
from ogspr.errors import UserError
from ogspr.probe.recording import Recording
from ogspr.types import Float64Array

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
        """Mean squared norm of the error of each predictor, on its own examples."""
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
    and on how many examples it has, but not on who is trained next to it; and representations of the same
    episodes are compared on the same batches.

    Args:
        report: Called from time to time with the number of finished updates.
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


_STILL = 1e-8  # a variance below this is rounding: such a number has no scale


class RunningMoments:
    """Mean and variance of every dimension over all that it was shown, without keeping it.

    Batches are merged as in Chan, Golub and LeVeque (1979): exact for any way of cutting up the stream, and
    sound where the mean is large compared to the spread.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean: Float64Array = np.zeros(size)
        self._squares: Float64Array = np.zeros(size)  # summed squared distances from the mean

    @property
    def variance(self) -> Float64Array:
        """Of the numbers seen, dividing by their count; zero before the first."""
        return self._squares / max(self.count, 1)

    def add(self, batch: Float64Array) -> None:
        """(N, size)"""
        if not len(batch):
            return
        together = self.count + len(batch)
        batch_mean = batch.mean(0)
        offset = batch_mean - self.mean
        self._squares += ((batch - batch_mean) ** 2).sum(0) + offset**2 * self.count * len(batch) / together
        self.mean += offset * len(batch) / together
        self.count = together

    def normalised(self, values: Float64Array) -> Float64Array:
        """Centred, and in units of the standard deviation.

        A dimension that has not moved so far is only centred: divided by next to nothing, its first movement
        (a contact sensor's, say) would outweigh everything else.
        """
        variance = self.variance
        scale = np.sqrt(np.where(variance > _STILL, variance, 1.0))
        normalised: Float64Array = (values - self.mean) / scale
        return normalised


# --- probing -------------------------------------------------------------------------------------------


FEWEST_EPISODES = 2  # one to learn from, one to be judged by
_HELD_OUT = 0.2  # of the episodes
_ENCODED_AT_ONCE = 512
_SPLIT, _BATCHES = 0, 1  # so that the two share no random numbers


class EncodedEpisode(NamedTuple):
    """One episode of T steps as a representation shows it, next to what it should say."""

    h: Tensor  # (T, D)
    z: Tensor  # (T, Z)
    proprioception: Float64Array  # (T + 1, P)


@dataclass(frozen=True)
class Loss:
    """Of one predictor, as the squared norm that the paper writes: summed over the dimensions of a state.

    The paper's numbers are about as large for 17 dimensions (cheetah) as for more than 200 (dog), which sums
    would not be. What can be compared with them is the loss divided by the number of dimensions.
    """

    held_out: float
    training: float
    dimensions: int

    @property
    def per_dimension(self) -> float:
        """Of the held-out episodes."""
        return self.held_out / self.dimensions


def encoded(representation: FrozenRepresentation, recording: Recording) -> EncodedEpisode:
    """Every step of an episode, in parts that fit into memory."""
    steps = len(recording)
    parts = [
        representation.encode(
            recording.observations(first, min(first + _ENCODED_AT_ONCE, steps)),
            recording.actions[first : first + _ENCODED_AT_ONCE],
        )
        for first in range(0, steps, _ENCODED_AT_ONCE)
    ]
    h, z = (torch.cat(part) for part in zip(*parts, strict=True))
    return EncodedEpisode(h, z, recording.proprioception)


def probe_all(
    sets: Sequence[Sequence[EncodedEpisode]],
    training: HeadTraining,
    seed: int,
    report: Callable[[float], None] = lambda _fraction: None,
) -> list[dict[str, Loss]]:
    """The losses, by name, for each set of episodes: of one representation, played by one policy.

    What is found for a set does not depend on the others; trained side by side, they take little longer.

    Args:
        report: Called from time to time with the finished fraction of the work.
    """
    tasks = [_tasks(episodes, seed) for episodes in sets]
    alike: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for place, named in enumerate(tasks):
        for name, task in named.items():
            alike.setdefault(task.shape, []).append((place, name))
    losses: list[dict[str, Loss]] = [{} for _ in sets]
    for done, members in enumerate(alike.values()):
        chosen = [tasks[place][name] for place, name in members]
        fraction = _part_of(report, done, len(alike), training.updates)
        heads = train_heads([task.training for task in chosen], training, _seed(seed, _BATCHES), fraction)
        for (place, name), loss in zip(members, _judged(heads, chosen), strict=True):
            losses[place][name] = loss
    return losses


def held_out_episodes(episodes: int, seed: int) -> frozenset[int]:
    """Which of `episodes` episodes are held out to evaluate predictors: a fifth, at least one."""
    if episodes < FEWEST_EPISODES:
        raise UserError(
            f"probing needs at least {FEWEST_EPISODES} episodes, one to train on and one held out; "
            f"got {episodes}."
        )
    count = max(1, round(_HELD_OUT * episodes))
    order = np.random.default_rng(_seed(seed, _SPLIT)).permutation(episodes)
    return frozenset(order[:count].tolist())


@dataclass(frozen=True)
class _Task:
    """What one predictor has to learn."""

    training: Examples
    held_out: Examples

    @property
    def shape(self) -> tuple[int, int]:
        return (self.training.inputs.shape[1], self.training.targets.shape[1])


def _tasks(episodes: Sequence[EncodedEpisode], seed: int) -> dict[str, _Task]:
    held_out = held_out_episodes(len(episodes), seed)
    judging = [episode for place, episode in enumerate(episodes) if place in held_out]
    learning = [episode for place, episode in enumerate(episodes) if place not in held_out]
    moments = RunningMoments(episodes[0].proprioception.shape[1])
    for episode in learning:
        moments.add(episode.proprioception)
    return {
        STATE: _Task(_states(learning, moments), _states(judging, moments)),
        NEXT_STATE: _Task(_next_states(learning, moments), _next_states(judging, moments)),
    }


def _states(episodes: Sequence[EncodedEpisode], moments: RunningMoments) -> Examples:
    """h_t and x_t."""
    return _examples([episode.h for episode in episodes], [e.proprioception[:-1] for e in episodes], moments)


def _next_states(episodes: Sequence[EncodedEpisode], moments: RunningMoments) -> Examples:
    """z_t and x_{t+1}."""
    return _examples([episode.z for episode in episodes], [e.proprioception[1:] for e in episodes], moments)


def _examples(inputs: Sequence[Tensor], states: Sequence[Float64Array], moments: RunningMoments) -> Examples:
    joined = torch.cat(list(inputs))
    targets = torch.from_numpy(moments.normalised(np.concatenate(states))).float()
    return Examples(joined, targets.to(joined.device))


def _judged(heads: LinearHeads, tasks: Sequence[_Task]) -> list[Loss]:
    dimensions = tasks[0].training.targets.shape[1]
    on_held_out = heads.errors([task.held_out for task in tasks])
    on_training = heads.errors([task.training for task in tasks])
    return [Loss(*errors, dimensions) for errors in zip(on_held_out, on_training, strict=True)]


def _part_of(report: Callable[[float], None], done: int, parts: int, updates: int) -> Callable[[int], None]:
    return lambda so_far: report((done + so_far / updates) / parts)


def _seed(seed: int, role: int) -> int:
    return int(np.random.SeedSequence([seed, role]).generate_state(1, np.uint64)[0] >> 1)
