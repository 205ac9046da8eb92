"""How often the two streams' gradients oppose each other, as numbers beside the paper's (Sec. 3.3)."""

from __future__ import annotations

import pandas as pd

from analysis.text import markdown_records
from experiment.labels import label
from experiment.paper import load
from utils import plural

DOMAINS = ("walker", "quadruped", "jaco")
# The paper's ratio is the share of minibatch samples; Algorithm 1 tests one product per update.
SHARES = {"per sample": "surgery/sample_conflict", "per update": "surgery/conflict"}
NOTE = (
    "Mean ± sample deviation over the logged windows of all seeds. The paper's ratio is per sample; "
    "what its ± is over it does not say."
)


def summary(train: pd.DataFrame) -> pd.DataFrame:
    """method, domain, measure, mean, std, windows, seeds; a row per domain of the paper even where
    nothing was run. `train` is Gathered.train."""
    rows = []
    for method in dict.fromkeys([*train["method"]]) or ["amped"]:
        for domain in dict.fromkeys([*DOMAINS, *train["domain"]]):
            here = train[(train["method"] == method) & (train["domain"] == domain)]
            for measure, column in SHARES.items():
                found = here.dropna(subset=[column])
                values = found[column].astype(float)
                counts = len(values), found["seed"].nunique()
                rows.append((method, domain, measure, values.mean(), values.std(ddof=1), *counts))
    return pd.DataFrame(
        rows, columns=["method", "domain", "measure", "mean", "std", "windows", "seeds"]
    )


def beside(table: pd.DataFrame) -> str:
    """The summary as Markdown, the paper's ratio in its own column."""
    claims: dict[str, dict[str, float]] = load("claims").set_index("id").to_dict("index")
    rows = []
    for (method, domain), some in table.groupby(["method", "domain"], sort=False):
        row = {"domain": str(domain), "method": label(str(method))}
        for each in some.to_dict("records"):
            row[str(each["measure"])] = spell(float(each["mean"]), float(each["std"]))
        key = f"conflict_{domain}"
        printed = claims.get(key)
        theirs = "-" if printed is None else spell(printed["value"], printed["std"])
        row["paper, per sample"] = theirs
        windows, seeds = some["windows"].max(), some["seeds"].max()
        row["of"] = f"{plural(windows, 'window')}, {plural(seeds, 'seed')}" if seeds else "no runs"
        rows.append(row)
    return "\n".join([markdown_records(rows), "", NOTE])


def spell(mean: float, std: float) -> str:
    if pd.isna(mean):
        return "-"
    return f"{mean:.4f}" + ("" if pd.isna(std) else f" ± {std:.4f}")
