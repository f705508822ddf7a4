"""What every test may use."""

import os
import signal
import subprocess
import sys
from functools import partial

# Ctrl-C is part of what is tested. In the background (`nohup make test &`) a shell has it ignored, and
# processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests run side by side already, and networks this small are slower on several threads than on one. Set
# before torch is imported, here and in the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

import benchmarks.__main__
import ogspr.cli
from ogspr.agents import methods
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
def program_here(monkeypatch, capfd):
    """`python -m <program>` in this process, for what is not about processes: starting one takes seconds."""
    mains = {"ogspr": ogspr.cli.main, "benchmarks": benchmarks.__main__.main}

    def run(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
        capfd.readouterr()
        with monkeypatch.context() as changed, pytest.raises(SystemExit) as end:
            changed.chdir(ROOT)
            changed.setattr(methods, "_registered", {})  # what `--method` adds belongs to that process
            changed.setattr(sys, "argv", [program, *arguments])
            for name, value in variables.items():
                changed.setenv(name, value)
            mains[program]()
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, end.value.code, output, errors)

    return run


@pytest.fixture
def ogspr_here(program_here):
    return partial(program_here, "ogspr")
