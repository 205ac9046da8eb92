"""The words of a command line, checked before Hydra composes them.

Some mistakes Hydra would accept without a word, others it would answer with paragraphs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

import yaml

from run.cli import own
from utils import UserError

GROUPS = (
    "adapt",
    "agent",
    "balance",
    "data",
    "domain",
    "learner",
    "preset",
    "reading",
    "skills",
    "surgery",
    "task",
)
PATHS = ("snapshot", "data.file", "run_root", "variant", "pretrain_variant")
# keys that decide where Hydra writes
PLACES = ("hydra.run.", "hydra.sweep.", "hydra.output_subdir", "hydra.job.")


def options(group: str) -> list[str]:
    return list(own.yamls(group))


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)`, or nothing. The last part counts too: batch_size stands for
    learner.batch_size."""
    known, last = list(known), word.rpartition(".")[2]
    close = (
        difflib.get_close_matches(word, known, 1, 0.75)
        or [
            key
            for part in difflib.get_close_matches(
                last, [key.rpartition(".")[2] for key in known], 1, 0.75
            )
            for key in known
            if key.rpartition(".")[2] == part
        ]
        or difflib.get_close_matches(word, known, 1)
    )
    return f" (did you mean {close[0]}?)" if close else ""


def check_words(words: list[str], *, multirun: bool = False) -> None:
    """Refuse words that are not key=value, that give a key twice, that add or remove keys, or that
    set what follows from another word, such as agent.name."""
    seen = set()
    for word in words:
        key, equals, value = word.partition("=")
        if word[:1] in ("+", "~"):
            raise UserError(
                f"{word} would add or remove a key; give key=value with a key that --help lists"
            )
        if not equals or not key.strip():
            raise UserError(f"{word} is not key=value, such as seed=3")
        if key in seen:
            raise UserError(f"{key}= is given twice; give it once")
        seen.add(key)
        group, _, rest = key.partition(".")
        if group in GROUPS and rest == "name":
            raise UserError(
                f"{key}= follows from {group}=; choose {group}= from {', '.join(options(group))}"
            )
        if key == "phase":
            raise UserError("phase= follows from the script; use pretrain.py or finetune.py")
        if key.startswith(PLACES):
            raise UserError(
                f"{key}= would write beside the runs; use run_root=DIR, which moves all of it"
            )
        if key in GROUPS and not multirun:  # there a comma separates several of them
            _check_option(key, value.strip("'\""))


def _check_option(group: str, name: str) -> None:
    """The name of a group's yaml is a plain word. Whether there is such a yaml, perhaps in the
    user's own --config-dir, is left to Hydra."""
    if not re.fullmatch(r"[^\W\d][\w-]*", name) or name.lower() in (
        "null",
        "true",
        "false",
        "nan",
        "inf",
    ):
        known = options(group)
        raise UserError(
            f"{group}={name} is not known; choose from {', '.join(known)}{nearest(name, known)}"
        )


def quote_words(words: list[str]) -> list[str]:
    """Paths and variants hold commas, spaces and equal signs, which Hydra takes for grammar, and it
    reads ASCII only outside quotes: quote them."""
    quoted = []
    for word in words:
        key, equals, value = word.partition("=")
        special = r"[^\w./-]" if key in PATHS else r"[^\x20-\x7e]"
        if re.search(special, value, re.ASCII) and value[0] not in "'\"" and "${" not in value:
            value = re.sub(r"(\\*)'", r"\1\1\\'", value)  # a backslash counts before a quote only
            value = "'" + re.sub(r"(\\+)\Z", r"\1\1", value) + "'"
        quoted.append(f"{key}={value}" if equals else word)
    return quoted


def parse_value(key: str, text: str) -> Any:
    """What a word holds, as yaml has it: plain values only, no tag makes an object."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(
            f"{key}={text} cannot be read as yaml; give a plain value, such as 3 or [1,2]"
        ) from error
