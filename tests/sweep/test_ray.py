"""`ogspr sweep run --on ray` with a real cluster on this machine: a head and three nodes, on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ogspr.sweep.driver import drive
from ogspr.sweep.grid import Grid, Unit
from ogspr.sweep.ray import RayCluster, RayOptions
from ogspr.sweep.state import SweepFolder
from ogspr.sweep.supervise import Launch
from tests.helpers.trajectories import ROOT
from tests.sweep.cluster_grids import (
    ENVIRONMENT,
    kill,
    learning,
    one_writer,
    parent_of,
    runs_in,
    state_of,
    sweep,
    tables_of,
    tiny_grid,
    tree_below,
    wait_until,
)
from tests.sweep.grids import TASK

# Read when Ray is imported: without it, daemons listen on all addresses of the machine.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
_STORE = 80 * 2**20
_SECONDS = 120.0


@pytest.fixture(scope="module")
def cluster():
    before = {name: os.environ.get(name) for name in (*LOOPBACK, "PYTHONPATH")}
    os.environ.update(LOOPBACK, PYTHONPATH=str(ROOT))
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'ogspr[ray]'")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "num_gpus": 0, "object_store_memory": _STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(3):
        add_node(cluster)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


def add_node(cluster):
    return cluster.add_node(num_cpus=1, num_gpus=0, object_store_memory=_STORE)


@contextmanager
def driver(cluster, grid: Grid):
    """`sweep run` in a process of its own, which is gone in the end."""
    words = ["run", grid.source, "--on", "ray", "--ray.address", cluster.address]
    words += ["--ray.no-gpus", "--ray.cores", "1", "--code", TASK]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ogspr", "sweep", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT | LOOPBACK,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def finish(process: subprocess.Popen, code: int = 0) -> str:
    output, _ = process.communicate(timeout=_SECONDS)
    assert process.returncode == code, output
    return output


def run_of(unit: Unit) -> int:
    """The process that trains; Ray's worker stands two above it, behind the guard."""
    return wait_until(lambda: runs_in(unit.folder), 30, "a run")[0]


def verdicts(grid: Grid, unit: Unit) -> list[str | None]:
    return [attempt.verdict for attempt in state_of(grid, unit).attempts]


def raylet_above(pid: int, cluster):
    """The node on which a process runs."""
    above = {pid}
    while pid > 1:
        pid = parent_of(pid)
        above.add(pid)
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in cluster.worker_nodes}
    return next(node for raylet, node in raylets.items() if raylet in above)


def test_runs_go_on_whatever_dies(cluster, tmp_path, undisturbed):
    """A run, a worker of Ray and a whole node, each at a unit of its own; and a node comes."""
    grid = tiny_grid(tmp_path, ["run", "worker", "node", "last"])
    run, worker, node, last = grid.units
    with one_writer(grid), driver(cluster, grid) as process:
        wait_until(learning(grid, run, worker, node), _SECONDS, "a checkpoint of each")
        before = {unit: state_of(grid, unit).steps for unit in (run, worker, node)}
        kill(run_of(run))
        kill(parent_of(parent_of(run_of(worker))))
        victim = raylet_above(run_of(node), cluster)
        raylet = victim.all_processes["raylet"][0].process
        kill(raylet.pid)
        raylet.wait()  # one that nobody has buried counts as alive
        add_node(cluster)
        said = finish(process)
    assert "4 of 4 units are done" in said and "RAY_AUTH_MODE" in said
    assert verdicts(grid, run) == ["crashed", "done"]
    assert verdicts(grid, worker) == verdicts(grid, node) == ["lost", "done"]
    assert verdicts(grid, last) == ["done"]
    for unit in grid.units:
        assert tables_of(unit) == undisturbed
    for unit, steps in before.items():
        assert state_of(grid, unit).attempts[1].steps >= steps


def test_a_driver_may_die(cluster, tmp_path, undisturbed):
    grid = tiny_grid(tmp_path, ["first", "second"])
    with one_writer(grid):
        with driver(cluster, grid) as process:
            wait_until(learning(grid, *grid.units), _SECONDS, "a checkpoint of each")
            before = [state_of(grid, unit).steps for unit in grid.units]
            process.kill()
        wait_until(lambda: not runs_in(grid.out), 30, "the runs have saved")
        with driver(cluster, grid) as process:
            finish(process)
    for unit, steps in zip(grid.units, before, strict=True):
        assert state_of(grid, unit).attempts[1].steps >= steps
        assert verdicts(grid, unit) == ["lost", "done"]
        assert tables_of(unit) == undisturbed


def test_a_sweep_stops_and_goes_on(cluster, tmp_path, undisturbed):
    grid = tiny_grid(tmp_path, ["stopped"])
    (unit,) = grid.units
    with one_writer(grid):
        with driver(cluster, grid) as process:
            wait_until(learning(grid, unit), _SECONDS, "a checkpoint")
            process.send_signal(signal.SIGINT)
            finish(process, 128 + signal.SIGINT)
        assert verdicts(grid, unit) == ["stopped"]
        saved = state_of(grid, unit).steps
        with driver(cluster, grid) as process:
            finish(process)
    assert state_of(grid, unit).attempts[1].steps == saved
    assert tables_of(unit) == undisturbed


def test_a_node_that_hangs_is_not_waited_for(cluster, tmp_path, undisturbed):
    """All of it stands still and comes back when another node has the unit: the lock keeps the two apart."""
    import ray

    grid = tiny_grid(tmp_path, ["hangs"])
    (unit,) = grid.units
    folder = SweepFolder(grid.out)
    folder.begin(grid.units)
    options = RayOptions(cluster.address, gpus=False, cores=1)
    launcher = RayCluster(Launch(folder), options, lambda _: None, print, silence=15.0)
    with one_writer(grid):
        try:
            driving = threading.Thread(target=drive_quietly, args=(grid, launcher, folder))
            driving.start()
            wait_until(learning(grid, unit), _SECONDS, "a checkpoint")
            run = run_of(unit)
            worker = parent_of(parent_of(run))
            node = raylet_above(run, cluster).all_processes["raylet"][0].process.pid
            hung = (node, worker, run)
            before = state_of(grid, unit).steps
            for pid in hung:
                os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: len(state_of(grid, unit).attempts) > 1, 60, "a second attempt")
            for pid in hung:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            driving.join(_SECONDS)
        finally:
            ray.shutdown()
    assert not driving.is_alive()
    assert verdicts(grid, unit)[-1] == "done"
    assert state_of(grid, unit).attempts[1].steps >= before
    assert tables_of(unit) == undisturbed


def drive_quietly(grid: Grid, launcher: RayCluster, folder: SweepFolder) -> None:
    drive(grid.units, launcher, folder, report=print, stop=lambda: False, most_hours=lambda _: 1.0)


@pytest.mark.usefixtures("cluster")
def test_everything_listens_on_loopback_alone():
    """All that the test has started, by the tables of the system."""
    sockets = set()
    for pid in tree_below(os.getpid()):
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    sockets.add(str(link.readlink()))
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:  # it listens
                addresses.add(words[1].partition(":")[0])
    loopback = {"0100007F", "0" * 24 + "01000000", "0000000000000000FFFF00000100007F"}
    assert addresses and addresses <= loopback


def test_a_cluster_that_does_not_answer_is_a_line(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'ogspr[ray]'")
    grid = tiny_grid(tmp_path, ["nowhere"])
    done = sweep("run", grid.source, "--on", "ray", "--ray.address", "127.0.0.1:1", "--code", TASK)
    assert done.returncode == 2
    assert "no Ray cluster answers at 127.0.0.1:1" in done.stderr and "Traceback" not in done.stderr


def test_ray_that_is_missing_is_a_line(tmp_path, ogspr_here, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    grid = tiny_grid(tmp_path, ["nowhere"])
    done = ogspr_here("sweep", "run", grid.source, "--on", "ray", "--code", TASK)
    assert done.returncode == 2 and "pip install 'ogspr[ray]'" in done.stderr
    assert not (grid.out / "sweep").exists()
