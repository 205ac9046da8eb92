"""Stand-in: the learner under the names of the public code."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn.functional import mse_loss

import utils


class Actor(nn.Module):
    def __init__(self, inputs, actions, hidden):
        super().__init__()
        self.trunk = utils.squashed(inputs, hidden)
        self.policy = utils.dense(hidden, hidden, actions)

    def forward(self, x, std):
        return utils.Noisy(torch.tanh(self.policy(self.trunk(x))), std)


class Critic(nn.Module):
    def __init__(self, inputs, actions, hidden):
        super().__init__()
        self.trunk = utils.squashed(inputs + actions, hidden)
        self.Q1, self.Q2 = (utils.dense(hidden, hidden, 1) for _ in range(2))

    def forward(self, x, action):
        h = self.trunk(torch.cat([x, action], 1))
        return self.Q1(h), self.Q2(h)


class DDPGAgent:
    def __init__(
        self,
        *,
        obs_shape,
        action_shape,
        lr,
        hidden_dim,
        critic_target_tau,
        stddev_schedule,
        stddev_clip,
        meta_dim,
        **_,
    ):
        sizes = obs_shape[0] + meta_dim, action_shape[0], hidden_dim
        self.actor, self.critic = Actor(*sizes), Critic(*sizes)
        self.critic_target = copy.deepcopy(self.critic)
        self.actor_opt, self.critic_opt = (
            torch.optim.Adam(net.parameters(), lr) for net in (self.actor, self.critic)
        )
        self.lr, self.tau = lr, critic_target_tau
        self.stddev_schedule, self.stddev_clip = stddev_schedule, stddev_clip

    def update_critic_with_gradient_conflict_solver(
        self, obs, action, intr_reward, apt_reward, discount, next_obs, step
    ):
        with torch.no_grad():
            following = self.actor(next_obs, self.stddev_schedule).sample(clip=self.stddev_clip)
            value = discount * torch.min(*self.critic_target(next_obs, following))
        weights = list(self.critic.parameters())
        sides = []
        for reward in (intr_reward, apt_reward):
            loss = sum(mse_loss(q, reward + value) for q in self.critic(obs, action))
            sides.append(torch.autograd.grad(loss, weights))
        product = sum((a * b).sum() for a, b in zip(*sides, strict=True))
        if product < 0:
            chosen = 0 if np.random.binomial(1, self.becl_cic_ratio) else 1
            other = sides[1 - chosen]
            scale = product / (sum((g * g).sum() for g in other) + 1e-12)
            sides[chosen] = [g - scale * h for g, h in zip(sides[chosen], other, strict=True)]
        for weight, a, b in zip(weights, *sides, strict=True):
            weight.grad = a + b
        self.critic_opt.step()
        return {"gradient_dot": product}

    def update_actor(self, obs, step):
        action = self.actor(obs, self.stddev_schedule).sample(clip=self.stddev_clip)
        loss = -torch.min(*self.critic(obs, action)).mean()
        self.actor_opt.zero_grad()
        loss.backward()
        self.actor_opt.step()
        return {}
