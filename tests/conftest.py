"""What every test may use."""

import os

# Tests run side by side already, and networks this small are slower on several threads than on one. Set
# before torch is imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from ogspr.envs import gl


@pytest.fixture(scope="session")
def opengl() -> gl.Backend:
    """The GL backend of this machine; tests that draw ask for it."""
    return gl.activate()
