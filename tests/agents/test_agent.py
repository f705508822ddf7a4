"""What the driver does for every method: steps, records, failures, saved states, acting."""

import copy
import math
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from ogspr.agents.agent import make_policy, make_representation
from ogspr.agents.learning import Sampler
from ogspr.agents.metrics import dead_share, effective_rank
from ogspr.agents.ogspr import preset_names
from ogspr.agents.protocol import Shifts
from ogspr.device import CPU
from ogspr.errors import UserError
from ogspr.training.graph import _undone
from tests.agents import reference
from tests.agents.drqv2 import scene as drqv2
from tests.agents.mrq import scene as mrq
from tests.agents.ogspr import scene as ogspr
from tests.agents.scene import LATE, Recording, close, filled_replay, images_of, make_agent
from tests.agents.states import differing, played, snapshot, through_a_file

SCENES = {
    "ogspr": ogspr.scene,
    "ogspr-discrete": partial(ogspr.scene, "discrete"),
    "mrq": mrq.scene,
    "mrq-discrete": partial(mrq.scene, "discrete"),
    "drqv2": drqv2.scene,
}
VARIANTS = {name: partial(ogspr.scene, "continuous", name) for name in preset_names()} | SCENES

every_method = pytest.mark.parametrize("make", SCENES.values(), ids=SCENES)


def update(subject, agent_steps=LATE):
    subject.agent.update(subject.replay, agent_steps)


# --- one update -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A kind of update, its optimisers, and what it changes."""

    make: partial
    kind: str
    trained: dict  # learning rate, weight decay and largest norm, by what is trained
    changed: set  # parts of the state besides the optimisers
    clipped: set = field(default_factory=set)  # whose gradients are so large here
    total: str = ""


def value_and_policy(clip, decay=1e-4):
    return {"value": (3e-4, decay, clip), "policy": (3e-4, decay, math.inf)}


OGSPR = {"value_network", "policy", "features", "tally"}
MRQ_VALUE = {"core", "policy", "features", "value_tally"}
MRQ_ENCODER = {"core", "model", "encoder_tally", "encoder_memory"}
STEPS = {
    "ogspr": Case(partial(ogspr.scene, reward=1e3), "all", value_and_policy(20.0), OGSPR, {"value"}),
    "ogspr-discrete": Case(
        partial(ogspr.scene, "discrete", reward=1e3), "all", value_and_policy(20.0), OGSPR, {"value"}
    ),
    "ogspr-decay": Case(
        partial(ogspr.scene, clip_norm=1e6, weight_decay=1.0), "all", value_and_policy(1e6, 1.0), OGSPR
    ),
    # The policy's gradient is not clipped.
    "ogspr-policy": Case(
        partial(ogspr.scene, pre_activation_weight=1e4), "all", value_and_policy(20.0), OGSPR, {"value"}
    ),
    # Large errors give every sample the same slope: only wide representations make a large gradient.
    "mrq": Case(
        partial(mrq.scene, reward=1e5, clip_norm=0.5), "value", value_and_policy(0.5), MRQ_VALUE, {"value"}
    ),
    "mrq-discrete": Case(
        partial(mrq.scene, "discrete", reward=0.1, weight_decay=1.0),
        "value",
        value_and_policy(20.0, 1.0),
        MRQ_VALUE,
    ),
    "mrq-encoder": Case(
        partial(mrq.scene, dynamics_weight=1000.0),
        "encoder",
        {"encoder": (1e-4, 1e-4, math.inf)},
        MRQ_ENCODER,
        total="encoder",
    ),
    "mrq-encoder-decay": Case(
        partial(mrq.scene, "discrete", weight_decay=1.0),
        "encoder",
        {"encoder": (1e-4, 1.0, math.inf)},
        MRQ_ENCODER,
        total="encoder",
    ),
    "drqv2": Case(
        partial(drqv2.scene, reward=1e3),
        "all",
        {"value": (1e-4, 0.0, math.inf), "policy": (1e-4, 0.0, math.inf)},
        OGSPR | {"target_critic"},
    ),
}


def trained_arrays(update):
    """The parameters as they are now, by what is trained."""
    return {
        name: {n: p.detach().double().numpy() for group in trained.groups for n, p in group.named.items()}
        for name, trained in update.trains.items()
    }


def assert_steps_close(after, expected, gradients, learning_rate):
    """Adam divides by the size of the gradient: where that is rounding error, any step is right."""
    for name, array in expected.items():
        telling = np.abs(gradients[name]) > 1e-3 * np.abs(gradients[name]).max()
        close(after[name][telling], array[telling], rtol=0, atol=2e-3 * learning_rate + 1e-7)
        close(after[name], array, rtol=0, atol=3 * learning_rate)


def with_new_priorities(priority, look):
    """A step that was drawn twice keeps the larger one."""
    after = priority.clone()
    for name, new in look.found.priorities.items():
        starts = look.windows[name].starts
        for start in set(starts.tolist()):
            after[start] = new[starts == start].max()
    return after


@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
def test_an_update_takes_the_steps_that_its_losses_ask_for_and_records_them(case):
    subject = case.make()
    agent, replay = subject.agent, subject.replay
    optimisers = {name: reference.AdamW(*numbers[:2]) for name, numbers in case.trained.items()}
    recorded = []
    for _ in range(3):
        state = copy.deepcopy(agent.state_dict())
        look = subject.look(case.kind)
        slopes = look.slopes()
        agent.load_state_dict(state)  # looking has moved the power iteration
        before, was, priority = trained_arrays(look.update), snapshot(agent), replay.priority.clone()
        subject.learn(case.kind)
        after = trained_arrays(look.update)
        for name, (rate, _, clip) in case.trained.items():
            given = reference.clipped(slopes[name], clip)
            assert (reference.global_norm(slopes[name]) > clip) == (name in case.clipped)
            assert_steps_close(after[name], optimisers[name].step(before[name], given), given, rate)
        assert torch.equal(replay.priority, with_new_priorities(priority, look))
        parts = {name.partition(".")[0] for name in differing(was, snapshot(agent))}
        assert parts - {"encoder_memory"} == case.changed - {"encoder_memory"} | {
            f"{name}_optimiser" for name in case.trained
        }
        norms = {f"{name}_gradient_norm": reference.global_norm(each) for name, each in slopes.items()}
        losses = {f"{name}_loss": loss for name, loss in look.losses.items()}
        if case.total:
            losses[f"{case.total}_loss"] = sum(
                look.weights[name] * loss for name, loss in look.losses.items()
            )
        recorded.append(losses | norms | {name: float(number) for name, number in look.found.numbers.items()})
    assert agent.failed_updates == 0
    metrics = agent.metrics()
    for name in recorded[0]:
        seen = [numbers[name] for numbers in recorded]
        assert len(set(seen)) == 3 or name.startswith("priority"), name
        assert metrics[name] == pytest.approx(np.mean(seen), rel=1e-4), name
    for name, feature in look.found.features.items():
        assert metrics[f"{name}_effective_rank"] == pytest.approx(float(effective_rank(feature)), rel=1e-3)
        assert metrics[f"{name}_dead_share"] == pytest.approx(float(dead_share(feature)))
    assert all(math.isnan(agent.metrics()[name]) for name in recorded[0])  # nothing since the last call


@pytest.mark.parametrize("make", VARIANTS.values(), ids=VARIANTS)
def test_everything_that_learns_is_trained_by_one_optimiser(make):
    method = make().agent.method
    trained = [
        id(parameter)
        for declared in method.updates.values()
        for each in declared.trains.values()
        for group in each.groups
        for parameter in group.named.values()
    ]
    learned = {id(parameter) for module in method.learned for parameter in module.parameters()}
    assert len(trained) == len(set(trained)) > 0
    assert set(trained) == learned


@every_method
def test_no_two_random_numbers_of_an_update_are_related(make):
    """Where windows begin, shifts, noise on actions; and each offset of each shift occurs."""
    batch = 1024
    for declared in make(batch_size=batch).agent.method.updates.values():
        sampler = Sampler(declared, torch.Generator().manual_seed(0))
        places, noise = sampler(lambda wanted: [numbers for _, numbers in wanted])
        rows = list(places.values())
        for kind, field_ in zip(declared.noise, noise, strict=True):
            if isinstance(kind, Shifts):
                shifts = field_.view(-1, batch, 2).permute(0, 2, 1).reshape(-1, batch)
                assert all(set(row.tolist()) == set(range(2 * kind.pad + 1)) for row in shifts)
                rows += list(shifts)
            else:
                rows += list(field_ if field_.shape[1] == batch else field_.T)
        table = torch.stack([row.double() for row in rows])
        related = torch.corrcoef(table) - torch.eye(len(table))
        assert related.abs().max() < 0.15  # 5 standard deviations


@every_method
def test_an_agent_learns_from_one_replay_with_enough_steps(make):
    subject = make()
    with pytest.raises(UserError, match=r"no window of [35] steps is stored"):
        subject.agent.update(filled_replay(subject.spec, rounds=0), LATE)
    subject = make()
    update(subject)
    with pytest.raises(ValueError, match="one replay"):
        subject.agent.update(filled_replay(subject.spec), LATE)


# --- rehearsals and phases --------------------------------------------------------------------------


@every_method
def test_everything_that_an_update_changes_is_declared_so_that_it_can_be_rehearsed(make):
    """What an accelerator rehearses and undoes leaves the agent and its replay as they were."""
    subject = make()
    agent, replay = subject.agent, subject.replay
    subject.recording.procedures.clear()
    agent.rehearse(replay)
    phases = agent.phases(replay)
    assert list(phases) == ["sample", "forward", "backward", "optimise"]
    assert len(subject.recording.procedures) == len(agent.method.updates) + len(phases)
    before, generator = snapshot(agent), agent.state_dict()["generator"]
    priority, rewards = replay.priority.clone(), replay.numbers[:, -2].clone()
    for procedure in subject.recording.procedures:
        with _undone(procedure):
            procedure.run()
            subject.spoil_rewards()
            procedure.run()  # a failure is heard of, if it gets that far
        replay.numbers[:, -2] = rewards
        assert agent.failed_updates == 0
        assert not differing(before, snapshot(agent))
        assert torch.equal(agent.state_dict()["generator"], generator)
        assert torch.equal(replay.priority, priority)
    before = without_power_iteration(before)
    for name, phase in phases.items():
        phase()
        assert bool(differing(before, without_power_iteration(snapshot(agent)))) == (name == "optimise")


# --- numbers that are not finite --------------------------------------------------------------------


def spoil_rewards(subject):
    subject.spoil_rewards()


def spoil_policy(subject, number=1e30):
    """A pre-activation whose square overflows."""
    policy = subject.networks.policy
    with torch.no_grad():
        getattr(policy, "mlp", policy).layers[-1].bias.fill_(number)


FAILURES = [
    ("ogspr", "all", spoil_rewards, {"value", "short_term_value"}),
    ("ogspr", "all", spoil_policy, {"policy"}),
    ("ogspr-discrete", "all", spoil_rewards, {"value", "short_term_value"}),
    ("ogspr-discrete", "all", spoil_policy, {"policy"}),
    ("mrq", "encoder", spoil_rewards, {"reward", "encoder"}),
    ("mrq-discrete", "value", spoil_rewards, {"value"}),
    ("mrq", "value", spoil_policy, {"policy"}),
    ("drqv2", "all", spoil_rewards, {"value"}),
    # Its tanh leaves nothing infinite but NaN; its targets are made by the same policy.
    ("drqv2", "all", partial(spoil_policy, number=math.nan), {"value", "policy"}),
]


def without_power_iteration(tensors):
    """The decoder's power iteration goes on with each look at its weight; it is no parameter."""
    return {name: tensor for name, tensor in tensors.items() if not name.endswith((".left", ".right"))}


def without_failures(tensors):
    kept = without_power_iteration(tensors).items()
    return {name: tensor for name, tensor in kept if not name.partition(".")[0].endswith("failures")}


@pytest.mark.parametrize(("name", "kind", "spoil", "culprits"), FAILURES)
def test_an_update_with_a_number_that_is_not_finite_changes_nothing(name, kind, spoil, culprits):
    subject = SCENES[name]()
    agent, replay = subject.agent, subject.replay
    subject.learn(kind)
    spoil(subject)
    before = without_failures(snapshot(agent))
    priority, largest = replay.priority.clone(), replay.largest_priority.clone()
    for count in (1, 2):
        starts = {name: window.starts.tolist() for name, window in subject.look(kind).windows.items()}
        subject.learn(kind)
        assert agent.last_failure().in_a_row == agent.failed_updates == count
    assert not differing(before, without_failures(snapshot(agent)))
    assert torch.equal(replay.priority, priority)
    assert torch.equal(replay.largest_priority, largest)
    failure = agent.last_failure()
    assert (failure.in_a_row, failure.total) == (2, 2)
    assert failure.starts == starts
    losses = {name for name in failure.numbers if name.endswith("_loss")}
    infinite = {name for name in losses if not math.isfinite(failure.numbers[name])}
    assert infinite == {f"{name}_loss" for name in culprits}
    assert all(name in str(failure) for name in infinite)
    assert agent.metrics()["failed_updates"] == 2


@every_method
def test_a_good_update_ends_a_row_of_failures_and_alone_counts_in_the_means(make):
    subject = make()
    agent, replay = subject.agent, subject.replay
    rewards = replay.numbers[:, -2].clone()
    subject.spoil_rewards()
    update(subject)
    assert agent.last_failure().in_a_row == 1
    replay.numbers[:, -2] = rewards
    update(subject)
    assert (agent.last_failure().in_a_row, agent.failed_updates, agent.last_failure().total) == (0, 1, 1)
    metrics = agent.metrics()
    assert metrics["failed_updates"] == 1
    (_, (loss, *_)) = subject.recording.calls.get("long_term_loss") or subject.recording.calls["critic_loss"]
    assert metrics["value_loss"] == pytest.approx(float(loss.detach()))


# --- saved states -----------------------------------------------------------------------------------

SAVED = SCENES | {name: VARIANTS[name] for name in ("shared-adapter", "anonmethod")}


@pytest.mark.parametrize("name", SAVED)
def test_an_agent_goes_on_from_a_saved_state_to_the_bit(name):
    changes = {"batch_size": 8} | ({} if name == "drqv2" else {"target_period": 3})
    late = 70 if name == "drqv2" else LATE  # where its noise has not come to its end
    one, other = SAVED[name](**changes), SAVED[name](**changes)
    first, replay = one.agent, one.replay
    second = make_agent(first.config, one.spec, seed=5)
    played(first, one.spec, 2, replay, late)
    assert differing(snapshot(first, "policy"), snapshot(second, "policy"))
    second.load_state_dict(through_a_file(first.state_dict()))
    other_replay = copy.deepcopy(replay)
    ours, theirs = played(first, one.spec, 4, replay, late), played(second, other.spec, 4, other_replay, late)
    np.testing.assert_array_equal(ours, theirs)
    assert not differing(snapshot(first), snapshot(second))
    assert torch.equal(first.state_dict()["generator"], second.state_dict()["generator"])
    assert torch.equal(replay.priority, other_replay.priority)
    assert first.updates == second.updates == (13 if name == "drqv2" else 7)
    assert first.metrics() == second.metrics()


@every_method
def test_a_loaded_state_brings_its_failures_along(make):
    subject, other = make(), make().agent
    agent = subject.agent
    subject.spoil_rewards()
    for kind in agent.method.updates:
        subject.learn(kind)
    other.load_state_dict(agent.state_dict())
    assert other.failed_updates == agent.failed_updates == len(agent.method.updates)
    assert other.last_failure().starts == agent.last_failure().starts
    assert str(other.last_failure()) == str(agent.last_failure())


def rename(state):
    tensors = state["tensors"]
    tensors["policy.stranger"] = tensors.pop(next(name for name in tensors if name.startswith("policy.")))


def lose(state):
    state["tensors"].pop(next(n for n in state["tensors"] if n.startswith("value_optimiser.second.")))


def reshape(state):
    name = list(state["tensors"])[-1]
    state["tensors"][name] = torch.zeros(*state["tensors"][name].shape, 2)


def retype(state):
    state["tensors"] = {name: tensor.double() for name, tensor in state["tensors"].items()}


SPOILED = {
    "rename": rename,
    "lose": lose,
    "reshape": reshape,
    "retype": retype,
    "no generator": lambda state: state.pop("generator"),
    "another generator": lambda state: state.update(generator=torch.zeros(7, dtype=torch.uint8)),
    "other random numbers": lambda state: state.update(act_rng={"bit_generator": "PCG64"}),
    "no number": lambda state: state.update(updates=None),
    "too much": lambda state: state.update(more=1),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
@every_method
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(make, spoil):
    agent, other = make(batch_size=4).agent, make(batch_size=4).agent
    state = copy.deepcopy(other.state_dict())
    for tensor in state["tensors"].values():
        tensor.add_(1)
    state["updates"] += 5
    spoil(state)
    before, tensors = agent.state_dict(), snapshot(agent)
    with pytest.raises(ValueError, match="does not fit"):
        agent.load_state_dict(state)
    after = agent.state_dict()
    assert not differing(tensors, snapshot(agent))
    assert torch.equal(before["generator"], after["generator"])
    assert (before["updates"], before["act_rng"]) == (after["updates"], after["act_rng"])


@pytest.mark.parametrize("make", VARIANTS.values(), ids=VARIANTS)
def test_no_two_saved_tensors_share_memory(make):
    tensors = make().agent.state_dict()["tensors"].values()
    places = sorted((tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(places))


# --- acting -----------------------------------------------------------------------------------------


@every_method
def test_an_update_between_a_question_and_its_answer_changes_nothing_about_it(make):
    asked, other = make(), make()
    image = images_of(asked.spec)
    for explore in (True, False):
        expected = other.agent.act_async(image, first=False, agent_steps=LATE, explore=explore)()
        answer = asked.agent.act_async(image, first=False, agent_steps=LATE, explore=explore)
        update(asked)
        assert np.array_equal(answer(), expected)
        update(other)


@every_method
def test_a_policy_acts_as_the_agent_does(make):
    subject = make()
    agent, spec = subject.agent, subject.spec
    policy = make_policy(agent.config, spec, device=CPU, accelerator=Recording())
    images, first = images_of(spec, 5), np.zeros(5, bool)

    def acted():
        rng = np.random.default_rng()  # evaluation may draw actions
        rng.bit_generator.state = agent.state_dict()["act_rng"]
        actions, carry = policy.act(images, policy.initial_carry(5), first, rng)
        assert carry == {}
        return actions

    others = acted()
    policy.load_weights(agent.policy_weights())
    ours = acted()
    assert not np.array_equal(ours, others)
    assert np.array_equal(ours, agent.act_async(images, first=first, agent_steps=LATE, explore=False)())
    with pytest.raises(ValueError, match="does not fit"):
        policy.load_weights({})


@every_method
def test_the_callers_random_numbers_are_not_touched(make):
    subject = make()
    config, spec, tensors = subject.agent.config, subject.spec, subject.agent.state_dict()["tensors"]
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    make_agent(config, spec)
    make_policy(config, spec, device=CPU, accelerator=Recording())
    make_representation(config, spec, tensors, device=CPU)
    assert torch.rand(1) == expected
