"""Settings that are wrong only together."""

from __future__ import annotations

from typing import Any

from envs.maze.geometry import EPISODE_STEPS
from utils import UserError

SIDE_BY_SIDE = 10**5  # episodes of an on-policy evaluation: 80 MB of positions for each skill


def check_minibatches(learner: dict[str, Any]) -> None:
    """Every minibatch needs two rows, of which deviations are taken."""
    rows = learner["rollouts"] * (learner["rollout_steps"] or EPISODE_STEPS)
    size = -(-rows // learner["minibatches"])
    if size < 2 or rows % size == 1:
        most = next((n for n in range(rows // 2, 0, -1) if rows % -(-rows // n) != 1), 0)
        raise UserError(
            f"learner.minibatches={learner['minibatches']} leaves a minibatch with one of the {rows} "
            f"rows of a rollout (rollouts x rollout_steps); "
            + (f"the most that works is {most}" if most else "give more rollouts or rollout_steps")
        )


def cycle_frames(config: dict[str, Any]) -> int:
    """Frames of one cycle of an on-policy learner: its rollouts, in pre-training twice where the
    objective's networks have rollouts of their own."""
    learner = config["learner"]
    twice = learner["fresh_rollouts"] and config["phase"] == "pretrain"
    return learner["rollouts"] * (learner["rollout_steps"] or EPISODE_STEPS) * (1 + twice)


def check_cycles(config: dict[str, Any]) -> None:
    """On-policy learners stop between cycles only, so whatever happens at a frame must be due
    there."""
    if config["save_video"]:
        raise UserError(
            "save_video=true films one episode at a time; learner=ppo plays many side by side: use "
            "save_video=false, its pre-training draws skills_<frame>.png"
        )
    check_minibatches(config["learner"])
    if config["num_eval_episodes"] > SIDE_BY_SIDE:
        raise UserError(
            f"num_eval_episodes={config['num_eval_episodes']} is too large: learner=ppo plays them side "
            f"by side, and the most that works is {SIDE_BY_SIDE}"
        )
    cycle = cycle_frames(config)
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


def check_data(data: dict[str, Any]) -> None:
    """What is only for older data is refused where there is none."""
    for key in ("offline_updates", "file"):
        if data["name"] == "none" and data.get(key):
            raise UserError(
                f"data.{key}={data[key]} is for data=relabelled; data=none has no older data to learn "
                "from: give data=relabelled too, or leave it away"
            )


def check_pixels(config: dict[str, Any]) -> None:
    """What has been built for pictures, and what for states alone."""
    if config["learner"]["name"] != "ddpg":
        raise UserError(
            f"obs_type=pixels is for learner=ddpg; learner={config['learner']['name']} takes states: "
            "use obs_type=states, or learner=ddpg"
        )
    if config.get("save_replay"):
        raise UserError("save_replay= keeps states; with obs_type=pixels use save_replay=false")
    if config.get("data", {}).get("name", "none") != "none":
        raise UserError("data= holds states; with obs_type=pixels use data=none")
    if config["replay"]["on_device"] is True:
        raise UserError(
            "replay.on_device=true copies states; with obs_type=pixels batches of uint8 are sent: "
            "use replay.on_device=auto"
        )


def check_together(config: dict[str, Any]) -> None:
    if config["obs_type"] == "pixels":
        check_pixels(config)
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
        check_cycles(config)
        if config.get("save_replay"):
            raise UserError("save_replay= is for learner=ddpg; learner=ppo keeps no replay")
        if config.get("skills", {}).get("name") == "bandit":
            raise UserError("skills=bandit is for learner=ddpg; use skills=selector or oracle")
        if config.get("data", {}).get("name", "none") != "none":
            raise UserError("data= is for learner=ddpg; learner=ppo learns from rollouts alone")
        for key in ("compile", "cuda_graph"):
            if config[key] is True:
                raise UserError(
                    f"{key}=true is for learner=ddpg; learner=ppo runs without it: {key}=false"
                )
    check_data(config.get("data", {"name": "none"}))
    late = [f for f in config["snapshots"] if f % repeat]
    if late:
        raise UserError(f"snapshots={late} are not multiples of action_repeat={repeat}")
    task = config.get("task")
    if task and task["domain"] != config["domain"]["name"]:
        raise UserError(
            f"task={task['name']} belongs to domain {task['domain']}, not to {config['domain']['name']}; "
            f"leave domain= away, it follows from the task"
        )
