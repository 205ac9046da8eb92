"""How far and how differently skills move: numbers of made-up episodes, and of a real snapshot."""

import csv

import numpy as np
import pytest

from analysis import spread


def episodes(centres, *, deviation=0.1, each=2, steps=60):
    """Noise around a centre for each skill, two episodes of each."""
    rng = np.random.default_rng(0)
    paths = [
        centre + deviation * rng.normal(size=(steps, len(centre)))
        for centre in np.asarray(centres, float)
        for _ in range(each)
    ]
    return paths, np.repeat(np.arange(len(centres)), each)


def test_skills_apart_are_told_apart_and_skills_alike_are_not():
    apart = spread.spread(*episodes([[0, 0], [5, 0], [0, 5]]), seed=1)
    alike = spread.spread(*episodes([[0, 0], [0, 0], [0, 0]]), seed=1)
    assert apart["skill_variance"] > 0.99 and alike["skill_variance"] < 0.05
    assert apart["separability"] == 1 and alike["separability"] == pytest.approx(1 / 3, abs=0.15)


def test_states_further_apart_have_more_entropy_in_the_random_features():
    near = spread.spread(*episodes([[0, 0], [1, 1]], deviation=0.1), seed=1)
    far = spread.spread(*episodes([[0, 0], [1, 1]], deviation=1.0), seed=1)
    assert far["random_entropy"] > near["random_entropy"] + 0.05


def test_the_random_network_is_the_same_for_every_snapshot_and_rectifies():
    states = np.random.default_rng(3).normal(size=(7, 4))
    features = spread.random_features(states)
    assert features.shape == (7, 16)
    np.testing.assert_array_equal(features, spread.random_features(states))
    np.testing.assert_allclose(spread.random_features(2 * states), 2 * features)  # no bias
    assert not np.allclose(spread.random_features(-states), -features)


def test_a_row_has_the_returns_of_every_skill_and_the_command_of_its_run(cli, run_main, tmp_path):
    assert cli("pretrain", "agent=amped_plus", "domain=jaco", "skill_dim=3").code == 0
    (run,) = (cli.root / "pretrain/jaco/amped_plus").glob("*/seed_1")
    out = tmp_path / "rows.csv"
    assert run_main(spread.main, str(run), "--out", str(out)).code == 0
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert tuple(row) == spread.COLUMNS and row["skills"] == "3"
    assert len(row["returns"].split()) == 3 and float(row["random_entropy"]) > 0
    assert 0 <= float(row["contrast_accuracy"]) <= 1
    assert row["command"].startswith("python pretrain.py agent=amped_plus domain=jaco preset=smoke")
