"""OG-SPR: acts, and learns from windows of replay."""

from __future__ import annotations

import torch
from torch import Tensor

from ogspr.agents.actions import action_kind
from ogspr.agents.base import AgentBase
from ogspr.agents.behaviour import pixel_behaviour
from ogspr.agents.frozen import named_weights
from ogspr.agents.modules import parameter_count
from ogspr.agents.ogspr.config import PIXEL_RANGE, OGSPRConfig
from ogspr.agents.ogspr.influence import Influence
from ogspr.agents.ogspr.networks import Core, Networks, ValueNetwork
from ogspr.agents.ogspr.policy import policy_parts
from ogspr.agents.ogspr.update import Update
from ogspr.agents.protocol import Accelerator, Step, WindowSource
from ogspr.agents.state import Chance
from ogspr.nets.mlp import MLP
from ogspr.types import EnvSpec


class OGSPRAgent(AgentBase):
    """One agent of one variant.

    Args:
        config: The variant.
        spec: The environment it is made for.
        seed: Decides the initial weights and everything that is left to chance later.
        device: Where it computes.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self, config: OGSPRConfig, spec: EnvSpec, *, seed: int, device: torch.device, accelerator: Accelerator
    ) -> None:
        self.config = config
        actions = action_kind(spec.actions, config.gumbel_temperature)
        chance = Chance(seed, device)
        self._networks = networks = Networks(config, spec, actions.size, seed, device)
        self._update = update = Update(config, networks, actions, chance.learning, accelerator)
        behaviour = pixel_behaviour(
            networks.value.core,
            networks.policy,
            actions,
            spec.actions,
            pixel_range=PIXEL_RANGE,
            exploration_noise=config.exploration_noise,
            random_steps=config.random_steps,
            rng=chance.acting,
            device=device,
            accelerator=accelerator,
            sampled_evaluation=config.sampled_evaluation,
        )
        super().__init__(
            behaviour,
            chance,
            [update.failures],
            lambda: networks.tensors() | update.tensors(),
            accelerator,
        )
        self._influence = Influence(config, networks, actions, device)
        self._on = self._on_replay(update.phases, config.n_step, config.sequence_horizon)

    @property
    def value_network(self) -> ValueNetwork:
        return self._networks.value

    @property
    def policy(self) -> MLP:
        return self._networks.policy

    @property
    def target_core(self) -> Core:
        return self._networks.target_core

    @property
    def target_policy(self) -> MLP:
        return self._networks.target_policy

    @property
    def parameter_count(self) -> int:
        """Of the networks that learn."""
        return parameter_count(self.value_network, self.policy)

    def updates_due(self, agent_steps: int) -> int:
        """Updates that follow agent step number `agent_steps`, the first being 1."""
        return self.config.updates_per_step if agent_steps > self.config.random_steps else 0

    def rehearse(self, replay: WindowSource) -> None:
        self._on(replay).rehearse()

    def update(self, replay: WindowSource) -> None:
        """One update of all networks from `replay`, which is the same one at every call."""
        step = self._on(replay)
        if self.updates % self.config.target_period == 0:
            self._networks.sync_targets()
        step()
        self.updates += 1

    def phases(self, replay: WindowSource) -> dict[str, Step]:
        """An update cut off after each of its phases, for measuring; only the last one learns."""
        return self._fast.cut_off(self._update.phases, replay)

    def metrics(self) -> dict[str, float]:
        """Means since the last call; now, the health of representations and how much each loss moves them.

        Waits for the device.
        """
        replay = self._on.replay if self.updates else None
        influence = self._influence.measured(replay, self.updates) if replay else self._influence.unknown()
        return self._update.metrics() | influence

    def set_learning_rate(self, rate: float) -> None:
        """Learning rate of both optimisers, from the next update on."""
        self._update.set_learning_rate(rate)

    def policy_weights(self) -> dict[str, Tensor]:
        return named_weights(policy_parts(self.value_network.core, self.policy))
