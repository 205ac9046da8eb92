"""The numbers that the paper prints, as data: load("urlb")."""

from __future__ import annotations

import pandas as pd

from utils import RESULTS

PAPER = RESULTS / "paper"


def names() -> list[str]:
    return sorted(path.stem for path in PAPER.glob("*.csv"))


def load(name: str) -> pd.DataFrame:
    """One table as printed (results/paper/README.md); what the paper leaves out is NaN."""
    if name not in names():
        raise FileNotFoundError(f"no table {name!r} of the paper; choose from {', '.join(names())}")
    return pd.read_csv(PAPER / f"{name}.csv")


def claim(id: str) -> float:
    return float(load("claims").set_index("id").loc[id, "value"])
