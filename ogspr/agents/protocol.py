"""The contract between methods and everything else.

A method is a value: networks, equations, and a declaration of what its updates draw, train and record. One
driver (`agents/agent.py`) samples, differentiates, clips, skips, updates priorities, records and saves for
all of them. Structural types: nothing inherits from them. docs/add-a-method.md shows how to write
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ogspr.types import Action, BoolArray, Draw, UInt8Array, Window

T = TypeVar("T")
P = ParamSpec("P")
State = dict[str, Any]  # nested dicts of tensors and JSON values
Carry = dict[str, Tensor]
"""What acting remembers from step to step, environment by environment, (N, ...) each; {}: nothing."""
Windows = Mapping[str, Window]
Wanted = Sequence[tuple[Draw, Tensor]]
"""Draws of windows, each with its random numbers in [0, 1), (B,) float64."""


# --- random numbers: a method says what it needs, and a driver draws all of it at once --------------------


class Uniform(NamedTuple):
    """Numbers in [0, 1)."""

    shape: tuple[int, ...]
    double: bool = False  # float64, for drawing from replay


class Normal(NamedTuple):
    """Standard normal numbers."""

    shape: tuple[int, ...]


class Shifts(NamedTuple):
    """Whole offsets 0 .. 2 pad for random shifts, (images, 2): down and right."""

    images: int
    pad: int


Kind: TypeAlias = Uniform | Normal | Shifts
Noise: TypeAlias = tuple[Any, ...]
"""A NamedTuple of the three; in what is drawn, each field is a tensor."""


# --- actions: two kinds, one object each, so that no loss asks which kind it has -------------------------


class ActionKind(Protocol):
    """How a policy's outputs become actions. Vectors have `size` numbers."""

    @property
    def size(self) -> int: ...

    def activate(self, pre_activation: Tensor, uniforms: Tensor) -> Tensor:
        """The differentiable action of a policy: (B, size), random numbers in [0, 1) -> (B, size)."""
        ...

    def mode(self, pre_activation: Tensor) -> Tensor:
        """The action without any noise."""
        ...

    def perturb(self, action: Tensor, noise: Tensor) -> Tensor:
        """A noisy action that the environment could have been given."""
        ...

    def to_environment(self, vectors: npt.NDArray[np.float32]) -> Action: ...

    def to_vector(self, action: Action) -> npt.NDArray[np.float32]: ...


# --- what a method declares ----------------------------------------------------------------------------


class Losses(NamedTuple):
    """What one update computes from its windows and noise."""

    terms: dict[str, Tensor]
    """Every loss by name, 0-d; the gradient is that of their weighted sum."""
    numbers: Mapping[str, Tensor] = {}
    """More for the log, 0-d and detached."""
    features: Mapping[str, Tensor] = {}
    """Representations whose rank and dead units are watched, (B, D) and detached."""
    priorities: Mapping[str, Tensor] = {}
    """New priorities (B,), by the name of the draw."""
    factors: Mapping[str, Tensor] = {}
    """Factors on the weights of some terms that change in training, 0-d."""
    kept: Any = None
    """What `Update.after` needs, and all tensors that parallel branches were given.

    The backward pass reads those on the branches' own streams, while memory that is freed may be used again
    at once on the stream it came from.
    """


class Group(NamedTuple):
    """Parameters with one set of AdamW settings: those of a module, or some by name."""

    parameters: nn.Module | Mapping[str, nn.Parameter]
    learning_rate: float
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    @property
    def named(self) -> Mapping[str, nn.Parameter]:
        """All parameters by name."""
        given = self.parameters
        return dict(given.named_parameters()) if isinstance(given, nn.Module) else given


class Trained(NamedTuple):
    """Groups that one optimiser trains; the norm of all their gradients together is clipped."""

    groups: Sequence[Group]
    clip_norm: float | None = None


@dataclass(frozen=True)
class Update:
    """One kind of update. Everything in it is fixed when the method is built."""

    draws: Mapping[str, Draw]
    """Windows it needs, by name."""
    noise: Noise
    """Random numbers it needs: a NamedTuple of `Uniform`, `Normal` and `Shifts`."""
    losses: Callable[[Windows, Any], Losses]
    """A pure function of windows and noise. Nothing that outlives the update changes in it."""
    trains: Mapping[str, Trained]
    """What it trains, by name."""
    weights: Mapping[str, float]
    """Weight of each term; the names must be those of `Losses.terms`."""
    numbers: Sequence[str] = ()
    """Names of `Losses.numbers`."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Names and sizes of `Losses.features`."""
    total: str | None = None
    """Name under which the weighted sum is logged, if it is."""
    after: Callable[[Losses, Tensor], None] | None = None
    """Changes what an update changes without training it: soft targets, running scales.

    After everything else: the optimisers, the log, priorities. Given the losses and `skip`: a 0-d tensor
    that is 1 where nothing may change.
    """


class Actor(Protocol):
    """The acting half of a method, over separate networks or over those that learn."""

    @property
    def actions(self) -> ActionKind: ...

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """Everything acting needs, by the names used in policy files."""
        ...

    def initial_carry(self, count: int) -> Carry:
        """For `count` environments, on any device; a copy of it is used."""
        ...

    def noise(self, count: int, explore: bool) -> Noise:
        """Random numbers that acting in `count` environments needs.

        A NamedTuple of `Uniform`, not `double`, and `Normal`: they are drawn on the host, in float32.
        """
        ...

    def at_step(self, agent_steps: int) -> None:
        """Called on the host before acting while it learns: sets, in place, what follows a schedule.

        Nobody calls it in evaluation or for a policy from a file, so it can matter only while it explores.
        """
        ...

    def act(
        self, images: Tensor, carry: Carry, first: Tensor, noise: Any, explore: bool
    ) -> tuple[Tensor, Carry]:
        """Images (N, S * C, H, W) uint8, `first` (N,) 1 where an episode begins -> action vectors (N, A).

        Pure: what it remembers is the carry that it returns, with the names and shapes of the one that it
        was given. An episode that began while actions were random begins with the first step that it sees.
        """
        ...


class Method(Protocol):
    """A whole method on one environment. It may also be a `Reporter` or a `Watcher`."""

    @property
    def updates(self) -> Mapping[str, Update]:
        """By kind."""
        ...

    @property
    def actor(self) -> Actor: ...

    @property
    def random_steps(self) -> int:
        """Agent steps with uniformly random actions at the start."""
        ...

    @property
    def learned(self) -> Sequence[nn.Module]:
        """The networks that are trained."""
        ...

    def tensors(self) -> Mapping[str, Mapping[str, Tensor]]:
        """All of its own state by part and name: networks, targets, running scales; not copies."""
        ...

    def updates_due(self, agent_steps: int) -> int:
        """How many updates follow agent step number `agent_steps`; the first is 1."""
        ...

    def schedule(self, updates: int, agent_steps: int, replay: WindowSource) -> Iterable[str]:
        """The kinds that make up update number `updates` (from 0), one after the other.

        It follows agent step number `agent_steps`. Also the place for what happens every n updates,
        such as copying targets. Runs on the host, outside of what is compiled or captured; waits for nothing.
        """
        ...


@runtime_checkable
class Reporter(Protocol):
    """A method with more to log than its updates record."""

    def report(self, means: Mapping[str, float], updates: int) -> dict[str, float]:
        """More metrics for the log after `updates` updates, given the means of everything recorded.

        May wait for the device.
        """
        ...


@runtime_checkable
class Watcher(Protocol):
    """A method that measures how much each loss moves its encoder, with `Influence` for example."""

    def influence(self, replay: WindowSource | None, updates: int) -> dict[str, float]:
        """How much each loss moves the encoder, for the log.

        NaN for each if there is no replay yet. May wait for the device.
        """
        ...


class Representation(Protocol):
    """What a method has learned to see, frozen."""

    @property
    def actions(self) -> ActionKind: ...

    @property
    def modules(self) -> Mapping[str, nn.Module]:
        """By the names used in the method's saved state."""
        ...

    def encode(self, images: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Latent states h (N, D) and state-action representations z (N, Z).

        Of images (N, S * C, H, W) uint8 and action vectors (N, A), without gradients.
        """
        ...


class AgentConfig(Protocol):
    """What the rest of the package may ask a method's configuration for; a frozen dataclass."""

    @property
    def longest_horizon(self) -> int:
        """Steps in the longest window drawn from replay."""
        ...

    @property
    def batch_size(self) -> int:
        """Windows in a batch, as `ogspr doctor --speed` reports it."""
        ...

    @property
    def random_steps(self) -> int:
        """Agent steps with random actions, and without updates, at the start."""
        ...

    @property
    def tolerated_failures(self) -> int:
        """Consecutive updates that may be skipped because a number was non-finite."""
        ...


# --- what it is given ----------------------------------------------------------------------------------


class WindowSource(Protocol):
    """Replay, as an agent sees it."""

    def valid_starts(self, horizon: int, *, across_episodes: bool = False) -> int:
        """How many windows of `horizon` steps can be drawn."""
        ...

    def draw(self, wanted: Wanted) -> list[Window]:
        """One batch of windows for each draw; all share one `frames`."""
        ...

    def peek(self, wanted: Wanted) -> list[Window]:
        """The same for diagnostics: does not change what later updates draw."""
        ...

    def set_priorities(self, starts: Tensor, priorities: Tensor, skip: Tensor) -> None:
        """New priorities of the steps that were drawn; none where `skip` (0-d) is 1."""
        ...

    def finish_drawing(self) -> None:
        """Joins what prefetching does on a separate stream; part of `set_priorities`."""
        ...

    def mean_absolute_reward(self) -> Tensor: ...

    def changed_by_updates(self) -> Sequence[Tensor]:
        """The tensors that drawing and new priorities change."""
        ...


@dataclass(frozen=True)
class Procedure:
    """Tensor code over fixed tensors, with everything that a call changes, so that a call can be undone."""

    run: Callable[[], None]
    changes: Callable[[], Sequence[Tensor]] = tuple
    """The tensors that a call changes and that matter to the next one."""
    generator: torch.Generator | None = None
    """Where its random numbers come from."""


class Step(Protocol):
    """A procedure as an accelerator runs it."""

    def rehearse(self) -> None:
        """Does what makes the first call slow; changes nothing. Optional."""
        ...

    def get_ready(self) -> None:
        """Does all that the first call does and later ones do not; changes nothing. Optional."""
        ...

    def __call__(self) -> None: ...


class Runner(Protocol):
    """How tensor functions are run."""

    def function(self, function: Callable[P, T]) -> Callable[P, T]:
        """A pure tensor function, made fast."""
        ...

    def branches(self, branches: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """Runs functions that do not depend on each other, in parallel where that is possible."""
        ...


class Accelerator(Runner, Protocol):
    """How tensor code is run: plainly, compiled, or as a CUDA graph. Methods do not know which."""

    def step(self, procedure: Procedure) -> Step:
        """A procedure, made fast."""
        ...


# --- what others see of it ------------------------------------------------------------------------------


class Policy(Protocol):
    """Acts without learning."""

    def initial_carry(self, count: int) -> Carry:
        """For `count` environments."""
        ...

    def act(
        self, images: UInt8Array, carry: Carry, first: BoolArray, rng: np.random.Generator
    ) -> tuple[Action, Carry]:
        """Actions as in evaluation, and the next carry, which the caller keeps.

        Args:
            images: (N, S * C, H, W).
            carry: Of the step before, or `initial_carry`.
            first: (N,), true where an episode begins.
            rng: For policies that draw their actions.
        """
        ...


class LearnedPolicy(Policy, Protocol):
    """A policy whose weights can be replaced."""

    def get_ready(self, shape: tuple[int, ...]) -> None:
        """Does what makes the first call of `act` slow, for images of that shape. Optional."""
        ...

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """In place; ValueError if they belong to other networks."""
        ...
