"""The contract from a method's side: a tiny one with two kinds of updates and a memory, driven like all."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from ogspr.agents.acting import FrozenPolicy
from ogspr.agents.actor_critic import Continuous
from ogspr.agents.agent import make_policy
from ogspr.agents.methods import Factories, MethodEntry, register
from ogspr.agents.protocol import Group, Losses, Normal, Shifts, Trained, Uniform, Update
from ogspr.device import CPU
from ogspr.errors import UserError
from ogspr.training.graph import _undone
from ogspr.types import ContinuousActions, Draw, EnvSpec, TimeStep
from tests.agents.scene import LATE, Recording, filled_replay, images_of, make_agent
from tests.agents.states import differing, snapshot, through_a_file

SPEC = EnvSpec("tiny", (1, 4, 4), 1, ContinuousActions(2), 1, None)
RATES = {"reward": 0.5, "chance": 0.25}


@dataclass(frozen=True)
class TinyConfig:
    batch_size: int = 4
    longest_horizon: int = 3
    random_steps: int = 0
    tolerated_failures: int = 3
    kinds: tuple = (("reward", "reward", "chance"), ("chance",))  # of even and odd updates
    draws: dict = field(default_factory=lambda: {"first": Draw(4, 2), "second": Draw(5, 1)})
    weights: dict = field(default_factory=lambda: {"pull": 2.0})
    numbers: tuple = ("mean",)
    change: Callable = lambda updates: updates  # what is wrong with the updates that it declares


class ChanceNoise(NamedTuple):
    normals: Any


class Weights(nn.Module):
    """A number for each kind of update."""

    def __init__(self):
        super().__init__()
        self.reward, self.chance = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(()))


class Tiny:
    """Each kind of update pulls a number of its own: towards the rewards of a batch, or random numbers."""

    def __init__(self, config, spec, device, runner):  # noqa: ARG002
        self.config = config
        self.random_steps = config.random_steps
        self.network = Weights()
        self.actor = CountingActor()
        self.count = torch.zeros(())  # updates that counted
        self.asked = []  # what the schedule was told, and the first number when it went on
        self.afters = []  # what `after` was told, and the first number then
        self.updates = {
            "reward": self._update("reward", ()),
            "chance": self._update("chance", ChanceNoise(Normal((3,)))),
        }
        self.updates |= config.change(self.updates)

    @property
    def learned(self):
        return (self.network,)

    def tensors(self):
        return {"network": self.network.state_dict(), "memory": {"count": self.count}}

    def updates_due(self, agent_steps):
        return int(agent_steps > self.random_steps)

    def schedule(self, updates, agent_steps, replay):
        for kind in self.config.kinds[updates % 2]:
            yield kind
            self.asked.append((updates, agent_steps, replay, kind, self.network.reward.item()))

    def report(self, means, updates):
        return {"pulled_together": means["reward_pull_loss"] + updates}

    def _update(self, kind, noise):
        parameter = getattr(self.network, kind)

        def losses(windows, noise):
            goal = noise.normals.mean() if noise else windows["first"].rewards.mean()
            priorities = {"second": windows["second"].rewards.abs().sum(1)} if kind == "reward" else {}
            pull = {f"{kind}_pull": (parameter - goal).square()}
            return Losses(pull, {f"{kind}_mean": goal}, {}, priorities, kept=goal)

        return Update(
            draws=self.config.draws,
            noise=noise,
            losses=losses,
            trains={kind: Trained([Group({kind: parameter}, RATES[kind])])},
            weights={f"{kind}_{name}": weight for name, weight in self.config.weights.items()},
            numbers=[f"{kind}_{name}" for name in self.config.numbers],
            total=kind,
            after=self._after,
        )

    def _after(self, found, skip):
        self.afters.append((float(skip), self.network.reward.item(), found.kept))
        self.count += 1.0 - skip


class CountingActor:
    """Counts the steps of the episode: the action is a tenth of it, and noise beside it while it explores."""

    actions = Continuous(2)

    def __init__(self):
        self.modules = {"size": nn.Linear(1, 1, bias=False)}
        self.at_steps = []
        with torch.no_grad():
            self.modules["size"].weight.fill_(0.1)

    def initial_carry(self, count):
        return {"steps": torch.zeros(count, 1)}

    def noise(self, count, explore):
        return ChanceNoise(Normal((count, 1))) if explore else ()

    def at_step(self, agent_steps):
        self.at_steps.append(agent_steps)

    def act(self, images, carry, first, noise, explore):
        assert explore == bool(noise)
        assert first.shape == (len(images),)
        steps = carry["steps"] * (1.0 - first[:, None]) + 1.0
        beside = noise.normals if explore else 0.0 * steps
        return torch.cat((self.modules["size"](steps), beside), 1), {"steps": steps}


@pytest.fixture(autouse=True)
def tiny_is_registered(monkeypatch):
    monkeypatch.setattr("ogspr.agents.methods._registered", {})
    factories = Factories(Tiny, lambda *_: CountingActor())
    register(MethodEntry("tiny", TinyConfig, ("tiny",), lambda *_: TinyConfig(), lambda: factories))


def tiny(seed=0, **changes):
    return make_agent(TinyConfig(**changes), SPEC, seed)


def acted(agent, first, *, images=None, agent_steps=LATE, explore=False):
    """The part of the action that tells how many steps the actor has counted."""
    images = images_of(SPEC) if images is None else images
    actions = agent.act_async(images, first=first, agent_steps=agent_steps, explore=explore)()
    return (actions[..., 0] * 10).round(4).tolist()


# --- the schedule -----------------------------------------------------------------------------------


def test_the_kinds_of_an_update_come_one_after_the_other_as_scheduled():
    agent, replay = tiny(), filled_replay(SPEC)
    for updates in range(4):
        agent.update(replay, 10 + updates)
    told = [entry[:4] for entry in agent.method.asked]
    even, odd = ("reward", "reward", "chance"), ("chance",)
    assert told == [(u, 10 + u, replay, kind) for u in range(4) for kind in (odd if u % 2 else even)]
    seen = [number for *_, number in agent.method.asked]
    assert (
        0.0 != seen[0] != seen[1] == seen[2] == seen[3] != seen[4]
    )  # each is done when the next is asked for
    tensors = agent.state_dict()["tensors"]
    assert [float(tensors[f"{kind}_optimiser.steps.{kind}"]) for kind in RATES] == [4, 4]
    assert agent.updates == 4
    assert agent.failed_updates == 0


def test_kinds_have_optimisers_records_and_priorities_of_their_own():
    agent, replay = tiny(kinds=(("reward",), ("chance",))), filled_replay(SPEC)
    before, priority = snapshot(agent), replay.priority.clone()
    agent.update(replay, 1)
    changed = differing(before, snapshot(agent))
    assert {name.partition(".")[0] for name in changed} == {
        "network",
        "memory",
        "reward_optimiser",
        "reward_tally",
    }
    assert abs(agent.method.network.reward.item()) == pytest.approx(RATES["reward"])  # as far as Adam goes
    moved = replay.priority != priority
    rewards = replay.numbers[:, -2].abs()
    assert 0 < moved.sum() <= 5
    assert torch.equal(replay.priority[moved], rewards[moved])
    before, priority = snapshot(agent), replay.priority.clone()
    agent.update(replay, 2)
    changed = differing(before, snapshot(agent))
    assert {name.partition(".")[0] for name in changed} == {
        "network",
        "memory",
        "chance_optimiser",
        "chance_tally",
    }
    assert abs(agent.method.network.chance.item()) == pytest.approx(RATES["chance"])
    assert torch.equal(replay.priority, priority)


def test_what_all_kinds_record_is_one_log():
    agent, replay = tiny(kinds=(("reward",), ("chance",))), filled_replay(SPEC)
    agent.update(replay, 1)
    metrics = agent.metrics()
    each = ("pull_loss", "mean", "loss", "gradient_norm")
    assert metrics.keys() == {
        *(f"{kind}_{name}" for kind in RATES for name in each),
        *("pulled_together", "failed_updates"),
    }
    assert np.isfinite([metrics["reward_loss"], metrics["reward_gradient_norm"]]).all()
    assert np.isnan([metrics["chance_loss"], metrics["chance_gradient_norm"]]).all()
    goal = float(agent.method.afters[0][2])
    assert metrics["reward_loss"] == pytest.approx(2 * goal**2)  # the weighted sum
    assert metrics["reward_gradient_norm"] == pytest.approx(abs(4 * goal))


def test_failures_of_all_kinds_are_one_count():
    agent, replay = tiny(), filled_replay(SPEC)
    replay.numbers[:, -2] = float("nan")
    agent.update(replay, 1)  # two fail, and one of the other kind does not
    assert (agent.last_failure().in_a_row, agent.failed_updates) == (2, 2)
    failure = agent.last_failure()
    assert {"reward_loss", "reward_pull_loss"} <= failure.numbers.keys()
    assert "chance_loss" not in failure.numbers
    assert [len(failure.starts[name]) for name in ("first", "second")] == [4, 5]
    agent.forget_failures()
    assert (agent.last_failure().in_a_row, agent.failed_updates) == (0, 2)


# --- what an update declares ------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [{"pull": 1.0, "push": 1.0}, {"push": 1.0}, {}])
def test_weights_are_those_of_the_terms(weights):
    agent, replay = tiny(weights=weights), filled_replay(SPEC)
    before = snapshot(agent)
    with pytest.raises(ValueError, match=r"expected losses \[.*\], got \['reward_pull'\]"):
        agent.update(replay, 1)
    assert not differing(before, snapshot(agent))


@pytest.mark.parametrize("numbers", [(), ("mean", "median")])
def test_numbers_are_those_that_were_declared(numbers):
    with pytest.raises(ValueError, match="expected numbers"):
        tiny(numbers=numbers).update(filled_replay(SPEC), 1)


def test_factors_are_those_of_terms():
    def misspelt(updates):
        losses = updates["reward"].losses
        wrong = lambda *given: losses(*given)._replace(factors={"reward_pul": torch.ones(())})  # noqa: E731
        return {"reward": replace(updates["reward"], losses=wrong)}

    with pytest.raises(ValueError, match=r"factors for \['reward_pul'\]"):
        tiny(change=misspelt).update(filled_replay(SPEC), 1)


def changed(kind, **changes):
    """What makes one kind of update another one; values are functions of all updates as they were."""
    return lambda updates: {kind: replace(updates[kind], **{n: f(updates) for n, f in changes.items()})}


def trained(*parameters):
    return Trained([Group({f"p{i}": parameter}, 0.1) for i, parameter in enumerate(parameters)])


def parameter_of(updates, kind):
    return updates[kind].trains[kind].groups[0].named[kind]


TWICE = {
    "by two kinds": lambda updates: {"chance": trained(parameter_of(updates, "reward"))},
    "by two optimisers": lambda updates: {
        name: trained(parameter_of(updates, "chance")) for name in ("one", "two")
    },
    "in two groups": lambda updates: {"chance": trained(*[parameter_of(updates, "chance")] * 2)},
}


@pytest.mark.parametrize("trains", TWICE.values(), ids=TWICE)
def test_nothing_is_trained_twice(trains):
    with pytest.raises(ValueError, match=r"trained twice: .* in '(reward|chance)', and p. of .* in 'chance'"):
        tiny(change=changed("chance", trains=trains))


def optimiser_named(name):
    return lambda updates: {name: updates["chance"].trains["chance"]}


@pytest.mark.parametrize(
    ("changes", "repeated"),
    [
        ({"trains": optimiser_named("reward")}, "reward_gradient_norm"),
        ({"trains": optimiser_named("hidden")}, "hidden_optimiser.steps.chance"),  # as the method has one
        ({"weights": lambda _: {"reward_pull": 1.0}}, "reward_pull_loss"),
        ({"numbers": lambda _: ["reward_mean"]}, "reward_mean"),
        ({"numbers": lambda _: ["failed_updates"]}, "failed_updates"),
        ({"numbers": lambda _: ["chance_gradient_norm"]}, "chance_gradient_norm"),
        ({"total": lambda _: "chance_pull"}, "chance_pull_loss"),
        ({"features": lambda _: {"x": 2}, "numbers": lambda _: ["x_dead_share"]}, "x_dead_share"),
    ],
)
def test_a_name_stands_for_one_thing(changes, repeated, monkeypatch):
    known = Tiny.tensors
    monkeypatch.setattr(
        Tiny, "tensors", lambda self: known(self) | {"hidden_optimiser": {"steps.chance": self.count}}
    )
    with pytest.raises(ValueError, match=f"occur twice: {repeated};"):
        tiny(change=changed("chance", **changes))


def test_each_kind_of_update_may_have_features():
    def watching(*names):
        return lambda updates: {
            kind: replace(update, features={name: 2})
            for (kind, update), name in zip(updates.items(), names, strict=True)
        }

    tensors = tiny(change=watching("x", "y")).state_dict()["tensors"]
    assert {"features.x", "features.y"} <= tensors.keys()
    with pytest.raises(ValueError, match=r"occur twice: features.x;"):
        tiny(change=watching("x", "x"))


@pytest.mark.parametrize("across_episodes", [False, True])
def test_windows_are_no_longer_than_replay_is_made_for(across_episodes):
    draws = {"first": Draw(4, 2), "second": Draw(5, 4, across_episodes=across_episodes)}
    with pytest.raises(UserError, match=r"'second' of 4 steps, and the longest horizon .* is 3"):
        tiny(draws=draws)
    tiny(draws=draws, longest_horizon=4)


def test_what_follows_the_optimisers_is_told_whether_the_update_counts():
    agent, replay = tiny(kinds=(("reward",), ("reward",))), filled_replay(SPEC)
    rewards = replay.numbers[:, -2].clone()
    for poison in (False, True, False):
        replay.numbers[:, -2] = float("nan") if poison else rewards
        agent.update(replay, 1)
    skips, seen, kept = zip(*agent.method.afters, strict=True)
    assert skips == (0.0, 1.0, 0.0)
    assert abs(seen[0]) == pytest.approx(RATES["reward"])  # after the optimiser
    assert seen[0] == seen[1] != seen[2]
    assert [bool(goal.isnan()) for goal in kept] == [False, True, False]  # what the losses kept for it
    assert agent.method.count == 2


def test_what_is_logged_is_not_changed_while_it_is_read():
    """`after` moves a tensor that is logged: the log has it as the losses saw it."""
    agent = tiny(kinds=(("reward",),) * 2, change=lambda updates: {"reward": logging_the_count(updates)})
    replay = filled_replay(SPEC)
    for _ in range(3):
        agent.update(replay, 1)
    assert agent.metrics()["count"] == 1  # the mean of 0, 1 and 2
    assert agent.method.count == 3


def logging_the_count(updates):
    update = updates["reward"]
    method = update.after.__self__

    def losses(windows, noise):
        found = update.losses(windows, noise)
        return found._replace(numbers={**found.numbers, "count": method.count})

    return replace(update, losses=losses, numbers=[*update.numbers, "count"])


def short_episodes(count):
    """A replay of so many episodes of one step, all of them truncated."""
    replay = filled_replay(SPEC, rounds=0)
    for _ in range(count):
        replay.begin(TimeStep(images_of(SPEC), 0.0, 0.0, False, False, 1, np.zeros(0)))
        replay.add(np.zeros(2), TimeStep(images_of(SPEC), 1.0, 0.0, False, True, 1, np.zeros(0)))
    return replay


@pytest.mark.parametrize(
    ("across_episodes", "episodes", "enough"), [(False, 40, False), (True, 1, False), (True, 2, True)]
)
def test_an_update_asks_for_the_windows_that_it_declares(across_episodes, episodes, enough):
    """Of three steps, where no episode is as long."""
    draws = {name: Draw(4, 3, across_episodes=across_episodes) for name in ("first", "second")}
    agent, replay = tiny(draws=draws), short_episodes(episodes)
    if enough:
        agent.update(replay, 1)
        assert agent.method.count == 3
    else:
        with pytest.raises(UserError, match="no window of 3 steps"):
            agent.update(replay, 1)


# --- acting with a memory ---------------------------------------------------------------------------


def test_what_an_actor_remembers_goes_from_step_to_step_and_begins_anew_with_an_episode():
    agent = tiny()
    firsts = (False, False, True, False, False, True, True)
    assert [acted(agent, first) for first in firsts] == [1, 2, 1, 2, 3, 1, 1]
    assert agent.method.actor.at_steps == [LATE] * 7


def test_a_look_without_exploration_has_a_memory_of_its_own():
    agent = tiny()
    explores = (True, True, False, True, False)
    assert [acted(agent, False, explore=explore) for explore in explores] == [1, 2, 1, 3, 2]
    assert agent.state_dict()["tensors"]["carry.steps"].tolist() == [[3.0]]


def test_exploration_is_given_its_noise_and_the_random_steps_ask_nobody():
    agent = tiny(random_steps=5)
    image = images_of(SPEC)
    for agent_steps in range(5):
        action = agent.act_async(image, first=agent_steps == 0, agent_steps=agent_steps)()
        assert action.shape == (2,)
        assert (np.abs(action) <= 1).all()
    assert agent.method.actor.at_steps == []
    explored = [agent.act_async(image, first=False, agent_steps=5 + i)() for i in range(3)]
    assert np.array(explored)[:, 0] == pytest.approx([0.1, 0.2, 0.3])
    assert len({float(action[1]) for action in explored}) == 3
    assert agent.act_async(image, first=False, agent_steps=8, explore=False)() == pytest.approx([0.1, 0.0])


@pytest.mark.parametrize("saved_after", [None, 6, 7, 8, 9])
def test_an_episode_that_begins_in_the_random_steps_begins_for_the_actor_when_it_is_asked(saved_after):
    """Also where the agent is saved and goes on in between."""
    agent = tiny(random_steps=8)
    with torch.no_grad():
        agent.state_dict()["tensors"]["carry.steps"].fill_(5)  # as if it had acted before
    counted = []
    for agent_steps in range(12):
        if agent_steps == saved_after:
            state, agent = through_a_file(agent.state_dict()), tiny(seed=1, random_steps=8)
            agent.load_state_dict(state)
        number = acted(agent, agent_steps in (0, 4, 11), agent_steps=agent_steps, explore=True)
        counted += [number] if agent_steps >= 8 else []
    assert counted == [1, 2, 3, 1]


def test_what_the_random_steps_hide_is_saved_for_actors_with_a_memory_only(monkeypatch):
    assert "first_untold" in tiny().state_dict()
    monkeypatch.setattr(CountingActor, "initial_carry", lambda _self, _count: {})
    assert tiny().state_dict().keys() == {"updates", "act_rng", "generator", "tensors"}


def test_with_a_memory_one_environment_is_explored_at_a_time():
    with pytest.raises(ValueError, match="one environment at a time"):
        acted(tiny(), True, images=images_of(SPEC, 2), explore=True)


class UniformNoise(NamedTuple):
    uniforms: Any


@pytest.mark.parametrize("kind", [Shifts(3, pad=4), Uniform((3, 2), double=True)], ids=["shifts", "double"])
def test_noise_that_the_host_does_not_draw_is_refused(kind, monkeypatch):
    monkeypatch.setattr(CountingActor, "noise", lambda *_: UniformNoise(kind))
    with pytest.raises(TypeError, match="the noise of an actor is Uniform and Normal, in float32"):
        acted(tiny(), True)


class Looking:
    """Acts as it did two steps ago, and remembers both steps by tensors that it was given."""

    actions, modules = Continuous(1), {}
    start = torch.zeros(1)

    def initial_carry(self, count):
        start = self.start.expand(count, 1)
        return {"now": start, "before": start}

    def noise(self, count, explore):  # noqa: ARG002
        return ()

    def act(self, images, carry, first, noise, explore):  # noqa: ARG002
        new = carry["now"] + 0.125
        return carry["before"], {"now": new, "before": carry["now"]}


def policy_of(actor):
    return FrozenPolicy(actor, accelerator=Recording(), device=CPU)


def test_a_carry_may_consist_of_the_one_before():
    policy, images, rng = policy_of(Looking()), images_of(SPEC, 2), np.random.default_rng()
    carry, actions = policy.initial_carry(2), []
    for _ in range(4):
        action, carry = policy.act(images, carry, np.zeros(2, bool), rng)
        actions.append(action[:, 0].tolist())
    assert actions == [[0, 0], [0, 0], [0.125, 0.125], [0.25, 0.25]]
    assert carry["now"].tolist() == [[0.5]] * 2
    assert Looking.start == 0  # what it made the first carry of


@pytest.mark.parametrize(
    "wrong",
    [{}, {"now": torch.zeros(1, 1)}, {"now": torch.zeros(1, 1), "before": torch.zeros(1)}],
    ids=["nothing", "a part", "another shape"],
)
def test_a_carry_is_returned_as_it_was_given(wrong, monkeypatch):
    monkeypatch.setattr(Looking, "act", lambda *_: (torch.zeros(1, 1), wrong))
    policy = policy_of(Looking())
    with pytest.raises(ValueError, match=r"an actor was given a carry of .*, and returned one of"):
        policy.act(images_of(SPEC, 1), policy.initial_carry(1), np.zeros(1, bool), np.random.default_rng())


def test_several_environments_are_remembered_one_by_one():
    agent, images = tiny(), images_of(SPEC, 2)
    assert acted(agent, True) == 1
    firsts = ([True, True], [False, False], [False, True], [True, False])
    counted = [acted(agent, np.array(first), images=images) for first in firsts]
    assert counted == [[1, 1], [2, 2], [3, 1], [1, 2]]
    assert acted(agent, False, images=images) == [2, 3]  # the same for all
    assert acted(agent, False) == 2  # another count of environments, another memory


def test_the_memory_is_saved_and_comes_back_as_it_was():
    agent, other = tiny(seed=0), tiny(seed=1)
    for first in (True, False, False):
        acted(agent, first, explore=True)
    assert acted(other, True, explore=True) == 1  # its buffers are there already
    state = through_a_file(agent.state_dict())
    assert state["tensors"]["carry.steps"].tolist() == [[3.0]]
    other.load_state_dict(state)
    assert [acted(each, False, explore=True) for each in (agent, other)] == [4, 4]
    assert not differing(snapshot(agent), snapshot(other))
    del state["tensors"]["carry.steps"]
    with pytest.raises(ValueError, match=r"missing \['carry.steps'\]"):
        other.load_state_dict(state)


def test_acting_can_be_rehearsed():
    recording = Recording()
    agent = make_agent(TinyConfig(), SPEC, accelerator=recording)
    assert acted(agent, True) == 1
    (procedure,) = recording.procedures
    with _undone(procedure):
        procedure.run()
        procedure.run()
    assert acted(agent, False) == 2


def test_a_policy_leaves_its_memory_with_the_caller():
    """Two callers take turns, one of them with two environments; nothing that they hold is changed."""
    agent, rng = tiny(), np.random.default_rng(0)
    with torch.no_grad():
        agent.method.actor.modules["size"].weight.fill_(0.2)
    policy = make_policy(agent.config, SPEC, device=CPU, accelerator=Recording())
    policy.load_weights(agent.policy_weights())

    def act(carry, *firsts):
        actions, after = policy.act(images_of(SPEC, len(firsts)), carry, np.array(firsts), rng)
        return [round(number * 5) for number in actions[:, 0].tolist()], after

    one, two, three = policy.initial_carry(1), policy.initial_carry(1), policy.initial_carry(2)
    start = one
    for step in (1, 2, 3):
        counted, one = act(one, False)
        assert counted == [step]
        counted, three = act(three, step == 2, False)
        assert counted == [[1, 1], [1, 2], [2, 3]][step - 1]
    counted, two = act(two, False)
    assert counted == [1]
    assert start["steps"].tolist() == [[0.0]]
    assert one["steps"].tolist() == [[3.0]]
    assert act(one, False)[0] == act(one, False)[0] == [4]  # from what it is given, and from nothing else
    assert act(one, True)[0] == [1]
