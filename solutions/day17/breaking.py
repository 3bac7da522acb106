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
# # Day 17 · Breaking compilers: exercises
#
# Six questions. The core is questions 1, 2 and 3, about 120 minutes; the rest, about 110 minutes, is stretch: harder, and
# for extra credit. Read the lesson first: [day17_breaking.ipynb](../../course/day17_breaking.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day17.oracle")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import copy
import re
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils._pytree import tree_flatten

from passlab import check, hint, progress
from passlab.given.day17.generate import program, read, store
from passlab.given.day17.oracle import widened
from passlab.given.day17.shrink import values_of

# %% [markdown]
# ## 1 · An oracle
#
# Two programs, before and after a pass, and inputs. Did the pass change what the program computes? Say `"same"`,
# `"different"` or `"cannot tell"`, by these rules, in this order. Each run works on copies of a program and of its
# inputs, made by one `copy.deepcopy` of both together: what shares memory must still share it.
#
# | rule | then |
# |---|---|
# | `before` raises an error, or one of the two draws random numbers (the state of torch's generator moves) | cannot tell |
# | `after` raises an error | different |
# | As they are, the *outcomes* have another nesting or number, or tensors of other shapes or types, or NaN or infinities at other places, or infinities of another sign | different |
# | With all floats widened to float64 (`widened(gm, inputs)`), one of them raises an error | cannot tell |
# | Widened, the outcomes have other shapes, or numbers that differ | different |
# | none of these | same |
#
# The outcome of a run is what the program returns (tensors and numbers in tuples, lists and dicts), and what its inputs
# hold afterwards. What it writes into parameters and buffers does not count. Numbers in a float tensor differ if they are
# further apart than one millionth of the largest finite magnitude in that tensor of `before`. Integers, truth values and
# plain numbers differ if they are not equal. NaN equals NaN, in tensors and as a plain number, and -0.0 equals 0.0.

# %%
wide, (number,) = widened(fx.symbolic_trace(nn.Linear(2, 1)), (torch.ones(2),))
wide(number)


# %%
def oracle(before: fx.GraphModule, after: fx.GraphModule, inputs: tuple) -> str:
    """Say whether two programs do the same on these inputs.

    In:  before, after: programs that take the same inputs. They may share parameters,
         inputs: a tuple of tensors, which may share memory with each other.
    Out: "same", "different" or "cannot tell", see above.
    Careful: programs may write into their inputs and parameters.

    Example:  (x * 1e6 + y) - x * 1e6 and y are the same: the difference is rounding.
    """

    ### BEGIN SOLUTION
    def run(gm, inputs):  # the outcome, None after an error; were random numbers drawn?
        state = torch.get_rng_state()
        try:
            with torch.no_grad():
                outcome = [gm.forward(*inputs), *inputs]
        except Exception:
            outcome = None
        return outcome, not torch.equal(torch.get_rng_state(), state)

    def alike(
        before, after, numbers
    ):  # compares the numbers, or all but finite numbers
        old, nesting = tree_flatten(before)
        new, other = tree_flatten(after)
        return nesting == other and all(
            tensors(a, b, numbers)
            if torch.is_tensor(a) and torch.is_tensor(b)
            else type(a) is type(b)
            and (a == b or (a != a and b != b) or not numbers)  # NaN != NaN
            for a, b in zip(old, new, strict=True)
        )

    def tensors(a, b, numbers):
        if a.shape != b.shape or not (numbers or a.dtype == b.dtype):
            return False
        if not a.is_floating_point():
            return not numbers or torch.equal(a, b)
        finite = a.isfinite()
        if not numbers:
            a, b = (x.masked_fill(x.isfinite(), 0) for x in (a, b))
            return torch.allclose(a, b, equal_nan=True)
        largest = a[finite].abs().max().item() if finite.any() else 0
        return torch.allclose(a, b.to(a.dtype), 0, 1e-6 * largest, equal_nan=True)

    outcomes = []
    for gm in (before, after):
        outcome, drawn = run(*copy.deepcopy((gm, inputs)))
        if drawn or (gm is before and outcome is None):
            return "cannot tell"
        outcomes.append(outcome)
    if outcomes[1] is None or not alike(*outcomes, numbers=False):
        return "different"
    wide = [run(*widened(gm, inputs))[0] for gm in (before, after)]
    if None in wide:
        return "cannot tell"
    return "same" if alike(*wide, numbers=True) else "different"
    ### END SOLUTION


# %%
check("day17.oracle", oracle)

# %% [markdown]
# ## 2 · Graphs that break passes
#
# Return graphs, each with inputs, that expose dozens of faulty passes. You are told only what the passes should be:
#
# | name | what a right pass does, with graphs of any kind |
# |---|---|
# | `"cse"` | of nodes that compute the same value it keeps one: functions, methods, layers, reads of parameters |
# | `"dce"` | removes nodes whose results are not used, unless they have effects |
# | `"simplify"` | replaces `x + 0`, `x - 0`, `x * 1`, `x / 1`, `-(-x)`, `abs(-x)`, `relu(relu(x))`, `x + (-y)`, `exp(log(x))`, `sqrt(x * x)` and two transposes of one value by something simpler, where that changes nothing |
#
# They overlook what day 3 and the lesson were about: keywords, dtypes (1 equals 1.0 in Python), layers of one class,
# random numbers, writes (through views, into parameters and layers' weights, by layers in training, before a `reshape`
# that copies), unusual numbers. An unsigned integer has no minus, `alpha=2` is not nothing, and a layer may have any
# name. A faulty `simplify` may have laws of its own: `x*0=0`, `x-x=0`, `x/x=1`, `(x+y)-y=x`, `relu(-x)=x`.
#
# `program(body, *inputs, training=False, **parts)` writes a graph down, and returns the pair of it and its inputs. In a
# body, `read(x, "w")` reads the parameter w (or `"act.weight"`) once more, by a node of its own, where x is any value;
# `store(x, index, value)` is `x[index] = value`.

# %%
program(lambda m, x: (x * m.w, m.act(x)), (2, 3), w=(3,), act=lambda: nn.ReLU())


# %%
def generate(name: str) -> list[tuple[fx.GraphModule, tuple]]:
    """Return graphs that expose as many faulty versions of a pass as can be.

    In:  name: "cse", "dce" or "simplify".
    Out: at most 50 pairs, each of a graph with at most 20 operations, and a tuple of
         tensors for its inputs, in their order, of at most 1,000 numbers together.
         Every graph runs on its inputs.
    What counts: a faulty pass is exposed by a graph if it raises, or makes a graph
         that is not valid, or one that returns something else on these inputs, leaves
         something else in inputs, parameters or buffers, or draws other random
         numbers. NaN equals NaN, and -0.0 equals 0.0. A graph of which a right pass
         makes another program, too, exposes nothing.
         `complete`: at least half of the faulty passes are exposed; `precise`: three
         quarters; `efficient`: all, or all but one.
    Not to be called: passlab.fx.generate.random_graph.

    Example:  the faulty CSE that merges x - y with y - x is exposed by
              program(lambda m, x, y: (x - y, y - x), (2, 3), (2, 3)).
    """
    ### BEGIN SOLUTION
    x = torch.tensor([[1.5, -2.0, 0.25], [3.0, -0.5, 2.0]])
    n, small = torch.arange(6).reshape(2, 3), torch.tensor([0, 1, 2], dtype=torch.uint8)
    odd = torch.tensor([0.0, torch.inf, -torch.inf, torch.nan, -3.0, 1e30])
    parts = {"first": lambda: nn.Linear(3, 3), "second": lambda: nn.Linear(3, 3)}
    parts |= {"norm": lambda: nn.BatchNorm1d(3), "drop": nn.Dropout, "training": True}

    def near(m, n):  # each is nearly another one
        products = n * 1, n * 1.0, n * True, n * 2, n * 1.5, n - 1, 1 - n
        limits = n.clamp(min=1), n.clamp(min=1.0), n.clamp(min=2), n.clamp(max=2)
        others = n.sum(0), n.sum(1), n.double(), n.to(torch.int32), n.unbind()[0]
        return products, limits, others, n.unbind()[1]

    def calls(m, x):
        layers = m.first, m.second, m.norm, m.norm, m.drop, m.drop
        draws = F.dropout(x, training=True), F.dropout(x, training=True)
        return [f(x) for f in (*layers, torch.rand_like, torch.rand_like)], draws

    def writes(m, x):
        memory, one, other = x * 1, x * 2, x * 2

        def reads():
            return (
                memory.view(-1) * 2,
                memory.t().reshape(-1),
                m.first(x),
                read(x, "w") + x,
            )

        before = reads()
        for written in (memory, one, read(x, "w"), read(x, "first.weight")):
            written.add_(1)
        return before, reads(), one, other

    effects = [
        lambda m, x: x.add_(1),
        lambda m, x: x.copy_(x * 3),
        lambda m, x: store(x, 0, 1.0),
        lambda m, x: torch.add(x, 1, out=x),
        lambda m, x: F.relu(x, inplace=True),
        lambda m, x: torch.rand_like(x),
        lambda m, x: F.dropout(x, training=True),
        lambda m, x: (m.norm(x), m.drop(x)),
    ]

    def unused(effect):
        def body(m, x, y):
            memory = x * 1
            effect(m, memory)
            return memory + 1, torch.rand_like(memory)

        return body

    def numbers(m, x):
        zeros = x + 0, x * 0, x - x, x / x, (x + 1e30) - 1e30
        return zeros, torch.exp(torch.log(x)), torch.sqrt(x * x), F.relu(-x), x + (-x)

    def forms(m, n, u, x, t):
        integers = n * 1.0, n + 0.0, abs(-u), n + (-u)
        options = torch.add(x, -x, alpha=2), torch.div(x, 1, rounding_mode="floor")
        named = m.neg(m.neg(x)), m.abs(-x)
        return integers, options, named, x * m.w, t.transpose(0, 1).transpose(0, 2)

    def late(m, x):
        memory = x * 2
        same = memory * 1
        return same, memory.add_(1)

    if name == "cse":
        graphs = [program(near, n), program(calls, x, **parts)]
        return [*graphs, program(writes, x, w=(3,), **parts)]
    if name == "dce":
        return [program(unused(effect), x, x, **parts) for effect in effects]
    parts = {"w": torch.ones(2, 3), "neg": nn.Tanh, "abs": nn.Tanh}
    return [
        program(numbers, odd),
        program(forms, n[0], small, x[0], (2, 2, 2), **parts),
        program(late, x),
    ]
    ### END SOLUTION


# %%
check("day17.generate", generate)

# %% [markdown]
# ## 3 · The smallest graph
#
# A compiler fails on a graph of forty operations. That is too large for a report: find a smallest one, with
# inputs, on which the compiler fails *for the same reason*. You cannot look into the compiler; `failure(gm, inputs)`
# compiles a graph, runs it on inputs, and returns the reason as text (`"fold changes the results"`), or `""` if all is
# well. The compiler has several faults: a smaller graph may well fail for another reason.
#
# The graphs call element-wise functions, `torch.transpose` and `torch.sum`; nothing is written in place and nothing is
# random. The lesson has edits that make a graph smaller. The one that matters most is to cut off: what a part of the graph
# reads from outside becomes a new input, and gets the value that it had. `values_of(gm, inputs)` returns a dictionary
# from nodes to their values. A fault may also depend on what reads a value: an output does.


# %%
def shrink(
    gm: fx.GraphModule, inputs: tuple, failure: Callable
) -> tuple[fx.GraphModule, tuple]:
    """Return a smallest graph that fails for the same reason, with its inputs.

    In:  gm: a graph of functions (call_function); it returns a tuple of nodes,
         inputs: a tuple of tensors, one for each input,
         failure: see above. It may be called 1,000 times. It raises ValueError for a
         graph that is not valid or does not run on the inputs.
    Out: a pair: a graph with the fewest operations (nodes that are called), and a tuple
         of tensors, one for each of its inputs. failure(*pair) is failure(gm, inputs).
         Each input is read. How many results it returns does not matter.
         `complete`: it has at most twice the fewest operations; `efficient`: no more
         than the fewest.
    Not to be called: passlab.equivalence.shrink, passlab.fx.shrink.shrink.
    """

    ### BEGIN SOLUTION
    values = values_of(gm, inputs)

    def part(nodes):  # what else they read is an input, and all are results
        graph, copies, given = fx.Graph(), {}, []
        for node in gm.graph.nodes:
            if node not in nodes and any(user in nodes for user in node.users):
                copies[node] = graph.placeholder(node.name)
                given.append(values[node])
        for node in nodes:
            copies[node] = graph.node_copy(node, lambda n: copies[n])
        graph.output(tuple(copies[node] for node in nodes))
        return fx.GraphModule(gm, graph), tuple(given)

    reason = failure(gm, inputs)
    nodes = [node for node in gm.graph.nodes if node.op == "call_function"]
    length, before = len(nodes), []
    while length > 1 or nodes != before:
        length, before = (length + 1) // 2, nodes
        for at in reversed(range(0, len(nodes), length)):
            rest = nodes[:at] + nodes[at + length :]
            if rest and failure(*part(rest)) == reason:
                nodes = rest
    return part(nodes)
    ### END SOLUTION


# %%
check("day17.shrink", shrink)

# %% [markdown]
# ## 4 · A law as an oracle · stretch
#
# Here is a compiler, and no second one to compare it with; there is no eager mode, either. So each program is written
# in other ways. The compiler compiles all of them, they run on the same inputs, and a result that differs from that of
# the first program exposes a fault. A faulty compiler is wrong in only one of these places, and is always wrong there:
#
# | operation (functions of torch) | where its results are wrong |
# |---|---|
# | `tanh(x)`, `sin(x)`, `cos(x)`, `abs(x)`, `relu(x)` | where x is negative; in another compiler, where x is positive |
# | `add(x, y)`, `sub(x, y)`, `mul(x, y)`, `maximum(x, y)` | where x, the first operand, is larger than y |
# | `sum(x, dim)`, `softmax(x, dim)` | the last entry along dim counts too much, or comes out too large |
# | `matmul(x, y)` | in the last row of the result |
# | two operations in a row, such as `exp` of `div` | everywhere, if the second reads the result of the first |
# | any operation | everywhere, if two or more nodes read its result |
#
# `dim` is one dimension, counted from the front or from the back, and may be a keyword; a sum may have the keyword
# `keepdim`. Operands of these operations are tensors. Other operations in a graph are right, as long as they are not in
# a row that is wrong and not read twice.


# %%
def variants(gm: fx.GraphModule) -> list[fx.GraphModule]:
    """Write a program in other ways, so that a faulty compiler gives itself away.

    In:  gm: a graph of the operations of the table and some others; its result is a
         tensor. gm.meta["inputs"] are example inputs.
    Out: 1 to 8 graphs with the inputs of gm, each of which computes what gm does, up
         to rounding, for all inputs of these shapes. They call functions and methods
         of tensors, and no modules.

    Example: for tanh(x) the list [-tanh(-x)].
    """

    ### BEGIN SOLUTION
    def flipped(f, x, dim, **how):
        return f(x.flip(dim), dim, **how)

    laws = {
        "tanh": lambda f, x: -f(-x),
        "sin": lambda f, x: -f(-x),
        "cos": lambda f, x: f(-x),
        "abs": lambda f, x: f(-x),
        "relu": lambda f, x: x + f(-x),
        "add": lambda f, x, y: f(y, x),
        "mul": lambda f, x, y: f(y, x),
        "maximum": lambda f, x, y: f(y, x),
        "sub": lambda f, x, y: -f(y, x),
        "matmul": lambda f, x, y: f(y.mT, x.mT).mT,
        "sum": flipped,
        "softmax": lambda f, x, dim: flipped(f, x, dim).flip(dim),
    }

    class Other(fx.Transformer):
        def call_function(self, target, args, kwargs):
            law = laws.get(
                target.__name__, lambda f, *args, **kwargs: f(*args, **kwargs)
            )
            return law(target, *args, **kwargs)

    class Apart(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return torch.neg(torch.neg(target(*args, **kwargs)))

    def again():
        graph = fx.Graph()
        inputs = {n: graph.node_copy(n) for n in gm.graph.find_nodes(op="placeholder")}

        def computed(node):
            return inputs[node] if node in inputs else graph.node_copy(node, computed)

        computed(gm.graph.output_node())
        return fx.GraphModule(gm, graph)

    return [Other(gm).transform(), Apart(gm).transform(), again()]
    ### END SOLUTION


# %%
check("day17.metamorphic", variants)

# %% [markdown]
# ## 5 · One class for each fault · stretch
#
# A search has left you many failures of one compiler. How many faults are they? You cannot run the compiler, but each
# failure records what the compiler computed. A failure is a dictionary:
#
# | key | what it is |
# |---|---|
# | `"graph"`, `"inputs"` | a graph of functions and methods of tensors, and a tuple of tensors, one for each input |
# | `"values"` | name of a node → the tensor that the compiler computed for it |
# | `"error"` | the message of the error that the compiler raised at the end, or "" |
#
# - The compiler runs the nodes in order, each by a *kernel*: its code for an operation and a type. `x + y`,
#   `torch.add(x, y)` and `x.add(y)` are the same operation; for results of `float32` and of `int64` (of a right
#   compiler) there are two kernels, whatever the types of the operands: a float plus an integer is a float.
#   The operations are add, sub, mul, maximum, neg, abs, tanh and sin. Their operands are nodes, and none has a keyword.
# - A node that has no value, though nodes after it have, was computed in one kernel with the node that reads it: there
#   is just one. Such a kernel is known by its operations, in order, and by the type of its last result.
# - The compiler rounds floats in its own way: that is not a fault. Integers are not rounded. In each failure there is
#   exactly one fault. All wrong values after it are its consequences, and so may be an error.
#
# | fault | is the same fault as |
# |---|---|
# | a kernel returns a wrong shape or type | any other wrong shape or type from the same kernel |
# | a kernel returns wrong values, of the right shape and type | any other wrong values from the same kernel |
# | the compiler raises an error, and no value is wrong | an error with the same message, whatever the kernel; names in quotes and numbers do not count |


# %%
def triage(failures: list[dict]) -> list[list[int]]:
    """Put failures that show the same fault into one class.

    In:  failures: dictionaries with graph, inputs, values and error, see above.
    Out: a list of classes: lists of places in failures. Each failure is in one class.

    Example: if 0 and 2 show the same fault, and 1 another one: [[0, 2], [1]].
    """

    ### BEGIN SOLUTION
    def call(node, values):
        first, *rest = fx.node.map_arg(node.args, values.__getitem__)
        if node.op == "call_method":
            return getattr(first, node.target)(*rest)
        return node.target(first, *rest)

    def signature(failure):
        inputs = failure["graph"].graph.find_nodes(op="placeholder")
        values = dict(zip(inputs, failure["inputs"], strict=True))
        kernels = {}
        for node in failure["graph"].graph.nodes:
            if node in values or node.op == "output":
                continue
            within = [kernels[n] for n in node.all_input_nodes if n in kernels]
            name = getattr(node.target, "__name__", node.target)
            kernel = (*sum(within, ()), name)
            try:
                right = call(node, values)
            except Exception:
                break  # the operands do not fit: here the compiler raised its error
            value = values[node] = failure["values"].get(node.name, right)
            slack = 1e-4 if right.is_floating_point() else 0
            if node.name not in failure["values"]:
                kernels[node] = kernel
            elif (value.shape, value.dtype) != (right.shape, right.dtype):
                return "form", kernel, right.dtype
            elif not torch.allclose(
                value, right, rtol=slack, atol=slack, equal_nan=True
            ):
                return "values", kernel, right.dtype
        return "error", re.sub(r"'[^']*'|\d+", "…", failure["error"])

    classes = {}
    for at, failure in enumerate(failures):
        classes.setdefault(signature(failure), []).append(at)
    return list(classes.values())
    ### END SOLUTION


# %%
check("day17.triage", triage)

# %% [markdown]
# ## 6 · A fault in torch · stretch
#
# Here are five passes of torch, as they are in the version that you have. Each has at least one fault: find it. The
# passes are the targets of `passlab.hunt`: `TARGETS["cse"].apply(gm, inputs)` runs one on a graph that it may change,
# and `TARGETS["cse"].promise` says what is promised.
#
# | target | the pass | operations of a small graph | `without` may have |
# |---|---|---|---|
# | `"cse"` | `torch.fx.passes.dialect.common.cse_pass.CSEPass` | 2 | some of add, mul, div, getitem |
# | `"operators"` | `torch.fx.experimental.normalize.NormalizeOperators` | 1 | one or two of add, sub, div |
# | `"const-fold"` | `torch.fx.experimental.const_fold.split_const_subgraphs` | 2 | item or getattr |
# | `"merge-matmul"` | `torch.fx.experimental.merge_matmul.merge_matmul` | 2 | nothing |
# | `"fuse"` | `torch.fx.experimental.optimization.fuse` | 3 | Linear or Conv2d |
#
# - A graph shows a fault if the pass raises an error, or if the graph after the pass raises one or returns something
#   else: another number of tensors, a shape, a type, or values that differ by more than rounding. It runs in evaluation
#   mode.
# - To tell a fault from rounding, all of it is done once more with all floats of inputs and parameters as `float64`. The
#   failure must be of the same kind: the same error, a form, or values.
# - The graph only computes: it writes into no tensor, draws no random numbers, and makes no tensor without values
#   (`torch.empty`), since no pass promises anything then. Any graph that keeps to this counts, whatever the fault.
# - Counted as operations are calls of functions, methods and modules: reading a parameter is not one, but
#   `w.dtype` is (getattr).


# %%
def find_fault(target: str, without: list[str]) -> tuple[fx.GraphModule, list]:
    """Find a small graph on which a pass of torch breaks its promise.

    In:  target: a name in the table,
         without: names of operations (of methods, of classes of modules) that the
         graph must not call, as "sub", "getitem" or "Linear".
    Out: (graph, inputs): a GraphModule and a list of tensors with at most 1,000
         numbers together, one for each input.

    Example: for a pass that makes x - y of torch.sub(y, x) a graph of this one call.
    """
    ### BEGIN SOLUTION
    x, whole = torch.randn(2, 4), torch.arange(8).view(2, 4)
    w, half = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.tensor(0.5))

    def norm(layer, batch_norm):
        batch_norm.running_mean += 1
        return {"layer": layer, "norm": batch_norm.eval()}

    linear = norm(nn.Linear(4, 4), nn.BatchNorm1d(4))
    conv = norm(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    image = torch.randn(1, 1, 2, 2)

    def once_more(m, x):
        return m.norm(m.layer(x)), m.layer(x)

    candidates = {
        "cse": [
            ({}, lambda m, x: (torch.add(x, 1), torch.add(x, 1.0)), [whole]),
            ({}, lambda m, x: (torch.sub(x, 1), torch.sub(x, 1.0)), [whole]),
        ],
        "operators": [
            ({}, lambda m, x: torch.sub(x, x, alpha=3), [x]),
            ({}, lambda m, x: torch.add(x, x, alpha=3), [x]),
            ({}, lambda m, x: torch.div(x, 0.3, rounding_mode="floor"), [x]),
        ],
        "const-fold": [
            ({"w": half}, lambda m, x: torch.mul(x, m.w.item()), [x]),
            ({"w": w}, lambda m, x: x.to(m.w.dtype), [x]),
        ],
        "merge-matmul": [
            (
                {},
                lambda m, x, y, z: (torch.matmul(x, z), torch.matmul(y, z)),
                [x, x[0], w.detach()],
            )
        ],
        "fuse": [(linear, once_more, [x]), (conv, once_more, [image])],
    }
    for parts, forward, inputs in candidates[target]:
        root = type("Root", (nn.Module,), {"forward": forward})()
        for name, part in parts.items():
            setattr(root, name, part)
        gm = fx.symbolic_trace(root)
        names = {type(module).__name__ for module in gm.modules()}
        for node in gm.graph.nodes:
            names.add(getattr(node.target, "__name__", node.target))
        if names.isdisjoint(without):
            return gm, inputs
    ### END SOLUTION


# %%
check("day17.hunt", find_fault)

# %%
progress("day17")
