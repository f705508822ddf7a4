"""`ogspr probe`: how much of the simulator's state is in what runs have learned to see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.progress import Progress

from ogspr.analysis.grid import PAPER_NAMES, method_names
from ogspr.analysis.runs import checked_folders, read_settings, run_folders
from ogspr.analysis.statistics import Estimate
from ogspr.commands.declared import Probe
from ogspr.commands.policy import Source, open_source
from ogspr.device import Device, configure_threads, resolve_device
from ogspr.envs import ResilientEnvironment, launch
from ogspr.errors import UserError, require_positive
from ogspr.probe.probing import FEWEST_EPISODES, HeadTraining, Loss, encoded, probe_all
from ogspr.probe.recording import Recording, Stage, learned_representation
from ogspr.probe.results import ProbeRow, Summary, draw, figure_paths, summarise, write_rows
from ogspr.records.files import check_csv, check_writable
from ogspr.records.settings_io import differences, plain
from ogspr.training.graph import set_matrix_precision
from ogspr.training.options import Execution
from ogspr.training.saved_run import SavedRun, open_run

_SIDE_BY_SIDE = 10  # environments, at most
_ALL = 10**6
# Nothing here is worth compiling, and what is measured should not depend on rounding.
_EXECUTION = Execution("eager", "fp32", deterministic=True)


@dataclass(frozen=True)
class Collector:
    """A policy that plays episodes to probe with."""

    source: Source
    method: str
    seed: int | None

    def __str__(self) -> str:
        return f"{self.method}, seed {self.seed}"


def probe(wanted: Probe, console: Console) -> list[ProbeRow]:
    """Trains linear predictors of the state on the frozen representations of runs, and compares their losses.

    Each run is probed with episodes of the collectors that have its seed, or of all where none has it. So
    `ogspr probe` on all variants and seeds does what the paper does: a run of seed 42 is probed with what
    the policies of all variants with seed 42 have played. The newest checkpoint of a run is probed.
    """
    require_positive(updates=wanted.updates, batch_size=wanted.batch_size)
    if wanted.episodes < FEWEST_EPISODES:
        raise UserError(f"probing needs at least {FEWEST_EPISODES} episodes, got {wanted.episodes}.")

    def warn(text: str) -> None:
        console.print(f"warning: {text}")

    folders = [folder for path in checked_folders(wanted.runs) for folder in _runs_in(path, warn)]
    device = resolve_device(wanted.device, option="--device")
    configure_threads(device)
    set_matrix_precision(_EXECUTION.precision)
    opened = [open_run(path, warn) for path in folders]
    playing = [folder for path in wanted.collectors for folder in _runs_in(path, warn)] or folders
    known = dict.fromkeys(path for path in (*folders, *playing) if path.is_dir())
    # Every change is in the name: a report may find it next to the names of other probes.
    names = method_names([read_settings(path) for path in known], most_named=_ALL)
    players = [_collector(path, wanted, names) for path in playing]
    _check_alike(opened, players, names)
    if (out := wanted.out) is not None:
        check_csv(out)
        for path in figure_paths(out):
            check_writable(path)
    training = HeadTraining(wanted.updates, wanted.batch_size)
    rows: list[ProbeRow] = []
    with (
        _environments(players[0].source, wanted) as environments,
        _progress(console) as progress,
    ):
        study = _Study(wanted, Stage(environments), training, device, progress, names)
        for group_runs, group_collectors in _groups(opened, players):
            rows += study.rows(group_runs, group_collectors)
            if out is not None:  # after each: what is found is not lost with the next one
                write_rows(
                    out, rows, training, episodes=wanted.episodes, seed=wanted.seed, policy=wanted.policy
                )
    summaries = summarise(rows)
    for line in _table(summaries, rows[0].task):
        console.print(line)
    if out is not None:
        for path in (out, *draw(summaries, rows[0].task, out)):
            console.print(f"written     {path}")
    return rows


@dataclass(frozen=True)
class _Study:
    """Everything that is the same for all runs and collectors."""

    wanted: Probe
    stage: Stage
    training: HeadTraining
    device: Device
    progress: Progress
    names: Mapping[Path, str]  # of the methods of runs

    def rows(self, runs: Sequence[SavedRun], collectors: Sequence[Collector]) -> list[ProbeRow]:
        """Every run on the episodes of every collector; the predictors of all are trained side by side."""
        representations = [learned_representation(run, self.stage.spec, self.device) for run in runs]
        pairs, sets = [], []
        for collector in collectors:
            recordings = self._recordings(collector)
            score = fmean(recording.score for recording in recordings)
            for run, representation in zip(runs, representations, strict=True):
                sets.append([encoded(representation, recording) for recording in recordings])
                pairs.append((run, collector, score))
        bar = self.progress.add_task(f"training {2 * len(sets)} predictors", total=1.0)
        found = probe_all(
            sets,
            self.training,
            self.wanted.seed,
            lambda fraction: self.progress.update(bar, completed=fraction),
        )
        return [
            _row(run, self.names[run.path], collector, score, name, loss)
            for (run, collector, score), losses in zip(pairs, found, strict=True)
            for name, loss in losses.items()
        ]

    def _recordings(self, collector: Collector) -> list[Recording]:
        episodes = self.wanted.episodes
        bar = self.progress.add_task(f"episodes of {collector}", total=episodes)
        policy = collector.source.saved.build(self.device, _EXECUTION)
        recordings = self.stage.play(policy, episodes, lambda over: self.progress.update(bar, completed=over))
        if len(recordings) < FEWEST_EPISODES:
            raise UserError(
                f"{collector}: the simulator failed at once in {episodes - len(recordings)} of "
                f"{episodes} episodes, which leaves too few; use more episodes."
            )
        steps = sum(len(recording) for recording in recordings)
        score = fmean(recording.score for recording in recordings)
        text = f"episodes of {collector}: {steps} steps, mean score {score:.1f}"
        self.progress.console.print(text)
        return recordings


@contextlib.contextmanager
def _environments(source: Source, wanted: Probe) -> Iterator[list[ResilientEnvironment]]:
    start = partial(launch, source.task, options=source.options, worker=wanted.workers)
    environments = [
        ResilientEnvironment(partial(start, seed=wanted.seed + place), lambda _line: None)
        for place in range(min(wanted.episodes, _SIDE_BY_SIDE))
    ]
    try:
        yield environments
    finally:
        for env in environments:
            env.ask_to_close()
        for env in environments:
            env.close()


def _row(run: SavedRun, method: str, collector: Collector, score: float, name: str, loss: Loss) -> ProbeRow:
    return ProbeRow(
        task=run.config.task,
        method=method,
        seed=run.config.seed,
        collector=collector.method,
        collector_seed=collector.seed,
        loss=name,
        found=loss,
        agent_steps=run.agent_steps,
        collector_score=score,
        run=run.path,
    )


def _runs_in(path: Path, warn: Callable[[str], None]) -> list[Path]:
    """The run itself, or those below a folder; a file is its own business."""
    if not path.is_dir():
        return [path]
    found, closed = run_folders(path)
    for place, reason in closed:
        warn(f"{place} {reason}")
    if not found:
        raise UserError(f"{path} is not a run folder and contains none (no config.json or eval.csv).")
    return found


def _collector(path: Path, wanted: Probe, names: Mapping[Path, str]) -> Collector:
    source = open_source(path, wanted)
    origin = source.saved.origin
    preset, seed = str(origin.get("preset", path.stem)), origin.get("seed")
    method = names.get(path, PAPER_NAMES.get(preset, preset))
    return Collector(source, method, seed if type(seed) is int else None)


def _groups(
    runs: Sequence[SavedRun], collectors: Sequence[Collector]
) -> list[tuple[list[SavedRun], list[Collector]]]:
    """Runs that are probed with the same collectors: those of their seed, or all where there is none."""
    groups: dict[tuple[int, ...], list[SavedRun]] = {}
    everyone = range(len(collectors))
    for run in runs:
        own = [place for place in everyone if collectors[place].seed == run.config.seed]
        groups.setdefault(tuple(own or everyone), []).append(run)
    return [(members, [collectors[place] for place in places]) for places, members in groups.items()]


def _check_alike(
    runs: Sequence[SavedRun], collectors: Sequence[Collector], names: Mapping[Path, str]
) -> None:
    """Refuses what cannot be compared, or would be counted twice."""
    tasks = dict.fromkeys([*(run.config.task for run in runs), *(each.source.task for each in collectors)])
    if len(tasks) > 1:
        raise UserError(f"these runs are of different tasks: {', '.join(tasks)}; probe one task at a time.")
    shown = {str(run.path): run.options.env for run in runs} | {
        str(each.source.path): each.source.options for each in collectors
    }
    (first, options), *others = shown.items()
    for other, theirs in others:
        if theirs != options:
            changes = "; ".join(differences(plain(options), plain(theirs)))
            raise UserError(
                f"{other} saw its task differently from {first}: {changes}; probe them separately."
            )
    _refuse_twins([(f"{names[run.path]}, seed {run.config.seed}", run.path) for run in runs])
    _refuse_twins([(str(each), each.source.path) for each in collectors])


def _refuse_twins(named: Sequence[tuple[str, Path]]) -> None:
    seen: dict[str, Path] = {}
    for name, path in named:
        if name in seen:
            raise UserError(f"{seen[name]} and {path} are both {name}; pass one run of each method and seed.")
        seen[name] = path


def _progress(console: Console) -> Progress:
    """Bars in a terminal; elsewhere only the lines that stay."""
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def _table(summaries: Sequence[Summary], task: str) -> list[str]:
    """As lines that no terminal shortens."""
    rows = [("method", "loss", "runs", "squared error", "a dimension", "paper")]
    for summary in summaries:
        several = summary.runs > 1
        rows.append(
            (
                summary.method,
                summary.loss.replace("_", " "),
                str(summary.runs),
                _text(summary.squared_norm, several),
                _text(summary.per_dimension, several),
                _text(summary.paper, interval=True) if summary.paper else "",
            )
        )
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    title = f"{task}: losses on held-out episodes [95 % interval over runs]"
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [title, *(line.rstrip() for line in lines)]


def _text(estimate: Estimate, interval: bool) -> str:
    """One run has no interval: nothing is known about others."""
    spread = f" [{estimate.low:.4g}, {estimate.high:.4g}]" if interval else ""
    return f"{estimate.value:.4g}{spread}"
