"""How large a replay is, and where it goes."""

import csv
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import ogspr
from ogspr.device import CPU
from ogspr.errors import UserError
from ogspr.replay import Replay, ReplayShape, StoragePlan, plan_storage, storage
from ogspr.replay.storage import Room, choose_place

DMC_FRAME = (3, 84, 84)
DOG_ACTIONS = 38
LARGEST_DMC_STEP = 22_000


def dmc_shape(capacity: int) -> ReplayShape:
    return ReplayShape(capacity, DMC_FRAME, frame_stack=3, action_size=DOG_ACTIONS, longest_horizon=5)


def array_bytes(thing: object) -> int:
    """Bytes of all tensors and arrays an object of this package keeps, wherever it keeps them."""
    if isinstance(thing, torch.Tensor | np.ndarray):
        return thing.nbytes
    if isinstance(thing, list | tuple):
        return sum(array_bytes(part) for part in thing)
    if type(thing).__module__.startswith("ogspr."):
        return sum(array_bytes(part) for part in vars(thing).values())
    return 0


def gpu_rooms(device: int, pinned: int | None = None) -> list[Room]:
    rooms = [Room("device", "GPU memory", device)]
    return rooms if pinned is None else [*rooms, Room("pinned", "main memory", pinned)]


def refusal(shape: ReplayShape, learners: int, rooms: list[Room]) -> str:
    with pytest.raises(UserError) as refused:
        choose_place(shape, learners, rooms)
    return str(refused.value)


def test_a_step_of_dmc_takes_little_more_than_its_frame():
    assert 3 * 84 * 84 < dmc_shape(1000).bytes_a_step <= LARGEST_DMC_STEP


def test_so_it_is_for_every_task_of_the_suite():
    table = Path(ogspr.__file__).parent / "data" / "dmc_tasks.csv"
    with table.open() as file:
        sizes = {row["task"]: int(row["action_size"]) for row in csv.DictReader(file)}
    assert sizes["dog-run"] == DOG_ACTIONS
    assert ReplayShape(1000, DMC_FRAME, 3, max(sizes.values()), 5).bytes_a_step <= LARGEST_DMC_STEP


@pytest.mark.parametrize("frame_shape", [DMC_FRAME, (1, 84, 84), (2, 3, 5)])
@pytest.mark.parametrize("action_size", [1, DOG_ACTIONS])
def test_the_plan_counts_every_byte_that_grows_with_the_capacity(frame_shape, action_size):
    """What a replay twice as large takes more: buffers of constant size cancel."""
    small, large = (ReplayShape(capacity, frame_shape, 3, action_size, 5) for capacity in (50, 100))
    grown = array_bytes(Replay(large, CPU)) - array_bytes(Replay(small, CPU))
    assert grown == large.bytes - small.bytes == 50 * large.bytes_a_step


@pytest.mark.parametrize(
    ("device_room", "pinned_room", "place"),
    [(0, 0, "device"), (-1, 0, "pinned"), (0, -1, "device"), (-(10**12), 10**12, "pinned")],
)
def test_the_device_is_chosen_before_main_memory(device_room, pinned_room, place):
    """Rooms are given as what is left over once the replay is there."""
    shape = dmc_shape(1000)
    rooms = gpu_rooms(shape.bytes + device_room, shape.bytes + pinned_room)
    assert choose_place(shape, 1, rooms) == StoragePlan(place, shape, 1)


def test_several_learners_need_several_times_the_room():
    shape = dmc_shape(1000)
    assert choose_place(shape, 3, gpu_rooms(3 * shape.bytes)).learners == 3
    refusal(shape, 3, gpu_rooms(3 * shape.bytes - 1))


def test_a_refusal_says_what_is_needed_what_is_there_and_what_would_fit():
    shape = dmc_shape(500_000)  # 10.674 GB each
    said = refusal(shape, 2, gpu_rooms(5_000_000_000, 8_120_000_000))
    assert "2 x 500000 steps need 21.35 GB" in said
    assert "GPU memory 5.00 GB" in said
    assert "main memory 8.12 GB" in said
    assert f"at most {8_120_000_000 // (2 * shape.bytes_a_step)} steps" in said
    assert "train fewer seeds at a time" in said
    assert "seeds" not in refusal(shape, 1, gpu_rooms(5_000_000_000))


@pytest.mark.parametrize("learners", [1, 2, 7])
@pytest.mark.parametrize("room", [2_000_000, 33_333_333])
def test_the_number_of_steps_suggested_is_the_most_that_fits(learners, room):
    said = refusal(dmc_shape(10**6), learners, gpu_rooms(room))
    steps = int(said.split("at most ")[1].split()[0])
    fitting = {capacity for capacity in (steps, steps + 1) if learners * dmc_shape(capacity).bytes <= room}
    assert fitting == {steps}


def test_no_room_at_all_is_told_as_none():
    said = refusal(dmc_shape(1000), 1, gpu_rooms(-5, -7))
    assert "GPU memory 0.00 GB, main memory 0.00 GB" in said
    assert "at most 0 steps" in said


def test_the_text_of_a_plan_names_size_and_place():
    shape = dmc_shape(100_000)
    text = str(choose_place(shape, 1, gpu_rooms(shape.bytes)))
    assert text.startswith("replay: 100000 steps")
    assert f"{shape.bytes / 1e9:.2f} GB" in text
    assert "next to the networks" in text
    assert "main memory" in str(choose_place(shape, 1, gpu_rooms(0, shape.bytes)))


def test_the_text_of_a_plan_for_several_learners_names_the_sum():
    shape = dmc_shape(100_000)
    text = str(choose_place(shape, 4, gpu_rooms(10**12)))
    assert "4 x 100000 steps" in text
    assert f"{4 * shape.bytes / 1e9:.2f} GB" in text


def test_a_small_replay_fits_this_machine():
    shape = dmc_shape(1000)
    assert plan_storage(shape, CPU) == StoragePlan("device", shape, 1)
    assert plan_storage(shape, CPU, 2).learners == 2


def test_on_a_cpu_the_replay_leaves_a_reserve_of_main_memory(monkeypatch):
    shape = dmc_shape(1000)
    monkeypatch.setattr(storage, "free_host_bytes", lambda: shape.bytes + storage.HOST_RESERVE_BYTES)
    assert plan_storage(shape, CPU).place == "device"
    monkeypatch.setattr(storage, "free_host_bytes", lambda: shape.bytes + storage.HOST_RESERVE_BYTES - 1)
    with pytest.raises(UserError, match="does not fit"):
        plan_storage(shape, CPU)


def test_what_is_short_on_a_cpu_is_called_main_memory(monkeypatch):
    monkeypatch.setattr(storage, "free_host_bytes", lambda: storage.HOST_RESERVE_BYTES + 5_000_000_000)
    with pytest.raises(UserError, match=r"free: main memory 5\.00 GB; store at most"):
        plan_storage(dmc_shape(10**6), CPU)


def test_a_replay_that_cannot_fit_is_refused_before_anything_is_allocated():
    began = time.perf_counter()
    with pytest.raises(UserError, match=r"1 x 1000000000 steps need 21348\.00 GB"):
        plan_storage(dmc_shape(10**9), CPU)
    assert time.perf_counter() - began < 1.0
