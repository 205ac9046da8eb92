"""mypy finds nothing in the rooms that are typed, and in the others no more than it did."""

import re
import subprocess
import sys
from collections import Counter

import pytest

from utils import ROOT

TYPED = ("agent", "run", "envs", "experiment", "records.py", "replay_buffer.py", "utils.py")
OTHERS = ("analysis", "benchmarks", "sweep.py", "pretrain.py", "finetune.py")
MOST = 60  # errors of the others; this number may only fall


def test_typed_rooms_have_no_type_error_and_the_others_no_more_than_they_had():
    """One call for both, because mypy reads all of them together. It keeps what it has learned in
    .mypy_cache, so that the first time is the longest."""
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", *TYPED, *OTHERS],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 2: mypy itself failed
    errors = [line for line in done.stdout.splitlines() if re.search(r":\d+: error: ", line)]
    typed = [line for line in errors if line.split(":")[0].split("/")[0] in TYPED]
    assert not typed, "\n".join(typed)
    by_file = Counter(line.split(":")[0] for line in errors)
    assert len(errors) <= MOST, f"{len(errors)} errors, at most {MOST} are allowed: {by_file}"
