"""From observations to actions, through buffers that stay where they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.agents.protocol import Accelerator, Procedure
from ogspr.types import Action, UInt8Array

Respond = Callable[..., Tensor]
Answer = Callable[[], npt.NDArray[np.float32]]


def as_batch(observation: UInt8Array) -> UInt8Array:
    """One observation (C, H, W), or several (N, C, H, W), as several."""
    return observation if observation.ndim == 4 else observation[None]


def actions_for(observation: UInt8Array, actions: Action) -> Action:
    """Of the actions for `as_batch(observation)`: all, or the one that a single observation gets."""
    return actions if observation.ndim == 4 else actions[0]


class Actor:
    """Runs a policy on observations.

    Args:
        respond: Observations (N, channels, H, W) -> actions (N, A); a noisy policy is also given standard
            normals (N, A) and numbers in [0, 1) (N, A).
        noisy: Whether it is.
    """

    def __init__(
        self,
        respond: Respond,
        action_size: int,
        accelerator: Accelerator,
        device: torch.device,
        *,
        noisy: bool,
    ) -> None:
        self._respond = respond
        self._action_size = action_size
        self._accelerator = accelerator
        self._device = device
        self._noisy = noisy
        self._desks: dict[tuple[int, ...], _Desk] = {}

    def ask(self, observations: UInt8Array, rng: np.random.Generator) -> Answer:
        """Action vectors (N, A) as soon as somebody calls for them, which has to be before the next question.

        Noise comes from `rng`, which a policy without noise leaves alone. A first call with a new N is slow.
        """
        desk = self._desks.get(observations.shape)
        if desk is None:
            desk = _Desk(observations.shape, self._action_size, self._device, self._noisy)
            desk.run = self._accelerator.step(Procedure(desk.procedure(self._respond)))
            self._desks[observations.shape] = desk
        desk.ask(observations, rng)
        return desk.answer


class _Desk:
    """Fixed buffers for one number of observations."""

    run: Callable[[], None]

    def __init__(self, shape: tuple[int, ...], action_size: int, device: torch.device, noisy: bool) -> None:
        pinned = device.type == "cuda"
        noise_shape = (2 if noisy else 0, shape[0], action_size)
        self._host_observations = torch.zeros(shape, dtype=torch.uint8, pin_memory=pinned)
        self._host_noise = torch.zeros(noise_shape, pin_memory=pinned)
        self._observations = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._noise = torch.zeros(noise_shape, device=device)
        self._actions = torch.zeros(shape[0], action_size, pin_memory=pinned)  # on the host
        self._answered = torch.cuda.Event() if pinned else None  # type: ignore[no-untyped-call]

    def procedure(self, respond: Respond) -> Callable[[], None]:
        def respond_in_place() -> None:
            with torch.no_grad():
                self._observations.copy_(self._host_observations, non_blocking=True)
                self._noise.copy_(self._host_noise, non_blocking=True)
                self._actions.copy_(respond(self._observations, *self._noise), non_blocking=True)

        return respond_in_place

    def ask(self, observations: UInt8Array, rng: np.random.Generator) -> None:
        # The last answer was waited for, so nothing reads these buffers any more.
        self._host_observations.numpy()[:] = observations
        if len(self._host_noise):
            normals, uniforms = self._host_noise.numpy()
            normals[:] = rng.standard_normal(normals.shape, np.float32)
            uniforms[:] = rng.random(uniforms.shape, np.float32)
        self.run()
        if self._answered is not None:
            self._answered.record()

    def answer(self) -> npt.NDArray[np.float32]:
        """Waits for it, and not for what was queued behind it."""
        if self._answered is not None:
            self._answered.synchronize()
        actions: npt.NDArray[np.float32] = self._actions.numpy().copy()
        return actions
