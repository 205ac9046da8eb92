"""What each config key may hold. Checked before anything is built or written; one line per mistake."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs.maze_geometry import EPISODE_STEPS
from utils import UserError

Rule = tuple[str, Callable[[Any], bool]]  # what a valid value is, in words and as a test


def _is_int(v: Any) -> bool:
    return isinstance(v, int) and not isinstance(v, bool)


def integer(low: int) -> Rule:
    return f"a whole number of {low} or more", lambda v: _is_int(v) and low <= v < 2**53


def number(low: float, high: float = math.inf, *, above: bool = False) -> Rule:
    words = f"a number {'above' if above else 'from'} {low:g}" + (f" to {high:g}" if high < math.inf else "")
    return words, lambda v: (_is_int(v) or isinstance(v, float)) and math.isfinite(v) and low <= v <= high and (
        v > low or not above)


def optional(rule: Rule) -> Rule:
    return f"{rule[0]}, or null", lambda v: v is None or rule[1](v)


def matching(pattern: str, words: str) -> Rule:
    return words, lambda v: isinstance(v, str) and re.fullmatch(pattern, v) is not None


SWITCH: Rule = ("true or false", lambda v: isinstance(v, bool))
AUTO: Rule = ("auto, true or false", lambda v: isinstance(v, bool) or v == "auto")
WORD = matching(r"[\w.:/-]+", "a word")  # the readings themselves are checked where they are used
NAME = matching(r"\w[\w.,=+@~-]{0,200}", "a file name without slashes")
PATH = matching(r"[^\0]+", "a path")
FRAMES: Rule = ("a list of frames above 0",
                lambda v: isinstance(v, list) and all(_is_int(x) and x > 0 for x in v))

# By the last part of the key, so that preset.ddpg.lr and learner.lr share one line.
RULES: dict[str, Rule] = {
    **dict.fromkeys(("num_train_frames", "pretrain_frames", "finetune_frames", "num_seed_frames", "skill_dim",
                     "conflict_every_updates", "warmup", "warmup_frames", "interval", "selector_interval",
                     "skill_interval"), integer(0)),
    **dict.fromkeys(("eval_every_frames", "num_eval_episodes", "log_every_frames", "checkpoint_every_frames",
                     "action_repeat", "capacity", "replay_capacity", "nstep", "hidden_dim", "layers", "batch_size",
                     "update_every_steps", "conflict_samples", "contrastive_updates", "pool_size", "k", "rep_dim",
                     "out_dim", "pred_dim", "proj_dim", "num_protos", "queue_size", "eval_envs",
                     "resampled_skills", "samples", "sinkhorn_iterations", "vae_hidden_dim",
                     "vae_code_dim", "window", "selector_dim", "video_episodes",
                     "rollouts", "epochs", "minibatches", "objective_epochs", "selector_every",
                     "reward_window", "rnd_dim"), integer(1)),
    "video_size": integer(16),
    **dict.fromkeys(("snapshot_ts", "num_threads", "eval_episode_steps", "workers",
                     "rollout_steps"), optional(integer(1))),
    "seed": ("a whole number from 0 to 4294967295", lambda v: _is_int(v) and 0 <= v < 2**32),
    "index": integer(-1),
    "models": integer(2),  # one has no variance
    "value": number(-1, 1),
    **dict.fromkeys(("lr", "temperature", "cpc_temperature", "lambda_init", "logit_clip", "vae_lr",
                     "discriminator_lr", "candidates_per_row", "epsilon_decay", "grad_clip", "adam_eps",
                     "clip"), number(0, above=True)),
    **dict.fromkeys(("alpha", "beta", "knn_clip", "stddev", "stddev_clip", "scale", "slack", "constrain_factor",
                     "vae_beta", "density_weight", "weight_low", "weight_high", "value_weight",
                     "entropy_weight"), number(0)),
    **dict.fromkeys(("gamma", "gae_lambda", "extra_discount", "epsilon_start", "epsilon_end", "target_tau",
                     "target_entropy", "critic_target_tau", "encoder_target_tau", "norm_momentum"), number(0, 1)),
    "p": optional(number(0, 1)),
    "snapshots": FRAMES,
    **dict.fromkeys(("use_tb", "use_wandb", "diversity", "init_critic", "init_heads", "sync_target",
                     "legacy_head_init", "discriminative", "frozen", "learn_temperature", "save_video",
                     "fresh_rollouts", "skill_net", "normalize_inputs", "compile", "tf32"), SWITCH),
    **dict.fromkeys(("cuda_graph", "on_device"), AUTO),
    **dict.fromkeys(("phase", "domain", "primal_task", "env", "skill_space", "objective", "device", "obs_type",
                     "skill_index", "action_input", "critic_heads", "surgery_scope", "eval", "_target_", "div_reward",
                     "denominator", "positive", "metric", "numerics", "particle", "entropy_form", "pool", "knn_scale",
                     "cpc", "finetune_skills", "transition", "constraint", "regression", "sign", "model_error",
                     "features", "rnd_reward", "rnd_on", "policy", "value_heads", "adv_norm",
                     "reward_scale", "wandb_project"), WORD),
    **dict.fromkeys(("first",), optional(WORD)),
    "name": NAME,  # of an agent, a domain, a task, ...: a part of the run's path
    **dict.fromkeys(("variant", "pretrain_variant"), optional(NAME)),
    "run_root": PATH,
    "snapshot": optional(PATH),
}
NULLABLE = {"agent.objective"}  # null: nothing to pre-train


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{'a': {'b': 1}} -> {'a.b': 1}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def resolve(cfg: DictConfig) -> dict[str, Any]:
    """The composed config as plain Python, every value checked."""
    try:
        config = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise UserError(_interpolation_line(cfg, error)) from error
    if config["agent"]["skill_space"] != "none" and _is_int(config["skill_dim"]) and config["skill_dim"] < 1:
        raise UserError(f"skill_dim={config['skill_dim']} is too small; agent {config['agent']['name']} needs skills")
    for key, value in flatten(config).items():
        require_valid(key, value)
    _check_together(config)
    return config


def require_valid(key: str, value: Any) -> Any:
    words, valid = RULES.get(key.rpartition(".")[2], WORD)
    if not valid(value) and not (value is None and key in NULLABLE):
        raise UserError(f"{key}={value!r} is not valid; it must be {words}")
    return value


def _interpolation_line(cfg: DictConfig, error: OmegaConfBaseException) -> str:
    key = re.search(r"per_domain\.([^.']+)\.(\w+)", str(error))
    if key is None:
        return str(error).strip().splitlines()[0]
    return (f"agent {cfg.agent.name} has no {key[2]} for domain {key[1]}; give it on the command line "
            f"({key[2]}=...), known domains: {', '.join(cfg.agent.per_domain)}")


def _check_cycles(config: dict[str, Any]) -> None:
    """On-policy learners stop between cycles only, so whatever happens at a frame must be due there."""
    learner = config["learner"]
    if config["save_video"]:
        raise UserError("save_video=true films one episode at a time; learner=ppo plays many side by side: use "
                        "save_video=false, its pre-training draws skills_<frame>.png")
    twice = learner["fresh_rollouts"] and config["phase"] == "pretrain"
    cycle = learner["rollouts"] * (learner["rollout_steps"] or EPISODE_STEPS) * (1 + twice)
    for key in ("num_train_frames", "eval_every_frames", "log_every_frames", "checkpoint_every_frames", "snapshots"):
        for frames in config[key] if isinstance(config[key], list) else [config[key]]:
            if frames % cycle:
                raise UserError(f"{key}={frames} is not a multiple of {cycle}, the frames of one cycle of learner=ppo "
                                "(rollouts x steps, in pre-training twice with learner.fresh_rollouts)")


def _check_together(config: dict[str, Any]) -> None:
    repeat = config["action_repeat"]
    for key in ("num_train_frames", "num_seed_frames", "eval_every_frames", "log_every_frames",
                "checkpoint_every_frames"):
        if config[key] % repeat:
            raise UserError(f"{key}={config[key]} is not a multiple of action_repeat={repeat}")
    if config["learner"]["name"] == "ppo":
        _check_cycles(config)
        for key in ("compile", "cuda_graph"):
            if config[key] is True:
                raise UserError(f"{key}=true is for learner=ddpg; learner=ppo runs without it: {key}=false")
    late = [f for f in config["snapshots"] if f % repeat]
    if late:
        raise UserError(f"snapshots={late} are not multiples of action_repeat={repeat}")
    if config["obs_type"] != "states":
        raise UserError(f"obs_type={config['obs_type']} is not supported yet; use obs_type=states")
    task = config.get("task")
    if task and task["domain"] != config["domain"]["name"]:
        raise UserError(f"task={task['name']} belongs to domain {task['domain']}, not to {config['domain']['name']}; "
                        f"leave domain= away, it follows from the task")


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise UserError(f"device={name} is not known; choose from auto, cpu, cuda, cuda:N")
    if name.startswith("cuda"):
        if not torch.cuda.is_available():
            raise UserError(f"device={name}, but torch finds no CUDA device here; use device=cpu or device=auto")
        if ":" in name and int(name[5:]) >= torch.cuda.device_count():
            raise UserError(f"device={name}, but there are {torch.cuda.device_count()} CUDA devices")
    return torch.device(name)
