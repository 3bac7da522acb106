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
# # Day 9 · MLIR: as many levels as you like
#
# Relax has two levels that can call each other. MLIR has no level of its own. It is a syntax, a verifier and drivers
# for passes, and everything else is a **dialect**: a vocabulary of operations, types and rules. One module may mix
# them, and a compiler is a path through them, a little lower at each step.
#
# Today one program takes the whole path, from torch to machine code, and you stop on each rung to draw it. From linalg
# on you also run it: IREE compiles what works on tensors; for buffers, loops and jumps, which IREE does not run, the
# course writes C and calls the C compiler. Two implementations are at hand: **xDSL**, in Python, whose objects you
# rewrite, and MLIR itself, in C++, as it comes with the compiler **IREE**. In the exercises,
# [work/day09/mlir.ipynb](../work/day09/mlir.ipynb), you read loops out of linalg, write rewrite patterns and choose
# passes; more is stretch. The lesson takes about 75 minutes, and 45 more for what is marked stretch.

# %%
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import TensorType, f32
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.dialects.linalg.ops import GenericOp, YieldOp

from passlab import diff, draw, guess, mlir, timed
from passlab.mlir.run import run, seconds


def short(module, width=118):
    """Print a module, long lines cut."""
    for line in mlir.text(module).splitlines():
        print(line if len(line) <= width else line[: width - 1] + "…")


# %% [markdown]
# ## Operations, all the way down
#
# Everything is an **operation**: a name, operands, results, properties, and **regions**. A region holds blocks, a block
# holds operations. So a function is an operation with a region, a loop too, and the module is one as well. A name begins
# with its dialect: `func` has functions, `arith` and `math` arithmetic, `scf` loops and ifs, `cf` jumps, `tensor` and
# `memref` arrays, `linalg` loop nests.

# %%
clamp = mlir.parse("""
func.func @main(%x: f32, %n: index) -> f32 {
  %zero = arith.constant 0.0 : f32
  %from = arith.constant 0 : index
  %step = arith.constant 1 : index
  %sum = scf.for %i = %from to %n step %step iter_args(%s = %zero) -> (f32) {
    %positive = arith.maximumf %x, %zero : f32
    %t = arith.addf %s, %positive : f32
    scf.yield %t : f32
  }
  return %sum : f32
}
""")
for op in clamp.walk():
    operands = ", ".join(f"%{value.name_hint}" for value in op.operands)
    print(
        f"{op.name:<18}{operands:<28}{len(op.results)} results, "
        f"{len(op.regions)} regions"
    )
assert run(clamp, 2.0, 5)[0] == 10

# %% [markdown]
# What we read above is the pretty syntax, which each operation defines for itself. Under it is a **generic** one,
# the same for all, in which nothing is hidden. Values have one definition (SSA), and a block takes arguments instead of
# φ nodes: `%i` and `%s` are arguments of the loop's block, and `scf.yield` hands over the next `%s`.

# %%
print(mlir.generic(clamp))
draw(clamp)

# %% [markdown]
# Moving through a module in Python: `op.operands`, `op.results`, `op.properties`, `op.regions`, `op.parent_op()`, and
# of a value its `type`, its `uses` and its `owner`: the operation that makes it, or the block that it is an argument
# of.

# %%
(loop,) = (op for op in clamp.walk() if isinstance(op, scf.ForOp))
add = next(op for op in loop.walk() if op.name == "arith.addf")
print(
    "lhs ",
    add.lhs.name_hint,
    type(add.lhs.owner).__name__,
    "  rhs ",
    add.rhs.name_hint,
    add.rhs.owner.name,
)
print(
    "read by",
    [use.operation.name for use in add.result.uses],
    "  inside",
    add.parent_op().name,
)
assert add.lhs.owner is loop.body.block and add.parent_op() is loop

# %% [markdown]
# Each operation comes with a verifier. Text that breaks a rule is refused with its place:

# %%
for text in (
    "func.func @main(%x: f32) -> f32 {\n  %y = arith.addf %x, %z : f32\n  return %y : "
    "f32\n}",
    "func.func @main(%x: f32) -> i32 {\n  return %x : f32\n}",
    "func.func @main(%x: f32) -> f32 {\n  %y = arith.twice %x : f32\n  return %y : "
    "f32\n}",
):
    try:
        mlir.verify(mlir.parse(text))
        raise AssertionError("this should not be valid")
    except mlir.MLIRError as error:
        print("·", error)

# %% [markdown]
# ## A dialect is a few classes · stretch
#
# An operation is declared, not programmed: operands, properties and results with their types. `verify_` checks what a
# declaration cannot express. Loaded into a context, the words can be parsed, printed and checked like all others.

# %%
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Dialect
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
)
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException


@irdl_op_definition
class Outer(IRDLOperation):
    """All products of an element of x with one of y, times a number."""

    name = "lab.outer"
    x = operand_def(TensorType)
    y = operand_def(TensorType)
    scale = prop_def(FloatAttr)
    result = result_def(TensorType)

    def verify_(self):
        sides = self.x.type.get_shape() + self.y.type.get_shape()
        if self.result.type.get_shape() != sides:
            raise VerifyException(
                f"lab.outer gives {sides}, not {self.result.type.get_shape()}"
            )


context = mlir.context()
context.load_dialect(Dialect("lab", [Outer]))
OUTER = """func.func @main(%x: tensor<3xf32>, %y: tensor<4xf32>) -> tensor<3x4xf32> {
  %z = "lab.outer"(%x, %y) <{scale = 2.0 : f32}>
      : (tensor<3xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  return %z : tensor<3x4xf32>
}"""
outer = Parser(context, OUTER).parse_module()
outer.verify()
try:
    Parser(context, OUTER.replace("3x4", "4x3")).parse_module().verify()
    raise AssertionError("this should not be valid")
except VerifyException as error:
    print(error)

# %% [markdown]
# An operation that cannot run is of little use. **Lowering** replaces it by operations of lower dialects. `Builder`
# puts new operations at a place; a region is made of a block, which declares its arguments:

# %%
from xdsl.builder import Builder
from xdsl.dialects import tensor
from xdsl.dialects.builtin import AffineMapAttr
from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineDimExpr, AffineMap
from xdsl.rewriter import InsertPoint


def lower_outer(op):
    """z[i, j] = x[i] · y[j] · scale, as a linalg.generic."""
    build = Builder(InsertPoint.before(op))
    scale = build.insert(arith.ConstantOp(op.scale)).result
    start = build.insert(tensor.EmptyOp([], op.result.type)).results[0]
    # An element of x, one of y, and what the output held
    block = Block(arg_types=[f32, f32, f32])
    inside = Builder(InsertPoint.at_end(block))
    once = inside.insert(arith.MulfOp(block.args[0], block.args[1]))
    inside.insert(YieldOp(inside.insert(arith.MulfOp(once, scale))))
    i, j = AffineDimExpr(0), AffineDimExpr(1)
    maps = [AffineMapAttr(AffineMap(2, 0, results)) for results in ((i,), (j,), (i, j))]
    kinds = [IteratorTypeAttr(IteratorType("parallel"))] * 2
    new = build.insert(
        GenericOp([op.x, op.y], [start], Region(block), maps, kinds, [op.result.type])
    )
    op.result.replace_all_uses_with(new.results[0])
    op.detach()
    op.erase()


lower_outer(next(op for op in outer.walk() if isinstance(op, Outer)))
mlir.verify(outer)
short(outer)
three, four = np.arange(3, dtype="float32"), np.arange(4, dtype="float32")
assert np.array_equal(run(outer, three, four)[0], 2 * np.outer(three, four))

# %% [markdown]
# ## linalg: a loop nest without loops
#
# `linalg.generic` is the center of MLIR for tensors. It has **indexing maps**, one for each operand: inputs first, then
# outputs. From an iteration of the loops (d0, d1, …) a map computes which element of the operand belongs to it. It has
# an **iterator type** for each dimension: `parallel`, or `reduction` if several iterations meet in one output element.
# And it has a body, which gets one element of each operand and yields the new ones of the outputs.

# %%
PRODUCT = """
#lhs = affine_map<(i, j, k) -> (i, k)>
#rhs = affine_map<(i, j, k) -> (k, j)>
#out = affine_map<(i, j, k) -> (i, j)>
func.func @main(%a: tensor<4x6xf32>, %b: tensor<6x5xf32>,
                %c: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %d = linalg.generic {indexing_maps = [#lhs, #rhs, #out],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<4x6xf32>, tensor<6x5xf32>) outs(%c : tensor<4x5xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %sum, %p : f32
    linalg.yield %s : f32
  } -> tensor<4x5xf32>
  return %d : tensor<4x5xf32>
}"""
product = mlir.parse(PRODUCT)
(op,) = (op for op in product.walk() if isinstance(op, GenericOp))
for operand, attribute in zip(op.operands, op.indexing_maps.data, strict=True):
    print(f"%{operand.name_hint}  {operand.type!s:<18} {attribute.data}")
print(
    [kind.data.value for kind in op.iterator_types.data],
    " arguments used:",
    [bool(a.uses) for a in op.body.block.args],
)
draw(product)

# %% [markdown]
# How often does a loop run? No attribute says so. It follows from the operands: a side that a map indexes with `d0`
# alone is as long as the loop over d0. (A side indexed with `d0 + d1`, as in a convolution, gives neither length.) The
# same, as loops in a small language of the course, in which the iterations of a `prange` may run in any order:

# %%
from passlab.mlir import nests

NEST = """
for d0 in prange(4):
    for d1 in prange(5):
        for d2 in range(6):
            v0 = in0[d0, d2] * in1[d2, d1]
            out0[d0, d1] = out0[d0, d1] + v0
"""
rng = np.random.default_rng(0)
a, b, c = (
    rng.standard_normal(shape).astype("float32") for shape in ((4, 6), (6, 5), (4, 5))
)
arrays = {"in0": a, "in1": b, "out0": c.copy()}
iterations = list(nests.run(nests.parse(NEST), arrays))
assert len(iterations) == 4 * 5 * 6
assert np.allclose(arrays["out0"], c + a @ b, atol=1e-5)
assert np.allclose(run(product, a, b, c)[0], c + a @ b, atol=1e-5)
first = op.body.block.first_op
print(nests.expression(first, "v0", "v1"), "  is", first.name)

# %% [markdown]
# Two things to notice. The output is an operand too: it is where the sum starts, so a reduction needs a `linalg.fill`
# before it. And it is only read if the body uses its argument; if not, it can come from `tensor.empty`, which has a
# shape and no content: it only says how large the result is. (In our little language an operand without dimensions is
# `in0[()]`.) `linalg.matmul`, `linalg.transpose` and the other named operations are abbreviations; a pass writes them
# out:

# %%
named = mlir.parse("""
func.func @main(%a: tensor<4x6xf32>, %b: tensor<6x5xf32>,
                %c: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %d = linalg.matmul ins(%a, %b : tensor<4x6xf32>, tensor<6x5xf32>)
                     outs(%c : tensor<4x5xf32>) -> tensor<4x5xf32>
  return %d : tensor<4x5xf32>
}""")
written_out = mlir.pipeline(named, "linalg-generalize-named-ops")
(generic,) = (op for op in written_out.walk() if isinstance(op, GenericOp))
assert generic.indexing_maps == op.indexing_maps
assert generic.iterator_types == op.iterator_types
print(Counter(op.name for op in written_out.walk()))

# %% [markdown]
# ## The ladder
#
# Now the program of the day, a layer: x · wᵀ + b, and ReLU. Its way down, rung by rung.
#
# **Rung 1, torch.** The importer that comes with IREE takes what `torch.export` gives into the dialect `torch`: ATen's
# operators with their names, on tensors that are values.

# %%
from passlab.mlir.imports import from_stablehlo, from_torch


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, x):
        return torch.relu(self.linear(x))


torch.manual_seed(0)
layer, x = Layer().eval(), torch.randn(4, 6)
want = layer(x).detach().numpy()
torch_import = from_torch(layer, x)
print("\n".join(line[:118] for line in torch_import.before.splitlines()[1:11]))
draw(layer, x)

# %% [markdown]
# **Rung 2, StableHLO.** The dialect between frameworks and compilers. torch.export does not write it (PyTorch/XLA does),
# JAX does; so the same layer, with the same weights. Broadcasts are explicit here, and the ReLU is a maximum.

# %%
import jax
import jax.numpy as jnp

weights = torch_import.arrays
stablehlo = jax.jit(lambda x, w, b: jnp.maximum(x @ w.T + b, 0)).lower(*weights)
assert np.allclose(stablehlo.compile()(*weights), want, atol=1e-5)
draw(stablehlo)

# %% [markdown]
# **Rung 3, linalg on tensors.** Both arrive here. From StableHLO there is one more operation, since the broadcast of
# the bias has become one. This rung runs: IREE compiles tensor programs.

# %%
from_jax, rung = from_stablehlo(stablehlo), {"linalg": torch_import.module}
for name, module in {
    "from torch": torch_import.module,
    "from StableHLO": from_jax,
}.items():
    (y,) = run(module, *weights)
    assert np.allclose(y, want, atol=1e-5)
    print(
        f"{name:<15}",
        dict(
            Counter(
                op.name
                for op in module.walk()
                if op.name.startswith("linalg") and op.regions
            )
        ),
    )
draw(rung["linalg"])

# %% [markdown]
# **Rung 4, fused.** Named operations are written out, then an element-wise operation is put into the one that reads
# it: the transpose vanishes in the product's map, bias and ReLU become one body. The product stays apart from both.

# %%
rung["fused"] = mlir.pipeline(
    rung["linalg"],
    "linalg-generalize-named-ops, linalg-fuse-elementwise-ops, canonicalize, cse",
)
diff(rung["linalg"], rung["fused"])

# %% [markdown]
# **Rung 5, bufferized.** A tensor is a value; memory does not exist yet. A `memref` is a piece of memory: an address
# with sizes and strides, from which operations load and into which they store. One-shot bufferization decides which
# memref holds each tensor. Here it finds that everything fits into one buffer, since no tensor is needed after it is
# overwritten. (Without `bufferize-function-boundaries` the function would keep its tensors, with
# `bufferization.to_buffer` and `to_tensor` at its border.)

# %%
BUFFERIZE = (
    "eliminate-empty-tensors, empty-tensor-to-alloc-tensor, "
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map}, canonicalize, cse"
)
rung["bufferized"] = mlir.pipeline(rung["fused"], BUFFERIZE)
print(
    Counter(
        op.name
        for op in rung["bufferized"].walk()
        if op.name.startswith(("linalg.g", "memref", "tensor"))
    )
)
inside = mlir.pipeline(rung["fused"], "one-shot-bufferize")
assert {"bufferization.to_buffer", "bufferization.to_tensor"} <= {
    op.name for op in inside.walk()
}
draw(rung["bufferized"])

# %% [markdown]
# **Rung 6, loops.** Each operation is a nest, each access a load or a store. Only now is there an order of the
# iterations: read the loops from the top. Memory carries values without an arrow, so dotted arrows show the order of
# loads, stores and loops.

# %%
rung["loops"] = mlir.pipeline(
    rung["bufferized"], "convert-linalg-to-loops, canonicalize"
)
short(rung["loops"])
draw(rung["loops"])

# %% [markdown]
# **Rung 7, jumps.** Loops become blocks, and jumps that pass arguments: the control-flow graph of day 6. All rungs
# compute the same, whichever tool compiles them:

# %%
rung["jumps"] = mlir.pipeline(rung["loops"], "convert-scf-to-cf")
for name, module in rung.items():
    (y,) = run(module, *weights)
    dialects = sorted({op.name.split(".")[0] for op in module.walk()} - {"builtin"})
    by = "IREE" if name in ("linalg", "fused") else "C"
    assert np.array_equal(y, run(module, *weights, by=by.lower())[0])
    print(
        f"{name:<11}{by:<5}{len(list(module.walk())):4} operations, error "
        f"{np.abs(y - want).max():.0e}  {', '.join(dialects)}"
    )
    assert np.allclose(y, want, atol=1e-5)

# %%
from passlab.dataflow.mlir import blocks
from passlab.drawing import flow

jumps = blocks(rung["jumps"])
back = [
    to
    for block in jumps.blocks
    for to in block.terminator.targets
    if int(to[2:]) <= int(block.name[2:])
]
assert len(back) == sum(op.name == "scf.for" for op in rung["loops"].walk()) == 7
flow(jumps, title="Seven loops, seven edges that lead back")

# %% [markdown]
# **Rung 8, LLVM.** IREE goes its own way below linalg: it groups operations into **dispatches**, its word for kernels,
# tiles and vectorizes these, and hands LLVM IR to LLVM. The whole compiler is one call, and can keep what it made:

# %%
from iree.compiler import tools

with tempfile.TemporaryDirectory() as folder:
    keep = [
        f"--iree-hal-dump-executable-intermediates-to={folder}",
        "--iree-llvmcpu-target-cpu=host",
    ]
    program = tools.compile_str(
        mlir.generic(rung["linalg"]), target_backends=["llvm-cpu"], extra_args=keep
    )
    (path,) = Path(folder).glob("*.optimized.ll")
    code = path.read_text()
body = code[code.index("define internal") :].split("\n}")[0].splitlines()
print(
    f"{len(program):,} bytes of program, one dispatch of {len(body)} lines of LLVM IR; "
    "those that multiply:"
)
print(
    *[
        line.split(", !dbg")[0][:118]
        for line in body
        if "fmul" in line or "fma" in line
    ][:4],
    sep="\n",
)
assert any("x float>" in line for line in body), "vectors"

# %% [markdown]
# One dispatch: product, bias and ReLU share a kernel, which linalg's pass had left apart. IREE has rules of its own.
#
# ## Patterns
#
# Many passes of MLIR, `canonicalize` among them, are sets of **patterns** and a driver; others, like `cse` and one-shot
# bufferization, look at the whole function. A pattern looks at one operation, and rewrites it or leaves it alone. The
# driver applies patterns until no pattern matches.

# %%
from xdsl.pattern_rewriter import RewritePattern

from passlab.mlir.rewriting import Endless, number, rewrite


class TimesTwo(RewritePattern):
    """x · 2 = x + x"""

    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.muli" and number(op.rhs) == 2:
            rewriter.replace(op, arith.AddiOp(op.lhs, op.lhs))


class AsShift(RewritePattern):
    """x · 2 = x << 1"""

    benefit = 2

    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.muli" and number(op.rhs) == 2:
            one = arith.ConstantOp.from_int_and_width(1, op.rhs.type)
            rewriter.replace(op, [one, arith.ShLIOp(op.lhs, one)])


TWICE = """func.func @main(%x: i32) -> i32 {
  %two = arith.constant 2 : i32
  %y = arith.muli %x, %two : i32
  return %y : i32
}"""
for patterns in ([TimesTwo()], [TimesTwo(), AsShift()]):
    module = mlir.parse(TWICE)
    print(
        dict(rewrite(module, patterns)), [op.name for op in module.walk() if op.results]
    )
    assert run(module, 21)[0] == 42

# %% [markdown]
# `rewriter.replace(op, new, results)`: the operation, the new operations, and the values that replace its results if
# they are not those of the last new operation. Our driver visits operations from the last to the first, revisits
# operations that a rewrite has touched, and erases dead ones.
#
# Both patterns match. The one with the larger **benefit** is tried first. Termination is the patterns' business: no
# driver can decide it. Ours counts, stops, and names the pattern that keeps matching; MLIR's gives up, too, and says
# less.


# %%
class Exchange(RewritePattern):
    """x · y = y · x, for ever"""

    def match_and_rewrite(self, op, rewriter):
        if op.name == "arith.muli":
            rewriter.replace(op, arith.MuliOp(op.rhs, op.lhs))


try:
    rewrite(mlir.parse(TWICE), [Exchange()])
    raise AssertionError("this should not end")
except Endless as error:
    print(error)

# %%
from iree.compiler import ir
from iree.compiler.dialects import arith as native_arith
from iree.compiler.rewrite import RewritePatternSet, apply_patterns_and_fold_greedily

rounds = []


def exchange(op, rewriter):
    rounds.append(op.name)
    with rewriter.ip:
        rewriter.replace_op(op, native_arith.MulIOp(op.operands[1], op.operands[0]))


with ir.Context(), ir.Location.unknown():
    module, patterns = ir.Module.parse(TWICE), RewritePatternSet()
    patterns.add("arith.muli", exchange)
    try:
        apply_patterns_and_fold_greedily(module, patterns.freeze())
        raise AssertionError("this should not end")
    except Exception as error:
        print(f"after {len(rounds)} rewrites: {error}")

# %% [markdown]
# A law must hold for every input. Integers wrap, so sums and products may be regrouped freely. With floats hardly
# anything is free. An operation's **fast-math flags** are promises: `nnan` (no NaN occurs), `nsz` (the sign of a zero
# does not matter), `reassoc` (regroup as you like). Without them these rewrites are wrong:

# %%
with np.errstate(invalid="ignore"):
    zero, huge, one = np.float32(0), np.float32(1e8), np.float32(1)
    print(
        "x · 0 = 0       needs nnan and nsz:",
        np.float32(np.inf) * zero,
        np.float32(-1) * zero,
    )
    print("x + 0.0 = x     needs nsz:", np.float32(-0.0) + zero)
    print(
        "(x + c) + d = x + (c + d) needs reassoc:",
        (one + huge) - huge,
        "against",
        one + (huge - huge),
    )
top = np.int32(2**31 - 1)
with np.errstate(over="ignore"):
    print(
        "integers wrap:",
        (top + np.int32(1)) - np.int32(1) == top + (np.int32(1) - np.int32(1)),
    )
    assert (top + np.int32(1)) - np.int32(1) == top

# %% [markdown]
# Integers have flags as well: `nsw` and `nuw` promise that *this* addition does not overflow. A new operation in place
# of two is another addition, so it may not inherit the promise.
#
# ### The driver, step by step · stretch
#
# The operations that the driver has still to visit are its **worklist**. A rewrite puts the new operations and their
# users on top.

# %%
from passlab.mlir.stepping import rewrite_steps

rewrite_steps(mlir.parse(TWICE), [TimesTwo(), AsShift()])

# %% [markdown]
# When the list is empty, the driver goes over the whole module once more, until a round changes nothing. Here the
# second round finds nothing.
#
# ## Fusion is a composition of maps
#
# A consumer reads t through C; its producer writes t through P and reads x through Q. To read x directly, go from the
# consumer's iteration to the element of t, C, from there to the producer's iteration, P⁻¹, and on to the element of x,
# Q. So the fused operation reads x through Q ∘ P⁻¹ ∘ C. Our transpose: P is the identity, Q exchanges two dimensions,
# and the product reads t with (d2, d1).

# %%
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation

flat = mlir.pipeline(rung["linalg"], "linalg-generalize-named-ops")
transpose, _, matmul, *_ = (
    op for op in flat.walk() if isinstance(op, LinalgStructuredOperation)
)
Q, P = (attribute.data for attribute in transpose.get_indexing_maps())
C = matmul.get_indexing_maps().data[1].data
through = Q.compose(P.inverse_permutation()).compose(C)
print(f"C {C}\nP {P}\nQ {Q}\nQ ∘ P⁻¹ ∘ C {through}")
fused_product = next(
    op
    for op in rung["fused"].walk()
    if isinstance(op, GenericOp) and len(op.inputs) == 2
)
assert through == fused_product.indexing_maps.data[1].data, "what MLIR's pass wrote"

# %% [markdown]
# It is allowed if nothing is lost and nothing is computed twice:
#
# - both work on tensors: values, which nothing overwrites in between;
# - all iterators of the producer are parallel, and P is a permutation, so that P⁻¹ exists;
# - the consumer reads it as an input, and nothing else does (or its work is done twice);
# - afterwards each dimension is still indexed alone by some map, else its size is lost.
#
# ## Dialect conversion · stretch
#
# Patterns improve a program; a **conversion** must reach a goal. It states which operations are *legal* in the end, and
# fails if another is left that no pattern can remove. *Partial*: operations that it does not mention may stay. *Full*:
# they may not. Here x − y becomes x + (−1) · y, and `xori` is not mentioned at first:

# %%
from iree.compiler.rewrite import (
    ConversionTarget,
    TypeConverter,
    apply_full_conversion,
    apply_partial_conversion,
)

DIFFERENCE = """func.func @main(%x: i32) -> i32 {
  %two = arith.constant 2 : i32
  %y = arith.subi %x, %two : i32
  %z = arith.xori %y, %two : i32
  return %z : i32
}"""


def without_subtraction(op, adaptor, converter, rewriter):
    with rewriter.ip:
        minus = native_arith.constant(op.results[0].type, -1)
        negative = native_arith.MulIOp(adaptor.operands[1], minus)
        rewriter.replace_op(
            op, native_arith.AddIOp(adaptor.operands[0], negative.result)
        )


def same(kind):  # a named function: MLIR does not keep a lambda alive
    return kind


def converted(apply, *legal):
    with ir.Context(), ir.Location.unknown():
        module, target, patterns = (
            ir.Module.parse(DIFFERENCE),
            ConversionTarget(),
            RewritePatternSet(),
        )
        target.add_legal_dialect("func", "builtin")
        target.add_legal_op(*legal)
        target.add_illegal_op("arith.subi")
        converter = TypeConverter()
        converter.add_conversion(same)
        patterns.add_conversion("arith.subi", without_subtraction, converter)
        apply(module.operation, target, patterns.freeze())
        return module


LEGAL = ["arith.addi", "arith.muli", "arith.constant"]
for legal in (LEGAL, [*LEGAL, "arith.xori"]):
    for apply in (apply_partial_conversion, apply_full_conversion):
        try:
            result = mlir.from_iree(converted(apply, *legal))
            print(
                f"{apply.__name__:<26}", [op.name for op in result.walk() if op.results]
            )
            assert run(result, 42)[0] == 40 ^ 2
        except ir.MLIRError as error:
            print(
                f"{apply.__name__:<26}",
                error.error_diagnostics[0].message.split(": %")[0],
            )
            assert apply is apply_full_conversion and "arith.xori" not in legal

# %% [markdown]
# `convert-linalg-to-loops` is more tolerant: a linalg operation on tensors does not match, and silently stays. So look
# at what a pass has done, not only at whether it failed.

# %%
silent = mlir.pipeline(rung["fused"], "convert-linalg-to-loops")
assert mlir.text(silent) == mlir.text(rung["fused"])
print(
    Counter(op.name for op in silent.walk() if op.name in ("linalg.generic", "scf.for"))
)

# %% [markdown]
# ## Buffers: in place, freed, reused
#
# What does bufferization decide? An operation writes its output operand in place, if nothing reads the old tensor
# afterwards. Here `%r` may take the place of `%e`. If the old value is returned as well, it may not:


# %%
def chain(*results):
    kind = "tensor<8xf32>"
    return mlir.parse(f"""
func.func @main(%x: {kind}) -> ({", ".join([kind] * len(results))}) {{
  %zero = arith.constant 0.0 : f32
  %e = math.exp %x : {kind}
  %r = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>],
                        iterator_types = ["parallel"]}} outs(%e : {kind}) {{
  ^bb0(%old: f32):
    %m = arith.maximumf %old, %zero : f32
    linalg.yield %m : f32
  }} -> {kind}
  return {", ".join(results)} : {", ".join([kind] * len(results))}
}}""")


for results in (["%r"], ["%r", "%e"]):
    buffers = mlir.pipeline(
        chain(*results), f"convert-elementwise-to-linalg, {BUFFERIZE}"
    )
    count = Counter(op.name for op in buffers.walk())
    print(
        f"returns {', '.join(results):<7}{count['memref.alloc']} allocations, "
        f"{count['memref.copy']} copies"
    )
    assert count["memref.alloc"] == count["memref.copy"] == len(results) - 1
first = next(op for op in buffers.walk() if isinstance(op, GenericOp))
assert first.outputs[0] is buffers.body.block.first_op.body.block.args[0]
short(buffers)

# %% [markdown]
# Look at the first `linalg.generic`: it writes into `%x`, the caller's memory. Unless an argument is marked with
# `bufferization.writable = false`, it may be overwritten.
#
# A larger program has many buffers, and allocating them in every iteration of a loop costs time. A **plan** is better:
# one arena, and a slot for each buffer, shared by buffers that are never live together. It is day 5 again, with three
# things to watch: a view is another name of a buffer, a loop's block may rename buffers in every iteration, and an
# iteration may read what the iteration before it left in a buffer.
#
# ### Deallocation · stretch
#
# Without a plan buffers must be freed. That is a pass of its own, which finds for each buffer its owner and its last
# read. A buffer that a loop allocates in each iteration is freed there:

# %%
LEAK = mlir.parse("""
func.func @main(%x: memref<64xf32>, %y: memref<64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    %t = memref.alloc() : memref<64xf32>
    "memref.copy"(%x, %t) : (memref<64xf32>, memref<64xf32>) -> ()
    %u = memref.alloc() : memref<64xf32>
    "memref.copy"(%t, %u) : (memref<64xf32>, memref<64xf32>) -> ()
    "memref.copy"(%u, %y) : (memref<64xf32>, memref<64xf32>) -> ()
  }
  return
}""")
FREE = """ownership-based-buffer-deallocation, canonicalize,
    buffer-deallocation-simplification, bufferization-lower-deallocations,
    canonicalize, cse, optimize-allocation-liveness"""
module = mlir.pipeline(LEAK, FREE)
count = Counter(op.name for op in module.walk())
assert count["memref.dealloc"] == count["memref.alloc"] == 2
short(module)

# %% [markdown]
# ## The transform dialect: a schedule is a program · stretch
#
# Day 8's schedules were Python that calls TVM. In MLIR a schedule is MLIR: operations of the dialect `transform` match
# operations of the program, and change them. It is data, can be checked, stored and searched.

# %%
N = 512
SQUARE = f"tensor<{N}x{N}xf32>"
WHOLE = f"""
func.func @main(%a: {SQUARE}, %b: {SQUARE}, %bias: tensor<{N}xf32>) -> {SQUARE} {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : {SQUARE}
  %f = linalg.fill ins(%zero : f32) outs(%e : {SQUARE}) -> {SQUARE}
  %p = linalg.matmul ins(%a, %b : {SQUARE}, {SQUARE}) outs(%f : {SQUARE}) -> {SQUARE}
  %r = linalg.generic {{
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
                       affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}}
      ins(%p, %bias : {SQUARE}, tensor<{N}xf32>) outs(%e : {SQUARE}) {{
  ^bb0(%x: f32, %y: f32, %old: f32):
    %s = arith.addf %x, %y : f32
    %m = arith.maximumf %s, %zero : f32
    linalg.yield %m : f32
  }} -> {SQUARE}
  return %r : {SQUARE}
}}"""
ANY = "!transform.any_op"
MATCH = f"""%product = transform.structured.match ops{{["linalg.matmul"]}} in %root
    : ({ANY}) -> {ANY}"""
TILE = f"""%tiled, %loops:3 = transform.structured.tile_using_for %product
    tile_sizes [32, 128, 128] : ({ANY}) -> ({ANY}, {ANY}, {ANY}, {ANY})"""


def scheduled(*lines):
    """Return the whole program after a transform script, without the script."""
    root = f"%root: {ANY} {{transform.readonly}}"
    head = f"transform.named_sequence @__transform_main({root}) {{"
    script = "\n".join((head, MATCH, *lines, "transform.yield }"))
    both = (
        f"module attributes {{transform.with_named_sequence}} {{{WHOLE}\n{script}\n}}"
    )
    module = mlir.pipeline(
        mlir.parse(both, allowed=None), "transform-interpreter, canonicalize, cse"
    )
    return mlir.parse(f"module {{{mlir.text(module.body.block.first_op)}}}")


inner = next(op for op in scheduled(TILE).walk() if op.name == "linalg.matmul")
print("the product inside the loops:", *(operand.type for operand in inner.operands))
assert [tuple(operand.type.get_shape()) for operand in inner.operands] == [
    (32, 128),
    (128, 128),
    (32, 128),
]

# %% [markdown]
# Tiling a linalg operation on tensors gives loops around a smaller linalg operation: the level is still high enough to
# fuse, pack or vectorize the tile. **Tile and fuse** begins at the end: tile the last operation, bias and ReLU, and
# move into the loops the operation that computes a tile of its operand, then the one that computes that operation's,
# and so on. A tile of the product is then used while it is in the cache, and the product as a whole is never stored:

# %%
LAST = f"""%last = transform.structured.match ops{{["linalg.generic"]}} in %root
    : ({ANY}) -> {ANY}"""
TILE_AND_FUSE = f"""%whole, %around:2 = transform.structured.fuse %last
    tile_sizes [32, 128] : ({ANY}) -> ({ANY}, {ANY}, {ANY})"""
together = scheduled(LAST, TILE_AND_FUSE)
for step in together.walk():
    if step.name in ("scf.for", "linalg.fill", "linalg.matmul", "linalg.generic"):
        kinds = [value.type for value in step.results]
        print(f"{step.name:<15} in {step.parent_op().name:<10}", *kinds)
        if step.name.startswith("linalg"):
            assert kinds[0].get_shape() == (32, 128)

# %% [markdown]
# ## Fusing can lose
#
# Product, bias and ReLU on 512 × 512, four times as loops. The C compiler translates all four, so that they compare.
# *Rows*: a nest for each operation, and in the product the loop over k outside of that over j, so that rows are read,
# and multiplied as vectors. *Fused*: from these loops the pass `affine-loop-fusion`, told to fuse as much as it can,
# makes a single nest, which finishes an element before it goes on; on buffers it does what fusing linalg does on
# tensors. *Tiled*: the product in blocks, and in each block by rows. *Tile and fuse*: the loops of the section above.
# The last line is another matter: IREE's compiler, with its own schedules. (The scripts that ask for orders and blocks
# are those of the section above.)

# %%
ROWS = [
    f"%generic = transform.structured.generalize %{{}} : ({ANY}) -> {ANY}",
    "%rows = transform.structured.interchange %generic iterator_interchange = [0, 2, "
    f"1] : ({ANY}) -> {ANY}",
]
INNER = MATCH.replace("%product", "%inner")
rows = mlir.pipeline(
    scheduled(*(line.format("product") for line in ROWS)),
    f"{BUFFERIZE}, convert-linalg-to-affine-loops",
)
programs = {
    "rows": rows,
    "fused": mlir.pipeline(
        rows, "affine-loop-fusion{maximal=true}, affine-scalrep, canonicalize"
    ),
    "tiled": mlir.pipeline(
        scheduled(TILE, *(line.format("tiled") for line in ROWS)),
        f"{BUFFERIZE}, convert-linalg-to-loops",
    ),
    "tile and fuse": mlir.pipeline(
        scheduled(LAST, TILE_AND_FUSE, INNER, *(line.format("inner") for line in ROWS)),
        f"{BUFFERIZE}, convert-linalg-to-loops",
    ),
}
short(programs["fused"])

# %%
bet = guess("Which of the five is the slowest?", ..., among=(*programs, "IREE"))

# %% tags=["hide-output"]
big = [rng.standard_normal(shape).astype("float32") for shape in ((N, N), (N, N), (N,))]
right = np.maximum(big[0] @ big[1] + big[2], 0)
spans = {}
for name, module in {**programs, "IREE": mlir.parse(WHOLE)}.items():
    assert np.allclose(run(module, *big, checks=False)[0], right, atol=1e-2)
    spans[name] = min(seconds(module, *big, repeats=3))
    print(
        f"{name:<14}{1e3 * spans[name]:8.1f} ms   "
        f"{spans[name] / spans['rows']:6.2f} of rows"
    )
assert spans["fused"] > 3 * spans["rows"]
bet.compare(max(spans, key=spans.__getitem__))

# %% [markdown]
# The fused nest goes through the result once, where rows and tiled go three times, and is the slowest by far. To share the
# loops over i and j with the bias, the pass had to put k innermost again, and each step of k reads `%b` a whole row
# further on. An order decides more than a fusion does. Day 10 asks which orders are allowed, and has the same loss in
# other words.
#
# ## Where other days meet the ladder · stretch
#
# **Day 10**, the polyhedral model, works where maps are affine: on linalg and on affine loops. An indexing map is an
# access relation, and iterator types are a statement about dependences: a dimension is parallel if two iterations that
# write the same element always agree in it. isl confirms it for every generic of the day:

# %%
import islpy as isl


def parallel_dimensions(op):
    """Return for each dimension whether iterations that write one element agree."""
    write = op.indexing_maps.data[-1].data
    dims = ", ".join(f"d{dim}" for dim in range(write.num_dims))
    element = ", ".join(str(result) for result in write.results)
    writes = isl.Map(f"{{ [{dims}] -> [{element}] }}")
    deltas = writes.apply_range(writes.reverse()).deltas()
    return [
        deltas.is_subset(isl.Set(f"{{ [{dims}] : d{dim} = 0 }}"))
        for dim in range(write.num_dims)
    ]


for generic in (
    op
    for module in (product, rung["fused"], rung["bufferized"])
    for op in module.walk()
):
    if isinstance(generic, GenericOp):
        kinds = [kind.data.value for kind in generic.iterator_types.data]
        print(generic.indexing_maps.data[-1].data, kinds)
        assert parallel_dimensions(generic) == [kind == "parallel" for kind in kinds]

# %% [markdown]
# **Day 8**, TensorIR: a block there says the same of its axes, `S` for spatial and `R` for reduction, and which regions
# it reads and writes. It is a linalg.generic whose loops are written down already.

# %%
from passlab.relax import tvm

te = tvm.te
A, B, k = (
    te.placeholder((4, 6), name="A"),
    te.placeholder((6, 5), name="B"),
    te.reduce_axis((0, 6), name="k"),
)
D = te.compute((4, 5), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="D")
schedule = tvm.s_tir.Schedule(te.create_prim_func([A, B, D]))
block = schedule.get(schedule.get_sblock("D"))
types = ["reduction" if axis.iter_type == 2 else "parallel" for axis in block.iter_vars]
print(
    types,
    [str(region) for region in block.reads],
    [str(region) for region in block.writes],
)
assert types == [kind.data.value for kind in op.iterator_types.data]

# %% [markdown]
# ## Two implementations, one language · stretch
#
# Text is what both understand. `mlir.pipeline` prints an xDSL module in the generic syntax, lets MLIR's passes run over
# it, and reads the result back. They do not know the same words:

# %%
SPOKEN = {
    "linalg.add": "linalg.add ins(%m, %m : memref<4xf32>, memref<4xf32>) "
    "outs(%m : memref<4xf32>)",
    "memref.cast, pretty": "%c = memref.cast %m : memref<4xf32> to memref<?xf32>",
    "memref.cast, generic": '%c = "memref.cast"(%m) : (memref<4xf32>) -> memref<?xf32>',
    "vector.transfer_read": "%v = vector.transfer_read %m[%i], %s "
    ": memref<4xf32>, vector<4xf32>",
    "an operand too few": '"memref.store"(%s, %m) : (f32, memref<4xf32>) -> ()',
}


def understood(read):
    try:
        read()
    except Exception:
        return False
    return True


known = {}
for name, line in SPOKEN.items():
    text = (
        f"func.func @main(%m: memref<4xf32>, %s: f32, %i: index) {{ {line}\n return }}"
    )
    python = understood(
        lambda text=text: Parser(mlir.context(), text).parse_module().verify()
    )
    native = understood(lambda text=text: ir.Module.parse(text, ir.Context()))
    known[name] = python, native
    print(
        f"{name:<22} xDSL {'yes' if python else 'no':<5} MLIR "
        f"{'yes' if native else 'no'}"
    )
assert known["linalg.add"] == (True, False)
assert known["memref.cast, pretty"] == (
    False,
    True,
)

# %% [markdown]
# xDSL keeps the names of values, and its objects are Python: good for writing a pass. MLIR has the passes, and is what
# compilers are made of. What Python costs, for reading the same text:

# %%
large, its_context = mlir.generic(programs["tiled"]), ir.Context()
readers = {
    "MLIR": lambda: ir.Module.parse(large, its_context),
    "xDSL": lambda: Parser(mlir.context(), large).parse_module(),
}
timed(readers, repeats=5)

# %% [markdown]
# ## Key takeaways
#
# - Operations with regions, values with one definition, verifiers: one structure for all levels. A dialect adds words.
# - Lower late. On tensors fusion is a composition of maps; on buffers one must first prove that nothing is overwritten
#   in between; in loops the order is fixed, in jumps even the loops are gone.
# - linalg states the work of an iteration and the places of its operands. Sizes, loops and dependences follow from the
#   maps.
# - A pattern needs a law that holds for all inputs, and a reason to end. A conversion needs a goal.
# - Bufferization decides what is overwritten; freeing and reuse come after it, and must see views and loops.
# - The most fused program need not be the fastest one.
#
# ## Further reading
#
# - "MLIR: Scaling Compiler Infrastructure for Domain Specific Computation", Chris Lattner, Mehdi Amini, Uday Bondhugula
#   and others, CGO 2021.
# - "Composable and Modular Code Generation in MLIR: A Structured and Retargetable Approach to Tensor Compiler
#   Construction", Nicolas Vasilache, Oleksandr Zinenko, Aart J. C. Bik and others, arXiv:2202.03293, 2022.
# - "The MLIR Transform Dialect: Your Compiler Is More Powerful Than You Think", Martin Paul Lücke, Oleksandr Zinenko,
#   William S. Moses and others, CGO 2025.
# - "xDSL: Sidekick Compilation for SSA-Based Compilers", Mathieu Fehr, Michel Weber, Christian Ulmann and others,
#   CGO 2025.
# - "IRDL: An IR Definition Language for SSA Compilers", Mathieu Fehr, Jeff Niu, River Riddle and others, PLDI 2022.
#
# ## Tomorrow
#
# Which orders of loops are allowed? So far a pass knew, or a primitive had a rule. Day 10 makes sets of the iterations
# and relations of the dependences, and then one question to an integer solver answers it for every order and all sizes.
