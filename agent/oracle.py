"""skills=oracle: every skill fine-tuned alone, several processes at a time, and one table at the end.

The mean over skills is the paper's "Single-Skill", the best one its "Oracle Best Skill". Each skill is an ordinary run
of skills=fixed in its own directory, so whatever is finished is not run again.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from agent import build
from agent.logger import Table
from agent.results import normalized, summary
from agent.rundir import RunDirectory, run_path
from agent.runner import Interrupted
from utils import UserError, load_snapshot, read_json

POLL_SECONDS = 0.5


def fine_tune(config: dict[str, Any], path: Path, source: Path, info: dict[str, Any]) -> None:
    """One skill, in a process of its own: quiet, and stopped in an orderly way when the parent goes."""
    def follow() -> None:
        multiprocessing.parent_process().join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    sys.stdout = open(os.devnull, "w")
    _, device = build.settle_machine(config)
    try:
        build.run(config, path, config["task"]["env"], device, snapshot=load_snapshot(source, device), info=info)
    except UserError as error:
        print(f"error: skill {config['skills']['index']}: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    except Interrupted as stop:
        sys.exit(stop.exit_code)


class Pool:
    """Runs `jobs` (skill -> arguments of fine_tune), `workers` at a time; a signal lets each of them save first."""

    def __init__(self, jobs: dict[int, tuple], workers: int):
        self.waiting, self.workers, self.running, self.failed = dict(jobs), workers, {}, []
        self.signum: int | None = None

    def run(self, bar: tqdm, frames: int, paths: dict[int, Path]) -> None:
        handlers = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        finished = bar.n
        try:
            while self.waiting or self.running:
                if self.signum:
                    self._stop()
                self._fill()
                time.sleep(POLL_SECONDS)
                finished += self._reap(paths) * frames
                bar.n = finished + sum(last_frame(paths[skill]) for skill in self.running)
                bar.refresh()
            if self.signum and self.failed:  # it reached the processes before this one looked
                self._stop()
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, _) -> None:
        self.signum = signum

    def _fill(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # a forked torch may hang in its thread pool
        while self.waiting and len(self.running) < self.workers:
            skill = next(iter(self.waiting))
            self.running[skill] = spawn.Process(target=fine_tune, args=self.waiting.pop(skill))
            with quiet():
                self.running[skill].start()

    def _reap(self, paths: dict[int, Path]) -> int:
        """How many ended since the last look; those that ended badly are remembered."""
        ended = [skill for skill, process in self.running.items() if not process.is_alive()]
        for skill in ended:
            code = self.running.pop(skill).exitcode
            if code:
                self.failed.append(f"skill {skill} (exit code {code})")
            else:
                final = read_json(paths[skill] / "result.json")["final"]
                tqdm.write(f"skill {skill:>3}  return {final['return_mean']:8.2f} +- {final['return_std']:.2f}")
        return len(ended)

    def _stop(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.join()
        raise Interrupted(self.signum, "each skill is saved where it was")


@contextlib.contextmanager
def quiet():
    """Processes started inside show no progress of their own and never see a Ctrl-C: this one stops them."""
    resource_tracker.ensure_running()  # its own start would unblock the signal
    os.environ["TQDM_DISABLE"] = "1"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        del os.environ["TQDM_DISABLE"]


def last_frame(path: Path) -> int:
    """How far an unfinished run has come, from the last line of its train.csv."""
    try:
        frame = (path / "train.csv").read_text().splitlines()[-1].partition(",")[0]
    except (OSError, IndexError):
        return 0
    return int(frame) if frame.isdigit() else 0


def run(config: dict[str, Any], overrides: list[str], source: Path, device: torch.device,
        info: dict[str, Any]) -> Path:
    """All skills to their end, then skills.csv, result.json and a table on the screen."""
    count, started = config["skill_dim"], time.monotonic()
    configs = {skill: {**config, "skills": {"name": "fixed", "index": skill}} for skill in range(count)}
    paths = {skill: run_path(c, overrides) for skill, c in configs.items()}
    directory = RunDirectory(run_path(config, overrides), config)
    runs = {skill: RunDirectory(paths[skill], configs[skill]) for skill in configs}
    for each in (directory, *runs.values()):
        each.check()
    jobs = {skill: (configs[skill], paths[skill], source, info) for skill, r in runs.items() if not r.finished}
    if directory.finished and not jobs:
        print(f"{directory.path} is finished; nothing to do", flush=True)
        show(read_json(directory.path / "result.json"))
        return directory.path
    directory.open()
    try:
        workers = min(config["skills"]["workers"] or default_workers(config, device), max(len(jobs), 1))
        print(f"oracle {config['agent']['name']} on {config['task']['name']}, seed {config['seed']}: {count} skills, "
              f"{count - len(jobs)} finished, {workers} at a time\n  {directory.path}", flush=True)
        frames = config["num_train_frames"]
        with tqdm(total=count * frames or None, initial=(count - len(jobs)) * frames, unit="frame", disable=None,
                  desc="oracle", dynamic_ncols=True) as bar:
            pool = Pool(jobs, workers)
            pool.run(bar, frames, paths)
        if pool.failed:
            raise UserError(f"{', '.join(pool.failed)} did not finish; the same command continues the rest")
        results = [read_json(path / "result.json") for path in paths.values()]
        result = collect(config, directory, results, info, time.monotonic() - started)
        table = Table(directory.path / "skills.csv")
        for row in result["per_skill"]:
            table.add(row)
        directory.finish(result)
        show(result)
    finally:
        directory.close()
    return directory.path


def default_workers(config: dict[str, Any], device: torch.device) -> int:
    return max(1, (os.cpu_count() or 1) // config["num_threads"]) if device.type == "cpu" else 1


def collect(config: dict[str, Any], directory: RunDirectory, results: list[dict], info: dict, seconds: float) -> dict:
    """Mean and best over skills. All skills are judged on the same episodes; the best of n is biased upwards."""
    rows = [{"skill": skill, "zero_shot": r["curve"][0]["return_mean"], "return_mean": r["final"]["return_mean"],
             "return_std": r["final"]["return_std"], "normalized": r["normalized"]} for skill, r in enumerate(results)]
    returns, zero_shot = ([row[key] for row in rows] for key in ("return_mean", "zero_shot"))
    best, first = int(np.argmax(returns)), int(np.argmax(zero_shot))
    curves = [[point["return_mean"] for point in r["curve"]] for r in results]
    curve = [{"frame": point["frame"], "return_mean": float(np.mean(values)), "return_std": float(np.std(values)),
              "return_best": float(np.max(values))}
             for point, values in zip(results[0]["curve"], zip(*curves, strict=True), strict=True)]
    final = {"return_mean": float(np.mean(returns)), "return_std": float(np.std(returns)), "skills": "each_skill"}
    return summary(config, variant=directory.variant, frame=results[0]["frame"], final=final, curve=curve,
                   wall_seconds=seconds, **info, per_skill=rows,
                   best={**rows[best], "normalized": normalized(config["task"]["name"], returns[best])},
                   best_zero_shot={"skill": first, "zero_shot": zero_shot[first]})


def show(result: dict[str, Any]) -> None:
    """The table of skills."""
    best, final = result["best"], result["final"]
    print(f"\n{'skill':>7} {'zero-shot':>10} {'return':>9} {'std':>7}")
    for row in result["per_skill"]:
        mark = "  best" if row["skill"] == best["skill"] else ""
        print(f"{row['skill']:>7} {row['zero_shot']:>10.1f} {row['return_mean']:>9.1f} {row['return_std']:>7.1f}{mark}")
    print(f"single skill: {final['return_mean']:.1f} +- {final['return_std']:.1f} (over skills); oracle best: "
          f"{best['return_mean']:.1f} (skill {best['skill']})", flush=True)
