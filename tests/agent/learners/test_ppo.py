"""PPO: advantages, densities, losses and surgery against transcriptions; it learns a task with a
known answer."""

import math

import numpy as np
import pytest
import torch
import torch.distributions as D
import torch.nn.functional as F
from scipy import integrate, stats

from agent.learners.policies import BetaPolicy, TanhGaussian
from agent.learners.ppo import Rollout, gae
from agent.parts.moments import InputNorm
from agent.policy import load_policy
from envs.maze.lanes import Lanes
from tests.kit.cli import assert_same_run, rows
from tests.kit.configs import PRETRAINED, composed
from tests.kit.learners import SKILLS, Given, make_ppo
from tests.kit.runs import stop_at, undocumented
from utils import load_snapshot

T, N = 6, 5  # steps and lanes of a rollout


def rollout(learner, seed=0, steps=T, lanes=N):
    rng = np.random.default_rng(seed)
    obs = torch.from_numpy(rng.normal(size=(steps + 1, lanes, 2))).float()
    skill = torch.eye(SKILLS)[torch.from_numpy(rng.integers(SKILLS, size=lanes))].expand(
        steps, lanes, SKILLS
    )
    with torch.no_grad():
        action = learner.policy.sample(torch.cat([obs[:-1], skill], 2), rng)
    return Rollout(obs[:-1], action, torch.zeros(steps, lanes), obs[1:], skill)


def right(batch):
    return batch.action[:, :1]


# ---- advantages


def test_advantages_of_a_hand_case():
    """Two steps, r = (1, 2), V = (0.5, 1, 3), gamma = 0.5, lambda = 0.5: delta_1 = 2 + 0.5 * 3 - 1
    = 2.5, delta_0 = 1 + 0.5 * 1 - 0.5 = 1, A_1 = 2.5, A_0 = 1 + 0.25 * 2.5 = 1.625."""
    advantage = gae(
        torch.tensor([[1.0], [2.0]]), torch.tensor([[0.5], [1.0], [3.0]]), gamma=0.5, lam=0.5
    )
    assert advantage[:, 0].tolist() == [1.625, 2.5]


def test_advantages_are_the_sum_of_discounted_errors_within_each_episode():
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(T, N, 2)), rng.normal(size=(T + 1, N, 2))
    ours = gae(torch.from_numpy(reward), torch.from_numpy(value), gamma=0.9, lam=0.8).numpy()
    for t, n, k in np.ndindex(ours.shape):
        expected = sum(
            0.72 ** (u - t) * (reward[u, n, k] + 0.9 * value[u + 1, n, k] - value[u, n, k])
            for u in range(t, T)
        )
        assert ours[t, n, k] == pytest.approx(expected)


def test_with_lambda_one_an_advantage_is_the_return_minus_the_value():
    rng = np.random.default_rng(0)
    reward, value = (
        torch.from_numpy(rng.normal(size=(T, N))),
        torch.from_numpy(rng.normal(size=(T + 1, N))),
    )
    returns = [
        sum(0.9**u * reward[t + u] for u in range(T - t)) + 0.9 ** (T - t) * value[-1]
        for t in range(T)
    ]
    torch.testing.assert_close(
        gae(reward, value, gamma=0.9, lam=1.0), torch.stack(returns) - value[:-1]
    )


def test_advantages_use_the_value_of_the_last_state_and_each_streams_own_head():
    learner = make_ppo()
    r = rollout(learner)
    reward = torch.randn(T, N, 2)
    advantage, target = learner.advantages(r, reward)
    with torch.no_grad():
        value = learner.value(
            torch.cat([torch.cat([r.obs, r.next_obs[-1:]]), torch.cat([r.skill, r.skill[-1:]])], 2)
        )
    for k in range(2):
        torch.testing.assert_close(
            advantage[..., k], gae(reward[..., k], value[..., k], gamma=0.99, lam=0.98)
        )
    torch.testing.assert_close(target, advantage + value[:-1])


@pytest.mark.parametrize("norm", ["per_stream", "joint", "none"])
def test_normalisation_of_advantages(norm):
    advantage = torch.randn(T, N, 2) * torch.tensor([1.0, 100.0]) + 3
    ours = make_ppo(f"learner.adv_norm={norm}").normalize(advantage)
    centred = advantage - advantage.mean((0, 1))
    if norm == "per_stream":
        torch.testing.assert_close(ours.std((0, 1)), torch.ones(2))
    elif norm == "joint":  # their sum has unit deviation, their proportion stays
        assert ours.sum(2).std().item() == pytest.approx(1)
        torch.testing.assert_close(ours / centred, (1 / centred.sum(2).std()).expand_as(ours))
    else:
        assert torch.equal(ours, advantage)


def test_rewards_are_centred_and_divided_by_their_running_deviation():
    rng = torch.Generator().manual_seed(0)
    raw = [5 + torch.randn(20_000, 2, generator=rng) * torch.tensor([2.0, 20.0]) for _ in range(3)]
    scaled = {}
    for kind in ("per_stream", "joint", "none"):
        learner = make_ppo(f"learner.reward_scale={kind}")
        for r in raw:
            scaled[kind] = learner.scale(r)
    torch.testing.assert_close(scaled["per_stream"].std(0), torch.ones(2), rtol=0.02, atol=0)
    torch.testing.assert_close(
        scaled["joint"].std(0), torch.tensor([2.0, 20.0]) / math.hypot(2, 20), rtol=0.02, atol=0
    )
    for kind in ("per_stream", "joint"):
        torch.testing.assert_close(scaled[kind].mean(0), torch.zeros(2), rtol=0, atol=0.03)
    assert torch.equal(scaled["none"], raw[-1])


# ---- policies


def test_the_beta_policy_is_a_beta_density():
    policy, x = BetaPolicy(4, 2, hidden_dim=8, layers=2), torch.randn(7, 4)
    action = torch.rand(7, 2) * 1.8 - 0.9
    log_prob, entropy = policy.evaluate(x, action)
    c0, c1 = (c.detach().numpy() for c in policy.concentrations(x))
    assert (c1 > 1.05).all() and (c0 > 1.05).all()
    reference = stats.beta(c0, c1)
    np.testing.assert_allclose(
        log_prob.detach(), reference.logpdf((action + 1) / 2).sum(1), rtol=1e-4
    )
    np.testing.assert_allclose(entropy.detach(), reference.entropy().mean(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(policy(x).detach(), 2 * reference.mean() - 1, rtol=1e-4, atol=1e-6)


def test_samples_of_the_beta_policy_have_its_moments():
    policy, x = BetaPolicy(3, 2, hidden_dim=8, layers=2), torch.randn(1, 3).expand(40_000, 3)
    with torch.no_grad():
        action = policy.sample(x, np.random.default_rng(0))
        beta = torch.distributions.Beta(*policy.concentrations(x[:1]))
    assert action.abs().max() < 1
    torch.testing.assert_close(action.mean(0), 2 * beta.mean[0] - 1, atol=0.02, rtol=0)
    torch.testing.assert_close(action.var(0), 4 * beta.variance[0], atol=0.02, rtol=0)


def test_the_tanh_gaussian_integrates_to_one_and_its_samples_agree_with_it():
    policy = TanhGaussian(2, 1, hidden_dim=4, layers=1)
    policy.log_std.data.fill_(-0.3)
    x = torch.tensor([[0.3, -0.8]])

    grid = torch.linspace(-0.9999, 0.9999, 20_001).unsqueeze(1)
    with torch.no_grad():
        density = policy.evaluate(x.expand(len(grid), 2), grid)[0].exp().numpy()
        assert integrate.trapezoid(density, grid[:, 0].numpy()) == pytest.approx(1, abs=0.01)
        action = policy.sample(x.expand(40_000, 2), np.random.default_rng(0))
    for power in (1, 2):  # moments of the samples and of the density
        expected = integrate.trapezoid(density * grid[:, 0].numpy() ** power, grid[:, 0].numpy())
        assert (action**power).mean().item() == pytest.approx(expected, abs=0.01)


def test_layers_are_those_of_the_yaml():
    for layers in (2, 3):
        sizes = [
            tuple(m.weight.shape)
            for m in make_ppo(f"learner.layers={layers}", "preset=cpu").policy.net
            if isinstance(m, torch.nn.Linear)
        ]
        assert sizes == [(128, 5), *[(128, 128)] * (layers - 1), (4, 128)]


# ---- the update


def test_the_losses_are_the_clipped_surrogate_and_half_the_squared_error():
    learner = make_ppo()
    b = 12
    x, action = torch.randn(b, 2 + SKILLS), torch.rand(b, 2) * 1.8 - 0.9
    advantage, target, old = torch.randn(b, 2), torch.randn(b, 2), torch.randn(b) * 0.5
    with torch.no_grad():
        log_prob, _ = learner.policy.evaluate(x, action)
        value = learner.value(x)
        surrogate, error, _ = learner.losses(log_prob, value, log_prob + old, advantage, target)
    for k in range(2):
        terms = []
        for i in range(b):
            ratio = math.exp(-old[i].item())
            clipped = min(max(ratio, 0.8), 1.2)
            terms.append(min(ratio * advantage[i, k].item(), clipped * advantage[i, k].item()))
        assert surrogate[k].item() == pytest.approx(-np.mean(terms), rel=1e-4, abs=1e-5)
        squares = [(value[i, k] - target[i, k]).item() ** 2 / 2 for i in range(b)]
        assert error[k].item() == pytest.approx(np.mean(squares), rel=1e-4)


def gradient(learner, objective, r):
    """The gradient that the first minibatch (here: all rows) steps along."""
    caught = []
    learner.opt.step_along = lambda grads: caught.append(torch.cat([g.flatten() for g in grads]))
    learner.improve(r, objective)
    return caught[0]


@pytest.mark.parametrize("policy", ["beta", "tanh_gaussian"])
@pytest.mark.parametrize("layers, heads", [(1, "shared"), (2, "per_stream"), (3, "per_stream")])
def test_without_surgery_a_minibatch_steps_along_the_gradient_of_the_summed_losses(
    policy, layers, heads
):
    learner = make_ppo(
        f"learner.policy={policy}",
        f"learner.layers={layers}",
        f"learner.value_heads={heads}",
        "learner.value_weight=0.7",
    )
    b = 9
    x, action = torch.randn(b, 2 + SKILLS), torch.rand(b, 2) * 1.8 - 0.9
    advantage, target = torch.randn(b, 2), torch.randn(b, 2)
    if policy == "tanh_gaussian":
        learner.policy.log_std.data = torch.tensor([-0.4, 0.3])
        gaussian = D.Normal(learner.policy.net(x), learner.policy.log_std.exp())
        density = D.TransformedDistribution(gaussian, D.TanhTransform(cache_size=1))
        log_prob, entropy = density.log_prob(action).sum(1), gaussian.entropy().mean(1)
    else:
        density = D.Beta(*(F.softplus(learner.policy.net(x)) + 1.05).chunk(2, 1))
        log_prob, entropy = density.log_prob((action + 1) / 2).sum(1), density.entropy().mean(1)
    old = log_prob.detach() + 0.5 * torch.randn(b)
    ratio = (log_prob - old).exp()
    loss = -0.025 * entropy.mean()
    for k in range(2):
        a, value = advantage[:, k], learner.value(x)[:, k if heads == "per_stream" else 0]
        loss = loss - torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
        loss = loss + 0.7 * 0.5 * (value - target[:, k]).square().mean()
    expected = torch.autograd.grad(loss, list(learner.parameters()))

    caught = []
    learner.opt.step_along = caught.extend
    learner.step(x, action, old, advantage, target)
    for ours, theirs in zip(caught, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("surgery", ["sum", "pcgrad"])
@pytest.mark.parametrize("scope", ["all", "policy", "value"])
def test_two_equal_streams_give_twice_the_gradient_of_one(surgery, scope):
    whole = (
        "learner.epochs=1",
        "learner.minibatches=1",
        "learner.entropy_weight=0",
        f"learner.surgery_scope={scope}",
        "learner.value_heads=shared",
    )
    one, two = make_ppo(*whole, streams=("a",), surgery=surgery), make_ppo(*whole, surgery=surgery)
    same = {k: v for k, v in one.state_dict().items() if k.startswith(("policy.", "value."))}
    two.load_state_dict({**two.state_dict(), **same})
    r = rollout(one)
    single = gradient(one, Given(a=right), r)
    both = gradient(two, Given(a=right, b=right), r)
    torch.testing.assert_close(both, 2 * single, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    "scope, surgery", [("policy", "pcgrad"), ("value", "pcgrad"), ("policy", "sum")]
)
def test_opposed_streams_keep_one_of_them_where_the_scope_says_and_cancel_elsewhere(scope, surgery):
    """g and -g: projecting either onto the other's normal plane leaves nothing of it, so the other
    is the result."""
    whole = (
        "learner.epochs=1",
        "learner.minibatches=1",
        "learner.entropy_weight=0",
        f"learner.surgery_scope={scope}",
    )
    one, two = make_ppo(*whole, streams=("a",)), make_ppo(*whole, surgery=surgery)
    two.policy.load_state_dict(one.policy.state_dict())
    r = rollout(one)
    with torch.no_grad():  # no values: the advantages of the two are exactly opposed
        for learner in (one, two):
            learner.value[-1].weight.zero_(), learner.value[-1].bias.zero_()
    split = sum(p.numel() for p in one.policy.parameters())
    single = gradient(one, Given(a=right), r)[:split]
    both = gradient(two, Given(a=right, b=lambda batch: -right(batch)), r)[:split]
    sign = 1 if both @ single > 0 else -1
    kept = sign * single if (scope, surgery) == ("policy", "pcgrad") else torch.zeros_like(single)
    torch.testing.assert_close(both, kept, rtol=1e-3, atol=1e-6)


def test_every_row_is_used_once_per_epoch():
    learner = make_ppo("learner.minibatches=4")
    seen = list(learner.minibatch_rows(30, epochs=3))
    assert len(seen) == 12
    for epoch in range(3):
        assert sorted(torch.cat(seen[4 * epoch : 4 * epoch + 4]).tolist()) == list(range(30))


def test_it_learns_to_go_where_each_skill_is_paid_for():
    """Skill z is paid for actions along a known direction: the mean actions end there."""
    directions = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    learner = make_ppo("preset=cpu", "learner.lr=1e-3", streams=("a",))
    objective = Given(
        a=lambda batch: (batch.action * (batch.skill @ directions)).sum(1, keepdim=True)
    )
    for seed in range(25):
        learner.improve(rollout(learner, seed, steps=20, lanes=30), objective)
    with torch.no_grad():
        mean = torch.stack(
            [
                learner.policy(
                    torch.cat([torch.randn(50, 2), torch.eye(SKILLS)[z].expand(50, -1)], 1)
                ).mean(0)
                for z in range(SKILLS)
            ]
        )
    assert ((mean * directions).sum(1) > 0.5).all()


# ---- runs on the maze


@pytest.mark.parametrize("agent", ["amped", "diayn"])
def test_a_stopped_maze_run_resumes_bit_for_bit(cli, monkeypatch, agent):
    args = ("pretrain", f"agent={agent}", "domain=tree_maze", "skill_dim=3")
    assert cli(*args, "variant=whole").code == 0
    with monkeypatch.context() as patch:
        stop_at(patch, 240)
        assert cli(*args, "variant=stopped").code == 143
    assert "continuing at frame 240" in cli(*args, "variant=stopped").out
    base = cli.root / f"pretrain/tree_maze/{agent}"
    assert_same_run(base / "whole/seed_1", base / "stopped/seed_1")
    assert [row["frame"] for row in rows(base / "whole/seed_1/eval.csv")] == [
        "0",
        "160",
        "320",
        "480",
    ]


def test_objectives_observe_every_transition(cli):
    """amped_literal keeps the most recent states for its entropy."""
    assert (
        cli("pretrain", "agent=amped_literal", "domain=tree_maze", "skill_dim=3", "variant=v").code
        == 0
    )
    state = load_snapshot(
        cli.root / "pretrain/tree_maze/amped_literal/v/seed_1/snapshots/snapshot_480.pt"
    )["objective"]
    assert state["recent.seen"].item() == 480


def test_an_evaluation_changes_no_number_of_the_training(cli):
    args = ("pretrain", "agent=diayn", "domain=tree_maze", "skill_dim=3")
    assert (
        cli(*args, "variant=often").code
        == cli(*args, "variant=seldom", "eval_every_frames=480").code
        == 0
    )
    often, seldom = (
        rows(cli.root / f"pretrain/tree_maze/diayn/{v}/seed_1/train.csv")
        for v in ("often", "seldom")
    )
    assert often == seldom


@pytest.mark.parametrize("skills", ["selector", "selector_release", "switching", "fixed", "native"])
def test_a_stopped_finetuning_on_a_goal_resumes_bit_for_bit(cli, monkeypatch, skills):
    assert cli("pretrain", "agent=diayn", "domain=tree_maze", "skill_dim=3").code == 0
    args = (
        "finetune",
        "agent=diayn",
        "task=tree_maze_reach_left",
        "skill_dim=3",
        f"skills={skills}",
        "pretrain_variant=smoke,skill_dim=3",
    )
    assert cli(*args, "variant=whole").code == 0
    with monkeypatch.context() as patch:
        stop_at(patch, 200)
        assert cli(*args, "variant=stopped").code == 143
    assert "continuing at frame 200" in cli(*args, "variant=stopped").out
    whole, stopped = sorted((cli.root / "finetune/tree_maze_reach_left/diayn").glob("*/*/seed_1"))
    assert_same_run(whole, stopped)
    assert (whole / "choices.png").exists() == skills.startswith("selector")


def test_frozen_skills_stay_and_the_selector_learns(cli):
    assert cli("pretrain", "agent=diayn", "domain=tree_maze", "skill_dim=3", "variant=v").code == 0
    assert (
        cli(
            "finetune",
            "agent=diayn",
            "task=tree_maze_reach_left",
            "variant=v",
            "skills=selector",
            "learner.frozen=true",
        ).code
        == 0
    )
    before = load_snapshot(
        cli.root / "pretrain/tree_maze/diayn/v/seed_1/snapshots/snapshot_480.pt"
    )["learner"]
    after = load_snapshot(
        cli.root / "finetune/tree_maze_reach_left/diayn/v/selector/seed_1/snapshots/snapshot_320.pt"
    )
    policy = [k for k in before if k.startswith("policy.")]
    assert (
        policy
        and all(torch.equal(before[k], after["learner"][k]) for k in policy)
        and after["skills"]
    )


def test_the_policy_in_a_snapshot_acts_as_the_run_does(cli):
    assert cli("pretrain", "agent=diayn", "domain=tree_maze", "skill_dim=3").code == 0
    path = cli.root / "pretrain/tree_maze/diayn/smoke,skill_dim=3/seed_1/snapshots/snapshot_480.pt"
    policy, snapshot = load_policy(path), load_snapshot(path)
    net = BetaPolicy(5, 2, hidden_dim=16, layers=2, normalize=True)
    state = snapshot["learner"]
    net.load_state_dict(
        {k.removeprefix("policy."): v for k, v in state.items() if k.startswith("policy.")}
    )
    with torch.no_grad():
        expected = net(torch.tensor([[0.5, -0.5, 0.0, 1.0, 0.0]]))[0]
    np.testing.assert_allclose(policy.act(np.array([0.5, -0.5]), 1), expected, rtol=1e-6)


def test_a_snapshot_of_another_learner_is_refused(cli):
    assert cli("pretrain", "agent=diayn", "domain=tree_maze", "skill_dim=3", "variant=v").code == 0
    output = cli(
        "finetune", "agent=diayn", "task=tree_maze_reach_left", "variant=v", "learner=ddpg"
    )
    assert output.code == 2 and "was pre-trained by learner=ppo; give learner=ppo" in output.err


def test_ppo_is_refused_where_episodes_do_not_run_side_by_side(cli):
    output = cli("pretrain", "agent=amped", "domain=walker", "learner=ppo")
    assert output.code == 2 and "learner=ppo is for the mazes, use learner=ddpg" in output.err


def test_frames_that_fall_inside_a_cycle_are_refused(cli):
    output = cli("pretrain", "domain=tree_maze", "num_train_frames=100")
    assert output.code == 2 and "not a multiple of 80, the frames of one cycle" in output.err


def test_ddpg_runs_on_the_maze_too(cli):
    args = ("agent=diayn", "learner=ddpg", "skill_dim=3")
    assert cli("pretrain", "domain=square_maze", *args).code == 0
    assert cli("finetune", "task=square_maze_reach", *args, "skills=selector").code == 0


def test_lanes_scale_actions_to_the_mazes_range():
    lanes = Lanes("gymnasium:envs.maze:amped/CorridorMaze-v0", 4)
    before = lanes.reset(np.random.default_rng(0))
    after, reward = lanes.step(np.tile([1.0, 0.0], (4, 1)))
    np.testing.assert_allclose(after[:, 0] - before[:, 0], 0.95, atol=1e-5)
    assert reward.tolist() == [0, 0, 0, 0] and lanes.steps == 50


@pytest.mark.parametrize("agent", PRETRAINED)
def test_every_agent_trains_on_the_maze(cli, agent):
    args = (
        ("skill_dim=3",)
        if composed("pretrain", "preset=smoke", f"agent={agent}")["skill_dim"]
        else ()
    )
    done = cli("pretrain", f"agent={agent}", "domain=square_maze", *args)
    assert done.code == 0, done.err
    assert not undocumented(rows(next(cli.root.rglob("train.csv")))[-1])


# ---- normalised inputs


def test_inputs_are_normalised_by_the_moments_of_all_rows_seen():
    norm, rows_seen = InputNorm(3), []
    x = torch.randn(5, 3) * 4 + 2
    torch.testing.assert_close(norm(x), x.clamp(-5, 5))  # before anything was learned from
    for size in (7, 20, 1):
        rows_seen.append(
            torch.randn(size, 3) * torch.tensor([1.0, 30.0, 0.01]) + torch.tensor([0.0, 5.0, 2.0])
        )
        norm.update(rows_seen[-1])
    seen = torch.cat(rows_seen).double()
    torch.testing.assert_close(norm.mean.double(), seen.mean(0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(norm.var.double(), seen.var(0, unbiased=False), rtol=1e-3, atol=1e-4)
    # EDL's floor: the third hardly varies
    deviation = seen.var(0, unbiased=False).clamp(min=0.01).sqrt()
    expected = ((x - seen.mean(0)) / deviation).clamp(-5, 5).float()
    torch.testing.assert_close(norm(x), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("policy", ["beta", "tanh_gaussian"])
def test_policy_and_values_see_normalised_inputs(policy):
    plain, normal = (
        make_ppo(f"learner.policy={policy}", f"learner.normalize_inputs={on}")
        for on in ("false", "true")
    )
    for name in ("policy", "value"):
        getattr(plain, name).load_state_dict(getattr(normal, name).state_dict(), strict=False)
    rows_seen = torch.randn(50, 2 + SKILLS) * 3 + 1
    normal.policy.norm.update(rows_seen)
    x = torch.randn(4, 2 + SKILLS)
    scaled = normal.policy.norm(x)
    assert (scaled - x).abs().max() > 0.1
    torch.testing.assert_close(normal.policy(x), plain.policy(scaled))
    action = torch.rand(4, 2) - 0.5
    for ours, theirs in zip(
        normal.policy.evaluate(x, action), plain.policy.evaluate(scaled, action)
    ):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        torch.testing.assert_close(
            normal.policy.sample(x, np.random.default_rng(0)),
            plain.policy.sample(scaled, np.random.default_rng(0)),
        )


def test_the_moments_move_after_a_rollout_was_learned_from_and_travel_with_the_policy(cli):
    learner = make_ppo("learner.normalize_inputs=true")
    r = rollout(learner)
    learner.improve(r, Given(a=right, b=right))
    x = torch.cat([r.obs, r.skill], 2).flatten(0, 1)
    torch.testing.assert_close(learner.policy.norm.mean, x.mean(0))
    other = make_ppo("learner.normalize_inputs=true", seed=2)
    other.warm_start(learner.state_dict())
    torch.testing.assert_close(other.policy(x), learner.policy(x))
