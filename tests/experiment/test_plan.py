"""Every table of the paper is an experiment: its exact runs, which of them exist, and commands that
make the rest."""

import shlex
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest

from analysis import plan
from experiment import definition as experiment
from experiment import paper
from experiment import runs as planned
from experiment.runs import compose, config_of, order
from run.cli.schema import resolve
from utils import ROOT, UserError

TABLES = (
    "urlb",
    "ablation",
    "scaling",
    "scaling_search",
    "selection",
    "metra",
    "projection",
    "skills",
)
TEN, THREE = set(range(1, 11)), {1, 2, 3}


@pytest.fixture
def show(run_main):
    """show("experiment=...") as python -m analysis.plan."""
    return partial(run_main, plan.main)


def seeds_of(runs):
    found = {}
    for run in runs:
        found.setdefault((run.method, run.config["task"]["name"]), set()).add(run.config["seed"])
    return found


def test_the_main_table_is_240_pretrainings_and_1200_finetunings_each_after_its_own(show):
    """Eight methods are pre-trained; AMPED is fine-tuned with and without its selector."""
    found = experiment.load(["experiment=table_urlb"])
    assert (len(found.runs), len(found.finetunings)) == (8 * 3 * 10, 10 * 12 * 10)
    before = {run.path: run.config for run in found.runs}
    for run in found.finetunings:
        assert (run.after is None) == (run.method == "ddpg")
        if run.after is not None:
            source = before[run.after]
            assert (source["agent"], source["seed"]) == (run.config["agent"], run.config["seed"])
            assert source["domain"]["name"] == run.config["task"]["domain"]
    lines = show("experiment=table_urlb").out.splitlines()
    assert lines[1:3] == [
        "240 pre-trainings: 0 finished, 0 unfinished, 240 missing",
        "1200 fine-tunings: 0 finished, 0 unfinished, 1200 missing",
    ]
    assert len(lines) == 3 + 1440 and len(set(lines[3:])) == 1440


def test_the_published_table_takes_every_method_as_its_public_code_runs_it():
    """One skill of the paper's protocol for all, but for CIC, which keeps the constant of its code;
    with the selector AMPED has the public code's."""
    words = ["domain=walker", "seed=1", "task=walker_run"]
    found = experiment.load(["experiment=table_urlb_published", *words])
    assert (len(found.runs), len(found.finetunings)) == (8, 10)
    agents = {run.method: run.config["agent"] for run in found.runs}
    assert agents.pop("amped")["name"] == "amped_published"
    for run in found.runs:
        assert run.config["replay"]["skill_index"] == "legacy"
        assert run.method == "amped" or "reading=public" in run.words
    assert agents["comsd"]["objective"]["variant"] == "amped_port"
    assert agents["becl"]["objective"]["denominator"] == "all"
    regimes = {run.method: run.config["skills"]["name"] for run in found.finetunings}
    assert regimes == {
        **dict.fromkeys(("amped", "cesd", "becl", "diayn", "comsd"), "switching"),
        **dict.fromkeys(("apt", "rnd", "ddpg"), "none"),
        "amped_selector": "selector_release",
        "cic": "native",
    }
    assert all(
        not run.config["learner"]["sync_target"]
        for run in found.finetunings
        if run.method != "ddpg"
    )


@pytest.mark.parametrize("name", ["table_contrast", "maze_contrast"])
def test_the_three_contrasts_differ_in_the_metric_alone(name):
    runs = experiment.load([f"experiment={name}", "seed=1"]).runs
    domain = runs[0].config["domain"]["name"]
    metrics = {
        run.method: run.config["agent"]["objective"]["metric"]
        for run in runs
        if run.config["domain"]["name"] == domain
    }
    assert metrics == {"amped": "diag", "infonce": "none", "cosine": "cosine"}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_the_methods_tasks_and_seeds_that_the_paper_prints(table):
    found = experiment.load([f"experiment=table_{table}"])
    assert found.figure == {"kind": "scores", "paper": table}
    printed = paper.load(table)
    # Single: the mean of oracle.
    printed = printed[(printed["kind"] == "score") & (printed["method"] != "single")]
    beyond = {"amped_selector", "metra_gaussian"}  # rows that the paper's table does not have
    ours = {
        key: seeds for key, seeds in seeds_of(found.finetunings).items() if key[0] not in beyond
    }
    assert set(ours) == set(zip(printed["method"], printed["task"], strict=True))
    base = {"urlb", "ablation", "metra"}
    for (method, _), seeds in ours.items():
        single = table == "scaling_search" and method != "amped"
        assert seeds == (
            {1}
            if single
            else THREE
            if table == "selection" or (method != "amped" and table not in base)
            else TEN
        )


def test_the_words_of_a_method_are_its_settings():
    def settings(name, method, *keys):
        words = [
            f"experiment={name}",
            f"methods={method}",
            "domain=walker",
            "seed=1",
            "task=walker_run",
        ]
        (run,) = experiment.load(words).runs
        flat = {
            **run.config,
            **run.config["agent"]["objective"],
            "surgery": run.config["surgery"]["name"],
        }
        return tuple(flat[key] for key in keys)

    assert settings("table_ablation", "no_rnd", "beta", "diversity", "surgery") == (
        0,
        True,
        "pcgrad",
    )
    assert settings("table_ablation", "no_aninfonce", "beta", "diversity", "surgery") == (
        10,
        False,
        "pcgrad",
    )
    assert settings("table_ablation", "no_surgery", "beta", "diversity", "surgery") == (
        10,
        True,
        "sum",
    )
    assert settings("table_scaling", "alpha=100", "alpha", "beta") == (100, 10)
    assert settings("table_projection", "p=1.0", "p") == (1,)
    assert settings("table_skills", "skill_dim=32", "skill_dim") == (32,)
    for run in experiment.load(
        ["experiment=table_scaling_search", "seed=1", "task=walker_run"]
    ).runs:
        assert run.method in ("amped", f"alpha={run.config['alpha']} beta={run.config['beta']}")


def test_methods_that_differ_in_finetuning_alone_share_their_pretrainings():
    """Without the selector, Table 1's AMPED is Table 13's: the same runs."""
    found = experiment.load(["experiment=table_ablation"])
    trained = ("amped", "no_rnd", "no_aninfonce", "no_surgery")
    assert Counter(run.method for run in found.runs) == dict.fromkeys(trained, 30)
    skills = {run.method: run.config["skills"]["name"] for run in found.finetunings}
    assert skills == dict.fromkeys(trained, "selector") | {"no_selector": "switching"}
    urlb = experiment.load(["experiment=table_urlb", "methods=amped"])
    assert {run.path for run in urlb.runs} == {
        run.path for run in found.runs if run.method == "amped"
    }
    assert {run.path for run in urlb.finetunings} == {
        run.path for run in found.finetunings if run.method == "no_selector"
    }


@pytest.mark.parametrize("task", planned.tasks())
def test_a_config_that_was_not_composed_for_its_task_is_the_one_that_would_have_been(task):
    words = {"agent": "diayn", "task": task, "preset": "cpu", "seed": "7"}
    config, _ = config_of("finetune", words)
    whole = resolve(compose(order(words), "finetune"))
    machine = ("device", "num_threads")
    assert {k: v for k, v in config.items() if k not in machine} == {
        k: v for k, v in whole.items() if k not in machine
    }


def test_the_commands_of_a_plan_make_its_runs_in_its_order(cli, show, tmp_path):
    """As printed, one after the other; a pre-training of another length is named to its
    fine-tunings."""
    words = (
        "experiment=smoke",
        "seed=2",
        "task=walker_run",
        "pretrain.num_train_frames=60",
        "finetune.replay.nstep=1",
        f"run_root={tmp_path / 'a b'}",
    )
    first = show(*words)
    commands = [shlex.split(line[22:]) for line in first.out.splitlines()[3:]]
    assert [c[1] for c in commands] == ["pretrain.py"] * 2 + ["finetune.py"] * 3
    named = ["pretrain_variant='smoke,num_train_frames=60'" in command for command in commands]
    assert named == [False, False, True, True, False]  # DDPG starts from nothing
    for _, script, *args in commands:
        done = cli(script.removesuffix(".py"), *args)
        assert done.code == 0, done.err
    after = show(*words).out.splitlines()
    assert after[1:3] == [
        "2 pre-trainings: 2 finished, 0 unfinished, 0 missing",
        "3 fine-tunings: 3 finished, 0 unfinished, 0 missing",
    ]
    assert len(show(*words, "--missing").out.splitlines()) == 3


def test_seeds_of_the_command_line_are_for_every_method_and_a_domain_keeps_to_its_methods():
    one = experiment.load(["experiment=table_projection", "seed=12", "domain=jaco", "preset=cpu"])
    assert [(run.method, run.config["seed"]) for run in one.runs] == [
        ("amped", 12),
        ("p=0.0", 12),
        ("p=1.0", 12),
    ]
    assert {run.config["domain"]["name"] for run in one.runs} == {"jaco"}
    walker = experiment.load(["experiment=table_scaling_search", "domain=walker", "seed=1"])
    assert [run.method for run in walker.runs] == [
        "amped",
        "alpha=0.02 beta=10",
        "alpha=0.005 beta=10",
        "alpha=0.01 beta=12",
        "alpha=0.01 beta=8",
    ]


@pytest.mark.parametrize(
    "words, line",
    [
        ("experiment=table_url", "did you mean table_urlb?"),
        ("experiment=table_urlb task=walker_fly", "task=walker_fly is not known"),
        (
            "experiment=table_urlb num_train_frames=10",
            "give pretrain.num_train_frames= or finetune.num_train_frames=",
        ),
        ("experiment=table_urlb seed=-1", "seed=-1 is not valid"),
        ("experiment=table_urlb seed=one", "seed='one' is not valid"),
        ("experiment=table_urlb agent=amped", "give methods=AGENT,AGENT"),
        ("experiment=table_urlb methods=ampd", "agent=ampd is not known"),
        ("experiment=table_ablation variant=x", "would be the same run"),
        ("experiment=table_urlb methods=amped finetune.lr=1", "lr is not a key of this run"),
        ("experiment=fig_tree6 methods=ddpg", "has no runs with"),
        ("", "experiment= is missing"),
    ],
)
def test_mistakes_are_one_line(show, words, line):
    done = show(*words.split())
    assert done.code == 2 and done.err.startswith("error: ") and done.err.count("\n") == 1
    assert line in done.err, done.err


def test_a_finetune_block_needs_a_task(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text(
        "{title: t, preset: smoke, methods: [amped], grid: {domain: walker}, figure: {}, finetune: {}}"
    )
    with pytest.raises(UserError, match="finetune is a mapping with a task"):
        experiment.load([f"experiment={own}"])


def test_the_reader_may_close_the_pipe_early():
    shown = subprocess.run(
        f"{sys.executable} -m analysis.plan experiment=smoke | head -1",
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert shown.stdout.startswith("smoke: ") and shown.stderr == ""
