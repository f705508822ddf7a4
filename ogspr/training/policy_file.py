"""A policy in a file: weights and what is needed to use them, nothing that could execute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ogspr.agents.acting import FrozenPolicy
from ogspr.agents.agent import make_policy
from ogspr.agents.methods import check_revision, method_named, method_of
from ogspr.agents.protocol import AgentConfig
from ogspr.device import Device
from ogspr.envs import EnvOptions
from ogspr.errors import UserError, unknown
from ogspr.records.run import RunFolder
from ogspr.records.settings_io import changed, plain
from ogspr.records.tree import load_tree, save_tree
from ogspr.training.graph import make_accelerator
from ogspr.training.options import Execution, default_execution
from ogspr.training.state_file import as_arrays, as_tensors
from ogspr.types import ActionSpec, ContinuousActions, DiscreteActions, EnvSpec

_KIND = "ogspr-policy-1"
BEST, LAST = "best", "last"


@dataclass(frozen=True)
class SavedPolicy:
    """What a policy file holds."""

    config: AgentConfig
    spec: EnvSpec
    env_options: EnvOptions
    """Observations and protocol of its environment."""
    weights: Mapping[str, Tensor]
    origin: dict[str, Any]
    """Where it comes from: task, seed, agent steps, score."""

    def build(self, device: Device, execution: Execution | None = None) -> FrozenPolicy:
        """A policy that acts; a UserError if the weights do not fit what the file says of itself."""
        accelerator = make_accelerator(execution or default_execution(device.is_gpu), device)
        policy = make_policy(self.config, self.spec, device=device, accelerator=accelerator)
        try:
            policy.load_weights(self.weights)
        except ValueError as error:
            raise UserError(f"this policy cannot be used: {error}.") from None
        return policy


def save_policy(path: Path, policy: SavedPolicy) -> None:
    save_tree(path, policy_tree(policy), _KIND)


def policy_tree(policy: SavedPolicy) -> dict[str, Any]:
    """As JSON values and arrays."""
    return {
        "method": method_of(policy.config).name,
        "revision": method_of(policy.config).revision,
        "config": plain(policy.config),
        "environment": _plain_spec(policy.spec),
        "env_options": plain(policy.env_options),
        "origin": policy.origin,
        "weights": as_arrays(dict(policy.weights)),
    }


def load_policy(path: Path) -> SavedPolicy:
    """What was saved; a UserError where the file is damaged or holds something else."""
    return policy_from(load_tree(path, _KIND), str(path))


def policy_from(tree: dict[str, Any], source: str) -> SavedPolicy:
    """What `policy_tree` gave; `source` names it in errors."""
    try:
        name, spec = str(tree["method"]), _spec(tree["environment"])
        method = method_named(name, source)
        check_revision(name, tree, source)
        config = changed(method.config(), tree["config"], source)
        env_options = changed(EnvOptions(), tree["env_options"], source)
        origin = {"task": str(tree["origin"]["task"])} | dict(tree["origin"])
        return SavedPolicy(config, spec, env_options, as_tensors(tree["weights"]), origin)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{source} is damaged: {error!r}; use another file.") from None


def policy_path(run: Path, which: str) -> Path:
    return RunFolder(run).policies / f"{which}.safetensors"


def find_policy(path: Path, which: str) -> Path:
    """A policy file: `path` itself, or the best or last one of the run whose folder it is."""
    if which not in (BEST, LAST):
        raise unknown("policy", which, (BEST, LAST))
    if path.is_dir():
        found = policy_path(path, which)
        RunFolder(path).require()
        if not found.exists():
            raise UserError(f"{path} has no {which} policy; a run has one after its first evaluation.")
        return found
    if not path.exists():
        raise UserError(f"{path} does not exist; pass a run folder or a policy file.")
    return path


def _plain_spec(spec: EnvSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "frame_shape": list(spec.frame_shape),
        "frame_stack": spec.frame_stack,
        "actions": {"kind": type(spec.actions).__name__, "size": spec.actions.vector_size},
        "action_repeat": spec.action_repeat,
        "episode_steps": spec.episode_steps,
        "protocol": dict(spec.protocol),
        "versions": dict(spec.versions),
    }


def _spec(saved: dict[str, Any]) -> EnvSpec:
    kinds = {kind.__name__: kind for kind in (ContinuousActions, DiscreteActions)}
    actions: ActionSpec = kinds[saved["actions"]["kind"]](int(saved["actions"]["size"]))
    channels, height, width = (int(size) for size in saved["frame_shape"])
    return EnvSpec(
        name=str(saved["name"]),
        frame_shape=(channels, height, width),
        frame_stack=int(saved["frame_stack"]),
        actions=actions,
        action_repeat=int(saved["action_repeat"]),
        episode_steps=saved["episode_steps"],
        protocol=dict(saved["protocol"]),
        versions=dict(saved["versions"]),
    )
