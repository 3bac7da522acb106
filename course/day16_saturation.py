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
# # Day 16 · All rewrites at once
#
# A pass replaces an expression by an equal one, and forgets the old one, which the next pass may have needed. So the
# order of passes matters, and day 3 left open which one is best. Today nothing is forgotten: all rewrites are made, all
# results are stored in one graph, and the best is taken at the end.
#
# - **e-graphs**: sets of equal terms, in which what they share is stored once
# - **saturation**: rewrites until nothing is new, or until a limit
# - **extraction and explanation**: the cheapest term, and why it is equal
# - **laws**: which of them are proved, for which numbers, and how a search finds new ones
#
# In the exercises, [work/day16/saturation.ipynb](../work/day16/saturation.ipynb), you write the e-graph, saturation,
# and the laws. The lesson takes about 75 minutes, and 35 more for what is marked stretch.

# %%
import copy
import itertools
import math
from collections import Counter

import torch
from torch import nn

from passlab import egraph, equivalent, guess, trace
from passlab.egraph import EGraph, Law, cheapest, draw_classes, matches, saturate
from passlab.egraph.discover import text
from passlab.egraph.programs import Folded, launch, number, program_of, terms_of, typed
from passlab.fx.stages import STAGES

_ = torch.manual_seed(0)

# %% [markdown]
# ## Every order loses
#
# Five passes: `simplify`, `cse` and `dce` of day 3, `scale`, which makes x · 6 of (x · 2) · 3, and `double`, which makes
# x + x of x · 2. They have 120 orders. Each is repeated until nothing changes:


# %%
class Doubled(nn.Module):
    def forward(self, x):
        return (x * 2) * 3 + (x * 3) * 2


def operations(gm):
    return sum(node.op == "call_function" for node in gm.graph.nodes)


def repeated(gm, order):
    before = ""
    while before != str(gm.graph):
        before = str(gm.graph)
        for name in order:
            gm = STAGES[name](gm)
    return gm


# %%
bet = guess(
    "How many of the five operations does the best of the 120 orders leave?", ...
)

# %% tags=["hide-output"]
program = trace(Doubled(), torch.randn(4))
ends = Counter()
for order in itertools.permutations(("simplify", "cse", "dce", "scale", "double")):
    ends[operations(repeated(copy.deepcopy(program), order))] += 1
for count, times in sorted(ends.items()):
    print(f"{times} orders of 120 leave {count} of {operations(program)} operations")
bet.compare(min(ends))

# %% [markdown]
# In the better half, x · 6 occurs twice, is merged, and a sum remains: two operations. But one would do:

# %%
verdict = equivalent(program, lambda x: x * 12)
print(verdict)
assert verdict and min(ends) == 2

# %% [markdown]
# No order finds it. The way leads over x · 6 + x · 6 = (x · 6) · 2, the law of `double` *from right to left*. A pass
# that applies a law both ways never stops; one that applies it only from right to left is wrong elsewhere. And some
# laws, such as x · y = y · x, have no better side.
#
# ## Terms, classes, e-nodes
#
# Let a rewrite *add* an equal term and keep the old one. A term is written as a tuple: a label, then the operands,
# which are terms. A leaf has only a label. This is (a · 2) / 2:

# %%
a, two, one = ("a",), ("2",), ("1",)
halved = ("div", ("mul", a, two), two)
graph = EGraph()
root = graph.add_term(halved)
draw_classes(graph, {root: "(a · 2) / 2"}, "A term")

# %% [markdown]
# Each dashed frame is a **class**: a set of equal terms. Its name is a number. In it are **e-nodes**: a label, and for
# each operand the *class* that it comes from. The leaf 2 is used twice and stored once: `add` looks e-nodes up in a
# dictionary first. That is *hash-consing*, and it merges common subexpressions.
#
# Now a · 2 = a << 1. The new term is added, and `union` makes one class of two:

# %%
shifted = graph.add_term(("shl", a, one))
graph.union(graph.add_term(("mul", a, two)), shifted)
graph.rebuild()
draw_classes(graph, {root: "(a · 2) / 2", shifted: "twice a"}, "Two ways to double")

# %% [markdown]
# The e-node `div` was not touched, and now stands for two terms: its first operand is the class with both ways to
# double. So n such choices add n e-nodes, and the graph stands for 2ⁿ terms. This is an **e-graph**.
#
# Which class is a term in? A *union-find* answers that. Each number points to another one of its class, and the last to
# itself:


# %%
class UnionFind:
    def __init__(self, count):
        self.leader = list(range(count))

    def find(self, number):
        while self.leader[number] != number:
            self.leader[number] = self.leader[self.leader[number]]  # half the way
            number = self.leader[number]
        return number

    def union(self, a, b):
        self.leader[self.find(b)] = self.find(a)


sets = UnionFind(6)
sets.union(0, 1), sets.union(2, 3), sets.union(1, 3)
print([sets.find(number) for number in range(6)])

# %% [markdown]
# Each `find` shortens the way for the next.
#
# ## Congruence
#
# If a = b, then f(a) = f(b), and g(f(a)) = g(f(b)): one union makes others due. The classes of these four terms:

# %%
graph = EGraph()
a_, b_ = graph.add("a"), graph.add("b")
fa, fb = graph.add("f", a_), graph.add("f", b_)
ga, gb = graph.add("g", fa), graph.add("g", fb)
graph.union(a_, b_)
print("after union:  ", [graph.find(term) for term in (fa, fb, ga, gb)])
graph.rebuild()
print("after rebuild:", [graph.find(term) for term in (fa, fb, ga, gb)])
assert graph.find(ga) == graph.find(gb)

# %% [markdown]
# In a *congruent* e-graph, e-nodes of one label with equal operands are in one class. `rebuild` makes it so. The plain
# way is to go through all e-nodes until a round changes nothing:


# %%
def congruence(nodes, sets):
    """Join e-nodes of one label and equal operands. nodes: number → e-node."""
    changes = True
    while changes:
        changes, first = False, {}
        for i, (label, *operands) in enumerate(nodes):
            key = label, *map(sets.find, operands)
            j = first.setdefault(key, i)
            if sets.find(i) != sets.find(j):
                sets.union(i, j)
                changes = True


sets = UnionFind(len(graph.terms))
sets.union(a_, b_)
congruence(graph.terms, sets)
print([sets.find(number) for number in range(len(graph.terms))])
assert sets.find(ga) == sets.find(gb) and sets.find(fa) != sets.find(ga)

# %% [markdown]
# The library does less. Each class has a list of its *users*, the e-nodes with an operand in it. Only users of a class
# that was joined can become equal, so `rebuild` keeps a worklist of joined classes: for each, it enters the users under
# their new names. Where a name is taken, the two are joined, and the list grows. And it runs once after many unions: a
# class that was joined a hundred times is repaired once.
#
# ## Matching
#
# A law is two **patterns** that mean the same. A pattern is a term in which a text such as `"?x"` is a *variable*: any
# class, the same one wherever it occurs. `matches` lists the ways in which a pattern matches a class, each as a
# dictionary from variable to class:

# %%
SHIFT = [
    Law("a · 2 = a << 1", ("mul", "?x", two), ("shl", "?x", one)),
    Law(
        "(x · y) / z = x · (y / z)",
        ("div", ("mul", "?x", "?y"), "?z"),
        ("mul", "?x", ("div", "?y", "?z")),
    ),
    Law("2 / 2 = 1", ("div", two, two), one),
    Law("x · 1 = x", ("mul", "?x", one), "?x"),
]
graph = EGraph()
root = graph.add_term(halved)
for law in SHIFT:
    print(f"{law.name:<26}", list(matches(graph, law.left, root)))

# %% [markdown]
# It tries each e-node of the class that has the pattern's label, then operand by operand, with what is bound so far. So
# it finds terms that were never added. If the class of a · 2 gets the e-node a << 1, then (a << 1) / 2 is at the root:

# %%
graph.union(graph.add_term(("mul", a, two)), graph.add_term(("shl", a, one)))
graph.rebuild()
unwritten = list(matches(graph, ("div", ("shl", "?x", "?by"), "?y"), root))
print(unwritten)
assert unwritten[0]["?x"] == graph.add_term(a)

# %% [markdown]
# To *apply* a law to a match, add the term of its right side, with classes for its variables, and join it with the
# class that was matched. A right side with a variable that the left one does not bind is refused.
#
# ## Saturation
#
# In a round, all laws are matched against the graph *as it is*, then all matches are applied, then the graph is rebuilt
# once. Rounds follow until one adds nothing new: then the graph is **saturated**.

# %%
graph = EGraph()
root = graph.add_term(halved)
report = saturate(graph, SHIFT)
print(report)
assert graph.find(root) == graph.find(graph.add_term(a))
draw_classes(graph, {root: "(a · 2) / 2"}, "Saturated")

# %% [markdown]
# The class of (a · 2) / 2 contains a. Strength reduction added a << 1, from which no law leads to a, but a · 2 was
# still there. The order of laws does not matter either:

# %%
sizes = set()
for laws in itertools.permutations(SHIFT):
    graph = EGraph()
    root = graph.add_term(halved)
    sizes.add(str(saturate(graph, laws)))
    assert graph.find(root) == graph.find(graph.add_term(a))
print(sizes)

# %% [markdown]
# One e-node of the green class is a product *of this class* with 1: a = a · 1 = (a · 1) · 1 = … Eight e-nodes stand for
# infinitely many terms.
#
# But a sum of n numbers has n! orders, and each has many groupings. With the laws that give them all, there is a class
# for each subset of the numbers:


# %%
def orders(op):
    left, right = (op, (op, "?x", "?y"), "?z"), (op, "?x", (op, "?y", "?z"))
    commute = Law(f"commute {op}", (op, "?x", "?y"), (op, "?y", "?x"))
    return [commute, Law(f"associate {op}", left, right, both=True)]


def chain(label, leaves):
    term, *rest = [(leaf,) for leaf in leaves]
    for leaf in rest:
        term = (label, term, leaf)
    return term


# %%
bet = guess(
    "Eight numbers can be added in 17,297,280 ways. How many e-nodes hold them all?",
    ...,
)

# %% tags=["hide-output"]
print(" n      terms  classes  e-nodes")
for n in range(2, 9):
    graph = EGraph()
    graph.add_term(chain("add", range(n)))
    report = saturate(graph, orders("add"), matches_each=10**6)
    terms = math.factorial(n) * math.comb(2 * n - 2, n - 1) // n
    print(f"{n:2}{terms:11,}{report.classes:9,}{report.nodes:9,}")
assert report.nodes == 3**n - 2 ** (n + 1) + 1 + n
bet.compare(report.nodes)

# %% [markdown]
# Each operand triples the number: far fewer e-nodes than terms, but still exponentially many. (`both=True`: the law is
# applied from right to left as well.) And some laws never end. So there are limits, for e-nodes, for rounds, and for
# the matches of one law in a round. `stop` says which was reached:

# %%
grow = Law(
    "x · y = (x + x) · (y / 2)",
    ("mul", "?x", "?y"),
    ("mul", ("add", "?x", "?x"), ("div", "?y", two)),
)
graph = EGraph()
graph.add_term(("mul", a, ("b",)))
report = saturate(graph, [grow], nodes=50)
print(report)
assert report.stop == "nodes"

# %% [markdown]
# Even at a limit, all equalities in the graph are true. A compiler takes the best term so far.
#
# ## What a class knows
#
# A fact about one term of a class holds for all of them: that it is the number 12, or that its shape is (4, 1). An
# **analysis** stores one fact for each class. `make` computes the fact of an e-node from those of its operands, `join`
# puts two facts of one class together, and `modify` may use a fact to change the graph:


# %%
class Numbers(egraph.Analysis):
    """The number that a class is, None if that is not known."""

    def make(self, graph, node):
        facts = [graph.facts[graph.find(operand)] for operand in node[1:]]
        if not facts:
            return node[0] if isinstance(node[0], int) else None
        return None if None in facts else math.prod(facts)

    def join(self, a, b):
        return b if a is None else a

    def modify(self, graph, number):
        value = graph.facts[graph.find(number)]
        if value is not None:
            graph.union(number, graph.add(value), "folded")
            graph.nodes[graph.find(number)] = {(value,): None}  # needs no other e-node


sizes = []
for analysis in (None, Numbers()):
    graph = EGraph(analysis)
    graph.add_term(("mul", ("x",), chain("mul", (2, 3, 5, 7, 11, 13, 17))))
    saturate(graph, orders("mul"), matches_each=10**6)
    sizes.append(len(graph))
print("x · (2 · 3 · 5 · 7 · 11 · 13 · 17):", *sizes, "e-nodes")
assert sizes[0] > 10 * sizes[1]

# %% [markdown]
# Constant folding is such an analysis. It keeps the graph small: a class that is a number needs no other e-node.
#
# Shapes and dtypes keep laws *true*. On day 3, x + 0 · y was not x where y had another shape. `Folded` knows the type of
# each class, or its number, and refuses a union of two types. `typed` adds to each law the condition that both sides
# have one type. With a y of shape (3,), and with one of (4, 1):


# %%
def broadcast(x, y):
    return x + y * 0


dropped = Law("x + y · 0 = x", ("add", "?x", ("mul", "?y", number(0))), "?x")
for shape in ((3,), (4, 1)):
    gm = trace(broadcast, torch.ones(3), torch.ones(shape))
    graph = EGraph(Folded(gm))
    terms_of(gm, graph)
    print(shape, saturate(graph, typed([dropped])).applied)

# %% [markdown]
# A precondition is the fourth field of a `Law`: `when`, a function of the graph and the match. (This law is also wrong
# for an infinite y; see below.)
#
# ## The cheapest term
#
# Which term of a class is the cheapest? Choosing one is **extraction**. If the cost of a term is the sum over its tree,
# it consists of the cheapest terms of the classes below. Prices are lowered until none changes:


# %%
def prices(graph, cost):
    """Return class → cost of its cheapest tree."""
    price, changes = {}, True
    while changes:
        changes = False
        for i, nodes in graph.nodes.items():
            for label, *operands in nodes:
                below = (price.get(graph.find(j), math.inf) for j in operands)
                total = cost(label) + sum(below)
                if total < price.get(i, math.inf):
                    price[i], changes = total, True
    return price


def cost(label):
    return {"div": 4, "inv": 4, "mul": 1, "add": 1}.get(label, 0)


x, y, z = ("x",), ("y",), ("z",)
DIVIDE = [
    Law("x / y = x · inv y", ("div", "?x", "?y"), ("mul", "?x", ("inv", "?y"))),
    *orders("add"),
]
graph = EGraph()
root = graph.add_term(("add", ("div", x, z), ("div", y, z)))
saturate(graph, DIVIDE)
term, price = cheapest(graph, root, cost)
print(f"{text(term)} costs {price}")
assert price == prices(graph, cost)[graph.find(root)]

# %% [markdown]
# A division costs 4 here, as the reciprocal inv z does, and two divisions are the cheapest *tree*. But in x · inv z + y
# · inv z, inv z could be computed once, for 7 in all. Counting it once is harder: see *Shared parts*.
#
# ## Programs
#
# `terms_of` adds the results of an FX graph, and `program_of` makes a graph of terms. These laws are those of the
# passes, and some that no pass can have. `launch` is a cost: 1 for what is computed, 0 for inputs and numbers.

# %%
LAWS = [
    Law("x · 2 = x + x", ("mul", "?x", number(2)), ("add", "?x", "?x"), both=True),
    Law("−(−x) = x", ("neg", ("neg", "?x")), "?x"),
    Law("where(c, x, x) = x", ("where", "?c", "?x", "?x"), "?x"),
    *orders("mul"),
    *orders("add")[:1],
]
graph = EGraph(Folded(program))
roots = terms_of(program, graph)
print(saturate(graph, typed(LAWS), nodes=5_000))
term, launches = cheapest(graph, roots[0], launch)
best = program_of([term], program)
print(best.code.strip())
assert equivalent(program, best) and operations(best) == launches < min(ends)

# %% [markdown]
# One multiplication. `equivalent` accepts it, but it allows for rounding. The law (x · y) · z = x · (y · z) is false for
# floating-point numbers:

# %%
huge, tiny = torch.tensor([1e30, 1e-30])
print(f"{(huge * huge) * tiny:.0e} is not {huge * (huge * tiny):.0e}")

# %% [markdown]
# May a compiler use it?
#
# ## What a law needs
#
# `equivalent` looks for a difference, on well-chosen inputs. With `prove=True` it looks for a proof first, and says
# which of three tiers decided:

# %%
v = torch.randn(3)
for before, after in (
    (lambda x: x * 2, lambda x: x + x),
    (lambda x: (x * 3) * 5, lambda x: x * 15),
    (lambda x: torch.tanh(-x), lambda x: -torch.tanh(x)),
    (lambda x: x / x, torch.ones_like),
):
    print(equivalent(before, after, v, prove=True), "\n")

# %% [markdown]
# **Bit by bit.** Both sides become formulas over the bits of x, and a solver for formulas (an SMT solver, z3) is asked
# for an x for which they differ. If there is none, the law is proved for all 2³² numbers, with NaN, infinities, −0, and
# integers that wrap around. If there is one, it is run, and shown if it makes a difference. Of `tanh` the solver knows
# only that equal operands give equal results.
#
# **Over the reals.** Only rounding differs, and NaN and infinities, which are not real numbers; see the next section.
# **Tested.** Neither could be decided; what remains are the tests of `equivalent`.
#
# Seventeen laws:

# %%
from passlab.proving import laws, prove

CHOSEN = """x + 0 = x, x + (−0.0) = x, x · 1 = x, x · 0 = 0, x − x = 0, x / x = 1,
−(−x) = x, relu(relu x) = relu x, x / 4 = x · 0.25, x / 3 = x · (1 / 3),
x · 2 = x + x, (x · 3) · 5 = x · 15, (x + y) + z = x + (y + z),
x · y + x · z = x · (y + z), exp(log x) = x, √(x · x) = |x|"""
by_text = {law.text: law for law in laws.LAWS}
selection = [by_text[name.strip()] for name in CHOSEN.replace("\n", " ").split(", ")]
selection.append(
    laws.Law("tanh(−x) = −tanh x", lambda x: (-x).tanh(), lambda x: -x.tanh(), ())
)
slowest = 0.0
for law in selection:
    verdicts = {}
    for kind, dtype in laws.TYPES.items():
        decision = laws.decide(law, dtype)
        verdicts.setdefault(decision.text.split(";")[0].split(":")[0], []).append(kind)
        slowest = max(slowest, decision.seconds)
    row = (f"{answer}: {', '.join(kinds)}" for answer, kinds in verdicts.items())
    print(f"{law.text:<28}", *row, sep="  ")
print(f"the longest proof took {slowest:.1f} s")
assert len(selection) == 17

# %% [markdown]
# ("—": the two sides have different types.) Integers obey nearly all of them: wrapping around is arithmetic modulo 2³².
# But x / 3 of an integer is a float, and the least integer is its own negative, which breaks the law of tanh.
#
# A **precondition** makes a false law true, and the weakest one excludes nothing else. float16 has only 65,536 numbers,
# so the set for which a law of one variable holds can be written down:

# %%
every = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)


def same_bits(left, right):
    same = (left == right) & (left.signbit() == right.signbit())
    return same | (left.isnan() & right.isnan())


holds = same_bits(every * 0, torch.zeros_like(every))
conditions = {
    "x is finite": every.isfinite(),
    "x > 0": every > 0,
    "x is finite, its sign is +": every.isfinite() & ~every.signbit(),
}
print(f"x · 0 = 0 holds for {holds.sum():,} numbers")
for name, where in conditions.items():
    wrong, lost = (where & ~holds).sum(), (holds & ~where).sum()
    print(f"{name:<28}{wrong:7,} wrong {lost:7,} lost")

# %% [markdown]
# "x is finite" is too weak: −1 · 0 is −0. "x > 0" is wrong for ∞, and loses a zero. The third has no wrong number, and
# loses none. For float32 the solver does the same; `when` is a program that says which inputs count:

# %%
for when in (lambda x: x > 0, lambda x: (x < math.inf) & ~x.signbit()):
    proof = prove(lambda x: x * 0, torch.zeros_like, v, when=when, tests=False)
    print(proof.verdict, "·", proof.place)

# %% [markdown]
# ## Right algebra, wrong numbers
#
# Rounding breaks nearly every law of tensor algebra: a matrix product is a sum, and its order is not fixed. But one can
# ask whether two programs are equal *over the reals*. Both are computed with integers modulo a large prime, a
# **field**, exactly, on random numbers. If they are different polynomials, they agree only with a small probability,
# which is stated.
#
# Here are two formulas for a variance, and one in which a square was forgotten, for numbers around 4096:


# %%
def two_passes(x):
    return ((x - x.mean()) ** 2).mean()


def one_pass(x):
    return (x**2).mean() - x.mean() ** 2


def forgotten(x):
    return (x**2).mean() - x.mean()


near, far = torch.randn(16), torch.randn(16) + 4096
print(f"{two_passes(far):.4f}, {one_pass(far):.4f}, {forgotten(far):.4f}")
for name, after, example in (
    ("one pass, near 0", one_pass, near),
    ("one pass, near 4096", one_pass, far),
    ("forgotten square", forgotten, near),
):
    proof = equivalent(two_passes, after, example, prove=True)
    print(f"{name:<20}", proof.sentence)
    assert proof.reals == (after is one_pass)

# %% [markdown]
# To tests alone, the last two are both *different*. But one pass is right on paper, while the forgotten square is wrong
# on any machine.
#
# A compiler may always use a law that is proved bit by bit, and one over the reals if the programmer allows it ("fast
# math").

# %% [markdown]
# ### How a field decides · stretch
#
# Sums, products and quotients of a program are polynomials, or fractions of them. If two of degree d differ, they agree
# on few points. Modulo a prime p there are also quotients: 1 / 3 is the number whose product with 3 is 1. Here are two
# formulas that are equal, and one that is not:

# %%
formulas = {
    "(x + y)²": lambda x, y: (x + y) ** 2,
    "x² + 2xy + y²": lambda x, y: x**2 + 2 * x * y + y**2,
    "x² + y²": lambda x, y: x**2 + y**2,
}
first, *others = formulas
for p in (5, 101, 2**31 - 1):
    points = [torch.randint(p, (2,)).tolist() for _ in range(2000)]
    for other in others:
        agree = sum(
            (formulas[first](*at) - formulas[other](*at)) % p == 0 for at in points
        )
        print(f"p = {p:<12}{first} and {other:<15}agree at {agree:4} of 2,000 points")
print(f"1 / 3 modulo {p} is {pow(3, -1, p)}")
assert agree == 0

# %% [markdown]
# At one point, a wrong formula passes with a probability of at most d / p. (Modulo 5, x⁵ = x for *all* x: d must be far
# below p.) With p = 2³¹ − 1 and three points, the probability is too small to worry about, and it is stated. A function
# such as `exp`, of which only its name counts, becomes a random function: equal operands, equal results. So a
# difference in the field does not say that exp(x + y) and exp x · exp y differ, only that this tier does not know.

# %% [markdown]
# ## Shared parts · stretch
#
# If parts are counted once, the choice of one class changes the price of another, which may find its parts paid for. So
# no order of decisions is right. The problem is as hard as *set cover*: choose as few sets as possible, so that each
# number is in one of them. As an e-graph, a number is a class with an e-node for each set that contains it, and only
# sets cost. Problems of this kind go to a solver, here OR-Tools' CP-SAT, as variables of 0 or 1, conditions, and a sum:

# %%
from ortools.sat.python import cp_model

from passlab.egraph import cheapest_shared

SETS = {"s": {1, 2}, "t": {2, 3, 4}, "u": {1, 4}, "v": {3, 5}, "w": {1, 2, 5}}
model = cp_model.CpModel()
taken = {name: model.new_bool_var(name) for name in SETS}
for element in range(1, 6):
    model.add_bool_or([taken[name] for name in SETS if element in SETS[name]])
model.minimize(sum(taken.values()))
solver = cp_model.CpSolver()
solver.parameters.num_workers = 1
solver.solve(model)
print([name for name in SETS if solver.value(taken[name])])

graph, classes = EGraph(), {}
for name, elements in SETS.items():
    for element in elements:
        choice = graph.add(f"{element} in", graph.add(name))
        graph.union(classes.setdefault(element, choice), choice)
graph.rebuild()
_, fewest, _ = cheapest_shared(graph, [*classes.values()], lambda label: label in SETS)
print(fewest, "sets")
assert fewest == solver.objective_value

# %% [markdown]
# For any e-graph, there is a variable for each class, *needed*, and one for each e-node, *taken*:
#
# - The roots are needed. In each class that is needed, one e-node is taken.
# - If an e-node is taken, the classes of its operands are needed (`add_implication`).
# - Each class has a level, and if an e-node is taken, its operands have lower ones (`add`, `only_enforce_if`).
#   Otherwise, a = a · 1 would be a way to compute a.
# - The sum of costs of what is taken is least.

# %%
graph = EGraph()
root = graph.add_term(("add", ("div", x, z), ("div", y, z)))
saturate(graph, DIVIDE)
(shared,), least, proved = cheapest_shared(graph, [root], cost)
print(f"{text(shared)} costs {least}", "· proved to be least" * proved)
assert least < price

# %% [markdown]
# ## Why are two terms equal? · stretch
#
# "Equal, since the graph says so" is a weak argument, if one law of twenty was wrong. Each union therefore leaves an
# edge between the *two terms* that it joined, with the name of the law. These edges are a forest: a union of two
# classes connects two trees. In a tree there is exactly one way from one term to another, and it is the proof. If an
# edge says *congruence*, f(s) = f(t), the way from s to t is inserted there. `explain` returns a chain of steps, each a
# whole term and the law that leads to it, from right to left if `back`. Here each step is also a program, which is
# compared with the one before:

# %%
graph = EGraph(Folded(program))
roots = terms_of(program, graph)
saturate(graph, typed(LAWS), nodes=5_000)
before = program
print(text(graph.term(roots[0])))
for step in graph.explain(roots[0], graph.add_term(term)):
    after = program_of([step.term], program)
    verdict = equivalent(before, after)
    print(f"{text(step.term):<30}{step.law}", "(back)" * step.back)
    assert verdict, verdict.reason
    before = after

# %% [markdown]
# The chain is one way, and not always the shortest. If a step were refused, its law would be the culprit.
#
# ## Laws found by evaluation · stretch
#
# Laws can be found. Write down *all* terms of up to three operations over a few functions, evaluate each in the field
# at one random point, and look which have the same value, their **fingerprint**:

# %%
from passlab.egraph.discover import candidates, discover, enumerate_terms

listed = enumerate_terms(
    ("transpose", "add", "mul", "matmul"), ("?x", "?y", "?z"), operations=3
)
print(f"{len(listed.terms):,} terms, {len(set(listed.prints)):,} fingerprints")
print(f"{len(candidates(listed)):,} pairs that may be laws, up to names")

# %% [markdown]
# Most of these follow from others. If x + y = y + x is known, then (x + y) · z = (y + x) · z is not new. An e-graph
# decides that: put both sides into it, with variables as leaves, saturate it with the laws so far, and see whether the
# two are in one class.

# %%
from passlab.egraph.discover import follows

left = ("mul", ("add", "?x", "?y"), "?z")
right = ("mul", ("add", "?y", "?x"), "?z")
print(follows(left, right, orders("add")), follows(left, right, orders("mul")))

# %% [markdown]
# So go through the pairs, smallest first, and keep one as a law if it does not follow from the laws so far. In the end,
# go through the laws once more: an early one may follow from later ones. What is left:

# %%
findings = discover()
for finding in findings:
    print(f"{finding.law.name:<38}{finding.proof.verdict}")
proved = sum(finding.proof.verdict == "proved" for finding in findings)
print(f"{len(findings)} laws, {proved} of them proved bit by bit")
assert len(findings) == 13 and proved == 5

# %% [markdown]
# Three things in this list are surprising:
#
# 1. (x + y) + z = x + (y + z) is not there. It follows from x + (y + z) = y + (x + z) and x + y = y + x.
# 2. (xᵀ @ y)ᵀ = yᵀ @ x saves a transposition. The rule of the textbooks, (x @ y)ᵀ = yᵀ @ xᵀ, costs one, and follows.
# 3. Without + there are laws of subtraction, and one of them looks like a misprint:

# %%
base = [finding.law for finding in findings]
_, associate = orders("add")
left = ("transpose", ("matmul", "?x", "?y"))
right = ("matmul", ("transpose", "?y"), ("transpose", "?x"))
print(follows(associate.left, associate.right, base), follows(left, right, base))
for finding in discover(("transpose", "neg", "sub", "matmul"), operations=3):
    if finding.law.name in ("x − (y − z) = z − (y − x)", "x @ (y − y) = x − x"):
        print(finding.law.name, repr(finding.proof), "", sep="\n")

# %% [markdown]
# x − x writes the zero matrix without a zero, and the product with it needs no multiplication. All matrices are square
# here. For others this law is wrong by its shape, and `typed` would not apply it. What an enumeration finds is true of
# what it tried.
#
# Is any of it new? TASO (2019) searched in this way first, and keeps 743 laws of up to four operations, over many more
# functions. A prover derives each from *properties* of the functions, which TASO's authors wrote down. Eleven of these
# are about our four functions:

# %%
from passlab.egraph.discover import PROPERTIES, same_form

properties = [law.name for law in base if any(same_form(law, p) for p in PROPERTIES)]
underived = [law.name for law in base if not follows(law.left, law.right, PROPERTIES)]
print(len(properties), "of", len(base), "are properties:", ", ".join(properties))
print(len(underived), "does not follow from the properties:", ", ".join(underived))
assert all(follows(p.left, p.right, base) for p in PROPERTIES)

# %% [markdown]
# All eleven follow from ours, and twelve of ours from theirs. The last one does, too, on paper: transpose
# x @ y + z @ y twice, and use the other distributive law in between. An e-graph does not find this way. (xᵀ)ᵀ = x is
# applied from left to right only, since a lone variable would match everywhere.
#
# Of our thirteen, ten are among the 743, two of them with operands swapped. (TENSAT has the list, see below.) The
# others, both commutative laws and (xᵀ)ᵀ = x, are properties. So TASO knew all of our laws; those on convolutions,
# concatenations and scalars are beyond ours. Later, Mirage (2025) searches for whole kernels by fingerprints, and
# TensorRight (2025) proves laws for all shapes.
#
# ## The same in egglog · stretch
#
# egg and its successor egglog are e-graphs in Rust. With the same laws, the program of the beginning ends the same way:

# %%
from importlib.util import find_spec

if find_spec("egglog"):
    import egglog

    class Num(egglog.Expr):
        def __init__(self, value: egglog.i64Like) -> None: ...
        @classmethod
        def var(cls, name: egglog.StringLike) -> "Num": ...
        def __add__(self, other: "Num") -> "Num": ...
        def __mul__(self, other: "Num") -> "Num": ...

    peer, v = egglog.EGraph(), Num.var("x")

    @peer.register
    def _laws(a: Num, b: Num, c: Num, i: egglog.i64, j: egglog.i64):
        yield egglog.birewrite(a * Num(2)).to(a + a)
        yield egglog.birewrite((a * b) * c).to(a * (b * c))
        yield egglog.rewrite(a * b).to(b * a)
        yield egglog.rewrite(Num(i) * Num(j)).to(Num(i * j))

    total = peer.let("total", (v * Num(2)) * Num(3) + (v * Num(3)) * Num(2))
    peer.run(6)
    print(peer.extract(total))
else:
    print(
        "egglog is not installed; it is optional: pip install egglog==13.2.0 (306 MB)"
    )

# %% [markdown]
# ## Key takeaways
#
# - Passes forget, so their order matters. An e-graph keeps every term, and the order of laws does not matter.
# - One union makes others due: congruence. `rebuild` finds them with a worklist, once a round.
# - A pattern matches classes; applying a law adds a term and joins it. Limits are normal.
# - Facts of classes fold constants, and keep laws from joining two shapes.
# - The cheapest tree is easy; with shared parts it is an integer program.
# - A law is proved bit by bit, over the reals, or tested. The weakest precondition admits nothing wrong and loses nothing.
#
# ## Further reading
#
# - "egg: Fast and Extensible Equality Saturation", Max Willsey et al., POPL 2021.
# - "Equality Saturation for Tensor Graph Superoptimization", Yichen Yang et al., MLSys 2021; its program is TENSAT,
#   and `converted.txt` in github.com/uwplse/tensat lists TASO's laws.
# - "Proof-Producing Congruence Closure", Robert Nieuwenhuis and Albert Oliveras, RTA 2005.
# - "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions", Zhihao Jia et al.,
#   SOSP 2019.
# - "Mirage: A Multi-Level Superoptimizer for Tensor Programs", Mengdi Wu et al., OSDI 2025.
# - "TensorRight: Automated Verification of Tensor Graph Rewrites", Jai Arora et al., POPL 2025.
