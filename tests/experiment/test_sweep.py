"""sweep.py: the runs of an experiment as a graph, on a pool of processes; what Slurm would be told,
without one."""

import json
import os
import re
import signal
import subprocess
import sys
import types
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch

import sweep
from experiment import cost, graph, local, slurm
from experiment.board import Row, counts, table
from run import pool
from tests.kit.cli import assert_same_run, finish, process
from tests.kit.runs import (
    continued_from,
    group_is_gone,
    is_free,
    kill_after_checkpoint,
    result_text,
    stamps,
    wait_for,
)
from utils import ROOT

ONE = ("experiment=smoke", "methods=amped,ddpg", "seed=1", "task=walker_run")


@pytest.fixture
def call(run_main):
    """call("experiment=...") as python sweep.py."""
    return partial(run_main, sweep.main)


@pytest.fixture(scope="module")
def urlb():
    return graph.load(["experiment=table_urlb"])


def start(*args):
    """A sweep as a user starts it, with a process group of its own."""
    return process("sweep", *map(str, args), cwd=ROOT, start_new_session=True)


# --------------------------------------------------------------------------------------------- plan


def test_the_plan_of_the_main_table_is_240_pretrainings_with_1200_finetunings_below_their_own(
    call, monkeypatch, urlb
):
    monkeypatch.setattr(graph, "load", lambda words: urlb)  # composed once for this file
    shown = call("experiment=table_urlb", "action=plan")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[1:3] == [
        "240 pre-trainings: 0 finished, 0 unfinished, 240 missing",
        "1200 fine-tunings: 0 finished, 0 unfinished, 1200 missing",
    ]
    assert (
        lines[3].startswith("cost of the 1440 left: 3,12")
        and "120 unknown and not in the sum" in lines[3]
    )
    above, children = None, {}
    for line in lines[4:]:
        name = re.search(r"(->)? ?(pretrain|finetune) ([\w +]+), (.*), seed (\d+)", line)
        arrow, phase, method, where, seed = name.groups()
        if arrow:
            assert (method.removesuffix(" + selector"), seed) == (above[0], above[2])
            assert where.startswith(f"{above[1]}_")
            children.setdefault(above, []).append(where)
        elif phase == "pretrain":
            above = (method, where, seed)
        else:
            assert method == "DDPG"
    assert len(children) == 240 and all(
        len(set(tasks)) == 4 and len(tasks) == (8 if above[0] == "AMPED" else 4)
        for above, tasks in children.items()
    )
    assert len(lines) == 4 + 1440


def test_hours_are_measured_where_runs_are_finished_the_papers_at_its_size_and_else_unknown(
    tmp_path, urlb
):
    costs = cost.estimate(graph.runs_of(urlb))
    amped = next(
        run for run in urlb.finetunings if run.method == "amped" and "jaco" in run.point["task"]
    )
    assert costs.hours[str(amped.path)] == 0.32 and costs.source[str(amped.path)] == "paper"
    runs = graph.runs_of(graph.load([*ONE, f"run_root={tmp_path}"]))
    assert set(cost.estimate(runs).source.values()) == {"unknown"}
    two = graph.runs_of(
        graph.load(["experiment=smoke", "methods=amped", "task=walker_run", f"run_root={tmp_path}"])
    )
    first, second = two[:2]
    first.path.mkdir(parents=True)
    (first.path / "result.json").write_text(result_text(wall_seconds=7200))
    costs = cost.estimate(two)
    assert str(first.path) not in costs.hours and costs.hours[str(second.path)] == 2
    assert costs.line() == (
        "cost of the 3 left: 2.0 h (1 by finished runs like them; 2 unknown and not in the sum)"
    )
    short = graph.load(
        [
            "experiment=table_urlb",
            "methods=amped",
            "seed=1",
            "domain=walker",
            "task=walker_run",
            "pretrain.num_train_frames=1000",
        ]
    )
    assert cost.of_paper(short.runs[0]) is None and cost.of_paper(short.finetunings[0]) == 0.35


# -------------------------------------------------------------------------------------------- local


def test_a_sweep_killed_in_the_middle_and_run_again_has_every_run_once(cli, call, tmp_path):
    root = tmp_path / "swept"
    words = (*ONE, "pretrain.num_train_frames=300", f"run_root={root}", "cluster.workers=2")
    pretrained, tuned, scratch = (run.path for run in graph.runs_of(graph.load([*words[:-1]])))
    started = start(*words)
    kill_after_checkpoint(started, pretrained, 45, 0)  # signal 0: only wait
    assert call(*words).err.startswith("error: this sweep is running already")
    os.killpg(started.pid, signal.SIGKILL)
    assert finish(started).code == -signal.SIGKILL
    wait_for(lambda: group_is_gone(started.pid), "a run outlived the group")
    assert is_free(pretrained) and not graph.finished(pretrained) and not tuned.exists()

    done = finish(start(*words))
    assert done.code == 0, done.err
    assert "all finished; python -m analysis.table experiment=smoke" in done.out.splitlines()[-1]
    logs = {
        run.path: graph.log_of(run).read_text() for run in graph.runs_of(graph.load([*words[:-1]]))
    }
    assert all(log.count("finished: ") == 1 for log in logs.values())
    assert 45 <= continued_from(logs[pretrained]) < 300
    assert json.loads((tuned / "result.json").read_text())["pretrained_frame"] == 300

    before = [stamps(path) for path in (pretrained, tuned, scratch)]
    again = call(*words)
    assert again.code == 0 and "running" not in again.out, again
    assert [stamps(path) for path in (pretrained, tuned, scratch)] == before
    assert cli("pretrain", "num_train_frames=300").code == 0
    assert_same_run(cli.root / pretrained.relative_to(root), pretrained)
    status = call(*words, "action=status").out.splitlines()
    assert status[1:3] == ["1 pre-training: 1 finished", "2 fine-tunings: 2 finished"]


def test_cancel_saves_what_runs_and_usr1_saves_a_run(call, tmp_path):
    words = (
        "experiment=smoke",
        "methods=amped",
        "seed=1",
        "task=walker_run",
        "pretrain.num_train_frames=3000",
        f"run_root={tmp_path}",
    )
    run = graph.load(list(words)).runs[0]
    assert call(*words, "action=cancel").out == "nothing of it is running\n"
    started = start(*words)
    kill_after_checkpoint(started, run.path, 45, 0)
    assert "running" in call(*words, "action=status").out
    cancelled = call(*words, "action=cancel")
    assert cancelled.code == 0 and "each run is saved where it was" in cancelled.out
    stopped = finish(started)
    assert stopped.code == 143 and stopped.err.startswith(
        "SIGTERM: each run is saved where it was"
    ), stopped
    saved = graph.last_line(graph.log_of(run))
    assert re.fullmatch(r"SIGTERM: saved at frame \d+; the same command continues there", saved)

    alone = process("pretrain", *run.words)
    frame = int(re.search(r"frame (\d+)", saved)[1])
    kill_after_checkpoint(alone, run.path, frame + 15, signal.SIGUSR1)
    ended = finish(alone)
    assert ended.code == 128 + signal.SIGUSR1 and "SIGUSR1: saved at frame" in ended.err
    assert continued_from(ended.out) == frame


class Fake:
    """Stands for a process: ends at the second look, well or with a line in its log."""

    def __init__(self, run, good):
        self.run, self.good, self.returncode, self.looks = run, good, None, 0

    def poll(self):
        self.looks += 1
        if self.looks == 2:
            self.returncode = 0 if self.good else 1
            if self.good:
                self.run.path.mkdir(parents=True, exist_ok=True)
                (self.run.path / "result.json").write_text(result_text())
            else:
                graph.log_of(self.run).parent.mkdir(parents=True, exist_ok=True)
                graph.log_of(self.run).write_text("Traceback\nValueError: no\n")
        return self.returncode


class Silent:
    def __init__(self):
        self.most, self.rows = 0, []

    def show(self, rows):
        self.rows, self.most = rows, max(self.most, sum(row.state == "running" for row in rows))


def test_a_failed_pretraining_blocks_its_own_finetunings_and_nothing_else(monkeypatch, tmp_path):
    runs = graph.runs_of(graph.load(["experiment=smoke", f"run_root={tmp_path}"]))
    bad, begun, environments = runs[0], [], []

    def begin(command, **environment):
        run = next(run for run in runs if str(graph.log_of(run)) == command.log)
        assert run.after is None or graph.finished(run.after)
        begun.append(run.path)
        environments.append(environment["CUDA_VISIBLE_DEVICES"])
        return Fake(run, run is not bad)

    monkeypatch.setattr(local, "start", begin)
    monkeypatch.setattr(pool, "POLL_SECONDS", 0)
    board = Silent()
    on_gpu = runs[0]._replace(device=torch.device("cuda"))
    slots = local.make_slots(on_gpu, {"gpus": [0, 3], "runs_per_gpu": 2, "workers": None})
    assert len(local.make_slots(on_gpu, {"gpus": [0, 3], "runs_per_gpu": 2, "workers": 3})) == 3
    # device=cpu
    assert local.make_slots(runs[0], {"gpus": [0], "runs_per_gpu": 1, "workers": 1}) == [None]
    assert slots == ["0", "3", "0", "3"]
    local.RunPool(runs, slots, board).run()
    assert (
        board.most == 4
        and environments[:4] == ["0", "3", "0", "3"]
        and len(begun) == len(set(begun)) == 14
    )
    states = {row.run.path: row for row in board.rows}
    assert (states[bad.path].state, states[bad.path].note) == ("failed", "ValueError: no")
    for run in runs[1:]:
        assert states[run.path].state == ("blocked" if run.after == bad.path else "finished")
    assert counts(board.rows) == [
        "4 pre-trainings: 3 finished, 1 failed",
        "12 fine-tunings: 10 finished, 2 blocked",
    ]
    assert table("t", board.rows).row_count == 1  # what is finished is only counted

    (runs[1].path / "result.json").write_text("{")  # damaged: named, not run again, not removed
    again = local.RunPool(runs, slots, board)
    assert again.waiting == [runs[0], *(run for run in runs if run.after == bad.path)]
    assert (
        list(again.failed) == [runs[1].path]
        and "remove it to run that again" in again.failed[runs[1].path]
    )


def test_a_job_of_a_cluster_begins_without_torch_and_hydra():
    code = (
        "import experiment.job, sys; sys.exit(bool({'torch', 'numpy', 'hydra'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_threads_are_the_runs_own_or_what_it_began_with_or_its_share_of_the_cores(tmp_path):
    def first(*words):
        return graph.load([*ONE, *words, f"run_root={tmp_path}"]).runs[0]

    assert graph.threads(first(), 8) == 1  # preset=smoke says so
    assert graph.threads(first("num_threads=2"), 8) == 2
    large = first("preset=paper")
    assert graph.threads(large, 8) == 8 and graph.threads(large, 0) == 1
    large.path.mkdir(parents=True)
    (large.path / "config.yaml").write_text("num_threads: 3\n")
    assert graph.threads(large, 8) == 3
    assert len(local.make_slots(first(), graph.settings("local", {}))) == os.cpu_count()


# -------------------------------------------------------------------------------------------- Slurm


def test_arrays_hold_every_run_once_and_finetunings_wait_for_the_pack_of_their_pretraining(urlb):
    runs = graph.runs_of(urlb)
    # Four tasks after each pre-training, eight after AMPED's 30, with and without its selector; of four
    # pre-trainings in a pack one may be AMPED's.
    for size, packs, expected in ((1, 240, {4: 210, 8: 30}), (4, 60, {4: 30, 5: 30})):
        options = graph.settings("slurm", {"runs_per_gpu": str(size), "max_array": "300"})
        first, *rest = slurm.make_arrays(runs, {}, options)
        assert (first.phase, first.after) == ("pretrain", None)
        assert sorted(len(array.packs) for array in rest if array.after is None) == (
            [120] if size == 1 else [30]
        )
        assert len(first.packs) == packs
        assert Counter(len(a.packs) for a in rest if a.after is not None) == expected
        packed = [run.path for array in (first, *rest) for pack in array.packs for run in pack]
        assert len(packed) == len(set(packed)) == 1440
        for array in rest:
            for run in (run for pack in array.packs for run in pack):
                assert (
                    array.after is None
                    if run.after is None
                    else run.after in {each.path for each in first.packs[array.after]}
                )
        asked = slurm.parameters(first, options)
        assert (asked["gres"], asked["cpus_per_task"], asked["mem"], asked["time"]) == (
            "gpu:1",
            2 * size,
            8 * size,
            24 * 60,
        )
        assert slurm.parameters(rest[0], options)["time"] == 4 * 60


def test_a_finetuning_waits_for_a_live_job_or_for_nothing(tmp_path):
    runs = graph.runs_of(
        graph.load(["experiment=smoke", "methods=amped", "task=walker_run", f"run_root={tmp_path}"])
    )
    first, second, *tuned = runs
    first.path.mkdir(parents=True)
    (first.path / "result.json").write_text("{}")
    arrays = slurm.make_arrays(tuned, {second.path: "17_3"}, graph.settings("slurm", {}))
    assert [
        (array.after, [[run.after for run in pack] for pack in array.packs]) for array in arrays
    ] == [(None, [[first.path]]), ("17_3", [[second.path]])]


def test_the_last_record_that_is_live_says_where_a_run_is(monkeypatch, tmp_path):
    runs = graph.runs_of(graph.load([*ONE, f"run_root={tmp_path}"]))
    folder = tmp_path / "sweep" / "slurm"
    folder.mkdir(parents=True)
    names = [graph.key(run) for run in runs]
    (folder / "1.json").write_text(json.dumps({"arrays": [[names[:1]], [names[1:2]]]}))
    (folder / "2.json").write_text(json.dumps({"arrays": [[[names[0]], [names[2]]]]}))
    shown = "\n".join(
        [
            "5|N/A|1.0|FAILED|NonZeroExitCode",
            "6|N/A|1.1|CANCELLED|DependencyNeverSatisfied",
            "9|0|2.0|RUNNING|None",
            "9|1|2.0|PENDING|Resources",
            "3|N/A|other|RUNNING|None",
        ]
    )
    monkeypatch.setattr(slurm, "call", lambda *words: shown)
    assert [(row.state, row.note) for row in slurm.rows(runs)] == [
        ("running", "job 9_0"),
        ("failed", "job 6 cancelled: it never began"),
        ("queued", "job 9_1, Resources"),
    ]
    cancelled = []
    monkeypatch.setattr(slurm, "call", lambda *words: cancelled.extend(words) or shown)
    slurm.cancel(types.SimpleNamespace(runs=runs[:1], finetunings=runs[1:]), {})
    assert cancelled[-3:] == ["scancel", "9_0", "9_1"]


# --------------------------------------------------------------------------------- launchers, lines


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local", "ray"])
def test_a_multirun_by_a_launcher_of_hydra_makes_the_runs(launcher, tmp_path):
    for module in {"ray": ("ray", "hydra_plugins.hydra_ray_launcher")}.get(launcher, ()):
        pytest.importorskip(module, reason="Ray is an extra: requirements-ray.txt")
    done = finish(
        process(
            "pretrain",
            "-m",
            f"hydra/launcher={launcher}",
            "seed=1,2",
            "preset=smoke",
            "num_train_frames=20",
            "snapshots=[]",
            f"run_root={tmp_path}",
        )
    )
    assert done.code == 0, done.err
    assert len(list(tmp_path.glob("pretrain/walker/amped/*/seed_*/result.json"))) == 2


@pytest.mark.parametrize(
    "words, line",
    [
        ("", "experiment= is missing"),
        (
            "experiment=smoke action=go",
            "action=go is not known; choose from plan, run, status, cancel",
        ),
        ("experiment=smoke cluster=cloud", "cluster=cloud is not known; choose from local, slurm"),
        (
            "experiment=smoke cluster.nodes=2",
            "cluster.nodes is not a key of configs/cluster/local.yaml; it has workers",
        ),
        (
            "experiment=smoke cluster.workers=0",
            "cluster.workers=0 is not valid: a whole number of 1 or more",
        ),
        ("experiment=smoke cluster.gpus=2", "cluster.gpus=2 is not valid: a list such as [0,1]"),
        ("experiment=smoke cluster.runs_per_gpu=many", "cluster.runs_per_gpu=many is not valid"),
        (
            "experiment=smoke cluster=slurm cluster.hours=0",
            "cluster.hours=0 is not valid: a number above 0",
        ),
        (
            "experiment=smoke cluster=slurm cluster.finetune.follow=1",
            "cluster.finetune.follow is not known; choose from",
        ),
        ("experiment=smoke methods=ampd", "agent=ampd is not known"),
        ("experiment=smoke learner.rl=1", "learner.rl is not a key of this run"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_written(call, tmp_path, monkeypatch, words, line):
    monkeypatch.chdir(tmp_path)
    done = call(*words.split())
    assert (
        done.code == 2
        and done.out == ""
        and done.err.count("\n") == 1
        and done.err.startswith("error: ")
    ), done
    assert line in done.err and not list(tmp_path.iterdir())


def test_without_slurm_its_sweep_says_so(call, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = call(*ONE, "cluster=slurm", "action=status", f"run_root={tmp_path}")
    assert done.code == 2 and done.err.startswith("error: no squeue here"), done


def test_a_row_names_its_run_its_frame_and_why_it_failed(tmp_path):
    run = graph.load([*ONE, f"run_root={tmp_path}"]).runs[0]
    run.path.mkdir(parents=True)
    (run.path / "train.csv").write_text("frame,x\n10,1\n60,2\n")
    row = Row(run, "running")
    assert (row.name, row.progress) == ("pre-training AMPED, walker, seed 1", "60/120")
    assert Row(run, "waiting").progress == "" and Path(graph.log_of(run)).name == "seed_1.log"


def test_the_hint_at_the_end_can_be_pasted_into_a_shell():
    found = types.SimpleNamespace(figure={"kind": "scores"})
    hint = sweep.table_hint(found, ["experiment=adapt_walker", "methods=scratch,scratch lr 3e-3"])
    assert hint.endswith("experiment=adapt_walker 'methods=scratch,scratch lr 3e-3'")
