"""Tables, csv files and commands of all benchmarks, and the program that runs them."""

import os
import subprocess
import sys

import pytest

from benchmarks.harness import command_line, hardware
from ogspr.errors import UserError
from tests.benchmarks.reports import make_report
from tests.helpers.trajectories import ROOT

ROWS = [{"name": "a", "number": 1.23456789, "count": 3, "none": None}]


def test_the_csv_file_names_the_hardware_and_has_its_command_next_to_it(tmp_path):
    report = make_report(tmp_path / "deep" / "x.csv")
    report.begin("a machine")
    report.save(ROWS)
    report.save([*ROWS, ROWS[0] | {"number": 1e-9}])
    assert (tmp_path / "deep" / "x.csv").read_text().splitlines() == [
        "name,number,count,none,hardware",
        "a,1.23457,3,,a machine",
        "a,1e-09,3,,a machine",
    ]
    assert (tmp_path / "deep" / "x.command").read_text() == "python -m benchmarks this\n"


def test_commands_of_earlier_calls_stay_where_their_rows_do(tmp_path):
    (tmp_path / "x.command").write_text("python -m benchmarks before\n")
    report = make_report(tmp_path / "x.csv")
    report.save(ROWS, earlier_commands=True)
    expected = "python -m benchmarks before\npython -m benchmarks this\n"
    assert (tmp_path / "x.command").read_text() == expected
    report.save(ROWS)
    assert (tmp_path / "x.command").read_text() == "python -m benchmarks this\n"


def test_a_table_shows_the_columns_that_are_named():
    report = make_report()
    report.show(ROWS, {"number": "n", "none": "nothing", "name": "who"}, "all", digits=1)
    title, headings, row = report.console.file.getvalue().splitlines()
    assert title.split() == ["all"]
    assert headings.split() == ["n", "nothing", "who"]
    assert row.split() == ["1.2", "a"]


def test_a_command_names_what_the_user_set(monkeypatch):
    for name in ("MUJOCO_GL", "LP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert command_line("prog", ["env", "a b"]) == "prog env 'a b'"
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert command_line("prog", ["env"]) == "MUJOCO_GL=osmesa prog env"


def test_the_machine_is_described_with_its_code():
    assert hardware().startswith(f"{os.cpu_count()} cores, ")
    assert ", ogspr " in hardware()


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    with pytest.raises(UserError, match=r"must end in \.csv"):
        make_report(tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("env examples.chase:make --out docs", "cannot write docs"),
        ("env examples.chase:make --out README.md/x.csv", "cannot write README.md"),
        ("env", "name at least one environment"),
        ("env atari:Pong --steps 0", "steps must be at least 1"),
        ("nev", "unknown command 'nev'; did you mean env"),
        ("precision docs", "docs is not a run folder (no config.json). Pass the folder of a run."),
        ("random dmc:walker-wlak", "did you mean dmc:walker-walk"),
        ("random dmc:walker-walk --episodes 0", "episodes must be at least 1"),
        ("train --methods ogspr mrqq", "unknown preset 'mrqq'; did you mean mrq"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(command, expected, program_here):
    done = program_here("benchmarks", *command.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_it_runs_from_the_root_of_a_checkout(tmp_path):
    out = tmp_path / "env.csv"
    arguments = ("env", "examples.chase:make", "--steps", "2", "--rounds", "1", "--out", str(out))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"written to {out}" in done.stdout
    command = out.with_suffix(".command").read_text().rstrip()
    assert command.endswith(f"python -m benchmarks {' '.join(arguments)}")
