import numpy as np

from ogspr.envs.pixels import PixelEnvironment
from ogspr.envs.worker import InProcess
from ogspr.probe.recording import Stage, record
from tests.probe.worlds import SIZE, Puck


class Spy:
    """Acts by numbers of its own, and remembers what it was shown."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.shown, self.given = [], []

    def initial_carry(self, count):  # noqa: ARG002
        return {}

    def act(self, images, carry, first, rng):  # noqa: ARG002
        actions = self.rng.uniform(-1, 1, (len(images), 2)).astype(np.float32)
        self.shown.append(images)
        self.given.append(actions)
        return actions, carry


def environments(*lengths, **options):
    return [
        InProcess(PixelEnvironment(Puck(seed, length=length, **options)))
        for seed, length in enumerate(lengths)
    ]


def test_a_recording_holds_what_the_policy_saw_and_did():
    spy = Spy()
    recordings = record(spy, environments(5, 7), 2)
    for seat, (recording, length) in enumerate(zip(recordings, (5, 7), strict=True)):
        assert len(recording) == length
        shown = np.stack([pictures[seat] for pictures in spy.shown[:length]])
        assert np.array_equal(recording.observations(0, length), shown)
        assert np.array_equal(recording.observations(2, 4), shown[2:4])
        assert np.array_equal(recording.actions, [actions[seat] for actions in spy.given[:length]])
        assert recording.frames.shape == (length + 2, 3, SIZE, SIZE)  # every frame once
        assert recording.proprioception.shape == (length + 1, 4)


def test_states_stand_beside_the_pictures_they_are_of():
    (recording,) = record(Spy(), environments(9), 1)
    replayed = Puck(0, length=9)
    expected = [replayed.reset(), *(replayed.step(action) for action in recording.actions)]
    assert np.array_equal(recording.proprioception, [step.proprioception for step in expected])
    newest = recording.observations(0, 9)[:, -3:]
    assert np.array_equal(newest, [step.frame for step in expected[:-1]])
    assert recording.score == sum(step.reward for step in expected)


def test_episodes_are_shared_out_in_turn():
    told = []
    recordings = record(Spy(), environments(3, 8), 5, told.append)
    assert [len(recording) for recording in recordings] == [3, 8, 3, 8, 3]
    assert told[-1] == 5
    assert told == sorted(told)


def test_the_step_at_which_a_simulator_failed_is_left_out():
    recordings = record(Spy(), environments(6, faults={1: 4}), 3)
    assert [len(recording) for recording in recordings] == [6, 3, 6]
    failed = recordings[1]
    assert len(failed.proprioception) == 4
    assert not np.array_equal(failed.proprioception[-1], failed.proprioception[-2])


def test_an_episode_that_failed_at_once_is_left_out():
    recordings = record(Spy(), environments(6, faults={0: 1, 2: 1}), 4)
    assert [len(recording) for recording in recordings] == [6, 6]


def same(ours, theirs):
    names = ("frames", "actions", "proprioception")
    return all(np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in names)


def test_every_policy_finds_the_stage_in_the_same_state():
    stage = Stage(environments(4, 6))
    first, second = Spy(), Spy()
    second.rng = np.random.default_rng(1)
    one, other, again = (stage.play(policy, 5) for policy in (first, second, Spy()))
    starts = [[recording.proprioception[0].tolist() for recording in each] for each in (one, other)]
    assert starts[0] == starts[1]
    assert len({tuple(start) for start in starts[0]}) == 5
    assert all(same(*pair) for pair in zip(one, again, strict=True))
    assert not any(same(*pair) for pair in zip(one, other, strict=True))
