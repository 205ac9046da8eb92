"""From the flat keys of a config to the arguments of a class.

A constructor takes its settings one by one, or several together in a dataclass that says what they
shape. The yaml is flat either way: a key finds its argument by its name, or by the field of the
dataclass that has this name.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints


class Key(NamedTuple):
    """What a constructor says of one flat key."""

    annotation: Any  # inspect.Parameter.empty where it says nothing
    group: str | None  # the argument whose dataclass holds the key; None: an argument of its own
    required: bool


def keys_of(kind: type) -> dict[str, Key]:
    """Every flat key that the constructor takes. `**settings` stands for the keys of the class that
    it is handed on to, the next one with a constructor."""
    return _keys_of(kind)


@functools.cache
def _keys_of(kind: type) -> dict[str, Key]:
    found: dict[str, Key] = {}
    for owner in kind.__mro__:
        if "__init__" not in vars(owner):
            continue
        constructor = vars(owner)["__init__"]
        parameters = list(inspect.signature(constructor).parameters.values())[1:]  # not self
        hints = get_type_hints(constructor, include_extras=True)
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            annotation = hints.get(parameter.name, parameter.empty)
            required = parameter.default is parameter.empty
            if dataclasses.is_dataclass(annotation):
                _add_fields(found, annotation, parameter.name)
            else:
                found.setdefault(parameter.name, Key(annotation, None, required))
        if not any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters):
            break
    return found


def _add_fields(found: dict[str, Key], settings: Any, group: str) -> None:
    hints = get_type_hints(settings, include_extras=True)
    for field in dataclasses.fields(settings):
        if field.name in found and found[field.name].group != group:
            raise TypeError(f"the key {field.name} is in two arguments of one constructor")
        required = field.default is dataclasses.MISSING
        found.setdefault(field.name, Key(hints[field.name], group, required))


def arguments(kind: type, flat: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments that a constructor takes, from flat keys: those of one dataclass
    become one object."""
    keys = keys_of(kind)
    plain: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}
    for name, value in flat.items():
        group = keys[name].group
        (plain if group is None else groups.setdefault(group, {}))[name] = value
    kinds = _groups(kind)
    return plain | {group: kinds[group](**values) for group, values in groups.items()}


def _groups(kind: type) -> dict[str, Any]:
    """The arguments that are dataclasses."""
    found: dict[str, Any] = {}
    for owner in kind.__mro__:
        if "__init__" in vars(owner):
            for name, annotation in get_type_hints(vars(owner)["__init__"]).items():
                if dataclasses.is_dataclass(annotation):
                    found.setdefault(name, annotation)
    return found
