"""Agents that were fine-tuned alike: which is ahead of which, and whether the paper ranks them so too.

Runs of one `variant` had the same words for finetune.py, but for the rule of skills where an agent has
none, so that their pre-training is what differs. Ways that one agent has alone (its selector, an
ablation, random data) are compared with nobody here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import pandas as pd
from scipy import stats

from analysis.scores.claims import Mean, established, interval, seeds_needed
from experiment import paper

Ways = Mapping[str, Mapping[str, str]]  # way -> {agent: the method it goes by}

VARIANT = re.compile(r"(?:^|\s)variant=(\S+)")


def way_of(command: str, protocol: str) -> str:
    """How a fine-tuning went: its variant, or the protocol where it has no name of its own."""
    found = VARIANT.search(command)
    return found.group(1) if found else protocol


def contests(rows: pd.DataFrame) -> dict[str, dict[str, str]]:
    """way -> {agent: the method it goes by}, of the ways that several agents have in common."""
    found: dict[str, dict[str, str]] = {}
    for row in rows.drop_duplicates("method").to_dict("records"):
        if row["protocol"] != "scratch":
            way = way_of(row["command"], row["protocol"])
            found.setdefault(way, {})[row["agent"]] = row["method"]
    return {way: agents for way, agents in found.items() if len(agents) > 1}


def rival_lines(ways: Ways, means: Mapping[str, Mean]) -> list[str]:
    """A line per way: its agents in order, which of them are established above which, and what the
    closest of the other pairs would need."""
    lines = []
    for way, agents in ways.items():
        known = {agent: means[method] for agent, method in agents.items()}
        ranked = sorted(known, key=lambda agent: -known[agent].value)
        pairs = list(itertools.combinations(ranked, 2))
        above = [(a, b) for a, b in pairs if established(known[a], known[b])]
        order = ", ".join(f"{agent} {interval(known[agent])}" for agent in ranked)
        said = (
            "; ".join(f"{a} above {', '.join(group)}" for a, group in grouped(above).items())
            or "no one above another"
        )
        lines.append(
            f"variant={way}: {order}. **Established**: {said}{open_pairs(known, pairs, above)}"
        )
    return lines


def grouped(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for a, b in pairs:
        found.setdefault(a, []).append(b)
    return found


def open_pairs(
    known: Mapping[str, Mean], pairs: Sequence[tuple[str, str]], above: Sequence[tuple[str, str]]
) -> str:
    """How many pairs are not established, and the one that fewest seeds would settle."""
    left = [pair for pair in pairs if pair not in above]
    if not left:
        return ""
    needs = {pair: seeds_needed(known[pair[0]].seeds, known[pair[1]].seeds) for pair in left}
    told = {pair: needed for pair, needed in needs.items() if needed is not None}
    words = f"; not established: {len(left)} of {len(pairs)} pairs"
    if told:
        (a, b), needed = min(told.items(), key=lambda item: item[1])
        words += f" ({a} above {b} would take {needed} seeds)"
    return words


def ranking_lines(ways: Ways, means: Mapping[str, Mean], tasks: Sequence[str]) -> list[str]:
    """Spearman's correlation of our ranking of agents with that of the paper's Table 13 on the same
    tasks, by way; only of ways with three agents or more that the table has."""
    printed = paper.load("urlb")
    printed = printed[(printed["kind"] == "score") & printed["task"].isin(list(tasks))]
    theirs = printed.groupby("method")["mean"].mean()
    lines = []
    for way, agents in ways.items():
        both = [agent for agent in sorted(agents) if agent in theirs.index]
        if len(both) < 3:
            continue
        ours = [means[agents[agent]].value for agent in both]
        found = stats.spearmanr(ours, theirs[both])
        lines.append(
            f"variant={way}: ranking of {', '.join(both)} against the paper's Table 13, Spearman "
            f"{found.statistic:.2f} (p = {found.pvalue:.2f}, {len(both)} agents)"
        )
    return lines
