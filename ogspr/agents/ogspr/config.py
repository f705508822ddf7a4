"""Every number of the method. What a field is left at is what the paper says for DMControl."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ogspr.agents.ogspr.adapters import TWO, Adapters
from ogspr.agents.ogspr.tasks import AuxiliaryTask, ObservationPrediction, SelfPrediction, ShortTermValue
from ogspr.errors import require_not_negative, require_positive, require_share

VALUE = "value"  # the name of the long-term loss among those of the auxiliary tasks
POLICY = "policy"  # and of the actor's


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
    decoder_channels: int = 128
    """Channels of the decoder's first feature map."""


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
    """LAP: how much the error counts in sampling."""
    minimum_priority: float = 1.0
    """LAP: errors below this count as this."""

    batch_size: int = 256
    """Windows in each of the two batches."""
    learning_rate: float = 3e-4
    """Of both optimisers."""
    weight_decay: float = 1e-4
    """Of both optimisers."""
    clip_norm: float = 20.0
    """Largest norm of the value network's gradient."""
    clip_scope: Literal["global", "module"] = "global"
    """Open in the paper: the norm over the whole value network, or of each module on its own."""
    pre_activation_weight: float = 1e-5
    """Weight of the policy's mean square pre-activation."""
    shift_pad: int = 4
    """Pixels by which pictures are shifted at most."""
    pixel_range: tuple[float, float] = (-0.5, 0.5)
    """Open in the paper: what bytes 0 and 255 become."""
    reward_scaling: Literal["none", "mean-absolute"] = "none"
    """Open in the paper: values in units of reward, or of the mean absolute reward in replay (as in MR.Q)."""

    random_steps: int = 10_000
    """Agent steps with uniform random actions, and without updates, at the start."""
    updates_per_step: int = 1
    """Updates after each later agent step."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions in training."""
    gumbel_temperature: float = 10.0
    """Discrete actions: tau of the Gumbel-Softmax."""
    discrete_noise_scale: float = 1.0
    """Open in the paper: factor on all action noise where actions are discrete (MR.Q: 0.5)."""

    tolerated_failures: int = 10
    """Updates in a row that may be left out because a number was not finite; with so many the run stops."""

    def __post_init__(self) -> None:
        require_share(discount=self.discount)
        require_not_negative(learning_rate=self.learning_rate)
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
    def sequence_horizon(self) -> int:
        """Steps in the sequences that auxiliary tasks ask for; 0: none does."""
        return max((task.horizon for task in self.tasks), default=0)

    @property
    def longest_horizon(self) -> int:
        """Steps in the longest window that is drawn from replay."""
        return max(self.n_step, self.sequence_horizon)
