"""One name scheme for all environments: `dmc:walker-walk`, `atari:Pong`, `gym:<id>`, `module:factory`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ogspr.envs import atari, dmc, gl, gym
from ogspr.envs.options import EnvOptions
from ogspr.envs.pixels import PixelEnvironment, sign, unchanged
from ogspr.envs.protocol import Environment, SplitStepEnvironment
from ogspr.envs.worker import InProcess, WorkerEnvironment
from ogspr.errors import UserError, unknown

SUITES = ("dmc", "atari", "gym")


def make(name: str, *, seed: int, training: bool = False, options: EnvOptions | None = None) -> Environment:
    """The environment called `name`, in this process.

    `training` only changes the rewards the learner sees (Atari: their sign); scores stay the same.
    """
    options = options or EnvOptions()
    if seed < 0:
        raise UserError(f"seed must be 0 or more, got {seed}.")
    suite, separator, rest = name.partition(":")
    if not separator or not suite or not rest:
        raise UserError(
            f"'{name}' is no environment name; expected dmc:<domain>-<task>, atari:<Game>, gym:<id> "
            "or module.path:factory, for example dmc:walker-walk."
        )
    if suite == "dmc":
        return PixelEnvironment(dmc.make_source(rest, seed, options))
    if suite == "atari":
        _, protocol = atari.resolve_protocol(options)
        transform = sign if training and protocol.sign_rewards else unchanged
        return PixelEnvironment(atari.make_source(rest, seed, options), transform)
    if suite == "gym":
        return PixelEnvironment(gym.make_source(rest, seed, options))
    return _from_factory(suite, rest, seed, options)


def launch(
    name: str,
    *,
    seed: int,
    training: bool = False,
    options: EnvOptions | None = None,
    worker: bool = True,
) -> SplitStepEnvironment:
    """The environment called `name` in a process of its own, or here with the same interface."""
    build = partial(make, name, seed=seed, training=training, options=options)
    if not worker:
        return InProcess(build())
    if name.startswith("dmc:"):
        gl.activate()  # once here, instead of a trial in every worker
    return WorkerEnvironment(build, name)


def _from_factory(module_name: str, factory_name: str, seed: int, options: EnvOptions) -> Environment:
    made = _call(_find_factory(module_name, factory_name), seed)
    if isinstance(made, Environment):
        options.refuse_except("custom")
        return made
    from gymnasium import Env

    if not isinstance(made, Env):
        raise UserError(
            f"{module_name}:{factory_name} returned a {type(made).__name__}; "
            "expected a gymnasium.Env or an ogspr Environment."
        )
    return PixelEnvironment(gym.GymnasiumSource(f"{module_name}:{factory_name}", made, seed, options))


def _find_factory(module_name: str, factory_name: str) -> Callable[..., Any]:
    # As `python -m` does: a module in the folder the user works in can be named.
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise UserError(f"{module_name} needs the module {error.name}, which is not installed.") from None
        raise unknown(
            "suite or module", module_name, SUITES, hint="Own factories are module.path:factory."
        ) from None
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        callables = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        raise unknown(f"factory in {module_name}", factory_name, callables)
    return factory  # type: ignore[no-any-return]


def _call(factory: Callable[..., Any], seed: int) -> Any:
    takes_seed = "seed" in inspect.signature(factory).parameters
    return factory(seed=seed) if takes_seed else factory()
