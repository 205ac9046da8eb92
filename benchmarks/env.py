"""Environment steps per second, ours and dm_control's own by turns.

    python -m benchmarks.env [repeats]

Both loops run the same episodes, resets included: tests/envs/test_fast_envs.py holds them to the
same bits. Beside them runs a bare loop of dm_control's calls of the engine, all sensors included, and an
environment of ours that keeps what every task of its domain would have paid (save_replay=true).
The clock counts the CPU seconds of this one thread: what else runs on the machine matters little
then.
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
# steps of one, then of the other: the machine's own speed changes from one moment to the next
TURN = 125


def rescaled(low: np.ndarray, high: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Actions in [-1, 1] as dm_control takes them: in native bounds, by `Env`'s float32 arithmetic,
    then as float64."""
    low, high = low.astype(np.float32), high.astype(np.float32)
    return np.clip(
        low + (high - low) / np.float32(2) * (actions + np.float32(1)), low, high
    ).astype(np.float64)


def run(env, actions: np.ndarray) -> tuple[float, float]:
    """CPU seconds of one step per action, and the sum of the rewards; without actions, of
    reset()."""
    total, begun = 0.0, time.thread_time()
    if len(actions) == 0:
        env.reset()
    for action in actions:
        total += env.step(action).reward
    return time.thread_time() - begun, total


def run_kept(env: envs.Env, actions: np.ndarray, rows: np.ndarray) -> float:
    """CPU seconds of the same, with the rewards of all tasks written into rows (steps, tasks)."""
    begun = time.thread_time()
    if len(actions) == 0:
        env.reset()
    for row, action in zip(rows, actions):
        env.step(action)
        row[:] = env.task_rewards()
    return time.thread_time() - begun


def run_engine(env, actions: np.ndarray) -> float:
    """CPU seconds of the engine's calls in a dm_control environment's steps, in a bare loop."""
    import mujoco  # not before the environment, which settles MUJOCO_GL

    physics, substeps = env.physics, round(env.control_timestep() / env.physics.timestep())
    model, data = physics.model.ptr, physics.data.ptr
    begun = time.thread_time()
    for action in actions:
        data.ctrl[:] = action
        mujoco.mj_step2(model, data)
        mujoco.mj_step(model, data, substeps - 1)
        mujoco.mj_step1(model, data)
    return time.thread_time() - begun


def compare(domain: str, repeats: int) -> dict[str, float]:
    name, steps = NAMES[domain], STEPS[domain]
    ours, keeping = envs.make(name, seed=0), envs.make(name, seed=0)
    keeping.keep_tasks()
    rows = np.zeros((steps, len(keeping.tasks)), np.float32)
    stock, engine = (
        importlib.import_module(f"envs.{domain}").stock(name.removeprefix(f"{domain}_"), seed=0)
        for _ in range(2)
    )
    spec, rng = stock.action_spec(), np.random.RandomState(0)
    fast: list[float] = []
    slow: list[float] = []
    bare: list[float] = []
    kept: list[float] = []
    for repeat in range(repeats + 1):
        actions = rng.uniform(-1, 1, (steps, ours.action_dim)).astype(np.float32)
        native = rescaled(spec.minimum, spec.maximum, actions)
        spent = np.zeros(4)
        engine.reset()
        for begin in range(-TURN, steps, TURN):  # before the first turn: no actions, a reset
            turn = slice(max(begin, 0), begin + TURN)
            more = run_kept(keeping, actions[turn], rows[turn]) if repeat % 2 else None
            here, total = run(ours, actions[turn])
            if more is None:  # each goes first as often as the other
                more = run_kept(keeping, actions[turn], rows[turn])
            there, stock_total = run(stock, native[turn])
            spent += here, there, run_engine(engine, native[turn]), more
            if total != stock_total:
                raise RuntimeError(
                    f"{name}: rewards {total} and {stock_total} of the same steps differ"
                )
        if repeat:  # the first one warms up
            for rates, seconds in zip((fast, slow, bare, kept), spent, strict=True):
                rates.append(steps / seconds)
    return {
        "steps_s": statistics.median(fast),
        "stock_steps_s": statistics.median(slow),
        "engine_steps_s": statistics.median(bare),
        "ratio": statistics.median(a / b for a, b in zip(fast, slow, strict=True)),
        "engine_ratio": statistics.median(a / b for a, b in zip(bare, slow, strict=True)),
        # Jaco's tasks have models of their own: it has no rewards of others to keep.
        "keeping_rewards": statistics.median(a / b for a, b in zip(fast, kept, strict=True)),
    }


def measure(repeats: int) -> dict[str, dict[str, float]]:
    """Medians over interleaved repeats, by domain."""
    return {domain: compare(domain, repeats) for domain in NAMES}


def main() -> None:
    repeats = make_parser(__doc__, 9).parse_args().repeats
    found = measure(repeats)
    print(
        f"1 thread, {repeats} repeats of an episode of random actions, in turns; median steps per CPU second"
    )
    print(table(found))


def table(results: dict[str, dict[str, float]]) -> str:
    return "\n".join(
        f"env     {domain:10} {row['steps_s']:10,.0f} steps/s  (dm_control {row['stock_steps_s']:,.0f}, "
        f"{row['ratio']:.2f}x; the engine's calls alone {row['engine_steps_s']:,.0f}, "
        f"{row['engine_ratio']:.2f}x; a step that keeps all tasks' rewards takes "
        f"{row['keeping_rewards']:.3f} of one)"
        for domain, row in results.items()
    )


if __name__ == "__main__":
    main()
