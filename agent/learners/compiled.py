"""An update as one function of tensors: a function that torch compiles, or a CUDA graph that is
replayed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from agent.base import Metrics, Objective, Trainable
from agent.parts import draws
from replay_buffer import Batch
from utils import UserError, first_line

Update = Callable[[list[Tensor]], Metrics]  # batches and random numbers -> metrics; moves weights


class Capture:
    """Made at the first call. Weights, statistics and generators are then as if nothing had
    happened before it, so that a run that is continued does what an uninterrupted one does."""

    def __init__(self):
        self.wanted: list[draws.Draw] = []
        self.run: Update | None = None

    def __call__(
        self, learner: Trainable, objective: Objective, batches: Sequence[Batch]
    ) -> Metrics:
        if self.run is None:
            self.wanted = self.note(learner, objective, batches)
            self.run = self.make(learner, objective, batches)
        return self.run(
            [*(field for batch in batches for field in batch), *(draw() for draw in self.wanted)]
        )

    def make(self, learner: Trainable, objective: Objective, batches: Sequence[Batch]) -> Update:
        raise NotImplementedError

    @staticmethod
    def note(
        learner: Trainable, objective: Objective, batches: Sequence[Batch]
    ) -> list[draws.Draw]:
        """What an update draws, found by one that is taken back."""
        kept = snapshot(learner, objective)
        with draws.noting() as wanted:
            learner.update(objective, batches)
        restore(kept)
        return wanted


def snapshot(*owners: Trainable) -> list[tuple[Tensor, Tensor]]:
    """All that an update moves, and copies of it."""
    tensors = [t for owner in owners for t in (*owner.parameters(), *owner.buffers())]
    tensors += [
        t
        for owner in owners
        for optimizer in owner.optimizers.values()
        for t in optimizer.prepare()
    ]
    return [(t, t.detach().clone()) for t in tensors]


@torch.no_grad()
def restore(kept: list[tuple[Tensor, Tensor]]) -> None:
    for tensor, copy in kept:
        tensor.copy_(copy)


def as_function(learner: Trainable, objective: Objective, count: int) -> Update:
    """An update on `count` batches."""
    width = len(Batch._fields)

    def update(tensors: list[Tensor]) -> Metrics:
        draws.GIVEN.clear()
        draws.GIVEN.extend(tensors[count * width :])
        metrics = learner.update(
            objective, [Batch(*tensors[i * width : (i + 1) * width]) for i in range(count)]
        )
        assert not draws.GIVEN, "an update drew less than when it was noted"
        return metrics

    return update


class Compiled(Capture):
    """compile=true: torch.compile. The same numbers up to rounding, which adds up over a run."""

    backend = "inductor"

    def make(self, learner: Trainable, objective: Objective, batches: Sequence[Batch]) -> Update:
        torch._dynamo.config.trace_autograd_ops = True  # losses and their gradients in one graph
        compiled = torch.compile(
            as_function(learner, objective, len(batches)),
            fullgraph=True,
            dynamic=False,
            backend=self.backend,
        )

        def update(tensors: list[Tensor]) -> Metrics:
            try:
                return compiled(tensors)
            except (
                torch._dynamo.exc.TorchDynamoException,
                torch._inductor.exc.InductorError,
            ) as error:
                raise UserError(
                    f"compile=true does not work here ({type(error).__name__}: {first_line(error)}); "
                    "leave it out, or install a C++ compiler if it is that"
                ) from error

        return update


class Graphed(Capture):
    """cuda_graph: the kernels of an update, recorded once and launched together. The same numbers
    as without it."""

    WARM_UPS = 3  # libraries choose their kernels and take their memory before the recording

    def __init__(self, *, required: bool):
        super().__init__()
        self.required = required  # otherwise what cannot be recorded runs as it stands

    def __call__(
        self, learner: Trainable, objective: Objective, batches: Sequence[Batch]
    ) -> Metrics:
        places = [
            t.data_ptr()
            for owner in (learner, objective)
            for optimizer in owner.optimizers.values()
            for t in (*optimizer.parameters, *optimizer.prepare())
        ]
        if (
            self.run is None or places != self.places
        ):  # a recording writes where it wrote when it was made
            self.run, self.places = None, places
        return super().__call__(learner, objective, batches)

    def make(self, learner: Trainable, objective: Objective, batches: Sequence[Batch]) -> Update:
        update, kept = as_function(learner, objective, len(batches)), snapshot(learner, objective)
        try:
            return self.record(update, batches)
        except RuntimeError as error:
            if self.required:
                raise UserError(
                    f"cuda_graph=true does not work here ({first_line(error)}); use cuda_graph=false"
                ) from error
            print(
                f"warning: no CUDA graph ({first_line(error)}); the update runs without it",
                file=sys.stderr,
                flush=True,
            )
            return update
        finally:
            restore(kept)

    def record(self, update: Update, batches: Sequence[Batch]) -> Update:
        inputs = [field.clone() for batch in batches for field in batch] + [
            draw.example() for draw in self.wanted
        ]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(self.WARM_UPS):
                update(inputs)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            metrics = update(inputs)
            values = torch.stack([value.float() for value in metrics.values()])

        def replay(tensors: list[Tensor]) -> Metrics:
            torch._foreach_copy_(inputs, tensors)
            graph.replay()
            return dict(zip(metrics, values.clone().unbind(), strict=True))

        return replay
