"""From observations to actions, through buffers that stay where they are so that a graph can read them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.agents.protocol import Accelerator
from ogspr.types import UInt8Array

Respond = Callable[[Tensor, Tensor, Tensor], Tensor]


class Actor:
    """Runs a policy on observations.

    Args:
        respond: Observations (N, channels, H, W), normals (N, A), uniforms (N, A) -> actions (N, A).
    """

    def __init__(
        self, respond: Respond, action_size: int, accelerator: Accelerator, device: torch.device
    ) -> None:
        self._respond = respond
        self._action_size = action_size
        self._accelerator = accelerator
        self._device = device
        self._desks: dict[tuple[int, ...], _Desk] = {}

    def __call__(self, observations: UInt8Array, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """Action vectors (N, A); all noise comes from `rng`. Waits for the answer."""
        desk = self._desks.get(observations.shape)
        if desk is None:
            desk = _Desk(observations.shape, self._action_size, self._device)
            desk.run = self._accelerator.step(desk.procedure(self._respond))
            self._desks[observations.shape] = desk
        return desk.answer(observations, rng)


class _Desk:
    """Fixed buffers for one number of observations."""

    run: Callable[[], None]

    def __init__(self, shape: tuple[int, ...], action_size: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        noise_shape = (2, shape[0], action_size)
        self._host_observations = torch.zeros(shape, dtype=torch.uint8, pin_memory=pinned)
        self._host_noise = torch.zeros(noise_shape, pin_memory=pinned)
        self._observations = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._noise = torch.zeros(noise_shape, device=device)
        self._actions = torch.zeros(shape[0], action_size, device=device)

    def procedure(self, respond: Respond) -> Callable[[], None]:
        def respond_in_place() -> None:
            with torch.no_grad():
                self._observations.copy_(self._host_observations, non_blocking=True)
                self._noise.copy_(self._host_noise, non_blocking=True)
                self._actions.copy_(respond(self._observations, self._noise[0], self._noise[1]))

        return respond_in_place

    def answer(self, observations: UInt8Array, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        # The last answer was waited for, so nothing reads these buffers any more.
        self._host_observations.numpy()[:] = observations
        noise = self._host_noise.numpy()
        noise[0] = rng.standard_normal(noise[0].shape, np.float32)
        noise[1] = rng.random(noise[1].shape, np.float32)
        self.run()
        actions: npt.NDArray[np.float32] = self._actions.cpu().numpy().copy()
        return actions
