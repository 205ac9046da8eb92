"""An update as one function of tensors, which torch can compile or record (recorded.py)."""

from __future__ import annotations

import contextlib
import sys
import types
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from agent.base import Adam, Metrics, Trainable
from agent.parts.draws import Draw, Draws
from replay_buffer import Batch
from utils import UserError, first_line

Update = Callable[[list[Tensor]], Metrics]  # batches and random numbers -> metrics; moves weights


class Job(NamedTuple):
    """An update on batches, what it moves, and what it draws random numbers from."""

    owners: dict[str, Trainable]  # by the names that a warning gives them
    sources: tuple[Draws | None, ...]
    update: Callable[[Sequence[Batch]], Metrics]
    device: torch.device

    @property
    def optimizers(self) -> list[Adam]:
        return [each for owner in self.owners.values() for each in owner.optimizers.values()]


class Capture(ABC):
    """Made at the first call. Weights, statistics and generators are then as if nothing had
    happened before it, so that a run that is continued does what an uninterrupted one does."""

    key: str  # the setting that asks for it

    def __init__(self, *, required: bool = True) -> None:
        self.required = required  # otherwise what cannot be made runs as it stands
        self.choice = "not yet"  # what was decided, in words: for config.yaml and result.json
        self.wanted: list[tuple[Draws, list[Draw]]] = []  # what an update draws, and from where
        self.run: Update | None = None
        # While it is being made a signal may break it off: nothing has been moved yet, and it can
        # take minutes.
        self.making = False

    def __call__(self, job: Job, batches: Sequence[Batch]) -> Metrics:
        if self.run is None:
            self.wanted = self.note(job, batches)
            self.run = self.make(job, batches)
        drawn = [source.draw(each) for source, noted in self.wanted for each in noted]
        return self.run([*(field for batch in batches for field in batch), *drawn])

    @abstractmethod
    def make(self, job: Job, batches: Sequence[Batch]) -> Update: ...

    def go_on_plainly(self, warning: str, reason: str) -> None:
        self.choice = f"plain ({reason})"
        print(f"warning: {warning}", file=sys.stderr, flush=True)

    @staticmethod
    def note(job: Job, batches: Sequence[Batch]) -> list[tuple[Draws, list[Draw]]]:
        """What an update draws, found by one that is taken back."""
        kept = snapshot(job)
        with contextlib.ExitStack() as notes:
            wanted = [(s, notes.enter_context(s.noting())) for s in job.sources if s is not None]
            job.update(batches)
        restore(kept)
        return wanted

    def as_function(self, job: Job, count: int) -> Update:
        """An update on `count` batches."""
        width = len(Batch._fields)
        sources = [(source, len(noted)) for source, noted in self.wanted]

        def update(tensors: list[Tensor]) -> Metrics:
            at = count * width
            for source, drawn in sources:
                source.hand_out(tensors[at : at + drawn])
                at += drawn
            batches = [Batch(*tensors[i * width : (i + 1) * width]) for i in range(count)]
            metrics = job.update(batches)
            for source, _ in sources:
                source.hand_out(None)
            return metrics

        return update


def snapshot(job: Job) -> list[tuple[Tensor, Tensor]]:
    """All that an update moves, and copies of it."""
    owners = job.owners.values()
    tensors = [t for owner in owners for t in (*owner.parameters(), *owner.buffers())]
    for optimizer in job.optimizers:
        tensors += optimizer.prepare()
    return [(t, t.detach().clone()) for t in tensors]


@torch.no_grad()
def restore(kept: list[tuple[Tensor, Tensor]]) -> None:
    for tensor, copy in kept:
        tensor.copy_(copy)


def with_own_code(function: Callable) -> Callable:
    """The same function with a code object of its own. torch.compile keeps what it compiled by code
    object, and checks before each call which of them fits; unchecked, two learners must not share."""
    copied = function.__code__.replace()
    twin = types.FunctionType(copied, function.__globals__, closure=function.__closure__)
    assert twin.__code__ is not function.__code__
    return twin


class Compiled(Capture):
    """torch.compile. The same numbers up to rounding, which adds up over a run.

    An update is a function of tensors whose shapes never change (which a recorded graph relies on too,
    recorded.py), so torch need not check that before each call, which takes about a tenth of a small
    update.
    """

    key = "compile"
    backend: str | Callable = "inductor"
    unchecked: dict[str, Any] = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}

    def make(self, job: Job, batches: Sequence[Batch]) -> Update:
        torch._dynamo.config.trace_autograd_ops = True  # losses and their gradients in one graph
        # The compiler's remarks about its own code are nothing that a user could mend.
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\._inductor")
        plain = with_own_code(self.as_function(job, len(batches)))
        options = dict(self.unchecked)
        if self.backend == "inductor":
            # On a CPU what calls the kernels is compiled too: it saves a tenth of a small update, and
            # half of the C++ compiler's work, which then reads its headers a few times, not once a kernel.
            options |= {"size_asserts": False, "cpp_wrapper": job.device.type == "cpu"}
        compiled = torch.compile(
            plain, fullgraph=True, dynamic=False, backend=self.backend, options=options
        )

        def first(tensors: list[Tensor]) -> Metrics:
            self.making = True
            try:
                metrics = compiled(tensors)
                self.run, self.choice = compiled, "compiled"
                return metrics
            except (
                torch._dynamo.exc.TorchDynamoException,
                torch._inductor.exc.InductorError,
            ) as error:
                reason = f"{type(error).__name__}: {first_line(error)}"
                if self.required:
                    raise UserError(
                        f"this update cannot be compiled ({reason}); "
                        "give compile=false, or install a C++ compiler if it is that"
                    ) from error
            finally:
                self.making = False
            self.run = plain
            self.go_on_plainly(
                f"this update cannot be compiled ({reason}); it runs without that", reason
            )
            return plain(tensors)

        return first
