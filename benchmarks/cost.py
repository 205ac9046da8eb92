"""Time of one update of every agent over DDPG's, interleaved: python -m benchmarks.cost [preset=cpu] [repeats]"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import torch
from hydra import compose, initialize_config_dir

from agent.build import make_learner, make_objective
from agent.settings import resolve
from agent.skills import SkillSpace
from replay_buffer import ReplayBuffer
from utils import Streams

CONFIGS = Path(__file__).parent.parent / "configs"
UPDATES = 10  # per repeat


class Walker:
    obs_dim, action_dim = 24, 6


def updater(agent: str, preset: str):
    """A function that does one update of the agent on random data, at the preset's size."""
    phase = ["finetune", "task=walker_run"] if agent == "ddpg" else ["pretrain"]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = resolve(compose(phase[0], [f"agent={agent}", f"preset={preset}", *phase[1:]]))
    rng = Streams(0)
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    objective = make_objective(config, Walker, space.dim, rng)
    learner = make_learner(config, Walker, space.dim, objective.streams, rng)
    memory = ReplayBuffer(obs_dim=24, action_dim=6, skill_dim=space.dim, rng=rng.numpy("replay"),
                          one_hot=space.one_hot, **{**config["replay"], "capacity": 10_000})
    draw = np.random.default_rng(0)
    memory.begin(draw.normal(size=24))
    for _ in range(5000):
        memory.add(draw.uniform(-1, 1, 6), space.sample(draw), 0.0, 1.0, draw.normal(size=24))
    step = config["learner"]["update_every_steps"]  # not a multiple of the conflict diagnostic's interval
    return lambda: learner.learn(memory, objective, step)


def main() -> None:
    preset = sys.argv[1].removeprefix("preset=") if len(sys.argv) > 1 else "cpu"
    repeats = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    torch.set_num_threads(1)
    agents = sorted(p.stem for p in (CONFIGS / "agent").glob("*.yaml"))
    updates = {agent: updater(agent, preset) for agent in agents}
    times: dict[str, list[float]] = {agent: [] for agent in agents}
    for repeat in range(repeats + 1):
        for agent, update in updates.items():
            start = time.perf_counter()
            for _ in range(UPDATES if repeat else 2):
                update()
            if repeat:  # the first one warms up
                times[agent].append((time.perf_counter() - start) / UPDATES)
    print(f"preset={preset}, 1 thread, {repeats} interleaved repeats of {UPDATES} updates; median")
    for agent in agents:
        ratio = statistics.median(a / b for a, b in zip(times[agent], times["ddpg"], strict=True))
        print(f"{agent:18} {1e3 * statistics.median(times[agent]):8.2f} ms  {ratio:6.2f} x ddpg")


if __name__ == "__main__":
    main()
