"""Resolvers are those of the papers: torchjd, scipy and hand calculations say so."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, nnls
from torchjd.aggregation import IMTLG
from torchjd.aggregation import MGDA as MGDAOracle
from torchjd.aggregation import AlignedMTL as AlignedOracle

from agent.learners import resolvers
from agent.learners.resolvers import (
    FAMO,
    MGDA,
    AlignedMTL,
    CAGrad,
    NormalisedSum,
    eigen,
    gram_matrix,
    least_on_simplex,
)
from agent.learners.surgery import ProjectConflict, SumGradients

SIZES = [2, 3, 5]
GRAM = {
    "normalised_sum": NormalisedSum(),
    "mgda": MGDA(),
    "cagrad": CAGrad(c=0.5),
    "aligned_mtl": AlignedMTL(),
}


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def rows(count, seed=0, dim=20):
    """Gradients of different lengths, some of which oppose each other."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.rand(count, 1, generator=g, dtype=torch.float64) * 3 + 0.1
    return lengths * (torch.randn(count, dim, generator=g, dtype=torch.float64))


def named(grads):
    return {f"stream {i}": g for i, g in enumerate(grads)}


# ------------------------------------------------------------------------------------------ oracles


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("seed", range(10))
def test_mgda_is_the_shortest_vector_of_the_hull(count, seed):
    grads = rows(count, seed, dim=6)
    shortest = MGDA()(named(grads)) / count
    # Optimality of a convex problem: no corner of the hull lies before the plane through the answer.
    gap = shortest @ shortest - (grads @ shortest).min()
    unit = grads.square().sum(1).mean()
    assert gap <= {2: 1e-12, 3: 1e-9, 5: 1e-4}[count] * unit
    oracle = MGDAOracle(epsilon=1e-6, max_iters=300)(grads)
    # The oracle's loop converges slowly for more than two: ours is at least as short.
    assert shortest @ shortest <= oracle @ oracle + 1e-4 * unit
    torch.testing.assert_close(shortest, oracle, rtol=0, atol=1e-9 if count == 2 else 0.1)


def cagrad_by_scipy(grads, c):
    """The dual of the paper's Eq. (3) by a general solver."""
    g = grads.numpy()
    mean, count = g.mean(0), len(g)
    radius = c * np.linalg.norm(mean)

    def dual(w):
        return (w @ g) @ mean + radius * np.linalg.norm(w @ g)

    found = minimize(
        dual,
        np.full(count, 1 / count),
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    best = found.x @ g
    return dual, mean + radius * best / np.linalg.norm(best)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("c", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_cagrad_is_the_best_of_the_ball_for_the_worst_stream(count, c, seed):
    grads = rows(count, seed)
    _, expected = cagrad_by_scipy(grads, c)
    ours = CAGrad(c=c)(named(grads)) / count
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4)
    mean = grads.mean(0)
    assert (ours - mean).norm() <= c * mean.norm() * (1 + 1e-9)  # inside the ball
    # No other vector of the ball does more for the stream that gains least.
    g = torch.Generator().manual_seed(seed)
    step = torch.randn(300, grads.shape[1], generator=g, dtype=torch.float64)
    others = mean + c * mean.norm() * step / step.norm(dim=1, keepdim=True)
    assert (grads @ ours).min() >= (others @ grads.T).min(1).values.max() - 1e-9


def test_cagrad_finds_the_end_of_an_edge_where_the_mean_decides():
    """Opposite gradients: the weaker one alone counts against the mean, whose direction stays."""
    grads = named([vector(3, 0), vector(-1, 0)])  # mean (1, 0), and the ball around it 0.5 wide
    torch.testing.assert_close(CAGrad(c=0.5)(grads), 2 * vector(0.5, 0))


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("seed", range(10))
def test_aligned_mtl_is_torchjds(count, seed):
    grads = rows(count, seed)
    expected = count * AlignedOracle(scale_mode="min")(grads)
    torch.testing.assert_close(AlignedMTL()(named(grads)), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_aligned_mtl_leaves_out_directions_that_are_rounding(seed):
    one, other = rows(2, seed)
    grads = torch.stack([one, 2 * one, other])
    expected = 3 * AlignedOracle(scale_mode="min")(grads)
    torch.testing.assert_close(AlignedMTL()(named(grads)), expected, rtol=1e-6, atol=1e-8)


def test_aligned_mtl_makes_streams_orthogonal_and_equally_long():
    grads, one = rows(3), torch.eye(3, dtype=torch.float64)
    aligned = torch.stack([AlignedMTL()(named(grads), weights) for weights in one])
    least = torch.linalg.svdvals(grads).min()
    torch.testing.assert_close(aligned @ aligned.T, least.square() * one, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_the_normalised_sum_of_two_has_the_direction_of_imtl_g(seed):
    grads = rows(2, seed)
    ours, oracle = NormalisedSum()(named(grads)), IMTLG()(grads)
    torch.testing.assert_close(ours / ours.norm(), oracle / oracle.norm(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("seed", range(10))
def test_symmetric_pcgrad_of_two_is_twice_upgrad(seed):
    """UPGrad: the mean of the gradients, each projected onto the cone of what harms no stream."""
    grads = rows(2, seed)
    projected = [g.numpy() + nnls(grads.T.numpy(), -g.numpy())[0] @ grads.numpy() for g in grads]
    ours = ProjectConflict(p=None, first=None)(named(grads))
    np.testing.assert_allclose(ours, 2 * np.mean(projected, 0), rtol=1e-7, atol=1e-9)


# ------------------------------------------------------------------------------------ by hand


def test_mgda_by_hand():
    # The foot of the perpendicular between (2, 0) and (0, 1) is (0.4, 0.8): shares 0.2 and 0.8.
    torch.testing.assert_close(MGDA()(named([vector(2, 0), vector(0, 1)])), 2 * vector(0.4, 0.8))
    # It lies beyond (1, 0), which alone is the shortest.
    torch.testing.assert_close(MGDA()(named([vector(1, 0), vector(3, 1)])), 2 * vector(1, 0))
    torch.testing.assert_close(MGDA()(named([vector(1, 0), vector(-2, 0)])), vector(0, 0))


def test_the_normalised_sum_by_hand():
    # Lengths 5 and 15, mean 10: both become 10 long.
    grads = named([vector(3, 4), vector(0, 15)])
    torch.testing.assert_close(NormalisedSum()(grads), vector(6, 8) + vector(0, 10))
    torch.testing.assert_close(
        NormalisedSum()(grads, vector(0.5, 1.5)), vector(3, 4) + vector(0, 15)
    )


def test_aligned_mtl_by_hand():
    # Orthogonal already: both as long as the shorter one.
    grads = named([vector(4, 0), vector(0, 1)])
    torch.testing.assert_close(AlignedMTL()(grads), vector(1, 1))


def test_cagrad_with_a_ball_of_no_size_is_the_sum():
    grads = named(rows(3))
    torch.testing.assert_close(CAGrad(c=0.0)(grads), SumGradients()(grads))


# ---------------------------------------------------------------------------------- what all share


@pytest.mark.parametrize("name", GRAM)
@pytest.mark.parametrize("count", SIZES)
def test_resolvers_ignore_the_order_of_streams_and_commute_with_rotation_and_scale(name, count):
    grads, act = rows(count, seed=3, dim=5), GRAM[name]
    result = act(named(grads))
    torch.testing.assert_close(act(named(grads.flip(0))), result, rtol=1e-5, atol=1e-6)
    rotation, _ = torch.linalg.qr(rows(5, seed=9, dim=5))
    torch.testing.assert_close(
        act(named(grads @ rotation)), result @ rotation, rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(act(named(1e-3 * grads)), 1e-3 * result, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", GRAM)
def test_zero_and_equal_gradients_do_no_harm(name):
    g, zero = vector(1, 2, 2), vector(0, 0, 0)
    for grads in ([g, zero], [zero, zero], [g, g], [g, zero, g], [g, -g]):
        for kind in (torch.float64, torch.float32):
            result = GRAM[name](named([each.to(kind) for each in grads]))
            assert result.isfinite().all()
    torch.testing.assert_close(GRAM[name](named([zero, zero])), zero)


@pytest.mark.parametrize("name, size", [("normalised_sum", 2), ("mgda", 2), ("cagrad", 3)])
def test_two_equal_gradients_are_on_the_scale_of_their_sum(name, size):
    g = vector(1, 2, 2)  # CAGrad goes on to the far end of its ball: 1 + c times as far
    torch.testing.assert_close(GRAM[name](named([g, g])), size * g)


@pytest.mark.parametrize("name", ["sum", "mgda", "cagrad"])
def test_weights_scale_the_streams_before_they_meet(name):
    act = {**GRAM, "sum": SumGradients()}[name]
    one, other = rows(2, seed=4)
    torch.testing.assert_close(
        act(named([one, other]), vector(0.5, 1.5)), act(named([0.5 * one, 1.5 * other]))
    )


@pytest.mark.parametrize("p", [0.0, 1.0, None])
def test_pcgrad_projects_weighted_streams(p):
    one, other = rows(2, seed=4)
    act = ProjectConflict(p=p, first="stream 0")
    torch.testing.assert_close(
        act(named([one, other]), vector(0.5, 1.5)), act(named([0.5 * one, 1.5 * other]))
    )


@pytest.mark.parametrize("name", GRAM)
@pytest.mark.parametrize("count", [2, 3])
def test_a_resolver_is_one_graph_for_the_compiler(name, count, monkeypatch):
    for rounds in ("DESCENT_ROUNDS", "ROTATION_ROUNDS"):
        monkeypatch.setattr(resolvers, rounds, 1)  # of more than two streams: a short graph
    torch._dynamo.reset()
    grads = [g.float() for g in rows(count)]
    traced = torch.compile(lambda *g: GRAM[name](named(g)), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(traced(*grads), GRAM[name](named(grads)), rtol=1e-5, atol=1e-6)


def test_single_precision_is_enough():
    for seed, count in itertools.product(range(5), SIZES):
        grads = rows(count, seed)
        for act in GRAM.values():
            exact, single = act(named(grads)), act(named(grads.float())).double()
            assert (exact - single).norm() < 2e-3 * grads.norm(dim=1).max()


def test_rotations_find_eigenvalues_and_vectors():
    for count in (2, 3, 6):
        matrix = gram_matrix(list(rows(count, seed=count)))
        values, vectors = eigen(matrix)
        torch.testing.assert_close(values.sort().values, torch.linalg.eigvalsh(matrix))
        torch.testing.assert_close(vectors @ values.diag() @ vectors.T, matrix)


def test_the_simplex_solver_is_exact_for_two():
    g, h = rows(2, seed=1, dim=3)
    gram, slope, radius = gram_matrix([g, h]), vector(0.3, -0.1), torch.tensor(0.7).double()
    w = least_on_simplex(gram, slope, radius)
    grid = torch.linspace(0, 1, 20001, dtype=torch.float64)
    shares = torch.stack([grid, 1 - grid], 1)
    cost = shares @ slope + radius * (shares @ gram * shares).sum(1).sqrt()
    assert abs(w[0] - grid[cost.argmin()]) < 1e-4


# --------------------------------------------------------------------------------------------- FAMO


def famo(step=0.5, decay=0.1, streams=("a", "b")):
    return FAMO(step=step, decay=decay, streams=streams).double()


def test_famo_follows_algorithm_1():
    """Two losses of one weight x, five steps, beside the paper's lines in plain numbers."""
    act, x = famo(), torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    logits, y = np.zeros(2), 3.0

    def losses(x):
        return {"a": (x - 1) ** 2 + 0.1, "b": 5 * (x + 1) ** 2 + 0.2}

    for _ in range(5):
        before = losses(x)
        (slope,) = torch.autograd.grad(act(before), x)
        with torch.no_grad():
            x -= 0.01 * slope
            act.settle(before, losses(x))

        z = np.exp(logits) / np.exp(logits).sum()
        old = np.array(list(losses(y).values()))
        slopes = np.array([2 * (y - 1), 10 * (y + 1)])
        c = 1 / (z / old).sum()
        y -= 0.01 * 2 * c * (z / old * slopes).sum()  # twice the paper's: on the scale of the sum
        fall = np.log(old) - np.log(np.array(list(losses(y).values())))
        jacobian = np.diag(z) - np.outer(z, z)  # of the softmax
        logits = logits - 0.5 * (jacobian @ fall + 0.1 * logits)
        assert math.isclose(x.item(), y, rel_tol=1e-9)
        np.testing.assert_allclose(act.logits, logits, rtol=1e-9)
    assert logits[0] < logits[1]  # the loss that fell slower, relative to its size, counts more


def test_famo_ignores_the_scale_of_a_positive_loss():
    outcomes = []
    for scale in (1.0, 1000.0):
        act = famo()
        for old, new in ((4.0, 3.0), (3.0, 2.9)):
            act({"a": vector(scale * old)[0], "b": vector(2.0)[0]})
            act.settle(
                {"a": vector(scale * old)[0], "b": vector(2.0)[0]},
                {"a": vector(scale * new)[0], "b": vector(1.9)[0]},
            )
        outcomes.append(act.logits.clone())
    torch.testing.assert_close(*outcomes)


def test_famo_measures_a_loss_without_a_sign_by_its_size():
    act = famo(step=1.0, decay=0.0)
    losses = {"a": vector(-2.0)[0], "b": vector(4.0)[0]}
    # Both logits are 0: weights 1/2 over the sizes 2 and 4, scaled to a sum of 2: 4/3 and 2/3.
    torch.testing.assert_close(act(losses), vector(4 / 3 * -2 + 2 / 3 * 4)[0])
    act.settle(losses, {"a": vector(-2.4)[0], "b": vector(4.0)[0]})  # a fell by a fifth of its size
    torch.testing.assert_close(act.logits, vector(-0.05, 0.05))  # (1/2)(0.2 - 0.1), and minus that
    assert act.signed.tolist() == [1, 0]


def test_weights_of_streams_multiply_those_of_famo():
    act, losses = famo(), {"a": vector(2.0)[0], "b": vector(4.0)[0]}
    torch.testing.assert_close(act(losses, vector(0.5, 1.5)), vector(4 / 3 * 1 + 2 / 3 * 6)[0])
