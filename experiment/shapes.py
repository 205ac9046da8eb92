"""What the yaml of an experiment may hold: each key with its words and its test."""

from __future__ import annotations

from typing import Any


def as_list(value: Any) -> list:
    return value if isinstance(value, list) else [value]


def is_words(entry: Any, *needed: str) -> bool:
    """{key: value}: words for the scripts, each value plain or a list of plain ones."""
    return (
        isinstance(entry, dict)
        and set(needed) <= set(entry)
        and all(
            isinstance(key, str)
            and all(each is None or isinstance(each, str | int | float) for each in as_list(value))
            for key, value in entry.items()
        )
    )


def is_method(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return isinstance(entry, str)
    rest = {key: value for key, value in entry.items() if key != "finetune"}
    named = all(isinstance(rest[key], str) for key in ("agent", "label") if key in rest)
    return named and is_words(rest, "agent") and is_words(entry.get("finetune", {}))


SHAPES = {
    "title": ("a line of text", lambda v: isinstance(v, str)),
    "preset": (
        "a name, or a mapping with a name",
        lambda v: isinstance(v, str) or (is_words(v, "name") and isinstance(v["name"], str)),
    ),
    "methods": (
        "a list of agents, or of mappings with an agent",
        lambda v: isinstance(v, list) and len(v) > 0 and all(map(is_method, v)),
    ),
    "grid": (
        "a mapping with a domain, or a list of mappings",
        lambda v: as_list(v) != [] and all(is_words(each, "domain") for each in as_list(v)),
    ),
    "finetune": ("a mapping with a task, or a list of them, or all", lambda v: is_words(v, "task")),
    "figure": ("a mapping with a kind", lambda v: isinstance(v, dict) and "kind" in v),
}
