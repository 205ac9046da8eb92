"""Values at the edges of what a key may hold work, or are refused before anything is built."""

import re
import warnings

import pytest

from tests.kit.configs import PRETRAINED, composed
from tests.kit.edges import Edges, ShortRuns
from utils import UserError

# How a line says what would work: a bound, a choice, or what the value must be a multiple of.
NAMES_WHAT_WORKS = re.compile(
    r"from -?\d|above 0|\d (steps )?or more|the most that works is \d|give \w+|"
    r"is not a multiple of (action_repeat=)?\d"
)


def walk(cases, attempt):
    """How many cases work and how many are refused; every refusal says what would work."""
    found = {"works": 0, "refused": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about tensors without elements
        for key, value in cases:
            try:
                said = attempt(key, value)
            except Exception as error:
                raise AssertionError(f"{key}={value}") from error
            assert said == "works" or NAMES_WHAT_WORKS.search(said), said
            found["works" if said == "works" else "refused"] += 1
    return found


@pytest.mark.parametrize("learner", ["ddpg", "ppo"])
@pytest.mark.parametrize("agent", PRETRAINED)
def test_every_edge_of_every_key_works_or_is_refused(agent, learner):
    edges = Edges(agent, learner)
    found = walk(edges.cases(), edges.attempt)
    assert found["works"] > 30 and found["refused"] > 20


@pytest.mark.parametrize("learner", ["ddpg", "ppo"])
def test_every_edge_of_the_run_around_works_or_is_refused(learner, tmp_path, capsys):
    runs = ShortRuns(learner)
    assert {"seed", "num_train_frames", "eval_envs", "video_size"} <= set(runs.keys)
    folders = (tmp_path / str(number) for number in range(1000))
    found = walk(runs.cases(), lambda *case: runs.attempt(*case, next(folders)))
    assert found["works"] > 20 and found["refused"] > 10


@pytest.mark.parametrize(
    "learner, skills, more",
    [
        ("ddpg", "selector", ("adapt=reuse",)),
        ("ddpg", "selector_release", ()),
        ("ddpg", "switching", ("adapt=reuse",)),
        ("ddpg", "fixed", ()),
        ("ddpg", "bandit", ("adapt=reuse",)),
        ("ddpg", "by_data", ("adapt=reuse",)),
        ("ppo", "selector", ()),
        ("ppo", "switching", ()),
    ],
)
def test_every_edge_of_a_fine_tuning_works_or_is_refused(learner, skills, more, tmp_path, capsys):
    runs = ShortRuns(learner, ("skills.", "adapt.", "data."), f"skills={skills}", *more)
    folders = (tmp_path / str(number) for number in range(1000))
    found = walk(runs.cases(), lambda *case: runs.attempt(*case, next(folders)))
    assert found["works"] >= 2 and found["refused"] >= 2


@pytest.mark.parametrize(
    "agent, learner, key, value, line",
    [
        ("amped", "ddpg", "learner.batch_size", 1, "a whole number from 2"),
        ("rnd", "ddpg", "learner.batch_size", 1, "a whole number from 2"),
        ("cesd", "ddpg", "learner.hidden_dim", 1, "give 2 or more"),
        ("proto", "ddpg", "agent.objective.queue_size", 2, "give 512 or more"),
        ("amped", "ddpg", "agent.objective.contrastive_updates", 10**15, "from 1 to 10000"),
        ("amped", "ddpg", "replay.capacity", 2, "it needs 5 or more"),
        ("amped", "ppo", "learner.rollouts", 0, "a whole number from 1"),
        ("amped", "ppo", "learner.minibatches", 41, "the most that works is 20"),
        ("amped", "ppo", "learner.minibatches", 10**5, "the most that works is 20"),
        ("amped", "ppo", "learner.rollout_steps", 10**15, "a whole number from 1"),
        ("amped", "ppo", "num_eval_episodes", 10**8, "the most that works is 100000"),
    ],
)
def test_the_line_names_the_smallest_or_largest_value_that_works(agent, learner, key, value, line):
    assert line in Edges(agent, learner).attempt(key, value)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("rollouts", [1, 2, 3])
def test_small_rollouts_of_ppo_work_with_as_many_minibatches_as_the_line_says(rollouts, steps):
    edges = Edges("amped", "ppo")
    edges.config["learner"] |= {"rollouts": rollouts, "rollout_steps": steps}
    said = edges.attempt("learner.minibatches", 10)
    if most := re.search(r"the most that works is (\d+)", said):
        assert edges.attempt("learner.minibatches", int(most[1])) == "works"
    else:  # a single row has no deviation, whatever it is divided into
        assert rollouts * steps == 1 and "give more rollouts or rollout_steps" in said


@pytest.mark.parametrize("agent", PRETRAINED)
def test_a_method_about_skills_is_refused_without_any_and_the_others_have_none(agent):
    without = (
        "pretrain",
        f"agent={agent}",
        "domain=walker",
        "preset=smoke",
        "agent.skill_space=none",
    )
    if composed(*without[:-1])["agent"]["skill_space"] == "none":
        assert composed(*without)["agent"]["skill_space"] == "none"
    else:
        with pytest.raises(UserError, match=r"agent.skill_space='?none.* one_hot"):
            composed(*without)
