"""OG-SPR as a method: its networks, one kind of update, and when it is made (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from ogspr.agents import actor_critic
from ogspr.agents.actor_critic import PixelActor, PixelRepresentation, action_kind, make_policy
from ogspr.agents.influence import Influence, Plain
from ogspr.agents.modules import frozen_view
from ogspr.agents.ogspr import losses
from ogspr.agents.ogspr.config import PIXEL_RANGE, POLICY, VALUE, OGSPRConfig
from ogspr.agents.ogspr.losses import TASK_LOSSES, Latents, UpdateNoise
from ogspr.agents.ogspr.networks import Core, Networks, Perception, StateActionEncoder
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


class OGSPR:
    """One variant, made for one environment.

    Args:
        config: The variant.
        spec: The environment.
        device: Where the networks are.
        runner: How tensor functions are run.
    """

    def __init__(self, config: OGSPRConfig, spec: EnvSpec, device: torch.device, runner: Runner) -> None:
        self.config = config
        self.random_steps = config.random_steps
        actions = _actions(config, spec)
        self.networks = networks = Networks(config, spec, actions.size, device)
        self.actor = _actor(config, networks.value.core, networks.policy, actions, runner)
        self.updates = {"all": declared_update(config, networks, actions, runner)}
        self._influence = Influence(
            lambda windows: declared_update(
                replace(config, batch_size=min(config.batch_size, windows)), networks, actions, Plain()
            ),
            terms=config.weights,
            encoder=networks.value.core.encoder,
            network=networks.value,
            device=device,
        )

    @property
    def learned(self) -> Sequence[nn.Module]:
        return self.networks.value, self.networks.policy

    def tensors(self) -> Mapping[str, Mapping[str, Tensor]]:
        return self.networks.tensors()

    def updates_due(self, agent_steps: int) -> int:
        return self.config.updates_per_step if agent_steps > self.random_steps else 0

    def schedule(self, updates: int, agent_steps: int, replay: WindowSource) -> Iterable[str]:  # noqa: ARG002
        if updates % self.config.target_period == 0:
            self.networks.sync_targets()
        yield "all"

    def report(self, means: Mapping[str, float], updates: int) -> dict[str, float]:  # noqa: ARG002
        """The loss of the value network as a whole."""
        weights = self.config.weights
        return {"combined_loss": sum(weight * means[f"{name}_loss"] for name, weight in weights.items())}

    def influence(self, replay: WindowSource | None, updates: int) -> dict[str, float]:
        return self._influence.measured(replay, updates)


def declared_update(config: OGSPRConfig, networks: Networks, actions: ActionKind, runner: Runner) -> Update:
    """The one kind of update there is."""
    batch, horizon, pad = config.batch_size, config.sequence_horizon, config.shift_pad
    sequences = batch if horizon else 0
    shape, rates = (batch, actions.size), (config.learning_rate, config.weight_decay)

    return Update(
        draws={"value": Draw(batch, config.n_step), "sequence": Draw(sequences, horizon)},
        noise=UpdateNoise(
            now=Shifts(batch, pad),
            later=Shifts(batch, pad),
            sequence_now=Shifts(sequences, pad),
            sequence_later=Shifts(horizon * batch, pad),
            target_action=Normal(shape),
            target_gumbel=Uniform(shape),
            policy_gumbel=Uniform(shape),
        ),
        losses=Forward(config, networks, actions, runner),
        trains={
            VALUE: Trained([Group(networks.value, *rates)], config.clip_norm),
            POLICY: Trained([Group(networks.policy, *rates)]),
        },
        weights=config.weights | {POLICY: 1.0},
        numbers=actor_critic.VALUE_STATS,
        features={"h": config.sizes.latent, "z": config.sizes.representation},
    )


class Forward:
    """From windows of replay to every loss.

    Args:
        config: The variant.
        networks: What the losses are of.
        actions: The kind of actions.
        runner: How tensor functions are run.
    """

    def __init__(self, config: OGSPRConfig, networks: Networks, actions: ActionKind, runner: Runner) -> None:
        self._config = config
        self._needs_features = config.needs_features
        self._networks = networks
        self._core = networks.value.core
        self._actions = actions
        self._branches: Callable[[Mapping[str, Callable[[], Any]]], dict[str, Any]] = runner.branches
        fast = runner.function
        self._next_frame = fast(losses.next_frame)
        self._n_step_return = fast(n_step_return)
        self._online_latents = fast(losses.online_latents)
        self._target_latents = fast(losses.target_latents)
        self._represent = fast(losses.represent)
        self._bootstrapped_target = fast(actor_critic.bootstrapped_target)
        self._long_term_loss = fast(actor_critic.long_term_loss)
        self._actor_loss = fast(actor_critic.actor_loss)
        self._task_losses = {task.name: fast(TASK_LOSSES[type(task)]) for task in config.tasks}

    def __call__(self, windows: Windows, noise: UpdateNoise) -> Losses:
        value, sequence = windows["value"], windows["sequence"]
        found = self._latents(value, sequence, noise)
        features, h, sequence_h = found["online"]
        h_later, sequence_targets = found["target"]
        z, z_aux = self._represent(
            self._core.state_action,
            h,
            features if self._needs_features else None,
            value.actions[:, 0],
        )
        seen = Latents(
            z=z,
            z_aux=z_aux,
            next_frame=found["next_frame"],
            short_return=found["short_return"],
            sequence_h=sequence_h,
            sequence_actions=sequence.actions,
            sequence_targets=sequence_targets,
            sequence_alive=sequence.alive,
        )
        heads = self._networks.value.heads
        branches: dict[str, Callable[[], Any]] = {
            name: partial(loss, heads[name], self._core.state_action, seen)
            for name, loss in self._task_losses.items()
        }
        branches[VALUE] = partial(self._value_loss, h_later, value, seen, noise)
        branches[POLICY] = partial(self._policy_loss, h.detach(), noise)  # it does not train the encoder
        terms = self._branches(branches)
        terms[VALUE], priorities, numbers = terms[VALUE]
        features = {"h": h.detach(), "z": z.detach()}
        return Losses(terms, numbers, features, {"value": priorities}, kept=(found, seen))

    def _latents(self, value: Window, sequence: Window, noise: UpdateNoise) -> dict[str, Any]:
        """Latent states of both networks, and the frame and return to predict: none needs another."""
        pad = self._config.shift_pad

        def target() -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                return self._target_latents(self._networks.target_core, value, sequence, noise, pad)

        return self._branches(
            {
                "online": partial(self._online_latents, self._core, value, sequence, noise, pad),
                "target": target,
                "next_frame": partial(self._next_frame, value, noise, pad),
                "short_return": partial(
                    self._n_step_return, value.rewards, value.alive, self._config.discount
                ),
            }
        )

    def _value_loss(
        self, h_later: Tensor, value: Window, seen: Latents, noise: UpdateNoise
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss, the new priorities, and numbers about them."""
        config = self._config
        with torch.no_grad():
            y = self._bootstrapped_target(
                self._networks.target_core,
                self._networks.target_policy,
                self._actions,
                h_later,
                seen.short_return,
                value.alive,
                noise,
                config.target_noise,
                config.target_noise_limit,
                config.discount,
            )
        return self._long_term_loss(
            self._core, seen.z, y, config.value_reduction, config.priority_exponent, config.minimum_priority
        )

    def _policy_loss(self, h: Tensor, noise: UpdateNoise) -> Tensor:
        weight = self._config.pre_activation_weight
        return self._actor_loss(
            self._networks.policy, self._frozen_core, self._actions, h, noise.policy_gumbel, weight
        )

    @cached_property
    def _frozen_core(self) -> Core:
        """Made at the first update, when the optimisers have moved the parameters to where they stay."""
        return frozen_view(self._core)


def make_actor(config: OGSPRConfig, spec: EnvSpec, runner: Runner) -> PixelActor:
    actions, sizes = _actions(config, spec), config.sizes
    perception = Perception(spec.observation_shape, sizes, config.adapters)
    policy = make_policy(sizes.latent, sizes.policy_hidden, actions.size)
    return _actor(config, perception, policy, actions, runner)


def make_representation(config: OGSPRConfig, spec: EnvSpec) -> PixelRepresentation:
    """f, u1 and g."""
    actions, sizes = _actions(config, spec), config.sizes
    perception = Perception(spec.observation_shape, sizes, config.adapters)
    state_action = StateActionEncoder(
        sizes.latent, actions.size, sizes.state_action_hidden, sizes.representation
    )
    modules: dict[str, nn.Module] = {
        "value_network.core.encoder": perception.encoder,
        "value_network.core.adapter1": perception.adapter1,
        "value_network.core.state_action": state_action,
    }
    return PixelRepresentation(perception, state_action, actions, modules, PIXEL_RANGE)


def _actions(config: OGSPRConfig, spec: EnvSpec) -> ActionKind:
    return action_kind(spec.actions, config.gumbel_temperature)


def _actor(
    config: OGSPRConfig, perception: Perception, policy: nn.Module, actions: ActionKind, runner: Runner
) -> PixelActor:
    return PixelActor(
        perception,
        policy,
        actions,
        {"encoder": perception.encoder, "adapter1": perception.adapter1, "policy": policy},
        pixel_range=PIXEL_RANGE,
        exploration_noise=config.exploration_noise,
        runner=runner,
        sampled_evaluation=config.sampled_evaluation,
    )
