"""What a run is: which words lead to the same one, which pre-training it starts from, and when it
is finished."""

import json
import shutil

import numpy as np
import pytest
import torch

from run import data
from run.identity import differences
from run.loop import Runner
from run.paths import variant_name
from tests.kit.cli import assert_same_run, rows
from tests.kit.configs import composed
from utils import Interrupted, Streams, load_snapshot, weights

SHORT = ("num_train_frames=40", "snapshots=[]")


def test_a_default_that_is_spelled_out_is_the_same_run(cli):
    assert cli("pretrain", *SHORT, "variant=v").code == 0
    run = ("task=walker_run", "variant=v", "num_train_frames=0")
    assert cli("finetune", *run, "skills=switching").code == 0
    again = cli("finetune", *run)
    assert again.code == 0 and "is finished; nothing to do" in again.out
    scratch = ("agent=ddpg", *run)
    assert cli("finetune", *scratch).code == 0
    again = cli("finetune", *scratch, "skills=none")
    assert again.code == 0 and "is finished; nothing to do" in again.out


def test_keys_that_a_regime_uses_are_part_of_the_run():
    default, spelled, other = (
        composed("finetune", "task=walker_run", *words)
        for words in ((), ("skills=switching",), ("skills=switching", "skills.interval=7"))
    )
    assert differences(default, spelled, set()) == {}
    assert differences(default, other, set()) == {"skills.interval": (7, 50)}
    fixed = [
        composed("finetune", "task=walker_run", "skills=fixed", f"skills.index={i}") for i in (1, 2)
    ]
    assert differences(*fixed, set()) == {"skills.index": (2, 1)}
    none = composed("finetune", "agent=ddpg", "task=walker_run")
    assert variant_name(none, ["skills.interval=7"]) == "paper"
    assert variant_name(other, ["skills.interval=7"]) == "paper,skills.interval=7"


def test_how_often_a_run_is_watched_is_no_part_of_its_name(cli):
    watched = ("eval_every_frames=20", "log_every_frames=20", "snapshots=[20]")
    assert cli("pretrain", "num_train_frames=40", *watched).code == 0
    run = cli.root / "pretrain/walker/amped/smoke,num_train_frames=40/seed_1"
    again = cli("pretrain", "num_train_frames=40", "snapshots=[10]")
    assert f"{run} is finished; nothing to do (it kept no snapshot of frame 10" in again.out


def test_a_run_of_an_older_name_stays_where_it_is(cli):
    assert cli("pretrain", *SHORT).code == 0
    old = cli.root / "pretrain/walker/amped/smoke,num_train_frames=40,snapshots=_/seed_1"
    new = cli.root / "pretrain/walker/amped/smoke,num_train_frames=40/seed_1"
    old.parent.mkdir()
    new.rename(old)
    again = cli("pretrain", *SHORT)
    assert f"{old} is finished" in again.out and not new.exists()


def test_the_only_pretraining_that_fits_is_taken_and_of_several_each_has_its_command(cli):
    assert cli("pretrain", *SHORT, "eval_every_frames=20").code == 0
    task = ("task=walker_walk", "num_train_frames=0")
    found = cli("finetune", *task)
    assert found.code == 0, found.err
    assert (
        "starts from the only pre-training that fits, variant smoke,num_train_frames=40"
        in found.out
    )

    # Another method and another seed do not fit, and a second one that does leaves the choice.
    assert cli("pretrain", *SHORT, "beta=0").code == 0
    assert cli("pretrain", *SHORT, "seed=2").code == 0
    assert cli("finetune", *task, "variant=x", "pretrain_variant=null").code == 0
    assert cli("pretrain", *SHORT, "num_seed_frames=10").code == 0
    several = cli("finetune", *task, "variant=y")
    assert several.code == 2 and several.err.count("\n") == 1
    assert "2 pre-trainings fit; choose one: python finetune.py task=walker_walk" in several.err
    for variant in ("smoke,num_train_frames=40", "smoke,num_seed_frames=10,num_train_frames=40"):
        assert f"pretrain_variant={variant}" in several.err
        chosen = cli(
            "finetune", *task, f"pretrain_variant={variant}", f"variant=from_{len(variant)}"
        )
        assert chosen.code == 0, chosen.err


@pytest.mark.parametrize("named", [True, False], ids=["variant", "automatic name"])
def test_more_frames_go_on_bit_for_bit_where_a_finished_run_kept_its_checkpoint(cli, named):
    """By a name of the user's own in the same directory, otherwise beside the shorter run."""
    name = ("variant=v",) if named else ()
    assert cli("pretrain", "keep_checkpoint=true", "num_train_frames=50", *name).code == 0
    longer = cli("pretrain", "num_train_frames=90", *name)
    assert longer.code == 0 and "continuing at frame 50" in longer.out, longer
    folder = cli.root / "pretrain/walker/amped"
    run = folder / ("v/seed_1" if named else "smoke,num_train_frames=90/seed_1")
    assert json.loads((run / "result.json").read_text())["frame"] == 90
    assert not list(run.glob("checkpoint_*.pt"))
    assert cli("pretrain", "num_train_frames=90", "variant=whole").code == 0
    if named:
        (run / "snapshots/snapshot_50.pt").unlink()
    else:
        assert json.loads((folder / "smoke,num_train_frames=50/seed_1/result.json").read_text())
    assert_same_run(folder / "whole/seed_1", run)


def test_fewer_frames_and_frames_without_a_checkpoint_are_refused_in_a_line(cli):
    assert cli("pretrain", *SHORT, "variant=v").code == 0
    for frames, expected in ((20, "=20 is fewer"), (60, "kept no checkpoint from which")):
        refused = cli("pretrain", f"num_train_frames={frames}", "snapshots=[]", "variant=v")
        assert refused.code == 2 and expected in refused.err and refused.err.count("\n") == 1


def test_an_evaluation_becomes_a_fine_tuning_by_more_frames(cli):
    run = ("agent=ddpg", "task=walker_walk", "variant=v")
    assert cli("finetune", *run, "num_train_frames=0").code == 0
    assert cli("finetune", *run, "num_train_frames=40").code == 0
    folder = cli.root / "finetune/walker_walk/ddpg/v/none/seed_1"
    assert [row["frame"] for row in rows(folder / "eval.csv")] == ["0", "40"]


def test_a_finished_finetuning_is_finished_wherever_its_pretraining_is(cli):
    assert cli("pretrain", *SHORT, "keep_checkpoint=true", "variant=v").code == 0
    run = ("task=walker_walk", "num_train_frames=20", "variant=v")
    assert cli("finetune", *run).code == 0
    # The pre-training goes on and has a newer snapshot; then it is away.
    assert cli("pretrain", "snapshots=[]", "num_train_frames=60", "variant=v").code == 0
    for _ in range(2):
        again = cli("finetune", *run)
        assert again.code == 0 and "is finished; nothing to do" in again.out
        shutil.rmtree(cli.root / "pretrain", ignore_errors=True)
    other = cli("finetune", *run, "skills.interval=7")
    assert other.code == 2 and "skills.interval (50 there, 7 here)" in other.err


@pytest.mark.parametrize("named", [True, False], ids=["variant", "automatic name"])
def test_more_frames_go_on_from_a_snapshot_and_its_data(cli, named):
    """Weights, moments, transitions and logs are those of the end; it says what starts anew."""
    name = ("variant=v",) if named else ()
    assert cli("pretrain", "save_replay=true", "num_train_frames=60", *name).code == 0
    folder = cli.root / "pretrain/walker/amped"
    short = folder / ("v/seed_1" if named else "smoke,num_train_frames=60/seed_1")
    before, then = data.load(short / "replay.pt"), rows(short / "eval.csv")
    longer = cli("pretrain", "save_replay=true", "num_train_frames=100", *name)
    assert longer.code == 0 and "continuing at frame 60 from a snapshot and its data" in longer.out
    assert "not bit for bit" in longer.out
    run = folder / ("v/seed_1" if named else "smoke,num_train_frames=100/seed_1")
    result = json.loads((run / "result.json").read_text())
    assert result["frame"] == 100 and result["revived_at"] == 60
    evaluated = rows(run / "eval.csv")
    assert evaluated[: len(then)] == then
    assert [row["frame"] for row in evaluated] == ["0", "40", "60", "80", "100"]
    after = data.load(run / "replay.pt")
    assert int(after.has_step().sum()) == 100
    assert (after.columns["obs"][: len(before)] == before.columns["obs"]).all()
    # Another start than the first episode of the same seed had.
    assert (after.columns["obs"][len(before)] != before.columns["obs"][0]).any()
    if not named:
        assert json.loads((short / "result.json").read_text())["frame"] == 60
        assert len(data.load(short / "replay.pt")) == len(before)


def test_a_revived_run_starts_with_the_weights_moments_and_transitions_of_the_end(cli, monkeypatch):
    assert cli("pretrain", "save_replay=true", "num_train_frames=60", "variant=v").code == 0
    snapshot = load_snapshot(cli.root / "pretrain/walker/amped/v/seed_1/snapshots/snapshot_60.pt")
    kept = data.load(cli.root / "pretrain/walker/amped/v/seed_1/replay.pt")
    seen = {}

    def look(self, state):
        real(self, state)
        p = self.parts
        seen["weights"] = [(weights(p.learner), "learner"), (weights(p.objective), "objective")]
        seen["moments"] = [p.learner.get_extra_state(), p.objective.get_extra_state()]
        seen["starts"] = len(p.experience)
        seen["noise"] = p.rng.numpy("skills").random(4)
        seen["batch"] = p.experience.gather(np.flatnonzero(p.experience.fields["valid"]))
        raise Interrupted(15, "seen")

    real = Runner._revive
    monkeypatch.setattr(Runner, "_revive", look)
    assert cli("pretrain", "save_replay=true", "num_train_frames=90", "variant=v").code == 143
    for found, name in seen["weights"]:
        assert found.keys() == snapshot[name].keys()
        assert all(torch.equal(found[key], snapshot[name][key]) for key in found)
    for found, name in zip(seen["moments"], ("optimizers", "objective_optimizers"), strict=True):
        assert found.keys() == snapshot[name].keys() and found
        for each in found:
            for key, state in found[each]["state"].items():
                stored = snapshot[name][each]["state"][key]
                assert all(torch.equal(torch.as_tensor(state[k]), stored[k]) for k in state)
    assert seen["starts"] == 60 - 2  # of three steps each, in one episode
    assert (seen["noise"] != Streams(1).numpy("skills").random(4)).all()
    np.testing.assert_array_equal(seen["batch"].obs.numpy(), kept.columns["obs"][:58])


def test_a_kill_before_the_first_checkpoint_of_a_longer_run_loses_nothing(cli, monkeypatch):
    words = ("save_replay=true", "variant=v")
    assert cli("pretrain", "num_train_frames=60", *words).code == 0

    def stop(self):
        raise Interrupted(9, "as a kill would")

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_advance", stop)
        assert cli("pretrain", "num_train_frames=100", *words).code == 137
    again = cli("pretrain", "num_train_frames=100", *words)
    assert again.code == 0 and "continuing at frame 60 from a snapshot" in again.out
    eval_rows = rows(cli.root / "pretrain/walker/amped/v/seed_1/eval.csv")
    assert [row["frame"] for row in eval_rows] == ["0", "40", "60", "80", "100"]
