"""The public code beside ours, on a stand-in checkout that has its names and formulas."""

import shutil
import sys

import pytest

import agent.amped
import utils
from analysis.parity import __main__ as parity
from analysis.parity.foreign import load
from utils import ROOT, UserError

CHECKOUT = ROOT / "tests/kit/checkout"


@pytest.fixture
def changed(tmp_path):
    """changed(file, old, new): a copy of the stand-in with one piece of text replaced."""

    def make(file, old, new):
        root = tmp_path / "checkout"
        shutil.copytree(CHECKOUT, root)
        text = (root / file).read_text()
        assert text.count(old) == 1
        (root / file).write_text(text.replace(old, new))
        return root

    return make


def test_every_quantity_equals_that_of_the_public_formulas(run_main):
    done = run_main(parity.main, str(CHECKOUT))
    assert done.code == 0, done.out + done.err
    lines = done.out.splitlines()
    assert lines[0] == "not installed here, made up in memory: not_installed_anywhere"
    rows = [line.split(" | ") for line in lines[3:]]
    assert len(rows) == 10 and all(row[-1] == "equal |" for row in rows)
    assert all(float(row[2]) < 1e-14 for row in rows if "10 updates" not in row[0])
    for word in ("AnInfoNCE", "CPC", "kNN", "RND", "targets", "actor", "selector", "all weights"):
        assert any(word in row[0] for row in rows)
    assert sum("critic: gradient" in row[0] for row in rows) == 2  # one per coin


def test_a_checkout_that_computes_something_else_is_told_where(changed):
    root = changed("agent/amped.py", "variance.sqrt() + 1e-8", "variance + 1e-8")
    found, _ = parity.lines(root)
    wrong = [line.what for line in found if line.difference > parity.TOLERANCE]
    assert [what.partition(" ")[0] for what in wrong] == ["RND", "all"]


def test_what_a_checkout_lacks_is_named_and_the_rest_is_compared(changed, run_main):
    root = changed("agent/amped.py", "def compute_cpc_loss", "def compute_cpc")
    done = run_main(parity.main, str(root))
    assert done.code == 1
    assert "not compared: AttributeError: 'AmpedAgent' object has no attribute" in done.out
    assert done.out.count("| equal |") == 8  # all but the loss, and the updates that need it


def test_layers_of_another_shape_and_a_missing_file_are_one_line(changed, run_main, tmp_path):
    root = changed(
        "agent/ddpg.py", "utils.dense(hidden, hidden, actions)", "utils.dense(hidden, actions)"
    )
    done = run_main(parity.main, str(root))
    assert done.code == 2 and "actor of the checkout has other layers" in done.err
    done = run_main(parity.main, str(tmp_path))
    assert done.code == 2 and done.err.count("\n") == 1 and "has no utils.py" in done.err


def test_our_own_modules_are_back_after_theirs_were_loaded():
    before = dict(sys.modules)
    modules, _ = load(CHECKOUT, "utils", "agent.amped")
    assert modules["utils"].__file__ == str(CHECKOUT / "utils.py")
    assert sys.modules["utils"] is utils and sys.modules["agent.amped"] is agent.amped
    assert "not_installed_anywhere" not in sys.modules and str(CHECKOUT) not in sys.path
    assert {name for name in sys.modules if name.startswith("agent")} == {
        name for name in before if name.startswith("agent")
    }
    with pytest.raises(UserError, match=r"has no agent/nothing\.py"):
        load(CHECKOUT, "agent.nothing")
