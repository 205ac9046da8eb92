"""What an agent sees: the stacks of its own observations along an episode, pixel by pixel.

    python -m analysis.seen RUN [--out seen.png]

A column per moment, the oldest frame of its stack at the top. The episode begins where the last
evaluation of the run began its first, so the pictures belong to that row of eval.csv.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from agent.policy import load_policy, snapshot_of
from analysis.film import env_of, save_png, tile
from envs.pixels import COLOURS
from run.build import make_env
from run.cli.console import Parser, at_least
from run.cli.guard import run_command
from run.seeing import render_settings
from utils import UserError, load_snapshot, stream_seed

SIDE = 96  # of a frame in the picture, about


def stacks_of(run: str, given: str | None, moments: int) -> np.ndarray:
    """Observations (moments, stack, rows, columns, 3), evenly along the episode."""
    path = snapshot_of(run)
    config, policy = load_snapshot(path)["config"], load_policy(path)
    if render_settings(config) is None:
        raise UserError(f"{run} sees states; give a run with obs_type=pixels")
    env = make_env(env_of(run, config, given), 0, config)
    seed = config["seed"]
    draw = np.random.default_rng(stream_seed(seed, "eval skills", policy.frame, 0))
    skill = None if policy.chooses else policy.space.sample(draw)
    env.seed(stream_seed(seed, "eval", policy.frame, 0))
    policy.reset()
    step = env.reset()
    seen = [step.observation]
    while not step.last():
        step = env.step(policy.act(step.observation, skill))
        seen.append(step.observation)
    env.close()
    chosen = [seen[round(t)] for t in np.linspace(0, len(seen) - 1, moments)]
    frames = np.stack(chosen).reshape(moments, -1, COLOURS, *chosen[0].shape[1:])
    return frames.transpose(0, 1, 3, 4, 2)


def strip(stacks: np.ndarray) -> np.ndarray:
    """One picture of them; a pixel of the agent's becomes a square."""
    times = max(1, round(SIDE / stacks.shape[2]))
    shown = [
        np.kron(stacks[moment, layer], np.ones((times, times, 1), np.uint8))
        for layer in range(stacks.shape[1])
        for moment in range(len(stacks))
    ]
    return tile(shown, len(stacks))


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("run", metavar="RUN", help="a run directory, a snapshot, or zoo:NAME")
    parser.add_argument("--out", type=Path, default=Path("seen.png"), help="(%(default)s)")
    parser.add_argument("--moments", type=at_least(1), default=10, help="columns (%(default)s)")
    parser.add_argument("--env", help="where the run's own would import a module: its name again")
    args = parser.parse_args()
    run_command(
        lambda: save_png(
            args.out, Image.fromarray(strip(stacks_of(args.run, args.env, args.moments)))
        )
    )


if __name__ == "__main__":
    main()
