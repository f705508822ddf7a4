"""Every number of the method, and the published settings, which depend on the task.

Defaults are the paper's for most medium tasks. The settings by task are from the configuration files of the
authors' repository, facebookresearch/drqv2 (MIT), folder cfgs/task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ogspr.errors import require_not_negative, require_positive, require_share


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
    """Rate of the soft update of the target values, after each update."""

    batch_size: int = 256
    """Windows in a batch."""
    learning_rate: float = 1e-4
    """Learning rate of both optimisers."""
    shift_pad: int = 4
    """Largest random shift of images, in pixels."""

    random_steps: int = 2_000
    """Agent steps with uniform random actions, and without updates, at the start."""
    steps_per_update: int = 2
    """Agent steps from one update to the next."""
    noise_start: float = 1.0
    """Standard deviation of the noise on actions at agent step 0."""
    noise_end: float = 0.1
    """Standard deviation of that noise at the end of its schedule, and afterwards."""
    noise_steps: int = 500_000
    """Agent steps over which the noise decreases linearly to its final value."""
    update_noise_limit: float = 0.3
    """Bound of the noise in updates; the noise on actions that are taken is not clipped."""

    tolerated_failures: int = 10
    """Consecutive updates that may be skipped because a number was non-finite; then the run stops."""

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
        """Standard deviation of the noise on actions after `agent_steps` agent steps."""
        done = min(agent_steps / self.noise_steps, 1.0)
        return self.noise_start + done * (self.noise_end - self.noise_start)


_NAME = "drqv2"

# The classes differ in how long the noise takes to fall.
EASY: dict[str, Any] = {"noise_steps": 100_000}
MEDIUM: dict[str, Any] = {"noise_steps": 500_000}
HARD: dict[str, Any] = {"noise_steps": 2_000_000}

DIFFICULTY: dict[str, dict[str, Any]] = {
    "acrobot-swingup": MEDIUM,
    "ball_in_cup-catch": EASY,
    "cartpole-balance": EASY,
    "cartpole-balance_sparse": EASY,
    "cartpole-swingup": EASY,
    "cartpole-swingup_sparse": MEDIUM,
    "cheetah-run": MEDIUM,
    "finger-spin": EASY,
    "finger-turn_easy": MEDIUM,
    "finger-turn_hard": MEDIUM,
    "hopper-hop": MEDIUM,
    "hopper-stand": EASY,
    "humanoid-run": HARD,
    "humanoid-stand": HARD,
    "humanoid-walk": HARD,
    "pendulum-swingup": EASY,
    "quadruped-run": MEDIUM,
    "quadruped-walk": MEDIUM,
    "reacher-easy": MEDIUM,
    "reacher-hard": MEDIUM,
    "walker-run": MEDIUM,
    "walker-stand": EASY,
    "walker-walk": EASY,
}
# What else is particular to a domain.
_DOMAINS: dict[str, dict[str, Any]] = {
    "humanoid": {"learning_rate": 8e-5, "sizes": Sizes(features=100)},
    "walker": {"n_step": 1, "batch_size": 512},
}
# Steps that replay keeps where it does not keep a million.
_CAPACITIES = {"dmc:quadruped-run": 100_000}


def preset_names() -> tuple[str, ...]:
    return (_NAME,)


def run_settings(task: str) -> dict[str, Any]:
    """What belongs to a run and not to the agent."""
    return {"replay": {"capacity": _CAPACITIES[task]}} if task in _CAPACITIES else {}


def preset(task: str) -> DrQv2Config:
    """The settings for a task, such as `dmc:walker-walk`.

    Tasks that the authors did not train on count as medium, also dog: the noise of hard tasks would still be
    above 0.77 after the 500 000 agent steps that they are trained for here.
    """
    suite, _, name = task.partition(":")
    if suite != "dmc" or name not in DIFFICULTY:
        return DrQv2Config()
    domain, _, _ = name.partition("-")
    return replace(DrQv2Config(), **DIFFICULTY[name], **_DOMAINS.get(domain, {}))
