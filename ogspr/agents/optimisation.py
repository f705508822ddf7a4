"""AdamW with a clipped gradient, that leaves everything as it was when a number is not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

_BETA1, _BETA2 = 0.9, 0.999
_EPSILON = 1e-8
_STEPS, _FIRST, _SECOND = "steps.", "first.", "second."  # how names in a saved state begin
# Compiled kernels that load several numbers at once need weights that begin at multiples of 16 bytes. torch
# keeps them on disk without a note of it, and kernels made for one task crash with another whose weights
# begin elsewhere. 128 bytes is what a GPU reads from memory in one piece.
_ALIGNMENT = 128


def adamw_step(
    parameters: Tensor,
    gradient: Tensor,
    first: Tensor,
    second: Tensor,
    steps: Tensor,
    learning_rate: Tensor,
    weight_decay: float,
    divisor: Tensor,
    skip: Tensor,
) -> None:
    """One step of AdamW (Loshchilov & Hutter, 2019), in place; none where `skip` (0-d) is 1.

    Vectors of one length; the gradient is divided by `divisor`, moments are of the divided one.
    """
    kept = skip > 0
    gradient = gradient / divisor
    new_first = torch.lerp(gradient, first, _BETA1)
    new_second = torch.lerp(gradient.square(), second, _BETA2)
    new_steps = steps + 1.0
    unbiased_first = new_first / (1.0 - _BETA1**new_steps)
    unbiased_second = new_second / (1.0 - _BETA2**new_steps)
    decayed = parameters * (1.0 - learning_rate * weight_decay)
    moved = decayed - learning_rate * unbiased_first / (unbiased_second.sqrt() + _EPSILON)
    parameters.copy_(torch.where(kept, parameters, moved))
    first.copy_(torch.where(kept, first, new_first))
    second.copy_(torch.where(kept, second, new_second))
    steps.copy_(torch.where(kept, steps, new_steps))


class ClippedAdamW:
    """AdamW over named parameters. Nothing in a step waits for the device; everything changes in place.

    The parameters of a group become views of one vector: a step is then one pass over four vectors, where a
    step tensor by tensor leaves most of a GPU idle.

    Args:
        groups: Parameters by name; each group's gradient is clipped on its own.
        clip_norm: The largest norm of a group's gradient; None: as it comes.
        accelerate: Applied to the step: compiles it, or does nothing.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, nn.Parameter]],
        *,
        learning_rate: float,
        weight_decay: float,
        clip_norm: float | None,
        accelerate: Callable[[Callable[..., Any]], Callable[..., Any]],
    ) -> None:
        self._groups = [_Group(group) for group in groups if group]
        self._weight_decay = weight_decay
        self._clip_norm = clip_norm
        self._adamw_step = accelerate(adamw_step)
        # A tensor, because a captured graph reads it anew each time.
        self.learning_rate = torch.tensor(learning_rate, device=self.parameters[0].device)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self._groups for parameter in group.named.values()]

    def gather(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradient of each group as one vector, from gradients in the order of `parameters`."""
        vectors, begin = [], 0
        for group in self._groups:
            end = begin + len(group.named)
            vectors.append(group.joined(gradients[begin:end]))
            begin = end
        return vectors

    def step(self, vectors: Sequence[Tensor], norms: Sequence[Tensor], skip: Tensor) -> None:
        """One step with each group's gradient clipped; none at all where `skip` (0-d) is 1."""
        with torch.no_grad():
            for group, vector, norm in zip(self._groups, vectors, norms, strict=True):
                self._adamw_step(
                    group.vector,
                    vector,
                    group.first,
                    group.second,
                    group.steps,
                    self.learning_rate,
                    self._weight_decay,
                    self._divisor(norm),
                    skip,
                )

    def state_dict(self) -> dict[str, Tensor]:
        """The moments by parameter name, and the step counts: views, not copies.

        Not the learning rate: that is a setting.
        """
        state: dict[str, Tensor] = {}
        for group in self._groups:
            state |= group.state()
        return state

    def _divisor(self, norm: Tensor) -> Tensor:
        limit = float("inf") if self._clip_norm is None else self._clip_norm
        return (norm / limit).clamp(min=1.0)


def gradient_between(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Tensor | None:
    """The gradient, clipped, of the one step that lies between two states of an optimiser.

    All groups as one vector; None where it has taken no step, or several.
    """
    if any(after[name] - before[name] != 1 for name in after if name.startswith(_STEPS)):
        return None
    moments = [name for name in after if name.startswith(_FIRST)]
    return torch.cat([(after[name] - _BETA1 * before[name]).flatten() for name in moments]) / (1.0 - _BETA1)


def joint_gradients(
    losses: Sequence[Tensor],
    optimisers: Sequence[ClippedAdamW],
    weights: Sequence[Tensor] | None = None,
) -> list[list[Tensor]]:
    """The gradients of a weighted sum of losses, for each optimiser one vector a group; one backward pass.

    A parameter without a gradient is an error.
    """
    parameters = [optimiser.parameters for optimiser in optimisers]
    gradients = iter(torch.autograd.grad(losses, [p for each in parameters for p in each], weights))
    return [
        optimiser.gather(list(islice(gradients, len(each))))
        for optimiser, each in zip(optimisers, parameters, strict=True)
    ]


class _Group:
    """Parameters that are clipped together, as one vector, and what AdamW remembers of their gradients.

    Every parameter begins at a multiple of the alignment; what lies between two of them is and stays zero.
    """

    def __init__(self, named: Mapping[str, nn.Parameter]) -> None:
        self.named = dict(named)
        parameters = list(named.values())
        unit = _ALIGNMENT // parameters[0].element_size()
        self._gaps = [-parameter.numel() % unit for parameter in parameters]
        self._zeros = parameters[0].new_zeros(unit, requires_grad=False)
        self.vector = self.joined([parameter.detach() for parameter in parameters])
        for parameter, view in zip(self.named.values(), self._views(self.vector), strict=True):
            parameter.data = view
        self.first = torch.zeros_like(self.vector)
        self.second = torch.zeros_like(self.vector)
        self.steps = torch.zeros((), device=self.vector.device)

    def state(self) -> dict[str, Tensor]:
        first = dict(zip(self.named, self._views(self.first), strict=True))
        second = dict(zip(self.named, self._views(self.second), strict=True))
        label = next(iter(self.named))  # a group is known by its first parameter
        return {
            f"{_STEPS}{label}": self.steps,
            **{f"{_FIRST}{name}": view for name, view in first.items()},
            **{f"{_SECOND}{name}": view for name, view in second.items()},
        }

    def joined(self, tensors: Sequence[Tensor]) -> Tensor:
        """Tensors in the shapes of the parameters as one vector, laid out as theirs is."""
        pieces: list[Tensor] = []
        for tensor, gap in zip(tensors, self._gaps, strict=True):
            pieces += [tensor.reshape(-1), self._zeros[:gap]] if gap else [tensor.reshape(-1)]
        return torch.cat(pieces)

    def _views(self, vector: Tensor) -> list[Tensor]:
        parameters = list(self.named.values())
        lengths = [parameter.numel() + gap for parameter, gap in zip(parameters, self._gaps, strict=True)]
        parts = torch.split(vector, lengths)
        return [
            part[: parameter.numel()].view(parameter.shape)
            for part, parameter in zip(parts, parameters, strict=True)
        ]


def copy_state(into: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copies tensors by name, in place; names and shapes must be the same on both sides."""
    if into.keys() != state.keys():
        missing, foreign = sorted(into.keys() - state.keys()), sorted(state.keys() - into.keys())
        raise ValueError(f"the saved state does not fit: missing {missing}, not known {foreign}")
    for name, tensor in into.items():
        given = state[name]
        if (tensor.shape, tensor.dtype) != (given.shape, given.dtype):
            raise ValueError(
                f"the saved state does not fit: '{name}' is {tuple(given.shape)} {given.dtype}, "
                f"expected {tuple(tensor.shape)} {tensor.dtype}"
            )
    with torch.no_grad():
        for name, tensor in into.items():
            tensor.copy_(state[name])
