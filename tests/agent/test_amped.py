"""AMPED's two reward streams, its three readings (amped, amped_release, amped_literal), and what
its updates move."""

import copy
import io
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist

from agent.amped import AMPED
from agent.parts.contrast import Contrast
from envs.dummy import Dummy
from replay_buffer import Batch
from run.build import make_objective
from tests.kit.configs import composed
from tests.kit.objectives import Fixed, array, close, depends_on, moved
from tests.kit.oracles import drawn_partners, release_entropy, rnd_error, running_variance
from utils import Streams, UserError

torch.set_num_threads(1)
AGENTS = ("amped", "amped_release", "amped_literal")
SIZE, SKILLS = 24, 4


def make(*overrides, seed=0) -> AMPED:
    config = composed(
        "pretrain",
        "preset=smoke",
        f"skill_dim={SKILLS}",
        "agent.objective.pool_size=12",
        *overrides,
    )
    torch.manual_seed(seed)
    return make_objective(config, Dummy(), SKILLS, Streams(seed))


def make_batch(seed=0, size=SIZE, lone=False) -> Batch:
    """Random transitions; with `lone`, the first row is alone with its skill."""
    rng = torch.Generator().manual_seed(seed)
    obs, action, reward, discount, next_obs, next_obs_1 = (
        torch.randn(size, d, generator=rng) for d in (5, 2, 1, 1, 5, 5)
    )
    index = torch.randint(SKILLS - 1, (size,), generator=rng)
    if lone:
        index[0] = SKILLS - 1
    return Batch(
        obs, action, reward, discount, next_obs, F.one_hot(index, SKILLS).float(), next_obs_1
    )


def fill(objective, seed=100):
    for obs, next_obs in zip(make_batch(seed).obs.numpy(), make_batch(seed).next_obs_1.numpy()):
        objective.observe(obs, next_obs)


# --------------------------------------------------------------------------- the exploration stream


@pytest.mark.parametrize("alpha, beta", [(0.01, 10), (3.0, 0.5), (0, 2.0), (2.0, 0)])
def test_exploration_is_alpha_entropy_plus_beta_novelty(alpha, beta):
    objective = make(f"alpha={alpha}", f"beta={beta}")
    distances, errors = [], []
    for seed in range(3):  # running statistics go on from batch to batch
        batch = make_batch(seed)
        objective.update(batch)
        entropy = release_entropy(array(objective.encoder.state(batch.next_obs)), distances)
        errors.append(rnd_error(objective, batch.obs))
        novelty = errors[-1] / (np.sqrt(running_variance(errors)) + 1e-8)
        streams, metrics = objective.rewards(batch)
        close(streams["exploration"], alpha * entropy + beta * novelty)
        close(metrics["exploration/entropy"], entropy.mean())
        close(metrics["exploration/rnd"], novelty.mean())


@pytest.mark.parametrize("transition", ["nstep", "one_step"])
def test_raw_particles_are_the_states_themselves_and_no_encoder_is_made(transition):
    words = ("agent.objective.particle=raw", f"agent.objective.transition={transition}")
    objective, distances = make("alpha=2", "beta=0", *words), []
    for seed in range(2):
        batch = make_batch(seed)
        metrics = objective.update(batch)
        assert "cpc/loss" not in metrics and "rnd/loss" in metrics
        states = batch.next_obs if transition == "nstep" else batch.next_obs_1
        entropy = release_entropy(array(states), distances)
        close(objective.rewards(batch)[0]["exploration"], 2 * entropy)
    assert not any("encoder" in name for name, _ in objective.named_parameters())


def test_exploration_by_hand():
    objective = make("alpha=2", "beta=3")
    objective._entropy, objective._novelty = (
        lambda _, v=v: torch.full((SIZE, 1), v) for v in (0.5, 4.0)
    )
    # 2 * 0.5 + 3 * 4
    close(objective.rewards(make_batch())[0]["exploration"], np.full((SIZE, 1), 13.0))


@pytest.mark.parametrize(
    "form, expected",
    [
        (
            "normalized",
            [[2 / math.sqrt(8)], [6 / math.sqrt(8)]],
        ),  # means 2 and 6; variance ((2-4)^2 + (6-4)^2)/1 = 8
        ("squared_norm", [[4.0], [12.0]]),  # 1 + 3 and 5 + 7
        ("mean", [[2.0], [6.0]]),
    ],
)
def test_novelty_by_hand(form, expected):
    objective = make(f"agent.objective.rnd_reward={form}", "alpha=0", "beta=1")
    objective.rnd.forward = lambda _: torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    close(objective.rewards(make_batch(size=2))[0]["exploration"], expected)


def test_literal_exploration_is_the_log_sum_of_distances_to_recent_pairs_plus_the_squared_error():
    objective, batch = (
        make("agent=amped_literal", "alpha=2", "beta=3", "agent.objective.k=3"),
        make_batch(),
    )
    recent = make_batch(seed=7, size=20)
    for obs, next_obs in zip(recent.obs.numpy(), recent.next_obs_1.numpy()):
        objective.observe(obs, next_obs)
    x = array(objective.encoder.pair(batch.obs, batch.next_obs_1))  # (s_t, s_t+1)
    pool = array(objective.encoder.pair(recent.obs, recent.next_obs_1))[-12:]  # pool_size=12
    entropy = np.log(np.sort(cdist(x, pool), axis=1)[:, :3].sum(1, keepdims=True))
    squared_norm = 32 * rnd_error(objective, batch.obs)  # 32 outputs: the mean times their number
    close(objective.rewards(batch)[0]["exploration"], 2 * entropy + 3 * squared_norm)


def test_a_pool_that_is_not_full_holds_only_what_was_observed():
    objective, batch = (
        make("agent=amped_literal", "alpha=1", "beta=0", "agent.objective.k=3"),
        make_batch(),
    )
    seen = make_batch(seed=7, size=5)
    for obs, next_obs in zip(seen.obs.numpy(), seen.next_obs_1.numpy()):
        objective.observe(obs, next_obs)
    x, pool = (array(objective.encoder.pair(b.obs, b.next_obs_1)) for b in (batch, seen))
    close(
        objective.rewards(batch)[0]["exploration"],
        np.log(np.sort(cdist(x, pool), axis=1)[:, :3].sum(1)[:, None]),
    )


# ----------------------------------------------------------------------------- the diversity stream


def bracket_of_eq4(features, index, partner, matrix, *, temperature, all_others):
    """ln of the ratio in Eq. 4 for each anchor, in a loop."""
    logs = []
    for i in range(len(features)):
        difference = features - features[i]
        term = np.exp(-np.einsum("jr,rc,jc->j", difference, matrix, difference) / temperature)
        below = [
            j
            for j in range(len(features))
            if j != i and (all_others or index[j] != index[i] or j == partner[i])
        ]
        logs.append(np.log(term[partner[i]] / term[below].sum()))
    return np.array(logs)


@pytest.mark.parametrize("reward", ["ratio", "log_ratio"])
def test_diversity_is_the_bracket_of_eq4_under_the_learned_metric(reward):
    objective, batch = make(f"agent.objective.div_reward={reward}"), make_batch(lone=True)
    for seed in range(5):
        objective.update(make_batch(seed))
    index, matrix = batch.skill.argmax(1).numpy(), np.diag(array(objective.contrast.metric))
    assert not np.allclose(matrix, np.eye(SKILLS), atol=1e-3)
    features = array(objective.contrast.head(objective.contrast.embed(batch.next_obs)))
    logs = bracket_of_eq4(
        features, index, drawn_partners(objective, index), matrix, temperature=0.5, all_others=False
    )
    expected = np.exp(logs) if reward == "ratio" else logs
    expected[0] = expected[1:].mean()  # alone with its skill: the mean of the others
    close(objective.rewards(batch)[0]["diversity"], expected[:, None], rtol=1e-3)


def test_release_diversity_takes_the_first_positive_and_all_others_in_the_denominator():
    objective, batch = make("agent=amped_release"), make_batch()
    objective.contrast.matrix.data += 0.2 * torch.randn(
        SKILLS, SKILLS, generator=torch.Generator().manual_seed(0)
    )
    index = batch.skill.argmax(1).tolist()
    partner = [next(j for j in range(SIZE) if j != i and index[j] == index[i]) for i in range(SIZE)]
    features = array(objective.contrast.head(objective.contrast.embed(batch.next_obs)))
    matrix = array(objective.contrast.matrix)
    logs = bracket_of_eq4(features, index, partner, matrix, temperature=0.5, all_others=True)
    close(objective.rewards(batch)[0]["diversity"], np.exp(logs)[:, None], rtol=1e-3, atol=1e-5)


def test_literal_diversity_is_the_log_of_eq4_without_a_temperature():
    objective, batch = make("agent=amped_literal"), make_batch()
    fill(objective)
    index = batch.skill.argmax(1).numpy()
    features = array(objective.contrast.head(objective.contrast.embed(batch.next_obs)))
    logs = bracket_of_eq4(
        features,
        index,
        drawn_partners(objective, index),
        np.eye(SKILLS),
        temperature=1,
        all_others=False,
    )
    close(objective.rewards(batch)[0]["diversity"], logs[:, None], rtol=1e-3)


@pytest.mark.parametrize(
    "reward, expected",
    [
        ("ratio", [0.2, 0.4, 0.3]),  # (0.2 + 0.4) / 2
        ("log_ratio", [-2.0, -1.0, -1.5]),
    ],
)
def test_an_anchor_alone_with_its_skill_earns_the_mean_of_the_others(reward, expected):
    objective = make(f"agent.objective.div_reward={reward}")
    log_ratio, ratio = torch.tensor([-2.0, -1.0, -9.0]), torch.tensor([0.2, 0.4, 0.9])
    objective.contrast = Fixed(
        Contrast(log_ratio, ratio, torch.tensor([True, True, False]), torch.ones(3))
    )
    close(objective.rewards(make_batch(size=3))[0]["diversity"], np.array(expected)[:, None])


# ----------------------------------------------------------------------- what the rewards look like


@pytest.mark.parametrize("agent", AGENTS)
def test_rewards_are_finite_columns_without_gradient(agent):
    objective = make(f"agent={agent}")
    assert objective.streams == ("diversity", "exploration")
    fill(objective)
    for seed in range(5):
        objective.update(make_batch(seed, lone=True))
        streams, metrics = objective.rewards(make_batch(seed, lone=True))
        assert tuple(streams) == objective.streams
        for reward in streams.values():
            assert (
                reward.shape == (SIZE, 1) and reward.isfinite().all() and not reward.requires_grad
            )
            assert reward.std() > 0
        assert all(m.ndim == 0 and m.isfinite() and not m.requires_grad for m in metrics.values())


@pytest.mark.parametrize(
    "agent, low, high",
    [("amped", 0, 1), ("amped_release", 1e-6, 1 + 1e-6), ("amped_literal", -math.inf, 0)],
)
def test_diversity_is_a_ratio_except_in_the_literal_reading(agent, low, high):
    objective = make(f"agent={agent}")
    fill(objective)
    reward = objective.rewards(make_batch())[0]["diversity"]
    assert (reward >= low).all() and (reward <= high).all()


@pytest.mark.parametrize(
    "agent, overrides, stream, fields",
    [
        ("amped", (), "diversity", {"next_obs", "skill"}),
        ("amped", ("alpha=1", "beta=0"), "exploration", {"next_obs"}),  # entropy of s' alone
        ("amped", ("alpha=0", "beta=1"), "exploration", {"obs"}),  # RND at s
        ("amped_release", ("alpha=1", "beta=1"), "exploration", {"obs", "next_obs"}),
        (
            "amped_literal",
            ("alpha=1", "beta=0"),
            "exploration",
            {"obs", "next_obs_1"},
        ),  # the pair, one step
        (
            "amped",
            ("alpha=0", "beta=1", "agent.objective.rnd_on=next_obs"),
            "exploration",
            {"next_obs"},
        ),
        (
            "amped",
            ("alpha=1", "beta=0", "agent.objective.particle=pair"),
            "exploration",
            {"obs", "next_obs"},
        ),
        (
            "amped",
            ("alpha=1", "beta=0", "agent.objective.transition=one_step"),
            "exploration",
            {"next_obs_1"},
        ),
    ],
)
def test_each_stream_reads_the_states_its_reading_names(agent, overrides, stream, fields):
    objective = make(f"agent={agent}", *overrides)
    fill(objective)
    assert depends_on(objective, stream, obs_dim=5) == fields


def test_domains_carry_the_weights_of_the_papers_table():
    table = {"walker": (0.01, 10), "quadruped": (0.002, 8), "jaco": (0.03, 0.005)}
    for domain, weights in table.items():
        settings = composed("pretrain", "preset=smoke", f"domain={domain}")["agent"]["objective"]
        assert (settings["alpha"], settings["beta"]) == weights
        assert (settings["k"], settings["knn_clip"], settings["temperature"]) == (16, 5e-4, 0.5)


# ---------------------------------------------------------------------------------------- ablations


@pytest.mark.parametrize(
    "overrides, streams",
    [
        ((), ("diversity", "exploration")),
        (("beta=0",), ("diversity", "exploration")),
        (("alpha=0",), ("diversity", "exploration")),
        (("agent.objective.diversity=false",), ("exploration",)),
        (("agent.objective.diversity=false", "alpha=0"), ("exploration",)),
        (("agent.objective.diversity=false", "beta=0"), ("exploration",)),
        (("alpha=0", "beta=0"), ("diversity",)),
    ],
)
def test_a_stream_that_is_switched_off_is_left_out(overrides, streams):
    objective, batch = make(*overrides), make_batch()
    assert objective.streams == streams
    metrics = objective.update(batch)
    assert tuple(objective.rewards(batch)[0]) == streams
    assert any(name.startswith("diversity/") for name in metrics) == ("diversity" in streams)


def test_nothing_left_to_want_is_an_error():
    with pytest.raises(UserError, match="leave no reward"):
        make("alpha=0", "beta=0", "agent.objective.diversity=false")


@pytest.mark.parametrize(
    "key",
    [
        "div_reward",
        "particle",
        "transition",
        "rnd_reward",
        "rnd_on",
        "pool",
        "metric",
        "denominator",
        "positive",
        "numerics",
        "entropy_form",
        "knn_scale",
        "cpc",
    ],
)
def test_an_unknown_reading_is_an_error_that_names_its_key(key):
    settings = composed("pretrain", "preset=smoke")["agent"]["objective"] | {key: "nonsense"}
    with pytest.raises(UserError, match=f"agent.objective.{key}='nonsense' is not valid"):
        make_objective(
            {"phase": "pretrain", "agent": {"objective": settings}}, Dummy(), SKILLS, Streams(0)
        )


@pytest.mark.parametrize("metric", ["none", "cosine"])
def test_the_isotropic_ablations_learn_no_metric(metric):
    objective = make(f"agent.objective.metric={metric}")
    objective.update(make_batch())
    assert {name.split(".")[0] for name, _ in objective.contrast.named_parameters()} == {
        "embed",
        "head",
    }
    assert objective.rewards(make_batch())[0]["diversity"].isfinite().all()


# ------------------------------------------------------------------------------------------ updates


@pytest.mark.parametrize("agent", AGENTS)
def test_an_update_moves_the_three_encoders_and_nothing_else(agent):
    objective = make(f"agent={agent}")
    before = copy.deepcopy(dict(objective.contrast.named_parameters()))
    changed = moved(objective, lambda: objective.update(make_batch()), within="rnd")
    assert changed == {"contrast", "encoder", "rnd.predictor"}
    assert all(
        not torch.equal(before[name], p) for name, p in objective.contrast.named_parameters()
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_a_batch_that_is_not_the_last_moves_only_the_contrast(agent):
    objective = make(f"agent={agent}")
    metrics = {}
    changed = moved(objective, lambda: metrics.update(objective.update(make_batch(), final=False)))
    assert changed == {"contrast"}
    assert set(metrics) == {"diversity/loss", "diversity/accuracy"}


def test_without_diversity_the_contrast_never_moves():
    objective = make("agent.objective.diversity=false")
    assert moved(objective, lambda: objective.update(make_batch(), final=False)) == set()
    assert objective.update(make_batch(), final=False) == {}
    changed = moved(objective, lambda: objective.update(make_batch()), within="rnd")
    assert changed == {"encoder", "rnd.predictor"}


@pytest.mark.parametrize(
    "agent, moments", [("amped", {"entropy", "rnd.moments"}), ("amped_literal", set())]
)
def test_rewards_move_running_statistics_at_most(agent, moments):
    objective = make(f"agent={agent}")
    fill(objective)
    assert moved(objective, lambda: objective.rewards(make_batch()), within="rnd") == moments


@pytest.mark.parametrize(
    "agent, batches", [("amped", 1), ("amped_release", 1), ("amped_literal", 3)]
)
def test_batches_per_update(agent, batches):
    assert make(f"agent={agent}").batches_per_update == batches


def test_losses_are_those_of_the_equations_and_lone_anchors_do_not_count():
    objective, batch = make(), make_batch(lone=True)
    index = batch.skill.argmax(1).numpy()
    features = array(objective.contrast.head(objective.contrast.embed(batch.next_obs)))
    logs = bracket_of_eq4(
        features,
        index,
        drawn_partners(objective, index),
        np.eye(SKILLS),
        temperature=0.5,
        all_others=False,
    )
    key, query = (
        array(objective.encoder.pair(batch.obs, batch.next_obs)),
        array(objective.encoder.skill(batch.skill)),
    )
    similarity = np.exp((1 - cdist(query, key, "cosine")) / 0.5)
    error = rnd_error(objective, batch.obs)
    metrics = objective.update(batch)
    close(metrics["diversity/loss"], -logs[1:].mean())  # row 0 has no positive
    close(
        metrics["cpc/loss"], -np.mean(np.log(similarity.diagonal() / similarity.mean(1))), atol=1e-5
    )
    close(metrics["rnd/loss"], error.mean())


def test_release_losses_are_those_of_the_public_code():
    objective, batch = make("agent=amped_release"), make_batch()
    far = batch._replace(next_obs=1000 * batch.next_obs)  # every exponential underflows
    key, query = (
        array(objective.encoder.pair(batch.obs, far.next_obs)),
        array(objective.encoder.skill(batch.skill)),
    )
    similarity = np.exp((1 - cdist(query, key, "cosine")) / 0.5)
    negatives = np.maximum(similarity.sum(1) - np.exp(2), 1e-6) + 1e-6  # minus e^(1/T)
    metrics = objective.update(far)
    close(metrics["diversity/loss"], -math.log(1e-6))
    close(metrics["cpc/loss"], -np.mean(np.log(similarity.diagonal() / negatives)), atol=1e-5)


@pytest.mark.parametrize("agent", AGENTS)
def test_repeated_updates_on_one_batch_lower_every_loss(agent):
    objective, batch = make(f"agent={agent}"), make_batch()
    first = objective.update(batch)
    for _ in range(60):
        last = objective.update(batch)
    for name in ("diversity/loss", "cpc/loss", "rnd/loss"):
        assert last[name] < first[name], name


# ------------------------------------------------------------------------------- state that travels


def test_observed_transitions_enter_the_recent_pool_and_nothing_else():
    objective = make("agent=amped_literal")
    pair = np.arange(5, dtype=np.float32), np.arange(5, 10, dtype=np.float32)
    assert moved(objective, lambda: objective.observe(*pair)) == {"recent"}
    assert objective.recent.pairs[0].tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    plain = make()
    assert moved(plain, lambda: plain.observe(*pair)) == set()


def advance(objective, seeds):
    """Rewards of a few updates, observations in between."""
    rewards = []
    for seed in seeds:
        fill(objective, seed)
        objective.update(make_batch(seed), final=False)
        objective.update(make_batch(seed + 50))
        rewards.append(torch.cat(list(objective.rewards(make_batch(seed + 50))[0].values()), 1))
    return torch.stack(rewards)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_loaded_objective_continues_as_if_it_had_never_stopped(agent):
    original, other = make(f"agent={agent}"), make(f"agent={agent}", seed=1)
    advance(original, range(3))
    file = io.BytesIO()
    torch.save(original.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    other.generator.set_state(original.generator.get_state())  # travels with the run's streams
    assert torch.equal(advance(original, range(3, 6)), advance(other, range(3, 6)))


def test_the_optimisers_and_running_statistics_are_part_of_the_state():
    original = make()
    advance(original, range(3))
    for forgotten in ((), ("_extra_state",), ("entropy.moments.var",), ("rnd.moments.var",)):
        start, other = make().state_dict(), make()
        other.load_state_dict(
            copy.deepcopy(original.state_dict()) | {name: start[name] for name in forgotten}
        )
        other.generator.set_state(original.generator.get_state())
        same = torch.equal(advance(copy.deepcopy(original), [9]), advance(other, [9]))
        assert same == (not forgotten), forgotten


def test_equal_seeds_give_equal_objectives():
    assert torch.equal(advance(make(), range(2)), advance(make(), range(2)))
    assert not torch.equal(advance(make(), range(2)), advance(make(seed=1), range(2)))


def test_in_the_mazes_the_paper_has_three_layers_to_n_numbers_and_rnds_mean_error():
    """Appendix I.2, and two hidden layers with a head elsewhere."""
    maze = make("agent=amped_literal", "domain=tree_maze")
    widths = [p.shape[0] for p in maze.contrast.embed.parameters() if p.ndim == 2]
    hidden = composed("pretrain", "domain=tree_maze", "preset=smoke")["learner"]["hidden_dim"]
    assert widths == [hidden, hidden, hidden, SKILLS]
    x = torch.randn(5, SKILLS)
    assert maze.contrast.head(x) is x and maze.novelty.rnd_reward == "mean"
    walker = make("agent=amped_literal")
    assert len([p for p in walker.contrast.embed.parameters() if p.ndim == 2]) == 3
    assert len(list(walker.contrast.head.parameters())) == 4
    assert walker.novelty.rnd_reward == "squared_norm"
