"""The hours that the runs of an experiment will take.

They are those of finished runs like them, else those that the paper prints, else unknown.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from experiment import paper
from experiment.graph import finished
from experiment.runs import Run
from run.files import Damaged, read_result


class Cost(NamedTuple):
    """The hours of the runs that are left, and where each number comes from; None where nobody
    knows."""

    hours: dict[str, float | None]  # run directory -> hours
    source: dict[str, str]  # run directory -> measured | paper | unknown

    def total(self) -> float:
        return sum(hours for hours in self.hours.values() if hours is not None)

    def line(self) -> str:
        """The sum in a line, with what it leaves out."""
        counts = {
            name: list(self.source.values()).count(name)
            for name in ("measured", "paper", "unknown")
        }
        parts = [
            text.format(counts[name])
            for name, text in (
                ("measured", "{} by finished runs like them"),
                ("paper", "{} by the paper's Tables 10 and 11, an RTX 3060"),
                ("unknown", "{} unknown and not in the sum"),
            )
            if counts[name]
        ]
        said = f"cost of the {len(self.source)} left: {spell(self.total())}"
        return f"{said} ({'; '.join(parts)})" if parts else said


def spell(hours: float) -> str:
    if hours >= 10 or hours == 0:
        return f"{hours:,.0f} h"
    return f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.1f} min"


def kind(run: Run) -> tuple:
    """What runs that take equally long have in common: all but the seed and the task."""
    return run.phase, run.method, run.config["domain"]["name"], run.config["num_train_frames"]


def measured(runs: Iterable[Run]) -> dict[tuple, float]:
    found: dict[tuple, list[float]] = {}
    for run in runs:
        if finished(run.path):
            try:
                result = read_result(run.path)
            except Damaged:
                continue  # named by analysis.collect
            if result is not None:
                found.setdefault(kind(run), []).append(result["wall_seconds"])
    return {name: statistics.mean(seconds) / 3600 for name, seconds in found.items()}


@functools.cache
def printed(phase: str) -> dict[tuple[str, str], float]:
    table = paper.load(f"hours_{phase}")
    keys = zip(table["domain"], table["method"], strict=True)
    found = dict(zip(keys, table["mean"], strict=True))
    # Table 11's AMPED has its selector; without one it takes a little less, and has no cell.
    return found | {
        (d, "amped_selector"): h for (d, method), h in found.items() if method == "amped"
    }


def of_paper(run: Run) -> float | None:
    """The paper's hours of the run's agent, or of the method that it stands for in its table, if the
    run is of the paper's size. Other settings of the agent hardly change them."""
    config = run.config
    size = config["preset"].get(config["learner"]["name"], {}).get(f"{run.phase}_frames")
    if config["preset"]["name"] != "paper" or config["num_train_frames"] != size:
        return None
    known, domain = printed(run.phase), config["domain"]["name"]
    hours = known.get((domain, config["agent"]["name"]), known.get((domain, run.method)))
    skills = (
        config["skill_dim"]
        if run.phase == "finetune" and config["skills"]["name"] == "oracle"
        else 1
    )
    return None if hours is None else hours * skills


def estimate(runs: list[Run]) -> Cost:
    known = measured(runs)
    hours: dict[str, float | None] = {}
    source: dict[str, str] = {}
    for run in runs:
        if finished(run.path):
            continue
        name = str(run.path)
        if kind(run) in known:
            hours[name], source[name] = known[kind(run)], "measured"
        elif (printed_hours := of_paper(run)) is not None:
            hours[name], source[name] = printed_hours, "paper"
        else:
            hours[name], source[name] = None, "unknown"
    return Cost(hours, source)
