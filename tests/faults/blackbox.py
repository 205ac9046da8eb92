"""A script under a flight recorder: python -m tests.faults.blackbox BOX pretrain key=value ...

What the run is doing is kept in a file that is mapped into memory, so that it outlives a kill -9
and can be watched from outside: the phase, the frame, and how many updates and environment steps
this process has made.
"""

from __future__ import annotations

import functools
import mmap
import runpy
import struct
import sys
from pathlib import Path

from utils import ROOT

PHASES = (
    "starting",
    "step",
    "update",
    "selector update",
    "evaluation",
    "checkpoint",
    "snapshot",
    "finishing",
)
FIELDS = ("phase", "frame", "updates", "train_steps", "eval_steps", "replayed")


class Box:
    """A few whole numbers in a file."""

    def __init__(self, path: Path):
        if not path.exists() or path.stat().st_size != 8 * len(FIELDS):
            path.write_bytes(bytes(8 * len(FIELDS)))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def read(self, field: str) -> int:
        return struct.unpack_from("<q", self._memory, 8 * FIELDS.index(field))[0]

    def write(self, field: str, value: int) -> None:
        struct.pack_into("<q", self._memory, 8 * FIELDS.index(field), value)

    def add(self, field: str, count: int) -> None:
        self.write(field, self.read(field) + count)

    @property
    def phase(self) -> str:
        return PHASES[self.read("phase")]

    def clear(self) -> None:
        for field in FIELDS:
            self.write(field, 0)


def record(box: Box) -> None:
    """Hooks around what a run does; its numbers are untouched."""
    from agent.learners.ddpg import DDPG
    from agent.learners.ppo import PPO
    from agent.skills.selector_networks import SelectorNetworks
    from run import build
    from run.directory import RunDirectory
    from run.loop import Runner

    def during(owner: type, name: str, phase: str, after=lambda *_: None) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(self, *args, **kwargs):
            before = box.read("phase")
            box.write("phase", PHASES.index(phase))
            try:
                return original(self, *args, **kwargs)
            finally:
                box.write("phase", before)
                after(self)

        setattr(owner, name, call)

    def counted(env, field: str) -> None:
        step = env.step

        def call(action):
            # lanes step side by side
            box.add(field, len(action) if getattr(action, "ndim", 1) == 2 else 1)
            return step(action)

        env.step = call

    def restored(env) -> None:
        set_state = env.set_state

        def call(state):
            before = box.read("train_steps")
            result = set_state(state)
            box.add("replayed", box.read("train_steps") - before)
            return result

        env.set_state = call

    make_parts = build.make_parts

    def make_counted_parts(*args, **kwargs):
        parts = make_parts(*args, **kwargs)
        counted(parts.env, "train_steps")
        for env in parts.eval_envs:
            counted(env, "eval_steps")
        if hasattr(parts.env, "set_state"):
            restored(parts.env)
        return parts

    def border(self) -> bool:
        box.write("phase", PHASES.index("step"))
        box.write("frame", self.frame)
        return at_border(self)

    at_border, Runner._at_border = Runner._at_border, border
    build.make_parts = make_counted_parts
    for learner in (DDPG, PPO):
        during(learner, "learn", "update", lambda _: box.add("updates", 1))
    during(SelectorNetworks, "learn", "selector update", lambda _: box.add("updates", 1))
    during(Runner, "_evaluate", "evaluation")
    during(Runner, "save_checkpoint", "checkpoint")
    during(Runner, "save_snapshot", "snapshot")
    during(RunDirectory, "finish", "finishing")


def main() -> None:
    box, script, *args = sys.argv[1:]
    sys.path.insert(0, str(ROOT))
    record(Box(Path(box)))
    sys.argv = [f"{script}.py", *args]
    runpy.run_path(str(ROOT / f"{script}.py"), run_name="__main__")


if __name__ == "__main__":
    main()
