"""The one agent: any method at work. It learns from one replay, acts, is saved and restored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.agents.acting import ActBuffers, FrozenPolicy, FrozenRepresentation, initial_carry, named_weights
from ogspr.agents.learning import Learning, check_updates, require_unique
from ogspr.agents.methods import method_of
from ogspr.agents.metrics import FailedUpdate, SkippedUpdates
from ogspr.agents.modules import copy_state, parameter_count
from ogspr.agents.protocol import (
    Accelerator,
    AgentConfig,
    Method,
    Procedure,
    Reporter,
    State,
    Step,
    Watcher,
    WindowSource,
)
from ogspr.device import Device
from ogspr.types import Action, BoolArray, EnvSpec, UInt8Array


class Rngs:
    """An agent's random numbers: one generator per role, so that acting more often does not change learning.

    Args:
        seed: Decides all of them.
        device: Where updates draw theirs.
    """

    def __init__(self, seed: int, device: Device) -> None:
        update_seed, act_seed = np.random.SeedSequence(seed).spawn(2)
        self.learning = torch.Generator(device.torch)
        self.learning.manual_seed(int(update_seed.generate_state(1, np.uint64)[0] >> 1))
        self.acting = np.random.default_rng(act_seed)


class Agent:
    """A method that learns.

    Args:
        config: Decides the method.
        spec: The environment it is made for.
        seed: Decides the initial weights and all random numbers later.
        device: Where it computes.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self, config: AgentConfig, spec: EnvSpec, *, seed: int, device: Device, accelerator: Accelerator
    ) -> None:
        self.config = config
        self.updates = 0
        self._spec = spec.actions
        self._device = device
        self._accelerator = accelerator
        self._rngs = Rngs(seed, device)
        factories = method_of(config).factories()
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            torch.manual_seed(seed)
            self.method: Method = factories.method(config, spec, device.torch, accelerator)
        kinds = self.method.updates
        check_updates(kinds, config.longest_horizon)
        self.learning = {
            kind: Learning(update, f"{kind}_" if len(kinds) > 1 else "", self._rngs.learning, accelerator)
            for kind, update in kinds.items()
        }
        self._carry = initial_carry(self.method.actor, 1, device)
        self._first_untold = False  # an episode began in a random step, and the actor was not asked since
        self._buffers: dict[tuple[tuple[int, ...], bool], ActBuffers] = {}
        self._replay: WindowSource | None = None
        self._steps: dict[str, Step] = {}
        self._refuse_repeated_names()

    @property
    def parameter_count(self) -> int:
        """Of the networks that learn."""
        return parameter_count(*self.method.learned)

    # --- acting ---------------------------------------------------------------------------------

    def act_async(
        self, image: UInt8Array, *, first: bool | BoolArray, agent_steps: int, explore: bool = True
    ) -> Callable[[], Action]:
        """Queues the choice of an action; calling the result waits for it, before the next question.

        Updates may be queued in between: they change nothing about the answer.

        Args:
            image: One observation (C, H, W), or one for each of N environments (N, C, H, W).
            first: Whether an episode begins with it.
            agent_steps: Steps made before this one.
            explore: With exploration noise, and uniformly random during the first steps. What an agent
                remembers while it explores is that of one environment, and is saved. Looks without
                exploration have memories of their own, one for each number of environments, which are not.
        """
        images = image if image.ndim == 4 else image[None]
        one = image.ndim == 3
        if explore and self._carry:
            first = self._told_first(np.broadcast_to(first, len(images)), agent_steps)
        if explore and agent_steps < self.method.random_steps:
            random = np.stack([self._spec.sample(self._rngs.acting) for _ in images])
            return lambda: random[0] if one else random
        actor = self.method.actor
        actor.at_step(agent_steps)
        buffers = self._buffers_for(images.shape, explore)
        result = buffers.ask(images, np.broadcast_to(first, len(images)), self._rngs.acting)

        def answer() -> Action:
            actions = actor.actions.to_environment(result())
            return actions[0] if one else actions

        return answer

    def _told_first(self, first: BoolArray, agent_steps: int) -> BoolArray:
        """Where an episode begins, as an actor with a memory is told: late, if it began in random steps."""
        if len(first) > 1:
            raise ValueError("an agent that remembers earlier steps explores one environment at a time")
        told = first | self._first_untold
        self._first_untold = bool(told) and agent_steps < self.method.random_steps
        return told

    def get_ready_to_act(self, shape: tuple[int, ...]) -> None:
        """Does what makes the first action for an observation (C, H, W) slow; changes nothing. Optional."""
        self._buffers_for((1, *shape), explore=True).get_ready()

    def _buffers_for(self, shape: tuple[int, ...], explore: bool) -> ActBuffers:
        key = (shape, explore)
        if key not in self._buffers:
            actor = self.method.actor
            carry = self._carry if explore else initial_carry(actor, shape[0], self._device)
            self._buffers[key] = ActBuffers(
                actor, shape, carry, explore=explore, accelerator=self._accelerator, device=self._device
            )
        return self._buffers[key]

    def action_vector(self, action: Action) -> npt.NDArray[np.float32]:
        """An action of the environment as replay stores it."""
        return self.method.actor.actions.to_vector(action)

    # --- learning -------------------------------------------------------------------------------

    def updates_due(self, agent_steps: int) -> int:
        """How many updates follow agent step number `agent_steps`; the first is 1."""
        return self.method.updates_due(agent_steps)

    def update(self, replay: WindowSource, agent_steps: int) -> None:
        """One update from `replay`, always the same one, after `agent_steps` steps. Waits for nothing."""
        steps = self._steps_on(replay)
        for kind in self.method.schedule(self.updates, agent_steps, replay):
            steps[kind]()
        self.updates += 1

    def rehearse(self, replay: WindowSource) -> None:
        """Does what makes the first update slow; changes nothing. Optional."""
        for step in self._steps_on(replay).values():
            step.rehearse()

    def get_ready_to_update(self, replay: WindowSource) -> None:
        """Does all that only the first update does; changes nothing. Optional."""
        for step in self._steps_on(replay).values():
            step.get_ready()

    def require_windows(self, replay: WindowSource) -> None:
        """Raises a UserError if replay cannot serve an update yet."""
        for learning in self.learning.values():
            learning.require_windows(replay)

    def phases(self, replay: WindowSource) -> dict[str, Step]:
        """One update of each kind, cut off after each phase, for measuring; only the last one learns."""
        cut_off = [learning.cut_off(replay) for learning in self.learning.values()]

        def all_kinds(phase: str) -> None:
            for kind in cut_off:
                kind[phase]()

        return {
            phase: self._accelerator.step(self._procedure(partial(all_kinds, phase), replay))
            for phase in cut_off[0]
        }

    def metrics(self) -> dict[str, float]:
        """Means since the last call, and the state of representations. Waits for the device."""
        found: dict[str, float] = {}
        for learning in self.learning.values():
            found |= learning.means.flush() | learning.representations.measures()
        if isinstance(self.method, Reporter):
            found |= self.method.report(found, self.updates)
        found["failed_updates"] = float(self.failed_updates)
        if isinstance(self.method, Watcher):
            found |= self.method.influence(self._replay if self.updates else None, self.updates)
        return found

    def _steps_on(self, replay: WindowSource) -> dict[str, Step]:
        """The steps of each kind; refuses a replay without enough windows, and any but the first one."""
        if self._replay is None:
            self._replay = replay
            self._steps = {
                kind: self._accelerator.step(self._procedure(partial(learning, replay), replay))
                for kind, learning in self.learning.items()
            }
        elif self._replay is not replay:
            raise ValueError("an agent learns from one replay; make another agent for another replay")
        self.require_windows(replay)
        return self._steps

    def _procedure(self, run: Callable[[], None], replay: WindowSource) -> Procedure:
        """An update with everything it changes."""

        def changes() -> list[Tensor]:
            ours = [tensor for _, tensor in self._tensors()]
            arrived = [learning.skipped.arrived for learning in self.learning.values()]
            return [*ours, *arrived, *replay.changed_by_updates()]

        return Procedure(run, changes, self._rngs.learning)

    # --- skipped updates ------------------------------------------------------------------------

    @property
    def failed_updates(self) -> int:
        """All updates of any kind skipped because a number was non-finite; on a GPU an update late."""
        return sum(each.total for each in self._skipped)

    def forget_failures(self) -> None:
        """The next failure is the first of a row."""
        for each in self._skipped:
            each.forget_row()

    def last_failure(self) -> FailedUpdate:
        """The last one of each kind of update, as one. Waits for the device."""
        reports = [report for report in (each.report() for each in self._skipped) if report.total]
        return FailedUpdate(
            in_a_row=max((report.in_a_row for report in reports), default=0),
            total=sum(report.total for report in reports),
            numbers={name: value for report in reports for name, value in report.numbers.items()},
            starts={name: places for report in reports for name, places in report.starts.items()},
        )

    @property
    def _skipped(self) -> Sequence[SkippedUpdates]:
        return [learning.skipped for learning in self.learning.values()]

    # --- saving ---------------------------------------------------------------------------------

    def policy_weights(self) -> dict[str, Tensor]:
        """What a policy of the same configuration needs to act as this agent does now; not copies."""
        return named_weights(self.method.actor.modules)

    def state_dict(self) -> State:
        """Everything that decides what comes next, except replay: tensors and JSON values; not copies."""
        return {
            "updates": self.updates,
            "act_rng": self._rngs.acting.bit_generator.state,
            "generator": self._rngs.learning.get_state(),
            "tensors": dict(self._tensors()),
            **({"first_untold": self._first_untold} if self._carry else {}),
        }

    def load_state_dict(self, state: State) -> None:
        """In place, so that captured graphs stay valid. ValueError if it does not fit: nothing is changed."""
        ours = self.state_dict()
        if state.keys() != ours.keys():
            raise ValueError(f"the saved state does not fit: it has {sorted(state)}, expected {sorted(ours)}")
        acting, learning = np.random.default_rng(), torch.Generator(self._rngs.learning.device)
        try:  # on stand-ins: a state that cannot be used is found out before anything is changed
            acting.bit_generator.state = state["act_rng"]
            learning.set_state(state["generator"].cpu())
            updates = int(state["updates"])
        except (AttributeError, KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"the saved state does not fit: {error}") from None
        copy_state(ours["tensors"], state["tensors"])
        self._rngs.acting.bit_generator.state = acting.bit_generator.state
        self._rngs.learning.set_state(learning.get_state())
        self.updates = updates
        self._first_untold = bool(state.get("first_untold"))
        for each in self._skipped:
            each.update_host()

    def _tensors(self) -> list[tuple[str, Tensor]]:
        """Those that decide what comes next, by part and name."""
        learning = [each.tensors() for each in self.learning.values()]
        carry = {"carry": self._carry} if self._carry else {}
        return [
            (f"{part}.{name}", tensor)
            for parts in (self.method.tensors(), *learning, carry)
            for part, tensors in parts.items()
            for name, tensor in tensors.items()
        ]

    def _refuse_repeated_names(self) -> None:
        """A ValueError where one name stands for two things, of which only one would be saved or logged."""
        require_unique("tensors in the saved state", [name for name, _ in self._tensors()])
        numbers = [name for learning in self.learning.values() for name in learning.logged]
        require_unique("numbers in the log", [*numbers, "failed_updates"])


def make_policy(
    config: AgentConfig, spec: EnvSpec, *, device: Device, accelerator: Accelerator
) -> FrozenPolicy:
    """A policy of a configuration, before its weights are loaded."""
    factories = method_of(config).factories()
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
        actor = factories.actor(config, spec, accelerator)
    return FrozenPolicy(actor, accelerator=accelerator, device=device)


def make_representation(
    config: AgentConfig, spec: EnvSpec, tensors: Mapping[str, Tensor], *, device: Device
) -> FrozenRepresentation | None:
    """What a trained agent sees, from the tensors of its state; None if the method has no representation."""
    factories = method_of(config).factories()
    if factories.representation is None:
        return None
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
        representation = factories.representation(config, spec)
    return FrozenRepresentation(representation, tensors, device=device.torch)
