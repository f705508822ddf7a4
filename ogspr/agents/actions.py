"""The two kinds of actions, one object each, so that no loss asks which kind it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from ogspr.ops.values import gumbel
from ogspr.types import Action, ActionSpec, ContinuousActions


class ActionKind(Protocol):
    """How a policy's outputs become actions. Vectors have `size` numbers."""

    @property
    def size(self) -> int: ...

    def activate(self, pre_activation: Tensor, uniforms: Tensor) -> Tensor:
        """The differentiable action of a policy: (B, size), random numbers in [0, 1) -> (B, size)."""
        ...

    def mode(self, pre_activation: Tensor) -> Tensor:
        """The action without any noise."""
        ...

    def perturb(self, action: Tensor, noise: Tensor) -> Tensor:
        """A noisy action that the environment could have been given."""
        ...

    def to_environment(self, vectors: npt.NDArray[np.float32]) -> Action: ...

    def to_vector(self, action: Action) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True)
class Continuous:
    """Vectors in [-1, 1]: tanh."""

    size: int

    def activate(self, pre_activation: Tensor, uniforms: Tensor) -> Tensor:  # noqa: ARG002
        return torch.tanh(pre_activation)

    def mode(self, pre_activation: Tensor) -> Tensor:
        return torch.tanh(pre_activation)

    def perturb(self, action: Tensor, noise: Tensor) -> Tensor:
        return (action + noise).clamp(-1.0, 1.0)

    def to_environment(self, vectors: npt.NDArray[np.float32]) -> Action:
        return vectors

    def to_vector(self, action: Action) -> npt.NDArray[np.float32]:
        return np.asarray(action, np.float32)


@dataclass(frozen=True)
class Discrete:
    """One-hot vectors: Gumbel-Softmax for gradients, argmax for the environment.

    Args:
        noise_scale: Factor on all action noise (the paper: 1; MR.Q halves it).
    """

    size: int
    temperature: float
    noise_scale: float

    def activate(self, pre_activation: Tensor, uniforms: Tensor) -> Tensor:
        return F.softmax((pre_activation + gumbel(uniforms)) / self.temperature, dim=-1)

    def mode(self, pre_activation: Tensor) -> Tensor:
        return self._one_hot(pre_activation)

    def perturb(self, action: Tensor, noise: Tensor) -> Tensor:
        return self._one_hot(action + self.noise_scale * noise)

    def to_environment(self, vectors: npt.NDArray[np.float32]) -> Action:
        return np.asarray(vectors.argmax(-1))

    def to_vector(self, action: Action) -> npt.NDArray[np.float32]:
        one_hot: npt.NDArray[np.float32] = np.eye(self.size, dtype=np.float32)[np.asarray(action)]
        return one_hot

    def _one_hot(self, scores: Tensor) -> Tensor:
        return F.one_hot(scores.argmax(-1), self.size).float()


def action_kind(spec: ActionSpec, gumbel_temperature: float, discrete_noise_scale: float = 1.0) -> ActionKind:
    if isinstance(spec, ContinuousActions):
        return Continuous(spec.size)
    return Discrete(spec.count, gumbel_temperature, discrete_noise_scale)
