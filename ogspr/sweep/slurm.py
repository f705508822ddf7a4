"""Units as SLURM array jobs: a readable sbatch script, and nothing besides sbatch, squeue and scancel.

An element of the array makes its unit to the end, with retries, and queues itself again when it is preempted
or its time is over. What is missing in the end is started by the same `ogspr sweep run` again.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ogspr.errors import UserError, require_positive
from ogspr.records.files import write_atomic
from ogspr.sweep.grid import Unit
from ogspr.sweep.plan import Needs
from ogspr.sweep.state import SweepFolder

_MOST_ELEMENTS = 1000  # of an array: SLURM's own limit unless a site has changed it


@dataclass(frozen=True)
class SlurmOptions:
    """Options of the SLURM jobs."""

    options: tuple[str, ...] = ()
    """Other options of sbatch, without dashes: partition=gpu account=x."""
    time: str = "1-00:00:00"
    """Time limit of an array element, as for sbatch; unfinished units are saved and queued again."""
    grace: int = 120
    """Seconds before the time limit at which an element starts to save."""
    at_once: int | None = None
    """Elements that may run at the same time. Default: as many as the site allows."""
    gpus: bool = True
    """Ask for one GPU for each unit."""
    cores: int | None = None
    """CPU cores of an element. Default: 4, and 2 more for each seed."""
    memory: float | None = None
    """GB of main memory of an element. Default: 6, and 3 more for each seed."""

    def check(self) -> None:
        """Refuses what sbatch would, or what would break the script."""
        require_positive(
            **{"slurm.cores": self.cores, "slurm.at-once": self.at_once, "slurm.grace": self.grace}
        )
        if self.memory is not None and not self.memory > 0:
            raise UserError(f"slurm.memory must be above 0, got {self.memory}.")
        if any(not word.isprintable() for word in (self.time, *self.options)):
            raise UserError("options of sbatch must be of one line each.")

    def cores_and_megabytes(self, needs: Needs) -> tuple[int, int]:
        """Of an element."""
        memory = self.memory * 1e9 if self.memory is not None else needs.memory_bytes
        return self.cores or needs.cores, max(1, int(memory / 1e6))


def submit(
    units: Sequence[tuple[Unit, Needs]],
    command: Sequence[str],
    sweep: SweepFolder,
    options: SlurmOptions,
) -> list[str]:
    """Submits every unit, or none where one job is refused; the ids of the jobs.

    Args:
        units: Those that are to run, in order, with what each takes.
        command: Makes a unit whose id is added to it.
    """
    jobs: list[str] = []
    groups: dict[tuple[int, int], list[Unit]] = {}
    for unit, needs in units:
        groups.setdefault(options.cores_and_megabytes(needs), []).append(unit)
    for (cores, megabytes), members in groups.items():
        for first in range(0, len(members), _MOST_ELEMENTS):
            part = members[first : first + _MOST_ELEMENTS]
            script = _new_script(sweep)
            text = script_text(part, command, script, cores, megabytes, options)
            write_atomic(script, text.encode())
            try:
                jobs.append(_output("sbatch", "--parsable", str(script)).split(";")[0].strip())
            except UserError:
                _cancel(jobs)
                raise
            # At once: a process killed here must not leave a job that no one knows of. Earlier jobs are over.
            write_atomic(_jobs_file(sweep), ("\n".join(jobs) + "\n").encode())
    return jobs


def _new_script(sweep: SweepFolder) -> Path:
    """Its whole path: SLURM puts the output next to it, from wherever a node is."""
    numbers = [int(path.stem.removeprefix("slurm-")) for path in sweep.path.glob("slurm-[0-9]*.sbatch")]
    return sweep.path.resolve() / f"slurm-{max(numbers, default=0) + 1}.sbatch"


def script_text(
    units: Sequence[Unit],
    command: Sequence[str],
    script: Path,
    cores: int,
    megabytes: int,
    options: SlurmOptions,
) -> str:
    limit = f"%{options.at_once}" if options.at_once else ""
    asked = [
        "--job-name=ogspr",
        f"--array=0-{len(units) - 1}{limit}",
        f"--cpus-per-task={cores}",
        f"--mem={megabytes}M",
        f"--time={options.time}",
        f"--signal=B:TERM@{options.grace}",
        "--requeue",
        "--open-mode=append",
        f"--output={script.with_suffix('')}-%a.out",
        *(["--gres=gpu:1"] if options.gpus else []),
        *(f"--{word.lstrip('-')}" for word in options.options),
    ]
    ids = "\n".join(f"    {shlex.quote(unit.id)}" for unit in units)
    lines = "\n".join(f"#SBATCH {option}" for option in asked)
    return f"""#!/bin/bash
# Written by `ogspr sweep run --on slurm`: one unit of the sweep for each element.
{lines}

units=(
{ids}
)
cd {shlex.quote(str(Path.cwd()))} || exit 74
exec {shlex.join(command)} "${{units[$SLURM_ARRAY_TASK_ID]}}"
"""


def unit_command(words: Sequence[str]) -> list[str]:
    """What an element runs: this Python, wherever the node has it."""
    return [sys.executable, "-P", "-m", "ogspr", "sweep", "unit", *words]


def requeue(environment: Mapping[str, str] = os.environ) -> bool:
    """Queues this element again; whether it was one and that worked.

    Only where it would run on but for a signal: a job that was cancelled must not come back, and what
    SLURM preempts it queues again by itself.
    """
    job, element = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    if job is None or element is None or shutil.which("scontrol") is None:
        return False
    name = f"{job}_{element}"
    state = _run("squeue", "--noheader", "--format=%T", f"--jobs={name}").stdout.strip()
    return state == "RUNNING" and _run("scontrol", "requeue", name).returncode == 0


def cancel_pending(sweep: SweepFolder) -> None:
    """Takes out of the queue what has not begun. What runs sees the stop by itself and saves."""
    if shutil.which("scancel") is not None:
        _cancel(known_jobs(sweep), "--state=PENDING")


def queued_units(sweep: SweepFolder) -> int:
    """Elements that are queued or run; 0 if that is unknown."""
    jobs = known_jobs(sweep)
    if not jobs or shutil.which("squeue") is None:
        return 0
    done = _run("squeue", "--noheader", "--array", "--format=%i", f"--jobs={','.join(jobs)}")
    return len(done.stdout.split()) if done.returncode == 0 else 0


def known_jobs(sweep: SweepFolder) -> list[str]:
    """The jobs of this sweep, as far as they were submitted from here."""
    try:
        words = _jobs_file(sweep).read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [word for word in words if word.isdigit()]


def _jobs_file(sweep: SweepFolder) -> Path:
    return sweep.path / "slurm-jobs"


def require_sbatch() -> None:
    if shutil.which("sbatch") is None:
        raise UserError("sbatch is not found; use --on slurm on a login node, or --on local.")


def _cancel(jobs: Sequence[str], *options: str) -> None:
    if jobs:
        _run("scancel", *options, *jobs)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _output(*command: str) -> str:
    done = _run(*command)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UserError(f"{command[0]} refused the job: {'; '.join(lines)}")
    return done.stdout
