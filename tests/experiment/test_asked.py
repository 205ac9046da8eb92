"""What an experiment asks, in its yaml: the methods that it names exist, and what is no question is refused."""

import pytest

from experiment.asked import Asked, asked, check
from experiment.definition import load, names, read
from utils import UserError

METHODS = ("scratch", "amped", "cic")
NOT_VALID = [
    {"against": "scratch"},
    {"against": [1]},
    {"questions": ["amped", "cic"]},
    {"questions": {"Is it?": ["amped"]}},
    {"questions": {"Is it?": ["amped", "cic", "scratch"]}},
    {"questions": {"Is it?": "amped"}},
    {"questions": {1: ["amped", "cic"]}},
]


def test_a_figure_that_asks_nothing_is_held_against_nothing_named():
    assert asked({"kind": "scores"}) == Asked([], {})


def test_what_is_asked_is_read_as_it_stands():
    figure = {"against": ["scratch"], "questions": {"Is AMPED ahead?": ["amped", "cic"]}}
    assert asked(figure) == Asked(["scratch"], {"Is AMPED ahead?": ["amped", "cic"]})
    check(figure, METHODS)


@pytest.mark.parametrize("figure", NOT_VALID)
def test_what_is_no_question_is_refused_in_one_line(figure):
    (key,) = figure
    with pytest.raises(UserError, match=rf"^figure\.{key}=.* is not valid: .*$"):
        check(figure, METHODS)


@pytest.mark.parametrize(
    "figure", [{"against": ["scrtach"]}, {"questions": {"Is it?": ["amped", "scrtach"]}}]
)
def test_a_method_that_does_not_exist_is_named_with_those_that_do(figure):
    (key,) = figure
    with pytest.raises(UserError, match=rf"^figure\.{key}=scrtach .* scratch, amped, cic"):
        check(figure, METHODS)


def test_the_questions_of_every_experiment_are_about_its_own_methods(tmp_path):
    having = [name for name in names() if "questions" in read(name)["figure"]]
    assert {"urlb_laptop", "adapt_parts"} <= set(having)
    for name in having:
        load([f"experiment={name}", "seed=1", f"run_root={tmp_path}"])


def test_a_word_of_the_command_asks_something_else(tmp_path):
    words = ["experiment=adapt_parts", f"run_root={tmp_path}", "figure.against=[selector]"]
    assert asked(load(words).figure).against == ["selector"]
    with pytest.raises(UserError, match=r"^figure\.against=nobody "):
        load([*words[:2], "figure.against=[nobody]"])
