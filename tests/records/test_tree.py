import pickle

import numpy as np
import pytest
from safetensors.numpy import save

from ogspr.errors import UserError
from ogspr.records.tree import load_tree, save_tree

TREE = {
    "none": None,
    "flags": [True, False],
    "numbers": {"int": 2**100, "float": 0.1, "infinite": float("inf")},
    "text": "ä\n",
    "arrays": [np.ones((2, 3), dtype) for dtype in ("u1", "u4", "u8", "i8", "f4", "f8", "?")],
    "strange": {"empty": np.zeros((0, 3)), "scalar": np.array(7, np.uint32), "turned": np.eye(2)[::-1]},
}


def equal(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


def test_a_tree_comes_back_as_it_was(tmp_path):
    save_tree(tmp_path / "tree", TREE, "test")
    assert equal(TREE, load_tree(tmp_path / "tree", "test"))


@pytest.mark.parametrize(
    "value", [object(), (1, 2), {1, 2}, np.float64(1.0)], ids=lambda value: type(value).__name__
)
def test_other_things_are_refused_and_nothing_is_written(value, tmp_path):
    with pytest.raises(TypeError, match="JSON values and arrays"):
        save_tree(tmp_path / "tree", {"a": [value]}, "test")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_cut_off_anywhere_is_refused(tmp_path):
    path = tmp_path / "tree"
    save_tree(path, {"a": np.arange(4)}, "test")
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(UserError, match="cannot read"):
            load_tree(path, "test")


def test_the_same_tree_gives_the_same_file(tmp_path):
    files = [tmp_path / f"{number}" for number in range(20)]
    for file in files:
        save_tree(file, TREE, "test")
    assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"ogspr": "{"},
        {"ogspr": "[]"},
        {"ogspr": "{}"},
        {"ogspr": '{"kind": "test"}'},
        {"ogspr": '{"kind": "test", "tree": {"__array__": "nothing"}}'},
    ],
)
def test_a_foreign_or_damaged_outline_is_refused(tmp_path, header):
    (tmp_path / "tree").write_bytes(save({"a": np.zeros(1)}, header))
    with pytest.raises(UserError, match=r"cannot read|not of the kind"):
        load_tree(tmp_path / "tree", "test")


def test_a_pickle_is_refused_unopened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (print, ("executed",))

    (tmp_path / "tree").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UserError, match="cannot read"):
        load_tree(tmp_path / "tree", "test")


def test_another_kind_is_refused(tmp_path):
    save_tree(tmp_path / "tree", {}, "one")
    with pytest.raises(UserError, match="not of the kind other, but one"):
        load_tree(tmp_path / "tree", "other")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*nowhere"):
        load_tree(tmp_path / "nowhere", "test")
