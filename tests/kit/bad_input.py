"""Generators of wrong input, by the kind of the key. What is wrong is said here anew, from the
yamls' own values, not taken from the rules under test."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

from hypothesis import strategies as st

from run.cli.schema import flatten
from tests.kit.configs import composed
from utils import ROOT

GROUPS = {
    group: sorted(path.stem for path in (ROOT / "configs" / group).glob("*.yaml"))
    for group in (
        "adapt",
        "agent",
        "balance",
        "data",
        "domain",
        "learner",
        "preset",
        "reading",
        "skills",
        "surgery",
        "task",
    )
}
SETTINGS = [  # script and words whose composed keys are tried
    ("pretrain", ("agent=amped",)),
    ("pretrain", ("agent=amped_literal", "domain=tree_maze")),
    ("pretrain", ("agent=cesd",)),
    ("pretrain", ("agent=cic", "domain=jaco")),
    ("pretrain", ("agent=comsd",)),
    ("pretrain", ("agent=aps",)),
    ("pretrain", ("agent=smm",)),
    ("pretrain", ("agent=proto",)),
    ("pretrain", ("agent=metra_continuous", "domain=square_maze")),
    ("pretrain", ("agent=disagreement",)),
    ("pretrain", ("agent=amped", "surgery=cagrad", "balance=hold")),
    ("pretrain", ("agent=amped", "surgery=famo", "balance=linear")),
    ("finetune", ("agent=amped", "task=walker_run", "skills=selector")),
    ("finetune", ("agent=amped", "task=jaco_reach_top_left", "skills=selector_release")),
    ("finetune", ("agent=becl", "task=tree_maze_reach_left", "skills=oracle")),
    ("finetune", ("agent=ddpg", "task=quadruped_run")),
    ("finetune", ("agent=amped", "task=walker_run", "adapt=reuse", "skills=bandit")),
    ("finetune", ("agent=cic", "task=walker_run", "data=relabelled", "skills=by_data")),
]
BIG = str(10**40)
TYPES = ("[1,x]", "{a:1}", "", "ü", "'a b'", "many")  # wrong for every number and switch
MAY_BE_NULL = {
    "num_threads",
    "eval_episode_steps",
    "rollout_steps",
    "workers",
    "p",
    "first",
    "objective",
    "variant",
    "pretrain_variant",
    "snapshot",
    "snapshot_ts",
    "share",
    "file",
}
REAL = {
    "rate",
    "alpha",
    "beta",
    "constrain_factor",
    "lambda_init",
    "logit_clip",
    "knn_clip",
    "epsilon_decay",
    "scale",
}
POSITIVE = {
    "hidden_dim",
    "batch_size",
    "layers",
    "capacity",
    "nstep",
    "action_repeat",
    "num_eval_episodes",
    "k",
    "lr",
}
# Text that no list confines.
FREE = {
    "of",
    "run_root",
    "wandb_project",
    "primal_task",
    "env",
    "features",
    "first",
    "domain",
    "variant",
    "pretrain_variant",
    "snapshot",
    "file",
}
OUTSIDE = [
    "../x",
    "../../../tmp/x",
    "/tmp/x",
    "a/b",
    "..",
    ".",
    "~/x",
    "a\nb",
    "a\0b",
    "\x1b[31mx",
    " ",
    "x" * 300,
    "ü" * 150,
    ".hidden",
    "a\u2028b",
    "-x",
    "a*b",
    "a|b",
]


class Case(NamedTuple):
    command: str
    words: tuple[str, ...]
    named: tuple[str, ...]  # the line must hold one of them


@functools.cache
def leaves(script: str, words: tuple[str, ...]) -> dict[str, Any]:
    """Every key of a composed config with its value."""
    return flatten(composed(script, *words, "preset=smoke"))


def is_fixed(key: str) -> bool:
    """Decided by a group or the script; `names` tries them."""
    return key == "phase" or (key.count(".") == 1 and key.endswith(".name"))


def wrong_values(key: str, value: Any) -> list[str]:
    """Of which each is wrong for this key."""
    last = key.rpartition(".")[2]
    if isinstance(value, str | None):
        wrong = ["[1,x]", "{a:1}", "", "3.5"]
        if value != "auto" or last == "device":  # elsewhere it is auto, true or false
            wrong.append("true")
    else:
        wrong = list(TYPES)
    if last not in MAY_BE_NULL:
        wrong.append("null")
    if isinstance(value, bool):
        return [*wrong, "3", "1.5", "perhaps"]
    if isinstance(value, list):
        return [*wrong, "7", "[0]", "[-5]", "[1.5]", "[true]", f"[{BIG}]"]
    if isinstance(value, int | float):
        wrong += ["true", "nan", "inf", "-inf", "1e308", "-7", BIG, f"-{BIG}"]
        if isinstance(value, int) and last not in REAL:
            wrong += ["2.5", "1e3"]
        return [*wrong, "0"] if last in POSITIVE else wrong
    if value is None and last in (
        "snapshot_ts",
        "workers",
        "eval_episode_steps",
        "rollout_steps",
        "num_threads",
    ):
        return [*wrong, "0", "-7", "2.5", "nan", BIG, "many", "ü"]
    return wrong + (
        [] if last in FREE or key == "agent.native_skills.name" else ["zzz", "ü", "../x"]
    )


def no_number(text: str) -> bool:
    try:
        return math.isnan(float(text.replace("_", "")))
    except ValueError:
        return text.strip().lower() not in ("null", "true", "false", "") and not set(text) & set(
            "'\"${}[]()\\,"
        )


@st.composite
def values(draw) -> Case:
    """One key with a value of a wrong type or outside its range, or with any text where a number
    belongs."""
    script, words = draw(st.sampled_from(SETTINGS))
    found = {key: value for key, value in leaves(script, words).items() if not is_fixed(key)}
    key = draw(st.sampled_from(sorted(found)))
    candidates = wrong_values(key, found[key])
    if key in (
        "run_root",
        "data.file",
    ):  # a command line quotes them: these are names of files there
        candidates = [word for word in candidates if word not in ("[1,x]", "{a:1}")]
    wrong = st.sampled_from(candidates)
    if type(found[key]) in (int, float):
        wrong = st.one_of(wrong, wrong, st.text(min_size=1, max_size=30).filter(no_number))
    return Case(script, (*words, f"{key}={draw(wrong)}"), (key,))


@st.composite
def typos(draw) -> Case:
    """A key with one letter gone, doubled or changed."""
    script, words = draw(st.sampled_from(SETTINGS))
    found = sorted(
        key
        for key in leaves(script, words)
        if len(key.rpartition(".")[2]) > 5 and "per_domain" not in key
    )
    key = draw(st.sampled_from(found))
    at = draw(st.integers(len(key.rpartition(".")[0]) + 1, len(key) - 1))
    typo = key[:at] + draw(st.sampled_from(["", key[at] * 2, "x"])) + key[at + 1 :]
    return Case(
        script, (*words, f"{typo if typo not in found else key + 'x'}=1"), ("(did you mean",)
    )


@st.composite
def unknown_options(draw) -> Case:
    group = draw(st.sampled_from(sorted(GROUPS)))
    name = draw(
        st.one_of(
            st.sampled_from([*OUTSIDE, "3", "null", "[amped]", "{a:1}", "", "true"]),
            st.sampled_from(GROUPS[group]).map(lambda name: name + "x"),
            st.text("aäß_9", min_size=3),
        )
    )
    script, words = "pretrain", ("agent=amped",)
    if group == "agent":
        words = ()
    elif group == "task":
        script, words = "finetune", ()
    elif group == "skills":
        script, words = "finetune", ("task=walker_run",)
    return Case(script, (*words, f"{group}={name}"), (f"{group}=",))


@st.composite
def names(draw) -> Case:
    """Names that would become directories, and keys that say where Hydra writes."""
    outside = draw(st.sampled_from(OUTSIDE))
    groups = [f"{group}.name" for group in ("agent", "domain", "learner", "preset", "surgery")]
    script, key = draw(
        st.sampled_from(
            [
                *(
                    ("pretrain", key)
                    for key in (
                        "variant",
                        "wandb_project",
                        "phase",
                        "hydra.run.dir",
                        "hydra.sweep.dir",
                        "hydra.output_subdir",
                        *groups,
                    )
                ),
                *(
                    ("finetune", key)
                    for key in ("variant", "pretrain_variant", "task.name", "skills.name")
                ),
            ]
        )
    )
    words = ("task=walker_run",) if script == "finetune" else ()
    return Case(script, (*words, f"{key}={outside}"), (key,))


@st.composite
def grammar(draw) -> Case:
    """Words that are no key=value, or one too many."""
    key = draw(st.sampled_from(["seed", "alpha", "learner.lr", "variant", "agent"]))
    words = draw(
        st.sampled_from(
            [
                (key,),
                (f"{key} 3",),
                (f"{key}=1", f"{key}=2"),
                ("=3",),
                (f"+{key}=3",),
                (f"++{key}=3",),
                (f"~{key}",),
                (f"{key}=[1",),
                (f"{key}={{a:",),
                (f"{key}=1,2,3" if key != "variant" else "variant",),
                (f"{key}=${{nope}}",),
                (f"{key}=${{{key}}}",),
                (f"--{key}",),
                (f"--{key}=3",),
                ("-z",),
                (f"{key}=${{",),
                ("--config-dir=/nowhere",),
                (f"{key}=range(3)" if key != "variant" else "~variant",),
                ("--config-name=nothing",),
            ]
        )
    )
    return Case(
        "pretrain", words, (key, *(word.partition("=")[0] or word for word in words), words[0])
    )
