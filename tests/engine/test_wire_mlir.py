"""Modules of MLIR travel as text: what is hostile is refused with a sentence, before or in a process of its own."""

from __future__ import annotations

import time
from functools import cache

import pytest

from autograder.engine import wire
from passlab.mlir import MLIRError, context, modules, parse, pipeline, text, verify
from passlab.mlir import wire as codec
from passlab.mlir.compiler import COMPILER

GOOD = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = math.exp %x : tensor<4xf32>
  return %y : tensor<4xf32>
}"""


@pytest.fixture
def confined(monkeypatch):
    """This process as the verifier: MLIR's own code must not run in it."""

    def never():
        raise AssertionError("MLIR's own code ran in the process that judges")

    monkeypatch.setattr(modules, "native", never)
    monkeypatch.setattr(modules, "elsewhere", None)
    monkeypatch.setattr(codec, "_complaint", None)
    COMPILER.confine()


def test_a_module_comes_back_as_it_was(confined):
    module = parse(GOOD)
    name, back = wire.decode(wire.encode(("a", module)))
    assert name == "a" and text(back) == text(module)


def test_verification_and_passes_run_elsewhere(confined):
    module = parse(GOOD)
    verify(module)
    after = pipeline(module, "convert-elementwise-to-linalg")
    assert "linalg.generic" in text(after) and "%y" in text(after)
    with pytest.raises(MLIRError, match="There is no pass 'no-such-pass'"):
        pipeline(module, "no-such-pass")
    wrong = parse(GOOD.replace("-> tensor<4xf32> {", "-> tensor<5xf32> {"), verified=False)
    with pytest.raises(MLIRError, match=r"line 4, column 5, `func.return %y : tensor<4xf32>`"):
        verify(wrong)


def test_an_operation_that_xdsl_does_not_know_is_read_elsewhere(confined):
    larger = "%j = affine.max affine_map<(d0) -> (d0, 4)>(%i)"
    bound = f"func.func @main(%i: index) -> index {{\n  {larger}\n  return %j : index\n}}"
    module = wire.decode(wire.encode(parse(bound)))
    assert any(modules.name_of(op) == "affine.max" for op in module.walk())


FUNCTION = "func.func @main() {{\n  {}\n  return\n}}"
HOSTILE = {
    "not MLIR": ("import os", "unknown"),
    "huge constant": (
        FUNCTION.format("%c = arith.constant dense<1.0> : tensor<99999999999x9xf32>"),
        "a shape of more than",
    ),
    "large constant": (FUNCTION.format("%c = arith.constant dense<1.0> : tensor<9999x999xf32>"), "a constant of"),
    "dense resource": (FUNCTION.format("%c = arith.constant dense_resource<x> : tensor<4xf32>"), "dense_resource"),
    "resource section": (GOOD + '\n{-# dialect_resources: { builtin: { x: "0x08000000" } } #-}', "resource section"),
    "recursive type": ("!a = tuple<!a>\nfunc.func @main(%x: !a) {\n  return\n}", "tuple types"),
    "growing aliases": ("#a = [1, 1]\n#b = [#a, #a]\n" + GOOD, "made of other aliases"),
    "unregistered operation": ('"foo.bar"() : () -> ()', "no dialect of this name"),
    "inline assembly": (FUNCTION.format('llvm.inline_asm "nop", "" : () -> ()'), "no operations of llvm"),
    "external call": ("func.func private @system(i32)\n" + GOOD, "@system has no body"),
    "indirect call": (FUNCTION.format("%f = func.constant @main : () -> ()"), "constant"),
    "many regions": (FUNCTION.format("scf.execute_region {" * 5000 + "}" * 5000), "regions lie in each other"),
    "many brackets": (FUNCTION.format("%c = arith.constant " + "[" * 9000), "brackets lie in each other"),
    "a million regions": ("module {\n" * 1_000_000, "more than 256 KiB"),
    "digits": (FUNCTION.format(f"%c = arith.constant {'9' * 5000} : i32"), "digits"),
    "zero byte": (GOOD + "\0", "zero bytes"),
    "bytecode": ("ML\u00efR\x0dMLIR", "line 1"),
    "half a character": (GOOD.replace("%y", "%\udcff"), "not in UTF-8"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_with_a_sentence(confined, name):
    hostile, message = HOSTILE[name]
    start = time.process_time()
    with pytest.raises(wire.Refused, match=message):
        codec.decode(hostile.encode(errors="surrogatepass"))
    assert time.process_time() - start < 20


#: A document is refused unless it is a number, say, or names an IR whose modules travel, and bytes as a tensor.
DAMAGED = ['["ir"]', '["ir", "mlir"]', '["ir", "mlir", 1]', '["ir", "mlir", "func.func"]', '["ir", "fx", null]']
DAMAGED += [
    '["ir", ["mlir"], null]',
    '["ir", "../mlir", null]',
    '["ir", "mlir", ["b", ""], 2]',
    '["mlir", "module {}"]',
]


@pytest.mark.parametrize("document", ["1", *DAMAGED])
def test_a_damaged_document_is_refused(confined, document):
    text = f"[{document},[],[],[],[],[]]".encode()
    payload = b"PLW1" + len(text).to_bytes(4, "little") + text
    if document == "1":
        assert wire.decode(payload) == 1
        return
    with pytest.raises(wire.Refused):
        wire.decode(payload)


@cache
def _posing():
    from xdsl.dialects.builtin import ModuleOp

    class Posing(ModuleOp):
        """A module that says of itself that it is another one."""

        def __str__(self):
            return GOOD

        def print(self, printer):
            printer.print_string(GOOD)

        def verify(self, *_, **__):
            return None

    return Posing


def test_what_poses_as_a_module_travels_as_the_operations_that_it_holds(confined):
    body = parse(GOOD.replace("exp", "tanh")).body
    posing = _posing()(body.clone())
    back = wire.decode(wire.encode(posing))
    assert "math.tanh" in text(back) and "math.exp" not in text(back) and type(back) is not type(posing)


def test_an_operation_that_prints_something_else_is_read_as_what_it_prints(confined):
    """Or refused: what is verified and judged is one and the same text."""
    from xdsl.dialects.math import ExpOp

    class Lying(ExpOp):
        name = "math.absf"

    module = parse(GOOD)
    exp = next(op for op in module.walk() if op.name == "math.exp")
    lying = Lying(exp.operands[0])
    exp.parent.insert_op_before(lying, exp)
    exp.results[0].replace_all_uses_with(lying.results[0])
    exp.detach()
    assert "math.absf" in text(wire.decode(wire.encode(module)))


def test_an_attribute_of_a_class_of_ones_own_is_refused():
    module = parse(GOOD)

    class Own:
        name = "x"

    module.attributes["x"] = Own()
    with pytest.raises(wire.Refused):
        wire.decode(wire.encode(module))


def test_modules_of_iree_travel_as_modules_of_xdsl():
    value = modules.to_iree(parse(GOOD))
    assert "math.exp" in text(wire.decode(wire.encode(value)))


def test_a_context_reads_no_python():
    assert not context().allow_unregistered
