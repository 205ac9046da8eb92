"""ProtoRL: Sinkhorn's balance, prototypes that predict codes, and distances to a queue of
candidates."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from agent.parts.prototypes import Prototypes, sinkhorn
from tests.kit.configs import composed
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

KEY = "agent.objective."
SMALL = (KEY + "num_protos=6", KEY + "queue_size=16", KEY + "pred_dim=4", KEY + "proj_dim=8")
ALL = KEY + "candidates_per_row=1000"  # every prototype in every batch, however small


def batch_of(seed=0, **kwargs):
    return make_batch(seed=seed, kind="none", **kwargs)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ----------------------------------------------------------------------------------------- Sinkhorn


def balanced(scores, iterations):
    """SwAV's recipe on plain numbers: share of each prototype to 1/K, then share of each sample to
    1/B, in turns."""
    q = np.exp(scores)
    q /= q.sum()
    rows, columns = q.shape
    for _ in range(iterations):
        for k in range(columns):
            q[:, k] *= 1 / columns / q[:, k].sum()
        for i in range(rows):
            q[i] *= 1 / rows / q[i].sum()
    return q * rows


@pytest.mark.parametrize("shape", [(8, 5), (5, 8)])
@pytest.mark.parametrize("iterations", [1, 3])
def test_sinkhorn_is_swavs_recipe(shape, iterations):
    scores = 4 * normal(*shape)
    close(sinkhorn(scores, iterations), balanced(array(scores), iterations))


def test_sinkhorn_by_hand():
    # e^scores = (3 1; 1 1); columns to 1: (3/4 1/2; 1/4 1/2); rows to 1: (3/5 2/5; 1/3 2/3)
    close(
        sinkhorn(torch.tensor([[math.log(3), 0.0], [0.0, 0.0]]), 1),
        [[3 / 5, 2 / 5], [1 / 3, 2 / 3]],
    )


@pytest.mark.parametrize("shape", [(24, 6), (6, 24)])
def test_sinkhorns_rows_sum_to_1_and_its_columns_to_the_same_share(shape):
    scores = 3 * normal(*shape)
    close(sinkhorn(scores, 1).sum(1), np.ones(shape[0]))
    q = sinkhorn(scores, 200)
    close(q.sum(1), np.ones(shape[0]))
    close(q.sum(0), np.full(shape[1], shape[0] / shape[1]))


def test_sinkhorn_bears_large_scores_and_gives_no_gradient():
    scores = (500 * normal(8, 5)).requires_grad_()
    q = sinkhorn(scores, 3)
    assert q.isfinite().all() and not q.requires_grad
    close(q.sum(1), np.ones(8))


def test_prototypes_score_by_cosine():
    prototypes = Prototypes(2, 3)
    prototypes.weight.data = torch.tensor([[2.0, 0.0], [0.0, 5.0], [-1.0, -1.0]])
    close(
        prototypes(torch.tensor([[7.0, 0.0], [3.0, 3.0]])),
        [[1, 0, -(0.5**0.5)], [0.5**0.5, 0.5**0.5, -1]],
    )


def test_in_place_prototypes_are_unit_vectors_whose_gradient_may_point_outwards():
    """The public codes normalise the weights before every use and take them as they are; otherwise
    the gradient turns a prototype and does not stretch it."""
    x = normal(8, 4)
    gradients = {}
    for norm in ("gradient", "in_place"):
        torch.manual_seed(0)
        prototypes = Prototypes(4, 3, norm)
        prototypes.weight.data *= 3
        score = prototypes(x)
        (score**2).sum().backward()
        gradients[norm] = (score.detach(), prototypes.weight.grad, prototypes.weight.detach())
    close(gradients["in_place"][0], gradients["gradient"][0])  # the same scores
    close(gradients["in_place"][2].norm(dim=1), np.ones(3))
    close(gradients["gradient"][2].norm(dim=1), np.full(3, 3.0))
    unit_weight = gradients["in_place"][2]
    y = torch.nn.functional.normalize(x, dim=1)
    close(gradients["in_place"][1], array(2 * (y @ unit_weight.T).T @ y))
    outwards = {n: (g * unit_weight).sum(1).abs().max() for n, (_, g, _) in gradients.items()}
    assert outwards["gradient"] < 1e-6 < 0.1 < outwards["in_place"]


# ----------------------------------------------------------------------------------------- learning


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def codes_and_guesses(objective, batch, iterations=3, temperature=0.1):
    prototypes = unit(array(objective.prototypes.weight))
    target = unit(array(objective.slow_predictor(batch.next_obs))) @ prototypes.T / temperature
    online = np.exp(
        unit(array(objective.projector(objective.predictor(batch.obs))))
        @ prototypes.T
        / temperature
    )
    return balanced(target, iterations), online / online.sum(1, keepdims=True)


def test_the_loss_is_the_cross_entropy_between_balanced_codes_and_their_prediction():
    objective = make("proto", *SMALL)
    for seed in range(3):
        batch = batch_of(seed)
        codes, guesses = codes_and_guesses(objective, batch)
        usage = guesses.mean(0)
        metrics = objective.update(batch)
        loss = [-sum(q * math.log(p) for q, p in zip(*row)) for row in zip(codes, guesses)]
        close(metrics["proto/loss"], np.mean(loss))
        close(metrics["proto/in_use"], math.prod(u**-u for u in usage) / 6)


def test_the_loss_by_hand():
    objective = make(
        "proto", *SMALL, KEY + "num_protos=2", KEY + "temperature=1", KEY + "sinkhorn_iterations=1"
    )
    for net in (objective.predictor[0], objective.slow_predictor[0]):  # z = s
        torch.nn.init.eye_(net.weight)
    objective.projector = torch.nn.Identity()
    objective.prototypes.weight.data = torch.eye(4)[:2].clone()
    obs = torch.eye(4)[:2]
    # Scores (1 0; 0 1). Softmax of s = s': 1 / (1 + e^-1) = p on the diagonal. Sinkhorn of a
    # symmetric matrix whose rows and columns all have one sum is that softmax: the loss is the
    # entropy of p.
    p = 1 / (1 + math.exp(-1))
    batch = batch_of(size=2)._replace(obs=obs, next_obs=obs)
    close(objective.update(batch)["proto/loss"], -p * math.log(p) - (1 - p) * math.log(1 - p))


def test_no_gradient_flows_into_the_slow_predictor_which_follows_by_a_twentieth():
    objective = make("proto", *SMALL)
    slow = [p.clone() for p in objective.slow_predictor.parameters()]
    assert moved(objective, lambda: objective.update(batch_of())) == {
        "predictor",
        "projector",
        "prototypes",
        "slow_predictor",
    }
    for before, now, fast in zip(
        slow, objective.slow_predictor.parameters(), objective.predictor.parameters()
    ):
        close(now, array(0.95 * before + 0.05 * fast))
        assert now.grad is None and not now.requires_grad


def test_prototypes_stay_on_the_sphere_up_to_one_step():
    objective = make("proto", *SMALL)
    for seed in range(200):
        objective.update(batch_of(seed))
    close(objective.prototypes.weight.norm(dim=1), np.ones(6), rtol=1e-2)


def test_balanced_codes_keep_the_prototypes_in_use():
    objective = make("proto", *SMALL)
    for seed in range(300):
        metrics = objective.update(batch_of(seed))
    assert metrics["proto/in_use"] > 0.8  # 1/6 where all fall to one


# ------------------------------------------------------------------------------------------ rewards


def drawn(objective, scores):
    """The candidates that the objective is about to draw: softmax as the largest of score + Gumbel
    noise."""
    generator = torch.Generator()
    generator.set_state(objective.generator.get_state())
    u = array(torch.rand(scores.shape, generator=generator))
    return [int(np.argmax(s - np.log(-np.log(v)))) for s, v in zip(scores, u)]


def test_the_reward_is_the_distance_to_the_third_nearest_in_the_queue():
    objective, queue = make("proto", *SMALL, ALL), [np.zeros(4)] * 16
    for seed in range(5):  # 5 x 6 candidates: the ring of 16 goes round
        batch = batch_of(seed)
        objective.update(batch)
        z = unit(array(objective.predictor(batch.next_obs)))
        scores = unit(array(objective.prototypes.weight)) @ z.T
        for i, candidate in enumerate(drawn(objective, scores)):
            queue[(6 * seed + i) % 16] = z[candidate]
        expected = [[sorted(math.dist(row, entry) for entry in queue)[2]] for row in z]
        # Copies of a row in the queue differ from it by rounding.
        close(objective.rewards(batch)[0]["novelty"], expected, atol=1e-5)
        close(objective.queue, queue, atol=1e-5)


@pytest.mark.parametrize("k, expected", [(1, [0, 0, 0]), (2, [2**0.5] * 3), (3, [2, 2**0.5, 2])])
def test_the_reward_by_hand(k, expected):
    objective = make("proto", *SMALL, KEY + "num_protos=3", KEY + "queue_size=3", f"{KEY}k={k}")
    torch.nn.init.eye_(objective.predictor[0].weight)
    objective._candidates = lambda _: torch.arange(3)
    # E1, e2, -e1 on the sphere.
    next_obs = torch.tensor([[2.0, 0, 0, 0], [0, 3.0, 0, 0], [-1.0, 0, 0, 0]])
    batch = batch_of(size=3)._replace(next_obs=next_obs)
    close(objective.rewards(batch)[0]["novelty"], np.array(expected)[:, None])


def test_candidates_follow_the_softmax_over_the_batch():
    objective = make("proto", *SMALL, ALL)
    objective.per_row = 1e9
    scores = torch.tensor([1.0, 0.0, -1.0])
    share = F.one_hot(objective._candidates(scores.expand(20_000, 3)), 3).float().mean(0)
    close(share, array(scores.softmax(0)), rtol=0, atol=0.015)


def test_prototypes_take_turns_where_the_batch_is_small():
    objective = make("proto", *SMALL)  # half as many candidates as rows
    scores = 1000 * torch.eye(6)  # prototype i wants row i
    for turn in ([0, 1, 2], [3, 4, 5], [0, 1, 2]):
        candidates = objective._candidates(scores)
        assert candidates.tolist() == turn
        objective._enqueue(torch.zeros(len(candidates), 4))
    assert (
        len(objective._candidates(torch.zeros(6, 12)))
        == len(objective._candidates(torch.zeros(6, 1024)))
        == 6
    )
    assert len(objective._candidates(torch.zeros(6, 1))) == 1


def test_at_the_published_size_every_prototype_enqueues_one_row():
    settings = composed("pretrain", "agent=proto", "preset=smoke")["agent"]["objective"]
    assert settings["num_protos"] == settings["candidates_per_row"] * 1024  # URLB's batch


def test_if_every_prototype_enqueued_from_a_small_batch_its_rows_would_earn_nothing():
    """512 candidates from 24 rows are some 21 copies of each: the third nearest is the row
    itself."""
    earned = {
        per_row: make("proto", f"{KEY}candidates_per_row={per_row}").rewards(batch_of())[0][
            "novelty"
        ]
        for per_row in (0.5, 1000)
    }
    assert (earned[0.5] > 1e-3).float().mean() > 0.8
    assert (earned[1000] < 1e-3).all()


def test_what_the_queue_has_not_seen_earns_more():
    objective, batch = make("proto", *SMALL), batch_of()
    near = batch._replace(next_obs=0.1 * batch.next_obs + torch.tensor([1.0, 0, 0, 0]))
    for _ in range(10):
        objective.rewards(near)
    next_obs = near.next_obs.clone()
    next_obs[7] = torch.tensor([-1.0, 0, 0, 0])
    assert objective.rewards(near._replace(next_obs=next_obs))[0]["novelty"].argmax() == 7


def test_the_reward_reads_the_successor_alone_and_moves_the_queue_alone():
    objective = make("proto", *SMALL)
    assert depends_on(objective, "novelty", kind="none") == {"next_obs"}
    assert moved(objective, lambda: objective.rewards(batch_of())) == {"queue", "enqueued"}


# -------------------------------------------------------------------------------------- house rules


@pytest.mark.parametrize("overrides", [(), SMALL], ids=["published", "small"])
def test_it_keeps_the_promises_of_an_objective(overrides):
    assert_rewards_are_sound(make("proto", *overrides), kind="none")
    assert_state_round_trip("proto", *overrides, kind="none")
    assert_updates_lower(make("proto", *overrides), "proto/loss", kind="none")
    assert_learns_on_meta("proto", *overrides)


def test_fine_tuning_takes_over_the_whole_critic():
    assert composed("pretrain", "agent=proto", "preset=smoke")["learner"]["init_heads"] is True
    assert composed("pretrain", "agent=rnd", "preset=smoke")["learner"]["init_heads"] is False


@pytest.mark.parametrize("overrides", [("num_protos=17",), ("k=17",)])
def test_a_queue_that_is_too_small_is_an_error(overrides):
    with pytest.raises(UserError, match="queue_size=16 is too small"):
        make("proto", *SMALL, *(KEY + o for o in overrides))
