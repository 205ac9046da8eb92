"""One colour, marker and name per method, for all figures and tables.

The yamls of the agents hold them: Paul Tol's "muted" scheme (nine colours, told apart by every kind
of colour vision), a grey for the baseline without pre-training, and his "light" scheme for methods
beyond the paper. Markers tell them apart too.
"""

from __future__ import annotations

from collections.abc import Iterable

from experiment.labels import shown

# For what is no agent (p=0.0, no_rnd) and for agents whose yaml names no colour, in turn: Tol's
# contrast schemes.
CHANGES = ("#004488", "#DDAA33", "#BB5566", "#6699CC", "#997700", "#EE99AA")


def palette() -> dict[str, str]:
    """The colour of each family of methods."""
    return {show["family"]: show["colour"] for show in shown().values() if "colour" in show}


def markers() -> dict[str, str]:
    """The marker of each family of methods."""
    return {show["family"]: show["marker"] for show in shown().values() if "marker" in show}


def base(method: str) -> str | None:
    """The family of a method: amped_release -> amped; None for a bare change such as p=0.0."""
    family = shown().get(method, {}).get("family")
    if family in palette():
        return family
    return next(
        (
            name
            for name in palette()
            if method == name or method.startswith((f"{name}_", f"{name},", f"{name} "))
        ),
        None,
    )


def colours(methods: Iterable[str]) -> dict[str, str]:
    """A colour for each: the family's own, tints of it for variants of a method, CHANGES in turn
    for the rest."""
    methods = list(dict.fromkeys(methods))
    chosen: dict[str, str] = {}
    families = {
        name: [m for m in methods if base(m) == name and m not in palette()]
        for name in map(base, methods)
    }
    for method in methods:
        name = base(method)
        others = families[name]
        if method in palette():
            chosen[method] = palette()[method]
        elif name:
            white = 0.8 * (others.index(method) + 1) / (len(others) + 1)
            chosen[method] = tint(palette()[name], white)
        else:
            chosen[method] = CHANGES[others.index(method) % len(CHANGES)]
    return chosen


def tint(colour: str, white: float) -> str:
    """Mixed with white: 0 leaves it as it is, 1 is white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * white):02X}" for c in parts)


def marker(method: str) -> str:
    return markers().get(base(method) or "", "o")
