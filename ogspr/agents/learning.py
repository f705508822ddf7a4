"""One kind of update at work: sampling, losses, gradients, optimisers, priorities, records.

This is everything an update needs besides equations, once for all methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ogspr.agents.metrics import RepresentationStats, RunningMeans, SkippedUpdates, has_nonfinite
from ogspr.agents.noise import Uniform, arranged, raw_noise
from ogspr.agents.optimisation import ClippedAdamW, joint_gradients, norm_of
from ogspr.agents.protocol import Accelerator, Losses, Update, Wanted, Windows, WindowSource
from ogspr.errors import UserError
from ogspr.types import Window


class Gradients(NamedTuple):
    """The gradients of one update, by what is trained: a vector for each group, and the norm of all."""

    vectors: dict[str, list[Tensor]]
    norms: dict[str, Tensor]


class Sampler:
    """Draws the windows and random numbers of one kind of update."""

    def __init__(
        self, update: Update, generator: torch.Generator, arrange: Callable[..., list[Tensor]] = arranged
    ) -> None:
        self._draws = update.draws
        self._noise = type(update.noise)
        self._wanted = (
            *(Uniform((draw.batch,), double=True) for draw in update.draws.values()),
            *update.noise,
        )
        self._generator = generator
        self._arrange = arrange

    def __call__(self, draw: Callable[[Wanted], list[Window]]) -> tuple[Windows, Any]:
        fields = self._arrange(*raw_noise(self._wanted, self._generator), self._wanted)
        places, noise = fields[: len(self._draws)], fields[len(self._draws) :]
        windows = draw(list(zip(self._draws.values(), places, strict=True)))
        return dict(zip(self._draws, windows, strict=True)), self._noise(*noise)


class Learning:
    """One kind of update at work, phase by phase; only the last phase changes anything.

    Args:
        update: What the method declares.
        prefix: Of the names of its saved parts, to tell several kinds apart.
        generator: Where its random numbers come from.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self, update: Update, prefix: str, generator: torch.Generator, accelerator: Accelerator
    ) -> None:
        self.update = update
        self._prefix = prefix
        self._branches = accelerator.branches
        device, batch = generator.device, next(iter(update.draws.values())).batch
        self.optimisers = {
            name: ClippedAdamW(trained, accelerator) for name, trained in update.trains.items()
        }
        self._weights = {name: torch.tensor(weight, device=device) for name, weight in update.weights.items()}
        watched = [f"{term}_loss" for term in update.weights]
        watched += [f"{update.total}_loss"] if update.total else []
        watched += [f"{name}_gradient_norm" for name in update.trains]
        self.means = RunningMeans([*watched, *update.numbers], device)
        self.skipped = SkippedUpdates(
            watched, {name: draw.batch for name, draw in update.draws.items()}, device
        )
        self.representations = RepresentationStats(update.features, batch, device)
        self._sampler = Sampler(update, generator, accelerator.function(arranged))
        self._has_nonfinite = accelerator.function(has_nonfinite)

    def __call__(self, replay: WindowSource) -> None:
        """The whole update. Nothing in it waits for the device."""
        self._finish(replay, *self._backward(*self._forward(*self._sample(replay))))

    def cut_off(self, replay: WindowSource) -> dict[str, Callable[[], None]]:
        """The update up to the end of each phase, by name; the last one is whole."""

        def sample() -> None:
            self._sample(replay)
            replay.finish_drawing()

        def forward() -> None:
            self._forward(*self._sample(replay))
            replay.finish_drawing()

        def backward() -> None:
            self._backward(*self._forward(*self._sample(replay)))
            replay.finish_drawing()

        return {"sample": sample, "forward": forward, "backward": backward, "optimise": partial(self, replay)}

    def require_windows(self, replay: WindowSource) -> None:
        """Raises a UserError if replay cannot serve a draw yet."""
        for draw in self.update.draws.values():
            if draw.horizon and not replay.valid_starts(draw.horizon, across_episodes=draw.across_episodes):
                raise UserError(
                    f"no window of {draw.horizon} steps is stored to learn from; "
                    "take more random steps before the first update, or predict fewer."
                )

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What has to be saved, by part and name."""
        parts = {f"{name}_optimiser": optimiser.state_dict() for name, optimiser in self.optimisers.items()}
        if self.update.features:
            parts["features"] = self.representations.state_dict()
        parts[f"{self._prefix}tally"] = self.means.state_dict()
        parts[f"{self._prefix}failures"] = self.skipped.state_dict()
        return parts

    # --- the phases -----------------------------------------------------------------------------

    def _sample(self, replay: WindowSource) -> tuple[Windows, Any]:
        return self._sampler(replay.draw)

    def _forward(self, windows: Windows, noise: Any) -> tuple[Windows, Any, Losses]:
        losses = self.update.losses(windows, noise)
        if losses.terms.keys() != self._weights.keys():
            raise ValueError(f"expected losses {sorted(self._weights)}, got {sorted(losses.terms)}")
        return windows, noise, losses  # the noise, too: the backward pass reads it

    def _backward(
        self, windows: Windows, noise: Any, losses: Losses
    ) -> tuple[Windows, Any, Losses, Gradients]:
        # What several optimisers train are parts of one graph, so one pass gives all gradients.
        vectors = joint_gradients(
            [losses.terms[name] for name in self._weights],
            list(self.optimisers.values()),
            list(self._weights_of(losses).values()),
        )
        by_name = dict(zip(self.optimisers, vectors, strict=True))
        norms = {name: norm_of(each) for name, each in by_name.items()}
        return windows, noise, losses, Gradients(by_name, norms)

    def _finish(
        self, replay: WindowSource, windows: Windows, _noise: Any, losses: Losses, gradients: Gradients
    ) -> None:
        """Optimisers, records and priorities; none of them if a number is non-finite."""
        numbers = self._numbers(losses, gradients)
        skip = self._has_nonfinite(tuple(numbers.values()))
        branches: dict[str, Callable[[], None]] = {
            "optimise": partial(self._optimise, losses, gradients, skip),
            "record": partial(self._record, windows, losses, numbers, skip),
        }
        if losses.priorities:
            branches["prioritise"] = partial(_prioritise, replay, windows, losses.priorities, skip)
        self._branches(branches)
        if not losses.priorities:
            replay.finish_drawing()

    def _weights_of(self, losses: Losses) -> dict[str, Tensor]:
        factors = losses.factors
        return {n: w * factors[n] if n in factors else w for n, w in self._weights.items()}

    def _numbers(self, losses: Losses, gradients: Gradients) -> dict[str, Tensor]:
        """Every loss and gradient norm by name."""
        terms = {name: losses.terms[name].detach() for name in self._weights}
        numbers = {f"{name}_loss": term for name, term in terms.items()}
        if self.update.total:
            weights = self._weights_of(losses)
            total = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
            numbers[f"{self.update.total}_loss"] = total
        return numbers | {f"{name}_gradient_norm": norm for name, norm in gradients.norms.items()}

    def _optimise(self, losses: Losses, gradients: Gradients, skip: Tensor) -> None:
        for name, optimiser in self.optimisers.items():
            optimiser.step(gradients.vectors[name], gradients.norms[name], skip)
        if self.update.after is not None:
            self.update.after(losses, skip)

    def _record(self, windows: Windows, losses: Losses, numbers: dict[str, Tensor], skip: Tensor) -> None:
        self.skipped.observe(skip, numbers, {name: window.starts for name, window in windows.items()})
        self.means.add({**numbers, **losses.numbers}, skip)
        self.representations.keep(losses.features, skip)


def _prioritise(
    replay: WindowSource, windows: Windows, priorities: Mapping[str, Tensor], skip: Tensor
) -> None:
    for name, new in priorities.items():
        replay.set_priorities(windows[name].starts, new, skip)
