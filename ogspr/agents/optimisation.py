"""AdamW with a clipped gradient, that leaves everything as it was when a number is not finite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim.adamw import adamw

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class ClippedAdamW:
    """AdamW over named parameters. Nothing in a step waits for the device; everything changes in place.

    Args:
        groups: Parameters by name; each group's gradient is clipped on its own.
        clip_norm: The largest norm of a group's gradient; None: as it comes.
    """

    def __init__(
        self,
        groups: Iterable[Mapping[str, nn.Parameter]],
        *,
        learning_rate: float,
        weight_decay: float,
        clip_norm: float | None,
    ) -> None:
        self._groups = [_Moments(group) for group in groups if group]
        self._weight_decay = weight_decay
        self._clip_norm = clip_norm
        # A tensor, because a captured graph reads it anew each time.
        self.learning_rate = torch.tensor(learning_rate, device=self.parameters[0].device)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self._groups for parameter in group.parameters]

    def norms(self, gradients: Sequence[Tensor]) -> Tensor:
        """The norm of each group's gradient, (groups,); gradients are in the order of `parameters`."""
        return torch.stack([get_total_norm(part) for part in self._split(gradients)])

    def step(self, gradients: Sequence[Tensor], norms: Tensor, skip: Tensor) -> None:
        """One step with the gradients clipped; none at all where `skip` (0-d) is 1."""
        for group, part, norm in zip(self._groups, self._split(gradients), norms, strict=True):
            adamw(
                group.parameters,  # type: ignore[arg-type]
                part,
                group.first,
                group.second,
                [],
                group.steps,
                fused=True,
                amsgrad=False,
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                lr=self.learning_rate,
                weight_decay=self._weight_decay,
                eps=_EPSILON,
                maximize=False,
                grad_scale=self._divisor(norm),
                found_inf=skip,
            )

    def state_dict(self) -> dict[str, Tensor]:
        """The moments by parameter name, the step counts and the learning rate."""
        state = {"learning_rate": self.learning_rate}
        for group in self._groups:
            state |= group.state()
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """In place, so that a captured graph goes on with the loaded numbers."""
        copy_state(self.state_dict(), state)

    def _divisor(self, norm: Tensor) -> Tensor | None:
        return None if self._clip_norm is None else (norm / self._clip_norm).clamp(min=1.0)

    def _split(self, gradients: Sequence[Tensor]) -> list[list[Tensor]]:
        parts, begin = [], 0
        for group in self._groups:
            end = begin + len(group.parameters)
            parts.append(list(gradients[begin:end]))
            begin = end
        return parts


class _Moments:
    """Parameters that are clipped together, and what AdamW remembers of their gradients."""

    def __init__(self, named: Mapping[str, nn.Parameter]) -> None:
        self.names = list(named)
        self.parameters = list(named.values())
        self.first = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.second = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps = [torch.zeros((), device=parameter.device) for parameter in self.parameters]

    def state(self) -> dict[str, Tensor]:
        kinds = {"first": self.first, "second": self.second, "steps": self.steps}
        return {
            f"{kind}.{name}": tensor
            for kind, tensors in kinds.items()
            for name, tensor in zip(self.names, tensors, strict=True)
        }


def copy_state(into: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copies tensors by name, in place; names and shapes must be the same on both sides."""
    if into.keys() != state.keys():
        missing, foreign = sorted(into.keys() - state.keys()), sorted(state.keys() - into.keys())
        raise ValueError(f"the saved state does not fit: missing {missing}, not known {foreign}")
    for name, tensor in into.items():
        if tensor.shape != state[name].shape:
            raise ValueError(
                f"the saved state does not fit: '{name}' has shape {tuple(state[name].shape)}, "
                f"expected {tuple(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in into.items():
            tensor.copy_(state[name])
