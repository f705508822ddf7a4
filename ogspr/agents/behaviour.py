"""How an agent acts while it learns: at random first, then noisy; and without noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ogspr.agents.acting import Actor, actions_for, as_batch
from ogspr.agents.actions import ActionKind
from ogspr.agents.actor_critic import Sight, noisy_action, plain_action
from ogspr.agents.protocol import Accelerator
from ogspr.types import Action, ActionSpec, UInt8Array


class Behaviour:
    """The acting half of an agent.

    Args:
        spec: The actions of the environment.
        actions: The kind of actions.
        explorer: Acts with noise.
        evaluator: Acts without.
        random_steps: Agent steps with uniformly random actions, at the start.
        rng: Where random actions and noise come from.
    """

    def __init__(
        self,
        spec: ActionSpec,
        actions: ActionKind,
        explorer: Actor,
        evaluator: Actor,
        random_steps: int,
        rng: np.random.Generator,
    ) -> None:
        self._spec = spec
        self._actions = actions
        self._explorer = explorer
        self._evaluator = evaluator
        self._random_steps = random_steps
        self._rng = rng

    def ask(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Callable[[], Action]:
        """For an action for one observation (C, H, W), or one for each of (N, C, H, W)."""
        batch = as_batch(observation)
        if explore and agent_steps < self._random_steps:
            sampled = np.stack([self._spec.sample(self._rng) for _ in batch])
            return lambda: actions_for(observation, sampled)
        answer = (self._explorer if explore else self._evaluator).ask(batch, self._rng)
        return lambda: actions_for(observation, self._actions.to_environment(answer()))

    def vector(self, action: Action) -> npt.NDArray[np.float32]:
        """An action of the environment as replay stores it."""
        return self._actions.to_vector(action)


def pixel_behaviour(
    sight: Sight,
    policy: nn.Module,
    actions: ActionKind,
    spec: ActionSpec,
    *,
    pixel_range: tuple[float, float],
    exploration_noise: float,
    random_steps: int,
    rng: np.random.Generator,
    device: torch.device,
    accelerator: Accelerator,
    sampled_evaluation: bool = False,
) -> Behaviour:
    """Of a policy on latent states, with normal noise of one size on its actions while it explores."""

    networks = (sight, policy, actions, pixel_range)
    explore = partial(accelerator.function(noisy_action), *networks, exploration_noise)
    explorer = Actor(explore, actions.size, accelerator, device, noisy=True)
    evaluator = evaluating_actor(*networks, accelerator, device, sampled=sampled_evaluation)
    return Behaviour(spec, actions, explorer, evaluator, random_steps, rng)


def evaluating_actor(
    sight: Sight,
    policy: nn.Module,
    actions: ActionKind,
    pixel_range: tuple[float, float],
    accelerator: Accelerator,
    device: torch.device,
    *,
    sampled: bool,
) -> Actor:
    """Acts without noise; `sampled`: discrete actions are drawn from the policy's probabilities."""
    networks = (sight, policy, actions, pixel_range)
    # The Gumbel-Softmax of exploration with no noise added: its largest entry is such a draw.
    respond = (
        partial(accelerator.function(noisy_action), *networks, 0.0)
        if sampled
        else partial(accelerator.function(plain_action), *networks)
    )
    return Actor(respond, actions.size, accelerator, device, noisy=sampled)
