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
# # Day 13 · torch.compile from inside: exercises
#
# Six questions. The core is questions 1, 2 and 3, about 120 minutes; the rest, about 150 minutes, is stretch: harder, and
# for extra credit. Read the lesson first: [day13_compile.ipynb](../../course/day13_compile.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day13.breaks")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import math
import operator
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import fx
from torch.fx.node import map_arg

from passlab import check, draw, hint, progress
from passlab.capture import capture
from passlab.fx.effects import effects, written
from passlab.given.day13.backend import elementwise, kernel
from passlab.given.day13.breaks import Statement, statements
from passlab.given.day13.decompose import LARGE, SMALL
from passlab.given.day13.functionalize import COMPUTES, VIEWS, aten, put_back
from passlab.given.day13.one_graph import If, While

# %%
progress("day13")

# %% [markdown]
# ## 1 · Where capture stops
#
# Dynamo goes through a function line by line, and knows of each value whether it is a tensor or a Python number. Here
# the function is given as statements, one operation each, with the number of its line. Some end the graph: a **break**.
# Python executes such a line, and Dynamo begins a new graph after it. `ALWAYS` and `OF_TENSORS` have the reasons; an
# operation of `OF_TENSORS` is a break only if its last operand is a tensor. (So `x[m]`, the operation `[]`, is one for
# a tensor `m`, and a row `x[0]` is an ordinary operation.) `closed` is a function under `torch.compiler.disable`. Only
# the last line returns.
#
# Everything else with a tensor among its operands, a comparison, too, is an operation of the graph and returns a tensor;
# but `dim` and `numel` return a number, and are not operations of a graph. `nonzero`, `x[m]` and `closed` return tensors,
# too, which Python computes. Between two breaks (and before the first, and after the last) there is a graph if there is
# at least one operation, whether its result is used or not.
#
# Dynamo computes with the numbers that it knows: those in the source, the argument `k`, a loop's counter, and what
# follows from them by the functions in `NUMBERS`. So it sees only one side of an `if` on such a number, and no break.
# Your answer does not know numbers that come from tensors, clocks or shapes; `taken` has the outcomes of conditions on
# them, and on tensors, by line. An `if` on such a number is not a break either.
#
# Loops are unrolled, turn by turn: no break. But if capture would stop *inside* a loop, in whichever turn, that is not a
# break: Dynamo gives up what it has captured since the last break (or the beginning), and the function is Python from
# there to its end, with no more breaks and graphs.

# %%
SOURCE = """\
def f(x, k):
    y = x.relu()
    b = k > 1
    if b:
        y = y * k
    s = y.sum()
    if s:
        print(s)
    return y
"""
for line in statements(SOURCE):
    print(line)

ALWAYS = {
    "item": "number",
    "nonzero": "size",
    "print": "builtin",
    "time.time": "foreign",
    "random.random": "foreign",
    "closed": "disabled",
    "graph_break": "asked",
}
OF_TENSORS = {
    "int": "number",
    "float": "number",
    "bool": "number",
    "[]": "size",
    "if": "branch",
}
NUMBERS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    ">": operator.gt,
    "<": operator.lt,
    "int": int,
    "float": float,
    "bool": bool,
}


# %%
def breaks(
    body: Sequence[Statement], arguments: dict, taken: dict[int, bool]
) -> tuple[list[tuple[int, str]], int]:
    """The breaks of a function, and the number of its graphs.

    In:  the statements of the function; its arguments by name, "tensor" or a number;
         line → outcome of the conditions that your answer cannot know.
    Out: the breaks that are met, as (line, reason), in any order; how many graphs
         there are.
    Not to be called: passlab.capture.Capture, passlab.capture.capture.

    Example: for SOURCE with k = 2, and taken = {7: True}:
             ([(7, "branch"), (8, "builtin")], 1)
    """
    ### BEGIN SOLUTION
    values = dict(arguments)  # "tensor", a number that is known, or None for another
    pairs, graphs, operations = [], 0, 0

    def walk(body, looped):
        """Whether capture goes on after these statements."""
        nonlocal graphs, operations
        for line in body:
            operands = [values[o] if isinstance(o, str) else o for o in line.operands]
            reason = ALWAYS.get(line.op)
            if operands and operands[-1] == "tensor":
                reason = OF_TENSORS.get(line.op, reason)
            if reason and looped:
                return False
            if reason:
                pairs.append((line.line, reason))
                graphs, operations = graphs + (operations > 0), 0
            if line.op == "if":
                known = operands[0] not in ("tensor", None)
                yes = operands[0] if known else taken[line.line]
                if not walk(line.body if yes else line.orelse, looped):
                    return False
            elif line.op == "for":
                for values[line.result] in range(operands[0]):
                    if not walk(line.body, True):
                        return False
            elif line.op == "closed" or reason == "size":
                values[line.result] = "tensor"
            elif reason or line.op in ("dim", "numel", "return"):
                values[line.result] = None
            elif "tensor" in operands:
                values[line.result], operations = "tensor", operations + 1
            elif None in operands:
                values[line.result] = None
            else:
                values[line.result] = NUMBERS[line.op](*operands)
        return True

    to_the_end = walk(body, False)
    return pairs, graphs + (to_the_end and operations > 0)
    ### END SOLUTION


# %%
check("day13.breaks", breaks)

# %% [markdown]
# Does Dynamo agree? A function of your own, with its breaks and its picture:


# %%
def sample(x, k):
    y = x.relu()
    print(end="")
    return y * k


program = capture(sample, torch.ones(3, 4), 2)
print(program, *program.breaks, sep="\n")
draw(program)

# %% [markdown]
# ## 2 · When it compiles again
#
# A function is called again and again, on a list of calls. It is captured as one graph, so each call compiles one graph
# or none. How many? What has been compiled once, with its guards, is a **version** of the function. The laws:
#
# - A call that a version serves compiles nothing: all guards of that version hold. Any version will do, not only the
#   newest. Otherwise a new version is compiled for it.
# - There are at most eight versions. If none of the eight serves a call, it runs as Python, and compiles nothing.
# - Guards are about the arguments that the function reads (`reads`), and about whether gradients are switched on.
# - A tensor has a guard on its dtype, on its number of dimensions, on whether it needs a gradient, and on each size: the
#   size is either *fixed*, then it must be equal, or a *symbol*, then it must be 2 or more.
# - A number has a guard on its type, `int` or `float`. Its value is fixed, or a symbol, then any value will do.
# - A flag (`True`, `False` or a text; the function has an `if` on it) has its value fixed.
# - In a new version, a size is a symbol if it *varies*: among this call and all before it, there are two in which it
#   differs. If the number of dimensions varies, all sizes of that tensor do. But the sizes 0 and 1 are always fixed. A
#   number is a symbol if it varies (2 and 2.0 are equal); that holds for 0 and 1, too.
#
# Nothing else has a guard here: all tensors are contiguous, are not views, and no tensor is passed twice.


# %%
def recompiles(reads: list[str], calls: list[tuple[dict, bool]]) -> list[int]:
    """The number of graphs that each call compiles.

    In:  the arguments that the function reads; the calls, each with its arguments by
         name, and whether gradients are switched on. A tensor is (dtype, shape, whether
         it needs a gradient); other arguments are an int, a float, a bool or a str. An
         argument is a tensor, a number, or a flag, in all calls.
    Out: for each call 0 or 1.
    Not to be called: passlab.capture.Capture, passlab.capture.capture.

    Example: for reads = ["x"] and two calls
             [({"x": ("float32", (3, 4), False), "k": 2}, True),
              ({"x": ("float32", (3, 4), False), "k": 5}, True)]
             [1, 0], since k is not read.
    """
    ### BEGIN SOLUTION
    versions, seen, counts = [], defaultdict(set), []

    def may_vary(place, number):
        return number > 1 or len(place) == 1  # all numbers, and sizes from 2 on

    for arguments, gradients in calls:
        kinds, numbers = [gradients], {}  # what is always fixed; what may be a symbol
        for name in reads:
            value = arguments[name]
            if isinstance(value, tuple):
                dtype, shape, gradient = value
                kinds.append((dtype, len(shape), gradient))
                numbers |= {(name, i): size for i, size in enumerate(shape)}
                seen[name].add(len(shape))
            elif type(value) in (int, float):
                kinds.append(type(value))
                numbers[(name,)] = value
            else:
                kinds.append(value)
        served = any(
            kinds == old
            and all(
                fixed[place] == number if place in fixed else may_vary(place, number)
                for place, number in numbers.items()
            )
            for old, fixed in versions
        )
        counts.append(int(not served and len(versions) < 8))
        fixed = {}
        for place, number in numbers.items():
            seen[place].add(number)
            varies = len(seen[place]) > 1 or len(seen[place[0]]) > 1
            if not (varies and may_vary(place, number)):
                fixed[place] = number
        if counts[-1]:
            versions.append((kinds, fixed))
    return counts
    ### END SOLUTION


# %%
check("day13.recompiles", recompiles)

# %% [markdown]
# Dynamo's own counts, of a function of yours:


# %%
def times(x, k):
    return x * k


program = capture(times, torch.ones(3, 4), 2)
program(torch.ones(5, 4), 2)
program(torch.ones(6, 4), 2)
print(program.counts)
draw(program)

# %% [markdown]
# ## 3 · A backend
#
# A backend gets the graph that Dynamo captured, and returns what runs in its place. Yours makes **kernels**, so that less
# is launched: `kernel(gm, nodes)` takes nodes out of a graph and puts one call in the place of the last of them, whose
# value is the result. `elementwise(node)` says which operations may be in a kernel: those that compute a tensor element
# by element. Arithmetic of sizes starts nothing and stays where it is.


# %%
def into_kernels(gm: fx.GraphModule) -> fx.GraphModule:
    """Combine element-wise operations into as few kernels as possible.

    In:  a graph from Dynamo. Sizes that vary are inputs of type torch.SymInt; an input
         may be written in place (`x.add_(1)`); a result may be an input, a view of
         one, or of another result. Two inputs may be the same tensor.
    Out: the graph, with kernels. It takes, returns and writes the same; what shared
         memory shares it, and nothing else does.
    A kernel: only nodes that are `elementwise`. Every value but that of the last is
         read in the kernel, by one node or by several, and nowhere else; returning a
         value is reading it, and so is writing into it. A single node may be left
         as it is.
    When: all of a kernel runs in the place of its last node. A node that reads
         memory which the program writes (`written(gm.graph)` is the set of the nodes
         with such memory) may not move past a write: a node with "writes" among its
         `effects`.
    As few as possible: no two kernels, or a kernel and an operation, could be one.
         Nothing is computed twice or left out.
    Not to be called: passlab.exercises.day13.backend.groups.

    Example:  a = x * 2;  x.add_(1);  b = a + x;  return relu(b)     becomes
              a = x * 2;  x.add_(1);  return kernel_0(a, x)
              a stays: behind the write, x * 2 would be another value.
    """
    ### BEGIN SOLUTION
    nodes = list(gm.graph.nodes)
    place = {node: at for at, node in enumerate(nodes)}
    memory = written(gm.graph)
    writes = [place[node] for node in nodes if "writes" in effects(node)]

    def may_move(node, last):
        reads = any(operand in memory for operand in node.all_input_nodes)
        between = any(place[node] < at < place[last] for at in writes)
        return not (reads and between)

    members = set()
    for last in reversed(nodes):
        if last in members or not elementwise(last):
            continue
        group = {last}
        # All readers of a node come after it: going back, they are decided before it.
        for node in reversed(nodes[: place[last]]):
            inside = elementwise(node) and node.users and set(node.users) <= group
            if inside and may_move(node, last):
                group.add(node)
        members |= group
        kernel(gm, group)
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("day13.backend", into_kernels)

# %% [markdown]
# It is a backend: torch.compile hands it every graph of a function.


# %%
def scaled(x, y):
    z = torch.relu(x * x.shape[0] + y)
    return torch.tanh(z) @ y.T


def mine_for_torch(gm, inputs):
    print(into_kernels(gm).graph)
    return gm


fast = torch.compile(scaled, backend=mine_for_torch, dynamic=True)
x, y = torch.randn(2, 5, 4)
torch.equal(fast(x, y), scaled(x, y))

# %% [markdown]
# ## 4 · Without writes · stretch
#
# A pass may do much more to a graph in which nothing is written. AOTAutograd makes one of every graph: a write becomes
# a new value, every read behind it reads that value, and at the end the new values of inputs are copied into them. The
# difficulty is views: a write into a row is also a write into the matrix, and into every other view of it.
#
# The operations are ATen's. `VIEWS` are those that return a view, `COMPUTES` has for each that writes the one that only
# computes. `put_back(graph, view, whole, part)` appends the value of `whole` with `part` in the place that `view` shows.


# %%
def functionalize(gm: fx.GraphModule) -> fx.GraphModule:
    """Replace all writes by new values, and copy these into the inputs at the end.

    In:  a graph of calls of ATen operations, with shapes and dtypes on its nodes
         (`node.meta["tensor_meta"]`). Operands are given by position, but for alpha.
         All that write are in COMPUTES: they write into their first operand, an input,
         a value of the graph's own, or a view of one of them, and return it. All views
         are by VIEWS. No two inputs share memory, and what a write reads does not
         overlap with what it writes.
    Out: a graph with the same inputs and results in which nothing is written; but for
         the last nodes before the output: `aten.copy_.default(input, value)`, one for
         each input into which the program has written, in any order.
    A value: is that of the moment. Before a write `x` has the old value, behind it the
         new one, and so have all views of x, also those made before it. What was
         computed from x before stays as it is.
    Form: a write changes neither the shape nor the dtype of what is written:
         x.mul_(y) keeps the dtype of x where x * y is in float64, and x.copy_(row)
         the shape of x. No call is given a dtype: the graph also runs on inputs of
         other floats than those in the notes.
    Results: have the values that they have when the program returns. Whether they
         share memory does not matter here.
    Not to be called: torch._functorch.eager_transforms.functionalize,
         torch._subclasses.functional_tensor.FunctionalTensorMode,
         passlab.capture.lowering.lower.

    Example:  row = select(x, 0, 1);  add_(row, y);  return x     becomes
              row = select(x, 0, 1);  new = add(row, y)
              x_1 = select_scatter(x, new, 0, 1);  copy_(x, x_1);  return x_1
    """
    ### BEGIN SOLUTION
    graph = fx.Graph()
    now = {}  # node that is no view → its value at present, in the new graph
    seen = {}  # view → the node that it looks into; a write returns a view of all of it

    def read(node):
        while node.target in COMPUTES:
            node = seen[node]
        if node not in seen:
            return now[node]
        return graph.call_function(node.target, (read(seen[node]), *node.args[1:]))

    def write(node, value):
        while node in seen:
            if node.target not in COMPUTES:
                value = put_back(graph, node, read(seen[node]), value)
            node = seen[node]
        now[node] = value

    inputs = {}
    for node in gm.graph.nodes:
        if node.op == "output":
            result = map_arg(node.args[0], read)
            for base, own in inputs.items():
                if now[base] is not own:
                    graph.call_function(aten.copy_.default, (own, now[base]))
            graph.output(result)
        elif node.target in VIEWS:
            seen[node] = node.args[0]
        elif node.target in COMPUTES:
            into, *others = map_arg(node.args, read)
            value = graph.call_function(
                COMPUTES[node.target], (into, *others), node.kwargs
            )
            # The new value in the form of the old one
            write(node.args[0], graph.call_function(aten.copy.default, (into, value)))
            seen[node] = node.args[0]
        else:
            now[node] = graph.node_copy(node, read)
            if node.op == "placeholder":
                inputs[node] = now[node]
    return fx.GraphModule(gm, graph)
    ### END SOLUTION


# %%
check("day13.functionalize", functionalize)

# %% [markdown]
# ## 5 · Into few operations · stretch
#
# A compiler need not know more than a thousand operations if a pass writes them in terms of a few. In real numbers that
# is school algebra. In float32, `log(1 + x)` is 0 for x = 1e-8, and `exp(x) / sum(exp(x))` is NaN for x = 1000.
#
# `fx.Proxy(node, tracer)` stands for a node's value: what you compute with it (`x * 2`, `torch.exp(x)`) is put into the
# graph, where `gm.graph.inserting_before` says. One tracer for all: `fx.proxy.GraphAppendingTracer(gm.graph)`.


# %%
def decompose(gm: fx.GraphModule) -> fx.GraphModule:
    """Write all operations in terms of a few, as accurate as they were.

    In:  a graph of calls of ATen operations on float32, with shapes on its nodes
         (`node.meta["tensor_meta"]`): those in LARGE, and small ones. LARGE are
             _softmax(x, dim, False), _log_softmax(x, dim, False), log1p(x), expm1(x),
             tanh(x), softplus(x) = log(1 + exp(x)), hypot(x, y) = sqrt(x² + y²), and
             var.correction(x, dims, correction=…, keepdim=…): the sum of the squared
             distances from the mean, by (number of elements - correction). Without
             them correction is 1, keepdim False.
    Out: the same function. All calls are of operations in SMALL, as functions,
         operators or methods, on tensors and numbers.
    Accurate: in float32 each element is at most 16 units of rounding off (a unit is
         1.2e-7 of it), or four times as far as torch's own operation. This holds near
         0, too, and where exp or a square overflows. (In var, no square does, and the
         mean is at most 2000 times the deviation.) Infinite inputs of log1p, expm1,
         tanh, softplus and hypot give what the limit is (hypot(inf, inf) = inf);
         log1p(-1) is -inf, and NaN stays NaN. No call is given a dtype.

    Example:  a = softmax(x, 1, False)     becomes
              m = amax(x, 1, True);  e = exp(x - m);  a = e / sum(e, 1, True)
    """
    ### BEGIN SOLUTION
    tracer = fx.proxy.GraphAppendingTracer(gm.graph)
    for node in list(gm.graph.nodes):
        if node.target in RULES:
            with gm.graph.inserting_before(node):
                operands = map_arg(node.args, lambda n: fx.Proxy(n, tracer))
                value = RULES[node.target](*operands, **node.kwargs)
            node.replace_all_uses_with(value.node)
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


def softmax(x, dim, _):
    e = torch.exp(x - torch.amax(x, dim, True))
    return e / torch.sum(e, dim, True)


def log_softmax(x, dim, _):
    x = x - torch.amax(x, dim, True)
    return x - torch.log(torch.sum(torch.exp(x), dim, True))


def log1p(x):
    # The error of 1 + x is the same above and below the fraction bar: it cancels.
    u = 1 + x
    corrected = torch.log(u) * (x / (u - 1))
    return torch.where((u == 1) | (u == INF), x, corrected)


def expm1(x):
    u = torch.exp(x)
    corrected = (u - 1) * (x / torch.log(u))
    corrected = torch.where(u == 1, x, corrected)
    # Where exp is 0 or infinite, log gives x back only if that is not infinite.
    return torch.where((u == 0) | (u == INF), u - 1, corrected)


def tanh(x):
    e = expm1(-2 * torch.abs(x))
    size = -e / (e + 2)
    return torch.where(x < 0, -size, size)


def softplus(x):
    return torch.where(x > 0, x, 0) + log1p(torch.exp(-torch.abs(x)))


def hypot(x, y):
    x, y = torch.abs(x), torch.abs(y)
    large, small = torch.maximum(x, y), torch.minimum(x, y)
    ratio = small / large
    value = large * torch.sqrt(1 + ratio * ratio)
    return torch.where((large == 0) | (large == INF), large, value)


def var(x, dims, correction=1, keepdim=False):
    shape = x.node.meta["tensor_meta"].shape
    number = math.prod(shape[dim] for dim in dims)
    deviation = x - torch.sum(x, dims, True) / number
    return torch.sum(deviation * deviation, dims, keepdim) / (number - correction)


INF = math.inf
RULES = {
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
    aten.log1p.default: log1p,
    aten.expm1.default: expm1,
    aten.tanh.default: tanh,
    aten.softplus.default: softplus,
    aten.hypot.default: hypot,
    aten.var.correction: var,
}
### END SOLUTION


# %%
check("day13.decompose", decompose)

# %% [markdown]
# ## 6 · One graph · stretch
#
# An `if` on a tensor breaks the graph. Where both branches may be computed, it need not: `torch.where(p, a, b)` chooses.
# But that is too late for a branch that divides by zero on the way. The value is right; the gradient is NaN, since the
# branch that was not taken gets a zero in the backward pass, and multiplies it by infinity. What helps is to choose
# twice: a gradient ends at a `where` that did not choose the value, even if it is NaN.


# %%
def one_graph(steps: list[If | While]) -> fx.GraphModule:
    """Write a function with control flow as one graph without.

    In:  steps, one after the other, from a state to the next. A state is a few tensors
         of float64, and all graphs of all steps take them in the same order and under
         the same names.
         - If(predicate, yes, no, safe): the next state is yes(*state) if
           predicate(*state), else no(*state).
         - While(predicate, body, most, safe): as long as predicate(*state), the state
           is body(*state). That is at most `most` times.
         A predicate returns one bool, a tensor; the others a tuple, the new state. The
         shapes stay. `safe` has a number for each tensor of the state: if all its
         elements are that number, yes, no and body are finite, and their gradients.
    Out: a graph with the tensors of the first state as inputs, under their names. It
         returns the last state, a tuple. It calls operations of torch and Python, no
         modules, and no `cond`.
    Equal: for every state, also where a branch that is not taken gives NaN or inf, or
         raises an error, as an index out of range does; with `safe` it raises none.
    Gradients, too: are those of the branches that are taken. What is not taken
         contributes 0, also where its gradient is NaN or inf.
    Size: each predicate and branch is in it once, those of a loop `most` times, and a
         few calls of `where` for each tensor: at most twice as many calls as that.

    Example:  If(x.sum() > 0, (log(x),), (-x,), safe=(1.0,))     becomes
              p = x.sum() > 0;  a = log(where(p, x, 1.0))
              b = -where(p, 1.0, x);  return (where(p, a, b),)
    """
    ### BEGIN SOLUTION
    graph = fx.Graph()

    def inline(part, values):
        places = part.graph.find_nodes(op="placeholder")
        return graph.graph_copy(part.graph, dict(zip(places, values, strict=True)))

    def choose(p, yes, no):
        pairs = zip(yes, no, strict=True)
        return [graph.call_function(torch.where, (p, a, b)) for a, b in pairs]

    names = [
        node.name for node in steps[0].predicate.graph.find_nodes(op="placeholder")
    ]
    state = [graph.placeholder(name) for name in names]
    for step in steps:
        if isinstance(step, If):
            p = inline(step.predicate, state)
            yes = inline(step.yes, choose(p, state, step.safe))
            no = inline(step.no, choose(p, step.safe, state))
            state = choose(p, yes, no)
        else:
            # Behind the last turn the predicate stays false: nothing changes any more.
            for _ in range(step.most):
                p = inline(step.predicate, state)
                turn = inline(step.body, choose(p, state, step.safe))
                state = choose(p, turn, state)
    graph.output(tuple(state))
    return fx.GraphModule({}, graph)
    ### END SOLUTION


# %%
check("day13.one-graph", one_graph)
