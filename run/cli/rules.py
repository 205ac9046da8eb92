"""What a value may be, read from an annotation: `Literal[...]`, bounded numbers, switches."""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import Ge, Gt, Interval, Le, Lt

from utils import UserError

LARGEST_INT, LARGEST = 10**15, 1e30  # where no bound is given; the second leaves room in a float32


class Rule(NamedTuple):
    """What a valid value is, in words and as a test."""

    words: str
    valid: Callable[[Any], bool]

    def check(self, key: str, value: Any) -> None:
        """Nothing, or one line that names the key and what would be valid."""
        if self.valid(value):
            return
        choices = self.words.removeprefix("one of ")
        wanted = f"it must be {self.words}" if choices == self.words else f"choose from {choices}"
        raise UserError(f"{key}={value!r} is not valid; {wanted}")


SECTION = Rule("a group of keys, one of which can be given; --help lists them", lambda v: False)
ANY = Rule("a plain value", lambda v: not isinstance(v, dict))
SWITCH = Rule("true or false", lambda v: isinstance(v, bool))
TEXT = Rule("a word", lambda v: isinstance(v, str) and v != "")


def rule_of_annotation(annotation: Any) -> Rule | None:
    """None: an object that only the program can give, so no key of a config."""
    if annotation in (inspect.Parameter.empty, Any):
        return ANY
    if annotation in (bool, str):
        return SWITCH if annotation is bool else TEXT
    if annotation in (int, float):
        return _number(annotation, ())
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kind, *bounds = parts
        own = [bound for bound in bounds if isinstance(bound, Rule)]
        return own[0] if own else _number(kind, bounds)
    if origin is Literal:
        return Rule(
            f"one of {', '.join(map(str, parts))}",
            lambda v: any(v == part and type(v) is type(part) for part in parts),
        )
    if origin in (Union, types.UnionType):
        return _union(parts)
    return None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(kind: Any, bounds: Any) -> Rule | None:
    if kind not in (int, float):
        return rule_of_annotation(kind)
    low, high, above = -math.inf, math.inf, False
    for bound in bounds:
        for each in bound if isinstance(bound, Interval) else (bound,):
            if isinstance(each, Gt):
                low, above = each.gt, True  # type: ignore[assignment]
            elif isinstance(each, Ge):
                low = each.ge  # type: ignore[assignment]
            elif isinstance(each, Le):
                high = each.le  # type: ignore[assignment]
            elif isinstance(each, Lt):
                raise TypeError("a bound from above is written with Le")
    largest = LARGEST_INT if kind is int else LARGEST
    low, high = max(low, -largest), min(high, largest)
    words = f"{'above' if above else 'from'} {_spell(low)}{',' if above else ''} to {_spell(high)}"

    def valid(v: Any) -> bool:
        right = _is_int(v) or (kind is float and isinstance(v, float))
        return right and low <= v <= high and (v > low or not above)

    return Rule(f"a {'whole ' if kind is int else ''}number {words}", valid)


def _spell(number: float) -> str:
    short = f"{number:g}"
    return short if float(short) == number else str(number)


def _union(parts: tuple[Any, ...]) -> Rule | None:
    rules = [rule_of_annotation(part) for part in parts if part is not type(None)]
    known = [rule for rule in rules if rule is not None]
    if len(known) < len(rules):
        return None
    words = ", ".join(rule.words.removeprefix("one of ") for rule in sorted(known, key=_switches))
    if type(None) in parts:
        words += ", or null"
    optional = type(None) in parts
    return Rule(words, lambda v: (v is None and optional) or any(rule.valid(v) for rule in known))


def _switches(rule: Rule) -> bool:
    return rule is SWITCH  # last: "auto, true or false"
