"""What SECURITY.md promises: no file runs code, no name leaves run_root, no secret is kept."""

import ast
import contextlib
import functools
import io
import json
import os
import pickle
import subprocess
import tarfile
import warnings
import zipfile

import numpy as np
import pytest
import torch

from agent.policy import load_policy
from analysis import choices, collect, curves, film, import_release, maze_tradeoff
from analysis.maze import __main__ as maze
from analysis.stand_ins import read
from run.cli.console import LEFT_OUT
from run.cli.schema import require_valid
from tests.kit.cli import finish, process
from utils import ROOT, UserError, load_snapshot, save_snapshot

PRODUCT = sorted(
    path
    for path in ROOT.rglob("*.py")
    if not {"tests", ".venv", "runs"} & set(path.relative_to(ROOT).parts)
)

# ------------------------------------------------------------------------------------ hostile files


class Calls:
    """Pickled, it is a call: function(*args) when it is loaded."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


class Gadget:
    """A class that exists where the file is read, and acts when its state is given back."""

    def __init__(self, canary):
        self.canary = canary

    def __setstate__(self, state):
        open(state["canary"], "w").close()


def touch(canary):
    return Calls(os.system, f"touch '{canary}'")


def saved(payload, **options):
    file = io.BytesIO()
    torch.save(payload, file, **options)
    return file.getvalue()


def archive_with(content):
    """A true torch archive whose data.pkl is replaced."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(saved({"kind": "snapshot"}))) as whole,
        zipfile.ZipFile(file, "w") as new,
    ):
        for name in whole.namelist():
            new.writestr(name, content if name.endswith("data.pkl") else whole.read(name))
    return file.getvalue()


def tar_with(content):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in ("storages", "tensors", "pickle"):  # the format of torch 0.1
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def in_state_dict(canary):
    weight = {"actor.trunk.0.weight": torch.zeros(2, 2), "actor.trunk.0.bias": touch(canary)}
    return {"kind": "snapshot", "format": 1, "learner": weight}


HOSTILE = {
    "protocol 0": lambda canary: pickle.dumps(touch(canary), 0),
    "protocol 2": lambda canary: pickle.dumps(touch(canary), 2),
    "protocol 4": lambda canary: pickle.dumps(touch(canary), 4),
    "exec": lambda canary: saved(
        {"kind": "snapshot", "learner": Calls(exec, f"open({str(canary)!r}, 'w')")}
    ),
    "state dict": lambda canary: saved(in_state_dict(canary)),
    "archive": lambda canary: archive_with(pickle.dumps(touch(canary), 4)),
    "legacy": lambda canary: saved(in_state_dict(canary), _use_new_zipfile_serialization=False),
    "tar": lambda canary: tar_with(pickle.dumps(touch(canary), 2)),
    "setstate": lambda canary: saved({"kind": "snapshot", "learner": Gadget(str(canary))}),
    "agent": lambda canary: saved({"agent": touch(canary), "_global_step": 1}),
}


@pytest.fixture
def canary(tmp_path):
    """A file that exists when hostile code has run."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "hostile code was executed"


@pytest.fixture
def hostile(tmp_path, canary):
    files = {name: tmp_path / f"{name.replace(' ', '_')}.pt" for name in HOSTILE}
    for name, path in files.items():
        path.write_bytes(HOSTILE[name](canary))
    return files


def one_line(done, path):
    """The command says one line, which names the file, and has exit code 2."""
    assert done.code == 2 and done.err.count("\n") == 1 and done.err.startswith("error: "), done
    # Torch advises to switch that off.
    assert str(path) in done.err and "weights_only" not in done.err, done.err
    return True


# ------------------------------------------------------------------------------ nothing is executed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HOSTILE)
def test_the_hostile_files_are_armed(name, hostile, canary):
    """Else the tests below would prove nothing."""
    with contextlib.suppress(Exception):
        torch.load(hostile[name], weights_only=False)
    assert canary.exists()
    canary.unlink()


def test_a_hostile_snapshot_is_refused_by_every_command_that_takes_one(
    hostile, canary, cli, run_main, tmp_path
):
    for path in hostile.values():
        assert one_line(cli("finetune", "agent=amped", "task=walker_run", f"snapshot={path}"), path)
        assert one_line(run_main(film.main, "skills", path, "--out", tmp_path / "film"), path)
        assert one_line(run_main(maze.main, "measure", path, "--out", tmp_path / "rows.csv"), path)
        done = run_main(import_release.main, path, "domain=walker", f"run_root={cli.root}")
        assert one_line(done, path) and "nothing in it was executed" in done.err
        with pytest.raises(UserError):
            load_policy(path)
    assert not cli.root.exists()


def test_the_refusal_names_what_the_file_wanted_to_call(hostile, canary, cli, run_main):
    for name, function in (("state dict", "posix.system"), ("exec", "exec")):
        done = cli("finetune", "task=walker_run", f"snapshot={hostile[name]}")
        assert (
            f"it names {function}, which is neither a tensor nor plain Python; nothing was executed"
            in done.err
        )
    done = cli("finetune", "task=walker_run", f"snapshot={hostile['legacy']}")
    assert "not one of ours: File is not a zip file" in done.err  # it is not even opened
    done = run_main(import_release.main, hostile["agent"], "domain=walker")
    assert (
        "is refused: it names posix.system, which no snapshot of URLB-family code needs" in done.err
    )


def test_torch_says_nothing_of_its_own_beside_the_line(hostile, canary):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for path in hostile.values():  # it warns of protocol 4, for one
            with pytest.raises(UserError):
                load_snapshot(path)
            with pytest.raises(UserError):
                read(path)
    assert said == []


def test_hostile_checkpoints_are_named_and_not_executed(hostile, canary, cli):
    assert cli("pretrain", "num_train_frames=20", "variant=v").code == 0
    run = cli.root / "pretrain/walker/amped/v/seed_1"
    (run / "result.json").unlink()
    for number, path in enumerate(hostile.values()):
        (run / f"checkpoint_{100 + number}.pt").write_bytes(path.read_bytes())
    done = cli("pretrain", "num_train_frames=20", "variant=v")
    for number in range(len(hostile)):
        assert str(run / f"checkpoint_{100 + number}.pt") in done.out + done.err
    assert "weights_only" not in done.out + done.err


def test_hostile_results_configs_and_tables_are_data_or_refused(
    hostile, canary, cli, run_main, tmp_path
):
    assert cli("pretrain", "num_train_frames=20", "variant=v").code == 0
    run = cli.root / "pretrain/walker/amped/v/seed_1"
    rows = {name: (run / name).read_bytes() for name in ("result.json", "config.yaml", "eval.csv")}
    yamls = [
        f"!!python/object/apply:os.system ['touch {canary}']\n".encode(),
        f"seed: !!python/object/apply:os.system ['touch {canary}']\n".encode(),
    ]
    some = ("protocol 0", "protocol 4", "archive", "tar")
    for content in [*(hostile[name].read_bytes() for name in some), *yamls]:
        for name, whole in rows.items():
            (run / name).write_bytes(content)
            if not (name == "eval.csv" and content in yamls):  # a CSV of one column, without a row
                done = run_main(collect.main, f"run_root={cli.root}")
                assert (
                    done.code == LEFT_OUT
                    and "0 finished runs" in done.out
                    and f"left out: {run}: {name}" in done.err
                )
            (run / name).write_bytes(whole)
        (run / "config.yaml").write_bytes(content)
        assert one_line(cli("pretrain", "num_train_frames=20", "variant=v"), run)
        (run / "config.yaml").write_bytes(rows["config.yaml"])
        (tmp_path / "rows.csv").write_bytes(content)
        assert one_line(
            run_main(maze_tradeoff.main, tmp_path / "rows.csv", "--out", tmp_path / "x.png"),
            "rows.csv",
        )
    (run / "eval.csv").write_bytes(hostile["archive"].read_bytes())
    assert one_line(run_main(curves.main, run, "--out", tmp_path / "x.png"), run / "eval.csv")


def test_a_hostile_npz_is_refused(canary, run_main, tmp_path):
    run = tmp_path / "finetune/walker_run/amped/v/selector/seed_1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("skill_dim: 4\n")
    np.savez(
        run / "choices.npz",
        training=np.array([touch(canary)]),
        evaluation=np.array([touch(canary)]),
    )
    assert one_line(run_main(choices.main, run), run / "choices.npz")
    with pytest.raises(UserError, match="npz cannot be read"):
        choices.load_choices(run, "evaluation")
    (run / "config.yaml").write_text(f"!!python/object/apply:os.system ['touch {canary}']\n")
    assert one_line(run_main(choices.main, run), run / "config.yaml")


@pytest.fixture
def booby_trap(canary, tmp_path, monkeypatch):
    """A module that acts when it is imported."""
    (tmp_path / "booby_trap.py").write_text(f"open({str(canary)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_snapshot_cannot_choose_the_class_or_the_environment_that_is_imported(
    booby_trap, cli, run_main, tmp_path
):
    """Plain data passes weights_only; what it names must not be imported either."""
    assert (
        cli("pretrain", "agent=aps", "num_train_frames=40", "snapshots=[]", "variant=v").code == 0
    )
    (path,) = cli.root.glob("pretrain/**/snapshot_40.pt")
    kept = ("frame", "seed", "agent", "domain", "spec", "config", "learner", "objective", "skills")
    payload = {key: value for key, value in load_snapshot(path).items() if key in kept}
    config = payload["config"]
    config["agent"]["objective"]["_target_"] = "booby_trap.Objective"
    config["agent"]["native_skills"]["_target_"] = config["agent"]["learner"]["_target_"] = (
        "booby_trap.Skills"
    )
    config["domain"]["primal_task"] = "booby_trap:make"
    trap = tmp_path / "trap.pt"
    save_snapshot(trap, **payload)
    done = cli("finetune", "agent=aps", "task=walker_run", "skills=native", f"snapshot={trap}")
    assert done.code == 0, done.err  # the run's own classes, with the snapshot's weights
    done = run_main(film.main, "skills", trap, "--out", tmp_path / "film")
    assert (
        one_line(done, trap)
        and "would be imported; if you trust it: --env booby_trap:make" in done.err
    )
    config["domain"]["primal_task"] = (
        "gymnasium:booby_trap:Env-v0"  # gymnasium imports what stands before the colon
    )
    save_snapshot(trap, **payload)
    assert one_line(run_main(film.main, "skills", trap, "--out", tmp_path / "film"), trap)


# -------------------------------------------------------------------------------- what code may use


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def calls(tree):
    """("torch.load", call) of every call by a dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keyword(call, name):
    return next((ast.unparse(each.value) for each in call.keywords if each.arg == name), None)


FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "yaml.unsafe_load",
    "yaml.full_load",
    "yaml.load_all",
    "pd.read_pickle",
    "torch.jit.load",
    "hydra.utils.instantiate",
    "hydra.utils.call",
    "hydra.utils.get_method",
    "hydra.utils.get_object",
    "torch.serialization.add_safe_globals",
}
NETWORK = {
    "wandb",
    "requests",
    "urllib",
    "urllib3",
    "httpx",
    "aiohttp",
    "http",
    "socket",
    "ftplib",
    "smtplib",
}
UNPICKLERS = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "jsonpickle",
}


def test_no_file_uses_a_loader_that_can_run_code():
    assert len(PRODUCT) > 80
    for path in PRODUCT:
        check_loaders(path)


def check_loaders(path):
    tree = parsed(path)
    imported = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    imported |= {
        node.module.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert not imported & UNPICKLERS, path
    for name, call in calls(tree):
        assert name not in FORBIDDEN, (path, name)
        if name == "torch.load":
            assert keyword(call, "weights_only") == "True", path
        if name in ("np.load", "numpy.load"):
            assert keyword(call, "allow_pickle") == "False", path
        if name == "yaml.load":
            assert ast.unparse(call.args[1]) == "YAML", path  # the safe loader of analysis/runs.py
        if name.startswith("subprocess."):
            assert keyword(call, "shell") is None, path


def test_classes_named_in_configs_are_looked_up_in_three_files_only():
    """And what they are given is the user's own config, or this repository's: see the booby trap
    above."""
    users = {
        str(path.relative_to(ROOT))
        for path in PRODUCT
        for name, _ in calls(parsed(path))
        if name == "load_class"
    }
    assert users == {"run/cli/schema.py", "agent/skills/regimes.py", "analysis/metrics.py"}


# ---------------------------------------------------------------------------------- inside run_root


@pytest.mark.parametrize(
    ("script", "key"),
    [
        ("pretrain", "agent.name"),
        ("pretrain", "domain.name"),
        ("pretrain", "preset.name"),
        ("pretrain", "variant"),
        ("finetune", "task.name"),
        ("finetune", "skills.name"),
        ("finetune", "pretrain_variant"),
    ],
)
def test_a_name_from_a_config_cannot_leave_run_root(cli, script, key):
    extra = (
        ("agent=ddpg", "task=walker_run") if script == "finetune" else ("alpha=1", "beta=1", "p=1")
    )
    done = cli(script, f"{key}=../../../../../escaped", *extra)
    assert done.code == 2 and done.err.count("\n") == 1 and key in done.err
    wanted = f"{key}= follows from" if key.endswith(".name") else "a file name without slashes"
    assert wanted in done.err and not cli.root.exists()
    for name in ("..", "/tmp/escaped", "a/b", ".hidden", "a\\b/..", "a\0b", ""):
        with pytest.raises(UserError, match="a file name without slashes"):
            require_valid(key, name)


# --------------------------------------------------------------------------------------- no secrets


def test_secrets_of_the_environment_and_of_git_are_neither_printed_nor_stored(
    tmp_path, monkeypatch
):
    """With TensorBoard and Weights & Biases on, in a checkout whose remote has a token in its
    address."""
    for name in (
        "WANDB_API_KEY",
        "HF_TOKEN",
        "GITHUB_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "MY_PASSWORD",
    ):
        monkeypatch.setenv(name, f"canary{name.lower():_<36}")
    for name in ("MODE", "CACHE_DIR", "CONFIG_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", "offline" if name == "MODE" else str(tmp_path / name))
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for words in (
        ["init", "-q"],
        ["remote", "add", "origin", "https://canary-token@example.invalid/r"],
        [
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b.c",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "first",
        ],
    ):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    runs = tmp_path / "runs"
    done = finish(
        process(
            "pretrain",
            "preset=smoke",
            "num_train_frames=20",
            "use_tb=true",
            "use_wandb=true",
            f"run_root={runs}",
            cwd=checkout,
        )
    )
    assert done.code == 0, done.err
    assert "canary" not in done.out + done.err
    files = [path for path in tmp_path.rglob("*") if path.is_file() and ".git" not in path.parts]
    assert {"result.json", "config.yaml", "snapshot_20.pt"} <= {path.name for path in files}
    assert any(path.suffix == ".wandb" for path in files) and any(
        "tfevents" in path.name for path in files
    )
    assert not [path for path in files if b"canary" in path.read_bytes()]
    (result,) = runs.rglob("result.json")
    assert set(json.loads(result.read_text())["git"] or {}) <= {"commit", "dirty"}


def test_nothing_is_sent_unless_asked_for():
    """No file speaks to a network by itself: wandb is imported in one place, behind use_wandb=true,
    and what listens on the loopback is imported behind --serve."""
    asked = {}
    for path in PRODUCT:
        for node in ast.walk(parsed(path)):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
            )
            for name in {each.partition(".")[0] for each in names} & NETWORK:
                asked.setdefault(name, []).append(
                    (str(path.relative_to(ROOT)), node.col_offset > 0)
                )
    # wandb inside a function; http only where python -m analysis.report --serve listens
    assert asked == {"wandb": [("run/logger.py", True)], "http": [("analysis/serve.py", False)]}
