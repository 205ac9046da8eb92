"""Configs: every key has a rule, and the register in docs/fidelity.md is what the yamls compose
to."""

import re

import pytest
from omegaconf import OmegaConf

from run.cli.schema import flatten, resolve
from run.paths import variant_name
from tests.kit.configs import AGENTS, PRETRAINED, composed, unchecked
from utils import ROOT, UserError

PRESETS = ("paper", "cpu", "smoke")


def register() -> list[list[str]]:
    """Rows of the fidelity register: number, topic, key, paper, public code, published, default."""
    section = (ROOT / "docs/fidelity.md").read_text()
    table = [
        [cell.strip().strip("`") for cell in line.strip("|\n").split(" | ")]
        for line in section.splitlines()
        if re.match(r"\| \d", line)
    ]
    return [[cell.strip() for cell in row] for row in table]


def value(text: str):
    return OmegaConf.create(f"x: {text}").x


@pytest.mark.parametrize("phase", ["pretrain", "finetune"])
@pytest.mark.parametrize("agent", AGENTS)
def test_every_key_of_every_agent_has_a_rule_that_it_keeps(phase, agent):
    task = ["task=walker_run"] if phase == "finetune" else []
    for preset in PRESETS:
        config = composed(phase, f"agent={agent}", f"preset={preset}", *task)
        assert config["agent"]["name"] == agent and "show" not in config["agent"]


@pytest.mark.parametrize("domain", ["tree_maze", "square_maze"])
@pytest.mark.parametrize("agent", PRETRAINED)
def test_every_agent_keeps_its_rules_in_the_mazes(domain, agent):
    assert composed("pretrain", f"agent={agent}", f"domain={domain}")["learner"]["name"] == "ppo"


@pytest.mark.parametrize("skills", sorted(p.stem for p in (ROOT / "configs/skills").glob("*.yaml")))
def test_every_key_of_every_regime_has_a_rule_that_it_keeps(skills):
    config = composed("finetune", "task=walker_run", f"skills={skills}")
    assert config["skills"]["name"] == {"default": "switching"}.get(skills, skills)


def test_an_unknown_key_of_a_yaml_is_refused_with_the_nearest_known_one():
    """Hydra itself refuses those of a command line."""
    for where, key, known in (
        (("agent", "objective"), "temperatur", "agent.objective.temperature"),
        (("learner",), "batch_sise", "learner.batch_size"),
        ((), "num_train_frame", "num_train_frames"),
        (("preset", "ddpg"), "hidden_dims", "preset.ddpg.hidden_dim"),
        (("agent", "per_domain", "walker"), "alphas", "agent.per_domain.walker.alpha"),
    ):
        cfg = unchecked("pretrain", "agent=amped")
        OmegaConf.set_struct(cfg, False)
        name = ".".join((*where, key))
        OmegaConf.update(cfg, name, 1, force_add=True)
        with pytest.raises(UserError) as error:
            resolve(cfg)
        assert str(error.value).startswith(
            f"{name} is not a key of this run (did you mean {known}?)"
        )


def test_the_register_covers_every_row_of_the_table():
    numbers = {int(re.match(r"\d+", row[0])[0]) for row in register()}
    assert numbers == set(range(1, 37))


def test_the_paper_is_silent_where_it_says_nothing_and_the_other_columns_never_are():
    silent = {row[0] for row in register() if row[3] == "silent"}
    assert silent == {"6", "18", "22", "22b", "29", "30", "35", "36"}
    assert {row[0] for row in register() if row[3][0] == "*"} == {"15", "26", "28"}
    assert not any(cell == "silent" or cell[0] == "*" for row in register() for cell in row[4:7])


def test_the_register_is_what_the_four_yamls_compose_to():
    """One column per yaml; a/b/c stands for walker, quadruped and jaco. skills.* are those of the
    two selectors."""
    checked = 0
    domains = ("walker", "quadruped", "jaco")
    columns = ("amped_literal", "amped_release", "amped_published", "amped")
    for column, agent in enumerate(columns, 3):
        configs = [flatten(composed("pretrain", f"agent={agent}", f"domain={d}")) for d in domains]
        public = agent in ("amped_release", "amped_published")
        selector = "selector_release" if public else "selector"
        skills = flatten(
            composed("finetune", f"agent={agent}", "task=walker_run", f"skills={selector}")
        )
        configs = [
            config | {k: v for k, v in skills.items() if k.startswith("skills.")}
            for config in configs
        ]
        for row in register():
            key = row[2]
            if agent == "amped_literal" and (row[column] == "silent" or row[column][0] == "*"):
                assert all(config[key] == value(row[6]) for config in configs), key
                continue  # nothing to take to the letter: the default
            expected = row[column].split("/") if "/" in row[column] else [row[column]] * 3
            for config, text in zip(configs, expected, strict=True):
                assert config[key] == value(text), (agent, key, config[key], text)
                checked += 1
    assert checked > 4 * 3 * 20


def changed(agent: str, *words: str, phase: str = "pretrain") -> dict[str, object]:
    """What the words change in an agent's flat config."""
    task = ["task=walker_run"] if phase == "finetune" else []
    plain, other = (
        flatten(composed(phase, f"agent={agent}", *task, *each)) for each in ((), words)
    )
    assert plain.keys() == other.keys()
    return {key: other[key] for key in plain if plain[key] != other[key]}


SHARED = {
    "replay.skill_index": "legacy",
    "replay.running_episode": False,
    "learner.sync_target": False,
    "pixels.critic_encoder": False,
}
PUBLIC = {
    "becl": {"denominator": "all", "positive": "first", "numerics": "naive"},
    "cic": {"cpc": "release"},
    "proto": {"prototype_norm": "in_place"},
    "cesd": {"cpc": "release", "prototype_norm": "in_place"},
    "comsd": {"cpc": "release", "variant": "amped_port"},
    "smm": {"sign": "release"},
    "diayn": {},
    "apt": {},
    "rnd": {},
}


@pytest.mark.parametrize("agent", PUBLIC)
def test_reading_public_is_one_word_for_what_the_public_code_does(agent):
    own = {f"agent.objective.{key}": value for key, value in PUBLIC[agent].items()}
    own |= {"agent.learner.legacy_head_init": True} if agent == "cesd" else {}
    for phase in ("pretrain", "finetune"):
        assert changed(agent, "reading=public", phase=phase) == SHARED | own


def test_published_is_the_public_reading_of_amped_under_the_papers_constants():
    """By name and by word; a key of the command line still wins."""
    published = flatten(composed("pretrain", "agent=amped_published", "domain=jaco"))
    by_word = flatten(composed("pretrain", "agent=amped", "reading=public", "domain=jaco"))
    differ = {key for key in published if published[key] != by_word[key]}
    assert differ == {"agent.name"} and published["beta"] == 0.005
    assert (
        changed("amped", "reading=public", "replay.skill_index=acting")["learner.sync_target"]
        is False
    )
    with pytest.raises(Exception, match="public"):
        composed("pretrain", "reading=privat")


def test_the_paper_preset_is_the_papers_table():
    """Table "Hyperparameter settings for URLB experiments"."""
    config = flatten(composed("pretrain"))
    expected = {
        "skill_dim": 16,
        "agent.objective.temperature": 0.5,
        "agent.objective.k": 16,
        "replay.capacity": 1_000_000,
        "num_seed_frames": 4000,
        "replay.nstep": 3,
        "learner.batch_size": 1024,
        "replay.gamma": 0.99,
        "learner.lr": 1e-4,
        "learner.update_every_steps": 2,
        "learner.critic_target_tau": 0.01,
        "learner.stddev_clip": 0.3,
        "learner.stddev": 0.2,
        "num_train_frames": 2_000_000,
        "learner.hidden_dim": 1024,
        "snapshots": [100_000, 500_000, 1_000_000, 2_000_000],
        "eval_every_frames": 10_000,
    }
    assert {key: config[key] for key in expected} == expected
    finetune = flatten(composed("finetune", "task=walker_run"))
    assert finetune["num_train_frames"] == 100_000 and finetune["num_eval_episodes"] == 10
    assert finetune["skills.interval"] == 50 and finetune["skills.eval"] == "per_episode"


def test_a_new_domain_without_constants_is_told_what_to_give():
    with pytest.raises(
        UserError, match=r"agent amped has no \w+ for domain moon; give it on the command line"
    ):
        composed("pretrain", "domain.name=moon")
    assert composed("pretrain", "domain.name=moon", "alpha=1", "beta=2", "p=0.5")["alpha"] == 1


def test_the_variant_is_the_preset_and_what_was_overridden():
    config = {"preset": {"name": "cpu"}}
    assert variant_name(config, ["agent=amped", "preset=cpu", "seed=3", "device=cpu"]) == "cpu"
    assert variant_name(config, ["p=1", "beta=0"]) == "cpu,beta=0,p=1"
    assert "/" not in variant_name(config, ["variant_x=../../etc/passwd"])
    long = variant_name(config, [f"learner.key{i}={i}" for i in range(40)])
    assert len(long) < 130 and long != variant_name(
        config, [f"learner.key{i}={i}" for i in range(41)]
    )


def test_finetuning_looks_for_the_overrides_of_the_method_alone():
    """What the agent's yaml sets at the top level, the agent, surgery, and what shapes a
    pre-training."""
    config = composed("finetune", "agent=cesd", "task=walker_run", "preset=cpu")
    method = [
        "agent.objective.k=4",
        "constrain_factor=2",
        "learner.critic_heads=per_stream",
        "learner.hidden_dim=64",
        "learner.layers=2",
        "reading=public",
        "sinkhorn_iterations=2",
        "skill_dim=8",
        "skill_interval=9",
        "surgery.p=1",
        "surgery=pcgrad",
    ]
    others = ["learner.lr=1", "num_train_frames=5", "replay.nstep=1", "action_repeat=2", "seed=3"]
    for word in (*method, *others):
        expected = f"cpu,{word}" if word in method else "cpu"
        assert variant_name(config, [word], method_only=True) == expected
    maze = composed("finetune", "agent=amped", "task=tree_maze_reach_left", "preset=cpu")
    words = ["learner.policy=beta", "learner.normalize_inputs=true", "learner.clip=1", "beta=0"]
    assert variant_name(maze, words, method_only=True) == (
        "cpu,beta=0,learner.normalize_inputs=true,learner.policy=beta"
    )


def test_the_register_of_the_mazes_is_what_the_yamls_compose_to():
    """Columns of the paper and of the default, with 6 skills; a dash says nothing, and where the
    paper is silent amped_literal has the default."""
    section = (ROOT / "docs/mazes.md").read_text()
    table = [
        [cell.strip().strip("`") for cell in line.strip("|\n").split(" | ")]
        for line in section.splitlines()
        if re.match(r"\| M\d", line)
    ]
    assert [row[0].strip() for row in table] == [f"M{i}" for i in range(1, len(table) + 1)] and len(
        table
    ) >= 17
    for column, agent in ((3, "amped_literal"), (5, "amped")):
        config = flatten(composed("pretrain", f"agent={agent}", "domain=tree_maze", "skill_dim=6"))
        for row in table:
            said = row[5] if row[column] == "silent" else row[column]
            assert config[row[2].strip("`")] == value(said), (agent, row[2])
