"""Snapshots of URLB-family code: read without that code, the same actions, and fine-tuned from."""

import subprocess
import sys

import pytest
import torch

from agent.learners.adaptation import under
from agent.parts.networks import Critic
from agent.policy import load_policy
from analysis import import_release
from analysis.stand_ins import StandIn, read
from utils import ROOT, load_snapshot

FRAME = 2_000_010


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Files of another process, whose classes do not exist in this one."""
    out = tmp_path_factory.mktemp("zoo")
    subprocess.run(
        [sys.executable, "-W", "ignore", ROOT / "tests/kit/release_zoo.py", out], check=True
    )
    return out


@pytest.fixture
def importing(run_main, tmp_path):
    def call(path, *words):
        return run_main(import_release.main, path, f"run_root={tmp_path / 'runs'}", *words)

    return call


def imported(root, agent, seed=1):
    return root / f"pretrain/walker/{agent}/imported/seed_{seed}/snapshots/snapshot_{FRAME}.pt"


@pytest.mark.parametrize(
    ("name", "agent", "skills"),
    [
        ("cic", "cic", 8),
        ("amped", "amped_release", 4),
        ("rnd", "rnd", 0),
        ("cesd", "cesd", 4),
        ("aps", "aps", 5),
    ],
)
def test_an_imported_actor_and_critic_say_what_the_originals_say(
    zoo, importing, tmp_path, name, agent, skills
):
    done = importing(zoo / f"{name}.pt", "domain=walker")
    assert done.code == 0 and done.err == "", done.err
    path, said = (
        imported(tmp_path / "runs", agent),
        torch.load(zoo / f"{name}_said.pt", weights_only=True),
    )
    assert f"snapshot: {path}\n" in done.out and f"skills {skills}, hidden 16\n" in done.out
    policy = load_policy(path)
    assert (policy.obs_dim, policy.action_dim, policy.skill_dim, policy.frame) == (
        24,
        6,
        skills,
        FRAME,
    )
    obs, skill = said["x"][:, :24].numpy(), said["x"][:, 24:].numpy()
    ours = policy.act(obs, skill if skills else None)
    torch.testing.assert_close(torch.from_numpy(ours), said["mean"], rtol=0, atol=1e-6)
    state = load_snapshot(path)["learner"]
    for network, theirs in (("critic.", "critic"), ("target.", "critic_target")):
        if theirs in said:  # CeSD's has a shape of its own, checked by its names and sizes
            critic = Critic(
                24 + skills,
                6,
                hidden_dim=16,
                layers=1,
                action_input="trunk",
                columns=said[theirs].shape[1] // 2,
            )
            critic.load_state_dict(under(state, network))
            torch.testing.assert_close(
                torch.cat(critic(said["x"], said["action"]), 1), said[theirs], rtol=0, atol=1e-5
            )


def test_an_imported_agent_that_sees_pixels_says_what_the_original_says(zoo, importing, tmp_path):
    done = importing(zoo / "pixel.pt", "domain=walker")
    assert done.code == 0 and done.out.endswith("obs_type=pixels\n"), done
    policy = load_policy(imported(tmp_path / "runs", "diayn"))
    said = torch.load(zoo / "pixel_said.pt", weights_only=True)
    assert policy.obs_shape == (9, 84, 84) and policy.skill_dim == 8
    ours = policy.act(said["pictures"].numpy(), said["x"][:, -8:].numpy())
    torch.testing.assert_close(torch.from_numpy(ours), said["mean"], rtol=0, atol=1e-5)
    state = load_snapshot(imported(tmp_path / "runs", "diayn"))["learner"]
    critic = Critic(4908, 6, hidden_dim=16, layers=2, action_input="head", columns=1, trunk_dim=5)
    critic.load_state_dict(under(state, "critic."))  # every weight has its place


def test_an_imported_snapshot_is_fine_tuned_by_file_and_by_variant(zoo, importing, cli):
    assert importing(zoo / "cic.pt", "domain=walker", "seed=3").code == 0
    path = imported(cli.root, "cic", seed=3)
    for words in (
        (f"snapshot={path}", "variant=by_file"),
        ("pretrain_variant=imported", "variant=by_name"),
    ):
        done = cli("finetune", "agent=cic", "task=walker_run", "seed=3", "snapshots=[1]", *words)
        assert done.code == 0, done.err
    ours = load_snapshot(path)["learner"]
    for start in cli.root.glob(
        "finetune/walker_run/cic/by_*/switching/seed_3/snapshots/snapshot_1.pt"
    ):
        begun = load_snapshot(start)["learner"]  # after one step, before the first update
        for name in ours:
            if name.startswith(("actor.", "critic.trunk.")):
                assert torch.equal(begun[name], ours[name]), name
    assert len(list(cli.root.glob("finetune/**/result.json"))) == 2


def test_what_is_left_out_is_said_and_no_config_of_theirs_is_taken_along(zoo, importing, tmp_path):
    assert (
        "left out: actor_opt, cic, cic_optimizer, critic_opt\n"
        in importing(zoo / "cic.pt", "domain=walker").out
    )
    done = importing(zoo / "amped.pt", "domain=walker", "agent=amped")
    assert "left out: Lambda, actor_opt, critic_opt, intrinsic_reward_rms\n" in done.out
    # Their snapshots may hold a W&B key.
    assert b"canary-in-the-file" in (zoo / "amped.pt").read_bytes()
    assert b"canary" not in imported(tmp_path / "runs", "amped").read_bytes()


def test_the_reader_makes_stand_ins_and_imports_nothing(zoo):
    before, allowed = set(sys.modules), set(torch.serialization.get_safe_globals())
    agent = read(zoo / "amped.pt")["agent"]
    assert isinstance(agent, StandIn) and agent.source == "agent.amped.AmpedAgent"
    # A name that exists here too, and is not looked up.
    assert agent.get("actor").source == "agent.ddpg.Actor"
    assert type(agent.get("actor")).__mro__[1] is StandIn
    assert {name.partition(".")[0] for name in set(sys.modules) - before} <= {"torch", "encodings"}
    assert set(torch.serialization.get_safe_globals()) <= allowed  # nothing stays allowed


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("slow", (), "ours is four times Conv2d (3 x 3, the first with stride 2), ReLU"),
        ("pixel", ("agent=cic", "skill_dim=7"), "its actor takes 4908 numbers"),
        ("legacy", (), "no snapshot of URLB-family code as torch 1.6 or later saves it"),
        (
            "leaky",
            (),
            "actor.policy is Linear, LeakyReLU, Linear; ours is Linear layers with ReLU between them",
        ),
        ("my", (), "its class agent.mine.MyAgent is none of our agents; say which by agent=NAME"),
        (
            "my",
            ("agent=cic",),
            "its actor takes 24 numbers, of which walker observes 24; agent=cic with skill_dim=any",
        ),
        ("ddpg", (), "agent=ddpg starts every task from scratch"),
        ("cic", ("agent=rnd",), "agent=rnd with skill_dim=0 does not fit"),
        (
            "cic",
            ("skill_dim=64",),
            "its actor takes 32 numbers, of which walker observes 24; agent=cic with skill_dim=64",
        ),
        ("cic", ("agent=cesd",), "critic.q1.0.bias is [16] there; agent=cesd has [8, 1, 16]"),
        (
            "cic",
            ("domain=quadruped",),
            "its actor takes 32 numbers, of which quadruped observes 78",
        ),
        (
            "cic",
            ("domain=tree_maze",),
            "domain=tree_maze is not known; choose from walker, quadruped, jaco",
        ),
        ("cic", ("domain=moon",), "domain=moon is not known; choose from walker"),
        ("cic", ("agent=../../x",), "agent=../../x is not known; choose from amped, amped_literal"),
        ("cic", ("seed=[1",), "seed=[1 is not a whole number"),
        ("cic", ("beta=1",), "beta is not a key of this command; give agent=, domain="),
        ("cic_said", (), "it holds no agent and _global_step"),
        ("nothing", (), "no file "),
        ("meta", (), "actor.trunk.0.weight is not a dense tensor of finite float32 numbers"),
        ("sparse", (), "actor.trunk.0.weight is not a dense tensor of finite float32 numbers"),
        ("tensor_as_eps", (), "actor.trunk is Linear, LayerNorm, Tanh; ours is"),
        ("numbers_as_keys", (), "actor.trunk.0.0 is not a dense tensor"),
        ("numbers_as_layers", (), "actor.policy is Linear, ReLU, Linear; ours is"),
        ("thousands_of_digits", (), "nothing in it was executed"),
        ("truth_as_step", (), "it holds no agent and _global_step"),
    ],
)
def test_everything_else_is_refused_in_one_line(zoo, importing, tmp_path, name, words, expected):
    words = (
        words if any(word.startswith("domain=") for word in words) else ("domain=walker", *words)
    )
    done = importing(zoo / f"{name}.pt", *words)
    assert done.code == 2 and expected in done.err, done
    assert done.err.count("\n") == 1 and done.err.startswith("error: ") and done.out == ""
    assert not (tmp_path / "runs").exists()


def test_names_in_a_file_do_not_steer_the_terminal(zoo, importing):
    done = importing(zoo / "escapes.pt", "domain=walker")
    assert done.code == 0 and r"\x1b[31m\nerror: fake" in done.out
    assert "\x1b" not in done.out and done.out.count("\n") == 4


def test_the_domain_must_be_given_and_a_snapshot_is_never_written_over(zoo, importing, tmp_path):
    assert "domain= is missing" in importing(zoo / "cic.pt").err
    out = tmp_path / "mine.pt"
    assert importing(zoo / "cic.pt", "domain=walker", "--out", out).code == 0
    written = out.read_bytes()
    again = importing(zoo / "cic.pt", "domain=walker", "--out", out)
    assert (
        again.code == 2 and f"{out} is there already" in again.err and out.read_bytes() == written
    )
    given = importing(out, "domain=walker")  # one of ours
    assert given.code == 2 and "it holds no agent and _global_step" in given.err
