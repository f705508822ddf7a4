"""`ogspr sweep run --on slurm` with a real SLURM of two nodes, and everything that happens to jobs there."""

from __future__ import annotations

import time

import pytest

from ogspr.sweep.grid import Grid, Unit
from tests.sweep.cluster_grids import (
    kill,
    learning,
    one_writer,
    runs_in,
    state_of,
    sweep,
    tables_of,
    tiny_grid,
    wait_until,
)
from tests.sweep.grids import TASK
from tests.sweep.slurm_cluster import SlurmCluster, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "SLURM is here")
_SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm") / "cluster")
    yield cluster
    cluster.stop()


def submit(cluster: SlurmCluster, grid: Grid, *words: str) -> str:
    done = sweep(
        "run", grid.source, "--on", "slurm", "--code", TASK, "--slurm.no-gpus", *words, before=cluster.before
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_for_end(cluster: SlurmCluster, grid: Grid, seconds: float = _SECONDS) -> None:
    wait_until(lambda: not cluster.queue(), seconds, "an empty queue")
    assert all(state_of(grid, unit).finished for unit in grid.units), _logs(grid)


def verdicts(grid: Grid, unit: Unit) -> list[str | None]:
    return [attempt.verdict for attempt in state_of(grid, unit).attempts]


def test_a_grid_is_made_by_the_nodes_and_killed_runs_go_on_where_they_were(cluster, tmp_path, undisturbed):
    grid = tiny_grid(tmp_path, ["calm", "killed"])
    calm, killed = grid.units
    with one_writer(grid):
        said = submit(cluster, grid, "--slurm.time=5", "--slurm.cores=2", "--slurm.memory=1")
        assert "submitted 2 units" in said
        wait_until(learning(grid, killed), _SECONDS, "a checkpoint")
        before = state_of(grid, killed)
        kill(*runs_in(killed.folder))
        wait_for_end(cluster, grid)
    assert tables_of(calm) == tables_of(killed) == undisturbed
    assert verdicts(grid, calm) == ["done"]
    assert verdicts(grid, killed) == ["crashed", "done"]
    first, second = state_of(grid, killed).attempts
    assert second.steps >= before.steps
    assert first.node == second.node  # in the same allocation: it does not wait in the queue again


def test_what_is_preempted_or_out_of_time_is_saved_and_goes_on(cluster, tmp_path, undisturbed):
    """One hears the signal that the script asks for before its time is over; SLURM looks at limits only every
    30 seconds. The other is queued again by SLURM itself, as PreemptMode=REQUEUE does."""
    grid = tiny_grid(tmp_path, ["signalled", "requeued"])
    with one_writer(grid):
        submit(cluster, grid)
        wait_until(learning(grid, *grid.units), _SECONDS, "a checkpoint of each")
        before = [state_of(grid, unit).steps for unit in grid.units]
        assert "--signal=B:TERM@120" in (grid.out / "sweep" / "slurm-1.sbatch").read_text()
        cluster.ask("scancel", "--batch", "--signal=TERM", f"{_job(grid)}_0")
        cluster.ask("scontrol", "requeue", f"{_job(grid)}_1")
        wait_for_end(cluster, grid)
    for unit, steps in zip(grid.units, before, strict=True):
        assert verdicts(grid, unit) == ["stopped", "done"]
        assert state_of(grid, unit).attempts[1].steps >= steps
        assert tables_of(unit) == undisturbed


def test_what_a_user_cancels_is_saved_and_does_not_come_back(cluster, tmp_path):
    grid = tiny_grid(tmp_path, ["cancelled"])
    (unit,) = grid.units
    with one_writer(grid):
        submit(cluster, grid)
        wait_until(learning(grid, unit), _SECONDS, "a checkpoint")
        cluster.ask("scancel", _job(grid))
        wait_until(lambda: not cluster.queue(), 30, "an empty queue")
        time.sleep(2)
        assert not cluster.queue()
    assert verdicts(grid, unit) == ["stopped"]


def test_a_sweep_stops_and_goes_on(cluster, tmp_path, undisturbed):
    """Running and waiting elements; with GPUs, of which each node has two."""
    grid = tiny_grid(tmp_path, ["first", "second"])
    first, second = grid.units
    with one_writer(grid):
        submit(cluster, grid, "--slurm.gpus", "--slurm.at-once=1")
        wait_until(learning(grid, first), _SECONDS, "a checkpoint")
        refused = sweep("run", grid.source, "--on", "slurm", "--code", TASK, before=cluster.before)
        assert refused.returncode == 2 and "2 units of this sweep are queued already" in refused.stderr
        stopped = sweep("stop", grid.source, before=cluster.before)
        assert stopped.returncode == 0, stopped.stdout + stopped.stderr
        assert not cluster.queue() and not runs_in(grid.out)
        before = state_of(grid, first).steps
        submit(cluster, grid, "--slurm.gpus")
        wait_for_end(cluster, grid)
    assert verdicts(grid, first) == ["stopped", "done"]
    assert verdicts(grid, second) == ["done"]
    assert state_of(grid, first).attempts[1].steps == before
    assert tables_of(first) == tables_of(second) == undisturbed


def test_a_run_whose_node_dies_goes_on_on_another(cluster, tmp_path, undisturbed):
    grid = tiny_grid(tmp_path, ["moved"])
    (unit,) = grid.units
    with one_writer(grid):
        submit(cluster, grid)
        wait_until(learning(grid, unit), _SECONDS, "a checkpoint")
        before = state_of(grid, unit)
        node = before.attempts[0].node
        cluster.kill_node(node)
        try:
            wait_until(lambda: len(state_of(grid, unit).attempts) > 1, _SECONDS, "a second attempt")
            wait_for_end(cluster, grid)
        finally:
            cluster.start_node(node)
    first, second = state_of(grid, unit).attempts
    assert (first.verdict, second.verdict) == ("lost", "done")
    assert first.node != second.node and second.steps >= before.steps
    assert tables_of(unit) == undisturbed


def test_what_no_node_can_run_is_refused_at_once_and_leaves_nothing(cluster, tmp_path):
    grid = tiny_grid(tmp_path, ["large"])
    done = sweep(
        "run", grid.source, "--on", "slurm", "--code", TASK, "--slurm.memory=1000", before=cluster.before
    )
    assert done.returncode == 2
    assert "sbatch refused the job" in done.stderr and "Traceback" not in done.stderr
    assert not cluster.queue()


def _job(grid: Grid) -> str:
    return (grid.out / "sweep" / "slurm-jobs").read_text().split()[0]


def _logs(grid: Grid) -> str:
    """For whoever has to find out."""
    paths = [path for pattern in ("*.out", "*.log", "*.jsonl") for path in (grid.out / "sweep").glob(pattern)]
    return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in paths)
