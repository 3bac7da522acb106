"""Day 9, exercises 5 to 7: sentences for broken answers, plans carried out, cases that hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest

from autograder.answers.day09 import reuse as plans
from autograder.authoring.answers import hidden_cases
from passlab import exercises
from passlab.exercises.day09.dialect import PERCEPTRON, STEEP
from passlab.exercises.day09.reuse import SWAPPED, lives, may_be
from passlab.mlir import parse
from passlab.mlir.run import run
from tests.support.judged import lost

# ------------------------------------------------------------------------------------------------------------ reuse


@pytest.mark.parametrize(
    ("value", "name", "verdict", "sentence"),
    [
        ({"a": 0, "b": 1}, "a chain", "valid", "%c has no slot."),
        ({"a": 0, "b": 1, "c": True}, "a chain", "valid", "The slot of %c is True"),
        ({"a": 0, "b": 1, "c": -1}, "a chain", "valid", "The slot of %c is -1"),
        ({"a": 0, "b": 1, "c": 0, "x": 2}, "a chain", "valid", "'x' is not the name of a buffer"),
        ({"a": 0, "b": 0, "c": 1}, "a chain", "same", "%a and %b share slot 0, but in line 10 both are needed."),
        ({"a": 0, "b": 1, "c": 2}, "a chain", "did", "You use 3 slots; 2 are enough."),
        ({"a": 0, "b": 0, "c": 1}, "a view", "spared", "%a and %b share slot 0, but %a is still needed in line 11: it"),
        ({"a": 0, "b": 0, "c": 1, "d": 1}, "a loop", "spared", "%a and %b share slot 0, but %a is still needed in l"),
        ({"a": 0, "b": 1, "c": 0, "d": 1}, "a loop", "spared", "%a and %c share slot 0, but %a is still needed in"),
        ({"a": 0, "b": 1, "c": 1}, "buffers that change places", "spared", "%b and %c share slot 1, but %b is still"),
        ({"a": 0, "b": 0}, "a buffer that is returned", "spared", "%a and %b share slot 0, but %a is still needed in "),
        ({"a": 7, "b": 3, "c": 7}, "a chain", None, ""),
    ],
)
def test_what_is_told_of_a_plan(value, name, verdict, sentence):
    message = lost("day09.reuse", lambda module: value, name)
    assert message is None if verdict is None else (message[0], message[1][: len(sentence)]) == (verdict, sentence)


def test_a_loop_that_exchanges_buffers_gives_each_name_both():
    module = parse(SWAPPED)
    names = may_be(module)
    (loop,) = [op for op in module.walk() if op.name == "scf.for"]
    for value in (*loop.body.block.args[1:], *loop.results):
        assert {buffer.name_hint for buffer in names[value]} == {"a", "b"}
    assert {name: life.end for name, life in lives(module).items()} == {"a": 17, "b": 17, "c": 18}


class _Memory:
    """What a program reads if its buffers lie in slots: a content is a hash of what it was computed from."""

    def __init__(self, module, slot, flag, turns):
        self.slot, self.flag, self.turns, self.fresh = slot, flag, turns, 0
        self.holds, self.read = {}, []
        self.function = next(iter(module.ops))
        block = self.function.body.block
        self.is_ = {argument: (f"given {argument.index}", True) for argument in block.args}
        self.end = self.block(block)

    def block(self, block):
        """Run a block; return what its terminator is given: places, each with whether it is the whole buffer."""
        for op in block.ops:
            if op.name in ("func.return", "scf.yield"):
                return [self.is_.get(value) for value in op.operands]
            if op.name == "memref.alloc":
                self.fresh += 1
                name = op.results[0].name_hint
                place = ("slot", self.slot[name]) if self.slot else ("own", self.fresh)
                self.is_[op.results[0]] = place, True
            elif op.name == "memref.subview":
                self.is_[op.results[0]] = self.is_[op.operands[0]][0], False
            elif op.name == "memref.cast":
                self.is_[op.results[0]] = self.is_[op.operands[0]]
            elif op.name == "arith.select":
                self.is_[op.results[0]] = self.is_[op.operands[1 if self.flag else 2]]
            elif op.name == "scf.for":
                passed = [self.is_[value] for value in op.operands[3:]]
                inner = op.regions[0].block
                for _ in range(self.turns):
                    self.is_ |= dict(zip(inner.args[1:], passed, strict=True))
                    passed = self.block(inner)
                self.is_ |= dict(zip(op.results, passed, strict=True))
            elif op.name.startswith(("linalg.", "memref.")):
                *ins, (target, whole) = [self.is_[value] for value in op.operands if value in self.is_]
                result = tuple(self.holds.get(place, place) for place, _ in ins)
                old = None if whole else self.holds.get(target)
                self.holds[target] = hash((op.name, result, old))
                self.read.append((op.name, result))
        return []


def same_reads(module, slot, flag, turns):
    """Return whether a program reads the same in slots as in buffers of their own, and returns the same."""
    seen = []
    for plan in (slot, None):
        memory = _Memory(module, plan, flag, turns)
        seen.append((memory.read, [memory.holds.get(one[0]) for one in memory.end if one]))
    return seen[0] == seen[1]


@pytest.mark.parametrize("seed", range(3))
def test_plans_that_the_judge_accepts_change_nothing(seed):
    for case in hidden_cases("day09.reuse", seed):
        module = parse(*case.build())
        slot = plans.pools(module)
        for flag, turns in ((True, 1), (True, 4), (False, 3)):
            assert same_reads(module, slot, flag, turns), case.name


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("a view", {"a": 0, "b": 0, "c": 1}),
        ("a loop", {"a": 0, "b": 1, "c": 0, "d": 1}),
        ("buffers that change places", {"a": 0, "b": 1, "c": 1}),
        ("a buffer that is returned", {"a": 0, "b": 0}),
    ],
)
def test_plans_that_the_judge_refuses_do(name, slot):
    (case,) = [case for case in exercises.find("day09.reuse").cases() if case.name == name]
    module = parse(*case.build())
    assert not all(same_reads(module, slot, True, turns) for turns in (3, 4))


# ------------------------------------------------------------------------------------------------------------ loops


def test_what_numpy_says_is_what_linalg_computes():
    for case in [*exercises.find("day09.loops").cases(), *hidden_cases("day09.loops", 1)]:
        (text,) = case.build()
        arguments = case.inputs()
        expected = [
            want for want, one in zip(case.expect(*arguments), arguments, strict=True) if not isinstance(one, float)
        ]
        result = run(parse(text), *arguments, by="c")
        assert len(result) == len(expected), case.name
        for want, have in zip(expected, result, strict=True):
            assert np.allclose(want, have, rtol=1e-4, atol=1e-4), case.name


def test_what_is_told_of_loops():
    message = lost("day09.loops", lambda module: module, "a product")
    assert message == ("did", "linalg.generic is left.")
    assert lost("day09.loops", lambda module: str(module), "a product")[1] == "Return the module; got str."
    empty = lost("day09.loops", lambda module: parse("func.func @main() { return }"), "a product")
    assert empty == ("same", "It does not run: @main takes 0 arguments; got 3.")


LOOPS = """func.func @main(%a: memref<4x5xi64>) {{
  %c0 = arith.constant {c0} : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant {rows} : index
  %c5 = arith.constant 5 : index
  scf.for %i = %c0 to %c4 step %c1 {{
    scf.for %j = %c0 to %c5 step %c1 {{
      %k = arith.subi {difference} : index
      %n = arith.index_cast %k : index to i64
      memref.store %n, %a[%i, %j] : memref<4x5xi64>
      {more}
    }}
  }}
  return
}}"""


@pytest.mark.parametrize(
    ("changes", "verdict", "sentence"),
    [
        ({}, None, ""),
        ({"c0": 1}, "same", "Buffer 0: element [0, "),
        ({"difference": "%i, %j"}, "same", "Buffer 0: element [0, 1] is -1, and must be 1."),
        ({"rows": 3}, "same", "Buffer 0: element [3, "),
        ({"rows": 5}, "same", "It does not run: "),
        (
            {"more": "%v = memref.load %a[%i, %j] : memref<4x5xi64>"},
            "cost",
            "The module has 1 memref.load; 0 are enough.",
        ),
        ({"more": "memref.store %n, %a[%i, %j] : memref<4x5xi64>"}, "cost", "The module has 2 memref.stores"),
    ],
)
def test_what_is_told_of_loops_that_run(changes, verdict, sentence):
    text = LOOPS.format(**{"c0": 0, "rows": 4, "difference": "%j, %i", "more": ""} | changes)
    message = lost("day09.loops", lambda module: parse(text), "positions")
    assert message is None if verdict is None else (message[0], message[1][: len(sentence)]) == (verdict, sentence)


# ---------------------------------------------------------------------------------------------------------- dialect


SUM = """func.func @main(%x: tensor<2x3xf32>, %w: tensor<4x3xf32>, %b: tensor<4xf32>) -> tensor<2xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2xf32>
  %start = linalg.fill ins(%zero : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %y = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}} ins(%x : tensor<2x3xf32>) outs({start} : tensor<2xf32>) {{
  ^bb0(%in: f32, %sum: f32):
    %s = arith.addf %in, %sum : f32
    linalg.yield %s : f32
  }} -> tensor<2xf32>
  return %y : tensor<2xf32>
}}"""

RACE = SUM.format(start="%start").replace("reduction", "parallel")


@pytest.mark.parametrize(
    ("answer", "name", "verdict", "sentence"),
    [
        (lambda text: "", "a perceptron", "valid", "A sentence has 1 to 400 characters; yours has 0."),
        (lambda text: text, "a perceptron", "valid", "Return the lowered module itself, not its text."),
        (lambda text: "no", "a perceptron", "spared", "a perceptron: it keeps all rules, but you refuse it: 'no'."),
        (lambda text: "nn.dense: 3 and 5", "x is too narrow for w", None, ""),
        (lambda text: "nn.dense: 35", "x is too narrow for w", "did", "x is too narrow for w: your sentence does not"),
        (lambda text: "dense: 3, 5", "x is too narrow for w", "did", "x is too narrow for w: your sentence does not"),
        (lambda text: "nn.leaky_relu 1.50", "a slope above 1", "did", "a slope above 1: your sentence does not "),
        (lambda text: parse(SUM.format(start="%start")), "a slope above 1", "did", "a slope above 1: this is not "),
        (lambda text: parse(SUM.format(start="%start")), "a perceptron", "same", "a perceptron: element [0] of the "),
        (lambda text: parse(SUM.format(start="%e")), "a perceptron", "same", "A linalg.generic reads the output that "),
        (lambda text: parse(RACE), "a perceptron", "same", "A linalg.generic calls d1 parallel, and all turns along"),
    ],
)  # fmt: skip
def test_what_is_told_of_a_dialect(answer, name, verdict, sentence):
    message = lost("day09.dialect", answer, name)
    assert message is None if verdict is None else (message[0], message[1][: len(sentence)]) == (verdict, sentence)


def test_what_is_left_of_nn_is_named():
    from xdsl.parser import Parser

    from passlab.mlir import context

    unread = Parser(context(allow_unregistered=True), PERCEPTRON).parse_module()
    assert lost("day09.dialect", lambda text: unread, "a perceptron")[1].startswith("nn.dense is not lowered")
    assert "nn.leaky_relu" in STEEP
