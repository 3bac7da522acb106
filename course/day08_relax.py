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
# # Day 8 · TVM today: Relax, TensorIR, tuning
#
# Relay, the IR of day 7, is gone: TVM removed it in 2025. It had two limits. Shapes that are unknown until a model runs
# were an afterthought: two sizes `Any` may be equal or not. And lowering was one large step, with graphs of operators
# before it and loops after it: no pass could see both.
#
# **Relax** is its successor. It is always in A-normal form (day 7): every value has a variable. Shapes are part of the
# types, and may be symbolic. And a graph may call loops: a module has operators and TensorIR functions side by side, so
# lowering is a sequence of small passes, and you can stop after any of them. Today you look at each step. In the
# exercises, [work/day08/relax.ipynb](../work/day08/relax.ipynb), you write passes, a fusion policy, a schedule and a
# tuner. The lesson takes about 65 minutes, and 20 more for what is marked stretch.

# %%
import time
import warnings

import numpy as np
import torch
from torch import nn

from passlab import diff, draw, guess, models, timed, trace
from passlab.notebook import beside
from passlab.relax import relax, tvm
from passlab.relax.fusing import everything, fuse, nothing, prepare, price, program
from passlab.relax.pipelines import cpu_schedule, host, kernels, pipeline, tune
from passlab.tvm import builds
from passlab.tvm.importers import relax_module
from passlab.tvm.judge import random_inputs
from passlab.tvm.measure import allocations, runner
from passlab.tvm.modules import counts, groups

op, passes = relax.op, relax.transform
# torch.export warns about its own code.
warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")

# %% [markdown]
# ## A module of Relax
#
# An importer makes one from a torch model. This one is told that the first dimension is not known:


# %%
class Head(nn.Module):
    def forward(self, x):
        return torch.relu(x).flatten(1) * 2


batch = torch.export.Dim("batch")
exported = torch.export.export(
    Head(), (torch.randn(4, 3, 5),), dynamic_shapes={"x": {0: batch}}
)
from tvm.relax.frontend.torch import from_exported_program

head = from_exported_program(exported)
head.show()

# %% [markdown]
# Read the types: the symbol in the shape of `x` is in every line, and `flatten` has computed with it (3 times 5 is 15,
# and the symbol is kept). `with R.dataflow()` marks a **dataflow block**: nothing in it branches or has an effect, so
# passes may reorder, merge and remove bindings freely. Only the values in `R.output` are visible outside.

# %%
((block,),) = [head["main"].body.blocks]
inside = [type(binding.var).__name__ for binding in block.bindings]
print(inside, "→", block.bindings[-1].var.ty)
assert inside[:-1] == ["DataflowVar"] * (len(inside) - 1) and inside[-1] == "Var"
assert not isinstance(head["main"].params[0].ty.shape[0], int)
assert int(block.bindings[1].var.ty.shape[1]) == 15

# %%
draw(head, title="Every value has a variable, every variable a type")

# %% [markdown]
# ## Graphs that call loops
#
# `LegalizeOps` replaces operators by calls of loops. Afterwards the module has two kinds of function: Relax functions,
# and `PrimFunc`s of **TensorIR**. The call between the levels is `call_tir`: the callee writes into a buffer that the
# caller provides, so a graph-level pass can decide where that buffer is.

# %%
legal = passes.LegalizeOps()(head)
legal["main"].show()
assert any(
    isinstance(function, tvm.tirx.PrimFunc) for function in legal.functions.values()
)
assert all(not name.startswith("relax.") for name in counts(legal)), (
    "no operator is left"
)

# %%
legal["relu"].show()

# %% [markdown]
# A block (`T.sblock`) defines the computation of one element; the loops around it define the order. A schedule changes
# the loops and not the block: that is the second half of today.
#
# ## From Relay to Relax, pass by pass
#
# Which of yesterday's passes still exist? Query both TVMs. (The first cell runs in a process beside this one: a process
# can load only one TVM.)

# %%
# %%beside relay
from passlab.relay import relay

THERE = sorted(
    name
    for name in dir(relay.transform)
    if name[:1].isupper() and not name.endswith("Pass")
)
print(len(THERE), "names with a capital letter in relay.transform")

# %%
RENAMED = {
    "InferType": "Normalize",  # types are inferred while a module is built
    "SimplifyInference": "DecomposeOpsForInference",
    "FoldScaleAxis": "FoldBatchnormToConv2D",
    "AlterOpLayout": "AlterOpImpl",  # then OptimizeLayoutTransform removes what cancels
    "CombineParallelDense": "CombineParallelMatmul",
    "FastMath": "FastMathTransform",
    "ToANormalForm": "Normalize",  # a module that is not in this form cannot be built
    "Legalize": "LegalizeOps",
    "Inline": "InlinePrivateFunctions",
    "RemoveUnusedFunctions": "DeadCodeElimination",
    "ManifestLifetimes": "KillAfterLastUse",
    "MergeComposite": "FuseOpsByPattern",
    "MergeCompilerRegions": "MergeCompositeFunctions",
    "PlanDevices": "RealizeVDevice",
    "FirstOrderGradient": "Gradient",
}
old = beside.value("relay", "THERE") or []
new = [name for name in dir(passes) if name[:1].isupper() and not name.endswith("Pass")]
pairs = {name: RENAMED.get(name, name) for name in old}
successors = {name: now for name, now in pairs.items() if now in new}
for name, now in sorted(successors.items()):
    print(f"{name:<24} {now if now != name else '· the same name'}")
orphans = [name for name in old if name not in successors]
print(f"\n{len(orphans)} have no successor in this table, {', '.join(orphans[:6])}, …")
unknown = set(new) - set(successors.values())
print(
    f"{len(unknown)} are new, AnnotateTIROpPattern, FuseTIR, StaticPlanBlockMemory, …"
)
same = {name for name, now in successors.items() if name == now}
if old:
    assert {
        "FuseOps",
        "FoldConstant",
        "EliminateCommonSubexpr",
        "ConvertLayout",
    } <= same
    assert not {"LegalizeOps", "FuseTIR", "StaticPlanBlockMemory"} & set(old)

# %% [markdown]
# The same name does not mean the same position: in Relay `FuseOps` worked on operators, and other code lowered each
# group later. In Relax it comes *after* lowering and works on `call_tir`.
#
# Four more names, in case you read older tutorials: tensors are made by `tvm.runtime.tensor`, a variable's name is
# `Var.name`, the type of a tensor is `relax.TensorType`, and TensorIR is `tvm.tirx`.

# %%
parameter = relax.Var("x", relax.TensorType((2, 3), "float32"))
assert parameter.name == "x"
assert tvm.runtime.tensor(np.ones(3)).shape == (3,)
assert hasattr(tvm, "tirx")
# check_well_formed answers; relax.analysis.well_formed raises.
assert relax.analysis.check_well_formed(head) is True
broken = tvm.IRModule(
    {"main": relax.Function([], relax.Var("y", relax.TensorType((2,), "float32")))}
)
try:
    relax.analysis.well_formed(broken)
except Exception as error:
    print(type(error).__name__, "·", str(error).strip().splitlines()[-1][:100])
assert relax.analysis.check_well_formed(broken) is False

# %% [markdown]
# ## A mutator
#
# The class to inherit from is `PyExprMutator`. Here is a pass that replaces relu by clip, as it is often written at
# first:


# %%
@relax.expr_functor.mutator
class Silent(relax.PyExprMutator):
    def visit_call(self, call):
        return op.clip(call.args[0], 0, 6)


@relax.expr_functor.mutator
class Clip(relax.PyExprMutator):
    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if isinstance(call.op, tvm.ir.Op) and call.op.name == "relax.nn.relu":
            return op.clip(call.args[0], 0, float("inf"))
        return call


def applied(mutator, module):
    rewriter = mutator(module)
    rewriter.builder_.update_func(
        module.get_global_var("main"), rewriter.visit_expr(module["main"])
    )
    return rewriter.builder_.get()


print(
    "Silent:",
    dict(counts(applied(Silent, head))),
    " Clip:",
    dict(counts(applied(Clip, head))),
)
assert counts(applied(Silent, head)) == counts(head)
assert counts(applied(Clip, head))["relax.clip"] == 1

# %% [markdown]
# The first does nothing, and no error says so: the method that TVM calls has an underscore at its end. Two more things
# to know. An operand is a variable, never a call: `self.lookup_binding(variable)` returns the call it is bound to. And
# `call.op` need not be an operator: a module may call its own functions, by a `GlobalVar`, which has no `.name`.

# %%
diff(head, applied(Clip, head), title="One call replaced")

# %% [markdown]
# ## Fusing by pattern
#
# `FuseOpsByPattern` finds calls by a pattern and moves them into a function. A convolution whose value has two readers
# shows why a pattern is not enough:

# %%
is_op, wildcard = relax.dpl.is_op, relax.dpl.wildcard


def module(body, *shapes):
    """A module whose main has one dataflow block.

    `body` gets a function that binds, and the inputs.
    """
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var("xyw"[at], relax.TensorType(shape, "float32"))
        for at, shape in enumerate(shapes)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = body(builder.emit, *inputs)
            result = builder.emit_output(
                relax.Tuple(result) if isinstance(result, tuple) else result
            )
        builder.emit_func_output(result)
    return builder.get()


def two_readers(bind, x, weight):
    value = bind(op.nn.conv2d(x, weight, padding=1))
    return bind(op.nn.relu(value)), bind(op.sigmoid(value))


forked = module(two_readers, (1, 4, 8, 8), (4, 4, 3, 3))
conv_relu = is_op("relax.nn.relu")(is_op("relax.nn.conv2d")(wildcard(), wildcard()))
composed = passes.FuseOpsByPattern([("mine.conv_relu", conv_relu)])(forked)
(composite,) = [
    function
    for name, function in composed.functions.items()
    if name.name_hint != "main"
]
print(composite.attrs["Composite"], "returns", composite.ret_ty)
assert isinstance(composite.ret_ty, relax.TupleType)

# %% [markdown]
# Convolution and relu are fused all the same, and the function returns both values, in a tuple. A fourth element of the
# pattern, a **check**, can forbid that. It gets the readers of every variable:


# %%
def private(context):
    inner = [
        v
        for v, value in context.matched_bindings.items()
        if not value.same_as(context.matched_expr)
    ]
    return all(
        len(context.var_usages[v]) == 1 and isinstance(v, relax.DataflowVar)
        for v in inner
    )


checked = passes.FuseOpsByPattern([("mine.conv_relu", conv_relu, {}, private)])(forked)
assert len(checked.functions) == 1, "nothing was fused"
bias_left = module(
    lambda bind, x, y: bind(op.nn.relu(bind(op.add(y, bind(op.exp(x)))))), (2, 4), (4,)
)
pattern = is_op("relax.nn.relu")(
    is_op("relax.add")(is_op("relax.exp")(wildcard()), wildcard())
)
assert len(passes.FuseOpsByPattern([("mine", pattern)])(bias_left).functions) == 2, (
    "an addition matches either way"
)

# %% [markdown]
# ## Four passes from operators to kernels
#
# Lower a residual block of the zoo step by step: convolutions, batch norms, relus and an addition.

# %%
zoo = models.ZOO["residual"]
net, (x,) = zoo.build(), zoo.inputs(batch=1)
block = relax_module(net, x)
draw(block, title="Operators")

# %% [markdown]
# **Decompose, legalize, annotate.** In inference a batch norm is four element-wise operators. It returns a tuple of
# three, of which the first element is used; `CanonicalizeBindings` replaces the tuple by that element (a tuple in
# between would prevent fusion). Then every operator becomes a loop nest, and `AnnotateTIROpPattern` examines each nest
# and determines its kind: 0 element-wise, 1 broadcast, 2 injective, 3 a reduction, 4 a reduction that element-wise
# operations may follow.

# %%
target = tvm.target.Target("llvm")
to_kernels = [passes.DecomposeOpsForInference(), passes.CanonicalizeBindings()]
to_kernels += [
    passes.LegalizeOps(),
    passes.AnnotateTIROpPattern(),
    passes.FoldConstant(),
]
with target:
    annotated = tvm.transform.Sequential(to_kernels)(block)
for variable, function in annotated.functions.items():
    if isinstance(function, tvm.tirx.PrimFunc):
        print(f"{variable.name_hint:<16} {int(function.attrs['op_pattern'])}")
patterns = {
    v.name_hint: int(f.attrs["op_pattern"])
    for v, f in annotated.functions.items()
    if v.name_hint != "main"
}
assert patterns["relu"] == 0 and patterns["conv2d"] == 4

# %% [markdown]
# **FuseOps** groups by these kinds, by the post-dominator algorithm of day 4, and makes a function of each group.

# %%
with target:
    fused = passes.FuseOps()(annotated)
for group in groups(fused):
    print(" + ".join(group))
first, last = sorted(groups(fused), key=len)
assert first[0] == last[0] == "conv2d" and first[-1] == last[-1] == "relu"
assert len(last) == len(first) + 1 and "add" in last[-2], (
    "the residual add is in the kernel"
)

# %%
draw(fused, title="Groups, before their loops are put together")

# %% [markdown]
# The residual `add` is in one group with convolution, batch norm and relu. **FuseTIR** makes one TensorIR function of
# each group:

# %%
with target:
    tensor_ir = passes.FuseTIR()(fused)
before, after = counts(block).total(), counts(tensor_ir).total()
print(f"{before} operators became {after} calls of kernels")
assert counts(tensor_ir).total() == 2
draw(tensor_ir, title="Calls of kernels")

# %% [markdown]
# And a reduction between element-wise operations? Those before it are computed inside the sum. Those after it stay
# separate: the sum is of kind 3, and only kind 4 fuses with later element-wise operations.

# %%
around = module(
    lambda bind, x: bind(op.nn.relu(bind(op.sum(bind(op.exp(x)), axis=1)))), (4, 8)
)
with target:
    steps = [passes.LegalizeOps(), passes.AnnotateTIROpPattern(), passes.FuseOps()]
    shown = groups(tvm.transform.Sequential(steps)(around))
print(shown)
assert [len(group) for group in shown] == [1, 2] and shown[1][-1] == "sum"

# %% [markdown]
# ## What `tvm.compile` does not do
#
# None of the above happens by itself: on a CPU `tvm.compile(module, "llvm")` makes kernels of operators, one by one. You
# have to name a pipeline. To count the kernels of a run, use an instrument: the virtual machine calls it before and
# after each.


# %%
def launched(module, inputs, **how):
    machine, kernel_names = (
        relax.VirtualMachine(tvm.compile(module, "llvm", **how), tvm.cpu()),
        [],
    )

    def note(function, name, before, result, *arguments):
        if before and not name.startswith("vm."):
            kernel_names.append(name)

    machine.set_instrument(note)
    machine["main"](*[tvm.runtime.tensor(np.asarray(value)) for value in inputs])
    return kernel_names


# %%
bet = guess(
    "How many kernels does a run of `block` start, if no pipeline is named?", ...
)

# %% tags=["hide-output"]
named = {"relax_pipeline": relax.get_default_pipeline(target)}
plain, default = launched(block, [x]), launched(block, [x], **named)
decomposed = launched(tvm.transform.Sequential(to_kernels[:2])(block), [x], **named)
print(
    f"{len(plain)} kernels; {len(default)} with the default pipeline, "
    f"{len(decomposed)} without batch norms"
)
assert len(plain) > len(default) >= len(decomposed) == 2
bet.compare(len(plain))

# %% [markdown]
# A trap of the same kind is the optimization level. At level 0 `FuseOps` fuses nothing, and naming it in
# `required_pass` does not help:

# %%
sizes = {}
for level, required in ((2, []), (0, []), (0, ["FuseOps"])):
    with target, tvm.transform.PassContext(opt_level=level, required_pass=required):
        sizes[level, *required] = len(
            tvm.transform.Sequential([passes.FuseOps()])(annotated).functions
        )
print(sizes, "functions; without FuseOps", len(annotated.functions))
assert sizes[0,] == sizes[0, "FuseOps"] == len(annotated.functions) < sizes[2,]
assert tvm.transform.PassContext.current().opt_level == 2

# %% [markdown]
# ## Two importers, one of them wrong · stretch
#
# There are two ways from torch to Relax. `from_exported_program` is right. `from_fx` takes a traced module, and:

# %%
from tvm.relax.frontend.torch import from_fx

torch.manual_seed(0)
normal = (
    nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval().requires_grad_(False)
)
normal[1].running_mean.uniform_(-0.5, 0.5)
normal[1].running_var.uniform_(0.5, 2)
image = torch.randn(1, 3, 8, 8)
imported = from_fx(trace(normal, image), [((1, 3, 8, 8), "float32")])
repaired = passes.DecomposeOpsForInference()(imported)


def largest_error(module):
    (outputs,) = builds.run_module(module, [(image,)]).outputs
    return float(abs(outputs[0] - normal(image).numpy()).max())


print(f"error {largest_error(imported):.2f}, repaired {largest_error(repaired):.0e}")
assert "training=True" in imported.script()
assert largest_error(imported) > 0.1
assert largest_error(repaired) < 1e-5
assert largest_error(relax_module(normal, image)) < 1e-5

# %% [markdown]
# The model is in eval mode, and the importer writes a batch norm for training, which uses the statistics of the batch.
# There is no warning. `DecomposeOpsForInference` treats every batch norm as one of inference, and so repairs it.
#
# Another silent trap: `ConvertLayout` needs the full name of an operator, and ignores a name that it does not know:

# %%
conv = relax_module(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), image)
for key in ("nn.conv2d", "relax.nn.conv2d"):
    converted = passes.ConvertLayout({key: ["NHWC", "OHWI"]})(conv)
    print(f"{key:<16} {counts(converted)['relax.permute_dims']} conversions")
    assert ("NHWC" in converted.script()) == key.startswith("relax.")

# %%
diff(conv, converted, title="Channels last: converted at the borders")

# %% [markdown]
# ## A fusion policy of your own · stretch
#
# `FuseTIR` puts the loop nests of a group one after the other into one function. That saves launches; merging the loops
# would also save memory traffic, but it can cost a lot: an operation merged into a reduction is computed again in every
# iteration. `passlab.relax.fusing` merges, and leaves the choice of groups to you. The example is a matrix product with
# element-wise operations before and after it:


# %%
def squashed(bind, x, weight):
    value = bind(op.multiply(bind(op.tanh(x)), relax.const(2.0)))
    product = bind(op.nn.relu(bind(op.matmul(value, weight))))
    return bind(op.add(product, bind(op.exp(product))))


dense = prepare(module(squashed, (128, 128), (128, 128)))
source = program(dense)
chosen = [("lv", "lv1"), ("lv2", "lv3", "lv4", "gv")]
times = {}
for name, choice in (
    ("nothing", nothing(dense)),
    ("everything", everything(dense)),
    ("chosen", chosen),
):
    built = builds.run_module(
        fuse(dense, choice), random_inputs(dense)[:1], pipeline="none", repeats=20
    )
    times[name] = min(built.times)
    print(f"{name:<11} {times[name] * 1e3:7.2f} ms   priced {price(source, choice)}")
assert price(source, chosen).microseconds < min(
    price(source, c).microseconds for c in ([], everything(dense))
)
assert times["everything"] > 3 * times["nothing"]

# %% [markdown]
# Fusing everything computes every tanh 128 times. That cost comes from a model of kernels, bytes and steps; in the
# exercise you search with it.
#
# ## Where fusion pays · stretch
#
# Six cheap operations on a large tensor. Each reads and writes memory, and computes next to nothing:


# %%
def six_torch(x, y):
    return torch.relu(((x * 0.5 + y) * x - y) * 2.0)


def six(bind, x, y):
    value = bind(op.add(bind(op.multiply(x, relax.const(0.5))), y))
    value = bind(op.subtract(bind(op.multiply(value, x)), y))
    return bind(op.nn.relu(bind(op.multiply(value, relax.const(2.0)))))


size = 1536
cheap = module(six, (size, size), (size, size))
x, y = torch.randn(size, size), torch.randn(size, size)
unfused, fused_once = (
    runner(cheap, pipeline=pipeline(fuse=False)),
    runner(cheap, pipeline=pipeline()),
)
assert np.allclose(fused_once(x, y)[0].numpy(), six_torch(x, y).numpy(), atol=1e-5)
timed(
    {"torch, eager": six_torch, "TVM, unfused": unfused, "TVM, fused": fused_once},
    x,
    y,
    repeats=9,
)

# %%
six_kernels, one_kernel = launched(cheap, [x, y]), launched(cheap, [x, y], **named)
print(f"kernels: {len(six_kernels)} → {len(one_kernel)}, {one_kernel[0]}")
assert (len(six_kernels), len(one_kernel)) == (6, 1)

# %% [markdown]
# ## Memory is planned
#
# Every call of a kernel needs a buffer for its result. `StaticPlanBlockMemory` finds the buffers that are live at the
# same time (day 5), and lets others share memory. ResNet-18:

# %%
net18, photo = models.resnet18(), torch.randn(1, 3, 32, 32)
big = prepare(relax_module(net18, photo))
with target:
    big_fused = tvm.transform.Sequential([passes.FuseOps(), passes.FuseTIR()])(big)
plans = {}
for name, variant in (("unfused", big), ("fused", big_fused)):
    plans[name] = allocations(variant), allocations(variant, planned=True)
    print(f"{name:<8} {plans[name][0]}  →  {plans[name][1]}")
assert all(
    after.count < 0.5 * before.count and after.bytes < 0.6 * before.bytes
    for before, after in plans.values()
)

# %% [markdown]
# ## Schedules
#
# So far no loop has been changed. Here is a matrix product as a **tensor expression**, which defines one element:

# %%
N = 256


def matmul(n):
    a, b = tvm.te.placeholder((n, n), name="A"), tvm.te.placeholder((n, n), name="B")
    k = tvm.te.reduce_axis((0, n), "k")
    c = tvm.te.compute(
        (n, n), lambda i, j: tvm.te.sum(a[i, k] * b[k, j], axis=k), name="C"
    )
    return tvm.te.create_prim_func([a, b, c])


matmul(N).show()

# %% [markdown]
# `create_prim_func` makes the obvious three loops of it. A schedule now changes them, one primitive at a time. Each
# version is checked against NumPy and timed.

# %%
rng = np.random.default_rng(0)
A, B = (rng.standard_normal((N, N)).astype("float32") for _ in range(2))
history = {}


def attempt(name, schedule):
    """Build, check and time a schedule, and print what it gains over the first one."""
    function = tvm.compile(schedule.mod, host())["main"]
    a, b, c = (tvm.runtime.tensor(value) for value in (A, B, np.zeros_like(A)))
    times = []
    for _ in range(7):
        start = time.perf_counter()
        function(a, b, c)
        times.append(time.perf_counter() - start)
    assert np.allclose(c.numpy(), A @ B, atol=1e-3)
    history[name] = min(times)
    first = next(iter(history.values()))
    print(f"{name:<22} {min(times) * 1e3:8.3f} ms   {first / min(times):6.1f}x")


schedule = tvm.s_tir.Schedule(matmul(N))
attempt("as written", schedule)

# %% [markdown]
# **Reorder.** The innermost loop walks down a column of B, a new cache line at each turn. With `j` innermost it walks
# along rows.

# %%
bet = guess("How many times as fast is the product with j innermost?", ...)

# %% tags=["hide-output"]
block_c = schedule.get_sblock("C")
i, j, k = schedule.get_loops(block_c)
schedule.reorder(i, k, j)
attempt("reorder", schedule)
bet.compare(round(history["as written"] / history["reorder"], 1))

# %% [markdown]
# That is enough for LLVM to make vectors of the row by itself (`host()` names this machine's processor, so it knows how
# wide they are). The remaining cost is traffic: every iteration of `k` reads and writes the row of C.
#
# **Split and vectorize.** Move a piece of the row, short enough for registers, inside `k`. It gains nothing yet, since
# every iteration still writes its result to memory, but it makes the next step possible.

# %%
j_out, j_in = schedule.split(j, [None, 16])
schedule.reorder(i, j_out, k, j_in)
schedule.vectorize(j_in)
attempt("split, vectorize", schedule)

# %% [markdown]
# **Cache and tile.** `cache_write` gives the result a buffer of its own, which is written to memory when `k` is done.
# Until then four rows of it stay in registers, and each value loaded from B is used four times.

# %%
i_out, i_in = schedule.split(i, [None, 4])
schedule.reorder(i_out, j_out, k, i_in, j_in)
write = schedule.cache_write(block_c, 0, "local")
schedule.reverse_compute_at(write, j_out)
schedule.unroll(i_in)
attempt("cache, tile, unroll", schedule)

# %% [markdown]
# **Parallel.** Rows of tiles are independent of each other. Last, setting the sum to zero moves out of the loop over `k`
# (after that, a schedule cannot see any more that it is a sum: `parallel` would be refused).

# %%
schedule.parallel(i_out)
schedule.decompose_reduction(block_c, k)
attempt("parallel, zero first", schedule)
assert history["as written"] > 5 * min(history.values())
draw(schedule.mod, title="The loops in the end")

# %% [markdown]
# The block has not changed. Each primitive checks its own precondition, so a schedule adds up the same products, fast
# or slow. That is what makes searching possible. What may change is the order in which they are added, and with it the
# last bits of a sum:

# %%
other = tvm.s_tir.Schedule(matmul(N))
i, j, k = other.get_loops(other.get_sblock("C"))
k_out, k_in = other.split(k, [None, 4])
other.reorder(k_in, i, j, k_out)  # every fourth product first
results = [np.zeros_like(A), np.zeros_like(A)]
for ir_module, result in zip((matmul(N), other.mod), results, strict=True):
    c = tvm.runtime.tensor(result)
    tvm.compile(ir_module, host())["main"](
        tvm.runtime.tensor(A), tvm.runtime.tensor(B), c
    )
    result[:] = c.numpy()
changed = results[0] != results[1]
print(
    f"{changed.sum():,} of {changed.size:,} elements differ, "
    f"by at most {np.abs(results[0] - results[1]).max():.0e}"
)
assert changed.any() and np.allclose(*results, atol=1e-3)

# %% [markdown]
# ## Tuning
#
# **MetaSchedule** draws schedules from rules, measures a first round, and then lets a cost model, which learns from the
# measurements, choose the next. Sixteen trials on the same product, in two rounds:

# %%
start = time.perf_counter()
tuned = tune(matmul(N), "metaschedule", trials=16)
print(
    f"{time.perf_counter() - start:.0f} s, {len(tuned.trials)} trials; "
    f"best {tuned.best.seconds * 1e3:.3f} ms"
)
assert tuned.best.seconds < history["as written"]

# %%
from passlab.measure import seconds

a, b = torch.from_numpy(A), torch.from_numpy(B)
blas = timed({"torch.matmul": torch.matmul}, a, b, repeats=20)["torch.matmul"].min
for name, value in {
    **history,
    "MetaSchedule": tuned.best.seconds,
    "torch.matmul": blas,
}.items():
    print(f"{name:<22} {seconds(value):>10}   {'█' * max(1, round(40 * blas / value))}")

# %% [markdown]
# ## Your own step in TVM's pipeline · stretch
#
# `passlab.relax.pipelines` is small, for use beyond this course, too: `pipeline(before=…, fuse=…, schedule=…)` is TVM's
# default pipeline with passes, a fusion and a schedule of your choice plugged in. `cpu_schedule` is a rule of this
# kind: it does to every reduction roughly what you have just done by hand.


# %%
as_is, scheduled = (
    runner(big, pipeline=pipeline()),
    runner(big, pipeline=pipeline(schedule=cpu_schedule)),
)
assert np.allclose(scheduled(photo)[0].numpy(), net18(photo).numpy(), atol=1e-3)
torch.set_num_threads(1)
tvm.get_global_func("runtime.config_threadpool")(1, 1)  # one thread for TVM, too
costs = timed(
    {"TVM's default": as_is, "with cpu_schedule": scheduled, "torch, eager": net18},
    photo,
    repeats=7,
)
assert costs["with cpu_schedule"].min < costs["TVM's default"].min
costs

# %% [markdown]
# The winner depends on the size of the images and on the machine. The compiler applies one rule to all kernels, and can
# compile the same module for other machines.
#
# ### The layout decides what a vector loads
#
# `cpu_schedule` vectorizes the innermost dimension: the columns, if images are NCHW. A small image has few. In NHWC it
# is the channels. The weights need a matching order, and `OHWI`, which puts the input channels last, is the wrong
# choice: neighbours in the result need neighbours among the *output* channels, `HWIO`. (`kernels` is the first half of
# `pipeline`; all times are of one thread.)

# %%
small_net, (small_image,) = models.ZOO["convnet"].build(), (torch.randn(2, 3, 20, 36),)
small = relax_module(small_net, small_image)
spans = {}
for name, layouts in {
    "NCHW": [],
    "NHWC, OHWI": ["NHWC", "OHWI"],
    "NHWC, HWIO": ["NHWC", "HWIO"],
}.items():
    converted = (
        [passes.ConvertLayout({"relax.nn.conv2d": layouts}), passes.Normalize()]
        if layouts
        else []
    )
    lowered_model = kernels(
        before=[*to_kernels[:2], *converted], schedule=cpu_schedule
    )(small)
    run = {"target": str(host()), "repeats": 20, "threads": 1}
    spans[name] = min(
        builds.run_module(lowered_model, [(small_image,)], pipeline="none", **run).times
    )
default = min(builds.run_module(small, [(small_image,)], **run).times)
for name, value in spans.items():
    print(
        f"{name:<12} {seconds(value):>10}   "
        f"{default / value:5.1f} times as fast as TVM's default"
    )
assert spans["NHWC, HWIO"] < spans["NCHW"]

# %% [markdown]
# ## The same module for a GPU you do not have · stretch
#
# A GPU kernel needs its loops bound to threads. `dlight` has rules for that which need no search, and the compiler that
# writes CUDA source needs no GPU:

# %%
from tvm.s_tir import dlight

features = {
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}
gpu = tvm.target.Target({"kind": "cuda", "arch": "sm_80", **features}, host="llvm")
with gpu:
    steps = [
        passes.LegalizeOps(),
        passes.AnnotateTIROpPattern(),
        passes.FuseOps(),
        passes.FuseTIR(),
    ]
    bound = tvm.transform.Sequential(
        [*steps, dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())]
    )(cheap)
    library = tvm.compile(bound, gpu).mod
while library.kind != "cuda":  # the device's code is inside the host's
    (library,) = library.imports
source = library.inspect_source("cuda")
print(source[source.rindex('extern "C"') :])
assert source.count("{") >= 2
assert "blockIdx.x" in source
assert source.count("__global__") == 2

# %% [markdown]
# Six operators, one kernel, a thread for each element.
#
# ## Key takeaways
#
# - Relax names every value, carries symbolic shapes in types, and lets graphs call loops: passes see both levels.
# - Lowering is LegalizeOps → AnnotateTIROpPattern → FuseOps → FuseTIR, and you may stop, look and step in anywhere.
# - Traps are silent: `visit_call` without its underscore, layout keys without their prefix, a batch norm in training,
#   a compiler that fuses nothing unless it is told to, level 0.
# - A pattern describes calls; a check decides by the readers of their values.
# - Merged loops trade memory traffic for recomputation. Only a cost model, and then a clock, tells which weighs more.
# - A schedule changes the order of work, and at most the last bits of the result; search, prune by a model, measure.
#
# ## Further reading
#
# - "Relax: Composable Abstractions for End-to-End Dynamic Machine Learning", Ruihang Lai, Junru Shao, Siyuan Feng and
#   others, ASPLOS 2025.
# - "TensorIR: An Abstraction for Automatic Tensorized Program Optimization", Siyuan Feng, Bohan Hou, Hongyi Jin and
#   others, ASPLOS 2023.
# - "Tensor Program Optimization with Probabilistic Programs", Junru Shao, Xiyou Zhou, Siyuan Feng and others,
#   NeurIPS 2022 (MetaSchedule).
# - "Ansor: Generating High-Performance Tensor Programs for Deep Learning", Lianmin Zheng, Chengfan Jia, Minmin Sun and
#   others, OSDI 2020.
# - "TVM: An Automated End-to-End Optimizing Compiler for Deep Learning", Tianqi Chen, Thierry Moreau, Ziheng Jiang and
#   others, OSDI 2018.
#
# ## Tomorrow
#
# TVM has two levels that can call each other. MLIR lets you have as many as you like: day 9 writes rewrite patterns on
# dialects, fuses loops by composing their indexing maps, and lowers step by step until something runs.
