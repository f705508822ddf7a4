"""The forward pass of an update: from windows of replay to every loss (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ogspr.agents import actor_critic
from ogspr.agents.actions import ActionKind
from ogspr.agents.modules import frozen_view
from ogspr.agents.ogspr import losses
from ogspr.agents.ogspr.config import POLICY, VALUE, OGSPRConfig
from ogspr.agents.ogspr.networks import Networks
from ogspr.agents.ogspr.noise import NoiseSizes, UpdateNoise, arrange_noise
from ogspr.agents.ogspr.step import Computed, Drawn, Evidence, Judgement
from ogspr.agents.protocol import DrawWindows, Runner
from ogspr.ops.returns import n_step_return
from ogspr.types import Window


class Forward:
    """Draws windows and noise, and computes every loss. Changes nothing but its generator.

    Args:
        config: The variant.
        networks: What the losses are of; their parameters have to be where they stay.
        actions: The kind of actions.
        generator: Where all of its randomness comes from, on the device it computes on.
        runner: How its tensor functions are run.
    """

    def __init__(
        self,
        config: OGSPRConfig,
        networks: Networks,
        actions: ActionKind,
        generator: torch.Generator,
        runner: Runner,
    ) -> None:
        self._config = config
        self._networks = networks
        self._frozen_core = frozen_view(networks.value.core)
        self._actions = actions
        self._generator = generator
        self._branches = runner.branches
        self._horizon = config.sequence_horizon
        fast = runner.function
        self._arrange = fast(arrange_noise)
        self._next_frame = fast(losses.next_frame)
        self._n_step_return = fast(n_step_return)
        self._online_latents = fast(losses.online_latents)
        self._target_latents = fast(losses.target_latents)
        self._represent = fast(losses.represent)
        self._bootstrapped_target = fast(actor_critic.bootstrapped_target)
        self._long_term_loss = fast(actor_critic.long_term_loss)
        self._actor_loss = fast(actor_critic.actor_loss)
        self._task_losses = {task.name: fast(task.loss()) for task in config.tasks}

    def sample(self, draw: DrawWindows) -> Drawn:
        """The two batches of an update, by a replay's way of drawing."""
        noise = self._draw_noise()
        value, sequence = draw(
            [(self._config.n_step, noise.value_places), (self._horizon, noise.sequence_places)]
        )
        return Drawn(value, sequence, noise)

    def __call__(self, drawn: Drawn) -> Computed:
        value, sequence, noise = drawn
        found = self._latents(value, sequence, noise)
        features, h, sequence_h = found["online"]
        h_later, sequence_targets = found["target"]
        z, z_aux = self._represent(
            self._networks.value.core.state_action,
            h,
            features if self._config.needs_features else None,
            value.actions[:, 0],
        )
        seen = Evidence(
            z=z,
            z_aux=z_aux,
            next_frame=found["next_frame"],
            short_return=found["short_return"],
            sequence_h=sequence_h,
            sequence_actions=sequence.actions,
            sequence_targets=sequence_targets,
            sequence_alive=sequence.alive,
        )
        terms, judged = self._losses(h.detach(), h_later, value, seen, noise)
        return Computed(drawn, seen, terms, judged, h.detach())

    def _draw_noise(self) -> UpdateNoise:
        config = self._config
        sizes = NoiseSizes(config.batch_size, self._horizon, self._actions.size)
        uniforms, normals = sizes.draw(self._generator)
        noise: UpdateNoise = self._arrange(uniforms, normals, sizes, config.shift_pad)
        return noise

    def _latents(self, value: Window, sequence: Window, noise: UpdateNoise) -> dict[str, Any]:
        """Latent states of both networks, the frame and the return to predict: none needs another."""
        windows = (value, sequence, noise, self._config.shift_pad)

        def target() -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                latents: tuple[Tensor, Tensor] = self._target_latents(self._networks.target_core, *windows)
            return latents

        return self._branches(
            {
                "online": partial(self._online_latents, self._networks.value.core, *windows),
                "target": target,
                "next_frame": partial(self._next_frame, value, noise, self._config.shift_pad),
                "short_return": partial(
                    self._n_step_return, value.rewards, value.alive, self._config.discount
                ),
            }
        )

    def _losses(
        self, h: Tensor, h_later: Tensor, value: Window, seen: Evidence, noise: UpdateNoise
    ) -> tuple[dict[str, Tensor], Judgement]:
        """Every loss by name, and what the value loss found out. `h` is detached."""
        core = self._networks.value.core
        branches: dict[str, Callable[[], Any]] = {
            task.name: partial(
                self._task_losses[task.name], self._networks.value.heads[task.name], core.state_action, seen
            )
            for task in self._config.tasks
        }
        branches[VALUE] = partial(self._value_loss, h_later, value, seen, noise)
        branches[POLICY] = partial(
            self._actor_loss,
            self._networks.policy,
            self._frozen_core,
            self._actions,
            h,
            noise.policy_gumbel,
            self._config.pre_activation_weight,
        )
        terms = self._branches(branches)
        terms[VALUE], judged = terms[VALUE]
        return terms, judged

    def _value_loss(
        self, h_later: Tensor, value: Window, seen: Evidence, noise: UpdateNoise
    ) -> tuple[Tensor, Judgement]:
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
        loss, priorities, numbers = self._long_term_loss(
            self._networks.value.core,
            seen.z,
            y,
            config.value_reduction,
            config.priority_exponent,
            config.minimum_priority,
        )
        return loss, Judgement(priorities, numbers)
