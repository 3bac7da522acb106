"""Hidden cases and answers of day09.loops."""

from __future__ import annotations

import random

import numpy as np

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day09.loops import PRODUCT, generic, in_a_loop, loops_case, memref
from passlab.judge import Case

_ADD = "%s = arith.addf %l, %o : f32\nlinalg.yield %s : f32"
_COPY = "linalg.yield %l : f32"


def _diagonals(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Write all elements into the place of their diagonal, the first dimension outermost: the last one stays."""
    for i, row in enumerate(a):
        b[i : i + len(row)] = row
    return a, b


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    m, n, k = rng.sample(range(2, 8), 3)
    step, window = rng.randint(2, 3), rng.randint(2, 4)
    long = step * (m - 1) + window + rng.randint(0, 2)
    at = rng.randrange(n)
    factor = rng.choice([-1.5, 0.5, 2.5])

    def buffers(*shapes: tuple) -> list[str]:
        return ["f32" if shape is None else memref(*shape) for shape in shapes]

    def one(name, dims, reductions, maps, body, arguments, shapes, expected, outs=1, types=None, before="", wrap=str):
        """Return a module of a single linalg.generic over %a, %b, …; `maps`: of these in turn."""
        types = types or buffers(*shapes)
        operands = [(f"%{letter}", *rest) for letter, *rest in zip("abcdef", types, maps, strict=False)]
        text = generic(dims, reductions, operands[:-outs], operands[-outs:], body, arguments)
        return loops_case(name, types, before + wrap(text), shapes, expected)

    two, three = "%l: f32, %o: f32", "%l: f32, %r: f32, %o: f32"
    first = rng.sample([0, 1, 2], 3)
    shape = [m, n, k]
    kept = ("valid", "same", "spared", "cost")  # there is nothing to do
    there = ", ".join(f"d{d}" for d in first)
    return [
        one("a product of transposes", 3, [1], ["d1, d0", "d2, d1", "d2, d0"], PRODUCT, three,
            [(k, m), (n, k), (n, m)], lambda a, b, c: (a, b, c + (a.T @ b.T).T)),
        one("a permutation", 3, [], ["d0, d1, d2", there], _COPY, two,
            [tuple(shape), tuple(shape[d] for d in first)], lambda a, b: (a, a.transpose(first))),
        one("a sum of all", 2, [0, 1], ["d0, d1", ""], _ADD, two, [(m, n), ()], lambda a, b: (a, b + a.sum())),
        one("no dimension", 0, [], ["", ""], _ADD, two, [(), ()], lambda a, b: (a, a + b)),
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
            [(n,), (n,)], lambda a, b: (a, a * np.float32(factor)), before=f"%z = arith.constant {factor} : f32\n"),
        one("a value from outside, yielded", 1, [], ["d0", "d0"], "linalg.yield %z : f32", two, [(n,), (n,)],
            lambda a, b: (a, np.full(n, np.float32(factor))), before=f"%z = arith.constant {factor} : f32\n"),
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
        one("no turn, sizes unknown", 2, [1], ["d0, d1", "d0"], _ADD, two, [(m, 0), (m,)], lambda a, b: (a, b),
            types=[memref("?", "?"), memref("?")]),
        one("in a loop", 2, [0], ["d0, d1", "d1"], _ADD, two, [(m, n), (n,)], lambda a, b: (a, b + 3 * a.sum(0)),
            wrap=in_a_loop),
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
        loops_case("no linalg", buffers((m,)), "", [(m,)], lambda a: (a,), *kept),
        loops_case(
            "a copy that is not linalg's", buffers((m,), (m,)),
            f'"memref.copy"(%a, %b) : ({memref(m)}, {memref(m)}) -> ()', [(m,), (m,)], lambda a, b: (a, a), *kept),
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
    from xdsl.dialects import arith, memref, scf
    from xdsl.dialects.builtin import IndexType, MemRefType
    from xdsl.ir import Block
    from xdsl.ir.affine import AffineBinaryOpExpr, AffineBinaryOpKind, AffineConstantExpr, AffineDimExpr
    from xdsl.rewriter import Rewriter

    kinds = {
        AffineBinaryOpKind.Add: arith.AddiOp,
        AffineBinaryOpKind.Mul: arith.MuliOp,
        AffineBinaryOpKind.FloorDiv: arith.DivUIOp,
        AffineBinaryOpKind.Mod: arith.RemUIOp,
    }

    def number(n):
        return arith.ConstantOp.from_int_and_width(n, IndexType()).result

    def value(expr, turn):
        if isinstance(expr, AffineDimExpr):
            return turn[expr.position]
        if isinstance(expr, AffineConstantExpr):
            return number(expr.value)
        assert isinstance(expr, AffineBinaryOpExpr)
        return kinds[expr.kind](value(expr.lhs, turn), value(expr.rhs, turn)).result

    def nest(op, maps, turn):
        dim = len(turn)
        if dim < maps[0].num_dims:
            operand, place = next(
                (operand, place)
                for operand, map in zip(op.operands, maps, strict=True)
                for place, result in enumerate(map.results)
                if result == AffineDimExpr(dim)
            )
            end = memref.DimOp(operand, number(place)).result
            block = Block(arg_types=[IndexType()])
            scf.ForOp(number(0), end, number(1), [], block)
            with ImplicitBuilder(block):
                nest(op, maps, [*turn, block.args[0]])
                scf.YieldOp()
            return
        known = {}
        for argument, operand, map in zip(op.body.block.args, op.operands, maps, strict=True):
            if not isinstance(operand.type, MemRefType):
                known[argument] = operand
            elif argument.uses:
                known[argument] = memref.LoadOp.get(operand, [value(e, turn) for e in map.results]).res
        for inner in op.body.block.ops:
            if inner.name == "linalg.index":
                known[inner.results[0]] = turn[inner.dim.value.data]
            elif inner.name != "linalg.yield":
                inner.clone(known)
        for result, output, map in zip(op.body.block.last_op.operands, op.outputs, maps[len(op.inputs) :], strict=True):
            memref.StoreOp.get(known.get(result, result), output, [value(e, turn) for e in map.results])

    for op in list(module.walk()):
        if hasattr(op, "get_indexing_maps"):
            holder = Block()
            with ImplicitBuilder(holder):
                nest(op, [a.data for a in op.get_indexing_maps()], [])
            Rewriter.inline_block(holder, _before(op))
            op.detach()
            op.erase()
    return module


def _before(op):
    from xdsl.rewriter import InsertPoint

    return InsertPoint.before(op)


@right("a rewrite pattern that moves the body's operations instead of copying them")
def by_pattern(module):
    from xdsl.dialects import affine, arith, memref, scf
    from xdsl.dialects.builtin import AffineMapAttr, IndexType, MemRefType
    from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
    from xdsl.dialects.linalg.ops import IndexOp, YieldOp
    from xdsl.ir import Block
    from xdsl.ir.affine import AffineDimExpr, AffineMap
    from xdsl.pattern_rewriter import PatternRewriteWalker, RewritePattern
    from xdsl.rewriter import InsertPoint

    class Lower(RewritePattern):
        def match_and_rewrite(self, op, rewriter):
            if not isinstance(op, LinalgStructuredOperation):
                return
            maps = [attribute.data for attribute in op.get_indexing_maps()]
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

            def place_of(map):
                made = [affine.ApplyOp(turn, AffineMapAttr(AffineMap(len(turn), 0, (r,)))) for r in map.results]
                rewriter.insert_op(made, point)
                return made

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
top_level = edited(
    "did", "looks at the operations of @main only, not into loops",
    (_ALL, "[op for f in module.ops for op in f.body.block.ops if isinstance(op, LinalgStructuredOperation)]"),
)  # fmt: skip
from_first = edited(
    "same", "takes the sizes of the operands in their order for the sizes of the dimensions",
    ("result == AffineDimExpr(dim)", "place == dim"),
)  # fmt: skip
at_the_turn = edited(
    "same", "loads at the first dimensions, whatever the map says",
    (_LOAD, "memref.LoadOp.get(operand, turn[: len(map.results)])"),
)  # fmt: skip
stored_at_turn = edited(
    "same", "stores at the first dimensions, whatever the output's map says",
    ("output, at(build, map, turn)", "output, turn[: len(map.results)]"),
)  # fmt: skip
from_zero = edited(
    "same", "starts every sum at zero: what the output held is lost",
    ("means[argument] = load", "means[argument] = build.insert(arith.SubfOp(load, load)).result "
     "if operand in op.outputs and argument.type.name == 'f32' else load"),
)  # fmt: skip
numbers_loaded = edited(
    "valid", "loads numbers as if they were buffers",
    ("isinstance(operand.type, MemRefType)", "True"),
)  # fmt: skip
always_loads = edited("cost", "loads outputs that no turn reads", ("argument.uses", "True"))
left_behind = edited(
    "did", "writes the loops, and keeps the operation", ("        op.detach()\n        op.erase()\n", "")
)
