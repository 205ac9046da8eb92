"""From a resolved config to the parts of a run: the composition root of both scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import envs
from agent.base import Objective, TaskReward
from agent.keys import keys_of
from agent.learners.adaptation import Adaptation
from agent.learners.compiled import Compiled
from agent.learners.ddpg import DDPG
from agent.learners.ppo import PPO
from agent.learners.stream_weights import StreamWeights
from agent.learners.surgery import Surgery
from agent.parts.draws import Draws
from agent.skills.regimes import make_skills
from agent.skills.selector import make_selector
from agent.skills.selector_networks import ALGORITHMS
from agent.skills.sources import SkillSource, SkillSpace
from envs.maze.lanes import Lanes
from frame_replay import FrameReplay
from replay_buffer import MixedReplay, ReplayBuffer
from run import data, video
from run.cli import schema
from run.cli.schema import BALANCES, SURGERIES
from run.compiling import make_capture, settle_compile, updates_of
from run.directory import RunDirectory
from run.identity import config_of
from run.logger import Logger
from run.longer import go_on_from, shorter_run
from run.loop import Runner
from run.machine import enough_memory, require_memory
from run.memory import make_memory, with_older
from run.parts import Parts
from run.rollout import DrawPaths, RolloutRunner
from run.seeing import Sight, images_of, pixel_settings, render_settings, seen_dim, sees_pixels
from utils import Streams, UserError, fitting, load_weights, stream_seed

World = envs.Env | Lanes  # one episode at a time, or many side by side
RUNNERS = {"ddpg": Runner, "ppo": RolloutRunner}


def make_env(name: str, seed: int, config: dict[str, Any]) -> envs.Env:
    try:
        return envs.make(
            name,
            seed=seed,
            obs_type=config["obs_type"],
            action_repeat=config["action_repeat"],
            render=render_settings(config),
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def make_lanes(name: str, config: dict[str, Any]) -> Lanes:
    try:
        return Lanes(name, config["learner"]["rollouts"], config["learner"]["rollout_steps"])
    except ValueError as error:
        raise UserError(str(error)) from error


def make_surgery(config: dict[str, Any], streams: tuple[str, ...], generator: Draws) -> Surgery:
    settings = schema.named(config)
    first = settings.get("first")
    if settings.get("p") is not None and len(streams) == 2 and first not in streams:
        raise UserError(
            f"surgery.first={first} is no reward stream; choose from {', '.join(streams)}"
        )
    kind = SURGERIES[config["name"]]
    return schema.build("surgery", kind, settings, generator=generator, streams=streams)


def make_stream_weights(config: dict[str, Any], streams: tuple[str, ...]) -> StreamWeights | None:
    """None where every stream counts alike all the time, or where there is but one."""
    balance = config.get("balance", {"name": "constant", "share": None})
    plain = balance["name"] == "constant" and balance["share"] is None
    if plain or len(streams) == 1:
        return None
    kind = BALANCES[balance["name"]]
    if kind.watches and config["agent"]["skill_space"] != "one_hot":
        raise UserError(
            f"balance={balance['name']} counts skills, so it needs one-hot ones; "
            f"agent {config['agent']['name']} has others: use balance=constant or linear"
        )
    return schema.build(
        "balance", kind, schema.named(balance), streams=streams, updates=updates_of(config)
    )


def make_objective(config: dict[str, Any], env: World, skill_dim: int, rng: Streams) -> Objective:
    """The method's own in pre-training, the task's reward in fine-tuning."""
    return (
        TaskReward()
        if config["phase"] == "finetune"
        else method_objective(config, env, skill_dim, rng)
    )


def method_objective(config: dict[str, Any], env: World, skill_dim: int, rng: Streams) -> Objective:
    kind = schema.objective_class(config)
    # Objectives get features in place of pictures, but for those that ask for pictures.
    more = {"images": images_of(config)} if "images" in keys_of(kind) else {}
    return schema.build(
        "agent.objective",
        kind,
        config["agent"]["objective"],
        obs_dim=seen_dim(config, env.obs_dim),
        action_dim=env.action_dim,
        skill_dim=skill_dim,
        generator=Draws(rng.torch("objective"), rng.device),
        **more,
    )


def make_learner(
    config: dict[str, Any], env: World, skill_dim: int, streams: tuple[str, ...], rng: Streams
) -> DDPG | PPO:
    kind = schema.learner_class(config)
    given: dict[str, Any] = {}
    settings = schema.named(config["learner"])
    on_policy = config["learner"]["name"] == "ppo"
    if on_policy:  # its section also holds keys of the rollouts, and of DDPG in agents' yamls
        settings = {key: value for key, value in settings.items() if key in keys_of(kind)}
    else:
        settings |= config["agent"].get("learner", {})
        given = {
            "num_seed_steps": config["num_seed_frames"] // config["action_repeat"],
            "pixels": pixel_settings(config),
            "images": images_of(config),
        }
        if "adapt" in config:
            given["adapt"] = schema.build("adapt", Adaptation, schema.named(config["adapt"]))
    made = schema.build(
        "learner",
        kind,
        settings,
        obs_dim=seen_dim(config, env.obs_dim),
        action_dim=env.action_dim,
        skill_dim=skill_dim,
        streams=streams,
        surgery=make_surgery(config["surgery"], streams, Draws(rng.torch("surgery"), rng.device)),
        rng=rng,
        stream_weights=make_stream_weights(config, streams),
        **given,
    )
    if not on_policy:
        made.capture = make_capture(config, rng.device)
    return made


def make_parts(
    config: dict[str, Any],
    env_name: str,
    device: torch.device,
    snapshot: dict | None = None,
    older: data.Data | None = None,
) -> Parts:
    """Everything a run needs; with a snapshot, the learner starts from it, and with older data it
    learns from that too."""
    seed = config["seed"]
    rng = Streams(seed, device)
    # Network initialisation is the only user of torch's global stream.
    torch.manual_seed(stream_seed(seed, "init"))
    on_policy = config["learner"]["name"] == "ppo"
    if config["phase"] == "pretrain":
        schema.objective_class(config)  # a wrong one is refused before anything is built
    env: World
    eval_envs: list[Any]
    if on_policy:
        env, eval_envs = make_lanes(env_name, config), [make_lanes(env_name, config)]
    else:
        env = make_env(env_name, stream_seed(seed, "env"), config)
        eval_seed = stream_seed(seed, "eval")
        eval_envs = [make_env(env_name, eval_seed, config) for _ in range(config["eval_envs"])]
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])

    def pretrained() -> Objective:
        assert snapshot is not None, "only a fine-tuning has a pre-trained objective"
        # At the sizes it was trained with; the class is this run's own: a file must not choose what
        # is imported.
        settings = {
            **snapshot["config"]["agent"]["objective"],
            "_target_": config["agent"]["objective"]["_target_"],
        }
        theirs = {**config, "agent": {"objective": settings}}
        objective = method_objective(theirs, env, space.dim, rng)
        load_weights(objective, snapshot["objective"])
        return objective.to(device)

    objective = make_objective(config, env, space.dim, rng).to(device)
    learner = make_learner(config, env, space.dim, objective.streams, rng)
    chooses = config["phase"] == "finetune" and config["skills"]["name"] in ALGORITHMS
    skills: SkillSource
    if chooses:  # made after the learner, whose start it must not move
        skills = make_selector(config, space, seen_dim(config, env.obs_dim), rng)
        if not on_policy and not sees_pixels(config):
            skills.capture = make_capture(config, device)
    else:
        paid = None
        if older is not None and config["skills"]["name"] == "by_data":
            paid = older.paid(config["task"]["env"])
        skills = make_skills(config, space, rng.numpy("skills"), pretrained, paid)
    memory: ReplayBuffer | MixedReplay | None = None
    if chooses or not on_policy:  # an on-policy learner needs none, a selector above it does
        memory = make_memory(config, env, space, rng)
        if older is not None:
            memory = with_older(memory, older, config, skills, rng)
        require_memory(memory.nbytes)
    if snapshot is not None:
        with fitting(config["snapshot"] or "the snapshot"):
            learner.warm_start(snapshot["learner"], snapshot.get("optimizers"))
    sight = None
    if isinstance(learner, DDPG) and isinstance(memory, FrameReplay):
        sight = Sight(learner, memory, Draws(rng.torch("sight"), device))
    return Parts(env, eval_envs, skills, learner, objective, memory, rng, sight)


def run(
    config: dict[str, Any],
    path: Path,
    env_name: str,
    device: torch.device,
    *,
    snapshot: dict | None = None,
    older: data.Data | None = None,
    info: dict[str, Any] | None = None,
    draw_paths: DrawPaths | None = None,
) -> Path:
    """Train a run to its end, or say that it is finished. Nothing is written before everything is
    built. `draw_paths` draws skills_<frame>.png of a maze; it is handed in because pictures are
    made in analysis/."""
    directory = RunDirectory(path, config)
    directory.check()
    if directory.finished:
        directory.tidy()
        directory.say_finished()
        return path
    shorter = shorter_run(directory)
    stored = config_of(shorter) if shorter else directory.stored()
    by_choice = config["compile"] == "auto"
    config = directory.config = settle_compile(config, stored)
    with enough_memory(config):
        parts = make_parts(config, env_name, device, snapshot, older)
        for capture in parts.captures:
            if by_choice and isinstance(capture, Compiled):
                capture.required = False
        return _run(config, directory, parts, env_name, info or {}, draw_paths, shorter)


def _run(
    config: dict[str, Any],
    directory: RunDirectory,
    parts: Parts,
    env_name: str,
    info: dict[str, Any],
    draw_paths: DrawPaths | None,
    shorter: Path | None,
) -> Path:
    path = directory.path
    if config["save_video"]:
        video.require(parts.eval_envs[0])
    directory.open()
    logger = None
    try:
        if directory.finished:  # by another process, while this one was being built
            directory.say_finished()
            return path
        if shorter:
            go_on_from(shorter, directory)
        logger = Logger(
            path,
            use_tb=config["use_tb"],
            use_wandb=config["use_wandb"],
            project=config["wandb_project"],
            name="/".join(path.parts[-5:]),
            config=config,
        )
        print_header(config, path, parts, env_name)
        runner = RUNNERS[config["learner"]["name"]](config, directory, parts, logger, info)
        if isinstance(runner, RolloutRunner):
            runner.evaluator.draw_paths = draw_paths
        directory.finish(runner.train())
        print(f"finished: {path}", flush=True)
    finally:
        directory.close()
        if logger:
            logger.close()
    return path


def obs_words(config: dict[str, Any], parts: Parts) -> str:
    render = render_settings(config)
    return str(parts.env.obs_dim) if render is None else " x ".join(map(str, render.shape))


def print_header(config: dict[str, Any], path: Path, parts: Parts, env_name: str) -> None:
    count = sum(
        p.numel()
        for m in (parts.learner, parts.objective, parts.skills.network)
        if m
        for p in m.parameters()
    )
    print(
        f"{config['phase']} {config['agent']['name']} on {env_name}, seed {config['seed']}, "
        f"{config['num_train_frames']:,} frames\n"
        f"  {config['device']}, {config['num_threads']} threads; obs {obs_words(config, parts)}, action "
        f"{parts.env.action_dim}, skills {parts.skills.space.dim}; "
        f"{count / 1e6:.2f} M parameters"
        + (f", replay {parts.memory.nbytes / 1e9:.3f} GB" if parts.memory is not None else "")
        + (", compiling the first update takes a minute" if config["compile"] is True else "")
        + f"\n  {path}",
        flush=True,
    )
