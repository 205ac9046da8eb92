"""What each config key may hold. Checked before anything is built or written; one line per
mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs.maze.geometry import EPISODE_STEPS
from run.cli.words import nearest
from utils import UserError, first_line

Rule = tuple[str, Callable[[Any], bool]]  # what a valid value is, in words and as a test


def _is_int(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def integer(low: int, high: int = 10**15) -> Rule:
    return f"a whole number from {low} to {high:g}", lambda v: _is_int(v) and low <= v <= high


def number(
    low: float, high: float = 1e30, *, above: bool = False
) -> Rule:  # the default leaves room in a float32
    words = f"a number {'above' if above else 'from'} {low:g}{',' if above else ''} to {high:g}"
    return (
        words,
        lambda v: (
            (_is_int(v) or isinstance(v, float)) and low <= v <= high and (v > low or not above)
        ),
    )


def optional(rule: Rule) -> Rule:
    return f"{rule[0]}, or null", lambda v: v is None or rule[1](v)


def matching(pattern: str, words: str) -> Rule:
    return words, lambda v: isinstance(v, str) and re.fullmatch(pattern, v) is not None


def reading(*choices: str) -> Rule:
    """The union over agents and learners; who has fewer refuses the others itself."""
    return f"one of {', '.join(choices)}", lambda v: isinstance(v, str) and v in choices


def is_name(v: Any) -> bool:
    return (
        isinstance(v, str)
        and re.fullmatch(r"\w[\w.,=+@~-]*", v) is not None
        and len(v.encode()) <= 200
    )


SWITCH: Rule = ("true or false", lambda v: isinstance(v, bool))
AUTO: Rule = ("auto, true or false", lambda v: isinstance(v, bool) or v == "auto")
NAME: Rule = ("a file name without slashes, of at most 200 bytes", is_name)
ENVIRONMENT = matching(
    r"[\w.:/-]+", "an environment, such as walker_run, gymnasium:ID or some.module:function"
)
CLASS = matching(
    r"[^\W\d]\w*(\.[^\W\d]\w*)+", "a class by its full name, such as agent.amped.AMPED"
)
PATH = matching(r"[^\0]{1,1000}", "a path")
FRAMES: Rule = (
    "a list of frames above 0, such as [100,200]",
    lambda v: isinstance(v, list) and all(_is_int(x) and 0 < x <= 10**15 for x in v),
)
SECTION: Rule = ("a group of keys, one of which can be given; --help lists them", lambda v: False)

# By the last part of the key, so that preset.ddpg.lr and learner.lr share one line; by the whole
# key where it differs.
RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "num_train_frames",
            "pretrain_frames",
            "finetune_frames",
            "num_seed_frames",
            "conflict_every_updates",
            "warmup",
            "warmup_frames",
            "interval",
            "selector_interval",
            "skill_interval",
        ),
        integer(0),
    ),
    **dict.fromkeys(
        (
            "eval_every_frames",
            "num_eval_episodes",
            "log_every_frames",
            "checkpoint_every_frames",
            "update_every_steps",
            "contrastive_updates",
            "sinkhorn_iterations",
            "video_episodes",
            "epochs",
            "objective_epochs",
            "selector_every",
            "reward_window",
        ),
        integer(1),
    ),
    # what takes memory
    **dict.fromkeys(
        (
            "hidden_dim",
            "rep_dim",
            "out_dim",
            "pred_dim",
            "proj_dim",
            "num_protos",
            "resampled_skills",
            "vae_hidden_dim",
            "vae_code_dim",
            "selector_dim",
            "rnd_dim",
            "k",
        ),
        integer(1, 2**16),
    ),
    **dict.fromkeys(
        (
            "batch_size",
            "conflict_samples",
            "pool_size",
            "queue_size",
            "samples",
            "window",
            "rollouts",
            "minibatches",
        ),
        integer(1, 10**6),
    ),
    **dict.fromkeys(("capacity", "replay_capacity"), integer(1, 10**9)),
    **dict.fromkeys(("nstep", "action_repeat"), integer(1, 1000)),
    "layers": integer(1, 100),
    "skill_dim": integer(0, 2**16),
    "models": integer(2, 1000),  # one has no variance
    "video_size": integer(16, 4096),
    **dict.fromkeys(("snapshot_ts", "eval_episode_steps", "rollout_steps"), optional(integer(1))),
    **dict.fromkeys(("num_threads", "workers"), optional(integer(1, 1024))),
    "eval_envs": integer(1, 1024),
    "seed": ("a whole number from 0 to 4294967295", lambda v: _is_int(v) and 0 <= v < 2**32),
    "index": integer(-1, 2**16),
    "value": number(-1, 1),
    **dict.fromkeys(
        (
            "lr",
            "temperature",
            "cpc_temperature",
            "lambda_init",
            "logit_clip",
            "vae_lr",
            "discriminator_lr",
            "candidates_per_row",
            "epsilon_decay",
            "grad_clip",
            "adam_eps",
            "clip",
        ),
        number(0, above=True),
    ),
    **dict.fromkeys(
        (
            "alpha",
            "beta",
            "knn_clip",
            "stddev",
            "stddev_clip",
            "scale",
            "slack",
            "constrain_factor",
            "vae_beta",
            "density_weight",
            "weight_low",
            "weight_high",
            "value_weight",
            "entropy_weight",
        ),
        number(0),
    ),
    **dict.fromkeys(
        (
            "gamma",
            "gae_lambda",
            "extra_discount",
            "epsilon_start",
            "epsilon_end",
            "target_tau",
            "target_entropy",
            "critic_target_tau",
            "encoder_target_tau",
            "norm_momentum",
        ),
        number(0, 1),
    ),
    "p": optional(number(0, 1)),
    "snapshots": FRAMES,
    **dict.fromkeys(
        (
            "use_tb",
            "use_wandb",
            "diversity",
            "init_critic",
            "init_heads",
            "sync_target",
            "legacy_head_init",
            "discriminative",
            "frozen",
            "learn_temperature",
            "save_video",
            "fresh_rollouts",
            "skill_net",
            "normalize_inputs",
            "compile",
            "tf32",
        ),
        SWITCH,
    ),
    **dict.fromkeys(("cuda_graph", "on_device"), AUTO),
    # readings; tests/test_rules.py holds them to what the code takes
    "action_input": reading("trunk", "head"),
    "adv_norm": reading("per_stream", "joint", "none"),
    "constraint": reading("mean", "sum"),
    "cpc": reading("paper", "release"),
    "critic_heads": reading("shared", "per_stream"),
    "denominator": reading("negatives_only", "all"),
    "div_reward": reading("ratio", "log_ratio"),
    "entropy_form": reading("release", "paper"),
    "eval": reading("per_episode", "switching", "per_call"),
    "finetune_skills": reading("switching", "fixed", "none"),
    "knn_scale": reading("var", "std", "mean", "none"),
    "metric": reading("diag", "full", "none", "cosine"),
    "model_error": reading("norm", "squared"),
    "numerics": reading("logsumexp", "naive"),
    "particle": reading("state", "next_state", "pair"),
    "policy": reading("beta", "tanh_gaussian"),
    "pool": reading("batch", "recent"),
    "positive": reading("random", "first"),
    "regression": reading("least_squares", "release"),
    "reward_scale": reading("per_stream", "joint", "none"),
    "rnd_on": reading("obs", "next_obs"),
    "rnd_reward": reading("normalized", "squared_norm"),
    "sign": reading("paper", "release"),
    "skill_index": reading("acting", "legacy"),
    "skill_space": reading("none", "one_hot", "cube", "sphere", "gaussian"),
    "surgery_scope": reading("critic", "actor", "all", "policy", "value"),
    "transition": reading("nstep", "one_step"),
    "value_heads": reading("per_stream", "shared"),
    "agent.objective.variant": reading("intended", "amped_port"),
    "learner.name": reading("ddpg", "ppo"),
    "surgery.name": reading("sum", "pcgrad"),
    "phase": reading("pretrain", "finetune"),
    "obs_type": reading("states", "pixels"),
    **dict.fromkeys(
        ("name", "domain", "features", "wandb_project"), NAME
    ),  # names become directories
    "device": matching(r"auto|cpu|cuda(:\d{1,3})?", "one of auto, cpu, cuda, cuda:N"),
    "first": optional(matching(r"\w+", "a reward stream, such as diversity")),
    **dict.fromkeys(("primal_task", "env"), ENVIRONMENT),
    "_target_": CLASS,
    **dict.fromkeys(("variant", "pretrain_variant"), optional(NAME)),
    "run_root": PATH,
    "snapshot": optional(PATH),
    **dict.fromkeys(
        (
            "agent",
            "learner",
            "preset",
            "skills",
            "surgery",
            "task",
            "replay",
            "objective",
            "per_domain",
            "native_skills",
            "ddpg",
            "ppo",
        ),
        SECTION,
    ),
}
NULLABLE = {"agent.objective"}  # null: nothing to pre-train


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


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """The composed config as plain Python, every value checked."""
    for key, value in flatten(OmegaConf.to_container(cfg, resolve=False)).items():
        if not (
            isinstance(value, str) and "${" in value
        ):  # under the name that the user gave, not where it is used
            require_valid(key, value)
    try:
        config = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(_interpolation_line(cfg, error)) from error
    if (
        config["agent"]["skill_space"] != "none"
        and _is_int(config["skill_dim"])
        and config["skill_dim"] < 1
    ):
        raise UserError(
            f"skill_dim={config['skill_dim']} is too small; agent {config['agent']['name']} needs skills: "
            "1 or more"
        )
    for key, value in flatten(config).items():
        require_valid(key, value)
    _check_together(config)
    return config


def rule_of(key: str) -> Rule | None:
    if key == "domain" or key.rpartition(".")[0] == "agent.per_domain":
        return SECTION
    return RULES.get(key) or RULES.get(key.rpartition(".")[2])


def require_valid(key: str, value: Any) -> Any:
    """The value, or one line that names the key and what would be valid."""
    above, _, last = key.rpartition(".")
    rule = rule_of(key)
    if above and rule_of(above) not in (None, SECTION):  # seed={a: 1}
        key, value, rule = above, {last: value}, rule_of(above)
    if rule is None:
        raise UserError(
            f"{key} is not a key of any run{nearest(key, RULES)}; a new one needs a line in "
            "agent/settings.py"
        )
    words, valid = rule
    if not valid(value) and not (value is None and key in NULLABLE):
        wanted = (
            words.replace("one of", "choose from", 1)
            if words.startswith("one of")
            else f"it must be {words}"
        )
        raise UserError(f"{key}={value!r} is not valid; {wanted}")
    return value


def _interpolation_line(cfg: DictConfig, error: OmegaConfBaseException) -> str:
    key = re.search(r"per_domain\.([^.']+)\.(\w+)", str(error))
    if key is None:
        where = getattr(error, "full_key", None) or "an interpolation"
        return f"{where} cannot be resolved: {first_line(error)}; ${{KEY}} must name a key (--help)"
    return (
        f"agent {cfg.agent.name} has no {key[2]} for domain {key[1]}; give it on the command line "
        f"({key[2]}=...), known domains: {', '.join(cfg.agent.per_domain)}"
    )


def _check_cycles(config: dict[str, Any]) -> None:
    """On-policy learners stop between cycles only, so whatever happens at a frame must be due
    there."""
    learner = config["learner"]
    if config["save_video"]:
        raise UserError(
            "save_video=true films one episode at a time; learner=ppo plays many side by side: use "
            "save_video=false, its pre-training draws skills_<frame>.png"
        )
    twice = learner["fresh_rollouts"] and config["phase"] == "pretrain"
    cycle = learner["rollouts"] * (learner["rollout_steps"] or EPISODE_STEPS) * (1 + twice)
    for key in (
        "num_train_frames",
        "eval_every_frames",
        "log_every_frames",
        "checkpoint_every_frames",
        "snapshots",
    ):
        for frames in config[key] if isinstance(config[key], list) else [config[key]]:
            if frames % cycle:
                raise UserError(
                    f"{key}={frames} is not a multiple of {cycle}, the frames of one cycle of learner=ppo "
                    "(rollouts x steps, in pre-training twice with learner.fresh_rollouts)"
                )


def _check_together(config: dict[str, Any]) -> None:
    repeat = config["action_repeat"]
    for key in (
        "num_train_frames",
        "num_seed_frames",
        "eval_every_frames",
        "log_every_frames",
        "checkpoint_every_frames",
    ):
        if config[key] % repeat:
            raise UserError(f"{key}={config[key]} is not a multiple of action_repeat={repeat}")
    if config["learner"]["name"] == "ppo":
        _check_cycles(config)
        for key in ("compile", "cuda_graph"):
            if config[key] is True:
                raise UserError(
                    f"{key}=true is for learner=ddpg; learner=ppo runs without it: {key}=false"
                )
    late = [f for f in config["snapshots"] if f % repeat]
    if late:
        raise UserError(f"snapshots={late} are not multiples of action_repeat={repeat}")
    if config["obs_type"] != "states":
        raise UserError(f"obs_type={config['obs_type']} is not supported yet; use obs_type=states")
    task = config.get("task")
    if task and task["domain"] != config["domain"]["name"]:
        raise UserError(
            f"task={task['name']} belongs to domain {task['domain']}, not to {config['domain']['name']}; "
            f"leave domain= away, it follows from the task"
        )


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"device={name} is not known; choose from auto, cpu, cuda, cuda:N")
    if name.startswith("cuda"):
        if not torch.cuda.is_available():
            raise UserError(
                f"device={name}, but torch finds no CUDA device here; use device=cpu or device=auto"
            )
        if ":" in name and int(name[5:]) >= torch.cuda.device_count():
            raise UserError(
                f"device={name}, but there are {torch.cuda.device_count()} CUDA devices"
            )
    return torch.device(name)
