"""Pre-training without task reward, from a composed config to a finished run directory."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from run import build, machine
from run.cli.schema import resolve
from run.paths import run_path
from run.rollout import DrawPaths
from utils import UserError


def pretrain(cfg: DictConfig, overrides: list[str], *, draw_paths: DrawPaths | None = None) -> Path:
    """Train an objective's agent on the domain's primal task; returns the run directory."""
    config, device = machine.settle_machine(resolve(cfg))
    agent = config["agent"]["name"]
    if config["agent"]["objective"] is None:
        raise UserError(
            f"agent={agent} has nothing to pre-train; train it on a task instead: "
            f"python finetune.py agent={agent} task={config['domain']['primal_task']}"
        )
    if config["learner"]["frozen"]:
        raise UserError(
            "learner.frozen=true has nothing to train in pre-training; it is for finetune.py"
        )
    return build.run(
        {**config, "overrides": overrides},
        run_path(config, overrides),
        config["domain"]["primal_task"],
        device,
        draw_paths=draw_paths,
    )
