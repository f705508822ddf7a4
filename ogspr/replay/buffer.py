"""The replay: a ring of steps on the learner's device.

    slot        i      i+1    i+2     ...
    frame      o_t    o_t+1  o_t+2            every frame once; the observation s_t is frames i-S+1 .. i
    numbers    a_t    a_t+1   ...             action, reward, terminal flag of the step that leaves o_t
    age         t      t+1    ...             steps since the episode began: how far back a stack may reach
    reach       m                             steps after t that may be used: windows up to m start here

Reach is what makes a slot a valid start. It grows as the outcomes come in, stops at a truncation, and
jumps to the longest horizon at a terminal, after which nothing counts. Overwriting a frame takes it back
from every slot whose stack the frame belonged to.

A lost life is a terminal whose episode goes on: what comes after it are starts like any other, and their
stacks reach back over it.

Bookkeeping is done on the host, where it is cheap; what changed travels in one packet per step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.ops.returns import survival
from ogspr.ops.sampling import draw_proportional
from ogspr.replay.frames import allocate_frames
from ogspr.replay.packet import Packet, PacketLayout, PacketQueue, Procedure
from ogspr.replay.prefetch import Prefetcher
from ogspr.replay.shape import ReplayShape
from ogspr.types import Place, TimeStep, Window

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
        device: torch.device,
        accelerate: Callable[[Wrapped], Wrapped] = unwrapped,
        place: Place = "device",
        record: Callable[[Procedure], Procedure] = unrecorded,
    ) -> None:
        self.shape = shape
        self.device = device
        capacity = shape.capacity
        self.frames = allocate_frames(shape, device, place)
        self.numbers = torch.zeros(capacity, shape.numbers_a_step, device=device)
        self.age = torch.zeros(capacity, dtype=torch.int32, device=device)
        self.reach = torch.zeros(capacity, dtype=torch.int32, device=device)
        self.priority = torch.zeros(capacity, device=device)
        self.largest_priority = torch.ones((), device=device)
        self._age: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self._reach: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self._starts = np.zeros(shape.longest_horizon + 1, np.int64)  # valid starts for each horizon
        self._written = 0  # observations stored so far; number n lies in slot n % capacity
        self._open = False  # an episode is being recorded
        self._packets = PacketQueue(PacketLayout.of(shape), device, self._store, record)
        self._draw_window = accelerate(draw_window)
        self._prefetcher = Prefetcher(self._draw, device) if place == "pinned" else None

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
            # The simulator failed: nobody saw what the action led to, so nothing is learned from it.
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

    def valid_starts(self, horizon: int) -> int:
        """How many windows of `horizon` steps can be drawn."""
        return int(self._starts[horizon])

    def draw(self, wanted: Sequence[tuple[int, Tensor]]) -> list[Window]:
        """B windows by priority for each (horizon, (B,) float64 numbers in [0, 1))."""
        return self._prefetcher.next(wanted) if self._prefetcher else self._draw(wanted)

    def peek(self, wanted: Sequence[tuple[int, Tensor]]) -> list[Window]:
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
        if self._prefetcher:
            self._prefetcher.load_state_dict(state["prefetched"])

    def _slots(self, first: int, end: int) -> Tensor:
        return torch.arange(first, end, device=self.numbers.device) % self.shape.capacity

    def _draw(self, wanted: Sequence[tuple[int, Tensor]]) -> list[Window]:
        return self._windows(self._draw_window, wanted)

    def _windows(self, draw: Wrapped, wanted: Sequence[tuple[int, Tensor]]) -> list[Window]:
        stored = (self.frames, self.numbers, self.age, self.reach, self.priority)
        return [
            Window(*draw(stored, horizon, self.shape.frame_stack, uniforms)) for horizon, uniforms in wanted
        ]

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
        self._packets.send(slot, int(self._age[slot]), frame, written, numbers, changes)

    def _store(self, packet: Packet) -> None:
        self.frames.index_copy_(0, packet.slot, packet.frame[None])
        self.numbers.index_copy_(0, packet.written, packet.numbers[None])
        self.age.index_copy_(0, packet.slot, packet.age)
        self.reach.index_copy_(0, packet.changed, packet.reach)
        self.priority.index_copy_(0, packet.written, self.largest_priority[None])


def draw_window(
    stored: tuple[Tensor, ...], horizon: int, frame_stack: int, uniforms: Tensor
) -> tuple[Tensor, ...]:
    """The fields of a Window, starts drawn in proportion to priority among those that reach far enough."""
    frames, _, _, reach, priority = stored
    starts = draw_proportional(torch.where(reach >= horizon, priority, 0.0), uniforms)
    return starts, frames, *window_at(stored, starts, horizon, frame_stack)


def window_at(
    stored: tuple[Tensor, ...], starts: Tensor, horizon: int, frame_stack: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, actions, rewards and survival of the windows that begin at `starts`."""
    frames, numbers, age, _, _ = stored
    capacity = frames.shape[0]
    # Before its first frame an episode repeats it: offsets are cut off at minus the age.
    offsets = torch.arange(1 - frame_stack, horizon + 1, device=starts.device)
    offsets = torch.maximum(offsets, -age[starts].long()[:, None])
    rows = (starts[:, None] + offsets) % capacity
    ahead = (starts[:, None] + torch.arange(horizon, device=starts.device)) % capacity
    steps = numbers[ahead]
    return rows, steps[:, :, :-2], steps[:, :, -2], survival(steps[:, :, -1])
