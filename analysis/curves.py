"""Curves of some runs as one picture: python -m analysis.curves RUN_DIR ... --out curves.png"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

# What a pre-training shows: one panel per list; panels without any of their columns are left out.
PANELS = {
    "reward streams (batch mean)": ("reward/diversity", "reward/exploration", "reward/task"),
    "parts of exploration": ("exploration/entropy", "exploration/rnd"),
    "accuracy of the encoders": ("diversity/accuracy", "cpc/accuracy"),
    "conflict of the critic's gradients": ("surgery/conflict", "surgery/sample_conflict", "surgery/cosine"),
}
LOG_SCALE = {"reward streams (batch mean)", "parts of exploration"}


def read_csv(path: Path) -> dict[str, np.ndarray]:
    """Columns of a CSV as floats; empty cells and words become NaN."""
    with path.open() as file:
        rows = list(csv.DictReader(file))

    def number(text: str | None) -> float:
        try:
            return float(text or "nan")
        except ValueError:
            return float("nan")

    return {key: np.array([number(row[key]) for row in rows]) for key in (rows[0] if rows else {})}


def draw(runs: list[Path]) -> plt.Figure:
    """Evaluation returns of all runs, then each run's own panels."""
    tables = {run: read_csv(run / "train.csv") for run in runs if (run / "train.csv").exists()}
    panels = [(run, title, present) for run, table in tables.items() for title, columns in PANELS.items()
              if (present := [c for c in columns if c in table])]
    columns = 3
    rows = -(-(len(panels) + 2) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(5 * columns, 3.4 * rows), squeeze=False)
    returns, variance, *rest = axes.flat
    for run in runs:
        table, label = read_csv(run / "eval.csv"), "/".join(run.parts[-6:])
        low, high = table["return_mean"] - table["return_std"], table["return_mean"] + table["return_std"]
        (line,) = returns.plot(table["frame"], table["return_mean"], marker=".", label=label)
        returns.fill_between(table["frame"], low, high, alpha=0.15, color=line.get_color())
        if "skill_variance" in table:
            variance.plot(table["frame"], table["skill_variance"], marker=".", label=label, color=line.get_color())
    returns.set_title("evaluation return, mean and deviation over episodes")
    variance.set_title("share of state variance that the skill explains")
    returns.legend(fontsize=6)
    for axis, (run, title, present) in zip(rest, panels, strict=False):
        for column in present:
            axis.plot(tables[run]["frame"], tables[run][column], marker=".", markersize=3, label=column)
        axis.set_title(f"{title}\n{'/'.join(run.parts[-6:])}", fontsize=8)
        axis.legend(fontsize=7)
        if title in LOG_SCALE:
            axis.set_yscale("symlog", linthresh=1e-3)
    for axis in axes.flat[len(panels) + 2:]:
        axis.axis("off")
    for axis in axes[-1]:
        axis.set_xlabel("frames")
    figure.tight_layout()
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run directories")
    parser.add_argument("--out", type=Path, required=True, help="picture to write (.png or .pdf)")
    args = parser.parse_args()
    missing = [str(run) for run in args.runs if not (run / "eval.csv").exists()]
    if missing:
        print(f"error: no eval.csv in {', '.join(missing)}; give run directories", file=sys.stderr)
        sys.exit(2)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    draw(args.runs).savefig(args.out, dpi=110)
    print(f"picture: {args.out}")


if __name__ == "__main__":
    main()
