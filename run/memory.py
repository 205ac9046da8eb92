"""The replay of a run, and the data of its pre-training beside it."""

from __future__ import annotations

import functools
from typing import Any

import torch

from agent.skills.sources import SkillSource, SkillSpace
from frame_replay import FrameReplay
from replay_buffer import DeviceReplayBuffer, MixedReplay, ReplayBuffer
from run import data
from run.cli import schema
from run.seeing import render_settings
from utils import Streams, UserError


def make_memory(config: dict[str, Any], env: Any, space: SkillSpace, rng: Streams) -> ReplayBuffer:
    settings, device = dict(config["replay"]), rng.device
    wanted = settings.pop("on_device")
    if (render := render_settings(config)) is not None:
        return schema.build(
            "replay",
            FrameReplay,
            settings,
            obs_shape=render.shape,
            stack=render.stack,
            action_dim=env.action_dim,
            skill_dim=space.dim,
            rng=rng.numpy("replay"),
            device=device,
            one_hot=space.one_hot,
        )
    if wanted is True and device.type != "cuda":
        raise UserError(
            f"replay.on_device=true needs a GPU, and device is {device}; use replay.on_device=auto"
        )
    shapes = {"obs_dim": env.obs_dim, "action_dim": env.action_dim, "skill_dim": space.dim}
    more = kept_for_later(config, env)
    fits = (
        wanted == "auto"
        and device.type == "cuda"
        and (
            2 * DeviceReplayBuffer.table_bytes(settings["capacity"], **shapes)
            <= torch.cuda.mem_get_info(device)[0]
        )
    )
    buffer = DeviceReplayBuffer if wanted is True or fits else ReplayBuffer
    return schema.build(
        "replay",
        buffer,
        settings,
        **shapes,
        **more,
        rng=rng.numpy("replay"),
        device=device,
        one_hot=space.one_hot,
    )


def kept_for_later(config: dict[str, Any], env: Any) -> dict[str, int]:
    """What a replay holds besides, so that its data can be relabelled: save_replay."""
    if not config.get("save_replay"):
        return {}
    env.keep_tasks()
    if config["save_replay"] is True:
        return {"tasks": len(env.tasks)}
    state = env.physics_state()
    if state is None:
        raise UserError(
            "save_replay=physics: this environment shows no physics; use save_replay=true"
        )
    return {"tasks": len(env.tasks), "physics": len(state)}


def with_older(
    memory: ReplayBuffer,
    older: data.Data,
    config: dict[str, Any],
    source: SkillSource,
    rng: Streams,
) -> MixedReplay:
    """The memory of a fine-tuning beside the data of its pre-training."""
    settings: data.DataSettings = schema.build(
        "data", data.DataSettings, schema.named(config["data"])
    )
    for name, what in (("obs", "observations"), ("action", "actions"), ("skill", "skills")):
        ours, theirs = memory.fields[name].shape[1], older.columns[name].shape[1]
        if ours != theirs and not (name == "skill" and settings.skill == "acting"):
            raise UserError(
                f"the stored data has {what} of size {theirs}, this run of size {ours}; use data=none"
                + (", or data.skill=acting" if name == "skill" else "")
            )
    stream = rng.numpy("data")
    old = data.as_memory(
        older,
        config["task"]["env"],
        nstep=memory.nstep,
        gamma=memory.gamma,
        rng=stream,
        device=rng.device,
    )
    drawn = functools.partial(source.stand_in, stream) if settings.skill == "acting" else None
    return MixedReplay(memory, old, share=settings.share, skills=drawn)
