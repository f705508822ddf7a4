"""One kind of update at work: sampling, losses, gradients, optimisers, priorities, records.

This is everything an update needs besides equations, once for all methods.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ogspr.agents.metrics import RepresentationStats, RunningMeans, SkippedUpdates, has_nonfinite
from ogspr.agents.protocol import (
    Accelerator,
    Group,
    Kind,
    Losses,
    Normal,
    Runner,
    Shifts,
    Trained,
    Uniform,
    Update,
    Wanted,
    Windows,
    WindowSource,
)
from ogspr.errors import UserError
from ogspr.ops.images import shift_offsets
from ogspr.types import Window

# --- random numbers -----------------------------------------------------------------------------------


def raw_noise(wanted: Sequence[Kind], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """All the uniform (float64) and standard normal numbers that are wanted, on the generator's device."""
    uniforms = sum(_count(kind) for kind in wanted if not isinstance(kind, Normal))
    normals = sum(_count(kind) for kind in wanted if isinstance(kind, Normal))
    device = generator.device
    return (
        torch.rand(uniforms, generator=generator, device=device, dtype=torch.float64),
        torch.randn(normals, generator=generator, device=device),
    )


def arranged(uniforms: Tensor, normals: Tensor, wanted: Sequence[Kind]) -> list[Tensor]:
    """Raw numbers in the shapes that are wanted, in order."""
    fields, used, used_normals = [], 0, 0
    for kind in wanted:
        count = _count(kind)
        if isinstance(kind, Normal):
            fields.append(normals[used_normals : used_normals + count].view(kind.shape))
            used_normals += count
            continue
        part = uniforms[used : used + count]
        used += count
        if isinstance(kind, Shifts):
            fields.append(shift_offsets(part.view(kind.images, 2), kind.pad))
        else:
            fields.append((part if kind.double else part.float()).view(kind.shape))
    return fields


def _count(kind: Kind) -> int:
    return 2 * kind.images if isinstance(kind, Shifts) else math.prod(kind.shape)


# --- updates ------------------------------------------------------------------------------------------


def check_updates(updates: Mapping[str, Update], longest_horizon: int) -> None:
    """Refuses, before training begins, what would go wrong late or in silence.

    A parameter of two optimisers moves into the vector of the last one, and all others train a copy: a
    ValueError. A UserError where replay is not made for windows as long as those that are drawn.
    """
    require_unique_parameters(updates)
    for kind, update in updates.items():
        for name, draw in update.draws.items():
            if draw.horizon > longest_horizon:
                raise UserError(
                    f"the update '{kind}' draws windows '{name}' of {draw.horizon} steps, and the longest "
                    f"horizon of the configuration is {longest_horizon}; raise it, or predict fewer steps."
                )


def require_unique_parameters(updates: Mapping[str, Update]) -> None:
    """ValueError if something is trained twice, by whatever names."""
    trained_as: dict[nn.Parameter, str] = {}
    for kind, update in updates.items():
        for name, trained in update.trains.items():
            for group in trained.groups:
                for own, parameter in group.named.items():
                    place = f"{own} of '{name}' in '{kind}'"
                    if parameter in trained_as:
                        raise ValueError(
                            f"a parameter is trained twice: {trained_as[parameter]}, and {place}"
                        )
                    trained_as[parameter] = place


def require_unique(what: str, names: Sequence[str]) -> None:
    """ValueError if a name occurs twice."""
    if repeated := sorted(name for name, uses in Counter(names).items() if uses > 1):
        raise ValueError(f"names of {what} that occur twice: {', '.join(repeated)}; choose others")


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
        numbers = [*watched, *update.numbers]
        self.means = RunningMeans(numbers, device)
        self.skipped = SkippedUpdates(
            watched, {name: draw.batch for name, draw in update.draws.items()}, device
        )
        self.representations = RepresentationStats(update.features, batch, device)
        self.logged = [*numbers, *self.representations.names]
        """Names of all numbers in the log."""
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
        if unknown := losses.factors.keys() - self._weights.keys():
            raise ValueError(
                f"there are factors for {sorted(unknown)}, the losses are {sorted(self._weights)}"
            )
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
            "optimise": partial(self._optimise, gradients, skip),
            "record": partial(self._record, windows, losses, numbers, skip),
        }
        if losses.priorities:
            branches["prioritise"] = partial(_prioritise, replay, windows, losses.priorities, skip)
        self._branches(branches)
        if not losses.priorities:
            replay.finish_drawing()
        if self.update.after is not None:  # beside no branch: it may change what another one reads
            self.update.after(losses, skip)

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

    def _optimise(self, gradients: Gradients, skip: Tensor) -> None:
        for name, optimiser in self.optimisers.items():
            optimiser.step(gradients.vectors[name], gradients.norms[name], skip)

    def _record(self, windows: Windows, losses: Losses, numbers: dict[str, Tensor], skip: Tensor) -> None:
        self.skipped.observe(skip, numbers, {name: window.starts for name, window in windows.items()})
        self.means.add({**numbers, **losses.numbers}, skip)
        self.representations.keep(losses.features, skip)


def _prioritise(
    replay: WindowSource, windows: Windows, priorities: Mapping[str, Tensor], skip: Tensor
) -> None:
    for name, new in priorities.items():
        replay.set_priorities(windows[name].starts, new, skip)


# --- AdamW with a clipped gradient, which changes nothing when a number is non-finite --------------------


_STEPS, _FIRST, _SECOND = "steps.", "first.", "second."  # how names in a saved state begin
# Compiled kernels that load several numbers at once need weights that begin at multiples of 16 bytes. Torch
# caches them on disk without recording this, and kernels compiled for one task crash with another whose
# weights begin elsewhere. 128 bytes is what a GPU reads from memory at once.
_ALIGNMENT = 128


def adamw_step(
    parameters: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    steps: Tensor,
    learning_rate: Tensor,
    weight_decay: float,
    betas: tuple[float, float],
    epsilon: float,
    divisor: Tensor,
    skip: Tensor,
) -> None:
    """One step of AdamW (Loshchilov & Hutter, 2019), in place; none if `skip` (0-d) is 1.

    Vectors of one length. The gradient is divided by `divisor` first.
    """
    beta1, beta2 = betas
    kept = skip > 0
    gradient = gradient / divisor
    new_first = torch.lerp(gradient, first, beta1)
    new_second = torch.lerp(gradient.square(), second, beta2)
    new_steps = steps + 1.0
    unbiased_first = new_first / (1.0 - beta1**new_steps)
    unbiased_second = new_second / (1.0 - beta2**new_steps)
    decayed = parameters * (1.0 - learning_rate * weight_decay)
    moved = decayed - learning_rate * unbiased_first / (unbiased_second.sqrt() + epsilon)
    parameters.copy_(torch.where(kept, parameters, moved))
    first.copy_(torch.where(kept, first, new_first))
    second.copy_(torch.where(kept, second, new_second))
    steps.copy_(torch.where(kept, steps, new_steps))


class ClippedAdamW:
    """AdamW over groups of named parameters. A step waits for nothing, and all its changes are in place.

    The parameters of a group become views of one vector, so a step is one pass over four vectors; stepping
    tensor by tensor leaves most of a GPU idle. Build it before anything that keeps views of the parameters.

    Args:
        trained: The groups, and the largest norm of all their gradients together.
        runner: How its tensor code is run.
    """

    def __init__(self, trained: Trained, runner: Runner) -> None:
        self._vectors = [_Vector(group) for group in trained.groups if group.named]
        self._clip_norm = float("inf") if trained.clip_norm is None else trained.clip_norm
        self._adamw_step = runner.function(adamw_step)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for vector in self._vectors for parameter in vector.parameters]

    def gather(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """One vector for each group, from gradients in the order of `parameters`."""
        remaining = iter(gradients)
        return [vector.joined(list(islice(remaining, len(vector.parameters)))) for vector in self._vectors]

    def step(self, gradients: Sequence[Tensor], norm: Tensor, skip: Tensor) -> None:
        """One step with gradients from `gather`, whose norm is given; none if `skip` (0-d) is 1."""
        divisor = (norm / self._clip_norm).clamp(min=1.0)
        with torch.no_grad():
            for vector, gradient in zip(self._vectors, gradients, strict=True):
                self._adamw_step(
                    vector.parameter,
                    gradient,
                    vector.first,
                    vector.second,
                    vector.steps,
                    vector.learning_rate,
                    vector.group.weight_decay,
                    vector.group.betas,
                    vector.group.epsilon,
                    divisor,
                    skip,
                )

    def state_dict(self) -> dict[str, Tensor]:
        """Moments by parameter name, and step counts: views, not copies. Learning rates are settings.

        A name that several groups have begins with the number of its group.
        """
        states = [vector.state() for vector in self._vectors]
        uses = Counter(name for state in states for name in state)
        return {
            name if uses[name] == 1 else f"{number}.{name}": tensor
            for number, state in enumerate(states)
            for name, tensor in state.items()
        }


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all groups' gradients together; 0-d."""
    norms = [torch.linalg.vector_norm(gradient) for gradient in gradients]
    norm: Tensor = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms))
    return norm


def joint_gradients(
    losses: Sequence[Tensor],
    optimisers: Sequence[ClippedAdamW],
    weights: Sequence[Tensor] | None = None,
) -> list[list[Tensor]]:
    """The gradients of a weighted sum of losses, one vector for each group of each optimiser.

    Takes one backward pass. A parameter without a gradient is an error.
    """
    parameters = [optimiser.parameters for optimiser in optimisers]
    gradients = iter(torch.autograd.grad(losses, [p for each in parameters for p in each], weights))
    return [
        optimiser.gather(list(islice(gradients, len(each))))
        for optimiser, each in zip(optimisers, parameters, strict=True)
    ]


class _Vector:
    """The parameters of a group as one vector, and what AdamW remembers of their gradients.

    Every parameter begins at a multiple of the alignment; the gaps are zero and stay zero.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self._names = list(group.named)
        self.parameters = list(group.named.values())
        unit = _ALIGNMENT // self.parameters[0].element_size()
        self._gaps = [-parameter.numel() % unit for parameter in self.parameters]
        self._zeros = self.parameters[0].new_zeros(unit, requires_grad=False)
        self.parameter = self.joined([parameter.detach() for parameter in self.parameters])
        for parameter, view in zip(self.parameters, self._views(self.parameter), strict=True):
            parameter.data = view
        self.first = torch.zeros_like(self.parameter)
        self.second = torch.zeros_like(self.parameter)
        device = self.parameter.device
        self.steps = torch.zeros((), device=device)
        self.learning_rate = torch.tensor(group.learning_rate, device=device)

    def state(self) -> dict[str, Tensor]:
        names = self._names
        first = dict(zip(names, self._views(self.first), strict=True))
        second = dict(zip(names, self._views(self.second), strict=True))
        return {
            f"{_STEPS}{names[0]}": self.steps,  # a group goes by its first parameter
            **{f"{_FIRST}{name}": view for name, view in first.items()},
            **{f"{_SECOND}{name}": view for name, view in second.items()},
        }

    def joined(self, tensors: Sequence[Tensor]) -> Tensor:
        """Tensors in the shapes of the parameters, as one vector with the same layout."""
        pieces: list[Tensor] = []
        for tensor, gap in zip(tensors, self._gaps, strict=True):
            pieces += [tensor.reshape(-1), self._zeros[:gap]] if gap else [tensor.reshape(-1)]
        return torch.cat(pieces)

    def _views(self, vector: Tensor) -> list[Tensor]:
        lengths = [
            parameter.numel() + gap for parameter, gap in zip(self.parameters, self._gaps, strict=True)
        ]
        parts = torch.split(vector, lengths)
        return [
            part[: parameter.numel()].view(parameter.shape)
            for part, parameter in zip(parts, self.parameters, strict=True)
        ]
