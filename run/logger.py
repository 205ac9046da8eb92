"""train.csv and eval.csv always; TensorBoard and Weights & Biases by switch."""

from __future__ import annotations

import csv
import io
import math
import os
import secrets
import sys
import threading
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image

from agent.base import Metrics
from run.cli.console import printable
from utils import NotFinite, first_line, write_text, writing

WANDB_SECONDS = 20  # to wait for its server
FINISH_SECONDS = 120  # to wait for its last upload


class Table:
    """A CSV whose columns may grow; new rows are appended, a new column rewrites the file."""

    def __init__(self, path: Path):
        self.path = path
        self.columns: list[str] = []
        self.rows: list[dict[str, str]] = []

    def add(self, row: dict[str, Any]) -> None:
        row = {k: f"{v:.6g}" if isinstance(v, float) else str(v) for k, v in row.items()}
        new = [k for k in row if k not in self.columns]
        self.columns += new
        self.rows.append(row)
        if new:
            write_text(self.path, self.text())
        else:
            self._append(self._lines([row], header=False).encode())

    def _append(self, lines: bytes) -> None:
        """Append all of it or nothing: half a row on a full disk is taken back."""
        with writing(self.path), self.path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                while lines:
                    lines = lines[file.write(lines) :]
            except OSError:
                file.truncate(size)
                raise

    def _lines(self, rows: list[dict[str, str]], *, header: bool) -> str:
        out = io.StringIO()
        writer = csv.DictWriter(out, self.columns, lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def text(self) -> str:
        return self._lines(self.rows, header=True)

    def restore(self, text: str) -> None:
        """Back to a checkpoint: rows written after it are cut off."""
        reader = csv.DictReader(io.StringIO(text))
        self.columns = list(reader.fieldnames or [])
        self.rows = [{k: v for k, v in row.items() if v != ""} for row in reader]
        write_text(self.path, self.text()) if self.rows else self.path.unlink(missing_ok=True)


class Logger:
    """Metrics stay tensors until a window closes; then their means become one row."""

    def __init__(
        self,
        directory: Path,
        *,
        use_tb: bool,
        use_wandb: bool,
        project: str,
        name: str,
        config: dict[str, Any],
    ):
        self.directory = directory
        self.train, self.eval = Table(directory / "train.csv"), Table(directory / "eval.csv")
        self.sums: dict[str, torch.Tensor] = {}
        self.counts: dict[str, int] = {}
        self.tb = self.wandb = None
        if use_tb:
            from torch.utils.tensorboard import SummaryWriter

            self.tb = SummaryWriter(str(directory / "tb"))
        if use_wandb:
            self.wandb = _start_wandb(directory, project, name, config)

    def add(self, metrics: Metrics) -> None:
        for key, value in metrics.items():
            self.sums[key] = self.sums[key] + value if key in self.sums else value
            self.counts[key] = self.counts.get(key, 0) + 1

    def means(self, frame: int) -> dict[str, float]:
        """Means of the open window. A quantity that is not finite stops the run, by its name."""
        means = {key: float(total) / self.counts[key] for key, total in self.sums.items()}
        for key, value in means.items():
            if not math.isfinite(value):
                start = self.train.rows[-1]["frame"] if self.train.rows else 0
                raise NotFinite(f"{key} became {value} between frame {start} and frame {frame}")
        return means

    def close_window(self, frame: int, extra: dict[str, Any]) -> dict[str, float]:
        """Write the means of the window as a row of train.csv, and open the next one."""
        means = self.means(frame)
        self.sums, self.counts = {}, {}
        self.train.add({"frame": frame, **extra, **dict(sorted(means.items()))})
        self._publish(frame, {**extra, **means}, "train")
        return means

    def add_eval(self, frame: int, row: dict[str, Any]) -> None:
        self.eval.add({"frame": frame, **row})
        self._publish(frame, row, "eval")

    def _publish(self, frame: int, row: dict[str, Any], prefix: str) -> None:
        numbers = {f"{prefix}/{k}": v for k, v in row.items() if isinstance(v, int | float)}
        if self.tb:
            with writing(Path(self.tb.log_dir)):
                for key, value in numbers.items():
                    self.tb.add_scalar(key, value, frame)
        if self.wandb:
            self._tell_wandb({"frame": frame, **numbers})

    def _tell_wandb(self, row: dict[str, Any]) -> None:
        assert self.wandb is not None, "the caller has looked"
        try:
            self.wandb.log(row)
        except Exception as error:  # it may lose its numbers, the run must not
            _warn(f"Weights & Biases stopped ({first_line(error)}); going on without it")
            self.wandb = None

    def add_media(self, frame: int) -> None:
        """The films and the maze picture that the evaluation at this frame has left, if any."""
        if not (self.tb or self.wandb):
            return
        pictures = [self.directory / f"skills_{frame}.png"]
        films = sorted((self.directory / "videos").glob(f"eval_{frame}_*.mp4"))
        for path in (*pictures, *films):
            if path.is_file():
                self._publish_media(frame, path)

    def _publish_media(self, frame: int, path: Path) -> None:
        name = "media/" + path.stem.replace(f"_{frame}", "")
        if self.tb:
            strip = film_strip(path) if path.suffix == ".mp4" else picture(path)
            with writing(Path(self.tb.log_dir)):
                self.tb.add_image(name, strip, frame, dataformats="HWC")
        if self.wandb:
            kinds: Any = sys.modules["wandb"]  # loaded by whoever started it
            kind = kinds.Video if path.suffix == ".mp4" else kinds.Image
            self._tell_wandb({"frame": frame, name: kind(str(path))})

    def close(self) -> None:
        if self.tb:
            self.tb.close()
        if self.wandb:
            _finish_wandb(self.wandb, self.directory)

    def state_dict(self) -> dict[str, Any]:
        return {
            "train": self.train.text(),
            "eval": self.eval.text(),
            "sums": self.sums,
            "counts": self.counts,
        }

    def go_on(self, logs: dict[str, list[dict[str, str]]]) -> None:
        """Behind the rows of a shorter run, those that come later cut off."""
        for table in (self.train, self.eval):
            rows = logs[table.path.name]
            table.columns, table.rows = list(rows[0]) if rows else [], rows
            table.restore(table.text())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.train.restore(state["train"])
        self.eval.restore(state["eval"])
        self.sums, self.counts = dict(state["sums"]), dict(state["counts"])


def picture(path: Path) -> np.ndarray:
    """(H, W, 3) uint8."""
    return np.array(Image.open(path).convert("RGB"))


def film_strip(path: Path, count: int = 6) -> np.ndarray:
    """Pictures of a film side by side: TensorBoard shows no films without another library."""
    import av

    with av.open(str(path)) as film:
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    chosen = [frames[round(i)] for i in np.linspace(0, len(frames) - 1, min(count, len(frames)))]
    return np.concatenate(chosen, 1)


def wandb_id(directory: Path) -> str:
    """Drawn once per run directory and kept in it, so that a resumed run goes on where it was."""
    path = directory / "wandb_id"
    if not path.exists():
        write_text(path, secrets.token_hex(8) + "\n")
    return path.read_text().strip()


def wandb_labels(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """How runs are found again: seeds of one setting are a group, a phase is a type of job."""
    about = [config.get(key) for key in ("agent", "task", "domain", "preset")]
    tags = [section["name"] for section in about if isinstance(section, dict) and "name" in section]
    return {
        "group": name.rpartition("/")[0] or None,
        "job_type": config.get("phase"),
        "tags": sorted({tag[:64] for tag in tags}),
        "entity": os.environ.get("WANDB_ENTITY") or None,
    }


def _finish_wandb(run: Any, directory: Path) -> None:
    """A finish waits for the upload, for as long as it takes; the run does not."""
    failed: list[Exception] = []

    def finish() -> None:
        try:
            run.finish()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    thread.join(FINISH_SECONDS)
    if thread.is_alive() or failed:
        why = first_line(failed[0]) if failed else f"no answer in {FINISH_SECONDS} s"
        _warn(
            f"Weights & Biases did not finish ({why}); its numbers are below {directory}/wandb, "
            "`wandb sync` uploads them"
        )


def _start_wandb(directory: Path, project: str, name: str, config: dict[str, Any]):
    """A run of Weights & Biases that uploads; without network or key, one that can be uploaded
    later; None if not even that starts."""
    import wandb

    later = f"logging offline: `wandb sync {directory}/wandb/offline-run-*` uploads it later"
    attempts: list[tuple[Literal["offline"] | None, str]] = [
        (None, later),
        ("offline", "going on without it"),
    ]
    # A start that failed keeps its id in use until the process ends: the second try has its own.
    same_run: dict[str, Any] = {"id": wandb_id(directory), "resume": "allow"}
    for mode, instead in attempts:
        try:
            return wandb.init(
                project=project,
                name=name,
                **(same_run if mode is None else {}),
                **wandb_labels(name, config),
                dir=str(directory),
                config=config,
                mode=mode,
                settings=wandb.Settings(silent=True, init_timeout=WANDB_SECONDS),
            )
        except Exception as error:
            _warn(f"Weights & Biases did not start ({first_line(error)}); {instead}")
    return None


def _warn(line: str) -> None:
    print(printable(f"warning: {line}"), file=sys.stderr, flush=True)
