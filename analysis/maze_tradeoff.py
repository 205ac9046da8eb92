"""Coverage against information about the skill, one dot a run.

    python -m analysis.maze_tradeoff results/maze/maze_study_*.csv --out PNG

The paper's claim in one picture: in the upper right corner lie methods that cover as much as those
that explore and tell their skills apart as well as those that only separate them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.maze.pictures import save_picture
from analysis.palette import colours, marker
from experiment.labels import label
from run.cli.console import Parser, leave_out
from run.cli.guard import run_command
from utils import Unreadable, UserError, first_line

NEEDED = {"domain", "agent", "skills", "coverage", "mi_grid", "command"}
BOUNDS = {"random": ("random actions", "x"), "uniform": ("uniform states", "+")}


def read(paths: list[Path]) -> pd.DataFrame:
    """Rows of python -m analysis.figure, or of analysis.maze measure."""
    frames = []
    for path in paths:
        try:
            frames.append(rows_of(path))
        except Unreadable as error:
            if len(paths) == 1:
                raise
            leave_out(error)
    if not frames:
        raise UserError("no row is left to draw; give rows of python -m analysis.figure")
    return pd.concat(frames, ignore_index=True)


def rows_of(path: Path) -> pd.DataFrame:
    try:
        rows = pd.read_csv(path, dtype={"agent": str, "domain": str, "command": str})
    except (OSError, ValueError) as error:
        raise Unreadable(
            f"{path} cannot be read: {first_line(error)}; give rows of python -m analysis.figure"
        ) from error
    if lacking := NEEDED - set(rows):
        raise Unreadable(
            f"{path} has no {', '.join(sorted(lacking))}; give rows of python -m analysis.figure"
        )
    for name in ("skills", "coverage", "mi_grid"):
        if not pd.api.types.is_numeric_dtype(rows[name]) or not np.isfinite(rows[name]).all():
            raise Unreadable(f"{path}: {name} is not a number in every row")
    if rows.empty or rows[list(NEEDED)].isna().any(axis=None):
        raise Unreadable(f"{path} has no rows, or empty cells in them")
    return rows


def name_of(row: pd.Series) -> str:
    """A method, or which bound; what was overridden in the surgery is part of the name."""
    if row["agent"] in BOUNDS:
        return BOUNDS[row["agent"]][0]
    return label(row["agent"]) + (" without surgery" if "surgery=sum" in row["command"] else "")


def tradeoff(rows: pd.DataFrame) -> Figure:
    """A panel per maze and number of skills; hollow: without surgery. The dashed line is log n."""
    rows = rows.assign(name=rows.apply(name_of, axis=1))
    groups = list(rows.groupby(["domain", "skills"], sort=False))
    names = list(dict.fromkeys(rows["name"]))
    paint = colours(agent for agent in rows["agent"] if agent not in BOUNDS)
    figure = Figure(figsize=(3.9 * len(groups) + 1.9, 3.6), dpi=110, layout="constrained")
    for axis, ((domain, skills), part) in zip(
        figure.subplots(1, len(groups), squeeze=False)[0], groups, strict=True
    ):
        for name in names:
            runs = part[part["name"] == name]
            for agent, some in runs.groupby("agent"):
                colour, hollow = paint.get(agent, "black"), name.endswith("without surgery")
                shape = BOUNDS[agent][1] if agent in BOUNDS else marker(agent)
                axis.plot(
                    some["coverage"],
                    some["mi_grid"],
                    shape,
                    color=colour,
                    label=name,
                    markersize=7,
                    alpha=0.85,
                    markerfacecolor="none" if hollow else colour,
                )
        axis.axhline(math.log(skills), color="0.6", linestyle="--", linewidth=1)
        title = f"{domain.replace('_', ' ')}, {skills} skills"
        axis.set(title=title, xlabel="coverage", xlim=(0, 1.05), ylim=(0, None))
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("information about the skill (nats)")
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside right center", frameon=False, fontsize=8
    )
    return figure


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="+", type=Path, help="CSV files of python -m analysis.figure")
    parser.add_argument("--out", type=Path, required=True, help="picture to write (.png)")
    args = parser.parse_args()
    run_command(lambda: write(args.rows, args.out))


def write(rows: list[Path], out: Path) -> None:
    save_picture(tradeoff(read(rows)), out)
    print(f"picture: {out}")


if __name__ == "__main__":
    main()
