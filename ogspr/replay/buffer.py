"""The replay: a ring of steps on the learner's device.

    slot        i      i+1    i+2     ...
    frame      o_t    o_t+1  o_t+2            every frame once; the observation s_t is frames i-S+1 .. i
    numbers    a_t    a_t+1   ...             action, reward, terminal flag of the step that leaves o_t
    age         t      t+1    ...             steps since the episode started: how far back a stack may reach
    reach       m                             steps after t that may be used: windows up to m start here

Reach is what makes a slot a valid start. It grows as the outcomes come in, stops at a truncation, and
jumps to the longest horizon at a terminal, after which nothing counts. Overwriting a frame takes it back
from every slot whose stack the frame belonged to.

A lost life is a terminal whose episode continues: what comes after it are starts like any other, and their
stacks reach back over it.

Windows across episodes need none of that: any run of stored slots will do whose first stack is complete, and
an age of 0 marks where an episode begins.

Bookkeeping is done on the host, where it is cheap; what changed travels in one packet per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.device import Device
from ogspr.ops.values import survival
from ogspr.replay.packet import Packet, PacketLayout, PacketQueue, Procedure
from ogspr.replay.prefetch import Prefetcher
from ogspr.replay.storage import ReplayShape, allocate_frames
from ogspr.types import Draw, Place, TimeStep, Window

Wrapped = Callable[..., Any]


def unwrapped(function: Wrapped) -> Wrapped:
    return function


def unrecorded(procedure: Procedure) -> Procedure:
    return procedure


class Replay:
    """Stores steps of one environment and draws windows of them, by priority.

    Args:
        shape: Sizes.
        device: Where the learner computes; everything lives there, but perhaps the frames.
        accelerate: Applied to the tensor functions of drawing: compiles them, or does nothing.
        place: Where the frames lie; `pinned` ones are fetched one update ahead.
        record: Applied to the procedure that stores a step: makes it one CUDA graph, or does nothing.
    """

    def __init__(
        self,
        shape: ReplayShape,
        device: Device,
        accelerate: Callable[[Wrapped], Wrapped] = unwrapped,
        place: Place = "device",
        record: Callable[[Procedure], Procedure] = unrecorded,
    ) -> None:
        self.shape = shape
        capacity, where = shape.capacity, device.torch
        self.frames = allocate_frames(shape, where, place)
        self.numbers = torch.zeros(capacity, shape.numbers_a_step, device=where)
        self.age = torch.zeros(capacity, dtype=torch.int32, device=where)
        self.reach = torch.zeros(capacity, dtype=torch.int32, device=where)
        self.priority = torch.zeros(capacity, device=where)
        self.largest_priority = torch.ones((), device=where)
        self.count = torch.zeros((), dtype=torch.int64, device=where)  # observations stored so far
        self._age: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self._reach: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self._starts = np.zeros(shape.longest_horizon + 1, np.int64)  # valid starts for each horizon
        self._written = 0  # observations stored so far; number n lies in slot n % capacity
        self._open = False  # an episode is being recorded
        self._packets = PacketQueue(PacketLayout.of(shape), device, self._store, record)
        self._draw_window = accelerate(draw_window)
        self._prefetcher = Prefetcher(self._draw, where) if place == "pinned" else None

    def begin(self, first: TimeStep) -> None:
        """The first observation of an episode; a stack repeats its frame, as environments do."""
        self._check(first)
        slot = self._written % self.shape.capacity
        changes = self._take(slot, age=0)
        self._send(slot, first, written=slot, numbers=np.zeros(self.shape.numbers_a_step), changes=changes)
        self._open = True

    def add(self, action: npt.ArrayLike, step: TimeStep) -> None:
        """What `action` (as a vector) led to from the newest observation."""
        if not self._open:
            raise RuntimeError("call begin() with the first observation of the episode before add()")
        if step.fault and step.last:
            # The simulator failed: the outcome of the action is unknown, so nothing is learned from it.
            self._open = False
            return
        vector = np.asarray(action, np.float32)
        if vector.shape != (self.shape.action_size,):
            raise ValueError(f"expected an action vector of {self.shape.action_size}, got {vector.shape}")
        self._check(step)
        left = (self._written - 1) % self.shape.capacity
        slot = self._written % self.shape.capacity
        changes = self._take(slot, age=int(self._age[left]) + 1)
        changes |= self._extend(left, step.terminal)
        numbers = np.concatenate((vector, (step.reward, step.terminal)))
        self._send(slot, step, written=left, numbers=numbers, changes=changes)
        self._open = not step.last

    def valid_starts(self, horizon: int, *, across_episodes: bool = False) -> int:
        """How many windows of `horizon` steps can be drawn."""
        if across_episodes:
            stored = self._written - self.oldest
            return max(0, stored - horizon - self._incomplete_stacks())
        return int(self._starts[horizon])

    def draw(self, wanted: Sequence[tuple[Draw, Tensor]]) -> list[Window]:
        """B windows for each draw and its (B,) float64 numbers in [0, 1)."""
        return self._prefetcher.next(wanted) if self._prefetcher else self._draw(wanted)

    def peek(self, wanted: Sequence[tuple[Draw, Tensor]]) -> list[Window]:
        """Windows as `draw` gives them, without a trace; not compiled for their number."""
        return self._windows(draw_window, wanted)

    def set_priorities(self, starts: Tensor, priorities: Tensor, skip: Tensor) -> None:
        """New priorities of drawn steps, none where `skip` (0-d) is 1; later steps get the largest seen."""
        self.finish_drawing()  # it reads what is about to be written
        priorities = torch.where(skip > 0, self.priority[starts], priorities)
        # A step that was drawn twice keeps the larger one: the same whatever the order of writing.
        self.priority.scatter_reduce_(0, starts, priorities, "amax", include_self=False)
        torch.maximum(self.largest_priority, priorities.max(), out=self.largest_priority)

    def finish_drawing(self) -> None:
        """From here on the current stream runs after what is fetched ahead."""
        if self._prefetcher:
            self._prefetcher.join()

    def mean_absolute_reward(self) -> Tensor:
        """Over the steps that are stored; 0-d, on the device."""
        used = (self.reach > 0).float()
        return (self.numbers[:, -2].abs() * used).sum() / used.sum().clamp(min=1.0)

    def changed_by_updates(self) -> list[Tensor]:
        """The tensors that drawing and new priorities change."""
        prefetched = self._prefetcher.tensors() if self._prefetcher else []
        return [self.priority, self.largest_priority, *prefetched]

    # --- saving and restoring: observations by their number, everything else whole -------------

    @property
    def written(self) -> int:
        """Observations stored so far, also those that were overwritten since."""
        return self._written

    @property
    def oldest(self) -> int:
        """The number of the oldest observation that is still stored."""
        return max(0, self._written - self.shape.capacity)

    def stored(self, first: int, end: int) -> dict[str, Tensor]:
        """Frames of the observations number `first` to `end` - 1, and what was done from there; copies.

        What was done from the observation before is among it: it may have been unknown when that was saved.
        """
        before = max(self.oldest, first - 1)
        frames = self.frames.index_select(0, self._slots(first, end))
        return {"frames": frames, "numbers": self.numbers.index_select(0, self._slots(before, end))}

    def put_back(self, first: int, frames: Tensor, numbers: Tensor) -> None:
        """What `stored` gave, into its slots."""
        end = first + len(frames)
        device = self.numbers.device
        self.frames.index_copy_(0, self._slots(first, end), frames.to(device))
        self.numbers.index_copy_(0, self._slots(end - len(numbers), end), numbers.to(device))

    def state_dict(self) -> dict[str, Any]:
        """All but the frames and numbers: tensors and JSON values."""
        return {
            "capacity": self.shape.capacity,
            "written": self._written,
            "open": self._open,
            "age": torch.from_numpy(self._age.copy()),
            "reach": torch.from_numpy(self._reach.copy()),
            "priority": self.priority,
            "largest_priority": self.largest_priority,
            "prefetched": self._prefetcher.state_dict() if self._prefetcher else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """In place. ValueError where it was saved by a replay of another size, and nothing is changed."""
        if state["capacity"] != self.shape.capacity:
            raise ValueError(
                f"the saved replay has {state['capacity']} slots, this one {self.shape.capacity}"
            )
        self._written, self._open = state["written"], state["open"]
        self._age[:], self._reach[:] = state["age"].numpy(), state["reach"].numpy()
        self._starts[1:] = [(self._reach >= horizon).sum() for horizon in range(1, len(self._starts))]
        for name in ("age", "reach", "priority", "largest_priority"):
            getattr(self, name).copy_(state[name])
        self.count.fill_(self._written)
        if self._prefetcher:
            self._prefetcher.load_state_dict(state["prefetched"])

    def _incomplete_stacks(self) -> int:
        """How many observations are stored without all frames of their stack: some of the oldest."""
        ages = [self._age[(self.oldest + n) % self.shape.capacity] for n in range(self.shape.frame_stack - 1)]
        return sum(int(age) > n for n, age in enumerate(ages))

    def _slots(self, first: int, end: int) -> Tensor:
        return torch.arange(first, end, device=self.numbers.device) % self.shape.capacity

    def _draw(self, wanted: Sequence[tuple[Draw, Tensor]]) -> list[Window]:
        return self._windows(self._draw_window, wanted)

    def _windows(self, run: Wrapped, wanted: Sequence[tuple[Draw, Tensor]]) -> list[Window]:
        frame_stack = self.shape.frame_stack
        stored = Stored(self.frames, self.numbers, self.age, self.reach, self.priority, self.count)
        return [Window(*run(stored, draw, frame_stack, uniforms)) for draw, uniforms in wanted]

    def _check(self, step: TimeStep) -> None:
        """Before anything is noted: a step that does not fit leaves the replay as it was."""
        channels, height, width = self.shape.frame_shape
        expected = (channels * self.shape.frame_stack, height, width)
        picture = step.observation
        if picture.shape != expected or picture.dtype != np.uint8:
            raise ValueError(f"expected bytes {expected}, got {picture.dtype} {picture.shape}")

    def _take(self, slot: int, age: int) -> dict[int, int]:
        """Makes `slot` the newest; slots whose stack loses a frame with it are no starts any more."""
        capacity = self.shape.capacity
        changes = {slot: 0}
        for distance in range(1, self.shape.frame_stack):
            later = (slot + distance) % capacity
            if self._age[later] >= distance:
                changes[later] = 0
        self._written += 1
        self._age[slot] = age
        self._note(changes)
        return changes

    def _extend(self, left: int, terminal: bool) -> dict[int, int]:
        """The step that left `left` has an outcome: earlier steps of its episode reach one further."""
        longest = self.shape.longest_horizon
        behind = min(int(self._age[left]), longest - 1)
        changes = {}
        for distance in range(behind + 1):
            start = (left - distance) % self.shape.capacity
            # A start that lost part of its stack to the ring stays lost.
            if self._reach[start] == distance:
                changes[start] = longest if terminal else distance + 1
        self._note(changes)
        return changes

    def _note(self, changes: dict[int, int]) -> None:
        for slot, reach in changes.items():
            before = int(self._reach[slot])
            if reach > before:
                self._starts[before + 1 : reach + 1] += 1
            elif reach < before:
                self._starts[reach + 1 : before + 1] -= 1
            self._reach[slot] = reach

    def _send(
        self, slot: int, step: TimeStep, written: int, numbers: npt.NDArray[Any], changes: dict[int, int]
    ) -> None:
        frame = step.observation[-self.shape.frame_shape[0] :]
        self._packets.send(slot, int(self._age[slot]), frame, written, self._written, numbers, changes)

    def _store(self, packet: Packet) -> None:
        self.count.copy_(packet.total[0])
        self.frames.index_copy_(0, packet.slot, packet.frame[None])
        self.numbers.index_copy_(0, packet.written, packet.numbers[None])
        self.age.index_copy_(0, packet.slot, packet.age)
        self.reach.index_copy_(0, packet.changed, packet.reach)
        # A step counts as new when its outcome comes in; what an episode ends with waits for none.
        for slot in (packet.slot, packet.written):
            self.priority.index_copy_(0, slot, self.largest_priority[None])


class Stored(NamedTuple):
    """What a replay holds, slot by slot, and how many observations it was given."""

    frames: Tensor
    numbers: Tensor
    age: Tensor
    reach: Tensor
    priority: Tensor
    total: Tensor  # 0-d


def draw_window(
    stored: Stored, draw: Draw, frame_stack: int, uniforms: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The fields of a Window, whose starts are drawn among those that the draw allows."""
    across, horizon = draw.across_episodes, draw.horizon
    allowed = in_a_run(stored, horizon, frame_stack) if across else stored.reach >= horizon
    weights = stored.priority if draw.by_priority else torch.ones_like(stored.priority)
    starts = draw_proportional(torch.where(allowed, weights, 0.0), uniforms)
    found = (run_at if across else window_at)(stored, starts, horizon, frame_stack)
    return starts, stored.frames, *found, stored.priority[starts]


def in_a_run(stored: Stored, horizon: int, frame_stack: int) -> Tensor:
    """Which slots have a whole stack, and `horizon` more that were stored after them: (slots,)."""
    slots = torch.arange(len(stored.age), device=stored.age.device)
    # The slot that comes next holds the oldest observation, so this is how many were stored after each slot.
    later = (stored.total - 1 - slots) % len(slots)
    earlier = stored.total.clamp(max=len(slots)) - 1 - later
    return (later >= horizon) & (earlier >= stored.age.clamp(max=frame_stack - 1))


def window_at(
    stored: Stored, starts: Tensor, horizon: int, frame_stack: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Rows, actions, rewards, survival and first observations of windows within episodes."""
    capacity = stored.frames.shape[0]
    age = stored.age[starts].long()[:, None]
    # Before its first frame an episode repeats it: offsets are cut off at minus the age.
    offsets = torch.arange(1 - frame_stack, horizon + 1, device=starts.device)
    rows = (starts[:, None] + torch.maximum(offsets, -age)) % capacity
    ahead = (starts[:, None] + torch.arange(horizon, device=starts.device)) % capacity
    steps = stored.numbers[ahead]
    first = age + torch.arange(horizon + 1, device=starts.device) == 0
    return rows, steps[:, :, :-2], steps[:, :, -2], survival(steps[:, :, -1]), first


def run_at(
    stored: Stored, starts: Tensor, horizon: int, frame_stack: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The same of windows across episodes. Rows are whole stacks: where an episode begins, none overlap."""
    capacity = len(stored.age)
    slots = (starts[:, None] + torch.arange(horizon + 1, device=starts.device)) % capacity
    age = stored.age[slots].long()
    # Before its first frame an episode repeats it, as in `window_at`.
    offsets = torch.arange(1 - frame_stack, 1, device=starts.device)
    rows = (slots[:, :, None] + torch.maximum(offsets, -age[:, :, None])) % capacity
    first = age == 0
    # No step leads from the last observation of an episode to the first one of the next.
    steps = torch.where(first[:, 1:, None], 0.0, stored.numbers[slots[:, :-1]])
    alive = torch.cat((torch.ones_like(steps[:, :1, -1]), 1.0 - steps[:, :, -1]), 1)
    return rows, steps[:, :, :-2], steps[:, :, -2], alive, first


def draw_proportional(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Indices with probability weight / sum: (N,), (B,) float64 in [0, 1) -> (B,) int64.

    In float64, because half a million priorities of size one leave float32 no digits for the next.
    An index of weight zero is never drawn.
    """
    cumulative = torch.cumsum(weights.double(), 0)
    return torch.searchsorted(cumulative, uniforms * cumulative[-1], right=True)
