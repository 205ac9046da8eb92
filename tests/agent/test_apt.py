"""APT: ICM shapes the space, and the reward is the distance to the nearest of the batch in it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.kit.objectives import (
    array,
    assert_learns_on_meta,
    assert_rewards_are_sound,
    assert_state_round_trip,
    assert_unknown_reading_is_named,
    assert_updates_lower,
    close,
    depends_on,
    make,
    make_batch,
    moved,
)
from tests.kit.oracles import icm_errors, icm_representation

KEY = "agent.objective."


def batch_of(seed=0, **kwargs):
    return make_batch(seed=seed, kind="none", **kwargs)


def log_mean_distance(x, k):
    """methods.md 0.4, kNN-B, in loops: log(1 + mean of the k smallest distances, the zero to itself
    among them)."""
    rewards = []
    for a in x:
        distances = sorted(math.sqrt(sum((a - b) ** 2)) for b in x)
        rewards.append([math.log(1 + sum(distances[:k]) / k)])
    return np.array(rewards)


@pytest.mark.parametrize(
    "overrides, field, k",
    [((), "obs", 12), ((KEY + "k=3",), "obs", 3), ((KEY + "particle=next_state",), "next_obs", 12)],
    ids=str,
)
def test_the_reward_is_the_log_of_the_mean_distance_to_the_nearest_representations(
    overrides, field, k
):
    objective = make("apt", *overrides)
    for seed in range(3):
        batch = batch_of(seed)
        objective.update(batch)
        x = icm_representation(objective.icm, array(getattr(batch, field)))
        assert x.shape == (24, 512)
        close(objective.rewards(batch)[0]["entropy"], log_mean_distance(x, k))
    assert depends_on(objective, "entropy", kind="none") == {field}


# Three particles at 0, 1 and 3 on a line: with itself, the distances are (0 1 3), (0 1 2), (0 2 3).
@pytest.mark.parametrize(
    "overrides, expected",
    [
        ((), [math.log(7 / 3), math.log(2), math.log(8 / 3)]),  # means 4/3, 1, 5/3
        ((KEY + "k=2",), [math.log(1.5), math.log(1.5), math.log(2)]),  # itself and one other
        (
            (KEY + "knn_scale=mean",),
            [math.log(2), math.log(1.75), math.log(2.25)],
        ),  # over the mean of all nine, 12/9
        (
            (KEY + "knn_clip=1",),
            [math.log(5 / 3), math.log(4 / 3), math.log(2)],
        ),  # (0 0 2), (0 0 1), (0 1 2)
        (
            (KEY + "entropy_form=paper",),
            [math.log(4), math.log(3), math.log(5)],
        ),  # log of the sum, no zero
    ],
    ids=str,
)
def test_the_reward_by_hand(overrides, expected):
    objective = make("apt", *overrides)
    objective.icm.trunk = nn.Identity()
    obs = torch.zeros(3, 4)
    obs[:, 1] = torch.tensor([0.0, 1.0, 3.0])
    close(
        objective.rewards(batch_of(size=3)._replace(obs=obs))[0]["entropy"],
        np.array(expected)[:, None],
    )


def test_identical_states_earn_nothing():
    batch = batch_of()
    batch = batch._replace(obs=batch.obs[:1].expand(24, -1))
    assert (make("apt").rewards(batch)[0]["entropy"] == 0).all()


def test_the_state_that_stands_apart_earns_the_most():
    objective, batch = make("apt"), batch_of()
    obs = 0.1 * batch.obs + torch.tensor([1.0, 0, 0, 0])
    obs[5] = torch.tensor([0.0, -1, 0, 0])
    assert objective.rewards(batch._replace(obs=obs))[0]["entropy"].argmax() == 5


def test_the_losses_are_icms_in_the_space_of_the_trunk():
    objective, batch = make("apt"), batch_of()
    forward, inverse = icm_errors(objective.icm, batch)
    metrics = objective.update(batch)
    close(metrics["icm/forward_loss"], forward.mean())
    close(metrics["icm/inverse_loss"], inverse.mean())


def test_an_update_moves_the_trunk_too_and_rewards_move_nothing():
    objective = make("apt")
    trunk = objective.icm.trunk[0].weight.clone()
    assert moved(objective, lambda: objective.update(batch_of())) == {"icm"}
    assert not torch.equal(objective.icm.trunk[0].weight, trunk)
    assert moved(objective, lambda: objective.rewards(batch_of())) == set()


def test_running_statistics_are_kept_where_the_scale_asks_for_them():
    objective = make("apt", KEY + "knn_scale=mean")
    assert moved(objective, lambda: objective.rewards(batch_of())) == {"entropy"}


@pytest.mark.parametrize(
    "overrides", [(), (KEY + "knn_scale=mean", KEY + "particle=next_state")], ids=str
)
def test_it_keeps_the_promises_of_an_objective(overrides):
    assert_rewards_are_sound(make("apt", *overrides), kind="none")
    assert_state_round_trip("apt", *overrides, kind="none")
    assert_updates_lower(
        make("apt", *overrides), "icm/forward_loss", "icm/inverse_loss", kind="none"
    )
    assert_learns_on_meta("apt", *overrides)


@pytest.mark.parametrize("key", ["particle", "entropy_form", "knn_scale"])
def test_an_unknown_reading_is_an_error_that_names_its_key(key):
    assert_unknown_reading_is_named("apt", key)
