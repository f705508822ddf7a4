"""One name scheme for all environments: `dmc:walker-walk`, `atari:Pong`, `gym:<id>`, `module:factory`."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple

from ogspr.envs import atari, dmc, gl, gym
from ogspr.envs.options import EnvOptions
from ogspr.envs.pixels import PixelEnvironment
from ogspr.envs.protocol import Environment, SplitStepEnvironment
from ogspr.envs.tasks import known_tasks
from ogspr.envs.trust import can_be_found, hidden, import_named
from ogspr.envs.worker import InProcess, WorkerEnvironment
from ogspr.errors import UserError, unknown


class _Suite(NamedTuple):
    check: Callable[[str, EnvOptions], None]  # refuses at once what needs no simulator to be seen
    make: Callable[[str, int, bool, EnvOptions], Environment]


_SUITES = {
    "dmc": _Suite(
        dmc.check,
        lambda task, seed, _training, options: PixelEnvironment(dmc.make_source(task, seed, options)),
    ),
    "atari": _Suite(atari.check, atari.make),
    "gym": _Suite(
        gym.check,
        lambda env_id, seed, _training, options: PixelEnvironment(gym.make_source(env_id, seed, options)),
    ),
}
_LARGEST_SEED = 2**32 - 1  # of numpy's RandomState, which dm_control uses


def make(name: str, *, seed: int, training: bool = False, options: EnvOptions | None = None) -> Environment:
    """The environment called `name`, in this process.

    `training` only changes the rewards the learner sees (Atari: their sign); scores stay the same.
    """
    options = options or EnvOptions()
    if not 0 <= seed <= _LARGEST_SEED:
        raise UserError(f"seed must be from 0 to {_LARGEST_SEED}, got {seed}.")
    suite, rest = _parts(name)
    if suite in _SUITES:
        return _SUITES[suite].make(rest, seed, training, options)
    return _from_factory(suite, rest, seed, options)


def check_task(name: str, options: EnvOptions | None = None) -> None:
    """A UserError if there is no such environment, as far as that can be checked immediately.

    Nothing is imported, rendered or started for it: a mistyped name should be reported without a wait.
    """
    suite, rest = _parts(name)
    if suite in _SUITES:
        _SUITES[suite].check(rest, options or EnvOptions())
    elif not can_be_found(suite):
        raise _unknown_module(suite)


def launch(
    name: str,
    *,
    seed: int,
    training: bool = False,
    options: EnvOptions | None = None,
    worker: bool = True,
) -> SplitStepEnvironment:
    """The environment called `name` in a separate process, or in this one with the same interface."""
    check_task(name, options)
    build = partial(make, name, seed=seed, training=training, options=options)
    if not worker:
        return InProcess(build())
    if name.startswith("dmc:"):
        gl.activate()  # once here, instead of a trial in every worker
    return WorkerEnvironment(build, name)


def is_own_code(task: str) -> bool:
    """Whether a task names a Python module: that of a function, or one that Gymnasium imports for it."""
    suite, _, rest = task.partition(":")
    return suite not in _SUITES or (suite == "gym" and gym.names_module(rest))


def trusted_task(task: str, given: str | None, source: object, how: str) -> str:
    """The task that a file names. One that names a Python module is run only if the user names it too.

    Args:
        given: What the user names.
        source: Who would run it, in words.
        how: How to name it, with {} for the task.
    """
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in task)
    if given is not None and given != task:
        raise UserError(f"{source} belongs to the task {shown}, not to {given}.")
    if is_own_code(task) and given is None:
        command = how.format(shlex.quote(shown))  # to be copied: a file must not put words of its own in it
        raise UserError(f"{source} would run the code {shown}; if you trust it, add: {command}")
    return task


def _parts(name: str) -> tuple[str, str]:
    """The suite or module, and what of it."""
    suite, _, rest = name.partition(":")
    if not suite or not rest:
        raise UserError(
            f"'{name}' is not an environment name; expected dmc:<domain>-<task>, atari:<Game>, gym:<id> "
            f"or module.path:factory, for example {_with_suite(name)}."
        )
    return suite, rest


def _with_suite(name: str) -> str:
    """What was perhaps meant by a name without its suite; else any name."""
    meant = (task for task in known_tasks() if task.partition(":")[2].lower() == name.strip(":").lower())
    return next(meant, "dmc:walker-walk")


def _from_factory(module_name: str, factory_name: str, seed: int, options: EnvOptions) -> Environment:
    from gymnasium import Env

    made = _call(_find_factory(module_name, factory_name), seed)
    if not isinstance(made, Env):
        if isinstance(made, Environment):
            options.refuse_except("custom")
            return made
        raise UserError(
            f"{module_name}:{factory_name} returned a {type(made).__name__}; "
            "expected a gymnasium.Env or an ogspr Environment."
        )
    return PixelEnvironment(gym.GymnasiumSource(f"{module_name}:{factory_name}", made, seed, options))


def _find_factory(module_name: str, factory_name: str) -> Callable[..., Any]:
    module = import_named(module_name)
    if module is None:
        raise _unknown_module(module_name)
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        callables = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise unknown(f"factory in {module_name}", factory_name, callables, hint=hidden(module_name))
    return factory  # type: ignore[no-any-return]


def _unknown_module(name: str) -> UserError:
    file = PurePath(name)
    if "/" not in name and (elsewhere := hidden(name)):
        hint = elsewhere
    elif file.suffix == ".py":
        hint = f"Name a file of your own by its module: {'.'.join(file.with_suffix('').parts)}:factory."
    else:
        hint = "Your own factories are module.path:factory, searched for in this folder and on Python's path."
    return unknown("suite or module", name, _SUITES, hint=hint)


def _call(factory: Callable[..., Any], seed: int) -> Any:
    takes_seed = "seed" in inspect.signature(factory).parameters
    return factory(seed=seed) if takes_seed else factory()
