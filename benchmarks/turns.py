"""pretrain.py at another commit and at HEAD, in turns on one machine, each from a cold start.

    python -m benchmarks.turns COMMIT [--turn SECONDS] [key=value ...]

While one runs the other is stopped, so that both get the machine's good and bad moments. Each has a
clone, a run root and a cache of compiled code of its own, all new. Seconds count only while a side
runs: the whole command, imports and compiling included. Linux only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from run.cli.console import Parser
from run.cli.guard import run_command
from utils import ROOT, UserError

WORDS = ["agent=amped", "domain=walker", "preset=cpu"]
GLANCE = 0.02  # seconds between looks whether a side has ended


def family(pid: int) -> list[int]:
    """A process and all that it has started, such as the compiler's workers."""
    found = [pid]
    for each in found:  # grows while it is read
        for listed in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, listed.read_text().split())
            except OSError:  # it has ended meanwhile
                continue
    return found


def send(pid: int, signum: int) -> None:
    for each in family(pid):
        try:
            os.kill(each, signum)
        except ProcessLookupError:
            continue


@dataclass
class Side:
    name: str
    process: subprocess.Popen
    seconds: float = 0.0  # that it has run

    def advance(self, turn: float) -> None:
        """Let it run for one turn, or to its end."""
        started = time.monotonic()
        send(self.process.pid, signal.SIGCONT)
        while self.process.poll() is None and time.monotonic() - started < turn:
            time.sleep(GLANCE)
        send(self.process.pid, signal.SIGSTOP)
        self.seconds += time.monotonic() - started


def take_turns(sides: list[Side], turn: float) -> None:
    """All sides, which are stopped now, to their ends. Whoever breaks this off ends them too."""
    try:
        while left := [side for side in sides if side.process.poll() is None]:
            for side in left:
                side.advance(turn)
    finally:
        for side in sides:
            if side.process.poll() is None:
                send(side.process.pid, signal.SIGKILL)


def check_out(commit: str, clone: Path) -> None:
    for command in (
        ["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(clone)],
        ["git", "-C", str(clone), "checkout", "--quiet", "--detach", commit],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["git says nothing"])[0]
            raise UserError(f"{commit} cannot be checked out: {reason}")


def start(name: str, command: list[str], **options: Any) -> Side:
    """A side that waits for its first turn."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)
    send(process.pid, signal.SIGSTOP)
    return Side(name, process)


def compare(commit: str, turn: float, words: list[str]) -> str:
    with tempfile.TemporaryDirectory() as root:
        folders = {at: Path(root) / at.replace("/", "-") for at in (commit, "HEAD")}
        for at, folder in folders.items():
            check_out(at, folder / "clone")
        sides = [
            start(
                at,
                [sys.executable, "pretrain.py", *words, f"run_root={folder / 'runs'}"],
                cwd=folder / "clone",
                env={
                    **os.environ,
                    "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
                    "TQDM_DISABLE": "1",
                },
            )
            for at, folder in folders.items()
        ]
        take_turns(sides, turn)
    for side in sides:
        if side.process.returncode:
            raise UserError(f"{side.name} ended with exit code {side.process.returncode}")
    before, after = (side.seconds for side in sides)
    return f"{commit} {before:.0f} s, HEAD {after:.0f} s: {after / before:.2f}"


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit", help="what to compare HEAD with")
    parser.add_argument("words", nargs="*", metavar="key=value", help=f"({' '.join(WORDS)})")
    parser.add_argument("--turn", type=float, default=8.0, help="seconds of a turn (%(default)s)")
    args = parser.parse_intermixed_args()
    run_command(lambda: print(compare(args.commit, args.turn, args.words or WORDS), flush=True))


if __name__ == "__main__":
    main()
