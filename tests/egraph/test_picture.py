"""The drawing of an e-graph: a frame for each class, a box for each e-node, an arrow for each operand."""

from __future__ import annotations

import re

from passlab.egraph import EGraph, draw_classes


def shared():
    graph = EGraph()
    a, b = graph.add("a"), graph.add("b")
    root = graph.add("mul", graph.add("add", a, b), a)
    graph.union(a, b)
    graph.rebuild()
    return graph, root


def test_every_class_and_operand_is_drawn_once():
    graph, root = shared()
    picture = draw_classes(graph, {root: "root"}, "Shared")
    assert len(re.findall(r"subgraph cluster_", picture.dot)) == 3  # {a, b}, {add}, {mul}
    assert len(re.findall(r"e\d+ \[label=<<table", picture.dot)) == 4
    arrows = re.findall(r"(e\d+):p(\d):s -> ", picture.dot)
    assert len(arrows) == len(set(arrows)) == 4
    assert picture.text.count("|") == 1 and f"{root}, root: mul(" in picture.text
    assert picture.svg.count("root") >= 1


def test_an_operand_in_its_own_class_is_drawn():
    graph = EGraph()
    a = graph.add("a")
    root = graph.add("times one", a)
    graph.union(a, root)
    graph.rebuild()
    assert "e1:p0:s -> e0\n" in draw_classes(graph).dot + "\n"
    assert draw_classes(graph).svg


def test_a_large_graph_is_text():
    graph = EGraph()
    for number in range(200):
        graph.add(f"v{number}")
    picture = draw_classes(graph)
    assert "too many" in picture.note and "e0 [" not in picture.dot and "v199" in picture.text


def test_names_are_escaped_once():
    graph = EGraph()
    dot = draw_classes(graph, {graph.add("a < b"): "x << y"}, "1 & 2").dot
    assert all(text in dot for text in ("a &lt; b", "x &lt;&lt; y", "1 &amp; 2")) and "&amp;lt;" not in dot
