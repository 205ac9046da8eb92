"""The learner is URLB's DDPG: networks, noise, targets and update order, against updates written
out by hand."""

import copy
import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from agent.base import TaskReward
from agent.keys import arguments
from agent.learners.ddpg import DDPG
from agent.learners.surgery import ProjectConflict, SumGradients, Surgery
from agent.parts.draws import Draws
from agent.parts.networks import Actor, Critic
from agent.parts.noise import clipped_noise
from tests.kit.learners import (
    ACT,
    OBS,
    SETTINGS,
    SKILLS,
    TWO,
    B,
    Tape,
    make_batch,
    make_ddpg,
    task_and_negative,
)
from utils import Streams, UserError, stream_seed, weights

# ---- a plain transcription: weights in a dictionary, forward passes and updates written out


def plain_weights(module):
    return {
        k: v.detach().clone()
        for k, v in module.state_dict().items()
        if not k.endswith("_extra_state")
    }


def plain_actor(w, x):
    h = x @ w["trunk.0.weight"].T + w["trunk.0.bias"]
    h = torch.tanh(F.layer_norm(h, h.shape[-1:], w["trunk.1.weight"], w["trunk.1.bias"]))
    h = torch.relu(h @ w["head.0.weight"].T + w["head.0.bias"])
    return torch.tanh(h @ w["head.2.weight"].T + w["head.2.bias"])


def plain_critic(w, x, action):
    h = torch.cat([x, action], -1) @ w["trunk.0.weight"].T + w["trunk.0.bias"]
    h = torch.tanh(F.layer_norm(h, h.shape[-1:], w["trunk.1.weight"], w["trunk.1.bias"]))
    q = []
    for head in ("q1", "q2"):
        z = torch.relu(h @ w[f"{head}.0.weight"].T + w[f"{head}.0.bias"])
        q.append(z @ w[f"{head}.2.weight"].T + w[f"{head}.2.bias"])
    return q


def plain_noisy(mean, generator):
    """Normal noise of 0.2, clipped at 0.3; the action clipped, its gradient that of mean +
    noise."""
    noise = (0.2 * torch.randn(mean.shape, generator=generator)).clamp(-0.3, 0.3)
    raw = mean + noise
    clipped = raw.detach().clamp(-1 + 1e-6, 1 - 1e-6)
    return raw - raw.detach() + clipped


class PlainDDPG:
    """One reward, one update at a time: critic, actor, target."""

    def __init__(self, learner, seed):
        self.actor, self.critic = plain_weights(learner.actor), plain_weights(learner.critic)
        self.target = plain_weights(learner.target)
        for w in (*self.actor.values(), *self.critic.values()):
            w.requires_grad_(True)
        self.actor_opt = torch.optim.Adam(self.actor.values(), lr=1e-3)
        self.critic_opt = torch.optim.Adam(self.critic.values(), lr=1e-3)
        self.generator = torch.Generator().manual_seed(stream_seed(seed, "learn"))

    def update(self, batch):
        x, following = (
            torch.cat([batch.obs, batch.skill], 1),
            torch.cat([batch.next_obs, batch.skill], 1),
        )
        with torch.no_grad():
            action = plain_noisy(plain_actor(self.actor, following), self.generator)
            q1, q2 = plain_critic(self.target, following, action)
            y = batch.reward + batch.discount * torch.min(q1, q2)
        q1, q2 = plain_critic(self.critic, x, batch.action)
        loss = ((q1 - y) ** 2).sum() / len(y) + ((q2 - y) ** 2).sum() / len(y)
        self.critic_opt.zero_grad()
        loss.backward()
        self.critic_opt.step()

        q1, q2 = plain_critic(
            self.critic, x, plain_noisy(plain_actor(self.actor, x), self.generator)
        )
        self.actor_opt.zero_grad()
        (-torch.min(q1, q2).sum() / len(y)).backward()
        self.actor_opt.step()
        with torch.no_grad():
            for name, w in self.target.items():
                self.target[name] = 0.99 * w + 0.01 * self.critic[name]


def close(module, plain, tolerance=1e-6):
    for name, w in weights(module).items():
        torch.testing.assert_close(
            w, plain[name], rtol=0, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
        )


def grads(optimizer):
    return torch.cat([p.grad.flatten() for p in optimizer.parameters])


# ---- networks


def count(module):
    return sum(p.numel() for p in module.parameters())


def linear(inputs, outputs):
    return (inputs + 1) * outputs


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("action_input", ["trunk", "head"])
def test_networks_have_the_papers_size_on_walker(layers, action_input):
    o, a, n, h = 24, 6, 16, 1024
    with torch.device("meta"):
        actor = Actor(o + n, a, hidden_dim=h, layers=layers)
        critic = Critic(o + n, a, hidden_dim=h, layers=layers, action_input=action_input, columns=1)
    norm, more = 2 * h, (layers - 1) * linear(h, h)
    assert count(actor) == linear(o + n, h) + norm + linear(h, h) + more + linear(h, a)
    if action_input == "trunk":
        assert count(critic) == linear(o + n + a, h) + norm + 2 * (
            linear(h, h) + more + linear(h, 1)
        )
    else:
        assert count(critic) == linear(o + n, h) + norm + 2 * (
            linear(h + a, h) + more + linear(h, 1)
        )
    if layers == 1 and action_input == "trunk":
        assert (count(actor), count(critic)) == (1_099_782, 2_151_426)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("action_input", ["trunk", "head"])
@pytest.mark.parametrize("columns", [1, 2])
def test_outputs_have_one_value_per_action_and_per_column(layers, action_input, columns):
    actor = Actor(7, 2, hidden_dim=16, layers=layers)
    critic = Critic(7, 2, hidden_dim=16, layers=layers, action_input=action_input, columns=columns)
    x = torch.randn(9, 7)
    action = actor(x)
    assert action.shape == (9, 2) and action.abs().max() < 1
    q1, q2 = critic(x, action)
    assert q1.shape == q2.shape == (9, columns)
    assert not torch.allclose(q1, q2)  # separate heads
    assert not torch.allclose(q1, critic(x, -action)[0])  # which see the action


@pytest.mark.parametrize("layers", [1, 2])
def test_weights_start_orthogonal_and_biases_zero(layers):
    modules = (
        Actor(7, 2, hidden_dim=16, layers=layers),
        Critic(7, 2, hidden_dim=16, layers=layers, action_input="trunk", columns=1),
    )
    linears = [m for module in modules for m in module.modules() if isinstance(m, torch.nn.Linear)]
    assert len(linears) == (2 + layers) + (1 + 2 * (1 + layers))
    for layer in linears:
        w = layer.weight if layer.out_features <= layer.in_features else layer.weight.T
        torch.testing.assert_close(w @ w.T, torch.eye(len(w)), rtol=0, atol=1e-5)
        assert not layer.bias.any()


def test_the_networks_compute_what_the_plain_transcription_computes():
    learner, batch = make_ddpg(), make_batch()
    x = torch.cat([batch.obs, batch.skill], 1)
    torch.testing.assert_close(learner.actor(x), plain_actor(plain_weights(learner.actor), x))
    q = plain_critic(plain_weights(learner.critic), x, batch.action)
    torch.testing.assert_close(list(learner.critic(x, batch.action)), q)


def test_the_target_starts_as_the_critic_and_takes_no_gradient():
    learner = make_ddpg()
    assert all(
        torch.equal(v, weights(learner.target)[k]) for k, v in weights(learner.critic).items()
    )
    assert not any(p.requires_grad for p in learner.target.parameters())


# ---- noise


def test_noise_is_normal_and_clipped_where_a_clip_is_given():
    mean, g = torch.zeros(50_000, 1), torch.Generator().manual_seed(0)
    free = clipped_noise(mean, 0.2, None, Draws(g))
    assert free.std().item() == pytest.approx(0.2, rel=0.02) and abs(free.mean()) < 0.005
    assert (free.abs() > 0.3).float().mean().item() == pytest.approx(0.1336, abs=0.01)  # 1.5 sigma
    clipped = clipped_noise(mean, 0.2, 0.3, Draws(torch.Generator().manual_seed(0)))
    torch.testing.assert_close(clipped, free.clamp(-0.3, 0.3))


def test_the_action_is_clipped_and_its_gradient_passes_straight_through():
    mean = torch.tensor([[-0.999, 0.0, 0.999]], requires_grad=True)
    action = clipped_noise(mean.expand(200, 3), 0.2, 0.3, Draws(torch.Generator().manual_seed(1)))
    limit = 1 - 1e-6
    assert action[:, 0].min().item() == pytest.approx(-limit, abs=1e-7) and action.abs().max() < 1
    assert (action[:, 2] > limit - 1e-6).sum() > 50
    action.sum().backward()
    torch.testing.assert_close(mean.grad, torch.full((1, 3), 200.0))


# ---- acting


def acting(learner, count=1, step=100, explore=True, obs=None, skill=None):
    obs = np.linspace(-1, 1, OBS).astype(np.float32) if obs is None else obs
    skill = np.eye(SKILLS, dtype=np.float32)[0] if skill is None else skill
    return np.array([learner.act(obs, skill, step, explore=explore) for _ in range(count)])


def test_the_mean_alone_acts_when_not_exploring():
    learner = make_ddpg()
    obs, skill = np.linspace(-1, 1, OBS).astype(np.float32), np.eye(SKILLS, dtype=np.float32)[1]
    mean = plain_actor(plain_weights(learner.actor), torch.from_numpy(np.concatenate([obs, skill])))
    for step in (0, 100):  # no warm-up in an evaluation
        action = acting(learner, 3, step, explore=False, skill=skill)
        np.testing.assert_allclose(action, np.tile(mean, (3, 1)), atol=1e-6)
    assert action.dtype == np.float32


def test_warm_up_acts_uniformly_until_the_seed_steps_are_over():
    learner = make_ddpg(num_seed_steps=10)
    for p in learner.actor.head[-1].parameters():
        torch.nn.init.constant_(p, 5.0)  # a policy that warm-up must not follow
    action = acting(learner, 4000, step=9)
    assert action.dtype == np.float32 and np.abs(action).max() <= 1
    share, _ = np.histogram(action, bins=10, range=(-1, 1))
    assert np.abs(share / action.size - 0.1).max() < 0.015
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.06
    mean = acting(learner, explore=False)[0]
    assert np.abs(acting(learner, 50, step=10) - mean).max() < 1.0  # from step 10 on the policy


def test_exploration_adds_unclipped_normal_noise_around_the_mean():
    learner = make_ddpg()
    for p in learner.actor.head[-1].parameters():
        torch.nn.init.zeros_(p)
    action = acting(learner, 4000)
    assert np.abs(action.mean(0)).max() < 0.015
    np.testing.assert_allclose(action.std(0), 0.2, rtol=0.05)
    # stddev_clip is for the losses only.
    assert (np.abs(action) > 0.3).mean() == pytest.approx(0.1336, abs=0.02)


def test_explored_actions_stay_inside_the_bounds():
    learner = make_ddpg()
    torch.nn.init.constant_(learner.actor.head[-1].bias, 30.0)
    action = acting(learner, 200)
    assert action.dtype == np.float32 and action.max() < 1 and (action > 0.99999).sum() > 100


def test_acting_and_learning_draw_from_separate_streams():
    left, right = make_ddpg(), make_ddpg()
    acting(left, 20)
    left.learn(Tape(0), TaskReward(), 0)
    right.learn(Tape(0), TaskReward(), 0)
    assert all(torch.equal(v, weights(right)[k]) for k, v in weights(left).items())


# ---- when to learn


@pytest.mark.parametrize(
    ("seed_steps", "every", "total", "updates"),
    [(4000, 2, 10_000, 3000), (4000, 2, 4000, 0), (4000, 2, 4001, 1), (7, 2, 20, 6), (6, 3, 20, 5)],
)
def test_learning_starts_after_the_seed_steps_and_comes_every_second_step(
    seed_steps, every, total, updates
):
    learner = make_ddpg(num_seed_steps=seed_steps, update_every_steps=every)
    due = [step for step in range(total) if learner.due(Tape(0), step)]
    assert len(due) == updates
    assert all(step >= seed_steps and step % every == 0 for step in due)


def test_nothing_is_due_while_the_memory_has_no_transition():
    assert not make_ddpg().due(Tape(), 10) and make_ddpg().due(Tape(0), 10)


# ---- targets and losses


@pytest.mark.parametrize("heads", ["shared", "per_stream"])
def test_targets_are_the_reward_plus_the_discounted_smaller_q(heads):
    learner, batch = make_ddpg(streams=TWO, critic_heads=heads, seed=3), make_batch(1)
    for p in learner.target.parameters():
        p.data += 0.1 * torch.randn(p.shape)  # target and critic differ
    rewards = {"diversity": batch.reward, "exploration": batch.obs[:, :1]}
    x = torch.cat([batch.next_obs, batch.skill], 1)
    with torch.no_grad():
        mean = plain_actor(plain_weights(learner.actor), x)
        action = plain_noisy(mean, torch.Generator().manual_seed(stream_seed(3, "learn")))
        q1, q2 = (q.numpy() for q in plain_critic(plain_weights(learner.target), x, action))
    targets = learner.targets(batch, rewards)
    assert list(targets) == list(TWO) and (q1 < q2).any() and (q1 > q2).any()
    for k, name in enumerate(TWO):
        column = k if heads == "per_stream" else 0
        for i in range(B):
            bootstrap = min(q1[i, column], q2[i, column])
            y = rewards[name][i].item() + batch.discount[i].item() * bootstrap
            assert targets[name].shape == (B, 1) and not targets[name].requires_grad
            assert targets[name][i].item() == pytest.approx(y, abs=1e-5)


def test_shared_heads_give_both_streams_the_same_bootstrap():
    learner, batch = make_ddpg(streams=TWO), make_batch(2)
    rewards = {"diversity": batch.reward, "exploration": 3 * batch.reward}
    y = learner.targets(batch, rewards)
    bootstrap = [y[name] - rewards[name] for name in TWO]
    torch.testing.assert_close(*bootstrap, rtol=0, atol=1e-6)
    assert bootstrap[0].abs().max() > 0.1


@pytest.mark.parametrize("heads", ["shared", "per_stream"])
def test_critic_losses_are_the_two_mean_squared_errors(heads):
    learner, batch = make_ddpg(streams=TWO, critic_heads=heads), make_batch(1)
    targets = {"diversity": batch.reward, "exploration": batch.obs[:, :1]}
    losses = learner.critic_losses(batch, targets, {})
    with torch.no_grad():
        q = plain_critic(
            plain_weights(learner.critic), torch.cat([batch.obs, batch.skill], 1), batch.action
        )
    for k, name in enumerate(TWO):
        column, y = (
            (k if heads == "per_stream" else 0),
            targets[name].numpy()[:, 0].astype(np.float64),
        )
        expected = sum(np.mean((np.float64(head[:, column].numpy()) - y) ** 2) for head in q)
        assert losses[name].item() == pytest.approx(expected, rel=1e-5)


# ---- one update


def test_a_learning_step_is_a_plain_ddpg_update():
    learner = make_ddpg(seed=5)
    plain, tape, first = PlainDDPG(learner, seed=5), Tape(*range(5)), plain_weights(learner)
    for step, batch in enumerate(list(tape.batches)):
        learner.learn(tape, TaskReward(), 2 * step)
        plain.update(batch)
        close(learner.critic, plain.critic)
        close(learner.actor, plain.actor)
        close(learner.target, plain.target)
    moved = {k for k, v in weights(learner).items() if (v - first[k]).abs().max() > 1e-5}
    assert moved == set(first)  # all of them, the target too


def test_the_target_moves_by_one_percent_towards_the_updated_critic():
    learner = make_ddpg()
    before = plain_weights(learner.target)
    learner.learn(Tape(0), TaskReward(), 0)
    for name, w in weights(learner.target).items():
        expected = 0.99 * before[name] + 0.01 * learner.critic.state_dict()[name]
        torch.testing.assert_close(w, expected, rtol=0, atol=1e-7)
        assert not torch.equal(w, before[name])


def test_the_update_reports_what_it_did():
    learner, batch = make_ddpg(streams=TWO), make_batch()
    metrics = learner.learn(Tape(0), task_and_negative(), 0)
    assert metrics["reward/diversity"].item() == pytest.approx(batch.reward.mean().item(), abs=1e-6)
    other = -2 * batch.reward + batch.obs[:, :1]
    assert metrics["reward_std/exploration"].item() == pytest.approx(other.std().item(), abs=1e-6)
    assert {
        "critic_loss/diversity",
        "critic_loss/exploration",
        "critic/target",
        "actor/loss",
        "surgery/dot",
        "surgery/cosine",
        "surgery/conflict",
    } <= metrics.keys()
    assert all(m.ndim == 0 and not m.requires_grad for m in metrics.values())


class Counting(TaskReward):
    batches_per_update = 3

    def __init__(self):
        super().__init__()
        self.seen, self.rewarded = [], None

    def update(self, batch, *, final=True):
        self.seen.append((batch.obs[0, 0].item(), final))
        return {}

    def rewards(self, batch):
        self.rewarded = batch.obs[0, 0].item()
        return super().rewards(batch)


def test_the_last_of_several_fresh_batches_serves_the_learner():
    objective, tape = Counting(), Tape(0, 1, 2)
    expected = [(b.obs[0, 0].item(), last) for b, last in zip(tape.batches, (False, False, True))]
    make_ddpg().learn(tape, objective, 0)
    assert objective.seen == expected and objective.rewarded == expected[-1][0] and len(tape) == 0


def test_the_actors_step_leaves_the_critic_alone():
    learner = make_ddpg()
    for p in learner.critic.parameters():
        p.grad = torch.full_like(p, 7.0)
    before, actor = plain_weights(learner.critic), plain_weights(learner.actor)
    learner.update_actor(make_batch())
    assert all(torch.equal(v, before[k]) for k, v in weights(learner.critic).items())
    assert all((p.grad == 7.0).all() and p.requires_grad for p in learner.critic.parameters())
    assert all((v != actor[k]).any() for k, v in weights(learner.actor).items())


@pytest.mark.parametrize(
    "surgery",
    [
        SumGradients(),
        ProjectConflict(p=0.6, first="diversity"),
        ProjectConflict(p=None, first=None),
    ],
)
def test_two_equal_rewards_give_twice_the_gradient_of_one(surgery):
    single, double, batch = make_ddpg(), make_ddpg(streams=TWO, surgery=surgery), make_batch(3)
    single.update_critic(batch, {"task": batch.reward}, {})
    double.update_critic(batch, {"diversity": batch.reward, "exploration": batch.reward}, {})
    torch.testing.assert_close(
        grads(double.critic_opt), 2 * grads(single.critic_opt), rtol=1e-4, atol=1e-6
    )
    assert grads(single.critic_opt).norm() > 0.1


# ---- surgery and its scope


class Recorder(Surgery):
    """Notes what it is given; its answer is the first stream's gradient, which no sum would
    give."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, grads, weights=None):
        self.calls.append(grads)
        return next(iter(grads.values()))


@pytest.mark.parametrize("scope", ["critic", "actor", "all"])
def test_only_the_networks_in_scope_get_surgery(scope):
    recorder = Recorder()
    learner = make_ddpg(
        streams=TWO, surgery=recorder, critic_heads="per_stream", surgery_scope=scope
    )
    twin = copy.deepcopy(learner)  # same weights and noise, no surgery at all
    twin.critic_surgery = twin.actor_surgery = SumGradients()
    metrics = learner.learn(Tape(0), task_and_negative(), 0)
    twin.learn(Tape(0), task_and_negative(), 0)
    sizes = {
        "critic": [count(learner.critic)],
        "actor": [count(learner.actor)],
        "all": [count(learner.critic), count(learner.actor)],
    }[scope]
    assert [len(call["diversity"]) for call in recorder.calls] == sizes
    assert all(list(call) == list(TWO) for call in recorder.calls)
    critic_touched = (grads(learner.critic_opt) - grads(twin.critic_opt)).abs().max() > 1e-3
    assert critic_touched == (scope != "actor")
    if scope != "critic":
        torch.testing.assert_close(grads(learner.actor_opt), recorder.calls[-1]["diversity"])
    assert {"surgery/dot", "actor_surgery/dot"} <= metrics.keys()


def test_per_stream_heads_learn_from_their_own_stream_only():
    recorder = Recorder()
    learner = make_ddpg(
        streams=TWO, surgery=recorder, critic_heads="per_stream", surgery_scope="all"
    )
    learner.learn(Tape(0), task_and_negative(), 0)
    names = [name for name, _ in learner.critic.named_parameters()]
    sizes = [p.numel() for p in learner.critic.parameters()]
    for column, stream in enumerate(TWO):
        parts = dict(zip(names, recorder.calls[0][stream].split(sizes), strict=True))
        for head in ("q1", "q2"):
            by_column = parts[f"{head}.2.weight"].view(2, -1).abs().sum(1)
            assert by_column[column] > 0 and by_column[1 - column] == 0
        assert parts["trunk.0.weight"].abs().sum() > 0


def test_the_actor_climbs_each_streams_own_q():
    recorder, batch = Recorder(), make_batch(4)
    learner = make_ddpg(
        streams=TWO, surgery=recorder, critic_heads="per_stream", surgery_scope="actor", seed=2
    )
    actor, critic = plain_weights(learner.actor), plain_weights(learner.critic)
    learner.update_actor(batch)
    x, generator = (
        torch.cat([batch.obs, batch.skill], 1),
        torch.Generator().manual_seed(stream_seed(2, "learn")),
    )
    parameters = [w.requires_grad_(True) for w in actor.values()]
    q = torch.min(*plain_critic(critic, x, plain_noisy(plain_actor(actor, x), generator)))
    for column, stream in enumerate(TWO):
        expected = torch.autograd.grad(-q[:, column].mean(), parameters, retain_graph=True)
        torch.testing.assert_close(
            recorder.calls[0][stream],
            torch.cat([g.flatten() for g in expected]),
            rtol=1e-4,
            atol=1e-6,
        )


@pytest.mark.parametrize("scope", ["actor", "all"])
def test_surgery_on_the_actor_needs_a_q_per_stream(scope):
    with pytest.raises(
        UserError, match=f"surgery_scope={scope} needs learner.critic_heads=per_stream"
    ):
        make_ddpg(streams=TWO, surgery_scope=scope)


# ---- per-sample conflict


def looped_conflict(learner, batch, targets, samples):
    """One backward pass per sample and stream."""
    negative = []
    for i in range(samples):
        flat = []
        for k, y in enumerate(targets.values()):
            column = k if learner.per_stream else 0
            x = torch.cat([batch.obs[i], batch.skill[i]]).unsqueeze(0)
            q1, q2 = learner.critic(x, batch.action[i : i + 1])
            loss = (q1[0, column] - y[i, 0]) ** 2 + (q2[0, column] - y[i, 0]) ** 2
            g = torch.autograd.grad(loss, list(learner.critic.parameters()))
            flat.append(torch.cat([p.flatten() for p in g]))
        negative.append((flat[0] @ flat[1] < 0).item())
    return sum(negative) / samples


@pytest.mark.parametrize("heads", ["shared", "per_stream"])
@pytest.mark.parametrize("samples", [5, 20])  # below and above the chunk of 8
def test_sample_conflict_is_the_share_of_samples_whose_gradients_oppose(heads, samples):
    learner, batch = (
        make_ddpg(streams=TWO, critic_heads=heads, conflict_samples=samples),
        make_batch(6, size=40),
    )
    targets = {"diversity": batch.reward, "exploration": batch.obs[:, :1] + 0.5 * batch.reward}
    ratio = learner.sample_conflict(batch, targets)
    assert ratio.item() == pytest.approx(
        looped_conflict(learner, batch, targets, samples), abs=1e-6
    )
    assert 0 < ratio < 1 and not ratio.requires_grad
    assert all(p.grad is None for p in learner.critic.parameters())


def test_sample_conflict_is_measured_every_so_many_updates():
    learner = make_ddpg(streams=TWO, conflict_every_updates=3)
    measured = [
        step
        for step in range(0, 26, 2)
        if "surgery/sample_conflict" in learner.learn(Tape(step), task_and_negative(), step)
    ]
    assert measured == [0, 6, 12, 18, 24]


def test_measuring_the_conflict_changes_nothing():
    left, right = (make_ddpg(streams=TWO, conflict_every_updates=every) for every in (0, 1))
    for step in (0, 2):
        left.learn(Tape(step), task_and_negative(), step)
        right.learn(Tape(step), task_and_negative(), step)
    assert all(torch.equal(v, weights(right)[k]) for k, v in weights(left).items())


# ---- warm start and checkpoints


@pytest.mark.parametrize("init_critic", [True, False])
@pytest.mark.parametrize("sync_target", [True, False])
@pytest.mark.parametrize(
    "heads", ["shared", "per_stream"]
)  # the old heads do not matter, nor their shape
def test_a_warm_start_keeps_the_actor_and_the_critics_trunk(init_critic, sync_target, heads):
    old = make_ddpg(init=1, streams=TWO, critic_heads=heads)
    for step in range(3):
        old.learn(Tape(step), task_and_negative(), step)
    new, fresh = (
        make_ddpg(init=2, init_critic=init_critic, sync_target=sync_target),
        make_ddpg(init=2),
    )
    new.warm_start(weights(old))
    state, before, pretrained = weights(new), weights(fresh), weights(old)
    for name, w in state.items():
        net, _, rest = name.partition(".")
        if net == "actor" or (net == "critic" and rest.startswith("trunk") and init_critic):
            assert torch.equal(w, pretrained[name]), name
        elif net == "critic":
            # Fresh heads, and the trunk where it is not copied.
            assert torch.equal(w, before[name]), name
        else:
            expected = state[f"critic.{rest}"] if sync_target else before[name]
            assert torch.equal(w, expected), name
    assert not torch.equal(before["critic.trunk.0.weight"], pretrained["critic.trunk.0.weight"])
    assert all(not optimizer.state for optimizer in new.optimizers.values())


def test_a_warm_start_shares_no_memory_with_what_it_came_from():
    old, new = make_ddpg(init=1), make_ddpg(init=2)
    new.warm_start(weights(old))
    before = plain_weights(old)
    new.learn(Tape(0), TaskReward(), 0)
    assert all(torch.equal(v, before[k]) for k, v in weights(old).items())


@pytest.mark.parametrize("heads", ["shared", "per_stream"])
def test_learning_continues_from_a_checkpoint_bit_for_bit(heads):
    def build(seed, init):
        rng = Streams(seed)
        torch.manual_seed(init)
        surgery = ProjectConflict(p=0.6, first="diversity", generator=Draws(rng.torch("surgery")))
        return rng, DDPG(
            obs_dim=OBS,
            action_dim=ACT,
            skill_dim=SKILLS,
            streams=TWO,
            surgery=surgery,
            rng=rng,
            **arguments(DDPG, {**SETTINGS, "critic_heads": heads}),
        )

    rng, learner = build(1, 1)
    learner.learn(Tape(0), task_and_negative(), 0)
    file = io.BytesIO()
    torch.save({"learner": learner.state_dict(), "rng": rng.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    revived_rng, revived = build(8, 9)
    revived.load_state_dict(state["learner"])
    revived_rng.load_state_dict(state["rng"])
    for step in range(1, 5):
        left = learner.learn(Tape(step), task_and_negative(), step)
        right = revived.learn(Tape(step), task_and_negative(), step)
        assert left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)
    assert all(torch.equal(v, weights(revived)[k]) for k, v in weights(learner).items())
    np.testing.assert_array_equal(acting(learner, 3), acting(revived, 3))


def test_snapshots_of_weights_leave_the_optimisers_out():
    learner = make_ddpg()
    learner.learn(Tape(0), TaskReward(), 0)
    assert {name.partition(".")[0] for name in weights(learner)} == {"actor", "critic", "target"}
    assert set(learner.state_dict()) - set(weights(learner)) == {"_extra_state"}
