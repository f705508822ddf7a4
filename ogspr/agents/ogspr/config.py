"""Every number of the method. Defaults are those for DeepMind Control.

They come from the paper, and where it is silent or its authors' public code does something else, from that
code (github.com/sumwailiu/OG-SPR, read for facts): those fields say "code".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ogspr.agents.ogspr.adapters import TWO, Adapters
from ogspr.agents.ogspr.tasks import AuxiliaryTask, ObservationPrediction, SelfPrediction, ShortTermValue
from ogspr.errors import UserError, require_not_negative, require_positive, require_share
from ogspr.ops.reduction import Reduction

VALUE = "value"  # the name of the long-term loss among those of the auxiliary tasks
POLICY = "policy"  # and of the actor's
PIXEL_RANGE = (-0.5, 0.5)  # what bytes 0 and 255 become


@dataclass(frozen=True)
class Sizes:
    """Widths of the networks."""

    encoder_channels: int = 32
    """Channels of each convolution of the encoder."""
    features: int = 512
    """Outputs of the encoder f."""
    latent: int = 512
    """Size of the latent state h."""
    representation: int = 512
    """Size of the state-action representation z."""
    state_action_hidden: int = 580
    """Hidden units of the state-action encoder g."""
    value_hidden: int = 512
    """Hidden units of each long-term value, and of the short-term value."""
    policy_hidden: int = 512
    """Hidden units of the policy."""
    decoder_inputs: int = 128
    """Code: outputs of the decoder's linear layer, a picture of one pixel."""
    decoder_channels: tuple[int, int, int] = (64, 64, 32)
    """Code: channels after each of the decoder's convolutions but the last."""


@dataclass(frozen=True)
class OGSPRConfig:
    """One variant of the method on one suite; variants are made by `dataclasses.replace`."""

    observation: ObservationPrediction | None = ObservationPrediction()
    """Auxiliary task: predict the next frame."""
    short_term_value: ShortTermValue | None = ShortTermValue()
    """Auxiliary task: predict the short-term return."""
    self_prediction: SelfPrediction | None = SelfPrediction()
    """Auxiliary task: predict the next latent states."""
    adapters: Adapters = TWO
    """Which adapters surround the latent state."""
    sizes: Sizes = Sizes()
    """Widths of the networks."""

    auxiliary_input: Literal["features", "latent"] = "features"
    """Code: decoder and short-term value see g(f(s), a), without Adapter 1. latent, as in the paper: they see
    g(h, a), as the values do."""
    value_reduction: Reduction = "mean"
    """Code: the loss of the two values is their mean. sum, as in equation 4: their sum."""

    n_step: int = 3
    """Steps of reward in the value target."""
    discount: float = 0.99
    """Gamma, per agent step."""
    target_noise: float = 0.2
    """Standard deviation of the noise on target actions."""
    target_noise_limit: float = 0.3
    """Where that noise is clipped."""
    target_period: int = 250
    """Updates between two copies to the target networks."""

    priority_exponent: float = 0.4
    """LAP: how much the error counts in sampling. 0: replay is uniform (code: on Atari; paper: LAP)."""
    minimum_priority: float = 1.0
    """LAP: errors below this count as this."""

    batch_size: int = 256
    """Windows in each of the two batches."""
    learning_rate: float = 3e-4
    """Learning rate of both optimisers."""
    weight_decay: float = 1e-4
    """Weight decay of both optimisers."""
    clip_norm: float = 20.0
    """Largest norm of the gradient; code: one norm over the whole value network."""
    pre_activation_weight: float = 1e-5
    """Weight of the policy's mean square pre-activation."""
    shift_pad: int = 4
    """Pixels by which pictures are shifted at most."""

    random_steps: int = 10_000
    """Agent steps with uniform random actions, and without updates, at the start."""
    updates_per_step: int = 1
    """Updates after each later agent step."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions in training."""
    gumbel_temperature: float = 10.0
    """Discrete actions: tau of the Gumbel-Softmax."""
    sampled_evaluation: bool = False
    """Discrete actions: evaluation draws them through the Gumbel-Softmax, too (code: on Atari)."""

    tolerated_failures: int = 10
    """Updates in a row that may be left out because a number was not finite; with so many the run stops."""

    def __post_init__(self) -> None:
        require_share(discount=self.discount)
        require_not_negative(learning_rate=self.learning_rate, priority_exponent=self.priority_exponent)
        if self.needs_features and self.sizes.features != self.sizes.latent:
            raise UserError(
                f"with auxiliary input features, features and latent must be of one size, got "
                f"{self.sizes.features} and {self.sizes.latent}; g reads both."
            )
        require_positive(
            n_step=self.n_step,
            batch_size=self.batch_size,
            target_period=self.target_period,
            updates_per_step=self.updates_per_step,
            tolerated_failures=self.tolerated_failures,
        )

    @property
    def tasks(self) -> tuple[AuxiliaryTask, ...]:
        """The auxiliary tasks of this variant."""
        possible = (self.observation, self.short_term_value, self.self_prediction)
        return tuple(task for task in possible if task is not None)

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the losses that train the value network, by name."""
        return {VALUE: 1.0} | {task.name: task.weight for task in self.tasks}

    @property
    def needs_features(self) -> bool:
        """Whether a head sees another z than the values do."""
        heads = self.observation is not None or self.short_term_value is not None
        return heads and self.adapters.first_exists and self.auxiliary_input == "features"

    @property
    def sequence_horizon(self) -> int:
        """Steps in the sequences that auxiliary tasks ask for; 0: none does."""
        return max((task.horizon for task in self.tasks), default=0)

    @property
    def longest_horizon(self) -> int:
        """Steps in the longest window that is drawn from replay."""
        return max(self.n_step, self.sequence_horizon)
