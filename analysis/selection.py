"""Skill-selection regimes side by side.

    python -m analysis.selection runs/finetune/TASK/AGENT/VARIANT ... --out DIR

Per task: selector, selector_release, switching, the mean over single skills and the oracle's best
skill (the paper's table of regimes), and what the selectors chose: distinct skills, entropy,
agreement with the oracle's best skill.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from analysis.choices import load_choices
from analysis.text import markdown_records
from run.cli.console import Parser, leave_out, printable
from run.cli.guard import run_command
from run.files import Damaged, read_log, read_result
from utils import Unreadable, UserError, write_text

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
        try:
            add(found, path.parent)
        except Unreadable as error:
            leave_out(f"{path.parent}: {error}")
    return found


def add(found: dict[str, dict[int, dict[str, Any]]], run: Path) -> None:
    """A finished run, with all that the tables take from its files."""
    result, regime = read_result(run), run.parts[-2].partition("@")[0]
    if result is None or regime not in (*found, "oracle"):
        return
    seed = result["seed"]
    row: dict[str, Any] = {
        "task": str(result["task"]),
        "frames": result["frame"],
        "score": result["score"],
        "spread": result["final"]["return_std"],
        "run": run,
    }
    if regime == "oracle":
        best, skills = result.get("best"), result.get("per_skill")
        if not best or not skills:
            raise Damaged("result.json has no skills")
        found["single skill"][seed] = row
        found["oracle best"][seed] = {
            **row,
            "score": best["return_mean"],
            "spread": best["return_std"],
            "best": best["skill"],
            "per_skill": skills,
        }
    elif regime in SELECTORS:
        metrics, chosen = last_metrics(run), load_choices(run, "evaluation")
        found[regime][seed] = row | {"metrics": metrics, "chosen": chosen}
    else:
        found[regime][seed] = row


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
        zero_shot, final = (
            np.array([skill[key] for skill in each["per_skill"]])
            for key in ("zero_shot", "return_mean")
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


def agreement(choices: np.ndarray, best: int) -> float:
    """Share of the last evaluation's steps at which the selector chose the oracle's best skill."""
    played = choices[choices >= 0]
    return float((played == best).mean()) if played.size else math.nan


def last_metrics(run: Path) -> dict[str, float]:
    rows = read_log(run / "train.csv")
    if not rows or not METRICS.keys() <= rows[-1].keys():
        raise Damaged(f"train.csv has no {', '.join(METRICS)}")
    return {name: float(rows[-1][key] or "nan") for key, name in METRICS.items()}


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
            metrics = {name: f"{value:.2f}" for name, value in each["metrics"].items()}
            agreed = f"{agreement(each['chosen'], best['best']):.2f}" if best else "-"
            rows.append(
                {
                    "task": each["task"],
                    "variant": variant.name,
                    "skills": regime,
                    "seed": str(seed),
                    **metrics,
                    "agreement with the best skill": agreed,
                    "chance": f"{1 / len(best['per_skill']):.2f}" if best else "-",
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
        print(f"missing: {printable(line)}")
    if out:
        write_text(out / "selection.md", text)
        lines = [",".join(rows[0]), *(",".join(f'"{v}"' for v in row.values()) for row in rows)]
        write_text(out / "selection.csv", "\n".join(lines) + "\n")
        print(f"tables: {out / 'selection.md'}, {out / 'selection.csv'}")


if __name__ == "__main__":
    main()
