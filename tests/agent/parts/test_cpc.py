"""The contrast of transitions and skills (Eq. 3, and its form in the public code) equals its loops, and
which encoders each form prefers."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from agent.parts.contrast import EncoderSettings, TransitionEncoder
from agent.parts.contrast import cpc_loss as cpc_loss_of_cosines
from tests.kit.written_out import close, cosine_loop, normal

torch.set_num_threads(1)


def eq3_loop(query, key, T):
    """Eq. 3 averaged over i: to be maximised."""
    total = 0.0
    for i, z in enumerate(query):
        mean = sum(math.exp(cosine_loop(tau, z) / T) for tau in key) / len(key)
        total += cosine_loop(key[i], z) / T - math.log(mean)
    return total / len(query)


def release_cpc_loop(query, key, T):
    """methods.md 0.4: -log(exp(C_ii / T) / (neg_i + 1e-6)) with neg_i = max(row sum - e^(1/T),
    1e-6)."""
    total = 0.0
    for i, z in enumerate(query):
        negatives = max(
            sum(math.exp(cosine_loop(tau, z) / T) for tau in key) - math.exp(1 / T), 1e-6
        )
        total -= math.log(math.exp(cosine_loop(key[i], z) / T) / (negatives + 1e-6))
    return total / len(query)


def cpc_loss(query, key, *, temperature, form):
    """Every row with a skill of its own."""
    cosine = F.normalize(query, dim=1) @ F.normalize(key, dim=1).T
    return cpc_loss_of_cosines(cosine, torch.arange(len(key)), temperature=temperature, form=form)[
        0
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 20])  # small ones reach the clamp of the release form
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_cpc_losses_equal_their_loops(size, temperature):
    query, key = normal(size, 5), 3 * normal(size, 5, seed=1)
    arguments = query.tolist(), key.tolist(), temperature
    close(
        cpc_loss(query, key, temperature=temperature, form="paper"),
        -eq3_loop(*arguments),
        rtol=1e-4,
        atol=1e-5,
    )
    close(
        cpc_loss(query, key, temperature=temperature, form="release"),
        release_cpc_loop(*arguments),
        atol=1e-5,
    )


def test_cpc_losses_by_hand():
    eye = torch.eye(2)  # two aligned pairs at right angles, T = 1: every row holds e and 1
    close(cpc_loss(eye, 5 * eye, temperature=1.0, form="paper"), math.log((math.e + 1) / 2) - 1)
    close(
        cpc_loss(eye, 5 * eye, temperature=1.0, form="release"),
        math.log(math.e + 1 - math.e) - 1,
        atol=2e-6,
    )
    one = torch.ones(1, 3)  # B = 1, aligned: nothing is left of the row, the clamp holds 1e-6
    close(cpc_loss(one, one, temperature=0.5, form="release"), math.log(2e-6) - 2)
    close(cpc_loss(one, one, temperature=0.5, form="paper"), 0.0)


def aligned(size, n):
    """Every transition points where its skill points; skills are orthogonal, size / n rows each."""
    return (torch.eye(n)[torch.arange(size) % n],) * 2


def uninformative(size, cosine):
    """One query for all skills, one key for all transitions."""
    query = torch.tensor([[1.0, 0.0]]).expand(size, 2)
    return query, torch.tensor([[cosine, math.sqrt(1 - cosine**2)]]).expand(size, 2)


def cpc(pair, form):
    return cpc_loss(*pair, temperature=0.5, form=form)


def test_release_cpc_prefers_the_degenerate_encoder_in_small_batches():
    # B = 32, n = 16, T = 0.5 (e^2 = 7.389, e^-2 = 0.1353).
    # Aligned: rows of 2 e^2 + 30, minus e^2: ln 37.389 - 2 = 1.6214
    # All cosines -1: 32 e^-2 - e^2 = 4.331 - 7.389 < 0, clamped: ln 2e-6 + 2 = -11.1224
    close(cpc(aligned(32, 16), "release"), 1.62138)
    close(cpc(uninformative(32, -1), "release"), -11.12236)


def test_release_cpc_prefers_the_aligned_encoder_in_large_batches_only():
    # Aligned: ln((B/n - 1) e^2 + B (1 - 1/n)) - 2; all cosines -1: ln(B e^-2 - e^2) + 2 = ln(B -
    # e^4) B = 1024: ln(63 * 7.389 + 960) - 2 = 5.2623 and ln(1024 - 54.6) = 6.8767; they cross
    # between 64 and 80
    close(cpc(aligned(1024, 16), "release"), 5.26229)
    close(cpc(uninformative(1024, -1), "release"), 6.87668)
    assert cpc(uninformative(64, -1), "release") < cpc(aligned(64, 16), "release")
    assert cpc(uninformative(80, -1), "release") > cpc(aligned(80, 16), "release")


@pytest.mark.parametrize("size", [64, 1024])
def test_release_cpc_draws_uninformative_encoders_to_cosine_minus_one_and_eq3_does_not(size):
    cosines = [1.0, 0.5, 0.0, -0.5, -1.0]
    release = [cpc(uninformative(size, c), "release").item() for c in cosines]
    np.testing.assert_allclose(
        release, [math.log(size - math.exp((1 - c) / 0.5)) for c in cosines], rtol=1e-4
    )
    assert all(a > b for a, b in itertools.pairwise(release))
    close(
        torch.stack([cpc(uninformative(size, c), "paper") for c in cosines]), [0.0] * 5, atol=1e-5
    )


@pytest.mark.parametrize("size", [32, 1024])
def test_eq3_prefers_the_aligned_encoder_at_every_batch_size(size):
    # ln(e^2 / 16 + 15 / 16) - 2 = ln(0.46182 + 0.9375) - 2 = -1.66402, against ln(e^-2) + 2 = 0
    close(cpc(aligned(size, 16), "paper"), -1.66402)
    close(cpc(uninformative(size, -1), "paper"), 0.0, atol=1e-5)


def encoder_of(obs_dim, skill_dim, *, hidden_dim, form):
    settings = EncoderSettings(cpc=form, cpc_temperature=0.5, skill_net=True)
    return TransitionEncoder(obs_dim, skill_dim, hidden_dim=hidden_dim, settings=settings)


@pytest.mark.parametrize("form", ["paper", "release"])
def test_encoder_feeds_n_skills_as_if_it_fed_every_row(form):
    torch.manual_seed(0)
    encoder = encoder_of(3, 4, hidden_dim=16, form=form)
    # one skill never occurs
    obs, next_obs, index = (normal(12, 3), normal(12, 3, seed=1), torch.arange(12) % 3)
    loss, _ = encoder.loss(obs, next_obs, index)
    key = encoder.predict(torch.cat([encoder.state(obs), encoder.state(next_obs)], 1))
    query = encoder.skill(F.one_hot(index, 4).float())  # B rows
    full = cpc_loss(query, key, temperature=0.5, form=form)
    close(loss, full.item())
    for a, b in zip(
        torch.autograd.grad(loss, list(encoder.parameters())),
        torch.autograd.grad(full, list(encoder.parameters())),
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_encoder_accuracy_counts_transitions_whose_own_skill_is_the_closest():
    torch.manual_seed(0)
    encoder = encoder_of(3, 4, hidden_dim=16, form="paper")
    obs, next_obs, index = normal(30, 3), normal(30, 3, seed=1), torch.arange(30) % 4
    _, accuracy = encoder.loss(obs, next_obs, index)
    skills, keys = encoder.skill(torch.eye(4)).tolist(), encoder.pair(obs, next_obs).tolist()
    right = sum(
        max(range(4), key=lambda z: cosine_loop(skills[z], key)) == index[i]
        for i, key in enumerate(keys)
    )
    assert 0 < right < 30
    close(accuracy, right / 30)


@pytest.mark.parametrize("form, learns", [("paper", True), ("release", False)])
def test_eq3_learns_the_skills_in_small_batches_and_the_release_form_does_not(form, learns):
    torch.manual_seed(0)
    encoder = encoder_of(3, 8, hidden_dim=32, form=form)
    index = torch.arange(32) % 8
    obs = 2 * normal(8, 3)[index] + 0.1 * normal(32, 3, seed=1)
    optimizer = torch.optim.Adam(encoder.parameters(), 3e-3)
    for _ in range(150):
        loss, accuracy = encoder.loss(obs, obs + 0.1, index)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (accuracy > 0.9) == learns
