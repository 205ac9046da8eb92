"""How far a sweep has come: a live table on a terminal, a line per change elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from experiment.runs import Run
from run.pool import last_frame
from utils import plural

# In the order of the counts. waiting: for a slot or for its pre-training; blocked: that one failed.
STATES = (
    "finished",
    "running",
    "queued",
    "waiting",
    "missing",
    "unfinished",
    "elsewhere",
    "blocked",
    "failed",
)
# The states whose runs have a row in the table, with its colour; the others are only counted.
SHOWN = {"running": "cyan", "elsewhere": "cyan", "failed": "red"}
ROWS = 30  # of each such state
NOUNS = {"pretrain": "pre-training", "finetune": "fine-tuning"}


class Row(NamedTuple):
    run: Run
    state: str
    note: str = ""  # why it failed, where it runs

    @property
    def progress(self) -> str:
        if self.state not in ("running", "elsewhere", "unfinished", "failed"):
            return ""
        return f"{last_frame(self.run.path):,}/{self.run.config['num_train_frames']:,}"

    @property
    def name(self) -> str:
        return f"{NOUNS[self.run.phase]} {self.run.name}"


def counts(rows: list[Row]) -> list[str]:
    """ "4 pre-trainings: 2 finished, 2 running", and the same of fine-tunings."""
    lines = []
    for phase, noun in NOUNS.items():
        found = Counter(row.state for row in rows if row.run.phase == phase)
        if found:
            lines.append(
                f"{plural(found.total(), noun)}: "
                + ", ".join(f"{found[state]} {state}" for state in STATES if found[state])
            )
    return lines


def table(title: str, rows: list[Row]) -> Table:
    """Counts above, what runs and what failed below."""
    made = Table(
        title=escape("\n".join([title, *counts(rows)])),
        title_justify="left",
        title_style="bold",
        expand=True,
        box=SIMPLE,
    )
    for name, options in (
        ("run", {}),
        ("state", {}),
        ("frame", {"justify": "right"}),
        ("", {"ratio": 1}),
    ):
        made.add_column(name, **options)
    for state, style in SHOWN.items():
        of_state = [row for row in rows if row.state == state]
        for row in of_state[:ROWS]:
            made.add_row(escape(row.name), state, row.progress, escape(row.note), style=style)
        if len(of_state) > ROWS:
            made.add_row(f"and {len(of_state) - ROWS} more", state, style=style)
    return made


class Board:
    """`show` again and again; the last table stays on the screen. Used as a context."""

    def __init__(self, title: str):
        self.title = title
        self.last: dict[Path, str] = {}  # run directory -> the state that was shown
        console = Console()
        # no thread of rich's own: processes are forked between two refreshes
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Board:
        if self.live:
            self.live.start()
        else:
            print(self.title, flush=True)
        return self

    def __exit__(self, *_) -> None:
        if self.live:
            self.live.stop()

    def show(self, rows: list[Row]) -> None:
        if self.live:
            self.live.update(table(self.title, rows), refresh=True)
            return
        first, done = not self.last, sum(row.state == "finished" for row in rows)
        if first:
            print("\n".join(counts(rows)))
        for row in rows:
            known, self.last[row.run.path] = self.last.get(row.run.path), row.state
            if (
                row.state != known
                and not (first and row.state != "failed")
                and row.state != "waiting"
            ):
                share = f" ({done} of {len(rows)})" if row.state == "finished" else ""
                note = f": {row.note}" if row.note else ""
                print(f"{row.state:<10} {row.name}{share}{note}")
        sys.stdout.flush()


def show_once(title: str, rows: list[Row]) -> None:
    """For action=status."""
    console = Console()
    if console.is_terminal:
        console.print(table(title, rows))
        return
    print("\n".join([title, *counts(rows)]))
    for row in rows:
        print("  ".join(filter(None, (f"{row.state:<10} {row.name}", row.progress, row.note))))
