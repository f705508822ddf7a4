"""The import arrows of docs/architecture.md, read from the table there and from the code."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ogspr"


def documented_arrows() -> dict[str, set[str]]:
    """Module -> what it may import, from the rows of the table in the documentation."""
    rows = re.findall(
        r"^\| `(\w+)` \|[^|]*\| ([^|]*) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.M
    )
    return {module: set(re.findall(r"`(\w+)`", allowed)) for module, allowed in rows}


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    """Names of the parts of this package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("ogspr.")}
    return found


def sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py"))


def test_every_module_is_documented_and_every_documented_module_exists():
    parts = {module_of(path) for path in sources()} - {"__init__", "__main__", "cli"}
    assert parts == set(documented_arrows()) - {"cli"}


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_documented_arrows(path):
    module = module_of(path)
    if module in ("__init__", "__main__", "cli"):
        return
    forbidden = imported_modules(path) - documented_arrows()[module] - {module}
    assert not forbidden, f"{module} may not import {sorted(forbidden)}; see docs/architecture.md"


PAGE = ROOT / "docs" / "architecture.md"


def documented_files(page: str) -> set[Path]:
    """Files and folders in the first column of the tables that begin with `| file |`.

    A name without a folder lies where the one before it in the same row does; in the section on a part of the
    package, in that part.
    """
    found, part, in_table = set(), PACKAGE, False
    for line in page.splitlines():
        if line.startswith("## "):
            inside = re.fullmatch(r"## Inside `(\w+)`", line)
            part = PACKAGE / inside[1] if inside else PACKAGE
        in_table = line.startswith("|") and (in_table or line.startswith("| file |"))
        folder = part
        for name in re.findall(r"`([\w/.]+)`", line.split("|")[1]) if in_table else ():
            if "/" in name.rstrip("/"):
                home = ROOT if name.startswith("benchmarks/") else PACKAGE
                folder = (home / name).parent
            found.add(folder / Path(name).name)
    return found


def undocumented(named: set[Path]) -> list[str]:
    """Modules that no table of files names, nor their folder; unless none of their folder is named."""
    told = {path.parent for path in named}
    return [
        str(path.relative_to(PACKAGE))
        for path in sources()
        if path.name != "__init__.py"
        and path.parent != PACKAGE  # in the table of modules
        and path.parent in told
        and path not in named
        and path.parent not in named
    ]


def test_every_file_that_the_page_names_exists():
    named = documented_files(PAGE.read_text())
    assert len(named) > 60
    assert not [str(path) for path in named if not path.exists()]


def test_the_page_names_every_module_or_its_folder():
    assert not undocumented(documented_files(PAGE.read_text()))


def test_a_file_that_is_gone_or_left_out_would_be_seen():
    page = PAGE.read_text().replace("`agents/metrics.py`, `influence.py`", "`agents/metrics.py`, `gone.py`")
    named = documented_files(page)
    assert [path.name for path in named if not path.exists()] == ["gone.py"]
    assert undocumented(named) == ["agents/influence.py"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_files_that_pages_name_with_their_folder_exist(page):
    """Of the package, or of the checkout."""
    for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|md))`", page.read_text()):
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), f"{page.name}: {name}"


def test_files_that_docstrings_name_exist():
    for path in (*sources(), *(ROOT / "examples").glob("*.py")):
        text = path.read_text()
        for name in re.findall(r"(?<![\w/.])((?:\w+/)+\w+\.(?:py|md))\b", text):
            assert (PACKAGE / name).exists() or (ROOT / name).exists(), f"{path}: {name}"


def test_a_forbidden_import_would_be_seen(tmp_path):
    file = tmp_path / "file.py"
    file.write_text("def f():\n    from ogspr.cli import main\n    import ogspr.probe.probing\n")
    assert imported_modules(file) == {"cli", "probe"}


def test_the_package_does_without_what_surrounds_it():
    """Benchmarks, tests and examples are not in the wheel."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        build = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["packages"] == ["ogspr"]
    for path in sources():
        assert not re.search(r"^\s*(from|import) (benchmarks|tests|examples)\b", path.read_text(), re.M), path


def test_training_knows_no_method():
    """But for `presets`, which holds the preset for laptops: a method is an entry in `agents/methods.py`."""
    methods = {path.name for path in (PACKAGE / "agents").iterdir() if (path / "config.py").exists()}
    assert methods == {"ogspr", "mrq", "drqv2"}
    files = set((PACKAGE / "training").rglob("*.py")) - {PACKAGE / "training" / "presets.py"}
    for path in files:
        named = re.findall(r"ogspr\.agents\.(\w+)", path.read_text())
        assert not methods & set(named), path


@pytest.mark.parametrize("library", ["torch", "matplotlib"])
def test_environments_are_numpy_only(library):
    """Workers import `envs`: a heavy library there would cost every one of them."""
    for path in (PACKAGE / "envs").rglob("*.py"):
        tree = ast.parse(path.read_text())
        names = {
            alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        } | {(node.module or "").split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert library not in names, path
