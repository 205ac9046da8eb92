"""What an experiment wants to know, written into its yaml before the runs are made: in `figure`,

against: [scratch, scratch lr 3e-3]     a claim must hold against each of these; default: the first method
questions: {Does the selector help?: [amped selector, amped paper]}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from utils import UserError, choose


class Asked(NamedTuple):
    against: list[str]  # labels of methods
    questions: dict[str, list[str]]  # words -> the two methods that answer them


def asked(figure: Mapping[str, Any]) -> Asked:
    """Of an experiment's `figure`."""
    against, questions = figure.get("against", []), figure.get("questions", {})
    if not is_names(against):
        raise UserError(f"figure.against={against} is not valid: a list of methods")
    if not isinstance(questions, dict) or not all(
        isinstance(words, str) and is_names(pair) and len(pair) == 2
        for words, pair in questions.items()
    ):
        raise UserError(
            f"figure.questions={questions} is not valid: words, each with a list of two methods"
        )
    return Asked(against, questions)


def is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def check(figure: Mapping[str, Any], methods: Collection[str]) -> None:
    """Every method that is named there is one of the experiment's."""
    against, questions = asked(figure)
    for name in against:
        choose("figure.against", name, tuple(methods))
    for name in (name for pair in questions.values() for name in pair):
        choose("figure.questions", name, tuple(methods))
