"""The page of `ogspr report` and `ogspr watch`, in a real browser where there is one."""

import base64
import itertools
import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from ogspr.report.build import document_json, page
from ogspr.report.document import Document
from tests.report import documents
from tests.report.browser import NAMES, Connection, Page, browser, find_chromium

MARKUP = """<img src=x onerror="window.harmed=1">"""
BREAKOUT = "</script><script>window.harmed=1</script><!-- <script>"
QUOTES = """" onmouseover="window.harmed=1" x='${window.harmed=1}' \u2028\u2029 \udc80"""
RUN = "#run/runs%2Fdmc-cheetah-run%2Fogspr%2Fseed-0"
ONLY_RUN = "#run/runs%2Fdmc-cartpole-swingup%2Fogspr%2Fseed-0"  # of documents.single
TASK = "#task/dmc%3Acheetah-run"
FIRST_COLUMN = "tbody th"
END_WITH_OURS = "[data-keep='switch:onlyOurSteps']"
MINUS = "\u2212"  # as the page writes it

in_browser = pytest.mark.skipif(
    find_chromium() is None, reason=f"no browser: none of {', '.join(NAMES)} is installed"
)


# ---- the text of the page


def embedded(text: str) -> str:
    """What a browser takes for the document: up to the first thing that looks like the end of the script."""
    start = text.index('id="document">') + len('id="document">')
    return text[start : text.lower().index("</script", start)]


@pytest.mark.parametrize("text", [MARKUP, BREAKOUT, QUOTES, "$script $$ {style}"])
def test_what_is_embedded_is_the_document_to_the_letter(text: str):
    document = documents.hostile(text)
    inside = embedded(page(document))
    assert json.loads(inside) == document
    assert inside.isascii() and not set("<>&") & set(inside)


def test_title_is_escaped_and_fits_into_utf8():
    document = documents.empty()
    document["title"] = "</title><script>\udc80"
    text = page(document)
    assert "<title>&lt;/title&gt;&lt;script&gt;?</title>" in text
    assert text.encode("utf-8")


def test_what_is_not_finite_becomes_null():
    document = documents.example(tasks=documents.TASKS[:1], seeds=2)
    document["runs"][0]["last"] = math.nan
    document["runs"][0]["losses"]["rows"][0][2] = math.inf
    document["runs"][0]["config"]["limits"] = (-math.inf, 1.5)
    found = json.loads(document_json(document), parse_constant=pytest.fail)
    assert found["runs"][0]["last"] is None
    assert found["runs"][0]["losses"]["rows"][0][2] is None
    assert found["runs"][0]["config"]["limits"] == [None, 1.5]


def policy(text: str) -> dict[str, str]:
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert found
    rules = found[1].replace("&#x27;", "'").split("; ")
    return dict(rule.split(" ", 1) for rule in rules)


def test_policy_allows_nothing_from_outside():
    rules = policy(page(documents.example()))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'none'"
    assert rules["img-src"] == rules["media-src"] == "data:"
    assert rules["script-src"].startswith("'sha256-") and rules["style-src"].startswith("'sha256-")


def test_policy_allows_the_server_of_a_live_page_only():
    assert policy(page(None, live="data.json"))["connect-src"] == "'self'"


# ---- colours

# Machado, Oliveira, Fernandes (2009): what people see who lack one kind of cone, on linear RGB.
VISION = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no long": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no medium": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "no short": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = TO_XYZ @ rgb.clip(0, 1) / WHITE
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_of_methods_differ_for_every_kind_of_colour_vision(vision: str, theme: int):
    """By 20 in CIELAB, where about 2.3 can just be told apart."""
    pairs = re.findall(r"--method-\d: light-dark\((#\w{6}), (#\w{6})\)", page(None))
    seen = [lab(np.array(VISION[vision]) @ linear(pair[theme])) for pair in pairs]
    assert len(seen) == 8
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) >= 20


# ---- in a browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Connection]:
    with browser() as connection:
        yield connection


@pytest.fixture
def tab(chromium: Connection) -> Iterator[Page]:
    tab = Page(chromium)
    yield tab
    tab.close()


@pytest.fixture
def shown(tab: Page, tmp_path: Path) -> Page:
    """The example, with nothing wrong so far."""
    tab.open_text(tmp_path, page(documents.example()))
    return tab


def go(tab: Page, address: str) -> None:
    tab.evaluate(f"location.hash = {json.dumps(address)}")
    tab.settle()
    tab.settle()


@in_browser
@pytest.mark.parametrize(
    "address", ["", "#tables/ablations", "#curves", TASK, "#runs", RUN, "#run/none", "#%E0%A4%A"]
)
def test_every_view_loads_without_errors_or_requests(shown: Page, address: str):
    go(shown, address)
    assert shown.count("main .panel") >= 1
    assert shown.errors == []
    assert shown.requests == []


@in_browser
def test_driver_sees_errors_and_requests(tab: Page, tmp_path: Path):
    """The two tests above rest on it."""
    (tmp_path / "other.js").write_text("throw new Error('seen')")
    tab.call("Page.navigate", url="about:blank")
    harmful = (
        "<main><p class=panel></p></main><script src=other.js></script><script>console.error('told')</script>"
    )
    tab.open_text(tmp_path, harmful)
    assert any("seen" in error for error in tab.errors)
    assert any("told" in error for error in tab.errors)
    assert [Path(address).name for address in tab.requests] == ["other.js"]


@in_browser
def test_overview_counts(shown: Page):
    assert shown.texts(".tile-value") == ["30", "5", "2", "14.1M", "1"]  # 25 x 500k + 5 x 310k steps
    assert shown.texts(".tile-remark")[0] == "25 complete, 5 in progress"
    assert shown.texts(".attention li")[1] == "runs/old/seed-0 has no config.json"


@in_browser
def test_steps_of_all_runs_are_not_taken_for_the_length_of_one(shown: Page):
    assert shown.texts(".tiles dt")[3] == "Agent steps, all runs together"
    assert shown.texts(".tile-remark")[3] == "the longest run has 500k"


@in_browser
def test_finished_is_never_said_of_the_length_that_was_asked_for(tab: Page, tmp_path: Path):
    document = documents.example()
    document["tables"] = []
    tab.open_text(tmp_path, page(document))
    for address in ("", "#runs", RUN):
        go(tab, address)
        assert "finished" not in tab.evaluate("document.querySelector('main').innerText").lower()
    assert "500k of 500k" in tab.texts(".progress")


@in_browser
def test_one_of_a_kind_is_singular(tab: Page, tmp_path: Path):
    tab.open_text(tmp_path, page(documents.single()))
    assert tab.texts(".tiles dt")[:3] == ["Run", "Task", "Method"]
    for address in ("", "#tables", "#curves", "#task/dmc%3Acartpole-swingup", "#runs", ONLY_RUN):
        go(tab, address)
        said = tab.evaluate(
            "[document.querySelector('main').innerText,"
            " ...[...document.querySelectorAll('[aria-label]')].map(one => one.ariaLabel)].join('\\n')"
        )
        assert re.findall(r"\b1 \w+s\b", said) == []


@in_browser
@pytest.mark.parametrize("text", [MARKUP, BREAKOUT, QUOTES.replace("\udc80", "")])
def test_text_of_runs_is_shown_as_text(tab: Page, tmp_path: Path, text: str):
    document = documents.hostile(text)
    tab.open_text(tmp_path, page(document))
    addresses = [
        "",
        tab.evaluate("document.querySelector('[data-task] h3 a').getAttribute('href')"),
        "#tables",
        "#runs",
    ]
    for address in addresses:
        go(tab, address)
        assert text in tab.evaluate("document.querySelector('main').textContent")
    tab.hover(".folder")
    go(tab, tab.evaluate("document.querySelector('tbody .folder').getAttribute('href')"))
    assert text in tab.texts("h1")[0]
    assert any(text in name for name in tab.texts(".leaf-name"))
    assert any(text in name for name in tab.texts(".card h3"))
    assert tab.count("main img, main script") == 0
    assert tab.evaluate("window.harmed === undefined")
    assert tab.errors == []


@in_browser
def test_folder_names_with_halves_of_characters_can_be_opened(tab: Page, tmp_path: Path):
    tab.open_text(tmp_path, page(documents.hostile("\udc80")))
    go(tab, "#runs")
    tab.click("tbody .folder")
    assert "seed-0" in tab.texts("h1")[0]


# ---- tables


@in_browser
def test_tables_sort_by_click_with_the_unknown_last(shown: Page):
    go(shown, "#tables/main")
    as_given = shown.texts(FIRST_COLUMN)
    column = "thead tr:last-child th:nth-child(2)"
    states, orders = [], []
    for _ in range(3):
        shown.click(f"{column} button")
        states.append(shown.evaluate(f"document.querySelector('{column}').ariaSort"))
        orders.append(shown.texts("tbody td:nth-child(2)"))
    marked = "300.0 (incomplete: 2 of 5 seeds)"
    assert states == ["descending", "ascending", "none"]
    assert orders[0] == [marked, "250.0", "200.0", "100.0", "n/a"]
    assert orders[1] == ["100.0", "200.0", "250.0", marked, "n/a"]
    assert shown.texts(FIRST_COLUMN) == as_given


@in_browser
def test_tables_sort_by_keyboard_and_words_from_a(shown: Page):
    go(shown, "#tables/main")
    shown.evaluate("document.querySelector('thead button').focus()")
    shown.press("Enter")
    assert shown.texts(FIRST_COLUMN) == sorted(documents.TASKS)
    shown.press(" ")
    assert shown.texts(FIRST_COLUMN) == sorted(documents.TASKS, reverse=True)


@in_browser
def test_rows_are_filtered_by_all_words(shown: Page):
    go(shown, "#tables/main")
    shown.type("main input[type=search]", "WALK dmc")
    assert shown.texts(FIRST_COLUMN) == ["dmc:walker-walk"]
    assert shown.texts(".counter") == ["1 of 5 rows"]


@in_browser
def test_notes_are_shown_on_hover_and_on_focus_and_walked_by_arrows(shown: Page):
    go(shown, "#tables/main")
    shown.hover(".incomplete")
    assert shown.texts(".tip") == ["incomplete: 2 of 5 seeds"]
    shown.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    shown.settle()
    assert shown.texts(".tip") == []
    assert shown.count(".noted[tabindex='0']") == 1
    shown.evaluate("document.querySelector('.incomplete').focus()")
    assert shown.texts(".tip") == ["incomplete: 2 of 5 seeds"]
    shown.press("ArrowRight")
    assert shown.texts(".tip") == ["5 seeds"]


@in_browser
def test_tabs_follow_arrow_keys(shown: Page):
    go(shown, "#tables/main")
    shown.evaluate("document.querySelector('[role=tab]').focus()")
    shown.press("ArrowRight")
    shown.wait("location.hash === '#tables/ablations'")
    shown.settle()
    assert shown.texts("main h2") == ["Ablations"]
    assert shown.evaluate("document.activeElement.textContent") == "Ablations"
    assert shown.evaluate("document.activeElement.ariaSelected") == "true"


# ---- curves


def means_drawn(tab: Page) -> list[int]:
    """Curves in each chart that is drawn."""
    found: list[int] = tab.evaluate(
        "[...document.querySelectorAll('svg.plot')]"
        ".map(plot => plot.querySelectorAll('.series:not(.thin)').length)"
    )
    return found


@in_browser
def test_legend_hides_a_method_everywhere_and_its_colour_stays(shown: Page):
    go(shown, "#curves")
    assert set(means_drawn(shown)) == {4}
    colours = "[...document.querySelectorAll('.method')].map(one => one.querySelector('svg').style.cssText)"
    before = shown.evaluate(colours)
    shown.click(".method")
    assert set(means_drawn(shown)) == {3}
    assert shown.evaluate("document.querySelector('.method').ariaPressed") == "false"
    go(shown, TASK)
    assert means_drawn(shown) == [3]
    assert shown.evaluate(colours) == before
    assert len(set(before)) == 4


@in_browser
def test_all_methods_can_be_switched_off(shown: Page):
    go(shown, TASK)
    shown.evaluate("document.querySelector('[data-keep=\"legend:none\"]').click()")
    assert shown.texts(".chart-message") == ["Nothing to show: all methods are switched off."]
    shown.evaluate("document.querySelector('[data-keep=\"legend:all\"]').click()")
    assert means_drawn(shown) == [4]


@in_browser
@pytest.mark.parametrize(
    ("switch", "selector", "before", "after"),
    [
        ("singleRuns", ".series.thin", 0, 6),
        ("bands", ".band", 4, 0),
        ("published", ".plot .line.dashed", 2, 0),
        ("paper", ".plot .mark", 2, 0),
    ],
)
def test_switches_of_curves(shown: Page, switch: str, selector: str, before: int, after: int):
    go(shown, TASK)
    assert shown.count(selector) == before
    shown.click(f"[data-keep='switch:{switch}']")
    assert shown.count(selector) == after


@in_browser
def test_charts_end_where_short_runs_do_unless_the_reader_wants_it_otherwise(tab: Page, tmp_path: Path):
    tab.open_text(tmp_path, page(documents.cut_short(documents.example(), 3)))
    go(tab, TASK)
    assert "500k" not in tab.texts(".plot text")
    assert tab.count(".plot .line.dashed") == 2
    tab.click(END_WITH_OURS)
    assert "500k" in tab.texts(".plot text")
    assert tab.errors == []


@in_browser
@pytest.mark.parametrize(("evaluations", "short"), [(1, False), (2, True), (10, True), (11, False)])
def test_runs_are_short_before_half_of_what_is_known(
    tab: Page, tmp_path: Path, evaluations: int, short: bool
):
    """Of 500k steps, with an evaluation each 25k. Runs that have not begun have no end."""
    tab.open_text(tmp_path, page(documents.cut_short(documents.example(), evaluations)))
    assert is_checked(tab, END_WITH_OURS) is short


def is_checked(tab: Page, selector: str) -> bool:
    return bool(tab.evaluate(f"document.querySelector({json.dumps(selector)}).checked"))


@in_browser
def test_sources_are_named_as_far_as_they_are_shown(shown: Page):
    published = "Dashed: curves that the methods\u2019 own authors published."
    paper = "Short bars: final scores, at 500k agent steps, in the tables of the OG-SPR paper."
    go(shown, TASK)
    assert shown.texts(".sources") == [f"{published} {paper} These are different runs and may disagree."]
    shown.click("[data-keep='switch:published']")
    assert shown.texts(".sources") == [paper]
    shown.click("[data-keep='switch:paper']")
    assert shown.texts(".sources") == [""]
    shown.click("[data-keep='switch:published']")
    assert shown.texts(".sources") == [published]
    shown.click("[data-keep='legend:none']")
    assert shown.texts(".sources") == [""]


def looks(tab: Page) -> dict[str, list[str]]:
    """Colour and marker of each method of the legend."""
    found: dict[str, list[str]] = tab.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.method')].map(({ textContent: name }) =>"
        " [name, [ogspr.methods.look(name).colour, ogspr.methods.look(name).marker(0, 0, 1)]]))"
    )
    return found


@in_browser
def test_names_of_the_paper_look_the_same_in_every_report(tab: Page, tmp_path: Path):
    tab.open_text(tmp_path, page(documents.example(methods=("AnonMethod", "OG-SPR - SP", "a variant"))))
    some = looks(tab)
    tab.open_text(tmp_path, page(documents.example(methods=("No Adapter", "OG-SPR", "another"))))
    others = looks(tab)
    shared = some.keys() & others.keys()
    assert shared >= set(documents.PUBLISHED)
    assert all(some[name] == others[name] for name in shared)
    assert others["OG-SPR"][0] == "var(--method-0)" != some["OG-SPR - SP"][0]
    assert others["DrQ-v2"][0] == "var(--method-3)"


@in_browser
def test_methods_that_nobody_knows_take_colours_that_are_left(tab: Page, tmp_path: Path):
    methods = tuple(f"variant {number}" for number in range(20))
    document = documents.example(tasks=documents.TASKS[:1], methods=methods, seeds=1, evaluations=2)
    tab.open_text(tmp_path, page(document))
    found = looks(tab)
    assert len({tuple(look) for look in found.values()}) == len(found) == 23
    first_ones = (*documents.PUBLISHED, *sorted(methods)[:6])
    assert len({found[name][0] for name in first_ones}) == 8


@in_browser
def test_axis_in_frames_has_round_ticks(shown: Page):
    go(shown, TASK)
    assert "500k" in shown.texts(".plot text")
    shown.evaluate("document.querySelector('[data-keep=\"axis:agent_steps\"]').focus()")
    shown.press("ArrowRight")
    labels = shown.texts(".plot text")
    assert labels[-2:] == ["1M", "frames"]  # two frames a step
    assert "200k" in labels


@in_browser
def test_pointer_reads_all_methods_at_a_step(shown: Page):
    go(shown, TASK)
    shown.hover(".chart.large")
    title, *rows = shown.texts(".tip-title, .tip-label")
    assert title.endswith("agent steps")
    assert sorted(rows) == sorted(
        [
            "ogspr",
            "ogspr-without-observation",
            "MR.Q (published)",
            "DrQ-v2 (published)",
            "ogspr (paper)",
            "MR.Q (paper)",
        ]
    )


@in_browser
def test_arrow_keys_read_values_that_are_those_of_the_document(shown: Page):
    series = documents.example()["curves"][1]["series"][0]
    go(shown, TASK)
    shown.evaluate("document.querySelector('.chart').focus()")
    shown.press("End")
    shown.press("ArrowLeft")
    shown.press("ArrowRight")
    assert shown.texts(".tip-title") == ["500,000 agent steps"]
    mean = series["mean"][-1]
    assert mean is not None and f"ogspr {mean:.1f} " in shown.texts("[role=status]")[0]
    shown.press("Escape")
    assert shown.texts(".tip") == []


@in_browser
def test_click_enlarges_a_chart_and_back_returns(shown: Page):
    go(shown, "#curves")
    shown.click("[data-task='dmc:cheetah-run'] .chart")
    shown.wait("location.hash.startsWith('#task/')")
    shown.settle()
    assert shown.texts("h1") == ["dmc:cheetah-run"]
    assert shown.count(".chart.large svg.plot") == 1
    shown.evaluate("history.back()")
    shown.wait("location.hash === '#curves'")
    shown.settle()
    assert shown.texts("h1") == ["Curves"]


@in_browser
def test_tasks_are_filtered_by_name(shown: Page):
    go(shown, "#curves")
    shown.type("main input[type=search]", "walk")
    assert shown.texts(".card h3") == ["dmc:walker-walk"]
    shown.type("main input[type=search]", "ing")
    assert shown.texts(".no-card") == ["No curves to show."]


@in_browser
@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 500_000, ["0", "100k", "200k", "300k", "400k", "500k"]),
        (0, 1_200_000, ["0", "200k", "400k", "600k", "800k", "1M", "1.2M"]),
        (-20, 21, [f"{MINUS}20", f"{MINUS}10", "0", "10", "20"]),
        (1.8, 2.4, ["1.8", "2.0", "2.2", "2.4"]),
        (0, 0.0005, ["0", *(f"{factor}e{MINUS}4" for factor in range(1, 6))]),
    ],
)
def test_ticks_are_round(shown: Page, low: float, high: float, expected: list[str]):
    ticks = f"ogspr.numbers.linearTicks({low}, {high}, {len(expected) + 0.5})"
    assert tick_labels(shown, ticks, "false") == expected


def tick_labels(tab: Page, ticks: str, log: str) -> list[str]:
    script = f"const ticks = {ticks}; ticks.map(ogspr.numbers.tickText({{ ticks, log: {log} }}))"
    labels: list[str] = tab.evaluate(f"{{ {script} }}")
    return labels


@in_browser
def test_log_ticks_are_powers_of_ten(shown: Page):
    found = tick_labels(shown, "ogspr.numbers.logTicks(0.0002, 150, 6)", "true")
    assert found == ["0.001", "0.01", "0.1", "1", "10", "100"]


# ---- runs


@in_browser
def test_runs_are_filtered_and_opened_and_back_keeps_the_filter(shown: Page):
    go(shown, "#runs")
    shown.type("main input[type=search]", "cheetah seed-0")
    assert len(shown.texts(FIRST_COLUMN)) == 2
    shown.evaluate("document.querySelector('tbody a').focus()")
    shown.press("Enter")
    shown.wait("location.hash.startsWith('#run/')")
    shown.settle()
    assert shown.texts("h1") == ["runs/dmc-cheetah-run/ogspr/seed-0"]
    shown.evaluate("history.back()")
    shown.wait("location.hash === '#runs'")
    shown.settle()
    assert len(shown.texts(FIRST_COLUMN)) == 2
    assert shown.evaluate("document.querySelector('main input[type=search]').value") == "cheetah seed-0"


@in_browser
def test_run_shows_every_episode_and_every_column(shown: Page):
    go(shown, RUN)
    drawn = shown.evaluate(
        "document.querySelector('.chart.large .dots').getAttribute('d').split('M').length - 1"
    )
    assert drawn == 21 * 10
    together, *headings = shown.texts(".card h3")
    assert together == "Gradient on the encoder, by loss"
    assert headings[: len(documents.LOSSES)] == [name.replace("_", " ") for name in documents.LOSSES]
    assert headings[len(documents.LOSSES) :] == ["agent steps a second", "memory, GiB", "gpu memory, GiB"]
    assert shown.count("video[controls]") == 1


@in_browser
def test_gradients_on_the_encoder_are_lines_of_one_chart(shown: Page):
    go(shown, RUN)
    chart = "[data-keep='chart:influence']"
    shown.evaluate(f'document.querySelector("{chart}").scrollIntoView()')
    shown.settle()
    assert shown.count(f"{chart} .series") == len(documents.INFLUENCES)
    lines = f"""[...document.querySelectorAll("{chart} .series")]"""
    colours = shown.evaluate(f"new Set({lines}.map((one) => one.style.getPropertyValue('--colour'))).size")
    assert colours == len(documents.INFLUENCES)
    assert shown.texts(".influences .method-name") == ["value", "observation", "combined"]


@in_browser
def test_log_scale_of_losses(shown: Page):
    go(shown, RUN)
    losses = "[data-keep='chart:column:value_loss'] .plot text"
    shown.evaluate("document.querySelector('.chart.tiny').scrollIntoView()")
    shown.settle()
    before = shown.texts(losses)
    shown.click("[data-keep='switch:logLosses']")
    shown.evaluate("document.querySelector('.chart.tiny').scrollIntoView()")
    shown.settle()
    assert before[0] == "0"
    assert "0" not in shown.texts(f"{losses}[text-anchor=end]")


@in_browser
def test_settings_are_searched_by_path_and_value(shown: Page):
    go(shown, RUN)
    shown.type("[data-keep='filter:config']", "self_prediction 5")
    assert shown.texts(".card:has([data-keep='filter:config']) .leaf") == ["weight5", "horizon5"]


@in_browser
def test_settings_fold_with_the_keyboard(shown: Page):
    go(shown, RUN)
    before = len(shown.texts(".leaf"))
    shown.evaluate("document.querySelector('.tree summary').focus()")
    shown.press("Enter")
    assert len(shown.texts(".leaf")) < before


@in_browser
def test_runs_without_rows_say_so(tab: Page, tmp_path: Path):
    document = documents.example(tasks=documents.TASKS[:1], methods=documents.METHODS[:1], seeds=1)
    run = document["runs"][0]
    run["losses"] = run["system"] = {"names": [], "rows": []}
    run["evaluations"] = {"agent_steps": [], "frames": [], "scores": []}
    run["last"] = run["best"] = None
    run["config"], run["manifest"] = {}, {}
    tab.open_text(tmp_path, page(document))
    go(tab, "#runs")
    tab.click("tbody .folder")
    tab.wait("location.hash.startsWith('#run/')")
    tab.settle()
    assert tab.texts(".chart-message, main .empty:not([hidden])") == [
        "Not evaluated yet.",
        "train.csv has no rows yet.",
        "system.csv has no rows yet.",
    ]
    assert tab.errors == []


@in_browser
def test_a_gif_is_a_picture(tab: Page, tmp_path: Path):
    dot = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
    document = documents.example(tasks=documents.TASKS[:1], methods=documents.METHODS[:1], seeds=1)
    (tmp_path / "large.gif").write_bytes(base64.b64decode(dot.partition(",")[2]))
    document["runs"][0]["videos"] = [
        {"name": "best.gif", "source": dot},
        {"name": "large.gif", "source": "large.gif"},
    ]
    tab.open_text(tmp_path, page(document))
    go(tab, "#runs")
    tab.click("tbody .folder")
    tab.wait(
        "[...document.querySelectorAll('.videos img')].filter(one => one.naturalWidth === 1).length === 2"
    )
    assert tab.errors == []


@in_browser
def test_films_from_elsewhere_are_not_loaded(tab: Page, tmp_path: Path):
    document = documents.example(tasks=documents.TASKS[:1], methods=documents.METHODS[:1], seeds=1)
    sources = [
        "https://example.org/film.mp4",
        "//example.org/film.mp4",
        "javascript:window.harmed=1",
        "beside.mp4",
    ]
    document["runs"][0]["videos"] = [{"name": source, "source": source} for source in sources]
    (tmp_path / "beside.mp4").write_bytes(b"short")
    tab.open_text(tmp_path, page(document))
    go(tab, "#runs")
    tab.click("tbody .folder")
    tab.wait("document.querySelector('video')?.networkState === 3")  # no film in there, but it was read
    assert [Path(address).name for address in tab.requests] == ["beside.mp4"]
    assert tab.evaluate("window.harmed === undefined")


# ---- keyboard, size, theme, paper


@in_browser
def test_tab_key_reaches_every_control_of_the_curves(shown: Page):
    go(shown, "#curves")
    reachable = "a[href], button, input:not([type=radio]), .chart"
    wanted = shown.count(f"main :is({reachable})")
    shown.evaluate("window.reached = new Set(); addEventListener('focusin', e => reached.add(e.target))")
    for _ in range(wanted + 12):
        shown.press("Tab")
    missed = shown.evaluate(
        f"[...document.querySelectorAll('main :is({reachable})')]"
        ".filter(one => !reached.has(one)).map(one => one.outerHTML)"
    )
    assert missed == []


@in_browser
def test_focus_is_visible(shown: Page):
    go(shown, "#curves")
    shown.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert shown.evaluate(outline) == "solid"


@in_browser
@pytest.mark.parametrize("address", ["", "#tables/main", "#curves", TASK, "#runs", RUN])
@pytest.mark.parametrize("text", ["", "a-very-long-name-without-any-place-to-break-" * 3])
def test_no_sideways_scrolling_on_a_phone(tab: Page, tmp_path: Path, address: str, text: str):
    tab.resize(360, 740)
    document = documents.hostile(text) if text else documents.example()
    tab.open_text(tmp_path, page(document))
    if text and address.startswith(("#run/", "#task/")):
        go(tab, "#runs" if address == RUN else "#curves")
        address = tab.evaluate("document.querySelector('main tbody a, main h3 a').getAttribute('href')")
    go(tab, address)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.fixture
def phone(tab: Page) -> Page:
    tab.resize(390, 844)
    return tab


def right_end(tab: Page, selector: str) -> float:
    return float(
        tab.evaluate(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().right")
    )


@in_browser
def test_a_phone_shows_all_methods_of_the_legend(phone: Page, tmp_path: Path):
    methods = tuple(f"ogspr, a rather long change {number}" for number in range(8))
    phone.open_text(tmp_path, page(documents.example(methods=methods, seeds=1)))
    go(phone, "#curves")
    legend = "document.querySelector('.legend')"
    assert phone.evaluate(f"{legend}.scrollHeight <= {legend}.clientHeight")


@in_browser
@pytest.mark.parametrize("address", ["", "#tables/main", "#runs"])
def test_a_phone_has_room_beside_the_first_column(phone: Page, tmp_path: Path, address: str):
    document = documents.example()
    document["tables"][0]["columns"][0]["title"] = "method, task, machine and more of this kind"
    document["tables"][0]["rows"][0][0]["text"] = "score, IQM over task means, as in the paper, 28 tasks"
    phone.open_text(tmp_path, page(document))
    go(phone, address)
    share = "document.querySelector('tbody th').offsetWidth / document.querySelector('.scroll').clientWidth"
    assert phone.evaluate(share) <= 0.41


@in_browser
@pytest.mark.parametrize(
    ("address", "wanted"),
    [("#runs", ["Run", "Progress", "Last"]), ("", ["Task", "Method", "Score"])],
)
def test_a_phone_shows_what_matters_of_runs(phone: Page, tmp_path: Path, address: str, wanted: list[str]):
    phone.open_text(tmp_path, page(documents.example(methods=("OG-SPR",))))
    go(phone, address)
    assert [title.strip() for title in phone.texts("thead th")][: len(wanted)] == wanted
    assert right_end(phone, f"tbody td:nth-child({len(wanted)})") <= right_end(phone, ".scroll")


@in_browser
def test_numbers_of_notes_stay_on_one_line(tab: Page, tmp_path: Path):
    document = documents.example()
    document["tables"][0]["note"] = "Read at 500 000 agent steps, seeds 1 2 3."
    document["tables"][0]["rows"][1][1]["note"] = "at 1 500 000 steps"
    tab.open_text(tmp_path, page(document))
    go(tab, "#tables/main")
    assert tab.texts(".card-note") == ["Read at 500\u00a0000 agent steps, seeds 1 2 3."]
    tab.hover(".incomplete")
    assert tab.texts(".tip") == ["incomplete: at 1\u00a0500\u00a0000 steps"]


@in_browser
def test_theme_follows_the_system_until_it_is_chosen(shown: Page):
    background = "getComputedStyle(document.body).backgroundColor"
    shown.emulate(prefers_color_scheme="light")
    light = shown.evaluate(background)
    shown.emulate(prefers_color_scheme="dark")
    dark = shown.evaluate(background)
    assert light != dark
    shown.click(".theme")
    assert shown.evaluate(background) == light
    shown.call("Page.reload")
    shown.wait("document.querySelector('main .panel') && document.documentElement.dataset.theme === 'light'")
    shown.click(".theme")
    assert shown.evaluate(background) == dark


@in_browser
def test_colours_of_methods_stand_out_in_both_themes(shown: Page):
    """At least 3:1 against the surface, as WCAG asks of graphics."""
    script = """(() => {
        const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
        const light = (property) => {
            const probe = document.querySelector('h1');
            probe.style.color = `var(${property})`;
            canvas.fillStyle = getComputedStyle(probe).color;
            canvas.fillRect(0, 0, 1, 1);
            const linear = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((byte) => {
                const part = byte / 255;
                return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
        };
        const ground = light('--surface');
        return [...Array(8).keys()].map((at) => {
            const [low, high] = [ground, light(`--method-${at}`)].sort((a, b) => a - b);
            return (high + 0.05) / (low + 0.05);
        });
    })()"""
    for theme in ("light", "dark"):
        shown.emulate(prefers_color_scheme=theme)
        assert min(shown.evaluate(script)) >= 3.0


@in_browser
def test_print_shows_all_charts_and_rows(tab: Page, tmp_path: Path):
    tab.open_text(tmp_path, page(many_runs()))
    go(tab, "#curves")
    assert tab.count("svg.plot") < 12
    assert tab.call("Page.printToPDF")["data"]
    assert tab.count("svg.plot") == 12
    go(tab, "#runs")
    assert tab.count("tbody tr") == 100
    tab.call("Page.printToPDF")
    assert tab.count("tbody tr") == 120


def many_runs() -> Document:
    tasks = tuple(f"dmc:task-{number:02d}" for number in range(12))
    return documents.example(tasks=tasks, seeds=5, evaluations=5, episodes=2, losses=(), loss_rows=2)


# ---- nothing, and much


@in_browser
@pytest.mark.parametrize("document", [None, documents.empty()])
def test_an_empty_document_is_friendly(tab: Page, tmp_path: Path, document: Document | None):
    tab.open_text(tmp_path, page(document))
    assert tab.texts("h1") == ["No runs yet"]
    assert tab.errors == []


@in_browser
def test_a_large_document_is_drawn_as_far_as_it_is_seen(tab: Page, tmp_path: Path):
    tab.open_text(tmp_path, page(documents.large()))
    go(tab, "#curves")
    tasks = tab.count(".chart")
    assert tasks == 25
    assert 0 < tab.count("svg.plot") <= 12
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    tab.wait("document.querySelectorAll('.card')[24].querySelector('svg.plot')")
    assert tab.count("svg.plot") < tasks
    go(tab, "#runs")
    assert tab.texts(".counter") == ["500 rows"]
    assert tab.count("tbody tr") == 100
    tab.evaluate("document.querySelector('.scroll').scrollTop = 1e6")
    tab.wait("document.querySelectorAll('tbody tr').length === 200")
    go(tab, tab.evaluate("document.querySelector('tbody a').getAttribute('href')"))
    assert tab.count("svg.plot") < tab.count(".chart")
    assert tab.errors == []


# ---- live


@contextmanager
def served(current: Callable[[], Document | None]) -> Iterator[str]:
    """The address of a page that is fed with what is current. Nothing to give (LookupError): it complains."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                data = self.path == "/data.json"
                self.answer(200, document_json(current()) if data else page(None, live="data.json"))
            except LookupError as error:
                self.answer(409, json.dumps({"error": error.args[0]}))

        def answer(self, status: int, body: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.05))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@in_browser
def test_an_update_keeps_what_the_reader_has_chosen(tab: Page):
    document = documents.example()
    tab.resize(800, 500)  # so that there is something to scroll
    with served(lambda: document) as address:
        tab.open(f"{address}#curves")
        tab.wait("document.querySelector('.live').dataset.state === 'fresh'")
        tab.click(".method")
        tab.click("[data-keep='switch:singleRuns']")
        tab.type("main input[type=search]", "dmc")
        tab.evaluate("document.querySelectorAll('.card')[2].scrollIntoView()")
        tab.evaluate("window.sameCard = document.querySelector('.card'); 0")
        top = tab.evaluate("scrollY")
        assert top > 0

        changed = documents.example()
        changed["title"] = "later"
        changed["curves"][2]["series"][0]["mean"][-1] = 999.0
        document = changed
        tab.wait("document.querySelector('.brand').textContent === 'later'")
        tab.settle()

        assert tab.evaluate("scrollY") == top
        assert tab.evaluate("document.activeElement.value") == "dmc"
        assert tab.evaluate("document.querySelector('.method').ariaPressed") == "false"
        assert tab.evaluate(
            "document.querySelector('.card') === sameCard"
        )  # untouched: its task has not changed
        assert set(means_drawn(tab)) == {3}
        assert tab.count(".series.thin") > 0
        assert len(tab.texts(".card h3")) == 4


@in_browser
def test_an_update_keeps_the_open_run_and_the_order_of_tables(tab: Page):
    document = documents.example()
    with served(lambda: document) as address:
        tab.open(f"{address}#runs")
        tab.wait("document.querySelector('.live').dataset.state === 'fresh'")
        tab.click("thead th:nth-child(4) button")
        best = tab.texts(FIRST_COLUMN)
        changed = documents.example()
        changed["title"] = "later"
        for run in changed["runs"]:
            assert run["best"] is not None
            run["best"] = -run["best"]
        document = changed
        tab.wait("document.querySelector('.brand').textContent === 'later'")
        assert tab.texts(FIRST_COLUMN) == best[::-1]  # still the best first
        assert tab.evaluate("document.activeElement.textContent") == "Best"

        go(tab, RUN)
        tab.evaluate("window.sameFilm = document.querySelector('video')")
        grown = documents.example()
        grown["title"] = "still later"
        for run in grown["runs"]:
            run["agent_steps"] = 123_456
        document = grown
        tab.wait("document.querySelector('.brand').textContent === 'still later'")
        assert tab.evaluate("location.hash") == RUN
        assert "123,456 of 500,000" in tab.texts(".facts dd")
        assert tab.evaluate("document.querySelector('video') === sameFilm && sameFilm.isConnected")
        assert tab.errors == []


@in_browser
def test_an_update_follows_the_length_of_runs_until_the_reader_has_chosen(tab: Page):
    lengths = iter([3, 21, 3])
    document = documents.example()

    def show_next() -> None:
        nonlocal document
        changed = documents.cut_short(documents.example(), evaluations := next(lengths))
        changed["title"] = f"{evaluations} evaluations"
        document = changed
        tab.wait(f"document.querySelector('.brand').textContent === {json.dumps(changed['title'])}")
        tab.settle()

    with served(lambda: document) as address:
        tab.open(f"{address}{TASK}")
        show_next()
        assert is_checked(tab, END_WITH_OURS)
        show_next()
        assert not is_checked(tab, END_WITH_OURS)
        assert "500k" in tab.texts(".plot text")
        tab.click(END_WITH_OURS)
        tab.click(END_WITH_OURS)
        show_next()
        assert not is_checked(tab, END_WITH_OURS)
        assert "500k" in tab.texts(".plot text")
        assert tab.errors == []


@in_browser
def test_a_live_page_loads_then_is_empty_and_says_when_its_server_is_gone(tab: Page):
    document = documents.empty()
    runs_are_read = threading.Event()

    def current() -> Document:
        runs_are_read.wait(timeout=15)
        return document

    with served(current) as address:
        tab.open(address)
        assert tab.texts("h1") == ["Loading the runs"]
        runs_are_read.set()
        tab.wait("document.querySelector('.live').dataset.state === 'fresh'")
        assert tab.texts("h1") == ["No runs yet"]
        document = documents.example()
        tab.wait("document.querySelectorAll('.card').length > 1")
        assert tab.texts(".live")[0].startswith("Up to date")
    tab.wait("document.querySelector('.live').dataset.state === 'gone'")
    assert tab.texts(".live")[0].startswith("Server not reachable; as of ")
    assert tab.count(".card") > 1


@in_browser
def test_a_live_page_repeats_what_its_server_complains_about(tab: Page):
    document: Document | None = documents.example()

    def current() -> Document:
        if document is None:
            raise LookupError("runs/a has <b>no</b> config.json")
        return document

    with served(current) as address:
        tab.open(address)
        tab.wait("document.querySelector('.live').dataset.state === 'fresh'")
        document = None
        tab.wait("document.querySelector('.live').dataset.state === 'trouble'")
        assert tab.texts(".live") == ["runs/a has <b>no</b> config.json"]
        assert tab.count(".card") > 1
