"""MR.Q: acts, and learns from windows of replay, its representations in bursts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.agents.actions import action_kind
from ogspr.agents.behaviour import pixel_behaviour
from ogspr.agents.binding import OnReplay
from ogspr.agents.failures import FailedUpdate
from ogspr.agents.modules import parameter_count
from ogspr.agents.mrq.config import MRQConfig
from ogspr.agents.mrq.encoder_update import EncoderUpdate
from ogspr.agents.mrq.networks import Networks
from ogspr.agents.mrq.policy import policy_weights
from ogspr.agents.mrq.value_update import ValueUpdate
from ogspr.agents.phases import Phases, update_procedure
from ogspr.agents.protocol import Accelerator, Procedure, State, Step, WindowSource
from ogspr.agents.state import Chance, Parts, agent_state, load_agent_state
from ogspr.types import Action, EnvSpec, UInt8Array


class MRQAgent:
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
        self.updates = 0
        self._accelerator = accelerator
        self._actions = action_kind(
            spec.actions,
            temperature=config.gumbel_temperature,
            discrete_noise_scale=config.discrete_noise_scale,
        )
        self._chance = Chance(seed, device)
        self.networks = Networks(config, spec, self._actions.size, seed, device)
        chance = self._chance.learning
        self._encoder = EncoderUpdate(config, self.networks, chance, accelerator)
        self._value = ValueUpdate(config, self.networks, self._actions, chance, accelerator)
        self._encoder_on = OnReplay(self._made_fast(self._encoder.phases), (config.horizon,))
        self._value_on = OnReplay(self._made_fast(self._value.phases), (config.n_step,))
        self._behaviour = pixel_behaviour(
            self.networks.core,
            self.networks.policy,
            self._actions,
            spec.actions,
            pixel_range=config.pixel_range,
            exploration_noise=config.exploration_noise,
            random_steps=config.random_steps,
            rng=self._chance.acting,
            device=device,
            accelerator=accelerator,
        )

    @property
    def parameter_count(self) -> int:
        """Of the networks that learn."""
        return parameter_count(self.networks.core, self.networks.model, self.networks.policy)

    def act(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Action:
        """An action for one observation (C, H, W), or one for each of (N, C, H, W).

        With `explore`, noisy, and uniformly random during the first steps.
        """
        return self._behaviour.act(observation, agent_steps=agent_steps, explore=explore)

    def action_vector(self, action: Action) -> npt.NDArray[np.float32]:
        return self._behaviour.vector(action)

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

    def phases(self, replay: WindowSource) -> dict[str, Callable[[], None]]:
        """One update of the encoder and one of values and policy, which is their ratio over a period.

        Both are cut off after each of their phases, for measuring; only the last pair learns.
        """
        encoder, value = (update.phases.cut_off(replay) for update in (self._encoder, self._value))

        def both(name: str) -> Step:
            def run() -> None:
                encoder[name]()
                value[name]()

            return self._accelerator.step(self._procedure(replay, run))

        return {name: both(name) for name in value}

    def metrics(self) -> dict[str, float]:
        """Means since the last call, and the health of the representations now. Waits for the device.

        Those of the encoder are NaN where no burst was among it.
        """
        means = self._value.means() | self._encoder.means()
        return means | {"failed_updates": float(self.failed_updates)}

    def set_learning_rate(self, rate: float) -> None:
        """Of values and policy, from the next update on; the encoder's stays in proportion."""
        self._value.set_learning_rate(rate)
        self._encoder.set_learning_rate(rate * self.config.encoder_learning_rate / self.config.learning_rate)

    def policy_weights(self) -> dict[str, Tensor]:
        return policy_weights(self.networks.core, self.networks.policy)

    @property
    def failed_updates(self) -> int:
        """All updates of either kind that were left out, as far as the host has heard."""
        return sum(update.failures.total for update in self._updates())

    def forget_failures(self) -> None:
        """The rows of failures are over."""
        for update in self._updates():
            update.failures.forget_row()

    def last_failure(self) -> FailedUpdate:
        """The last one of each kind of update that has failed. Waits for the device."""
        return _joined([update.failures.report() for update in self._updates()])

    def state_dict(self) -> State:
        """Everything that decides what comes next, but for replay: tensors and JSON values."""
        return agent_state(self.updates, self._chance, self._parts())

    def load_state_dict(self, state: State) -> None:
        """In place: what was captured before goes on with the loaded numbers. ValueError: nothing changed."""
        self.updates = load_agent_state(state, self._chance, self._parts())
        for update in self._updates():
            update.failures.tell_host()

    def _updates(self) -> tuple[EncoderUpdate, ValueUpdate]:
        return self._encoder, self._value

    def _parts(self) -> Parts:
        return self.networks.tensors() | self._encoder.tensors() | self._value.tensors()

    def _made_fast(self, phases: Phases) -> Callable[[WindowSource], Step]:
        """A whole update, as the accelerator runs it."""
        return lambda replay: self._accelerator.step(self._procedure(replay, partial(phases, replay)))

    def _procedure(self, replay: WindowSource, run: Callable[[], None]) -> Procedure:
        failures = [update.failures for update in self._updates()]
        return update_procedure(run, replay, self._parts, failures, self._chance.learning)


def _joined(failures: Sequence[FailedUpdate]) -> FailedUpdate:
    """Failures of several kinds of updates as one; kinds that have never failed say nothing."""
    real = [failure for failure in failures if failure.total]
    return FailedUpdate(
        in_a_row=max((failure.in_a_row for failure in real), default=0),
        total=sum(failure.total for failure in real),
        numbers={name: value for failure in real for name, value in failure.numbers.items()},
        starts={name: places for failure in real for name, places in failure.starts.items()},
    )
