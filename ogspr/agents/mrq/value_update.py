"""One update of values and policy on representations that it leaves alone, phase by phase."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ogspr.agents import actor_critic
from ogspr.agents.actions import ActionKind
from ogspr.agents.failures import FailureWatch, any_not_finite
from ogspr.agents.health import Health
from ogspr.agents.modules import frozen_view
from ogspr.agents.mrq import losses
from ogspr.agents.mrq.config import MRQConfig
from ogspr.agents.mrq.networks import Networks
from ogspr.agents.mrq.noise import ValueNoise, arrange_value_noise, draw_uniforms, value_uniforms
from ogspr.agents.optimisation import ClippedAdamW, joint_gradients
from ogspr.agents.phases import Phases
from ogspr.agents.protocol import Accelerator, WindowSource
from ogspr.agents.tally import Tally
from ogspr.ops.returns import n_step_return
from ogspr.types import Window


class Drawn(NamedTuple):
    """The batch of an update, and its noise."""

    window: Window
    noise: ValueNoise


class Seen(NamedTuple):
    """What the losses are functions of; nothing here has a gradient."""

    h: Tensor  # (B, D) of s_t
    z: Tensor  # (B, Z) of s_t and a_t
    h_later: Tensor  # (B, D) of s_{t+n}, of the target network
    short_return: Tensor  # (B,)


class Computed(NamedTuple):
    """What the forward pass leaves for the rest.

    All that branches were given is in here: it has to outlive the backward pass.
    """

    drawn: Drawn
    seen: Seen
    value_loss: Tensor
    policy_loss: Tensor
    priorities: Tensor  # (B,)
    numbers: dict[str, Tensor]  # about values and priorities


class Learned(NamedTuple):
    """What there is at the end of the backward pass; gradients are one vector each."""

    computed: Computed
    value: list[Tensor]
    policy: list[Tensor]
    value_norm: Tensor
    policy_norm: Tensor


class ValueUpdate:
    """Learns Q and pi, and gives the drawn steps new priorities.

    Reads and writes tensors that stay where they are; nothing in it waits for the device.

    Args:
        config: The method's numbers.
        networks: What it trains; after the encoder's optimiser, which moves the numbers to where they stay.
        actions: The kind of actions.
        generator: Where all of its randomness comes from, on the device it computes on.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self,
        config: MRQConfig,
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
        self._look = (config.shift_pad, config.pixel_range)
        device = generator.device
        rates: dict[str, Any] = {"learning_rate": config.learning_rate, "weight_decay": config.weight_decay}
        rates["accelerate"] = accelerator.function
        values, policy = networks.core.long_term, networks.policy
        self._value_optimiser = ClippedAdamW(
            [dict(values.named_parameters())], **rates, clip_norm=config.clip_norm
        )
        self._policy_optimiser = ClippedAdamW([dict(policy.named_parameters())], **rates, clip_norm=None)
        self._frozen_core = frozen_view(networks.core)
        names = ("value_loss", "policy_loss", "value_gradient_norm", "policy_gradient_norm")
        self._tally = Tally([*names, *actor_critic.JUDGED], device)
        self.failures = FailureWatch(names, {"value": config.batch_size}, device)
        sizes = {"h": config.sizes.latent, "z": config.sizes.representation}
        self._health = Health(sizes, config.batch_size, device)
        self.phases = Phases(self._sample, self._forward, self._backward, self._finish)
        self._build_functions()

    def means(self) -> dict[str, float]:
        """Of all numbers since the last call, and the health of the representations now."""
        return self._tally.flush() | self._health.measures()

    def set_learning_rate(self, rate: float) -> None:
        """Of both optimisers, from the next update on."""
        for optimiser in (self._value_optimiser, self._policy_optimiser):
            optimiser.learning_rate.fill_(rate)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What has to be saved, by part and name."""
        return {
            "value_optimiser": self._value_optimiser.state_dict(),
            "policy_optimiser": self._policy_optimiser.state_dict(),
            "value_tally": self._tally.state_dict(),
            "value_failures": self.failures.state_dict(),
            "features": self._health.state_dict(),
        }

    def _build_functions(self) -> None:
        fast = self._accelerator.function
        self._arrange = fast(arrange_value_noise)
        self._latents = fast(losses.latents)
        self._represent = fast(actor_critic.represent)
        self._n_step_return = fast(n_step_return)
        self._bootstrapped_target = fast(actor_critic.bootstrapped_target)
        self._long_term_loss = fast(actor_critic.long_term_loss)
        self._actor_loss = fast(actor_critic.actor_loss)
        self._any_not_finite = fast(any_not_finite)

    # --- the phases -----------------------------------------------------------------------------

    def _sample(self, replay: WindowSource) -> Drawn:
        batch, size = self._config.batch_size, self._actions.size
        uniforms = draw_uniforms(value_uniforms(batch, size), self._generator)
        normals = torch.randn(batch, size, generator=self._generator, device=self._generator.device)
        noise: ValueNoise = self._arrange(uniforms, normals, self._config.shift_pad)
        (window,) = replay.draw([(self._config.n_step, noise.places)])
        return Drawn(window, noise)

    def _forward(self, drawn: Drawn) -> Computed:
        with torch.no_grad():
            seen = self._look_at(drawn)
        terms = self._accelerator.branches(
            {
                "value": partial(self._value_loss, drawn, seen),
                "policy": partial(
                    self._actor_loss,
                    self._networks.policy,
                    self._frozen_core,
                    self._actions,
                    seen.h,
                    drawn.noise.policy_gumbel,
                    self._config.pre_activation_weight,
                ),
            }
        )
        value_loss, priorities, numbers = terms["value"]
        return Computed(drawn, seen, value_loss, terms["policy"], priorities, numbers)

    def _look_at(self, drawn: Drawn) -> Seen:
        window, noise = drawn
        core, target_core = self._networks.core, self._networks.target_core
        found = self._accelerator.branches(
            {
                "online": partial(self._latents, core, window, (0,), noise.now, self._look),
                "target": partial(
                    self._latents, target_core, window, (window.horizon,), noise.later, self._look
                ),
                "short_return": partial(
                    self._n_step_return, window.rewards, window.alive, self._config.discount
                ),
            }
        )
        h = found["online"]
        z = self._represent(core.state_action, h, window.actions[:, 0])
        return Seen(h, z, found["target"], found["short_return"])

    def _value_loss(self, drawn: Drawn, seen: Seen) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss, the new priorities, and numbers about them."""
        config, nets = self._config, self._networks
        with torch.no_grad():
            y = self._bootstrapped_target(
                nets.target_core,
                nets.target_policy,
                self._actions,
                seen.h_later,
                seen.short_return,
                drawn.window.alive,
                drawn.noise,
                config.target_noise,
                config.target_noise_limit,
                config.discount,
                (nets.scale, nets.target_scale),
            )
        # The mean, where OG-SPR has the sum: what the limit of the gradient is made for.
        judged: tuple[Tensor, Tensor, dict[str, Tensor]] = self._long_term_loss(
            nets.core, seen.z, y, "mean", config.priority_exponent, config.minimum_priority
        )
        return judged

    def _backward(self, computed: Computed) -> Learned:
        # The two losses share no parameters that learn here, so one pass gives both gradients.
        (value,), (policy,) = joint_gradients(
            [computed.value_loss, computed.policy_loss], (self._value_optimiser, self._policy_optimiser)
        )
        norm = torch.linalg.vector_norm
        return Learned(computed, [value], [policy], norm(value), norm(policy))

    def _finish(self, replay: WindowSource, learned: Learned) -> None:
        """Optimisers, records and priorities; none of them where a number is not finite."""
        computed = learned.computed
        numbers = {
            "value_loss": computed.value_loss.detach(),
            "policy_loss": computed.policy_loss.detach(),
            "value_gradient_norm": learned.value_norm,
            "policy_gradient_norm": learned.policy_norm,
        }
        skip = self._any_not_finite(tuple(numbers.values()))
        starts = computed.drawn.window.starts
        self._accelerator.branches(
            {
                "optimise": partial(self._optimise, learned, skip),
                "record": partial(self._record, computed, numbers, skip),
                "prioritise": partial(replay.set_priorities, starts, computed.priorities, skip),
            }
        )

    def _optimise(self, learned: Learned, skip: Tensor) -> None:
        self._value_optimiser.step(learned.value, [learned.value_norm], skip)
        self._policy_optimiser.step(learned.policy, [learned.policy_norm], skip)

    def _record(self, computed: Computed, numbers: dict[str, Tensor], skip: Tensor) -> None:
        self.failures.observe(skip, numbers, {"value": computed.drawn.window.starts})
        self._tally.add(numbers | computed.numbers, skip)
        self._health.keep({"h": computed.seen.h, "z": computed.seen.z}, skip)
