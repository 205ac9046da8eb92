"""Every metric, what it is and what healthy looks like: python -m analysis.metrics

Whoever makes a metric says so in its docstring, below `Metrics:`. This command prints these tables
as Markdown; docs/metrics.md holds them, and a test holds the page to them.
"""

from __future__ import annotations

import inspect
import re

import yaml

from agent.base import Objective, load_class
from agent.learners.ddpg import DDPG
from agent.learners.ppo import PPO
from agent.learners.stream_weights import HeldShare, StreamWeights
from agent.skills.selector import Selector
from agent.skills.selector_networks import SelectorNetworks
from agent.skills.sources import SkillSource
from agent.skills.trials import Bandit
from run.cli.console import Parser
from run.evaluation import Evaluator
from run.loop import Runner
from run.rollout import RolloutEvaluator
from utils import CONFIGS

BEGIN, END = "<!-- metrics: begin -->", "<!-- metrics: end -->"


def metrics_of(kind: type) -> dict[str, str]:
    """name -> its line, of a class and of those that it extends."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        _, _, table = inspect.cleandoc(vars(owner).get("__doc__") or "").partition("\nMetrics:\n")
        lines = table.partition("\n\n")[0]
        for name, text in re.findall(r"^    (\S+): (.*(?:\n     .*)*)", lines, re.M):
            found[name] = " ".join(text.split())
    return found


def makers(section: str, base: type) -> dict[type, list[str]]:
    """The classes that agents' yamls name in a section, and the agents that use each."""
    used: dict[type, list[str]] = {}
    for path in sorted((CONFIGS / "agent").glob("*.yaml")):
        settings = yaml.safe_load(path.read_text())["agent"].get(section) or {}
        if "_target_" in settings:
            key = f"agent.{section}._target_"
            used.setdefault(load_class(key, settings["_target_"], base), []).append(path.stem)
    return used


def tables() -> dict[str, dict[type, list[str]]]:
    """Title -> who makes the metrics -> where they are found."""
    return {
        "Training": {
            Runner: ["every run"],
            DDPG: ["learner=ddpg"],
            PPO: ["learner=ppo"],
            StreamWeights: ["balance="],
            HeldShare: ["balance=hold"],
        },
        "Evaluation, in eval.csv": {Evaluator: ["every run"], RolloutEvaluator: ["mazes"]},
        "Methods": makers("objective", Objective),
        "Selectors": {
            Selector: ["skills=selector"],
            SelectorNetworks: ["skills=selector"],
            Bandit: ["skills=bandit"],
            **{kind: ["skills=native"] for kind in makers("native_skills", SkillSource)},
        },
    }


def names() -> set[str]:
    """Every documented metric; `reward/<stream>` stands for all that begin so."""
    return {name for table in tables().values() for kind in table for name in metrics_of(kind)}


def page() -> str:
    """The tables as Markdown."""
    lines = []
    for title, table in tables().items():
        lines += [f"### {title}", "", "| column | of | what it is | healthy |", "|---|---|---|---|"]
        rows: dict[tuple[str, str], list[str]] = {}
        for kind, users in table.items():
            for name, text in metrics_of(kind).items():
                rows.setdefault((name, text), []).extend(users)
        for (name, text), users in rows.items():
            what, _, healthy = text.replace("|", "\\|").partition(" Healthy: ")
            where = ", ".join(dict.fromkeys(users))
            lines.append(f"| `{name}` | {where} | {what.rstrip('.')} | {healthy.rstrip('.')} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    Parser(description=__doc__.splitlines()[0]).parse_args()
    print(page(), end="")


if __name__ == "__main__":
    main()
