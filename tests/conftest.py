"""What every test may use."""

import pytest

from ogspr.envs import gl


@pytest.fixture(scope="session")
def opengl() -> gl.Backend:
    """The GL backend of this machine; tests that draw ask for it."""
    return gl.activate()
