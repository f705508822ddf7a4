"""Whole runs on a GPU. Needs one: `pytest -m gpu`."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from ogspr.errors import UserError
from ogspr.training.options import ComputeOptions, Execution, ReplayOptions
from tests.helpers.trajectories import ROOT
from tests.training.learners import CONTINUOUS, OTHER_METHODS, make_learner, metrics, updated
from tests.training.runs import TABLES, assert_same_run, request, tiny_options, train
from tests.training.test_runs import stopped_run

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def settings_of_the_process():
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    yield
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = before


def on_gpu(**changes):
    """Wide enough for the kernels that real runs use."""
    agent = tiny_options().agent
    sizes = replace(agent.sizes, encoder_channels=16, features=32, latent=32, representation=32)
    compute = ComputeOptions(device="cuda", deterministic=True)
    return {"agent": replace(agent, sizes=sizes), "compute": compute} | changes


OTHERS = {name: replace(config, random_steps=30, shift_pad=2) for name, config in OTHER_METHODS.items()}


@pytest.mark.parametrize("method", [None, *OTHERS], ids=["ogspr", *OTHERS])
@pytest.mark.parametrize("place", ["device", "pinned"])
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(tmp_path, place, method):
    options = on_gpu(replay=ReplayOptions(place=place)) | ({"agent": OTHERS[method]} if method else {})
    train(request(tmp_path / "unbroken", **options))
    folder = stopped_run(tmp_path / "stopped", 20, 25, 30, **options)
    train(request(tmp_path / "stopped", **options))
    assert_same_run(folder, tmp_path / "unbroken" / "seed-0")


def test_seeds_side_by_side_equal_each_alone(tmp_path):
    train(request(tmp_path / "both", seeds=(0, 7), **on_gpu()))
    for seed in (0, 7):
        train(request(tmp_path / "alone", seeds=(seed,), **on_gpu()))
        ours, alone = (tmp_path / where / f"seed-{seed}" for where in ("both", "alone"))
        for name in TABLES:
            assert (ours / name).read_text() == (alone / name).read_text()


def one_update(channels: int) -> None:
    """The program of the test below."""
    spec = replace(CONTINUOUS, frame_shape=(channels, 36, 36))
    learner = make_learner(execution=Execution("graph", "bf16"), device="cuda", spec=spec)
    updated(learner)
    assert metrics(learner)["failed_updates"] == 0


def test_kernels_kept_from_one_task_serve_the_next(tmp_path):
    """As when Pong is followed by cheetah-run: some weights have the same shape and begin elsewhere."""
    kept = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    for channels in (1, 3):
        program = f"from tests.training.test_gpu_runs import one_update; one_update({channels})"
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=kept, check=True, timeout=300)


def test_a_run_of_the_gpu_is_not_continued_on_a_cpu(tmp_path):
    stopped_run(tmp_path, 40, **on_gpu())
    with pytest.raises(UserError, match=r"compute\.device: 'cpu' was 'cuda'"):
        train(request(tmp_path, **on_gpu(compute=ComputeOptions(device="cpu"))))
