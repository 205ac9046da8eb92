"""CeSD: clusters, the reward inside them, and value functions that learn from their own cluster
alone."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist

from agent.base import TaskReward
from agent.cesd import FiniteMoments
from agent.parts.moments import RunningMoments
from agent.parts.networks import ParallelLinear
from run.build import make_learner
from tests.kit.configs import composed
from tests.kit.objectives import (
    ENV,
    array,
    assert_learns_on_meta,
    assert_rewards_are_sound,
    assert_state_round_trip,
    assert_updates_lower,
    close,
    depends_on,
    make,
    make_batch,
    moved,
)
from utils import Streams

# Soft: clusters of every size.
OWN = ("skill_dim=4", "agent.objective.k=3", "agent.objective.temperature=0.5")


def make4(*overrides, **kwargs):
    return make("cesd", *OWN, *overrides, **kwargs)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def scores(objective, obs):
    return unit(array(objective.encoder.state(obs))) @ unit(array(objective.prototypes.weight)).T


# ----------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("iterations", [1, 3, 6])
def test_prototypes_learn_the_balanced_codes_of_the_next_states(iterations):
    objective, batch = make4(f"sinkhorn_iterations={iterations}"), make_batch()
    expected_encoder = make4(f"sinkhorn_iterations={iterations}")
    cpc, _ = expected_encoder.encoder.loss(batch.obs, batch.next_obs, batch.skill.argmax(1))
    expected_encoder.encoder_opt.zero_grad()
    cpc.backward()
    expected_encoder.encoder_opt.step()  # prototypes see the encoder after its own step

    q = np.exp(scores(expected_encoder, batch.next_obs) / 0.5)
    for _ in range(iterations):
        q = q / q.sum(0) / q.shape[1]  # every prototype 1 / n of the mass
        q = q / q.sum(1, keepdims=True) / q.shape[0]  # every sample 1 / B
    q = q / q.sum(1, keepdims=True)
    p = np.exp(scores(expected_encoder, batch.obs) / 0.5)
    p = p / p.sum(1, keepdims=True)
    expected = -np.mean([sum(q[b, i] * math.log(p[b, i]) for i in range(4)) for b in range(24)])
    metrics = objective.update(batch)
    close(metrics["cesd/prototype_loss"], expected)
    close(metrics["cpc/loss"], array(cpc))
    for ours, theirs in zip(objective.encoder.parameters(), expected_encoder.encoder.parameters()):
        close(ours, array(theirs))  # the encoder feels nothing of the prototypes


def test_the_cpc_loss_is_eq3_of_the_paper_or_the_public_codes():
    for form in ("paper", "release"):
        objective, batch = make4(f"agent.objective.cpc={form}"), make_batch()
        key, query = (
            objective.encoder.pair(batch.obs, batch.next_obs),
            objective.encoder.skill(batch.skill),
        )
        terms = np.exp(unit(array(query)) @ unit(array(key)).T / 0.5)
        below = (
            terms.mean(1)
            if form == "paper"
            else np.maximum(terms.sum(1) - math.exp(2), 1e-6) + 1e-6
        )
        close(
            objective.update(batch)["cpc/loss"], -np.mean(np.log(np.diag(terms) / below)), atol=1e-5
        )


def test_updates_move_the_networks_and_rewards_the_running_variance():
    objective, batch = make4(), make_batch()
    assert moved(objective, lambda: objective.update(batch)) == {"encoder", "prototypes"}
    assert moved(objective, lambda: objective.rewards(batch)) == {"entropy"}


# ------------------------------------------------------------------------------------------- reward


def drawn_clusters(objective, batch):
    """The clusters that the objective is about to draw: argmax of log p + Gumbel noise."""
    generator = torch.Generator()
    generator.set_state(objective.generator.get_state())
    u = array(torch.rand(len(batch.obs), 4, generator=generator))
    return (scores(objective, batch.next_obs) / objective.temperature - np.log(-np.log(u))).argmax(
        1
    )


def running_variance(history):
    """Of groups around their common mean, each with its unbiased variance; 1e-4 prior values of
    N(0, 1)."""
    n = np.array([1e-4, *(len(h) for h in history)])
    mean = np.array([0, *(np.mean(h) for h in history)])
    var = np.array([1, *(np.var(h, ddof=1) for h in history)])
    return np.average(var + (mean - np.average(mean, weights=n)) ** 2, weights=n)


@pytest.mark.parametrize("factor", [1, 0.1])
def test_the_reward_is_the_entropy_inside_the_cluster_plus_the_constraint(factor):
    objective, history = make4(f"constrain_factor={factor}"), []
    sizes = set()
    for seed in range(4):
        batch = make_batch(size=20, seed=seed)
        objective.update(batch)
        cluster, skill = drawn_clusters(objective, batch), batch.skill.argmax(1).numpy()
        features, nearest = array(objective.encoder.state(batch.next_obs)), {}
        for i in range(4):
            members = np.flatnonzero(cluster == i)
            sizes.add(len(members) > 3)
            if len(members) > 3:
                x = features[members]
                # itself among the k = 3
                for row, d in zip(members, np.sort(cdist(x, x), axis=1)[:, :3]):
                    nearest[row] = d
        history.append(np.concatenate(list(nearest.values())))
        variance, expected = running_variance(history), np.zeros((20, 1))
        for row, d in nearest.items():
            i = cluster[row]
            strangers = sum(1 for j in range(20) if cluster[j] == i and skill[j] != i)
            expected[row] = math.log(1 + np.mean(np.maximum(d / variance - 5e-4, 0))) + factor / (
                1 + strangers
            )
        rewards, metrics = objective.rewards(batch)
        close(rewards["exploration"], expected, atol=1e-5)
        assert torch.equal(objective.hints["cluster"], F.one_hot(torch.tensor(cluster), 4).float())
        close(metrics["cesd/purity"], np.mean(cluster == skill))
        close(metrics["cesd/large"], len(nearest) / 20)
    assert sizes == {True, False}


def test_the_constraint_by_hand():
    """Clusters 0 (5 rows, skills 0 0 0 1 2) and 1 (4 rows, all of skill 1), k = 3, all states the
    same: entropy 0.

    Cluster 0 has two strangers: 1 / (1 + 2). Cluster 1 has none: 1. Times the factor 3.
    """
    objective = make4("constrain_factor=3")
    objective.draw_clusters = lambda _: torch.tensor([0] * 5 + [1] * 4)
    batch = make_batch(size=9)
    batch = batch._replace(
        next_obs=batch.next_obs[:1].expand(9, -1), skill=torch.eye(4)[[0, 0, 0, 1, 2, 1, 1, 1, 1]]
    )
    rewards, metrics = objective.rewards(batch)
    close(rewards["exploration"], [[1.0]] * 5 + [[3.0]] * 4)
    close(metrics["cesd/purity"], 7 / 9)
    shares = np.array([5, 4]) / 9
    close(metrics["cesd/balance"], -sum(shares * np.log(shares)) / math.log(4))


def test_a_cluster_of_at_most_k_members_earns_nothing():
    objective = make("cesd")  # the real numbers: 16 skills, k = 16
    sizes = [16, 17, 1, 30]
    objective.draw_clusters = lambda _: torch.arange(4).repeat_interleave(torch.tensor(sizes))
    batch = make_batch(size=64, skills=16)
    rewards, metrics = objective.rewards(batch)
    zero = [not reward.any() for reward in rewards["exploration"].split(sizes)]
    assert zero == [True, False, True, False]
    assert (rewards["exploration"].split(sizes)[1] > 0).all()
    close(metrics["cesd/large"], 47 / 64)


def test_other_clusters_do_not_matter_to_the_entropy_of_a_cluster():
    objective = make4("agent.objective.knn_scale=none", "constrain_factor=0")
    objective.draw_clusters = lambda _: torch.arange(24) % 2
    batch = make_batch()
    far = batch._replace(next_obs=batch.next_obs + 100 * (torch.arange(24) % 2).unsqueeze(1))
    ours, theirs = (objective.rewards(b)[0]["exploration"] for b in (batch, far))
    assert torch.equal(ours[::2], theirs[::2]) and not torch.equal(ours[1::2], theirs[1::2])


def test_a_batch_without_a_large_cluster_leaves_the_running_variance_alone():
    objective = make4("agent.objective.k=30")
    assert moved(objective, lambda: objective.rewards(make_batch())) == set()
    assert not objective.rewards(make_batch())[0]["exploration"].any()


def test_finite_moments_are_the_moments_of_what_is_finite():
    rng = torch.Generator().manual_seed(0)
    ours, plain = FiniteMoments(), RunningMoments()
    for size in (6, 9):
        x = 3 + 2 * torch.randn(size, 4, generator=rng)
        plain.update(x)
        ours.update(torch.cat([torch.full((2, 4), torch.inf), x]))
        for name in ("mean", "var", "count"):
            close(getattr(ours, name), array(getattr(plain, name)))


def test_clusters_are_drawn_from_the_softmax_of_the_scores():
    objective = make4()
    features = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).repeat_interleave(
        4000, 0
    )
    index = objective.draw_clusters(features).view(3, 4000)
    logits = unit(array(features[::4000])) @ unit(array(objective.prototypes.weight)).T / 0.5
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    close(F.one_hot(index, 4).float().mean(1), expected, rtol=0, atol=0.03)


def test_it_reads_the_state_after_n_steps_and_the_skill():
    assert depends_on(make4(), "exploration") == {"next_obs", "skill"}


def test_what_every_method_owes():
    assert_rewards_are_sound(make4())
    assert_state_round_trip("cesd", *OWN)
    assert_updates_lower(make4(), "cpc/loss")
    assert_learns_on_meta("cesd")
    assert_learns_on_meta("cesd", "task=walker_run", phase="finetune")
    assert_learns_on_meta("cesd", "learner.action_input=head", "learner.layers=2")
    assert_learns_on_meta(
        "cesd", "agent.learner.legacy_head_init=true", "agent.objective.knn_scale=std"
    )


def test_prototypes_lower_their_loss_on_fixed_features():
    objective = make4()
    objective.optimizers["encoder"].param_groups[0]["lr"] = 0.0
    assert_updates_lower(objective, "cesd/prototype_loss")


@pytest.mark.parametrize(
    "domain, factor, iterations", [("walker", 1, 6), ("quadruped", 1, 5), ("jaco", 0.1, 4)]
)
def test_domains_have_their_own_numbers(domain, factor, iterations):
    objective = make("cesd", f"domain={domain}")
    assert (objective.constrain_factor, objective.iterations) == (factor, iterations)


# -------------------------------------------------------------------------------------- the learner


def learner4(*overrides, streams=("exploration",), seed=0):
    torch.manual_seed(seed)
    config = composed("pretrain", "agent=cesd", "preset=smoke", *OWN, *overrides)
    return make_learner(config, ENV, 4, streams, Streams(seed))


def head_value(critic, name, head, obs, action):
    """One head, layer by layer."""
    h = critic.trunk(torch.cat([obs, action], 1))
    first, _, last = getattr(critic, name)
    h = torch.relu(h @ first.weight[head] + first.bias[head])
    return h @ last.weight[head] + last.bias[head]  # (B, 1)


def test_each_head_is_a_network_of_its_own_on_a_trunk_of_half_the_width_without_the_skill():
    learner, batch = learner4(), make_batch()
    assert learner.critic.trunk[0].weight.shape == (16, 6)  # 32 / 2; state and action
    other = learner.values(learner.critic, batch.obs, batch.skill.roll(1, 0), batch.action)
    for q, name, same in zip(
        learner.values(learner.critic, batch.obs, batch.skill, batch.action), ("q1", "q2"), other
    ):
        assert q.shape == (24, 4) and torch.equal(q, same)
        close(
            q,
            np.concatenate(
                [
                    array(head_value(learner.critic, name, i, batch.obs, batch.action))
                    for i in range(4)
                ],
                1,
            ),
            atol=1e-5,
        )


def test_a_head_learns_from_its_own_cluster_only():
    learner, batch = learner4(), make_batch()
    cluster = torch.zeros(24, 4)
    cluster[:, 2] = 1
    y = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    learner.critic_losses(batch, {"exploration": y}, {"cluster": cluster})["exploration"].backward()
    for name in ("q1", "q2"):
        for layer in getattr(learner.critic, name)[::2]:
            for parameter in (layer.weight, layer.bias):
                assert [bool(g.any()) for g in parameter.grad] == [False, False, True, False]


def test_the_critic_loss_is_the_squared_error_of_the_clusters_head():
    learner, batch = learner4(), make_batch()
    index = torch.randint(4, (24,), generator=torch.Generator().manual_seed(3))
    y = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    masked = learner.critic_losses(
        batch, {"exploration": y}, {"cluster": F.one_hot(index, 4).float()}
    )["exploration"]
    q = [array(x) for x in learner.values(learner.critic, batch.obs, batch.skill, batch.action)]
    close(
        masked,
        sum(np.mean([(x[b, index[b]] - float(y[b, index[b]])) ** 2 for b in range(24)]) for x in q),
    )
    # fine-tuning: no clusters, every head learns from every sample
    close(
        learner.critic_losses(batch, {"task": y}, {})["task"],
        sum(np.mean((x - array(y)) ** 2) for x in q),
    )


def test_each_head_bootstraps_on_itself():
    learner, batch = learner4(), make_batch()
    state = learner.learn_rng.get_state()
    y = learner.targets(batch, {"exploration": batch.reward})["exploration"]
    noise = 0.2 * torch.randn(24, 2, generator=torch.Generator().set_state(state))
    mean = learner.actor(torch.cat([batch.next_obs, batch.skill], 1))
    action = (mean + noise.clamp(-0.3, 0.3)).clamp(-1 + 1e-6, 1 - 1e-6)
    for i in range(4):
        q = [head_value(learner.target, name, i, batch.next_obs, action) for name in ("q1", "q2")]
        close(y[:, [i]], array(batch.reward + batch.discount * torch.minimum(*q)), atol=1e-5)


def test_the_actor_follows_the_head_of_its_skill():
    learner, batch = learner4(), make_batch()
    q = torch.randn(24, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = learner.actor_losses(q, batch.skill)["q"]
    close(loss, -np.mean([array(q)[b, batch.skill[b].argmax()] for b in range(24)]))
    loss.backward()
    close(q.grad, array(-batch.skill / 24))


def test_the_public_codes_initialisation_makes_large_first_values():
    ours, theirs = learner4(), learner4("agent.learner.legacy_head_init=true")
    bounds = [
        (layer.weight.abs().max().item(), layer.bias.abs().max().item())
        for learner in (ours, theirs)
        for layer in learner.critic.q1[::2]
    ]
    # fan-in of 16 and 32; of the transposed shapes 32 and 1
    for (weight, bias), bound in zip(bounds, (16**-0.5, 32**-0.5, 32**-0.5, 1)):
        assert 0.95 * bound < weight <= bound and 0.4 * bound < bias <= bound
    batch = make_batch()
    small, large = (learner.critic(batch.obs, batch.action)[0].std() for learner in (ours, theirs))
    assert large > 3 * small


def test_parallel_layers_start_as_linear_layers_do():
    torch.manual_seed(0)
    ours, torchs = ParallelLinear(50, 20, 10, legacy=False), torch.nn.Linear(20, 10 * 50)
    close(ours.weight.std(), array(torchs.weight.std()), rtol=0.03)
    close(ours.bias.std(), array(torchs.bias.std()), rtol=0.1)


class Memory:
    def sample(self, size):
        return make_batch(size)


def test_a_whole_update_moves_the_heads_of_the_clusters_that_occur():
    learner, objective = learner4(), make4()
    objective.draw_clusters = lambda features: torch.arange(len(features)) % 2  # clusters 0 and 1
    before = copy.deepcopy(learner.critic)
    learner.learn(Memory(), objective, 0)
    change = (learner.critic.q1[0].weight - before.q1[0].weight).abs().amax((1, 2))
    assert [bool(c > 0) for c in change] == [True, True, False, False]


def test_fine_tuning_lowers_the_critic_loss_of_every_head_and_starts_from_the_pretrained_trunk():
    pretrained, learner = learner4(), learner4(streams=("task",), seed=1)
    learner.warm_start(copy.deepcopy(pretrained.state_dict()))
    assert torch.equal(learner.critic.trunk[0].weight, pretrained.critic.trunk[0].weight)
    assert torch.equal(learner.target.trunk[0].weight, pretrained.critic.trunk[0].weight)
    assert not torch.equal(learner.critic.q1[0].weight, pretrained.critic.q1[0].weight)
    before, objective = copy.deepcopy(learner.critic), TaskReward()
    first = learner.learn(Memory(), objective, 0)
    assert ((learner.critic.q1[0].weight - before.q1[0].weight).abs().amax((1, 2)) > 0).all()
    for step in range(2, 100, 2):
        last = learner.learn(Memory(), objective, step)
    assert last["critic_loss/task"] < first["critic_loss/task"]
