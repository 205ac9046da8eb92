"""What each key of a config may hold: the annotations of the class that takes it say so.

Checked before anything is built or written; one line per mistake. Which classes these are, the
config itself says: `agent.objective._target_`, the learner, the rule of skills. A method in a
directory of the user's own needs no line here.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agent.base import Objective, load_class
from agent.keys import arguments, keys_of
from agent.learners.adaptation import Adaptation
from agent.learners.ddpg import DDPG
from agent.learners.ppo import PPO
from agent.learners.resolvers import FAMO, MGDA, AlignedMTL, CAGrad, NormalisedSum
from agent.learners.stream_weights import HeldShare, LinearShare, StreamWeights
from agent.learners.surgery import ProjectConflict, SumGradients, Surgery
from agent.skills.regimes import SOURCES
from agent.skills.selector import Selector
from agent.skills.selector_networks import ALGORITHMS
from agent.skills.sources import SkillSource
from replay_buffer import ReplayBuffer
from run.cli.rules import SECTION, Rule, rule_of_annotation
from run.cli.together import check_together
from run.cli.words import nearest
from run.data import DataSettings
from run.settings import (
    CLASS,
    NAME,
    SECTIONS,
    STANDS_FOR,
    RegimeSettings,
    RolloutSettings,
    SkillSettings,
)
from utils import UserError, first_line

LEARNERS: dict[str, type[DDPG] | type[PPO]] = {"ddpg": DDPG, "ppo": PPO}
SURGERIES: dict[str, type[Surgery]] = {
    "sum": SumGradients,
    "pcgrad": ProjectConflict,
    "normalised_sum": NormalisedSum,
    "mgda": MGDA,
    "cagrad": CAGrad,
    "aligned_mtl": AlignedMTL,
    "famo": FAMO,
}
BALANCES: dict[str, type[StreamWeights]] = {
    "constant": StreamWeights,
    "linear": LinearShare,
    "hold": HeldShare,
}
# What the program gives to a constructor; every other argument is a key of its section.
GIVEN = {
    "obs_dim",
    "action_dim",
    "skill_dim",
    "generator",
    "streams",
    "surgery",
    "rng",
    "num_seed_steps",
    "warmup_steps",
    "one_hot",
    "critics",
    "space",
    "features",
    "adapt",
    "tasks",
    "physics",
    "data",
    "updates",
    "pixels",
    "images",
    "obs_shape",
    "stack",
}
GROUPS = {  # sections that hold sections, or that an agent's yaml may leave out
    "agent",
    "agent.objective",
    "agent.learner",
    "agent.native_skills",
    "agent.per_domain",
    "agent.ddpg",
    "agent.ppo",
    "preset.ddpg",
    "preset.ppo",
    "preset.pixels",
    *SECTIONS,
} - {""}


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'a': {'b': 1}} -> {'a.b': 1}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= (
            flatten(value, f"{prefix}{key}.")
            if isinstance(value, dict)
            else {f"{prefix}{key}": value}
        )
    return flat


def rules_of(*kinds: type, given: Set[str] = GIVEN) -> dict[str, Rule]:
    """The flat keys that constructors take and what each may hold; where two take the same one, the
    later class decides."""
    found = {}
    for kind in kinds:
        for name, key in keys_of(kind).items():
            rule = rule_of_annotation(key.annotation)
            if rule is not None and name not in given:
                found[name] = rule
    return found


def _fixed_rules() -> dict[str, Rule]:
    """Of the keys that every run has, whatever its classes are."""
    found = rules_of(SkillSettings, given=frozenset())
    for section, kind in SECTIONS.items():
        for name, rule in rules_of(kind, given=frozenset()).items():
            found[f"{section}.{name}" if section else name] = rule
    return found


FIXED = _fixed_rules()


def require_valid(key: str, value: Any) -> Any:
    """The value of a key that every run has, or one line that says what would be valid."""
    FIXED[key].check(key, value)
    return value


class Schema:
    """The rules of one config, whose values may still be `${interpolations}`."""

    def __init__(self, config: dict[str, Any]):
        self.values = flatten(config)
        self.users: dict[str, list[str]] = {}  # of a key: the keys that are `${it}` and no more
        for user, value in self.values.items():
            whole = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
            if whole and "." in user and not user.startswith("agent.per_domain."):
                self.users.setdefault(whole[1], []).append(user)
        name = self._choose("learner.name", tuple(LEARNERS))
        learner = rules_of(LEARNERS[name])
        if name == "ppo":  # agents' yamls may set keys of DDPG, such as sync_target
            learner = rules_of(DDPG, PPO, RolloutSettings)
        regime = self._choose("skills.name", ("none", *SOURCES, *ALGORITHMS, "native", "oracle"))
        if "agent.native_skills._target_" not in self.values:
            self._choose("agent.native_skills.name", ("none", *SOURCES))
        selectors = rules_of(Selector, *ALGORITHMS.values())
        sources = rules_of(*SOURCES.values())
        self.choosers = {**sources, **selectors}  # keys of every rule of skills
        self.sections: dict[str, dict[str, Rule]] = {
            "agent.objective": self._class_rules("agent.objective", Objective),
            "agent.learner": self._class_rules("agent.learner", DDPG),
            "agent.native_skills": {
                **(self._class_rules("agent.native_skills", SkillSource) or sources),
                "name": NAME,
                "features": NAME,
            },
            "agent.ddpg": rules_of(DDPG),
            "agent.ppo": rules_of(PPO),
            "learner": learner,
            "surgery": rules_of(SURGERIES[self._choose("surgery.name", tuple(SURGERIES))]),
            "balance": rules_of(BALANCES[self._choose("balance.name", tuple(BALANCES))]),
            "skills": {
                **(selectors if regime in ALGORITHMS else sources),
                **rules_of(RegimeSettings),
            },
            "replay": rules_of(ReplayBuffer),
            "adapt": rules_of(Adaptation),
            "data": rules_of(DataSettings),
        }

    def _choose(self, key: str, choices: tuple[str, ...]) -> str:
        value = self.values.get(key, choices[0])
        if value not in choices and "${" not in str(value):  # skills=default: the agent's choice
            raise UserError(f"{key}={value!r} is not valid; choose from {', '.join(choices)}")
        return value

    def _class_rules(self, section: str, base: type) -> dict[str, Rule]:
        """Those of the class that the section names; none where it names none."""
        key = f"{section}._target_"
        inside = {name: self.values[name] for name in self.values if name.startswith(f"{key}.")}
        if key not in self.values and not inside:
            return {}
        if inside:  # a section where the name of a class belongs
            CLASS.check(key, inside)
        CLASS.check(key, self.values[key])
        return {**rules_of(load_class(key, self.values[key], base)), "_target_": CLASS}

    def rule_of(self, key: str) -> Rule | None:
        """None: the config must not have this key."""
        section, _, last = key.rpartition(".")
        if key in FIXED:
            return FIXED[key]
        if key in GROUPS or section == "agent.per_domain":
            return SECTION
        if section in self.sections:
            return self.sections[section].get(last)
        if section.startswith("agent.per_domain."):
            return self._stands_for(last, "", "agent.objective", "agent")
        if section in ("preset.ddpg", "preset.ppo", "preset.pixels"):
            learner = "ppo" if section == "preset.ppo" else "ddpg"
            return self._preset(learner, STANDS_FOR.get(last, last))
        return self._own(key) if not section else None

    def _stands_for(self, name: str, *sections: str) -> Rule | None:
        """The rule of the key of this name in the first section that has it."""
        for section in sections:
            key = f"{section}.{name}" if section else name
            if rule := self.rule_of(key):
                return rule
        return None

    def _preset(self, learner: str, key: str) -> Rule | None:
        own = rules_of(LEARNERS[learner], RolloutSettings)
        return own.get(key) or self.choosers.get(key.removeprefix("skills.")) or self.rule_of(key)

    def _own(self, key: str) -> Rule | None:
        """Of a key that an agent's yaml adds at the top level, such as alpha: the rule of the key
        that it is handed to."""
        for user in self.users.get(key, []):
            if rule := self.rule_of(user):
                return rule
        return self.sections["agent.objective"].get(key) or rules_of(ProjectConflict).get(key)

    def known(self) -> list[str]:
        """Every key that the config has or could have."""
        own = [f"{section}.{name}" for section, rules in self.sections.items() for name in rules]
        return [*FIXED, *own, *self.values]

    def require_valid(self, key: str, value: Any) -> None:
        """Nothing, or one line that names the key and what would be valid."""
        above, _, last = key.rpartition(".")
        rule = self.rule_of(key)
        outer = self.rule_of(above) if above else None
        if outer not in (None, SECTION):  # seed={a: 1}
            key, value, rule = above, {last: value}, outer
        if rule is None:
            others = [each for each in self.known() if each != key]
            raise UserError(
                f"{key} is not a key of this run{nearest(key, others)}; --help lists those of every "
                "run, and a class takes the arguments of its constructor"
            )
        if value is None and key == "agent.objective":
            return  # nothing to pre-train
        rule.check(key, value)
        for user in self.users.get(key, []):  # under the name that was given, not where it is used
            if own := self.rule_of(user):
                own.check(key, value)


def require_keys(section: str, kind: type, settings: dict[str, Any]) -> None:
    """What a class cannot be made without is there."""
    for name, key in keys_of(kind).items():
        plain = name not in GIVEN and rule_of_annotation(key.annotation) is not None
        if plain and key.required and name not in settings:
            raise UserError(
                f"{section}.{name} is missing; {kind.__module__}.{kind.__qualname__} takes it: "
                "give it in the yaml"
            )


def named(section: dict[str, Any]) -> dict[str, Any]:
    """A section's settings without its name."""
    return {key: value for key, value in section.items() if key != "name"}


def build(section: str, kind: type, settings: dict[str, Any], **given: Any) -> Any:
    """An object of a class from the flat keys of a section, checked once more: settings may come
    from a snapshot."""
    settings = {name: value for name, value in settings.items() if name != "_target_"}
    rules = rules_of(kind)
    for name, value in settings.items():
        if name not in rules:
            raise UserError(
                f"{section}.{name} is not a key of {kind.__module__}.{kind.__qualname__}"
                f"{nearest(name, rules)}; it takes {', '.join(rules)}"
            )
        rules[name].check(f"{section}.{name}", value)
    require_keys(section, kind, settings)
    return kind(**given, **arguments(kind, settings))


def objective_class(config: dict[str, Any]) -> type[Objective]:
    target = config["agent"]["objective"].get("_target_", "nothing")
    return load_class("agent.objective._target_", target, Objective)


def learner_class(config: dict[str, Any]) -> type[DDPG] | type[PPO]:
    """The learner, or the method's own extension of DDPG."""
    name, own = config["learner"]["name"], config["agent"].get("learner", {})
    if name == "ddpg" and "_target_" in own:
        return load_class("agent.learner._target_", own["_target_"], DDPG)
    return LEARNERS[name]


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """The composed config as plain Python, every value checked."""
    raw: dict[str, Any] = OmegaConf.to_container(cfg, resolve=False)  # type: ignore[assignment]
    _require_sections(raw)
    _require_skills(raw)
    schema = Schema(raw)
    for key, value in schema.values.items():
        if not (isinstance(value, str) and "${" in value):
            schema.require_valid(key, value)
    try:
        config: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(_interpolation_line(cfg, error)) from error
    _require_skills(config)
    for key, value in flatten(config).items():
        schema.require_valid(key, value)
    if config["agent"]["objective"] is not None:
        kind = objective_class(config)
        require_keys("agent.objective", kind, config["agent"]["objective"])
        if kind.needs_skills and config["agent"]["skill_space"] == "none":
            raise UserError(
                f"agent.skill_space=none leaves agent={config['agent']['name']} without the skills "
                "that it is about; use one_hot, cube, sphere or gaussian"
            )
    own = {**config["learner"], **config["agent"].get("learner", {})}
    require_keys("learner", learner_class(config), own)
    config["agent"].pop("show", None)  # for tables and figures: no part of the run
    check_together(config)
    return config


def _require_sections(config: dict[str, Any]) -> None:
    """Sections are sections: whatever reads them need not ask again."""
    for section in (
        "agent",
        "learner",
        "preset",
        "skills",
        "surgery",
        "balance",
        "domain",
        "task",
        "replay",
        "adapt",
        "data",
        "render",
        "pixels",
    ):
        if section in config and not isinstance(config[section], dict):
            SECTION.check(section, config[section])
    for name in ("objective", "learner", "native_skills", "per_domain", "show"):
        value = config["agent"].get(name, {})
        if not isinstance(value, dict) and not (name == "objective" and value is None):
            SECTION.check(f"agent.{name}", value)


def _require_skills(config: dict[str, Any]) -> None:
    agent, dim = config["agent"], config["skill_dim"]
    if agent.get("skill_space") != "none" and type(dim) is int and dim == 0:
        raise UserError(
            f"skill_dim={dim} is too small; agent {agent.get('name')} needs skills: 1 or more"
        )


def _interpolation_line(cfg: DictConfig, error: OmegaConfBaseException) -> str:
    key = re.search(r"per_domain\.([^.']+)\.(\w+)", str(error))
    if key is None:
        where = getattr(error, "full_key", None) or "an interpolation"
        return f"{where} cannot be resolved: {first_line(error)}; ${{KEY}} must name a key (--help)"
    return (
        f"agent {cfg.agent.name} has no {key[2]} for domain {key[1]}; give it on the command line "
        f"({key[2]}=...), known domains: {', '.join(cfg.agent.per_domain)}"
    )
