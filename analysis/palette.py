"""One colour, marker and name per method, for all figures and tables."""

from __future__ import annotations

from collections.abc import Iterable

# Paul Tol's "muted" scheme (nine colours, told apart by every kind of colour vision) and a grey for
# the baseline without pre-training; below the line, methods beyond the paper in his "light" scheme.
# Markers tell them apart too.
PALETTE = {
    "amped": "#882255",
    "cesd": "#332288",
    "cic": "#88CCEE",
    "becl": "#117733",
    "apt": "#DDCC77",
    "rnd": "#999933",
    "diayn": "#44AA99",
    "comsd": "#CC6677",
    "metra": "#AA4499",
    "ddpg": "#777777",
    "aps": "#77AADD",
    "dads": "#EE8866",
    "disagreement": "#EEDD88",
    "icm": "#FFAABB",
    "proto": "#99DDFF",
    "smm": "#AAAA00",
}
CHANGES = (
    "#004488",
    "#DDAA33",
    "#BB5566",
    "#6699CC",
    "#997700",
    "#EE99AA",
)  # Tol's contrast schemes: p=0.0, no_rnd
MARKERS = dict(zip(PALETTE, "osD^vP*Xpd<>hH8|", strict=True))


def base(method: str) -> str | None:
    """The method that a variant is of: amped_release -> amped; None for a bare change such as
    p=0.0."""
    return next(
        (
            name
            for name in PALETTE
            if method == name or method.startswith((f"{name}_", f"{name},", f"{name} "))
        ),
        None,
    )


def colours(methods: Iterable[str]) -> dict[str, str]:
    """A colour for each: the table's, tints of it for variants of a method, CHANGES in turn for the
    rest."""
    methods, chosen = list(dict.fromkeys(methods)), {}
    families = {
        name: [m for m in methods if base(m) == name and m not in PALETTE]
        for name in map(base, methods)
    }
    for method in methods:
        family = families[base(method)]
        if method in PALETTE:
            chosen[method] = PALETTE[method]
        elif base(method):
            chosen[method] = tint(
                PALETTE[base(method)], 0.8 * (family.index(method) + 1) / (len(family) + 1)
            )
        else:
            chosen[method] = CHANGES[family.index(method) % len(CHANGES)]
    return chosen


def tint(colour: str, white: float) -> str:
    """Mixed with white: 0 leaves it as it is, 1 is white."""
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * white):02X}" for c in parts)


def marker(method: str) -> str:
    return MARKERS.get(base(method), "o")
