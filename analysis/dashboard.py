"""Runs at hand, to look at: curves with intervals over seeds, trajectories in mazes, films of skills.

All of it is data for analysis/dashboard.js, which draws it in the browser. A row per run and
evaluation comes from the CSVs, so unfinished runs are there too.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis import html
from analysis.frames.runs import read_curves, read_runs
from analysis.maze.episodes import load as load_maze
from analysis.maze.episodes import play
from analysis.maze.pictures import START
from analysis.maze.pictures import colours as skill_colours
from analysis.media import read_media, read_note
from analysis.palette import colours
from analysis.scores.seeds import CONFIDENCE, interval
from envs.maze.geometry import geometry, walls
from run.cli.console import leave_out, printable
from utils import Unreadable, UserError, plural, stream_seed

MAZES, FILMS, PATHS = 6, 6, 8  # at most: pictures of mazes, films, trajectories of a skill
POINTS = 200  # of a curve
GROUP = ["phase", "on", "agent", "variant", "skills"]


def runs_below(root: Path) -> pd.DataFrame:
    runs = read_runs(root) if root.is_dir() else pd.DataFrame(columns=["phase", "state"])
    runs = runs[runs["state"].isin(("finished", "unfinished"))]
    if runs.empty:
        return runs
    on = runs["task"].where(runs["phase"] == "finetune", runs["domain"])
    return runs.assign(on=on, skills=runs["skills"].fillna(""))


def curves(root: Path) -> list[dict[str, Any]]:
    """A curve per setting: mean and interval over its seeds at every frame."""
    runs = runs_below(root)
    found: list[dict[str, Any]] = []
    for key, some in runs.groupby(GROUP, sort=True) if len(runs) else ():
        table = read_curves(some["path"])
        if table.empty:
            continue
        # Mazes without a goal pay nothing; what they are watched for is how much is covered.
        measure = (
            "coverage" if "coverage" in table and table["coverage"].notna().all() else "return"
        )
        rows = table.groupby("frame")["coverage" if measure == "coverage" else "return_mean"]
        frames: list[int] = sorted(table["frame"].unique().tolist())
        frames = frames[:: -(-len(frames) // POINTS)]
        bounds = [interval(rows.get_group(frame).to_numpy(float)) for frame in frames]
        about = dict(zip(GROUP, map(printable, key), strict=True))
        going = int((some["state"] == "unfinished").sum())
        told = plural(len(some), "seed") + (f", {going} unfinished" if going else "")
        name = " ".join(filter(None, (about["agent"], about["variant"], about["skills"])))
        found.append(
            {
                **about,
                "name": name,
                "told": told,
                "measure": measure,
                "x": frames,
                "mean": [short(rows.get_group(frame).mean()) for frame in frames],
                "low": [short(low) for low, _ in bounds],
                "high": [short(high) for _, high in bounds],
            }
        )
    paint = colours(dict.fromkeys(each["name"] for each in found))
    return [{**each, "colour": paint[each["name"]]} for each in found]


def short(value: float) -> float:
    return float(f"{value:.5g}")


def mazes(root: Path) -> list[dict[str, Any]]:
    """Trajectories of the newest snapshot of the newest maze runs."""
    newest: dict[Path, tuple[int, Path]] = {}
    for path in root.glob("pretrain/*_maze/*/*/seed_*/snapshots/snapshot_*.pt"):
        digits = path.stem.partition("_")[2]
        if re.fullmatch("[0-9]{1,15}", digits) and path.is_file() and not path.is_symlink():
            run = path.parents[1]
            newest[run] = max(newest.get(run, (-1, path)), (int(digits), path))
    order = sorted(newest.values(), key=lambda each: -each[1].stat().st_mtime)
    found = []
    for frame, path in order[:MAZES]:
        try:
            found.append(
                trajectories(path, f"{path.parents[1].relative_to(root)}, {frame:,} frames")
            )
        except UserError as error:
            leave_out(error)
    return found


def trajectories(path: Path, title: str) -> dict[str, Any]:
    trained = load_maze(path)
    rng = np.random.default_rng(stream_seed(trained.config["seed"], "maze picture"))
    paths, skill = play(trained.policy, trained.lanes, trained.skills, PATHS, rng, START)
    shape = geometry(trained.lanes.maze)
    return {
        "title": printable(title),
        "box": [*(shape.low - 0.1).tolist(), *(shape.high + 0.1).tolist()],
        "walls": np.asarray(walls(trained.lanes.maze)).tolist(),
        "colours": [css(colour) for colour in skill_colours(len(trained.skills))],
        "paths": [
            {"skill": int(z), "xy": np.round(xy.ravel(), 2).tolist()}
            for xy, z in zip(paths, skill, strict=True)
        ],
    }


def css(colour: np.ndarray) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)


def films(root: Path) -> list[dict[str, Any]]:
    """What `python -m analysis.film skills` left: a sheet of pictures, and what each of them is."""
    found = []
    for path in sorted(root.glob("**/sheet.json"))[:FILMS]:
        try:
            told = json.loads(read_note(path, root))
            sheet = read_media(path.with_suffix(".jpg"), root)
            entry = {
                "title": printable(told["title"]),
                "names": [printable(name) for name in told["names"]],
                "steps": [int(step) for step in told["steps"]],
                "size": int(told["size"]),
                "gap": int(told["gap"]),
                "sheet": html.data_uri(sheet, "image/jpeg"),
            }
        except Unreadable as error:
            leave_out(error)
        except (ValueError, KeyError, TypeError) as error:
            leave_out(Unreadable(f"{path} is not what analysis.film writes ({error})"))
        else:
            found.append(entry)
    return found


def told(root: Path, shown: list[dict[str, Any]]) -> str:
    if not shown:
        return f"No run below {root} has an evaluation yet."
    count = plural(len(shown), "setting")
    return f"{count} below {root}. Bands are {CONFIDENCE:.0%} bootstrap intervals of the mean over seeds."


def gather(root: Path) -> dict[str, Any]:
    shown = curves(root)
    return {"curves": shown, "told": told(root, shown), "mazes": mazes(root), "films": films(root)}


def section(root: Path, *, live: int = 0) -> str:
    """`live`: milliseconds between two looks at the runs, of a page that is served."""
    data = html.escape(json.dumps(gather(root), separators=(",", ":")))
    often = f' data-live="{live}"' if live else ""
    return f'<div id="dash" data-json="{data}"{often}></div>'
