"""An update that is recorded once and replayed, as a CUDA graph; and the check that it is the same.

A recording is believed only after it has been seen to do what the plain update does. Two updates are
made plainly, the same two plainly again, and the same two by the recording, each time from the same
state and on the same inputs. All weights, moments, statistics and metrics must then agree.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from agent.base import Metrics
from agent.learners.compiled import Capture, Job, Update, restore, snapshot
from replay_buffer import Batch
from utils import UserError, first_line

# How far a recorded number may lie from the plain one: RTOL of its size and ATOL, and four times
# what two plain updates differ by among themselves, which on a GPU is not always nothing.
RTOL, ATOL, OWN = 1e-4, 1e-6, 4


class Recorded(Capture):
    """An update that is checked against the plain one before it is used."""

    key = "cuda_graph"

    def __init__(self, *, required: bool):
        super().__init__(required=required)
        self.places: list[int] = []  # where weights and moments were when it was recorded

    @abstractmethod
    def record(self, update: Update, inputs: list[Tensor]) -> Update:
        """The update, recorded on these tensors. It may be called with others of their shapes."""

    def __call__(self, job: Job, batches: Sequence[Batch]) -> Metrics:
        places = [t.data_ptr() for o in job.optimizers for t in (*o.parameters, *o.prepare())]
        if places != self.places:  # a recording writes where it wrote when it was made
            self.run, self.places = None, places
        return super().__call__(job, batches)

    def make(self, job: Job, batches: Sequence[Batch]) -> Update:
        for optimizer in job.optimizers:  # what torch's Adam needs in a graph
            optimizer.param_groups[0]["capturable"] = job.device.type == "cuda"
        update = self.as_function(job, len(batches))
        inputs = [field.clone() for batch in batches for field in batch]
        inputs += [source.example(each) for source, noted in self.wanted for each in noted]
        kept = snapshot(job)
        try:
            recorded = self.record(update, [each.clone() for each in inputs])
            restore(kept)
            differs = difference(update, recorded, inputs, named(job))
        except RuntimeError as error:
            return self.plainly(update, first_line(error))
        finally:
            restore(kept)
        if differs:
            return self.plainly(update, f"it is not the plain update: {differs}")
        self.choice = "recorded"
        return recorded

    def plainly(self, update: Update, reason: str) -> Update:
        """Go on without the recording, or not at all if it was asked for."""
        if self.required:
            raise UserError(f"cuda_graph=true does not work here ({reason}); use cuda_graph=false")
        self.go_on_plainly(f"no CUDA graph ({reason}); the update runs without it", reason)
        return update


class Graphed(Recorded):
    """cuda_graph: the kernels of an update, recorded once and launched together."""

    WARM_UPS = 3  # libraries choose their kernels and take their memory before the recording

    def record(self, update: Update, inputs: list[Tensor]) -> Update:
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


class Rehearsed(Recorded):
    """The same on a CPU, which records nothing: the inputs are copied to where they were, and the
    update is made there. It is for tests, and for `make gpu-check` where there is no GPU."""

    def record(self, update: Update, inputs: list[Tensor]) -> Update:
        def replay(tensors: list[Tensor]) -> Metrics:
            torch._foreach_copy_(inputs, tensors)
            return update(inputs)

        return replay


def named(job: Job) -> dict[str, Tensor]:
    """Weights, statistics and moments, by names that a reader of a warning can look up."""
    found: dict[str, Tensor] = {}
    for role, owner in job.owners.items():
        found |= {f"{role}.{name}": tensor for name, tensor in owner.named_parameters()}
        found |= {f"{role}.{name}": tensor for name, tensor in owner.named_buffers()}
        names = {id(tensor): name for name, tensor in owner.named_parameters()}
        for optimizer in owner.optimizers.values():
            optimizer.prepare()
            for parameter in optimizer.parameters:
                for kind, tensor in optimizer.state[parameter].items():
                    found[f"{role}.{names[id(parameter)]} ({kind})"] = tensor
    return found


def difference(
    plain: Update, recorded: Update, inputs: list[Tensor], state: dict[str, Tensor]
) -> str:
    """What a recording does otherwise than the plain update, in a few words; empty if nothing. The
    second update has other inputs than the first, so that a recording that does not look at them
    is seen."""
    turned = [each.flip(0) if each.ndim else each for each in inputs]
    others = [0.5 * each if each.is_floating_point() else each for each in turned]
    kept = [(tensor, tensor.detach().clone()) for tensor in state.values()]

    def outcome(update: Update) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for number, given in enumerate((inputs, others), 1):
            metrics = update([each.clone() for each in given])
            found |= {
                f"{name} of update {number}": v.detach().clone() for name, v in metrics.items()
            }
        found |= {name: tensor.detach().clone() for name, tensor in state.items()}
        restore(kept)
        return found

    first, second, third = outcome(plain), outcome(plain), outcome(recorded)
    if first.keys() != third.keys():
        return f"it has other metrics: {', '.join(sorted(first.keys() ^ third.keys()))}"
    for name, wanted in first.items():
        again, got = second[name].double(), third[name].double()
        wanted = wanted.double()
        allowed = ATOL + RTOL * wanted.abs() + OWN * (wanted - again).abs()
        wrong = ~((got - wanted).abs() <= allowed) & ~(got.isnan() & wanted.isnan())
        if wrong.any():
            most = (got - wanted).abs().nan_to_num(torch.inf).max()
            return f"{name} differs in {int(wrong.sum())} of {wrong.numel()} numbers, by up to {most:.2g}"
    return ""
