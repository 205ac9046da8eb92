"""What commands say: one line for each mistake, and never a character that steers the terminal.

It needs no torch, so that a command can say what is wrong before the slow imports.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import NoReturn

LEFT_OUT = 3  # the exit code of a command that did its work, but for files that it could not read
# What a terminal or a browser obeys instead of showing it: control characters, ends of lines, marks
# that turn the direction of writing, and halves of a character, which cannot be written at all.
STEERING = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"


def printable(text: object, *, keep: str = "") -> str:
    """Text that may come from somebody else's file, as one line in which such characters are shown
    as Python writes them (\\x1b). `keep` names those that may stay, such as the ends of lines."""
    return re.sub(
        f"[{STEERING}]",
        lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1],
        str(text),
    )


left_out: list[str] = []  # of the command that runs, for its exit code (run.cli.guard.run_command)


def leave_out(problem: object) -> str:
    """Name a file that the command goes on without, once, on stderr."""
    line = f"left out: {printable(problem)}"
    if line not in left_out:
        left_out.append(line)
        print(line, file=sys.stderr, flush=True)
    return line


def leave(line: str, code: int) -> NoReturn:
    print(printable(line) + "\n", end="", file=sys.stderr, flush=True)  # whole or not at all
    sys.exit(code)


class Parser(argparse.ArgumentParser):
    """A wrong option gets one line too, in place of the usage."""

    def error(self, message: str) -> NoReturn:
        leave(f"error: {message}; --help lists what there is", 2)


def at_least(low: int, high: int = 10**15) -> Callable[[str], int]:
    """The type of an argument."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,16}", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {low} to {high:g}"
            )
        return int(text)

    return parse
