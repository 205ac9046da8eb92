"""ICM: its two models, their errors, and a reward that goes where the forward model still errs."""

import math

import numpy as np
import pytest
import torch

from agent.parts.curiosity import ICM
from tests.kit.objectives import (
    ENV,
    assert_learns_on_meta,
    assert_rewards_are_sound,
    assert_state_round_trip,
    assert_unknown_reading_is_named,
    assert_updates_lower,
    close,
    depends_on,
    make,
    make_batch,
    silence,
)
from tests.kit.oracles import icm_errors

SQUARED = "agent.objective.model_error=squared"


def batch_of(seed=0, **kwargs):
    return make_batch(seed=seed, kind="none", **kwargs)


@pytest.mark.parametrize("rep_dim", [None, 7])
def test_the_modules_errors_are_norms_of_what_each_model_missed(rep_dim):
    torch.manual_seed(0)
    icm, batch = ICM(ENV.obs_dim, ENV.action_dim, hidden_dim=8, rep_dim=rep_dim), batch_of()
    forward, inverse = icm(batch.obs, batch.action, batch.next_obs)
    expected = icm_errors(icm, batch)
    close(forward, expected[0][:, None])
    close(inverse, expected[1][:, None])


def test_a_trunk_learns_from_both_sides_of_a_transition():
    torch.manual_seed(0)
    icm = ICM(1, 1, hidden_dim=8, rep_dim=3)
    # The forward error is then ||trunk(s')||, and s does not matter.
    silence(icm.inverse_model, icm.forward_model)
    obs, next_obs = (torch.ones(2, 1, requires_grad=True) for _ in range(2))
    icm(obs, torch.zeros(2, 1), next_obs)[0].sum().backward()
    # The target is not detached.
    assert next_obs.grad is not None and icm.trunk[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    "overrides, loss, reward",
    [
        ((), lambda e: e, lambda e: np.log(1 + e)),
        (("agent.objective.scale=3",), lambda e: e, lambda e: np.log(1 + 3 * e)),
        ((SQUARED, "agent.objective.scale=3"), lambda e: e**2 / 2, lambda e: 3 * e**2 / 2),
    ],
    ids=["norm", "scaled", "squared"],
)
def test_losses_and_reward_are_functions_of_the_errors(overrides, loss, reward):
    objective = make("icm", *overrides)
    for seed in range(3):
        batch = batch_of(seed)
        forward, inverse = icm_errors(objective.icm, batch)
        metrics = objective.update(batch)
        close(metrics["icm/forward_loss"], loss(forward).mean())
        close(metrics["icm/inverse_loss"], loss(inverse).mean())
        after, _ = icm_errors(objective.icm, batch)
        close(objective.rewards(batch)[0]["prediction_error"], reward(after)[:, None])


@pytest.mark.parametrize(
    "overrides, losses, reward",
    [
        (
            (),
            (5, 1),
            math.log(6),
        ),  # models that say 0 miss s' = (3, 4, 0, 0) by 5 and a = (0.6, 0.8) by 1
        ((SQUARED,), (12.5, 0.5), 12.5),
    ],
)
def test_losses_and_reward_by_hand(overrides, losses, reward):
    objective = make("icm", *overrides)
    silence(objective.icm)
    action, next_obs = torch.tensor([[0.6, 0.8]] * 2), torch.tensor([[3.0, 4, 0, 0]] * 2)
    batch = batch_of(size=2)._replace(action=action, next_obs=next_obs)
    close(objective.rewards(batch)[0]["prediction_error"], [[reward]] * 2)
    metrics = objective.update(batch)
    close(torch.stack([metrics["icm/forward_loss"], metrics["icm/inverse_loss"]]), losses)


def test_one_step_descends_the_sum_of_both_losses():
    objective, batch = make("icm"), batch_of()
    forward, inverse = objective.icm(batch.obs, batch.action, batch.next_obs)
    (forward.mean() + inverse.mean()).backward()
    expected = [p.grad.clone() for p in objective.icm.parameters()]
    objective.update(batch)
    for p, gradient in zip(objective.icm.parameters(), expected):
        close(p.grad, gradient)


def test_curiosity_fades_where_the_forward_model_has_learned_and_only_there():
    objective, known, unknown = make("icm"), batch_of(0), batch_of(1)
    before = objective.rewards(known)[0]["prediction_error"].mean()
    for _ in range(600):
        objective.update(known)
    after, elsewhere = (
        objective.rewards(b)[0]["prediction_error"].mean() for b in (known, unknown)
    )
    assert after < 0.5 * before and after < 0.5 * elsewhere


def test_the_reward_reads_the_transition():
    assert depends_on(make("icm"), "prediction_error", kind="none") == {"obs", "action", "next_obs"}


@pytest.mark.parametrize("overrides", [(), (SQUARED,)], ids=str)
def test_it_keeps_the_promises_of_an_objective(overrides):
    assert_rewards_are_sound(make("icm", *overrides), kind="none")
    assert_state_round_trip("icm", *overrides, kind="none")
    assert_updates_lower(
        make("icm", *overrides), "icm/forward_loss", "icm/inverse_loss", kind="none"
    )
    assert_learns_on_meta("icm", *overrides)


def test_an_unknown_reading_is_an_error_that_names_its_key():
    assert_unknown_reading_is_named("icm", "model_error")
