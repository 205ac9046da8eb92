"""python -m analysis.collect: every finished run in one table, with what it was made by; unreadable
ones are named."""

import json
import shutil
from functools import partial

import pandas as pd
import pytest
import torch
import yaml

from analysis import collect
from run.cli.console import LEFT_OUT


@pytest.fixture
def call(run_main):
    return partial(run_main, collect.main)


def edit(path, **changes):
    config = yaml.safe_load((path / "config.yaml").read_text())
    (path / "config.yaml").write_text(yaml.safe_dump({**config, **changes}))


def test_a_table_holds_score_and_provenance_of_finished_runs_and_names_the_unreadable(
    cli, call, tmp_path
):
    assert cli("pretrain", "num_train_frames=20", "snapshots=[]").code == 0
    (first,) = (cli.root / "pretrain/walker/amped").iterdir()
    for seed in (2, 3, 4):
        shutil.copytree(first / "seed_1", first / f"seed_{seed}")
        result = json.loads((first / "seed_1/result.json").read_text()) | {
            "seed": seed,
            "wall_seconds": 10.5 * seed,
        }
        (first / f"seed_{seed}/result.json").write_text(json.dumps(result))
    edit(first / "seed_2", seed=2, device="cuda", run_root="elsewhere")
    edit(first / "seed_3", seed=3, alpha=7)
    (first / "seed_4/result.json").write_text("{")
    (first / "seed_5").mkdir()

    out = tmp_path / "all.csv"
    done = call(f"run_root={cli.root}", "--out", out)
    assert (
        done.code == LEFT_OUT
        and done.out == f"3 finished runs: {out}; 1 unreadable; 1 unfinished\n"
    ), done
    assert done.err.startswith(f"left out: {first / 'seed_4'}: result.json cannot be read")
    assert done.err.count("\n") == 1
    table = pd.read_csv(out)
    made = json.loads((first / "seed_1/result.json").read_text())
    assert list(table["seed"]) == [1, 2, 3] and list(table["wall_seconds"])[1:] == [21.0, 31.5]
    row = table.iloc[0]
    assert row["score"] == pytest.approx(made["score"]) and row["torch"] == torch.__version__
    assert {name: row[name] for name in collect.VERSIONS} == made["versions"]
    assert (row["commit"], row["dirty"]) == (made["git"]["commit"], made["git"]["dirty"])
    hashes = list(table["config_hash"])
    # Seed, device, run_root are no settings.
    assert hashes[0] == hashes[1] != hashes[2] and len(hashes[0]) == 12

    assert (
        call(f"run_root={cli.root}").code == LEFT_OUT
        and (cli.root / "results.csv").read_bytes() == out.read_bytes()
    )

    # Seeds of one setting are one row; a table that came home alone says the same as the runs it
    # was made of.
    rows = collect.settings(collect.collected(cli.root))
    assert sorted(row["seeds"] for row in rows) == ["1, 2", "3"]
    assert {row["score"] for row in rows} == {f"{made['score']:.1f}"}
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(out, home / "results.csv")
    assert collect.settings(collect.collected(home)) == rows
    assert collect.settings(collect.collected(tmp_path / "nowhere")) == []


@pytest.mark.parametrize(
    "word, line", [("run_root=nowhere", "no directory nowhere"), ("runs", "is not run_root=DIR")]
)
def test_mistakes_are_one_line(call, word, line):
    done = call(word)
    assert (
        done.code == 2
        and done.err.startswith("error: ")
        and line in done.err
        and done.err.count("\n") == 1
    )
