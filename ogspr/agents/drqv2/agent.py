"""DrQ-v2: acts, and learns from windows of replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ogspr.agents.acting import Actor
from ogspr.agents.base import AgentBase
from ogspr.agents.behaviour import Behaviour, evaluating_actor
from ogspr.agents.drqv2 import losses
from ogspr.agents.drqv2.config import DrQv2Config
from ogspr.agents.drqv2.networks import (
    PIXEL_RANGE,
    Critic,
    Networks,
    PolicyNetwork,
    ValueNetwork,
    continuous_actions,
)
from ogspr.agents.drqv2.policy import policy_parts
from ogspr.agents.drqv2.update import Update
from ogspr.agents.frozen import named_weights
from ogspr.agents.modules import parameter_count
from ogspr.agents.protocol import Accelerator, State, Step, WindowSource
from ogspr.agents.state import Chance
from ogspr.types import Action, EnvSpec, UInt8Array


class DrQv2Agent(AgentBase):
    """One agent.

    Args:
        config: The settings.
        spec: The environment it is made for; a UserError where actions are discrete.
        seed: Decides the initial weights and everything that is left to chance later.
        device: Where it computes.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self, config: DrQv2Config, spec: EnvSpec, *, seed: int, device: torch.device, accelerator: Accelerator
    ) -> None:
        self.config = config
        size, chance = continuous_actions(spec).size, Chance(seed, device)
        self._networks = networks = Networks(config, spec, size, seed, device)
        self._update = update = Update(config, networks, size, chance.learning, accelerator)
        # A tensor, because a captured graph reads it anew each time.
        self._acting_noise = torch.tensor(config.noise_start, device=device)
        behaviour = self._make_behaviour(spec, chance, device, accelerator)
        super().__init__(
            behaviour,
            chance,
            [update.failures],
            lambda: networks.tensors() | update.tensors(),
            accelerator,
        )
        self._on = self._on_replay(update.phases, config.n_step)
        self._set_noise()

    @property
    def value_network(self) -> ValueNetwork:
        return self._networks.value

    @property
    def policy(self) -> PolicyNetwork:
        return self._networks.policy

    @property
    def target_critic(self) -> Critic:
        return self._networks.target_critic

    @property
    def parameter_count(self) -> int:
        """Of the networks that learn."""
        return parameter_count(self.value_network, self.policy)

    def ask(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Callable[[], Action]:
        """For an action for one observation (C, H, W), or one for each of (N, C, H, W).

        With `explore`, noisy by the schedule, and uniformly random during the first steps.
        """
        if explore:
            self._acting_noise.fill_(self.config.noise_scale(agent_steps))
        return super().ask(observation, agent_steps=agent_steps, explore=explore)

    def updates_due(self, agent_steps: int) -> int:
        """Updates that follow agent step number `agent_steps`, the first being 1."""
        since = agent_steps - 1 - self.config.random_steps
        return int(since >= 0 and since % self.config.steps_per_update == 0)

    def rehearse(self, replay: WindowSource) -> None:
        self._on(replay).rehearse()

    def update(self, replay: WindowSource) -> None:
        """One update of all networks from `replay`, which is the same one at every call."""
        self._on(replay)()
        self.updates += 1
        self._set_noise()

    def load_state_dict(self, state: State) -> None:
        """In place: what was captured before goes on with the loaded numbers. ValueError: nothing changed."""
        super().load_state_dict(state)
        self._set_noise()

    @property
    def _next_noise(self) -> float:
        """Of the next update: its agent steps follow from its number, so that nobody has to save them."""
        return self.config.noise_scale(self.config.random_steps + self.updates * self.config.steps_per_update)

    def _set_noise(self) -> None:
        self._update.noise_scale.fill_(self._next_noise)

    def phases(self, replay: WindowSource) -> dict[str, Step]:
        """An update cut off after each of its phases, for measuring; only the last one learns."""
        return self._fast.cut_off(self._update.phases, replay)

    def metrics(self) -> dict[str, float]:
        """Means since the last call, the noise of the next update, and more. Waits for the device."""
        return self._update.metrics() | {"noise_scale": self._next_noise}

    def set_learning_rate(self, rate: float) -> None:
        """Of both optimisers, from the next update on."""
        self._update.set_learning_rate(rate)

    def policy_weights(self) -> dict[str, Tensor]:
        return named_weights(policy_parts(self.value_network, self.policy))

    def _make_behaviour(
        self, spec: EnvSpec, chance: Chance, device: torch.device, accelerator: Accelerator
    ) -> Behaviour:
        actions, networks = continuous_actions(spec), (self.value_network, self.policy)
        explore = partial(accelerator.function(losses.noisy_action), *networks, self._acting_noise)
        return Behaviour(
            spec.actions,
            actions,
            Actor(explore, actions.size, accelerator, device, noisy=True),
            evaluating_actor(*networks, actions, PIXEL_RANGE, accelerator, device, sampled=False),
            self.config.random_steps,
            chance.acting,
        )
