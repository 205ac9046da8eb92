"""A number that is no number stops the run by name and frame, before anything is saved with it."""

import re

import numpy as np
import pytest
import torch

from tests.kit.cli import Output
from utils import load_torch, weights

FRAMES = r"between frame (\d+) and frame (\d+)"


def stopped(out: Output, *patterns: str) -> str:
    assert out.code == 2 and out.err.count("\n") == 1, out.err
    for pattern in patterns:
        assert re.search(pattern, out.err), out.err
    return out.err


def saved_tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from saved_tensors(part)


def assert_all_files_are_finite(root, count: int) -> None:
    files = sorted(root.rglob("*.pt"))
    assert len(files) == count, files
    for path in files:
        content = load_torch(path, path.name.partition("_")[0])
        assert all(torch.isfinite(tensor).all() for tensor in saved_tensors(content)), path


def spoil(monkeypatch, owner, name: str, at: int, change) -> None:
    """The result of the `at`-th call is changed."""
    original, calls = getattr(owner, name), []

    def call(self, *args, **kwargs):
        calls.append(name)
        result = original(self, *args, **kwargs)
        return change(result) if len(calls) == at else result

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(("env", "what"), [("poisonous", "observation"), ("bribed", "reward")])
def test_a_nan_of_the_environment_is_named_with_its_frame_and_what_is_safe(cli, env, what):
    out = cli("pretrain", f"domain.primal_task=tests.kit.env_zoo:{env}")
    line = stopped(
        out,
        rf"gave a non-finite {what} at frame 70; stopped, .*checkpoint_60\.pt is from before that",
    )
    assert str(cli.root) in line
    assert_all_files_are_finite(cli.root, 3)


def test_a_nan_of_the_environment_in_an_evaluation_is_no_score(cli):
    out = cli(
        "finetune",
        "agent=ddpg",
        "domain=walker",
        "task=walker_run",
        "task.env=tests.kit.env_zoo:poisonous",
        "eval_episode_steps=100",
    )
    stopped(out, r"gave a non-finite observation at frame 0; stopped, before the first checkpoint")
    assert not list(cli.root.rglob("eval.csv"))


def test_a_nan_of_a_maze_is_named(cli, monkeypatch):
    from envs.maze.lanes import Lanes

    spoil(monkeypatch, Lanes, "step", 30, lambda result: (result[0], result[1] * np.nan))
    stopped(
        cli("pretrain", "domain=tree_maze"),
        r"gave a non-finite reward at frame \d+; stopped, .*\.pt is from bef",
    )
    assert_all_files_are_finite(cli.root, len(list(cli.root.rglob("*.pt"))))


def test_a_nan_in_a_loss_is_found_before_a_checkpoint_even_where_no_row_is_logged(cli, monkeypatch):
    """In the 20th update, of the step from frame 58 to 59, where a checkpoint is due."""
    from agent.amped import AMPED

    spoil(
        monkeypatch,
        AMPED,
        "rewards",
        20,
        lambda result: ({**result[0], "diversity": result[0]["diversity"] * np.nan}, result[1]),
    )
    line = stopped(
        cli("pretrain", "log_every_frames=1000", "checkpoint_every_frames=59"),
        f"reward(_std)?/diversity became nan {FRAMES}",
        r"stopped, before the first checkpoint",
    )
    assert re.search(FRAMES, line).groups() == ("0", "59")
    assert_all_files_are_finite(cli.root, 0)


def test_a_nan_in_ppos_loss_is_found_in_its_cycle(cli, monkeypatch):
    from agent.learners.ppo import PPO

    spoil(monkeypatch, PPO, "normalize", 4, lambda advantage: advantage * np.nan)
    stopped(
        cli("pretrain", "domain=tree_maze"),
        r"surgery/dot became nan between frame 240 and frame 320",
        r"checkpoint_240\.pt is from before that",
    )
    assert_all_files_are_finite(cli.root, 3)


def test_a_nan_in_a_selectors_loss_is_named(cli, monkeypatch):
    from agent.skills.selector_networks import SkillSAC

    assert cli("pretrain").code == 0
    spoil(monkeypatch, SkillSAC, "next_value", 20, lambda value: value * np.nan)
    stopped(
        cli("finetune", "task=walker_run", "skills=selector"),
        rf"skills/\w+ became nan {FRAMES}",
        r"checkpoint_\d+\.pt is from before that",
    )


def test_moments_of_an_optimiser_that_overflowed_are_not_saved(cli, monkeypatch):
    """Infinite moments freeze a weight at a finite value: no loss and no weight would tell."""
    from run.loop import Runner

    border = Runner._at_border

    def overflow(self):
        if self.frame == 58:
            optimizer = self.parts.learner.optimizers["actor"]
            optimizer.state[optimizer.parameters[0]]["exp_avg_sq"][0] = np.inf
        return border(self)

    monkeypatch.setattr(Runner, "_at_border", overflow)
    stopped(
        cli("pretrain"),
        r"learner optimiser actor is not finite at frame 60",
        r"checkpoint_45\.pt is from before",
    )
    assert_all_files_are_finite(cli.root, 2)


def test_weights_are_looked_at_before_a_snapshot(cli, monkeypatch):
    from agent.learners.ddpg import DDPG

    def poison(self, memory, objective, step):
        if step == 58:
            weights(self)["actor.trunk.0.weight"][0, 0] = np.inf
        return {}

    monkeypatch.setattr(DDPG, "learn", poison)
    stopped(
        cli("pretrain"),
        r"(action|learner weight actor\.trunk\.0\.weight) is not finite at frame \d+",
    )
    assert_all_files_are_finite(cli.root, 2)
