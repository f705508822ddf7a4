"""What the documentation says is what the files say."""

import re
import subprocess
import sys

import pytest

from tests.helpers.trajectories import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


def test_the_tables_in_the_docs_come_from_the_results():
    command = [sys.executable, str(ROOT / "scripts" / "update-docs"), "--check"]
    assert subprocess.run(command).returncode == 0, "run scripts/update-docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize(("page", "count"), [("README.md", 1), ("docs/environments.md", 2)])
def test_the_python_examples_of_a_page_run(page, count, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    assert len(blocks) == count
    for block in blocks:
        script = tmp_path / "example.py"
        script.write_text(block)
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert "(9, 84, 84)" in done.stdout


def test_every_command_the_readme_shows_exists():
    from ogspr import cli

    shown = re.findall(r"^ +ogspr (\w+)", (ROOT / "README.md").read_text(), re.M)
    assert len(shown) >= 5
    assert set(shown) <= set(cli._COMMANDS)
