"""A reward typed as an expression: `speed - 0.1 * abs(height - 1)`.

A small grammar and nothing else, so that no text can run code: numbers, the names that are given,
+ - * / ^, comparisons (1 or 0), parentheses, and the functions below. Values may be numbers or arrays.
A mistake is one line that marks the place in the text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from utils import UserError

TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|([A-Za-z_]\w*)|(<=|>=|\*\*|.))")
LONGEST, DEEPEST = 1000, 50  # characters, and parentheses inside each other
# name -> how many arguments, and what it computes
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "abs": (1, np.abs),
    "sqrt": (1, lambda x: np.sqrt(np.maximum(x, 0))),
    "exp": (1, lambda x: np.exp(np.minimum(x, 50))),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "clip": (3, np.clip),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": lambda a, b: np.divide(a, np.where(np.equal(b, 0), 1e-9, b)),
    "^": lambda a, b: np.power(np.asarray(a, float), np.clip(b, -8, 8)),
    "<": lambda a, b: np.less(a, b) * 1.0,
    ">": lambda a, b: np.greater(a, b) * 1.0,
    "<=": lambda a, b: np.less_equal(a, b) * 1.0,
    ">=": lambda a, b: np.greater_equal(a, b) * 1.0,
}
LEVELS = (("<", ">", "<=", ">="), ("+", "-"), ("*", "/"))  # each binds tighter than the one before
Node = Callable[[Mapping[str, Any]], Any]


class Token(NamedTuple):
    kind: str  # number | name | sign | end
    text: str
    start: int


class Expression:
    """`Expression(text, names)(values)`; a name may be cut short as long as it is clear."""

    def __init__(
        self,
        text: str,
        names: Mapping[str, str],
        functions: Mapping[str, tuple[int, Callable[..., Any]]] | None = None,
    ):
        """`names`: the quantities, with a line on each. `functions`: more of them, whose first
        argument is the mapping of values."""
        self.text, self.names, self.more = text, names, dict(functions or {})
        if len(text) > LONGEST:
            raise UserError(f"the expression has {len(text)} characters; give at most {LONGEST}")
        self.tokens, self.place, self.depth = self._split(), 0, 0
        self.node = self._level(0)
        if self.now.kind != "end":
            raise self._wrong(self.now, "is one too many here")

    def __call__(self, values: Mapping[str, Any]) -> Any:
        return self.node(values)

    # ---- reading

    def _split(self) -> list[Token]:
        tokens, at = [], 0
        stripped = self.text.rstrip()
        while at < len(stripped):
            found = TOKEN.match(stripped, at)
            assert found is not None, "the last alternative takes any character"
            kind = "number" if found[1] else "name" if found[2] else "sign"
            word = found[1] or found[2] or found[3]
            tokens.append(Token(kind, "^" if word == "**" else word, found.end() - len(word)))
            at = found.end()
        return [*tokens, Token("end", "", len(stripped))]

    @property
    def now(self) -> Token:
        return self.tokens[self.place]

    def _take(self) -> Token:
        self.place += 1
        return self.tokens[self.place - 1]

    def _expect(self, sign: str) -> None:
        if self.now.text != sign:
            raise self._wrong(self.now, f"stands where {sign!r} is expected")
        self._take()

    def _wrong(self, token: Token, words: str) -> UserError:
        if token.kind == "end":
            return UserError(f"the expression ends too early: {self.text} <here>")
        end = token.start + len(token.text)
        marked = f"{self.text[: token.start]}<{self.text[token.start : end]}>{self.text[end:]}"
        return UserError(f"{token.text!r} at character {token.start + 1} {words}: {marked}")

    def _level(self, number: int) -> Node:
        if number == len(LEVELS):
            return self._signed()
        left = self._level(number + 1)
        while self.now.kind == "sign" and self.now.text in LEVELS[number]:
            left = self._pair(BINARY[self._take().text], left, self._level(number + 1))
        return left

    @staticmethod
    def _pair(function: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
        return lambda values: function(left(values), right(values))

    def _signed(self) -> Node:
        """A minus binds weaker than a power: -x^2 is -(x^2)."""
        if self.now.text in ("-", "+") and self.now.kind == "sign":
            minus, inner = self._take().text == "-", self._deeper(self._signed)
            return (lambda values: -inner(values)) if minus else inner
        base = self._atom()
        if self.now.text != "^":
            return base
        self._take()
        return self._pair(BINARY["^"], base, self._deeper(self._signed))

    def _deeper(self, read: Callable[[], Node]) -> Node:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self._wrong(self.now, f"is more than {DEEPEST} levels deep")
        node = read()
        self.depth -= 1
        return node

    def _atom(self) -> Node:
        token = self._take()
        if token.kind == "number":
            value = float(token.text)
            return lambda values: value
        if token.text == "(":
            node = self._deeper(lambda: self._level(0))
            self._expect(")")
            return node
        if token.kind == "name":
            return self._call(token) if self.now.text == "(" else self._quantity(token)
        raise self._wrong(token, "is no number, quantity or function")

    def _quantity(self, token: Token) -> Node:
        name = self._complete(token, list(self.names))
        return lambda values: values[name]

    def _call(self, token: Token) -> Node:
        known = {**FUNCTIONS, **self.more}
        name = self._complete(token, list(known))
        self._take()
        arguments = [self._deeper(lambda: self._level(0))]
        while self.now.text == ",":
            self._take()
            arguments.append(self._deeper(lambda: self._level(0)))
        count, function = known[name]
        if len(arguments) != count:
            raise self._wrong(token, f"takes {count} arguments, not {len(arguments)}")
        self._expect(")")
        if name in self.more:
            return lambda values: function(values, *(each(values) for each in arguments))
        return lambda values: function(*(each(values) for each in arguments))

    def _complete(self, token: Token, known: list[str]) -> str:
        """The name itself, or the only one that begins so."""
        longer = [name for name in known if name.startswith(token.text)]
        if token.text in known or len(longer) == 1:
            return token.text if token.text in known else longer[0]
        close = longer or difflib.get_close_matches(token.text, known, 1)
        if len(longer) > 1:
            raise self._wrong(token, f"may be {' or '.join(longer)}")
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise self._wrong(token, f"is not known{hint}; choose from {', '.join(known)}")
