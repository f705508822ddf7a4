"""From images to actions, through buffers that stay where they are; and methods frozen after training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ogspr.agents.modules import copy_state
from ogspr.agents.protocol import (
    Accelerator,
    Actor,
    Carry,
    Noise,
    Normal,
    Procedure,
    Representation,
    Uniform,
)
from ogspr.device import Device
from ogspr.types import Action, BoolArray, UInt8Array

Result = Callable[[], npt.NDArray[np.float32]]


def named_weights(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """The tensors of modules by module name and their own; not copies."""
    return {
        f"{part}.{name}": tensor
        for part, module in modules.items()
        for name, tensor in module.state_dict().items()
    }


def initial_carry(actor: Actor, count: int, device: Device) -> Carry:
    """What an actor remembers of `count` environments before their first step, where it computes.

    Copies, each with memory of its own: they are changed in place, and the actor may hand out what it keeps.
    """
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format).to(device.torch)
        for name, tensor in actor.initial_carry(count).items()
    }


def checked_noise(wanted: Noise) -> Noise:
    """What acting wants; a TypeError where it is something that the host does not draw."""
    for kind in wanted:
        if not isinstance(kind, Normal | Uniform) or (isinstance(kind, Uniform) and kind.double):
            raise TypeError(f"the noise of an actor is Uniform and Normal, in float32, and not {kind}")
    return wanted


def host_noise(wanted: Sequence[Uniform | Normal], rng: np.random.Generator) -> list[npt.NDArray[np.float32]]:
    """What acting wants, drawn on the host, in order: the same on every device and in every mode."""
    return [
        rng.standard_normal(kind.shape, np.float32)
        if isinstance(kind, Normal)
        else rng.random(kind.shape, np.float32)
        for kind in wanted
    ]


class ActBuffers:
    """Fixed tensors through which an actor sees images and answers, for one number of environments.

    Args:
        actor: What acts.
        shape: Of the images, (N, S * C, H, W).
        carry: Changed in place by every call.
        explore: Whether with the noise of exploration.
        accelerator: How its tensor code is run.
        device: Where the actor computes.
    """

    def __init__(
        self,
        actor: Actor,
        shape: tuple[int, ...],
        carry: Carry,
        *,
        explore: bool,
        accelerator: Accelerator,
        device: Device,
    ) -> None:
        count, there = shape[0], device.torch
        self._actor = actor
        self._explore = explore
        self._wanted = checked_noise(actor.noise(count, explore))
        self.carry = carry
        self._host_images = device.host_buffer(shape, torch.uint8)
        self._host_noise = [device.host_buffer(kind.shape) for kind in self._wanted]
        self._host_first = device.host_buffer(count)
        self._images = torch.zeros(shape, dtype=torch.uint8, device=there)
        self._noise = [torch.zeros(kind.shape, device=there) for kind in self._wanted]
        self._first = torch.zeros(count, device=there)
        self._actions = device.host_buffer((count, actor.actions.size))
        self._done = device.event()
        self._step = accelerator.step(Procedure(self._act, lambda: list(self.carry.values())))

    def get_ready(self) -> None:
        """Does what makes the first question slow; changes nothing."""
        self._step.get_ready()

    def ask(self, images: UInt8Array, first: BoolArray, rng: np.random.Generator) -> Result:
        """Queues the computation of action vectors (N, A); calling the result waits for them.

        It has to be called before the next question, whose answer takes the same place.
        """
        # The last answer was waited for, so nothing reads these buffers any more.
        self._host_images.numpy()[:] = images
        for buffer, drawn in zip(self._host_noise, host_noise(self._wanted, rng), strict=True):
            buffer.numpy()[:] = drawn
        if self.carry:
            self._host_first.numpy()[:] = first
        self._step()
        self._done.record()
        return self._result

    def _result(self) -> npt.NDArray[np.float32]:
        """Waits for the actions, but not for what was queued after them."""
        self._done.wait()
        actions: npt.NDArray[np.float32] = self._actions.numpy().copy()
        return actions

    def _act(self) -> None:
        with torch.no_grad():
            self._images.copy_(self._host_images, non_blocking=True)
            for there, here in zip(self._noise, self._host_noise, strict=True):
                there.copy_(here, non_blocking=True)
            if self.carry:
                self._first.copy_(self._host_first, non_blocking=True)
            noise = type(self._wanted)(*self._noise) if self._wanted else ()
            actions, carry = self._actor.act(self._images, self.carry, self._first, noise, self._explore)
            self._actions.copy_(actions, non_blocking=True)
            self._remember(carry)

    def _remember(self, new: Carry) -> None:
        """Puts a new carry in the place of the one that it may consist of: it is copied first."""
        shapes, expected = ({n: tuple(t.shape) for n, t in carry.items()} for carry in (new, self.carry))
        if shapes != expected:
            raise ValueError(f"an actor was given a carry of {expected}, and returned one of {shapes}")
        copies = {name: tensor.clone() for name, tensor in new.items()}
        for name, tensor in copies.items():
            self.carry[name].copy_(tensor)


class FrozenPolicy:
    """Acts as in evaluation, with weights that it is given and never changes.

    Args:
        actor: Over networks of its own.
        accelerator: How its tensor code is run.
        device: Where it computes, on a stream of its own: it waits for no learner and delays none.
    """

    def __init__(self, actor: Actor, *, accelerator: Accelerator, device: Device) -> None:
        self._stream = device.stream()
        with self._stream():
            for module in actor.modules.values():
                module.to(device.torch)
        self._actor = actor
        self._accelerator = accelerator
        self._device = device
        self._buffers: dict[tuple[int, ...], ActBuffers] = {}

    def initial_carry(self, count: int) -> Carry:
        """What it remembers of `count` environments before their first step."""
        with self._stream():
            return initial_carry(self._actor, count, self._device)

    def act(
        self, images: UInt8Array, carry: Carry, first: BoolArray, rng: np.random.Generator
    ) -> tuple[Action, Carry]:
        """Actions for images (N, C, H, W), and the next carry; the first call with a new N is slow."""
        with self._stream():
            buffers = self._buffers_for(images.shape)
            for name, tensor in buffers.carry.items():
                tensor.copy_(carry[name])
            vectors = buffers.ask(images, first, rng)()
            new_carry = {name: tensor.clone() for name, tensor in buffers.carry.items()}
        return self._actor.actions.to_environment(vectors), new_carry

    def get_ready(self, shape: tuple[int, ...]) -> None:
        """Does what makes the first call with images of that shape slow; changes nothing."""
        with self._stream():
            self._buffers_for(shape).get_ready()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """In place; ValueError if they belong to other networks."""
        with self._stream():
            copy_state(named_weights(self._actor.modules), weights)

    def _buffers_for(self, shape: tuple[int, ...]) -> ActBuffers:
        if shape not in self._buffers:
            self._buffers[shape] = ActBuffers(
                self._actor,
                shape,
                initial_carry(self._actor, shape[0], self._device),
                explore=False,
                accelerator=self._accelerator,
                device=self._device,
            )
        return self._buffers[shape]


class FrozenRepresentation:
    """Latent states and state-action representations, with the weights of a trained agent.

    Args:
        representation: The networks, with any weights.
        tensors: Of the agent's state; ValueError if they belong to other networks.
        device: Where it computes.
    """

    def __init__(
        self,
        representation: Representation,
        tensors: Mapping[str, Tensor],
        *,
        device: torch.device,
    ) -> None:
        for module in representation.modules.values():
            module.to(device).requires_grad_(False)
        self._representation = representation
        self._device = device
        prefixes = tuple(f"{part}." for part in representation.modules)
        copy_state(self.weights(), {name: tensors[name] for name in tensors if name.startswith(prefixes)})

    def encode(self, images: UInt8Array, actions: Action) -> tuple[Tensor, Tensor]:
        """h and z of images and actions of the environment, in float32 and without a shift."""
        vectors = torch.from_numpy(self._representation.actions.to_vector(actions)).to(self._device)
        return self._representation.encode(torch.from_numpy(images).to(self._device), vectors)

    def weights(self) -> dict[str, Tensor]:
        """By the names they have in an agent's state; not copies."""
        return named_weights(self._representation.modules)
