"""Reward-free pre-training: python pretrain.py agent=amped domain=walker (--help lists the choices)."""

from pathlib import Path

import hydra
from omegaconf import DictConfig

from agent import build
from agent.cli import guard
from agent.rundir import run_path
from agent.settings import resolve
from utils import UserError


def pretrain(cfg: DictConfig, overrides: list[str]) -> Path:
    """Train an objective's agent on the domain's primal task; returns the run directory."""
    config, device = build.settle_machine(resolve(cfg))
    agent = config["agent"]["name"]
    if config["agent"]["objective"] is None:
        raise UserError(f"agent={agent} has nothing to pre-train; train it on a task instead: "
                        f"python finetune.py agent={agent} task={config['domain']['primal_task']}")
    if config["learner"]["frozen"]:
        raise UserError("learner.frozen=true has nothing to train in pre-training; it is for finetune.py")
    return build.run(config, run_path(config, overrides), config["domain"]["primal_task"], device)


@hydra.main(config_path=str(Path(__file__).parent / "configs"), config_name="pretrain", version_base="1.3")
def main(cfg: DictConfig) -> None:
    guard.task(pretrain, cfg)


if __name__ == "__main__":
    guard.launch(main)
