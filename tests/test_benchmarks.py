"""Every benchmark runs, and says what it promises; never how fast: these machines are noisy."""

import itertools
import json
import math
import shlex
import sys

import pytest
import torch

from benchmarks import __main__ as benchmarks
from benchmarks import cost, hours, pixels, replay, selector, turns, update
from benchmarks.cost import DEVICE, updater
from tests.kit import meta
from tests.kit.configs import composed
from utils import Streams, UserError


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    found = benchmarks.main(["--quick", "--out", str(path)])
    assert json.loads(path.read_text()) == found
    return found


def numbers(tree):
    return [
        n
        for value in tree.values()
        for n in (numbers(value) if isinstance(value, dict) else [value])
    ]


def test_every_part_is_there_and_every_number_is_positive(results):
    assert results.keys() == {
        "machine",
        "versions",
        "update",
        "cost",
        "env",
        "replay",
        "loop",
        "evaluation",
        "maze",
        "pixels",
    }
    assert (
        results["machine"].keys() == {"cpu", "cores", "threads", "memory_gb"}
        and results["machine"]["cpu"]
    )
    for part in ("update", "cost", "env", "replay", "loop", "evaluation", "maze", "pixels"):
        assert all(math.isfinite(n) and n > 0 for n in numbers(results[part])), part
    assert "amped" in benchmarks.table(results)


def test_the_update_is_measured_beside_its_products_and_its_reference(results):
    common = {"ms", "gflop", "gemm_ms", "gemm_share", "operators", "peak_mb"}
    assert results["update"].keys() == {"amped", "cic", "ddpg"}
    for agent, sizes in results["update"].items():
        assert all(
            row.keys() == common | ({"reference_ms", "ratio"} if agent == "amped" else set())
            for row in sizes.values()
        )
    assert results["replay"].keys() == {"sample_ms", "add_us", "loop_sample_ms", "ratio"}
    assert all(row.keys() == {"fps", "ceiling_fps"} for row in results["loop"].values())
    assert {"amped", "ddpg"} <= results["cost"].keys() and results["cost"]["ddpg"]["over_ddpg"] == 1


def test_the_products_alone_do_the_flops_of_the_update():
    amped = cost.updater("amped", "preset=smoke")
    amped()
    products, operators = update.products_alone(amped)
    assert update.gflop(products) == pytest.approx(update.gflop(amped)) and operators > 100


def test_an_update_holds_no_more_than_three_pairwise_matrices_at_a_time():
    amped = cost.updater("amped", "preset=cpu")
    amped()  # optimisers get their state, gradients their place
    _, largest = update.allocations(amped)
    # Bytes; as many rows as hidden units, as at the paper's size.
    assert largest <= 3 * 4 * amped.learner.batch_size**2


def test_the_paper_size_update_stays_within_98_gflop():
    """Counted on `meta`, where nothing is computed. One whole backward pass per stream: 97.2."""
    objective, learner, memory = meta.build(composed("pretrain", "agent=amped", "preset=paper"))
    learner.batch_size = 1024
    assert update.gflop(lambda: learner.learn(memory, objective, 2)) <= 98


def test_the_loop_over_transitions_gives_the_same_batch():
    left, right = (replay.filled_memory(5000) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(left.sample(256), replay.loop_sample(right, 256)))


def test_actions_take_turns_whose_first_call_is_not_counted(monkeypatch):
    calls = []
    monkeypatch.setattr(cost, "now", lambda: len(calls))  # a clock on which every call takes 1
    times = cost.interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2, 3)
    assert "".join(calls) == 2 * "aaaabbbb"
    assert times == {"a": [1.0, 1.0], "b": [1.0, 1.0]}


def test_hours_of_pretraining_are_of_every_method_of_table_10_and_of_ddpgs_loop_too():
    assert hours.methods()[0] == "amped" and "ddpg" in hours.methods()
    found = hours.measure("smoke", "jaco", repeats=1, agents=["rnd", "ddpg"], steps=4)
    assert found.keys() == {"rnd", "ddpg"} and all(0 < each < 1000 for each in found.values())
    assert hours.place("ddpg", "jaco") == "task=jaco_reach_top_left"


def test_the_plain_update_on_pixels_is_ours():
    """The same weights after three updates, by other code and the same random numbers."""
    ours, other = (updater("ddpg", "preset=smoke", "obs_type=pixels") for _ in range(2))
    plain = pixels.Plain(other.learner, Streams(0, DEVICE))
    for _ in range(3):
        ours()
        plain.update(other.memory.sample(other.learner.batch_size))
    for net, theirs in (
        (ours.learner.encoder.convolutions, plain.convolutions),
        (ours.learner.actor, plain.actor),
        (ours.learner.critic, plain.critic),
        (ours.learner.target, plain.target),
    ):
        for a, b in zip(net.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_the_loop_over_frames_gives_the_batch_of_the_replay():
    memory = updater("ddpg", "preset=smoke", "obs_type=pixels").memory
    rows = memory.sample_rows(20)
    for a, b in zip(memory.gather(rows), pixels.loop_sample(memory, rows), strict=True):
        torch.testing.assert_close(a, b)


# --------------------------------------------------------------------------- two commands in turns

BUSY = """
import sys, time
while time.process_time() < 0.8:
    with open(sys.argv[1], "a") as log:
        log.write(f"{time.monotonic()} {sys.argv[2]}\\n")
    until = time.process_time() + 0.01
    while time.process_time() < until:
        pass
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_in_turns_only_one_command_runs_at_a_time_its_children_included(tmp_path):
    log = tmp_path / "log"
    inner = [sys.executable, "-S", "-c", BUSY, str(log)]
    sides = [
        turns.start(name, ["sh", "-c", f"{shlex.join([*inner, name])}; true"]) for name in "ab"
    ]
    turns.take_turns(sides, 0.2)
    assert [side.process.returncode for side in sides] == [0, 0]
    stamps = [line.split() for line in log.read_text().splitlines()]
    names = [name for _, name in sorted(stamps, key=lambda stamp: float(stamp[0]))]
    changes = sum(a != b for a, b in itertools.pairwise(names))
    # Side by side two of them would change at nearly every one of some 150 stamps.
    assert len(names) > 100 and 4 <= changes <= len(names) / 3
    assert all(side.seconds > 0.75 for side in sides)


def test_an_unknown_commit_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"^no-such-commit cannot be checked out: "):
        turns.compare("no-such-commit", 1.0, [])


def test_the_selectors_update_is_measured_beside_ddpgs():
    found = selector.measure(1, "smoke", compiled=False)
    assert found.keys() == {"ddpg", "selector"}
    assert all(row["ms"] > 0 for row in found.values())
    assert "selector" in selector.table(found)
