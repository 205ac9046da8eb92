"""AnInfoNCE (Eq. 4) and the log posterior equal their equations, written out as loops over plain floats,
and cases worked by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist

from agent.parts.contrast import AnInfoNCE, ContrastSettings, masked_mean, pairwise, random_partner
from agent.parts.draws import Draws
from tests.kit.written_out import close, cosine_loop, normal, uniform

torch.set_num_threads(1)


METRICS = ("diag", "full", "none", "cosine")


def contrastive(
    metric="diag",
    denominator="negatives_only",
    positive="random",
    numerics="logsumexp",
    temperature=1.0,
    obs_dim=3,
    skill_dim=4,
    hidden_dim=8,
):
    torch.manual_seed(0)
    settings = ContrastSettings(
        temperature=temperature,
        metric=metric,
        denominator=denominator,
        positive=positive,
        numerics=numerics,
    )
    return AnInfoNCE(obs_dim, skill_dim, hidden_dim=hidden_dim, settings=settings)


def quadratic_loop(a, b, matrix):
    """(a - b)^T matrix (a - b), entry by entry."""
    d = [x - y for x, y in zip(a, b)]
    return sum(d[r] * matrix[r][c] * d[c] for r in range(len(d)) for c in range(len(d)))


def eq4_loop(features, index, partner, metric, matrix, temperature, denominator, numerics):
    """The bracket of Eq. 4 for every anchor: (log ratio, ratio)."""
    result = []
    for i, f in enumerate(features):

        def term(j, f=f):
            g = features[j]
            score = cosine_loop(f, g) if metric == "cosine" else -quadratic_loop(g, f, matrix)
            return math.exp(score / temperature)

        if denominator == "all":
            below = sum(term(j) for j in range(len(features)) if j != i)
        else:
            below = term(partner[i]) + sum(
                term(j)
                for j in range(len(features))
                if j not in (i, partner[i]) and index[j] != index[i]
            )
        ratio = term(partner[i]) / below
        if numerics == "naive":
            ratio = term(partner[i]) / (below + 1e-6) + 1e-6
        result.append((math.log(ratio), ratio))
    return result


def first_partner(index):
    """The first other row of the skill; without one, the first other row (the public code)."""
    others = [[j for j in range(len(index)) if j != i] for i in range(len(index))]
    return [
        next((j for j in others[i] if index[j] == z), others[i][0]) for i, z in enumerate(index)
    ]


@pytest.mark.parametrize(
    "metric, denominator, positive, numerics",
    itertools.product(
        METRICS, ["negatives_only", "all"], ["random", "first"], ["logsumexp", "naive"]
    ),
)
def test_contrast_equals_the_loop_of_eq4(metric, denominator, positive, numerics):
    module = contrastive(metric, denominator, positive, numerics, temperature=0.5)
    matrix = torch.eye(4)
    if metric == "diag":
        module.log_metric.data = 0.5 * normal(4)
        matrix = module.log_metric.exp().diag()
    elif metric == "full":  # neither symmetric nor positive
        module.matrix.data = matrix = torch.eye(4) + 0.4 * normal(4, 4)
    index = torch.tensor([0, 1, 0, 0, 1, 1, 2, 0, 2, 1, 3])  # the last one is alone with its skill
    obs, u = normal(11, 3), uniform(11, seed=5)
    result = module(obs, index, Draws(torch.Generator().manual_seed(5)))  # draws the same u

    partner = (
        random_partner(index, 4, u).tolist()
        if positive == "random"
        else first_partner(index.tolist())
    )
    features = module.head(module.embed(obs)).tolist()
    expected = eq4_loop(
        features, index.tolist(), partner, metric, matrix.tolist(), 0.5, denominator, numerics
    )
    rows = torch.arange(10) if positive == "random" else torch.arange(11)
    close(result.log_ratio[rows], [expected[i][0] for i in rows], atol=1e-5)
    close(result.ratio[rows], [expected[i][1] for i in rows])
    close(result.ratio, result.log_ratio.exp().detach())
    assert result.valid.tolist() == [True] * 10 + [positive == "first"]

    scores = [
        [
            cosine_loop(f, g) if metric == "cosine" else -quadratic_loop(f, g, matrix.tolist())
            for g in features
        ]
        for f in features
    ]
    nearest = [
        max((j for j in range(11) if j != i), key=lambda j, i=i: scores[i][j]) for i in range(11)
    ]
    assert result.correct.tolist() == [float(index[i] == index[nearest[i]]) for i in range(11)]


def transparent(**options):
    """f(s) = s for s >= 0 in two dimensions."""
    module = contrastive(obs_dim=2, skill_dim=2, hidden_dim=2, **options)
    for layer in [*module.embed[::2], *module.head[::2]]:
        layer.weight.data = torch.eye(2)
    return module


@pytest.mark.parametrize(
    "temperature, metric, first, second",
    [
        # squared distances: anchor 0 to its positive 1 and to the negative 4; anchor 1 to its
        # positive 1, negative 1 + 4
        (
            1.0,
            (1.0, 1.0),
            1 / (1 + math.exp(-3)),
            1 / (1 + math.exp(-4)),
        ),  # e^-1 / (e^-1 + e^-4) and with e^-5
        (0.5, (1.0, 1.0), 1 / (1 + math.exp(-6)), 1 / (1 + math.exp(-8))),
        # weighted: positive 2 * 1; negatives 0.5 * 4 = 2 and 2 * 1 + 0.5 * 4 = 4
        (1.0, (2.0, 0.5), 1 / 2, 1 / (1 + math.exp(-2))),
    ],
)
def test_eq4_by_hand(temperature, metric, first, second):
    module = transparent(temperature=temperature)
    module.log_metric.data = torch.tensor(metric).log()
    result = module(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 1]))
    close(result.ratio[:2], [first, second])
    close(result.log_ratio[:2], [math.log(first), math.log(second)], atol=1e-5)
    assert result.valid.tolist() == [True, True, False]


def test_the_release_denominator_by_hand():
    module = transparent(denominator="all", positive="first")
    # anchors 0, 1, 2 of one skill at 0, 1, 2: anchor 2's positive is row 0 (e^-4), row 1 (e^-1)
    # stays below the line
    result = module(
        torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [2.0, 1.0]]), torch.tensor([0, 0, 0, 1])
    )
    e = [math.exp(-d) for d in range(6)]
    close(
        result.ratio,
        [
            e[1] / (e[1] + e[4] + e[5]),
            e[1] / (e[1] + e[1] + e[2]),
            e[4] / (e[4] + e[1] + e[1]),
            e[5] / (e[5] + e[2] + e[1]),  # alone with its skill: the first other row
        ],
    )
    # A tie of rows 1 and 3 for anchor 2 goes to the first.
    assert result.correct.tolist() == [1, 1, 1, 0]


def posterior_loop(features, index, matrix, temperature):
    """log p(z | s) by kernel means, leaving the anchor out; None where it is alone."""
    result = []
    for i, f in enumerate(features):
        means = {}
        for z in set(index):
            rows = [j for j in range(len(index)) if j != i and index[j] == z]
            terms = [math.exp(-quadratic_loop(f, features[j], matrix) / temperature) for j in rows]
            if terms:
                means[z] = sum(terms) / len(terms)
        own = means.get(index[i])
        result.append(None if own is None else math.log(own / sum(means.values())))
    return result


@pytest.mark.parametrize("gradients", [True, False])
def test_all_positives_make_the_log_posterior_of_the_skill(gradients):
    module = contrastive(positive="all", temperature=0.5)
    module.log_metric.data = 0.5 * normal(4)
    index = torch.tensor([0, 1, 0, 0, 1, 1, 2, 0, 2, 1, 3])  # the last one is alone with its skill
    obs = normal(11, 3)
    with torch.set_grad_enabled(gradients):
        result = module(obs, index)
    features = module.head(module.embed(obs)).tolist()
    expected = posterior_loop(
        features, index.tolist(), module.log_metric.exp().diag().tolist(), 0.5
    )
    assert expected[10] is None and result.valid.tolist() == [True] * 10 + [False]
    close(result.log_ratio[:10], expected[:10], atol=1e-5)
    close(result.ratio, result.log_ratio.exp().detach())
    assert (result.log_ratio <= 0).all()


def test_the_log_posterior_by_hand():
    module = transparent(positive="all")
    # Anchor 0 at the origin: its skill's rows at squared distances 1 and 4, the other skill's at 1.
    states = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    result = module(states, torch.tensor([0, 0, 0, 1, 1]))
    own, other = (math.exp(-1) + math.exp(-4)) / 2, math.exp(-1)
    close(result.ratio[0], own / (own + other))


def test_a_skill_that_spreads_is_paid_as_one_that_stays_if_nobody_else_is_there():
    """The reason for positive=all: one positive pays a skill for being small, all of them do not."""
    others = torch.tensor([[0.0, 6.0], [15.0, 6.0]])
    narrow = torch.zeros(6, 2)
    wide = torch.tensor([[3.0 * i, 0.0] for i in range(6)])  # nearer to each other than to others
    index = torch.tensor([0] * 6 + [1] * 2)

    def paid(states, positive):
        draws = Draws(torch.Generator().manual_seed(5))
        found = transparent(positive=positive)(torch.cat([states, others]), index, draws)
        return found.log_ratio[:6].mean().item()

    assert paid(narrow, "all") == pytest.approx(0, abs=1e-3)
    assert paid(wide, "all") == pytest.approx(0, abs=1e-3)
    assert paid(narrow, "random") == pytest.approx(0, abs=1e-3)
    assert paid(wide, "random") < -1


def test_an_anchor_alone_with_its_skill_sends_no_broken_gradient():
    module = contrastive(positive="all")
    result = module(normal(5, 3), torch.tensor([0, 0, 1, 1, 2]))
    masked_mean(result.log_ratio, result.valid).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    assert module.log_metric.grad.abs().sum() > 0


def test_a_full_metric_takes_both_halves_of_a_matrix_that_is_not_symmetric():
    matrix = torch.tensor([[1.0, 4.0], [0.0, -2.0]])
    f = torch.tensor([[0.0, 0.0], [1.0, 3.0]])
    # difference (1, 3): 1*1 + 4*1*3 + 0*3*1 - 2*3*3 = -5
    close(pairwise(f, f, matrix), [[0, -5], [-5, 0]])
    close(pairwise(f, f, torch.tensor([2.0, 0.5])), [[0, 6.5], [6.5, 0]])  # 2*1 + 0.5*9


def test_pairwise_is_scipys_weighted_distance():
    f, weight = normal(12, 5), normal(5, seed=1).exp()
    expected = cdist(f.double(), f.double(), "sqeuclidean", w=weight.double().numpy())
    close(pairwise(f, f, weight), expected, atol=1e-5)
    close(pairwise(f, f, weight.diag()), expected, atol=1e-5)


@pytest.mark.parametrize("metric", ["diag", "none", "full"])  # all start at the identity
def test_a_unit_metric_at_temperature_one_is_infonce_with_squared_distances(metric):
    module = contrastive(metric)
    obs, index = normal(12, 3), torch.arange(12) % 4
    result = module.contrast(module.logits(obs), index, u := uniform(12))
    features, partner = (
        module.head(module.embed(obs)).detach().double(),
        random_partner(index, 4, u),
    )
    logits = torch.from_numpy(-cdist(features, features, "sqeuclidean"))
    # Cross entropy of picking the positive, in first place, out of it and the negatives.
    for i in range(12):
        candidates = torch.cat([logits[i, partner[i]].view(1), logits[i, index != index[i]]])
        close(
            -result.log_ratio[i],
            F.cross_entropy(candidates.unsqueeze(0), torch.tensor([0])),
            atol=1e-5,
        )


@pytest.mark.parametrize("denominator", ["negatives_only", "all"])
def test_log_sum_exp_equals_the_naive_form_where_nothing_underflows(denominator):
    obs, index, u = 0.5 * normal(20, 3), torch.arange(20) % 4, uniform(20)
    stable, naive = (
        contrastive(denominator=denominator),
        contrastive(denominator=denominator, numerics="naive"),
    )
    a, b = (m.contrast(m.logits(obs), index, u) for m in (stable, naive))
    close(a.ratio, b.ratio.detach(), rtol=0, atol=1e-5)
    assert (a.ratio > 1e-3).all()


def test_log_sum_exp_stays_informative_where_the_naive_form_saturates():
    index, u = torch.tensor([0, 0, 1, 1]), torch.zeros(4)
    distance = torch.tensor(
        [[0.0, 400, 300, 350], [400, 0, 300, 350], [300, 300, 0, 200], [350, 350, 200, 0]]
    )
    results = {}
    for numerics in ("logsumexp", "naive"):
        logits = (-distance).requires_grad_()
        contrast = contrastive(numerics=numerics).contrast(logits, index, u)
        (grad,) = torch.autograd.grad(contrast.log_ratio.sum(), logits)
        results[numerics] = contrast.log_ratio.detach(), grad
    log_ratio, grad = results["logsumexp"]
    close(log_ratio, [-100, -100, 0, 0], atol=1e-5)  # -400 + 300: the nearest negative rules
    close(grad[0], [0, 1, -1, 0], atol=1e-5)
    log_ratio, grad = results["naive"]
    close(log_ratio, [math.log(1e-6)] * 4)
    assert (grad == 0).all()


def test_partner_is_another_row_of_the_same_skill_uniformly():
    index = torch.tensor([2, 0, 2, 3, 0, 2, 2, 0, 2, 0])  # counts 4, 0, 5, 1 of five skills
    grid = 12  # divisible by 3 and 4: each partner must come up equally often
    counts = np.zeros((10, 10), int)
    for i in range(grid):
        for row, partner in enumerate(
            random_partner(index, 5, torch.full((10,), (i + 0.5) / grid)).tolist()
        ):
            counts[row, partner] += 1
    for row in range(10):
        mates = [j for j in range(10) if j != row and index[j] == index[row]]
        expected = np.zeros(10, int)
        expected[mates or [row]] = grid // max(len(mates), 1)  # itself where there is nobody else
        np.testing.assert_array_equal(counts[row], expected)


def test_partner_is_valid_at_the_ends_of_the_unit_interval():
    index = torch.arange(3000) % 3
    for u in (0.0, 1 - 2**-24, 1.0):  # the last: a product that rounds up
        partner = random_partner(index, 3, torch.full((3000,), u))
        assert (index[partner] == index).all()
        assert (partner != torch.arange(3000)).all()


def test_partners_are_drawn_for_each_anchor_by_itself():
    index = torch.zeros(200, dtype=torch.long)
    partner = random_partner(index, 1, uniform(200))
    assert len(partner.unique()) > 100  # 200 draws of 199: about 1 - 1/e of them differ


def test_masked_mean_by_hand():
    x = torch.tensor([1.0, 50.0, 3.0])
    assert masked_mean(x, torch.tensor([True, False, True])) == 2
    assert masked_mean(x, torch.zeros(3, dtype=torch.bool)) == 0


@pytest.mark.parametrize(
    "denominator, collapsed, perfect",
    [
        ("all", 1 / 1023, 1 / 63),  # 63 others of the skill stay in the denominator
        ("negatives_only", 1 / (1 + 960), 1.0),  # M = 1024 - 64 negatives
    ],
)
def test_bounds_of_the_ratio_reward(denominator, collapsed, perfect):
    index, module = torch.arange(1024) % 16, contrastive(denominator=denominator, skill_dim=16)
    logits = torch.zeros(1024, 1024)
    close(module.contrast(logits, index, uniform(1024)).ratio, np.full(1024, collapsed))
    logits[index.unsqueeze(1) != index] = -100
    close(module.contrast(logits, index, uniform(1024)).ratio, np.full(1024, perfect))


@pytest.mark.parametrize("metric", ["diag", "none", "cosine"])
def test_contrast_learns_skills_that_raw_distances_hide(metric):
    module = contrastive(metric, temperature=0.5, hidden_dim=32)
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    index = torch.arange(64) % 4
    # One coordinate tells, two are noise.
    obs = torch.cat([(index - 1.5).unsqueeze(1), 3 * normal(64, 2)], 1)
    before = module(obs, index)
    for _ in range(250):
        optimizer.zero_grad()
        masked_mean(-(after := module(obs, index)).log_ratio, after.valid).backward()
        optimizer.step()
    assert before.correct.mean() < 0.7
    assert after.correct.mean() > 0.95
    assert after.log_ratio.mean() > before.log_ratio.mean() + 1
    assert (module.metric > 0).all()
    if metric == "diag":
        assert not torch.allclose(module.metric, torch.ones(4), atol=1e-2)
