"""Whole reports, of runs that are as they should be and of others."""

import io
import json
import re
from urllib.parse import unquote

import pytest

from ogspr.errors import UserError
from ogspr.records.display import make_console
from ogspr.report import build, compose
from ogspr.report.build import make_report, write_report
from tests.analysis.folders import MANIFEST, write_run, write_table
from tests.report.test_paper_tables import GAMES, TASKS, write_grid

PROBE_HEADER = (
    *("task", "method", "seed", "collector", "collector_seed", "loss", "value_per_dimension"),
    *("updates", "episodes", "batch_size", "policy", "probe_seed"),
)
THOROUGH, QUICK = (100_000, 30, 256, "last", 0), (10, 2, 256, "last", 0)


def console():
    return make_console(file=io.StringIO())


def document_in(path):
    text = path.read_text()
    return json.loads(re.search(r"<script[^>]*application/json[^>]*>(.*?)</script>", text, re.S).group(1))


def test_one_command_writes_tables_figures_and_a_page(tmp_path):
    write_grid(tmp_path / "runs", TASKS[:3], seeds=2)
    write_grid(tmp_path / "runs", TASKS[:3], seeds=2, preset="ogspr-sp", offset=-20.0)
    screen = console()
    write_report([tmp_path / "runs"], tmp_path / "out", None, screen)
    tables = {path.name for path in (tmp_path / "out" / "tables").iterdir()}
    names = ("main", "main-tasks", "ablations", "ablations-tasks", "improvement")
    assert tables == {f"{name}.{kind}" for name in names for kind in ("md", "tex", "csv")}
    figures = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    kinds = ("curves", "aggregate", "improvement", "profile")
    assert figures == {f"{name}-dmc.{kind}" for name in kinds for kind in ("png", "pdf")}
    assert "12 runs, 2 methods, 3 tasks, 5 tables, 4 figures" in screen.file.getvalue()
    document = document_in(tmp_path / "out" / "report.html")
    assert len(document["runs"]) == 12
    mean, *tasks = document["curves"]
    assert mean["task"] == "dmc, mean of 3 tasks"
    assert [curves["task"] for curves in tasks] == sorted(TASKS[:3])
    ours, last = mean["series"][0], [curves["series"][0]["mean"][-1] for curves in tasks]
    assert ours["mean"][-1] == pytest.approx(sum(last) / 3)
    assert ours["low"][-1] <= ours["mean"][-1] <= ours["high"][-1]
    papers = {one["method"]: one["score"] for one in mean["paper"]}
    expected = [one["score"] for curves in tasks for one in curves["paper"] if one["method"] == "OG-SPR"]
    assert papers["OG-SPR"] == pytest.approx(sum(expected) / 3)
    assert {run["method"] for run in document["runs"]} == {"OG-SPR", "OG-SPR - SP"}


def test_what_an_earlier_report_has_left_does_not_stay_beside_the_new_one(tmp_path):
    write_grid(tmp_path / "two", TASKS[:3], seeds=2)
    write_grid(tmp_path / "two", TASKS[:3], seeds=2, preset="ogspr-sp")
    write_run(tmp_path / "one" / "a", {0: 1.0})
    write_report([tmp_path / "two"], tmp_path / "out", None, console())
    (tmp_path / "out" / "tables" / "mine.md").write_text("kept")
    write_report([tmp_path / "one"], tmp_path / "out", None, console())
    tables = {path.stem for path in (tmp_path / "out" / "tables").iterdir()}
    assert tables == {"main", "main-tasks", "mine"}
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {"curves-dmc"}


def test_figures_are_read_at_the_same_step_as_tables(tmp_path):
    write_grid(tmp_path / "runs", TASKS[:3], seeds=2, step=5000)
    for at, expected in ((None, False), (5000, True)):
        write_report([tmp_path / "runs"], tmp_path / str(at), at, console())
        assert (tmp_path / str(at) / "figures" / "improvement-dmc.png").exists() == expected


@pytest.mark.parametrize("name", [r"$\foo$", "_hidden", "a" * 300, "%s{}", "ünï"])
def test_strange_names_are_only_names(tmp_path, name):
    write_run(tmp_path / "runs" / "a", {0: 1.0}, task=f"dmc:{name}", preset=name)
    write_report([tmp_path / "runs"], tmp_path / "out", None, console())
    document = document_in(tmp_path / "out" / "report.html")
    assert (document["runs"][0]["task"], document["runs"][0]["method"]) == (f"dmc:{name}", name)


def test_the_page_has_the_scores_of_the_tables(tmp_path):
    write_run(tmp_path / "runs" / "a", {0: 1.0, 5000: 100.0}, seed=0)
    write_run(tmp_path / "runs" / "b", {0: 3.0}, seed=1)
    write_run(tmp_path / "runs" / "again", {0: 50.0}, seed=0)
    (score,) = make_report([tmp_path / "runs"]).document("t", str)["scores"]
    assert (score["runs"], score["agent_steps"], score["score"]) == (2, 0, 2.0)
    assert score["note"] == "2 of 5 seeds, at 0 of 500 000 agent steps"
    assert score["incomplete"]


def test_videos_that_cannot_be_read_cost_no_page(tmp_path, monkeypatch):
    videos = write_run(tmp_path / "runs" / "a", {0: 1.0}) / "videos"
    videos.mkdir()
    (videos / "best.mp4").write_bytes(b"12345")

    def refuse(_path):
        raise PermissionError("no")

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)
    videos_of = compose._Videos(str).of
    assert videos_of(videos) == []


def test_figures_are_the_same_for_the_same_numbers(tmp_path):
    write_grid(tmp_path / "runs", TASKS[:2], seeds=2)
    for out in ("one", "two"):
        write_report([tmp_path / "runs"], tmp_path / out, None, console())
    for path in (tmp_path / "one" / "figures").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / "figures" / path.name).read_bytes(), path.name


def test_broken_folders_and_mixed_versions_are_told(tmp_path):
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    newer = MANIFEST | {"ogspr": "9.9"}
    write_run(tmp_path / "runs" / "b", {0: 1.0, 5000: float("nan")}, seed=1, manifest=newer)
    write_run(tmp_path / "runs" / "c[bold]", {}, seed=2)
    screen = console()
    write_report([tmp_path / "runs"], tmp_path / "out", None, screen)
    text = screen.file.getvalue()
    assert "different versions of ogspr: 0.1.0 (1 run), 9.9 (1 run)" in text
    assert "Beware: " in (tmp_path / "out" / "tables" / "main.tex").read_text()
    assert "the evaluation at agent step 5000 has a score that is not a number" in text
    assert "c[bold]: " in text
    document = document_in(tmp_path / "out" / "report.html")
    assert len(document["warnings"]) == 2
    assert [skipped["folder"] for skipped in document["skipped"]] == [str(tmp_path / "runs" / "c[bold]")]


def test_versions_that_differ_by_their_commit_are_told(tmp_path):
    for seed, commit in enumerate(("a" * 40, "a" * 40, "b" * 40 + " with changes")):
        manifest = MANIFEST | {"commit": commit}
        write_run(tmp_path / "runs" / str(seed), {0: 1.0}, seed=seed, manifest=manifest)
    screen = console()
    write_report([tmp_path / "runs"], tmp_path / "out", None, screen)
    told = "different versions of ogspr: 0.1.0 at aaaaaaa (2 runs), 0.1.0 at bbbbbbb+ (1 run)"
    assert told in screen.file.getvalue()


def test_nothing_to_report_is_an_error(tmp_path):
    write_run(tmp_path / "runs" / "a", {})
    with pytest.raises(UserError, match=r"no usable run was found:\n.*no usable evaluation"):
        write_report([tmp_path / "runs"], tmp_path / "out", None, console())


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UserError, match="cannot write"):
        write_report([tmp_path / "runs"], tmp_path / "out", None, console())


def probe_row(seed, collector, loss, value, settings=THOROUGH):
    return ("dmc:cheetah-run", "ogspr", seed, collector, seed, loss, value, *settings)


def probing(path):
    report = make_report([path, path / "runs"])
    (table,) = (table for table in report.tables if table.name == "probing")
    return {row[0].text: row[1:] for row in table.rows}, report.warnings


def test_losses_of_probing_become_a_table(tmp_path):
    write_run(tmp_path / "runs" / "a", {0: 1.0}, task="dmc:cheetah-run")
    rows = [
        probe_row(1, "ogspr", "state", 0.2),
        probe_row(1, "ogspr-sp", "state", 0.4),
        probe_row(2, "ogspr", "state", 0.5),
        probe_row(2, "ogspr", "next_state", 1.5),
        probe_row(3, "ogspr", "state", "nan"),
    ]
    write_table(tmp_path / "runs" / "probe.csv", PROBE_HEADER, rows)
    table, warnings = probing(tmp_path)
    ours, *paper = table["cheetah-run, state from h"]
    assert ours.value == pytest.approx((0.3 + 0.5) / 2)  # collectors first, then seeds
    assert ours.note == "2 of 5 seeds"
    assert [cell.value for cell in paper] == [0.035, 0.0399, 3.729]
    assert table["cheetah-run, next state from z"][0].text == "1.500"  # one seed: no interval
    both, *paper = table["cheetah-run, sum of both"]
    assert both.value == 2.0  # of the seed that has both
    assert paper[0].value == pytest.approx(0.035 + 1.6)
    assert warnings == (f"{tmp_path / 'runs' / 'probe.csv'}: skipped 1 unusable row of losses",)


def test_presets_of_older_probes_are_the_same_collectors(tmp_path):
    write_run(tmp_path / "runs" / "a", {0: 1.0}, task="dmc:cheetah-run")
    old, new = ([probe_row(1, name, "state", value)] for name, value in (("ogspr", 0.2), ("OG-SPR", 0.1)))
    write_table(tmp_path / "runs" / "a.csv", PROBE_HEADER, old)
    write_table(tmp_path / "runs" / "b.csv", PROBE_HEADER, new)
    table, (twice,) = probing(tmp_path)
    assert "found twice" in twice
    assert table["cheetah-run, state from h"][0].value == 0.1


def test_a_short_probe_is_marked(tmp_path):
    write_run(tmp_path / "runs" / "a", {0: 1.0}, task="dmc:cheetah-run")
    rows = [probe_row(seed, "ogspr", "state", 0.2, QUICK) for seed in range(5)]
    write_table(tmp_path / "runs" / "probe.csv", PROBE_HEADER, rows)
    (table,) = (table for table in make_report([tmp_path / "runs"]).tables if table.name == "probing")
    assert "10 updates" in table.note
    assert "the paper's 100000 updates" in table.note
    assert table.rows[0][1].incomplete


def test_a_newcomer_is_told_what_fills_the_tables(tmp_path):
    for task in TASKS[:2]:
        write_run(tmp_path / "runs" / task, {0: 1.0, 5000: 2.0}, task=task)
    write_run(tmp_path / "runs" / "other", {0: 1.0, 5000: 2.0}, task=TASKS[0], preset="ogspr-sp")
    screen = console()
    write_report([tmp_path / "runs"], tmp_path / "out", None, screen)
    text = screen.file.getvalue()
    assert "no run of dmc has an evaluation at 500000 agent steps" in text
    assert "--at 5000 reads all of them there" in text
    assert "no mean curves of dmc" in text
    screen = console()
    write_report([tmp_path / "runs"], tmp_path / "out", 5000, screen)
    assert "has an evaluation" not in screen.file.getvalue()
    write_run(tmp_path / "runs" / "begun", {0: 1.0}, task=TASKS[0], seed=9)
    screen = console()
    write_report([tmp_path / "runs"], tmp_path / "out", None, screen)
    assert "--at" not in screen.file.getvalue()  # all share step 0 only


def test_a_game_that_has_no_unit_does_not_keep_others_from_their_mean(tmp_path):
    for game in GAMES[:2]:
        write_run(tmp_path / "runs" / game, {0: 1.0, 5000: 2.0}, task=game)
    write_run(tmp_path / "runs" / "x", {0: 1.0, 5000: 2.0}, task="atari:Tennis", preset="ogspr-sp")
    screen = console()
    write_report([tmp_path / "runs"], tmp_path / "out", None, screen)
    assert "no mean curves" not in screen.file.getvalue()
    assert (tmp_path / "out" / "figures" / "aggregate-atari.png").exists()
    titles = [curves["task"] for curves in document_in(tmp_path / "out" / "report.html")["curves"]]
    assert titles[0] == "atari, mean of 2 tasks"


def test_probes_with_other_settings_are_not_mixed_and_none_counts_twice(tmp_path):
    write_run(tmp_path / "runs" / "a", {0: 1.0}, task="dmc:cheetah-run")
    thorough = [probe_row(1, "ogspr", "state", 0.1)]
    write_table(tmp_path / "runs" / "one.csv", PROBE_HEADER, thorough)
    write_table(tmp_path / "runs" / "copy.csv", PROBE_HEADER, thorough)
    write_table(tmp_path / "runs" / "quick.csv", PROBE_HEADER, [probe_row(1, "ogspr", "state", 0.9, QUICK)])
    table, (mixed, twice) = probing(tmp_path)
    assert table["cheetah-run, state from h"][0].value == 0.1
    assert table["cheetah-run, state from h"][0].note == "1 of 5 seeds"
    assert "showing those with updates 100000" in mixed
    assert "not updates 10," in mixed
    assert "1 losses of probing were found twice" in twice


def test_tables_of_other_kinds_are_no_losses(tmp_path):
    write_run(tmp_path / "runs" / "a", {0: 1.0})
    write_table(tmp_path / "runs" / "other.csv", ("a", "b"), [(1, 2)])
    (tmp_path / "runs" / "broken.csv").write_bytes(b"\xff\x00\n")
    assert all(table.name != "probing" for table in make_report([tmp_path / "runs"]).tables)


def test_small_videos_are_part_of_the_page_and_large_ones_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr("ogspr.report.compose._LARGEST_VIDEO", 10)
    videos = write_run(tmp_path / "runs" / "a", {0: 1.0}) / "videos"
    videos.mkdir()
    (videos / "best.mp4").write_bytes(b"12345")
    (videos / "la#st.mp4").write_bytes(b"x" * 11)
    (videos / "notes.txt").write_text("no video")
    write_report([tmp_path / "runs"], tmp_path / "out", None, console())
    best, last = document_in(tmp_path / "out" / "report.html")["runs"][0]["videos"]
    assert "#" not in last["source"]  # which would be the end of an address
    assert best == {"name": "best.mp4", "source": "data:video/mp4;base64,MTIzNDU="}
    assert (tmp_path / "out" / unquote(last["source"])).read_bytes() == b"x" * 11


def test_long_tables_are_thinned_and_end_with_their_last_row(tmp_path):
    run = write_run(tmp_path / "runs" / "a", {0: 1.0})
    write_table(run / "train.csv", ("agent_steps", "value_loss"), [(i, i / 2) for i in range(1000)])
    document = make_report([tmp_path / "runs"]).document("t", str)
    losses = document["runs"][0]["losses"]
    assert len(losses["rows"]) <= 60
    assert losses["rows"][-1] == [999.0, 499.5]
    assert losses["names"] == ["agent_steps", "value_loss"]


def test_many_lines_of_trouble_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "_MOST_LINES", 2)
    write_run(tmp_path / "runs" / "good", {0: 1.0})
    for place in range(4):
        write_run(tmp_path / "runs" / f"bad-{place}", {})
    screen = console()
    write_report([tmp_path / "runs"], tmp_path / "out", None, screen)
    assert "... and 2 more; all are on the page" in screen.file.getvalue()
