"""OG-SPR: acts, and learns from windows of replay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.agents.acting import Actor
from ogspr.agents.actions import action_kind
from ogspr.agents.failures import FailedUpdate
from ogspr.agents.ogspr import losses
from ogspr.agents.ogspr.config import OGSPRConfig
from ogspr.agents.ogspr.networks import Core, Networks, ValueNetwork, parameter_count
from ogspr.agents.ogspr.policy import policy_weights
from ogspr.agents.ogspr.update import Update
from ogspr.agents.optimisation import copy_state
from ogspr.agents.protocol import Accelerator, State, Step, WindowSource
from ogspr.errors import UserError
from ogspr.nets.mlp import MLP
from ogspr.types import Action, EnvSpec, UInt8Array


class OGSPRAgent:
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
        self.updates = 0
        self._accelerator = accelerator
        self._device = device
        self._action_spec = spec.actions
        self._actions = action_kind(
            spec.actions,
            temperature=config.gumbel_temperature,
            discrete_noise_scale=config.discrete_noise_scale,
        )
        self._seed_generators(seed)
        self._networks = Networks(config, spec, self._actions.size, seed, device)
        self._update = Update(config, self._networks, self._actions, self._generator, accelerator)
        self._explorer = self._actor(
            losses.noisy_action, config.pixel_range, config.exploration_noise, noisy=True
        )
        self._evaluator = self._actor(losses.plain_action, config.pixel_range, noisy=False)
        self._step: Step | None = None
        self._replay: WindowSource | None = None

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

    def act(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Action:
        """An action for one observation (C, H, W), or one for each of (N, C, H, W).

        With `explore`, noisy, and uniformly random during the first steps.
        """
        batch = observation if observation.ndim == 4 else observation[None]
        if explore and agent_steps < self.config.random_steps:
            actions = np.stack([self._action_spec.sample(self._act_rng) for _ in batch])
        else:
            actor = self._explorer if explore else self._evaluator
            actions = self._actions.to_environment(actor(batch, self._act_rng))
        return actions if observation.ndim == 4 else actions[0]

    def action_vector(self, action: Action) -> npt.NDArray[np.float32]:
        return self._actions.to_vector(action)

    def updates_due(self, agent_steps: int) -> int:
        """Updates that follow agent step number `agent_steps`, the first being 1."""
        return self.config.updates_per_step if agent_steps > self.config.random_steps else 0

    def rehearse(self, replay: WindowSource) -> None:
        self._check(replay)
        self._step_on(replay).rehearse()

    def update(self, replay: WindowSource) -> None:
        """One update of all networks from `replay`, which is the same one at every call."""
        step = self._step_on(replay)
        self._check(replay)
        if self.updates % self.config.target_period == 0:
            self._networks.sync_targets()
            if self.config.reward_scaling == "mean-absolute":
                self._networks.rescale(replay.mean_absolute_reward())
        step()
        self.updates += 1

    def phases(self, replay: WindowSource) -> dict[str, Callable[[], None]]:
        """An update cut off after each of its phases, for measuring; only the last one learns."""
        return self._update.phases(replay)

    def metrics(self) -> dict[str, float]:
        """Means since the last call, and the health of the representations now. Waits for the device."""
        return self._update.metrics()

    def set_learning_rate(self, rate: float) -> None:
        """Of both optimisers, from the next update on."""
        self._update.set_learning_rate(rate)

    def policy_weights(self) -> dict[str, Tensor]:
        return policy_weights(self.value_network.core, self.policy)

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
        return {
            "updates": self.updates,
            "act_rng": self._act_rng.bit_generator.state,
            "generator": self._generator.get_state(),
            "tensors": {
                f"{part}.{name}": tensor
                for part, tensors in (self._networks.tensors() | self._update.tensors()).items()
                for name, tensor in tensors.items()
            },
        }

    def load_state_dict(self, state: State) -> None:
        """In place: what was captured before goes on with the loaded numbers. ValueError: nothing changed."""
        ours = self.state_dict()
        if state.keys() != ours.keys():
            raise ValueError(f"the saved state does not fit: it has {sorted(state)}, expected {sorted(ours)}")
        act_rng, generator = np.random.default_rng(), torch.Generator(self._device)
        try:  # on stand-ins: a state that cannot be used is found out before anything is changed
            act_rng.bit_generator.state = state["act_rng"]
            generator.set_state(state["generator"].cpu())
            updates = int(state["updates"])
        except (AttributeError, KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"the saved state does not fit: {error}") from None
        copy_state(ours["tensors"], state["tensors"])
        self.updates = updates
        self._act_rng = act_rng
        self._generator.set_state(generator.get_state())
        self._update.failures.tell_host()

    def _check(self, replay: WindowSource) -> None:
        """Refuses a replay from which nothing can be drawn yet."""
        for horizon in {self.config.n_step, self.config.sequence_horizon} - {0}:
            if not replay.valid_starts(horizon):
                raise UserError(
                    f"no window of {horizon} steps is stored to learn from; "
                    "take more random steps before the first update, or predict fewer."
                )

    def _step_on(self, replay: WindowSource) -> Step:
        if self._step is None:
            self._replay = replay
            self._step = self._update.made_fast(replay)
        elif self._replay is not replay:
            raise ValueError("an agent learns from one replay; make another agent for another replay")
        return self._step

    def _seed_generators(self, seed: int) -> None:
        """One generator a role, so that acting more often does not change what is learned."""
        update_seed, act_seed = np.random.SeedSequence(seed).spawn(2)
        self._generator = torch.Generator(self._device)
        self._generator.manual_seed(int(update_seed.generate_state(1, np.uint64)[0] >> 1))
        self._act_rng = np.random.default_rng(act_seed)

    def _actor(self, respond: Callable[..., Tensor], *settings: Any, noisy: bool) -> Actor:
        fast = self._accelerator.function(respond)
        bound = partial(fast, self.value_network.core, self.policy, self._actions, *settings)
        return Actor(bound, self._actions.size, self._accelerator, self._device, noisy=noisy)
