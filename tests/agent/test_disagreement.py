"""Disagreement: five forward models, and a reward that is the variance between them."""

import math
import statistics

import numpy as np
import pytest
import torch

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
    silence,
)

SQUARED = "agent.objective.model_error=squared"


def batch_of(seed=0, **kwargs):
    return make_batch(seed=seed, kind="none", **kwargs)


def guesses(objective, batch):
    """What each model says of s': [model][row][dimension]."""
    x = array(torch.cat([batch.obs, batch.action], 1))
    first, last = objective.models[0], objective.models[2]
    return [
        (
            np.maximum(x @ array(first.weight[m]) + array(first.bias[m]), 0) @ array(last.weight[m])
            + array(last.bias[m])
        ).tolist()
        for m in range(5)
    ]


@pytest.mark.parametrize("overrides, power", [((), 1), ((SQUARED,), 2)], ids=str)
def test_loss_and_reward_are_error_and_unbiased_variance_of_the_models(overrides, power):
    objective = make("disagreement", *overrides)
    for seed in range(3):
        batch = batch_of(seed)
        loss = statistics.fmean(
            math.dist(guess, truth) ** power
            for model in guesses(objective, batch)
            for guess, truth in zip(model, batch.next_obs.tolist())
        )
        close(objective.update(batch)["disagreement/loss"], loss)
        rows = zip(*guesses(objective, batch))  # for each row the five guesses
        variance = [
            [statistics.fmean(statistics.variance(values) for values in zip(*row))] for row in rows
        ]
        close(objective.rewards(batch)[0]["disagreement"], variance)


def test_the_reward_by_hand():
    objective = make("disagreement")
    silence(objective.models)
    with torch.no_grad():
        objective.models[2].bias[:, 0, 1] = torch.arange(1.0, 6.0)
    # 1 2 3 4 5 in one dimension: (4 + 1 + 0 + 1 + 4) / (5 - 1) = 2.5; 0 in the three others
    close(objective.rewards(batch_of(size=2))[0]["disagreement"], [[0.625], [0.625]])


def test_models_that_are_equal_do_not_disagree():
    objective = make("disagreement")
    assert objective.rewards(batch_of())[0]["disagreement"].min() > 0
    with torch.no_grad():
        for parameter in objective.models.parameters():
            parameter.copy_(parameter[:1].expand_as(parameter))
    assert objective.rewards(batch_of())[0]["disagreement"].max() < 1e-12


def test_models_come_to_agree_on_what_they_have_seen_and_only_there():
    objective, known, unknown = make("disagreement"), batch_of(0), batch_of(1)
    before = objective.rewards(known)[0]["disagreement"].mean()
    for _ in range(500):
        objective.update(known)
    after, elsewhere = (objective.rewards(b)[0]["disagreement"].mean() for b in (known, unknown))
    assert after < before and after < 0.5 * elsewhere


def test_five_models_start_from_pytorchs_own_initialisation():
    objective = make("disagreement")
    for layer in (objective.models[0], objective.models[2]):
        assert len(layer.weight) == len(layer.bias) == 5
        bound = 1 / math.sqrt(layer.weight.shape[1])  # the fan in
        # Uniform, biases too; URLB's other networks: biases 0.
        for weight, bias in zip(layer.weight, layer.bias):
            assert 0.9 * bound < weight.abs().max() <= bound
            assert 0.3 * bound < bias.abs().max() <= bound


def test_noise_that_no_model_can_predict_is_no_reason_to_disagree():
    """Unlike ICM: the reward does not read the successor."""
    assert depends_on(make("disagreement"), "disagreement", kind="none") == {"obs", "action"}


@pytest.mark.parametrize("overrides", [(), (SQUARED,), ("agent.objective.models=2",)], ids=str)
def test_it_keeps_the_promises_of_an_objective(overrides):
    assert_rewards_are_sound(make("disagreement", *overrides), kind="none")
    assert_state_round_trip("disagreement", *overrides, kind="none")
    assert_updates_lower(make("disagreement", *overrides), "disagreement/loss", kind="none")
    assert_learns_on_meta("disagreement", *overrides)


def test_an_unknown_reading_is_an_error_that_names_its_key():
    assert_unknown_reading_is_named("disagreement", "model_error")
