"""Scripts as true processes, what they leave, and two runs compared bit for bit."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch

import finetune
import pretrain
from utils import ROOT, load_snapshot

SCRIPTS = {"pretrain": pretrain, "finetune": finetune}
CLOCK = {"seconds", "fps"}  # columns that no seed decides


class Output(NamedTuple):
    code: int
    out: str
    err: str


def process(
    script: str, *args: str, env: dict[str, str] | None = None, **kwargs
) -> subprocess.Popen:
    """The script as a user starts it; `env` is added to the environment."""
    kept = {k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"}
    return subprocess.Popen(
        [sys.executable, str(ROOT / f"{script}.py"), *args],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.PIPE,
        env={**kept, **(env or {})},
        **kwargs,
    )


def finish(started: subprocess.Popen) -> Output:
    out, err = started.communicate(timeout=300)
    return Output(started.returncode, out, err)


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV without the columns that a clock decides."""
    return [{k: v for k, v in row.items() if k not in CLOCK} for row in table(path)]


def assert_same_run(a: Path, b: Path) -> None:
    """Two run directories hold the same numbers, bit for bit."""
    assert rows(a / "train.csv") == rows(b / "train.csv")
    assert rows(a / "eval.csv") == rows(b / "eval.csv")
    names = sorted(p.name for p in (a / "snapshots").iterdir())
    assert names and names == sorted(p.name for p in (b / "snapshots").iterdir())
    for name in names:
        ours, theirs = load_snapshot(a / "snapshots" / name), load_snapshot(b / "snapshots" / name)
        for part in ("learner", "objective"):
            assert ours[part].keys() == theirs[part].keys()
            for key, value in ours[part].items():
                assert torch.equal(value, theirs[part][key]), (name, part, key)
