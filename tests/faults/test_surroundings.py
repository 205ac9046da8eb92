"""Clocks that jump, memory that ends, a server that does not answer, a second process, a signal in
mid-evaluation."""

import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import tqdm.std

from run import build, machine
from tests.faults.same import compare
from utils import ROOT

RUN = "pretrain/walker/amped/smoke/seed_1"


def test_a_clock_that_jumps_moves_no_number_and_no_progress_bar(cli, tmp_path, whole, monkeypatch):
    undisturbed = whole()
    rng, screen = random.Random(0), io.StringIO()
    jumping = lambda: rng.uniform(-1e9, 1e10)  # noqa: E731
    monkeypatch.setattr(time, "time", jumping)
    monkeypatch.setattr(tqdm.std, "time", jumping)
    bar = tqdm.std.tqdm.__init__
    monkeypatch.setattr(
        tqdm.std.tqdm,
        "__init__",
        lambda self, *args, **kwargs: bar(
            self, *args, **{**kwargs, "disable": False, "file": screen, "mininterval": 0}
        ),
    )
    assert cli("pretrain", f"run_root={tmp_path / 'jumped'}").code == 0
    assert not compare(undisturbed / RUN, tmp_path / "jumped" / RUN).differences
    shown = [float(rate) for rate in re.findall(r"([-\d.]+)frame/s", screen.getvalue())]
    assert shown and min(shown) > 0.1, shown
    assert not re.search(r"\d{4,}:\d\d", screen.getvalue())  # no time left of thousands of hours


def test_a_replay_that_does_not_fit_into_memory_is_refused_before_it_fills(cli):
    out = cli("pretrain", "replay.capacity=1000000000")
    assert out.code == 2 and out.err.count("\n") == 1
    assert re.match(
        r"error: out of memory \(.*\); what was written before is intact; give a smaller replay.capacity "
        r"\(1000000000 rows now\), learner.batch_size \(32\) or learner.hidden_dim \(32\)",
        out.err,
    )
    assert not cli.root.exists()


def test_a_replay_that_the_system_would_hand_out_and_never_have_is_refused():
    with pytest.raises(
        MemoryError, match=r"the replay takes 1000000.0 GB, this machine has [\d.]+ GB"
    ):
        machine.require_memory(10**15)


def test_a_batch_that_does_not_fit_stops_the_run_in_one_line_and_it_can_be_continued(cli):
    out = cli("pretrain", "learner.batch_size=1000000")
    assert out.code == 2 and out.err.count("\n") == 1 and "out of memory (" in out.err, out.err
    assert list(cli.root.rglob("checkpoint_15.pt"))


def test_a_run_that_another_process_finished_meanwhile_is_left_alone(cli, whole, monkeypatch):
    """Two are started; the second is still being built when the first ends and unlocks the
    directory."""
    shutil.copytree(whole(), cli.root)
    result = cli.root / RUN / "result.json"
    text, make_parts = result.read_text(), build.make_parts
    result.unlink()

    def first_ends(*args):
        result.write_text(text)
        return make_parts(*args)

    monkeypatch.setattr(build, "make_parts", first_ends)
    before = {p: p.stat().st_mtime_ns for p in cli.root.rglob("*.*") if p != result}
    out = cli("pretrain")
    assert out.code == 0 and "is finished; nothing to do" in out.out
    assert before == {p: p.stat().st_mtime_ns for p in cli.root.rglob("*.*") if p != result}


@pytest.mark.parametrize(("domain", "at"), [("walker", 8 * 5 + 15), ("tree_maze", 8)])
def test_a_sigterm_in_mid_evaluation_saves_and_the_evaluation_is_made_again(
    cli, whole, monkeypatch, domain, at
):
    """In the second one: the first makes 8 x 5 calls on the first of two walkers, and 5 in the
    maze."""
    where, undisturbed = f"pretrain/{domain}/amped/smoke/seed_1", whole(f"domain={domain}")
    make_parts = build.make_parts

    def with_signal(*args):
        parts = make_parts(*args)
        env, calls = parts.eval_envs[0], []
        step = env.step

        def call(action):
            calls.append(1)
            if len(calls) == at:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(action)

        env.step = call
        return parts

    with monkeypatch.context() as patch:
        patch.setattr(build, "make_parts", with_signal)
        out = cli("pretrain", f"domain={domain}")
    assert out.code == 143 and re.fullmatch(
        r"SIGTERM: saved at frame \d+; the same command continues there\n", out.err
    )
    assert cli("pretrain", f"domain={domain}").code == 0
    assert not compare(undisturbed / where, cli.root / where).differences


UNREACHABLE = """
import sys, torch
from pathlib import Path
from run import logger
logger.WANDB_SECONDS = 1
made = logger.Logger(Path(sys.argv[1]), use_tb=False, use_wandb=True, project="p", name="n", config={"seed": 1})
made.add({"loss": torch.tensor(2.0)})
made.close_window(10, {})
made.close()
"""


def test_wandb_without_its_server_is_one_warning_and_an_upload_for_later(tmp_path):
    places = {f"WANDB_{name}_DIR": str(tmp_path / name) for name in ("CACHE", "CONFIG", "DATA")}
    done = subprocess.run(
        [sys.executable, "-c", UNREACHABLE, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            **places,
            "WANDB_BASE_URL": "http://127.0.0.1:9",
            "WANDB_API_KEY": "0" * 40,
            "WANDB_MODE": "online",
        },
    )
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert re.search(
        r"did not start \(.*\); logging offline: `wandb sync .*/offline-run-\*` uploads it later",
        line,
    )
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert b"train/loss" in file.read_bytes() and (tmp_path / "train.csv").exists()
