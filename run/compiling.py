"""How an update runs: as it stands, compiled or recorded."""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch

from agent.learners.compiled import Capture, Compiled
from agent.learners.recorded import Graphed
from run.cli.together import cycle_frames
from run.seeing import sees_pixels
from utils import UserError

COMPILED_WIDTH, COMPILED_UPDATES = 256, 20_000  # compile=auto: networks up to, runs from


def make_capture(config: dict[str, Any], device: torch.device) -> Capture | None:
    on_gpu = device.type == "cuda"
    if config["cuda_graph"] is True and not on_gpu:
        raise UserError(f"cuda_graph=true needs a GPU, and device is {device}; use cuda_graph=auto")
    if config["cuda_graph"] is True and config["compile"] is True:
        raise UserError("cuda_graph=true and compile=true do not go together; choose one")
    if config["compile"] is True:
        return Compiled()
    return (
        Graphed(required=config["cuda_graph"] is True) if on_gpu and config["cuda_graph"] else None
    )


def settle_compile(config: dict[str, Any], stored: dict[str, Any] | None) -> dict[str, Any]:
    """compile=auto becomes true or false: as the run was started, or else by whether it pays."""
    if config["compile"] != "auto":
        return config
    if stored is not None and isinstance(stored.get("compile"), bool):
        return {**config, "compile": stored["compile"]}
    pays = compiling_pays(config)
    compiler = os.environ.get("CXX", "g++")
    if pays and shutil.which(compiler) is None:
        print(
            f"note: no C++ compiler ({compiler}) here, so the update is not compiled; with one "
            "this run would be faster",
            flush=True,
        )
        pays = False
    return {**config, "compile": pays}


def compiling_pays(config: dict[str, Any]) -> bool:
    """Compiling takes about a minute, and saves half of an update of small networks on a CPU (3 to
    5 ms at a width of 128), nothing at the paper's size (docs/speed.md)."""
    learner = config["learner"]
    if learner["name"] != "ddpg" or learner["frozen"] or not config["device"].startswith("cpu"):
        return False
    if sees_pixels(config):  # convolutions are most of it, and these are compiled already
        return False
    return learner["hidden_dim"] <= COMPILED_WIDTH and updates_of(config) >= COMPILED_UPDATES


def updates_of(config: dict[str, Any]) -> int:
    """How many updates a learner makes in the whole run, those before the first frame included."""
    if config["learner"]["name"] == "ppo":
        return config["num_train_frames"] // cycle_frames(config)
    steps = (config["num_train_frames"] - config["num_seed_frames"]) // config["action_repeat"]
    offline = config["data"]["offline_updates"] if "data" in config else 0
    return offline + steps // config["learner"]["update_every_steps"]
