"""One line on stderr and exit code 2, for commands that need no torch to say what is wrong."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import NoReturn


def leave(line: str, code: int) -> NoReturn:
    """Whatever a name held, it stays one line."""
    line = re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", lambda found: repr(found[0])[1:-1], line)
    print(line, file=sys.stderr, flush=True)
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
