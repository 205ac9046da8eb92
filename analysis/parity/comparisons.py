"""What is compared, quantity by quantity: each function gives our numbers and theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from agent.skills.selector import make_selector
from agent.skills.sources import SkillSpace
from analysis.parity.sides import HIDDEN, OBS, SKILLS, Both, copy_weights
from experiment.runs import compose
from run.cli.schema import resolve
from utils import Streams, UserError

UPDATES = 10

Pairs = tuple[Sequence[Any], Sequence[Any]]  # ours, theirs: tensors and numbers


def aninfonce(both: Both) -> Pairs:
    public, batch = both.public, both.batch
    contrast = both.objective.contrast(batch.next_obs, batch.skill.argmax(1))
    loss = public.compute_ani_nce_loss(public.becl(batch.next_obs), batch.skill, public.Lambda)
    reward = public.compute_intr_reward(batch.skill, batch.next_obs, {})
    return [-contrast.log_ratio, contrast.ratio], [loss.squeeze(1), reward.squeeze(1)]


def cpc(both: Both) -> Pairs:
    batch = both.batch
    loss, _ = both.public.compute_cpc_loss(batch.obs, batch.next_obs, batch.skill)
    return [both.objective.encoder.loss(batch.obs, batch.next_obs, batch.skill.argmax(1))[0]], [
        loss.mean()
    ]


def entropy(both: Both) -> Pairs:
    """The reward, and the running moments that it leaves; twice, since the second one sees them."""
    ours, theirs = [], []
    for _ in range(2):
        ours.append(both.objective._entropy(both.batch))
        theirs.append(both.public.compute_apt_reward(both.batch.next_obs, both.batch.next_obs))
    moments, rms = both.objective.entropy.moments, both.module.rms
    return [*ours, moments.mean, moments.var], [*theirs, rms.M, rms.S]


def novelty(both: Both) -> Pairs:
    ours, theirs = [], []
    for _ in range(2):
        ours.append(both.objective._novelty(both.batch))
        theirs.append(both.public.compute_rnd_reward(both.batch.obs, 0))
    moments, rms = both.objective.rnd.moments, both.public.intrinsic_reward_rms
    return [*ours, moments.mean, moments.var], [*theirs, rms.M, rms.S]


def rewards_of(both: Both) -> dict[str, Tensor]:
    """Two streams that pull a Q near 0 apart."""
    return {"diversity": both.batch.reward - 3, "exploration": both.batch.reward + 3}


def targets(both: Both) -> Pairs:
    public, batch = both.public, both.batch
    rewards = rewards_of(both)
    both.give_noise(1, 1)
    x = both.inputs(batch.next_obs)
    with torch.no_grad():
        action = public.actor(x, public.stddev_schedule).sample(clip=public.stddev_clip)
        value = torch.minimum(*public.critic_target(x, action))
    ours = both.learner.targets(batch, rewards)
    return list(ours.values()), [r + batch.discount * value for r in rewards.values()]


def gradient(module: nn.Module) -> list[Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None]


def critic_step(coin: int) -> Callable[[Both], Pairs]:
    def compare(both: Both) -> Pairs:
        """The combined gradient, and the weights after its step."""
        public, learner, batch = both.public, both.learner, both.batch
        rewards = rewards_of(both)
        public.becl_cic_ratio = learner.surgery.p = float(coin)
        both.give_noise(2, 1)
        public.update_critic_with_gradient_conflict_solver(
            both.inputs(batch.obs),
            batch.action,
            rewards["diversity"],
            rewards["exploration"],
            batch.discount,
            both.inputs(batch.next_obs),
            0,
        )
        metrics = learner.update_critic(batch, rewards, {})
        if not metrics["surgery/conflict"]:
            raise UserError("the two gradients of the test do not conflict; nothing is projected")
        sides = learner.critic, public.critic
        return tuple([*gradient(each), *each.parameters()] for each in sides)  # type: ignore[return-value]

    return compare


def actor_step(both: Both) -> Pairs:
    both.give_noise(3, 1)
    both.public.update_actor(both.inputs(both.batch.obs), 0)
    both.learner.update_actor(both.batch)
    sides = both.learner.actor, both.public.actor
    return tuple([*gradient(each), *each.parameters()] for each in sides)  # type: ignore[return-value]


def whole_updates(both: Both) -> Pairs:
    """Every weight of both sides after ten updates on one batch; both coins, in turn."""
    batch = both.batch
    arrays = [
        each.numpy()
        for each in (
            batch.obs,
            batch.action,
            batch.reward,
            batch.discount,
            batch.next_obs,
            batch.skill,
        )
    ]
    for step in range(UPDATES):
        both.public.becl_cic_ratio = both.learner.surgery.p = float(step % 2)
        both.give_noise(100 + step, 2)
        both.public.update(iter([arrays]), step)
        both.learner.update(both.objective, [batch])
    ours, theirs = [], []
    for _, mine, other in both.networks():
        ours += mine
        theirs += other
    return ours, theirs


def selector(modules: dict[str, ModuleType]) -> Callable[[Both], Pairs]:
    def compare(both: Both) -> Pairs:
        """Losses of each of ten updates, weights after them, epsilon at three steps."""
        words = ["agent=amped_release", "task=walker_run", "skills=selector_release"]
        config = resolve(compose([*words, f"skills.hidden_dim={HIDDEN}"], "finetune"))
        made = make_selector(config, SkillSpace("one_hot", SKILLS), OBS, Streams(0))
        network: Any = made.network
        settings = config["skills"]
        public = modules["skill_selector.sac"].SkillSelectorAgent(
            obs_shape=(OBS,),
            skill_dim=SKILLS,
            device=torch.device("cpu"),
            actor_lr=settings["lr"],
            critic_lr=settings["lr"],
            feature_dim=HIDDEN,
            hidden_dim=HIDDEN,
            update_every_steps=1,
            **{key: settings[key] for key in ("epsilon_start", "epsilon_end", "epsilon_decay")},
        )
        pairs = [
            (network.actor, public.actor),
            (network.critics, public.critic),
            (network.targets, public.target_critic),
        ]
        for mine, other in pairs:
            copy_weights(mine.parameters(), other.parameters(), "skill_selector")
        batch = both.batch
        arrays = [
            batch.obs,
            batch.action,
            batch.reward,
            batch.discount,
            batch.next_obs,
            batch.skill,
        ]
        ours, theirs = [], []
        for step in range(UPDATES):
            torch.manual_seed(step)
            with torch.no_grad():  # the skills that their actor will draw
                drawn = torch.distributions.Categorical(logits=public.actor(batch.obs)).sample()
            network.generator.category = lambda _, drawn=drawn: drawn
            torch.manual_seed(step)
            said = public.update(iter([[each.numpy() for each in arrays]]), step)
            metrics = network.learn(batch)
            ours += [metrics["skills/critic_loss"], metrics["skills/actor_loss"]]
            theirs += [said["skill_critic_loss"], said["skill_actor_loss"]]
        for step in (0, 20_000, 100_000):
            ours.append(made.exploration.at(step))
            theirs.append(public.get_epsilon(step))
        weights = [
            [p for each in side for p in each.parameters()] for side in zip(*pairs, strict=True)
        ]
        return [*ours, *weights[0]], [*theirs, *weights[1]]

    return compare
