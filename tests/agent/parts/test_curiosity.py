"""RND equals its networks written out as loops over plain floats."""

import math
import statistics

import torch

from agent.parts.curiosity import RND
from tests.kit.written_out import close, column, normal

torch.set_num_threads(1)


def mlp_loop(net, row):
    """Linear layers with ReLU between them, neuron by neuron."""
    layers = [m for m in net if isinstance(m, torch.nn.Linear)]
    for depth, layer in enumerate(layers):
        row = [
            sum(w * x for w, x in zip(weights, row)) + b
            for weights, b in zip(layer.weight.tolist(), layer.bias.tolist())
        ]
        if depth < len(layers) - 1:
            row = [max(v, 0.0) for v in row]
    return row


def normalised_loop(x):
    """Each column minus its batch mean, over its batch deviation (biased, 1e-5 added), clamped to
    +-5."""
    columns = []
    for c in zip(*x):
        mean, deviation = statistics.fmean(c), math.sqrt(statistics.pvariance(c) + 1e-5)
        columns.append([min(max((v - mean) / deviation, -5.0), 5.0) for v in c])
    return list(zip(*columns))


def test_rnd_error_equals_normalisation_clamp_and_two_networks_written_out():
    torch.manual_seed(0)
    rnd = RND(3, hidden_dim=8, out_dim=4)
    for layer in [*rnd.predictor[::2], *rnd.target[::2]]:  # biases start at zero: let them count
        torch.nn.init.normal_(layer.bias)
    x = 7 + 2 * normal(40, 3)
    x[0] = 1000  # 40 rows can put one of them sqrt(39) = 6.2 deviations out: the clamp acts
    rows = normalised_loop(x.tolist())
    assert max(map(max, rows)) == 5
    expected = [
        [(p - t) ** 2 for p, t in zip(mlp_loop(rnd.predictor, row), mlp_loop(rnd.target, row))]
        for row in rows
    ]
    close(rnd(x), expected, atol=1e-5)
    close(rnd.eval()(x), expected, atol=1e-5)  # batch statistics always


def test_rnd_error_by_hand():
    rnd = RND(1, hidden_dim=1, out_dim=1)
    for net, last in ((rnd.predictor, 1.0), (rnd.target, 3.0)):
        for layer, weight in zip(net[::2], (1.0, 1.0, last)):
            torch.nn.init.constant_(layer.weight, weight)
    # 4 and 6 normalise to -1 and 1 (up to 1e-5); ReLU leaves 0 and 1; (1 * 1 - 3 * 1)^2 = 4
    close(rnd(column([4, 6])), [[0.0], [4.0]])


def test_rnd_target_is_frozen_and_gets_no_gradient():
    rnd = RND(3, hidden_dim=8, out_dim=4)
    rnd(normal(10, 3)).mean().backward()
    assert all(p.grad is None and not p.requires_grad for p in rnd.target.parameters())
    assert all(p.grad.abs().sum() > 0 for p in rnd.predictor.parameters())


def test_rnd_error_falls_on_what_it_trains_on_and_stays_high_elsewhere():
    torch.manual_seed(0)
    rnd = RND(2, hidden_dim=32, out_dim=16)
    t = torch.linspace(-1, 1, 32).unsqueeze(1)
    # Same mean and deviation, other diagonal.
    seen, unseen = (torch.cat([t, t], 1), torch.cat([t, -t], 1))
    before = rnd(seen).mean().item()
    optimizer = torch.optim.Adam(rnd.predictor.parameters(), 3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        rnd(seen).mean().backward()
        optimizer.step()
    assert rnd(seen).mean() < before / 10
    assert rnd(unseen).mean() > 5 * rnd(seen).mean()
