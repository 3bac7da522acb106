"""The greedy driver visit by visit: what `rewrite` does, the worklist, and what a page shows."""

from __future__ import annotations

from itertools import pairwise

import pytest
from playwright.sync_api import expect, sync_playwright
from xdsl.dialects import arith
from xdsl.pattern_rewriter import RewritePattern

from autograder.toys.browser import QUIET, chromium
from passlab.drawing.stepping import STATES
from passlab.mlir import parse, text
from passlab.mlir.rewriting import again, constant, number, rewrite
from passlab.mlir.stepping import rewrite_steps

SUM = """func.func @main(%x: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %two = arith.constant 2 : i32
  %sum = arith.addi %x, %zero : i32
  %y = arith.muli %sum, %two : i32
  return %y : i32
}"""


class AddZero(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.addi" and number(op.rhs) == 0:
            rewriter.replace(op, [], [op.lhs])


class Shift(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.muli" and number(op.rhs) == 2:
            one = constant(1, op.rhs.type)
            rewriter.replace(op, [one, arith.ShLIOp(op.lhs, one.result)])


class Swap(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.muli":
            rewriter.replace(op, again(op, op.rhs, op.lhs))


class Broken(RewritePattern):
    def match_and_rewrite(self, op, rewriter):
        raise KeyError("no such operand")


def test_the_steps_are_those_of_rewrite_and_the_module_stays():
    module = parse(SUM)
    before = text(module)
    steps = rewrite_steps(module, [AddZero(), Shift()])
    assert text(module) == before
    counts = rewrite(module, [AddZero(), Shift()])
    rewrites = [visit.done for visit in steps.visits if visit.done.endswith("rewrites it")]
    assert rewrites == ["Shift rewrites it", "AddZero rewrites it"] and counts == {"Shift": 1, "AddZero": 1}
    assert [row for _, row in steps.visits[-1].lines] == str(module).splitlines()


def test_an_operation_is_visited_in_its_turn_and_again_when_what_it_reads_is_new():
    visits = rewrite_steps(parse(SUM), [AddZero(), Shift()]).visits
    for visit, following in pairwise(visits):
        if visit.waiting:
            assert following.operation == visit.waiting[0]
    operations = [visit.operation for visit in visits]
    assert operations.index("func.return %y : i32") < operations.index("%y = arith.muli %sum, %two : i32")
    shift = next(visit for visit in visits if visit.done == "Shift rewrites it")
    assert {"new", "gone"} == {"new" if sign == "+" else "gone" for sign, _ in shift.lines if sign != " "}
    assert "arith.shli" in shift.waiting[1] and shift.waiting[0].startswith("func.return")
    erased = [visit.operation for visit in visits if visit.done == "nothing reads it, so it is erased"]
    assert sorted(erased) == ["%two = arith.constant 2 : i32", "%zero = arith.constant 0 : i32"]


def test_patterns_without_end_are_shown_as_far_as_a_screen_goes():
    steps = rewrite_steps(parse(SUM), [Swap()])
    assert len(steps.visits) == STATES
    assert "Swap matches what it has made itself, without end" in steps.note and f"first {STATES} of" in steps.note
    assert steps.note in steps.plain


def test_what_a_pattern_raises_is_raised():
    with pytest.raises(KeyError, match="no such operand"):
        rewrite_steps(parse(SUM), [Broken()])
    with pytest.raises(TypeError, match=r"write AddZero\(\)"):
        rewrite_steps(parse(SUM), [AddZero])


def test_a_page_shows_one_visit_and_its_worklist_by_keys():
    steps = rewrite_steps(parse(SUM), [AddZero(), Shift()], "Sums & shifts")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page()
        page.set_content(f"<!doctype html>{steps.html}")
        expect(page.get_by_text("Sums & shifts")).to_be_visible()
        expect(page.locator(".at:visible")).to_have_count(1)
        page.get_by_role("radio").first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("radio", checked=True).get_attribute("aria-label").endswith("Shift rewrites it")
        shown = page.locator(".at:visible")
        expect(shown.locator(".gone")).to_have_count(2)
        expect(shown.locator("pre").last).to_contain_text("1. func.return %y_1 : i32")
        browser.close()
