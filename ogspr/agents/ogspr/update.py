"""One update of OG-SPR: gradients of every loss, optimisers, priorities, and what is known about it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ogspr.agents import actor_critic
from ogspr.agents.actions import ActionKind
from ogspr.agents.failures import FailureWatch, any_not_finite
from ogspr.agents.health import Health
from ogspr.agents.ogspr.config import POLICY, OGSPRConfig
from ogspr.agents.ogspr.forward import Forward
from ogspr.agents.ogspr.networks import Networks
from ogspr.agents.ogspr.step import Computed, Drawn, Gradients
from ogspr.agents.optimisation import ClippedAdamW, joint_gradients
from ogspr.agents.phases import Phases
from ogspr.agents.protocol import Accelerator, WindowSource
from ogspr.agents.tally import Tally


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
        self._accelerator = accelerator
        self._any_not_finite = accelerator.function(any_not_finite)
        device = generator.device
        weights = config.weights | {POLICY: 1.0}
        self._weights = {name: torch.tensor(weight, device=device) for name, weight in weights.items()}
        self._build_optimisers()  # which move the parameters to where they stay
        self._forward = Forward(config, networks, actions, generator, accelerator)
        self._build_records(device)
        self.phases = Phases(self._sample, self._forward, self._backward, self._finish)

    def _sample(self, replay: WindowSource) -> Drawn:
        return self._forward.sample(replay.draw)

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
            weight * means[f"{name}_loss"] for name, weight in self._config.weights.items()
        )
        return means | self._health.measures() | {"failed_updates": float(self.failures.total)}

    def set_learning_rate(self, rate: float) -> None:
        """Learning rate of both optimisers, from the next update on."""
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
        rates: dict[str, Any] = {"learning_rate": config.learning_rate, "weight_decay": config.weight_decay}
        rates["accelerate"] = self._accelerator.function
        self._value_optimiser = ClippedAdamW(
            [dict(self._networks.value.named_parameters())], **rates, clip_norm=config.clip_norm
        )
        self._policy_optimiser = ClippedAdamW(
            [dict(self._networks.policy.named_parameters())], **rates, clip_norm=None
        )

    def _build_records(self, device: torch.device) -> None:
        config = self._config
        losses_and_norms = [f"{name}_loss" for name in self._weights]
        losses_and_norms += ["value_gradient_norm", "policy_gradient_norm"]
        self._tally = Tally([*losses_and_norms, *actor_critic.JUDGED], device)
        sequences = config.batch_size if config.sequence_horizon else 0
        self.failures = FailureWatch(
            losses_and_norms, {"value": config.batch_size, "sequence": sequences}, device
        )
        sizes = {"h": config.sizes.latent, "z": config.sizes.representation}
        self._health = Health(sizes, config.batch_size, device)
