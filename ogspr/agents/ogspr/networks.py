"""The networks of the method, built from a variant's configuration: only what it uses."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.actor_critic import make_policy
from ogspr.agents.modules import copy_parameters
from ogspr.agents.ogspr.adapters import Adapters
from ogspr.agents.ogspr.config import PIXEL_RANGE, OGSPRConfig, Sizes
from ogspr.agents.ogspr.heads import HeadSizes
from ogspr.nets.encoder import ConvEncoder
from ogspr.nets.mlp import MLP, ParallelMLP
from ogspr.nets.weights import orthogonal
from ogspr.types import EnvSpec

_VALUES = 2  # a pair, as in TD3


class StateActionEncoder(nn.Module):
    """g: latent state and action -> state-action representation."""

    def __init__(self, latent: int, action_size: int, hidden: int, representation: int) -> None:
        super().__init__()
        self.mlp = MLP((latent + action_size, hidden, hidden, representation), F.elu, orthogonal)

    def forward(self, h: Tensor, action: Tensor) -> Tensor:
        z: Tensor = self.mlp(torch.cat((h, action), 1))
        return z


class Perception(nn.Module):
    """f and u1: from pictures to the latent state, all that acting needs beside the policy."""

    def __init__(self, image_shape: tuple[int, int, int], sizes: Sizes, adapters: Adapters) -> None:
        super().__init__()
        self.encoder = ConvEncoder(image_shape, sizes.encoder_channels, sizes.features, orthogonal)
        self.adapter1 = adapters.first(sizes.features, sizes.latent)

    def latent(self, images: Tensor) -> Tensor:
        """h = u1(f(s)): (N, S * C, H, W) -> (N, D)."""
        h: Tensor = self.adapter1(self.encoder(images))
        return h

    def features_of_stacks(self, frames: Tensor, slots: Tensor, offsets: Tensor, pad: int) -> Tensor:
        """f of shifted frame stacks in replay: (N, S), (N, 2) -> (N, F)."""
        return self.encoder.of_stacks(frames, slots, offsets, pad, PIXEL_RANGE)


class Core(Perception):
    """f, u1, g, Q1 and Q2: what policy and value need, and what has a target copy."""

    def __init__(
        self, image_shape: tuple[int, int, int], action_size: int, sizes: Sizes, adapters: Adapters
    ) -> None:
        super().__init__(image_shape, sizes, adapters)
        self.state_action = StateActionEncoder(
            sizes.latent, action_size, sizes.state_action_hidden, sizes.representation
        )
        hidden = sizes.value_hidden
        value_sizes = (sizes.representation, hidden, hidden, hidden, 1)
        self.long_term = ParallelMLP(_VALUES, value_sizes, F.elu, orthogonal)

    def values(self, z: Tensor) -> Tensor:
        """Q1(z), Q2(z): (B, Z) -> (2, B)."""
        values: Tensor = self.long_term(z)
        return values[:, :, 0]


class ValueNetwork(nn.Module):
    """The core and the heads of the auxiliary tasks: what the combined loss trains."""

    def __init__(self, config: OGSPRConfig, spec: EnvSpec, action_size: int) -> None:
        super().__init__()
        sizes = config.sizes
        self.core = Core(spec.observation_shape, action_size, sizes, config.adapters)
        head_sizes = HeadSizes(
            sizes.representation,
            sizes.latent,
            sizes.value_hidden,
            sizes.decoder_inputs,
            sizes.decoder_channels,
            spec.frame_shape,
        )
        self.heads = nn.ModuleDict(
            {task.name: task.head(head_sizes, config.adapters, self.core.adapter1) for task in config.tasks}
        )


class Networks:
    """All networks of one agent: those that learn, and the copies that targets come from."""

    def __init__(
        self, config: OGSPRConfig, spec: EnvSpec, action_size: int, seed: int, device: torch.device
    ) -> None:
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            torch.manual_seed(seed)
            self.value = ValueNetwork(config, spec, action_size)
            self.policy = make_policy(
                config.sizes.latent, config.sizes.policy_hidden, action_size, orthogonal
            )
        self.value.to(device)
        self.policy.to(device)
        self.target_core = copy.deepcopy(self.value.core).requires_grad_(False)
        self.target_policy = copy.deepcopy(self.policy).requires_grad_(False)

    def sync_targets(self) -> None:
        """The target networks become copies, in place."""
        copy_parameters(self.target_core, self.value.core)
        copy_parameters(self.target_policy, self.policy)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What has to be saved, by part and name."""
        return {
            "value_network": self.value.state_dict(),
            "policy": self.policy.state_dict(),
            "target_core": self.target_core.state_dict(),
            "target_policy": self.target_policy.state_dict(),
        }
