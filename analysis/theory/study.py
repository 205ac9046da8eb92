"""What the three studies of theory share: one CSV and one figure each, the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd
import torch

from run.cli.console import Parser, at_least
from run.cli.guard import run_command
from utils import write_atomic, write_text

OUT = Path("runs/theory")
LOOK: Any = {  # of matplotlib, which names its keys one by one
    "font.size": 9,
    "axes.titlesize": 9.5,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.markersize": 4,
    "legend.frameon": False,
}

Row = dict[str, Any]
Study = Callable[[int], tuple[list[Row], plt.Figure, str]]  # seed -> rows, figure, summary


def panels(rows: int, columns: int, height: float = 3.4) -> tuple[plt.Figure, list[plt.Axes]]:
    with plt.rc_context(LOOK):
        figure, axes = plt.subplots(
            rows, columns, figsize=(4.6 * columns, height * rows), squeeze=False
        )
    return figure, list(axes.flat)


def save(out: Path, name: str, rows: list[Row], figure: plt.Figure) -> list[Path]:
    """name.csv, name.png, name.pdf. No date goes in, so that the same seed gives the same bytes."""
    paths = [out / f"{name}.{kind}" for kind in ("csv", "png", "pdf")]
    write_text(paths[0], pd.DataFrame(rows).to_csv(index=False, float_format="%.6g"))
    with plt.rc_context(LOOK):
        figure.tight_layout()
        for path, options in zip(
            paths[1:], ({"dpi": 120}, {"metadata": {"CreationDate": None}}), strict=True
        ):
            write_atomic(
                path,
                lambda file, path=path, options=options: figure.savefig(
                    file, format=path.suffix[1:], **options
                ),
            )
    plt.close(figure)
    return paths


def run(name: str, title: str, study: Study) -> None:
    """The command line of one study."""
    parser = Parser(prog=f"python -m analysis.{name}", description=title.partition("\n")[0])
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        help=f"directory for {name}.csv, .png and .pdf (%(default)s)",
    )
    parser.add_argument("--seed", type=at_least(0, 2**32 - 1), default=1, help="(%(default)s)")
    args = parser.parse_args()
    run_command(lambda: make(name, study, args.out, args.seed))


def make(name: str, study: Study, out: Path, seed: int) -> None:
    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    with plt.rc_context(LOOK):
        rows, figure, summary = study(seed)
    paths = save(out, name, rows, figure)
    print(f"{summary}\nwritten: {', '.join(map(str, paths))}")
