"""Values at the edges of what a key may hold work, or are refused before anything is built."""

import warnings

import pytest

from tests.kit.configs import PRETRAINED, composed
from tests.kit.edges import EDGES, Edges
from utils import UserError

# Keys whose edges meet the mathematics of every method; all others are walked by the slow test.
TELLING = {"learner.batch_size", "learner.hidden_dim", "skill_dim", "replay.nstep", "learner.lr"}
FIRST = {"amped", "cesd", "proto"}  # with the most keys of their own


def walk(agent, learner, wanted):
    found = {"works": 0, "refused": 0}
    edges = Edges(agent, learner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about tensors without elements
        for key, value in edges.cases():
            if wanted(key, value):
                try:
                    said = edges.attempt(key, value)
                except Exception as error:
                    raise AssertionError(f"agent={agent} {key}={value}") from error
                found["works" if said == "works" else "refused"] += 1
    return found


@pytest.mark.parametrize("agent", PRETRAINED)
def test_the_edges_that_tell_most_work_or_are_refused_for_every_agent(agent):
    own = "agent.objective." if agent in FIRST else "nothing"
    found = walk(
        agent,
        "ddpg",
        lambda key, value: value < EDGES[-1] and (key in TELLING or key.startswith(own)),
    )
    assert found["works"] >= 8 and found["refused"] >= 4


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["ddpg", "ppo"])
@pytest.mark.parametrize("agent", PRETRAINED)
def test_every_edge_of_every_key_works_or_is_refused(agent, learner):
    found = walk(agent, learner, lambda key, value: True)
    assert found["works"] > 30 and found["refused"] > 20


@pytest.mark.parametrize(
    "agent, learner, key, value, line",
    [
        ("amped", "ddpg", "learner.batch_size", 1, "a whole number from 2"),
        ("rnd", "ddpg", "learner.batch_size", 1, "a whole number from 2"),
        ("cesd", "ddpg", "learner.hidden_dim", 1, "give 2 or more"),
        ("amped", "ddpg", "agent.objective.contrastive_updates", 10**15, "from 1 to 10000"),
        ("amped", "ddpg", "replay.capacity", 2, "it needs 5 or more"),
        ("amped", "ppo", "learner.rollouts", 0, "a whole number from 1"),
        ("amped", "ppo", "learner.minibatches", 41, "the most that works is 20"),
        ("amped", "ppo", "learner.minibatches", 10**5, "the most that works is 20"),
        ("amped", "ppo", "learner.rollout_steps", 10**15, "a whole number from 1"),
    ],
)
def test_the_line_names_the_smallest_or_largest_value_that_works(agent, learner, key, value, line):
    assert line in Edges(agent, learner).attempt(key, value)


@pytest.mark.parametrize(
    "key, value", [("rollouts", 1), ("rollouts", 2), ("rollout_steps", 1), ("minibatches", 20)]
)
def test_small_rollouts_of_ppo_work_or_name_what_would(key, value):
    said = Edges("amped", "ppo").attempt(f"learner.{key}", value)
    assert said == "works" or "the most that works is" in said


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
