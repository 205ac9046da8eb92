"""What IQM gains the paper's printed tables allow: python -m analysis.paper"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.scores.gains import COLUMNS, beside, paper_gains
from experiment.labels import label
from run.cli.console import Parser


def show() -> None:
    table = paper_gains(np.random.default_rng(0))
    print(beside(table, pd.DataFrame(columns=COLUMNS)))
    print("\nRanges (99 %) that the printed means and deviations alone leave:")
    for row in table.to_dict("records"):
        pair = f"{label(row['method'])} over {label(row['over'])}"
        print(f"  {pair}: {row['range_low']:.1f} to {row['range_high']:.1f}")


if __name__ == "__main__":
    Parser(description=__doc__).parse_args()
    show()
