"""AdamW with a clipped gradient; it changes nothing when a number is non-finite."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import torch
from torch import Tensor, nn

from ogspr.agents.protocol import Group, Runner, Trained

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
        """Moments by parameter name, and step counts: views, not copies. Learning rates are settings."""
        state: dict[str, Tensor] = {}
        for vector in self._vectors:
            state |= vector.state()
        return state


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
