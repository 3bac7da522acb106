"""Where every order of passes leaves more than there has to be, saturation does not."""

from __future__ import annotations

import pytest

from autograder.bench import phases
from passlab import models, trace


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
