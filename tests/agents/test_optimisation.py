"""Steps of the optimiser against hand numbers and a reference in float64, and what its states tell."""

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.precision import gradient_between
from ogspr.agents.influence import Plain
from ogspr.agents.learning import ClippedAdamW, joint_gradients, norm_of
from ogspr.agents.modules import copy_state
from ogspr.agents.protocol import Group, Trained
from tests.agents import reference
from tests.agents.scene import close


def optimiser(*groups, clip_norm=None):
    return ClippedAdamW(Trained(groups, clip_norm), Plain())


def take_step(subject, gradients, skip=0.0):
    vectors = subject.gather(gradients)
    subject.step(vectors, norm_of(vectors), torch.tensor(skip))


def state(subject):
    return {name: tensor.clone() for name, tensor in subject.state_dict().items()}


def parameters(**arrays):
    return {name: nn.Parameter(torch.tensor(array, dtype=torch.float32)) for name, array in arrays.items()}


# --- steps ------------------------------------------------------------------------------------------


def test_a_hand_number_of_the_optimiser():
    """g = (3, 4) clipped at 1 is (0.6, 0.8); Adam's first step has the size of the learning rate."""
    named = parameters(w=[1.0, -1.0])
    subject = optimiser(Group(named, 0.1, weight_decay=0.5), clip_norm=1.0)
    take_step(subject, [torch.tensor([3.0, 4.0])])
    close(subject.state_dict()["first.w"], [0.06, 0.08])
    close(subject.state_dict()["second.w"], [0.36e-3, 0.64e-3], atol=1e-8)
    close(named["w"].detach(), [1 - 0.05 - 0.1, -1 + 0.05 - 0.1])


# Numbers of each group: learning rate, weight decay, betas, epsilon.
GROUPS = {
    "one": [(0.1, 0.3, (0.9, 0.999), 1e-8)],
    "several": [
        (0.1, 0.3, (0.9, 0.999), 1e-8),
        (0.02, 0.0, (0.5, 0.95), 1e-2),
        (0.3, 1.0, (0.0, 0.99), 1e-20),
    ],
}


@pytest.mark.parametrize("clip_norm", [None, 2.0])
@pytest.mark.parametrize("numbers", GROUPS.values(), ids=GROUPS)
def test_the_optimiser_alone_follows_the_reference_for_many_steps(numbers, clip_norm):
    """Groups have numbers of their own; the norm that is clipped is that of all together."""
    rng, shapes = np.random.default_rng(0), {"a": (3, 2), "b": (4,)}
    expected = [{name: rng.standard_normal(shape) for name, shape in shapes.items()} for _ in numbers]
    named = [parameters(**arrays) for arrays in expected]
    ours = optimiser(
        *(Group(each, *group) for each, group in zip(named, numbers, strict=True)), clip_norm=clip_norm
    )
    theirs = [reference.AdamW(*group) for group in numbers]
    for i in range(10):
        size = 0.1 + i  # the first ones are small enough
        gradients = [{n: size * rng.standard_normal(s) for n, s in shapes.items()} for _ in numbers]
        flat = {(g, name): array for g, arrays in enumerate(gradients) for name, array in arrays.items()}
        assert clip_norm is None or (reference.global_norm(flat) > clip_norm) == (i > 0)
        take_step(ours, [torch.from_numpy(array).float() for array in flat.values()])
        given = reference.clipped(flat, clip_norm or np.inf)
        for g, reference_ in enumerate(theirs):
            expected[g] = reference_.step(expected[g], {name: given[g, name] for name in shapes})
    for each, arrays in zip(named, expected, strict=True):
        for name, array in arrays.items():
            close(each[name].detach(), array)


def test_a_skipped_step_changes_nothing():
    named = parameters(a=[1.0, 2.0], b=[3.0])
    subject = optimiser(Group({"a": named["a"]}, 0.1), Group({"b": named["b"]}, 0.2), clip_norm=1.0)
    take_step(subject, [torch.tensor([1.0, 2.0]), torch.tensor([1.0])])
    before, weights = state(subject), {name: p.detach().clone() for name, p in named.items()}
    take_step(subject, [torch.tensor([float("nan"), 1.0]), torch.tensor([float("inf")])], skip=1.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.state_dict().items())
    assert all(torch.equal(p, weights[name]) for name, p in named.items())


def test_groups_without_parameters_and_with_a_rate_of_zero_are_no_trouble():
    named = parameters(a=[1.0, 2.0])
    subject = optimiser(Group({}, 0.1), Group(named, 0.0, weight_decay=1.0))
    take_step(subject, [torch.tensor([1.0, 2.0])])
    assert named["a"].tolist() == [1.0, 2.0]
    assert subject.state_dict().keys() == {"steps.a", "first.a", "second.a"}


def test_weights_begin_where_compiled_kernels_expect_them():
    """Kernels that torch has compiled for one task and kept crash where the same weights begin elsewhere."""
    shapes = {"bias": (2,), "kernel": (3, 3), "weight": (64, 64), "last": (1,)}
    start = {name: torch.randn(shape) for name, shape in shapes.items()}
    named = {name: nn.Parameter(tensor.clone()) for name, tensor in start.items()}
    subject = optimiser(Group(named, 0.1, weight_decay=0.3))
    take_step(subject, [torch.zeros(shape) for shape in shapes.values()])
    saved = subject.state_dict()
    for name, parameter in named.items():
        for tensor in (parameter, saved[f"first.{name}"], saved[f"second.{name}"]):
            assert tensor.storage_offset() * tensor.element_size() % 128 == 0
        close(parameter.detach(), 0.97 * start[name])


def test_joint_gradients_are_those_of_the_weighted_sum():
    """Of losses that share parameters, for two optimisers at once; a parameter without one is an error."""
    named = parameters(a=[1.0, 2.0], b=[3.0])
    subjects = [optimiser(Group({name: parameter}, 0.1)) for name, parameter in named.items()]
    a, b = named.values()
    losses = [(a * b).sum(), a.square().sum()]
    vectors = joint_gradients(losses, subjects, [torch.tensor(2.0), torch.tensor(0.5)])
    found = [
        vector[: parameter.numel()].tolist() for (vector,), parameter in zip(vectors, (a, b), strict=True)
    ]
    assert found == [[2 * 3 + 1, 2 * 3 + 2], [2 * 3]]
    with pytest.raises(RuntimeError, match="not have been used"):
        joint_gradients([a.sum()], subjects)


# --- what states tell -------------------------------------------------------------------------------


def two_groups():
    """With parameters of odd sizes, whose gradients are clipped to a length of 10 together."""
    named = {name: nn.Parameter(torch.randn(size)) for name, size in {"a": 3, "b": 5, "c": 2}.items()}
    groups = ({"a": named["a"], "b": named["b"]}, {"c": named["c"]})
    return optimiser(*(Group(each, 0.1, 0.1) for each in groups), clip_norm=10.0)


def test_two_states_tell_the_gradient_of_the_step_between_them():
    torch.manual_seed(0)
    subject = two_groups()
    for _ in range(3):
        take_step(subject, [torch.randn(3), torch.randn(5), torch.randn(2)])
    before = state(subject)
    gradients = [torch.tensor([1.0, 2.0, 3.0]), torch.full((5,), -1.0), torch.tensor([30.0, -40.0])]
    take_step(subject, gradients)
    clipped = torch.cat(gradients) * 10.0 / torch.cat(gradients).norm()
    torch.testing.assert_close(gradient_between(before, state(subject)), clipped, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("skips", [(), (1.0,), (0.0, 0.0)], ids=["none", "skipped", "two"])
def test_no_step_or_several_tell_none(skips):
    subject = two_groups()
    before = state(subject)
    for skip in skips:
        take_step(subject, [torch.ones(3), torch.ones(5), torch.ones(2)], skip)
    assert gradient_between(before, state(subject)) is None


def test_groups_whose_parameters_have_equal_names_are_saved_beside_each_other():
    def networks():
        return optimiser(*(Group(nn.Linear(2, 1), 0.1) for _ in range(2)), Group(parameters(own=[1.0]), 0.1))

    subject, other = networks(), networks()
    take_step(subject, [torch.full(p.shape, 1.0 + i) for i, p in enumerate(subject.parameters)])
    saved = state(subject)
    moments = [f"{moment}.{name}" for moment in ("first", "second") for name in ("weight", "bias")]
    assert saved.keys() == {
        *(f"{group}.{name}" for group in (0, 1) for name in ("steps.weight", *moments)),
        *("steps.own", "first.own", "second.own"),
    }
    close([saved[f"{group}.first.{name}"].max() for group in (0, 1) for name in ("weight", "bias")],
          [0.1, 0.2, 0.3, 0.4])  # fmt: skip
    new = {name: torch.zeros_like(tensor) for name, tensor in saved.items()}
    close(gradient_between(new, saved), [1, 1, 2, 3, 3, 4, 5])
    copy_state(other.state_dict(), saved)
    for one, restored in zip(subject.parameters, other.parameters, strict=True):
        restored.data.copy_(one.data)
    for each in (subject, other):
        take_step(each, [torch.full(p.shape, -2.0 + i) for i, p in enumerate(each.parameters)])
    for one, restored in zip(subject.parameters, other.parameters, strict=True):
        assert torch.equal(one, restored)
