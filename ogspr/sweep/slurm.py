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

from ogspr.errors import UserError
from ogspr.records.files import write_atomic
from ogspr.sweep.grid import Unit
from ogspr.sweep.plan import Needs
from ogspr.sweep.state import SweepFolder

_MOST_ELEMENTS = 1000  # of an array: SLURM's own limit unless a site has changed it
_GRACE = 120  # seconds before its time is over in which an element saves


@dataclass(frozen=True)
class SlurmOptions:
    """What a site wants to hear."""

    options: tuple[str, ...] = ()
    """More options of sbatch, such as --partition=gpu --account=x."""
    time: str = "1-00:00:00"
    """Time limit of an element, as sbatch takes it; units go on in another element."""
    at_once: int | None = None
    """Elements that may run at the same time; by default as many as the site allows."""
    gpus: bool = True
    """Ask for one GPU for each unit."""


def submit(
    units: Sequence[tuple[Unit, Needs]],
    command: Sequence[str],
    sweep: SweepFolder,
    options: SlurmOptions,
) -> list[str]:
    """Submits every unit; the ids of the jobs.

    Args:
        units: Those that are to run, in order, with what each takes.
        command: Makes a unit whose id is added to it.
    """
    _require("sbatch")
    jobs = []
    groups: dict[tuple[int, int], list[Unit]] = {}
    for unit, needs in units:
        groups.setdefault((needs.cores, int(needs.memory_bytes / 1e6)), []).append(unit)
    for (cores, megabytes), members in groups.items():
        for first in range(0, len(members), _MOST_ELEMENTS):
            part = members[first : first + _MOST_ELEMENTS]
            number = len(list(sweep.path.glob("slurm-*.sbatch"))) + 1
            script = sweep.path / f"slurm-{number}.sbatch"
            text = script_text(part, command, script, cores, megabytes, options)
            write_atomic(script, text.encode())
            jobs.append(_output("sbatch", "--parsable", str(script)).split(";")[0].strip())
    write_atomic(sweep.path / "slurm-jobs", ("\n".join([*known_jobs(sweep), *jobs]) + "\n").encode())
    return jobs


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
        f"--signal=B:TERM@{_GRACE}",
        "--requeue",
        "--open-mode=append",
        f"--output={script.with_suffix('')}-%a.out",
        *(["--gres=gpu:1"] if options.gpus else []),
        *options.options,
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
    """Queues this element again; whether it was one and that worked."""
    job, element = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    if job is None or element is None or shutil.which("scontrol") is None:
        return False
    done = subprocess.run(["scontrol", "requeue", f"{job}_{element}"], capture_output=True, check=False)
    return done.returncode == 0


def cancel_pending(sweep: SweepFolder) -> None:
    """Takes out of the queue what has not begun. What runs sees the stop by itself and saves."""
    for job in known_jobs(sweep):
        subprocess.run(["scancel", "--state=PENDING", job], capture_output=True, check=False)


def queued_units(sweep: SweepFolder) -> int:
    """Elements that are queued or run; 0 where nobody can say."""
    jobs = known_jobs(sweep)
    if not jobs or shutil.which("squeue") is None:
        return 0
    done = subprocess.run(
        ["squeue", "--noheader", "--array", "--format=%i", f"--jobs={','.join(jobs)}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return len(done.stdout.split()) if done.returncode == 0 else 0


def known_jobs(sweep: SweepFolder) -> list[str]:
    """The jobs of this sweep, as far as they were submitted from here."""
    try:
        words = (sweep.path / "slurm-jobs").read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [word for word in words if word.isdigit()]


def _require(program: str) -> None:
    if shutil.which(program) is None:
        raise UserError(f"{program} is not found; use --on slurm on a login node, or --on local.")


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"{command[0]} refused the job: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
