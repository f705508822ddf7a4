"""One update of the encoders and the model of the world, phase by phase."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ogspr.agents.failures import FailureWatch, any_not_finite
from ogspr.agents.mrq import losses
from ogspr.agents.mrq.config import MRQConfig
from ogspr.agents.mrq.networks import Networks, Prediction
from ogspr.agents.mrq.noise import EncoderNoise, arrange_encoder_noise, draw_uniforms, encoder_uniforms
from ogspr.agents.optimisation import ClippedAdamW, joint_gradients
from ogspr.agents.phases import Phases
from ogspr.agents.protocol import Accelerator, WindowSource
from ogspr.agents.tally import Tally
from ogspr.types import Window


class Drawn(NamedTuple):
    """The batch of an update, and its noise."""

    window: Window
    noise: EncoderNoise


class Computed(NamedTuple):
    """What the forward pass leaves for the rest.

    All that branches were given is in here: it has to outlive the backward pass.
    """

    drawn: Drawn
    h: Tensor
    h_target: Tensor
    predicted: Prediction
    terms: dict[str, Tensor]  # every loss by name
    weights: dict[str, Tensor]  # of each in the sum
    seen: Tensor  # whether a terminal was seen, with this batch


class Learned(NamedTuple):
    """What there is at the end of the backward pass."""

    computed: Computed
    gradient: list[Tensor]  # one vector
    norm: Tensor


class EncoderUpdate:
    """Learns f, g and m from sequences; values and policy are not touched, nor priorities.

    Reads and writes tensors that stay where they are; nothing in it waits for the device.

    Args:
        config: The method's numbers.
        networks: What it trains.
        generator: Where all of its randomness comes from, on the device it computes on.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self, config: MRQConfig, networks: Networks, generator: torch.Generator, accelerator: Accelerator
    ) -> None:
        self._config = config
        self._networks = networks
        self._generator = generator
        self._accelerator = accelerator
        self._look = (config.shift_pad, config.pixel_range)
        device = generator.device
        weights = {
            "dynamics": config.dynamics_weight,
            "reward": config.reward_weight,
            "done": config.done_weight,
        }
        self._weights = {name: torch.tensor(weight, device=device) for name, weight in weights.items()}
        self._terminal_seen = torch.zeros((), device=device)
        self._optimiser = ClippedAdamW(
            [self._parameters()],
            learning_rate=config.encoder_learning_rate,
            weight_decay=config.weight_decay,
            clip_norm=None,
            accelerate=accelerator.function,
        )
        names = [*(f"{name}_loss" for name in weights), "encoder_loss", "encoder_gradient_norm"]
        self._tally = Tally(names, device)
        self.failures = FailureWatch(names, {"sequence": config.batch_size}, device)
        self.phases = Phases(self._sample, self._forward, self._backward, self._finish)
        self._build_functions()

    def means(self) -> dict[str, float]:
        """Of losses and gradient norm since the last call; NaN where there was no update."""
        return self._tally.flush()

    def set_learning_rate(self, rate: float) -> None:
        """From the next update on."""
        self._optimiser.learning_rate.fill_(rate)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """What has to be saved, by part and name."""
        return {
            "encoder_optimiser": self._optimiser.state_dict(),
            "encoder_tally": self._tally.state_dict(),
            "encoder_failures": self.failures.state_dict(),
            "encoder_memory": {"terminal_seen": self._terminal_seen},
        }

    def _parameters(self) -> dict[str, nn.Parameter]:
        core, model = self._networks.core, self._networks.model
        parts = {"encoder": core.encoder, "state_action": core.state_action, "model": model}
        return {
            f"{part}.{name}": parameter
            for part, module in parts.items()
            for name, parameter in module.named_parameters()
        }

    def _build_functions(self) -> None:
        fast = self._accelerator.function
        self._arrange = fast(arrange_encoder_noise)
        self._latents = fast(losses.latents)
        self._unrolled = fast(losses.unrolled)
        self._model_losses = fast(losses.model_losses)
        self._see_terminal = fast(losses.terminal_seen)
        self._any_not_finite = fast(any_not_finite)

    # --- the phases -----------------------------------------------------------------------------

    def _sample(self, replay: WindowSource) -> Drawn:
        batch, horizon = self._config.batch_size, self._config.horizon
        uniforms = draw_uniforms(encoder_uniforms(batch, horizon), self._generator)
        noise: EncoderNoise = self._arrange(uniforms, batch, self._config.shift_pad)
        (window,) = replay.draw([(horizon, noise.places)])
        return Drawn(window, noise)

    def _forward(self, drawn: Drawn) -> Computed:
        window, noise = drawn
        nets = self._networks

        def target() -> Tensor:
            steps = range(1, window.horizon + 1)
            with torch.no_grad():
                h: Tensor = self._latents(nets.target_core, window, steps, noise.later, self._look)
            return h

        branches: dict[str, Callable[[], Tensor]] = {
            "online": partial(self._latents, nets.core, window, (0,), noise.now, self._look),
            "target": target,
        }
        found = self._accelerator.branches(branches)
        h, h_target = found["online"], found["target"]
        predicted = self._unrolled(nets.core.state_action, nets.model, h, window.actions)
        terms = self._model_losses(predicted, h_target, window.rewards, window.alive, nets.model.bins)
        seen = self._see_terminal(self._terminal_seen, window.alive)
        weights = self._weights | {"done": self._weights["done"] * seen}
        return Computed(drawn, h, h_target, predicted, terms, weights, seen)

    def _backward(self, computed: Computed) -> Learned:
        weights = [computed.weights[name] for name in computed.terms]
        ((vector,),) = joint_gradients(list(computed.terms.values()), (self._optimiser,), weights)
        return Learned(computed, [vector], torch.linalg.vector_norm(vector))

    def _finish(self, replay: WindowSource, learned: Learned) -> None:
        """Optimiser and records; neither where a number is not finite."""
        numbers = self._numbers(learned)
        skip = self._any_not_finite(tuple(numbers.values()))
        self._optimiser.step(learned.gradient, [learned.norm], skip)
        self._terminal_seen.copy_(torch.where(skip > 0, self._terminal_seen, learned.computed.seen))
        self.failures.observe(skip, numbers, {"sequence": learned.computed.drawn.window.starts})
        self._tally.add(numbers, skip)
        replay.finish_drawing()

    def _numbers(self, learned: Learned) -> dict[str, Tensor]:
        """Every loss, their sum, and the gradient's norm, by name."""
        terms = {name: term.detach() for name, term in learned.computed.terms.items()}
        total = torch.stack([learned.computed.weights[name] * term for name, term in terms.items()]).sum()
        return {f"{name}_loss": term for name, term in terms.items()} | {
            "encoder_loss": total,
            "encoder_gradient_norm": learned.norm,
        }
