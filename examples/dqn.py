"""A method of your own: double DQN from pixels (van Hasselt et al., 2016).

    ogspr train gym:CartPole-v1 --method examples.dqn:METHOD --preset dqn --agent-steps 20000

Everything else is the package's: training, resuming, evaluation, several seeds, policies, CUDA graphs.
docs/add-a-method.md explains the parts.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ogspr.agents.actor_critic import action_kind
from ogspr.agents.methods import Factories, MethodEntry
from ogspr.agents.protocol import Group, Losses, Shifts, Trained, Uniform, Update
from ogspr.errors import UserError
from ogspr.nets import MLP, ConvEncoder
from ogspr.ops.images import scaled_pixels
from ogspr.types import DiscreteActions, Draw, EnvSpec, Window

PIXEL_RANGE = (-0.5, 0.5)


@dataclass(frozen=True)
class DQNConfig:
    """Every number of the method. Each is an option of the command line; its docstring is the help."""

    batch_size: int = 32
    """Windows in a batch."""
    discount: float = 0.99
    """Gamma, per agent step."""
    learning_rate: float = 3e-4
    """Learning rate."""
    target_rate: float = 0.01
    """How far the target moves towards the network after each update."""
    features: int = 128
    """Outputs of the encoder, and hidden units of the values."""
    epsilon: float = 0.05
    """Share of random actions in the end."""
    epsilon_steps: int = 5_000
    """Agent steps until that share is reached, on a straight line from 1."""
    random_steps: int = 500
    """Agent steps with random actions, and without updates, at the start."""
    tolerated_failures: int = 10
    """Consecutive updates that may be skipped because a number was non-finite; then the run stops."""

    longest_horizon = 1  # steps in a window


class QNetwork(nn.Module):
    """Images -> the value of each action."""

    def __init__(self, spec: EnvSpec, config: DQNConfig) -> None:
        super().__init__()
        self.encoder = ConvEncoder(spec.observation_shape, 16, config.features)
        self.values = MLP((config.features, config.features, spec.actions.vector_size), F.relu)

    def of_images(self, images: Tensor) -> Tensor:
        """(N, S * C, H, W) uint8 -> (N, A)."""
        return self.values(self.encoder(scaled_pixels(images, *PIXEL_RANGE)))

    def of_window(self, window: Window, step: int, shift: Tensor) -> Tensor:
        """The same for s_{t+step} of each window, its images shifted by up to 4 pixels: (B, A)."""
        return self.values(self.encoder.of_stacks(window.frames, window.stack(step), shift, 4, PIXEL_RANGE))


# --- equations: pure functions of networks and tensors --------------------------------------------------


class UpdateNoise(NamedTuple):
    now: Any  # (B, 2) shift of s_t
    later: Any  # (B, 2) shift of s_{t+1}


def q_loss(
    online: QNetwork, target: QNetwork, window: Window, noise: UpdateNoise, discount: float
) -> tuple[Tensor, Tensor]:
    """Huber(Q(s, a), r + gamma Q'(s', argmax Q(s'))), and the mean value."""
    with torch.no_grad():
        best = one_hot(online.of_window(window, 1, noise.later))
        bootstrap = (target.of_window(window, 1, noise.later) * best).sum(1)
        y = window.rewards[:, 0] + discount * window.alive[:, 1] * bootstrap
    q = (online.of_window(window, 0, noise.now) * window.actions[:, 0]).sum(1)
    return F.smooth_l1_loss(q, y), q.detach().mean()


class ActNoise(NamedTuple):
    explore: Any  # (N, 1): explore if it is below epsilon
    choice: Any  # (N, A): the largest one is the random action


def epsilon_greedy(network: QNetwork, epsilon: Tensor, images: Tensor, noise: ActNoise) -> Tensor:
    return one_hot(torch.where(noise.explore < epsilon, noise.choice, network.of_images(images)))


def greedy(network: QNetwork, images: Tensor) -> Tensor:
    return one_hot(network.of_images(images))


def one_hot(scores: Tensor) -> Tensor:
    return F.one_hot(scores.argmax(-1), scores.shape[-1]).float()


# --- acting and learning --------------------------------------------------------------------------------


class DQNActor:
    """Acts: while it learns, and alone from a policy file."""

    def __init__(self, config, network, spec, runner, device="cpu"):
        if not isinstance(spec.actions, DiscreteActions):
            raise UserError(f"DQN needs discrete actions, and {spec.name} has {spec.actions}.")
        self.actions = action_kind(spec.actions, gumbel_temperature=1.0)
        self.modules = {"network": network}  # what a policy file holds
        self._config, self._network = config, network
        self._epsilon = torch.ones((), device=device)  # a tensor: a captured graph reads it again each time
        self._epsilon_greedy, self._greedy = runner.function(epsilon_greedy), runner.function(greedy)

    def initial_carry(self, count):
        return {}  # it remembers nothing from step to step

    def noise(self, count, explore):
        return ActNoise(Uniform((count, 1)), Uniform((count, self.actions.size))) if explore else ()

    def at_step(self, agent_steps):
        done = min(agent_steps / self._config.epsilon_steps, 1.0)
        self._epsilon.fill_(1.0 + done * (self._config.epsilon - 1.0))

    def act(self, images, carry, first, noise, explore):
        if not explore:
            return self._greedy(self._network, images), carry
        return self._epsilon_greedy(self._network, self._epsilon, images, noise), carry


class DQN:
    """Learns: declares what an update draws, computes and trains, and when updates are made."""

    def __init__(self, config, spec, device, runner):
        self.config, self.random_steps = config, config.random_steps
        self.online = QNetwork(spec, config).to(device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.actor = DQNActor(config, self.online, spec, runner, device)
        self.learned = [self.online]
        self._q_loss: Callable[..., tuple[Tensor, Tensor]] = runner.function(q_loss)
        shifts = Shifts(config.batch_size, pad=4)
        self.updates = {
            "all": Update(
                draws={"steps": Draw(config.batch_size, horizon=1, by_priority=False)},
                noise=UpdateNoise(now=shifts, later=shifts),
                losses=self._losses,
                trains={"q": Trained([Group(self.online, config.learning_rate)], clip_norm=10.0)},
                weights={"q": 1.0},
                numbers=("q_mean",),
                after=self._move_target,
            )
        }

    def _losses(self, windows, noise):
        loss, mean = self._q_loss(self.online, self.target, windows["steps"], noise, self.config.discount)
        return Losses({"q": loss}, numbers={"q_mean": mean})

    def _move_target(self, losses, skip):
        rate = self.config.target_rate * (1.0 - skip)  # `skip` is 1 if a number was non-finite
        with torch.no_grad():
            for target, online in zip(self.target.parameters(), self.online.parameters(), strict=True):
                target.lerp_(online, rate)

    def tensors(self):
        return {"online": self.online.state_dict(), "target": self.target.state_dict()}

    def updates_due(self, agent_steps):
        return int(agent_steps > self.random_steps)

    def schedule(self, updates, agent_steps, replay):
        return ["all"]


METHOD = MethodEntry(
    name="dqn",
    config=DQNConfig,
    presets=("dqn",),
    preset=lambda name, task: DQNConfig(),
    factories=lambda: Factories(
        method=DQN,
        actor=lambda config, spec, runner: DQNActor(config, QNetwork(spec, config), spec, runner),
    ),
)
