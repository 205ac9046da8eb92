"""What IQM gains the paper's printed tables allow: python -m analysis.paper"""

from __future__ import annotations

import numpy as np
import pandas as pd

from experiment.paper import claim, load
from run.cli.console import Parser
from utils import RESULTS

SEEDS = 10  # of every row that the gains compare


def iqm(scores: pd.DataFrame, rng: np.random.Generator, draws: int = 2000) -> np.ndarray:
    """(draws,) of expert-normalised IQMs over runs that have exactly the printed mean and deviation
    of each task.

    The paper has no single runs. Drawn ones are normal before they are shifted and scaled; an IQM
    is not a mean, so the printed moments leave it a range instead of a value.
    """
    scores = scores[scores["kind"] == "score"]
    expert = (
        scores["task"]
        .map(pd.read_csv(RESULTS / "expert_scores.csv").set_index("task")["score"])
        .to_numpy()
    )
    runs = rng.normal(size=(draws, len(scores), SEEDS))
    runs = (runs - runs.mean(-1, keepdims=True)) / runs.std(-1, keepdims=True)
    runs = (runs * scores["std"].to_numpy()[:, None] + scores["mean"].to_numpy()[:, None]) / expert[
        :, None
    ]
    runs = np.sort(runs.reshape(draws, -1), axis=-1)
    quarter = runs.shape[-1] // 4
    return runs[:, quarter:-quarter].mean(-1)


def gains(rng: np.random.Generator) -> pd.DataFrame:
    """The printed IQM gains in percent, beside the 99% ranges that the printed tables allow."""
    urlb, ablation = load("urlb"), load("ablation")
    ours = {
        "without": iqm(urlb[urlb["method"] == "amped"], rng),
        "with": iqm(ablation[ablation["method"] == "amped"], rng),
    }
    rows = []
    for method in ("becl", "cic", "apt", "cesd", "comsd"):
        theirs = iqm(urlb[urlb["method"] == method], rng)
        row = {"method": method, "printed": claim(f"iqm_gain_{method}")}
        for selector, values in ours.items():
            low, high = np.quantile(100 * (values / theirs - 1), [0.005, 0.995])
            row |= {f"{selector} selector, low": low, f"{selector} selector, high": high}
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    Parser(description=__doc__).parse_args()
    print(gains(np.random.default_rng(0)).round(2).to_string(index=False))
