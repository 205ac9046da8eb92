"""make gpu-check sees what differs, and says what it ran on."""

import pytest
import torch

from agent.learners.recorded import Rehearsed
from benchmarks import gpu_check
from benchmarks.gpu_check import attempt, compare, recorder, replay
from utils import UserError


class Off(Rehearsed):
    """A recorder that its own check lets through, and that then goes wrong."""

    def record(self, update, inputs):
        right, calls = super().record(update, inputs), []

        def replayed(tensors):
            calls.append(1)
            metrics = right(tensors)
            return metrics if len(calls) < 4 else {k: v + 1 for k, v in metrics.items()}

        return replayed


def test_a_right_recorder_agrees_and_one_that_goes_wrong_later_is_seen():
    row = compare("diayn", recorder(), "preset=smoke")
    assert row["ok"] and row["choice"] == "recorded" and row["apart"] == []
    assert torch.cuda.is_available() or row["weights"] == row["metrics"] == 0
    wrong = compare("diayn", Off(required=False), "preset=smoke")
    assert not wrong["ok"] and wrong["choice"] == "recorded" and "actor/loss" in wrong["apart"]


def test_the_replay_agrees_over_a_ring_that_wraps():
    assert replay() == {"ok": True, "apart": pytest.approx(0, abs=1e-5), "choice": "on the device"}


def test_what_goes_wrong_is_a_row_of_the_table(capsys):
    def fails():
        raise RuntimeError("CUDA error: an illegal memory access\nwas \x1b[31mencountered")

    row = attempt("recorded", "amped", fails)
    assert not row["ok"] and row["error"] == "RuntimeError: CUDA error: an illegal memory access"
    assert "DIFFERS" in capsys.readouterr().out


def test_the_short_runs_are_those_of_the_scripts(tmp_path):
    row = gpu_check.script("pretrain", ["domain=walker", "num_train_frames=20"], tmp_path)
    assert row["ok"] and row["exit_code"] == 0 and row["score"] > 0


def test_rows_that_differ_are_an_exit_code_and_the_file_is_written(tmp_path, monkeypatch, capsys):
    results = {"rows": [{"ok": False}], "bench": {}, "device": "cpu"}
    monkeypatch.setattr(gpu_check, "run", lambda quick: results)
    monkeypatch.setattr(gpu_check.bench, "table", lambda found: "")
    with pytest.raises(UserError, match="1 rows differ; please attach"):
        gpu_check.write(True, tmp_path / "check.json")
    assert (tmp_path / "check.json").exists() and gpu_check.NO_GPU in capsys.readouterr().out
