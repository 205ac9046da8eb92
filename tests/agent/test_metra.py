"""METRA's constrained objective, its multiplier and its reward, against loops over its
equations."""

import math

import numpy as np
import pytest
import torch

from tests.kit.objectives import (
    array,
    assert_learns_on_meta,
    assert_rewards_are_sound,
    assert_state_round_trip,
    assert_updates_lower,
    close,
    depends_on,
    make,
    make_batch,
    moved,
)
from utils import UserError

KIND = {"metra_discrete": "one_hot", "metra_continuous": "sphere"}
AGENTS = pytest.mark.parametrize("agent", KIND)


def make4(agent, *overrides, **kwargs):
    return make(agent, "skill_dim=4", *overrides, **kwargs)


def displacements(objective, batch):
    return array(objective.phi(batch.next_obs_1)) - array(objective.phi(batch.obs))


def reward_by_loop(delta, z, discrete):
    """delta . z, or delta . (z - mean z) d / (d - 1) for one-hot z."""
    d = len(z)
    mask = [(z[i] - sum(z) / d) * d / (d - 1) if discrete else z[i] for i in range(d)]
    return sum(delta[i] * mask[i] for i in range(d))


@AGENTS
@pytest.mark.parametrize("constraint", ["mean", "sum"])
def test_the_loss_is_minus_reward_minus_lambda_times_the_room_that_is_left(agent, constraint):
    objective, batch = (
        make4(agent, f"agent.objective.constraint={constraint}"),
        make_batch(kind=KIND[agent]),
    )
    terms = []
    for delta, z in zip(displacements(objective, batch), array(batch.skill)):
        square = np.mean(delta**2) if constraint == "mean" else np.sum(delta**2)
        terms.append(
            -(reward_by_loop(delta, z, agent == "metra_discrete") + 30 * min(1 - square, 1e-3))
        )
    close(objective.update(batch)["metra/loss"], np.mean(terms))


@AGENTS
def test_the_reward_is_the_displacement_along_the_skill_with_the_phi_of_after_the_update(agent):
    objective, batch = make4(agent), make_batch(kind=KIND[agent])
    before = displacements(objective, batch)
    objective.update(batch)
    after = displacements(objective, batch)
    assert not np.allclose(before, after)
    expected = [
        [reward_by_loop(d, z, agent == "metra_discrete")] for d, z in zip(after, array(batch.skill))
    ]
    close(objective.rewards(batch)[0]["diversity"], expected)


@pytest.mark.parametrize("constraint, loss", [("mean", 118), ("sum", 268)])
def test_one_transition_by_hand(constraint, loss):
    """phi(s) = s, step (3, 1), first of two skills: the direction is ((1, 0) - 1/2) * 2 = (1, -1),
    the reward 3 - 1.

    mean: 1 - (9 + 1) / 2 = -4, loss -(2 - 30 * 4) = 118. sum: 1 - 10 = -9, loss -(2 - 30 * 9) =
    268.
    """
    objective = make("metra_discrete", "skill_dim=2", f"agent.objective.constraint={constraint}")
    objective.phi = torch.nn.Linear(2, 2, bias=False)
    objective.phi.weight.data = torch.eye(2)
    batch = make_batch(size=1, skills=2, obs_dim=2)
    batch = batch._replace(
        obs=torch.tensor([[5.0, 5.0]]),
        next_obs_1=torch.tensor([[8.0, 6.0]]),
        skill=torch.tensor([[1.0, 0.0]]),
    )
    close(objective.rewards(batch)[0]["diversity"], [[2.0]])
    metrics = objective.update(batch)
    close(metrics["metra/loss"], loss)
    close(metrics["metra/violation"], 1.0)


def test_a_discrete_direction_sums_to_zero_and_is_one_at_its_skill():
    objective = make4("metra_discrete")
    directions = objective.direction(torch.eye(4))
    close(directions.sum(1), np.zeros(4))
    close(directions, np.eye(4) - (1 - np.eye(4)) / 3)
    batch = make_batch()
    # Phi + 7 in every dimension.
    shifted = [p + 7 if p.shape == (4,) else p for p in objective.phi.parameters()]
    expected = objective.rewards(batch)[0]["diversity"]
    for parameter, value in zip(objective.phi.parameters(), shifted):
        parameter.data = value.data
    close(objective.rewards(batch)[0]["diversity"], array(expected), atol=1e-4)


def test_a_continuous_direction_is_the_skill():
    skill = make_batch(kind="sphere").skill
    assert torch.equal(make4("metra_continuous").direction(skill), skill)


@AGENTS
def test_lambda_grows_while_the_constraint_is_violated_and_shrinks_while_it_holds(agent):
    far, near = make4(agent), make4(agent)
    batch = make_batch(kind=KIND[agent])
    jump, stay = (
        batch._replace(next_obs_1=100 * batch.next_obs_1),
        batch._replace(next_obs_1=batch.obs),
    )
    # Adam's first step is lr = 1e-3 against the gradient's sign, on log lambda
    assert far.update(jump)["metra/violation"] > 0.9
    close(far.log_lambda, math.log(30) + 1e-3, rtol=1e-6)
    assert near.update(stay)["metra/violation"] == 0
    close(near.log_lambda, math.log(30) - 1e-3, rtol=1e-6)
    values = [
        (far.update(jump)["metra/lambda"], near.update(stay)["metra/lambda"]) for _ in range(5)
    ]
    grown, shrunk = zip(*values)
    assert list(grown) == sorted(grown) and grown[0] > 30
    assert list(shrunk) == sorted(shrunk, reverse=True) and shrunk[0] < 30


def test_steps_along_the_skill_are_stretched_up_to_the_bound_and_not_beyond():
    """States that move along their skill. In the limit the mean square of phi's step is 1, so with
    4 dimensions its length and the reward are 2 (0.99 and 1.995 after 3000 updates)."""
    objective = make4("metra_continuous", "learner.lr=3e-3")
    steps = []
    for seed in range(300):
        batch = make_batch(kind="sphere", size=64, seed=seed)
        batch = batch._replace(next_obs_1=batch.obs + 0.1 * batch.skill)
        steps.append(objective.update(batch)["metra/step"])
    assert steps[0] < 0.05 and 0.4 < steps[-1] < 1.1
    assert 1.2 < objective.rewards(batch)[0]["diversity"].mean() < 2.1


def test_phi_starts_xavier_uniform_with_zero_biases():
    for layer in make4("metra_discrete").phi[::2]:
        bound = math.sqrt(6 / sum(layer.weight.shape))
        assert 0.7 * bound < layer.weight.abs().max() <= bound
        assert not layer.bias.any()


@AGENTS
def test_it_reads_one_step_pairs_and_skills(agent):
    assert depends_on(make4(agent), "diversity", kind=KIND[agent]) == {"obs", "next_obs_1", "skill"}


@AGENTS
def test_updates_move_phi_and_lambda_and_rewards_move_nothing(agent):
    objective, batch = make4(agent), make_batch(kind=KIND[agent])
    assert moved(objective, lambda: objective.update(batch)) == {"phi", "log_lambda"}
    assert moved(objective, lambda: objective.rewards(batch)) == set()


@AGENTS
def test_what_every_method_owes(agent):
    assert_rewards_are_sound(make4(agent), kind=KIND[agent])
    assert_state_round_trip(agent, "skill_dim=4", kind=KIND[agent])
    assert_updates_lower(make4(agent), "metra/loss", kind=KIND[agent])
    assert_learns_on_meta(agent)


def test_unknown_readings_are_refused():
    with pytest.raises(UserError, match="constraint='max' is not valid; choose from mean, sum"):
        make4("metra_discrete", "agent.objective.constraint=max")
    with pytest.raises(
        UserError, match=r"agent.skill_space='cube' is not valid; choose from one_hot, sphere"
    ):
        make4("metra_continuous", "agent.skill_space=cube")
    assert not make4("metra_continuous", "agent.skill_space=gaussian").discrete
