"""Which nodes of the first graph a node stands for."""

from passlab.drawing.difference import match
from passlab.explorer.origins import origins
from passlab.graph import Graph, Node


def graph(*nodes: tuple) -> Graph:
    """Return a graph of (id, op, ids of inputs …); the last node returns."""
    made = tuple(Node(id, op, "compute" if inputs else "data", tuple(inputs)) for id, op, *inputs in nodes)
    return Graph("g", "test", made, (made[-1].id,))


def whence(old: Graph, new: Graph) -> dict[str, set[str]]:
    found = origins(old, new, match(old, new), {node.id: (node.id,) for node in old})
    return {id: set(of) for id, of in found.items()}


def test_what_is_read_instead_of_a_removed_node_stands_for_it_too():
    old = graph(
        ("x", "in"), ("conv", "conv", "x"), ("bn", "bn", "conv"), ("relu", "relu", "bn"), ("out", "out", "relu")
    )
    new = graph(("x", "in"), ("conv", "conv", "x"), ("relu", "relu", "conv"), ("out", "out", "relu"))
    assert whence(old, new) == {"x": {"x"}, "conv": {"conv", "bn"}, "relu": {"relu"}, "out": {"out"}}


def test_of_equal_nodes_the_one_that_stays_stands_for_both():
    old = graph(("x", "in"), ("a", "exp", "x"), ("b", "exp", "x"), ("sum", "add", "a", "b"), ("out", "out", "sum"))
    new = graph(("x", "in"), ("a", "exp", "x"), ("sum", "add", "a"), ("out", "out", "sum"))
    assert whence(old, new)["a"] == {"a", "b"}


def test_a_fused_node_stands_for_all_of_its_parts():
    old = graph(("x", "in"), ("a", "mul", "x"), ("b", "add", "a", "x"), ("c", "relu", "b"), ("out", "out", "c"))
    new = graph(("x", "in"), ("f", "fused", "x"), ("out", "out", "f"))
    assert whence(old, new)["f"] == {"a", "b", "c"}


def test_nodes_replaced_one_by_one_stand_for_one_each():
    old = graph(("x", "in"), ("a", "mul", "x"), ("b", "add", "a"), ("c", "relu", "b"), ("out", "out", "c"))
    new = graph(("x", "in"), ("d", "k.mul", "x"), ("e", "k.add", "d"), ("f", "k.relu", "e"), ("out", "out", "f"))
    assert whence(old, new) == {"x": {"x"}, "d": {"a"}, "e": {"b"}, "f": {"c"}, "out": {"out"}}


def test_the_parts_of_an_expansion_stand_for_what_was_expanded():
    old = graph(("x", "in"), ("g", "gelu", "x"), ("out", "out", "g"))
    new = graph(("x", "in"), ("a", "erf", "x"), ("b", "add", "a"), ("c", "mul", "b", "x"), ("out", "out", "c"))
    assert whence(old, new) == {"x": {"x"}, "a": {"g"}, "b": {"g"}, "c": {"g"}, "out": {"out"}}


def test_dead_code_leaves_no_trace():
    old = graph(("x", "in"), ("dead", "exp", "x"), ("live", "relu", "x"), ("out", "out", "live"))
    new = graph(("x", "in"), ("live", "relu", "x"), ("out", "out", "live"))
    assert "dead" not in set().union(*whence(old, new).values())


def test_two_operands_that_change_sides_are_told_apart():
    old = graph(
        *(("x", "in"), ("p", "conv", "x"), ("q", "pool", "x"), ("bp", "bn", "p"), ("bq", "bn", "q")),
        *(("sum", "add", "bp", "bq"), ("out", "out", "sum")),
    )
    new = graph(("x", "in"), ("p", "conv", "x"), ("q", "pool", "x"), ("sum", "add", "p", "q"), ("out", "out", "sum"))
    found = whence(old, new)
    assert found["p"] == {"p", "bp"} and found["q"] == {"q", "bq"}
