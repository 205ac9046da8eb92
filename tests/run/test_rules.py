"""Every key has a rule, the rules say what the code takes, and no name leads out of run_root."""

import ast
import functools
import resource
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from run.cli.schema import RULES, require_valid, rule_of
from run.directory import run_path, variant_name
from tests.kit.bad_input import SETTINGS, is_fixed, leaves, wrong_values
from utils import ROOT, UserError

CODE = [*(ROOT / "agent").rglob("*.py"), *(ROOT / "run").rglob("*.py"), ROOT / "replay_buffer.py"]


@functools.cache
def as_hydra_reads(word: str):
    return OverridesParser.create().parse_override(f"x={word}").value()


def plain(value):
    """Hydra's quoted strings as strings."""
    return getattr(value, "text", value)


def readings_in_the_code() -> dict[str, set[str]]:
    """Of every choose("KEY", value, (...)) with its choices written out: the last part of the key
    -> all of them."""
    found: dict[str, set[str]] = {}
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            chooses = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "choose"
            if chooses and isinstance(node.args[2], ast.Tuple):
                key = node.args[0].value
                found.setdefault(key if key in RULES else key.rpartition(".")[2], set()).update(
                    each.value for each in node.args[2].elts
                )
    return found


def test_every_leaf_key_has_a_rule_and_its_own_value_keeps_it():
    for script, words in SETTINGS:
        for key, value in leaves(script, words).items():
            assert rule_of(key) is not None, key
            require_valid(key, value)


def test_every_leaf_key_refuses_every_wrong_value_by_its_name():
    tried = 0
    for script, words in SETTINGS:
        for key, value in leaves(script, words).items():
            for word in wrong_values(key, value) if not is_fixed(key) else ():
                with pytest.raises(UserError) as error:
                    require_valid(
                        key, plain(as_hydra_reads(f"'{word}'" if word in ("ü", "../x") else word))
                    )
                    pytest.fail(f"{key}={word} is taken")
                assert str(error.value).startswith(f"{key}="), error.value
                tried += 1
    assert tried > 5000


def test_the_readings_of_the_rules_are_those_of_the_code():
    found = readings_in_the_code()
    assert len(found) > 20
    for key, choices in found.items():
        if key in ("skills", "learner"):  # names of groups
            continue
        for choice in choices:
            require_valid(key, choice)
        listed = set(RULES[key][0].removeprefix("one of ").split(", "))
        assert listed == choices or key == "skill_space", (key, listed ^ choices)


@settings(max_examples=300, derandomize=True, database=None, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["..", ".", "", "/", "a/../..", "/etc", "ok", "smoke"]), st.text()
        ),
        min_size=5,
        max_size=5,
    ),
    st.lists(st.text().map(lambda text: f"beta={text}"), max_size=2),
)
def test_whatever_names_the_configs_hold_a_run_stays_below_its_root(names, overrides):
    agent, domain, preset, variant, skills = names
    config = {
        "agent": {"name": agent},
        "domain": {"name": domain},
        "task": {"name": domain},
        "seed": 1,
        "preset": {"name": preset},
        "variant": variant or None,
        "skills": {"name": skills, "index": -1},
        "run_root": "runs",
        "snapshot_ts": None,
    }
    for phase, depth in (("pretrain", 6), ("finetune", 7)):
        try:
            path = run_path({**config, "phase": phase}, overrides)
        except UserError as error:
            assert "it must be a file name without slashes" in str(error)
            continue
        assert len(path.parts) == depth and path.resolve().is_relative_to(Path("runs").resolve())
        assert all(len(part.encode()) <= 255 and "\0" not in part for part in path.parts)


def test_a_variant_of_long_words_in_any_alphabet_fits_a_file_name():
    name = variant_name({"preset": {"name": "cpu"}}, ["beta=" + "ü" * 300, "alpha=" + "字" * 100])
    assert len(name.encode()) < 130 and name.startswith("cpu,alpha=字")


def test_a_variant_may_be_of_any_alphabet_and_is_the_directory(cli):
    assert cli("pretrain", "variant=größe_7", "num_train_frames=20", "snapshots=[]").code == 0
    assert (cli.root / "pretrain/walker/amped/größe_7/seed_1/result.json").exists()


def test_sizes_that_no_memory_holds_are_told_in_one_line(cli):
    """An address-space limit refuses the memory as a small machine does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * 2**30, hard))
    try:
        out = cli("pretrain", "replay.capacity=100000000")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert (
        out.code == 2
        and "out of memory" in out.err
        and "replay.capacity (100000000 rows now)" in out.err
    )
    assert out.err.count("\n") == 1 and not cli.root.exists()
