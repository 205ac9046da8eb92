"""A damaged or foreign file is named in one line and left out; commands go on with the rest."""

import json
import shutil

import pytest
import torch

from analysis import choices, collect, curves, report, selection
from analysis.frames import gathered
from experiment import cost, graph
from experiment.runs import Run
from run.cli.console import LEFT_OUT
from run.directory import RunDirectory
from run.files import read_config
from tests.kit.file_attacks import ATTACKS, NONSENSE
from utils import UserError

VARIANT = "finetune/walker_run/amped/smoke"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run_root with a pre-training, a selector of two seeds and an oracle whose table is made up
    of theirs."""
    import finetune
    import pretrain
    from experiment.runs import compose

    root = tmp_path_factory.mktemp("made")
    words = ["agent=amped", "preset=smoke", f"run_root={root}"]
    first = [*words, "domain=walker", "num_train_frames=20", "snapshots=[]", "variant=smoke"]
    pretrain.pretrain(compose(first), first)
    then = [*words, "task=walker_run", "skills=selector", "num_train_frames=40", "variant=smoke"]
    finetune.finetune(compose(then, "finetune"), then)
    one = root / VARIANT / "selector/seed_1"
    skill = {"skill": 0, "zero_shot": 1.0, "return_mean": 2.0, "return_std": 0.1}
    for regime, seed, more in (
        ("selector", 2, {}),
        (
            "oracle",
            1,
            {"best": skill, "per_skill": [skill, skill | {"skill": 1, "zero_shot": 2.0}]},
        ),
    ):
        other = root / VARIANT / regime / f"seed_{seed}"
        shutil.copytree(one, other)
        result = json.loads((one / "result.json").read_text())
        (other / "result.json").write_text(json.dumps({**result, "seed": seed, **more}))
    return root


@pytest.fixture
def root(made, tmp_path):
    return shutil.copytree(made, tmp_path / "runs")


def run_of(path):
    """A run of an experiment as a table gathers it, of which little is asked here."""
    config = read_config(path.parent / "seed_1") or {}
    return Run("amped", {}, [], {**config, "seed": 2}, torch.device("cpu"), path)


@pytest.mark.parametrize("name", ATTACKS)
def test_every_reader_names_the_file_and_goes_on_with_the_rest(name, root, run_main, capsys):
    spoilt, sound = (root / VARIANT / f"selector/seed_{seed}" for seed in (2, 1))
    ATTACKS[name](spoilt)
    done = run_main(collect.main, f"run_root={root}")
    lines = done.err.splitlines()
    assert "\x1b" not in done.err and len(lines) <= 1
    if "train.csv" not in name:  # that log is read by other commands
        assert done.code == LEFT_OUT and lines[0].startswith(f"left out: {spoilt}: "), done
        assert done.out.startswith("3 finished runs: ")

    found = selection.read_runs(root / VARIANT)
    assert 1 in found["selector"] and 1 in found["oracle best"]
    if name.startswith("result") and name != "result, agent is a word":
        assert 2 not in found["selector"]

    if name.startswith("log"):
        assert sound in curves.readable([sound, spoilt])
        table = gathered.gather(Few([run_of(sound), run_of(spoilt)]))
        assert len(set(table.scores["score"])) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said and "\x1b" not in said

    for read in (
        lambda: graph.damage(spoilt),
        lambda: cost.measured([run_of(spoilt)]),
        lambda: graph.threads(run_of(spoilt), 1),
        lambda: RunDirectory(spoilt, {}).stored(),
        *([lambda: choices.draw(spoilt)] if "device is" in name else []),
    ):
        try:
            read()
        except UserError as error:
            assert "\n" not in str(error)


class Few:
    """An experiment of these runs."""

    def __init__(self, finetunings):
        self.runs, self.finetunings = [], finetunings


# ------------------------------------------------------------------------------------- results.csv


SOUND = {
    **{"phase": "finetune", "domain": "walker", "task": "walker_run", "agent": "amped"},
    **{"variant": "cpu", "skills": "switching", "seed": "1", "frame": "80", "score": "3.5"},
    **{"wall_seconds": "9", "commit": "abc", "dirty": "False", "torch": "2.13.0"},
    "config_hash": "0123",
}
TABLES = {
    "empty": "",
    "only a head": ",".join(SOUND) + "\n",
    "a page": "<html>404</html>\n<p>x\n",
    "zeros": "\0" * 100,
    "a quote that stays open": ",".join(SOUND) + '\n"a,b\n',
    "a short line": ",".join(SOUND) + "\nfinetune,walker\n",
    "a long line": ",".join(SOUND) + "\n" + ",".join([*SOUND.values(), "1", "2"]) + "\n",
    **{
        f"{key} is {what}": ",".join(SOUND) + "\n" + ",".join((SOUND | {key: str(value)}).values())
        for key in ("seed", "frame", "score", "wall_seconds")
        for what, value in NONSENSE.items()
        if "," not in str(value) and (key, what) != ("score", "negative")
    },
    "a phase of somebody's own": ",".join(SOUND)
    + "\n"
    + ",".join((SOUND | {"phase": "play"}).values()),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_line_of_a_brought_table_that_is_none_is_left_out(name, tmp_path, capsys):
    (tmp_path / "results.csv").write_text(TABLES[name])
    rows = collect.settings(collect.collected(tmp_path))
    said = capsys.readouterr().err
    assert rows == []
    assert "\x1b" not in said and "Traceback" not in said
    if " is " in name or "line" in name:
        assert said.startswith(f"left out: {tmp_path / 'results.csv'}, line 2: ")


def test_a_sound_line_beside_a_spoilt_one_is_shown_and_the_report_says_so(tmp_path, run_main):
    head, line = ",".join(SOUND), ",".join(SOUND.values())
    (tmp_path / "results.csv").write_text(f"{head}\n{line}\n{line.replace('3.5', 'high')}\n")
    assert len(collect.settings(collect.collected(tmp_path))) == 1
    assert "<td>3.5</td>" in report.runs_section(tmp_path)
