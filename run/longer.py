"""More frames of a finished run.

One that kept its last checkpoint goes on bit for bit. A pre-training that kept its data goes on from
its last snapshot and replay.pt: weights, moments, statistics, transitions and logs are those that it
ended with; the episode, the random streams (with other numbers than at frame 0) and the choice of
the skill start anew. Where a directory is named by its number of frames, the longer run is beside the
shorter one, which stays as it is.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from replay_buffer import ReplayBuffer
from run import data
from run.directory import PER_MACHINE, RunDirectory, ends_with
from run.files import read_log
from run.identity import config_of, differences
from run.paths import SILENT
from utils import UserError, load_snapshot

LOGS = ("eval.csv", "train.csv")


def shorter_run(directory: RunDirectory) -> Path | None:
    """The longest finished run of the same setting and seed that has fewer frames and kept what it
    ended with, for a run that has not begun."""
    if directory.config["variant"] or directory.stored() is not None:
        return None
    depth = 1 if directory.config["phase"] == "pretrain" else 2  # of the variant above the seed
    rest = directory.path.relative_to(directory.path.parents[depth - 1])
    found = {}
    for path in directory.path.parents[depth].glob(f"*/{rest}"):
        stored = config_of(path)
        frames = stored.get("num_train_frames", 0)
        if (
            0 < frames < directory.config["num_train_frames"]
            and ends_with(path, frames)
            and (path / "result.json").exists()
            and not differences(directory.config, stored, ignored(directory.config))
        ):
            found[frames] = path
    return found[max(found)] if found else None


def ignored(config: dict[str, Any]) -> set[str]:
    """What two runs of one setting may differ in, as long as one goes on from the other."""
    keys = {*SILENT, "num_train_frames"} - PER_MACHINE
    return keys | {"compile"} if config.get("compile") == "auto" else keys


def go_on_from(shorter: Path, directory: RunDirectory) -> None:
    """Bring over what the shorter run ended with, and the snapshots that this run would have written
    by then."""
    frames = config_of(shorter)["num_train_frames"]
    names = ends_with(shorter, frames)
    if data.FILE in names:
        for name in LOGS:  # which this run goes on writing
            if (shorter / name).exists():
                shutil.copy2(shorter / name, directory.path / name)
    names += [f"snapshots/snapshot_{frame}.pt" for frame in directory.config["snapshots"]]
    for name in dict.fromkeys(names):
        if (shorter / name).exists():
            (directory.path / name).parent.mkdir(parents=True, exist_ok=True)
            _link(shorter / name, directory.path / name)
    print(f"goes on from {shorter}", flush=True)


def _link(source: Path, target: Path) -> None:
    """No second copy where the file system can do without: the files are never written again."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def revived(directory: RunDirectory, memory: Any) -> dict[str, Any] | None:
    """Of a directory without a checkpoint, the state in which a shorter pre-training ended, as far as
    its snapshot and its data hold it; None where there is no data of fewer frames."""
    path, wanted = directory.path, directory.config["num_train_frames"]
    if not (path / data.FILE).exists() or not isinstance(memory, ReplayBuffer):
        return None
    found = data.load(path / data.FILE)
    if not 0 < found.frame < wanted:
        return None
    snapshot = load_snapshot(directory.snapshot_path(found.frame))
    if "objective_optimizers" not in snapshot:
        raise UserError(
            f"{directory.snapshot_path(found.frame)} is from before snapshots kept the moments of the "
            "objective's optimisers; give variant=NAME to start from the beginning"
        )
    logs = {name: read_log(path / name) for name in LOGS}
    return {
        "snapshot": snapshot,
        "memory": memory_state(found, memory),
        "logs": {
            n: [r for r in rows if int(r["frame"]) <= found.frame] for n, rows in logs.items()
        },
        "step": found.frame // found.action_repeat,
    }


def memory_state(found: data.Data, memory: ReplayBuffer) -> dict[str, Any]:
    """The data as the state of a ring in which it lies from the first row on. Its last episode, which
    may not have been over, counts as ended there."""
    lacking = set(memory.fields) - set(found.columns) - {"valid"}
    if lacking or len(found) > memory.capacity:
        raise UserError(
            f"{data.FILE} has no {', '.join(lacking)}; give the save_replay= that it was made with"
            if lacking
            else f"{data.FILE} has {len(found)} rows, more than replay.capacity={memory.capacity}"
        )
    step, n = found.columns["episode_step"], memory.nstep
    valid = np.zeros(len(found), bool)
    valid[:-n] = step[n:] == step[:-n] + n  # n steps on, the same episode
    arrays = {name: found.columns[name] for name in memory.fields if name != "valid"}
    return {
        "fields": {name: torch.from_numpy(a) for name, a in {**arrays, "valid": valid}.items()},
        "head": len(found) - 1,
        "size": len(found),
        "num_valid": int(valid.sum()),
    }
