"""RND: the reward is a prediction error, and goes where the error still is."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.kit.objectives import (
    assert_learns_on_meta,
    assert_rewards_are_sound,
    assert_state_round_trip,
    assert_unknown_reading_is_named,
    assert_updates_lower,
    close,
    depends_on,
    make,
    make_batch,
)
from tests.kit.oracles import rnd_error, running_variance

NEXT = "agent.objective.rnd_on=next_obs"
SQUARED = "agent.objective.rnd_reward=squared_norm"


def batch_of(seed=0, **kwargs):
    return make_batch(seed=seed, kind="none", **kwargs)


def test_the_loss_is_the_mean_squared_error_and_the_reward_is_it_over_its_running_deviation():
    objective, errors = make("rnd"), []
    for seed in range(3):  # running statistics go on from batch to batch
        batch = batch_of(seed)
        loss = rnd_error(objective, batch.obs).mean()
        close(objective.update(batch)["rnd/loss"], loss)
        errors.append(rnd_error(objective, batch.obs))  # after the step
        novelty = errors[-1] / (math.sqrt(running_variance(errors)) + 1e-8)
        close(objective.rewards(batch)[0]["novelty"], novelty)


def test_the_squared_norm_is_the_error_summed_over_512_outputs():
    objective, batch = make("rnd", SQUARED), batch_of()
    close(objective.rewards(batch)[0]["novelty"], 512 * rnd_error(objective, batch.obs))


@pytest.mark.parametrize(
    "overrides, expected",
    [
        # s = -3, -1, 1, 3 has variance 5; the target says s / sqrt 5, the predictor 0: errors 9/5,
        # 1/5, 1/5, 9/5. Their unbiased variance around 1 is 4 * 0.8^2 / 3.
        ((), np.array([1.8, 0.2, 0.2, 1.8]) / math.sqrt(4 * 0.64 / 3)),
        ((SQUARED,), [1.8, 0.2, 0.2, 1.8]),
    ],
)
def test_novelty_by_hand(overrides, expected):
    objective = make("rnd", *overrides)
    objective.rnd.predictor, objective.rnd.target = (
        nn.Linear(4, 1, bias=False),
        nn.Linear(4, 1, bias=False),
    )
    nn.init.zeros_(objective.rnd.predictor.weight)
    nn.init.ones_(objective.rnd.target.weight)
    obs = torch.zeros(4, 4)
    obs[:, 2] = torch.tensor([-3.0, -1.0, 1.0, 3.0])
    close(
        objective.rewards(batch_of(size=4)._replace(obs=obs))[0]["novelty"],
        np.array(expected)[:, None],
    )


def test_states_seen_again_and_again_lose_their_novelty_beside_fresh_ones():
    objective, familiar = make("rnd"), batch_of(size=12).obs
    for seed in range(1, 200):
        objective.update(
            batch_of(seed)._replace(obs=torch.cat([familiar, batch_of(seed, size=12).obs]))
        )
    mixed = batch_of()._replace(obs=torch.cat([familiar, batch_of(999, size=12).obs]))
    old, new = objective.rewards(mixed)[0]["novelty"].split(12)
    assert old.mean() < 0.8 * new.mean()


def test_only_the_predictor_learns():
    objective = make("rnd")
    target, predictor = (
        net[0].weight.clone() for net in (objective.rnd.target, objective.rnd.predictor)
    )
    objective.update(batch_of())
    assert torch.equal(objective.rnd.target[0].weight, target)
    assert not torch.equal(objective.rnd.predictor[0].weight, predictor)


def test_updates_on_one_batch_lower_the_loss():
    assert_updates_lower(make("rnd"), "rnd/loss", kind="none")


@pytest.mark.parametrize("overrides, field", [((), "obs"), ((NEXT,), "next_obs")])
def test_the_reward_and_the_loss_read_one_state(overrides, field):
    objective, batch = make("rnd", *overrides), batch_of()
    assert depends_on(objective, "novelty", kind="none") == {field}
    error = rnd_error(objective, getattr(batch, field)).mean()
    close(objective.update(batch)["rnd/loss"], error)


@pytest.mark.parametrize("overrides", [(), (NEXT,), (SQUARED,)], ids=str)
def test_rewards_are_sound_and_the_state_travels(overrides):
    assert_rewards_are_sound(make("rnd", *overrides), kind="none")
    assert_state_round_trip("rnd", *overrides, kind="none")


@pytest.mark.parametrize("overrides", [(), (NEXT, SQUARED)], ids=str)
def test_it_learns_on_meta(overrides):
    assert_learns_on_meta("rnd", *overrides)


@pytest.mark.parametrize("key", ["rnd_reward", "rnd_on"])
def test_an_unknown_reading_is_an_error_that_names_its_key(key):
    assert_unknown_reading_is_named("rnd", key)
