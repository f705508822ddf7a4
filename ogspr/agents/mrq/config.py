"""Every number of the method. What a field is left at is what the paper says, for all suites alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ogspr.errors import require_middle, require_not_negative, require_positive, require_share


def run_settings(task: str) -> dict[str, Any]:
    """What belongs to a run and not to the agent: the size of rewards is learned, not only their sign."""
    return {"env": {"sign_rewards": False}} if task.startswith("atari:") else {}


@dataclass(frozen=True)
class Sizes:
    """Widths of the networks."""

    encoder_channels: int = 32
    """Channels of each convolution of the encoder."""
    latent: int = 512
    """Size of the latent state h, the encoder's output."""
    action_embedding: int = 256
    """Units that an action is embedded in."""
    state_action_hidden: int = 512
    """Hidden units of the state-action encoder g."""
    representation: int = 512
    """Size of the state-action representation z."""
    value_hidden: int = 512
    """Hidden units of each value."""
    policy_hidden: int = 512
    """Hidden units of the policy."""


@dataclass(frozen=True)
class MRQConfig:
    """The method on any suite; variants are made by `dataclasses.replace`."""

    sizes: Sizes = Sizes()
    """Widths of the networks."""

    horizon: int = 5
    """Steps for which the world model is unrolled."""
    dynamics_weight: float = 1.0
    """Weight of the loss of predicted latent states."""
    reward_weight: float = 0.1
    """Weight of the loss of predicted rewards."""
    done_weight: float = 0.1
    """Weight of the loss of predicted terminals, once one has been seen."""
    reward_bins: int = 65
    """Bins of the two-hot encoding of rewards."""
    reward_limit: float = 10.0
    """The largest reward that can be represented is symexp of this: 22 025."""

    n_step: int = 3
    """Steps of reward in the value target."""
    discount: float = 0.99
    """Gamma, per agent step."""
    target_noise: float = 0.2
    """Standard deviation of the noise on target actions."""
    target_noise_limit: float = 0.3
    """Bound at which that noise is clipped."""
    target_period: int = 250
    """Updates between two copies to the target networks; each copy is followed by as many encoder updates."""

    priority_exponent: float = 0.4
    """LAP: exponent of the error in sampling."""
    minimum_priority: float = 1.0
    """LAP: smaller errors count as this value."""

    batch_size: int = 256
    """Windows in a batch, for both kinds of update."""
    encoder_learning_rate: float = 1e-4
    """Learning rate of the encoders and the world model."""
    learning_rate: float = 3e-4
    """Learning rate of values and policy."""
    weight_decay: float = 1e-4
    """Weight decay of all optimisers."""
    clip_norm: float = 20.0
    """Largest norm of the gradient of the values."""
    pre_activation_weight: float = 1e-5
    """Weight of the policy's mean square pre-activation."""
    shift_pad: int = 4
    """Largest random shift of images, in pixels."""
    pixel_range: tuple[float, float] = (-0.5, 0.5)
    """Values that the bytes 0 and 255 are mapped to."""

    random_steps: int = 10_000
    """Agent steps with uniform random actions, and without updates, at the start."""
    updates_per_step: int = 1
    """Updates of values and policy after each later agent step."""
    exploration_noise: float = 0.2
    """Standard deviation of the noise on actions in training."""
    gumbel_temperature: float = 10.0
    """Discrete actions: tau of the Gumbel-Softmax."""
    discrete_noise_scale: float = 0.5
    """Factor on all action noise where actions are discrete."""

    tolerated_failures: int = 10
    """Consecutive updates that may be skipped because a number was non-finite; then the run stops."""

    def __post_init__(self) -> None:
        require_share(discount=self.discount)
        require_not_negative(
            learning_rate=self.learning_rate, encoder_learning_rate=self.encoder_learning_rate
        )
        require_middle(reward_bins=self.reward_bins)
        require_positive(
            horizon=self.horizon,
            n_step=self.n_step,
            batch_size=self.batch_size,
            target_period=self.target_period,
            updates_per_step=self.updates_per_step,
            tolerated_failures=self.tolerated_failures,
        )

    @property
    def longest_horizon(self) -> int:
        """Steps in the longest window that is drawn from replay."""
        return max(self.n_step, self.horizon)
