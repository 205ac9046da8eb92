"""Stand-in: the selector under the names of the public code."""

import copy
import math

import torch
from torch import nn

import utils


def network(inputs, hidden, skills):
    return nn.Sequential(utils.squashed(inputs, hidden), utils.dense(hidden, hidden, skills))


class SkillSelectorAgent:
    def __init__(
        self,
        *,
        obs_shape,
        skill_dim,
        actor_lr,
        critic_lr,
        hidden_dim,
        epsilon_start,
        epsilon_end,
        epsilon_decay,
        **_,
    ):
        self.actor, self.critic = (network(obs_shape[0], hidden_dim, skill_dim) for _ in "ab")
        self.target_critic = copy.deepcopy(self.critic)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), actor_lr)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), critic_lr)
        self.schedule = epsilon_start, epsilon_end, epsilon_decay

    def get_epsilon(self, step):
        start, end, decay = self.schedule
        return end + (start - end) * math.exp(-step / decay)

    def update(self, replay_iter, step):
        obs, _, reward, discount, next_obs, skill = utils.tensors(next(replay_iter))
        with torch.no_grad():
            best = self.target_critic(next_obs).max(1, keepdim=True).values
        error = (self.critic(obs) * skill).sum(1, keepdim=True) - (reward + 0.99 * discount * best)
        critic_loss = error.pow(2).mean()
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()
        choice = torch.distributions.Categorical(logits=self.actor(obs))
        drawn = choice.sample()
        worth = self.critic(obs).detach()[torch.arange(len(obs)), drawn]
        actor_loss = -(choice.log_prob(drawn) * worth).mean() - 0.01 * choice.entropy().mean()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        nn.utils.clip_grad_norm_(self.actor.parameters(), 10.0)
        self.actor_opt.step()
        utils.move_towards(self.target_critic, self.critic, 0.005)
        return {"skill_critic_loss": critic_loss.item(), "skill_actor_loss": actor_loss.item()}
