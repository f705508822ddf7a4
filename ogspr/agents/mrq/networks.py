"""The networks of the method."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.actor_critic import make_policy
from ogspr.agents.modules import copy_parameters
from ogspr.agents.mrq.config import MRQConfig, Sizes
from ogspr.nets import MLP, ConvEncoder, Linear, ParallelMLP
from ogspr.ops.values import symexp_bins
from ogspr.types import EnvSpec

_VALUES = 2  # a pair, as in TD3


class StateActionEncoder(nn.Module):
    """g: latent state and embedded action -> state-action representation."""

    def __init__(self, action_size: int, sizes: Sizes) -> None:
        super().__init__()
        self.embedding = Linear(action_size, sizes.action_embedding)
        hidden = sizes.state_action_hidden
        self.mlp = MLP((sizes.latent + sizes.action_embedding, hidden, hidden, sizes.representation), F.elu)

    def forward(self, h: Tensor, action: Tensor) -> Tensor:
        z: Tensor = self.mlp(torch.cat((h, F.elu(self.embedding(action))), 1))
        return z


class Perception(nn.Module):
    """f: from images to the latent state, all that acting needs besides the policy."""

    def __init__(self, image_shape: tuple[int, int, int], sizes: Sizes) -> None:
        super().__init__()
        self.encoder = ConvEncoder(image_shape, sizes.encoder_channels, sizes.latent)

    def latent(self, images: Tensor) -> Tensor:
        """h = f(s): (N, S * C, H, W) -> (N, D)."""
        h: Tensor = self.encoder(images)
        return h

    def latent_of_stacks(
        self, frames: Tensor, slots: Tensor, offsets: Tensor, pad: int, pixel_range: tuple[float, float]
    ) -> Tensor:
        """h of shifted frame stacks in replay: (N, S), (N, 2) -> (N, D)."""
        return self.encoder.of_stacks(frames, slots, offsets, pad, pixel_range)


class Core(Perception):
    """f, g, Q1 and Q2: what policy and value need, and what has a target copy."""

    def __init__(self, image_shape: tuple[int, int, int], action_size: int, sizes: Sizes) -> None:
        super().__init__(image_shape, sizes)
        self.state_action = StateActionEncoder(action_size, sizes)
        hidden = sizes.value_hidden
        value_sizes = (sizes.representation, hidden, hidden, hidden, 1)
        self.long_term = ParallelMLP(_VALUES, value_sizes, F.elu)

    def values(self, z: Tensor) -> Tensor:
        """Q1(z), Q2(z): (B, Z) -> (2, B)."""
        values: Tensor = self.long_term(z)
        return values[:, :, 0]


class Prediction(NamedTuple):
    """What the model says of a step."""

    h: Tensor  # (B, D) the next latent state
    reward: Tensor  # (B, bins) logits
    done: Tensor  # (B, 1) whether it was terminal


class WorldModel(nn.Module):
    """m: what a step leads to, linear in its representation."""

    bins: Tensor

    def __init__(self, representation: int, latent: int, bins: int, limit: float) -> None:
        super().__init__()
        self.outputs = Linear(representation, latent + bins + 1)
        self.widths = [latent, bins, 1]
        self.register_buffer("bins", symexp_bins(bins, limit), persistent=False)

    def forward(self, z: Tensor) -> Prediction:
        return Prediction(*torch.split(self.outputs(z), self.widths, 1))


class Networks:
    """All networks of one agent: those that learn, and the copies that targets come from."""

    def __init__(self, config: MRQConfig, spec: EnvSpec, action_size: int, device: torch.device) -> None:
        sizes = config.sizes
        self.core = Core(spec.observation_shape, action_size, sizes).to(device)
        self.model = WorldModel(
            sizes.representation, sizes.latent, config.reward_bins, config.reward_limit
        ).to(device)
        self.policy = make_policy(sizes.latent, sizes.policy_hidden, action_size).to(device)
        self.target_core = copy.deepcopy(self.core).requires_grad_(False)
        self.target_policy = copy.deepcopy(self.policy).requires_grad_(False)
        # Units of the values that learn, and of the target's.
        self.scale = torch.ones((), device=device)
        self.target_scale = torch.ones((), device=device)

    def sync_targets(self, unit: Tensor) -> None:
        """Copies the parameters to the target networks, in place.

        From now on, what learns is in units of `unit` (0-d), or of 1 if that is zero.
        """
        copy_parameters(self.target_core, self.core)
        copy_parameters(self.target_policy, self.policy)
        self.target_scale.copy_(self.scale)
        self.scale.copy_(torch.where(unit > 0, unit, torch.ones_like(unit)))

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What has to be saved, by part and name."""
        return {
            "core": self.core.state_dict(),
            "model": self.model.state_dict(),
            "policy": self.policy.state_dict(),
            "target_core": self.target_core.state_dict(),
            "target_policy": self.target_policy.state_dict(),
            "scales": {"online": self.scale, "target": self.target_scale},
        }
