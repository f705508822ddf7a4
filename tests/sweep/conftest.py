"""What tests of all clusters compare with."""

import pytest

from tests.sweep.cluster_grids import sweep, tables_of, tiny_grid
from tests.sweep.grids import TASK


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    """The tables of any of these units when nothing happens to it."""
    grid = tiny_grid(tmp_path_factory.mktemp("undisturbed"), ["calm"])
    done = sweep("run", grid.source, "--code", TASK)
    assert done.returncode == 0, done.stdout + done.stderr
    return tables_of(grid.units[0])
