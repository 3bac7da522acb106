"""MLIR: an answer returns a module, or the wire is told to send a text, that would harm whoever parses or runs it.

The course of the attacks has no question about MLIR, so that none of it may even be parsed. What is refused where
modules are expected, and what a crash costs there, is in tests/engine (test_wire_mlir, test_mlir).
"""

from __future__ import annotations

from tests.attacks.attack import answer

#: The wire, told in the worker to send a text in place of every module.
_FORGED = """
from xdsl.dialects.builtin import ModuleOp
import passlab.mlir.wire

text = {text}
passlab.mlir.wire.encode = lambda value: text if isinstance(text, bytes) else text.encode()

def dce(gm):
    return ModuleOp([])
"""
_POSING = """
from xdsl.dialects.builtin import ModuleOp

class Posing(ModuleOp):
    def __str__(self):
        return "all points"
    def print(self, printer):
        printer.print_string("module {}")
    def verify(self, *_, **__):
        return None

def dce(gm):
    return Posing([])
"""

#: Name → (what it tries, the text as an expression).
_TEXTS = {
    "huge-constant": (
        "a constant of a billion billion elements",
        '"func.func @f() { %c = arith.constant dense<1> : tensor<999999999x999999999xi8> }"',
    ),
    "dense-resource": (
        "a constant whose data lies elsewhere",
        '"func.func @f() { %c = arith.constant dense_resource<secret> : tensor<4xi8> }"',
    ),
    "recursive-type": ("a type that contains itself", '"!a = tuple<!a, !a>\\nfunc.func @f(%x: !a) { return }"'),
    "unregistered": ("an operation that nobody knows", "'\"plattack.op\"() : () -> ()'"),
    "inline-assembly": (
        "assembly that ends the process",
        """'func.func @f() { llvm.inline_asm "ud2", "" : () -> () return }'""",
    ),
    "external-call": (
        "a call of the C library's system",
        '"func.func private @system(i64)\\nfunc.func @f(%x: i64) { func.call @system(%x) : (i64) -> () return }"',
    ),
    "deep-regions": ("a million regions in each other", '"module {\\n" * 1_000_000'),
    "not-text": ("something else than text", "b'\\xff'"),
}

ATTACKS = (
    answer("mlir-posing", "a module whose class says that it is another one", _POSING),
    *(answer(f"mlir-{name}", tries, _FORGED.format(text=text)) for name, (tries, text) in _TEXTS.items()),
)
