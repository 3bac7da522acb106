"""Seeds of programs: the numbers in a case are those of its seed, whichever function was seeded first."""

import operator

import torch

from passlab.fx.cases import graph, parameters, seeded


def weight(build):
    return build().w


def test_a_graph_has_the_same_weights_at_every_call():
    build = graph(lambda m, x: x @ m.w, (2, 3), w=(3, 4))
    assert torch.equal(weight(build), weight(build))


def test_a_seed_reaches_the_weights_of_a_graph():
    build = graph(lambda m, x: x @ m.w, (2, 3), w=(3, 4))
    first, second = seeded(build, 1), seeded(build, 2)
    assert torch.equal(weight(first), weight(first))
    assert not torch.equal(weight(first), weight(second))
    assert not torch.equal(weight(first), weight(build))


def test_the_last_seed_counts():
    assert torch.equal(seeded(seeded(lambda: torch.randn(4), 1), 2)(), seeded(lambda: torch.randn(4), 2)())


def test_the_random_state_of_the_caller_stays():
    before = torch.random.get_rng_state()
    seeded(lambda: torch.randn(4), 3)()
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_copy_of_a_weight_counts_whether_it_is_a_parameter_or_a_buffer():
    gm = graph(lambda m, x: x @ m.w + x @ m.w, (2, 3), w=(3, 4))()
    assert parameters(gm) == 12
    gm.register_buffer("copy", gm.w.detach().clone())
    (_, last) = gm.graph.find_nodes(op="call_function", target=operator.matmul)
    with gm.graph.inserting_before(last):
        last.args = (last.args[0], gm.graph.get_attr("copy"))
    assert parameters(gm) == 24
