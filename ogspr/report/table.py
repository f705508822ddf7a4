"""A table, and the forms in which it is written: Markdown, LaTeX, csv, and for the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ogspr.report import document

Group = Literal["", "ours", "paper"]
NOTHING = "\N{EN DASH}"
_LATEX = {
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    NOTHING: "--",
}
_MARKDOWN = {sign: f"\\{sign}" for sign in "\\|*_`[~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


@dataclass(frozen=True)
class Cell:
    """A number with its interval, or a name."""

    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""  # what should be known about it
    incomplete: bool = False


@dataclass(frozen=True)
class Column:
    title: str
    group: Group = ""

    @property
    def numeric(self) -> bool:
        return self.group != ""

    @property
    def full_title(self) -> str:
        return f"{self.title} ({self.group})" if self.group else self.title


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first cell of a row is its name."""

    name: str  # of its files
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.name}: a row of {len(row)} cells for {len(self.columns)} columns")


def number(
    value: float | None,
    low: float | None = None,
    high: float | None = None,
    *,
    digits: int,
    note: str = "",
    incomplete: bool = False,
) -> Cell:
    """A number as the paper writes it: value [low, high]."""
    if value is None:
        return Cell(NOTHING, note=note, incomplete=incomplete)
    text = f"{value:.{digits}f}"
    if low is not None and high is not None:
        text += f" [{low:.{digits}f}, {high:.{digits}f}]"
    return Cell(text, value, low, high, note, incomplete)


def markdown(table: Table) -> str:
    """With the notes of its cells below, marked by letters."""
    marks = _marks(table)
    lines = [
        f"## {_plain_markdown(table.title)}",
        "",
        *([_plain_markdown(table.note), ""] if table.note else []),
        _row(_plain_markdown(column.full_title) for column in table.columns),
        _row("---:" if column.numeric else "---" for column in table.columns),
    ]
    for row in table.rows:
        lines.append(_row(_plain_markdown(cell.text) + _raised(marks, cell) for cell in row))
    if marks:
        lines += ["", *(f"<sup>{mark}</sup> {_plain_markdown(note)}  " for note, mark in marks.items())]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    """A tabular for the booktabs package, in its own table, at most as wide as the text."""
    marks = _marks(table)
    alignment = "".join("r" if column.numeric else "l" for column in table.columns)
    lines = [
        "% needs \\usepackage{booktabs} and \\usepackage{adjustbox}",
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{_plain_latex('. '.join(part for part in (table.title, table.note) if part))}}}",
        f"  \\label{{tab:{table.name}}}",
        "  \\begin{adjustbox}{max width=\\textwidth}",
        f"  \\begin{{tabular}}{{{alignment}}}",
        "    \\toprule",
        _latex_row(_plain_latex(column.full_title) for column in table.columns),
        "    \\midrule",
    ]
    for row in table.rows:
        lines.append(
            _latex_row(
                _plain_latex(cell.text) + (f"$^{{{marks[cell.note]}}}$" if cell.note else "") for cell in row
            )
        )
    lines += ["    \\bottomrule", "  \\end{tabular}", "  \\end{adjustbox}"]
    lines += [f"\n  $^{{{mark}}}$ {_plain_latex(note)}" for note, mark in marks.items()]
    return "\n".join([*lines, "\\end{table}"]) + "\n"


CSV_HEADER = ("row", "column", "group", "value", "low", "high", "incomplete", "note")


def csv_rows(table: Table) -> list[tuple[object, ...]]:
    """Long form: one row for each number."""
    return [
        (
            row[0].text,
            column.title,
            column.group,
            *("" if number is None else number for number in (cell.value, cell.low, cell.high)),
            int(cell.incomplete),
            cell.note,
        )
        for row in table.rows
        for column, cell in zip(table.columns, row, strict=True)
        if column.numeric
    ]


def for_page(table: Table) -> document.TableDocument:
    return {
        "name": table.name,
        "title": table.title,
        "note": table.note,
        "columns": [
            {"title": column.title, "group": column.group, "numeric": column.numeric}
            for column in table.columns
        ],
        "rows": [
            [
                {"text": cell.text, "value": cell.value, "note": cell.note, "incomplete": cell.incomplete}
                for cell in row
            ]
            for row in table.rows
        ],
    }


def _marks(table: Table) -> dict[str, str]:
    """A letter (or two) for each note."""
    notes = dict.fromkeys(cell.note for row in table.rows for cell in row if cell.note)
    return {note: _letters(place) for place, note in enumerate(notes)}


def _letters(place: int) -> str:
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    more, last = divmod(place, len(alphabet))
    return (_letters(more - 1) if more else "") + alphabet[last]


def _raised(marks: dict[str, str], cell: Cell) -> str:
    return f"<sup>{marks[cell.note]}</sup>" if cell.note else ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _latex_row(cells: Iterable[str]) -> str:
    """Begun with an empty group: a bracket would belong to the end of the row before."""
    return f"    {{}}{' & '.join(cells)} \\\\"


def _plain_markdown(text: str) -> str:
    """Text that Markdown shows as it is; names of folders may hold anything."""
    return " ".join("".join(_MARKDOWN.get(sign, sign) for sign in text).split())


def _plain_latex(text: str) -> str:
    return " ".join("".join(_LATEX.get(sign, sign) for sign in text).split())
