"""Environment steps per second, ours against dm_control's own, interleaved: python -m benchmarks.env [repeats]

Both loops run the same episodes, resets included, since tests/test_fast_envs.py holds them to the same bits. The clock
counts the CPU seconds of this one thread: what else runs on the machine matters little then.
"""

from __future__ import annotations

import importlib
import statistics
import time

import numpy as np

import envs
from benchmarks import make_parser

NAMES = {"walker": "walker_walk", "quadruped": "quadruped_walk", "jaco": "jaco_reach_top_left"}
STEPS = {"walker": 1000, "quadruped": 1000, "jaco": 250}  # an episode
TURN = 125  # steps of one, then of the other: the machine's own speed changes from one moment to the next


def rescaled(low: np.ndarray, high: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Actions in [-1, 1] in native bounds, by `Env`'s float32 arithmetic, as dm_control takes them: float64."""
    low, high = low.astype(np.float32), high.astype(np.float32)
    return np.clip(low + (high - low) / np.float32(2) * (actions + np.float32(1)), low, high).astype(np.float64)


def run(env, actions: np.ndarray) -> tuple[float, float]:
    """CPU seconds of one step per action, or of reset() without actions; the rewards' sum."""
    total, begun = 0.0, time.thread_time()
    if len(actions) == 0:
        env.reset()
    for action in actions:
        total += env.step(action).reward
    return time.thread_time() - begun, total


def compare(domain: str, repeats: int) -> dict[str, float]:
    name, steps = NAMES[domain], STEPS[domain]
    ours = envs.make(name, seed=0)
    stock = importlib.import_module(f"envs.{domain}").stock(name.removeprefix(f"{domain}_"), seed=0)
    spec, rng = stock.action_spec(), np.random.RandomState(0)
    fast, slow = [], []
    for repeat in range(repeats + 1):
        actions = rng.uniform(-1, 1, (steps, ours.action_dim)).astype(np.float32)
        native = rescaled(spec.minimum, spec.maximum, actions)
        spent = np.zeros(2)
        for begin in range(-TURN, steps, TURN):  # before the first turn: no actions, a reset
            turn = slice(max(begin, 0), begin + TURN)
            (here, total), (there, stock_total) = run(ours, actions[turn]), run(stock, native[turn])
            spent += here, there
            if total != stock_total:
                raise RuntimeError(f"{name}: rewards {total} and {stock_total} of the same steps differ")
        if repeat:  # the first one warms up
            fast.append(steps / spent[0])
            slow.append(steps / spent[1])
    return {"steps_s": statistics.median(fast), "stock_steps_s": statistics.median(slow),
            "ratio": statistics.median(a / b for a, b in zip(fast, slow))}


def measure(repeats: int) -> dict[str, dict[str, float]]:
    """Medians over interleaved repeats, by domain."""
    return {domain: compare(domain, repeats) for domain in NAMES}


def main() -> None:
    repeats = make_parser(__doc__, 9).parse_args().repeats
    found = measure(repeats)
    print(f"1 thread, {repeats} repeats of an episode of random actions, in turns; median steps per CPU second")
    print(f"{'':24}{'here':>8}{'dm_control':>12}{'ratio':>7}")
    for domain, row in found.items():
        print(f"{NAMES[domain]:24}{row['steps_s']:8,.0f}{row['stock_steps_s']:12,.0f}{row['ratio']:7.2f}")


if __name__ == "__main__":
    main()
