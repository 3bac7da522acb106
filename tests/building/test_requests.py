"""Requests that share a child: it is as if each had its own."""

from __future__ import annotations

import os
import signal

import pytest

from passlab.building import requests
from passlab.mlir.run import why_not_parsed

GOOD = """func.func @main(%x: tensor<{}xf32>) -> tensor<{}xf32> {{
  %y = math.exp %x : tensor<{}xf32>
  return %y : tensor<{}xf32>
}}"""


@pytest.fixture
def children(monkeypatch):
    """The children that requests have started, beginning with a new question."""
    requests.allow(60)
    children, request = [], requests.request

    def count(*arguments):
        child, reply = request(*arguments)
        children.append(child)
        return child, reply

    monkeypatch.setattr(requests, "request", count)
    yield children
    requests.allow(float("inf"))


def good(size: int) -> str:
    return GOOD.format(*[size] * 4)


def test_what_succeeds_shares_a_child_until_the_next_question(children):
    assert [why_not_parsed(good(size)) for size in (11, 12, 13)] == ["", "", ""]
    assert len(children) == 1
    requests.allow(60)
    assert why_not_parsed(good(14)) == ""
    assert len(children) == 2


def test_what_fails_is_answered_by_a_fresh_child(children):
    alone = why_not_parsed(good(21).replace("math.exp", "math.no"))
    assert "math.no" in alone and len(children) == 1
    assert why_not_parsed(good(21)) == ""
    assert why_not_parsed(good(21).replace("math.exp", "math.no")) == alone
    assert len(children) == 3
    assert why_not_parsed(good(22)) == "" and len(children) == 4


def test_a_child_that_ended_costs_no_other_request(children):
    assert why_not_parsed(good(31)) == ""
    helper = requests.helper("mlir").pid
    with open(f"/proc/{helper}/task/{helper}/children") as file:
        (pid,) = map(int, file.read().split())
    os.kill(pid, signal.SIGSEGV)
    assert why_not_parsed(good(32)) == "" and len(children) == 2


def test_each_request_pays_for_itself(children):
    requests.allow(0.0)
    lines = (f"  %y{number} = math.exp %x : tensor<41xf32>\n" for number in range(10_000))  # longer than the first look
    assert "after 0 s" in why_not_parsed(good(41).replace("  return", "".join(lines) + "  return"))
    requests.allow(60)
    assert why_not_parsed(good(42)) == ""
    requests.allow(60)
    assert why_not_parsed(good(43)) == ""
