"""Rewards as expressions: the grammar, the quantities of every domain, the ranking of skills."""

import json
import re

import numpy as np
import pytest

import envs
from analysis import prompt
from envs.expression import Expression
from envs.prompted import QUANTITIES, expression, prompted, quantities
from utils import ROOT, UserError

NAMES = {"speed": "", "height": "", "heat": ""}
VALUES = {"speed": 2.0, "height": 1.5, "heat": 0.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("speed - 0.1 * abs(height - 1)", 1.95),
        ("-speed^2 + 3", -1.0),
        ("2 ** 3 ** 0", 2.0),
        ("1 - 2 - 3", -4.0),
        ("(speed > 1) * (height <= 1.5) + .5", 1.5),
        ("clip(speed, 0, 1) / max(height, 3) * min(3, 9)", 1.0),
        ("sqrt(-1) + exp(0)", 1.0),
        ("sp + heig", 3.5),  # names are completed
        ("1e3", 1000.0),
    ],
)
def test_an_expression_is_what_it_says(text, value):
    assert float(Expression(text, NAMES)(VALUES)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "speed - hight",
            "'hight' at character 9 is not known (did you mean height?); choose from ",
        ),
        ("he", "'he' at character 1 may be height or heat: <he>"),
        ("speed +", "the expression ends too early: speed + <here>"),
        ("speed speed", "'speed' at character 7 is one too many here: speed <speed>"),
        ("abs(speed", "ends too early"),
        ("min(speed)", "'min' at character 1 takes 2 arguments, not 1"),
        ("speed; import os", "';' at character 6 is one too many here"),
        ("__import__('os')", "'__import__' at character 1 is not known"),
        ("speed.real", "'.' at character 6"),
        ("(" * 99 + "1" + ")" * 99, "levels deep"),
        ("1" * 2000, "give at most 1000"),
        ("", "ends too early"),
    ],
)
def test_a_mistake_is_a_line_that_points_at_the_character(text, line):
    with pytest.raises(UserError, match=re.escape(line)) as told:
        Expression(text, NAMES)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("walker_stand", "walker"), ("quadruped_walk", "quadruped"), ("jaco_reach_top_left", "jaco")],
)
def test_a_prompted_environment_pays_the_expression_and_moves_like_its_task(name, kind):
    text = " + ".join(f"{i + 1} * {quantity}" for i, quantity in enumerate(QUANTITIES[kind]))
    native = prompted(name, text, 3)
    plain = envs.make(name, seed=3)
    np.testing.assert_allclose(
        np.concatenate([np.ravel(v) for v in native.reset().observation.values()]),
        plain.reset().observation,
        atol=1e-5,
    )
    spec = native.action_spec()
    time_step = native.step(np.full(spec.shape, 0.1))
    now = quantities(kind, native)
    assert now.keys() == QUANTITIES[kind].keys()
    expected = sum((i + 1) * value for i, value in enumerate(now.values()))
    assert time_step.reward == pytest.approx(expected, abs=1e-6)


def test_quantities_of_a_walker_are_those_of_its_own_rewards():
    env = envs.make("walker_walk", seed=0)
    env.reset()
    for _ in range(3):
        env.step(np.zeros(6))
    physics, now = env.unwrapped.physics, quantities("walker", env.unwrapped)
    assert now["height"] == pytest.approx(physics.torso_height())
    assert now["speed"] == pytest.approx(physics.horizontal_velocity())
    assert now["upright"] == pytest.approx(physics.torso_upright())


def test_a_skill_of_a_maze_is_found_by_where_it_goes_and_fine_tuned_there(run_main, tmp_path):
    """The best skill for "right" is another one than for "left", and the right one ends further right."""
    best = {}
    for name, text in (("right", "x"), ("left", "-x")):
        out = tmp_path / name
        words = ["zoo:tree_maze/diayn", text, "--out", out, "--episodes", "2"]
        if name == "right":
            words += ["--finetune", "2500"]
        else:
            words += ["--no-film"]
        done = run_main(prompt.main, *words)
        assert done.code == 0, done.err
        rows = re.findall(r"^ +(\d+) +(-?[\d.]+) +[\d.]+$", done.out, re.M)
        returns = [float(value) for _, value in rows]
        assert len(rows) == 6 and returns == sorted(returns, reverse=True)
        best[name] = int(rows[0][0])
    assert best["left"] != best["right"]
    assert (tmp_path / "right/skills.mp4").stat().st_size > 1000
    (result,) = (tmp_path / "right").glob("finetune/tree_maze_prompt_*/diayn/**/result.json")
    told = json.loads(result.read_text())
    assert told["skills"] == "fixed" and told["frame"] == 2500 and told["score"] > 0
    again = run_main(prompt.main, "zoo:tree_maze/diayn", "distance(1)")
    assert again.code == 2 and "takes 2 arguments, not 1" in again.err


def test_the_page_lists_every_quantity():
    page = (ROOT / "docs/prompt.md").read_text()
    for kind, names in QUANTITIES.items():
        for name, words in names.items():
            assert f"| {kind} | `{name}` | {words} |" in page
    assert float(expression("distance(0, 0)", "maze")({"x": 3.0, "y": 4.0})) == 5.0
