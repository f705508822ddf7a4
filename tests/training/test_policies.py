"""Policies of runs: exported, loaded, evaluated, filmed."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

import ogspr
from ogspr.agents.methods import METHODS
from ogspr.agents.ogspr import preset_names
from ogspr.commands import policy as commands
from ogspr.commands.declared import Eval, Export, Play
from ogspr.envs import EnvOptions
from ogspr.errors import UserError
from ogspr.records.tree import load_tree, save_tree
from ogspr.training.policy_file import SavedPolicy, save_policy
from tests.training.learners import CONTINUOUS, DISCRETE, make_learner, small_config
from tests.training.runs import TASK, request, train

KIND = "ogspr-policy-1"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(request(folder, agent_steps=60))
    return folder / "seed-0"


def saved(learner, path, config):
    origin = {"task": "x:y"}
    save_policy(path, SavedPolicy(config, learner.spec, EnvOptions(), learner.policy_weights(), origin))
    return path


@pytest.mark.parametrize("spec", [CONTINUOUS, DISCRETE], ids=["continuous", "discrete"])
@pytest.mark.parametrize("variant", preset_names())
def test_a_policy_file_acts_as_the_agent_does(tmp_path, variant, spec):
    config = small_config(variant)
    learner = make_learner(spec=spec, config=config)
    learner.update(agent_steps=config.random_steps + 1)
    agent = ogspr.load(saved(learner, tmp_path / "p.safetensors", config))
    images = np.random.default_rng(0).integers(0, 256, (5, *spec.observation_shape), dtype=np.uint8)
    expected = learner.agent.act_async(images, first=False, agent_steps=10**6, explore=False)()
    assert np.array_equal(agent.act(images), expected)
    assert np.allclose(agent.act(images[0]), expected[0], atol=1e-6)
    assert agent.spec.actions == spec.actions


def test_a_policy_file_is_small_and_does_not_change_the_callers_chance(tmp_path):
    config = small_config()
    learner = make_learner(config=config)
    path = saved(learner, tmp_path / "p.safetensors", config)
    names = load_tree(path, KIND)["weights"]
    assert {name.partition(".")[0] for name in names} == {"encoder", "adapter1", "policy"}
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    ogspr.load(path)
    assert torch.rand(1) == expected


def test_wrong_pictures_are_refused(run):
    agent = ogspr.load(run)
    for wrong in (
        np.zeros((9, 36, 36), np.float32),
        np.zeros((9, 84, 84), np.uint8),
        np.zeros((36, 36), np.uint8),
    ):
        with pytest.raises(ValueError, match=r"expected bytes of shape \(9, 36, 36\)"):
            agent.act(wrong)


def damaged(tree, change):
    tree = dict(tree)
    change(tree)
    return tree


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda tree: tree.pop("config"), "is damaged"),
        (lambda tree: tree.update(method="other"), "needs the method 'other', which is not installed"),
        (lambda tree: tree.update(config={"discont": 1.0}), "did you mean discount"),
        (lambda tree: tree.update(environment={}), "is damaged"),
        (
            lambda tree: tree["weights"].pop("policy.layers.0.weight", tree["weights"].popitem()),
            "cannot be used",
        ),
        (
            lambda tree: tree.update(
                config=tree["config"] | {"sizes": {"representation": 8, "policy_hidden": 8}}
            ),
            "cannot be used",
        ),
    ],
)
def test_a_damaged_or_foreign_policy_is_refused(run, tmp_path, change, complaint):
    tree = damaged(load_tree(run / "policies" / "best.safetensors", KIND), change)
    save_tree(tmp_path / "p.safetensors", tree, KIND)
    with pytest.raises(UserError, match=complaint):
        ogspr.load(tmp_path / "p.safetensors")


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        ogspr.load(tmp_path / "nothing.safetensors")
    with pytest.raises(UserError, match="is not a run folder"):
        ogspr.load(tmp_path)
    with pytest.raises(UserError, match="did you mean best"):
        ogspr.load(tmp_path, policy="bset")


def console():
    return Console(file=io.StringIO(), width=200)


def test_eval_plays_and_writes_every_episode(run, tmp_path):
    said = console()
    wanted = Eval(path=run, policy="last", task=TASK, seed=5, workers=False, episodes=12)
    found = commands.evaluate(replace(wanted, out=tmp_path / "scores.csv"), said)
    assert len(found.episodes) == 12
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 13
    again = commands.evaluate(wanted, said)
    assert again.episodes == found.episodes
    assert "mean" in said.file.getvalue()


def test_an_exported_policy_is_evaluated_in_its_own_protocol(run, tmp_path):
    path = tmp_path / "p.safetensors"
    commands.export(Export(path=run, out=path), console())
    wanted = Eval(path=path, task=TASK, episodes=3, seed=5, workers=False)
    alone, of_run = (commands.evaluate(each, console()) for each in (wanted, replace(wanted, path=run)))
    assert alone.episodes == of_run.episodes
    with pytest.raises(UserError, match=f"would run the code {TASK}; if you trust it, add: --task {TASK}"):
        commands.evaluate(replace(wanted, task=None), console())


def played(run, out, *, episodes=1, grid=False):
    wanted = Play(path=run, task=TASK, episodes=episodes, seed=0, grid=grid, workers=False, out=out)
    return commands.play(wanted, console())


@pytest.mark.parametrize(("grid", "name"), [(False, "v.gif"), (True, "v.gif"), (True, "v.mp4")])
def test_play_films_episodes(run, tmp_path, grid, name):
    import imageio.v2 as imageio

    path = played(run, tmp_path / name, episodes=3, grid=grid)
    frames = imageio.mimread(path, memtest=False)
    lengths = [
        episode.agent_steps + 1
        for seed in range(3)
        for episode in commands.evaluate(
            Eval(path=run, task=TASK, episodes=1, seed=seed, workers=False), console()
        ).episodes
    ]
    if name.endswith("mp4"):
        assert len(frames) == (max(lengths) if grid else sum(lengths))
    height, width = frames[0].shape[:2]
    assert height == width  # one square, or two by two of them


@pytest.mark.parametrize("exported", [False, True], ids=["run", "policy file"])
def test_only_a_film_that_is_named_is_replaced(run, tmp_path, exported):
    place, folder, name = run, run / "videos", "best"
    if exported:
        place, folder, name = tmp_path / "drift.safetensors", tmp_path, "drift"
        commands.export(Export(path=run, out=place), console())
    first = played(place, None)
    assert first == folder / f"{name}.mp4"
    film = first.read_bytes()
    assert played(place, None, episodes=3) == folder / f"{name}-2.mp4"
    assert played(place, None) == folder / f"{name}-3.mp4"
    assert first.read_bytes() == film
    played(place, first, episodes=3)
    assert first.read_bytes() != film
    assert len(list(folder.glob("*.mp4"))) == 3


def test_a_film_that_fails_leaves_the_one_before(run, tmp_path, monkeypatch):
    film = tmp_path / "film.gif"
    film.write_bytes(b"the one before")

    def failing(*_):
        raise RuntimeError("in the middle")

    monkeypatch.setattr(commands, "_tiled", failing)
    with pytest.raises(RuntimeError, match="in the middle"):
        played(run, film)
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]
    assert film.read_bytes() == b"the one before"


def test_an_agent_makes_its_own_environment(tmp_path):
    config = small_config()
    learner = make_learner(config=config)
    origin = {"task": "gym:CartPole-v1"}
    options = EnvOptions(image_size=36)
    save_policy(
        tmp_path / "p.safetensors",
        SavedPolicy(config, learner.spec, options, learner.policy_weights(), origin),
    )
    agent = ogspr.load(tmp_path / "p.safetensors")
    env = agent.make_env(seed=0)
    assert env.spec.observation_shape == agent.spec.observation_shape
    env.close()
    assert "CartPole" in repr(agent)


def test_an_agent_does_not_run_code_that_a_file_names(run):
    agent = ogspr.load(run)
    with pytest.raises(UserError, match=rf"would run the code {TASK}; .*make_env\(seed=0, task='{TASK}'\)"):
        agent.make_env(seed=0)
    with pytest.raises(UserError, match=f"belongs to the task {TASK}, not to examples.chase:make"):
        agent.make_env(seed=0, task="examples.chase:make")
    env = agent.make_env(seed=0, task=TASK)
    assert agent.spec.actions.checked(agent.act(env.reset().observation)) is not None
    env.close()


def test_every_method_has_what_the_table_says():
    for name, method in METHODS.items():
        assert method.name == name
        for preset in method.presets:
            assert type(method.preset(preset, "dmc:walker-walk")) is method.config
            assert replace(method.config()) == method.config()
    assert json.dumps(list(METHODS))
