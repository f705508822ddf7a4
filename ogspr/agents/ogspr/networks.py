"""The networks of the method, built from a variant's configuration: only what it uses."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.ogspr.adapters import Adapters
from ogspr.agents.ogspr.config import OGSPRConfig, Sizes
from ogspr.agents.ogspr.tasks import HeadSizes
from ogspr.nets.encoder import ConvEncoder
from ogspr.nets.mlp import MLP, ParallelMLP
from ogspr.types import EnvSpec

M = TypeVar("M", bound=nn.Module)

_VALUES = 2  # a pair, as in TD3


class StateActionEncoder(nn.Module):
    """g: latent state and action -> state-action representation."""

    def __init__(self, latent: int, action_size: int, hidden: int, representation: int) -> None:
        super().__init__()
        self.mlp = MLP((latent + action_size, hidden, hidden, representation), F.elu)

    def forward(self, h: Tensor, action: Tensor) -> Tensor:
        z: Tensor = self.mlp(torch.cat((h, action), 1))
        return z


class Core(nn.Module):
    """f, u1, g, Q1 and Q2: what policy and value need, and what has a target copy."""

    def __init__(
        self, image_shape: tuple[int, int, int], action_size: int, sizes: Sizes, adapters: Adapters
    ) -> None:
        super().__init__()
        self.encoder = ConvEncoder(image_shape, sizes.encoder_channels, sizes.features)
        self.adapter1 = adapters.first(sizes.features, sizes.latent)
        self.state_action = StateActionEncoder(
            sizes.latent, action_size, sizes.state_action_hidden, sizes.representation
        )
        hidden = sizes.value_hidden
        value_sizes = (sizes.representation, hidden, hidden, hidden, 1)
        self.long_term = ParallelMLP(_VALUES, value_sizes, F.elu, exact_output=True)

    def latent(self, images: Tensor) -> Tensor:
        """h = u1(f(s)): (N, S * C, H, W) -> (N, D)."""
        h: Tensor = self.adapter1(self.encoder(images))
        return h.float()

    def latent_of_stacks(
        self, frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, pixel_range: tuple[float, float]
    ) -> Tensor:
        """h of shifted frame stacks in replay: (N, S), (N, 2) -> (N, D)."""
        h: Tensor = self.adapter1(self.encoder.of_stacks(frames, slots, offsets, pad, pixel_range))
        return h.float()

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
            sizes.representation, sizes.latent, sizes.value_hidden, sizes.decoder_channels, spec.frame_shape
        )
        self.heads = nn.ModuleDict(
            {task.name: task.head(head_sizes, config.adapters, self.core.adapter1) for task in config.tasks}
        )

    def parts(self) -> list[nn.Module]:
        """The modules of the paper."""
        return [*self.core.children(), *self.heads.children()]


def make_policy(sizes: Sizes, action_size: int) -> MLP:
    """pi: latent state -> pre-activation of the action."""
    hidden = sizes.policy_hidden
    return MLP((sizes.latent, hidden, hidden, action_size), F.relu, exact_output=True)


def frozen_view(module: M) -> M:
    """The same module over the same numbers, but nothing that is computed with it gives them a gradient."""
    stand_ins = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in module.parameters()}
    return copy.deepcopy(module, stand_ins)


def parameter_count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
