"""What the directory of a run holds, and that two settings never share it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from run.cli.console import printable
from run.files import Damaged, read_config
from run.identity import differences
from run.paths import SILENT
from utils import Unreadable, UserError, load_torch, remove_halves, save_torch, write_text

CHECKPOINT_FORMAT = 2  # 1: version 0.1, whose optimisers kept their moments as one vector

# What Parts.choices says where `auto` became true.
YES = ("recorded", "on the device", "compiled")
# Fixed until a run ends: they may move bits, or decide what a checkpoint holds.
PER_MACHINE = {"device", "num_threads", "compile", "tf32", "eval_envs", "save_replay"}


def ends_with(run: Path, frames: int) -> list[str]:
    """The files from which a finished run can go on: a checkpoint, or else its data and the snapshot
    of the same frame; none where it kept neither."""
    for names in ([f"checkpoint_{frames}.pt"], ["replay.pt", f"snapshots/snapshot_{frames}.pt"]):
        if all((run / name).exists() for name in names):
            return names
    return []


class RunDirectory:
    """One run: config.yaml, CSVs, snapshots/, two rolling checkpoints while unfinished, result.json
    at the end."""

    def __init__(self, path: Path, config: dict[str, Any]):
        self.path, self.config = path, config
        self._lock: int | None = None
        self._noted: dict[str, bool] = {}
        self.continues = False  # a finished run, to more frames

    @property
    def variant(self) -> str:
        return self.path.parts[-2 if self.config["phase"] == "pretrain" else -3]

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists() and not self.continues

    def say_finished(self) -> None:
        """Snapshots that are asked for but were not when the run was made need another run."""
        absent = [
            frame
            for frame in self.config.get("snapshots", [])
            if frame <= self.config["num_train_frames"] and not self.snapshot_path(frame).exists()
        ]
        note = (
            f" (it kept no snapshot of frame {absent[0]}; variant=NAME makes one)" if absent else ""
        )
        print(f"{self.path} is finished; nothing to do{note}", flush=True)

    def stored(self) -> dict[str, Any] | None:
        """The config that the run was started with; None where none was started yet."""
        try:
            return read_config(self.path)
        except Damaged as error:
            raise UserError(
                f"{self.path}: {error}; move the directory away or give variant=NAME"
            ) from error

    def check(self, *, resumes: bool = True) -> None:
        """Refuse a directory that holds another setting. `resumes`: it goes on from a checkpoint,
        unlike the directory of skills=oracle, which only sums up."""
        stored = self.stored()
        if stored is None:
            return
        self.continues = self.finished and self._has_more_frames(stored, resumes)
        # What may move bits must stay as it was until the run ends.
        ignored = {*SILENT, "num_train_frames", *PER_MACHINE}
        if not self.finished:
            ignored -= PER_MACHINE
        if self.config.get("compile") == "auto":  # continues as it was started
            ignored |= {"compile"}
        differ = differences(self.config, stored, ignored)
        if differ:
            shown = ", ".join(
                f"{key} ({there} there, {here} here)"
                for key, (there, here) in list(differ.items())[:4]
            )
            raise UserError(
                f"{self.path} holds a run with other settings: {shown}"
                f"{' and more' if len(differ) > 4 else ''}; give variant=NAME, or the settings it has"
            )
        self._refuse_fewer_frames(stored)

    def _has_more_frames(self, stored: dict[str, Any], resumes: bool) -> bool:
        """Whether this run goes on where a finished one ended. At frame 0 there is nothing to go on
        from, and nothing is lost by a new beginning."""
        had, wanted = stored.get("num_train_frames", 0), self.config["num_train_frames"]
        if wanted <= had:
            return False
        if resumes and had and not ends_with(self.path, had):
            raise UserError(
                f"{self.path} is finished with {had} frames and kept no checkpoint from which "
                f"num_train_frames={wanted} could go on (keep_checkpoint=true keeps one, save_replay=true "
                "a pre-training's data); give variant=NAME to start from the beginning"
            )
        return True

    def _refuse_fewer_frames(self, stored: dict[str, Any]) -> None:
        wanted, had = self.config["num_train_frames"], stored.get("num_train_frames", 0)
        come = had if self.finished else self.newest_frame
        if wanted < had and wanted < come:
            raise UserError(
                f"{self.path} has {come} frames already, and num_train_frames={wanted} is fewer; its "
                "evaluations on the way are in eval.csv, or give variant=NAME"
            )

    def open(self) -> None:
        """Create, lock and label the directory."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_halves(self.path)  # nobody writes here but us
            stored = self.stored()
            frames = "num_train_frames"  # the only key that a run may change on its way
            if stored is None or stored.get(frames) != self.config.get(frames):
                write_text(self.path / "config.yaml", yaml.safe_dump(self.config, sort_keys=False))
            if self.continues:
                for name in ("result.json", "choices.npz", "choices.png"):
                    (self.path / name).unlink(missing_ok=True)
        except BlockingIOError:
            self.close()
            raise UserError(
                f"{self.path} is in use by another process; wait for it, or give variant=NAME"
            ) from None
        except OSError as error:
            self.close()
            raise UserError(
                f"cannot write to {self.path}: {error.strerror}; "
                "choose another place by run_root=DIR"
            ) from error

    def note(self, choices: dict[str, str]) -> None:
        """What a run decided after it was begun, into config.yaml: `auto` becomes true or false. A
        resume takes `compile` from there; the others move no number, and it decides anew."""
        made = {key: said in YES for key, said in choices.items()}
        if made == self._noted or "not yet" in choices.values():
            return
        self._noted = made
        config = {**self.config, "replay": dict(self.config["replay"])}
        for key, value in made.items():
            section, _, last = key.rpartition(".")
            (config[section] if section else config)[last] = value
        write_text(self.path / "config.yaml", yaml.safe_dump(config, sort_keys=False))

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def snapshot_path(self, frame: int) -> Path:
        return self.path / "snapshots" / f"snapshot_{frame}.pt"

    def checkpoints(self) -> list[Path]:
        """Newest first, by the frame in the name: clocks may jump."""
        found = (
            re.fullmatch(r"checkpoint_(\d+)\.pt", p.name) for p in self.path.glob("checkpoint_*.pt")
        )
        frames = sorted((int(m[1]) for m in found if m), reverse=True)
        return [self.path / f"checkpoint_{frame}.pt" for frame in frames]

    @property
    def newest_frame(self) -> int:
        return max((int(path.stem.partition("_")[2]) for path in self.checkpoints()), default=0)

    def newest(self) -> str:
        """What a run that must stop can go back to."""
        found = self.checkpoints()
        return f"{found[0]} is from before that" if found else "before the first checkpoint"

    def save_checkpoint(self, frame: int, payload: dict[str, Any]) -> None:
        """Write the new one, then drop all but the newest two: a crash costs at most one
        interval."""
        labels = {"kind": "checkpoint", "format": CHECKPOINT_FORMAT}
        save_torch(self.path / f"checkpoint_{frame}.pt", {**labels, **payload})
        remove(self.checkpoints()[2:])

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The newest that can be read; None where there is none. One that cannot be read is set
        aside, so that it does not count as one of the two that are kept."""
        found = self.checkpoints()
        for path in found:
            try:
                payload = load_torch(path, "checkpoint")
            except Unreadable as error:
                aside = path.with_name(f"damaged_{path.name}")
                print(
                    printable(f"warning: {error}; kept as {aside.name}, trying the one before"),
                    file=sys.stderr,
                    flush=True,
                )
                path.rename(aside)
                continue
            if payload.get("format") != CHECKPOINT_FORMAT:
                raise UserError(
                    f"{path} was written by another version of this code, whose unfinished runs "
                    "cannot be continued here; finish it there, or give variant=NAME to start anew"
                )
            return payload
        if found:
            raise UserError(
                f"no checkpoint of {self.path} can be read; the same command starts again from frame 0"
            )
        return None

    def finish(self, result: dict[str, Any]) -> None:
        write_text(self.path / "result.json", json.dumps(result, indent=2) + "\n")
        self.tidy()

    def tidy(self) -> None:
        """A finished run needs no checkpoints but the last one, where it was asked to keep that.
        More are there if a file system refused to remove them when it finished, or if it was
        killed just then."""
        keeps = self.config.get("keep_checkpoint") or (self.stored() or {}).get("keep_checkpoint")
        remove(self.checkpoints()[1 if keeps else 0 :])


def remove(paths: list[Path]) -> None:
    """Files that are in the way of nothing: where one cannot be removed, a warning is enough."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            print(
                printable(
                    f"warning: {path} cannot be removed ({error.strerror}); it is not needed"
                ),
                file=sys.stderr,
                flush=True,
            )
            return  # the others would say the same
