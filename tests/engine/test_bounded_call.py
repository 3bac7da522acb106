"""Parsing aside: within limits, one text after the other."""

from __future__ import annotations

from autograder.engine import bounded_call, outputs

PLAN = "autograder.grading.idle:plan"
CELLS = [(0, "import torch"), (3, "print(cse)"), (5, "cse")]


def test_a_function_is_called_and_what_it_raises_is_none():
    assert bounded_call.call(PLAN, CELLS, [3], [3], [5]) == [[3], []]
    assert bounded_call.call(PLAN, "no cells") is None
    assert bounded_call.call("os:getpid") != __import__("os").getpid()


def test_a_text_that_takes_too_long_or_too_much_costs_only_itself():
    assert bounded_call.call(PLAN, [*CELLS, (7, "a?\n" * 20_000)], [3], [3], [5]) is None
    assert bounded_call.call("builtins:bytes", 2 * bounded_call.MEMORY) is None
    assert bounded_call.call("os:_exit", 1) is None
    assert bounded_call.call(PLAN, CELLS, [3], [3], [5]) == [[3], []]


def _shown(*texts, left=outputs.MOST_STORED):
    raw = {"outputs": [{"output_type": "stream", "name": "stdout", "text": text} for text in texts], "error": "E: x"}
    return outputs.ran(raw, left)


def test_outputs_are_kept_up_to_a_limit_for_the_cell_and_for_the_notebook():
    most = outputs.MOST_STORED
    assert [len(one["text"]) for one in _shown("a" * (most // 2), "b").outputs] == [most // 2, 1]
    cut = _shown("a" * (most // 2), "b" * most, "c")
    assert [one["text"][:1] for one in cut.outputs] == ["a", "…"] and cut.error == "E: x"
    assert [one["text"][:1] for one in _shown("a" * 200, left=100).outputs] == ["…"]
    assert outputs.size(_shown(*"abc", left=-1).outputs) < 200
