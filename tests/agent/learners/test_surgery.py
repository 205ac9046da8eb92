"""Gradient surgery is Algorithm 1 for two streams and the PCGrad paper's algorithm for more."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchjd.aggregation import PCGrad

from agent.learners.surgery import (
    ProjectConflict,
    SumGradients,
    flat_grad,
    project,
    similarity,
    split_grad,
)
from agent.parts.draws import Draws
from agent.parts.networks import Critic
from run.build import make_surgery
from tests.kit.configs import composed
from utils import UserError

torch.set_num_threads(1)
STREAMS = ("diversity", "exploration")


def vector(*values):
    return torch.tensor(values, dtype=torch.float32)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def surgery(p, first="diversity", seed=0):
    return ProjectConflict(p=p, first=first, generator=Draws(torch.Generator().manual_seed(seed)))


def surgery_of(*words):
    """The part of a pre-training's config that says how its gradients are combined."""
    return composed("pretrain", "preset=smoke", *words)["surgery"]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def project_loop(g, onto):
    """g without its component along `onto`, if that component points against it."""
    conflict = dot(g, onto)
    return (
        [x - conflict / dot(onto, onto) * y for x, y in zip(g, onto)] if conflict < 0 else list(g)
    )


def algorithm_1(diversity, exploration, project_diversity):
    """Algorithm 1 of the paper, line by line, the coin given."""
    if dot(diversity, exploration) < 0:
        if project_diversity:
            diversity = project_loop(diversity, exploration)
        else:
            exploration = project_loop(exploration, diversity)
    return [a + b for a, b in zip(diversity, exploration)]


def pcgrad_loop(grads, orders):
    """Algorithm 1 of the PCGrad paper: orders[i] is the order in which task i meets the others."""
    total = [0.0] * len(grads[0])
    for i, g in enumerate(grads):
        for j in orders[i]:
            g = project_loop(g, grads[j])  # the running g against the others' original gradients
        total = [a + b for a, b in zip(total, g)]
    return total


# --------------------------------------------------------------------------------------- projection


def test_projection_by_hand():
    # <(1, 0), (-1, 1)> = -1 and ||(-1, 1)||^2 = 2: (1, 0) + 1/2 (-1, 1)
    torch.testing.assert_close(project(vector(1, 0), vector(-1, 1)), vector(0.5, 0.5))
    torch.testing.assert_close(project(vector(-1, 1), vector(1, 0)), vector(0, 1))


@pytest.mark.parametrize("seed", range(20))
def test_projected_gradient_is_orthogonal_or_was_never_in_conflict(seed):
    g, h = normal(2, 7, seed=seed)
    after = project(g, h)
    np.testing.assert_allclose(after, project_loop(g.tolist(), h.tolist()), atol=1e-10)
    if g @ h < 0:
        assert abs(after @ h) < 1e-9
        assert after @ g > 0  # it still descends on its own loss
    else:
        assert torch.equal(after, g)


def test_projection_leaves_aligned_and_orthogonal_gradients_untouched():
    g = vector(3, 1)
    for other in (vector(1, 0), vector(-1, 3), g):
        assert torch.equal(project(g, other), g)


def test_opposite_gradients_vanish_and_zero_gradients_do_no_harm():
    torch.testing.assert_close(project(vector(2, -4), vector(-1, 2)), vector(0, 0))
    assert torch.equal(project(vector(2, -4), vector(0, 0)), vector(2, -4))
    assert torch.equal(project(vector(0, 0), vector(2, -4)), vector(0, 0))


# ------------------------------------------------------------------------- two streams, Algorithm 1


@pytest.mark.parametrize(
    "p, expected",
    [
        (1.0, (-0.5, 1.5)),  # diversity becomes (0.5, 0.5): (0.5, 0.5) + (-1, 1)
        (0.0, (1.0, 1.0)),  # exploration becomes (0, 1): (1, 0) + (0, 1)
    ],
)
@pytest.mark.parametrize("order", [STREAMS, STREAMS[::-1]])
def test_p_is_the_probability_of_projecting_diversity(p, expected, order):
    grads = {"diversity": vector(1, 0), "exploration": vector(-1, 1)}
    act = surgery(p)
    for _ in range(20):
        torch.testing.assert_close(act({name: grads[name] for name in order}), vector(*expected))


@pytest.mark.parametrize("p", [0.3, 0.8])
def test_the_coin_falls_on_diversity_with_frequency_p(p):
    act, grads = surgery(p), {"diversity": vector(1, 0), "exploration": vector(-1, 1)}
    results = torch.stack([act(grads) for _ in range(1000)])
    diversity, exploration = (
        (results[:, 1] == 1.5).sum().item(),
        (results[:, 1] == 1.0).sum().item(),
    )
    assert diversity + exploration == 1000  # one of the two, never both and never neither
    assert abs(diversity - 1000 * p) < 4 * math.sqrt(1000 * p * (1 - p))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_two_streams_follow_algorithm_1(seed, p):
    g, h = normal(2, 5, seed=seed)
    result = surgery(p)({"diversity": g, "exploration": h})
    np.testing.assert_allclose(
        result, algorithm_1(g.tolist(), h.tolist(), project_diversity=p == 1), atol=1e-10
    )


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, None])
def test_streams_without_conflict_are_summed(p):
    for g, h in (
        (vector(1, 2), vector(3, 0.5)),
        (vector(1, 0), vector(0, 5)),
        (vector(1, 2), vector(0, 0)),
    ):
        assert torch.equal(surgery(p)({"diversity": g, "exploration": h}), g + h)


def test_surgery_never_hurts_either_stream_where_the_plain_sum_does():
    g, h = vector(1, 0), vector(-10, 1)
    assert SumGradients()({"diversity": g, "exploration": h}) @ g < 0
    assert surgery(1.0)({"diversity": g, "exploration": h}) @ h >= 0
    assert surgery(0.0)({"diversity": g, "exploration": h}) @ g >= 0
    symmetric = surgery(None)({"diversity": g, "exploration": h})
    assert symmetric @ g >= 0 and symmetric @ h >= 0


def test_the_generator_alone_decides_the_coin():
    grads = {"diversity": vector(1, 0), "exploration": vector(-1, 1)}
    sequences = []
    for act in (surgery(0.5, seed=3), surgery(0.5, seed=3), surgery(0.5, seed=4)):
        torch.manual_seed(len(sequences))  # the global stream must not matter
        sequences.append(torch.stack([act(grads) for _ in range(40)]))
    assert torch.equal(sequences[0], sequences[1]) and not torch.equal(sequences[0], sequences[2])


@pytest.mark.parametrize("domain, p", [("walker", 0.6), ("quadruped", 0.65), ("jaco", 0.8)])
def test_amped_projects_diversity_with_the_papers_probability(domain, p):
    act = make_surgery(surgery_of("agent=amped", f"domain={domain}"), STREAMS, None)
    assert (act.p, act.first) == (p, "diversity")


def test_surgery_is_chosen_by_name_and_needs_a_stream_that_exists():
    assert isinstance(make_surgery(surgery_of("surgery=sum"), STREAMS, None), SumGradients)
    symmetric = make_surgery(surgery_of("surgery=pcgrad_symmetric"), STREAMS, None)
    assert (symmetric.p, symmetric.first) == (None, None)
    with pytest.raises(UserError, match="nonsense is no reward stream"):
        make_surgery(surgery_of("surgery.first=nonsense"), STREAMS, None)


# ----------------------------------------------------------------------- symmetric and many streams


@pytest.mark.parametrize("seed", range(20))
def test_symmetric_surgery_of_two_streams_is_torchjds_pcgrad(seed):
    grads = normal(2, 6, seed=seed)
    result = surgery(None)(dict(zip(STREAMS, grads)))
    # the library returns the sum of the projected gradients, as the PCGrad paper
    torch.testing.assert_close(result, PCGrad()(grads), atol=1e-9, rtol=1e-9)
    np.testing.assert_allclose(result, pcgrad_loop(grads.tolist(), [[1], [0]]), atol=1e-10)


def test_symmetric_surgery_by_hand():
    # both are projected against the other's original gradient: (0.5, 0.5) + (0, 1)
    torch.testing.assert_close(
        surgery(None)({"a": vector(1, 0), "b": vector(-1, 1)}), vector(0.5, 1.5)
    )


# Every pair is in conflict.
THREE = (vector(2.0, 0.0, 1.0), vector(-1.0, 1.0, 0.5), vector(-1.0, -2.0, -0.5))
ORDERS = list(
    itertools.product(*(itertools.permutations([j for j in range(3) if j != i]) for i in range(3)))
)


@pytest.mark.parametrize("p", [None, 0.6])  # a probability is a matter of two streams
def test_three_streams_follow_the_pcgrad_paper_in_every_random_order(p):
    grads = [g.double().tolist() for g in THREE]
    # 2 orders for each of 3 streams: 8
    outcomes = np.array([pcgrad_loop(grads, orders) for orders in ORDERS])
    assert min(np.abs(a - b).max() for a, b in itertools.combinations(outcomes, 2)) > 1e-2
    act, counts, draws = surgery(p), np.zeros(8, int), 400
    for _ in range(draws):
        gaps = np.abs(outcomes - act(dict(zip("abc", THREE))).double().numpy()).max(1)
        assert gaps.min() < 1e-5
        counts[gaps.argmin()] += 1
    # independent and uniform orders: 50 of each, chi-square with 7 degrees of freedom, 24.3 at one
    # in a thousand
    assert ((counts - draws / 8) ** 2 / (draws / 8)).sum() < 24.3


def test_three_aligned_streams_are_summed():
    grads = {"a": vector(1, 0, 0), "b": vector(1, 2, 0), "c": vector(0, 1, 3)}
    torch.testing.assert_close(surgery(None)(grads), vector(2, 3, 3))


@pytest.mark.parametrize("p", [None, 0.5])
@pytest.mark.parametrize("streams", [2, 3])
def test_surgery_commutes_with_rotation_and_scale(p, streams):
    grads = dict(zip(("diversity", "exploration", "third"), normal(streams, 4, seed=3)))
    rotation, _ = torch.linalg.qr(normal(4, 4, seed=9))
    result = surgery(p)(grads)
    torch.testing.assert_close(
        surgery(p)({k: rotation @ g for k, g in grads.items()}), rotation @ result
    )
    torch.testing.assert_close(surgery(p)({k: 7 * g for k, g in grads.items()}), 7 * result)
    assert not torch.allclose(result, sum(grads.values()))


def test_symmetric_surgery_of_two_streams_ignores_their_order_and_the_coin():
    g, h = vector(1, 0), vector(-1, 1)
    results = [
        surgery(None, seed=s)(grads)
        for s in range(5)
        for grads in ({"a": g, "b": h}, {"b": h, "a": g})
    ]
    assert all(torch.allclose(r, results[0]) for r in results)


def test_the_plain_sum_by_hand():
    torch.testing.assert_close(
        SumGradients()({"a": vector(1, 0), "b": vector(-1, 1), "c": vector(5, 5)}), vector(5, 6)
    )


@pytest.mark.parametrize("act", [surgery(0.5), surgery(None), SumGradients()])
def test_surgery_leaves_its_input_as_it_was(act):
    grads = {"diversity": THREE[0].clone(), "exploration": THREE[1].clone()}
    act(grads)
    assert torch.equal(grads["diversity"], THREE[0]) and torch.equal(grads["exploration"], THREE[1])


# ---------------------------------------------------------------------------------------- gradients


def test_flat_gradient_is_what_backward_leaves_and_zero_where_the_loss_does_not_reach():
    used, unused = nn.Linear(3, 2), nn.Linear(2, 2)
    parameters = [*unused.parameters(), *used.parameters()]
    x = torch.randn(4, 3)
    loss = used(x).square().mean()
    flat = flat_grad(loss, parameters, retain_graph=True)
    assert flat.shape == (6 + 8,)  # 2*2 + 2 of the unused layer, 2*3 + 2 of the used one
    assert all(p.grad is None for p in parameters)
    loss.backward()
    assert (flat[:6] == 0).all()
    torch.testing.assert_close(flat[6:], torch.cat([p.grad.flatten() for p in used.parameters()]))


def test_a_flat_gradient_is_split_as_it_was_joined():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    parameters = list(net.parameters())
    flat = torch.arange(sum(p.numel() for p in parameters), dtype=torch.float32)
    parts = split_grad(flat, parameters)
    assert [part.shape for part in parts] == [p.shape for p in parameters]
    assert torch.equal(torch.cat([part.flatten() for part in parts]), flat)


@pytest.mark.parametrize(
    "a, b, expected",
    [
        ((3, 4), (-4, 3), (0, 0, 0)),
        ((3, 4), (6, 8), (50, 1, 0)),  # 18 + 32
        ((3, 4), (-3, -4), (-25, -1, 1)),
        ((1, 0), (-1, 1), (-1, -1 / math.sqrt(2), 1)),
        ((0, 0), (1, 1), (0, 0, 0)),
    ],
)
def test_similarity_by_hand(a, b, expected):
    result = similarity(vector(*a), vector(*b))
    np.testing.assert_allclose(
        [result[k].item() for k in ("dot", "cosine", "conflict")], expected, atol=1e-6
    )


# ------------------------------------------------------------------------- what the critic receives


def twin_critic():
    torch.manual_seed(0)
    critic = Critic(3, 2, hidden_dim=8, layers=1, action_input="trunk", columns=1)
    x, action, y = torch.randn(16, 3), torch.randn(16, 2), torch.randn(16, 1)

    def gradient(target):
        q1, q2 = critic(x, action)
        loss = F.mse_loss(q1, target) + F.mse_loss(q2, target)
        return flat_grad(loss, list(critic.parameters()), retain_graph=False)

    return gradient, y


@pytest.mark.parametrize("p", [0.0, 0.6, 1.0, None])
def test_equal_rewards_give_twice_the_gradient_of_one(p):
    gradient, y = twin_critic()
    both = surgery(p)({"diversity": gradient(y), "exploration": gradient(y)})
    torch.testing.assert_close(both, 2 * gradient(y))


def test_the_plain_sum_pulls_towards_the_mean_of_two_targets_not_their_sum():
    gradient, y = twin_critic()
    total = SumGradients()({"diversity": gradient(y), "exploration": gradient(y + 5)})
    torch.testing.assert_close(total, 2 * gradient(y + 2.5), rtol=1e-4, atol=1e-5)


def test_between_two_constant_targets_the_surgery_follows_one_stream():
    # One weight q between the targets 0 and 1: gradients 2q and 2(q - 1) oppose, and the projected
    # one vanishes.
    q = 0.3
    grads = {"diversity": vector(2 * q), "exploration": vector(2 * (q - 1))}
    torch.testing.assert_close(surgery(1.0)(grads), vector(-1.4))
    torch.testing.assert_close(surgery(0.0)(grads), vector(0.6))
