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


def compared(name: str) -> pd.DataFrame:
    """One table with what ours is compared with. Table 13 has AMPED without its selector alone; the
    same ten runs with it are Table 1's."""
    table = load(name)
    if name != "urlb":
        return table
    selector = load("ablation").query("method == 'amped'").assign(method="amped_selector")
    first = table["method"] == "amped"
    return pd.concat([table[first], selector, table[~first]], ignore_index=True)


def claim(id: str) -> float:
    return float(load("claims").set_index("id").loc[id, "value"])
