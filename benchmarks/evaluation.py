"""Steps per second of an evaluation: episodes side by side, and one at a time.

python -m benchmarks.evaluation
"""

from __future__ import annotations

import statistics

from benchmarks import make_parser
from benchmarks.cost import interleaved, ratio
from benchmarks.loop import each_size
from run.loop import Runner

SIZES = {"cpu": ("preset=cpu",), "paper": ("preset=paper", "replay.capacity=10000")}
STEPS = 200  # of each episode


def measure(
    repeats: int, sizes: dict[str, tuple[str, ...]] = SIZES, steps: int = STEPS
) -> dict[str, dict[str, float]]:
    """Steps per second at each size, for an evaluation of every skill of AMPED on walker."""
    return each_size(
        sizes, lambda runner: measure_one(runner, repeats, steps), f"eval_episode_steps={steps}"
    )


def measure_one(runner: Runner, repeats: int, steps: int) -> dict[str, float]:
    envs = runner.parts.eval_envs

    def play(count: int) -> None:
        runner.parts.eval_envs = envs[:count]
        runner.evaluator.skills(0)

    times = interleaved({"together": lambda: play(len(envs)), "alone": lambda: play(1)}, repeats, 1)
    total = steps * len(runner.evaluator.episodes)
    return {
        "steps_s": total / statistics.median(times["together"]),
        "side_by_side": len(envs),
        "alone_steps_s": total / statistics.median(times["alone"]),
        "ratio": ratio(times, "alone", "together"),
    }


def table(results: dict[str, dict[str, float]]) -> str:
    return "\n".join(
        f"eval    {size:8} {row['steps_s']:8,.0f} steps/s with {row['side_by_side']} side by side  (one "
        f"at a time {row['alone_steps_s']:,.0f}, {row['ratio']:.2f}x)"
        for size, row in results.items()
    )


if __name__ == "__main__":
    print(table(measure(make_parser(__doc__, 5).parse_args().repeats)))
