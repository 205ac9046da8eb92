"""kill -9, or another signal, at chosen moments of a run, again and again until it is done."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.faults.blackbox import ROOT, Box

SMALL = ("preset=smoke", "skill_dim=4")
MIX = (
    "starting",
    "any",
    "evaluation",
    "any",
    "checkpoint",
    "any",
    "snapshot",
    "any",
    "evaluation",
    "any",
)
# Seconds between what is aimed at and the kill, at most; else DELAY.
WAIT = {"starting": 3.0, "evaluation": 0.05}
DELAY = 0.02


class Job(NamedTuple):
    """A run and where it lives below run_root."""

    name: str
    script: str
    args: tuple[str, ...]
    where: str
    frames: int
    snapshot: str | None = (
        None  # of the pre-training that it starts from, below the undisturbed run_root
    )

    @property
    def warm(self) -> int:
        """A frame after the first update: 20 frames of warm-up with DDPG, one cycle with PPO."""
        return self.frames // 20

    def command(self, root: Path, snapshots: Path) -> list[str]:
        source = [f"snapshot={snapshots / self.snapshot}"] if self.snapshot else []
        return [self.script, *SMALL, *self.args, *source, "variant=soak", f"run_root={root}"]


def every(frames: int, checkpoint: int) -> tuple[str, ...]:
    """Evaluations at each tenth checkpoint, snapshots at each twentieth."""
    snapshots = ",".join(str(f) for f in range(20 * checkpoint, frames, 20 * checkpoint))
    return (
        f"num_train_frames={frames}",
        f"checkpoint_every_frames={checkpoint}",
        f"snapshots=[{snapshots}]",
        f"eval_every_frames={10 * checkpoint}",
        f"log_every_frames={checkpoint}",
    )


# A resume plays the open episode again, so an arm with 250 steps per episode: of ten resumes a
# walker would spend as much on its 1000 as on these runs.
ARM = "pretrain/jaco/amped/soak/seed_1"
MAZE = "pretrain/tree_maze/amped/soak/seed_1"
REACH = ("agent=amped", "task=jaco_reach_top_left")
GOAL = ("agent=amped", "task=tree_maze_reach_left")
SELDOM = "learner.update_every_steps=6"  # the run is long for the kills' sake, not for its updates
JOBS = (
    Job(
        "pre-training, DDPG",
        "pretrain",
        ("agent=amped", "domain=jaco", *every(12000, 100), SELDOM),
        ARM,
        12000,
    ),
    Job(
        "pre-training, PPO",
        "pretrain",
        ("agent=amped", "domain=tree_maze", *every(4000, 80)),
        MAZE,
        4000,
    ),
    Job(
        "fine-tuning, DDPG",
        "finetune",
        (*REACH, *every(12000, 100), SELDOM),
        "finetune/jaco_reach_top_left/amped/soak/switching/seed_1",
        12000,
        f"{ARM}/snapshots/snapshot_12000.pt",
    ),
    Job(
        "selector, DDPG",
        "finetune",
        (*REACH, "skills=selector", "skills.update_every_steps=4", *every(12000, 100), SELDOM),
        "finetune/jaco_reach_top_left/amped/soak/selector/seed_1",
        12000,
        f"{ARM}/snapshots/snapshot_12000.pt",
    ),
    Job(
        "selector, PPO",
        "finetune",
        (*GOAL, "skills=selector", *every(2000, 40)),
        "finetune/tree_maze_reach_left/amped/soak/selector/seed_1",
        2000,
        f"{MAZE}/snapshots/snapshot_4000.pt",
    ),
)


class Aim(NamedTuple):
    frame: int
    phase: str  # one of blackbox.PHASES, or any


class Kill(NamedTuple):
    """Where a kill really landed."""

    aim: str
    phase: str
    frame: int
    trained: bool  # after the first update of the run


@dataclass
class Flight:
    """A run to its end through all kills."""

    kills: list[Kill] = field(default_factory=list)
    steps: int = (
        0  # of the environments in all attempts together: training, evaluation and replayed
    )
    replayed: int = 0  # of those, to put an environment back where its checkpoint had it
    error: str = ""  # of an attempt that failed by itself


def plan(job: Job, count: int, rng: random.Random) -> list[Aim]:
    """Spread over the run, the phases in turn; the last tenth stays free, so that every aim is
    met."""
    frames = sorted(rng.randrange(job.warm, job.frames * 9 // 10) for _ in range(count))
    return [Aim(frame, MIX[i % len(MIX)]) for i, frame in enumerate(frames)]


def start(command: list[str], box: Path) -> subprocess.Popen:
    environment = {k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.blackbox", str(box), *command],
        cwd=ROOT,
        text=True,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def shoot(process: subprocess.Popen, box: Box, aim: Aim, rng: random.Random, signum: int) -> bool:
    """Wait for the moment and send the signal; False if the process ended before."""
    delay = rng.uniform(0, WAIT.get(aim.phase, DELAY))
    while process.poll() is None:
        if aim.phase == "starting" or (
            box.read("frame") >= aim.frame and aim.phase in ("any", box.phase)
        ):
            time.sleep(delay)
            process.send_signal(signum)
            return True
        time.sleep(0.0005)
    return False


def fly(
    job: Job,
    root: Path,
    snapshots: Path,
    aims: list[Aim],
    rng: random.Random,
    signum: int = signal.SIGKILL,
    *,
    to_the_end: bool = True,
) -> Flight:
    """Start, send the signal at each aim in turn, start again, until the run is done."""
    flight, path = Flight(), root / "box"
    root.mkdir(parents=True, exist_ok=True)
    box = Box(path)
    for aim in [*aims, None] if to_the_end else aims:
        box.clear()
        process = start(job.command(root, snapshots), path)
        hit = aim is not None and shoot(process, box, aim, rng, signum)
        _, errors = process.communicate()
        flight.steps += box.read("train_steps") + box.read("eval_steps")
        flight.replayed += box.read("replayed")
        if hit and process.returncode in (-signum, 128 + signum):
            frame, phase = box.read("frame"), box.phase
            flight.kills.append(
                Kill(aim.phase, phase, frame, phase != "starting" and frame >= job.warm)
            )
        elif process.returncode:
            flight.error = (
                errors.strip().splitlines()[-1]
                if errors.strip()
                else f"exit code {process.returncode}"
            )
            break
        elif aim is None:
            break
    return flight
