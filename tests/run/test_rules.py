"""Every key has a rule, the annotations of the classes are the rules, and no name leads out of
run_root."""

import functools
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import pytest
from annotated_types import Gt, Interval
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from run.cli.schema import Schema, build, rules_of
from run.paths import run_path, variant_name
from tests.kit.bad_input import SETTINGS, is_fixed, leaves, wrong_values
from tests.kit.configs import composed, unchecked
from utils import UserError


@functools.cache
def as_hydra_reads(word: str):
    return OverridesParser.create().parse_override(f"x={word}").value()


def plain(value):
    """Hydra's quoted strings as strings."""
    return getattr(value, "text", value)


def test_every_leaf_key_has_a_rule_and_its_own_value_keeps_it():
    for script, words in SETTINGS:
        schema = Schema(OmegaConf.to_container(unchecked(script, *words, "preset=smoke")))
        for key, value in leaves(script, words).items():
            assert schema.rule_of(key) is not None, key
            schema.require_valid(key, value)


def test_every_leaf_key_refuses_every_wrong_value_by_its_name():
    tried = 0
    for script, words in SETTINGS:
        schema = Schema(OmegaConf.to_container(unchecked(script, *words, "preset=smoke")))
        for key, value in leaves(script, words).items():
            for word in wrong_values(key, value) if not is_fixed(key) else ():
                with pytest.raises(UserError) as error:
                    schema.require_valid(
                        key, plain(as_hydra_reads(f"'{word}'" if word in ("ü", "../x") else word))
                    )
                    pytest.fail(f"{key}={word} is taken")
                assert str(error.value).startswith(f"{key}="), error.value
                tried += 1
    assert tried > 5000


class Sizes(NamedTuple):
    """No dataclass and nothing plain: only the program can give it."""

    width: int


@dataclass(frozen=True, kw_only=True)
class Shape:
    width: Annotated[int, Interval(ge=1, le=8)]
    kind: Literal["round", "square"]


class Whole:
    def __init__(self, *, sizes: Sizes, shape: Shape, weight: Annotated[float, Gt(0)], free=1):
        self.shape, self.weight, self.free = shape, weight, free


class Extended(Whole):
    def __init__(self, *, steps: int | None, auto: bool | Literal["auto"], **settings):
        super().__init__(**settings)
        self.steps, self.auto = steps, auto


def test_the_annotations_of_a_class_are_the_rules_of_its_keys():
    words = {name: rule.words for name, rule in rules_of(Extended).items()}
    assert words == {
        "steps": "a whole number from -1e+15 to 1e+15, or null",
        "auto": "auto, true or false",
        "width": "a whole number from 1 to 8",
        "kind": "one of round, square",
        "weight": "a number above 0, to 1e+30",
        "free": "a plain value",
    }


@pytest.mark.parametrize(
    ("key", "valid", "invalid"),
    [
        ("steps", [3, None, 0], [True, 2.5, "3", float("nan")]),
        ("auto", ["auto", True, False], ["true", 1, None]),
        ("width", [1, 8], [0, 9, True, 1.0]),
        ("kind", ["round"], ["oval", None, 3, ["round"]]),
        ("weight", [1, 1e-9], [0, -1, float("inf"), float("nan"), "1", True]),
        ("free", [1, "x", None, [1]], [{"a": 1}]),
    ],
)
def test_a_rule_takes_what_its_annotation_says(key, valid, invalid):
    rule = rules_of(Extended)[key]
    assert all(rule.valid(value) for value in valid)
    assert not any(rule.valid(value) for value in invalid)


def test_flat_keys_find_the_dataclass_that_has_a_field_of_their_name():
    made = build(
        "agent.objective",
        Extended,
        {"width": 3, "kind": "round", "weight": 2, "steps": None, "auto": True},
        sizes=Sizes(1),
    )
    assert made.shape == Shape(width=3, kind="round") and made.weight == 2 and made.free == 1


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"kind": "oval"}, "x.kind='oval' is not valid; choose from round, square"),
        ({"width": 9}, "x.width=9 is not valid; it must be a whole number from 1 to 8"),
        ({"widht": 3}, r"x.widht is not a key of .*Extended \(did you mean width\?\); it takes"),
        ({"weight": ...}, "x.weight is missing; .*Extended takes it"),
        ({"sizes": 3}, "x.sizes is not a key of"),
    ],
)
def test_a_class_is_built_from_valid_settings_only(change, line):
    settings = {"width": 3, "kind": "round", "weight": 2, "steps": 1, "auto": "auto", **change}
    settings = {key: value for key, value in settings.items() if value is not ...}
    with pytest.raises(UserError, match=line):
        build("x", Extended, settings, **{"sizes": Sizes(1)} if "sizes" not in change else {})


def test_a_key_may_be_in_one_argument_only():
    class Twice:
        def __init__(self, *, width: int, shape: Shape):
            pass

    Twice.__init__.__annotations__.update(width=int, shape=Shape)
    with pytest.raises(TypeError, match="the key width is in two arguments"):
        rules_of(Twice)


def test_a_reading_of_another_agent_is_refused_before_anything_is_built():
    with pytest.raises(UserError, match="particle='pair' is not valid; choose from state, next_"):
        composed("pretrain", "agent=apt", "agent.objective.particle=pair")


@pytest.mark.parametrize(
    "word",
    [
        "learner.critic_heads=both",
        "learner.surgery_scope=policy",  # PPO's
        "learner.action_input=tail",
        "replay.skill_index=late",
        "surgery.p=2",
    ],
)
def test_an_unknown_reading_names_its_key_and_the_choices(word):
    key, _, value = word.partition("=")
    with pytest.raises(UserError, match=rf"{key}='?{value}'? is not valid; (choose from|it must)"):
        composed("pretrain", "agent=amped", word)


def test_a_key_that_is_handed_on_is_refused_under_the_name_that_was_given():
    with pytest.raises(
        UserError, match=r"agent.skill_space='cube' is not valid; choose from gauss"
    ):
        composed("pretrain", "agent=dads", "agent.skill_space=cube")


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
