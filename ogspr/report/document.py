"""What the page in the browser is given: one JSON document. Everything it shows is in here."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class Cell(TypedDict):
    """One number of a table, with what is said about it."""

    text: str  # what is shown
    value: float | None  # what is sorted by; None: nothing is known, sorts last
    note: str  # shown on hover and to screen readers, for example "2 of 5 seeds"; "" where there is none
    incomplete: bool  # fewer runs or fewer steps than the protocol asks for


class Column(TypedDict):
    title: str
    group: Literal["", "ours", "paper"]  # whose numbers; "" for names
    numeric: bool


class TableDocument(TypedDict):
    name: str  # "main", "ablations", ...: unique, part of addresses
    title: str
    note: str
    columns: list[Column]
    rows: list[list[Cell]]


class RunCurve(TypedDict):
    run: str  # id of the run
    seed: int
    scores: list[float | None]  # at the steps of its series; None where it has none


class Series(TypedDict):
    """One method on one task."""

    method: str
    group: Literal["ours", "published"]  # runs of the user, or curves that others have published
    agent_steps: list[int]
    frames: list[int]
    mean: list[float | None]
    low: list[float | None]  # 95 % interval of the mean over runs; None where there is one run only
    high: list[float | None]
    runs: list[RunCurve]


class FinalScore(TypedDict):
    """A number of the paper, drawn as a line at its height."""

    method: str
    score: float
    agent_steps: int


class TaskCurves(TypedDict):
    task: str  # "dmc:walker-walk", or what else the scores are of
    note: str  # shown above them; "" where the runs they are of say enough
    series: list[Series]
    paper: list[FinalScore]


class Columns(TypedDict):
    """A csv file, perhaps with fewer rows than it has."""

    names: list[str]
    rows: list[list[float | None]]


class Evaluations(TypedDict):
    agent_steps: list[int]
    frames: list[int]
    scores: list[list[float | None]]  # of every single episode, for each of the steps


class Video(TypedDict):
    name: str
    source: str  # a data: address, or a relative path where it is too large to be part of the page


class RunDocument(TypedDict):
    id: str  # unique, part of addresses
    folder: str
    task: str
    method: str
    seed: int
    agent_steps: int  # done
    wanted_steps: int  # asked for
    finished: bool
    last: float | None  # mean score of the last evaluation
    best: float | None
    config: dict[str, Any]  # nested
    manifest: dict[str, Any]
    losses: Columns  # train.csv
    system: Columns  # system.csv
    evaluations: Evaluations
    videos: list[Video]


class Score(TypedDict):
    """One method on one task, as the tables have it."""

    task: str
    method: str
    runs: int
    finished: int
    agent_steps: int | None  # at which the score is read; None: the runs share no step
    score: float | None  # mean over runs
    note: str
    incomplete: bool


class Skipped(TypedDict):
    folder: str
    reason: str


class Document(TypedDict):
    title: str
    made: str  # when, ISO 8601
    version: str  # of ogspr
    warnings: list[str]
    skipped: list[Skipped]
    tables: list[TableDocument]
    scores: list[Score]
    curves: list[TaskCurves]
    runs: list[RunDocument]
