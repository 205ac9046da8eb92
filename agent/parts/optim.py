"""torch's Adam, with gradients given as a list and a step that torch.compile can trace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


class Adam(torch.optim.Adam):
    """`step_along(gradients)` is what everything here calls.

    torch's own `step` interrupts a compiled graph on purpose, so a compiled update takes the same
    formulas written out (Kingma & Ba 2015, Algorithm 1); tests hold the two together.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, eps: float = 1e-8):
        super().__init__(parameters, lr=lr, eps=eps)

    @property
    def parameters(self) -> list[nn.Parameter]:
        return self.param_groups[0]["params"]

    def step_along(self, grads: Sequence[Tensor | None]) -> None:
        """One step; a parameter whose gradient is None stays where it is."""
        if torch.compiler.is_compiling():
            self._step_traced(grads)
            return
        # One kernel for all parameters, where the device has it; the meta device has none.
        self.param_groups[0]["fused"] = self.parameters[0].device.type != "meta"
        for parameter, grad in zip(self.parameters, grads, strict=True):
            parameter.grad = grad
        self.step()

    def prepare(self) -> list[Tensor]:
        """Step counts and moments of all parameters, made now if no step has made them yet."""
        for parameter in self.parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "step": torch.zeros((), device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        return [tensor for p in self.parameters for tensor in self.state[p].values()]

    @torch.no_grad()
    def _step_traced(self, grads: Sequence[Tensor | None]) -> None:
        group = self.param_groups[0]
        (beta1, beta2), lr, eps = group["betas"], group["lr"], group["eps"]
        moving = [(p, g) for p, g in zip(self.parameters, grads, strict=True) if g is not None]
        torch._foreach_add_([self.state[p]["step"] for p, _ in moving], 1)
        step = self.state[moving[0][0]]["step"]  # the same for all of them
        corrections = torch.stack([1 - beta1**step, (1 - beta2**step).sqrt()])
        # The sum over one row changes nothing but the generated code: without it both powers would
        # be computed again for every weight (1.5 ms instead of 0.8 at batch 256).
        first, second = corrections.unsqueeze(0).cumsum(0)[0].unbind()
        for parameter, grad in moving:
            mean, square = self.state[parameter]["exp_avg"], self.state[parameter]["exp_avg_sq"]
            mean.lerp_(grad, 1 - beta1)
            square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            parameter.sub_(lr / first * mean / (square.sqrt() / second + eps))


class Reach:
    """Tensors that losses are functions of besides parameters: what an encoder gave. Inside `with`,
    the gradients of every loss that is descended are added up here, so that whoever writes a loss
    need not know of the encoder.
    """

    now: Reach | None = None  # the one that is open

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.grads: list[Tensor | None] = []

    def add(self, tensor: Tensor) -> None:
        self.tensors.append(tensor)
        self.grads.append(None)

    def __enter__(self) -> Reach:
        Reach.now = self
        return self

    def __exit__(self, *_: object) -> None:
        Reach.now = None

    def collect(self, grads: Sequence[Tensor | None]) -> None:
        for i, grad in enumerate(grads):
            if grad is not None:
                before = self.grads[i]
                self.grads[i] = grad if before is None else before + grad


def descend(loss: Tensor, *optimizers: Adam) -> None:
    """One step of each optimiser down one loss."""
    parameters: list[Tensor] = [p for optimizer in optimizers for p in optimizer.parameters]
    reach = Reach.now
    wanted = parameters if reach is None else parameters + reach.tensors
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    if reach is not None:
        reach.collect(found[len(parameters) :])
    grads = iter(found[: len(parameters)])
    for optimizer in optimizers:
        optimizer.step_along([next(grads) for _ in optimizer.parameters])


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, tau: float) -> None:
    """Exponential moving average: slow += tau * (fast - slow)."""
    torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), tau)
