"""What the documentation says is what the files say."""

import csv
import re
import shlex
import subprocess
import sys
from functools import cache
from statistics import mean, stdev

import pytest

import ogspr
import ogspr.commands.declared
from benchmarks.commands import COMMANDS
from ogspr.agents import protocol
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


CONTRACT = (
    protocol.Update,
    protocol.Losses,
    protocol.Trained,
    protocol.Group,
    protocol.Method,
    protocol.Reporter,
    protocol.Watcher,
    protocol.Actor,
    protocol.Representation,
    protocol.AgentConfig,
    ogspr.MethodEntry,
    ogspr.Factories,
)


@pytest.mark.parametrize("kind", CONTRACT, ids=lambda kind: kind.__name__)
def test_how_to_add_a_method_names_all_of_the_contract(kind):
    """Enough to write a method from: every field and member of what a method declares and is."""
    page = (ROOT / "docs" / "add-a-method.md").read_text()
    names = {*vars(kind), *vars(kind).get("__annotations__", {})} - {"named"}  # which is worked out
    members = {name for name in names if not name.startswith("_")} - {"count", "index"}
    assert members
    assert not {name for name in members if not re.search(rf"\b{name}\b", page)}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/methods.md", "docs/architecture.md"])
def test_how_to_add_a_method_can_be_found(page):
    assert "add-a-method.md)" in (ROOT / page).read_text()


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


OURS = r"ogspr|python -m benchmarks"
# How a program of an earlier version is called now. Its commands stay in results/ as they were typed.
RENAMED = {"ogspr bench": "python -m benchmarks"}


def recorded_commands():
    """File and command of every result; variables that were set stand before it, in the same line."""
    for path in (*ROOT.glob("results/**/*.command"), *ROOT.glob("results/**/command")):
        for line in path.read_text().splitlines():
            yield str(path.relative_to(ROOT)), re.sub(r"^(\w+=\S+ )*", "", line)


def shown_commands():
    """Page and line of every command that stands apart, but for those that have made a table of results."""
    for page in PAGES:
        text = re.sub(r"<!-- (?!planned)(\S+):begin -->.*?<!-- \1:end -->", "", page.read_text(), flags=re.S)
        for line in re.findall(rf"^ +(?:\w+=\S+ )*((?:{OURS}) .*)", text, re.M):
            yield page.name, line


def as_typed_today(line):
    for before, now in RENAMED.items():
        line = re.sub(rf"^{before}\b", now, line)
    return line


@pytest.fixture
def options_of(program_here):
    @cache
    def options(*command):
        done = program_here(*command, "--help")
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return set(re.findall(r"--[\w.-]+", done.stdout))

    return options


def check_command(place, line, options_of):
    words = shlex.split(line, comments=True)
    program, words = ("ogspr", words[1:]) if words[0] == "ogspr" else (words[2], words[3:])
    command = [program, *words[:1]]
    for option in ("--method", "--preset"):
        if command[:2] == ["ogspr", "train"] and option in words:
            command += words[words.index(option) :][:2]  # which options there are depends on them
    options = {word for word in words if word.startswith("--")}
    assert options <= options_of(*command), f"{place}: {line}"


def test_every_command_that_is_shown_exists_with_its_options(options_of):
    shown = list(shown_commands())
    assert len(shown) > 30
    for place, line in shown:
        check_command(place, line, options_of)


def test_every_command_that_made_a_result_exists_perhaps_by_another_name(options_of):
    recorded = list(recorded_commands())
    assert len(recorded) > 20
    for place, line in recorded:
        if line != "make train":
            check_command(place, as_typed_today(line), options_of)


def test_commands_in_tables_of_results_are_those_that_were_typed():
    """Pages show them between the markers of scripts/update-docs; whatever else stands there is checked."""
    typed = {line for _, line in recorded_commands()}
    for page in PAGES:
        for name, text in re.findall(r"<!-- (\S+):begin -->(.*?)<!-- \1:end -->", page.read_text(), re.S):
            for line in re.findall(rf"^ +(?:\w+=\S+ )*((?:{OURS}) .*?)(?:  # .*)?$", text, re.M):
                assert line in typed or name == "planned", f"{page.name}: {line}"


@pytest.mark.parametrize("line", ["ogspr bench update", "python -m benchmarks updat", "ogspr eval --sed 1"])
def test_a_wrong_command_would_be_seen(line, options_of):
    with pytest.raises(AssertionError):
        check_command("a page", line, options_of)


def test_a_wrong_option_of_an_earlier_version_would_be_seen(options_of):
    check_command("results", as_typed_today("ogspr bench update --updates 20"), options_of)
    with pytest.raises(AssertionError):
        check_command("results", as_typed_today("ogspr bench update --update 20"), options_of)


def test_commands_that_sentences_name_exist():
    known = {"ogspr": set(ogspr.commands.declared.COMMANDS), "python -m benchmarks": set(COMMANDS)}
    for page in PAGES:
        if page.name != "CHANGELOG.md":  # it also names what is gone
            for program, command in re.findall(rf"`({OURS}) ([a-z]+)", page.read_text()):
                assert command in known[program], f"{page.name}: {program} {command}"
