"""What every test may use."""

import os
import signal
import subprocess
import sys

# Ctrl-C is part of what is tested. In the background (`nohup make test &`) a shell has it ignored, and
# processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run side by side already, and networks this small are slower on several threads than on one. Set
# before torch is imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from ogspr.cli import main
from ogspr.envs import gl
from tests.helpers.trajectories import ROOT


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session")
def opengl() -> gl.Backend:
    """The GL backend of this machine; tests that draw ask for it."""
    return gl.activate()


@pytest.fixture
def ogspr_here(monkeypatch, capfd):
    """`python -m ogspr` in this process, for what is not about processes: starting one takes seconds."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
        capfd.readouterr()
        with monkeypatch.context() as changed, pytest.raises(SystemExit) as end:
            changed.chdir(ROOT)
            changed.setattr(sys, "argv", ["ogspr", *arguments])
            for name, value in variables.items():
                changed.setenv(name, value)
            main()
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, end.value.code, output, errors)

    return run
