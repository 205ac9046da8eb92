"""The files that a run leaves, each kind read in one place: result.json, config.yaml, its two logs.

What does not fit its schema (records.py) is `Damaged`, with one line that says why. So a command can
name the file, leave it out and go on with the rest.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

import yaml

from records import DEPTH, Config, Result, not_plain, wrong
from utils import Unreadable

LIMIT = 100_000_000  # bytes; the longest log of a run of the paper's size has two million
LOG_WORDS = ("skills", "returns")  # columns of eval.csv that hold no number
# The loader in C is ten times as fast, and there if libyaml was when PyYAML was built.
YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Damaged(Unreadable):
    """A file of a run that is not what a run writes."""


def read_bytes(path: Path, limit: int = LIMIT, *, follow: bool = True) -> bytes:
    """The content of a regular file; of one behind a link only if `follow`. A pipe, which would have
    the reader wait, is refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None
    except OSError as error:
        reason = "it is a link" if not follow and path.is_symlink() else error.strerror
        raise Damaged(f"{path.name} cannot be read ({reason})") from error
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(f"{path.name} is no regular file")
        if status.st_size > limit:
            raise Damaged(f"{path.name} has {status.st_size:,} bytes, more than {limit:,}")
        with open(handle, "rb", closefd=False) as file:
            return file.read(limit)
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read ({error.strerror})") from error
    finally:
        os.close(handle)


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise Damaged(f"{path.name} is no text ({error.reason})") from error


def read_result(run: Path) -> dict[str, Any] | None:
    """result.json of a run directory; None while there is none."""
    try:
        found = json.loads(read_text(run / "result.json"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise Damaged(f"result.json cannot be read ({error})") from error
    if problem := not_plain(found) or wrong(Result, found):
        raise Damaged(f"result.json is not what a run writes: {problem}")
    return found


def require_result(run: Path) -> dict[str, Any]:
    """Of a finished run; one that cannot be used is an error that says what to do."""
    try:
        found = read_result(run)
    except Damaged as error:
        raise Damaged(f"{run}: {error}; remove that file to run it again") from error
    if found is None:
        raise Damaged(f"{run} has no result.json; run it again")
    return found


def read_config(run: Path) -> dict[str, Any] | None:
    """config.yaml of a run directory; None where none was begun."""
    try:
        text = read_text(run / "config.yaml")
    except FileNotFoundError:
        return None
    try:
        found = load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Damaged(f"config.yaml cannot be read ({type(error).__name__})") from error
    if problem := not_plain(found) or wrong(Config, found):
        raise Damaged(f"config.yaml is not what a run writes: {problem}")
    return found


def load_yaml(text: str) -> Any:
    """Plain values of a YAML. How deep it nests is looked at first: the loader in C calls itself for
    every level, and thousands of them end the process."""
    depth = 0
    for event in yaml.parse(text, YAML):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH:
            raise ValueError("it is nested without end")
    return yaml.load(text, YAML)


def read_log(path: Path) -> list[dict[str, str]]:
    """Rows of eval.csv or train.csv, none if it is not there yet. A last line cut by a kill is left
    out."""
    try:
        text = read_text(path)
        head, *lines = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]), strict=True)
    except FileNotFoundError:
        return []
    except (ValueError, csv.Error) as error:
        raise Damaged(f"{path.name} cannot be read ({error})") from error
    if "frame" not in head or len(set(head)) < len(head):
        raise Damaged(f"{path.name} has not the columns of a log")
    for count, line in enumerate(lines, 2):
        row = dict(zip(head, line, strict=False))
        if (
            len(line) != len(head)
            or not re.fullmatch("[0-9]{1,15}", row["frame"])
            or not all(is_number(text) for name, text in row.items() if name not in LOG_WORDS)
        ):
            raise Damaged(f"{path.name}, line {count}, is not a row of a run")
    return [dict(zip(head, line, strict=True)) for line in lines]


def is_number(text: str) -> bool:
    """Or nothing: a column that came later is empty before."""
    try:
        return text == "" or not math.isinf(float(text))
    except ValueError:
        return False
