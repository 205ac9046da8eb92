"""Curves of some runs as one picture: python -m analysis.curves RUN_DIR ... --out curves.png"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from analysis.scores.seeds import over_seeds
from run.cli.console import Parser, leave_out
from run.cli.guard import run_command
from run.files import LOG_WORDS, Damaged, read_log
from utils import UserError, plural

# What a pre-training shows, by the columns of train.csv; panels without any of their columns are
# left out.
PANELS = {
    "reward streams (batch mean)": ("reward/",),
    "parts of exploration": ("exploration/",),
    "accuracy (chance: 1 / number of skills)": (
        "diversity/accuracy",
        "cpc/accuracy",
        "discriminator/accuracy",
    ),
    "conflict of the critic's gradients": (
        "surgery/conflict",
        "surgery/sample_conflict",
        "surgery/cosine",
    ),
}
LOG_SCALE = {"reward streams (batch mean)", "parts of exploration"}


def columns_of(path: Path) -> dict[str, np.ndarray]:
    """Columns of a log as floats; empty cells and words become NaN."""
    rows = read_log(path)
    return {
        key: np.array([float("nan" if key in LOG_WORDS else row[key] or "nan") for row in rows])
        for key in (rows[0] if rows else {})
    }


def readable(runs: list[Path]) -> list[Path]:
    """Those whose logs can be drawn; the others are named and left out."""
    found = []
    for run in runs:
        try:
            evaluated, _ = columns_of(run / "eval.csv"), columns_of(run / "train.csv")
            if not {"return_mean", "return_std"} <= evaluated.keys():
                raise Damaged("eval.csv has no evaluation")
            found.append(run)
        except Damaged as error:
            if len(runs) == 1:
                raise Damaged(f"{run}/{error}") from error
            leave_out(f"{run}/{error}")
    if not found:
        raise UserError("no run is left to draw; give run directories of these scripts")
    return found


def label(run: Path) -> str:
    """walker/amped/cpu/seed_1 out of .../pretrain/walker/amped/cpu/seed_1."""
    phase = max(
        (i for i, part in enumerate(run.parts) if part in ("pretrain", "finetune")), default=-5
    )
    return "/".join(run.parts[phase + 1 :])


def settings(runs: list[Path]) -> dict[str, list[Path]]:
    """Runs that differ in nothing but their seed, by the name that they share."""
    found: dict[str, list[Path]] = {}
    for run in runs:
        found.setdefault(label(run.parent), []).append(run)
    return {
        f"{name} ({plural(len(some), 'seed')})" if len(some) > 1 else label(some[0]): some
        for name, some in found.items()
    }


def draw_line(axis, tables: list[dict[str, np.ndarray]], column: str, name: str) -> None:
    """The mean over seeds with its interval; of one run, a line alone."""
    having = [table for table in tables if column in table]
    frame, mean, low, high = over_seeds(
        [table["frame"] for table in having], [table[column] for table in having]
    )
    (line,) = axis.plot(frame, mean, marker=".", markersize=4, label=name)
    if len(having) > 1:
        axis.fill_between(frame, low, high, alpha=0.18, color=line.get_color(), linewidth=0)


def draw(runs: list[Path]) -> plt.Figure:
    """Returns of the fine-tunings, returns and skill variance of the pre-trainings, then the panels
    of each setting that was pre-trained. Bands are intervals of the mean over seeds."""
    evals = {run: columns_of(run / "eval.csv") for run in runs}
    pretrained = settings([run for run in runs if "skill_variance" in evals[run]])
    tuned = settings([run for run in runs if "skill_variance" not in evals[run]])
    panels = [
        ("fine-tuning: evaluation return", tuned, "return_mean"),
        ("pre-training: return of each skill, for the log", pretrained, "return_mean"),
        ("share of state variance that the skill explains", pretrained, "skill_variance"),
    ]
    panels = [panel for panel in panels if panel[1]]
    details = []
    for name, some in pretrained.items():
        tables = [columns_of(run / "train.csv") for run in some]
        for title, names in PANELS.items():
            if columns := [c for c in tables[0] if c.startswith(names)]:
                details.append((title, name, tables, columns))
    count = len(panels) + len(details)
    width = min(3, count)
    figure = plt.figure(figsize=(5.2 * width, 3.6 * -(-count // width)))
    axes = [figure.add_subplot(-(-count // width), width, i + 1) for i in range(count)]
    for axis, (title, shown, column) in zip(axes, panels, strict=False):
        for name, some in shown.items():
            draw_line(axis, [evals[run] for run in some], column, name)
        axis.set_title(title, fontsize=10)
    for axis, (title, name, tables, columns) in zip(axes[len(panels) :], details, strict=True):
        for column in columns:
            draw_line(axis, tables, column, column)
        axis.set_title(f"{title}\n{name}", fontsize=10)
        axis.set_yscale("log" if title in LOG_SCALE else "linear")
    for axis in axes:
        axis.set_xlabel("frames")
        axis.legend(fontsize=7)
    figure.tight_layout()
    return figure


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument(
        "runs", nargs="+", type=Path, help="run directories; seeds of one setting share a line"
    )
    parser.add_argument("--out", type=Path, required=True, help="picture to write (.png or .pdf)")
    args = parser.parse_args()
    run_command(lambda: save(args.runs, args.out))


def save(runs: list[Path], out: Path) -> None:
    if missing := [str(run) for run in runs if not (run / "eval.csv").exists()]:
        raise UserError(f"no eval.csv in {', '.join(missing)}; give run directories")
    if out.suffix not in (".png", ".pdf"):
        raise UserError(f"--out {out} is no picture; give a name that ends in .png or .pdf")
    figure = draw(readable(runs))
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
    print(f"picture: {out}")


if __name__ == "__main__":
    main()
