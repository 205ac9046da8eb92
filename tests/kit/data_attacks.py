"""Damaged and hostile files of data: replay.pt, ExORL's episodes, the table of analysis.adapt."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.kit.file_attacks import LONG, NONSENSE, Attack, everywhere
from utils import save_torch

# -------------------------------------------------------------------------------------------- replay


def payload(**changes: Any) -> Attack:
    """The replay with other facts; None takes one away."""

    def spoil(run: Path) -> None:
        found = torch.load(run / "replay.pt", weights_only=True) | changes
        save_torch(run / "replay.pt", {k: v for k, v in found.items() if v is not None})

    return spoil


def column(name: str, change: Callable[[torch.Tensor], Any]) -> Attack:
    """The replay with another column; None takes it away."""

    def spoil(run: Path) -> None:
        found = torch.load(run / "replay.pt", weights_only=True)
        columns = found["columns"] | {name: change(found["columns"][name])}
        found["columns"] = {k: v for k, v in columns.items() if v is not None}
        save_torch(run / "replay.pt", found)

    return spoil


def filled(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda old: torch.full_like(old, value)


FACTS = ("frame", "action_repeat", "tasks", "env", "one_hot", "columns")
NAMES = ("obs", "action", "reward", "discount", "skill", "episode_step", "task_rewards")
REPLAY: dict[str, Attack] = {
    **everywhere("replay.pt"),
    **{f"no {fact}": payload(**{fact: None}) for fact in FACTS},
    **{
        f"{fact} is {what}": payload(**{fact: value})
        for fact in FACTS
        for what, value in NONSENSE.items()
        if value is not None
        and not (fact == "env" and what in ("a word", "escapes"))
        and not (fact == "one_hot" and what == "a truth value")
    },
    **{f"without {name}": column(name, lambda old: None) for name in NAMES},
    **{f"{name} is shorter": column(name, lambda old: old[:-1]) for name in NAMES},
    **{f"{name} is a scalar": column(name, lambda old: old.sum()) for name in NAMES},
    **{f"{name} is sparse": column(name, lambda old: old.to_sparse()) for name in NAMES},
    **{f"{name} is complex": column(name, lambda old: old.to(torch.cfloat)) for name in NAMES},
    **{f"{name} is bfloat16": column(name, lambda old: old.to(torch.bfloat16)) for name in NAMES},
    **{f"{name} is no tensor": column(name, lambda old: old.tolist()) for name in NAMES},
    "obs without content": column("obs", lambda old: old.to("meta")),
    "obs is nan": column("obs", filled(float("nan"))),
    "reward is infinite": column("reward", filled(float("inf"))),
    "steps count backwards": column("episode_step", filled(-1)),
    "steps are fractions": column("episode_step", lambda old: old.float()),
    "two rewards per row": column("reward", lambda old: old.repeat(1, 2)),
    "a task too few": column("task_rewards", lambda old: old[:, 1:]),
}

# ------------------------------------------------------------------------------------------ episodes


def episode(**changes: Any) -> Callable[[Path], Any]:
    """An episode of three steps of walker with other arrays; None takes one away."""

    def write(path: Path) -> None:
        arrays = {
            "observation": np.zeros((4, 24), np.float32),
            "action": np.zeros((4, 6), np.float32),
            "reward": np.zeros((4, 1), np.float32),
            "discount": np.ones((4, 1), np.float32),
            **changes,
        }
        np.savez(path, **{k: v for k, v in arrays.items() if v is not None})

    return write


def cut(path: Path) -> None:
    episode()(path)
    path.write_bytes(path.read_bytes()[:400])


def flipped(path: Path) -> None:
    """A byte inside an array's own compressed bytes."""
    np.savez_compressed(path, **{n: np.random.rand(50, 24) for n in ("observation", "action")})
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(data)


def bomb(path: Path) -> None:
    """A few kilobytes that say they are gigabytes."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 24)}
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("observation.npy", head.getvalue() + b"\0" * 200_000_000)


EPISODES: dict[str, Callable[[Path], Any]] = {
    "nonsense": lambda path: path.write_bytes(b"nonsense"),
    "empty": lambda path: path.write_bytes(b""),
    "a directory": lambda path: path.mkdir(),
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "cut off": cut,
    "a flipped byte": flipped,
    "a bomb": bomb,
    "an array by itself": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00" + b"\0" * 200),
    "objects": episode(observation=np.array([{"a": 1}] * 4, object)),
    "words": episode(action=np.array(["a"] * 4)),
    "dates": episode(reward=np.array(["2020-01-01"] * 4, "datetime64[D]")),
    "complex": episode(observation=np.zeros((4, 24), complex)),
    "not a number": episode(observation=np.full((4, 24), np.nan)),
    "infinite": episode(reward=np.full((4, 1), np.inf)),
    "two rewards": episode(reward=np.zeros((4, 2))),
    "other lengths": episode(action=np.zeros((3, 6))),
    "a scalar": episode(discount=np.float32(1)),
    "one row": episode(**{n: np.zeros((1, 1)) for n in ("observation", "action", "reward")}),
    **{f"no {name}": episode(**{name: None}) for name in ("observation", "action", "reward")},
}

# --------------------------------------------------------------------------------------------- table

CELLS: dict[str, tuple[str, str]] = {  # that spoil a line
    f"{name} is {value[:9]!r}": (name, value)
    for name, values in {
        "seed": ("x", "-1", "1.5", "inf", "", LONG),
        "frame": ("x", "nan", "-1", "", LONG),
        "return_mean": ("x", "inf", "nan", "", "\x1b[31m"),
        "normalised": ("x", "inf", "nan", ""),
        "pretrain_frames": ("x", "-1", ""),
        "task": ("",),
        "method": ("",),
    }.items()
    for value in values
}
TABLES: dict[str, bytes] = {  # that are none at all
    "empty": b"",
    "zeros": b"\0" * 200,
    "no text": b"\xff\xfe\x80" * 50,
    "a page": b"<html>404</html>\n",
    "other columns": b"a,b\n1,2\n",
    "a quote that stays open": b'method,"protocol\n1,2\n',
}
