"""What `make install` shows of pip, with one that is only pretended."""

import os
import subprocess

import pytest

from tests.helpers.trajectories import ROOT

PIP = """#!/bin/sh
cat <<END
Looking in links: /somewhere
Collecting torch==2.13.0 (from -c constraints.txt (line 63))
  Downloading torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl (899.8 MB)
Collecting six
  Using cached six-1.17.0-py2.py3-none-any.whl (11 kB)
  Downloading jinja2-3.1.6-py3-none-any.whl (1.3 MB)
  Using cached nvidia_cublas-13.1-py3-none-manylinux_2_27_x86_64.whl (1234.5 MB)
Installing collected packages: six, torch
Successfully installed six-1.17.0 torch-2.13.0
END
echo "WARNING: Location '/somewhere' is ignored: it is neither a file nor a directory." >&2
echo "WARNING: something else" >&2
for package; do :; done  # the last word
[ "$package" = fine ] || { echo "ERROR: No matching distribution found for $package" >&2; exit 7; }
"""


@pytest.fixture
def install(tmp_path):
    python = tmp_path / "python"
    python.write_text(PIP)
    python.chmod(0o755)

    def run(package: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [ROOT / "scripts" / "pip-install", package],
            env=os.environ | {"PYTHON": str(python)},
            capture_output=True,
            text=True,
        )

    return run


def test_large_downloads_are_shown_and_nothing_of_the_rest(install):
    done = install("fine")
    assert done.returncode == 0
    assert [line.strip() for line in done.stdout.splitlines()] == [
        "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl (899.8 MB)",
        "nvidia_cublas-13.1-py3-none-manylinux_2_27_x86_64.whl (1234.5 MB)",
        "unpacking",
        "WARNING: something else",
    ]
    assert done.stderr == ""


def test_what_goes_wrong_is_shown_with_all_that_led_to_it(install):
    done = install("nonsense")
    assert done.returncode == 7
    assert done.stderr.startswith("Looking in links: /somewhere\nCollecting torch==2.13.0")
    assert done.stderr.endswith("\nERROR: No matching distribution found for nonsense\n")


def test_make_says_what_it_is_about_to_do():
    """The command is written down, not run: with --always-make, as if nothing were installed."""
    done = subprocess.run(
        ["make", "--always-make", "--dry-run", "install"], cwd=ROOT, capture_output=True, text=True
    )
    steps = [line for line in done.stdout.splitlines() if "version_info" not in line]
    stages = [place for place, line in enumerate(steps) if line.startswith('echo "') and " of 3  " in line]
    assert [steps[place].split('"')[1][:8] for place in stages] == ["1 of 3  ", "2 of 3  ", "3 of 3  "]
    assert [steps[place + 1].split()[-1] for place in stages] == [".venv", "torch", "'.[all,dev]'"]
