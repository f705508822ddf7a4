"""What scripts/update-docs makes of runs and csv files, in numbers that a test has thought of."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import pytest

from tests.analysis.folders import MANIFEST, write_run
from tests.helpers.trajectories import ROOT


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script, with an empty folder for results."""
    loader = SourceFileLoader("update_docs", str(ROOT / "scripts" / "update-docs"))
    module = module_from_spec(spec_from_loader("update_docs", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


def write_runs(folder, *seeds, commit="0123456789abcdef"):
    """`seeds`: scores by agent step, of seeds 1, 2, ..."""
    for seed, scores in enumerate(seeds, start=1):
        write_run(folder / f"seed-{seed}", scores, seed=seed, manifest=MANIFEST | {"commit": commit})


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def rows(table):
    """Cells below the heading, line by line."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [cells(line) for line in lines[2:]]


def test_a_milestone_has_a_row_with_the_seeds_that_got_there(script, tmp_path):
    write_runs(tmp_path / "walker", {50_000: 100.0, 100_000: 900.0}, {50_000: 300.0, 70_000: 1.0})
    table = rows(script.learning(tmp_path, tmp_path))
    assert [row[3:7] for row in table] == [
        ["2", "50000", "200", "100, 300"],
        # nothing at 70 000, which is the last step of one alone
        ["1", "100000", "900", "900"],
    ]


def test_runs_that_ended_early_are_shown_at_the_last_step_they_share(script, tmp_path):
    write_runs(tmp_path / "walker", {40_000: 10.0, 45_000: 20.0}, {40_000: 30.0, 45_000: 40.0})
    assert [row[3:7] for row in rows(script.learning(tmp_path, tmp_path))] == [["2", "45000", "30", "20, 40"]]


def test_a_seed_that_two_versions_have_run_is_two_runs(script, tmp_path):
    write_runs(tmp_path / "new", {50_000: 100.0}, commit="a" * 40)
    write_runs(tmp_path / "old", {50_000: 300.0}, commit="b" * 40)
    found = {(row[2], row[5]) for row in rows(script.learning(tmp_path, tmp_path))}
    assert found == {("a" * 7, "100"), ("b" * 7, "300")}


def test_nothing_stands_beside_runs_of_an_earlier_method(script, tmp_path):
    write_runs(tmp_path / "walker", {50_000: 100.0})
    ((*_, score, each),) = rows(script.learning_earlier(tmp_path, tmp_path))
    assert (score, each) == ("100", "100")


def test_what_is_to_be_run_is_a_command_with_what_its_score_is_compared_with(script, monkeypatch):
    monkeypatch.setattr(script, "PLANNED", [("dmc:walker-walk", "ogspr", 100_000)])
    table = script.planned()
    command, *_ = table.splitlines()
    assert command == "    ogspr train dmc:walker-walk --preset ogspr --seeds 1 2 --agent-steps 100000"
    row, *_ = rows(table)
    assert row[:4] == ["dmc:walker-walk", "OG-SPR", "100000", "856 ± 100"]


def test_versions_of_an_update_are_ratios_to_the_first(script, tmp_path):
    for version, milliseconds, operations in (("0.1", 2.0, 1e11), ("0.2", 2.5, 3e11)):
        (tmp_path / f"{version}.csv").write_text(
            "milliseconds,operations,networks_bytes,hardware\n"
            f'{milliseconds},{operations},4e6,"a machine, ogspr c0ffee{version}"\n'
        )
        (tmp_path / f"{version}.command").write_text(f"measure {version}\n")
    text = script.bench_versions(tmp_path / "page.md", tmp_path)
    assert "    measure 0.1\n    measure 0.2\n" in text
    assert "**a machine**" in text
    assert [row[1:] for row in rows(text)] == [
        ["c0ffee0.1", "4.0 MB", "100 G", "2.00", "1.000"],
        ["c0ffee0.2", "4.0 MB", "300 G", "2.50", "1.250"],
    ]


def test_others_are_shown_at_the_very_step_or_not_at_all(script):
    assert script.published_score("MR.Q", "dmc:walker-walk", 50_000) == "568 ± 81"
    assert script.published_score("TD-MPC2", "dmc:walker-walk", 50_000) == "464"
    assert script.published_score("TD-MPC2", "dmc:walker-walk", 45_000) == ""
    assert script.published_score("MR.Q", "atari:Pong", 50_000) == ""


def test_every_run_has_a_line_and_a_mean_over_the_steps_that_all_have_reached(script, tmp_path):
    write_runs(
        tmp_path / "old", {5000: 10.0, 10_000: 20.0, 15_000: 1.0}, {5000: 30.0, 10_000: 40.0, 15_000: 3.0}
    )
    write_runs(tmp_path / "new", {5000: 50.0, 10_000: 70.0})
    folders = {tmp_path / "old": "all", tmp_path / "new": "none"}
    assert [row[2:] for row in rows(script.each_run(folders, (5000, 10_000, 15_000)))] == [
        ["1", "10", "20", "1", "15"],
        ["2", "30", "40", "3", "35"],
        ["mean", "20", "30", "2", "25"],
        ["1", "50", "70", "", "60"],
        ["mean", "50", "70", "", "60"],
    ]


def test_gradients_have_a_line_for_each_part_of_the_networks(script):
    found = [
        {
            **{"part": part, "compared": compared, "agent_steps": "7", "error": str(error)},
            **{"mean_error": "0.5", "hardware": "a GPU, ogspr 1234567"},
        }
        for part, errors in {"value": (0.1, 0.2, 0.3), "policy": (0.4, 0.5, 0.6)}.items()
        for compared, error in zip(script.AGAINST, errors, strict=True)
    ]
    assert [cells(line) for line in script.gradient_rows("label", found)] == [
        ["label", "1234567", "7", "policy", "0.400", "0.500", "0.500", "0.500", "0.600", "0.500"],
        ["label", "1234567", "7", "value", "0.100", "0.500", "0.200", "0.500", "0.300", "0.500"],
    ]


def test_a_table_of_gradients_names_every_file(script, tmp_path):
    """One whose name says nothing about its rounding would be left out in silence."""
    (tmp_path / "h200-other.csv").write_text("hardware,updates\na GPU,32\n")
    with pytest.raises(ValueError, match=r"expected 1, got 0"):
        script.bench_precision(tmp_path / "page.md", tmp_path)


def test_a_csv_file_without_a_command_is_refused(script, tmp_path):
    (tmp_path / "h200.command").write_text("\n")
    with pytest.raises(SystemExit, match=r"nothing says what has made .*h200\.csv"):
        script.command_of(tmp_path / "h200.csv")


def test_cost_and_memory_by_size(script):
    sizes = {"batch_size": "256", "capacity": "100", "operations": "3e9", "milliseconds": "2.5", "ratio": "1"}
    memory = {"bound": "0.5", "networks_bytes": "1e9", "optimisers_bytes": "2e9", "replay_bytes": "3e9"}
    table = script.bench_sizes_table([sizes | memory, sizes | memory | {"replay_bytes": "9e9"}])
    assert cells(table[2]) == ["256", "100", "2.50", "1.00", "3 G", "0.50"]
    assert cells(table[-1]) == ["1.00 GB", "2.00 GB", "3.00 GB"]
