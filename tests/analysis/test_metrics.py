"""Metrics are told where they are made, and the page is what the docstrings say."""

from agent.comsd import ComSD
from analysis import metrics
from utils import ROOT


def test_the_page_holds_what_the_docstrings_say():
    text = (ROOT / "docs/metrics.md").read_text()
    held = text.split(metrics.BEGIN)[1].split(metrics.END)[0]
    assert held.strip() == metrics.page().strip(), (
        "python -m analysis.metrics prints what it must hold"
    )


def test_a_class_has_the_metrics_of_those_that_it_extends():
    found = metrics.metrics_of(ComSD)
    assert {"cpc/loss", "exploration/entropy", "diversity/similarity"} <= set(found)
    assert found["cpc/accuracy"].endswith("Healthy: 0.33 to 0.63.")  # its own, not CIC's


def test_every_class_that_an_agent_names_tells_its_metrics():
    for table in metrics.tables().values():
        for kind in table:
            assert metrics.metrics_of(kind), kind


def test_the_command_prints_the_page(run_main):
    assert run_main(metrics.main).out == metrics.page()
