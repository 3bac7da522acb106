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
# # Day 6 · Dataflow analysis and cost prediction: exercises
#
# Eight questions. The core is questions 1, 2 and 3, about 85 minutes; the rest, about 240 minutes, is stretch: harder, and
# for extra credit. Read the lesson first: [day06_dataflow.ipynb](../../course/day06_dataflow.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day06.solver")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import heapq
import math

import numpy as np
import torch
from IPython.display import display
from torch import fx

from passlab import check, exercises, hint, progress
from passlab.dataflow import (
    COMMUTATIVE,
    LIVENESS,
    OPS,
    Analysis,
    Program,
    Solution,
    evaluate,
    parse,
    predecessors,
    reverse_postorder,
    solve,
    successors,
)
from passlab.drawing import flow
from passlab.fx.nodes import attribute, op_name, shape

# %%
progress("day06")

# %% [markdown]
# ## 1 · One solver
#
# The lesson called `solve(program, analysis)`; write it. An analysis has the fields `direction`, `boundary(program)`,
# `initial(program)`, `merge(fact, fact)`, `transfer(block, fact)` and `edge`. Forward, for each block:
#
# - the fact at its start is `initial(program)`, merged with the facts on all edges into it, and at the entry with
#   `boundary(program)`, too;
# - the fact on an edge is the one at the end of its source; if there is an edge function, `edge(block, target, fact)`
#   of it;
# - the fact at its end is `transfer(block, fact at its start)`.
#
# Backward, start and end change places, edges count from their targets, blocks that return get the boundary (without a
# return, no block gets it), and there is no edge function. All facts are `initial` before the first visit to their
# block; a *visit* computes both facts of one block again.
#
# The number of visits depends on their order. You may make a quarter more visits than a worklist in reverse post-order
# does. Return your visits, in order: the judge replays them.


# %%
def solver(program: Program, analysis: Analysis) -> tuple[dict, dict, list[str]]:
    """The facts of an analysis, and the visits that found them.

    In:  a program whose blocks can all be reached from its entry, and an analysis
         without `widen`.
         `successors(program)`, `predecessors(program)` and
         `reverse_postorder(program, direction)` are given.
    Out: the facts at the starts of the blocks, by name; those at their ends; the names
         of the blocks visited, in order.
    Not to be called: passlab.dataflow.solver.solve,
         passlab.dataflow.solver.round_robin,
         passlab.dataflow.solver.FixpointState.

    Example:  liveness of `entry: y = neg x; return y` with the parameter x:
              ({"entry": frozenset({"x"})}, {"entry": frozenset()}, ["entry"])
    """
    ### BEGIN SOLUTION
    forward = analysis.direction == "forward"
    successors_of, predecessors_of = successors(program), predecessors(program)
    sources, readers = (
        (predecessors_of, successors_of)
        if forward
        else (successors_of, predecessors_of)
    )
    blocks = {block.name: block for block in program.blocks}
    inputs = {name: analysis.initial(program) for name in blocks}
    outputs = dict(inputs)
    order = reverse_postorder(program, analysis.direction)
    place = {name: i for i, name in enumerate(order)}
    waiting, log = list(range(len(order))), []  # a sorted list is a heap
    while waiting:
        # The smallest number first: what a block reads is then up to date, but for the
        # edges that lead back.
        name = order[heapq.heappop(waiting)]
        log.append(name)
        starts = name == program.entry.name if forward else not successors_of[name]
        fact = analysis.boundary(program) if starts else analysis.initial(program)
        for source in sources[name]:
            incoming = (
                analysis.edge(blocks[source], name, outputs[source])
                if analysis.edge
                else outputs[source]
            )
            fact = analysis.merge(fact, incoming)
        inputs[name], old = fact, outputs[name]
        outputs[name] = analysis.transfer(blocks[name], fact)
        if outputs[name] != old:
            for reader in readers[name]:
                if place[reader] not in waiting:
                    heapq.heappush(waiting, place[reader])
    return (inputs, outputs, log) if forward else (outputs, inputs, log)
    ### END SOLUTION


# %%
check("day06.solver", solver)


# %% [markdown]
# What is live on each edge of a loop, as your solver finds it, and the order of its visits:

# %%
COUNT = parse("""
program count(n)
entry:
  i = const 0
  jump loop
loop:
  more = lt i n
  branch more body done
body:
  one = const 1
  i = add i one
  jump loop
done:
  return i
""")
try:
    before, after, visits = solver(COUNT, LIVENESS)
    print(" → ".join(visits))
    edges = {
        (block, target): before[target]
        for block, targets in successors(COUNT).items()
        for target in targets
    }
    display(flow(COUNT, Solution(before, after, edges), title="Your facts"))
except Exception:
    print("The picture needs an answer to question 1.")

# %% [markdown]
# ## 2 · Liveness
#
# A variable is **live** at a point if on some path from there its value is read before it is assigned again. Every read
# counts: of an operation, of a `print`, of a branch, of a return; also on paths that do not end, or that never assigned
# the variable a value. From here on you may call the library's `solve`, and write the analysis as data for it.
#
# | at the end of the block | the block | at its start |
# |---|---|---|
# | y | `y = neg x` | x, not y |
# | x | `x = add x n` | x and n |
# | – | `print x y` | x and y |
# | – | `branch c yes no` | c, and the variables that are live at the start of either |


# %%
def liveness(program: Program) -> dict[str, tuple[set[str], set[str]]]:
    """What is live where.

    In:  a program.
    Out: for each block, by name: the variables that are live at its start, and those
         that are live at its end, after the terminator has read what it reads.
    Not to be called: passlab.dataflow.analyses.live_before.

    Example:  `entry: y = neg x; return y` gives {"entry": ({"x"}, set())}.
    """

    ### BEGIN SOLUTION
    def transfer(block, after):
        live = set(after) | set(block.terminator.args)
        for line in reversed(block.instructions):
            # First the assignment, then the reads: before x = add x 1 the old x is
            # live.
            live.discard(line.dest)
            live.update(line.args)
        return frozenset(live)

    def nothing(program):
        return frozenset()

    solution = solve(
        program,
        Analysis("liveness", "backward", nothing, nothing, frozenset.union, transfer),
    )
    return {
        name: (solution.before[name], solution.after[name]) for name in solution.before
    }
    ### END SOLUTION


# %%
check("day06.liveness", liveness)

# %% [markdown]
# ## 3 · Constants, and branches not taken
#
# Which variables have the same value each time a block starts, and which blocks are unreachable? One analysis for both
# finds more than two in sequence: a branch that is never taken assigns nothing. The rules:
#
# | at | known afterwards |
# |---|---|
# | `x = const 3` | x is 3 |
# | an operation with known operands | x is `evaluate(op, values)`, which wraps to 32 bits |
# | an operation with an unknown operand, also `mul x zero` or `sub x x` | x is not known |
# | a block with several executable edges | the variables that all of them know, with the same value |
# | a branch with a known condition | the edge that it takes; the other one is not executable |
# | a parameter | not known |
#
# A condition is true if it is not 0. A line has `op`, `dest` ("" for a print), `args`, and a const its `value`; a
# terminator has `kind` ("jump", "branch", "return"), `args`, and `targets`, first the one for a condition that is true.


# %%
def constants(program: Program) -> dict[str, dict[str, int] | None]:
    """The constants at the starts of the blocks.

    In:  a program; its operations are those of `OPS`, and `const` and `print`.
    Out: for each block, by name: the variables that are known at its start with their
         values, or None if no run gets there. It is the most that the rules allow: a
         loop is not a reason to give up.
    Not to be called: passlab.dataflow.analyses.constants_after,
         passlab.dataflow.analyses.common_constants,
         passlab.dataflow.analyses.constants_on_edge.

    Example:  `entry: c = const 1; branch c yes no`, `yes: return c`,
              `no: return c` gives
              {"entry": {}, "yes": {"c": 1}, "no": None}.
    """

    ### BEGIN SOLUTION
    def merge(a, b):
        if a is None or b is None:  # what does not run has no say
            return b if a is None else a
        return {name: value for name, value in a.items() if b.get(name) == value}

    def transfer(block, before):
        if before is None:
            return None
        values = dict(before)
        for line in block.instructions:
            if line.op == "const":
                values[line.dest] = line.value
            elif line.op in OPS and all(arg in values for arg in line.args):
                values[line.dest] = evaluate(
                    line.op, [values[arg] for arg in line.args]
                )
            else:
                values.pop(line.dest, None)
        return values

    def edge(block, target, after):
        end = block.terminator
        if after is None or end.kind != "branch" or end.args[0] not in after:
            return after
        return after if target == end.targets[0 if after[end.args[0]] else 1] else None

    # To begin with None is the optimism: a loop's way back counts only once something
    # runs along it.
    analysis = Analysis(
        "constants", "forward", lambda p: {}, lambda p: None, merge, transfer, edge
    )
    return solve(program, analysis).before
    ### END SOLUTION


# %%
check("day06.constants", constants)

# %% [markdown]
# ## 4 · Equal values · stretch
#
# An operation is **redundant** if some variable holds its result already, on every path that leads there. Find such
# operations across the whole program. The operands need not be the same variables, only hold equal values:
#
# | it counts | because |
# |---|---|
# | `b = copy x`, then `add b y` after `add x y` | b and x are equal |
# | `add y x` after `add x y` | the operations in `COMMUTATIVE` do not care for the order |
# | `mul q y` after `mul p y`, where on one path p and q are both 1, and on the other both 2 | p and q are equal |
#
# | leave alone | because |
# |---|---|
# | `add x y` after `add x y`, with x assigned in between | it is another value |
# | `add x y` after `a = add x y` and then `a = neg y` | no variable holds it any more |
# | `add x y` behind a branch, computed on one side only | on the other path there is nothing |
#
# Find the equations between variables that hold on all paths: x equals y, x equals a constant, or x is op(y, …) of
# current values, with all consequences of replacing equals by equals. No arithmetic (x + 0, 2 · 3) is needed, and all
# branches may go either way. You may claim more; runs of the program decide whether the claims are true.


# %%
def gvn(program: Program) -> list[tuple[str, int, str]]:
    """The redundant operations.

    In:  a program; its operations are those of `OPS`, and `const` and `print`.
    Out: (block, number of the instruction in it, from 0, a variable that holds the
         result before the instruction), once for each redundant operation. A constant,
         a copy or a print is not an operation.
    Not to be called: passlab.dataflow.equations.redundant,
         passlab.dataflow.equations.equations_after_instruction,
         passlab.dataflow.equations.equations_after,
         passlab.dataflow.equations._closure.

    Example:  `entry: a = add x y; b = copy x; c = add y b; return c` gives [("entry",
              2, "a")].
    """

    ### BEGIN SOLUTION
    def transfer(block, before):
        for line in block.instructions if before is not None else ():
            before = assign(before, line)
        return before

    def merge(a, b):
        if a is None or b is None:
            return b if a is None else a
        return a & b  # both are complete, so no consequence is lost

    facts = solve(
        program,
        Analysis(
            "values", "forward", lambda p: frozenset(), lambda p: None, merge, transfer
        ),
    ).before
    claims = []
    for block in program.blocks:
        equations = facts[block.name]
        for i, line in enumerate(block.instructions if equations is not None else ()):
            holds = sorted(name for name, value in equations if value == computed(line))
            if holds and line.op in OPS and line.op != "copy":
                claims.append((block.name, i, holds[0]))
            equations = assign(equations, line)
    return claims


def computed(line):
    """Return the right side of an instruction, operands sorted if they commute."""
    if line.op == "const":
        return ("const", line.value)
    return (line.op, *(sorted(line.args) if line.op in COMMUTATIVE else line.args))


def assign(equations, line):
    """Return the equations after an instruction."""
    # The new value is called "" until the old one is forgotten: x = add x y reads the
    # old x. What a print gives stays without a name, and is forgotten at once.
    new = complete(equations | {("", computed(line))})
    survivors = [
        (name, value)
        for name, value in new
        if line.dest != name and line.dest not in value[1:]
    ]
    return frozenset(
        (name or line.dest, rename(value, "", line.dest)) for name, value in survivors
    )


def rename(value, old, new):
    """Return a right side with one variable in place of another."""
    op, *args = value
    if op == "const":
        return value
    args = [new if arg == old else arg for arg in args]
    return (op, *(sorted(args) if op in COMMUTATIVE else args))


def complete(equations):
    """Return the equations with all that follow from them."""
    while True:
        equal = {(name, value[1]) for name, value in equations if value[0] == "copy"}
        consequences = {(b, ("copy", a)) for a, b in equal}
        consequences |= {
            (a, value) for a, b in equal for name, value in equations if name == b
        }
        consequences |= {
            (name, rename(value, b, a)) for a, b in equal for name, value in equations
        }
        consequences |= {
            (a, ("copy", b))
            for a, value in equations
            for b, twin in equations
            if value == twin
        }
        if consequences <= equations:
            return equations
        equations = equations | consequences
    ### END SOLUTION


# %%
check("day06.gvn", gvn)

# %% [markdown]
# ## 5 · Ranges · stretch
#
# Each input of a graph has a lower and an upper bound. What are the bounds of every value? One range for each node, over
# all elements of its value; the graph is a straight line, so one pass finds it.
#
# | node | range |
# |---|---|
# | input | as given |
# | `get_attr` | the smallest and the largest number of the tensor |
# | `+`, `-`, `*`, `neg` | interval arithmetic; one operand may be a number |
# | `x * x`, both operands the same node | a square: never below 0 |
# | `relu`, `sigmoid`, `tanh`, `exp` | increasing: the images of both ends |
# | `nn.Linear` | each row of the weights by itself: sign by sign, plus its bias; then the smallest and largest row |
# | `softmax` | 0 … 1 |
# | `mean`, `reshape`, `transpose`, `flatten` | as the operand |
# | `sum` | the operand's, times the terms of one sum |
# | all others, and an `nn.Linear` of something infinite | (-∞, ∞), and on with the next node |
#
# Values are finite numbers, even if their range is not: 0 times any number is 0. Narrower ranges than the table's are
# right, too, if no input leaves them; a range with an infinite end stays as it is.
# `op_name(node, gm)` is "add", "relu" or "Linear"; `shape(node)` is its shape. No call has an option such as `alpha`.


# %%
def ranges(
    gm: fx.GraphModule, inputs: dict[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """The range of every value of a graph.

    In:  a graph with shapes, and for each input (by the name of its node) the least and
         greatest number in it.
    Out: for each node but the output, by its name, (low, high): floats, -math.inf and
         math.inf included.
    Not to be called: passlab.dataflow.ranges.ranges,
         passlab.dataflow.ranges._transfer,
         passlab.dataflow.ranges.TRANSFER, passlab.dataflow.ranges.MODULES,
         passlab.exercises.day06.ranges.bounds.

    Example:  relu(x * -2) with x in (-1.0, 3.0): x (-1.0, 3.0), mul (-6.0, 2.0),
              relu (0.0, 2.0).
    """
    ### BEGIN SOLUTION
    bounds = {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            bounds[node.name] = inputs[node.name]
        elif node.op == "get_attr":
            bounds[node.name] = (
                attribute(gm, node.target).min().item(),
                attribute(gm, node.target).max().item(),
            )
        elif node.op != "output":
            # A number is a range of one point; other arguments (a dim, a shape) are not
            # operands.
            ends = [
                bounds[a.name] if isinstance(a, fx.Node) else (a, a)
                for a in node.args
                if not isinstance(a, tuple)
            ]
            bounds[node.name] = transfer(gm, node, *ends[:2])
    return bounds


EVERYTHING = (-math.inf, math.inf)


def transfer(gm, node, first, second=(0, 0)):
    """Return the range of a node from those of its operands."""
    (a, b), (c, d), name = first, second, op_name(node, gm)
    if name == "sub":
        name, (c, d) = "add", (-d, -c)
    if name == "add":
        return a + c, b + d
    if name == "neg":
        return (-b, -a)
    if name == "mul":
        corners = [p * q if p and q else 0.0 for p in (a, b) for q in (c, d)]
        if (
            node.args[0] is node.args[1]
        ):  # then only two of the corners can happen, and the least may lie between
            return 0.0 if a < 0 < b else min(a * a, b * b), max(corners)
        return min(corners), max(corners)
    if name in ("relu", "sigmoid", "tanh", "exp"):
        return tuple(
            getattr(torch, name)(torch.tensor(first, dtype=torch.float64)).tolist()
        )
    if name == "Linear" and math.isfinite(a) and math.isfinite(b):
        layer = gm.get_submodule(node.target)
        weight, bias = (
            layer.weight.double(),
            0 if layer.bias is None else layer.bias.double(),
        )
        up, down = weight.clamp(min=0).sum(1), weight.clamp(max=0).sum(1)
        return (up * a + down * b + bias).min().item(), (
            up * b + down * a + bias
        ).max().item()
    if name == "softmax":
        return 0.0, 1.0
    if name == "sum":
        count = math.prod(shape(node.args[0])) / math.prod(shape(node))
        return count * a, count * b
    if name in ("mean", "reshape", "transpose", "flatten"):
        return a, b
    return EVERYTHING  # no row
    ### END SOLUTION


# %%
check("day06.ranges", ranges)

# %% [markdown]
# ## 6 · A safe float16 plan · stretch
#
# The largest float16 is 65504. Which calls of a graph may run in it, for all inputs within their ranges? You get the
# range of every value, as the table of question 5 gives it. To leave room for rounding, the limit is 60,000. A call is
# safe in float16 if none of these exceeds it in magnitude:
#
# - its result;
# - its operands, if they are nodes: they are converted to float16 first;
# - of an `nn.Linear`, its weights, and the sum of the magnitudes of all terms of an output, bias included: hardware may
#   add them up in float16, in any order;
# - of `sum` and `mean`, the sum, which the mean divides at the end.
#
# Every safe call runs in float16, also after calls that do not. If your plan is not safe, the judge searches for inputs
# on which it overflows, and shows them.


# %%
MOST = 60_000


def precision(gm: fx.GraphModule, ranges: dict[str, tuple[float, float]]) -> set[str]:
    """The calls of a graph that may run in float16.

    In:  a graph with shapes, and for each node but the output, by its name, the least
         and greatest number in it, which may be infinite.
    Out: names of `call_function`, `call_method` and `call_module` nodes.
    Not to be called: passlab.dataflow.precision.plan,
         passlab.exercises.day06.precision.reaches.

    Example:  tanh(x * 300 * x * 0.001) with x in (-30.0, 30.0): {"mul", "tanh"}.
              mul_1 reaches 270,000, mul_2 reads it, and tanh reads no more than 270.
    """
    ### BEGIN SOLUTION
    safe = set()
    for node in gm.graph.nodes:
        if node.op.startswith("call_"):
            most = largest(ranges[node.all_input_nodes[0].name])
            magnitudes = [
                largest(ranges[value.name]) for value in (node, *node.all_input_nodes)
            ]
            if max(magnitudes + on_the_way(gm, node, most)) <= MOST:
                safe.add(node.name)
    return safe


def largest(ends):
    return max(abs(end) for end in ends)


def on_the_way(gm, node, most):
    """The magnitudes that a node holds besides its operands, and that of its result.

    The first of its operands reaches `most`.
    """
    name = op_name(node, gm)
    if name in ("sum", "mean"):
        terms = math.prod(shape(node.all_input_nodes[0])) / math.prod(shape(node))
        return [terms * most]
    if name == "Linear":
        layer = gm.get_submodule(node.target)
        weight, bias = (
            layer.weight.double().abs(),
            0 if layer.bias is None else layer.bias.double().abs(),
        )
        return [weight.max().item(), (weight.sum(1) * most + bias).max().item()]
    return []
    ### END SOLUTION


# %%
check("day06.precision", precision)

# %% [markdown]
# ## 7 · Symbolic shapes · stretch
#
# The sizes of the inputs are names. What is the shape of every value, as formulas in these names, and for which sizes
# does the graph run? A name is a size of 2 or more. In the graphs of this exercise a formula that is broadcast is never
# 1, as `n // 2` would be for n = 2.
#
# | operation | shape | constraint |
# |---|---|---|
# | `+`, `-`, `*` | broadcast; an operand may be a number | sizes that meet are equal, or one of them is the number 1 |
# | `nn.Linear` | the last size becomes `out_features` | it was `in_features` |
# | `@` (matmul), two dimensions or more | rows of the first, columns of the second; what is before them is broadcast | inner sizes are equal |
# | `transpose(i, j)` | two sizes change places | |
# | `flatten(start)`, `flatten(start, end)` | sizes `start` to `end` become their product | |
# | `reshape(…)`, numbers, one may be -1 | -1 becomes what is left | what is left is a whole number; without -1 the products are equal |
# | `torch.cat([…], dim)` | the sizes at `dim` are added | the others are equal |
# | `F.max_pool2d(x, k)` | the last two sizes become `size // k` | they are at least `k` |
# | `relu`, `tanh`, `sigmoid` | as the operand | |
#
# A formula is a number, or text of names, numbers, `+ - * //` `%` and parentheses, of at most 400 characters; a
# constraint is two formulas with `==`, `>=`, `>`, `<=` or `<` between them. A constraint too many does no harm as long as
# it holds wherever the graph runs, at large sizes, too. All arguments are positional; a dimension may count from the end,
# as -1 does. `get_attr` nodes have the shape of their tensor: `attribute(gm, node.target).shape`.


# %%
def shapes(gm: fx.GraphModule, inputs: dict[str, list]) -> dict:
    """The shape of every value, and the constraints that the graph implies.

    In:  a graph, and for each input, by the name of its node, its sizes: a name (str)
         or a number (int) each.
    Out: {"shapes": {name of each node but the output: [formula, …]}, "constraints":
         [comparison, …]}
    Not to be called: passlab.dataflow.shapes.shapes, passlab.dataflow.shapes._Rules.

    Example:  torch.cat([x, y], 0) with x ["n", 4] and y ["m", "k"] gives
              {"shapes": {"x": ["n", 4], "y": ["m", "k"], "cat": ["n + m", 4]},
               "constraints": ["4 == k"]}.
    """
    ### BEGIN SOLUTION
    result, laws = {}, []

    def equal(a, b):
        if a != b:
            laws.append(f"{a} == {b}")
        return a

    def broadcast(x, y):
        long = max(len(x), len(y))
        pairs = zip(
            [1] * (long - len(x)) + x,
            [1] * (long - len(y)) + y,
            strict=True,
        )
        return [b if a == 1 else a if b == 1 else equal(a, b) for a, b in pairs]

    for node in gm.graph.nodes:
        args = fx.node.map_arg(node.args, lambda n: result[n.name])
        if node.op == "placeholder":
            result[node.name] = list(inputs[node.name])
        elif node.op == "get_attr":
            result[node.name] = list(attribute(gm, node.target).shape)
        elif node.op != "output":
            result[node.name] = rule(gm, node, args, equal, broadcast, laws)
    return {"shapes": result, "constraints": laws}


def times(sizes):
    """A product as a formula: a number where all sizes are numbers."""
    numbers = math.prod(size for size in sizes if isinstance(size, int))
    names = [f"({size})" for size in sizes if not isinstance(size, int)]
    return " * ".join([*names, str(numbers)]) if names else numbers


def plus(sizes):
    return " + ".join(str(size) for size in sizes)


def rule(gm, node, args, equal, broadcast, laws):
    """The shape of a node, from the shapes of its operands."""
    name, shape = op_name(node, gm), args[0]
    if name in ("add", "sub", "mul"):
        return broadcast(*([] if isinstance(a, int | float) else list(a) for a in args))
    if name == "Linear":
        layer = gm.get_submodule(node.target)
        equal(shape[-1], layer.in_features)
        return [*shape[:-1], layer.out_features]
    if name == "matmul":
        y = args[1]
        equal(shape[-1], y[-2])
        return [*broadcast(list(shape[:-2]), list(y[:-2])), shape[-2], y[-1]]
    if name == "transpose":
        shape, (_, i, j) = list(shape), args
        shape[i], shape[j] = shape[j], shape[i]
        return shape
    if name == "flatten":
        start, end = (i % len(shape) for i in (*args[1:], -1)[:2])
        return [*shape[:start], times(shape[start : end + 1]), *shape[end + 1 :]]
    if name == "reshape":
        product, total = (
            math.prod(size for size in args[1:] if size != -1),
            times(shape),
        )
        if -1 not in args:
            equal(total, product)
        else:
            laws.append(f"({total}) % {product} == 0")
        return [f"({total}) // {product}" if size == -1 else size for size in args[1:]]
    if name == "cat":
        parts, dim = args[0], args[1] % len(args[0][0])
        for part in parts[1:]:
            for k, (a, b) in enumerate(zip(parts[0], part, strict=True)):
                if k != dim:
                    equal(a, b)
        return [
            *parts[0][:dim],
            plus([part[dim] for part in parts]),
            *parts[0][dim + 1 :],
        ]
    if name == "max_pool2d":
        laws.extend(f"{size} >= {args[1]}" for size in shape[-2:])
        return [*shape[:-2], *(f"({size}) // {args[1]}" for size in shape[-2:])]
    return list(shape)
    ### END SOLUTION


# %%
check("day06.shapes", shapes)

# %% [markdown]
# ## 8 · Predict the run time · stretch
#
# Some networks have been measured on a machine, operator by operator. How long do the operators of another network take
# there? Each operator has a kind (`"conv"`, `"add"`, …), its arithmetic operations `flops`, the bytes that it moves
# `nbytes`, the numbers in its result `outputs`, and the products that are added for one of them `inner`.
#
# The operators are those of the zoo, and the machines do not exist: their times are computed from random constants, with
# noise of 3 %, so that they cannot be looked up. The model is realistic: each kind of operator has its own launch time,
# share of the peak and share of the bandwidth.
#
# - Networks that were not measured, with operators as large as the measured ones: the order must be right (Spearman's rank
#   correlation is at least 0.9), and half of the predictions are within 15 % of the time.
# - Operators that are larger than all measured ones: half of the predictions are within 35 %.
#
# Of every kind to predict, eight or more have been measured. NumPy, SciPy and scikit-learn are installed.


# %%
def predict(
    machine: dict[str, float], measured: list[dict], unseen: list[dict]
) -> list[float]:
    """The seconds of operators that were not measured.

    In:  the machine's "bandwidth" (bytes/s), "flops" (operations/s) and "launch" (s);
         measured operators, each with "kind", "flops", "nbytes", "outputs", "inner" and
         "seconds"; operators without "seconds".
    Out: a number of seconds, greater than 0, for each of `unseen`, in their order.
    Not to be called: passlab.dataflow.predict.fit.

    Example:  the roofline, which is not enough:
              [machine["launch"] + max(row["nbytes"] / machine["bandwidth"],
                                       row["flops"] / machine["flops"])
               for row in unseen]
    """
    ### BEGIN SOLUTION
    from scipy.optimize import nnls

    weights = {}
    for kind in {row["kind"] for row in unseen}:
        rows = [row for row in measured if row["kind"] == kind]
        # Divided by the time, all rows weigh the same, and the target is 1.
        work = np.array([[1, row["nbytes"], row["flops"]] for row in rows])
        work = work / np.array([[row["seconds"]] for row in rows])
        size = work.max(0)
        weights[kind] = nnls(work / size, np.ones(len(rows)))[0] / size
    return [
        float(weights[row["kind"]] @ [1, row["nbytes"], row["flops"]]) for row in unseen
    ]
    ### END SOLUTION


# %%
check("day06.predict", predict)

# %%
progress("day06")
