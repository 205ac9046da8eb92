"""Backward passes of the small networks here, written out.

autograd goes through a network once for every loss, and pays for every small operation. Here a
whole MLP is one step of its graph, and the losses of a twin critic share what they have in common.
autograd is the tests' oracle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def relu_backward_(grad: Tensor, output: Tensor) -> Tensor:
    """In place: zero where a ReLU that gave `output` was shut."""
    return torch.ops.aten.threshold_backward.grad_input(grad, output, 0, grad_input=grad)


class LinearReLU(torch.autograd.Function):
    """Linear layers with ReLU between them: apply(x, weight, bias, weight, bias, ...)."""

    @staticmethod
    def forward(ctx, x: Tensor, *parameters: Tensor) -> Tensor:
        weights, biases, inputs = parameters[::2], parameters[1::2], [x]
        for weight, bias in zip(weights[:-1], biases[:-1]):
            inputs.append(F.linear(inputs[-1], weight, bias).relu_())
        ctx.save_for_backward(*weights, *inputs)
        return F.linear(inputs[-1], weights[-1], biases[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        saved, count = ctx.saved_tensors, len(ctx.saved_tensors) // 2
        weights, inputs = saved[:count], saved[count:]
        found: list[Tensor | None] = []
        for i in reversed(range(len(weights))):
            found += (
                [grad.sum(0), grad.t() @ inputs[i]]
                if ctx.needs_input_grad[1 + 2 * i]
                else [None, None]
            )
            if i:
                grad = relu_backward_(grad @ weights[i], inputs[i])
        return grad @ weights[0] if ctx.needs_input_grad[0] else None, *reversed(found)


# ---------------------------------------------------------------------------- actor and twin critic


class TraceMLP(NamedTuple):
    """What an MLP says, and the input of each of its linear layers."""

    layers: list[nn.Linear]
    inputs: list[Tensor]
    out: Tensor

    def slopes(self, seed: Tensor) -> list[Tensor]:
        """Derivatives over the output of each linear layer, from those over the MLP's (B, out)."""
        found = [seed]
        for layer, x in zip(reversed(self.layers[1:]), reversed(self.inputs[1:]), strict=True):
            found.append(relu_backward_(found[-1] @ layer.weight, x))
        return found[::-1]

    def write(
        self, slopes: Sequence[Tensor], parts: Iterator[Tensor], factor: Tensor | None = None
    ) -> None:
        """Gradients of weights and biases, where each row's slope still has a factor (B, 1)."""
        for slope, x in zip(slopes, self.inputs, strict=True):
            slope = slope if factor is None else slope * factor
            torch.mm(slope.t(), x, out=next(parts))
            torch.sum(slope, 0, out=next(parts))


class TraceTrunk(NamedTuple):
    """What a trunk (linear, layer norm, tanh) says, and what its backward pass needs."""

    layers: tuple[nn.Linear, nn.LayerNorm]
    x: Tensor
    linear: Tensor
    mean: Tensor
    rstd: Tensor
    out: Tensor

    def slope(self, grad: Tensor, *, weights: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Derivatives over the linear layer's output, and with `weights` over the norm's scale and
        shift."""
        norm = self.layers[1]
        grad = torch.ops.aten.tanh_backward(grad, self.out)
        wanted = [True, weights, weights]
        return torch.ops.aten.native_layer_norm_backward(
            grad,
            self.linear,
            norm.normalized_shape,
            self.mean,
            self.rstd,
            norm.weight,
            norm.bias,
            wanted,
        )

    def write(self, grad: Tensor, parts: Iterator[Tensor]) -> None:
        slope, scale, shift = self.slope(grad, weights=True)
        torch.mm(slope.t(), self.x, out=next(parts))
        torch.sum(slope, 0, out=next(parts))
        next(parts).copy_(scale)
        next(parts).copy_(shift)


def trace_mlp(net, x: Tensor) -> TraceMLP:
    inputs = [x]
    for layer in net.linears[:-1]:
        inputs.append(F.linear(inputs[-1], layer.weight, layer.bias).relu_())
    last = net.linears[-1]
    return TraceMLP(net.linears, inputs, F.linear(inputs[-1], last.weight, last.bias))


def trace_trunk(trunk: nn.Sequential, x: Tensor) -> TraceTrunk:
    first, norm, _ = trunk
    linear = F.linear(x, first.weight, first.bias)
    out, mean, rstd = torch.native_layer_norm(
        linear, norm.normalized_shape, norm.weight, norm.bias, norm.eps
    )
    return TraceTrunk((first, norm), x, linear, mean, rstd, out.tanh_())


class TraceActor(NamedTuple):
    trunk: TraceTrunk
    head: TraceMLP
    mean: Tensor

    def write(self, grad: Tensor, parts: Iterator[Tensor]) -> None:
        """The gradient over all weights, from that over the mean action."""
        slopes = self.head.slopes(torch.ops.aten.tanh_backward(grad, self.mean))
        self.trunk.write(slopes[0] @ self.head.layers[0].weight, parts)
        self.head.write(slopes, parts)


class TraceTwin(NamedTuple):
    trunk: TraceTrunk
    heads: tuple[TraceMLP, TraceMLP]
    action_in_trunk: bool

    @property
    def q(self) -> tuple[Tensor, Tensor]:
        """(B, columns) each."""
        return self.heads[0].out, self.heads[1].out

    def write(
        self, slopes: Sequence[Tensor], column: int, shared: dict, parts: Iterator[Tensor]
    ) -> None:
        """The gradient over all weights of a loss with derivatives `slopes`, (B, 1) for each head,
        over one column.

        Losses on the same column differ by one factor for each row and head: what is pulled back
        through the heads is kept in `shared` for the next one.
        """
        width = self.trunk.out.shape[1]
        if column not in shared:
            seed = torch.zeros_like(self.q[0])
            seed[:, column] = 1
            pulled = [head.slopes(seed) for head in self.heads]
            shared[column] = [
                (slope, slope[0] @ head.layers[0].weight[:, :width])
                for slope, head in zip(pulled, self.heads, strict=True)
            ]
        (_, first), (_, second) = shared[column]
        self.trunk.write((first * slopes[0]).addcmul_(second, slopes[1]), parts)
        for head, factor, (slope, _) in zip(self.heads, slopes, shared[column], strict=True):
            head.write(slope, parts, factor)

    def by_action(self, seeds: Sequence[Tensor], action_dim: int) -> Tensor:
        """dLoss / daction, from the derivatives (B, columns) over each head."""
        (a, b), (first, second) = (
            (head.slopes(seed)[0] for head, seed in zip(self.heads, seeds, strict=True)),
            (head.layers[0].weight for head in self.heads),
        )
        if self.action_in_trunk:
            slope, _, _ = self.trunk.slope(torch.addmm(a @ first, b, second), weights=False)
            return slope @ self.trunk.layers[0].weight[:, -action_dim:]
        return torch.addmm(a @ first[:, -action_dim:], b, second[:, -action_dim:])


def trace_actor(actor, x: Tensor) -> TraceActor:
    trunk = trace_trunk(actor.trunk, x)
    head = trace_mlp(actor.head, trunk.out)
    return TraceActor(trunk, head, head.out.tanh())


def trace_twin(critic, x: Tensor, action: Tensor) -> TraceTwin:
    both = critic.action_in_trunk
    trunk = trace_trunk(critic.trunk, torch.cat([x, action], -1) if both else x)
    h = trunk.out if both else torch.cat([trunk.out, action], -1)
    return TraceTwin(trunk, (trace_mlp(critic.q1, h), trace_mlp(critic.q2, h)), both)
