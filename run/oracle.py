"""skills=oracle: every skill fine-tuned alone, several processes at a time, and one table of them.

The mean over skills is the paper's "Single-Skill", the best one its "Oracle Best Skill". Each skill
is an ordinary run of skills=fixed in its own directory, so whatever is finished is not run again.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from run import build, machine
from run.directory import RunDirectory
from run.files import require_result
from run.logger import Table
from run.paths import run_path
from run.pool import Job, JobPool, default_workers
from run.results import normalized, summary
from utils import UserError, load_snapshot


def fine_tune(config: dict[str, Any], path: Path, source: Path, info: dict[str, Any]) -> None:
    """One skill, in a process of its own."""
    _, device = machine.settle_machine(config)
    build.run(
        config,
        path,
        config["task"]["env"],
        device,
        snapshot=load_snapshot(source, device),
        info=info,
    )


def of_one_skill(config: dict[str, Any], skill: int) -> dict[str, Any]:
    """The config of its run, with the words that would start it alone."""
    others = [word for word in config["overrides"] if not re.match(r"skills[.=]", word)]
    return {
        **config,
        "skills": {"name": "fixed", "index": skill},
        "overrides": [*others, "skills=fixed", f"skills.index={skill}"],
    }


def say(job: Job) -> None:
    """A line for a skill that is finished."""
    assert job.run is not None, "a skill has a run directory"
    final = require_result(job.run)["final"]
    number = job.name.removeprefix("skill ")
    tqdm.write(
        f"skill {number:>3}  return {final['return_mean']:8.2f} +- {final['return_std']:.2f}"
    )


def run(
    config: dict[str, Any],
    overrides: list[str],
    source: Path,
    device: torch.device,
    info: dict[str, Any],
) -> Path:
    """All skills to their end, then skills.csv, result.json and a table on the screen."""
    count, started = config["skill_dim"], time.monotonic()
    configs = {skill: of_one_skill(config, skill) for skill in range(count)}
    paths = {skill: run_path(c, overrides) for skill, c in configs.items()}
    directory = RunDirectory(run_path(config, overrides), config)
    runs = {skill: RunDirectory(paths[skill], configs[skill]) for skill in configs}
    for run in runs.values():
        run.check()
    directory.check(resumes=False)
    frames = config["num_train_frames"]
    jobs = [
        Job(
            f"skill {skill}",
            fine_tune,
            (configs[skill], paths[skill], source, info),
            frames,
            paths[skill],
        )
        for skill, r in runs.items()
        if not r.finished
    ]
    if directory.finished and not jobs:
        print(f"{directory.path} is finished; nothing to do", flush=True)
        show(require_result(directory.path))
        return directory.path
    directory.open()
    try:
        workers = min(
            config["skills"]["workers"] or default_workers(config, device), max(len(jobs), 1)
        )
        print(
            f"oracle {config['agent']['name']} on {config['task']['name']}, seed {config['seed']}: {count} skills, "
            f"{count - len(jobs)} finished, {workers} at a time\n  {directory.path}",
            flush=True,
        )
        with tqdm(
            total=count * frames or None,
            initial=(count - len(jobs)) * frames,
            unit="frame",
            disable=None,
            desc="oracle",
            dynamic_ncols=True,
        ) as bar:
            pool = JobPool(jobs, workers, "each skill is saved where it was", bar, say)
            pool.run()
        if pool.failed:
            raise UserError(
                f"{', '.join(pool.failed)} did not finish; the same command continues the rest"
            )
        results = [require_result(path) for path in paths.values()]
        result = collect(config, directory, results, info, time.monotonic() - started)
        table = Table(directory.path / "skills.csv")
        for row in result["per_skill"]:
            table.add(row)
        directory.finish(result)
        show(result)
    finally:
        directory.close()
    return directory.path


def collect(
    config: dict[str, Any], directory: RunDirectory, results: list[dict], info: dict, seconds: float
) -> dict:
    """Mean and best over skills. All skills are judged on the same episodes; the best of n is
    biased upwards."""
    rows = [
        {
            "skill": skill,
            "zero_shot": r["curve"][0]["return_mean"],
            "return_mean": r["final"]["return_mean"],
            "return_std": r["final"]["return_std"],
            "normalized": r["normalized"],
        }
        for skill, r in enumerate(results)
    ]
    returns, zero_shot = ([row[key] for row in rows] for key in ("return_mean", "zero_shot"))
    best, first = int(np.argmax(returns)), int(np.argmax(zero_shot))
    curves = [[point["return_mean"] for point in r["curve"]] for r in results]
    if len({tuple(point["frame"] for point in r["curve"]) for r in results}) > 1:
        raise UserError(
            f"the skills of {directory.path} were evaluated at different frames; remove the "
            "result.json of those that differ to run them again"
        )
    curve = [
        {
            "frame": point["frame"],
            "return_mean": float(np.mean(values)),
            "return_std": float(np.std(values)),
            "return_best": float(np.max(values)),
        }
        for point, values in zip(results[0]["curve"], zip(*curves, strict=True), strict=True)
    ]
    final = {
        "return_mean": float(np.mean(returns)),
        "return_std": float(np.std(returns)),
        "skills": "each_skill",
    }
    return summary(
        config,
        variant=directory.variant,
        frame=results[0]["frame"],
        final=final,
        curve=curve,
        wall_seconds=seconds,
        **info,
        per_skill=rows,
        best={**rows[best], "normalized": normalized(config["task"]["name"], returns[best])},
        best_zero_shot={"skill": first, "zero_shot": zero_shot[first]},
    )


def show(result: dict[str, Any]) -> None:
    """The table of skills."""
    if not result.get("best") or not result.get("per_skill"):
        raise UserError("its result.json has no skills; remove that file to collect them again")
    best, final = result["best"], result["final"]
    print(f"\n{'skill':>7} {'zero-shot':>10} {'return':>9} {'std':>7}")
    for row in result["per_skill"]:
        mark = "  best" if row["skill"] == best["skill"] else ""
        print(
            f"{row['skill']:>7} {row['zero_shot']:>10.1f} {row['return_mean']:>9.1f} {row['return_std']:>7.1f}{mark}"
        )
    print(
        f"single skill: {final['return_mean']:.1f} +- {final['return_std']:.1f} (over skills); oracle best: "
        f"{best['return_mean']:.1f} (skill {best['skill']})",
        flush=True,
    )
