"""DrQ-v2: acts, and learns from windows of replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.agents.acting import Actor
from ogspr.agents.actor_critic import plain_action
from ogspr.agents.behaviour import Behaviour
from ogspr.agents.binding import OnReplay
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
from ogspr.agents.failures import FailedUpdate
from ogspr.agents.frozen import named_weights
from ogspr.agents.modules import parameter_count
from ogspr.agents.protocol import Accelerator, State, WindowSource
from ogspr.agents.state import Chance, Parts, agent_state, load_agent_state
from ogspr.types import Action, EnvSpec, UInt8Array


class DrQv2Agent:
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
        self.updates = 0
        self._actions = continuous_actions(spec)
        self._chance = Chance(seed, device)
        self._networks = Networks(config, spec, self._actions.size, seed, device)
        self._update = Update(config, self._networks, self._actions.size, self._chance.learning, accelerator)
        # A tensor, because a captured graph reads it anew each time.
        self._acting_noise = torch.tensor(config.noise_start, device=device)
        self._behaviour = self._make_behaviour(spec, device, accelerator)
        self._on = OnReplay(self._update.made_fast, (config.n_step,))

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

    def act(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Action:
        """An action for one observation (C, H, W), or one for each of (N, C, H, W).

        With `explore`, noisy by the schedule, and uniformly random during the first steps.
        """
        if explore:
            self._acting_noise.fill_(self.config.noise_scale(agent_steps))
        return self._behaviour.act(observation, agent_steps=agent_steps, explore=explore)

    def action_vector(self, action: Action) -> npt.NDArray[np.float32]:
        return self._behaviour.vector(action)

    def updates_due(self, agent_steps: int) -> int:
        """Updates that follow agent step number `agent_steps`, the first being 1."""
        since = agent_steps - 1 - self.config.random_steps
        return int(since >= 0 and since % self.config.steps_per_update == 0)

    def rehearse(self, replay: WindowSource) -> None:
        self._on(replay).rehearse()

    def update(self, replay: WindowSource) -> None:
        """One update of all networks from `replay`, which is the same one at every call."""
        step = self._on(replay)
        self._update.noise_scale.fill_(self.config.noise_scale(self._steps_at_update))
        step()
        self.updates += 1

    @property
    def _steps_at_update(self) -> int:
        """Agent steps that were over when the next update is due; so that nobody has to save them."""
        return self.config.random_steps + self.updates * self.config.steps_per_update

    def phases(self, replay: WindowSource) -> dict[str, Callable[[], None]]:
        """An update cut off after each of its phases, for measuring; only the last one learns."""
        return self._update.phases(replay)

    def metrics(self) -> dict[str, float]:
        """Means since the last call, the noise of the next update, and more. Waits for the device."""
        return self._update.metrics() | {"noise_scale": self.config.noise_scale(self._steps_at_update)}

    def set_learning_rate(self, rate: float) -> None:
        """Of both optimisers, from the next update on."""
        self._update.set_learning_rate(rate)

    def policy_weights(self) -> dict[str, Tensor]:
        return named_weights(policy_parts(self.value_network, self.policy))

    @property
    def failures_in_a_row(self) -> int:
        """Updates that were left out at the end because a number was not finite; an update late on a GPU."""
        return self._update.failures.in_a_row

    @property
    def failed_updates(self) -> int:
        """All updates that were left out, as far as the host has heard."""
        return self._update.failures.total

    def forget_failures(self) -> None:
        """The row of failures is over."""
        self._update.failures.forget_row()

    def last_failure(self) -> FailedUpdate:
        """Waits for the device."""
        return self._update.failures.report()

    def state_dict(self) -> State:
        """Everything that decides what comes next, but for replay: tensors and JSON values."""
        return agent_state(self.updates, self._chance, self._parts())

    def load_state_dict(self, state: State) -> None:
        """In place: what was captured before goes on with the loaded numbers. ValueError: nothing changed."""
        self.updates = load_agent_state(state, self._chance, self._parts())
        self._update.failures.tell_host()

    def _parts(self) -> Parts:
        return self._networks.tensors() | self._update.tensors()

    def _make_behaviour(self, spec: EnvSpec, device: torch.device, accelerator: Accelerator) -> Behaviour:
        size, networks = self._actions.size, (self.value_network, self.policy)
        explore = partial(accelerator.function(losses.noisy_action), *networks, self._acting_noise)
        evaluate = partial(accelerator.function(plain_action), *networks, self._actions, PIXEL_RANGE)
        return Behaviour(
            spec.actions,
            self._actions,
            Actor(explore, size, accelerator, device, noisy=True),
            Actor(evaluate, size, accelerator, device, noisy=False),
            self.config.random_steps,
            self._chance.acting,
        )
