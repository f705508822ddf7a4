"""The networks of an agent, and the copy that targets come from."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ogspr.agents.actions import Continuous
from ogspr.agents.drqv2.config import DrQv2Config, Sizes
from ogspr.errors import UserError
from ogspr.nets.orthogonal import FlatEncoder, ParallelReLUMLP, ReLUMLP, Trunk
from ogspr.types import ContinuousActions, EnvSpec

PIXEL_RANGE = (-0.5, 0.5)  # what bytes 0 and 255 become
_VALUES = 2  # a pair, as in TD3


def continuous_actions(spec: EnvSpec) -> Continuous:
    """The actions of an environment; a UserError where they are not continuous."""
    if not isinstance(spec.actions, ContinuousActions):
        raise UserError(
            f"drqv2 learns continuous actions only, and {spec.name} has {spec.actions} ones; "
            "choose another preset or another task."
        )
    return Continuous(spec.actions.size)


class Perception(nn.Module):
    """From pictures to features: all that acting needs beside the policy."""

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

    def __init__(
        self, config: DrQv2Config, spec: EnvSpec, action_size: int, seed: int, device: torch.device
    ) -> None:
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            torch.manual_seed(seed)
            self.value = ValueNetwork(spec.observation_shape, action_size, config.sizes)
            self.policy = PolicyNetwork(self.value.encoder.size, action_size, config.sizes)
        self.value.to(device)
        self.policy.to(device)
        self.target_critic = copy.deepcopy(self.value.critic).requires_grad_(False)

    def move_target(self, rate: Tensor) -> None:
        """The target takes over the share `rate` (0-d) of the critic, in place."""
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
