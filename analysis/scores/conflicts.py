"""How often the two streams' gradients oppose each other, as numbers and as a figure beside the paper's
(Sec. 3.3)."""

from __future__ import annotations

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from analysis.palette import colours
from analysis.scores.figures import DOMAINS, FONTS, canvas, frames, method_legend
from analysis.text import markdown_records
from experiment.labels import label
from experiment.paper import claim, load
from utils import plural

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


# ------------------------------------------------------------------------------------------- figure


def draw(train: pd.DataFrame | None) -> Figure:
    """Share of conflicts, inner product ("gradient similarity") and cosine over pre-training,
    beside the paper's ratios (Sec. 3.3).

    `train` is runs.read_train with the columns domain, method and seed beside
    surgery/sample_conflict (the paper's ratio, over samples), surgery/conflict (over updates),
    surgery/dot and surgery/cosine. Thin lines are seeds, thick ones means.
    """
    empty = pd.DataFrame(columns=["domain", "method", "seed", "frame"])
    train = empty if train is None else train
    methods = list(train["method"].unique())
    paint = colours(methods)
    with matplotlib.rc_context(FONTS):
        figure, axes = canvas(3, len(DOMAINS), width=3, height=1.9, sharex="col", sharey="row")
        for domain, (ratio, dot, cosine) in zip(DOMAINS, axes.T, strict=True):
            runs = train[train["domain"] == domain]
            printed = claim(f"conflict_{domain}")
            ratio.axhline(printed, color="black", linestyle="--", linewidth=1)
            ratio.set(title=f"{domain} (paper: {printed:.4f})", ylim=(-0.03, 1.05))
            for axis in (dot, cosine):
                axis.axhline(0, color="0.6", linewidth=0.8)
            dot.set_yscale("symlog")
            cosine.set_ylim(-1.05, 1.05)
            for method, some in runs.groupby("method", sort=False):
                draw_seeds(ratio, some, "surgery/sample_conflict", paint[method], "-")
                draw_seeds(ratio, some, "surgery/conflict", paint[method], ":")
                draw_seeds(dot, some, "surgery/dot", paint[method], "-")
                draw_seeds(cosine, some, "surgery/cosine", paint[method], "-")
            frames(cosine)
            cosine.set_xlabel("frames of pre-training")
            if runs.empty:
                cosine.set(xticks=[], xlabel="no runs yet")
        axes[0][0].set_ylabel("share in conflict")
        axes[1][0].set_ylabel("inner product")
        axes[2][0].set_ylabel("cosine of gradients")
        method_legend(
            figure, methods, {"of samples": "-", "of updates": ":", "paper (of samples)": "--"}
        )
    return figure


def draw_seeds(axis, runs: pd.DataFrame, column: str, colour: str, style: str) -> None:
    if column not in runs:
        return
    runs = runs.dropna(subset=[column])
    for _, run in runs.groupby("seed"):
        axis.plot(
            run["frame"], run[column], color=colour, linestyle=style, linewidth=0.6, alpha=0.5
        )
    mean = runs.groupby("frame")[column].mean()
    axis.plot(mean.index, mean, color=colour, linestyle=style, linewidth=1.8)
