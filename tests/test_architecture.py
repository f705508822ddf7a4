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
