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
# # Day 3 · Graph-level optimizations
#
# The four classic optimizations fit in one line each:
#
# - **constant folding**: compute now what does not depend on the input,
# - **dead code elimination**: drop unused nodes,
# - **common subexpression elimination**: compute equal things once,
# - **algebraic simplification**: replace an expression by an equal, cheaper one.
#
# Each of these lines has a word that is harder than it looks: *depend*, *unused*, *equal*, *equal* again. Today you see
# each optimization work, and then fail, mostly in code that ships. In the exercises you write versions that do not:
# [work/day03/optimizations.ipynb](../work/day03/optimizations.ipynb). The lesson takes about 70 minutes, and 10 more
# for what is marked stretch.

# %%
import itertools
import math
import operator
import warnings

import networkx
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.fx.experimental.const_fold import split_const_subgraphs
from torch.fx.passes.dialect.common.cse_pass import CSEPass

from passlab import cost, diff, draw, equivalent, explore, guess, timed, trace

# torch.export warns about its own code.
warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")
# const_fold does so when it splits a graph.
warnings.filterwarnings("ignore", message="Attempted to insert a get_attr Node")

# %% [markdown]
# ## Constant folding
#
# Many tutorials fold `1 + 2`. See whether a graph still has it:


# %%
class Scaled(nn.Module):
    """Multiplies by a transposed weight over the square root of its width."""

    def __init__(self, width=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width), requires_grad=False)
        self.register_buffer("width", torch.tensor(float(width)))

    def forward(self, x):
        return (x + (1 + 2)) @ (self.weight.t() * (1 / torch.sqrt(self.width)))


model = Scaled()
scaled = trace(model, torch.randn(2, 8))
draw(scaled)

# %% [markdown]
# There is no `1 + 2`: Python computed it while the model was traced, and the graph has a 3. Even `1 /
# torch.sqrt(self.width)` is gone. A buffer read through `self` is an ordinary tensor until it is combined with a traced
# one, so Python computed that too, and the result became a `get_attr` node. A parameter becomes a node as soon as it is
# read, so only expressions over parameters remain to be folded.
#
# torch ships a pass that moves such parts into a graph of their own, and runs that once:

# %%
folded = split_const_subgraphs(trace(model, torch.randn(2, 8)))
folded.run_folding()
folded = fx.GraphModule(folded, folded.graph)
print(cost(scaled), cost(folded, torch.randn(2, 8)), sep="\n")
assert equivalent(scaled, folded)
diff(scaled, folded, torch.randn(2, 8), title="Constant folding")

# %% [markdown]
# A folder must avoid two mistakes. The first is to fold every expression that *does not depend on the input*: random
# draws are not constants. torch's pass has a list of functions that draw; dropout is not on it.


# %%
class NoisyWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x):
        return x + F.dropout(self.weight, 0.5, training=True)


x = torch.zeros(8)
frozen = split_const_subgraphs(trace(NoisyWeight(), x))
frozen.run_folding()
alive = trace(NoisyWeight(), x)
print(
    "before: two calls agree?",
    torch.equal(alive(x), alive(x)),
    " folded:",
    torch.equal(frozen(x), frozen(x)),
)
assert torch.equal(frozen(x), frozen(x)) and not torch.equal(alive(x), alive(x))

# %% [markdown]
# The second is to fold an expression whose value is huge. The next one is a single number, expanded.


# %%
class Stretched(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x):
        return x + self.one.expand(4096, 4096).exp()


def stored(gm):
    """Bytes of all parameters and buffers."""
    return sum(t.numel() * t.element_size() for t in gm.state_dict().values())


# %%
bet = guess(
    "How many times as many bytes of weights does the folded program store?", ...
)

# %% tags=["hide-output"]
x = torch.zeros(1)
stretched = trace(Stretched(), x)
huge = split_const_subgraphs(trace(Stretched(), x))
huge.run_folding()
folded = fx.GraphModule(huge, huge.graph)
small, large = stored(stretched), stored(folded)
print(
    f"weights before: {small:,} bytes; folded: {large:,} bytes, "
    f"{large // small:,} times"
)
bet.compare(large // small)

# %% [markdown]
# All that is stored to save one cheap kernel. A folder needs a size limit.
#
# ## Dead code elimination
#
# Walk backwards from the output and mark the nodes that it needs; the others are dead. That is correct for a pure
# graph, in which a node only computes its value. This one is not pure:


# %%
class InPlace(nn.Module):
    def forward(self, x):
        y = x * 2
        y.add_(1)
        return y


def eliminated(model, *inputs):
    gm = trace(model, *inputs)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


x = torch.randn(3)
counted = trace(InPlace(), x)
print("before:", counted(x))
print("after: ", eliminated(InPlace(), x)(x))
assert not torch.equal(counted(x), eliminated(InPlace(), x)(x))

# %% [markdown]
# The *result* of `y.add_(1)` is unused: it is called for what it does to `y`. torch's own `eliminate_dead_code`, at
# this level of the graph, removes it, and the program then computes something else.

# %%
diff(
    counted, eliminated(InPlace(), x), title="Dead code elimination takes away too much"
)

# %% [markdown]
# When `torch.export` lowers a graph to ATen operators, it *functionalizes* it: it rewrites mutation into pure
# operations, and a mutated input becomes an extra output. After that, marking is safe. Before that, a pass has to know
# which operations have **effects**: writing to memory, drawing random numbers, stopping the program.

# %%
exported = torch.export.export(InPlace(), (x,)).run_decompositions()
draw(exported.graph_module, title="The same program, functionalized")

# %%
from passlab.fx.effects import effects


class Effects(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        y.add_(1)
        noise = torch.rand_like(x)
        return F.dropout(y, 0.5, True) + torch.relu(noise)


for node in trace(Effects(), x).graph.nodes:
    print(f"{node.name:12} {', '.join(sorted(effects(node))) or 'pure'}")

# %% [markdown]
# Drawing random numbers is an effect even if the numbers are not used: it advances the generator, and changes every
# later draw.
#
# ## Common subexpression elimination
#
# Two nodes that apply the same operation to the same operands compute the same value. So give each node a key made of
# operation and operands, and keep the first node of each key. In the order of the list, operands have been merged
# before their users are examined, so one pass merges equal *trees*.


# %%
class Repeats(nn.Module):
    def forward(self, x):
        return torch.exp(x + 1) * torch.exp(x + 1) + torch.sigmoid(x + 1)


repeats = trace(Repeats(), x)
merged = CSEPass()(trace(Repeats(), x)).graph_module
print(cost(repeats, x), cost(merged, x), sep="\n")
diff(repeats, merged, title="Common subexpression elimination")

# %% [markdown]
# The next program draws twice and subtracts. Guess how torch's pass changes it, then see how much the result varies.


# %%
class Noise(nn.Module):
    def forward(self, x):
        return torch.rand_like(x) - torch.rand_like(x)


x = torch.zeros(10_000)
noise = trace(Noise(), x)
silent = CSEPass()(trace(Noise(), x)).graph_module
print(f"standard deviation before {noise(x).std():.3f}, after {silent(x).std():.3f}")
assert silent(x).std() == 0 and abs(noise(x).std() - math.sqrt(1 / 6)) < 0.02
diff(noise, silent, title="Two draws became one, and the noise is gone")

# %% [markdown]
# The operation and the operands are equal, but the values are not. The same pass merges two calls of one `nn.Dropout`:


# %%
class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout()

    def forward(self, x):
        return self.drop(x) - self.drop(x)


merged = CSEPass()(trace(Dropped(), torch.ones(1000))).graph_module
print("largest difference of the two:", merged(torch.ones(1000)).abs().max().item())
assert merged(torch.ones(1000)).abs().max() == 0
assert Dropped()(torch.ones(1000)).abs().max() > 0

# %% [markdown]
# It also misses equal nodes: its key has the arguments *as written*, so these four nodes are not recognized as two.


# %%
class AsWritten(nn.Module):
    def forward(self, x):
        rows = torch.sum(x, dim=0, keepdim=True) + torch.sum(x, keepdim=True, dim=0)
        return rows + (x * 3 + 3 * x)


written = trace(AsWritten(), torch.randn(2, 3))
merged = CSEPass()(trace(AsWritten(), torch.randn(2, 3))).graph_module
print(len(written.graph.nodes), "nodes before,", len(merged.graph.nodes), "after")
assert len(written.graph.nodes) == len(merged.graph.nodes)

# %% [markdown]
# ## Algebraic simplification
#
# We all learned these laws at school. Real numbers obey them; floating-point numbers obey some. The cell below tries
# each law on each kind of input; a dot means that both sides agree.

# %%
LAWS = {
    "x + 0.0 = x": (lambda x: x + 0.0, lambda x: x),
    "x * 1.0 = x": (lambda x: x * 1.0, lambda x: x),
    "x * 0 = zeros": (lambda x: x * 0, torch.zeros_like),
    "x / x = ones": (lambda x: x / x, torch.ones_like),
    "x - x = zeros": (lambda x: x - x, torch.zeros_like),
    "exp(log(x)) = x": (lambda x: x.log().exp(), lambda x: x),
    "-(-x) = x": (lambda x: x.neg().neg(), lambda x: x),
    "relu(relu(x)) = relu(x)": (lambda x: x.relu().relu(), torch.relu),
    "x / 4 = x * 0.25": (lambda x: x / 4, lambda x: x * 0.25),
    "x / 3 = x * (1 / 3)": (lambda x: x / 3, lambda x: x * (1 / 3)),
    "x ** 2 = x * x": (lambda x: x**2, lambda x: x * x),
}
INPUTS = {
    "usual": torch.rand(1000) + 0.5,
    "negative": -torch.rand(1000) - 0.5,
    "zero": torch.zeros(3),
    "minus 0": torch.tensor([-0.0]),
    "inf": torch.tensor([math.inf, -math.inf]),
    "NaN": torch.tensor([math.nan]),
    "integer": torch.tensor([1, 2, 5]),
}


# %%
def agree(left: torch.Tensor, right: torch.Tensor) -> bool:
    """The same dtype and the same numbers to the last bit, signs of zero included.

    One NaN is as good as another.
    """
    if left.dtype != right.dtype or not torch.equal(left.isnan(), right.isnan()):
        return False
    same = (left == right) & (left.signbit() == right.signbit())
    return bool((same | left.isnan()).all())


# %%
bet = guess("How many of the 11 laws hold for every kind of input?", ...)

# %% tags=["hide-output"]
print(" " * 25 + "".join(f"{name:>9}" for name in INPUTS))
table = {}
for law, (left, right) in LAWS.items():
    table[law] = [agree(left(x), right(x)) for x in INPUTS.values()]
    print(f"{law:25}" + "".join(f"{'.' if ok else 'BREAKS':>9}" for ok in table[law]))
bet.compare(sum(map(all, table.values())))

# %% [markdown]
# Read it row by row. Most laws hold on the usual numbers, which is why random tests like them. Even `x + 0.0` changes
# something: it turns minus zero into zero, and integers into floats. A compiler may apply the rows without a break
# unconditionally. (`equivalent` would let some of the others pass: it allows for rounding, and treats −0 as equal to 0.
# Exercise 4 is stricter: −0 must stay −0.)

# %%
free = [law for law, row in table.items() if all(row)]
print("hold everywhere:", *free, sep="\n  ")
assert "x * 0 = zeros" not in free and "relu(relu(x)) = relu(x)" in free

# %% [markdown]
# The others need a **precondition**: a fact about the operand that the compiler must prove before the rewrite. "x is
# finite" for `x * 0`; "x has a floating dtype" for `x * 1.0`. For `exp(log(x))` "x is positive" would be one if numbers
# were exact; as they are rounded, no useful condition makes that law hold to the last bit. A simplifier is therefore a
# table of pairs (law, precondition), and a small engine that knows no law itself. That is exercise 4.
#
# One more precondition is easily overlooked: `y` may be a tensor of zeros and still change the shape.

# %%
x, zeros = torch.randn(3), torch.zeros(4, 1)
print("x has shape", tuple(x.shape), "and x + zeros has", tuple((x + zeros).shape))
assert (x + zeros).shape != x.shape

# %% [markdown]
# ### Strength reduction
#
# Some laws do not save an operation but replace it by a cheaper one: a power by a product, a division by a
# multiplication. For a divisor of 4 both are exact (the table shows it); for 3 they differ in the last bit, for many
# values:

# %%
x = torch.rand(1_000_000)
share = (x / 3 != x * (1 / 3)).float().mean()
print(f"x / 3 and x * (1 / 3) differ for {share:.0%} of all values")

# %% [markdown]
# Torch already computes `x ** 3` by products, in one kernel, so writing two products gains nothing; a general power
# costs far more:

# %%
timed(
    {
        "x ** 3": lambda x: x**3,
        "x * x * x": lambda x: x * x * x,
        "x ** 2.5": lambda x: x**2.5,
    },
    x,
)

# %% [markdown]
# ## Matching a pattern on a DAG
#
# Larger laws have larger left-hand sides. Here is GELU, the activation of BERT and of many models since:
#
# $$\mathrm{gelu}(x) = \tfrac12\, x \left(1 + \mathrm{erf}\left(x/\sqrt2\right)\right)$$
#
# Sums and products commute, so the same formula is written in many ways. How many?


# %%
def commute(node):
    """All ways to write an expression whose sums and products may be swapped.

    Leaves are strings.
    """
    if isinstance(node, str):
        return [node]
    op, *operands = node
    ways = []
    for written in itertools.product(*(commute(o) for o in operands)):
        ways.append((op, *written))
        if op in "+*" and written[0] != written[1]:
            ways.append((op, *reversed(written)))
    return ways


gelu = ("*", ("*", "0.5", "x"), ("+", "1", ("erf", ("/", "x", "sqrt2"))))
print(
    len(commute(gelu)), "spellings with this grouping, one of them:", commute(gelu)[5]
)
assert len(commute(gelu)) == 2**3

# %% [markdown]
# There are eight, for one of several groupings: too many to list. There are two remedies: try both orders at
# every commutative node while matching (a small search), or bring every expression into one **canonical order** first,
# so that one spelling is left. The matcher below does the former and returns the node of each name. A name that occurs
# twice must match the same node both times: that makes it a pattern on a DAG rather than on a tree.

# %%
COMMUTES = {operator.add, operator.mul, torch.add, torch.mul}


def match(pattern, value, bound):
    """All bindings (name → node) under which `value` is an instance of `pattern`.

    In a pattern, a string is a name.
    """
    if isinstance(pattern, str):
        if bound.get(pattern, value) is value:
            yield bound | {pattern: value}
    elif isinstance(pattern, tuple):
        if (
            isinstance(value, fx.Node)
            and value.target is pattern[0]
            and len(value.args) == len(pattern) - 1
        ):
            orders = (
                [value.args, value.args[::-1]]
                if value.target in COMMUTES
                else [value.args]
            )
            for operands in orders:
                yield from match_all(pattern[1:], operands, bound)
    elif value == pattern:
        yield bound


def match_all(patterns, values, bound):
    if not patterns:
        yield bound
        return
    for binding in match(patterns[0], values[0], bound):
        yield from match_all(patterns[1:], values[1:], binding)


# %% [markdown]
# Try it on an identity that day 4 needs, `a·b + a·c = a·(b + c)`, written in three ways and once wrongly:


# %%
class Distributes(nn.Module):
    def forward(self, a, b, c):
        return a * b + a * c, b * a + a * c, a * b + c * a, a * b + b * c, a * b + c * c


pattern = (operator.add, (operator.mul, "a", "b"), (operator.mul, "a", "c"))
gm = trace(Distributes(), *torch.randn(3, 4).unbind())
hits = {}
for node in gm.graph.nodes:
    for binding in match(pattern, node, {}):
        hits.setdefault(node.name, []).append({k: v.name for k, v in binding.items()})
for name, bindings in hits.items():
    print(name, bindings[0])
assert list(hits) == ["add", "add_1", "add_2", "add_3"]

# %% [markdown]
# The fourth matches too, correctly: in `a * b + b * c` the shared factor is `b`. Only the last one shares nothing.

# %%
draw(gm, title="Four sums of products share a factor", mark=tuple(hits))

# %% [markdown]
# ## Formulas in normal form · stretch
#
# The other remedy, one form for all spellings, can do more than order operands: it can expand products. Read a formula
# as a **polynomial** in some unknowns, a table from powers to coefficients. A sum adds tables, a product multiplies
# each term of one with each term of the other. A part that is not a polynomial, such as erf(x), is another unknown.


# %%
def polynomial(node, *unknowns):
    """A formula of + and * as {powers of the unknowns: coefficient}."""
    if not isinstance(node, fx.Node):
        return {(0,) * len(unknowns): node}
    if node in unknowns:
        return {tuple(int(node is unknown) for unknown in unknowns): 1}
    p, q = (polynomial(operand, *unknowns) for operand in node.args)
    if node.target is operator.add:
        return {powers: p.get(powers, 0) + q.get(powers, 0) for powers in p | q}
    product = {}
    for (m, a), (n, b) in itertools.product(p.items(), q.items()):
        powers = tuple(map(operator.add, m, n))
        product[powers] = product.get(powers, 0) + a * b
    return product


# %%
class TwoWays(nn.Module):
    def forward(self, x):
        gate = torch.erf(x)
        return 0.5 * x * (1 + gate), gate * x * 0.5 + x * 0.5


x, gate, *_, output = trace(TwoWays(), torch.randn(3)).graph.nodes
tables = [polynomial(result, x, gate) for result in output.args[0]]
print(*tables, sep="\n")
assert tables[0] == tables[1] == {(1, 0): 0.5, (1, 1): 0.5}

# %% [markdown]
# Both formulas are ½·x + ½·x·gate. Coefficients are rounded, so compare them with a tolerance. Exercise 6 needs two
# such tables: one for the argument of erf, and one for the formula around it.
#
# ## Layout
#
# The four axes of an image tensor are named N, C, H, W, in this order. In memory their order may differ: channels last
# (NHWC) keeps all channels of a pixel together, and convolution kernels often prefer it. The shape stays the same; only
# the **strides** change:

# %%
image = torch.randn(4, 64, 56, 56)
print("contiguous   ", image.stride())
print("channels last", image.to(memory_format=torch.channels_last).stride())

# %% [markdown]
# A conversion moves every byte. Compare three versions of the same stack of convolutions: one never converts, one
# converts before and after every convolution, and one converts only at the borders.

# %%
torch.manual_seed(0)
layers = (
    nn.Sequential(*[nn.Conv2d(64, 64, k, padding=k // 2) for k in (1, 3, 1, 1)])
    .eval()
    .requires_grad_(False)
)
last = (
    nn.Sequential(*[nn.Conv2d(64, 64, k, padding=k // 2) for k in (1, 3, 1, 1)])
    .eval()
    .requires_grad_(False)
)
last.load_state_dict(layers.state_dict())
last.to(memory_format=torch.channels_last)


def wrapped(x):
    for layer in last:
        x = layer(x.to(memory_format=torch.channels_last)).contiguous()
    return x


def propagated(x):
    return last(x.to(memory_format=torch.channels_last)).contiguous()


assert torch.allclose(layers(image), propagated(image), atol=1e-4)
timed(
    {"never": layers, "at every layer": wrapped, "at the borders": propagated},
    image,
    repeats=7,
)

# %% [markdown]
# Which of the first two is faster depends on the machine; the third does the same arithmetic as the second with two
# conversions in place of eight. Between the borders, element-wise operations (ReLU, the residual addition) accept any
# layout, so they pass it on. Finding the places where a conversion is unavoidable, and no others, is exercise 7.
#
# ## The fewest conversions: a minimum cut · stretch
#
# Give each operation one of two layouts; some have no choice. Where two neighbours differ, a conversion is needed. The
# choice with the fewest is a **minimum cut** (Ford and Fulkerson 1956): between neighbours there is an arrow each way,
# of capacity 1; arrows that cannot be cut tie the operations without a choice to one of two poles. Now cut arrows of
# the least total capacity, so that no path is left from one pole to the other. Here is `conv(x) + a + b`:

# %%
net = networkx.DiGraph()
for node in ("x", "a", "b", "output"):
    net.add_edge("NCHW", node)  # no capacity: this arrow cannot be cut
net.add_edge("conv", "NHWC")
for node, reader in (
    ("x", "conv"),
    ("conv", "sum"),
    ("a", "sum"),
    ("sum", "total"),
    ("b", "total"),
    ("total", "output"),
):
    net.add_edge(node, reader, capacity=1)
    net.add_edge(reader, node, capacity=1)
number, (contiguous, converted) = networkx.minimum_cut(net, "NCHW", "NHWC")
print(f"{number} conversions; channels last: {', '.join(converted - {'NHWC'})}")
assert number == 2 and converted == {"conv", "NHWC"}

# %% [markdown]
# The sums stay NCHW, although they could take any layout: channels last would cost a conversion of `a` and one of `b`.
# One detail is left for exercise 7. An image with three readers of the other layout is converted once, not three times;
# so its conversion needs one arrow, with a node behind it from which uncuttable arrows lead to the readers.
#
# ## In which order?
#
# Each optimization creates work for the others. Here are three tiny passes, and a program in which they depend on each
# other:


# %%
def drop_times_one(gm):
    """`x * 1 = x`, for a floating x of the same shape."""
    for node in list(gm.graph.nodes):
        if (
            node.target is operator.mul
            and node.args[1] == 1
            and isinstance(node.args[0], fx.Node)
        ):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


def merge_equal(gm):
    return CSEPass()(gm).graph_module


def subtract_equal(gm):
    """`x - x = 0 * x`, which costs one operand less.

    It keeps the NaN of an infinite x; a negative x becomes −0.
    """
    for node in list(gm.graph.nodes):
        if node.target is operator.sub and node.args[0] is node.args[1]:
            with gm.graph.inserting_before(node):
                node.replace_all_uses_with(
                    gm.graph.call_function(operator.mul, (node.args[0], 0))
                )
            gm.graph.erase_node(node)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


class Tangled(nn.Module):
    def forward(self, x):
        a, b = torch.exp(x * 1), torch.exp(x)
        return (a - b) * 1 + torch.exp(x)


# %%
PASSES = (drop_times_one, merge_equal, subtract_equal)
tangled = trace(Tangled(), torch.randn(3))
for order in itertools.permutations(PASSES):
    gm, counts = trace(Tangled(), torch.randn(3)), [len(tangled.graph.nodes)]
    for run in order:
        gm = run(gm)
        counts.append(len(gm.graph.nodes))
    assert equivalent(tangled, gm)
    print(" → ".join(map(str, counts)), "  ", ", ".join(run.__name__ for run in order))

# %% [markdown]
# The same three passes end at different sizes. Look at what each one leaves to the next: `explore` shows the program
# after every pass. Switch passes off and on; choose a node, and the lines that it comes from light up. In JupyterLab
# you can also move the passes, and switch on others.

# %%
explore(Tangled(), torch.randn(3), passes=PASSES)

# %% [markdown]
# Finding the best order is the **phase ordering problem**, and there is no general answer: with dozens of passes there
# are too many orders to try. The usual remedy is to repeat the list until a whole round changes nothing, a
# **fixpoint**:


# %%
def to_fixpoint(gm, passes):
    rounds, text = 0, None
    while text != str(gm.graph):  # its length alone would miss a node that changed
        text, rounds = str(gm.graph), rounds + 1
        for run in passes:
            gm = run(gm)
    return gm, rounds


sizes = set()
for order in itertools.permutations(PASSES):
    gm, rounds = to_fixpoint(trace(Tangled(), torch.randn(3)), order)
    sizes.add(len(gm.graph.nodes))
    print(len(gm.graph.nodes), "nodes after", rounds, "rounds")
assert len(sizes) == 1

# %% [markdown]
# Two warnings. A fixpoint exists only when the passes do not undo each other (one that prefers `x + x` and one that
# prefers `2 * x` never stop), so each pass should make some measure smaller. And the order still decides how many
# rounds it takes.

# %%
diff(tangled, gm, title="Where every order ends, if it is repeated")

# %% [markdown]
# ## Key takeaways
#
# - Folding: constant means "does not depend on inputs *and* does not draw"; and big constants are not free.
# - Dead code: mark from the output *and* from every node that has an effect.
# - Common subexpressions: the key must contain everything that the value depends on; nodes that draw or write have no
#   key.
# - Algebra: a rewrite is a law and a precondition. NaN, infinities, minus zero, dtype and shape are where laws break.
# - Layout: convert at the borders, and keep the layout between them.
# - Order matters; repeat to a fixpoint, and make sure that one exists.
#
# ## Further reading
#
# - "Constant Propagation with Conditional Branches", Mark N. Wegman, F. Kenneth Zadeck, TOPLAS 1991.
# - "Value Numbering", Preston Briggs, Keith D. Cooper, L. Taylor Simpson, Software: Practice and Experience 1997.
# - "What Every Computer Scientist Should Know About Floating-Point Arithmetic", David Goldberg,
#   ACM Computing Surveys 1991.
# - "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions", Zhihao Jia,
#   Oded Padon, James Thomas, Todd Warszawski, Matei Zaharia, Alex Aiken, SOSP 2019.
# - "egg: Fast and Extensible Equality Saturation", Max Willsey, Chandrakana Nandi, Yisu Remy Wang, Oliver Flatt,
#   Zachary Tatlock, Pavel Panchekha, POPL 2021.
#
# ## Tomorrow
#
# Today's optimizations remove nodes. The remaining nodes still run one by one, and each writes its result to memory
# only for the next to read it back. Day 4 puts neighbours into one kernel, and shows when that is a mistake.
