# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Day 9 · MLIR: exercises
#
# Seven questions. The core is questions 1, 2 and 4 and the plain cases of 3, about 120 minutes; the rest, about
# 260 minutes, is stretch: harder, and for extra credit. The text of question 3 says what its plain cases are. Read the
# lesson first: [day09_mlir.ipynb](../../course/day09_mlir.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day09.nest")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import math
from collections import Counter

from xdsl.builder import Builder
from xdsl.dialects import affine, arith, func, linalg, memref, scf, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    TensorType,
    f32,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp, IndexOp, YieldOp
from xdsl.ir import Block, Dialect, Region
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)
from xdsl.parser import Parser
from xdsl.pattern_rewriter import RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import ParseError, VerifyException

from passlab import check, exercises, hint, mlir, progress
from passlab.mlir import parse
from passlab.mlir.nests import expression
from passlab.mlir.rewriting import Endless, again, constant, flags, number, rewrite

# %%
progress("day09")

# %% [markdown]
# ## 1 · A linalg.generic is a loop nest
#
# Write the loops of a `linalg.generic` as text in the language of the lesson:
#
# ```
# for d0 in prange(4):
#     for d1 in range(8):
#         v0 = in0[d0, d1] * in1[d1]
#         out0[d0] = out0[d0] + v0
# ```
#
# | part | source |
# |---|---|
# | the loops d0, d1, …, from the outside in | the dimensions of the maps; `prange` for a parallel iterator, `range` for a reduction |
# | how often a loop runs | no attribute says so. A side of an operand that is indexed with `d1` alone is as long as the loop over d1 |
# | `in0`, `in1`, …, `out0`, … | the operands, ins and outs, indexed as their maps say; `in0[()]` if there are no indices |
# | the statements | `expression(op, "v0", "v1")`: what an operation of the body computes, from names of its operands |
#
# For `floordiv` and `mod` the language has `//` and `%`.


# %%
def nest(module: ModuleOp) -> str:
    """The loop nest of a linalg.generic.

    In:  a module of one function with one `linalg.generic` on numbers and tensors of
         known shapes.
    Out: the text of its loops. An iteration reads what the body uses, computes each of
         its operations once, and then writes the outs, in any order. You may leave out
         what has no effect: an operation whose result is not used, an out that keeps
         its value.
    Stays: operands that the body does not use are not read.
    Time: 2 s of computing for each test case.

    Example:  a copy of a vector of 5 gives
              "for d0 in prange(5):\\n    out0[d0] = in0[d0]".
    """
    ### BEGIN SOLUTION
    (op,) = (op for op in module.walk() if isinstance(op, GenericOp))
    places, sizes = [], {}
    names = [f"in{i}" for i in range(len(op.inputs))] + [
        f"out{i}" for i in range(len(op.outputs))
    ]
    for name, operand, attr in zip(
        names, op.operands, op.indexing_maps.data, strict=True
    ):
        index = (
            ", ".join(str(expr) for expr in attr.data.results)
            .replace("floordiv", "//")
            .replace("mod", "%")
        )
        places.append(f"{name}[{index or '()'}]")
        for d, expr in enumerate(attr.data.results):
            # Only a dimension that is an index by itself has the size of what it
            # indexes.
            if isinstance(expr, AffineDimExpr):
                sizes[expr.position] = operand.type.get_shape()[d]
    lines = []
    for d, kind in enumerate(op.iterator_types.data):
        loop = "prange" if kind.data.value == "parallel" else "range"
        lines.append(f"{'    ' * d}for d{d} in {loop}({sizes[d]}):")
    inside, values = "    " * len(lines), {}
    # All reads come before the first write: a body may exchange two outs.
    for place, argument in zip(places, op.body.block.args, strict=True):
        if argument.uses:
            values[argument] = f"a{argument.index}"
            lines.append(f"{inside}{values[argument]} = {place}")
    *body, result = op.body.block.ops
    for k, inner in enumerate(body):
        values[inner.results[0]] = f"v{k}"
        lines.append(
            f"{inside}v{k} = "
            f"{expression(inner, *(values[operand] for operand in inner.operands))}"
        )
    for place, value in zip(places[len(op.inputs) :], result.operands, strict=True):
        lines.append(f"{inside}{place} = {values[value]}")
    return "\n".join(lines)
    ### END SOLUTION


# %%
check("day09.nest", nest)

# %% [markdown]
# ## 2 · Rewrite patterns
#
# A pattern looks at one operation and rewrites it or does nothing. `rewrite(module, patterns)` applies patterns until
# none matches. Of several that match an operation, the one with the largest `benefit` wins.
#
# | law | integers | floats |
# |---|---|---|
# | c ∘ x = x ∘ c, for a constant c | always | always |
# | x + 0 = x | always | x + (−0.0) always; x + 0.0 with `nsz`, since −0.0 + 0.0 is 0.0 |
# | x · 1 = x | always | always |
# | x · 0 = 0 | always | with `nnan` and `nsz`, since ∞ · 0 is NaN and −1 · 0 is −0.0 |
# | (x ∘ c) ∘ d = x ∘ (c ∘ d), for constants | always: both sides wrap | if both operations have `reassoc` |
# | x · 2 = x + x | always | always |
#
# The operation ∘ is addi, muli, addf or mulf, twice the same. The first law, written as in this cell, does not end:


# %%
class Swap(RewritePattern):
    """c ∘ x = x ∘ c"""

    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.addi" and number(op.lhs) is not None:
            rewriter.replace(op, again(op, op.rhs, op.lhs, flags(op)))


TWO_CONSTANTS = """
func.func @main() -> i32 {
  %a = arith.constant 1 : i32
  %b = arith.constant 2 : i32
  %c = arith.addi %a, %b : i32
  return %c : i32
}
"""
try:
    rewrite(parse(TWO_CONSTANTS), [Swap()])
except Endless as error:
    print(error)

# %% [markdown]
# You may use `number(value)`, of a constant (else None); `constant(number, type)`, which wraps an integer; `flags(op)`;
# and `again(op, lhs, rhs, flags)`, an operation of the same kind. An operation that replaces one (exchanged, doubled)
# has the flags of the old one, since later laws need them, and no others. One that replaces two has the flags that
# both have; but `nsw` and `nuw` promise that one particular sum does not overflow, and the new sum is a different one.
# So these two must be dropped when operations merge, and may be dropped elsewhere. A law applies whether or not other
# operations read the inner value: the inner operation stays for them.


# %%
def patterns() -> list[RewritePattern]:
    """Patterns for the laws of the table.

    Types: index, i8 and wider, f16, f32, f64. An x may be a constant.
    Out: instances of RewritePattern, whose rewriting ends on every module. Where both
         (x ∘ c) ∘ d and x · 2 match, few operations are left: (x · 3) · 2 = x · 6.
    Stays: whatever no law of the table rewrites.

    Example:  0 + x = x + 0 = x, by two rewrites
    """
    ### BEGIN SOLUTION
    return [ConstantRight(), Neutral(), Zero(), Merge(), Double()]


ADD, MULTIPLY = ("arith.addi", "arith.addf"), ("arith.muli", "arith.mulf")


class ConstantRight(RewritePattern):
    """c ∘ x = x ∘ c, if x is not a constant, too."""

    def match_and_rewrite(self, op, rewriter):
        if (
            op.name in ADD + MULTIPLY
            and number(op.lhs) is not None
            and number(op.rhs) is None
        ):
            rewriter.replace(op, again(op, op.rhs, op.lhs, flags(op)))


class Neutral(RewritePattern):
    """x + 0 = x and x · 1 = x"""

    def match_and_rewrite(self, op, rewriter):
        # True for -0.0, too, so ask for the sign
        zero = op.name in ADD and number(op.rhs) == 0
        if op.name == "arith.addf" and zero:
            zero = math.copysign(1, number(op.rhs)) < 0 or "nsz" in flags(op)
        if zero or (op.name in MULTIPLY and number(op.rhs) == 1):
            rewriter.replace(op, [], [op.lhs])


class Zero(RewritePattern):
    """x · 0 = 0"""

    def match_and_rewrite(self, op, rewriter):
        free = op.name == "arith.muli" or flags(op) >= {"nnan", "nsz"}
        if op.name in MULTIPLY and number(op.rhs) == 0 and free:
            rewriter.replace(op, [], [op.rhs])


class Merge(RewritePattern):
    """(x ∘ c) ∘ d = x ∘ (c ∘ d)"""

    # Before Double: (x · 3) · 2 becomes x · 6, not a sum of x · 3 with itself.
    benefit = 2

    def match_and_rewrite(self, op, rewriter):
        if (
            op.name not in ADD + MULTIPLY
            or getattr(op.lhs.owner, "name", "") != op.name
        ):
            return
        inner = op.lhs.owner
        # c ∘ d may overflow where the two steps do not, so promises about overflow are
        # dropped.
        c, d, both = (
            number(inner.rhs),
            number(op.rhs),
            flags(inner) & flags(op) - {"nsw", "nuw"},
        )
        if (
            c is not None
            and d is not None
            and ("reassoc" in both or isinstance(c, int))
        ):
            merged = constant(c + d if op.name in ADD else c * d, op.rhs.type)
            rewriter.replace(op, [merged, again(op, inner.lhs, merged.result, both)])


class Double(RewritePattern):
    """x · 2 = x + x"""

    def match_and_rewrite(self, op, rewriter):
        if op.name in MULTIPLY and number(op.rhs) == 2:
            add = (
                arith.AddiOp(op.lhs, op.lhs)
                if op.name == "arith.muli"
                else arith.AddfOp(op.lhs, op.lhs, op.fastmath)
            )
            rewriter.replace(op, add)

    ### END SOLUTION


# %%
check("day09.patterns", patterns)

# %% [markdown]
# ## 3 · Element-wise fusion · core and stretch
#
# Where a `linalg.generic` reads what another one has computed, the two can be one, and the tensor between them is never
# written. The consumer reads element C(i) of that tensor in iteration i. The producer computes it in iteration
# P⁻¹(C(i)), if P is the map of its result, and there reads Q(P⁻¹(C(i))) of an operand with the map Q. So the fused
# operation has the loops of the consumer, both bodies with their flags, and the composed maps.
#
# | fuse | leave |
# |---|---|
# | the map of the producer's result is a permutation: so its iterators are all parallel | a producer that sums up, or that reads its outs |
# | the consumer reads the result as an input (it may sum it up) | the consumer's outs begin with it |
# | nothing else reads the result | it is read by another operation, or returned |
# | | a dimension of the consumer would not index a side of an operand alone afterwards (`d0 + d1` does not count) |
#
# The reason for the last rule: the size of such a dimension would be unknown, and MLIR refuses the result. Two inputs
# that are the same value through the same map may become one, with one argument. This matters for "nothing else", too:
# after relu(y) is fused into y + relu(y), y is read once.


# %%
def fusion(module: ModuleOp) -> ModuleOp:
    """Fuse producers into their consumers, until no rule of the table applies.

    In:  a module of linalg.generics on tensors of numbers, each with one result,
         without linalg.index.
    Out: the module, with as many linalg.generics as MLIR's linalg-fuse-elementwise-ops
         leaves.
    Stays: pairs in the right column of the table. No value is computed in two places.
    Not to be called: passlab.mlir.modules.pipeline, passlab.mlir.modules.passes.

    The core: all maps are the identity, there are no sums and no outs that are read,
         and no operation reads a value of another one twice, before or after. So a
         fused operation has the loops of its consumer, all maps stay as they are, and
         only the readers of a value decide.

    Example:  b(i, j) = exp(a(j, i)) after a(i, j) = x(i, j) + y(i) is
              b(i, j) = exp(x(j, i) + y(j)).
    """
    ### BEGIN SOLUTION
    for op in list(module.walk()):
        if isinstance(op, GenericOp):
            op = rebuilt(op)
            while (which := fusible(op)) is not None:
                op = rebuilt(op, which)
    return module


def fusible(op):
    """Return the number of an input whose producer can be fused, or None."""
    maps = [attr.data for attr in op.indexing_maps.data]
    for which, value in enumerate(op.inputs):
        producer = value.owner
        if (
            isinstance(producer, GenericOp)
            and value.has_one_use()
            and not producer.body.block.args[-1].uses
        ):
            *_, out = producer.indexing_maps.data
            # A permutation names all loops, so none is a reduction.
            if (
                out.data.is_projected_permutation()
                and len(out.data.results) == out.data.num_dims
            ):
                # Loops get their bounds from the maps: each must still be an index by
                # itself in one that remains.
                left = [
                    *maps[:which],
                    *maps[which + 1 :],
                    *composed(producer, maps[which]),
                ]
                known = {
                    expr.position
                    for amap in left
                    for expr in amap.results
                    if isinstance(expr, AffineDimExpr)
                }
                if len(known) == maps[0].num_dims:
                    return which
    return None


def composed(producer, read):
    """Return the maps of a producer's inputs, in the loops of its consumer.

    The consumer reads the result through a map.
    """
    *maps, out = (attr.data for attr in producer.indexing_maps.data)
    turned = out.inverse_permutation().compose(read)
    return [amap.compose(turned) for amap in maps]


def rebuilt(op, which=None):
    """Replace an operation by one into which the producer of input `which` is fused.

    The new one has no equal inputs.
    """
    inputs, block, values = {}, Block(), {}

    def read(value, amap, argument):
        if (value, amap) not in inputs:
            inputs[value, amap] = block.insert_arg(argument.type, len(inputs))
        values[argument] = inputs[value, amap]

    *arguments, initial = op.body.block.args
    for at, argument in enumerate(arguments):
        if at != which:
            read(op.inputs[at], op.indexing_maps.data[at].data, argument)
    if which is not None:
        producer = op.inputs[which].owner
        theirs = composed(producer, op.indexing_maps.data[which].data)
        for value, amap, argument in zip(
            producer.inputs, theirs, producer.body.block.args[:-1], strict=True
        ):
            read(value, amap, argument)
        *body, result = producer.body.block.ops
        for inner in body:
            block.add_op(inner.clone(values))
        values[arguments[which]] = values[result.operands[0]]
    values[initial] = block.insert_arg(initial.type, len(inputs))
    for inner in op.body.block.ops:
        block.add_op(inner.clone(values))
    maps = [AffineMapAttr(amap) for _, amap in inputs] + [op.indexing_maps.data[-1]]
    values_read = [value for value, _ in inputs]
    fused = GenericOp(
        values_read,
        op.outputs,
        Region(block),
        maps,
        op.iterator_types.data,
        op.result_types,
    )
    Rewriter.replace_op(op, fused)
    if which is not None:
        producer.detach()
        producer.erase()
    return fused
    ### END SOLUTION


# %%
check("day09.fusion-core", fusion)

# %%
check("day09.fusion", fusion)

# %% [markdown]
# ## 4 · A pipeline, and what each step did
#
# A lowering consists of passes, and their order matters: `convert-linalg-to-loops` does nothing on tensors, and does
# not say so; fusion after bufferization fuses nothing. Given a few passes of MLIR, find the shortest pipeline that
# brings a module to a goal, and tell what each step changed.
#
# A goal says how many operations of a kind may be left: `{"linalg": 0, "scf.for": 2}` allows no operation of the
# dialect linalg, and at most two loops. A pass may occur twice, and it may fail, with an `MLIRError`.


# %%
def pipeline(
    module: ModuleOp, names: list[str], goal: dict[str, int]
) -> list[tuple[str, dict[str, int]]] | None:
    """The shortest pipeline to a goal.

    In:  a module; names of passes, which `mlir.pipeline(module, name)` runs: it returns
         a new module; and a goal: dialect, or name of an operation → how many there may
         be in the end, in all regions.
    Out: the steps in order: the name of the pass, and by how much it changed the number
         of operations of each name, without those whose number is the same. None if no
         order reaches the goal.

    Example:  [("linalg-fuse-elementwise-ops", {"linalg.generic": -1, "linalg.yield":
              -1, "tensor.empty": -1})]
    """
    ### BEGIN SOLUTION
    waiting, seen = [(module, [])], {mlir.text(module)}
    # The list grows while it is read: breadth first, so the first hit is shortest.
    for state, steps in waiting:
        ops = Counter(op.name for op in state.walk())
        dialects = Counter(op.name.split(".")[0] for op in state.walk())
        if all(ops[kind] + dialects[kind] <= most for kind, most in goal.items()):
            return steps
        for name in names:
            try:
                after = mlir.pipeline(state, name)
            except mlir.MLIRError:
                continue
            if mlir.text(after) not in seen:
                seen.add(mlir.text(after))
                change = Counter(op.name for op in after.walk())
                change.subtract(ops)
                waiting.append(
                    (after, [*steps, (name, {op: n for op, n in change.items() if n})])
                )
    return None
    ### END SOLUTION


# %%
check("day09.pipeline", pipeline)


# %% [markdown]
# ## 5 · Slots for buffers · stretch
#
# After bufferization a program allocates a buffer for each result. Give the buffers slots, so that two buffers share
# one wherever it is safe. A slot is as large as the largest buffer in it. This is register allocation, for buffers; the
# difference is in what counts as a use.
#
# A buffer is **touched** by every operation that has it, or another name of it, among its operands. `memref.alloc`
# touches nothing yet, wherever it is, and these operations only create names:
#
# | operation | its result may be |
# |---|---|
# | `memref.subview`, `memref.cast` | the memory of the operand |
# | `arith.select` between two memrefs | either |
# | `scf.for` with memrefs as `iter_args`, and its `scf.yield` | the memref in the same place of `iter_args`, or of `scf.yield`; so may the block's argument in that place |
#
# A buffer is live from the first operation that touches it to the last one, both included. Then there are loops: if an
# operation in an `scf.for` touches a buffer that was allocated outside of it, the whole loop counts as touching it,
# since the next turn may read what this one wrote. A buffer that is allocated in a loop is a new one in each turn.
# `func.return` touches the buffers that it returns.
#
# Two buffers that are live at the same operation get different slots. Use as few slots as that allows, and at most 1.1
# times the bytes of this rule, buffer by buffer in the order in which they are first touched: of the free slots the
# smallest that is large enough; if none is, the largest, which grows; a new slot only if none is free.


# %%
def reuse(module: ModuleOp) -> dict[str, int]:
    """A slot for each buffer.

    In:  a module with one function, whose operations are `memref.alloc`, those of the
         table, `scf.for`, `func.return`, constants, and linalg's and `memref.copy`. All
         sizes are known, everything is touched, and no loop passes on a buffer that it
         has allocated itself.
    Out: for each `memref.alloc` the number of its slot, any int from 0 on: only which
         buffers share one counts. The key is the name of the result without %:
         `alloc.memref.name_hint`.
    Not to be called: passlab.exercises.day09.reuse.lives,
         passlab.exercises.day09.reuse.may_be.

    Example:  %a = memref.alloc(); linalg.copy ins(%x) outs(%a); %b = memref.alloc();
              linalg.copy ins(%a) outs(%b);
              %c = memref.alloc(); linalg.copy ins(%b) outs(%c): {"a": 0, "b": 1, "c":
              0}
    """
    ### BEGIN SOLUTION
    may_be = names(module)
    number = {op: n for n, op in enumerate(module.walk())}
    live = {}
    for op in module.walk():
        if op.name in (
            "memref.subview",
            "memref.cast",
            "arith.select",
            "scf.for",
            "scf.yield",
        ):
            continue  # these make names, and touch nothing
        for buffer in {
            one for operand in op.operands for one in may_be.get(operand, ())
        }:
            at = op
            # In a loop that runs several times, a use anywhere is a use from the first
            # operation to the last.
            while at.parent_block() is not buffer.parent_block():
                at = at.parent_op()
            first, last = number[at], max(number[inner] for inner in at.walk())
            start, end = live.get(buffer, (first, last))
            live[buffer] = min(start, first), max(end, last)

    slot, width, busy_until = {}, [], []
    for buffer, (start, end) in sorted(live.items(), key=lambda one: one[1][0]):
        size = (
            math.prod(buffer.memref.type.get_shape())
            * buffer.memref.type.element_type.size
        )
        free = [n for n, until in enumerate(busy_until) if until < start]
        if not free:
            free = [len(width)]
            width.append(0)
            busy_until.append(0)
        # first those that are large enough, then the one whose size is nearest
        best = min(free, key=lambda n: (width[n] < size, abs(width[n] - size)))
        width[best], busy_until[best] = max(width[best], size), end
        slot[buffer.memref.name_hint] = best
    return slot


def names(module):
    """Return the buffers whose memory each value may be."""
    aliases, pairs = {}, []
    for op in module.walk():
        if isinstance(op, memref.AllocOp):
            aliases[op.memref] = {op}
        elif op.name in ("memref.subview", "memref.cast", "arith.select"):
            pairs += [(op.results[0], operand) for operand in op.operands]
        elif isinstance(op, scf.ForOp):
            after = op.body.block.last_op.operands
            for value in (op.body.block.args[1:], op.results):
                pairs += [
                    *zip(value, op.iter_args, strict=True),
                    *zip(value, after, strict=True),
                ]
    before = None
    # Names need several rounds to pass through a loop.
    while before != (before := sum(map(len, aliases.values()))):
        for value, other in pairs:
            aliases[value] = aliases.get(value, set()) | aliases.get(other, set())
    return aliases
    ### END SOLUTION


# %%
check("day09.reuse", reuse)


# %% [markdown]
# ## 6 · From linalg to loops · stretch
#
# A structured operation says what one iteration computes (its body), which iterations there are (its dimensions), and
# where the operands of an iteration are (its maps). It does not say how to run through the iterations. Write the loops:
# on memrefs, one `scf.for` for each dimension, the first outermost, since a later iteration may overwrite the result of
# an earlier one.
#
# | in the operation | in the innermost loop |
# |---|---|
# | an argument of the body that is used, and whose operand is a memref | a `memref.load`, at the index that the operand's map gives |
# | an argument whose operand is a number | the number |
# | `linalg.index` | the loop's variable |
# | another operation of the body | a copy of it, with its regions and attributes |
# | a value that `linalg.yield` yields | a `memref.store` into its output, at the index that the output's map gives |
#
# So a reduction needs no rule of its own: each iteration loads the output, adds to it, and stores it again. Nothing is
# set to zero first: where that is needed, the program has a `linalg.fill`. All loads come before the first store. A
# dimension runs from 0 to the size of any operand whose map has it as a result by itself, like `d1` in
# `(d0, d1) -> (d0 + d1, d1)`; there always is one. A size may be 0, or unknown: then it is negative in the type's
# `get_shape()`, and `memref.dim` returns it.
#
# `linalg.generic` is not the only one: `linalg.fill`, `linalg.matmul`, the convolutions and others with names also have
# maps and a body, which are not printed. In xDSL all of them are a `LinalgStructuredOperation`, with `inputs`, `outputs`, `body`
# and `get_indexing_maps()`.


# %%
def loops(module: ModuleOp) -> ModuleOp:
    """The module with loops in place of its structured operations.

    In:  a module with functions on memrefs; linalg's operations may be in loops and
         branches. Maps are built from dimensions and numbers, negative ones too, with
         +, *, floordiv and mod; `affine.apply` computes such a map.
    Out: the module, which you may change. No operation of linalg remains; everything
         else is unchanged, unused operations and attributes included. There is no new
         buffer, and at most one loop for each dimension, one load for each argument
         that is used, and one store for each output.
    Not to be called: passlab.mlir.pipeline, passlab.mlir.passes,
    xdsl.transforms.convert_linalg_to_loops.ConvertLinalgToLoopsPass.apply,
    xdsl.transforms.loop_nest_lowering_utils.rewrite_linalg_structured_to_loops.

    Example:  linalg.fill ins(%z : f32) outs(%b : memref<4xf32>)
    becomes   scf.for %i = %c0 to %c4 step %c1 {
                memref.store %z, %b[%i] : memref<4xf32>
              }
    """
    ### BEGIN SOLUTION
    for op in [op for op in module.walk() if isinstance(op, LinalgStructuredOperation)]:
        maps = [attribute.data for attribute in op.get_indexing_maps()]
        build = Builder(InsertPoint.before(op))
        zero, one = (
            build.insert(arith.ConstantOp.from_int_and_width(n, IndexType()))
            for n in (0, 1)
        )
        ends = [size(build, op, maps, dim) for dim in range(maps[0].num_dims)]
        turn = []
        for end in ends:
            body = Block([scf.YieldOp()], arg_types=[IndexType()])
            build.insert(scf.ForOp(zero, end, one, [], body))
            build = Builder(InsertPoint.before(body.last_op))
            turn.append(body.args[0])

        # All loads come before the first store, as in the body that this replaces.
        means = {}
        for argument, operand, map in zip(
            op.body.block.args, op.operands, maps, strict=True
        ):
            if argument.uses:
                is_buffer = isinstance(operand.type, MemRefType)
                load = (
                    build.insert(memref.LoadOp.get(operand, at(build, map, turn))).res
                    if is_buffer
                    else operand
                )
                means[argument] = load
        for inner in op.body.block.ops:
            if isinstance(inner, IndexOp):
                means[inner.result] = turn[inner.dim.value.data]
            elif isinstance(inner, YieldOp):
                for value, output, map in zip(
                    inner.operands, op.outputs, maps[len(op.inputs) :], strict=True
                ):
                    build.insert(
                        memref.StoreOp.get(
                            means.get(value, value), output, at(build, map, turn)
                        )
                    )
            else:
                build.insert(inner.clone(means))
        op.detach()
        op.erase()
    return module


def size(build, op, maps, dim):
    """Return the number of iterations of a dimension, as a value."""
    for operand, map in zip(op.operands, maps, strict=True):
        for place, result in enumerate(map.results):
            if result == AffineDimExpr(dim):
                known = operand.type.get_shape()[place]
                number = build.insert(
                    arith.ConstantOp.from_int_and_width(
                        known if known >= 0 else place, IndexType()
                    )
                )
                return (
                    number
                    if known >= 0
                    else build.insert(memref.DimOp(operand, number))
                )


def at(build, map, turn):
    """Return the results of a map in an iteration, as values."""
    indices = []
    for result in map.results:
        if isinstance(result, AffineDimExpr):
            indices.append(turn[result.position])
        else:
            one = AffineMapAttr(AffineMap(map.num_dims, 0, (result,)))
            indices.append(build.insert(affine.ApplyOp(turn, one)).result)
    return indices
    ### END SOLUTION


# %%
check("day09.loops", loops)


# %% [markdown]
# ## 7 · A dialect of your own · stretch
#
# A small language for networks. These are its operations, with their rules; all elements are f32, all sizes are known.
#
# | operation | operands and properties | result | rules |
# |---|---|---|---|
# | `nn.dense` | x: B × I, w: O × I, b: O | B × O: x · wᵀ + b | the sizes fit |
# | `nn.leaky_relu` | x: any shape; `slope`: a float | as x: x where x > 0, else slope · x | 0 ≤ slope ≤ 1 |
# | `nn.sum` | x: any shape; `axis`: an integer | x's shape without that dimension: the sums along it | 0 ≤ axis < dimensions of x |
#
# Define the dialect: a class for each operation, with a verifier, and lower it to linalg on tensors. Return either the
# lowered module, or one sentence (a str, at most 400 characters) that says why the text is not valid: the message of
# your verifier. It mentions the operation and the numbers that do not fit, and no sizes that are right: two sizes that
# should be equal; the number of dimensions of an operand, if that is wrong; a slope or an axis that is out of range; an
# element type, such as `f64`. Sizes are compared one by one: 2 × 6 is not 3 × 4. If the text names an operation that nn
# does not have, or gives one the wrong operands or properties, xDSL's own message is enough.
#
# The formula holds for infinities and NaN as well: with a slope of 0, x = ∞ gives ∞, and x = −∞ gives 0 · −∞, which is
# NaN.


# %%
def dialect(text: str) -> ModuleOp | str:
    """A program of nn, lowered; or why it is not valid.

    In:  text that every MLIR parser reads: a function @main of operations of nn, in
         generic syntax, that returns one tensor.
    Out: a module of func, linalg, arith and tensor, without operations of nn; or a
         sentence.

    Example:  dialect('''func.func @main(%x: tensor<2x3xf32>) -> tensor<2xf32> {
                %y = "nn.sum"(%x) <{axis = 7 : i64}>
                    : (tensor<2x3xf32>) -> tensor<2xf32>
                return %y : tensor<2xf32>
              }''') can be "nn.sum has the axis 7, and x has 2 dimensions."
    """
    ### BEGIN SOLUTION
    context = mlir.context()
    context.load_dialect(NN)
    try:
        module = Parser(context, text).parse_module()
        module.verify()
    except ParseError as error:
        return error.msg
    except VerifyException as error:
        return str(error)
    # The module is verified as a whole, so a lowering can rely on ranks, sizes and
    # attributes.
    for op in [op for op in module.walk() if op.name in LOWERINGS]:
        build = Builder(InsertPoint.before(op))
        result = LOWERINGS[op.name](build, op)
        op.results[0].replace_all_uses_with(result)
        op.detach()
        op.erase()
    return module


def shape(op, value):
    """Return the sizes of a tensor of f32. Raise VerifyException for other elements."""
    if value.type.element_type != f32:
        raise VerifyException(
            f"{op.name}: {value.type} holds {value.type.element_type}, not f32"
        )
    return value.type.get_shape()


def agree(op, what, one, other):
    if one != other:
        raise VerifyException(
            f"{op.name}: {what} should be equal; they are {one} and {other}"
        )


def agree_all(op, what, sides, others):
    """Compare size by size: a message has only the two that differ."""
    agree(op, f"the dimensions of {what}", len(sides), len(others))
    for one, other in zip(sides, others, strict=True):
        agree(op, f"a size of {what}", one, other)


@irdl_op_definition
class Dense(IRDLOperation):
    name = "nn.dense"
    x, w, b = operand_def(TensorType), operand_def(TensorType), operand_def(TensorType)
    result = result_def(TensorType)

    def verify_(self):
        sides = [shape(self, value) for value in (self.x, self.w, self.b, self.result)]
        for what, side, rank in zip(
            ("x", "w", "b", "the result"), sides, (2, 2, 1, 2), strict=True
        ):
            if len(side) != rank:
                raise VerifyException(
                    f"nn.dense: {what} has {len(side)} dimensions, not {rank}"
                )
        (rows, width), (height, depth), (bias,), (up, across) = sides
        agree(self, "the columns of x and w", width, depth)
        agree(self, "the rows of w and the size of b", height, bias)
        agree(self, "the rows of x and of the result", rows, up)
        agree(self, "the rows of w and the columns of the result", height, across)


@irdl_op_definition
class LeakyRelu(IRDLOperation):
    name = "nn.leaky_relu"
    x = operand_def(TensorType)
    slope = prop_def(FloatAttr)
    result = result_def(TensorType)

    def verify_(self):
        agree_all(
            self, "x and the result", shape(self, self.x), shape(self, self.result)
        )
        if not 0 <= self.slope.value.data <= 1:
            raise VerifyException(
                f"nn.leaky_relu: the slope {self.slope.value.data:g} is not between 0 "
                "and 1"
            )


@irdl_op_definition
class Sum(IRDLOperation):
    name = "nn.sum"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def verify_(self):
        sides, axis = shape(self, self.x), self.axis.value.data
        if not 0 <= axis < len(sides):
            raise VerifyException(
                f"nn.sum has the axis {axis}, and x has {len(sides)} dimensions"
            )
        left = sides[:axis] + sides[axis + 1 :]
        agree_all(self, "what is left and the result", left, shape(self, self.result))


NN = Dialect("nn", [Dense, LeakyRelu, Sum])


def structured(build, inputs, start, maps, kinds, body):
    """Insert a linalg.generic that starts with the value `start`; return its result.

    body(build, arguments) returns a value.
    """
    block = Block(arg_types=[f32] * (len(inputs) + 1))
    inside = Builder(InsertPoint.at_end(block))
    inside.insert(YieldOp(body(inside, block.args)))
    maps = [
        AffineMapAttr(
            AffineMap(len(kinds), 0, tuple(AffineDimExpr(dim) for dim in dims))
        )
        for dims in maps
    ]
    kinds = [IteratorTypeAttr(IteratorType(kind)) for kind in kinds]
    op = GenericOp(inputs, [start], Region(block), maps, kinds, [start.type])
    return build.insert(op).results[0]


def added(build, arguments):
    return build.insert(arith.AddfOp(*arguments)).result


def lower_dense(build, op):
    def product(build, arguments):
        x, w, total = arguments
        return build.insert(
            arith.AddfOp(total, build.insert(arith.MulfOp(x, w)))
        ).result

    empty = build.insert(tensor.EmptyOp([], op.result.type)).results[0]
    # the sums start with the bias
    start = structured(
        build,
        [op.b],
        empty,
        [[1], [0, 1]],
        ["parallel"] * 2,
        lambda _, arguments: arguments[0],
    )
    kinds = ["parallel", "parallel", "reduction"]
    return structured(
        build, [op.x, op.w], start, [[0, 2], [1, 2], [0, 1]], kinds, product
    )


def lower_leaky(build, op):
    slope = build.insert(arith.ConstantOp(FloatAttr(op.slope.value.data, f32))).result
    zero = build.insert(arith.ConstantOp(FloatAttr(0.0, f32))).result

    def leak(build, arguments):
        positive = build.insert(arith.CmpfOp(arguments[0], zero, "ogt"))
        below = build.insert(arith.MulfOp(arguments[0], slope))
        return build.insert(arith.SelectOp(positive, arguments[0], below)).result

    dims = list(range(len(op.x.type.get_shape())))
    empty = build.insert(tensor.EmptyOp([], op.result.type)).results[0]
    return structured(
        build, [op.x], empty, [dims, dims], ["parallel"] * len(dims), leak
    )


def lower_sum(build, op):
    axis, dims = op.axis.value.data, list(range(len(op.x.type.get_shape())))
    zero = build.insert(arith.ConstantOp(FloatAttr(0.0, f32))).result
    empty = build.insert(tensor.EmptyOp([], op.result.type)).results[0]
    start = build.insert(FillOp([zero], [empty], [empty.type])).results[0]
    kinds = ["reduction" if dim == axis else "parallel" for dim in dims]
    return structured(
        build, [op.x], start, [dims, [dim for dim in dims if dim != axis]], kinds, added
    )


LOWERINGS = {"nn.dense": lower_dense, "nn.leaky_relu": lower_leaky, "nn.sum": lower_sum}
### END SOLUTION


# %%
check("day09.dialect", dialect)
