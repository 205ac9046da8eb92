"""Optimisers: torch's Adam, whichever way its step is taken; slow copies follow fast ones."""

import copy

import pytest
import torch
from torch import nn

from agent.parts.optim import Adam, descend, follow


def two_nets():
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    return nets


def loss(net, seed):
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
    return net(x).square().mean()


@pytest.mark.parametrize("written_out", [False, True])
def test_a_step_is_torchs_adam(written_out):
    """The step that compiled updates take is written out in agent/parts/optim.py."""
    nets = two_nets()
    ours = Adam(nets[0].parameters(), 0.1, 1e-3)
    theirs = torch.optim.Adam(nets[1].parameters(), 0.1, eps=1e-3)
    ours.prepare()
    for seed in range(4):
        if written_out:
            ours._step_traced(torch.autograd.grad(loss(nets[0], seed), ours.parameters))
        else:
            descend(loss(nets[0], seed), ours)
        theirs.zero_grad()
        loss(nets[1], seed).backward()
        theirs.step()
        if seed == 1:  # weights loaded between two steps are the ones that the next step moves
            for net in nets:
                net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()})
    for a, b in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(a, b)


def test_steps_of_both_kinds_continue_each_other():
    """A compiled run takes torch's own step whenever it measures the conflict of single samples."""
    nets = two_nets()
    mixed, plain = (Adam(net.parameters(), 0.1) for net in nets)
    mixed.prepare()
    for seed in range(4):
        if seed % 2:
            mixed._step_traced(torch.autograd.grad(loss(nets[0], seed), mixed.parameters))
        else:
            descend(loss(nets[0], seed), mixed)
        descend(loss(nets[1], seed), plain)
    for a, b in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(a, b)


def test_a_loss_moves_only_what_it_reaches_and_only_the_optimisers_that_are_named():
    nets = two_nets()
    named, other = Adam([*nets[0].parameters(), extra := nn.Parameter(torch.ones(2))], 0.1), nets[1]
    before = copy.deepcopy(other.state_dict())
    descend(loss(nn.Sequential(nets[0], nn.Linear(1, 1)), 0) + loss(other, 0), named)
    assert torch.equal(extra, torch.ones(2)) and not named.state[extra]
    assert all(torch.equal(v, before[k]) for k, v in other.state_dict().items())
    assert all(p.grad is None for p in other.parameters())


def test_preparing_changes_no_step():
    nets = two_nets()
    prepared, plain = (Adam(net.parameters(), 0.1) for net in nets)
    assert all((tensor == 0).all() for tensor in prepared.prepare())
    for optimizer, net in ((prepared, nets[0]), (plain, nets[1])):
        descend(loss(net, 0), optimizer)
    assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters()))


def test_a_slow_copy_goes_a_share_of_the_way():
    slow, fast = nn.Linear(2, 2), nn.Linear(2, 2)
    expected = [a + 0.25 * (b - a) for a, b in zip(slow.parameters(), fast.parameters())]
    follow(slow, fast, 0.25)
    for a, b in zip(slow.parameters(), expected, strict=True):
        torch.testing.assert_close(a, b)
