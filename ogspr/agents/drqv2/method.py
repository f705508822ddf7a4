"""DrQ-v2 as a method: actor and critic on shifted images, with noise that follows a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ogspr.agents.actor_critic import plain_action
from ogspr.agents.drqv2 import losses
from ogspr.agents.drqv2.config import DrQv2Config
from ogspr.agents.drqv2.losses import UpdateNoise
from ogspr.agents.drqv2.networks import (
    PIXEL_RANGE,
    Critic,
    Networks,
    Perception,
    PolicyNetwork,
    continuous_actions,
)
from ogspr.agents.modules import frozen_view
from ogspr.agents.protocol import (
    Carry,
    Group,
    Losses,
    Noise,
    Normal,
    Runner,
    Trained,
    Uniform,
    Update,
    Windows,
    WindowSource,
)
from ogspr.types import Draw, EnvSpec, Window

VALUE, POLICY = "value", "policy"  # the names of the two losses
NOW, LATER = "now", "later"  # and of the two observations of a window


class DrQv2:
    """The method, made for one environment.

    Args:
        config: The settings.
        spec: The environment; a UserError if actions are discrete.
        device: Where the networks are.
        runner: How tensor functions are run.
    """

    def __init__(self, config: DrQv2Config, spec: EnvSpec, device: torch.device, runner: Runner) -> None:
        self.config = config
        self.random_steps = config.random_steps
        actions = continuous_actions(spec)
        self.networks = networks = Networks(config, spec, actions.size, device)
        # A tensor, because a captured graph reads it again each time.
        self._noise_scale = torch.tensor(config.noise_start, device=device)
        self._branches: Callable[[Mapping[str, Callable[[], Any]]], dict[str, Any]] = runner.branches
        fast = runner.function
        self._features_of = fast(losses.features_of)
        self._bootstrapped_target = fast(losses.bootstrapped_target)
        self._critic_loss = fast(losses.critic_loss)
        self._actor_loss = fast(losses.actor_loss)
        self.actor = DrQv2Actor(config, networks.value, networks.policy, spec, runner, device)
        self.updates = {"all": self._update(actions.size)}

    @property
    def learned(self) -> Sequence[nn.Module]:
        return self.networks.value, self.networks.policy

    def tensors(self) -> Mapping[str, Mapping[str, Tensor]]:
        return self.networks.tensors()

    def updates_due(self, agent_steps: int) -> int:
        since = agent_steps - 1 - self.config.random_steps
        return int(since >= 0 and since % self.config.steps_per_update == 0)

    def schedule(self, updates: int, agent_steps: int, replay: WindowSource) -> Iterable[str]:  # noqa: ARG002
        # The noise of the action that led to the step, as in the published code.
        self._noise_scale.fill_(self.config.noise_scale(agent_steps - 1))
        yield "all"

    def report(self, means: Mapping[str, float], updates: int) -> dict[str, float]:  # noqa: ARG002
        """Standard deviation of the noise on actions in the next update."""
        agent_steps = self.config.random_steps + updates * self.config.steps_per_update
        return {"noise_scale": self.config.noise_scale(agent_steps)}

    def _update(self, action_size: int) -> Update:
        batch, nets = self.config.batch_size, self.networks

        def adam(module: nn.Module) -> Trained:
            return Trained([Group(module, self.config.learning_rate)])

        return Update(
            draws={VALUE: Draw(batch, self.config.n_step, by_priority=False)},
            noise=UpdateNoise(
                now=Uniform((2, batch), double=True),
                later=Uniform((2, batch), double=True),
                target_action=Normal((batch, action_size)),
                policy_action=Normal((batch, action_size)),
            ),
            losses=self._losses,
            trains={VALUE: adam(nets.value), POLICY: adam(nets.policy)},
            weights={VALUE: 1.0, POLICY: 1.0},
            numbers=losses.VALUE_STATS,
            features={"h": self.config.sizes.features},
            after=self._move_target,
        )

    def _losses(self, windows: Windows, noise: UpdateNoise) -> Losses:
        window = windows[VALUE]
        features = self._features(window, noise)
        terms = self._branches(
            {
                VALUE: partial(self._value_loss, features, window, noise),
                # At features without a gradient: the policy does not train the encoder.
                POLICY: partial(
                    self._actor_loss,
                    self.networks.policy,
                    self._frozen_critic,
                    features[NOW].detach(),
                    self._noise_scale,
                    noise.policy_action,
                    self.config.update_noise_limit,
                ),
            }
        )
        terms[VALUE], h, numbers = terms[VALUE]
        return Losses(terms, numbers, {"h": h}, kept=features)

    def _features(self, window: Window, noise: UpdateNoise) -> dict[str, Tensor]:
        """Of both observations, by the encoder that learns; only the first one trains it."""
        value, pad = self.networks.value, self.config.shift_pad

        def later() -> Tensor:
            with torch.no_grad():
                return self._features_of(value, window, window.horizon, noise.later, pad)

        return self._branches(
            {NOW: partial(self._features_of, value, window, 0, noise.now, pad), LATER: later}
        )

    def _value_loss(
        self, features: Mapping[str, Tensor], window: Window, noise: UpdateNoise
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss, h of the critic's trunk, and numbers about the values."""
        with torch.no_grad():
            y = self._bootstrapped_target(
                self.networks.target_critic,
                self.networks.policy,
                features[LATER],
                window,
                self._noise_scale,
                noise.target_action,
                self.config.update_noise_limit,
                self.config.discount,
            )
        return self._critic_loss(self.networks.value.critic, features[NOW], window.actions[:, 0], y)

    def _move_target(self, _found: Losses, skip: Tensor) -> None:
        self.networks.move_target(self.config.target_rate * (1.0 - skip))

    @cached_property
    def _frozen_critic(self) -> Critic:
        """Made at the first update, when the optimisers have moved the parameters to where they stay."""
        return frozen_view(self.networks.value.critic)


class ActNoise(NamedTuple):
    """What one noisy action for each of N environments leaves to chance."""

    normals: Any  # (N, A) standard normal
    unused: Any  # (N, A); drawn all the same, so that seeds act as they did when there was a use


class DrQv2Actor:
    """Acts by features, with normal noise by the schedule while it explores. No memory."""

    def __init__(
        self,
        config: DrQv2Config,
        perception: Perception,
        policy: PolicyNetwork,
        spec: EnvSpec,
        runner: Runner,
        device: torch.device,
    ) -> None:
        self.actions = continuous_actions(spec)
        self.modules = {"encoder": perception.encoder, "policy": policy}
        self._config = config
        self._networks = (perception, policy)
        # A tensor, because a captured graph reads it again each time.
        self._noise_scale = torch.tensor(config.noise_start, device=device)
        self._noisy = runner.function(losses.noisy_action)
        self._plain = runner.function(plain_action)

    def initial_carry(self, count: int) -> Carry:  # noqa: ARG002
        return {}

    def noise(self, count: int, explore: bool) -> Noise:
        shape = (count, self.actions.size)
        return ActNoise(Normal(shape), Uniform(shape)) if explore else ()

    def at_step(self, agent_steps: int) -> None:
        self._noise_scale.fill_(self._config.noise_scale(agent_steps))

    def act(
        self,
        images: Tensor,
        carry: Carry,
        first: Tensor,  # noqa: ARG002
        noise: Any,
        explore: bool,
    ) -> tuple[Tensor, Carry]:
        if not explore:
            return self._plain(*self._networks, self.actions, PIXEL_RANGE, images), carry
        return self._noisy(*self._networks, self._noise_scale, images, noise.normals), carry


def make_actor(config: DrQv2Config, spec: EnvSpec, runner: Runner) -> DrQv2Actor:
    perception = Perception(spec.observation_shape, config.sizes)
    policy = PolicyNetwork(perception.encoder.size, continuous_actions(spec).size, config.sizes)
    return DrQv2Actor(config, perception, policy, spec, runner, torch.device("cpu"))
