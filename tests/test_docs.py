"""What the documentation says is what the files say."""

import csv
import re
import shlex
import subprocess
import sys
from functools import cache
from statistics import mean, stdev

import pytest

from ogspr.reference import read_table
from tests.helpers.trajectories import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def test_the_tables_in_the_docs_come_from_the_results():
    command = [sys.executable, str(ROOT / "scripts" / "update-docs"), "--check"]
    assert subprocess.run(command).returncode == 0, "run scripts/update-docs"


def test_the_published_spread_is_that_of_the_runs_that_ship():
    """Where they ship: DrQ-v2's."""
    runs: dict[tuple[str, str], list[float]] = {}
    for row in read_table("published/dmc_pixel_curves.csv"):
        if row["method"] == "DrQ-v2":
            runs.setdefault((f"dmc:{row['task']}", row["env_steps"]), []).append(float(row["score"]))
    with (ROOT / "results" / "published" / "spread.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "DrQ-v2"]
    assert len(rows) == 18
    for row in rows:
        scores = runs[row["task"], row["agent_steps"]]
        assert int(row["runs"]) == len(scores)
        assert float(row["mean"]) == pytest.approx(mean(scores), abs=1e-3)
        assert float(row["standard_deviation"]) == pytest.approx(stdev(scores), abs=1e-3)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("README.md", ["(9, 84, 84)"]),
        ("docs/environments.md", ["(9, 84, 84)", "(9, 84, 84)"]),
        ("docs/learner.md", ["", "replay: 1000 steps"]),
    ],
)
def test_the_python_examples_of_a_page_run(page, shown, tmp_path):
    """Each block on its own; `shown` is part of what each prints."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    for block, text in zip(blocks, shown, strict=True):
        script = tmp_path / "example.py"
        script.write_text(block)
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert text in done.stdout


def shown_commands():
    """Every line `ogspr ...` of a page that stands apart, and every command beside a result."""
    for page in PAGES:
        for line in re.findall(r"^ +(?:\w+=\S+ )*(ogspr .*)", page.read_text(), re.M):
            yield page.name, line
    for path in (*ROOT.glob("results/**/*.command"), *ROOT.glob("results/**/command")):
        for line in path.read_text().splitlines():
            yield str(path.relative_to(ROOT)), re.sub(r"^(\w+=\S+ )*", "", line)


@pytest.fixture
def options_of(ogspr_here):
    @cache
    def options(*command):
        done = ogspr_here(*command, "--help")
        assert done.returncode == 0, done.stderr
        return set(re.findall(r"--[\w.-]+", done.stdout))

    return options


def test_every_command_that_is_shown_exists_with_its_options(options_of):
    shown = list(shown_commands())
    assert len(shown) > 50
    for place, line in shown:
        words = shlex.split(line, comments=True)[1:]
        command = words[: 2 if words[0] == "bench" else 1]
        if command == ["train"]:
            # Which options there are depends on the method.
            command += words[words.index("--preset") :][:2] if "--preset" in words else []
        options = {word for word in words if word.startswith("--")}
        assert options <= options_of(*command), f"{place}: {line}"
