"""Running moments are those of all data, and a case worked by hand."""

import torch

from agent.parts.moments import RunningMoments
from tests.kit.written_out import close, moments_of, normal

torch.set_num_threads(1)


def test_running_moments_are_those_of_all_data_and_a_tiny_prior():
    moments, seen = RunningMoments(), []
    for i, shape in enumerate([(3, 2), (7,), (2, 2, 2), (50, 3)]):
        x = 3 * normal(*shape, seed=i) + i
        moments.update(x)
        seen.append(x.flatten().tolist())
        mean, var = moments_of(seen)
        close(moments.mean, [mean])
        close(moments.var, [var])
        close(moments.count, [1e-4 + sum(map(len, seen))])


def test_running_moments_by_hand():
    moments = RunningMoments()
    assert (moments.mean.item(), moments.var.item()) == (0, 1)
    moments.update(torch.tensor([1.0, 3.0]))  # mean 2, unbiased variance 2; the prior weighs 1e-4
    close(moments.mean, [2], rtol=2e-4)
    close(moments.var, [2], rtol=2e-4)
    # Mean (2*2 + 2*5)/4; variance (2*2 + 2*0 + 3^2 * 2*2/4)/4 = 13/4.
    moments.update(torch.tensor([[5.0], [5.0]]))
    close(moments.mean, [3.5], rtol=2e-4)
    close(moments.var, [3.25], rtol=2e-4)


def test_running_moments_start_from_a_variance_of_one_with_weight_1e_4():
    moments = RunningMoments()
    moments.update(torch.zeros(4))
    close(moments.var, [1e-4 / 4.0001], atol=0)
