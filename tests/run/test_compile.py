"""compile=auto: where compiling pays, what a run keeps of it, and a machine without a compiler."""

import pytest
import torch
import yaml

from agent.learners.compiled import Compiled
from run import compiling, machine
from tests.kit.cli import assert_same_run
from tests.kit.configs import composed
from tests.kit.runs import stop_at
from utils import load_torch, save_torch


def settled(*words, stored=None, phase="pretrain"):
    config, _ = machine.settle_machine(composed(phase, *words))
    return compiling.settle_compile(config, stored)["compile"]


def test_long_runs_of_small_networks_on_a_cpu_are_compiled():
    assert settled("preset=cpu", "device=cpu") is True


@pytest.mark.parametrize(
    "words",
    [
        ("preset=paper",),  # wide networks: nothing is gained
        ("preset=smoke",),
        ("preset=cpu", "num_train_frames=43999"),  # 19,999 updates
        ("preset=cpu", "learner.hidden_dim=512"),
        ("preset=cpu", "domain=tree_maze"),  # PPO
        ("preset=cpu", "compile=false"),
    ],
)
def test_other_runs_are_not(words):
    assert settled(*words, "device=cpu") is False


def test_a_frozen_policy_has_no_update_to_compile():
    words = ("preset=cpu", "task=walker_run", "num_train_frames=1000000", "device=cpu")
    assert settled(*words, phase="finetune") is True
    assert settled(*words, "learner.frozen=true", phase="finetune") is False


def test_a_run_goes_on_as_it_was_started():
    assert settled("preset=cpu", "device=cpu", stored={"compile": False}) is False
    assert settled("preset=smoke", "device=cpu", stored={"compile": True}) is True
    assert settled("preset=smoke", "device=cpu", "compile=false", stored={"compile": True}) is False


def test_without_a_compiler_a_run_says_so_and_goes_on_plainly(monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert settled("preset=cpu", "device=cpu") is False
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "no C++ compiler (no-such-compiler)" in said
    assert settled("preset=smoke", "device=cpu") is False and not capsys.readouterr().out


def test_the_resolved_value_is_written_and_a_resume_takes_it(cli, whole, monkeypatch):
    undisturbed = next(whole().glob("**/config.yaml")).parent
    with monkeypatch.context() as patch:
        stop_at(patch, 60)
        assert cli("pretrain").code != 0
    (config,) = cli.root.glob("**/config.yaml")
    assert yaml.safe_load(config.read_text())["compile"] is False
    monkeypatch.setattr(compiling, "COMPILED_UPDATES", 0)  # a new run would be compiled now
    assert cli("pretrain").code == 0
    assert_same_run(config.parent, undisturbed)


def broken(graph, inputs):
    raise KeyError("buf192")  # as torch's compiler for CPUs failed on CeSD once


def test_what_cannot_be_compiled_runs_plainly_and_a_resume_does_not_try_again(
    cli, whole, monkeypatch
):
    torch._dynamo.reset()
    undisturbed = next(whole().glob("**/config.yaml")).parent
    monkeypatch.setattr(Compiled, "backend", staticmethod(broken))
    monkeypatch.setattr(compiling, "COMPILED_UPDATES", 0)
    with monkeypatch.context() as patch:
        stop_at(patch, 60)
        stopped = cli("pretrain")
    assert stopped.code != 0
    assert stopped.err.count("warning: this update cannot be compiled") == 1
    (config,) = cli.root.glob("**/config.yaml")
    assert yaml.safe_load(config.read_text())["compile"] is False
    resumed = cli("pretrain")
    assert resumed.code == 0 and "cannot be compiled" not in resumed.err
    assert_same_run(config.parent, undisturbed)


def test_compile_true_insists(cli, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(Compiled, "backend", staticmethod(broken))
    out = cli("pretrain", "compile=true")
    assert out.code == 2 and "this update cannot be compiled" in out.err


def test_a_checkpoint_of_another_version_is_refused_in_one_line(cli, monkeypatch):
    with monkeypatch.context() as patch:
        stop_at(patch, 60)
        assert cli("pretrain").code != 0
    for path in cli.root.glob("**/checkpoint_*.pt"):
        payload = load_torch(path, "checkpoint")
        del payload["format"]  # as version 0.1 wrote it
        save_torch(path, payload)
    out = cli("pretrain")
    assert out.code == 2 and "was written by another version of this code" in out.err
    assert out.err.count("\n") == 1
