"""Aggregates and intervals: rliable's numbers, decided by the scores and the seed alone."""

import numpy as np
import pandas as pd
import pytest
from rliable import library, metrics
from scipy.stats import trim_mean

import envs
from analysis.scores import aggregate as scores
from run.results import expert_score
from utils import UserError, stream_seed

TASKS = list(envs.TASKS)
REPS = 60
RANDOM = pytest.mark.parametrize("seed", range(6))


def random_matrices(seed, runs=(4, 6), tasks=12):
    rng = np.random.default_rng(seed)
    return {
        method: rng.gamma(2, 0.3, (count, tasks))
        for method, count in zip(("amped", "cic"), runs, strict=True)
    }


def tidy(seed=0, methods=("amped", "cic"), tasks=TASKS, seeds=(1, 2, 3), frames=None):
    rng = np.random.default_rng(seed)
    rows = [
        {
            "method": m,
            "domain": envs.TASKS[t],
            "task": t,
            "seed": s,
            "frame": f,
            "score": 900 * rng.random(),
        }
        for m in methods
        for t in tasks
        for s in seeds
        for f in frames or (100,)
    ]
    return pd.DataFrame(rows)


def by_method(table, *keys):
    return table.set_index(["method", *keys]).sort_index()


def calls(matrices, seed):
    """Every function that draws."""
    return {
        "aggregate": scores.aggregate(matrices, seed=seed, reps=REPS),
        "profiles": scores.profiles(matrices, [0.2, 0.5, 0.8], seed=seed, reps=REPS),
        "improvement": scores.probability_of_improvement(
            matrices, [("amped", "cic")], seed=seed, reps=REPS
        ),
    }


# ----------------------------------------------------------------------------------------- matrices


def test_matrices_are_scores_over_the_experts_in_the_order_of_tasks():
    table = tidy()
    tasks = ["walker_run", "jaco_reach_top_left"]
    found, gaps = scores.matrices(table, tasks)
    assert gaps == [] and {m: x.shape for m, x in found.items()} == {"amped": (3, 2), "cic": (3, 2)}
    for column, task in enumerate(tasks):
        for row, seed in enumerate((1, 2, 3)):
            cell = table[(table.method == "cic") & (table.task == task) & (table.seed == seed)]
            assert found["cic"][row, column] == cell["score"].item() / expert_score(task)
    raw, _ = scores.matrices(table, tasks, normalize=False)
    np.testing.assert_allclose(raw["cic"], found["cic"] * [796, 191])


def test_nothing_is_clipped():
    table = tidy(tasks=["walker_run"], seeds=(1, 2)).assign(score=[-796.0, 1592.0] * 2)
    assert scores.matrices(table, ["walker_run"])[0]["amped"].tolist() == [[-1], [2]]


def test_every_gap_is_named_and_costs_its_seed_only():
    table = tidy(tasks=TASKS[:3])
    lost = (
        (table.method == "cic") & (table.seed == 3) & (table.task == TASKS[2])
        | (table.method == "cic") & (table.seed == 1) & table.task.isin(TASKS[:2])
        | (table.method == "amped") & (table.seed == 2)
    )
    found, gaps = scores.matrices(table[~lost], TASKS[:3])
    assert gaps == [
        "amped: no run of seed 2, which other methods have",
        "cic seed 1: no walker_stand, walker_walk",
        "cic seed 3: no walker_run",
        "cic: one run only, so no interval",
    ]
    assert {m: len(x) for m, x in found.items()} == {"amped": 2, "cic": 1}


def test_a_score_that_is_not_finite_is_a_gap():
    table = tidy(tasks=TASKS[:2], seeds=(1, 2, 3))
    table.loc[0, "score"] = np.nan
    found, gaps = scores.matrices(table, TASKS[:2])
    assert gaps == ["amped seed 1: no walker_stand"] and len(found["amped"]) == 2


def test_methods_without_a_complete_seed_are_left_out_by_name():
    table = pd.concat(
        [
            tidy(tasks=TASKS[:2]),
            tidy(methods=("rnd",), tasks=TASKS[:1]),
            tidy(methods=("apt",), tasks=TASKS[5:6]),
        ]
    )
    found, gaps = scores.matrices(table, TASKS[:2])
    assert list(found) == ["amped", "cic"]
    assert gaps == [
        *(f"rnd seed {s}: no walker_walk" for s in (1, 2, 3)),
        "rnd: left out, no seed has every task",
        "apt: left out, no run of these tasks",
    ]


def test_two_scores_for_one_cell_are_an_error_that_names_it():
    table = tidy(tasks=TASKS[:2])
    twice = pd.concat([table, table[(table.task == "walker_walk") & (table.seed == 2)]])
    with pytest.raises(
        UserError, match="more than one score for amped walker_walk seed 2; cic walker_walk seed 2;"
    ):
        scores.matrices(twice, TASKS[:2])


def test_unknown_tasks_and_columns_are_refused():
    with pytest.raises(UserError, match="no expert score of tree_maze_reach_left"):
        scores.matrices(tidy(), ["walker_run", "tree_maze_reach_left"])
    with pytest.raises(UserError, match="no column seed"):
        scores.matrices(tidy().drop(columns="seed"), TASKS)


def test_no_scores_give_empty_tables():
    found, gaps = scores.matrices(tidy().iloc[:0], TASKS)
    assert found == {} and gaps == []
    assert all(
        table.empty
        for name, table in {
            "aggregate": scores.aggregate({}, seed=1),
            "profiles": scores.profiles({}, [0.5], seed=1),
            "frames": scores.task_efficiency(tidy().iloc[:0], TASKS, seed=1)[0],
        }.items()
    )


# ---------------------------------------------------------------------------------------- intervals


@RANDOM
def test_points_are_rliables_and_scipys(seed):
    found = random_matrices(seed)
    table = by_method(scores.aggregate(found, seed=1, reps=REPS), "metric")["value"]
    for method, matrix in found.items():
        assert table[method, "IQM"] == pytest.approx(trim_mean(matrix, 0.25, axis=None), rel=1e-12)
        assert table[method, "Median"] == pytest.approx(np.median(matrix.mean(0)), rel=1e-12)
        assert table[method, "Mean"] == pytest.approx(matrix.mean(), rel=1e-12)
        assert table[method, "Optimality Gap"] == pytest.approx(
            1 - np.minimum(matrix, 1).mean(), rel=1e-12
        )
    value = scores.probability_of_improvement(found, [("amped", "cic")], seed=1, reps=REPS)[
        "value"
    ].item()
    assert value == pytest.approx(
        metrics.probability_of_improvement(found["amped"], found["cic"]), rel=1e-12
    )
    profile = scores.profiles(found, [0.3, 0.9], seed=1, reps=REPS)
    assert profile[profile.method == "cic"]["value"].tolist() == [
        (found["cic"] > tau).mean() for tau in (0.3, 0.9)
    ]


@RANDOM
def test_ties_count_half_in_the_probability_of_improvement(seed):
    x, y = np.random.default_rng(seed).integers(0, 3, (2, 5, 4)).astype(float)
    assert scores.improvement(x, y)[0] == pytest.approx(
        metrics.probability_of_improvement(x, y), rel=1e-12
    )
    assert scores.improvement(x, x)[0] == 0.5


def test_intervals_are_those_of_rliable_called_with_the_same_draws():
    found = random_matrices(0)
    ours = by_method(scores.aggregate(found, seed=3, reps=REPS), "metric")
    taus = np.array([0.3, 0.9])
    profile = scores.profiles(found, taus, seed=3, reps=REPS)
    for method, matrix in found.items():
        matrix = matrix[np.lexsort(matrix.T[::-1])]
        np.random.seed(stream_seed(3, "aggregate", method))
        _, interval = library.get_interval_estimates({"x": matrix}, scores.all_metrics, reps=REPS)
        for (low, high), metric in zip(interval["x"].T, scores.METRICS, strict=True):
            assert (ours.loc[(method, metric), "low"], ours.loc[(method, metric), "high"]) == (
                low,
                high,
            )
        np.random.seed(stream_seed(3, "profile", method))
        _, interval = library.create_performance_profile({"x": matrix}, taus, reps=REPS)
        np.testing.assert_allclose(
            profile[profile.method == method][["low", "high"]].T, interval["x"]
        )


@RANDOM
def test_intervals_bracket_the_point(seed):
    for name, table in calls(random_matrices(seed), seed).items():
        assert (table["low"] <= table["value"]).all() and (table["value"] <= table["high"]).all(), (
            name
        )


@RANDOM
def test_wider_confidence_gives_wider_intervals(seed):
    found = random_matrices(seed)
    wide, narrow = (scores.aggregate(found, seed=1, reps=REPS, confidence=c) for c in (0.99, 0.5))
    assert (wide["low"] < narrow["low"]).all() and (wide["high"] > narrow["high"]).all()


@pytest.mark.parametrize("constant", [0.0, 0.37, 1.0, 2.5])
def test_a_constant_matrix_has_its_constant_and_no_width(constant):
    table = scores.aggregate({"amped": np.full((5, 12), constant)}, seed=1, reps=REPS).set_index(
        "metric"
    )
    for metric in ("Median", "IQM", "Mean"):
        assert table.loc[metric, ["value", "low", "high"]].tolist() == pytest.approx([constant] * 3)
    assert table.loc["Optimality Gap", "value"] == pytest.approx(max(1 - constant, 0))


@RANDOM
def test_neither_the_order_of_runs_nor_of_methods_nor_other_methods_change_a_number(seed):
    found = random_matrices(seed)
    rng = np.random.default_rng(seed)
    shuffled = {method: rng.permutation(found[method]) for method in reversed(found)}
    shuffled["ddpg"] = rng.random((3, 12))
    alone = calls(found, 7)
    for name, table in calls(shuffled, 7).items():
        keys = [key for key in ("method", "metric", "tau", "x", "y") if key in table]
        pd.testing.assert_frame_equal(
            alone[name].sort_values(keys, ignore_index=True),
            table[table[keys[0]] != "ddpg"].sort_values(keys, ignore_index=True),
        )


@RANDOM
def test_a_seed_decides_the_interval_and_another_one_differs(seed):
    found = random_matrices(seed)
    for name, table in calls(found, seed).items():
        pd.testing.assert_frame_equal(table, calls(found, seed)[name])
    assert not scores.aggregate(found, seed=seed, reps=REPS).equals(
        scores.aggregate(found, seed=seed + 1, reps=REPS)
    )


def test_the_callers_generator_is_left_alone_even_after_an_error(monkeypatch):
    np.random.seed(5)
    wanted = np.random.random(4)
    np.random.seed(5)
    np.random.normal()  # leaves a second normal draw in store, which is state too
    before = np.random.get_state()
    calls(random_matrices(0), 1)
    scores.sample_efficiency(tidy(frames=(0, 50)), TASKS, seed=1, reps=REPS)
    monkeypatch.setattr(scores, "all_metrics", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scores.aggregate(random_matrices(0), seed=1)
    after = np.random.get_state()
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))
    np.random.seed(5)
    assert np.array_equal(np.random.random(4), wanted)


def test_one_run_has_points_and_no_intervals():
    found = random_matrices(0, runs=(1, 4))
    for name, table in calls(found, 1).items():
        mine = table[table["x" if name == "improvement" else "method"] == "amped"]
        assert mine["value"].notna().all() and mine[["low", "high"]].isna().all(axis=None), name
    table = scores.aggregate(found, seed=1, reps=REPS)
    assert dict(zip(table["method"], table["runs"], strict=True)) == {"amped": 1, "cic": 4}


def test_a_pair_without_scores_is_refused():
    with pytest.raises(UserError, match="no scores of apt; there are amped, cic"):
        scores.probability_of_improvement(random_matrices(0), [("amped", "apt")], seed=1)


# ------------------------------------------------------------------------------------------- frames


@RANDOM
def test_at_each_frame_the_metrics_are_rliables(seed):
    stack = np.random.default_rng(seed).gamma(2, 0.3, (3 + seed, 5, 4))
    wanted = [
        [metric(stack[..., frame]) for frame in range(4)] for metric in scores.METRICS.values()
    ]
    np.testing.assert_allclose(scores.metrics_over_frames(stack), np.ravel(wanted), rtol=1e-12)


@RANDOM
def test_curves_end_at_the_aggregate_and_do_not_depend_on_order(seed):
    curves = tidy(seed, frames=(0, 50, 100))
    table, gaps = scores.sample_efficiency(curves, TASKS, seed=2, reps=REPS)
    assert (
        gaps == []
        and (table["low"] <= table["value"]).all()
        and (table["value"] <= table["high"]).all()
    )
    final = scores.aggregate(
        scores.matrices(curves[curves.frame == 100], TASKS)[0], seed=2, reps=REPS
    )
    last = table[table.frame == 100].merge(final, on=["method", "metric"])
    np.testing.assert_allclose(last["value_x"], last["value_y"], rtol=1e-12)
    shuffled, _ = scores.sample_efficiency(
        curves.sample(frac=1, random_state=seed), TASKS, seed=2, reps=REPS
    )
    pd.testing.assert_frame_equal(
        by_method(table, "metric", "frame"), by_method(shuffled, "metric", "frame")
    )


def test_frames_that_a_run_lacks_are_named_and_left_out_for_its_method_only():
    curves = tidy(tasks=TASKS[:2], frames=(0, 50, 100))
    lost = (
        (curves.method == "cic")
        & (curves.seed == 2)
        & (curves.task == TASKS[1])
        & (curves.frame == 100)
    )
    table, gaps = scores.sample_efficiency(curves[~lost], TASKS[:2], seed=1, reps=REPS)
    assert gaps == ["cic: not every run was evaluated at frame 100"]
    assert {m: sorted(rows["frame"].unique()) for m, rows in table.groupby("method")} == {
        "amped": [0, 50, 100],
        "cic": [0, 50],
    }
    per_task, gaps = scores.task_efficiency(curves[~lost], TASKS[:2], seed=1, reps=REPS)
    assert gaps == ["walker_walk: cic: not every run was evaluated at frame 100"]
    assert set(per_task["task"]) == set(TASKS[:2])


def test_runs_without_a_common_frame_are_left_out_by_name():
    curves = tidy(methods=("cic",), tasks=TASKS[:1], seeds=(1, 2), frames=(0,))
    curves.loc[curves.seed == 2, "frame"] = 50
    table, gaps = scores.sample_efficiency(curves, TASKS[:1], seed=1, reps=REPS)
    assert table.empty and gaps[-1] == "cic: left out, no frame at which every run was evaluated"
