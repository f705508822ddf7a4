"""Where a run starts from before a user changes anything: the options for a preset on a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ogspr.agents.methods import SMALL, method_with_preset
from ogspr.agents.ogspr import OGSPRConfig, Sizes, preset
from ogspr.agents.ogspr.config import ObservationPrediction, SelfPrediction
from ogspr.envs import EnvOptions
from ogspr.records.settings_io import changed
from ogspr.training.options import EvaluationOptions, TrainOptions

_DMC_STEPS, _HUMANOID_STEPS, _ATARI_STEPS, _OTHER_STEPS = 500_000, 2_000_000, 100_000, 100_000


def preset_options(name: str, task: str) -> TrainOptions[Any]:
    """The options of a run as in the paper, or `small`: for a CPU."""
    if name == SMALL:
        return small(task)
    method = method_with_preset(name)
    options = TrainOptions(agent=method.preset(name, task), agent_steps=_agent_steps(task))
    return changed(options, method.run_settings(task), f"preset {name}")


def small(task: str) -> TrainOptions[OGSPRConfig]:
    """All of the method with everything smaller: minutes on two cores, not the paper's numbers.

    Actions are held for long: a short run sees and learns more of the world so. Shadows are omitted, which
    are about half of the work of drawing, or more.
    """
    config = replace(
        preset("ogspr"),
        observation=ObservationPrediction(1.0),  # the sum is over fewer pixels; found by trying
        sizes=Sizes(16, 128, 128, 128, 128, 128, 128, 32, (32, 32, 16)),
        self_prediction=SelfPrediction(horizon=2),
        batch_size=32,
        discount=0.97,
        learning_rate=5e-4,
        target_period=100,
        random_steps=1_000,
        exploration_noise=0.2,
        shift_pad=2,
    )
    return TrainOptions(
        agent=config,
        agent_steps=5_000,
        log_every=250,
        env=EnvOptions(image_size=40, action_repeat=8, shadows=False if _is_dmc(task) else None),
        evaluation=EvaluationOptions(every=1_000, episodes=4, environments=2),
    )


def _agent_steps(task: str) -> int:
    """The paper's length of training."""
    if task.startswith("atari:"):
        return _ATARI_STEPS
    if _is_dmc(task):
        return _HUMANOID_STEPS if task.startswith("dmc:humanoid-") else _DMC_STEPS
    return _OTHER_STEPS


def _is_dmc(task: str) -> bool:
    """Where no task is named yet, too: help shows the options for that suite."""
    return task.startswith("dmc:") or not task
