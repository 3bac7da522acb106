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
# # Day 7 · TVM Relay
#
# For six days the graphs were small and the compiler was yours. Today you open a production compiler: TVM, as it was in
# 2024, with **Relay**, the graph language of its passes. You read programs in it, import a ResNet-18 in two ways, watch
# every pass at work, and write your own in the three styles that Relay offers. In the exercises your passes run inside
# the real compiler: [work/day07/relay.ipynb](../work/day07/relay.ipynb). The lesson takes about 70 minutes, and 35 more
# for what is marked stretch.
#
# The next cell loads Relay, which exists for Linux on x86-64 only. Elsewhere it prints one sentence and stops; then you
# can only read the rest of this lesson. Day 8 runs everywhere.

# %%
import logging
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import torch

from passlab import chart, diff, draw, equivalent, guess, models, timed
from passlab.graph import Table
from passlab.relay import relay, tvm
from passlab.relay.folding import build_once
from passlab.tvm.builds import run_module, targets
from passlab.tvm.importers import relay_from_onnx, relay_module, to_onnx
from passlab.tvm.measure import bytes_moved, cost, launches, runner
from passlab.tvm.modules import consumers, counts, groups

# "operators have not been tuned": that is for day 8
logging.getLogger("autotvm").setLevel(logging.ERROR)
print("TVM", tvm.__version__, "builds for", ", ".join(targets()))

# %% [markdown]
# ## What Relay is
#
# Relay is a small functional language with tensors in its types. An expression is a variable, a constant, a `Call`, a
# `Function`, a `Let`, a tuple or a field of one, an `If`. A module is a set of named functions. Here is one, built by
# hand:


# %%
def module(body):
    """A module whose main function computes `body` from its free variables.

    All types are inferred.
    """
    main = relay.Function(relay.analysis.free_vars(body), body)
    return relay.transform.InferType()(tvm.IRModule.from_expr(main))


x = relay.var("x", shape=(1, 4, 8, 8))
w = relay.var("w", shape=(4, 4, 3, 3))
conv = relay.nn.conv2d(x, w, padding=(1, 1), channels=4, kernel_size=(3, 3))
first = module(relay.nn.relu(conv))
print(first)

# %% [markdown]
# That is Relay's text form, and it is complete: parsing it gives the same program back. Behind each `/* ty=… */` is a
# type that was *inferred*: the program does not state that a padded 3×3 convolution of 8×8 images gives 8×8 images.

# %%
again = relay.transform.InferType()(relay.parse(first.astext()))
assert tvm.ir.structural_equal(first, again)
print(first["main"].body.checked_type)
draw(first)

# %% [markdown]
# Types are checked before anything runs. Broadcasting aligns the last axes, so a (2, 3) and a (4,) do not add:

# %%
try:
    module(relay.add(relay.var("a", shape=(2, 3)), relay.var("b", shape=(4,))))
    raise AssertionError("TVM took it")
except tvm.error.DiagnosticError:
    print("not a Relay program")

# %% [markdown]
# But type inference does not check everything. It accepts a convolution that never says how many channels it has; the
# compiler wants to know at its highest level, and fails there. Importers fill these in. If you build a `conv2d` yourself,
# give it `channels` and `kernel_size`.

# %%
vague = module(relay.nn.conv2d(x, w, padding=(1, 1)))
example = (np.ones((1, 4, 8, 8), "float32"), np.ones((4, 4, 3, 3), "float32"))
for level in (2, 3):
    print(level, run_module(vague, [example], level=level).error or "builds")
assert run_module(vague, [example], level=2).ok
assert not run_module(vague, [example], level=3).ok

# %% [markdown]
# ### One value, two ways to say so
#
# `e * e` reads one value twice. In the graph form, both operands are the *same Python object*. In the form with `Let`,
# every value has a name, and the program is a list of bindings again. That is **A-normal form**, and it is what Relax
# always is.

# %%
y = relay.var("y", shape=(4,))
e = relay.exp(y)
shared, twice = module(e * e), module(relay.exp(y) * relay.exp(y))
print(relay.transform.ToANormalForm()(shared))
print("shared:", dict(counts(shared)), " built twice:", dict(counts(twice)))
assert counts(shared)["exp"] == 1 and counts(twice)["exp"] == 2

# %% [markdown]
# Operators with several results give a tuple, and `TupleGetItem` takes a field. Batch norm has three results, of which
# inference reads one.

# %%
four = [relay.var(name, shape=(4,)) for name in ("gamma", "beta", "mean", "var")]
normed = relay.nn.batch_norm(conv, *four)
print(module(normed.astuple())["main"].ret_type)
small = module(relay.nn.relu(normed[0]))
draw(small)

# %% [markdown]
# ## A ResNet-18 arrives, twice
#
# TVM reads a model as torch traced it, or from an ONNX file. Both importers end in the same language, not in the same
# program. The model has a sixteenth of the published channels, so that TVM compiles it in seconds.

# %%
resnet, image = models.resnet18(width=4), torch.randn(1, 3, 32, 32)
from_torch = relay_module(resnet, image)
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "resnet18.onnx"
    onnx.save(to_onnx(resnet, image), file)
    from_onnx = relay_from_onnx(file)
both = counts(from_torch), counts(from_onnx)
rows = [
    (name, str(both[0][name]), str(both[1][name])) for name in sorted(both[0] | both[1])
]
Table(
    ("operator", "from torch", "from ONNX"),
    (*rows, ("all", str(both[0].total()), str(both[1].total()))),
)

# %% [markdown]
# Twenty convolutions on both sides. The exporter folded the batch norms into them before TVM saw the model, and left a
# bias in each one's place. They compute the same function, which is torch's. (`SimplifyExpr` infers all types anew for
# each of its patterns. It is off here because it takes long and has hardly anything to simplify in this model.)

# %%
want = resnet(image)
for name, mod in {"torch": from_torch, "ONNX": from_onnx}.items():
    built = run_module(mod, [(image,)], level=1, disabled=["SimplifyExpr"])
    output = built.outputs[0][0]
    print(f"from {name}: largest difference {np.abs(output - want.numpy()).max():.1e}")
    assert np.allclose(output, want.numpy(), rtol=1e-3, atol=1e-3)
assert both[0]["nn.batch_norm"] == 20
assert both[1]["nn.batch_norm"] == 0
assert both[1]["nn.bias_add"] == 20

# %% [markdown]
# For pictures and for all that is built often, one block of it will do: two convolutions with batch norm, and the
# residual sum.

# %%
net, batch = models.residual(channels=32), torch.randn(1, 32, 28, 28)
block = relay_module(net, batch)
draw(block, title="A residual block in Relay")

# %% [markdown]
# ## Passes and the context they run in
#
# A pass maps a module to a module. A *module pass* sees all functions at once; a *function pass* is called for each
# function separately; a `Sequential` runs a list of passes. All of them run in a `PassContext`, which has the
# **level**, the names of disabled passes, options, and instruments. A `Sequential` skips passes above its level,
# silently:

# %%
steps = tvm.transform.Sequential(
    [relay.transform.SimplifyInference(), relay.transform.FoldConstant()]
)
for level in (1, 2):
    with tvm.transform.PassContext(opt_level=level):
        print(f"level {level}: {counts(steps(block)).total()} calls")
with tvm.transform.PassContext(opt_level=2, disabled_pass=["FoldConstant"]):
    print(f"level 2, one pass disabled: {counts(steps(block)).total()} calls")
print({p.info.name: p.info.opt_level for p in steps.passes})


# %% [markdown]
# ### Seeing what runs
#
# Which passes run at which level? There are tables of that, and some are wrong. An **instrument** is an object whose
# methods the compiler calls around each pass, so ask the compiler:


# %%
@tvm.instrument.pass_instrument
class Log:
    """Keeps the names of the passes that run."""

    def __init__(self):
        self.runs = Counter()

    def run_before_pass(self, mod, info):
        self.runs[info.name] += 1


runs_at = {}
for level in range(5):
    log = Log()
    with tvm.transform.PassContext(opt_level=level, instruments=[log]):
        relay.build(small, "llvm")
    runs_at[level] = log.runs

# %%
WATCHED = ["SimplifyInference", "FuseOps", "FoldConstant", "EliminateCommonSubexpr"]
WATCHED += ["AlterOpLayout", "ForwardFoldScaleAxis", "FastMath"]
rows = [
    (name, *("yes" if runs_at[level][name] else "" for level in runs_at))
    for name in WATCHED
]
rows.append(
    ("all passes, Relay's and TIR's", *(str(runs.total()) for runs in runs_at.values()))
)
Table(("pass", *(f"level {level}" for level in runs_at)), tuple(rows))

# %% [markdown]
# Read each row from the left. SimplifyInference and FuseOps run at level 0 already; constants are folded from 2
# on; layouts change, equal expressions merge and scales move at 3; 4 adds mathematics that is only nearly right.

# %%
starts = {
    name: min(level for level in runs_at if runs_at[level][name]) for name in WATCHED
}
assert starts["SimplifyInference"] == starts["FuseOps"] == 0
assert starts["FoldConstant"] == 2
assert starts["EliminateCommonSubexpr"] == starts["AlterOpLayout"] == 3
assert starts["FastMath"] == 4

# %% [markdown]
# That FuseOps *runs* at level 0 does not mean that it fuses: below level 1 it gives every operator its own kernel.

# %%
kernels = {level: launches(block, level=level) for level in (0, 1)}
for level, count in kernels.items():
    print(f"level {level}:", count)
assert kernels[0] > kernels[1] >= 2


# %% [markdown]
# ## Removing batch norm
#
# `SimplifyInference` rewrites batch norm as arithmetic. `FoldConstant` computes every expression that depends on
# constants alone. It is often said that this removes the batch norm. Does it? (TVM compiles and runs every constant that
# it folds; `build_once` lets it compile only those that differ.)


# %%
def run(mod, *names, level=3):
    """The module after these passes of Relay."""
    with tvm.transform.PassContext(opt_level=level), build_once():
        for name in names:
            mod = getattr(relay.transform, name)()(mod)
    return mod


simple = run(block, "SimplifyInference")
folded = run(simple, "FoldConstant")
for name, mod in {"imported": block, "simplified": simple, "folded": folded}.items():
    print(f"{name:10} {counts(mod).total():3} calls  {dict(counts(mod))}")
diff(block, folded, title="SimplifyInference, then FoldConstant")

# %% [markdown]
# Each batch norm has become a `multiply` and an `add` with constants. Nothing there is left to *fold*: one operand is
# an activation. Yet a scale of a convolution's output channel is a scale of that channel's weights.
# `BackwardFoldScaleAxis` moves it there, and another `FoldConstant` multiplies it in. (`FoldScaleAxis` is a list of
# three passes: backward, forward, and FoldConstant.)

# %%
turned = run(folded, "BackwardFoldScaleAxis")
scaled = run(turned, "FoldConstant")
print(
    "calls:",
    " → ".join(
        str(counts(mod).total()) for mod in (block, simple, folded, turned, scaled)
    ),
)
assert counts(folded)["multiply"] == counts(turned)["multiply"] == 2
assert counts(scaled)["multiply"] == 0
assert equivalent(block, scaled)
diff(folded, scaled, title="BackwardFoldScaleAxis, then FoldConstant")

# %% [markdown]
# Now do the same for the whole ResNet-18, and once more with its parameters left as inputs. TVM's importers leave them
# as inputs, so that there are no constants, unless you **bind** them. Many of the constants that are folded here have
# the same shape: `build_once`, around all of the passes, compiles each kernel only once.

# %%
steps = ("SimplifyInference", "FoldConstant", "BackwardFoldScaleAxis", "FoldConstant")
unbound, parameters = relay_module(resnet, image, bind=False)
sizes = {}
with build_once():
    for name, mod in {"bound": from_torch, "unbound": unbound}.items():
        sizes[name] = [counts(mod).total()]
        for step in steps:
            mod = run(mod, step)
            sizes[name].append(counts(mod).total())
        print(f"{name:8}", " → ".join(map(str, sizes[name])))

# %%
start, simplified, left = sizes["bound"][:3]
assert start < left < simplified  # folding alone ends above where it began
assert sizes["bound"][-1] == left - 20  # one multiply less for each batch norm
assert min(sizes["unbound"][1:]) == simplified and max(sizes["unbound"]) > simplified

# %% [markdown]
# Unbound, nothing folds, and moving the scales makes the program *longer*: the weights are now multiplied at every run.
#
# ### How much it gains
#
# Compare a build with SimplifyInference and one without. Switch off just that pass, and the build fails:

# %%
print(run_module(block, [(batch,)], disabled=["SimplifyInference"]).error)

# %% [markdown]
# `AlterOpLayout`, later in the pipeline, packs channels by the vector width, and a batch norm cannot be typed on such a
# layout. A fair comparison switches off *both* passes, on *both* sides, and changes one thing: whether the batch norms
# are there. The left side gets the block as imported, the right side the one whose scales are folded.

# %%
off = ["SimplifyInference", "AlterOpLayout"]
left = run_module(block, [(batch,)], disabled=off, repeats=30)
right = run_module(scaled, [(batch,)], disabled=off, repeats=30)
print("left:", *left.kernels, sep="\n  ")
print("right:", *right.kernels, sep="\n  ")
assert len(right.kernels) < len(left.kernels)

# %%
moved = {
    "as imported": bytes_moved(run(block, "FuseOps")),
    "scales folded": bytes_moved(run(scaled, "FuseOps")),
}
print(
    f"kernels {len(left.kernels)} → {len(right.kernels)},  "
    f"bytes {moved['as imported']} → {moved['scales folded']}"
)
slow, fast = min(left.times), min(right.times)
print(f"fastest run here: {slow * 1e6:.0f} µs → {fast * 1e6:.0f} µs,", end=" ")
print(f"{slow / fast:.2f} times")
assert moved["scales folded"] < moved["as imported"]
chart("Bytes that one run moves", moved, "bytes")

# %% [markdown]
# There are certainly fewer kernels and fewer bytes. Time may or may not follow: the convolutions dominate, and they are
# the same on both sides. "BN folding makes inference 5 to 15 % faster" was measured on another machine; the figure
# above is from yours.
#
# ## Fusion · stretch
#
# Every operator has a number that says how it may fuse. The registry has it:

# %%
NAMES = {int(v): k for k, v in vars(relay.op.OpPattern).items() if isinstance(v, int)}
ASKED = "nn.relu cast add expand_dims reshape transpose squeeze take concatenate sum "
ASKED += "nn.conv2d nn.dense nn.softmax nn.max_pool2d argsort"
pattern = {
    name: int(relay.op.get(name).get_attr("TOpPattern")) for name in ASKED.split()
}
of = {number: [name for name in pattern if pattern[name] == number] for number in NAMES}
Table(
    ("number", "name", "operators"),
    tuple((str(n), NAMES[n], ", ".join(of[n])) for n in sorted(NAMES)),
)

# %%
assert NAMES[7] == "TUPLE" and NAMES[8] == "OPAQUE"  # opaque is 8, not 7
assert pattern["cast"] == 0 and pattern["add"] == pattern["expand_dims"] == 1
assert {
    pattern[n] for n in ("reshape", "transpose", "squeeze", "take", "concatenate")
} == {2}
assert pattern["sum"] == 3
assert pattern["nn.conv2d"] == pattern["nn.softmax"] == pattern["nn.max_pool2d"] == 4

# %% [markdown]
# The smaller the number, the simpler the access. `FuseOps` wraps operators that share a kernel into one function with
# the attribute `Primitive`. This is the result for the block:

# %%
fused = run(scaled, "FuseOps")
print(*groups(fused), sep="\n")
draw(fused, title="The residual block after FuseOps")

# %% [markdown]
# Two kernels, and the **residual add is inside** the second: it is an `add` like any other, and its second operand is
# an input of the kernel. Without folded batch norms the arithmetic on constants makes separate groups:

# %%
unfolded = groups(run(simple, "FuseOps"))
print(*unfolded, sep="\n")
assert sorted(map(len, groups(fused))) == [3, 4]
assert (
    "nn.conv2d",
    "add",
    "add",
    "nn.relu",
) in groups(fused)
inside = [
    group for group in unfolded if "nn.conv2d" in group and group.count("add") == 2
]
assert inside and len(unfolded) > 2

# %% [markdown]
# ### Where a group ends
#
# A reduction may fuse with the operators before it; those after it are in another kernel. A group may fork if all arms
# join again inside it: the join **post-dominates** the fork. If the arms leave the group separately, it ends at the
# fork.

# %%
relu, total = relay.nn.relu, lambda value: relay.sum(value, axis=[1])
SHAPES = {
    "relu(sum(x))": relu(total(x)),
    "sum(relu(x))": total(relu(x)),
    "relu(c) + sigmoid(c)": relu(conv) + relay.sigmoid(conv),
    "(relu(c), sigmoid(c))": relay.Tuple([relu(conv), relay.sigmoid(conv)]),
    "(relu(c), sigmoid(c), tanh(c))": relay.Tuple(
        [relu(conv), relay.sigmoid(conv), relay.tanh(conv)]
    ),
}
grouping = {name: groups(run(module(body), "FuseOps")) for name, body in SHAPES.items()}
Table(
    ("program", "groups"),
    tuple((name, "  ".join(map(str, of))) for name, of in grouping.items()),
)

# %%
assert list(map(len, grouping.values())) == [2, 1, 1, 3, 4]
draw(
    run(module(SHAPES["(relu(c), sigmoid(c))"]), "FuseOps"),
    title="Two consumers: three kernels",
)

# %%
draw(
    run(module(SHAPES["relu(c) + sigmoid(c)"]), "FuseOps"),
    title="Two consumers that meet again: one kernel",
)

# %% [markdown]
# What fusion buys shows best where memory is the limit: six cheap operations on a large tensor. Level 0 fuses nothing,
# level 1 does.

# %%
big = relay.var("x", shape=(2048, 2048))
six = big
for name in ("nn.relu", "negative", "abs", "nn.relu", "negative", "abs"):
    six = relay.Call(relay.op.get(name), [six])
six = module(six)
data = torch.randn(2048, 2048)
cheap = {level: runner(six, data, level=level) for level in (0, 1)}
print("kernels:", launches(six, level=0), "→", launches(six, level=1))
print("bytes:  ", bytes_moved(six), "→", bytes_moved(run(six, "FuseOps")))
assert bytes_moved(six) == 6 * bytes_moved(run(six, "FuseOps"))
timed({"one by one": cheap[0], "fused": cheap[1]}, repeats=10)

# %% [markdown]
# How large may a group grow? An option in the context decides. TVM has a limit since very large groups overflowed the
# stack while they were lowered, and took long to compile. It is called a depth and counts nodes.

# %%
for depth in (2, 4, 256):
    with tvm.transform.PassContext(
        opt_level=3, config={"relay.FuseOps.max_depth": depth}
    ):
        print(
            f"at most {depth:3} nodes: "
            f"{len(groups(relay.transform.FuseOps()(six)))} groups"
        )


# %% [markdown]
# ## Equal subexpressions, other layouts · stretch
#
# `EliminateCommonSubexpr` compares operators, operands *and attributes*. Below, two softmaxes are equal and the third
# differs in its axis alone.

# %%
table = relay.var("x", shape=(4, 4))
rows_, rows_again, columns = (
    relay.nn.softmax(table, axis=axis) for axis in (-1, -1, 0)
)
repeats = module(rows_ * rows_again + columns)
merged = run(repeats, "EliminateCommonSubexpr")
print(cost(repeats, level=0), cost(merged, level=0), sep="\n")
assert (counts(repeats)["nn.softmax"], counts(merged)["nn.softmax"]) == (3, 2)
diff(repeats, merged, title="EliminateCommonSubexpr")

# %% [markdown]
# `AlterOpLayout` asks the target how it likes its convolutions. A plain `llvm` target promises short vectors, and
# answers `NCHW4c`: blocks of four channels next to each other, one for each lane. (Say `llvm -mcpu=…` and the blocks
# grow.) The pass converts at the borders and lets the layout flow in between, as you did on day 3.

# %%
with tvm.target.Target("llvm"):
    packed = run(scaled, "CanonicalizeOps", "AlterOpLayout", "FoldConstant")
print("before:", dict(counts(scaled)))
print("after: ", dict(counts(packed)))
assert counts(packed)["layout_transform"] == 2
assert counts(packed)["nn.contrib_conv2d_NCHWc"] == 2
diff(scaled, packed, title="AlterOpLayout")

# %% [markdown]
# Two convolutions, two conversions: one on the way in, one on the way out. Those of the weights were folded, since
# weights are constants. Measured:

# %%
plain = run_module(scaled, [(batch,)], disabled=["AlterOpLayout"], repeats=30)
blocked = run_module(scaled, [(batch,)], repeats=30)
print(f"kernels {len(plain.kernels)} → {len(blocked.kernels)}")
print(
    f"fastest run here: {min(plain.times) * 1e6:.0f} µs → "
    f"{min(blocked.times) * 1e6:.0f} µs"
)
assert len(blocked.kernels) == len(plain.kernels) + 2

# %% [markdown]
# One more thing about folding: `FoldConstant` computes what has constant operands, and `shape_of` although its operand
# is an input, since the type has the shape. With such a constant, `DynamicToStatic` turns a reshape to a computed shape
# into an ordinary one:

# %%
like = relay.shape_of(relay.var("like", shape=(2, 3)))
sized = module(relay.reshape(relay.exp(relay.var("flat", shape=(6,))), like))
static = run(sized, "FoldConstant", "DynamicToStatic")
print(sized["main"].ret_type, "→", static["main"].ret_type)
print(dict(counts(sized)), "→", dict(counts(static)))
assert "shape_of" in counts(sized) and "shape_of" not in counts(static)


# %% [markdown]
# ## Writing a pass
#
# Relay is immutable: a pass builds a new program and shares what did not change. There are two base classes. A
# **visitor** only looks:


# %%
class Constants(relay.ExprVisitor):
    """The bytes of all constants, and how many calls were visited."""

    def __init__(self):
        super().__init__()
        self.bytes, self.calls = 0, 0

    def visit_constant(self, const):
        self.bytes += const.data.numpy().nbytes

    def visit_call(self, call):
        self.calls += 1
        super().visit_call(call)  # its operands


look = Constants()
look.visit(scaled["main"])
print(look.bytes, "bytes of constants,", look.calls, "calls")
assert look.calls == counts(scaled).total()

# %% [markdown]
# Both base classes keep a **memo**: each node is visited once, however many read it. On a graph that is essential. Here
# is a program of 14 additions, and two walks over it.

# %%
tower = relay.var("x", shape=(4,))
for _ in range(14):
    tower = tower + tower


def walk(expr):
    """How many calls a walk without a memo visits."""
    return 1 + sum(map(walk, expr.args)) if isinstance(expr, relay.Call) else 0


# %%
bet = guess(
    "How many calls does a walk without a memo visit, on these 14 additions?", ...
)

# %% tags=["hide-output"]
look = Constants()
look.visit(tower)
calls = walk(tower)
print("with a memo:", look.calls, "calls;  without:", calls)
assert look.calls == 14 and calls == 2**14 - 1
bet.compare(calls)

# %% [markdown]
# A **mutator** rebuilds. This one knows one law, with its precondition: `x / c = x * (1/c)` if `c` is a constant
# without zeros. (In floating point the two sides may differ in the last place, unless c is a power of two.)
# `super().visit_call` has rewritten the operands already, so the law is applied from the leaves up.


# %%
class MultiplyInstead(relay.ExprMutator):
    """x / c = x * (1/c), if c is a floating-point constant without zeros."""

    def visit_call(self, call):
        call = super().visit_call(call)
        if call.op != relay.op.get("divide") or not isinstance(
            call.args[1], relay.Constant
        ):
            return call
        c = call.args[1].data.numpy()
        if c.dtype.kind != "f" or not c.all():
            return call
        return relay.multiply(call.args[0], relay.const(1 / c))


x4 = relay.var("x", shape=(4,))
half = x4 / relay.const(2.0)
divides = module(
    relay.exp(half)
    / (half + relay.const(3.0))
    / relay.const(np.array([1, 2, 0, 4], "float32"))
)

# %% [markdown]
# To run in a pipeline, it needs a name and a level. `function_pass` makes a pass of anything with a
# `transform_function`; types are inferred after it, as after every pass of Relay's own.


# %%
@relay.transform.function_pass(opt_level=1, name="DivideByConstants")
class DivideByConstants:
    def transform_function(self, function, mod, context):
        return MultiplyInstead().visit(function)


with tvm.transform.PassContext(opt_level=3):
    multiplies = tvm.transform.Sequential(
        [DivideByConstants(), relay.transform.InferType()]
    )(divides)
print(dict(counts(divides)), "→", dict(counts(multiplies)))
assert counts(multiplies)["multiply"] == 1 and counts(multiplies)["divide"] == 2
assert equivalent(divides, multiplies)
diff(divides, multiplies, title="One division became a multiplication, two may not")

# %% [markdown]
# `half` is read twice and was rewritten once: that is the memo again. The division by a constant with a 0 in it stays,
# and so does the division by something that is not constant.
#
# A **module pass** sees all functions, so it may decide about calls between them. This one copies small helpers into
# their callers; `RemoveUnusedFunctions` then drops unused functions. Mind that a module, unlike an expression, *can* be
# changed: a pass that does not copy it first changes its caller's.


# %%
@tvm.transform.module_pass(opt_level=1, name="InlineSmall")
class InlineSmall:
    """Inline every function of at most `most` operators where main calls it."""

    def __init__(self, most=3):
        self.most = most

    def transform_module(self, mod, context):
        class CopyIn(relay.ExprMutator):
            def visit_call(self, call):
                call = super().visit_call(call)
                helper = mod[call.op] if isinstance(call.op, relay.GlobalVar) else None
                if helper is None or counts(helper).total() > most:
                    return call
                return relay.bind(
                    helper.body, dict(zip(helper.params, call.args, strict=True))
                )

        most, mod = self.most, tvm.IRModule(mod.functions)
        mod["main"] = CopyIn().visit(mod["main"])
        return relay.transform.RemoveUnusedFunctions()(mod)


# %%
p = relay.var("p", shape=(4,))
callers = tvm.IRModule.from_expr(relay.Function([x4], x4))
square = relay.GlobalVar("square")
callers[square] = relay.Function([p], p * p)
callers["main"] = relay.Function([x4], square(square(x4)))
callers = relay.transform.InferType()(callers)
with tvm.transform.PassContext(opt_level=1):
    inlined = tvm.transform.Sequential([InlineSmall(), relay.transform.InferType()])(
        callers
    )
print(
    [v.name_hint for v in callers.functions],
    "→",
    [v.name_hint for v in inlined.functions],
)
print(inlined)
assert len(callers.functions) == 2
assert len(inlined.functions) == 1
assert counts(inlined)["multiply"] == 2

# %% [markdown]
# ### Names, functions as values, effects · stretch
#
# `Let(var, value, body)` names a value; the body of a `Let` is often the next `Let`, so a list of bindings is a chain.
# `free_vars` tells which names an expression reads from outside of itself:

# %%
u, v = relay.var("u"), relay.var("v")
inner = relay.Let(v, relay.exp(u), v * v)
chain = module(relay.Let(u, x4, inner))
print(chain["main"].body)
print("the inner let reads", [var.name_hint for var in relay.analysis.free_vars(inner)])

# %% [markdown]
# A mutator meets such a chain from the outside: `visit_let` decides when to visit the value, when the body, and what to
# do between. This one knows that `let u = x; body` is the body with x in place of u. It enters that into the memo,
# `memo_map`, before it visits the body:


# %%
class NoSecondNames(relay.ExprMutator):
    def visit_let(self, let):
        value = self.visit(let.value)
        if isinstance(value, relay.Var):
            self.memo_map[let.var] = value
            return self.visit(let.body)
        return relay.Let(let.var, value, self.visit(let.body))


print(NoSecondNames().visit(chain["main"]).body)

# %% [markdown]
# A function is a value, too. If it is bound by `let` and reads a variable from outside, it is a **closure**. So the
# callee, `call.op`, is not always an operator: it may be a function of the module (a `GlobalVar`), a variable, or the
# function itself. Visitors enter functions:

# %%
f, q = relay.var("f"), relay.var("q", shape=(4,))
closure = module(
    relay.Let(f, relay.Function([q], relay.tanh(q + x4)), f(relay.nn.relu(x4)))
)
called = []
relay.analysis.post_order_visit(
    closure["main"],
    lambda e: called.append(e.op) if isinstance(e, relay.Call) else None,
)
print(
    [
        f"{type(op).__name__} {getattr(op, 'name', None) or op.name_hint}"
        for op in called
    ]
)
assert {type(op).__name__ for op in called} == {"Op", "Var"}

# %% [markdown]
# Machine code has no closures. `LambdaLift` makes one a function of the module, which takes what the closure reads and
# returns the rest. (TVM's pass adds it to the module that it was given, too, which no pass should.) The kernels of
# FuseOps are function literals, too, and read nothing from outside; `DefuseOps` inlines them again. (Some tables of
# passes list InlinePrimitives for that; this TVM has no such pass.)

# %%
lifted = relay.transform.LambdaLift()(closure)
for name, function in lifted.functions.items():
    inputs = [param.name_hint for param in function.params]
    print(f"{name.name_hint[:11]:<12} of {inputs} returns {function.ret_type}")
assert len(lifted.functions) == len(closure.functions) == 2

tower = module(relay.exp(relay.tanh(x4)))
kernels = run(tower, "FuseOps")
assert isinstance(kernels["main"].body.op, relay.Function)
assert tvm.ir.structural_equal(run(kernels, "DefuseOps"), tower)
assert not hasattr(relay.transform, "InlinePrimitives")

# %% [markdown]
# Most operators only give a value. Those that do more, such as drawing random numbers, say so in the registry. Two
# calls of one must not become one, and an unused one must stay: it changes what later draws give. An expression
# does what anything inside of it does: `exp(dropout(x))` draws, and a call of a variable may do anything.

# %%
for name in ("exp", "nn.dense", "nn.dropout"):
    print(
        f"{name:<12}",
        "has an effect"
        if relay.op.get(name).get_attr("TOpIsStateful")
        else "gives a value",
    )


def operators(expr):
    """All operators that an expression calls, however deep inside."""
    operators = []
    relay.analysis.post_order_visit(
        expr, lambda e: operators.append(e) if isinstance(e, tvm.ir.Op) else None
    )
    return operators


drawn = relay.exp(relay.nn.dropout(x4, 0.5))
print(
    "outermost:",
    bool(drawn.op.get_attr("TOpIsStateful")),
    " inside:",
    [op.name for op in operators(drawn)],
)
assert any(op.get_attr("TOpIsStateful") for op in operators(drawn))

# %% [markdown]
# ### Saying what, not how: patterns
#
# For a rewrite with a larger left-hand side, describe it. `is_op` matches a call, `wildcard` anything, and a callback
# says what to put there instead. The law here is `exp(a) * exp(b) = exp(a + b)`.

# %%
from tvm.relay.dataflow_pattern import DFPatternCallback, is_op, rewrite, wildcard


class OneExp(DFPatternCallback):
    """exp(a) * exp(b) = exp(a + b), but for overflow on the way."""

    def __init__(self):
        super().__init__(require_type=True)
        self.a, self.b = wildcard(), wildcard()
        self.pattern = is_op("multiply")(is_op("exp")(self.a), is_op("exp")(self.b))

    def callback(self, before, after, matches):
        return relay.exp(matches[self.a][0] + matches[self.b][0])


z = relay.var("z", shape=(4,))
product = module(relay.exp(y) * relay.exp(z))
one = module(rewrite(OneExp(), product["main"]).body)
print(cost(product, level=0), cost(one, level=0), sep="\n")
assert counts(one)["exp"] == 1
diff(product, one, title="exp(a) · exp(b) = exp(a + b)")

# %% [markdown]
# And when `exp(a)` has another reader? Then it must be computed anyway, and the rewrite would save nothing. `match`,
# which looks at one expression, says yes. `rewrite` and `partition` look at the whole program and leave it alone:

# %%
also = module(relay.Tuple([e * relay.exp(z), e]))
root = also["main"].body.fields[0]
print("matches:", bool(OneExp().pattern.match(root)))
print("exp is read by", len(consumers(also)[root.args[0]]), "expressions")
kept_both = module(rewrite(OneExp(), also["main"]).body)
assert OneExp().pattern.match(root) and counts(kept_both)["exp"] == 2

# %% [markdown]
# A mutator of your own gets no such check. This one puts `relu(conv2d(…))` into one function, marked as one kernel with
# the attribute that FuseOps uses, and asks nothing:


# %%
class FuseBlindly(relay.ExprMutator):
    def visit_call(self, call):
        call = super().visit_call(call)
        conv = call.args[0] if call.op == relay.op.get("nn.relu") else None
        if not (isinstance(conv, relay.Call) and conv.op == relay.op.get("nn.conv2d")):
            return call
        data, weight = relay.var("data"), relay.var("weight")
        body = relay.nn.relu(relay.Call(conv.op, [data, weight], conv.attrs))
        kernel = relay.Function([data, weight], body).with_attr(
            "Primitive", tvm.tir.IntImm("int32", 1)
        )
        return kernel(*conv.args)


two = module(SHAPES["(relu(c), sigmoid(c))"])
blind = module(FuseBlindly().visit(two["main"].body))
print("convolutions:", counts(two)["nn.conv2d"], "→", counts(blind)["nn.conv2d"])
assert counts(blind)["nn.conv2d"] == 2 and equivalent(two, blind)
diff(two, blind, title="A fusion that checks no users computes the convolution twice")

# %% [markdown]
# Both compute the same, and the most expensive operator of the program now runs twice. Counting consumers is half of
# exercise 2.
#
# ## Build and run · stretch
#
# `relay.build` runs Relay's pipeline, lowers every group to loops, and gives machine code and a plan. The graph
# executor runs the plan. Where there is a GPU, the same module builds for it.

# %%
from tvm.contrib import graph_executor

executors = {}
for target in targets():
    with tvm.transform.PassContext(opt_level=3), build_once():
        library = relay.build(block, target)
    executor = graph_executor.GraphModule(library["default"](tvm.device(target)))
    executor.run(x=batch.numpy())
    error = np.abs(executor.get_output(0).numpy() - net(batch).numpy()).max()
    print(f"{target}: largest difference to torch {error:.1e}")
    assert error < 1e-3
    executors[target] = executor

# %%
built = {"level 1": runner(block, batch, level=1), "level 3": executors["llvm"].run}
timed({"torch": lambda: net(batch), **built}, repeats=10)

# %% [markdown]
# How a kernel loops, Relay takes from templates. `auto_scheduler` searches instead: each group of FuseOps is a **task**,
# given as the formula that its loops have to compute, without any loop. Day 8 shows such a search.

# %%
from tvm import auto_scheduler

data, matrix = relay.var("data", shape=(8, 16)), relay.var("matrix", shape=(4, 16))
layer = module(relay.nn.relu(relay.nn.dense(data, matrix)))
tasks, _ = auto_scheduler.extract_tasks(layer["main"], {}, "llvm")
print(tasks[0].desc, tasks[0].compute_dag, sep="\n")
assert len(tasks) == 1

# %% [markdown]
# ## Key takeaways
#
# - Relay is a typed functional language. Sharing is by object: the same node read twice is computed once.
# - Folding needs constants: bind the parameters. Removing batch norm takes three steps: simplify, fold, move the scale.
# - Do not quote opt levels: an instrument of five lines shows what runs.
# - Fusion follows numbers in a registry and post-dominance. The residual add fuses; an operator after a reduction does
#   not; a fork fuses if it joins again.
# - To measure a pass, disable it, and on both sides all passes that depend on it.
# - A mutator visits each node once. You have to count consumers yourself; `rewrite` and `partition` count them for you.
#
# ## Further reading
#
# - "Relay: A New IR for Machine Learning Frameworks", Jared Roesch, Steven Lyubomirsky, Logan Weber, Josh Pollock,
#   Marisa Kirisame, Tianqi Chen, Zachary Tatlock, MAPL 2018.
# - "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning", Tianqi Chen, Thierry Moreau, Ziheng Jiang,
#   Lianmin Zheng, Eddie Yan, Meghan Cowan, Haichen Shen, Leyuan Wang, Yuwei Hu, Luis Ceze, Carlos Guestrin,
#   Arvind Krishnamurthy, OSDI 2018.
# - "Optimizing CNN Model Inference on CPUs", Yizhi Liu, Yao Wang, Ruofei Yu, Mu Li, Vin Sharma, Yida Wang,
#   USENIX ATC 2019. Where AlterOpLayout's packed layouts come from.
# - "The Essence of Compiling with Continuations", Cormac Flanagan, Amr Sabry, Bruce F. Duba, Matthias Felleisen,
#   PLDI 1993. A-normal form.
#
# ## Tomorrow
#
# Relay hides kernels: a pass sees operators, and loops appear only after the last pass has run. Day 8 ports today's
# passes to the current TVM. Its graph language, Relax, is in A-normal form, has symbolic shapes, and allows calls of
# loop nests next to calls of operators; so a pass can fuse, schedule and tune in one module.
