"""MR.Q as a method: two kinds of updates, the encoder's in bursts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from ogspr.agents import actor_critic
from ogspr.agents.actor_critic import PixelActor, PixelRepresentation, action_kind, make_policy
from ogspr.agents.modules import frozen_view
from ogspr.agents.mrq import losses
from ogspr.agents.mrq.config import MRQConfig
from ogspr.agents.mrq.losses import Augmentation, EncoderNoise, ValueNoise
from ogspr.agents.mrq.networks import Core, Networks, Perception, StateActionEncoder
from ogspr.agents.protocol import (
    ActionKind,
    Group,
    Losses,
    Normal,
    Runner,
    Shifts,
    Trained,
    Uniform,
    Update,
    Windows,
    WindowSource,
)
from ogspr.ops.values import n_step_return
from ogspr.types import Draw, EnvSpec, Window


class MRQ:
    """The method, made for one environment.

    Args:
        config: Its numbers.
        spec: The environment.
        device: Where the networks are.
        runner: How tensor functions are run.
    """

    def __init__(self, config: MRQConfig, spec: EnvSpec, device: torch.device, runner: Runner) -> None:
        self.config = config
        self.random_steps = config.random_steps
        self._actions = actions = _actions(config, spec)
        self.networks = networks = Networks(config, spec, actions.size, device)
        self._augmentation = Augmentation(config.shift_pad, config.pixel_range)
        self._terminal_seen = torch.zeros((), device=device)
        self._branches: Callable[[Mapping[str, Callable[[], Any]]], dict[str, Any]] = runner.branches
        fast = runner.function
        self._latents = fast(losses.latents)
        self._unrolled = fast(losses.unrolled)
        self._model_losses = fast(losses.model_losses)
        self._see_terminal = fast(losses.terminal_seen)
        self._represent = fast(actor_critic.represent)
        self._n_step_return = fast(n_step_return)
        self._bootstrapped_target = fast(actor_critic.bootstrapped_target)
        self._long_term_loss = fast(actor_critic.long_term_loss)
        self._actor_loss = fast(actor_critic.actor_loss)
        self.actor = _actor(config, networks.core, networks.policy, actions, runner)
        self.updates = {"encoder": self._encoder_update(), "value": self._value_update()}

    @property
    def learned(self) -> Sequence[nn.Module]:
        return self.networks.core, self.networks.model, self.networks.policy

    def tensors(self) -> Mapping[str, Mapping[str, Tensor]]:
        return self.networks.tensors() | {"encoder_memory": {"terminal_seen": self._terminal_seen}}

    def updates_due(self, agent_steps: int) -> int:
        return self.config.updates_per_step if agent_steps > self.random_steps else 0

    def schedule(self, updates: int, agent_steps: int, replay: WindowSource) -> Iterable[str]:  # noqa: ARG002
        """Each period begins with new targets, a new unit of values, and a burst of encoder updates."""
        period = self.config.target_period
        if updates % period == 0:
            self.networks.sync_targets(replay.mean_absolute_reward())
            yield from ["encoder"] * period
        yield "value"

    def report(self, means: Mapping[str, float], updates: int) -> dict[str, float]:  # noqa: ARG002
        """The unit of values and their targets."""
        return {"reward_scale": float(self.networks.scale)}

    # --- encoder and world model, from sequences ------------------------------------------------

    def _encoder_update(self) -> Update:
        config, nets = self.config, self.networks
        trained = nn.ModuleDict(
            {"encoder": nets.core.encoder, "state_action": nets.core.state_action, "model": nets.model}
        )
        return Update(
            draws={"sequence": Draw(config.batch_size, config.horizon)},
            noise=EncoderNoise(
                now=Shifts(config.batch_size, config.shift_pad),
                later=Shifts(config.horizon * config.batch_size, config.shift_pad),
            ),
            losses=self._encoder_losses,
            trains={"encoder": Trained([Group(trained, config.encoder_learning_rate, config.weight_decay)])},
            weights={
                "dynamics": config.dynamics_weight,
                "reward": config.reward_weight,
                "done": config.done_weight,
            },
            total="encoder",
            after=self._remember_terminal,
        )

    def _encoder_losses(self, windows: Windows, noise: EncoderNoise) -> Losses:
        nets, window = self.networks, windows["sequence"]

        def target() -> Tensor:
            with torch.no_grad():
                steps = range(1, window.horizon + 1)
                return self._latents(nets.target_core, window, steps, noise.later, self._augmentation)

        online = partial(self._latents, nets.core, window, (0,), noise.now, self._augmentation)
        found = self._branches({"online": online, "target": target})
        predicted = self._unrolled(nets.core.state_action, nets.model, found["online"], window.actions)
        terms = self._model_losses(predicted, found["target"], window.rewards, window.alive, nets.model.bins)
        seen = self._see_terminal(self._terminal_seen, window.alive)
        return Losses(terms, factors={"done": seen}, kept=(seen, found, predicted))

    def _remember_terminal(self, found: Losses, skip: Tensor) -> None:
        seen, *_ = found.kept
        self._terminal_seen.copy_(torch.where(skip > 0, self._terminal_seen, seen))

    # --- values and policy, on representations that they leave alone ----------------------------

    def _value_update(self) -> Update:
        config, nets = self.config, self.networks
        shape = (config.batch_size, self._actions.size)
        shifts, rates = (
            Shifts(config.batch_size, config.shift_pad),
            (config.learning_rate, config.weight_decay),
        )

        return Update(
            draws={"value": Draw(config.batch_size, config.n_step)},
            noise=ValueNoise(
                now=shifts,
                later=shifts,
                target_action=Normal(shape),
                target_gumbel=Uniform(shape),
                policy_gumbel=Uniform(shape),
            ),
            losses=self._value_losses,
            trains={
                "value": Trained([Group(nets.core.long_term, *rates)], config.clip_norm),
                "policy": Trained([Group(nets.policy, *rates)]),
            },
            weights={"value": 1.0, "policy": 1.0},
            numbers=actor_critic.VALUE_STATS,
            features={"h": config.sizes.latent, "z": config.sizes.representation},
        )

    def _value_losses(self, windows: Windows, noise: ValueNoise) -> Losses:
        nets, window = self.networks, windows["value"]
        with torch.no_grad():
            found = self._latents_and_return(window, noise)
            h = found["online"]
            z = self._represent(nets.core.state_action, h, window.actions[:, 0])
        terms = self._branches(
            {
                "value": partial(self._value_loss, window, noise, z, found),
                "policy": partial(
                    self._actor_loss,
                    nets.policy,
                    self._frozen_core,
                    self._actions,
                    h,
                    noise.policy_gumbel,
                    self.config.pre_activation_weight,
                ),
            }
        )
        terms["value"], priorities, numbers = terms["value"]
        return Losses(terms, numbers, {"h": h, "z": z}, {"value": priorities}, kept=found)

    def _latents_and_return(self, window: Window, noise: ValueNoise) -> dict[str, Tensor]:
        nets, augmentation = self.networks, self._augmentation
        later = (window.horizon,)
        return self._branches(
            {
                "online": partial(self._latents, nets.core, window, (0,), noise.now, augmentation),
                "target": partial(self._latents, nets.target_core, window, later, noise.later, augmentation),
                "return": partial(self._n_step_return, window.rewards, window.alive, self.config.discount),
            }
        )

    def _value_loss(
        self, window: Window, noise: ValueNoise, z: Tensor, found: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss, the new priorities, and numbers about them."""
        config, nets = self.config, self.networks
        with torch.no_grad():
            y = self._bootstrapped_target(
                nets.target_core,
                nets.target_policy,
                self._actions,
                found["target"],
                found["return"],
                window.alive,
                noise,
                config.target_noise,
                config.target_noise_limit,
                config.discount,
                (nets.scale, nets.target_scale),
            )
        return self._long_term_loss(
            nets.core, z, y, "mean", config.priority_exponent, config.minimum_priority
        )

    @cached_property
    def _frozen_core(self) -> Core:
        """Made at the first update, when the optimisers have moved the parameters to where they stay."""
        return frozen_view(self.networks.core)


def make_actor(config: MRQConfig, spec: EnvSpec, runner: Runner) -> PixelActor:
    actions, sizes = _actions(config, spec), config.sizes
    perception = Perception(spec.observation_shape, sizes)
    policy = make_policy(sizes.latent, sizes.policy_hidden, actions.size)
    return _actor(config, perception, policy, actions, runner)


def make_representation(config: MRQConfig, spec: EnvSpec) -> PixelRepresentation:
    """f and g."""
    actions = _actions(config, spec)
    perception = Perception(spec.observation_shape, config.sizes)
    state_action = StateActionEncoder(actions.size, config.sizes)
    modules: dict[str, nn.Module] = {
        "core.encoder": perception.encoder,
        "core.state_action": state_action,
    }
    return PixelRepresentation(perception, state_action, actions, modules, config.pixel_range)


def _actions(config: MRQConfig, spec: EnvSpec) -> ActionKind:
    return action_kind(spec.actions, config.gumbel_temperature, config.discrete_noise_scale)


def _actor(
    config: MRQConfig, perception: Perception, policy: nn.Module, actions: ActionKind, runner: Runner
) -> PixelActor:
    return PixelActor(
        perception,
        policy,
        actions,
        {"encoder": perception.encoder, "policy": policy},
        pixel_range=config.pixel_range,
        exploration_noise=config.exploration_noise,
        runner=runner,
    )
