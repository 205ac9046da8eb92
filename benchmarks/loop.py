"""Frames per second of the pre-training loop, and what steps and updates alone would allow.

    python -m benchmarks.loop

The difference is what the loop itself costs: acting, the memory, skills, the log, checks.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from benchmarks import make_parser
from benchmarks.cost import interleaved
from experiment.runs import compose
from run.build import make_parts
from run.cli.schema import resolve
from run.directory import RunDirectory
from run.logger import Logger
from run.loop import Runner

SIZES = {"cpu": ("preset=cpu",)}
STEPS, WARM_UP = 400, 200  # per repeat; before the first


def make_runner(
    path: Path, *overrides: str, agent: str = "amped", where: str = "domain=walker"
) -> Runner:
    """A run that has filled its memory and learns; nothing is evaluated in a window that is
    measured. `where` names a domain to pre-train in, or a task."""
    quiet = ("eval_every_frames=100000000", "checkpoint_every_frames=100000000", "snapshots=[]")
    config = resolve(
        compose(
            [
                f"agent={agent}",
                where,
                *overrides,
                *quiet,
                f"num_seed_frames={WARM_UP}",
                "num_train_frames=100000000",
            ],
            "finetune" if where.startswith("task=") else "pretrain",
        )
    )
    parts = make_parts(config, config["domain"]["primal_task"], torch.device("cpu"))
    logger = Logger(path, use_tb=False, use_wandb=False, project="", name="", config=config)
    runner = Runner(config, RunDirectory(path, config), parts, logger, {})
    runner.started = time.monotonic()
    runner.resumed_at = 0
    runner.bar = SimpleNamespace(update=lambda frames: None)
    for _ in range(WARM_UP):
        runner._advance()
    return runner


def measure(
    repeats: int, sizes: dict[str, tuple[str, ...]] = SIZES, steps: int = STEPS
) -> dict[str, dict[str, float]]:
    """Frames per second at each size, and the most that steps and updates alone would allow."""
    return each_size(sizes, lambda runner: measure_one(runner, repeats, steps))


def each_size(
    sizes: dict[str, tuple[str, ...]], measure_one: Callable[[Runner], dict[str, float]], *more: str
) -> dict[str, dict[str, float]]:
    """What is measured of a run at each size, on one thread as in preset=cpu."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results = {}
    for size, overrides in sizes.items():
        with tempfile.TemporaryDirectory() as path:
            results[size] = measure_one(make_runner(Path(path), *overrides, *more))
    torch.set_num_threads(threads)
    return results


def measure_one(runner: Runner, repeats: int, steps: int) -> dict[str, float]:
    parts, env = runner.parts, runner.parts.eval_envs[0]
    every = parts.learner.update_every_steps
    actions = (
        np.random.default_rng(0).uniform(-1, 1, (steps, parts.env.action_dim)).astype(np.float32)
    )
    last = [env.reset()]

    def loop() -> None:
        for _ in range(steps):
            runner._at_border()
            runner._advance()

    def env_alone() -> None:
        for action in actions:
            last[0] = env.reset() if last[0].last() else env.step(action)

    def updates_alone() -> None:
        for i in range(steps // every):
            parts.learner.learn(parts.memory, parts.objective, (i + 1) * every)

    times = interleaved({"loop": loop, "env": env_alone, "updates": updates_alone}, repeats, 1)
    frames = steps * runner.repeat
    return {
        "fps": frames / statistics.median(times["loop"]),
        "ceiling_fps": statistics.median(
            frames / (a + b) for a, b in zip(times["env"], times["updates"])
        ),
    }


def table(results: dict[str, dict[str, float]]) -> str:
    return "\n".join(
        f"loop    {size:8} {row['fps']:8.0f} frames/s of {row['ceiling_fps']:.0f} that steps and updates "
        f"allow ({row['fps'] / row['ceiling_fps']:.0%})"
        for size, row in results.items()
    )


if __name__ == "__main__":
    print(table(measure(make_parser(__doc__, 7).parse_args().repeats)))
