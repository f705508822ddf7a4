import pytest

from ogspr.errors import UserError
from ogspr.records.tables import Table, curve, mean_scores


def test_rows_come_whole_and_floats_exactly(tmp_path):
    table = Table(tmp_path / "t.csv")
    table.append([{"step": 1, "value": 0.1 + 0.2, "text": "a,b"}])
    table.append([])
    table.append([{"step": 2, "value": float("nan"), "text": ""}])
    assert (tmp_path / "t.csv").read_text() == ('step,value,text\n1,0.30000000000000004,"a,b"\n2,nan,\n')


def test_what_came_after_the_checkpoint_is_written_again(tmp_path):
    path = tmp_path / "t.csv"
    table = Table(path)
    table.append([{"a": 1}])
    size = table.safe_size()
    table.append([{"a": 2}])
    table.close()
    with path.open("a") as file:
        file.write("3, torn in the mid")
    table = Table(path, size)
    table.append([{"a": 4}])
    assert path.read_text() == "a\n1\n4\n"


def test_another_kind_of_row_is_refused(tmp_path):
    table = Table(tmp_path / "t.csv")
    table.append([{"a": 1}])
    with pytest.raises(ValueError, match="expected columns"):
        table.append([{"b": 1}])


@pytest.mark.parametrize("content", [None, "a\n"])
def test_a_table_that_is_too_short_is_refused(tmp_path, content):
    path = tmp_path / "t.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match="fewer than the 10 of the checkpoint"):
        Table(path, 10)
    assert (path.read_text() if path.exists() else None) == content


def test_a_curve_shows_means_and_marks_the_reference(tmp_path):
    path = tmp_path / "eval.csv"
    path.write_text("agent_steps,score\n0,0\n0,20\n500,90\n500,110\n")
    assert mean_scores(path) == {0: 10.0, 500: 100.0}
    header, first, second, reference = curve(mean_scores(path), ("random", 50.0))
    assert header.split() == ["agent", "step", "score"]
    assert first.count("#") == 5 and first.endswith("|")
    assert second.count("#") == 49 and second.count("|") == 1
    assert reference.strip().startswith("50.0") and reference.endswith("| random")
    assert second.index("|") == reference.index("|")


def test_a_curve_of_equal_scores_is_drawn():
    assert len(curve({0: 0.0, 1: 0.0})) == 3
