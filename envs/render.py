"""Pictures of an `Env` as RGB arrays, drawn by MuJoCo's own functions.

dm_control settles its renderer by MUJOCO_GL when it is imported, and envs/dmc.py turns it off. Here
the OpenGL context is ours, and made when the first picture is asked for: a run that draws nothing
needs none.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np

from envs.base import Env
from utils import UserError

OFFSCREEN = ("egl", "osmesa")  # in this order: EGL may use a GPU, and is about as fast without one
PACKAGES = (
    "egl: libegl1 libopengl0 libgl1-mesa-dri; osmesa: libosmesa6"  # minimal sets on Debian 12
)
# URLB films camera 0 of walker and jaco and camera 2 of quadruped, which is called y.
CAMERA_NAMES = ("front_close", "y")
MAX_GEOMS = 10_000  # room in the scene; memory only

# A context, and the functions of it that MuJoCo looks up: libraries may be there and not fit
# together.
PROBE = """
import importlib, sys
import mujoco
context = importlib.import_module("mujoco." + sys.argv[1]).GLContext(8, 8)
context.make_current()
drawer = mujoco.MjrContext(mujoco.MjModel.from_xml_string("<mujoco/>"), mujoco.mjtFontScale.mjFONTSCALE_100)
drawer.free()
context.free()
"""


def wanted() -> tuple[str, ...]:
    """The backend that MUJOCO_GL names, else those that need no display."""
    named = os.environ.get("MUJOCO_GL", "").strip().lower()
    return (named,) if named in (*OFFSCREEN, "glfw") else OFFSCREEN


@functools.cache
def backend(candidates: tuple[str, ...]) -> str:
    """The first of the candidates that works on this machine."""
    reasons = []
    for name in candidates:
        # In a process of its own: PyOpenGL binds to one platform for good, and a broken driver may
        # crash.
        tried = subprocess.run([sys.executable, "-c", PROBE, name], capture_output=True, text=True)
        if tried.returncode == 0:
            return name
        lines = tried.stderr.strip().splitlines() or [f"ended with code {tried.returncode}"]
        reasons.append(f"{name} ({lines[-1][:90]})")
    raise UserError(
        f"cannot draw: no OpenGL from {', '.join(reasons)}; on Debian install the packages of one of them "
        f"({PACKAGES}), or set MUJOCO_GL to a backend that works"
    )


def camera_of(model):
    """The camera that URLB films with; the first one of other models, or a free one if there is
    none."""
    import mujoco

    camera = mujoco.MjvCamera()
    if model.ncam == 0:
        mujoco.mjv_defaultFreeCamera(model, camera)
        return camera
    # composer puts the name of the entity and a slash in front
    names = [model.cam(i).name.rpartition("/")[2] for i in range(model.ncam)]
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
    camera.fixedcamid = next((names.index(name) for name in CAMERA_NAMES if name in names), 0)
    return camera


def unseat_dm_control() -> None:
    """dm_control remembers which of its contexts is current, and draws without making it current
    again: after ours it would draw in the wrong one. So it is made to forget."""
    base: Any = sys.modules.get("dm_control._render.base")
    try:
        current = base and base._CURRENT_CONTEXT_FOR_THREAD.pop(threading.current_thread(), None)
        if current is not None:
            base._CURRENT_THREAD_FOR_CONTEXT.pop(current, None)
    except AttributeError:  # names of another version: what dm_control draws is its user's concern
        pass


class Renderer:
    """`frame(env)` is the picture of its current state; the simulation is only read.

    Shadows and reflections are off unless asked for: without a GPU they are more than half of the
    time.
    """

    def __init__(self, height: int = 256, width: int = 256, *, shadows: bool = False):
        self.height, self.width, self.shadows = height, width, shadows
        # Objects of MuJoCo, which carries no types; None until the first picture.
        self._gl: Any = None
        self._drawer: Any = None
        self._scene: Any = None
        self._model: Any = None

    def frame(self, env: Env) -> np.ndarray:
        """(height, width, 3) uint8."""
        native: Any = getattr(env, "unwrapped", env)
        if hasattr(native, "physics"):
            return self._draw(native.physics.model.ptr, native.physics.data.ptr)
        if getattr(native, "render_mode", None) == "rgb_array":
            return self._fit(self._ask(native))
        raise UserError(
            f"{type(native).__name__} cannot be drawn: it has no MuJoCo physics; a gymnasium environment "
            'must be made with render_mode="rgb_array" (envs: some.module:function)'
        )

    def close(self) -> None:
        if self._gl is not None:
            atexit.unregister(self.close)
            self._release()
            self._gl.free()
            self._gl = None

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # ---- MuJoCo

    def _draw(self, model, data) -> np.ndarray:
        import mujoco

        self._make_current()
        if model is not self._model:
            self._take(model)
        mujoco.mjv_updateScene(
            model, data, self._options, None, self._camera, mujoco.mjtCatBit.mjCAT_ALL, self._scene
        )
        picture = np.empty((self.height, self.width, 3), np.uint8)
        view = mujoco.MjrRect(0, 0, self.width, self.height)
        mujoco.mjr_render(view, self._scene, self._drawer)
        mujoco.mjr_readPixels(picture, None, view, self._drawer)
        return np.ascontiguousarray(picture[::-1])  # OpenGL counts rows from below

    def _make_current(self) -> None:
        """Before every frame: another renderer, or gymnasium's, may have drawn in between."""
        if self._gl is None:
            self._gl = importlib.import_module(f"mujoco.{backend(wanted())}").GLContext(
                self.width, self.height
            )
            # Registered after the library's own exit handler and so run before it, while contexts
            # can still be freed.
            atexit.register(self.close)
        self._gl.make_current()
        unseat_dm_control()

    def _take(self, model) -> None:
        """Upload a model. Composer compiles a new one at every reset, seed() may build a new
        environment.

        The reference kept here makes `is` a safe test: an address is not used again while the model
        lives.
        """
        import mujoco

        self._release()
        self._drawer = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_resizeOffscreen(self.width, self.height, self._drawer)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._drawer)
        self._scene = mujoco.MjvScene(model, MAX_GEOMS)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = self.shadows
        self._options, self._camera, self._model = mujoco.MjvOption(), camera_of(model), model

    def _release(self) -> None:
        if self._drawer is not None:
            self._gl.make_current()
            self._drawer.free()
        self._drawer = self._scene = self._model = None

    # ---- environments that draw themselves

    @staticmethod
    def _ask(native: Any) -> np.ndarray:
        """What gymnasium draws with may not be installed (pygame for the classic ones)."""
        name = getattr(getattr(native, "spec", None), "id", type(native).__name__)
        try:
            picture = native.render()
        except Exception as error:
            line = (
                str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            )
            raise UserError(
                f"{name} cannot be drawn: {line}; install what it draws with (gymnasium says what), "
                "or go without pictures"
            ) from error
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            raise UserError(f"{name} cannot be drawn: render() gave {type(picture).__name__}")
        return picture

    def _fit(self, picture: np.ndarray) -> np.ndarray:
        """The whole picture at our size, with bars where the shape differs."""
        from PIL import Image, ImageOps

        if picture.shape != (self.height, self.width, 3):
            picture = np.asarray(ImageOps.pad(Image.fromarray(picture), (self.width, self.height)))
        return np.array(picture, np.uint8)
