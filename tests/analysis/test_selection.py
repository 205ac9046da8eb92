"""The table of skill regimes says what the runs' result.json say."""

import csv
import subprocess
import sys

import numpy as np
import pytest

from analysis import selection
from utils import ROOT, UserError, read_json


def test_the_table_is_made_of_the_runs_and_names_what_is_missing(cli):
    args = ("agent=diayn", "skill_dim=2")
    assert cli("pretrain", *args).code == 0
    for skills in ("selector", "switching"):
        assert cli("finetune", *args, "task=walker_run", f"skills={skills}").code == 0
    variant = cli.root / "finetune/walker_run/diayn/smoke,skill_dim=2"
    text, (row,), missing = selection.report([variant])
    assert missing == [
        f"{variant}: {regime}" for regime in ("selector_release", "single skill", "oracle best")
    ]
    score = read_json(variant / "selector/seed_1/result.json")["score"]
    assert row["selector"].startswith(f"{score:.0f} +-") and row["oracle best"] == "-"
    assert "| - | - |" in text.splitlines()[-1]  # no oracle: no agreement

    assert cli("finetune", *args, "task=walker_run", "skills=oracle").code == 0
    text, (row,), missing = selection.report([variant])
    oracle = read_json(variant / "oracle/seed_1/result.json")
    assert missing == [f"{variant}: selector_release"] and row["seeds"] == "1/0/1/1/1"
    assert row["single skill"].startswith(f"{oracle['score']:.0f} +-")
    assert row["oracle best"].startswith(f"{oracle['best']['return_mean']:.0f} +-")
    with np.load(variant / "selector/seed_1/choices.npz") as stored:
        choices = stored["evaluation"]
    agreed = (choices == oracle["best"]["skill"]).sum() / (choices >= 0).sum()
    assert f"| {agreed:.2f} | 0.50 |" in text
    final = [skill["return_mean"] for skill in oracle["per_skill"]]
    equal = np.mean(final) + np.pi**-0.5 * np.std(final, ddof=1)  # two skills
    assert f"| {equal:.0f} | {max(final):.0f} |" in text

    out = cli.root.parent / "tables"
    command = [sys.executable, "-m", "analysis.selection", str(variant), "--out", str(out)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (
        out / "selection.md"
    ).read_text() == text and f"missing: {variant}: selector_release" in shown
    with (out / "selection.csv").open() as file:
        assert list(csv.DictReader(file)) == [row]


def test_the_expected_maximum_of_normal_draws():
    assert selection.expected_maximum(1) == pytest.approx(0, abs=1e-6)
    assert selection.expected_maximum(2) == pytest.approx(np.pi**-0.5)  # closed form
    draws = np.random.default_rng(0).standard_normal((50_000, 8)).max(1)
    assert selection.expected_maximum(8) == pytest.approx(draws.mean(), abs=0.02)


def test_a_directory_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="no finished fine-tuning of selector"):
        selection.report([tmp_path])
