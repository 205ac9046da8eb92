"""The paper's numbers as data: complete, re-added, and where they disagree with each other, both
values are named."""

import re

import numpy as np
import pytest

import envs
from analysis.scores import gains
from experiment.paper import PAPER, claim, load, names

BASELINES = ["amped", "cesd", "cic", "becl", "apt", "rnd", "diayn", "ddpg", "comsd"]
RETURNS = {  # table: its methods, and how many of the twelve tasks it has
    "urlb": (BASELINES, 12),
    "ablation": (["amped", "no_rnd", "no_aninfonce", "no_surgery", "no_selector"], 12),
    "scaling": (["amped", "alpha=0", "alpha=100", "beta=0", "beta=1000"], 12),
    "scaling_search": (
        ["amped", None, None, None, None],
        8,
    ),  # the others have other names in each domain
    "metra": (["amped", "metra_discrete", "metra_continuous"], 12),
    "projection": (["amped", "p=0.0", "p=1.0"], 12),
    "skills": (["amped", "skill_dim=8", "skill_dim=32"], 12),
    "selection": (["selector", "random", "single", "oracle"], 4),
    "unique_skills": (["selector"], 4),
}
SUMMED = [name for name in RETURNS if name not in ("selection", "unique_skills")]
MARKED = [name for name in RETURNS if name not in ("metra", "unique_skills")]
KEYS = {
    **{name: ["domain", "task", "method"] for name in RETURNS},
    "hours_pretrain": ["domain", "method"],
    "hours_finetune": ["domain", "method"],
    "hyperparameters_urlb": ["group", "hyperparameter", "domain"],
    "hyperparameters_maze": ["hyperparameter"],
    "maze_environment": ["maze", "parameter"],
    "claims": ["id"],
}
ROWS = {
    "ablation": 75,
    "claims": 159,
    "hours_finetune": 24,
    "hours_pretrain": 27,
    "hyperparameters_maze": 12,
    "hyperparameters_urlb": 37,
    "maze_environment": 7,
    "metra": 45,
    "projection": 45,
    "scaling": 75,
    "scaling_search": 50,
    "selection": 16,
    "skills": 45,
    "unique_skills": 4,
    "urlb": 144,
}
# sums of all means and of all deviations, when every number was compared with the LaTeX source
CHECKED = {
    "urlb": (145314, 8608),
    "ablation": (61678, 3209),
    "scaling": (62596, 2887),
    "scaling_search": (58976, 488),
    "metra": (23810, 2430),
    "projection": (37532, 1716),
    "skills": (34582, 2603),
    "selection": (12129, 1133),
    "unique_skills": (14.67, 4.42),
    "hours_pretrain": (287.64, 14.32),
    "hours_finetune": (8.58, 0.23),
}

# Known disagreements of the paper with itself: (printed, what follows from the rest of the table).
WRONG_SUMS = {
    ("scaling", "quadruped", "beta=1000"): (2998, 2988),
    ("metra", "quadruped", "metra_discrete"): (
        849,
        848,
    ),  # rounding of four addends would explain 1
    ("metra", "jaco", "metra_continuous"): (93, 92),
}
WRONG_TOTALS = {"becl": (5705, 5695), "diayn": (3747, 3739)}
# Only 699 is second, behind 720.
WRONG_UNDERLINES = {("urlb", "quadruped_jump"): {"amped": 699, "becl": 668}}
# of the same ten runs of AMPED: (ablation, metra, skills), (scaling, search, projection, selection)
TWO_DEVIATIONS = {
    "quadruped_jump": (32, 34),
    "quadruped_run": (53, 56),
    "quadruped_stand": (67, 71),
    "quadruped_walk": (59, 62),
    "jaco_reach_bottom_left": (32, 34),
    "jaco_reach_bottom_right": (25, 27),
    "jaco_reach_top_left": (39, 41),
    "jaco_reach_top_right": (46, 49),
}
# without RND, beta = 0
TWO_RND_ABLATIONS = {"walker": (2383, 2717), "quadruped": (2523, 2618), "jaco": (586, 504)}

WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def cells(name, value="mean", **where):
    """(domain, task) -> value, of the rows where these columns have these values."""
    table = load(name)
    for column, wanted in where.items():
        table = table[table[column] == wanted]
    return table.set_index(["domain", "task"])[value]


def sums(name, method):
    return cells(name, kind="sum", method=method).droplevel("task")


# ---------------------------------------------------------------------------------------- the files


def test_every_table_is_named_here_and_in_its_readme():
    assert names() == sorted(KEYS)
    readme = (PAPER / "README.md").read_text()
    assert set(re.findall(r"^\| `(\w+)\.csv` \|", readme, re.M)) == set(names())


@pytest.mark.parametrize("name", KEYS)
def test_keys_are_unique_and_numbers_are_numbers(name):
    table = load(name)
    assert len(table) == ROWS[name] and not table.duplicated(KEYS[name]).any()
    assert table[KEYS[name]].notna().all(axis=None)
    value = "mean" if "mean" in table else "value"
    assert table[value].dtype.kind in "if" and np.isfinite(table[value]).all()
    if "std" in table:
        assert table["std"].dtype.kind in "if" and not (table["std"] < 0).any()
    for mark in {"bold", "underlined"} & set(table):
        assert table[mark].dtype == bool
    assert {"bold", "underlined"} <= set(table) if name in MARKED else "bold" not in table


@pytest.mark.parametrize("name", CHECKED)
def test_numbers_are_those_that_were_compared_with_the_source(name):
    table = load(name)
    assert (table["mean"].sum(), table["std"].sum()) == pytest.approx(CHECKED[name], abs=1e-6)


@pytest.mark.parametrize("name", ["hyperparameters_urlb", "hyperparameters_maze"])
def test_values_are_what_is_printed(name):
    for row in load(name).astype({"printed": str}).itertuples():
        printed = re.sub(r"^10\^", "1 x 10^", row.printed).replace(" x 10^", "e")
        assert float(printed) == row.value, row.hyperparameter


def test_an_unknown_table_is_refused_with_those_that_exist():
    with pytest.raises(
        FileNotFoundError, match="no table 'table_1' of the paper; choose from ablation, claims, "
    ):
        load("table_1")


@pytest.mark.parametrize("name", RETURNS)
def test_every_method_has_every_task_and_only_scores_have_deviations(name):
    methods, tasks = RETURNS[name]
    table = load(name)
    scores = table[table["kind"] == "score"]
    assert len(scores) == len(methods) * tasks and scores["task"].nunique() == tasks
    for task, rows in scores.groupby("task"):
        assert set(rows["domain"]) == {envs.TASKS[task]}
        assert all(
            method in (None, found) for method, found in zip(methods, rows["method"], strict=True)
        )
    if name == "scaling_search":
        assert (
            scores["std"].notna() == (scores["method"] == "amped")
        ).all()  # the others are single runs
    else:
        assert scores["std"].notna().all()
    rest = table[table["kind"] != "score"]
    assert rest["std"].isna().all() and set(rest["kind"]) == {"urlb": {"sum", "total"}}.get(
        name, {"sum"} if name in SUMMED else set()
    )


# --------------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("name", SUMMED)
def test_printed_sums_are_those_of_their_tasks_but_for_three(name):
    table = load(name)
    wrong = {}
    for (domain, method), rows in table[table["kind"] != "total"].groupby(["domain", "method"]):
        added, printed = (rows.loc[rows["kind"] == kind, "mean"].sum() for kind in ("score", "sum"))
        if added != printed:
            wrong[name, domain, method] = (printed, added)
    assert wrong == {key: values for key, values in WRONG_SUMS.items() if key[0] == name}


def test_printed_totals_are_those_of_their_sums_but_for_two():
    table = load("urlb").groupby(["method", "kind"])["mean"].sum().unstack()
    assert set(table.index) == set(BASELINES) and (table["score"] == table["sum"]).all()
    wrong = table[table["total"] != table["sum"]]
    assert {method: (row["total"], row["sum"]) for method, row in wrong.iterrows()} == WRONG_TOTALS


@pytest.mark.parametrize("name", MARKED)
def test_bold_is_the_best_and_underlined_the_second_best_but_for_one(name):
    unexpected = {}
    for (_, task), rows in load(name).groupby(["domain", "task"]):
        best, second = sorted(set(rows["mean"]), reverse=True)[:2]
        assert (rows["bold"] == (rows["mean"] == best)).all(), (name, task)
        if (rows["underlined"] != (rows["mean"] == second)).any():
            unexpected[name, task] = dict(
                rows[rows["underlined"]][["method", "mean"]].to_numpy().tolist()
            )
    assert unexpected == {key: value for key, value in WRONG_UNDERLINES.items() if key[0] == name}


def test_the_same_runs_of_amped_have_one_mean_and_on_eight_tasks_two_deviations():
    first, second = (
        ("ablation", "metra", "skills"),
        ("scaling", "scaling_search", "projection", "selection"),
    )
    reference = {value: cells("ablation", value, method="amped") for value in ("mean", "std")}
    for index, tables in enumerate((first, second)):
        for name in tables:
            method = "selector" if name == "selection" else "amped"
            mean, std = (
                cells(name, value, kind="score", method=method) for value in ("mean", "std")
            )
            assert (mean == reference["mean"][mean.index]).all(), name
            for (domain, task), value in std.items():
                expected = (
                    TWO_DEVIATIONS[task][index]
                    if task in TWO_DEVIATIONS
                    else reference["std"][domain, task]
                )
                assert value == expected, (name, task)


def test_the_two_deviations_are_those_of_ten_seeds_divided_by_ten_and_by_nine():
    low = max((b - 0.5) / (a + 0.5) for a, b in TWO_DEVIATIONS.values())
    high = min((b + 0.5) / (a - 0.5) for a, b in TWO_DEVIATIONS.values())
    assert [n for n in range(2, 100) if low <= (n / (n - 1)) ** 0.5 <= high] == [9, 10, 11, 12]


def test_the_main_table_is_amped_without_its_selector():
    for value in ("mean", "std"):
        main = cells("urlb", value, method="amped").drop(("all", "sum"))
        assert main.equals(cells("ablation", value, method="no_selector"))
        # "three seeds" there, yet the numbers of ten
        random = cells("selection", value, method="random")
        assert (random == main[random.index]).all()


def test_without_rnd_and_beta_zero_are_printed_with_different_sums():
    without, zero = sums("ablation", "no_rnd"), sums("scaling", "beta=0")
    assert {
        domain: (without[domain], zero[domain]) for domain in without.index
    } == TWO_RND_ABLATIONS


# ------------------------------------------------------------------------------- claims of the text


def numbers(quote):
    text = re.sub(r"(\d),(\d{3})\b", r"\1\2", quote)
    found = {
        float(n) * {"": 1, "K": 1e3, "k": 1e3, "M": 1e6}[suffix]
        for n, suffix in re.findall(r"(?<![\d.^])(\d+(?:\.\d+)?)([KkM]?)(?![a-z]*\^)", text)
    }
    found |= {10.0 ** int(power) for power in re.findall(r"\b10\^(-\d+)", text)}
    found |= {float(power) for power in re.findall(r"R\^(\d+)", text)}
    return found | {
        float(WORDS[word]) for word in re.findall(r"[a-z]+", text.lower()) if word in WORDS
    }


def test_every_claim_stands_in_its_quote_of_at_most_twelve_words():
    for row in load("claims").itertuples():
        assert len(row.quote.split()) <= 12, row.id
        assert any(np.isclose(row.value, n, rtol=1e-12) for n in numbers(row.quote)), row.id
        assert np.isnan(row.std) or row.std in numbers(row.quote), row.id


def test_the_percentages_of_the_component_ablation_follow_from_the_table():
    amped = sums("ablation", "amped")
    for part in ("rnd", "aninfonce", "surgery", "selector"):
        change = 100 * (sums("ablation", f"no_{part}") / amped - 1)
        for domain, percent in change.items():
            assert round(abs(percent), 1) == claim(f"ablation_{part}_{domain}")
            assert (percent > 0) == ((part, domain) in {("rnd", "jaco"), ("selector", "walker")})


def test_sums_in_the_text_follow_from_the_tables():
    total = load("urlb").query("kind == 'total'").set_index("method")["mean"]
    assert [total[m] for m in ("amped", "apt", "cic")] == [
        claim(f"total_{m}") for m in ("amped", "apt", "cic")
    ]
    assert total.sort_values(ascending=False).index[:3].tolist() == ["amped", "apt", "cic"]
    for method in ("apt", "cic"):
        assert total["amped"] - total[method] == claim(f"total_{method}_behind")
    search = load("scaling_search").query("kind == 'sum'")
    for domain, rows in search.groupby("domain"):
        assert rows["mean"].mean() == pytest.approx(claim(f"search_{domain}_mean"))
    assert search.query("alpha == 0.01 and beta == 8")["mean"].item() == claim("search_walker_best")
    for domain in ("walker", "quadruped"):
        assert sums("ablation", "amped")[domain] == claim(f"selection_{domain}_with")
        assert sums("ablation", "no_selector")[domain] == claim(f"selection_{domain}_without")


def test_hours_in_the_text_do_not_follow_from_the_tables():
    def above(name, method):
        hours = load(name).pivot(index="domain", columns="method", values="mean")
        return (hours["amped"] - hours[method]).round(2).to_dict()

    # text: 3 to 6
    assert above("hours_pretrain", "cic") == {"walker": 6.13, "quadruped": 6.02, "jaco": 6.11}
    assert (claim("pretrain_overhead_low"), claim("pretrain_overhead_high")) == (3, 6)
    # text: 0.06 to 0.11
    assert above("hours_finetune", "cic") == {"walker": 0.09, "quadruped": 0.06, "jaco": 0.05}
    assert above("hours_finetune", "becl") == {"walker": 0.11, "quadruped": 0.06, "jaco": 0.03}
    assert (claim("finetune_overhead_low"), claim("finetune_overhead_high")) == (0.06, 0.11)
    # text: "a modest increase in runtime relative to competitive methods like CeSD and BeCL"
    assert above("hours_pretrain", "cesd") == {"walker": -8.81, "quadruped": -9.39, "jaco": -9.04}
    assert above("hours_pretrain", "becl") == {"walker": -4.66, "quadruped": 0.2, "jaco": -1.16}


def test_cesd_is_ahead_of_amped_on_two_tasks_where_the_text_says_one():
    amped = cells("urlb", kind="score", method="amped")
    ahead = {
        task
        for rival in ("cesd", "comsd")
        for _, task in amped.index[cells("urlb", kind="score", method=rival) > amped]
    }
    assert (
        ahead == {"jaco_reach_top_left", "quadruped_stand"} and claim("cesd_comsd_exceptions") == 1
    )


def test_higher_returns_of_appendix_g_are_the_iqm_gains_and_not_those_of_the_totals():
    total = load("urlb").query("kind == 'total'").set_index("method")["mean"]
    for method, percent in (("cesd", 14.6), ("comsd", 25.8)):
        assert claim(f"returns_gain_{method}") == claim(f"iqm_gain_{method}")
        assert round(100 * (total["amped"] / total[method] - 1), 1) == percent


def test_the_iqm_gains_fit_amped_with_its_selector_and_never_without():
    for row in gains.paper_gains(np.random.default_rng(0)).itertuples():
        printed = claim(f"iqm_gain_{row.over}")
        assert row.low < row.range_low < row.value < row.range_high < row.high
        if row.method == "amped":
            assert row.range_high < printed, row.over
        else:
            assert (row.range_low <= printed <= row.range_high) == (row.over != "cesd"), row.over


def test_tables_and_text_name_the_same_settings():
    table = load("hyperparameters_urlb")
    values = table.set_index(["group", "hyperparameter", "domain"])["value"]
    default = (
        load("scaling_search")
        .query("method == 'amped'")
        .groupby("domain")[["alpha", "beta"]]
        .first()
    )
    for domain, row in default.iterrows():
        for weight in ("alpha", "beta"):
            assert values["intrinsic reward", weight, domain] == row[weight]
    for name, id in (
        ("epsilon start", "epsilon_start"),
        ("epsilon end", "epsilon_end"),
        ("epsilon step", "epsilon_decay"),
    ):
        assert values["skill selector", name, "all"] == claim(id)
    assert values["ddpg", "number of pre-training frames", "all"] == claim("pretrain_steps")
    assert values["ddpg", "number of fine-tuning frames", "all"] == claim("finetune_steps")
    assert set(table.query("hyperparameter == 'skill dimension'")["value"]) == {claim("skill_dim")}
    outside = load("scaling_search").query(f"beta > {claim('tuning_beta_high')}")
    assert set(outside["beta"]) == {12}  # searched, yet outside of the range that the text names


def test_the_readme_lists_both_values_of_every_disagreement():
    text = (PAPER / "README.md").read_text().split("## Where the paper disagrees with itself")[1]
    pairs = [
        *WRONG_SUMS.values(),
        *WRONG_TOTALS.values(),
        *TWO_DEVIATIONS.values(),
        *TWO_RND_ABLATIONS.values(),
        *(tuple(marks.values()) for marks in WRONG_UNDERLINES.values()),
    ]
    for pair in pairs:
        assert any(
            all(re.search(rf"\b{int(n)}\b", item) for n in pair) for item in text.split("\n- ")
        ), pair
