"""Every number of the method. Defaults are those for DeepMind Control.

They come from the paper, and where it is silent or its authors' public code does something else, from that
code (github.com/sumwailiu/OG-SPR, read for facts): those fields say "code".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

from ogspr.errors import (
    UserError,
    require_middle,
    require_not_negative,
    require_positive,
    require_share,
    unknown,
)
from ogspr.types import Reduction

VALUE = "value"  # the name of the long-term loss among those of the auxiliary tasks
POLICY = "policy"  # and of the actor's
PIXEL_RANGE = (-0.5, 0.5)  # what bytes 0 and 255 become


# --- auxiliary tasks: what else is predicted from the representations --------------------------------------


@dataclass(frozen=True)
class ObservationPrediction:
    """Predicts the next frame, without the frames that s_t already contains (eq. 7)."""

    name: ClassVar[str] = "observation"
    horizon: ClassVar[int] = 0

    weight: float = 0.1
    """Weight of its loss, which sums the errors of all pixels (code)."""


@dataclass(frozen=True)
class ShortTermValue:
    """Predicts the return of the next steps (eq. 6)."""

    name: ClassVar[str] = "short_term_value"
    horizon: ClassVar[int] = 0

    weight: float = 1.0
    """Weight of its loss."""
    bins: int = 65
    """Bins of the two-hot encoding."""
    limit: float = 10.0
    """The largest return that can be represented is symexp of this: 22 025."""

    def __post_init__(self) -> None:
        require_middle(short_term_value_bins=self.bins)


@dataclass(frozen=True)
class SelfPrediction:
    """Predicts the next latent states (eq. 8, 9)."""

    name: ClassVar[str] = "self_prediction"

    weight: float = 5.0
    """Weight of its loss: for each step, the mean over latent dimensions (code)."""
    horizon: int = 5
    """Number of steps that are predicted."""


AuxiliaryTask: TypeAlias = ObservationPrediction | ShortTermValue | SelfPrediction


# --- adapters ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Adapters:
    """u1 maps encoder features to latent states, u2 representations back to latent states."""

    first_exists: bool
    """Whether there is an Adapter 1; without it, the encoder's features are the latent state."""
    second_exists: bool
    """Whether there is an Adapter 2 in self-prediction."""
    shared: bool = False
    """Whether both adapters are one module."""


TWO = Adapters(first_exists=True, second_exists=True)
SHARED = Adapters(first_exists=True, second_exists=True, shared=True)
NONE = Adapters(first_exists=False, second_exists=False)
SECOND_ONLY = Adapters(first_exists=False, second_exists=True)


# --- one variant ---------------------------------------------------------------------------------------


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
    """Outputs of the decoder's linear layer, an image of one pixel (code)."""
    decoder_channels: tuple[int, int, int] = (64, 64, 32)
    """Channels after each of the decoder's convolutions but the last (code)."""


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
    """Input of decoder and short-term value. features (authors' code): g(f(s), a), without Adapter 1.
    latent (paper): g(h, a), as for the values."""
    value_reduction: Reduction = "mean"
    """How the losses of the two values are combined. mean (authors' code), or sum (paper, equation 4)."""

    n_step: int = 3
    """Steps of reward in the value target."""
    discount: float = 0.99
    """Gamma, per agent step."""
    target_noise: float = 0.2
    """Standard deviation of the noise on target actions."""
    target_noise_limit: float = 0.3
    """Bound at which that noise is clipped."""
    target_period: int = 250
    """Updates between two copies to the target networks."""

    priority_exponent: float = 0.4
    """LAP: exponent of the error in sampling. 0: replay is uniform (code: on Atari; paper: LAP)."""
    minimum_priority: float = 1.0
    """LAP: smaller errors count as this value."""

    batch_size: int = 256
    """Windows in each of the two batches."""
    learning_rate: float = 3e-4
    """Learning rate of both optimisers."""
    weight_decay: float = 1e-4
    """Weight decay of both optimisers."""
    clip_norm: float = 20.0
    """Largest norm of the gradient, one norm over the whole value network (code)."""
    pre_activation_weight: float = 1e-5
    """Weight of the policy's mean square pre-activation."""
    shift_pad: int = 4
    """Largest random shift of images, in pixels."""

    random_steps: int = 10_000
    """Agent steps with uniform random actions, and without updates, at the start."""
    updates_per_step: int = 1
    """Updates after each later agent step."""
    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions in training."""
    gumbel_temperature: float = 10.0
    """Discrete actions: tau of the Gumbel-Softmax."""
    sampled_evaluation: bool = False
    """Discrete actions: evaluation samples them through the Gumbel-Softmax, too (code: on Atari)."""

    tolerated_failures: int = 10
    """Consecutive updates that may be skipped because a number was non-finite; then the run stops."""

    def __post_init__(self) -> None:
        require_share(discount=self.discount)
        require_not_negative(learning_rate=self.learning_rate, priority_exponent=self.priority_exponent)
        if self.needs_features and self.sizes.features != self.sizes.latent:
            raise UserError(
                f"with auxiliary input features, features and latent must have the same size, got "
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


# --- presets -------------------------------------------------------------------------------------------

_SUITES: dict[str, OGSPRConfig] = {
    "dmc": OGSPRConfig(),
    "atari100k": OGSPRConfig(
        observation=ObservationPrediction(1.0),
        self_prediction=SelfPrediction(2.0),  # as in the paper; the code's default is 5
        priority_exponent=0.0,
        random_steps=2_000,
        updates_per_step=2,
        exploration_noise=0.2,
        sampled_evaluation=True,
    ),
}
# What a variant changes.
_VARIANTS: dict[str, dict[str, Any]] = {
    "ogspr": {},
    # The paper's text, where its authors' code does something else.
    "as-written": {"auxiliary_input": "latent", "value_reduction": "sum", "priority_exponent": 0.4},
    "ogspr-op": {"observation": None},
    "ogspr-sp": {"self_prediction": None},
    "ogspr-svp": {"short_term_value": None},
    "shared-adapter": {"adapters": SHARED},
    "no-adapter": {"adapters": NONE},
    "adapter2-only": {"adapters": SECOND_ONLY},
    "anonmethod": {"self_prediction": None, "adapters": NONE},
}


def preset_names() -> tuple[str, ...]:
    return tuple(_VARIANTS)


def preset(name: str, suite: str = "dmc") -> OGSPRConfig:
    """A variant of the paper as it ran on a suite, dmc or atari100k."""
    if suite not in _SUITES:
        raise unknown("suite", suite, _SUITES)
    if name not in _VARIANTS:
        raise unknown("preset", name, _VARIANTS)
    return replace(_SUITES[suite], **_VARIANTS[name])
