"""Films of episodes: frames with a few words in them, as an mp4 that any player opens."""

from __future__ import annotations

import functools
import io
import math
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from envs import Env
from envs.render import Renderer
from utils import UserError, write_atomic

MOST_FPS = 25  # of a film in real time: more costs rendering and shows nothing new
UNKNOWN_FPS = 20  # URLB's, where the environment has no clock
# Near lossless to the eye; preset=medium: twice the time, 4 % smaller. mbtree would save a quarter,
# but where a side is no multiple of 16 x264 then weighs blocks by memory that nobody wrote: other
# bytes in another process.
ENCODER = {"crf": "20", "preset": "veryfast", "x264-params": "mbtree=0"}


def control_seconds(env: Env) -> float | None:
    """Simulated seconds of one native step, where the environment tells."""
    native = getattr(env, "unwrapped", env)
    if hasattr(native, "control_timestep"):
        return float(native.control_timestep())
    fps = (getattr(native, "metadata", None) or {}).get("render_fps")  # gymnasium's convention
    return 1 / fps if fps else None


def pace(env: Env, action_repeat: int = 1) -> tuple[int, int]:
    """(every, fps): every how many steps to draw, and at which rate the film then runs in simulated
    time."""
    seconds = control_seconds(env)
    if seconds is None:
        return 1, UNKNOWN_FPS
    every = max(1, math.ceil(1 / (seconds * action_repeat * MOST_FPS) - 1e-6))
    return every, max(1, round(1 / (seconds * action_repeat * every)))


# -------------------------------------------------------------------------------------------- words


@functools.cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)  # comes with Pillow: the same letters on every machine


def name_skill(skill: np.ndarray) -> str:
    """ "skill 3" for a one-hot, the first entries of another vector, nothing for an empty one."""
    if skill.size == 0:
        return ""
    if np.count_nonzero(skill) == 1 and skill.max() == 1:
        return f"skill {int(skill.argmax())}"
    # adding 0.0 turns -0.0 into 0.0
    first = ", ".join(f"{round(float(value), 1) + 0.0:.1f}" for value in skill[:3])
    return f"z ({first}{', ...' if skill.size > 3 else ''})"


def write_on(frame: np.ndarray, top: str = "", bottom: str = "") -> np.ndarray:
    """A copy with a line at the top and one at the bottom, light with a dark rim: legible on any
    ground."""
    image = Image.fromarray(frame)
    draw = ImageDraw.Draw(image)
    height, width = frame.shape[:2]
    letters = max(12, height // 16)
    style = {
        "font": font(letters),
        "fill": "white",
        "stroke_width": max(1, letters // 10),
        "stroke_fill": "black",
    }
    margin = letters // 3
    draw.text((margin, margin), top, anchor="la", **style)
    draw.text((margin, height - margin), bottom, anchor="ld", **style)
    return np.array(image)


# --------------------------------------------------------------------------------------------- film


def import_av():
    """PyAV, only where a film is made. It is released every few months and encodes in this process,
    into any file object; imageio-ffmpeg, a fifth smaller, pipes to a second program that writes to
    a path.
    """
    try:
        import av
    except ImportError as error:
        raise UserError(f"videos need PyAV ({error}): pip install av") from error
    return av


def write_film(path: Path, frames: Iterable[np.ndarray], fps: int) -> None:
    """Frames (H, W, 3) uint8 of one shape; the file appears when it is complete. An odd side gets
    one more row or column, because yuv420p stores colours at half the size."""
    av, file = import_av(), io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options=ENCODER)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1  # a training run beside it needs the cores
        for number, frame in enumerate(frames):
            height, width = frame.shape[:2]
            frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), "edge")
            if number == 0:
                stream.height, stream.width = frame.shape[:2]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())  # what the encoder still held back
    write_atomic(path, lambda out: out.write(file.getbuffer()))


def require(env: Env) -> None:
    """Refuse a run that could not make its first film before it begins."""
    import_av()
    env.reset()
    with Renderer(8, 8) as renderer:
        renderer.frame(env)


class Recorder:
    """Films an episode: call `add` after every environment step and `close` at the end, which
    writes the file.

    Draws the first step and every `every`-th after it. Without steps, or when a `with` block is
    left by an error, no file is written.
    """

    def __init__(self, path: Path, *, size: int, fps: int, every: int):
        if min(size, fps, every) < 1:
            raise ValueError(f"size, fps and every must be positive, got {size}, {fps}, {every}")
        import_av()  # its absence is told before the episode, not after it
        self.path, self.size, self.fps, self.every = Path(path), size, fps, every
        self.renderer = Renderer(size, size)
        self.frames: list[bytes] = []  # compressed
        self.steps, self.total = 0, 0.0

    def add(self, env: Env, skill: np.ndarray, reward: float) -> None:
        self.steps += 1
        self.total += reward
        if (self.steps - 1) % self.every == 0:
            words = f"step {self.steps}, return {self.total:.1f}"
            frame = write_on(self.renderer.frame(env), name_skill(skill), words)
            self.frames.append(zlib.compress(frame.tobytes(), 1))  # a sixth of the memory, for 2 ms

    def close(self) -> None:
        self.renderer.close()
        if self.frames:
            shape = (self.size, self.size, 3)
            plain = (
                np.frombuffer(zlib.decompress(packed), np.uint8).reshape(shape)
                for packed in self.frames
            )
            write_film(self.path, plain, self.fps)
            self.frames = []

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is not None:
            self.frames = []
        self.close()
