"""Hidden cases and answers of day09.loops."""

from __future__ import annotations

import random

import numpy as np

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day09.loops import PRODUCT, generic, in_a_loop, loops_case, memref
from passlab.judge import Case

_ADD = "%s = arith.addf %l, %o : f32\nlinalg.yield %s : f32"
_COPY = "linalg.yield %l : f32"
#: What a case of a single rule is about. An answer that forgets the rule fails here alone, with an error, and keeps the
#: points for the other laws.
_RARE = ("valid", "same")


#: A body that adds up where the input is larger than the output.
_LARGER = """%c = arith.cmpf ogt, %l, %o : f32
%r = scf.if %c -> (f32) {
  %s = arith.addf %l, %o : f32
  scf.yield %s : f32
} else {
  scf.yield %o : f32
}
linalg.yield %r : f32"""


#: A body that takes the input where the output is positive: the branch is all that uses the input.
_WHERE_POSITIVE = """%n = arith.negf %o : f32
%c = arith.cmpf ogt, %o, %n : f32
%r = scf.if %c -> (f32) {
  scf.yield %l : f32
} else {
  scf.yield %o : f32
}
linalg.yield %r : f32"""


def _in_a_branch(inner: str) -> str:
    return f"%even = arith.cmpi sge, %turn, %c0 : index\nscf.if %even {{\n{inner}\n}}"


def _convolution(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the convolution in two dimensions with steps of 2."""
    windows = np.lib.stride_tricks.sliding_window_view(a, (3, 3), (2, 3))[:, :, ::2, ::2]
    return np.einsum("nchwyx,fcyx->nfhw", windows, b)


def _diagonals(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Write all elements into the place of their diagonal, the first dimension outermost: the last one stays."""
    for i, row in enumerate(a):
        b[i : i + len(row)] = row
    return a, b


def _in_place(a: np.ndarray) -> tuple[np.ndarray]:
    """Add each element to all elements, one after the other: to itself, too, which the later ones see."""
    a = a.copy()
    for i in range(len(a)):
        for j in range(len(a)):
            a[j] += a[i]
    return (a,)


def _growing(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add to a number its products with all elements, one after the other: each sees what those before have added."""
    return (a * np.prod(1 + b.astype("float64"))).astype("float32"), b


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    m, n, k = rng.sample(range(2, 8), 3)
    step, window = rng.randint(2, 3), rng.randint(2, 4)
    long = step * (m - 1) + window + rng.randint(0, 2)
    at = rng.randrange(n)
    factor = rng.choice([-1.5, 0.5, 2.5])

    def buffers(*shapes: tuple) -> list[str]:
        return ["f32" if shape is None else memref(*shape) for shape in shapes]

    def one(
        name, dims, reductions, maps, body, arguments, shapes, expected,
        outs=1, types=None, before="", wrap=str, about=(),
    ):  # fmt: skip
        """Return a module of a single linalg.generic over %a, %b, …; `maps`: of these in turn."""
        types = types or buffers(*shapes)
        operands = [(f"%{letter}", *rest) for letter, *rest in zip("abcdef", types, maps, strict=False)]
        text = generic(dims, reductions, operands[:-outs], operands[-outs:], body, arguments)
        return loops_case(name, types, before + wrap(text), shapes, expected, *about)

    two, three = "%l: f32, %o: f32", "%l: f32, %r: f32, %o: f32"
    first = rng.sample([0, 1, 2], 3)
    shape = [m, n, k]
    verdicts = ("valid", "same", "spared", "cost")  # there is nothing to do
    permuted = ", ".join(f"d{d}" for d in first)
    return [
        one("a product of transposes", 3, [1], ["d1, d0", "d2, d1", "d2, d0"], PRODUCT, three,
            [(k, m), (n, k), (n, m)], lambda a, b, c: (a, b, c + (a.T @ b.T).T)),
        one("a permutation", 3, [], ["d0, d1, d2", permuted], _COPY, two,
            [tuple(shape), tuple(shape[d] for d in first)], lambda a, b: (a, a.transpose(first))),
        one("a sum of all", 2, [0, 1], ["d0, d1", ""], _ADD, two, [(m, n), ()], lambda a, b: (a, b + a.sum())),
        one("no dimension", 0, [], ["", ""], _ADD, two, [(), ()], lambda a, b: (a, a + b), about=_RARE),
        one("no turn", 2, [1], ["d0, d1", "d0"], _ADD, two, [(m, 0), (m,)], lambda a, b: (a, b)),
        one("nothing at all", 2, [], ["d1, d0", "d0, d1"], _COPY, two, [(n, 0), (0, n)], lambda a, b: (a, b)),
        one("a column for all", 2, [], ["d0", "d1, d0"], _COPY, two, [(m,), (n, m)],
            lambda a, b: (a, np.broadcast_to(a, (n, m)))),
        one("one row of many", 1, [], [f"{at}, d0", "d0"], _COPY, two, [(n, m), (m,)], lambda a, b: (a, a[at])),
        one("one element of many", 1, [], [f"{at}", "d0"], _COPY, two, [(n,), (m,)],
            lambda a, b: (a, np.full(m, a[at]))),
        one("the diagonal", 1, [], ["d0, d0", "d0"], _COPY, two, [(m, m), (m,)], lambda a, b: (a, np.diag(a))),
        one("a convolution with steps", 2, [1], [f"d0 * {step} + d1", "d1", "d0"], PRODUCT, three,
            [(long,), (window,), (m,)],
            lambda a, b, c: (a, b, c + np.lib.stride_tricks.sliding_window_view(a, window)[::step][:m] @ b)),
        one("the last turn stays", 2, [0, 1], ["d0, d1", "d0 + d1"], _COPY, two, [(m, n), (m + n - 1,)], _diagonals),
        one("pairs", 1, [], ["d0 floordiv 2, d0 mod 2", "d0"], _COPY, two, [(m, 2), (2 * m,)],
            lambda a, b: (a, a.reshape(-1))),
        one("into every second", 1, [], ["d0", "d0 * 2"], _COPY, two, [(m,), (2 * m,)],
            lambda a, b: (a, np.stack([a, b[1::2]], 1).reshape(-1))),
        one("a number times a buffer", 1, [], ["", "d0", "d0"], PRODUCT, three, [None, (n,), (n,)],
            lambda a, b, c: (a, b, c + np.float32(a) * b)),
        one("a value from outside", 1, [], ["d0", "d0"], "%p = arith.mulf %l, %z : f32\nlinalg.yield %p : f32", two,
            [(n,), (n,)], lambda a, b: (a, a * np.float32(factor)), before=f"%z = arith.constant {factor} : f32\n",
            about=_RARE),
        one("a value from outside, yielded", 1, [], ["d0", "d0"], "linalg.yield %z : f32", two, [(n,), (n,)],
            lambda a, b: (a, np.full(n, np.float32(factor))), before=f"%z = arith.constant {factor} : f32\n",
            about=_RARE),
        one("two outputs", 2, [], ["d0, d1", "d1, d0", "d0, d1"],
            "%p = arith.addf %l, %q : f32\nlinalg.yield %l, %p : f32, f32", "%l: f32, %o: f32, %q: f32",
            [(m, n), (n, m), (m, n)], lambda a, b, c: (a, a.T, a + c), outs=2),
        one("two outputs, exchanged", 1, [], ["d0", "d0"], "linalg.yield %r, %l : f32, f32", "%l: f32, %r: f32",
            [(n,), (n,)], lambda a, b: (b, a), outs=2),
        one("positions", 2, [], ["d1, d0"],
            "%i = linalg.index 1 : index\n%j = linalg.index 0 : index\n%x = arith.muli %i, %i : index\n"
            "%y = arith.addi %x, %j : index\n%z = arith.index_cast %y : index to i64\nlinalg.yield %z : i64",
            "%o: i64", [(n, m)], lambda a: (np.arange(n)[:, None] ** 2 + np.arange(m),),
            types=[memref(n, m, dtype="i64")]),
        one("a position, yielded", 2, [], ["d0, d1"],
            "%j = linalg.index 1 : index\n%z = arith.index_cast %j : index to i64\nlinalg.yield %z : i64",
            "%o: i64", [(n, m)], lambda a: (np.broadcast_to(np.arange(m), (n, m)),),
            types=[memref(n, m, dtype="i64")]),
        one("sizes unknown", 3, [2], ["d0, d2", "d2, d1", "d0, d1"], PRODUCT, three, [(m, k), (k, n), (m, n)],
            lambda a, b, c: (a, b, c + a @ b), types=[memref("?", k), memref("?", "?"), memref("?", n)]),
        one("sizes unknown, transposed", 2, [], ["d1, d0", "d0, d1"], _COPY, two, [(n, m), (m, n)],
            lambda a, b: (a, a.T), types=[memref("?", "?"), memref("?", "?")]),
        one("sizes unknown, sums of rows", 2, [0], ["d1, d0", "d1"], _ADD, two, [(m, n), (m,)],
            lambda a, b: (a, b + a.sum(1)), types=[memref("?", "?"), memref("?")]),
        one("no turn, sizes unknown", 2, [1], ["d0, d1", "d0"], _ADD, two, [(m, 0), (m,)], lambda a, b: (a, b),
            types=[memref("?", "?"), memref("?")]),
        one("in a loop", 2, [0], ["d0, d1", "d1"], _ADD, two, [(m, n), (n,)], lambda a, b: (a, b + 3 * a.sum(0)),
            wrap=in_a_loop),
        one("in a branch in a loop, and behind it", 2, [0], ["d0, d1", "d1"], _ADD, two, [(m, n), (n,)],
            lambda a, b: (a, b + 4 * a.sum(0)), wrap=lambda text: in_a_loop(_in_a_branch(text)) + text),
        one("backwards", 1, [], [f"{m - 1} - d0", "d0"], _COPY, two, [(m,), (m,)], lambda a, b: (a, a[::-1])),
        one("parts of negative numbers", 1, [], ["(d0 - 3) floordiv 2 + 2, (d0 - 3) mod 4", "d0"], _COPY, two,
            [(5, 4), (m,)], lambda a, b: (a, a[(np.arange(m) - 3) // 2 + 2, (np.arange(m) - 3) % 4])),
        one("one buffer through two maps", 2, [], ["d0, d1", "d1, d0", "d0, d1"],
            "%s = arith.subf %l, %r : f32\nlinalg.yield %s : f32", three, [(m, m), (m, m), (m, m)],
            lambda a, b, c: (a, b, a - a.T), wrap=lambda text: text.replace("ins(%a, %b", "ins(%a, %a")),
        one("two outputs in one buffer", 1, [], ["d0", "d0", "d0"], "linalg.yield %l, %q : f32, f32",
            "%l: f32, %o: f32, %q: f32", [(n,), (n,), (n,)], lambda a, b, c: (a, b, c), outs=2,
            wrap=lambda text: text.replace("outs(%b, %c", "outs(%b, %b")),
        one("a product that nothing uses", 1, [], ["d0", "d0"],
            "%p = arith.mulf %l, %l : f32\nlinalg.yield %l : f32", two, [(n,), (n,)], lambda a, b: (a, a)),
        loops_case(
            "in place, the reduction outermost", buffers((m,)),
            generic(2, [0], [("%a", memref(m), "d0")], [("%a", memref(m), "d1")], _ADD, two), [(m,)], _in_place),
        loops_case(
            "in place, a buffer without dimensions", buffers((), (m,)),
            generic(1, [0], [("%a", memref(), ""), ("%b", memref(m), "d0")], [("%a", memref(), "")], PRODUCT, three),
            [(), (m,)], _growing),
        one("double precision", 1, [0], ["d0", "d0", ""],
            "%p = arith.mulf %l, %r : f64\n%s = arith.addf %o, %p : f64\nlinalg.yield %s : f64",
            "%l: f64, %r: f64, %o: f64", [(n,), (n,), ()], lambda a, b, c: (a, b, c + a @ b),
            types=[memref(n, dtype="f64"), memref(n, dtype="f64"), memref(dtype="f64")]),
        one("a body with a branch", 1, [], ["d0", "d0"], _LARGER, two, [(n,), (n,)],
            lambda a, b: (a, np.where(a > b, a + b, b)), about=_RARE),
        one("an input that only a branch uses", 1, [], ["d0", "d0"], _WHERE_POSITIVE, two, [(n,), (n,)],
            lambda a, b: (a, np.where(b > 0, a, b)), about=_RARE),
        one("a body that does not overflow", 1, [], ["d0", "d0"],
            "%s = arith.addi %l, %o overflow<nsw> : i64\nlinalg.yield %s : i64", "%l: i64, %o: i64", [(n,), (n,)],
            lambda a, b: (a, a + b), types=[memref(n, dtype="i64")] * 2),
        one("a body with flags", 1, [], ["d0", "d0"],
            "%s = arith.addf %l, %o fastmath<contract> {tag = 1 : i64} : f32\nlinalg.yield %s : f32", two,
            [(n,), (n,)], lambda a, b: (a, a + b)),
        loops_case(
            "by their names", buffers((m, k), (k, n), (m, n), (n, m)),
            f"linalg.matmul ins(%a, %b : {memref(m, k)}, {memref(k, n)}) outs(%c : {memref(m, n)})\n"
            f"linalg.transpose ins(%c : {memref(m, n)}) outs(%d : {memref(n, m)}) permutation = [1, 0]",
            [(m, k), (k, n), (m, n), (n, m)], lambda a, b, c, d: (a, b, c + a @ b, (c + a @ b).T)),
        loops_case(
            "a buffer in between", buffers((m,), (m,)),
            f"%t = memref.alloc() : {memref(m)}\n%z = arith.constant {factor} : f32\n"
            f"linalg.fill ins(%z : f32) outs(%t : {memref(m)})\n"
            f"linalg.copy ins(%a : {memref(m)}) outs(%b : {memref(m)})\n"
            + generic(1, [], [("%t", memref(m), "d0")], [("%b", memref(m), "d0")], _ADD, two)
            + f"\nmemref.dealloc %t : {memref(m)}",
            [(m,), (m,)], lambda a, b: (a, a + np.float32(factor))),
        loops_case(
            "a convolution by its name", buffers((1, 2, 7, 7), (3, 2, 3, 3), (1, 3, 3, 3)),
            "linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>} "
            f"ins(%a, %b : {memref(1, 2, 7, 7)}, {memref(3, 2, 3, 3)}) outs(%c : {memref(1, 3, 3, 3)})",
            [(1, 2, 7, 7), (3, 2, 3, 3), (1, 3, 3, 3)], lambda a, b, c: (a, b, c + _convolution(a, b))),
        loops_case(
            "an unused product", buffers((m,)),
            f"%c = arith.constant {factor} : f32\n%d = arith.mulf %c, %c : f32\n"
            f"linalg.fill ins(%c : f32) outs(%a : {memref(m)})", [(m,)], lambda a: (np.full(m, np.float32(factor)),)),
        loops_case(
            "the same product twice", buffers((m,)),
            f"%c = arith.constant {factor} : f32\n%d = arith.mulf %c, %c : f32\n%e = arith.mulf %c, %c : f32\n"
            f"%f = arith.subf %d, %e : f32\nlinalg.fill ins(%f : f32) outs(%a : {memref(m)})",
            [(m,)], lambda a: (np.zeros(m, "float32"),)),
        loops_case(
            "a buffer with attributes", buffers((m,)),
            f"%c = arith.constant {factor} : f32\n"
            f"%t = memref.alloc() {{alignment = 64 : i64, tag = 1 : i64}} : {memref(m)}\n"
            f"linalg.fill ins(%c : f32) outs(%t : {memref(m)})\n"
            f"linalg.copy ins(%t : {memref(m)}) outs(%a : {memref(m)})\nmemref.dealloc %t : {memref(m)}",
            [(m,)], lambda a: (np.full(m, np.float32(factor)),)),
        loops_case("no linalg", buffers((m,)), "", [(m,)], lambda a: (a,), *verdicts),
        loops_case(
            "a copy that is not linalg's", buffers((m,), (m,)),
            f'"memref.copy"(%a, %b) : ({memref(m)}, {memref(m)}) -> ()', [(m,), (m,)], lambda a, b: (a, a), *verdicts),
        loops_case(
            "two functions", buffers((m,), (m,)),
            f"func.call @other(%a, %b) : ({memref(m)}, {memref(m)}) -> ()\n"
            f"linalg.copy ins(%b : {memref(m)}) outs(%a : {memref(m)})",
            [(m,), (m,)], lambda a, b: (a, a),
            end=f"\nfunc.func @other(%x: {memref(m)}, %y: {memref(m)}) {{\n"
            f"linalg.copy ins(%x : {memref(m)}) outs(%y : {memref(m)})\nreturn\n}}"),
    ]  # fmt: skip


EQUIVALENT = {
    ("isinstance(result, AffineDimExpr)", "False"): "affine.apply of one dimension is that dimension",
    ("op.detach()\nop.erase()", "op.detach()\npass"): "what is detached is not in the module any more",
}

# ---------------------------------------------------------------------------------------------------- answers


@right("recursive: a loop for a dimension, then the rest inside; index arithmetic as arith; all sizes by memref.dim")
def inside_out(module):
    from xdsl.builder import ImplicitBuilder
    from xdsl.dialects import memref, scf
    from xdsl.dialects.builtin import IndexType
    from xdsl.ir import Block
    from xdsl.ir.affine import AffineDimExpr
    from xdsl.rewriter import Rewriter

    def nest(op, maps, turn, block, copies):
        dim = len(turn)
        if dim == maps[0].num_dims:
            _one_turn(op, maps, turn, block, copies)
            return
        operand, place = next(
            (operand, place)
            for operand, map in zip(op.operands, maps, strict=True)
            for place, result in enumerate(map.results)
            if result == AffineDimExpr(dim)
        )
        end = memref.DimOp(operand, _number(place)).result
        inside = Block(arg_types=[IndexType()])
        scf.ForOp(_number(0), end, _number(1), [], inside)
        with ImplicitBuilder(inside):
            nest(op, maps, [*turn, inside.args[0]], inside, copies)
            scf.YieldOp()

    for op in list(module.walk()):
        if hasattr(op, "get_indexing_maps"):
            holder = Block()
            copies = {inner: inner.clone() for inner in op.body.block.ops}
            with ImplicitBuilder(holder):
                nest(op, [a.data for a in op.get_indexing_maps()], [], holder, copies)
            Rewriter.inline_block(holder, _before(op))
            op.detach()
            op.erase()
    return module


def _one_turn(op, maps, turn, block, copies):
    """Write what one turn of all loops does: load the operands, run copies of the body's operations, store."""
    from xdsl.dialects import memref
    from xdsl.dialects.builtin import MemRefType

    known = {}
    for argument, operand, map in zip(op.body.block.args, op.operands, maps, strict=True):
        if not isinstance(operand.type, MemRefType):
            known[argument] = operand
        elif argument.uses:
            known[argument] = memref.LoadOp.get(operand, [_value(e, turn) for e in map.results]).res
    for inner in op.body.block.ops:
        if inner.name == "linalg.index":
            known[inner.results[0]] = turn[inner.dim.value.data]
        elif inner.name != "linalg.yield":
            block.add_op(copies[inner])
            for part in copies[inner].walk():
                part.operands = [known.get(value, value) for value in part.operands]
            known.update(zip(inner.results, copies[inner].results, strict=True))
    for result, output, map in zip(op.body.block.last_op.operands, op.outputs, maps[len(op.inputs) :], strict=True):
        memref.StoreOp.get(known.get(result, result), output, [_value(e, turn) for e in map.results])


def _number(n):
    from xdsl.dialects import arith
    from xdsl.dialects.builtin import IndexType

    return arith.ConstantOp.from_int_and_width(n, IndexType()).result


def _value(expr, turn):
    """Compute an index expression at a turn of the loops, where the next operation goes."""
    from xdsl.dialects import arith
    from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr

    kinds = {
        AffineBinaryOpKind.Add: arith.AddiOp,
        AffineBinaryOpKind.Mul: arith.MuliOp,
        AffineBinaryOpKind.FloorDiv: arith.FloorDivSIOp,
    }
    if isinstance(expr, AffineDimExpr):
        return turn[expr.position]
    if isinstance(expr, AffineConstantExpr):
        return _number(expr.value)
    assert isinstance(expr, AffineBinaryOpExpr)
    left, right = _value(expr.lhs, turn), _value(expr.rhs, turn)
    if expr.kind is AffineBinaryOpKind.Mod:
        quotient = arith.FloorDivSIOp(left, right).result
        return arith.SubiOp(left, arith.MuliOp(quotient, right).result).result
    return kinds[expr.kind](left, right).result


def _before(op):
    from xdsl.rewriter import InsertPoint

    return InsertPoint.before(op)


@right("a rewrite pattern that moves the body's operations instead of copying them")
def by_pattern(module):
    from xdsl.dialects import affine, memref
    from xdsl.dialects.builtin import AffineMapAttr, MemRefType
    from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
    from xdsl.dialects.linalg.ops import IndexOp, YieldOp
    from xdsl.ir.affine import AffineMap
    from xdsl.pattern_rewriter import PatternRewriteWalker, RewritePattern

    class Lower(RewritePattern):
        def match_and_rewrite(self, op, rewriter):
            if not isinstance(op, LinalgStructuredOperation):
                return
            maps = [attribute.data for attribute in op.get_indexing_maps()]
            point, turn = _loops(op, maps, rewriter)

            def place_of(map):
                indices = [affine.ApplyOp(turn, AffineMapAttr(AffineMap(len(turn), 0, (r,)))) for r in map.results]
                rewriter.insert_op(indices, point)
                return indices

            body = op.body.block
            for argument, operand, map in zip(body.args, op.operands, maps, strict=True):
                if argument.uses and isinstance(operand.type, MemRefType):
                    load = memref.LoadOp.get(operand, place_of(map))
                    rewriter.insert_op(load, point)
                    argument.replace_all_uses_with(load.res)
                else:
                    argument.replace_all_uses_with(operand)
            for inner in list(body.ops):
                if isinstance(inner, IndexOp):
                    inner.result.replace_all_uses_with(turn[inner.dim.value.data])
                elif isinstance(inner, YieldOp):
                    for value, output, map in zip(inner.operands, op.outputs, maps[len(op.inputs) :], strict=True):
                        rewriter.insert_op(memref.StoreOp.get(value, output, place_of(map)), point)
                else:
                    inner.detach()
                    rewriter.insert_op(inner, point)
            rewriter.erase_op(op, safe_erase=False)

    PatternRewriteWalker(Lower(), apply_recursively=False).rewrite_module(module)
    return module


def _loops(op, maps, rewriter):
    """Write empty loops before an operation; return the place inside all of them, and their counters."""
    from xdsl.dialects import arith, memref, scf
    from xdsl.dialects.builtin import IndexType
    from xdsl.ir import Block
    from xdsl.ir.affine import AffineDimExpr
    from xdsl.rewriter import InsertPoint

    places = {}
    for operand, map in zip(op.operands, maps, strict=True):
        for place, result in enumerate(map.results):
            if isinstance(result, AffineDimExpr):
                places.setdefault(result.position, (operand, place))
    number = arith.ConstantOp.from_int_and_width
    zero, one = number(0, IndexType()), number(1, IndexType())
    rewriter.insert_op([zero, one], InsertPoint.before(op))
    point, turn = InsertPoint.before(op), []
    for dim in range(maps[0].num_dims):
        operand, place = places[dim]
        size = operand.type.get_shape()[place]
        bound = number(place if size < 0 else size, IndexType())
        rewriter.insert_op(bound, point)
        end = bound
        if size < 0:
            end = memref.DimOp(operand, bound)
            rewriter.insert_op(end, point)
        block = Block([scf.YieldOp()], arg_types=[IndexType()])
        rewriter.insert_op(scf.ForOp(zero, end, one, [], block), point)
        point = InsertPoint.before(block.last_op)
        turn.append(block.args[0])
    return point, turn


@wrong("valid", "returns the printed text")
def printed(module):
    return str(inside_out(module))


@wrong("did", "lowers linalg.generic only, and not what has a name")
def only_generic(module):
    from xdsl.dialects.linalg.ops import GenericOp

    named = [op for op in module.walk() if hasattr(op, "get_indexing_maps") and not isinstance(op, GenericOp)]
    return module if named else inside_out(module)


_ALL = "[op for op in module.walk() if isinstance(op, LinalgStructuredOperation)]"
_LOAD = "memref.LoadOp.get(operand, at(build, map, turn))"
top_level = edited("did", "looks at the operations of @main only, not into loops")(
    (_ALL, "[op for f in module.ops for op in f.body.block.ops if isinstance(op, LinalgStructuredOperation)]")
)
from_first = edited("same", "takes the sizes of the operands in their order for the sizes of the dimensions")(
    ("result == AffineDimExpr(dim)", "place == dim")
)
at_the_turn = edited("same", "loads at the first dimensions, whatever the map says")(
    (_LOAD, "memref.LoadOp.get(operand, turn[: len(map.results)])")
)
stored_at_turn = edited("same", "stores at the first dimensions, whatever the output's map says")(
    ("output, at(build, map, turn)", "output, turn[: len(map.results)]")
)
from_zero = edited("same", "starts every sum at zero: what the output held is lost")(
    (
        "means[argument] = load",
        "means[argument] = build.insert(arith.SubfOp(load, load)).result "
        "if operand in op.outputs and argument.type.name == 'f32' else load",
    )
)
numbers_loaded = edited("valid", "loads numbers as if they were buffers")(
    ("isinstance(operand.type, MemRefType)", "True")
)
from_named = edited("did", "lowers linalg.generic and the names of the text only, and no convolution")(
    (
        _ALL,
        "[op for op in module.walk() if op.name in ('linalg.generic', 'linalg.fill', 'linalg.matmul', "
        "'linalg.transpose', 'linalg.copy')]",
    )
)
body_without_regions = edited("valid", "copies the operations of the body without what is in them")(
    ("inner.clone(means)", "inner.clone_without_regions(means)")
)
body_may_overflow = edited("spared", "copies the operations of the body without what they promise about overflow")(
    (
        "build.insert(inner.clone(means))",
        "copy = build.insert(inner.clone(means))\n"
        "if flags := copy.properties.get('overflowFlags'):\n"
        "    copy.properties['overflowFlags'] = type(flags)('none')",
    )
)
body_without_flags = edited("spared", "copies the operations of the body without their attributes")(
    ("build.insert(inner.clone(means))", "build.insert(inner.clone(means)).attributes.clear()")
)
parallel = edited("cost", "writes scf.parallel, whose turns have no order")(
    ("scf.ForOp(zero, end, one, [], body)", "scf.ParallelOp([zero], [end], [one], Region(body))"),
    ("Block([scf.YieldOp()], arg_types=[IndexType()])", "Block([scf.ReduceOp()], arg_types=[IndexType()])"),
)
on_the_stack = edited("cost", "puts each result into a new buffer on the stack first")(
    (
        "build = Builder(InsertPoint.before(op))",
        "build = Builder(InsertPoint.before(op))\nbuild.insert(memref.AllocaOp.get(f32, shape=[1]))",
    )
)
reductions_inside = edited("same", "writes the loops of reductions innermost")(
    (
        "for end in ends: ...",
        "kinds = [kind.data.value for kind in op.get_iterator_types()]\n"
        "order = sorted(range(len(ends)), key=lambda dim: kinds[dim])\n"
        "for end in [ends[dim] for dim in order]: ...\n"
        "turn = [turn[order.index(dim)] for dim in range(len(ends))]",
    )
)
one_load_for_a_buffer = edited("same", "loads a buffer once, although two maps read it")(
    (
        "means[argument] = load",
        "means[argument] = next((means[a] for a, o in zip(op.body.block.args, op.operands, strict=True) "
        "if o is operand and a in means), load)",
    )
)
one_load_without_dimensions = edited(
    "same", "loads a buffer without dimensions before the loops: it may be an output, too"
)(
    (
        "turn = []",
        "turn = []\n"
        "once = {\n"
        "    argument: build.insert(memref.LoadOp.get(operand, [])).res\n"
        "    for argument, operand in zip(op.body.block.args, op.inputs)\n"
        "    if argument.uses and isinstance(operand.type, MemRefType) and not operand.type.get_shape()\n"
        "}",
    ),
    (
        "if argument.uses:\n    ...",
        "if argument in once:\n    means[argument] = once[argument]\nelif argument.uses:\n    ...",
    ),
)
uses_outside_of_branches = edited("valid", "does not see that a branch of the body uses an argument")(
    ("argument.uses", "any(argument in inner.operands for inner in op.body.block.ops)")
)
kept_values = edited("same", "does not store an output that keeps its value")(
    (
        "build.insert(memref.StoreOp.get(means.get(value, value), output, at(build, map, turn)))",
        "value.owner is op.body.block and value.index >= len(op.inputs) and op.operands[value.index] is output and "
        "maps[value.index] == map or build.insert(memref.StoreOp.get(means.get(value, value), output, "
        "at(build, map, turn)))",
    )
)
unused_of_the_body = edited("spared", "leaves out operations of the body whose result is not used")(
    ("build.insert(inner.clone(means))", "any(r.uses for r in inner.results) and build.insert(inner.clone(means))")
)
last_loop_outside = edited("same", "writes the loop of the last dimension outermost")(
    ("turn.append(body.args[0])", "turn.insert(0, body.args[0])"),
    ("range(maps[0].num_dims)", "reversed(range(maps[0].num_dims))"),
)
first_sizes = edited("same", "asks memref.dim for the first size, whichever it needs")(
    ("known if known >= 0 else place", "known if known >= 0 else 0")
)
sizes_by_dimension = edited("same", "takes the number of a dimension for its place in the operand")(
    ("known if known >= 0 else place", "known if known >= 0 else min(place, dim)")
)
read_late = edited("same", "reads an output when the one before is written")(
    (
        "means[argument] = load",
        "means[argument] = None if isinstance(argument.owner.last_op, YieldOp) "
        "and argument.owner.first_op is argument.owner.last_op and is_buffer else load",
    ),
    (
        "means.get(value, value)",
        "means.get(value, value) or build.insert(memref.LoadOp.get("
        "op.operands[value.index], at(build, maps[value.index], turn))).res",
    ),
)


@wrong("same", "divides and takes remainders as of numbers without a sign")
def unsigned(module):
    from xdsl.dialects import arith
    from xdsl.rewriter import Rewriter

    inside_out(module)
    for op in list(module.walk()):
        if op.name == "arith.floordivsi":
            Rewriter.replace_op(op, arith.DivSIOp(op.lhs, op.rhs))
    return module


@wrong("spared", "removes what is unused, of the rest, too")
def tidied(module):
    from xdsl.transforms.dead_code_elimination import DeadCodeElimination

    from passlab import mlir

    inside_out(module)
    DeadCodeElimination().apply(mlir.context(), module)
    return module


@wrong("spared", "writes what is computed twice once, of the rest, too")
def common(module):
    from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination

    from passlab import mlir

    inside_out(module)
    CommonSubexpressionElimination().apply(mlir.context(), module)
    return module


@wrong("spared", "drops the attributes of the rest")
def bare(module):
    for op in inside_out(module).walk():
        if op.name.startswith("memref."):
            op.attributes.clear()
    return module


@wrong("did", "looks into loops, and not into branches")
def loops_only(module):
    branches = [op for op in module.walk() if op.name == "scf.if"]
    return module if branches else inside_out(module)


always_loads = edited("cost", "loads outputs that no turn reads")(("argument.uses", "True"))
left_behind = edited("did", "writes the loops, and keeps the operation")(
    ("        op.detach()\n        op.erase()\n", "")
)
