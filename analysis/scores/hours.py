"""Hours of runs beside the paper's Tables 10 and 11."""

from __future__ import annotations

import pandas as pd

from analysis.scores.tables import DEVIATION, Entry, Line, Table
from experiment import paper as paper_tables
from utils import UserError, plural

# App. I.9 (results/paper/claims.csv: gpu_memory, cpu_cores)
PAPER_MACHINE = "NVIDIA RTX 3060, AMD Ryzen 7 7700"
HOURS = {
    "pretrain": ("hours_pretrain", "pretrain_steps"),
    "finetune": ("hours_finetune", "finetune_steps"),
}
# Whose hours the cells of the paper are, where its name for a column does not say so.
HOURS_NOTES = {
    "pretrain": "The paper does not say what its hours of DDPG are of: DDPG has no reward to be pre-trained "
    "with, and no run here. `python -m benchmarks.hours` times a loop of DDPG's cost.",
    "finetune": "The paper's AMPED here has its skill selector (App. I.7).",
}
PHASES = {"pretrain": "pre-training", "finetune": "fine-tuning"}


def wall_clock(runs: pd.DataFrame | None, phase: str, *, digits: int = 2) -> Table:
    """Hours of finished runs (read_runs with a column method) beside the paper's, each with its
    machine and length.

    No differences: the machines, and often the lengths, are not the same.
    """
    name, steps = HOURS[phase]
    printed = paper_tables.load(name)
    if phase == "finetune":
        printed["method"] = printed["method"].replace("amped", "amped_selector")
    runs = pd.DataFrame(columns=["phase", "state", "domain", "method"]) if runs is None else runs
    if "method" not in runs:
        raise UserError(
            "runs have no column method; name the method that each run is of, e.g. by its agent"
        )
    runs = runs[(runs["phase"] == phase) & runs["domain"].isin(printed["domain"])]
    done = runs[runs["state"] == "finished"]
    if len(done):
        done = done.assign(
            hours=done["wall_seconds"] / 3600, source=[machine(run) for run in done.itertuples()]
        )
    methods = list(dict.fromkeys([*printed["method"], *sorted(done["method"].unique())]))
    theirs = f"paper: {PAPER_MACHINE}, {paper_tables.claim(steps):,.0f} steps"
    blocks, data = [], []
    for domain, rows in printed.groupby("domain", sort=False):
        here = done[done["domain"] == domain]
        sources = (
            {source: hours(some) for source, some in here.groupby("source")} if len(here) else {}
        )
        sources[theirs] = {r["method"]: Entry(r["mean"], r["std"]) for r in rows.to_dict("records")}
        lines = [
            Line("", source, [of.get(method, Entry()) for method in methods])
            for source, of in sources.items()
        ]
        blocks.append([lines[0]._replace(row=str(domain)), *lines[1:]])
        data += [
            {
                "domain": domain,
                "source": source,
                "method": method,
                "mean": of[method].mean,
                "std": of[method].std,
                "runs": of[method].number,
            }
            for source, of in sources.items()
            for method in methods
            if method in of
        ]
    notes = [
        f"{plural(count, 'run')} left out: {state}."
        for state, count in runs.loc[runs["state"] != "finished", "state"].value_counts().items()
    ]
    notes += [] if len(done) else ["No runs of ours."]
    notes.append(HOURS_NOTES[phase])
    caption = f"Wall-clock hours of one {PHASES[phase]}; {DEVIATION} over runs."
    return Table(caption, methods, blocks, pd.DataFrame(data), notes, digits, "run")


def machine(run) -> str:
    threads = "" if pd.isna(run.threads) else f", {plural(int(run.threads), 'thread')}"
    return f"ours: {run.device or 'device unknown'}{threads}, {run.frame:,.0f} frames"


def hours(runs: pd.DataFrame) -> dict[str, Entry]:
    return {
        str(method): Entry(some["hours"].mean(), some["hours"].std(ddof=1), len(some))
        for method, some in runs.groupby("method")
    }
