"""Environments from pixels: exact, restorable, in this process or in one of their own."""

from ogspr.envs.options import EnvOptions
from ogspr.envs.protocol import Environment, SplitStepEnvironment
from ogspr.envs.registry import check_task, is_own_code, launch, make, trusted_task
from ogspr.envs.resilient import InexactState, ResilientEnvironment
from ogspr.envs.worker import WorkerDied, WorkerError

__all__ = [
    "EnvOptions",
    "Environment",
    "InexactState",
    "ResilientEnvironment",
    "SplitStepEnvironment",
    "WorkerDied",
    "WorkerError",
    "check_task",
    "is_own_code",
    "launch",
    "make",
    "trusted_task",
]
