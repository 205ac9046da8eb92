"""Skill-selection regimes side by side.

    python -m analysis.selection runs/finetune/TASK/AGENT/VARIANT ... --out DIR

Per task: selector, selector_release, switching, the mean over single skills and the oracle's best
skill (the paper's table of regimes), and what the selectors chose: distinct skills, entropy,
agreement with the oracle's best skill.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from analysis.choices import load_choices
from analysis.text import markdown_records
from run.cli.console import Parser
from run.cli.guard import run_command
from utils import UserError, read_json, write_text

SELECTORS = ("selector", "selector_release")
REGIMES = (*SELECTORS, "switching", "single skill", "oracle best")
METRICS = {
    "skills/distinct_acted": "skills used in the last 5000 steps",
    "skills/distinct_greedy": "as first choice",
    "skills/entropy": "entropy of p(z given s), share of log n",
}


def read_runs(variant: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """regime -> seed -> {score, normalized, ...} of the finished runs below a variant's
    directory."""
    found: dict[str, dict[int, dict[str, Any]]] = {regime: {} for regime in REGIMES}
    for path in sorted(variant.glob("*/seed_*/result.json")):
        result, regime = read_json(path), path.parts[-3].partition("@")[0]
        row = {
            "task": result["task"],
            "frames": result["frame"],
            "score": result["score"],
            "spread": result["final"]["return_std"],
            "run": path.parent,
        }
        if regime == "oracle":
            best = result["best"]
            found["single skill"][result["seed"]] = row
            found["oracle best"][result["seed"]] = {
                **row,
                "score": best["return_mean"],
                "spread": best["return_std"],
                "best": best["skill"],
                "count": len(result["per_skill"]),
            }
        elif regime in found:
            found[regime][result["seed"]] = row
    return found


def expected_maximum(count: int) -> float:
    """The expected largest of so many standard normal numbers: where the best of equally good
    skills would lie, in deviations above their mean."""
    x = np.linspace(-10, 10, 20_001)
    below = norm.cdf(x)
    return float(np.trapezoid(x * count * norm.pdf(x) * below ** (count - 1), x))


def luck_rows(runs: dict[str, dict[int, dict[str, Any]]]) -> list[dict[str, str]]:
    """Is the oracle's best skill more than the luckiest of equal ones, and did it show before
    fine-tuning?"""
    rows = []
    for seed, each in runs["oracle best"].items():
        skills = read_json(each["run"] / "result.json")["per_skill"]
        zero_shot, final = (
            np.array([skill[key] for skill in skills]) for key in ("zero_shot", "return_mean")
        )
        equal = final.mean() + expected_maximum(len(final)) * final.std(ddof=1)
        rows.append(
            {
                "task": each["task"],
                "variant": each["run"].parts[-3],
                "seed": str(seed),
                "zero-shot, worst to best": f"{zero_shot.min():.0f} to {zero_shot.max():.0f}",
                "correlation of zero-shot and fine-tuned": f"{np.corrcoef(zero_shot, final)[0, 1]:.2f}",
                "best of equal skills": f"{equal:.0f}",
                "oracle best": f"{final.max():.0f}",
            }
        )
    return rows


def agreement(run: Path, best: int) -> float:
    """Share of the last evaluation's steps at which the selector chose the oracle's best skill."""
    choices = load_choices(run, "evaluation")
    return float((choices[choices >= 0] == best).mean())


def last_metrics(run: Path) -> dict[str, float]:
    with (run / "train.csv").open() as file:
        row = list(csv.DictReader(file))[-1]
    return {name: float(row[key]) for key, name in METRICS.items()}


def score_row(variant: Path, runs: dict[str, dict[int, dict[str, Any]]]) -> dict[str, str]:
    """One line of the table: means over seeds. Behind +- stands the deviation over seeds, or over
    episodes (skills) where there is one seed."""
    some = next(each for seeds in runs.values() for each in seeds.values())
    row = {
        "task": some["task"],
        "agent": variant.parts[-2],
        "variant": variant.name,
        "frames": f"{some['frames']:,}",
    }
    for regime in REGIMES:
        seeds = runs[regime]
        scores = [each["score"] for each in seeds.values()]
        if not scores:
            row[regime] = "-"
            continue
        spread = np.std(scores, ddof=1) if len(scores) > 1 else next(iter(seeds.values()))["spread"]
        row[regime] = f"{np.mean(scores):.0f} +- {spread:.0f}"
    row["seeds"] = "/".join(str(len(runs[regime])) for regime in REGIMES)
    return row


def choice_rows(variant: Path, runs: dict[str, dict[int, dict[str, Any]]]) -> list[dict[str, str]]:
    """What each selector run chose."""
    rows = []
    for regime in SELECTORS:
        for seed, each in runs[regime].items():
            best = runs["oracle best"].get(seed)
            metrics = {name: f"{value:.2f}" for name, value in last_metrics(each["run"]).items()}
            agreed = f"{agreement(each['run'], best['best']):.2f}" if best else "-"
            rows.append(
                {
                    "task": each["task"],
                    "variant": variant.name,
                    "skills": regime,
                    "seed": str(seed),
                    **metrics,
                    "agreement with the best skill": agreed,
                    "chance": f"{1 / best['count']:.2f}" if best else "-",
                }
            )
    return rows


def report(variants: list[Path]) -> tuple[str, list[dict[str, str]], list[str]]:
    """The tables as text, the rows of the first, and the regimes without a finished run."""
    scores, choices, luck, missing = [], [], [], []
    for variant in variants:
        runs = read_runs(variant)
        if not any(runs.values()):
            raise UserError(
                f"no finished fine-tuning of {', '.join(SELECTORS)}, switching or oracle below {variant}; "
                "give directories runs/finetune/TASK/AGENT/VARIANT"
            )
        scores.append(score_row(variant, runs))
        choices += choice_rows(variant, runs)
        luck += luck_rows(runs)
        missing += [f"{variant}: {regime}" for regime in REGIMES if not runs[regime]]
    tables = [markdown_records(rows) + "\n" for rows in (scores, luck, choices) if rows]
    return "\n".join(tables), scores, missing


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "variants", nargs="+", type=Path, help="directories runs/finetune/TASK/AGENT/VARIANT"
    )
    parser.add_argument("--out", type=Path, help="directory for selection.md and selection.csv")
    args = parser.parse_args()
    run_command(lambda: write(args.variants, args.out))


def write(variants: list[Path], out: Path | None) -> None:
    text, rows, missing = report(variants)
    print(text)
    for line in missing:
        print(f"missing: {line}")
    if out:
        write_text(out / "selection.md", text)
        lines = [",".join(rows[0]), *(",".join(f'"{v}"' for v in row.values()) for row in rows)]
        write_text(out / "selection.csv", "\n".join(lines) + "\n")
        print(f"tables: {out / 'selection.md'}, {out / 'selection.csv'}")


if __name__ == "__main__":
    main()
