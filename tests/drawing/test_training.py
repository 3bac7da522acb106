"""The picture of a joint graph and its cut."""

import re

import pytest
import torch
from torch import fx

from passlab.autodiff import joint, partition
from passlab.capture import lower
from passlab.drawing import joint_graph
from passlab.drawing.training import LIMIT


def halves(n=1):
    def f(x, w):
        h = (x @ w).sin()
        for _ in range(n):
            h = (h * h).exp() + h.tanh()
        return h.sum()

    return partition(joint(lower(f, torch.randn(3, 4), torch.randn(4, 5)).forward), num_fwd_outputs=1)


def boxes(dot):
    """Return box → its label as plain text."""
    matches = re.findall(r"^(n\d+) \[label=<(.*?)> color=", dot, re.MULTILINE)
    return {name: re.sub(r"<[^>]*>", " ", label) for name, label in matches}


def test_what_is_saved_is_on_the_line_and_what_is_computed_again_below_it():
    forward, backward = halves()
    picture = joint_graph(forward, backward, "A step")
    assert "3 saved, 188 B; 4 computed once more" in picture.text
    assert re.findall(r"^▸ (\w+)", picture.text, re.MULTILINE) == ["mm", "t", "t_1"]
    assert {*re.findall(r"^↻ (\w+)", picture.text, re.MULTILINE)} == {"sin", "mul", "exp", "tanh"}
    labels = boxes(picture.dot)
    line = re.search(r"rank=same; (.*?) }", picture.dot)[1].split("; ")
    assert {labels[name].split()[0] for name in line} == {"t", "mm", "t_1"}
    assert picture.dot.count("filled,dashed") == 4 and picture.svg


def test_every_edge_across_is_through_the_line():
    forward, backward = halves()
    dot = joint_graph(forward, backward).dot
    labels = boxes(dot)
    order = list(labels)
    line = set(re.search(r"rank=same; (.*?) }", dot)[1].split("; "))
    first, last = (order.index(name) for name in (min(line, key=order.index), max(line, key=order.index)))
    edges = [
        (a, c) for a, c, look in re.findall(r"^(n\d+) -> (n\d+) \[(.*)\]", dot, re.MULTILINE) if "invis" not in look
    ]
    for a, c in edges:
        assert not (order.index(a) < first and order.index(c) > last), (labels[a], labels[c])


def test_a_large_graph_is_text():
    forward, backward = halves(12)
    picture = joint_graph(forward, backward)
    assert f"at most {LIMIT}" in picture.note and "▸ mm" in picture.text and picture.dot == "digraph { }"


def test_graphs_without_a_cut_are_refused():
    with pytest.raises(ValueError, match="takes no value of the forward graph"):
        joint_graph(fx.symbolic_trace(lambda x: x.sin()), fx.symbolic_trace(lambda y: y.cos()))
