"""The skill selector: its losses against literal transcriptions, its schedule, and that it finds
the best skill."""

import copy
import io
import math

import numpy as np
import pytest
import torch
from torch import nn

from agent.skills.selector import Usage, epsilon, make_selector
from agent.skills.selector_networks import SkillSAC, soft_value
from agent.skills.sources import SkillSpace
from analysis.contextual import train
from replay_buffer import ReplayBuffer
from tests.kit.configs import composed
from tests.kit.meta import MetaMemory, OnlyMeta, assert_scalars_on_meta
from tests.kit.small_selectors import NETWORK, OBS, B, N, batch, release, source
from utils import Streams


def sac(**settings) -> SkillSAC:
    torch.manual_seed(0)
    return SkillSAC(
        **{
            **NETWORK,
            "learn_temperature": False,
            "target_entropy": 0.5,
            "generator": None,
            **settings,
        }
    )


def probabilities(network, obs: torch.Tensor) -> np.ndarray:
    logits = network.actor(obs).detach().double().numpy()
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


def values(critics, obs: torch.Tensor) -> np.ndarray:
    """The smaller critic, entry by entry."""
    q = [critic(obs).detach().double().numpy() for critic in critics]
    return np.array([[min(each[i, z] for each in q) for z in range(N)] for i in range(len(obs))])


# ---- the schedule


def test_epsilon_is_the_papers():
    skills = composed("finetune", "preset=paper", "task=walker_run", "skills=selector")["skills"]
    schedule = {
        "start": skills["epsilon_start"],
        "end": skills["epsilon_end"],
        "decay": skills["epsilon_decay"],
    }
    assert epsilon(0, **schedule) == 1
    assert epsilon(20_000, **schedule) == pytest.approx(0.3742, abs=5e-5)
    assert epsilon(100_000, **schedule) == pytest.approx(0.0167, abs=5e-5)
    assert epsilon(10**9, **schedule) == pytest.approx(0.01)


def test_the_paper_preset_is_the_papers_selector():
    """Table "Skill selector hyperparameter" and the architecture appendix; the release's yaml
    beside it."""
    for regime, layers, extra in (("selector", 2, 1.0), ("selector_release", 1, 0.99)):
        skills = composed("finetune", "preset=paper", "task=walker_run", f"skills={regime}")[
            "skills"
        ]
        assert [skills[k] for k in ("lr", "hidden_dim", "interval", "update_every_steps")] == [
            3e-4,
            256,
            1,
            1,
        ]
        assert (skills["layers"], skills["extra_discount"]) == (layers, extra)
        assert skills["batch_size"] == 1024 and skills["warmup_frames"] == 4000
        network = source(regime, "preset=paper", skills=16).network
        shapes = [
            tuple(m.weight.shape) for m in network.actor.modules() if isinstance(m, nn.Linear)
        ]
        assert shapes == [(256, OBS), *[(256, 256)] * layers, (16, 256)]
        assert [type(m) for m in network.actor[0]] == [nn.Linear, nn.LayerNorm, nn.Tanh]
        assert len(network.critics) == (2 if regime == "selector" else 1)


# ---- discrete SAC


def test_the_soft_value_of_a_hand_case():
    """p = (1/2, 1/2), Q = (1, 3), temperature 1: V = 2 + log 2; temperature 0: the mean."""
    q, log_p = torch.tensor([[1.0, 3.0]]), torch.tensor([[0.5, 0.5]]).log()
    assert soft_value(q, log_p, 1.0).item() == pytest.approx(2 + math.log(2))
    assert soft_value(q, log_p, 0.0).item() == pytest.approx(2)


def test_the_critics_target_is_the_soft_value_of_the_smaller_target_critic():
    """y = R + gamma^n sum_z p(z|s') (min_i Q_i(s', z) - temperature log p(z|s')), gamma^n once."""
    network, b = sac(), batch()
    for parameter in network.targets.parameters():  # so that targets and critics differ
        parameter.add_(0.3 * torch.randn_like(parameter))
    p, q = probabilities(network, b.next_obs), values(network.targets, b.next_obs)
    expected = [
        b.reward[i].item()
        + b.discount[i].item()
        * sum(p[i, z] * (q[i, z] - 0.3 * math.log(p[i, z])) for z in range(N))
        for i in range(B)
    ]
    y = network.target(b)
    assert y.shape == (B, 1) and not y.requires_grad
    np.testing.assert_allclose(y[:, 0].numpy(), expected, rtol=1e-4, atol=1e-5)
    assert y[0] == b.reward[0]  # nothing beyond a terminal


def test_the_actors_loss_is_the_expectation_over_all_skills():
    """mean_s sum_z p(z|s) (temperature log p(z|s) - Q(s, z))."""
    network, b = sac(), batch()
    q = torch.from_numpy(values(network.critics, b.obs)).float()
    p = probabilities(network, b.obs)
    expected = np.mean(
        [
            sum(p[i, z] * (0.3 * math.log(p[i, z]) - q[i, z].item()) for z in range(N))
            for i in range(B)
        ]
    )
    assert network.actor_loss(network.log_p(b.obs), q).item() == pytest.approx(expected, rel=1e-5)


def test_the_actors_optimum_is_a_softmax_of_q_over_the_temperature():
    network, q = sac(temperature=0.5), torch.tensor([[0.1, 0.9, -0.4, 0.5]])
    logits = torch.zeros(1, N, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.05)
    for _ in range(600):
        optimizer.zero_grad()
        network.actor_loss(logits.log_softmax(1), q).backward()
        optimizer.step()
    np.testing.assert_allclose(logits.softmax(1).detach(), (q / 0.5).softmax(1), atol=1e-3)


def test_one_update_is_a_literal_critic_step_then_an_actor_step_then_the_targets():
    network, b = sac(), batch()
    twin = copy.deepcopy(network)
    y = twin.target(b)
    critic_opt = torch.optim.Adam(twin.critics.parameters(), lr=1e-3)
    index = b.skill.argmax(1)
    loss = sum(
        (critic(b.obs)[torch.arange(B), index] - y[:, 0]).square().mean() for critic in twin.critics
    )
    critic_opt.zero_grad()
    loss.backward()
    critic_opt.step()
    q = torch.stack([critic(b.obs) for critic in twin.critics]).min(0).values.detach()
    log_p = twin.actor(b.obs).log_softmax(1)
    actor_opt = torch.optim.Adam(twin.actor.parameters(), lr=1e-3)
    actor_opt.zero_grad()
    (log_p.exp() * (0.3 * log_p - q)).sum(1).mean().backward()
    actor_opt.step()
    before = copy.deepcopy(network.targets)
    network.learn(b)
    for ours, theirs in zip(
        (*network.actor.parameters(), *network.critics.parameters()),
        (*twin.actor.parameters(), *twin.critics.parameters()),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    for target, old, critic in zip(
        network.targets.parameters(), before.parameters(), twin.critics.parameters(), strict=True
    ):
        torch.testing.assert_close(target, 0.9 * old + 0.1 * critic, rtol=1e-4, atol=1e-6)


def test_only_the_skill_that_acted_moves_a_critic():
    network, b = sac(), batch()
    one = b._replace(skill=torch.eye(N)[torch.full((B,), 2)])
    loss = sum((critic(one.obs) * one.skill).sum(1).mean() for critic in network.critics)
    loss.backward()
    for critic in network.critics:
        gradient = critic[1][-1].bias.grad
        assert gradient[2] != 0 and gradient[[0, 1, 3]].eq(0).all()


@pytest.mark.parametrize(
    "logits, direction", [([0.0, 0.0, 0.0, 0.0], -1), ([9.0, 0.0, 0.0, 0.0], 1)]
)
def test_the_temperature_holds_the_entropy_at_its_target(logits, direction):
    """Above half of log n it falls, below it rises, by log-temperature steps of the learning rate
    (Adam's first)."""
    network = sac(learn_temperature=True)
    network.after(torch.tensor([logits]).log_softmax(1))
    assert network.temperature.item() == pytest.approx(0.3 * math.exp(direction * 1e-3), rel=1e-5)
    fixed = sac(learn_temperature=False)
    fixed.after(torch.tensor([logits]).log_softmax(1))
    assert fixed.temperature.item() == pytest.approx(0.3)


# ---- the release's variant


def test_the_release_discounts_twice_and_takes_the_maximum():
    network, b = release(extra_discount=0.99), batch()
    q = values(network.targets, b.next_obs)
    expected = [b.reward[i].item() + b.discount[i].item() * 0.99 * max(q[i]) for i in range(B)]
    np.testing.assert_allclose(network.target(b)[:, 0].numpy(), expected, rtol=1e-5, atol=1e-6)
    assert b.discount[1].item() * 0.99 == pytest.approx(0.99**4)


def test_the_release_actor_is_reinforce_on_a_sampled_skill():
    """-mean log p(z|s) Q(s, z) - 0.3 mean entropy, with z drawn from p and no baseline."""
    network, b = release(), batch()
    q = torch.from_numpy(values(network.critics, b.obs)).float()
    log_p = network.log_p(b.obs)
    uniform = torch.rand((B, N), generator=torch.Generator().manual_seed(7))
    drawn = [
        max(range(N), key=lambda z: log_p[i, z].item() - math.log(-math.log(uniform[i, z].item())))
        for i in range(B)
    ]
    entropies = [
        -sum(log_p[i, z].exp().item() * log_p[i, z].item() for z in range(N)) for i in range(B)
    ]
    expected = -np.mean(
        [log_p[i, z].item() * q[i, z].item() for i, z in enumerate(drawn)]
    ) - 0.3 * np.mean(entropies)
    assert network.actor_loss(log_p, q).item() == pytest.approx(expected, rel=1e-4)


def test_the_release_actor_samples_from_p():
    network = release()
    log_p = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().repeat(20_000, 1).requires_grad_()
    network.actor_loss(log_p, torch.ones(20_000, N)).backward()
    # With Q = 1 a row's gradient is -1/B at the skill drawn, plus the entropy's, which is the same
    # in every row.
    drawn = log_p.grad.sub(log_p.grad.amax(0)).abs() > 0.5 / 20_000
    np.testing.assert_allclose(drawn.float().mean(0), [0.5, 0.3, 0.15, 0.05], atol=0.015)


def test_the_release_clips_the_actors_gradient():
    network = release(grad_clip=1e-3)
    big = batch()._replace(reward=torch.full((B, 1), 1e4))
    network.learn(big)
    norm = torch.stack([p.grad.norm() for p in network.actor.parameters()]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)


# ---- choosing


def test_choices_are_uniform_at_first_and_follow_p_at_the_end():
    obs = np.ones(OBS, np.float32)
    for overrides, expected in (
        (("skills.epsilon_end=1",), np.full(N, 1 / N)),
        (("skills.epsilon_start=0", "skills.epsilon_end=0"), None),
    ):
        chooser = source("selector", *overrides)
        chooser.network.actor[1][-1].bias.data += torch.tensor([0.0, 1.0, 2.0, 0.5])
        expected = (
            probabilities(chooser.network, torch.ones(1, OBS))[0] if expected is None else expected
        )
        drawn = [chooser.select(obs, step, first=False).argmax() for step in range(4000)]
        counts = np.bincount(drawn, minlength=N) / 4000
        np.testing.assert_allclose(counts, expected, atol=4.5 * np.sqrt(0.25 / 4000))


def test_evaluation_is_greedy_deterministic_and_leaves_training_alone():
    chooser = source("selector")
    chooser.select(np.zeros(OBS, np.float32), 0, first=True)

    def state():
        return copy.deepcopy(
            (
                chooser.rng.bit_generator.state,
                chooser.skill.tolist(),
                chooser.usage["acted"].counts.tolist(),
            )
        )

    before = state()
    observations = np.random.default_rng(0).normal(size=(50, OBS)).astype(np.float32)
    plays = []
    for seed in (1, 2):
        judge = chooser.evaluation(np.random.default_rng(seed))
        plays.append(
            [
                judge.select(obs, step, first=step == 0).argmax()
                for step, obs in enumerate(observations)
            ]
        )
    best = probabilities(chooser.network, torch.from_numpy(observations)).argmax(1)
    assert plays[0] == plays[1] == best.tolist() and judge.rule == chooser.rule == "greedy"
    assert state() == before


@pytest.mark.parametrize("interval, changes", [(1, 30), (10, 3), (0, 1)])
def test_the_interval_says_how_often_a_skill_is_chosen(interval, changes):
    chooser = source("selector", f"skills.interval={interval}", "skills.epsilon_end=1", skills=1000)
    chosen = [
        chooser.select(np.zeros(OBS, np.float32), step, first=step == 0).argmax()
        for step in range(30)
    ]
    assert len(set(chosen)) == changes  # among 1000 skills none repeats, with this seed


def test_the_selector_learns_from_the_skill_that_acted():
    """Observations number the steps, so that a batch tells which step, and so which choice, each
    row is."""
    chooser = source("selector", skills=50)
    memory = ReplayBuffer(
        obs_dim=OBS,
        action_dim=1,
        skill_dim=50,
        capacity=200,
        nstep=3,
        gamma=0.99,
        skill_index="acting",
        rng=np.random.default_rng(0),
    )
    acted = []
    for step in range(100):
        if step % 20 == 0:
            memory.begin(np.full(OBS, step, np.float32))
        skill = chooser.select(np.full(OBS, step, np.float32), step, first=step % 20 == 0)
        acted.append(skill.argmax())
        memory.add(np.zeros(1, np.float32), skill, 0.0, 1.0, np.full(OBS, step + 1, np.float32))
    b = memory.sample(256)
    assert [acted[int(step)] for step in b.obs[:, 0]] == b.skill.argmax(1).tolist()


def test_updates_start_after_the_warm_up_at_their_own_rate():
    chooser = source(
        "selector",
        "skills.warmup_frames=10",
        "skills.update_every_steps=3",
        "action_repeat=2",
        "checkpoint_every_frames=10",
    )

    class Memory(MetaMemory):
        calls = 0

        def sample(self, batch_size):
            assert batch_size == chooser.batch_size
            Memory.calls += 1
            return batch()

    learned = [
        step for step in range(20) if "skills/critic_loss" in chooser.update(Memory(N), step)
    ]
    assert learned == [6, 9, 12, 15, 18] and Memory.calls == 5  # 10 frames are 5 steps


# ---- instruments and state


def test_usage_counts_the_last_steps_only():
    usage, chosen = Usage(5, window=7), np.random.default_rng(0).integers(5, size=60)
    for step, index in enumerate(chosen):
        usage.add(int(index))
        recent = chosen[max(0, step - 6) : step + 1]
        assert usage.distinct == len(set(recent))
        shares = np.bincount(recent) / len(recent)
        assert usage.evenness == pytest.approx(
            -sum(p * math.log(p) for p in shares if p) / math.log(5), abs=1e-9
        )


def test_with_epsilon_nearly_all_skills_are_used_while_the_greedy_count_says_one():
    """At the paper's last epsilon, 0.0167, 5000 steps hold about 83 uniform choices among 16
    skills."""
    chooser = source(
        "selector", "skills.epsilon_start=0.0167", "skills.epsilon_end=0.0167", skills=16
    )
    chooser.network.actor[1][-1].bias.data[3] += 50
    for step in range(5000):
        chooser.select(np.zeros(OBS, np.float32), step, first=False)
    assert chooser.usage["acted"].distinct >= 14
    assert chooser.usage["greedy"].distinct == 1


@pytest.mark.parametrize("regime", ["selector", "selector_release"])
def test_a_selector_continues_from_its_state(regime):
    def play(chooser, steps):
        observations = np.random.default_rng(3).normal(size=(80, OBS)).astype(np.float32)
        out = []
        for step in steps:
            out.append(chooser.select(observations[step], step, first=step % 20 == 0).argmax())
            metrics = chooser.network.learn(batch(step))
            out += [float(v) for v in metrics.values()]
        return out

    first, second = source(regime), source(regime, seed=2)
    play(first, range(30))
    file = io.BytesIO()
    torch.save({"skills": first.state_dict(), "rng": first.rng.bit_generator.state}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    second.load_state_dict(state["skills"])
    second.rng.bit_generator.state = state["rng"]
    if first.network.generator is not None:
        second.network.generator.set_state(first.network.generator.get_state())
    assert play(second, range(30, 80)) == play(first, range(30, 80))
    assert second.usage["acted"].counts.tolist() == first.usage["acted"].counts.tolist()


@pytest.mark.parametrize(
    "overrides",
    [
        ("skills=selector",),
        ("skills=selector", "skills.learn_temperature=false"),
        ("skills=selector_release",),
    ],
    ids=" ".join,
)
def test_learning_stays_on_its_device(overrides):
    config = composed("finetune", "preset=smoke", "task=walker_run", *overrides)
    with torch.device("meta"):
        chooser = make_selector(config, SkillSpace("one_hot", 16), 24, Streams(1, "meta"))
    for _ in range(2):
        with OnlyMeta():
            metrics = chooser.network.learn(MetaMemory(16).sample(32))
        assert_scalars_on_meta(metrics)


# ---- does it work


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_finds_the_best_skill_of_every_region(seed):
    """python -m analysis.contextual: a known skill is best in each sector of a circle."""
    assert train("selector", seed, skills=4, steps=2000).right >= 0.95


def test_on_the_same_task_switching_stays_at_chance():
    outcome = train("switching", 0, skills=4, steps=2000)
    assert outcome.right == pytest.approx(1 / 4, abs=0.1) and outcome.reward == pytest.approx(
        1 / 4, abs=0.12
    )
