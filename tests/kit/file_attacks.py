"""Damaged and hostile files of a run, by kind. Each takes a run directory and spoils it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Attack = Callable[[Path], Any]
LONG = "9" * 5000  # Python itself refuses to read a number of so many digits
DEEP = 100_000  # levels, which end a reader that calls itself
NONSENSE: dict[str, Any] = {
    "nothing": None,
    "a word": "high",
    "a list": [1],
    "a mapping": {"a": 1},
    "a truth value": True,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "negative": -1,
    "huge": 10**400,
    "escapes": "\x1b[31m\nerror: fake",
}


def content(name: str, data: bytes | str) -> Attack:
    return lambda run: (run / name).write_bytes(data.encode() if isinstance(data, str) else data)


def no_file(name: str, make: Callable[[Path], Any]) -> Attack:
    def spoil(run: Path) -> None:
        (run / name).unlink()
        make(run / name)

    return spoil


def result(**changes: Any) -> Attack:
    def spoil(run: Path) -> None:
        found = json.loads((run / "result.json").read_text())
        (run / "result.json").write_text(json.dumps({**found, **changes}))

    return spoil


def without(key: str) -> Attack:
    def spoil(run: Path) -> None:
        found = json.loads((run / "result.json").read_text())
        del found[key]
        (run / "result.json").write_text(json.dumps(found))

    return spoil


def config(**changes: Any) -> Attack:
    def spoil(run: Path) -> None:
        found = yaml.safe_load((run / "config.yaml").read_text())
        (run / "config.yaml").write_text(yaml.safe_dump({**found, **changes}))

    return spoil


def cell(name: str, column: str, value: str) -> Attack:
    """Another value in the last line of a log."""

    def spoil(run: Path) -> None:
        head, *lines = (run / name).read_text().splitlines()
        cells = lines[-1].split(",")
        cells[head.split(",").index(column)] = value
        (run / name).write_text("\n".join([head, *lines[:-1], ",".join(cells)]) + "\n")

    return spoil


def everywhere(name: str) -> dict[str, Attack]:
    """What can happen to any file."""
    return {
        f"{name}: {what}": attack
        for what, attack in {
            "empty": content(name, ""),
            "zeros": content(name, b"\0" * 200),
            "no text": content(name, b"\xff\xfe\x80" * 50),
            "a page": content(name, "<html>404</html>\n"),
            "a directory": no_file(name, Path.mkdir),
            "a pipe": no_file(name, os.mkfifo),
            "a link to itself": no_file(name, lambda path: path.symlink_to(path.name)),
            "a device without end": no_file(name, lambda path: path.symlink_to("/dev/zero")),
            "gigabytes": lambda run: os.truncate(run / name, 10**10),
        }.items()
    }


NUMBERS = ("seed", "frame", "score", "wall_seconds")
PARTS = ("final", "curve", "phase", "agent")
RESULT: dict[str, Attack] = {
    **everywhere("result.json"),
    **{f"no {key}": without(key) for key in (*NUMBERS, *PARTS)},
    **{
        f"{key} is {what}": result(**{key: value})
        for key in NUMBERS
        for what, value in NONSENSE.items()
        if not (key == "score" and what == "negative")
    },
    **{
        f"{key} is {what}": result(**{key: NONSENSE[what]})
        for key in PARTS
        for what in ("nothing", "a word", "a truth value", "huge")
    },
    **{
        f"{key} is {what}": result(**{key: NONSENSE[what]})
        for key in ("git", "versions", "best", "per_skill")
        for what in ("a word", "a truth value", "infinite")
    },
    "a list": content("result.json", "[1, 2]"),
    "nested without end": content("result.json", "[" * DEEP),
    "nested in a value": content("result.json", '{"a": ' * 5000 + "1" + "}" * 5000),
    "a number of 5000 digits": content("result.json", f'{{"seed": {LONG}}}'),
    "cut off": lambda run: os.truncate(run / "result.json", 100),
    "a curve of words": result(curve=["a", "b"]),
    "a curve without frames": result(curve=[{"return_mean": 1.0}]),
    "a curve at infinity": result(curve=[{"frame": float("inf"), "return_mean": 1.0}]),
    "a commit that is a list": result(git={"commit": [1], "dirty": False}),
    "versions that are numbers": result(versions={"torch": 2.0}),
}
CONFIG: dict[str, Attack] = {
    **everywhere("config.yaml"),
    **{
        f"device is {what}": config(device=NONSENSE[what])
        for what in ("nothing", "a list", "a truth value", "infinite")
    },
    **{
        f"num_threads is {what}": config(num_threads=NONSENSE[what])
        for what in ("a word", "a truth value", "negative", "infinite")
    },
    "a list": content("config.yaml", "- 1\n"),
    "a word": content("config.yaml", "word\n"),
    "nested without end": content("config.yaml", "[" * DEEP),
    "lists in lists": content("config.yaml", "- " * DEEP),
    "mappings in mappings": content("config.yaml", "{a: " * 5000),
    "holds itself": content("config.yaml", "&a {device: cpu, b: *a}\n"),
    "a billion laughs": content(
        "config.yaml",
        "a0: &a0 {x: 1}\n"
        + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
        + "device: cpu\n",
    ),
    "names that are numbers": content("config.yaml", "device: cpu\n1: 2\nnull: 3\n"),
    "a date": content("config.yaml", "device: cpu\nwhen: 2020-01-01\n"),
    "binary": content("config.yaml", "device: cpu\nwhat: !!binary aGVsbG8=\n"),
    "a set": content("config.yaml", "device: cpu\nwhat: !!set {a, b}\n"),
    "a number of 5000 digits": content("config.yaml", f"device: cpu\nseed: {LONG}\n"),
    "python": content("config.yaml", "device: !!python/object/apply:os.system ['true']\n"),
    "two documents": content("config.yaml", "device: cpu\n---\ndevice: cpu\n"),
}


def log(name: str) -> dict[str, Attack]:
    column = "return_mean" if name == "eval.csv" else "seconds"
    return {
        **everywhere(name),
        **{
            f"{name}: frame is {value[:9]}": cell(name, "frame", value)
            for value in ("inf", "nan", "-1", "1.5", "", "x", LONG, "٣", "1e3", "0x10")
        },
        **{
            f"{name}: a number is {value[:9]}": cell(name, column, value)
            for value in ("x", "inf", "\x1b[31m", "1;2", "2020-01-01")
        },
        f"{name}: a line too long": cell(name, column, "1,2,3"),
        f"{name}: a quote that stays open": cell(name, column, '"1'),
        f"{name}: columns twice": content(name, "frame,frame\n1,2\n"),
        f"{name}: no frame": content(name, "a,b\n1,2\n"),
    }


LOGS = {**log("eval.csv"), **log("train.csv")}
ATTACKS = {
    f"{kind}, {name}": attack
    for kind, attacks in {"result": RESULT, "config": CONFIG, "log": LOGS}.items()
    for name, attack in attacks.items()
}
