"""kill -9 inside an evaluation and inside the writing of a snapshot; the soak does this fifty
times."""

import random

from tests.faults.kills import SMALL, Aim, Job, fly
from tests.faults.same import compare

RUN = Job(
    "pre-training", "pretrain", ("snapshots=[60,80,100]",), "pretrain/walker/amped/soak/seed_1", 120
)


def test_a_run_that_is_killed_while_it_evaluates_and_while_it_saves_ends_with_the_same_bits(
    cli, tmp_path
):
    assert cli("pretrain", *SMALL, *RUN.args, "variant=soak").code == 0
    flight = fly(
        RUN,
        tmp_path / "killed",
        tmp_path,
        [Aim(40, "evaluation"), Aim(60, "snapshot")],
        random.Random(0),
    )
    compared = compare(cli.root / RUN.where, tmp_path / "killed" / RUN.where)
    assert not flight.error and not compared.differences
    assert flight.kills and all(kill.trained for kill in flight.kills)
    assert compared.frames == 120 and compared.numbers > 10_000
