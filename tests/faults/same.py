"""Two finished runs, compared bit for bit: weights, CSVs, results."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from utils import load_snapshot

CLOCK = {"seconds", "fps", "wall_seconds"}  # columns and keys that no seed decides


@dataclass
class Comparison:
    """What was looked at, and what differs."""

    frames: int = 0
    numbers: int = 0  # of weights and CSV cells
    differences: list[str] = field(default_factory=list)

    def check(self, same: bool, name: str, numbers: int = 1) -> None:
        self.numbers += numbers
        if not same:
            self.differences.append(name)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return [{k: v for k, v in row.items() if k not in CLOCK} for row in csv.DictReader(file)]


def without_clock(result: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in result.items() if k not in CLOCK}


def same_value(a: Any, b: Any) -> bool:
    """Of plain Python and tensors, to the last bit."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and (a.contiguous().numpy().tobytes() == b.contiguous().numpy().tobytes())
        )
    if isinstance(a, dict):
        return (
            isinstance(b, dict)
            and a.keys() == b.keys()
            and all(same_value(v, b[k]) for k, v in a.items())
        )
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same_value, a, b))
    return type(a) is type(b) and a == b


def compare(a: Path, b: Path) -> Comparison:
    """All that two run directories hold, apart from clocks and pictures."""
    found = Comparison()
    left, right = (json.loads((run / "result.json").read_text()) for run in (a, b))
    found.check(without_clock(left) == without_clock(right), "result.json", 0)
    found.frames = left["frame"]
    for name in ("train.csv", "eval.csv"):
        ours, theirs = rows(a / name), rows(b / name)
        found.check(ours == theirs, name, sum(map(len, ours)))
    names = [
        sorted(p.name for p in run.rglob("*") if p.suffix in (".pt", ".npz", ".tmp"))
        for run in (a, b)
    ]
    found.check(names[0] == names[1], f"files: {names}", 0)
    for path in sorted((a / "snapshots").iterdir()):
        ours, theirs = load_snapshot(path), load_snapshot(b / "snapshots" / path.name)
        for part in ours.keys() - {"config"}:  # config names the run's own root
            tensors = ours[part].values() if part in ("learner", "objective", "skills") else ()
            found.check(
                same_value(ours[part], theirs[part]),
                f"{path.name}: {part}",
                sum(t.numel() for t in tensors),
            )
    if (a / "choices.npz").exists():
        with np.load(a / "choices.npz") as ours, np.load(b / "choices.npz") as theirs:
            for name in ours:
                found.check(
                    np.array_equal(ours[name], theirs[name]), f"choices: {name}", ours[name].size
                )
    return found
