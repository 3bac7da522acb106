"""Where every order of passes leaves more than there has to be, saturation does not."""

from __future__ import annotations

import importlib.util

import pytest

from autograder.bench import egraph, in_egglog, phases
from passlab import models, trace
from passlab.egraph import Law


@pytest.mark.parametrize("name", phases.EXAMPLES)
def test_saturation_leaves_less_than_every_order_of_passes(name):
    module, inputs = phases.EXAMPLES[name]
    least = phases.saturated(trace(module, *inputs)).optimum
    assert least < phases.best_order(trace(module, *inputs))


@pytest.mark.parametrize("name", ["mlp", "residual"])
def test_on_models_it_leaves_no_more(name):
    row = models.ZOO[name]
    gm = trace(row.build(), *row.inputs(1))
    assert phases.saturated(gm).optimum <= phases.best_order(gm)


def test_an_analysis_keeps_a_graph_small():
    # eight numbers, seven of which are products; x, and x · 510510 in both orders
    assert phases.scaled(phases.Numbers()) == 7 + 6 + 1 + 2
    assert phases.scaled(None) == 3**8 - 2**9 + 1 + 8
    assert phases.sums(5) == 3**5 - 2**6 + 1 + 5  # a class for each subset, and each way to split it in two


def test_a_program_in_the_language_of_egglog():
    double = Law("x · 2 = x + x", ("mul", "?x", ("2",)), ("add", "?x", "?x"), both=True)
    assert in_egglog.program(("mul", ("a",), ("2",)), [double], 3).splitlines() == [
        "(datatype T (leaf String :cost 0) (add_of T T) (mul_of T T))",
        '(birewrite (mul_of x (leaf "2")) (add_of x x))',
        '(let $root (mul_of (leaf "a") (leaf "2")))',
        "(run 3)",
        "(print-size)",
        "(extract $root)",
    ]


@pytest.mark.skipif(importlib.util.find_spec("egglog") is None, reason="egglog is not installed")
def test_egglog_makes_the_same_e_nodes():
    problem = phases.sum_of(5), phases.orders("add"), 30
    assert in_egglog.egglog(*problem) == in_egglog.ours(*problem)


def test_without_egglog_the_figure_says_so(monkeypatch):
    monkeypatch.setattr(egraph.importlib.util, "find_spec", lambda name: None)
    (figure,) = egraph.peer()
    assert figure.seen == "not measured: egglog is not installed: pip install egglog==13.2.0"
