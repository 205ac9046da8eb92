"""Where the losses of several reward streams become one step of an optimiser, and how often their
gradients oppose each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from agent.base import Adam, Metrics, descend
from agent.learners.resolvers import FAMO
from agent.learners.surgery import Surgery, flat_grad, similarity, split_grad
from agent.parts.optim import Reach


def descend_streams(
    losses: dict[str, Tensor],
    optimizer: Adam,
    surgery: Surgery,
    weights: Tensor | None,
    label: str,
    losses_now: Callable[[], dict[str, Tensor]],
) -> Metrics:
    """One optimiser step: plainly for one loss, through the surgery for several (Algorithm 1).
    `losses_now` are the same losses with the parameters as they are when it is called; metrics are
    named after `label`."""
    if len(losses) == 1:
        (loss,) = losses.values()
        descend(loss, optimizer)
        return {}
    if isinstance(surgery, FAMO):
        descend(surgery(losses, weights), optimizer)
        with torch.no_grad():
            surgery.settle(losses, losses_now())
        return surgery.shares(f"{label}_share")
    if (reach := Reach.now) is not None:
        # Surgery is about the critic's own weights (Algorithm 1); the encoder gets the sum.
        stacked = torch.stack(list(losses.values()))
        total = stacked.sum() if weights is None else (weights * stacked).sum()
        found = torch.autograd.grad(total, reach.tensors, retain_graph=True, allow_unused=True)
        reach.collect(found)
    grads = {
        name: flat_grad(loss, optimizer.parameters, retain_graph=i < len(losses))
        for i, (name, loss) in enumerate(losses.items(), 1)
    }
    optimizer.step_along(split_grad(surgery(grads, weights), optimizer.parameters))
    if len(grads) != 2:
        return {}
    return {f"{label}/{k}": v for k, v in similarity(*grads.values()).items()}


def opposed_samples(
    critic: nn.Module,
    x: Tensor,
    action: Tensor,
    y1: Tensor,
    y2: Tensor,
    *,
    columns: Sequence[list[int]],
) -> Tensor:
    """The paper's conflict ratio: the share of samples whose two critic gradients have a negative
    product. `columns` of the critic serve the two targets."""
    parameters = {k: p.detach() for k, p in critic.named_parameters()}

    def loss(parameters, x, action, y, column):
        q1, q2 = torch.func.functional_call(critic, parameters, (x, action))
        return ((q1[column] - y).square() + (q2[column] - y).square()).sum()

    def product(x, action, y1, y2):
        g1 = torch.func.grad(loss)(parameters, x, action, y1, columns[0])
        g2 = torch.func.grad(loss)(parameters, x, action, y2, columns[1])
        return torch.stack([(g1[k] * g2[k]).sum() for k in g1]).sum()

    # A chunk of per-sample gradients is held at once: 8 x 2 x 8 MB at the paper's size.
    products = torch.func.vmap(product, chunk_size=8)(x, action, y1, y2)
    return (products < 0).float().mean()
