"""The program that `gl` runs to try an OpenGL backend; prints one JSON line.

list: the EGL devices, which CUDA device each one is, and whether it is a software renderer.
draw: draws a small scene with the backend that the environment variables name.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

_SCENE = """
<mujoco><worldbody>
  <light pos="0 0 3"/><geom type="plane" size="2 2 .1"/>
  <geom name="ball" pos="0 0 .3" size=".3" rgba="1 0 0 1"/>
  <camera pos="0 -2 1" xyaxes="1 0 0 0 .4 1"/>
</worldbody></mujoco>"""
_SIZE = 84


def list_devices() -> dict[str, Any]:
    """Every EGL device, in the order in which MUJOCO_EGL_DEVICE_ID counts them."""
    from OpenGL import EGL
    from OpenGL.EGL.EXT.device_base import egl_get_devices
    from OpenGL.raw.EGL.NV.device_cuda import EGL_CUDA_DEVICE_NV

    query_attribute = EGL.eglGetProcAddress("eglQueryDeviceAttribEXT")
    query_string = EGL.eglGetProcAddress("eglQueryDeviceStringEXT")
    attribute = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        query_attribute
    )
    string = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int)(query_string)

    devices = []
    for device in egl_get_devices():
        extensions = (string(device, EGL.EGL_EXTENSIONS) or b"").decode()
        cuda = None
        if "EGL_NV_device_cuda" in extensions:
            value = ctypes.c_ssize_t(-1)
            if attribute(device, EGL_CUDA_DEVICE_NV, ctypes.byref(value)):
                cuda = value.value
        devices.append({"cuda": cuda, "software": "EGL_MESA_device_software" in extensions})
    return {"devices": devices}


def draw() -> dict[str, Any]:
    """The name of the renderer; fails where the image does not show the scene."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(_SCENE)
    model.vis.global_.offwidth = model.vis.global_.offheight = _SIZE
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, _SIZE, _SIZE) as renderer:
        renderer.update_scene(data, camera=0)
        red, green = renderer.render()[_SIZE // 2, _SIZE // 2, :2].astype(int)
        if red - green < 50:
            raise RuntimeError("renders a wrong image")
        return {"renderer": _gl_string()}


def _gl_string() -> str:
    from OpenGL import GL

    name = GL.glGetString(GL.GL_RENDERER)
    return name.decode() if name else "unknown"


if __name__ == "__main__":
    print(json.dumps({"list": list_devices, "draw": draw}[sys.argv[1]]()))
