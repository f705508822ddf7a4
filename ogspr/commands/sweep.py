"""`ogspr sweep`: many runs as one grid. Its subcommands with their options, each declared once.

Without torch, but to count the GPUs of this machine: everything here is about folders and processes.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ogspr.analysis.runs import plural
from ogspr.commands.declared import SWEEP, Command
from ogspr.commands.train import OwnMethod
from ogspr.envs import is_own_code
from ogspr.errors import RunsFailed, UserError, require_positive
from ogspr.records.files import check_default_place
from ogspr.sweep import slurm
from ogspr.sweep.driver import Launcher, Local, Outcome, drive
from ogspr.sweep.grid import Grid, Unit, read_grid
from ogspr.sweep.plan import Needs, Speeds, fitted, hours_left, needs, speeds_of
from ogspr.sweep.ray import RayCluster, RayOptions
from ogspr.sweep.slurm import SlurmOptions
from ogspr.sweep.state import Condition, SweepFolder, UnitState, last_line
from ogspr.sweep.supervise import Launch, work_through
from ogspr.training.signals import StopRequest

_SHOWN_FAILURES = 20
_REFRESH = 5.0  # seconds
_ASKED = SlurmOptions()
_ASKED_OF_RAY = RayOptions()
_STOP_PATIENCE = 900.0
_GridName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="GRID")]


@dataclass(frozen=True, kw_only=True)
class _OfGrid:
    """What every subcommand has."""

    grid: _GridName
    """A .toml file, or a grid of the paper: table1, table2, table3, table5, table7, humanoid2m."""
    out: Path | None = None
    """Folder for all runs. Default: the one in the grid file, or runs."""
    gpu_memory: float | None = None
    """GPU memory in GB: seeds that do not fit on one GPU together are split into several units.
    Default: that of this machine; without a GPU, all seeds are assumed to fit."""

    def read(self) -> Grid:
        given = self.gpu_memory
        if given is not None and not given > 0:
            raise UserError(f"gpu memory must be above 0, got {given}.")
        found = given * 1e9 if given is not None else _gpu_bytes()
        return fitted(read_grid(self.grid, self.out), found)

    @property
    def words(self) -> list[str]:
        """The same, for another process."""
        words = [self.grid if Path(self.grid).suffix != ".toml" else str(Path(self.grid).resolve())]
        words += ["--out", str(self.out.resolve())] if self.out is not None else []
        return words + (["--gpu-memory", str(self.gpu_memory)] if self.gpu_memory is not None else [])

    @property
    def words_elsewhere(self) -> list[str]:
        """The same, for a machine whose GPU must not decide again which seeds belong together."""
        if self.gpu_memory is not None:
            return self.words
        found = _gpu_bytes()
        return [*self.words, "--gpu-memory", "inf" if found is None else repr(found / 1e9)]


@dataclass(frozen=True, kw_only=True)
class _StartsRuns(_OfGrid):
    """What subcommands that train have besides."""

    hang_minutes: float = 30.0
    """Minutes without a new csv row or checkpoint after which a unit is restarted."""
    code: tuple[str, ...] = ()
    """Tasks of the grid that are your own code, module:factory: confirms that you trust them."""
    method: OwnMethod = None

    def check(self, units: Sequence[Unit]) -> None:
        """A UserError for code that the user has not named: a file alone does not make code run."""
        if not self.hang_minutes > 0:
            raise UserError(f"hang minutes must be above 0, got {self.hang_minutes}.")
        own = sorted({unit.task for unit in units if is_own_code(unit.task)})
        if unnamed := [task for task in own if task not in self.code]:
            raise UserError(
                f"{self.grid} would run the code {', '.join(unnamed)}; if you trust it, say so: "
                f"--code {shlex.join(unnamed)}"
            )

    def launch(self, sweep: SweepFolder) -> Launch:
        words = ("--method", self.method) if self.method is not None else ()
        return Launch(sweep, self.hang_minutes, words)


@dataclass(frozen=True, kw_only=True)
class Plan(_OfGrid):
    """Show what a grid would run, what it needs and what is done already. Starts nothing."""

    gpus: int = 1
    """GPUs to plan for."""
    price: float | None = None
    """Price of one GPU hour, to show what the rest costs."""
    units: bool = False
    """List every unit."""

    def run(self, console: Console) -> int:
        require_positive(gpus=self.gpus)
        grid = self.read()
        states = _states(grid)
        speeds = speeds_of(states)
        found = {state.unit: needs(state.unit, speeds) for state in states}
        if self.units:
            console.print(_unit_table(states, found))
        for line in _summary(grid, states, found, self):
            console.print(line)
        return 0


@dataclass(frozen=True, kw_only=True)
class Run(_StartsRuns):
    """Run what is not done yet. The same command resumes a sweep: the folders are its only state."""

    on: Literal["local", "slurm", "ray"] = "local"
    """local: here, one unit at a time on each GPU. slurm: as array jobs. ray: on a running Ray cluster;
    this process waits until everything is done, and may be killed and started again."""
    slots: int | None = None
    """Units that run at the same time on a machine without a GPU. Default: 1."""
    slurm: SlurmOptions = _ASKED
    """Options of the SLURM jobs."""
    ray: RayOptions = _ASKED_OF_RAY
    """The Ray cluster, and the resources of a unit."""

    def run(self, console: Console) -> int:
        grid = self.read()
        self._check(grid)
        if self.out is None:
            check_default_place(grid.out, f"--out {shlex.quote(str(grid.out))}")
        sweep = SweepFolder(grid.out)
        states = _states(grid)
        speeds = speeds_of(states)
        _check_disk(grid, [needs(state.unit, speeds) for state in states if not state.finished])
        if self.on == "slurm":
            _refuse_queued(sweep)
            sweep.begin(grid.units)
            return self._submit(grid, sweep, speeds, console)
        launcher = self._launcher(sweep, speeds, console)
        sweep.begin(grid.units)
        stop = StopRequest()
        with stop.listening():
            outcome = drive(
                grid.units,
                launcher,
                sweep,
                report=console.print,
                stop=lambda: stop.requested,
                most_hours=lambda unit: needs(unit, speeds).hours,
            )
        if outcome.stopped:
            console.print(f"stopped; the same command resumes: ogspr sweep run {shlex.join(self.words)}")
            stop.raise_if_requested()
            return 0
        return _told(outcome, sweep, console)

    def _check(self, grid: Grid) -> None:
        require_positive(slots=self.slots)
        self.slurm.check()
        self.ray.check()
        self.check(grid.units)

    def _launcher(self, sweep: SweepFolder, speeds: Speeds, console: Console) -> Launcher:
        if self.on == "local":
            return Local(self.launch(sweep), self._slots())
        return RayCluster(self.launch(sweep), self.ray, lambda unit: needs(unit, speeds), console.print)

    def _slots(self) -> list[str | None]:
        devices = _gpus()
        if devices and self.slots is not None:
            raise UserError(
                f"--slots is for machines without a GPU; this one runs {len(devices)} units at once."
            )
        return list(devices) or [None] * (self.slots or 1)

    def _submit(self, grid: Grid, sweep: SweepFolder, speeds: Speeds, console: Console) -> int:
        now = time.time()
        wanted = [state.unit for state in map(sweep.read, grid.units) if state.condition(now) == "waiting"]
        longest_first = sorted(
            ((unit, needs(unit, speeds)) for unit in wanted), key=lambda pair: pair[1].hours, reverse=True
        )
        more = ["--hang-minutes", str(self.hang_minutes)]
        more += ["--method", self.method] if self.method is not None else []
        more += ["--code", *self.code] if self.code else []
        command = slurm.unit_command([*self.words_elsewhere, *more, "--unit"])
        jobs = slurm.submit(longest_first, command, sweep, self.slurm)
        console.print(f"submitted {len(wanted)} units as {', '.join(jobs) or 'no job'}")
        console.print(f"ogspr sweep status {shlex.join(self.words)} shows how far they are")
        return 0


@dataclass(frozen=True, kw_only=True)
class Status(_OfGrid):
    """Show how far a sweep is, from its folders alone: on any machine that sees them."""

    watch: bool = False
    """Keep showing it until everything is done or Ctrl-C."""

    def run(self, console: Console) -> int:
        grid = self.read()
        if not self.watch:
            console.print(_status(grid, _states(grid), console))
            return 0
        with Live(console=console, auto_refresh=False) as live:
            while True:
                states = _states(grid)
                live.update(_status(grid, states, console), refresh=True)
                if all(state.finished for state in states):
                    return 0
                time.sleep(_REFRESH)


@dataclass(frozen=True, kw_only=True)
class Stop(_OfGrid):
    """End a sweep wherever it runs: every run saves, nothing is lost. `ogspr sweep run` resumes it."""

    def run(self, console: Console) -> int:
        grid = self.read()
        sweep = SweepFolder(grid.out)
        if not sweep.path.is_dir():
            raise UserError(f"no sweep has been started in {grid.out}.")
        sweep.stop.touch()
        slurm.cancel_pending(sweep)
        deadline = time.time() + _STOP_PATIENCE
        running = _running(grid)
        console.print(f"stopping {len(running)} units; each saves first")
        while (running or slurm.queued_units(sweep)) and time.time() < deadline:
            time.sleep(0.5)
            running = _running(grid)
        if running:
            raise RunsFailed(f"still running: {', '.join(state.unit.title for state in running)}")
        console.print("stopped")
        return 0


@dataclass(frozen=True, kw_only=True)
class OneUnit(_StartsRuns):
    """Make one unit of a grid here, to its end, with retries: what a node of a cluster runs."""

    unit: str
    """Its id, as `ogspr sweep plan --units` lists it."""

    def run(self, console: Console) -> int:
        grid = self.read()
        by_id = {unit.id: unit for unit in grid.units}
        if self.unit not in by_id:
            raise UserError(f"{self.grid} has no unit {self.unit!r}; `ogspr sweep plan --units` lists them.")
        unit = by_id[self.unit]
        self.check([unit])
        sweep = SweepFolder(grid.out)
        if not sweep.settings(unit).exists():
            sweep.begin([unit])
        stop = StopRequest()
        with stop.listening():
            state = work_through(self.launch(sweep), unit, lambda: stop.requested, console.print)
        if stop.requested and not sweep.stop_requested and not state.finished and slurm.requeue():
            console.print(f"{unit.title} is saved at {state.share:.0%} and queued again")
        stop.raise_if_requested()
        return 0 if state.finished or sweep.stop_requested else 1


COMMANDS: dict[str, type[Command]] = {
    "plan": Plan,
    "run": Run,
    "status": Status,
    "stop": Stop,
    "unit": OneUnit,
}
ABOUT = SWEEP


def _refuse_queued(sweep: SweepFolder) -> None:
    """Before anything is changed: a stop in progress must not be forgotten."""
    slurm.require_sbatch()
    if queued := slurm.queued_units(sweep):
        raise UserError(f"{queued} units of this sweep are queued already; `ogspr sweep stop` ends them.")


# --- what is shown -------------------------------------------------------------------------------------


def _states(grid: Grid) -> list[UnitState]:
    sweep = SweepFolder(grid.out)
    return [sweep.read(unit) for unit in grid.units]


def _running(grid: Grid) -> list[UnitState]:
    now = time.time()
    return [state for state in _states(grid) if state.running(now)]


def _summary(grid: Grid, states: Sequence[UnitState], found: dict[Unit, Needs], plan: Plan) -> list[str]:
    done = sum(state.finished for state in states)
    runs = sum(len(state.unit.seeds) for state in states)
    all_hours = sum(each.hours for each in found.values())
    left = sum((1.0 - state.share) * found[state.unit].hours for state in states)
    peak = sorted((needs.peak_disk_bytes for needs in found.values()), reverse=True)[: plan.gpus]
    longest = max((found[state.unit].hours for state in states if not state.finished), default=0.0)
    sources = Counter(needs.source for needs in found.values())
    lines = [
        f"{grid.source}: {plural(len(states), 'unit')}, {plural(runs, 'run')}, in {grid.out}",
        f"done        {plural(done, 'unit')}",
        f"GPU hours   {left:.1f} left of {all_hours:.1f}",
        f"time        about {max(left / plan.gpus, longest):.1f} hours on {plural(plan.gpus, 'GPU')}",
        "speed       " + "; ".join(f"{source} ({count} units)" for source, count in sources.most_common()),
    ]
    if plan.price is not None:
        lines.append(f"price       {left * plan.price:.0f} for what is left")
    most = max(found.values(), key=lambda needs: needs.gpu_bytes)
    lines += [
        f"a unit      up to {most.gpu_bytes / 1e9:.0f} GB of GPU memory, "
        f"{max(n.cores for n in found.values())} cores, "
        f"{max(n.memory_bytes for n in found.values()) / 1e9:.0f} GB of main memory",
        f"disk        {sum(peak) / 1e9:.0f} GB with {plural(plan.gpus, 'unit')} running, "
        f"{sum(n.kept_disk_bytes for n in found.values()) / 1e9:.0f} GB when all are done",
    ]
    return lines


def _unit_table(states: Sequence[UnitState], found: dict[Unit, Needs]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column, justify in (("unit", "left"), ("seeds", "left"), ("done", "right"), ("hours", "right")):
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("GPU GB", justify="right")
    for state in states:
        unit = state.unit
        seeds = " ".join(map(str, unit.seeds))
        gigabytes = f"{found[unit].gpu_bytes / 1e9:.0f}"
        table.add_row(unit.id, seeds, f"{state.share:.0%}", f"{found[unit].hours:.2f}", gigabytes)
    return table


def _status(grid: Grid, states: Sequence[UnitState], console: Console) -> Group | Text:
    """Tasks x methods; in a file or a pipe, a line for each unit."""
    now = time.time()
    conditions = {state.unit: state.condition(now) for state in states}
    counts = Counter(conditions.values())
    order: tuple[Condition, ...] = ("done", "running", "waiting", "failed")
    left = hours_left(states, speeds_of(states))
    line = ", ".join(f"{counts[condition]} {condition}" for condition in order if counts[condition])
    head = Text(f"{grid.source} in {grid.out}: {line}; {left:.1f} GPU hours left")
    failed = [state for state in states if conditions[state.unit] == "failed"]
    troubled = [state for state in states if conditions[state.unit] != "failed" and state.reason]
    sweep = SweepFolder(grid.out)
    tail = [
        Text(
            f"{conditions[state.unit]} {state.unit.title}: {state.reason}; {sweep.log(state.unit)}: "
            f"{last_line(sweep.log(state.unit))}"
        )
        for state in (failed + troubled)[:_SHOWN_FAILURES]
    ]
    if not console.is_terminal:
        lines = [Text(f"{_cell(state, conditions[state.unit])} {state.unit.title}") for state in states]
        return Group(head, *lines, *tail)
    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(state.unit.name + state.unit.part for state in states))
    table.add_column("task")
    for name in names:
        table.add_column(name, justify="right")
    cells = {(state.unit.task, state.unit.name + state.unit.part): state for state in states}
    for task in dict.fromkeys(state.unit.task for state in states):
        row = [cells.get((task, name)) for name in names]
        table.add_row(task, *(_cell(each, conditions[each.unit]) if each else "" for each in row))
    return Group(head, table, *tail)


def _cell(state: UnitState, condition: Condition) -> str:
    return (
        f"{condition} {state.share:.0%}" if condition in ("running", "failed") or state.steps else condition
    )


def _told(outcome: Outcome, sweep: SweepFolder, console: Console) -> int:
    """How a sweep ended; fails where a unit has."""
    failed = outcome.of("failed")
    done = outcome.of("done")
    console.print(f"{len(done)} of {len(outcome.states)} units are done")
    for state in failed[:_SHOWN_FAILURES]:
        log = sweep.log(state.unit)
        console.print(f"failed {state.unit.title}: {state.reason}; {log}: {last_line(log)}")
    if len(done) < len(outcome.states):
        raise RunsFailed(f"{plural(len(failed), 'unit')} failed; `ogspr sweep run` tries them again.")
    return 0


# --- this machine ----------------------------------------------------------------------------------------


def _check_disk(grid: Grid, wanted: Sequence[Needs]) -> None:
    """Refuses what cannot fit even one unit at a time."""
    if not wanted:
        return
    existing = next(folder for folder in (grid.out.resolve(), *grid.out.resolve().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    needed = max(each.peak_disk_bytes for each in wanted)
    if needed > free:
        raise UserError(
            f"one unit takes up to {needed / 1e9:.1f} GB of disk while it runs, and {existing} has "
            f"{free / 1e9:.1f} free; choose another --out, or options = {{ replay.capacity = ... }}."
        )


def _gpus() -> list[str]:
    """CUDA devices of this machine that may be used, by number."""
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def _gpu_bytes() -> float | None:
    """Memory of the smallest GPU of this machine, by its driver: planning need not wait for torch."""
    if shutil.which("nvidia-smi") is None:
        return None
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    sizes = [float(word) for word in done.stdout.split() if word.isdigit()]
    return min(sizes) * 2**20 if done.returncode == 0 and sizes else None
