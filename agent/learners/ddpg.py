"""DDPG as in URLB, on states or on pixels (there DrQ-v2), for one reward stream or several."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from agent.base import Adam, Learner, Metrics, Objective, RewardStreams
from agent.learners.adaptation import Adaptation, WarmStartSettings, take_moments, under
from agent.learners.compiled import Capture, Job
from agent.learners.sight import OBSERVATIONS, Seen
from agent.learners.stream_weights import StreamWeights
from agent.learners.streams import descend_streams, opposed_samples
from agent.learners.surgery import SumGradients, Surgery
from agent.parts.draws import Draws
from agent.parts.moments import WindowedMoments
from agent.parts.networks import Actor, Critic
from agent.parts.noise import NoiseSettings, clipped_noise, draw_noise, within
from agent.parts.optim import follow
from agent.parts.pixels import Encoder, Images, PixelSettings
from replay_buffer import Batch
from utils import (
    Count,
    Layers,
    Natural,
    NonNegative,
    Positive,
    Rows,
    Several,
    Share,
    Size,
    Streams,
    UserError,
)


@dataclass(frozen=True, kw_only=True)
class ConflictSettings:
    """How often the conflict of single samples is measured (0: never), and on how many."""

    conflict_every_updates: Natural
    conflict_samples: Rows


@dataclass(frozen=True, kw_only=True)
class RewardSettings:
    """The scale on which several streams meet: their own, or each centred and divided by its
    deviation, as averaged over about `reward_window` updates. One stream alone stays as it is."""

    reward_scale: Literal["none", "per_stream"]
    reward_window: Count


class DDPG(Learner):
    """Actor, twin critic and target. With several streams the gradients meet in `surgery`
    (Algorithm 1).

    critic_heads=shared: one Q regressed onto every stream's target with one bootstrap, as in the
    paper. Its fixed point is a weighted mean of the targets, not their sum. per_stream: one Q and
    one bootstrap per stream.

    Metrics:
        reward/<stream>: Mean of each reward stream in the batch. Healthy: AMPED's diversity, the
            contrastive ratio, is 0.009 at first, 0.0136 around frame 13,000, 0.0084 at the end
            (1 / (1 + negatives) = 0.0083 once skills no longer differ); its exploration 4 to 5.2 up
            to frame 30,000, then down to 1.4.
        reward_std/<stream>: Its spread. Healthy: of AMPED's diversity 0.012, then 0.0005.
        critic_loss/<stream>: Squared error of Q against a stream's target. Healthy: same order for
            both streams, bounded.
        critic/target: Mean target of Q. Healthy: bounded.
        actor/loss: Minus the Q of the actor's actions. Healthy: bounded.
        actor/saturated: Share of the actor's outputs beyond 0.99. Healthy: below one half; a saturated
            actor hardly learns, because the slope of tanh is nearly 0 there.
        surgery/conflict: Share of updates in which the two streams' gradients have a negative
            product. Healthy: 0.90 to 1.00.
        surgery/cosine: Their angle. Healthy: -0.40 around frame 20,000, -0.88 at the end.
        surgery/dot: Their inner product.
        surgery/sample_conflict: The paper's ratio: share of 64 samples whose two gradients oppose.
            Healthy: 0.41 to 0.89.
        actor_surgery/<measure>: The same three of the actor's gradients, with
            learner.surgery_scope=actor or all.
        surgery_share/<stream>: With surgery=famo: the weight that a stream's logarithm has, before
            the size of its loss is counted in; actor_surgery_share/<stream> at the actor. Healthy:
            not at 0 or 1.
    """

    updates: Tensor  # so far; only where something depends on it

    # Settings that a snapshot decides for what starts from it.
    shapes_snapshot: tuple[str, ...] = ("hidden_dim", "layers", "action_input")
    # Settings that tell one pre-training from another: fine-tuning looks for the one with the same.
    shapes_pretraining: tuple[str, ...] = (
        *shapes_snapshot,
        "critic_heads",
        "surgery_scope",
        "presquash",
        "reward_scale",
    )

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        streams: tuple[str, ...],
        surgery: Surgery,
        rng: Streams,
        hidden_dim: Size,
        layers: Layers,
        action_input: Literal["trunk", "head"],
        critic_heads: Literal["shared", "per_stream"],
        surgery_scope: Literal["critic", "actor", "all"],
        lr: Positive,
        batch_size: Several,
        critic_target_tau: Share,
        update_every_steps: Count,
        num_seed_steps: int,
        presquash: NonNegative,
        frozen: bool,
        noise: NoiseSettings,
        start: WarmStartSettings,
        conflict: ConflictSettings,
        scale: RewardSettings,
        adapt: Adaptation | None = None,
        stream_weights: StreamWeights | None = None,
        pixels: PixelSettings | None = None,
        images: Images | None = None,
    ):
        super().__init__()
        self.per_stream = critic_heads == "per_stream"
        if surgery_scope != "critic" and not self.per_stream:
            raise UserError(
                f"learner.surgery_scope={surgery_scope} needs learner.critic_heads=per_stream: "
                "one shared Q gives the actor a single gradient"
            )
        # Of pixels `obs_dim` is the size of the encoder's features, and trunks narrow them down.
        self.encoder: Encoder | None = None
        self.pixels, narrow = pixels, {}
        if images is not None and pixels is not None:
            self.encoder, narrow = Encoder(images), {"trunk_dim": pixels.feature_dim}
        self.actor = Actor(
            obs_dim + skill_dim, action_dim, hidden_dim=hidden_dim, layers=layers, **narrow
        )
        self.critic = self.make_critic(
            obs_dim,
            skill_dim,
            action_dim,
            columns=len(streams) if self.per_stream else 1,
            hidden_dim=hidden_dim,
            layers=layers,
            action_input=action_input,
            **narrow,
        )
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        actor_lr = lr * (adapt.actor_lr if adapt else 1)
        self.actor_opt = self.adam("actor", self.actor.parameters(), actor_lr)
        self.critic_opt = self.adam("critic", self.critic.parameters(), lr)
        if self.encoder is not None:
            self.encoder_opt = self.adam("encoder", self.encoder.parameters(), lr)

        self.action_dim, self.streams = action_dim, streams
        self.surgery_scope = surgery_scope
        self.critic_surgery = surgery if surgery_scope in ("critic", "all") else SumGradients()
        self.actor_surgery = surgery if surgery_scope == "actor" else SumGradients()
        if surgery_scope == "all":
            self.actor_surgery = surgery.twin()
        self.stream_weights = stream_weights  # None: every stream counts alike
        self.reward_moments: WindowedMoments | None = None
        if scale.reward_scale == "per_stream" and len(streams) > 1:
            self.reward_moments = WindowedMoments(len(streams), scale.reward_window)
        self.device, self.act_rng = rng.device, rng.numpy("act")
        self.learn_rng = Draws(rng.torch("learn"), rng.device)
        self.batch_size = batch_size
        self.tau = critic_target_tau
        self.stddev, self.stddev_clip = noise.stddev, noise.stddev_clip
        self.update_every_steps, self.num_seed_steps = update_every_steps, num_seed_steps
        self.start, self.conflict = start, conflict
        self.frozen, self.presquash, self.adapt = frozen, presquash, adapt
        if adapt and (adapt.critic_first or adapt.pull):  # what depends on the updates so far
            self.register_buffer("updates", torch.zeros(()))
        self.prior: Actor | None = None  # the actor of the snapshot, where there is a pull to it
        if adapt and adapt.pull:
            self.prior = copy.deepcopy(self.actor).requires_grad_(False)
        self.capture: Capture | None = None  # how `learn` runs an update; None: as it stands here
        self.to(self.device)

    @property
    def surgery(self) -> Surgery:
        """The one that was chosen, wherever it is used."""
        return self.actor_surgery if self.surgery_scope == "actor" else self.critic_surgery

    # ---------------------------------------------------- what a method's own extension may replace

    def make_critic(self, obs_dim: int, skill_dim: int, action_dim: int, **sizes) -> Any:
        return Critic(obs_dim + skill_dim, action_dim, **sizes)

    def values(
        self, critic: torch.nn.Module, obs: Tensor, skill: Tensor, action: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Both Q's, (B, columns) each."""
        return critic(torch.cat([obs, skill], 1), action)

    def critic_losses(
        self, batch: Batch, targets: dict[str, Tensor], hints: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """One loss per stream. `hints` is what the objective says of the batch besides rewards;
        unused here."""
        q1, q2 = self.values(self.critic, batch.obs, batch.skill, batch.action)
        return {
            name: F.mse_loss(q1[:, c], y) + F.mse_loss(q2[:, c], y)
            for (name, y), c in zip(targets.items(), self._columns(), strict=True)
        }

    def actor_losses(self, q: Tensor, skill: Tensor) -> dict[str, Tensor]:
        """Minus the mean of q (B, columns): one loss, or one per stream."""
        names = self.streams if self.per_stream else ("q",)
        return {name: -q[:, i].mean() for i, name in enumerate(names)}

    # --------------------------------------------------------------------------------------- acting

    @torch.no_grad()
    def act(
        self,
        obs: np.ndarray,
        skill: np.ndarray,
        step: int,
        *,
        explore: bool,
        rng: np.random.Generator | None = None,
    ) -> np.ndarray:
        """Uniform during warm-up (unless the policy warms up), then the mean plus noise; the mean
        alone, of one state or of several, when not exploring, or frozen."""
        explore, rng = explore and not self.frozen, rng or self.act_rng
        by_policy = self.adapt is not None and self.adapt.warmup == "policy"
        if explore and step < self.num_seed_steps and not by_policy:
            return rng.uniform(-1, 1, self.action_dim).astype(np.float32)
        if self.encoder is None:
            x = torch.from_numpy(np.concatenate([obs, skill], -1)).to(self.device)
        else:
            x = torch.cat([self.see(obs), torch.from_numpy(skill).to(self.device)], -1)
        action = self.actor(x).cpu().numpy()
        if explore:
            noise = self.stddev * rng.standard_normal(self.action_dim, np.float32)
            action = (action + noise).clip(-1 + 1e-6, 1 - 1e-6)
        return action

    def see(self, obs: np.ndarray) -> Tensor:
        """What the networks get of one observation or of several: itself, or its features."""
        seen = torch.from_numpy(obs).to(self.device)
        return seen if self.encoder is None else self.encoder.see(seen)

    def look(self, batch: Batch, draws: Draws, *, taught: Sequence[str] = ()) -> Any:
        """A batch as objectives, critics and selectors take it: of pixels their features."""
        if self.encoder is None:
            return batch
        assert self.pixels is not None, "it comes with the encoder"
        return Seen(batch, self.encoder, shift=self.pixels.shift, draws=draws, taught=taught)

    # ------------------------------------------------------------------------------------- learning

    def due(self, memory, step: int) -> bool:
        ready = (
            step >= self.num_seed_steps and step % self.update_every_steps == 0 and len(memory) > 0
        )
        return ready and not self.frozen

    def learn(self, memory, objective: Objective, step: int) -> Metrics:
        """One update on fresh batches."""
        batches = [memory.sample(self.batch_size) for _ in range(objective.batches_per_update)]
        every = self.conflict.conflict_every_updates if len(self.streams) > 1 else 0
        diagnose = every > 0 and step // self.update_every_steps % every == 0
        alone = self._critic_alone()
        if self.capture is not None and not diagnose and not alone:
            return self.capture(self.job(objective), batches)
        return self.update(objective, batches, diagnose=diagnose, critic_alone=alone)

    def job(self, objective: Objective) -> Job:
        """An update towards this objective, for a compiler or a recorder."""
        return Job(
            {"learner": self, "objective": objective},
            (self.learn_rng, self.surgery.generator, objective.generator),
            functools.partial(self.update, objective),
            self.device,
        )

    def _critic_alone(self) -> bool:
        first = self.adapt.critic_first if self.adapt else 0
        return first > 0 and int(self.updates) < first

    def update(
        self,
        objective: Objective,
        batches: Sequence[Batch],
        *,
        diagnose: bool = False,
        critic_alone: bool = False,
    ) -> Metrics:
        """Encoders, rewards, critic, actor, target (Algorithm 2). Tensors in, tensors out."""
        metrics: Metrics = {}
        for i, batch in enumerate(batches, 1):
            if self.encoder is not None:
                batch = self._learn_to_see(objective, batch, metrics, final=i == len(batches))
            else:
                metrics |= objective.update(batch, final=i == len(batches))
        rewards, parts = objective.rewards(batch)
        assert all(r.shape == (len(batch.obs), 1) for r in rewards.values()), {
            k: r.shape for k, r in rewards.items()
        }
        metrics |= parts
        for name, r in rewards.items():
            metrics[f"reward_std/{name}"], metrics[f"reward/{name}"] = torch.std_mean(r)
        if self.reward_moments is not None:
            rewards = self._on_one_scale(rewards, self.reward_moments)
        if self.stream_weights is not None:
            metrics |= self.stream_weights.advance(batch.obs, batch.skill)
        if self.encoder is not None:
            metrics |= self._critic_of_seen(batch, rewards, objective.hints, diagnose=diagnose)
        else:
            metrics |= self.update_critic(batch, rewards, objective.hints, diagnose=diagnose)
        if not critic_alone:
            metrics |= self.update_actor(batch)
        follow(self.target, self.critic, self.tau)
        if "updates" in self._buffers:
            self.updates += 1
        return metrics

    def _learn_to_see(
        self, objective: Objective, batch: Batch, metrics: Metrics, *, final: bool
    ) -> Any:
        """The objective's update on features, whose losses may teach the encoder. Those of the final
        batch wait for the critic's; the features stay as they were made."""
        assert self.pixels is not None, "it comes with the encoder"
        teaches = self.pixels.update_encoder and bool(objective.optimizers)
        by_critic = ("obs",) if self.pixels.critic_encoder else ()
        seen = self.look(batch, self.learn_rng, taught=OBSERVATIONS if teaches else by_critic)
        with seen.teaching(teaches):
            metrics |= objective.update(seen, final=final)
        if not final:
            seen.step(self.encoder_opt)
        return seen

    def _critic_of_seen(
        self, seen: Any, rewards: RewardStreams, hints: dict[str, Tensor], *, diagnose: bool
    ) -> Metrics:
        assert self.pixels is not None, "it comes with the encoder"
        with seen.teaching(self.pixels.critic_encoder):
            metrics = self.update_critic(seen, rewards, hints, diagnose=diagnose)
        seen.step(self.encoder_opt)
        return metrics

    @staticmethod
    @torch.no_grad()
    def _on_one_scale(rewards: RewardStreams, moments: WindowedMoments) -> RewardStreams:
        raw = torch.cat(list(rewards.values()), 1)  # (B, K)
        moments.update(raw)
        scaled = moments.standardised(raw).split(1, 1)
        return dict(zip(rewards, scaled, strict=True))

    def targets(self, batch: Batch, rewards: RewardStreams) -> dict[str, Tensor]:
        """y_k = r_k + discount * min(Q1, Q2) of the target: one bootstrap for all streams, or one
        each."""
        with torch.no_grad():
            x = torch.cat([batch.next_obs, batch.skill], 1)
            action = clipped_noise(self.actor(x), self.stddev, self.stddev_clip, self.learn_rng)
            q = self.values(self.target, batch.next_obs, batch.skill, action)
            bootstrap = batch.discount * torch.minimum(*q)  # (B, columns)
            return {
                name: r + bootstrap[:, c]
                for (name, r), c in zip(rewards.items(), self._columns(), strict=True)
            }

    def _columns(self) -> list[list[int]]:
        """Which critic column serves each stream."""
        return [[i if self.per_stream else 0] for i in range(len(self.streams))]

    def update_critic(
        self,
        batch: Batch,
        rewards: RewardStreams,
        hints: dict[str, Tensor],
        *,
        diagnose: bool = False,
    ) -> Metrics:
        targets = self.targets(batch, rewards)
        metrics: Metrics = {"critic/target": torch.stack(list(targets.values())).mean()}
        if diagnose:
            metrics["surgery/sample_conflict"] = self.sample_conflict(batch, targets)

        def losses_now() -> dict[str, Tensor]:
            return self.critic_losses(batch, targets, hints)

        losses = losses_now()
        metrics |= self._descend(
            losses, self.critic_opt, self.critic_surgery, "surgery", losses_now
        )
        return metrics | {f"critic_loss/{name}": loss.detach() for name, loss in losses.items()}

    def update_actor(self, batch: Batch) -> Metrics:
        x = torch.cat([batch.obs, batch.skill], 1)
        shape = (len(x), self.action_dim)
        noise = draw_noise(shape, self.stddev, self.stddev_clip, self.learn_rng)

        def actor_now() -> tuple[dict[str, Tensor], Tensor]:
            """Its losses, and the means of its actions."""
            before = self.actor.before_tanh(x)
            mean = torch.tanh(before)
            q = self.values(self.critic, batch.obs, batch.skill, within(mean + noise))
            least = torch.minimum(*q)  # (B, columns)
            losses = self.actor_losses(least, batch.skill)
            if (extra := self._actor_extra(x, before, mean, least)) is not None:
                losses = {name: loss + extra / len(losses) for name, loss in losses.items()}
            return losses, mean

        losses, mean = actor_now()
        metrics = self._descend(
            losses, self.actor_opt, self.actor_surgery, "actor_surgery", lambda: actor_now()[0]
        )
        return metrics | {
            "actor/loss": torch.stack([l.detach() for l in losses.values()]).sum(),
            "actor/saturated": (mean.detach().abs() > 0.99).float().mean(),
        }

    def _actor_extra(self, x: Tensor, before: Tensor, mean: Tensor, q: Tensor) -> Tensor | None:
        """What the actor minimises besides -Q: the penalty on what goes into its tanh, and the pull
        to the actor of the snapshot, fading with the updates."""
        extra = self.presquash * before.square().mean() if self.presquash else None
        if self.prior is not None:
            assert self.adapt is not None
            fade = (1 - self.updates / self.adapt.pull_updates).clamp(min=0)
            distance = (mean - self.prior(x)).square().mean()
            pull = self.adapt.pull * fade * q.detach().abs().mean() * distance
            extra = pull if extra is None else extra + pull
        return extra

    def _descend(
        self,
        losses: dict[str, Tensor],
        optimizer: Adam,
        surgery: Surgery,
        label: str,
        losses_now: Callable[[], dict[str, Tensor]],
    ) -> Metrics:
        weights = None if self.stream_weights is None else self.stream_weights.weights
        return descend_streams(losses, optimizer, surgery, weights, label, losses_now)

    def sample_conflict(self, batch: Batch, targets: dict[str, Tensor]) -> Tensor:
        """The paper's conflict ratio, of the critic's gradients for the first two streams."""
        n = self.conflict.conflict_samples
        x = torch.cat([batch.obs, batch.skill], 1)
        y1, y2 = list(targets.values())[:2]
        rows = (x[:n], batch.action[:n], y1[:n], y2[:n])
        return opposed_samples(self.critic, *rows, columns=self._columns())

    # ----------------------------------------------------------------------------------- warm start

    def warm_start(
        self, state: Mapping[str, Tensor], optimizers: Mapping[str, Any] | None = None
    ) -> None:
        """What survives pre-training: by URLB's rules the actor and the critic's trunk, while Q
        heads and optimisers start afresh; `adapt` and `start` may say otherwise."""
        if self.encoder is not None:
            self.encoder.load_state_dict(under(state, "encoder."))
        pretrained = under(state, "actor.")
        if self.adapt is None or self.adapt.actor:
            self.actor.load_state_dict(pretrained)
        if self.prior is not None:
            self.prior.load_state_dict(pretrained)
        if self.adapt is not None and self.adapt.moments:
            take_moments(self.optimizers, optimizers)
        if self.start.init_critic:
            self.critic.trunk.load_state_dict(under(state, "critic.trunk."))
        if self.start.init_critic and self.start.init_heads:  # ProtoRL copies the whole critic
            self.critic.load_state_dict(under(state, "critic."))
        if self.start.sync_target:  # the public code leaves the target's trunk random
            self.target.load_state_dict(self.critic.state_dict())
