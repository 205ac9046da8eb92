"""Time of a batch and of a step into the replay memory, beside a loop over transitions.

python -m benchmarks.replay
"""

from __future__ import annotations

import statistics

import numpy as np
import torch

from benchmarks import make_parser
from benchmarks.cost import interleaved, ratio
from replay_buffer import Batch, ReplayBuffer

BATCH, EPISODE, SKILLS, ADDS = 1024, 1000, 16, 2000
FILLED = 1_000_000  # transitions


def filled_memory(rows: int) -> ReplayBuffer:
    """A full ring of walker's shape: episodes of 1000 steps, written into its arrays at once."""
    draw = np.random.default_rng(0)
    memory = ReplayBuffer(
        obs_dim=24,
        action_dim=6,
        skill_dim=SKILLS,
        capacity=rows,
        nstep=3,
        gamma=0.99,
        skill_index="acting",
        rng=np.random.default_rng(1),
    )
    step = np.arange(rows) % (EPISODE + 1)
    whole = step <= EPISODE - memory.nstep
    whole[-memory.nstep :] = False
    for name, values in {
        "obs": draw.random((rows, 24), np.float32),
        "action": draw.random((rows, 6), np.float32),
        "reward": draw.random((rows, 1), np.float32),
        "discount": 1.0,
        "episode_step": step,
        "skill": np.eye(SKILLS)[draw.integers(SKILLS, size=rows)],
        "valid": whole,
    }.items():
        memory.fields[name][:] = values
    memory.head, memory.size, memory.num_valid = rows - 1, rows, int(whole.sum())
    return memory


def loop_sample(memory: ReplayBuffer, size: int) -> Batch:
    """The same batch, a transition at a time: what a data loader over episodes does."""
    f, transitions = memory.fields, []
    for row in memory.sample_rows(size):
        reward, discount = np.zeros(1, np.float32), np.ones(1, np.float32)
        for i in range(memory.nstep):
            at = (row + i) % memory.capacity
            reward = reward + discount * f["reward"][at]
            discount = discount * np.float32(memory.gamma) * f["discount"][at]
        transitions.append(
            (
                f["obs"][row],
                f["action"][row],
                reward,
                discount,
                f["obs"][(row + memory.nstep) % memory.capacity],
                f["skill"][row].astype(np.float32),
                f["obs"][(row + 1) % memory.capacity],
            )
        )
    return Batch(*(torch.from_numpy(np.stack(field)) for field in zip(*transitions)))


def measure(repeats: int, filled: int = FILLED) -> dict[str, float]:
    """Milliseconds per batch of 1024, microseconds per step added, at `filled` transitions."""
    memory = filled_memory(filled)
    action = np.zeros(6, np.float32)
    skill = np.eye(SKILLS, dtype=np.float32)[0]
    obs = np.zeros(24, np.float32)

    def add() -> None:
        memory.begin(obs)
        for _ in range(ADDS):
            memory.add(action, skill, 0.0, 1.0, obs)

    times = interleaved(
        {
            "sample": lambda: memory.sample(BATCH),
            "loop": lambda: loop_sample(memory, BATCH),
            "add": add,
        },
        repeats,
        1,
    )
    return {
        "sample_ms": 1e3 * statistics.median(times["sample"]),
        "add_us": 1e6 * statistics.median(times["add"]) / ADDS,
        "loop_sample_ms": 1e3 * statistics.median(times["loop"]),
        "ratio": ratio(times, "loop", "sample"),
    }


def table(result: dict[str, float]) -> str:
    return (
        f"replay  sample of {BATCH} {result['sample_ms']:6.2f} ms  (a loop: {result['loop_sample_ms']:.1f} ms, "
        f"{result['ratio']:.0f}x)   add {result['add_us']:.1f} us"
    )


if __name__ == "__main__":
    print(table(measure(make_parser(__doc__, 15).parse_args().repeats)))
