"""Stand-in: AMPED under the names of the public code."""

import torch
from torch import nn
from torch.nn.functional import normalize

import utils
from agent.ddpg import DDPGAgent

RMS = utils.RMS
rms = RMS()


class Contrast(nn.Module):
    def __init__(self, inputs, outputs, hidden):
        super().__init__()
        self.embed = utils.dense(inputs, hidden, hidden, outputs)
        self.project_head = utils.dense(outputs, hidden, outputs)

    def forward(self, x):
        return self.project_head(self.embed(x))


class Transitions(nn.Module):
    def __init__(self, inputs, skills, hidden):
        super().__init__()
        self.state_net = utils.dense(inputs, hidden, hidden, skills)
        self.pred_net = utils.dense(2 * skills, hidden, hidden, skills)
        self.skill_net = utils.dense(skills, hidden, hidden, skills)


class Novelty(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.norm = nn.BatchNorm1d(inputs, affine=False)
        self.predictor, self.target = (utils.dense(inputs, hidden, hidden, hidden) for _ in "ab")
        self.target.requires_grad_(False)

    def forward(self, x):
        x = self.norm(x).clamp(-5, 5)
        return (self.predictor(x) - self.target(x)).pow(2).mean(1, keepdim=True)


class AmpedAgent(DDPGAgent):
    def __init__(self, *, skill_dim, temperature, alpha, beta, becl_cic_ratio, **settings):
        super().__init__(meta_dim=skill_dim, **settings)
        inputs, hidden = settings["obs_shape"][0], settings["hidden_dim"]
        self.temperature, self.alpha, self.beta = temperature, alpha, beta
        self.becl_cic_ratio = becl_cic_ratio
        self.becl = Contrast(inputs, skill_dim, hidden)
        self.Lambda = nn.Parameter(torch.eye(skill_dim))
        self.cic, self.rnd = Transitions(inputs, skill_dim, hidden), Novelty(inputs, hidden)
        self.intrinsic_reward_rms = utils.RMS()
        self.encoders_opt = torch.optim.Adam(
            [*self.becl.parameters(), self.Lambda, *self.cic.parameters(), *self.rnd.parameters()],
            self.lr,
        )

    def compute_ani_nce_loss(self, features, skills, Lambda):
        index, rows = skills.argmax(1), []
        for i in range(len(features)):
            others = [j for j in range(len(features)) if j != i]
            step = features[others] - features[i]
            terms = torch.exp(-torch.einsum("jc,cd,jd->j", step, Lambda, step) / self.temperature)
            first = next((n for n, j in enumerate(others) if index[j] == index[i]), 0)
            rows.append(-torch.log(terms[first] / (terms.sum() + 1e-6) + 1e-6))
        return torch.stack(rows).unsqueeze(1)

    def compute_intr_reward(self, skills, state, metrics):
        return torch.exp(-self.compute_ani_nce_loss(self.becl(state), skills, self.Lambda))

    def compute_cpc_loss(self, obs, next_obs, skill):
        key = torch.cat([self.cic.state_net(obs), self.cic.state_net(next_obs)], 1)
        key = normalize(self.cic.pred_net(key), dim=1)
        scores = normalize(self.cic.skill_net(skill), dim=1) @ key.T / self.temperature
        largest = torch.tensor(1 / self.temperature).exp()  # subtracted, whatever the row's own is
        negatives = (scores.exp().sum(1) - largest).clamp(min=1e-6) + 1e-6
        return negatives.log() - scores.diagonal(), scores

    @torch.no_grad()
    def compute_apt_reward(self, obs, next_obs):
        a, b = self.cic.state_net(obs), self.cic.state_net(next_obs)
        near = (a.unsqueeze(1) - b).norm(dim=2).sort(1).values[:, :16]
        _, variance = rms(near.reshape(-1, 1))
        return (1 + (near / variance - 0.0005).clamp(min=0).mean(1, keepdim=True)).log()

    @torch.no_grad()
    def compute_rnd_reward(self, obs, step):
        error = self.rnd(obs)
        _, variance = self.intrinsic_reward_rms(error)
        return error / (variance.sqrt() + 1e-8)

    def update(self, replay_iter, step):
        obs, action, _, discount, next_obs, skill = utils.tensors(next(replay_iter))
        contrast = self.compute_ani_nce_loss(self.becl(next_obs), skill, self.Lambda)
        loss = contrast.mean() + self.compute_cpc_loss(obs, next_obs, skill)[0].mean()
        self.encoders_opt.zero_grad()
        (loss + self.rnd(obs).mean()).backward()
        self.encoders_opt.step()
        with torch.no_grad():
            diversity = self.compute_intr_reward(skill, next_obs, {})
        explored = self.alpha * self.compute_apt_reward(next_obs, next_obs)
        explored = explored + self.beta * self.compute_rnd_reward(obs, step)
        x, y = torch.cat([obs, skill], 1), torch.cat([next_obs, skill], 1)
        self.update_critic_with_gradient_conflict_solver(
            x, action, diversity, explored, discount, y, step
        )
        self.update_actor(x, step)
        utils.move_towards(self.critic_target, self.critic, self.tau)
        return {}
