"""One AMPED update written plainly, as public code does: the oracle of the fast one and the
benchmarks' baseline.

Vectorised, but naive: all pairs of rows as (B, B, c) differences and Eq. 4 with its metric as a
matrix, the skill network on the whole batch, source and target of the particle entropy encoded each
for itself, two whole backward passes into copied flat gradients, critic weights in the actor's
backward pass, an optimiser per network, a Python loop over the target's weights. Nothing here is to
be made faster. Only `agent=amped` as it is by default.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.amped import AMPED
from agent.learners.ddpg import DDPG
from replay_buffer import Batch
from utils import Streams


def network(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        if layers:
            layers.append(nn.ReLU())
        layers.append(nn.Linear(a, b))
    return nn.Sequential(*layers)


def like(module: nn.Sequential) -> nn.Sequential:
    """A plain network with the same weights, shared with nothing."""
    layers = [layer for layer in module if isinstance(layer, nn.Linear)]
    net = network(layers[0].in_features, *(layer.out_features for layer in layers))
    net.load_state_dict(module.state_dict())
    return net


def trunk_like(module: nn.Sequential) -> nn.Sequential:
    first = module[0]
    net = nn.Sequential(
        nn.Linear(first.in_features, first.out_features),
        nn.LayerNorm(first.out_features),
        nn.Tanh(),
    )
    net.load_state_dict(module.state_dict())
    return net


class Twin(nn.Module):
    def __init__(self, critic: nn.Module):
        super().__init__()
        self.trunk, self.q1, self.q2 = trunk_like(critic.trunk), like(critic.q1), like(critic.q2)

    def forward(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        h = self.trunk(torch.cat([x, action], 1))
        return self.q1(h), self.q2(h)


class Moments:
    """Running mean and variance."""

    def __init__(self):
        self.mean, self.var, self.count = torch.zeros(1), torch.ones(1), 1e-4

    def update(self, x: Tensor) -> None:
        n, delta = x.numel(), x.mean() - self.mean
        total = self.count + n
        self.var = (self.var * self.count + x.var() * n + delta**2 * self.count * n / total) / total
        self.mean = self.mean + delta * n / total
        self.count = total


def flatten(parameters: list[nn.Parameter]) -> Tensor:
    return torch.cat([p.grad.clone().flatten() for p in parameters])


class Reference:
    """Copies the weights of a learner and an objective that have not learned yet; `rng` is to give
    their numbers."""

    def __init__(self, learner: DDPG, objective: AMPED, rng: Streams):
        contrast = objective.contrast
        encoder = objective.encoder
        assert encoder is not None, "the paper's AMPED has one"
        rnd = objective.rnd
        entropy = objective.entropy
        self.embed, self.head = like(contrast.embed), like(contrast.head)
        self.log_metric = nn.Parameter(contrast.log_metric.detach().clone())
        self.state = like(encoder.state)
        self.predict = like(encoder.predict)
        self.skill = like(encoder.skill)
        self.predictor, self.frozen = like(rnd.predictor), like(rnd.target)
        self.actor = nn.Sequential(
            trunk_like(learner.actor.trunk), like(learner.actor.head), nn.Tanh()
        )
        self.critic, self.target = Twin(learner.critic), Twin(learner.target)
        self.distances, self.errors = Moments(), Moments()

        def adam(*owners) -> torch.optim.Adam:
            parameters = [
                p for o in owners for p in ([o] if isinstance(o, nn.Parameter) else o.parameters())
            ]
            return torch.optim.Adam(parameters, lr=learner.critic_opt.param_groups[0]["lr"])

        self.contrast_opt = adam(self.embed, self.head, self.log_metric)
        self.encoder_opt = adam(self.state, self.predict, self.skill)
        self.rnd_opt = adam(self.predictor)
        self.actor_opt = adam(self.actor)
        self.critic_opt = adam(self.critic)
        self.draw, self.coin, self.noise = (
            rng.torch(name) for name in ("objective", "surgery", "learn")
        )
        self.temperature, self.cpc_temperature = contrast.temperature, encoder.temperature
        self.alpha = objective.alpha
        self.beta = objective.beta
        self.k = entropy.k
        self.clip = entropy.clip
        self.tau, self.stddev, self.stddev_clip = learner.tau, learner.stddev, learner.stddev_clip
        self.p = learner.critic_surgery.p

    def update(self, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Metrics and rewards."""
        metrics: dict[str, Tensor] = {}
        for step in (self.update_contrast, self.update_encoder, self.update_rnd):
            metrics |= step(batch)
        with torch.no_grad():
            log_ratio, valid, _ = self.contrast(batch)
            ratio = log_ratio.exp()
            diversity = torch.where(valid, ratio, ratio[valid].mean()).unsqueeze(1)
            entropy, novelty = self.entropy(batch), self.novelty(batch)
            rewards = {
                "diversity": diversity,
                "exploration": self.alpha * entropy + self.beta * novelty,
            }
        metrics |= {"exploration/entropy": entropy.mean(), "exploration/rnd": novelty.mean()}
        metrics |= {f"reward/{name}": r.mean() for name, r in rewards.items()}
        metrics |= {f"reward_std/{name}": r.std() for name, r in rewards.items()}
        metrics |= self.update_critic(batch, rewards) | self.update_actor(batch)
        for slow, fast in zip(self.target.parameters(), self.critic.parameters()):
            slow.data.copy_(self.tau * fast.data + (1 - self.tau) * slow.data)
        return metrics, rewards

    # ------------------------------------------------------------------------------------ diversity

    def contrast(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """For each anchor the logarithm in Eq. 4, whether it has a positive, and whether its
        nearest has its skill."""
        size, u = len(batch.obs), torch.rand(len(batch.obs), generator=self.draw)
        features = self.head(self.embed(batch.next_obs))
        difference = features.unsqueeze(1) - features.unsqueeze(0)  # (B, B, n)
        logits = -(difference @ self.log_metric.exp().diag() * difference).sum(2) / self.temperature
        index, itself = batch.skill.argmax(1), torch.eye(size, dtype=torch.bool)
        same = index.unsqueeze(1) == index.unsqueeze(0)
        # The positive: of the other rows of the skill, those behind the anchor first, the one at u
        # of their number.
        order, count = same.cumsum(1), same.sum(1)
        step = 1 + (u * (count - 1)).long()
        wanted = (order.diagonal() - 1 + step) % count + 1
        partner = (same & (order == wanted.unsqueeze(1))).float().argmax(1)
        positive = logits[torch.arange(size), partner]
        chosen = F.one_hot(partner, size).bool()
        below = logits.masked_fill(same & ~chosen, -torch.inf).logsumexp(1)
        nearest = logits.detach().masked_fill(itself, -torch.inf).argmax(1)
        return positive - below, count > 1, (index[nearest] == index).float()

    def update_contrast(self, batch: Batch) -> dict[str, Tensor]:
        log_ratio, valid, correct = self.contrast(batch)
        loss = -log_ratio[valid].mean()
        self.descend(loss, self.contrast_opt)
        return {"diversity/loss": loss.detach(), "diversity/accuracy": correct.mean()}

    # ---------------------------------------------------------------------------------- exploration

    def update_encoder(self, batch: Batch) -> dict[str, Tensor]:
        query = F.normalize(self.skill(batch.skill), dim=1)
        key = self.predict(torch.cat([self.state(batch.obs), self.state(batch.next_obs)], 1))
        logits = query @ F.normalize(key, dim=1).T / self.cpc_temperature  # (B, B)
        loss = (
            logits.logsumexp(1) - math.log(len(logits)) - logits.diagonal()
        ).mean()  # minus Eq. 3
        self.descend(loss, self.encoder_opt)
        index = batch.skill.argmax(1)
        guess = index[logits.detach().argmax(0)]  # the skill of the row that fits a transition best
        return {"cpc/loss": loss.detach(), "cpc/accuracy": (guess == index).float().mean()}

    def error(self, batch: Batch) -> Tensor:
        x = F.batch_norm(batch.obs, None, None, training=True).clamp(-5, 5)
        with torch.no_grad():
            wanted = self.frozen(x)
        return (self.predictor(x) - wanted).square().mean(1, keepdim=True)

    def update_rnd(self, batch: Batch) -> dict[str, Tensor]:
        loss = self.error(batch).mean()
        self.descend(loss, self.rnd_opt)
        return {"rnd/loss": loss.detach()}

    def entropy(self, batch: Batch) -> Tensor:
        source, target = self.state(batch.next_obs), self.state(batch.next_obs)
        distance = (source.unsqueeze(1) - target.unsqueeze(0)).norm(dim=2)  # of (B, B, n)
        nearest = distance.topk(self.k, largest=False).values
        self.distances.update(nearest)
        return torch.log(
            1 + (nearest / self.distances.var - self.clip).clamp(min=0).mean(1, keepdim=True)
        )

    def novelty(self, batch: Batch) -> Tensor:
        error = self.error(batch)
        self.errors.update(error)
        return error / (self.errors.var.sqrt() + 1e-8)

    # -------------------------------------------------------------------------------- DDPG, surgery

    def act(self, obs: Tensor, skill: Tensor) -> Tensor:
        mean = self.actor(torch.cat([obs, skill], 1))
        noise = (self.stddev * torch.randn(mean.shape, generator=self.noise)).clamp(
            -self.stddev_clip, self.stddev_clip
        )
        action = mean + noise
        return action - action.detach() + action.detach().clamp(-1 + 1e-6, 1 - 1e-6)

    def update_critic(self, batch: Batch, rewards: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            action = self.act(batch.next_obs, batch.skill)
            q1, q2 = self.target(torch.cat([batch.next_obs, batch.skill], 1), action)
            bootstrap = batch.discount * torch.min(q1, q2)
            targets = {name: r + bootstrap for name, r in rewards.items()}
        q1, q2 = self.critic(torch.cat([batch.obs, batch.skill], 1), batch.action)
        losses = {name: F.mse_loss(q1, y) + F.mse_loss(q2, y) for name, y in targets.items()}
        parameters, flat = list(self.critic.parameters()), []
        for loss in losses.values():
            self.critic_opt.zero_grad()
            loss.backward(retain_graph=True)
            flat.append(flatten(parameters))
        diversity, exploration = flat
        dot = diversity @ exploration
        cosine = dot / (diversity.norm() * exploration.norm() + 1e-12)
        project_diversity = torch.rand((), generator=self.coin) < self.p
        total = diversity + exploration  # Algorithm 1
        if dot < 0 and project_diversity:
            total = (
                diversity - dot / (exploration @ exploration + 1e-12) * exploration + exploration
            )
        elif dot < 0:
            total = exploration - dot / (diversity @ diversity + 1e-12) * diversity + diversity
        for p, part in zip(parameters, total.split([p.numel() for p in parameters])):
            p.grad = part.view_as(p).clone()
        self.critic_opt.step()
        metrics = {f"critic_loss/{name}": loss.detach() for name, loss in losses.items()}
        return metrics | {
            "critic/target": torch.cat(list(targets.values())).mean(),
            "surgery/dot": dot,
            "surgery/cosine": cosine,
            "surgery/conflict": (dot < 0).float(),
        }

    def update_actor(self, batch: Batch) -> dict[str, Tensor]:
        q1, q2 = self.critic(
            torch.cat([batch.obs, batch.skill], 1), self.act(batch.obs, batch.skill)
        )
        loss = -torch.min(q1, q2).mean()
        # The critic's weights get gradients too, which its next step forgets.
        self.descend(loss, self.actor_opt)
        return {"actor/loss": loss.detach()}

    def descend(self, loss: Tensor, optimizer: torch.optim.Adam) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
