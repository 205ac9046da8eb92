"""Every result.json below a run_root in one table.

    python -m analysis.collect [run_root=DIR] [--out FILE.csv]

A row per finished run: what analysis/frames/runs.py reads of it, the versions it ran with, and a
hash of its settings.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.frames.lines import fitting_lines
from analysis.frames.lines import read_table as lines_of
from analysis.frames.runs import read_runs
from analysis.text import short_commit
from records import Row
from run.cli.console import Parser, leave_out, printable
from run.cli.guard import run_command
from run.directory import PER_MACHINE
from run.files import Damaged, read_config, read_result
from run.identity import identity
from run.paths import SILENT
from utils import UserError, write_text

VERSIONS = ("torch", "numpy", "mujoco", "dm_control", "gymnasium")
DROPPED = ("state", "problem")  # all that are kept are finished


def config_hash(path: Path) -> str | None:
    """A hash of config.yaml without the seed, the machine and what moves no number. It is equal for
    runs that may be averaged."""
    config = read_config(path)
    if config is None:
        return None  # only result.json was copied here
    kept = {
        key: value
        for key, value in identity(config).items()
        if key not in SILENT | PER_MACHINE | {"seed"}
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:12]


def provenance(path: Path) -> dict[str, Any]:
    result = read_result(path) or {}
    found = result.get("versions") or {}
    return {
        **{name: found.get(name) for name in VERSIONS},
        "pretrained": result.get("pretrained"),
        "config_hash": config_hash(path),
    }


def collect(root: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Finished runs with their provenance, and all others as read_runs has them."""
    runs = read_runs(root)
    done = runs["state"] == "finished"
    more = pd.DataFrame(
        [provenance(Path(path)) for path in runs.loc[done, "path"]],
        index=runs.index[done],
        columns=[*VERSIONS, "pretrained", "config_hash"],
    )
    return runs[done].drop(columns=list(DROPPED)).join(more), runs[~done]


def collected(root: Path) -> pd.DataFrame:
    """The table of the runs below `root`. Where only results.csv was brought home from a cluster,
    that one."""
    table = collect(root)[0] if root.is_dir() else None
    brought = root / "results.csv"
    if (table is None or table.empty) and brought.exists():
        return read_table(brought)
    return table if table is not None else pd.DataFrame(columns=["phase"])


def read_table(path: Path) -> pd.DataFrame:
    """A results.csv; a line that is none of it is named and left out."""
    try:
        _, lines = lines_of(path)
    except Damaged as error:
        leave_out(f"{path} is not what python -m analysis.collect writes ({error})")
        return pd.DataFrame(columns=["phase"])
    return pd.DataFrame(fitting_lines(path, lines, Row), columns=list(Row.model_fields))


def settings(table: pd.DataFrame) -> list[dict[str, str]]:
    """A row per setting, that is of runs that may be averaged: its seeds, score, hours and where
    they come from."""
    rows = []
    keys = ["phase", "domain", "task", "agent", "variant", "skills", "config_hash"]
    for key, runs in table.groupby(keys, dropna=False, sort=True) if len(table) else ():
        about = {
            name: "" if pd.isna(value) else str(value)
            for name, value in zip(keys, key, strict=True)
        }
        commits = {
            short_commit(commit, dirty)
            for commit, dirty in zip(runs["commit"], runs["dirty"], strict=True)
        }
        rows.append(
            {
                "phase": about["phase"],
                "on": about["task"] or about["domain"],
                "agent": about["agent"],
                "setting": " ".join(filter(None, (about["variant"], about["skills"]))),
                "seeds": ", ".join(str(seed) for seed in sorted(runs["seed"])),
                "frames": f"{runs['frame'].max():,.0f}",
                "score": f"{runs['score'].mean():.1f}",
                "hours": f"{runs['wall_seconds'].sum() / 3600:.2f}",
                "commit": ", ".join(sorted(commits)),
                "torch": ", ".join(sorted({str(v) for v in runs["torch"]})),
                "config": about["config_hash"],
            }
        )
    return rows


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("run_root", nargs="?", default="run_root=runs", metavar="run_root=DIR")
    parser.add_argument("--out", type=Path, help="the table (<run_root>/results.csv)")
    args = parser.parse_args()
    run_command(lambda: write(args.run_root, args.out))


def write(word: str, out: Path | None) -> None:
    key, _, root = word.partition("=")
    if key != "run_root" or not root:
        raise UserError(f"{word} is not run_root=DIR; give the directory of your runs")
    table, rest = collect(Path(root))
    for row in rest[rest["state"] == "unreadable"].itertuples():
        leave_out(f"{row.path}: {row.problem}")
    out = out or Path(root) / "results.csv"
    write_text(out, table.to_csv(index=False, lineterminator="\n"))
    counts = rest["state"].value_counts()
    print(
        f"{len(table)} finished runs: {printable(out)}"
        + "".join(f"; {counts[name]} {name}" for name in counts.index)
    )


if __name__ == "__main__":
    main()
