"""Damage to files and disks: flipped bits, missing ends, a file system without room."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.same import same_value
from utils import UserError, load_torch


def outcome(path: Path, what: str, data: bytes, sound: dict) -> str:
    """What becomes of a file with these bytes: refused by name, loaded to the same content, or
    WRONG."""
    path.write_bytes(data)
    try:
        loaded = load_torch(path, what)
    except UserError as error:
        return "refused" if str(path) in str(error) and "\n" not in str(error) else "WRONG"
    return "same" if same_value(loaded, sound) else "WRONG"


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def flips(file: Path, what: str, count: int, rng: random.Random, scratch: Path) -> Counter:
    """One bit at a time, anywhere in the file."""
    data, sound = file.read_bytes(), load_torch(file, what)
    return Counter(
        outcome(scratch, what, flip(data, rng.randrange(8 * len(data))), sound)
        for _ in range(count)
    )


def cuts(file: Path, what: str, count: int, rng: random.Random, scratch: Path) -> Counter:
    """The file ends early; a few of them lose only their last bytes."""
    data, sound = file.read_bytes(), load_torch(file, what)
    ends = [len(data) - 1 - i if i < 20 else rng.randrange(len(data)) for i in range(count)]
    return Counter(outcome(scratch, what, data[:end], sound) for end in ends)


@contextlib.contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of this size; OSError where mounting is not permitted."""
    path.mkdir(parents=True, exist_ok=True)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)],
        capture_output=True,
    ).returncode:
        raise OSError("mounting a tmpfs is not permitted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def resize(path: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(path)], check=True)
