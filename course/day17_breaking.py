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
# # Day 17 · Breaking compilers
#
# For sixteen days you wrote passes, and the checks tried to break them. Today you break passes: first careless ones, then
# those of the compilers that you have installed.
#
# - **programs**: random graphs that run, and that passes are likely to get wrong
# - **oracles**: how to tell that a result is wrong, without calling a right one wrong
# - **shrinking**: from a graph of forty operations to one of two that fails for the same reason
# - **reports**: which failures are one fault, which promise it breaks, and what a maintainer needs
#
# In the exercises, [work/day17/breaking.ipynb](../work/day17/breaking.ipynb), you write an oracle, graphs that expose
# faulty passes, and the shrinking. The lesson takes about 75 minutes, and 15 more for what is marked stretch.

# %%
import copy
import logging
import operator
import random
import warnings
from collections import Counter
from importlib.util import find_spec

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from passlab import draw, guess, random_graph
from passlab.hunt import TARGETS, Target, drawn_graph, failure, hunt
from passlab.hunt.faults import code_of
from passlab.hunt.known import KNOWN

warnings.simplefilter("ignore")
# It would report that torchvision is not installed
logging.getLogger("torch.onnx").setLevel(logging.ERROR)
_ = torch.manual_seed(0)

# %% [markdown]
# ## A random program, run twice
#
# The **target** is the pass or compiler under test. Here is one, a common subexpression elimination in ten lines. It
# looks right, and it works on every example that its author had in mind:


# %%
def careless_cse(gm):
    """Keep one of the nodes that call a function on the same operands."""
    first = {}
    for node in list(gm.graph.nodes):
        if node.op in ("call_function", "call_method"):
            same = first.setdefault((node.target, str(node.args)), node)
            if same is not node:
                node.replace_all_uses_with(same)
                gm.graph.erase_node(node)
    gm.recompile()
    return gm


def program(body, *inputs):
    """Return the graph of a function, with its example inputs."""
    gm = fx.symbolic_trace(body)
    gm.meta["inputs"] = inputs
    return gm


x = torch.randn(2, 3)
gm = program(lambda x: torch.exp(x) + torch.exp(x), x)
print(careless_cse(copy.deepcopy(gm)).code)

# %% [markdown]
# To test it, run a program before and after the pass, on the same inputs, and compare. `random_graph(seed)` draws the
# program:


# %%
def outputs(gm, inputs):
    """Return the tensors that a program returns, each time with the same draws."""
    torch.manual_seed(0)
    with torch.no_grad():
        # not gm(…), which prints where in a graph an error was
        results = tree_leaves(gm.forward(*(x.clone() for x in inputs)))
    return [x for x in results if isinstance(x, torch.Tensor)]


def breaks(apply, gm):
    """Return how a pass breaks a program, "" if it does not."""
    before = outputs(copy.deepcopy(gm), gm.meta["inputs"])
    try:
        after = outputs(apply(copy.deepcopy(gm)), gm.meta["inputs"])
    except Exception as error:
        return f"raises {type(error).__name__}"
    if [(x.shape, x.dtype) for x in before] != [(x.shape, x.dtype) for x in after]:
        return "returns another form"
    for old, new in zip(before, after, strict=True):
        if not torch.allclose(old, new, rtol=1e-3, atol=1e-4, equal_nan=True):
            return "returns other values"
    return ""


# %%
bet = guess("On how many of 60 random programs does careless_cse fail?", ...)

# %% tags=["hide-output"]
ways = [breaks(careless_cse, random_graph(seed, 12)) for seed in range(60)]
failed = [seed for seed, way in enumerate(ways) if way]
counts = dict(Counter(filter(None, ways)))
print(f"{len(failed)} of {len(ways)} programs show it: {counts}")
bet.compare(len(failed))
assert 0 < len(failed) < len(ways)

# %% [markdown]
# A graph on which a target is wrong is a **failure**; the **fault** is the line in the target that is to blame. One
# fault has many failures. This loop of ten lines is all there is to *fuzzing*. The rest of the day improves it: better
# programs, better judgement, smaller failures.
#
# ## What fuzzing found · stretch
#
# The idea is old, and has found faults in compiler after compiler. These are the papers' own counts:
#
# | tool | target | faults | idea |
# |---|---|---|---|
# | Csmith (PLDI 2011) | C compilers | more than 325 | random C programs without undefined behaviour |
# | EMI (PLDI 2014) | GCC and LLVM | 147 | change code that does not run: the result must stay |
# | Tzer (OOPSLA 2022) | TVM | 49 | mutate low-level IR and the list of passes together |
# | NNSmith (ASPLOS 2023) | TVM, ONNX Runtime, TensorRT, PyTorch | 72 | solve constraints: each model is well typed |
# | NeuRI (FSE 2023) | PyTorch, TensorFlow | 100 | learn the constraints of operations from recorded calls |

# %% [markdown]
# ## Programs that run · stretch
#
# Draw operations and operands without a rule, and most programs never run. Only those that do can test a pass:


# %%
def naive(seed, size=8):
    """Return a program of random operations on random operands."""
    rng = random.Random(seed)
    graph = fx.Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    for _ in range(size):
        f = rng.choice(
            [torch.add, torch.matmul, torch.mul, torch.t, torch.sum, torch.exp]
        )
        count = 2 if f in (torch.add, torch.matmul, torch.mul) else 1
        values.append(graph.call_function(f, tuple(rng.choices(values, k=count))))
    graph.output(tuple(values[2:]))
    return fx.GraphModule(nn.Module(), graph)


def runs(gm, inputs):
    try:
        outputs(gm, inputs)
    except Exception:
        return False
    return True


inputs = torch.randn(2, 3), torch.randn(3, 2)
share = sum(runs(naive(seed), inputs) for seed in range(200)) / 200
typed = [random_graph(seed, 8) for seed in range(200)]
sure = sum(runs(gm, gm.meta["inputs"]) for gm in typed) / 200
print(f"{share:.0%} of the naive programs run, {sure:.0%} of random_graph's")
assert sure == 1 and share < 0.5

# %% [markdown]
# `random_graph` is *well typed by construction*: each node is run on small tensors while the graph grows, so the shape
# and type of every value are known, and only operands that fit are drawn. NNSmith asks a constraint solver instead, which
# chooses shapes without running anything.
#
# ## Programs that break passes
#
# A program that runs may still be boring. A pass is seldom wrong on a program that it does not change, and seldom on
# the one that its author had in mind. Those that break it are close by:
#
# | what a pass looks for | what is put next to it |
# |---|---|
# | two nodes that compute the same | the same with another keyword, another dtype, a write in between, a random draw |
# | a node that is not used | one that writes, draws, or is a layer in training mode |
# | x + 0, x · 1 | 0.0 with integers, −0.0, `alpha=2`, a tensor of zeros, a value that is written later |
# | a pattern, such as conv → batch norm | another reader in the middle, the layer called twice, other options |
#
# Three generators, and four careless passes. How many graphs does it take to expose each?


# %%
def careless_dce(gm):
    """Remove calls whose results are not used."""
    for node in reversed(list(gm.graph.nodes)):
        if node.op in ("call_function", "call_method") and not node.users:
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


def without(neutral, *targets):
    """Return a pass that replaces calls with a neutral second operand by the first."""

    def apply(gm):
        for node in list(gm.graph.nodes):
            if node.target in targets and node.args[1:] == (neutral,):
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
        gm.recompile()
        return gm

    return apply


def relus_by_name(gm):
    """Call a function in the place of modules that are named relu."""
    for node in gm.graph.nodes:
        if node.op == "call_module" and "relu" in node.target:
            node.op, node.target = "call_function", F.relu
    gm.recompile()
    return gm


PASSES = {
    "cse": careless_cse,
    "dce": careless_dce,
    "x + 0 = x": without(0, operator.add, torch.add),
    "relus by name": relus_by_name,
}
GENERATORS = {
    "arithmetic alone": lambda seed: random_graph(seed, 12, only=["pointwise"]),
    "random_graph": lambda seed: random_graph(seed, 12),
    "what passes look for": drawn_graph,
}

# %%
GRAPHS = 100
for name, draw_graph in GENERATORS.items():
    graphs, exposed, curve = [draw_graph(seed) for seed in range(GRAPHS)], {}, []
    for number, gm in enumerate(graphs, 1):
        for title, apply in PASSES.items():
            if title not in exposed and breaks(apply, gm):
                exposed[title] = number
        curve.append(len(exposed))
    plt.step(range(1, GRAPHS + 1), curve, where="post", label=name)
    print(f"{name}: {exposed}")
plt.title("Careless passes that are exposed")
plt.xlabel("graphs tried")
plt.ylabel(f"passes exposed, of {len(PASSES)}")
plt.yticks(range(len(PASSES) + 1))
plt.legend()
plt.show()
assert curve[-1] == len(PASSES)

# %% [markdown]
# Arithmetic alone exposes none. The last generator, `drawn_graph`, has a list of forms, each a pattern with one thing
# out of the ordinary. A graph takes the next six, so that a hundred graphs have them all. Every fourth graph is a
# random one with features that are switched on and off at random: in a graph that has everything, one fault can hide
# another (*swarm testing*).
#
# ## Oracles
#
# Something must say that a result is wrong: the **oracle**. There are four kinds.
#
# | oracle | asks | sees | is blind to |
# |---|---|---|---|
# | crash | does it raise? | faults that raise | wrong numbers |
# | differential | does another compiler, order, dtype or device agree? | wrong numbers | faults that both have |
# | metamorphic | does a law of the program hold? | wrong numbers, with one compiler | what the law does not touch |
# | golden | does it return what is written down? | what was written down | everything else |
#
# `breaks` asks the first two questions, but looks only at what is returned. This pass returns what it should, and
# breaks its caller:


# %%
def in_place(gm):
    """Add in place: saves memory."""
    for node in gm.graph.find_nodes(op="call_function", target=torch.add):
        node.target, node.op = "add_", "call_method"
    gm.recompile()
    return gm


gm = program(lambda x: torch.add(x, 1), x)
after, argument = in_place(copy.deepcopy(gm)), x.clone()
equal = torch.equal(after(argument), gm(x))
print(f"breaks says {breaks(in_place, gm)!r}; the results are equal: {equal}")
print(f"the caller's tensor was {x[0].tolist()}")
print(f"and is now             {argument[0].tolist()}")
assert breaks(in_place, gm) == "" and not torch.equal(argument, x)

# %% [markdown]
# The **outcome** of a program is what it returns *and* what its inputs hold afterwards. To look at it, run on copies.
# Inputs may share memory, and copies must share it, too: copy them together, in one `deepcopy`, and the program with
# them.

# %%
row = x[0]
separate = copy.deepcopy(x), copy.deepcopy(row)
joint = copy.deepcopy((x, row))
for name, (a, b) in {"apart": separate, "together": joint}.items():
    b.zero_()
    reached = bool((a[0] == 0).all())
    print(f"copied {name}: a write to the row reaches the matrix: {reached}")
assert bool((joint[0][0] == 0).all()) and not bool((separate[0][0] == 0).all())

# %% [markdown]
# Some programs cannot be compared at all: those that draw random numbers. A correct compiler may draw in another order.
# Whether a program draws is easy to see: the state of torch's generator moves.


# %%
def draws(gm, inputs):
    state = torch.get_rng_state()
    gm(*copy.deepcopy(inputs))
    return not torch.equal(state, torch.get_rng_state())


noisy = program(lambda x: x + torch.rand_like(x), x)
print(draws(noisy, (x,)), draws(gm, (x,)))
assert draws(noisy, (x,)) and not draws(gm, (x,))

# %% [markdown]
# ## How different is different?
#
# A fuzzer that cries wolf is soon switched off. Right passes change results, too: by rounding. Here are two programs
# that are equal for real numbers, and a fault that is smaller than their difference:


# %%
def before(x, y):
    return (x * 1e6 + y) - x * 1e6


def reordered(x, y):
    return y + (x * 1e6 - x * 1e6)


def faulty(x, y):
    return y * 1.001


wide = tuple(torch.rand(4, 4, dtype=torch.float64) + 1 for _ in "xy")
narrow = tuple(x.float() for x in wide)


def relative(f, *inputs):
    old, new = before(*inputs), f(*inputs)
    return float((old - new).abs().max() / old.abs().max())


for name, inputs in {"float32": narrow, "float64": wide}.items():
    right, wrong = relative(reordered, *inputs), relative(faulty, *inputs)
    print(f"{name}: the right pass is off by {right:.0e}, the fault by {wrong:.0e}")
assert relative(reordered, *narrow) > wrong > 1e6 * right

# %% [markdown]
# In float32 no tolerance tells the two apart: one that lets the right pass through lets the fault through, too. In
# float64 rounding is 2²⁹ times smaller, and a fault stays as large as it was. So run the same programs once more with
# all floats widened, inputs and parameters, and compare *there*. Forms (shapes and dtypes) are compared before that, on
# the original programs.
#
# Differences are measured relative to the largest number of the tensor, not element by element: sums that cancel leave tiny
# numbers whose every digit is rounding.
#
# Three kinds of numbers need a rule of their own:

# %%
nan, zero = torch.tensor([float("nan")]), torch.tensor([0.0])
alike = torch.allclose(nan, nan, equal_nan=True)
print(f"NaN == NaN: {bool(nan == nan)}; as an oracle compares: {alike}")
inverse = bool(1 / zero == 1 / -zero)
print(f"-0.0 == 0.0: {bool(zero == -zero)}; 1 / -0.0 == 1 / 0.0: {inverse}")
for dtype in (torch.float32, torch.float64):
    whole = torch.arange(1, 100, dtype=dtype)
    jumped = int((torch.floor(whole * (1 / whole)) == 0).sum())
    print(
        f"{dtype}: floor(x · (1 / x)) is 0 for {jumped} of {len(whole)} whole numbers"
    )
assert jumped > 0 and alike

# %% [markdown]
# The last line shows a *jump*: where a function jumps, the smallest rounding becomes a large difference, in float64 as
# well. Inputs that were drawn at random are seldom at a jump; inputs that are whole numbers often are.
#
# An oracle has three answers, then: **same**, **different**, and **cannot tell**. A *false alarm* calls a right pass
# wrong, a *miss* a wrong pass right; "cannot tell" is neither. Alarms of our first oracle, on right passes of day 3 and
# on the careless ones:

# %%
from passlab.fx.stages import STAGES

graphs = [drawn_graph(seed) for seed in range(40)]
right = {name: STAGES[name] for name in ("cse", "dce", "simplify")}
alarms = {
    name: sum(bool(breaks(apply, gm)) for gm in graphs) for name, apply in right.items()
}
hits = {
    name: sum(bool(breaks(apply, gm)) for gm in graphs)
    for name, apply in PASSES.items()
}
print(f"alarms on right passes, of {len(graphs)} graphs: {alarms}")
print(f"alarms on careless ones: {hits}")

# %% [markdown]
# ## A law as an oracle · stretch
#
# Suppose that there is only one compiler, and no eager mode to compare it with. Then compare the compiler with itself.
# This is *metamorphic* testing. tanh is odd, so tanh(x) = −tanh(−x), and a compiler that gets different results for the
# two sides is wrong on at least one of them:


# %%
def one_compiler(gm):
    """Compile; its tanh is wrong below -1."""

    def tanh(x):
        return torch.where(x < -1, torch.tanh(x) * 0.9, torch.tanh(x))

    for node in gm.graph.find_nodes(op="call_function", target=torch.tanh):
        node.target = tanh
    gm.recompile()
    return gm


x = torch.linspace(-2, 2, 5)
first = one_compiler(fx.symbolic_trace(lambda x: torch.tanh(x)))(x)
variants = {
    "-tanh(-x)": lambda x: -torch.tanh(-x),
    "tanh(2x / 2)": lambda x: torch.tanh(2 * x / 2),
    "tanh(flip(x)), flipped": lambda x: torch.tanh(x.flip(0)).flip(0),
}
for name, variant in variants.items():
    again = one_compiler(fx.symbolic_trace(variant))(x)
    print(
        f"{name}: {'the same' if torch.allclose(first, again) else 'differs: a fault'}"
    )

# %% [markdown]
# Only the first law evaluates tanh at other numbers, so only it sees this fault. A good law changes *what* the compiler
# computes: the sign, the order of operands or rows, how often a value is read, which operations are neighbours. EMI,
# above, is the same idea: change what must not matter.
#
# ## Shrinking
#
# A failure of forty operations is a riddle. *Delta debugging* makes it smaller: try an edit, keep it if the failure is
# still there, and go on until no edit is kept. In a list, the edits leave out elements; in a graph there are better
# ones:
#
# - return an **inner node**, and nothing else: what does not lead to it goes away
# - return the **operands** of what is returned, without the last operation
# - **bypass** a node: its reader reads one of its operands
# - **cut off**: a node becomes an input, with the value that it had, and what was above it goes away


# %%
class Recorder(fx.Interpreter):
    """Run a graph; `values` holds what each node computed."""

    def __init__(self, gm):
        super().__init__(gm)
        self.values = {}

    def run_node(self, n):
        self.values[n.name] = super().run_node(n)
        return self.values[n.name]


def cleaned(gm, inputs):
    """Remove what is not used, inputs too."""
    gm.graph.eliminate_dead_code()
    used = []
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if node.users:
            used.append(value)
        else:
            gm.graph.erase_node(node)
    gm.recompile()
    gm.meta["inputs"] = tuple(used)
    return gm


def edits(gm):
    """Yield smaller graphs."""
    recorder = Recorder(copy.deepcopy(gm))
    recorder.run(*copy.deepcopy(gm.meta["inputs"]))
    names = [node.name for node in gm.graph.nodes if node.op.startswith("call_")]
    for way in ("inner", "operands", "cut off", "bypass"):
        for name in names:
            small = copy.deepcopy(gm)
            node = next(n for n in small.graph.nodes if n.name == name)
            inputs = small.meta["inputs"] = copy.deepcopy(gm.meta["inputs"])
            output = small.graph.output_node()
            if way == "inner":
                output.args = ((node,),)
            elif way == "operands":
                returned = output.all_input_nodes
                if node not in returned:
                    continue
                rest = [n for n in returned if n is not node]
                output.args = (tuple(dict.fromkeys((*rest, *node.all_input_nodes))),)
            elif way == "bypass":
                operands = node.all_input_nodes
                if not operands:
                    continue
                node.replace_all_uses_with(operands[0])
            elif isinstance(recorder.values[name], torch.Tensor):
                *_, last = small.graph.find_nodes(op="placeholder")
                with small.graph.inserting_after(last):
                    new = small.graph.placeholder(f"{name}_cut")
                node.replace_all_uses_with(new)
                small.graph.erase_node(node)
                inputs = (*inputs, recorder.values[name].clone())
            else:
                continue
            yield cleaned(small, inputs)


def size(gm):
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


def smallest(gm, fails):
    """Make edits as long as the graph still fails."""
    again = True
    while again:
        again = False
        for small in edits(gm):
            try:
                better = size(small) < size(gm) and fails(small)
            except Exception:  # the edit made a graph that does not run
                better = False
            if better:
                gm, again = small, True
                break
    return gm


# %%
def merged_wrongly(gm):
    return breaks(careless_cse, gm) == "returns other values"


seed = next(s for s in range(100) if merged_wrongly(random_graph(s, 30, random=False)))
large = random_graph(seed, 30, random=False)
bet = guess(f"{size(large)} operations fail. How many are left?", ...)

# %% tags=["hide-output"]
small = smallest(large, merged_wrongly)
print(f"{size(large)} operations → {size(small)}")
print(small.code)
bet.compare(size(small))
assert merged_wrongly(small) and size(small) <= 6
draw(small, title="What is left")

# %% [markdown]
# Each step asks for *the same reason*: `merged_wrongly` does not accept a graph on which the pass raises. Without that
# the search slips to another fault, and the first one is forgotten. This compiler has a second fault, on small graphs:


# %%
def two_faults(gm):
    if size(gm) == 1:
        raise IndexError("a group without a second operation")
    return careless_cse(gm)


def shrunk_for(seed):
    gm = random_graph(seed, 20, only=["pointwise", "mutation"])
    why = breaks(two_faults, gm)
    if not why:
        return None
    same = smallest(gm, lambda g: breaks(two_faults, g) == why)
    other = smallest(gm, lambda g: breaks(two_faults, g) != "")
    return why, breaks(two_faults, same), breaks(two_faults, other)


rows = [row for row in map(shrunk_for, range(12)) if row]
slipped = sum(first != last for first, _, last in rows)
print(f"{len(rows)} failures; if any failure will do, {slipped} end at another fault")
assert all(first == same for first, same, _ in rows)

# %% [markdown]
# ## Two faults or one? · stretch
#
# A night of fuzzing leaves thousands of failures of a few faults. What they share after shrinking is their
# **signature**: for an error, the message without its numbers; for other failures, the first of these that the small
# graph has: effects, such as writes; keywords; calls that occur twice, with the types of their numbers; and otherwise
# the names of its operations. `hunt` does all of this: it draws, compares, shrinks, and puts failures of one signature
# together.

# %%
target = Target("careless", "The same function.", lambda gm, inputs: careless_cse(gm))
for fault in hunt(target, graphs=60, size=10):
    print(f"{len(fault.seeds)} × {fault.kind:7}", ", ".join(fault.operations))

# %% [markdown]
# A signature can be wrong in both ways. It can split a fault: here one cause, keywords that are not compared, has a
# class for each set of keywords. And it can merge two: two faults in one kernel would share a class. Where you can look
# inside, compare *where the first wrong value was computed*: that is exercise 5.
#
# ## Real compilers
#
# Now for those that are installed. A **promise** comes first: a fault breaks what a compiler says it does, not what we
# would like it to do. `TARGETS` has both:

# %%
for name in ("cse", "dce", "const-fold"):
    print(f"{name}: {TARGETS[name].promise}\n")

# %% [markdown]
# `failure(TARGETS[name], gm)` compiles a graph with eager as the second opinion. Programs of one or two lines:


# %%
class Noise(nn.Module):
    """Adds noise to a weight."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x):
        return x + F.dropout(self.w, 0.5, training=True)


x, y, n = torch.randn(2, 3), torch.randn(2, 3), torch.tensor([1, 2, 3])
noise = fx.symbolic_trace(Noise())
noise.meta["inputs"] = (x,)
powers = program(lambda n: (torch.pow(n, 2), torch.pow(n, 2.0)), n)
written = program(lambda x: (x.view(-1).add_(1), x * 2)[1], x)
scaled = program(lambda x, y: torch.sub(x, y, alpha=2), x, y)


def verdict(name, gm):
    if TARGETS[name].package == "apache-tvm" and not find_spec("tvm"):
        return "TVM is not installed"
    if TARGETS[name].package == "iree-base-compiler" and not find_spec("iree"):
        return "IREE is not installed"
    kind = failure(TARGETS[name], copy.deepcopy(gm))
    return f"{kind[0]}: {kind[1]}" if kind else "right"


for name, gm in {"cse": powers, "dce": written, "const-fold": noise}.items():
    print(f"{name}: {verdict(name, gm)}")

# %% [markdown]
# - **cse**: torch's CSEPass compares the operands of calls with Python's `==`, and 2 == 2.0. The program only computes,
#   so this breaks a promise: a fault.
# - **dce**: `eliminate_dead_code` drops the write through a view. But its docstring asks for graphs of functional
#   operations, so no promise is broken. A program that calls it on other graphs has the fault itself.
# - **const-fold** draws the noise once, when it folds, and each run has the same. Its docstring states no condition: a
#   fault.
#
# The same subtraction for seven targets, each with a second opinion from eager:

# %%
for name in [
    "operators",
    "jit-trace",
    "inductor",
    "onnx-traced",
    "relax",
    "relax-fx",
    "iree",
]:
    print(f"{name:12} {verdict(name, scaled)}")

# %% [markdown]
# x − 2y becomes x − y where `alpha` is dropped: by torch's own normalizer and by both importers of Relax. Inductor, the
# ONNX exporter and IREE are right here; they have other faults:

# %%
for name in ["inductor", "onnx", "iree"]:
    fault = next(fault for fault in KNOWN if name in fault.targets)
    gm = fault.graph()
    print(f"{name}: {fault.title}\n{code_of(gm)}\n→ {verdict(name, gm)}\n")

# %% [markdown]
# A search over random programs, one line for each new fault:

# %%
for name, graphs in {"cse": 60, "const-fold": 20, "onnx-traced": 30}.items():
    faults = hunt(name, graphs=graphs, size=8)
    print(f"{name}: signatures in {graphs} graphs: {len(faults)}")
    for fault in faults[:3]:
        print(
            f"    {fault.kind} with {', '.join(fault.operations)}: {fault.message[:70]}"
        )

# %% [markdown]
# A compiler on which nothing was found has not been proved right. Say what was tried: how many graphs, of which kind,
# of which version.
#
# ## A report
#
# What a maintainer needs: the promise, the smallest program, what came out and what should have, versions, and a
# *second oracle*: another program that agrees, at best one that shares no code with the first. Here it is the same graph in
# float64, or `torch.export`:

# %%
faults = hunt("cse", graphs=60, size=8)
print(faults[0].report() if faults else "Nothing found.")

# %% [markdown]
# Before you send it: is it known already? Does the newest version still do it? Could the program occur in practice? In a
# terminal, `python -m passlab.hunt cse --minutes 5` searches for longer; [docs/faults.md](../docs/faults.md) lists what
# was found in the pinned versions.
#
# ## Key takeaways
#
# - Programs must be well typed to run, and biased towards what passes look for to break anything.
# - An outcome is what is returned and what is written. Forms are compared as they are, numbers in float64.
# - Programs that draw random numbers cannot be compared; NaN equals NaN; a false alarm costs more than a miss.
# - A law makes one compiler its own second opinion.
# - Shrink for the same reason. A fault is not a failure, and a broken wish is not a broken promise.
#
# ## Further reading
#
# - "NNSmith: Generating Diverse and Valid Test Cases for Deep Learning Compilers", Jiawei Liu et al., ASPLOS 2023.
# - "Finding and Understanding Bugs in C Compilers", Xuejun Yang et al., PLDI 2011.
# - "Compiler Validation via Equivalence Modulo Inputs", Vu Le et al., PLDI 2014.
# - "Coverage-Guided Tensor Compiler Fuzzing with Joint IR-Pass Mutation", Jiawei Liu et al., OOPSLA 2022.
# - "NeuRI: Diversifying DNN Generation via Inductive Rule Inference", Jiawei Liu et al., ESEC/FSE 2023.
# - "Simplifying and Isolating Failure-Inducing Input", Andreas Zeller and Ralf Hildebrandt, TSE 2002.
# - "Swarm Testing", Alex Groce et al., ISSTA 2012.
