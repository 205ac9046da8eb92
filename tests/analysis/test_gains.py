"""The headline gains and the conflict ratios: ours by hand, the paper's beside them."""

import numpy as np
import pandas as pd
import pytest

from analysis import table as table_command
from analysis.scores import conflicts, gains
from experiment.paper import claim, compared, load

COLUMNS = ["method", "domain", "seed", "frame", *conflicts.SHARES.values()]


def test_the_gain_over_a_baseline_is_that_of_the_iqms_and_its_interval_holds_it():
    """IQM of 0.1 ... 1.2, each in four equal runs: the mean of the middle half, 0.65; doubled: +100 %."""
    base = np.tile(np.arange(1, 13) / 10, (4, 1))
    noise = 1 + 0.05 * np.random.default_rng(0).normal(size=base.shape)
    found = gains.run_gains({"amped": 2 * base, "cic": base, "apt": base * noise}, seed=0, reps=200)
    rows = found.set_index(["method", "over"])
    assert rows.loc[("amped", "cic"), "value"] == pytest.approx(100)
    assert rows.loc[("amped", "cic"), "low"] == pytest.approx(rows.loc[("amped", "cic"), "high"])
    noisy = rows.loc[("amped", "apt")]
    assert noisy["low"] < noisy["value"] < noisy["high"] and abs(noisy["value"] - 100) < 10
    again = gains.run_gains({"apt": base * noise, "amped": 2 * base}, seed=0, reps=200)
    assert again["low"].tolist() == [noisy["low"]]  # whatever other methods there are


def test_one_run_has_a_gain_without_an_interval_and_no_amped_no_gain():
    one = np.full((1, 12), 0.5)
    (row,) = gains.run_gains({"amped_selector": 1.1 * one, "becl": one}, seed=0).itertuples()
    assert row.value == pytest.approx(10) and np.isnan(row.low)
    ours = gains.run_gains({"amped_selector": 1.1 * one, "becl": one}, seed=0)
    text = gains.beside(gains.paper_gains(np.random.default_rng(0)), ours)
    becl = next(line for line in text.splitlines() if line.startswith("| BeCL"))
    assert becl.split(" | ")[1] == "17.96" and becl.endswith("| - | 10.0 |")
    assert gains.run_gains({"cic": one, "becl": one}, seed=0).empty


def test_amped_with_its_selector_stands_in_the_main_table_with_table_1s_numbers():
    table = compared("urlb").query("method == 'amped_selector'").set_index("task")["mean"]
    printed = load("ablation").query("method == 'amped'").set_index("task")["mean"]
    assert table["walker_flip"] == printed["walker_flip"] == 674
    assert len(compared("urlb")) == len(load("urlb")) + len(printed)
    assert compared("metra").equals(load("metra"))


def test_conflict_is_summed_up_per_sample_and_per_update_beside_the_papers_ratio():
    train = pd.DataFrame(
        [
            ("amped", "walker", 1, 100, 0.5, 1.0),
            ("amped", "walker", 1, 200, 0.7, 1.0),
            ("amped", "walker", 2, 100, np.nan, 0.9),  # the diagnostic is rarer than the log
        ],
        columns=COLUMNS,
    )
    found = conflicts.summary(train).set_index(["domain", "measure"])
    sample, update = found.loc[("walker", "per sample")], found.loc[("walker", "per update")]
    assert sample["mean"] == pytest.approx(0.6) and sample["std"] == pytest.approx(0.02**0.5)
    assert (sample["windows"], sample["seeds"], update["windows"], update["seeds"]) == (2, 1, 3, 2)
    walker, _, jaco = conflicts.beside(conflicts.summary(train)).splitlines()[2:5]
    assert walker == (
        "| walker | AMPED | 0.6000 ± 0.1414 | 0.9667 ± 0.0577 | 0.9997 ± 0.0004 | 3 windows, 2 seeds |"
    )
    assert jaco == "| jaco | AMPED | - | - | 0.7777 ± 0.1256 | no runs |"


def test_the_commands_print_both_without_any_run(run_main, tmp_path):
    shown = run_main(table_command.main, "experiment=fig_conflict", "--out", str(tmp_path))
    assert shown.code == 0 and "0.7777 ± 0.1256" in shown.out
    assert (tmp_path / "fig_conflict_shares.csv").exists()
    words = ("experiment=table_urlb", "domain=walker", "seed=1", "methods=amped,cic")
    shown = run_main(table_command.main, *words, "--out", str(tmp_path))
    assert shown.code == 0 and "AMPED + selector" in shown.out
    for over in gains.BASELINES:
        assert f"{claim(f'iqm_gain_{over}'):.2f}" in shown.out
