"""Every number of the method. What a field is left at is what the paper says for most medium tasks."""

from __future__ import annotations

from dataclasses import dataclass

from ogspr.errors import require_not_negative, require_positive, require_share
from ogspr.ops.exploration import linear_schedule


@dataclass(frozen=True)
class Sizes:
    """Widths of the networks."""

    encoder_channels: int = 32
    """Channels of each convolution of the encoder."""
    features: int = 50
    """Outputs of each of the two trunks."""
    hidden: int = 1024
    """Hidden units of the policy and of each value."""


@dataclass(frozen=True)
class DrQv2Config:
    """The method on one class of tasks."""

    sizes: Sizes = Sizes()
    """Widths of the networks."""

    n_step: int = 3
    """Steps of reward in the value target."""
    discount: float = 0.99
    """Gamma, per agent step."""
    target_rate: float = 0.01
    """How much of the values their target takes over after each update."""

    batch_size: int = 256
    """Windows in a batch."""
    learning_rate: float = 1e-4
    """Of both optimisers."""
    shift_pad: int = 4
    """Pixels by which pictures are shifted at most."""

    random_steps: int = 2_000
    """Agent steps with uniform random actions, and without updates, at the start."""
    steps_per_update: int = 2
    """Agent steps from one update to the next."""
    noise_start: float = 1.0
    """Standard deviation of the noise on actions at agent step 0."""
    noise_end: float = 0.1
    """The same at the end of its schedule, and from there on."""
    noise_steps: int = 500_000
    """Agent steps until the noise has fallen, on a straight line, to its end."""
    update_noise_limit: float = 0.3
    """Where noise is clipped in updates; that of actions which are taken is not."""

    tolerated_failures: int = 10
    """Updates in a row that may be left out because a number was not finite; with so many the run stops."""

    def __post_init__(self) -> None:
        require_share(discount=self.discount, target_rate=self.target_rate)
        require_not_negative(learning_rate=self.learning_rate)
        require_positive(
            n_step=self.n_step,
            batch_size=self.batch_size,
            steps_per_update=self.steps_per_update,
            noise_steps=self.noise_steps,
            tolerated_failures=self.tolerated_failures,
        )

    @property
    def longest_horizon(self) -> int:
        """Steps in the longest window that is drawn from replay."""
        return self.n_step

    def noise_scale(self, agent_steps: int) -> float:
        """Standard deviation of the noise on actions after so many agent steps."""
        return linear_schedule(self.noise_start, self.noise_end, self.noise_steps, agent_steps)
