"""DrQ-v2's networks: ReLU and no normalisation between layers, orthogonal weights, zero biases.

Layers are made as others are and become orthogonal then: so the weights of a seed stay those of the runs in
results/.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.actor_critic import Continuous
from ogspr.agents.drqv2.config import DrQv2Config, Sizes
from ogspr.errors import UserError
from ogspr.nets import Linear, ParallelLinear, orthogonal
from ogspr.ops import images as image_ops
from ogspr.types import ContinuousActions, EnvSpec

_LATER_LAYERS = 3  # of stride 1
SMALLEST_IMAGE = 15  # below this nothing is left after the four convolutions


class FlatEncoder(nn.Module):
    """Four 3x3 convolutions (strides 2, 1, 1, 1), each with ReLU; their last maps as one long vector."""

    def __init__(self, image_shape: tuple[int, int, int], channels: int) -> None:
        super().__init__()
        image_channels, height, width = image_shape
        if min(height, width) < SMALLEST_IMAGE:
            raise UserError(
                f"images of {height}x{width} pixels are too small for the encoder; "
                f"it needs at least {SMALLEST_IMAGE}x{SMALLEST_IMAGE}."
            )
        self.first = _convolution(image_channels, channels, image_ops.STRIDE)
        self.later = nn.ModuleList(_convolution(channels, channels, 1) for _ in range(_LATER_LAYERS))
        self.size = channels * _remaining(height) * _remaining(width)

    def forward(self, images: Tensor) -> Tensor:
        """Images: (N, S * C, H, W) -> (N, size)."""
        return self._features(image_ops.first_layer(images, self.first.weight, cast(Tensor, self.first.bias)))

    def of_stacks(
        self, frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, pixel_range: tuple[float, float]
    ) -> Tensor:
        """Shifted frame stacks in replay: (slots, C, H, W), (N, S), (N, 2) -> (N, size)."""
        first = image_ops.first_layer_of_stacks(
            frames, slots, offsets, pad, pixel_range, self.first.weight, cast(Tensor, self.first.bias)
        )
        return self._features(first)

    def _features(self, x: Tensor) -> Tensor:
        # The first layer comes with ELU, which has the sign of its argument: ReLU of it is ReLU.
        x = F.relu(x)
        for convolution in self.later:
            x = F.relu(convolution(x))
        return x.flatten(1)


class Trunk(nn.Module):
    """Linear, LayerNorm with learned scale and shift, tanh: (N, inputs) -> (N, features)."""

    def __init__(self, inputs: int, features: int) -> None:
        super().__init__()
        self.linear = Linear(inputs, features)
        orthogonal(self.linear.weight, self.linear.bias)
        self.norm = nn.LayerNorm(features)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.linear(x)))


class ReLUMLP(nn.Module):
    """Linear layers of the given sizes with ReLU between: (N, in) -> (N, out)."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        for layer in cast(Sequence[Linear], self.layers):
            orthogonal(layer.weight, layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return _through(self.layers, x)


class ParallelReLUMLP(nn.Module):
    """`members` such networks that read the same input: (N, in) -> (members, N, out)."""

    def __init__(self, members: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.members = members
        self.layers = nn.ModuleList(ParallelLinear(members, a, b) for a, b in pairwise(sizes))
        for layer in cast(Sequence[ParallelLinear], self.layers):
            for weight, bias in zip(layer.weight.detach(), layer.bias.detach(), strict=True):
                orthogonal(weight.T, bias)  # a linear layer's weight is (out, in)

    def forward(self, x: Tensor) -> Tensor:
        return _through(self.layers, x.expand(self.members, *x.shape))


def _through(layers: nn.ModuleList, x: Tensor) -> Tensor:
    for layer in layers[:-1]:
        x = F.relu(layer(x))
    outputs: Tensor = layers[-1](x)
    return outputs


def _convolution(inputs: int, outputs: int, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(inputs, outputs, image_ops.KERNEL, stride)
    orthogonal(layer.weight, cast(Tensor, layer.bias))
    return layer


def _remaining(length: int) -> int:
    return image_ops.output_size(length) - _LATER_LAYERS * (image_ops.KERNEL - 1)


# --- actor and critic ----------------------------------------------------------------------------------


PIXEL_RANGE = (-0.5, 0.5)  # what bytes 0 and 255 become
_VALUES = 2  # a pair, as in TD3


def continuous_actions(spec: EnvSpec) -> Continuous:
    """The actions of an environment; a UserError where they are not continuous."""
    if not isinstance(spec.actions, ContinuousActions):
        raise UserError(
            f"drqv2 supports continuous actions only, and {spec.name} has {spec.actions} actions; "
            "choose another preset or another task."
        )
    return Continuous(spec.actions.size)


class Perception(nn.Module):
    """From images to features: all that acting needs besides the policy."""

    def __init__(self, image_shape: tuple[int, int, int], sizes: Sizes) -> None:
        super().__init__()
        self.encoder = FlatEncoder(image_shape, sizes.encoder_channels)

    def latent(self, images: Tensor) -> Tensor:
        """(N, S * C, H, W) -> (N, F)."""
        features: Tensor = self.encoder(images)
        return features


class PolicyNetwork(nn.Module):
    """Features -> pre-activation of the action: (N, F) -> (N, A)."""

    def __init__(self, inputs: int, action_size: int, sizes: Sizes) -> None:
        super().__init__()
        self.trunk = Trunk(inputs, sizes.features)
        self.mlp = ReLUMLP((sizes.features, sizes.hidden, sizes.hidden, action_size))

    def forward(self, features: Tensor) -> Tensor:
        pre_activation: Tensor = self.mlp(self.trunk(features))
        return pre_activation


class Critic(nn.Module):
    """Two values of features and action, on one trunk: what has a target copy."""

    def __init__(self, inputs: int, action_size: int, sizes: Sizes) -> None:
        super().__init__()
        self.trunk = Trunk(inputs, sizes.features)
        self.pair = ParallelReLUMLP(_VALUES, (sizes.features + action_size, sizes.hidden, sizes.hidden, 1))

    def values(self, h: Tensor, action: Tensor) -> Tensor:
        """Of what the trunk gives: (N, D), (N, A) -> (2, N)."""
        values: Tensor = self.pair(torch.cat((h, action), 1))
        return values[:, :, 0]


class ValueNetwork(Perception):
    """The encoder and the critic: what the loss of the values trains."""

    def __init__(self, image_shape: tuple[int, int, int], action_size: int, sizes: Sizes) -> None:
        super().__init__(image_shape, sizes)
        self.critic = Critic(self.encoder.size, action_size, sizes)


class Networks:
    """All networks of one agent. The target has no encoder: the one that learns serves both."""

    def __init__(self, config: DrQv2Config, spec: EnvSpec, action_size: int, device: torch.device) -> None:
        self.value = ValueNetwork(spec.observation_shape, action_size, config.sizes).to(device)
        self.policy = PolicyNetwork(self.value.encoder.size, action_size, config.sizes).to(device)
        self.target_critic = copy.deepcopy(self.value.critic).requires_grad_(False)

    def move_target(self, rate: Tensor) -> None:
        """Moves the target towards the critic by the share `rate` (0-d), in place."""
        target: list[Tensor] = list(self.target_critic.parameters())
        critic: list[Tensor] = list(self.value.critic.parameters())
        with torch.no_grad():
            way = torch._foreach_sub(critic, target)
            torch._foreach_mul_(way, rate)
            torch._foreach_add_(target, way)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What has to be saved, by part and name."""
        return {
            "value_network": self.value.state_dict(),
            "policy": self.policy.state_dict(),
            "target_critic": self.target_critic.state_dict(),
        }
