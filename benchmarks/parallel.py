"""Do several preset=cpu runs side by side beat one with more threads?

    python -m benchmarks.parallel [frames]

Each row is some runs of pretrain.py at once; frames per second are of all of them together, from
the time that the slowest one trained (imports left out). It judges the default of
configs/cluster/local.yaml, cores / num_threads, on a machine that has nothing else to do.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from experiment.job import Command, start
from run.cli.console import Parser, at_least, leave
from utils import ROOT

CASES = ((1, 1), (1, 2), (2, 1), (4, 1))  # runs at once, threads of each


def measure(root: Path, runs: int, threads: int, frames: int) -> float:
    """Frames per second of all runs together. Nothing is evaluated or saved on the way."""
    words = [
        "agent=amped",
        "domain=walker",
        "preset=cpu",
        f"num_train_frames={frames}",
        f"num_threads={threads}",
        "snapshots=[]",
        f"eval_every_frames={frames}",
        "eval_episode_steps=10",
        f"checkpoint_every_frames={10 * frames}",
        f"run_root={root}",
        f"variant={runs}x{threads}",
    ]
    commands = [
        Command(
            [sys.executable, str(ROOT / "pretrain.py"), *words, f"seed={seed}"],
            str(root / f"{runs}x{threads}_{seed}.log"),
            threads,
        )
        for seed in range(runs)
    ]
    processes = [start(command) for command in commands]
    for process, command in zip(processes, commands, strict=True):
        if process.wait():
            leave(Path(command.log).read_text().splitlines()[-1], 2)
    results = root.glob(f"pretrain/walker/amped/{runs}x{threads}/*/result.json")
    return runs * frames / max(json.loads(path.read_text())["wall_seconds"] for path in results)


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "frames",
        nargs="?",
        type=at_least(1),
        default=8000,
        help="of each run; the first 4000 are without updates (%(default)s)",
    )
    frames = parser.parse_args().frames
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before; {frames:,} frames each")
    print(f"{'runs':>5} {'threads':>8} {'frames/s':>9} {'over 1 x 1':>11}")
    base = None
    with tempfile.TemporaryDirectory() as folder:
        for runs, threads in CASES:
            speed = measure(Path(folder), runs, threads, frames)
            base = base or speed
            print(f"{runs:>5} {threads:>8} {speed:>9.0f} {speed / base:>11.2f}", flush=True)


if __name__ == "__main__":
    main()
