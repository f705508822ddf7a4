"""The networks of the method, built from a variant's configuration: only what it uses."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.actor_critic import make_policy
from ogspr.agents.modules import copy_parameters
from ogspr.agents.ogspr.config import (
    PIXEL_RANGE,
    Adapters,
    AuxiliaryTask,
    ObservationPrediction,
    OGSPRConfig,
    ShortTermValue,
    Sizes,
)
from ogspr.nets import MLP, ConvEncoder, FrameDecoder, Linear, ParallelMLP, orthogonal
from ogspr.ops.values import symexp_bins
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
    """f and u1: from images to the latent state, all that acting needs besides the policy."""

    def __init__(self, image_shape: tuple[int, int, int], sizes: Sizes, adapters: Adapters) -> None:
        super().__init__()
        self.encoder = ConvEncoder(image_shape, sizes.encoder_channels, sizes.features, orthogonal)
        self.adapter1 = adapter(adapters.first_exists, sizes.features, sizes.latent)

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
        self.core = Core(spec.observation_shape, action_size, config.sizes, config.adapters)
        self.heads = nn.ModuleDict({task.name: self._head(task, config, spec) for task in config.tasks})

    def _head(self, task: AuxiliaryTask, config: OGSPRConfig, spec: EnvSpec) -> nn.Module:
        sizes, adapters = config.sizes, config.adapters
        if isinstance(task, ObservationPrediction):
            return FrameDecoder(
                sizes.representation, sizes.decoder_inputs, sizes.decoder_channels, spec.frame_shape
            )
        if isinstance(task, ShortTermValue):
            return TwoHotHead(sizes.representation, sizes.value_hidden, task.bins, task.limit)
        if adapters.shared:
            return SharedModule(self.core.adapter1)
        return adapter(adapters.second_exists, sizes.representation, sizes.latent)


class TwoHotHead(nn.Module):
    """Two layers to logits over bins of returns."""

    bins: Tensor

    def __init__(self, inputs: int, hidden: int, bins: int, limit: float) -> None:
        super().__init__()
        self.logits = MLP((inputs, hidden, bins), F.elu, orthogonal)
        self.register_buffer("bins", symexp_bins(bins, limit), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        logits: Tensor = self.logits(z)
        return logits


class SharedModule(nn.Module):
    """Another module's function without owning its parameters, so that they are counted and saved once."""

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        self._owner = (owner,)  # in a tuple: a plain attribute would register it

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._owner[0](x)
        return out


def adapter(exists: bool, inputs: int, outputs: int) -> nn.Module:
    """One linear layer, or nothing."""
    if exists:
        return Linear(inputs, outputs, orthogonal)
    if inputs != outputs:
        raise ValueError(f"without an adapter the sizes must agree, got {inputs} and {outputs}")
    return nn.Identity()


class Networks:
    """All networks of one agent: those that learn, and the copies that targets come from."""

    def __init__(self, config: OGSPRConfig, spec: EnvSpec, action_size: int, device: torch.device) -> None:
        self.value = ValueNetwork(config, spec, action_size).to(device)
        self.policy = make_policy(
            config.sizes.latent, config.sizes.policy_hidden, action_size, orthogonal
        ).to(device)
        self.target_core = copy.deepcopy(self.value.core).requires_grad_(False)
        self.target_policy = copy.deepcopy(self.policy).requires_grad_(False)

    def sync_targets(self) -> None:
        """Copies the parameters to the target networks, in place."""
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
