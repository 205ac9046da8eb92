"""Pixels: a frame, a batch and an update, each beside a plain reference: python -m benchmarks.pixels
[preset=cpu] [repeats]

And what the paper's 2,000,000 frames would take here at that size, from these numbers: a frame per
step of two frames, an update every second step; without evaluations.
"""

from __future__ import annotations

import copy
import json
import os
import statistics
import subprocess
import sys
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from agent.learners.ddpg import DDPG
from benchmarks import make_parser
from benchmarks.cost import DEVICE, Update, interleaved, ratio, updater
from envs import render
from experiment.paper import claim
from frame_replay import FrameReplay
from replay_buffer import Batch
from run.cli.words import options
from utils import ROOT, Streams, UserError

PRESET = "paper"


# ------------------------------------------------------------------------------------------- frames

# In a process of its own, where dm_control may draw: it settles that when it is imported.
FRAMES = """
import json, sys
from benchmarks.cost import interleaved, ratio
from statistics import median
import envs
from envs.render import Renderer
repeats, size = int(sys.argv[1]), int(sys.argv[2])
env = envs.make("walker_stand", seed=1)
env.reset()
with Renderer(size, size, shadows=True) as whole, Renderer(size, size) as bare:
    times = interleaved({
        "ours": lambda: whole.frame(env),
        "dm_control": lambda: env.unwrapped.physics.render(size, size, camera_id=0),
        "without": lambda: bare.frame(env),
    }, repeats, 10)
print(json.dumps({
    "ms": 1e3 * median(times["ours"]), "dm_control_ms": 1e3 * median(times["dm_control"]),
    "ratio": ratio(times, "dm_control", "ours"), "without_shadows_ms": 1e3 * median(times["without"]),
}))
"""


def frames(repeats: int, size: int) -> dict[str, float]:
    """Milliseconds of a walker's frame, of dm_control's own, and of one without shadows; nothing
    where there is no OpenGL."""
    try:
        backend = render.backend(render.wanted())
    except UserError:
        return {}
    done = subprocess.run(
        [sys.executable, "-c", FRAMES, str(repeats), str(size)],
        cwd=ROOT,
        env={**os.environ, "MUJOCO_GL": backend},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise UserError(f"frames were not drawn: {done.stderr.strip().splitlines()[-1][:200]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


# ------------------------------------------------------------------------------------------- batches


def loop_sample(memory: FrameReplay, rows: np.ndarray) -> Batch:
    """The same batch, a transition and a frame at a time."""
    f, transitions = memory.fields, []

    def stack(row: int) -> np.ndarray:
        step = int(f["episode_step"][row])
        frames = [
            f["obs"][(row - min(back, step)) % memory.capacity]
            for back in range(memory.stack - 1, -1, -1)
        ]
        return np.concatenate(frames)

    for row in rows:
        reward, discount = np.zeros(1, np.float32), np.ones(1, np.float32)
        for i in range(memory.nstep):
            at = (row + i) % memory.capacity
            reward = reward + discount * f["reward"][at]
            discount = discount * np.float32(memory.gamma) * f["discount"][at]
        transitions.append(
            (
                stack(row),
                f["action"][row],
                reward,
                discount,
                stack((row + memory.nstep) % memory.capacity),
                f["skill"][row].astype(np.float32),
                stack((row + 1) % memory.capacity),
            )
        )
    return Batch(*(torch.from_numpy(np.stack(field)) for field in zip(*transitions)))


# ------------------------------------------------------------------------------------------- updates


class Plain:
    """One update of DDPG on pixels as public code writes it: pictures padded and cropped one by one,
    one backward pass through critic and encoder, an optimiser for each. Starts with the weights of a
    learner that has not learned yet; `rng` is to give its numbers."""

    def __init__(self, learner: DDPG, rng: Streams):
        assert learner.encoder is not None and learner.pixels is not None, "it sees pixels"
        self.shift, self.noise = learner.pixels.shift, rng.torch("learn")
        self.convolutions = copy.deepcopy(learner.encoder.convolutions)
        self.actor, self.critic = copy.deepcopy(learner.actor), copy.deepcopy(learner.critic)
        self.target, self.settings = copy.deepcopy(learner.target), learner
        lr = learner.critic_opt.param_groups[0]["lr"]
        self.encoder_opt, self.actor_opt, self.critic_opt = (
            torch.optim.Adam(net.parameters(), lr=lr)
            for net in (self.convolutions, self.actor, self.critic)
        )

    def shifted(self, pictures: Tensor) -> Tensor:
        pad, side = self.shift, pictures.shape[-1]
        by = torch.randint(
            2 * pad + 1, (2, len(pictures), 1), generator=self.noise, device=pictures.device
        )
        wide = F.pad(pictures.float(), [pad] * 4, mode="replicate")
        return torch.stack(
            [
                picture[:, y : y + side, x : x + side]
                for picture, (y, x) in zip(wide, by[..., 0].T.tolist(), strict=True)
            ]
        )

    def see(self, pictures: Tensor) -> Tensor:
        return self.convolutions(pictures / 255 - 0.5).flatten(1)

    def act(self, x: Tensor) -> Tensor:
        mean, own = self.actor(x), self.settings
        noise = own.stddev * torch.randn(mean.shape, generator=self.noise, device=mean.device)
        wanted = mean + noise.clamp(-own.stddev_clip, own.stddev_clip)
        return wanted + (wanted.clamp(-1 + 1e-6, 1 - 1e-6) - wanted).detach()

    def update(self, batch: Batch) -> None:
        obs = self.see(self.shifted(batch.obs))
        with torch.no_grad():
            following = torch.cat([self.see(self.shifted(batch.next_obs)), batch.skill], 1)
            q = torch.min(*self.target(following, self.act(following)))
            y = batch.reward + batch.discount * q
        x = torch.cat([obs, batch.skill], 1)
        q1, q2 = self.critic(x, batch.action)
        loss = F.mse_loss(q1, y) + F.mse_loss(q2, y)
        self.encoder_opt.zero_grad()
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()
        self.encoder_opt.step()
        x = x.detach()
        loss = -torch.min(*self.critic(x, self.act(x))).mean()
        before = self.actor.before_tanh(x)
        loss = loss + self.settings.presquash * before.square().mean()
        self.actor_opt.zero_grad()
        loss.backward()
        self.actor_opt.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                slow.lerp_(fast, self.settings.tau)


def plain_of(update: Update) -> Any:
    return Plain(update.learner, Streams(0, DEVICE))


def measure(repeats: int, preset: str = PRESET, calls: int = 1) -> dict[str, dict[str, float]]:
    """{frame, batch, update, hours: ...}, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    size = (f"preset={preset}", "obs_type=pixels")
    ddpg, amped = updater("ddpg", *size), updater("amped", *size)
    plain, memory, count = plain_of(ddpg), ddpg.memory, ddpg.learner.batch_size
    assert isinstance(memory, FrameReplay), "of pixels"
    drawn = frames(repeats, memory.fields["obs"].shape[-1])
    times = interleaved(
        {
            "sample": lambda: memory.sample(count),
            "loop": lambda: loop_sample(memory, memory.sample_rows(count)),
        },
        repeats,
        calls,
    ) | interleaved(
        {
            "ddpg": lambda: ddpg(),
            "plain": lambda: plain.update(memory.sample(count)),
            "amped": lambda: amped(),
        },
        repeats,
        calls,
    )
    torch.set_num_threads(threads)
    ms = {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}
    steps = claim("pretrain_steps") / 2  # of two frames each
    hours = {
        agent: steps * (drawn.get("ms", 0.0) + ms[agent] / 2) / 3.6e6 for agent in ("ddpg", "amped")
    }
    return {
        **({"frame": drawn} if drawn else {}),
        "batch": {
            "rows": count,
            "ms": ms["sample"],
            "loop_ms": ms["loop"],
            "ratio": ratio(times, "loop", "sample"),
            "bytes_a_step": memory.nbytes / memory.capacity,
        },
        "update": {
            "ddpg_ms": ms["ddpg"],
            "plain_ms": ms["plain"],
            "ratio": ratio(times, "plain", "ddpg"),
            "amped_ms": ms["amped"],
        },
        "hours": hours,
    }


def table(result: dict[str, dict[str, float]]) -> str:
    batch, update, hours = result["batch"], result["update"], result["hours"]
    lines = []
    if "frame" in result:
        frame = result["frame"]
        lines.append(
            f"pixels  frame {frame['ms']:8.2f} ms  (dm_control {frame['dm_control_ms']:.2f} ms, "
            f"{frame['ratio']:.2f}x; without shadows {frame['without_shadows_ms']:.2f} ms)"
        )
    lines += [
        f"pixels  sample of {batch['rows']:.0f} {batch['ms']:6.2f} ms  (a loop: {batch['loop_ms']:.1f} ms, "
        f"{batch['ratio']:.1f}x)   {batch['bytes_a_step'] / 1e3:.1f} kB a step",
        f"pixels  update of ddpg {update['ddpg_ms']:8.1f} ms  (plain {update['plain_ms']:.1f} ms, "
        f"{update['ratio']:.2f}x), of amped {update['amped_ms']:.1f} ms",
        f"pixels  {claim('pretrain_steps'):,.0f} frames would take {hours['ddpg']:.0f} h of ddpg, "
        f"{hours['amped']:.0f} h of amped on one thread",
    ]
    return "\n".join(lines)


def main() -> None:
    given = make_parser(__doc__, 5, preset=options("preset")).parse_args()
    print(f"preset={given.preset}, {given.repeats} repeats in turns; medians")
    print(table(measure(given.repeats, given.preset)))


if __name__ == "__main__":
    main()
