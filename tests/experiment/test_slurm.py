"""sweep.py cluster=slurm on a real Slurm of one node: dependency, requeue, time-out, cancelled job,
killed submitter.

Runs where Debian's packages are installed and this is root: apt-get install slurm-wlm munge
(tests/kit/slurm_node.py). Job states as they change are printed: python -m pytest
tests/experiment/test_slurm.py -s
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from experiment import graph
from tests.kit.cli import assert_same_run, finish, process
from tests.kit.runs import continued_from, has_checkpoint
from tests.kit.slurm_node import lacking, one_node
from utils import ROOT

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking() or "can run")
SMALL = (
    "cluster=slurm",
    "cluster.gpus=0",
    "cluster.cpus=1",
    "cluster.mem_gb=1",
    "cluster.hours=0.5",
)
PATIENCE = 150


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with one_node(tmp_path_factory.mktemp("slurm")) as environment:
        yield Node(environment)


class Node:
    """The Slurm that is up, and the states of its jobs as they were seen."""

    def __init__(self, environment):
        self.environment, self.seen, self.begun = environment, {}, time.monotonic()

    def ask(self, *words):
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=True
        ).stdout

    def sweep(self, *words):
        done = subprocess.run(
            [sys.executable, "sweep.py", *SMALL, *map(str, words)],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def states(self):
        """Job -> the states it was seen in, one after the other."""
        for line in self.ask("squeue", "-h", "-r", "-t", "all", "-o", "%F|%K|%T|%r").splitlines():
            number, index, state, reason = line.split("|")
            job = f"{number}_{index}" if index.isdigit() else number
            told = (
                f"{state} ({reason})" if reason not in ("None", "Priority", "Resources") else state
            )
            if self.seen.setdefault(job, [])[-1:] != [told]:
                self.seen[job].append(told)
                print(
                    f"{time.monotonic() - self.begun:7.1f} s  job {job:<5} {told}",
                    file=sys.__stdout__,
                    flush=True,
                )
        return self.seen

    def wait(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, (what, self.seen)
            self.states()
            time.sleep(0.3)

    def settle(self, runs):
        self.wait(lambda: not self.ask("squeue", "-h"), "jobs are left")
        assert all(graph.finished(run.path) for run in runs), "not all finished"


def words_of(root, *more):
    return (
        "experiment=smoke",
        "methods=amped",
        "seed=1",
        "task=walker_run",
        *more,
        f"run_root={root}",
    )


def checkpointed(run, frame=30):
    return lambda: has_checkpoint(run.path, frame)


def job_of(node, out, phase="pretrain"):
    return re.search(rf"submitted (\S+): \d+ x {phase}", out)[1]


def test_a_requeued_run_continues_bit_for_bit_and_its_finetuning_waits_for_it(node, cli, tmp_path):
    """SIGUSR1, as --signal sends it before the time is up; and a second `run` meanwhile submits
    nothing."""
    words = words_of(tmp_path / "swept", "pretrain.num_train_frames=300")
    before, after = graph.runs_of(graph.load(list(words)))
    out = node.sweep(*words)
    first, second = job_of(node, out), job_of(node, out, "finetune")
    assert f"submitted {second}: 1 x finetune, afterok:{first}" in out
    node.wait(checkpointed(before), "no checkpoint")
    node.ask("scancel", "--signal=USR1", first)
    node.wait(lambda: any("PENDING" in state for state in node.states()[first][1:]), "not requeued")
    assert "nothing to submit" in node.sweep(*words)
    node.settle([before, after])
    states = node.states()
    assert [state.split()[0] for state in states[first] if state[0] in "RP"][-2:] == [
        "PENDING",
        "RUNNING",
    ]
    assert states[first][-1] == "COMPLETED" and "PENDING (Dependency)" in states[second]
    assert re.search(r"Restarts=1 ", node.ask("scontrol", "show", "job", first))
    log = graph.log_of(before).read_text()
    saved = int(re.search(r"SIG(?:USR1|TERM): saved at frame (\d+)", log)[1])
    assert continued_from(log) == saved >= 30 and log.count("finished: ") == 1
    assert json.loads((after.path / "result.json").read_text())["pretrained_frame"] == 300
    assert cli("pretrain", "num_train_frames=300").code == 0
    assert_same_run(cli.root / before.path.relative_to(tmp_path / "swept"), before.path)


def test_what_ran_out_of_time_or_was_cancelled_is_named_and_submitted_again(node, tmp_path):
    """Without a warning the job ends as TIMEOUT; its fine-tuning leaves the queue with it. The run
    is too long to end before Slurm looks at the time, which it does every half minute."""
    words = words_of(tmp_path, "pretrain.num_train_frames=200000")
    before = graph.load(list(words)).runs[0]
    first = job_of(node, node.sweep(*words, "cluster.warning_seconds=0"))
    node.wait(checkpointed(before), "no checkpoint")
    node.ask("scontrol", "update", f"JobId={first}", "EndTime=now")  # else a minute is the least
    node.wait(lambda: "TIMEOUT (TimeLimit)" in node.states()[first], "no time-out")
    node.wait(lambda: not node.ask("squeue", "-h"), "the fine-tuning is still queued")
    shown = node.sweep(*words, "action=status")
    assert re.search(
        rf"failed +pre-training .* job {first} timeout: SIGTERM: saved at frame \d+", shown
    ), shown
    assert "cancelled: it never began" in shown

    second = job_of(node, node.sweep(*words))
    frames = [int(n) for n in re.findall(r"saved at frame (\d+)", graph.log_of(before).read_text())]
    node.wait(checkpointed(before, frames[-1] + 15), "it does not go on")
    assert node.sweep(*words, "action=cancel") == "cancelled: 2 jobs\n"
    node.wait(lambda: not node.ask("squeue", "-h"), "cancelled jobs stay, or came back")
    assert node.states()[second][-1].startswith("CANCELLED")
    log = graph.log_of(before).read_text()
    assert (
        len(re.findall(r"SIGTERM: saved at frame", log)) == 2 and continued_from(log) == frames[-1]
    )


def test_a_submitter_killed_in_the_middle_loses_and_doubles_nothing(node, tmp_path):
    """SIGKILL as soon as the first array is in the queue; the next sweep knows it by its name."""
    words = ("experiment=smoke", "methods=amped,ddpg", "task=walker_run", f"run_root={tmp_path}")
    runs = graph.runs_of(graph.load(list(words)))
    started = subprocess.Popen(
        [sys.executable, "-u", "sweep.py", *SMALL, *words],
        cwd=ROOT,
        env=node.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout.readline().startswith("submitted")
    os.killpg(started.pid, signal.SIGKILL)
    finish(started)
    node.sweep(*words)
    node.settle(runs)
    logs = [graph.log_of(run).read_text() for run in runs]
    assert len(logs) == 6 and all(
        log.count("finished: ") == 1 and "continuing" not in log for log in logs
    )
    again = node.sweep(*words, "cluster.follow=true").splitlines()
    assert again[0] == "nothing to submit" and again[-1].startswith(
        "all finished; python -m analysis.table"
    ), again


def test_hydras_own_launcher_submits_a_multirun(node, tmp_path, monkeypatch):
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, node.environment[name])
    done = finish(
        process(
            "pretrain",
            "-m",
            "hydra/launcher=submitit_slurm",
            "seed=1,2",
            "preset=smoke",
            "num_train_frames=20",
            "snapshots=[]",
            f"run_root={tmp_path}",
            "hydra.launcher.cpus_per_task=1",
            "hydra.launcher.timeout_min=5",
        )
    )
    assert done.code == 0, done.err
    assert len(list(tmp_path.glob("pretrain/walker/amped/*/seed_*/result.json"))) == 2
    node.wait(lambda: not node.ask("squeue", "-h"), "jobs are left")
