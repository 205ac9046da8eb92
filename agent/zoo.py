"""The shipped policies, by name: `zoo:walker/amped` stands for zoo/walker/amped.pt."""

from __future__ import annotations

import difflib
from pathlib import Path

from utils import ROOT, UserError

ZOO = ROOT / "zoo"
PREFIX = "zoo:"


def names() -> list[str]:
    """`walker/amped`, ...: every policy of the zoo."""
    return sorted(str(path.relative_to(ZOO).with_suffix("")) for path in ZOO.glob("*/*.pt"))


def resolve(name: str | Path) -> Path:
    """The file of `zoo:NAME`; any other path as it is."""
    if not str(name).startswith(PREFIX):
        return Path(name)
    wanted, known = str(name).removeprefix(PREFIX), names()
    if wanted not in known:
        close = difflib.get_close_matches(wanted, known, 1)
        raise UserError(
            f"{name} is not in the zoo; choose from {', '.join(PREFIX + each for each in known)}"
            + (f" (did you mean {PREFIX}{close[0]}?)" if close else "")
        )
    return ZOO / f"{wanted}.pt"
