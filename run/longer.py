"""More frames of a run whose directory is named by its number of frames: the longer run goes on
from the checkpoint that the shorter one kept, and the shorter one stays as it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from run.directory import PER_MACHINE, SILENT, RunDirectory
from run.identity import config_of, differences


def shorter_run(directory: RunDirectory) -> Path | None:
    """The longest finished run of the same setting and seed that has fewer frames and kept its
    checkpoint, for a run that has not begun."""
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
            and (path / f"checkpoint_{frames}.pt").exists()
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
    """Bring the checkpoint over, and the snapshots that this run would have written by then."""
    frames = config_of(shorter)["num_train_frames"]
    names = [f"checkpoint_{frames}.pt"]
    names += [f"snapshots/snapshot_{frame}.pt" for frame in directory.config["snapshots"]]
    for name in names:
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
