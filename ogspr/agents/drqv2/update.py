"""One update of DrQ-v2, phase by phase."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ogspr.agents.drqv2 import losses
from ogspr.agents.drqv2.config import DrQv2Config
from ogspr.agents.drqv2.networks import Networks
from ogspr.agents.drqv2.noise import UpdateNoise, arrange_noise, draw_noise
from ogspr.agents.drqv2.step import Computed, Drawn, Gradients
from ogspr.agents.failures import FailureWatch, any_not_finite
from ogspr.agents.health import Health
from ogspr.agents.modules import frozen_view
from ogspr.agents.optimisation import ClippedAdamW, joint_gradients
from ogspr.agents.phases import Phases
from ogspr.agents.protocol import Accelerator, WindowSource
from ogspr.agents.tally import Tally

VALUE, POLICY = "value", "policy"  # the names of the two losses
NOW, LATER = "now", "later"  # and of the two observations of a window
_RECORDED = ("value_loss", "policy_loss", "value_gradient_norm", "policy_gradient_norm")


class Update:
    """Samples, computes both losses, takes the gradients, and changes the networks.

    Reads and writes tensors that stay where they are; nothing in it waits for the device.

    Args:
        config: The settings.
        networks: What it trains.
        action_size: Numbers in an action.
        generator: Where all of its randomness comes from, on the device it computes on.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self,
        config: DrQv2Config,
        networks: Networks,
        action_size: int,
        generator: torch.Generator,
        accelerator: Accelerator,
    ) -> None:
        self._config = config
        self._networks = networks
        self._action_size = action_size
        self._generator = generator
        self._accelerator = accelerator
        device = generator.device
        self.noise_scale = torch.tensor(config.noise_start, device=device)
        """Standard deviation of the noise on actions; filled in place before an update."""
        self._build_optimisers()
        self._tally = Tally([*_RECORDED, *losses.JUDGED], device)
        self.failures = FailureWatch(_RECORDED, {VALUE: config.batch_size}, device)
        self._health = Health({"h": config.sizes.features}, config.batch_size, device)
        self._build_functions()
        self.phases = Phases(self._sample, self._forward, self._backward, self._finish)

    def _sample(self, replay: WindowSource) -> Drawn:
        config = self._config
        raw = draw_noise(config.batch_size, self._action_size, self._generator)
        noise: UpdateNoise = self._arrange(*raw, config.shift_pad)
        # Priorities are left alone, so every window is as likely as any other.
        (window,) = replay.draw([(config.n_step, noise.places)])
        return Drawn(window, noise)

    def _forward(self, drawn: Drawn) -> Computed:
        features = self._features(drawn)
        found: dict[str, Any] = self._accelerator.branches(
            {
                VALUE: partial(self._value_loss, features, drawn),
                POLICY: partial(self._policy_loss, features[NOW].detach(), drawn),
            }
        )
        value_loss, h, numbers = found[VALUE]
        return Computed(drawn, features, {VALUE: value_loss, POLICY: found[POLICY]}, numbers, h)

    def _features(self, drawn: Drawn) -> dict[str, Tensor]:
        """Of both observations, by the encoder that learns; only the first teaches it."""
        (window, noise), pad = drawn, self._config.shift_pad

        def later() -> Tensor:
            with torch.no_grad():
                features: Tensor = self._features_of(
                    self._networks.value, window, window.horizon, noise.later, pad
                )
            return features

        now = partial(self._features_of, self._networks.value, window, 0, noise.now, pad)
        return self._accelerator.branches({NOW: now, LATER: later})

    def _value_loss(
        self, features: dict[str, Tensor], drawn: Drawn
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        config, (window, noise) = self._config, drawn
        with torch.no_grad():
            y = self._bootstrapped_target(
                self._networks.target_critic,
                self._networks.policy,
                features[LATER],
                window,
                self.noise_scale,
                noise.target_action,
                config.update_noise_limit,
                config.discount,
            )
        found: tuple[Tensor, Tensor, dict[str, Tensor]] = self._critic_loss(
            self._networks.value.critic, features[NOW], window.actions[:, 0], y
        )
        return found

    def _policy_loss(self, features: Tensor, drawn: Drawn) -> Tensor:
        """At features without a gradient: the policy does not teach the encoder."""
        loss: Tensor = self._actor_loss(
            self._networks.policy,
            self._frozen_critic,
            features,
            self.noise_scale,
            drawn.noise.policy_action,
            self._config.update_noise_limit,
        )
        return loss

    def _backward(self, computed: Computed) -> tuple[Computed, Gradients]:
        """Of the values' loss by encoder and critic, and of the policy's by the policy."""
        # The losses share no parameters (the policy's sees detached features and a frozen critic), so one
        # pass gives both.
        (value,), (policy,) = joint_gradients(
            [computed.terms[VALUE], computed.terms[POLICY]], (self._value_optimiser, self._policy_optimiser)
        )
        norm = torch.linalg.vector_norm
        return computed, Gradients(value, policy, norm(value), norm(policy))

    def _finish(self, replay: WindowSource, results: tuple[Computed, Gradients]) -> None:
        """Optimisers, the target and records; none of them where a number is not finite."""
        computed, gradients = results
        found = (*computed.terms.values(), gradients.value_norm, gradients.policy_norm)
        numbers = {name: number.detach() for name, number in zip(_RECORDED, found, strict=True)}
        skip = self._any_not_finite(tuple(numbers.values()))
        self._accelerator.branches(
            {
                "optimise": partial(self._optimise, gradients, skip),
                "record": partial(self._record, computed, numbers, skip),
            }
        )
        replay.finish_drawing()

    def _optimise(self, gradients: Gradients, skip: Tensor) -> None:
        self._value_optimiser.step([gradients.value], [gradients.value_norm], skip)
        self._policy_optimiser.step([gradients.policy], [gradients.policy_norm], skip)
        self._networks.move_target(self._config.target_rate * (1.0 - skip))

    def _record(self, computed: Computed, numbers: dict[str, Tensor], skip: Tensor) -> None:
        self.failures.observe(skip, numbers, {VALUE: computed.drawn.window.starts})
        self._tally.add(numbers | computed.numbers, skip)
        self._health.keep({"h": computed.h}, skip)

    # --- what is known about updates ------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """Means since the last call, and the health of the critic's trunk now. Waits for the device."""
        means = self._tally.flush()
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
        """Adam: no weight decay, no clipping."""

        def adam(network: torch.nn.Module) -> ClippedAdamW:
            return ClippedAdamW(
                [dict(network.named_parameters())],
                learning_rate=self._config.learning_rate,
                weight_decay=0.0,
                clip_norm=None,
                accelerate=self._accelerator.function,
            )

        self._value_optimiser = adam(self._networks.value)
        self._policy_optimiser = adam(self._networks.policy)
        # After the optimisers, which move the numbers to where they stay.
        self._frozen_critic = frozen_view(self._networks.value.critic)

    def _build_functions(self) -> None:
        fast = self._accelerator.function
        self._arrange = fast(arrange_noise)
        self._features_of = fast(losses.features_of)
        self._bootstrapped_target = fast(losses.bootstrapped_target)
        self._critic_loss = fast(losses.critic_loss)
        self._actor_loss = fast(losses.actor_loss)
        self._any_not_finite = fast(any_not_finite)
