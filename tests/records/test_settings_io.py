from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from ogspr.errors import UserError
from ogspr.records.settings_io import changed, differences, plain


@dataclass(frozen=True)
class Inner:
    weight: float = 1.0
    kind: Literal["mean", "sum"] = "mean"


@dataclass(frozen=True)
class Outer:
    count: int = 3
    flag: bool = False
    name: str = "x"
    place: Path = Path("here")
    pair: tuple[float, float] = (0.0, 1.0)
    seeds: tuple[int, ...] = (0,)
    maybe: int | None = None
    inner: Inner = Inner()
    absent: Inner | None = None


def test_settings_come_back_as_they_were():
    value = Outer(
        count=7, pair=(2.0, 3.0), seeds=(1, 2, 3), maybe=4, inner=Inner(2.5, "sum"), absent=Inner(9.0)
    )
    assert changed(Outer(), plain(value), "here") == value
    assert changed(value, plain(Outer()), "here") == Outer()


def test_what_is_not_mentioned_stays():
    value = Outer(count=7, inner=Inner(5.0, "sum"))
    assert changed(value, {"inner": {"weight": 2}}, "here") == Outer(count=7, inner=Inner(2.0, "sum"))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"cuont": 1}, "unknown setting in file 'cuont'; did you mean count"),
        ({"inner": {"wieght": 1}}, "unknown setting in file: inner 'wieght'; did you mean weight"),
        ({"count": 1.5}, "file: count: expected int, got 1.5"),
        ({"count": True}, "file: count: expected int, got True"),
        ({"count": None}, "file: count: expected int, got None"),
        ({"flag": 1}, "file: flag: expected bool, got 1"),
        ({"name": 1}, "file: name: expected str, got 1"),
        ({"pair": [1.0]}, "file: pair: expected .*, got"),
        ({"seeds": 3}, "file: seeds: expected .*, got 3"),
        ({"maybe": "many"}, "file: maybe: expected int, got 'many'"),
        ({"inner": 3}, "file: inner: expected named settings, got 3"),
        ({"inner": {"kind": "men"}}, "'men'; did you mean mean"),
        ([1], "file: expected named settings"),
    ],
)
def test_mistakes_are_named(given, complaint):
    with pytest.raises(UserError, match=complaint):
        changed(Outer(), given, "file")


def test_differences_are_listed_by_path():
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4}) == [
        "a.c: 3 was 2",
        "d: 4 was None",
    ]
    assert differences({"a": [1, 2]}, {"a": [1, 2]}) == []
