import csv
import io

import pytest

from ogspr.report.table import NOTHING, Cell, Column, Table, csv_rows, for_page, latex, markdown, number


def table(*rows):
    columns = (Column("task"), Column("OG-SPR", "ours"), Column("OG-SPR", "paper"))
    return Table("main", "A title", "A note.", columns, rows)


HALF = number(443.4, 397.2, 493.6, digits=0, note="2 of 5 seeds", incomplete=True)
FULL = number(1.005, digits=2)


def test_numbers_are_written_as_in_the_paper():
    assert HALF.text == "443 [397, 494]"
    assert number(1.235, digits=1).text == "1.2"
    assert number(None, digits=1).text == NOTHING


def test_markdown_marks_what_is_incomplete():
    text = markdown(table((Cell("walker-walk"), HALF, FULL), (Cell("cheetah-run"), HALF, Cell(NOTHING))))
    assert "| task | OG-SPR (ours) | OG-SPR (paper) |\n| --- | ---: | ---: |" in text
    assert "| walker-walk | 443 \\[397, 494]<sup>a</sup> | 1.00 |" in text
    assert "A title" in text and "A note." in text
    assert text.count("<sup>a</sup>") == 3  # two cells and one explanation
    assert "<sup>a</sup> 2 of 5 seeds" in text


def test_latex_marks_it_too():
    text = latex(table((Cell("ball_in_cup-catch"), HALF, Cell(NOTHING))))
    assert r"ball\_in\_cup-catch & 443 [397, 494]$^{a}$ & -- \\" in text
    assert "$^{a}$ 2 of 5 seeds" in text
    assert text.count("\\begin{") == text.count("\\end{") == 3


@pytest.mark.parametrize("hostile", ["a|b", "<script>", "x\ny", "[l](http://e)", "*b*", "`c`"])
def test_markdown_shows_text_as_it_is(hostile):
    line = next(line for line in markdown(table((Cell(hostile), FULL, FULL))).splitlines() if "1.00" in line)
    assert line.replace("\\|", "").count("|") == 4
    assert "<" not in line


def test_latex_shows_text_as_it_is():
    assert "    {}[b] & 1.00" in latex(table((Cell("[b]"), FULL, FULL)))  # no length of the row before
    assert r"\textless{}a\textbar{}b\textgreater{}" in latex(table((Cell("<a|b>"), FULL, FULL)))
    text = latex(table((Cell(r"50% & $x$ #1 {a}_b^c~\input{/etc/passwd}"), FULL, FULL)))
    assert (
        r"50\% \& \$x\$ \#1 \{a\}\_b\textasciicircum{}c\textasciitilde{}\textbackslash{}input\{/etc" in text
    )


def test_csv_has_a_row_for_each_number():
    rows = csv_rows(table((Cell("walker-walk"), HALF, FULL)))
    assert rows == [
        ("walker-walk", "OG-SPR", "ours", 443.4, 397.2, 493.6, 1, "2 of 5 seeds"),
        ("walker-walk", "OG-SPR", "paper", 1.005, "", "", 0, ""),
    ]
    csv.writer(io.StringIO()).writerows(rows)


def test_the_page_gets_the_same():
    document = for_page(table((Cell("walker-walk"), HALF, FULL)))
    assert document["columns"][1] == {"title": "OG-SPR", "group": "ours", "numeric": True}
    assert document["rows"][0][1] == {
        "text": "443 [397, 494]",
        "value": 443.4,
        "note": "2 of 5 seeds",
        "incomplete": True,
    }


def test_notes_beyond_the_alphabet():
    rows = [(Cell(str(place)), number(1.0, digits=0, note=f"note {place}"), FULL) for place in range(28)]
    text = markdown(table(*rows))
    assert "<sup>z</sup> note 25" in text
    assert "<sup>ab</sup> note 27" in text


def test_a_row_that_does_not_fit_is_a_mistake():
    with pytest.raises(ValueError, match="a row of 2 cells for 3 columns"):
        table((Cell("walker-walk"), FULL))
