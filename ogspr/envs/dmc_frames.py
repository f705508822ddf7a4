"""Frames of a dm_control physics, rendered by `mujoco.Renderer`.

To be imported once OpenGL is chosen: MuJoCo reads MUJOCO_GL when it is imported, PyOpenGL its own variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import mujoco
import numpy as np
from OpenGL.raw.GL.VERSION import GL_1_0, GL_1_1, GL_1_4  # `OpenGL.GL` takes a tenth of a second

from ogspr.envs.cleanup import close_at_exit
from ogspr.types import UInt8Array


class TidyRenderer(mujoco.Renderer):  # type: ignore[misc]  # MuJoCo has no types
    """Frees what is its own.

    OpenGL deletes by number, in whichever context is current: closed while another renderer's context is,
    `mujoco.Renderer` deletes that one's textures and buffers, whose images are garbage from then on.
    """

    def close(self) -> None:
        if self._gl_context is not None:
            self._gl_context.make_current()
        super().close()


class FrameRenderer:
    """Draws one camera of a dm_control physics into (3, size, size) frames."""

    def __init__(self, physics: Any, size: int, camera: int, *, shadows: bool = True) -> None:
        self._physics = physics
        model = physics.model.ptr
        # A buffer of just the frame's size is what makes reading it back cheap.
        model.vis.global_.offwidth = model.vis.global_.offheight = size
        if not shadows:
            model.vis.quality.shadowsize = 0
        self._renderer = TidyRenderer(model, size, size)
        close_at_exit(self)
        _drop_shadow_stencil(self._renderer._mjr_context)
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = camera
        self._visible = mujoco.MjvOption()
        # MuJoCo draws the beams of range finders, dm_control does not.
        self._visible.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False
        # Tasks with a new terrain each episode send it to the physics' rendering contexts; without
        # this dm_control would open its own renderer next to ours and ours would show the old terrain.
        physics._contexts = _SharedContexts(self._renderer)

    def draw(self) -> UInt8Array:
        self._renderer.update_scene(self._physics.data.ptr, self._camera, self._visible)
        return np.ascontiguousarray(self._renderer.render().transpose(2, 0, 1))

    def upload_height_fields(self) -> None:
        model = self._physics.model.ptr
        self._renderer._gl_context.make_current()
        for index in range(model.nhfield):
            mujoco.mjr_uploadHField(model, self._renderer._mjr_context, index)

    def close(self) -> None:
        self._physics._contexts = None
        self._renderer.close()


def _drop_shadow_stencil(context: Any) -> None:
    """Gives the image from which shadows are read a format with the same depths and nothing besides them.

    MuJoCo takes one with 8 bits of stencil, because it is known on more systems. Nothing reads the stencil,
    yet clearing the depths has to keep it, which takes time without a GPU: no other image for a frame
    is nearly as large. To be called while the context's OpenGL is current.
    """
    side = context.shadowSize
    if not side:
        return
    GL_1_1.glBindTexture(GL_1_0.GL_TEXTURE_2D, context.shadowTex)
    GL_1_0.glTexImage2D(
        GL_1_0.GL_TEXTURE_2D,
        0,
        GL_1_4.GL_DEPTH_COMPONENT24,
        side,
        side,
        0,
        GL_1_0.GL_DEPTH_COMPONENT,
        GL_1_0.GL_UNSIGNED_INT,
        None,
    )
    GL_1_1.glBindTexture(GL_1_0.GL_TEXTURE_2D, 0)


class _SharedContexts:
    """Our renderer in the shape in which dm_control keeps its rendering contexts."""

    def __init__(self, renderer: Any) -> None:
        self._renderer = renderer

    @property
    def gl(self) -> _SharedContexts:
        return self

    @property
    def mujoco(self) -> _SharedContexts:
        return self

    @property
    def ptr(self) -> Any:
        return self._renderer._mjr_context

    @contextlib.contextmanager
    def make_current(self) -> Iterator[_SharedContexts]:
        self._renderer._gl_context.make_current()
        yield self

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    def free(self) -> None:
        """Nothing to do: the renderer belongs to `FrameRenderer`."""
