"""MR.Q: acts, and learns from windows of replay, its representations in bursts."""

from __future__ import annotations

import torch
from torch import Tensor

from ogspr.agents.actions import action_kind
from ogspr.agents.base import AgentBase
from ogspr.agents.behaviour import pixel_behaviour
from ogspr.agents.frozen import named_weights
from ogspr.agents.modules import parameter_count
from ogspr.agents.mrq.config import MRQConfig
from ogspr.agents.mrq.encoder_update import EncoderUpdate
from ogspr.agents.mrq.networks import Networks
from ogspr.agents.mrq.policy import policy_parts
from ogspr.agents.mrq.value_update import ValueUpdate
from ogspr.agents.protocol import Accelerator, Step, WindowSource
from ogspr.agents.state import Chance
from ogspr.types import EnvSpec


class MRQAgent(AgentBase):
    """One agent.

    Args:
        config: The method's numbers.
        spec: The environment it is made for.
        seed: Decides the initial weights and everything that is left to chance later.
        device: Where it computes.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self, config: MRQConfig, spec: EnvSpec, *, seed: int, device: torch.device, accelerator: Accelerator
    ) -> None:
        self.config = config
        actions = action_kind(spec.actions, config.gumbel_temperature, config.discrete_noise_scale)
        chance = Chance(seed, device)
        self.networks = networks = Networks(config, spec, actions.size, seed, device)
        self._encoder = encoder = EncoderUpdate(config, networks, chance.learning, accelerator)
        self._value = value = ValueUpdate(config, networks, actions, chance.learning, accelerator)
        behaviour = pixel_behaviour(
            networks.core,
            networks.policy,
            actions,
            spec.actions,
            pixel_range=config.pixel_range,
            exploration_noise=config.exploration_noise,
            random_steps=config.random_steps,
            rng=chance.acting,
            device=device,
            accelerator=accelerator,
        )
        super().__init__(
            behaviour,
            chance,
            [encoder.failures, value.failures],
            lambda: networks.tensors() | encoder.tensors() | value.tensors(),
            accelerator,
        )
        self._encoder_on = self._on_replay(encoder.phases, config.horizon)
        self._value_on = self._on_replay(value.phases, config.n_step)

    @property
    def parameter_count(self) -> int:
        """Of the networks that learn."""
        return parameter_count(self.networks.core, self.networks.model, self.networks.policy)

    def updates_due(self, agent_steps: int) -> int:
        """Updates that follow agent step number `agent_steps`, the first being 1."""
        return self.config.updates_per_step if agent_steps > self.config.random_steps else 0

    def rehearse(self, replay: WindowSource) -> None:
        self._encoder_on(replay).rehearse()
        self._value_on(replay).rehearse()

    def update(self, replay: WindowSource) -> None:
        """One update of values and policy, from `replay`, which is the same one at every call.

        Before the first one of each period, targets become copies, values get a new unit, and the encoder
        learns in as many updates of its own as a period has.
        """
        update_encoder, update_values = self._encoder_on(replay), self._value_on(replay)
        if self.updates % self.config.target_period == 0:
            self.networks.sync_targets(replay.mean_absolute_reward())
            for _ in range(self.config.target_period):
                update_encoder()
        update_values()
        self.updates += 1

    def phases(self, replay: WindowSource) -> dict[str, Step]:
        """One update of the encoder and one of values and policy, which is their ratio over a period.

        Both are cut off after each of their phases, for measuring; only the last pair learns.
        """
        encoder, value = (update.phases.cut_off(replay) for update in (self._encoder, self._value))

        def both(name: str) -> Step:
            def run() -> None:
                encoder[name]()
                value[name]()

            return self._fast.step(run, replay)

        return {name: both(name) for name in value}

    def metrics(self) -> dict[str, float]:
        """Means since the last call, and the health of the representations now. Waits for the device.

        Those of the encoder are NaN where no burst was among it. Values and their targets are in units of
        `reward_scale`.
        """
        means = self._value.means() | self._encoder.means()
        now = {"reward_scale": float(self.networks.scale), "failed_updates": float(self.failed_updates)}
        return means | now

    def set_learning_rate(self, rate: float) -> None:
        """Of values and policy, from the next update on; the encoder's stays in proportion."""
        self._value.set_learning_rate(rate)
        self._encoder.set_learning_rate(rate * self.config.encoder_learning_rate / self.config.learning_rate)

    def policy_weights(self) -> dict[str, Tensor]:
        return named_weights(policy_parts(self.networks.core, self.networks.policy))
