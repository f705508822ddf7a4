"""One update of OG-SPR, phase by phase (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ogspr.agents import actor_critic
from ogspr.agents.actions import ActionKind
from ogspr.agents.failures import FailureWatch, any_not_finite
from ogspr.agents.health import Health
from ogspr.agents.modules import frozen_view
from ogspr.agents.ogspr import losses
from ogspr.agents.ogspr.config import POLICY, VALUE, OGSPRConfig
from ogspr.agents.ogspr.networks import Networks
from ogspr.agents.ogspr.noise import NoiseSizes, UpdateNoise, arrange_noise
from ogspr.agents.ogspr.step import Computed, Drawn, Evidence, Gradients, Judgement
from ogspr.agents.optimisation import ClippedAdamW, joint_gradients
from ogspr.agents.phases import Phases
from ogspr.agents.protocol import Accelerator, WindowSource
from ogspr.agents.tally import Tally
from ogspr.ops.returns import n_step_return
from ogspr.types import Window


class Update:
    """Samples, computes every loss, takes the gradients, and changes networks and priorities.

    Reads and writes tensors that stay where they are; nothing in it waits for the device.

    Args:
        config: The variant.
        networks: What it trains.
        actions: The kind of actions.
        generator: Where all of its randomness comes from, on the device it computes on.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self,
        config: OGSPRConfig,
        networks: Networks,
        actions: ActionKind,
        generator: torch.Generator,
        accelerator: Accelerator,
    ) -> None:
        self._config = config
        self._networks = networks
        self._actions = actions
        self._generator = generator
        self._accelerator = accelerator
        self._device = generator.device
        self._horizon = config.sequence_horizon
        weights = {VALUE: 1.0} | {task.name: task.weight for task in config.tasks} | {POLICY: 1.0}
        self._weights = {name: torch.tensor(weight, device=self._device) for name, weight in weights.items()}
        self.phases = Phases(self._sample, self._forward, self._backward, self._finish)
        self._build_optimisers()
        self._build_records()
        self._build_functions()

    def _sample(self, replay: WindowSource) -> Drawn:
        noise = self._draw_noise()
        wanted = [(self._config.n_step, noise.value_places), (self._horizon, noise.sequence_places)]
        value, sequence = replay.draw(wanted)
        return Drawn(value, sequence, noise)

    def _forward(self, drawn: Drawn) -> Computed:
        value, sequence, noise = drawn
        found = self._latents(value, sequence, noise)
        h, sequence_h = found["online"]
        h_later, sequence_targets = found["target"]
        seen = Evidence(
            z=self._represent(self._networks.value.core.state_action, h, value.actions[:, 0]),
            next_frame=found["next_frame"],
            pixel_range=self._config.pixel_range,
            short_return=found["short_return"],
            sequence_h=sequence_h,
            sequence_actions=sequence.actions,
            sequence_targets=sequence_targets,
            sequence_alive=sequence.alive,
        )
        terms, judged = self._losses(h.detach(), h_later, value, seen, noise)
        return Computed(drawn, seen, terms, judged, h.detach())

    def _backward(self, computed: Computed) -> tuple[Computed, Gradients]:
        return computed, self._gradients(computed.terms)

    def _finish(self, replay: WindowSource, results: tuple[Computed, Gradients]) -> None:
        """Optimisers, records and priorities; none of them where a number is not finite."""
        computed, gradients = results
        judged, starts = computed.judged, computed.drawn.value.starts
        numbers = self._numbers(computed.terms, gradients)
        skip = self._any_not_finite(tuple(numbers.values()))
        self._accelerator.branches(
            {
                "optimise": partial(self._optimise, gradients, skip),
                "record": partial(self._record, computed, numbers | judged.numbers, skip),
                "prioritise": partial(replay.set_priorities, starts, judged.priorities, skip),
            }
        )

    def _draw_noise(self) -> UpdateNoise:
        config = self._config
        sizes = NoiseSizes(config.batch_size, self._horizon, self._actions.size)
        uniforms, normals = sizes.draw(self._generator)
        noise: UpdateNoise = self._arrange(uniforms, normals, sizes, config.shift_pad)
        return noise

    def _latents(self, value: Window, sequence: Window, noise: UpdateNoise) -> dict[str, Any]:
        """Latent states of both networks, the frame and the return to predict: none needs another."""
        windows = (value, sequence, noise, (self._config.shift_pad, self._config.pixel_range))

        def target() -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                latents: tuple[Tensor, Tensor] = self._target_latents(self._networks.target_core, *windows)
            return latents

        return self._accelerator.branches(
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
        terms = self._accelerator.branches(branches)
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
                (self._networks.scale, self._networks.target_scale),
            )
        loss, priorities, numbers = self._long_term_loss(
            self._networks.value.core, seen.z, y, "sum", config.priority_exponent, config.minimum_priority
        )
        return loss, Judgement(priorities, numbers)

    def _gradients(self, terms: dict[str, Tensor]) -> Gradients:
        """Of the weighted sum of losses by the value network, and of the actor's by the policy."""
        # The actor's loss shares no parameters with the others (it sees detached latents and a frozen
        # core), so one pass gives both.
        value, policy = joint_gradients(
            [terms[name] for name in self._weights],
            (self._value_optimiser, self._policy_optimiser),
            list(self._weights.values()),
        )
        norm = torch.linalg.vector_norm
        return Gradients(
            value, policy, [norm(vector) for vector in value], [norm(vector) for vector in policy]
        )

    def _numbers(self, terms: dict[str, Tensor], gradients: Gradients) -> dict[str, Tensor]:
        """Every loss and gradient norm by name."""
        return {f"{name}_loss": term.detach() for name, term in terms.items()} | {
            "value_gradient_norm": torch.linalg.vector_norm(torch.stack(gradients.value_norms)),
            "policy_gradient_norm": torch.linalg.vector_norm(torch.stack(gradients.policy_norms)),
        }

    def _optimise(self, gradients: Gradients, skip: Tensor) -> None:
        self._value_optimiser.step(gradients.value, gradients.value_norms, skip)
        self._policy_optimiser.step(gradients.policy, gradients.policy_norms, skip)

    def _record(self, computed: Computed, numbers: dict[str, Tensor], skip: Tensor) -> None:
        value, sequence, _ = computed.drawn
        self.failures.observe(skip, numbers, {"value": value.starts, "sequence": sequence.starts})
        self._tally.add(numbers, skip)
        self._health.keep({"h": computed.h, "z": computed.seen.z.detach()}, skip)

    # --- what is known about updates ------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Means since the last call, and the health of the representations now. Waits for the device."""
        means = self._tally.flush()
        means["combined_loss"] = sum(
            float(weight) * means[f"{name}_loss"] for name, weight in self._weights.items() if name != POLICY
        )
        return means | self._health.measures() | {"failed_updates": float(self.failures.total)}

    def set_learning_rate(self, rate: float) -> None:
        """Of both optimisers, from the next update on."""
        for optimiser in (self._value_optimiser, self._policy_optimiser):
            optimiser.learning_rate.fill_(rate)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What has to be saved, by part and name."""
        return {
            "value_optimiser": self._value_optimiser.state_dict(),
            "policy_optimiser": self._policy_optimiser.state_dict(),
            "features": self._health.state_dict(),
            "tally": self._tally.state_dict(),
            "failures": self.failures.state_dict(),
        }

    # --- construction ---------------------------------------------------------------------------

    def _build_optimisers(self) -> None:
        config = self._config
        value_groups = [dict(self._networks.value.named_parameters())]
        if config.clip_scope == "module":
            names = {parameter: name for name, parameter in value_groups[0].items()}
            value_groups = [
                {names[parameter]: parameter for parameter in module.parameters()}
                for module in self._networks.value.parts()
            ]
        rates: dict[str, Any] = {"learning_rate": config.learning_rate, "weight_decay": config.weight_decay}
        rates["accelerate"] = self._accelerator.function
        self._value_optimiser = ClippedAdamW(value_groups, **rates, clip_norm=config.clip_norm)
        self._policy_optimiser = ClippedAdamW(
            [dict(self._networks.policy.named_parameters())], **rates, clip_norm=None
        )
        # After the optimisers, which move the numbers to where they stay.
        self._frozen_core = frozen_view(self._networks.value.core)

    def _build_records(self) -> None:
        losses_and_norms = [f"{name}_loss" for name in self._weights]
        losses_and_norms += ["value_gradient_norm", "policy_gradient_norm"]
        self._tally = Tally([*losses_and_norms, *actor_critic.JUDGED], self._device)
        batches = {
            "value": self._config.batch_size,
            "sequence": self._config.batch_size if self._horizon else 0,
        }
        self.failures = FailureWatch(losses_and_norms, batches, self._device)
        sizes = {"h": self._config.sizes.latent, "z": self._config.sizes.representation}
        self._health = Health(sizes, self._config.batch_size, self._device)

    def _build_functions(self) -> None:
        fast = self._accelerator.function
        self._arrange = fast(arrange_noise)
        self._next_frame = fast(losses.next_frame)
        self._n_step_return = fast(n_step_return)
        self._online_latents = fast(losses.online_latents)
        self._target_latents = fast(losses.target_latents)
        self._represent = fast(actor_critic.represent)
        self._bootstrapped_target = fast(actor_critic.bootstrapped_target)
        self._long_term_loss = fast(actor_critic.long_term_loss)
        self._actor_loss = fast(actor_critic.actor_loss)
        self._any_not_finite = fast(any_not_finite)
        self._task_losses = {task.name: fast(task.loss()) for task in self._config.tasks}
