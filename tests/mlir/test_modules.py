"""Text of MLIR: read, refused with a sentence, verified, printed, and sent through MLIR's passes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from passlab.mlir import (
    ALLOWED,
    PASSES,
    MLIRError,
    copy,
    generic,
    name_of,
    parse,
    passes,
    pipeline,
    text,
    to_iree,
    verify,
)
from passlab.mlir import modules as limits
from passlab.mlir import run as mlir_run
from tests.mlir.programs import CHAIN, LOOPS


def body(lines: str) -> str:
    return f"func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{\n{lines}\n  return %a : tensor<4xf32>\n}}"


#: what is wrong → (text, line, words of the message)
BAD = {
    "a name nobody defines": (body("  %0 = arith.addf %a, %b : tensor<4xf32>"), 2, "undeclared SSA value"),
    "a brace too few": ("func.func @main() {\n  return", 2, "expected"),
    "no operation": ("hello", 1, "unknown"),
    "a wrong type": (body("  %0 = arith.addi %a, %a : tensor<4xf32>"), 2, "arith.addi"),
    "another result": (
        "func.func @main(%a: tensor<4xf32>) -> tensor<5xf32> {\n\n  return %a : tensor<4xf32>\n}",
        3,
        "Return what the function's type promises",
    ),
    "a map of another rank": (CHAIN.replace("[#map, #map]", "[#map, affine_map<(d0, d1) -> (d0)>]"), 11, "rank"),
    "two functions of a name": (body("") + "\n" + body(""), 5, "redefinition of symbol named 'main'"),
    "a slice of another size": (
        body("  %0 = tensor.extract_slice %a[0][3][1] : tensor<4xf32> to tensor<2xf32>"),
        2,
        "expected type to be 'tensor<3xf32>'",
    ),
    "what cannot even be printed": (
        "func.func @main(%i: index) {\n\n  %0 = affine.apply affine_map<(a, b) -> (a)>(%i)\n  return\n}",
        3,
        "index mismatch",
    ),
    "no terminator": (CHAIN.replace("    linalg.yield %m : f32\n", ""), 15, "terminator"),
    "an unknown dialect": (body('  "foo.bar"() : () -> ()'), 2, "dialect"),
    "inline assembly": (body('  llvm.inline_asm "nop", "" : () -> ()'), 2, "no operations of llvm"),
    "assembly in generic form": (
        body('  "llvm.inline_asm"() <{asm_string = "nop", constraints = ""}> : () -> ()'),
        2,
        "no operations of llvm",
    ),
    "an indirect call": (
        body("  %f = func.constant @main : (tensor<4xf32>) -> tensor<4xf32>"),
        2,
        "func.constant is not among",
    ),
    "a function without body": ("func.func private @puts(i32)\n" + body(""), 1, "@puts has no body"),
    "a dense resource": (body("  %0 = arith.constant dense_resource<x> : tensor<4xf32>"), 2, "dense_resource"),
    "a resource section": (body("") + '\n{-# dialect_resources: { builtin: { x: "0x00" } } #-}', 5, "resource section"),
    "a huge tensor": (body("  %0 = tensor.empty() : tensor<1000000x1000000xf32>"), 2, "67,108,864 elements"),
    "a huge constant": (body("  %0 = arith.constant dense<1.0> : tensor<2000x2000xf32>"), 2, "4,000,000 elements"),
    "many digits": (body(f"  %0 = arith.constant {'9' * 5000} : i32"), 2, "5,000 digits"),
    "minus after minus": (body(f"  %0 = affine.apply affine_map<() -> ({'-' * 999}1)>()"), 2, "minus signs"),
    "nested regions": ("func.func @main() {" + "scf.execute_region {" * 50_000, 1, "regions lie in each other"),
    "nested brackets": (f"func.func @main() attributes {{x = {'[' * 1000}{']' * 1000}}} {{ return }}", 1, "brackets"),
    "a recursive type": (body('  %0 = llvm.mlir.undef : !llvm.struct<"a", (ptr, struct<"a">)>'), 2, "structures"),
    "a tuple": (body("  %0 = ub.poison : tuple<i32, i32>"), 2, "tuple"),
    "an alias of aliases": ("#a = [1, 2]\n#b = [#a, #a]\n" + body(""), 2, "made of other aliases"),
    "an alias over lines": ("#a = [\n1, 2]\n" + body(""), 1, "one line"),
    "a long alias": (f"#a = [{'1, ' * 3000}1]\n" + body(""), 1, "one line"),
    "a long map": (
        body(f"  %0 = affine.apply affine_map<() -> ({' + '.join(f'{i} mod 3' for i in range(9999))})>()"),
        2,
        "affine map is written in at most",
    ),
    "many dimensions": (body(f"  %0 = tensor.empty() : tensor<{'1x' * 200_000}f32>"), 2, "200,000 dimensions"),
    "nesting behind maps": (body("  " + "x<affine_map<() -> ()>" * 5000), 2, "brackets"),
    "a long word": ("x" * 5000, 1, "5,000 characters"),
    "half a character": ("// \ud800", 1, "surrogate"),
    "zero bytes": ("\0", 1, "zero bytes"),
    "bytecode": ("ML\xefR\x06", 1, "bytecode"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_text_is_refused_at_its_line_and_soon(what):
    source, line, words = BAD[what]
    began = time.process_time()
    with pytest.raises(MLIRError) as refused:
        parse(source, "answer")
    assert refused.value.line == line and words in str(refused.value)
    assert f"The answer, line {line}, column " in str(refused.value)
    assert len(str(refused.value).encode()) < 900  # and can be printed
    assert time.process_time() - began < 20  # the longest text takes milliseconds; without limits these take minutes


@pytest.mark.parametrize("value", [None, 5, b"module {}", ["module"]])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(MLIRError, match="this is a"):
        parse(value)


def test_a_million_regions_are_refused_by_their_size():
    with pytest.raises(MLIRError, match="bytes are read"):
        parse("func.func @main() {" + "scf.execute_region {" * 1_000_000)


def test_too_many_operations_are_refused(monkeypatch):
    monkeypatch.setattr(limits, "OPERATIONS", 5)
    with pytest.raises(MLIRError, match="more than 5 operations"):
        parse(CHAIN)


def test_strings_and_comments_do_not_count_as_brackets():
    deep = "{" * 100
    assert parse(f'// {deep}\nfunc.func @main() attributes {{note = "{deep}"}} {{ return }}')


def test_only_allowed_operations_are_read_unless_all_are():
    source = "func.func @main() {\n  %0 = llvm.mlir.constant(1 : i32) : i32\n  return\n}"
    with pytest.raises(MLIRError, match="no operations of llvm"):
        parse(source)
    assert "llvm.mlir.constant" in {name_of(op) for op in parse(source, allowed=None).walk()}
    with pytest.raises(MLIRError, match=r"linalg\.generic is not among"):
        parse(CHAIN, allowed={**ALLOWED, "linalg": {"fill"}})


def test_every_allowed_operation_is_one_of_mlir():
    ir = limits.native()
    context = ir.Context()
    for dialect, names in ALLOWED.items():
        assert context.dialects[dialect]
        unknown = [name for name in names if not context.is_registered_operation(f"{dialect}.{name}")]
        assert not unknown, (dialect, unknown)


@pytest.mark.parametrize("source", [CHAIN, LOOPS])
def test_text_and_generic_text_are_read_back(source):
    module = parse(source)
    assert text(parse(text(module))) == text(module)
    assert text(parse(generic(module))) == text(module)
    assert text(copy(module)) == text(module) and copy(module) is not module


def test_what_xdsl_cannot_read_comes_through_mlirs_parser():
    source = """func.func @main(%a: tensor<4xf32>, %e: tensor<4xf32>) -> tensor<4xf32> {
      %m = linalg.map { math.absf } ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>)
      return %m : tensor<4xf32> }"""
    module = parse(source)
    assert [name_of(op) for op in module.walk()][2] == "linalg.map"
    general = pipeline(module, "linalg-generalize-named-ops")
    assert "linalg.generic" in {name_of(op) for op in general.walk()}


def test_verify_names_the_line_of_the_printed_text():
    module = parse(CHAIN.replace("-> tensor<4x8xf32> {\n  %e", "-> tensor<9xf32> {\n  %e"), verified=False)
    with pytest.raises(MLIRError, match="Return what") as refused:
        verify(module)
    message = text(module).splitlines()[refused.value.line - 1]
    assert message[refused.value.column - 1 :] == "func.return %relu : tensor<4x8xf32>"


def test_verify_finds_a_use_before_the_definition():
    module = parse(CHAIN)
    first, second = [op for op in module.walk() if op.name == "linalg.generic"]
    first.detach()
    second.parent.insert_op_after(first, second)
    with pytest.raises(MLIRError, match="does not dominate"):
        verify(module)


def test_a_pass_keeps_the_module_given_and_the_names():
    module = parse(CHAIN)
    before = text(module)
    after = text(pipeline(module, "linalg-fuse-elementwise-ops, canonicalize"))
    assert text(module) == before
    assert after.count("linalg.generic") == 1 and "%a: tensor<4x8xf32>" in after and "%relu = linalg.generic" in after


def test_passes_return_the_module_after_each_step():
    steps = [
        "linalg-fuse-elementwise-ops",
        "one-shot-bufferize{bufferize-function-boundaries=1}",
        "convert-linalg-to-loops",
    ]
    result = passes(parse(CHAIN), steps)
    assert [sum(op.name == "linalg.generic" for op in it.walk()) for it in result] == [1, 1, 0]
    assert "memref" in text(result[1]) and "scf.for" in text(result[2]) and "memref" not in text(result[0])
    for module in result:
        verify(module)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ("canonicalise", "Did you mean canonicalize"),
        ("nothing-of-the-kind", "no pass 'nothing-of-the-kind'"),
        ("iree-util-dump-module{path=/tmp/stolen}", "no pass"),
        ("affine-loop-tile{tile-size=x}", "cannot be read"),
        ("builtin.module(func.func(one-shot-bufferize))", "cannot be read"),
        ("canonicalize(", "cannot be read"),
        ("canonicalize{a={b}}", "braces"),
        ("", "names of passes"),
        (None, "names of passes"),
    ],
)
def test_a_wrong_pipeline_is_a_sentence(steps, words):
    with pytest.raises(MLIRError, match=words):
        pipeline(parse(CHAIN), steps)


POISON = body("  %p = ub.poison : tensor<4xf32>\n  %0 = arith.addf %a, %p : tensor<4xf32>").replace(
    "return %a", "return %0"
)


@pytest.mark.parametrize("confined", [False, True])
@pytest.mark.parametrize(
    ("steps", "line", "words"),
    [
        ("one-shot-bufferize", "%p = ub.poison : tensor<4xf32>", "ub.poison: op was not bufferized"),
        (
            "convert-elementwise-to-linalg, one-shot-bufferize",
            "%0 = arith.addf %a, %p : tensor<4xf32>",
            "arith.addf: op was not bufferized (it has become ub.poison)",
        ),
        ("transform-interpreter", "builtin.module {", "builtin.module: could not find a nested named sequence"),
    ],
)
def test_a_failing_pass_names_the_operation_and_its_line(steps, line, words, confined, monkeypatch):
    if confined:
        monkeypatch.setattr(limits, "elsewhere", mlir_run.passes)
    module = parse(POISON)
    with pytest.raises(MLIRError) as failed:
        pipeline(module, steps)
    at, message = next((at, message) for at, message in enumerate(text(module).splitlines(), 1) if line in message)
    assert f"The module, line {at}, column {len(message) - len(message.lstrip()) + 1}, `{line}`: {words}" in str(
        failed.value
    )
    assert confined or failed.value.line == at


def test_every_listed_pass_is_one_of_mlir():
    from iree.compiler import passmanager

    context = to_iree(parse(CHAIN)).context
    for name, (anchor, what) in PASSES.items():
        passmanager.PassManager.parse(
            f"builtin.module({f'func.func({name})' if anchor == 'func.func' else name})", context
        )
        assert what and not what.endswith(".")


def test_each_pass_runs_on_what_it_is_for():
    module = parse("func.func @main(%x: memref<4xf32>) { return }")
    asks = {"affine-super-vectorize": "virtual-vector-size", "transform-interpreter": "named sequence"}
    for name in PASSES:
        if name in asks:
            with pytest.raises(MLIRError, match=asks[name]):
                pipeline(module, name)
        else:
            assert "func.func @main" in text(pipeline(module, name)), name


def test_without_mlir_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr(limits, "native", lambda: None)
    module = parse(CHAIN)  # xDSL suffices
    with pytest.raises(MLIRError, match="iree-base-compiler"):
        pipeline(module, "canonicalize")


def test_where_the_two_verifiers_differ_that_of_mlir_decides():
    kinds = "tensor<2x3xi8>, tensor<3x2xi8>"
    product = parse(
        f"func.func @main(%a: tensor<2x3xi8>, %b: tensor<3x2xi8>, %c: tensor<2x2xi32>) -> tensor<2x2xi32> {{\n"
        f"%d = linalg.matmul ins(%a, %b : {kinds}) outs(%c : tensor<2x2xi32>) -> tensor<2x2xi32>\n"
        "return %d : tensor<2x2xi32>\n}"
    )
    a, b = np.full((2, 3), 100, "int8"), np.full((3, 2), -100, "int8")
    assert (mlir_run.run(product, a, b, np.zeros((2, 2), "int32"))[0] == -30_000).all()


def test_floats_in_hexadecimal_are_their_bits():
    values = {
        "f32": "[1.0, 0xFF800000, 0x7FC00000, -2.5]",
        "f16": "[0x7C00, 0.5, 1.0, 0xFC00]",
        "f64": "0x7FF0000000000000",
        "i32": "0x10",
    }
    types = {name: f"tensor<4x{name}>" for name in values}
    lines = [f"%{name} = arith.constant dense<{values[name]}> : {types[name]}" for name in values]
    results = f"return {', '.join(f'%{name}' for name in values)} : {', '.join(types.values())}"
    module = parse(f"func.func @main() -> ({', '.join(types.values())}) {{\n{chr(10).join([*lines, results])}\n}}")
    inf, nan = float("inf"), float("nan")
    expected = [[1, -inf, nan, -2.5], [inf, 0.5, 1, -inf], [inf] * 4, [16] * 4]
    for result, numbers in zip(mlir_run.run(module), expected, strict=True):
        np.testing.assert_array_equal(result, numbers)
