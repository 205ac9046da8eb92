"""What a run takes of the machine: its device, its threads, its memory."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

import torch

from utils import UserError, first_line, out_of_memory


def require_memory(replay: int) -> None:
    """The system hands out a replay of any size and kills the run when it has filled: better now
    than then."""
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if replay > have:
        raise MemoryError(
            f"the replay takes {replay / 1e9:.1f} GB, this machine has {have / 1e9:.1f} GB"
        )


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"device={name} is not known; choose from auto, cpu, cuda, cuda:N")
    if name.startswith("cuda"):
        if not torch.cuda.is_available():
            raise UserError(
                f"device={name}, but torch finds no CUDA device here; use device=cpu or device=auto"
            )
        if ":" in name and int(name[5:]) >= torch.cuda.device_count():
            raise UserError(
                f"device={name}, but there are {torch.cuda.device_count()} CUDA devices"
            )
    return torch.device(name)


def settle_machine(config: dict[str, Any]) -> tuple[dict[str, Any], torch.device]:
    """The config with the device and thread count that this run really uses."""
    device = pick_device(config["device"])
    if config["num_threads"]:
        torch.set_num_threads(config["num_threads"])
    torch.set_float32_matmul_precision("high" if config["tf32"] else "highest")
    return {**config, "device": str(device), "num_threads": torch.get_num_threads()}, device


@contextlib.contextmanager
def enough_memory(config: dict[str, Any]):
    """Out of memory becomes one line that says what would fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise UserError(
            f"out of memory ({first_line(error)}); what was written before is intact; give a smaller "
            f"replay.capacity ({config['replay']['capacity']} rows now), learner.batch_size "
            f"({config['learner']['batch_size']}) or learner.hidden_dim "
            f"({config['learner']['hidden_dim']})"
        ) from error
