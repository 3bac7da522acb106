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
# # Day 1 · A model is a graph: exercises
#
# Seven questions. The core is questions 1, 3 and 5, about 80 minutes; the rest, about 165 minutes, is stretch: harder,
# and for extra credit. Read the lesson first: [day01_graphs.ipynb](../../course/day01_graphs.ipynb). An eighth one,
# about Relay, is in [relay.ipynb](relay.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day01.count-kinds")` opens a hint,
# three for each question. For each test case an answer has five seconds of computing time, unless its text says
# otherwise.

# %%
import ast
import logging
import operator
import warnings
from collections import Counter

import onnx
import torch
import torch.nn.functional as F
from torch import fx, nn

from passlab import check, draw, hint, models, progress, trace
from passlab.graph import KINDS

# It would report that torchvision is not installed
logging.getLogger("torch.onnx").setLevel(logging.ERROR)
# torch.export warns about its own code
warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")

# %%
progress("day01")

# %% [markdown]
# ## 1 · Count nodes by kind
#
# The first question about a graph: what does it contain? A network of which half the nodes are shape nodes gains from
# other passes than one of compute nodes only. In torch.fx a node calls a function, a method or a module, so the same
# operation has three forms; `node.op` and `node.target` tell which.

# %%
attention = models.ZOO["attention"]
draw(
    trace(attention.build(), *attention.inputs()),
    title="Attention: more shape nodes than compute nodes",
)

# %% [markdown]
# These are the kinds; the first that fits, from top to bottom, counts:
#
# - **data**: the opcodes placeholder, get_attr and output.
# - **memory**: whatever works in place: a function or method of torch whose name ends in `_` (not `and_` of Python's
#   `operator`), a keyword `inplace=True`, or a module with `inplace=True`; also `clone` and `contiguous`.
# - **shape**: `reshape` `view` `flatten` `unflatten` `transpose` `t` `permute` `expand` `squeeze` `unsqueeze` `cat`
#   `stack` `chunk` `split` `size` `getitem` `getattr`, as function or method, and the modules `nn.Flatten` and
#   `nn.Unflatten`. (Torch has more of them, such as `view_as` and `expand_as`; they do not occur in these graphs.)
# - **control**: `torch._assert`.
# - **compute**: everything else.


# %%
def count_kinds(gm: fx.GraphModule) -> dict[str, tuple[int, int]]:
    """Count the nodes of each kind, and the bytes of the values that they make.

    In:  a graph with shapes: `node.meta["tensor_meta"]` is a TensorMetadata (with
         .shape and .dtype) where the value is a tensor, a tuple of them where it is
         several, and not there where it is a number, as for `x.size(0)`.
    Out: a dict with all five KINDS as keys; each entry is (number of nodes, bytes of
         their values together). A number has no bytes here, and the output node counts
         as a node and has none either, for it makes no value.
         `gm.graph` stays as it is.
    Not to be called: passlab.graph.view.
    Time: 2 s of computing for each test case.

    Example: for `torch.relu(x)` with a float32 x of shape (2, 4):

        {"compute": (1, 32), "data": (2, 32), "shape": (0, 0), "control": (0, 0),
         "memory": (0, 0)}
    """
    ### BEGIN SOLUTION
    shapes = {
        "reshape", "view", "flatten", "unflatten", "transpose", "t", "permute",
        "expand", "squeeze", "unsqueeze",
    }  # fmt: skip
    shapes |= {"cat", "stack", "chunk", "split", "size", "getitem", "getattr"}

    def kind(node: fx.Node) -> str:
        if node.op in ("placeholder", "get_attr", "output"):
            return "data"
        if node.op == "call_module":
            module = gm.get_submodule(node.target)
            if getattr(module, "inplace", False):
                return "memory"
            return (
                "shape" if isinstance(module, nn.Flatten | nn.Unflatten) else "compute"
            )
        name = node.target if node.op == "call_method" else node.target.__name__
        # Python's operator.and_ ends in _ only because `and` is a keyword.
        named_so = (
            name.endswith("_") and getattr(node.target, "__module__", "") != "_operator"
        )
        if named_so or node.kwargs.get("inplace") or name in ("clone", "contiguous"):
            return "memory"
        return (
            "shape" if name in shapes else "control" if name == "_assert" else "compute"
        )

    def size(meta) -> int:
        if meta is None:
            return 0
        if not hasattr(meta, "dtype"):  # a TensorMetadata is a tuple too
            return sum(map(size, meta))
        return meta.shape.numel() * meta.dtype.itemsize

    counts = dict.fromkeys(KINDS, (0, 0))
    for node in gm.graph.nodes:
        nodes, size_of_kind = counts[kind(node)]
        new = 0 if node.op == "output" else size(node.meta.get("tensor_meta"))
        counts[kind(node)] = (nodes + 1, size_of_kind + new)
    return counts
    ### END SOLUTION


# %%
check("day01.count-kinds", count_kinds)

# %% [markdown]
# ## 2 · Find the residual edges · stretch
#
# `x + f(x)`: the value of `x` takes two paths, and both end in the same addition. The direct one is the residual edge.
# It makes deep networks trainable, at a price: `x` must stay in memory while `f` runs, and no pass may change the
# producer of `x` as if `f` were its only user. So a compiler has to find all of them, in any graph. The graph below has
# two, which are easy to see.


# %%
class TwoBlocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = x + torch.relu(self.first(x))
        return torch.add(self.second(y), other=y)


draw(trace(TwoBlocks().eval(), torch.randn(2, 4)), mark=("add", "add_1"))

# %% [markdown]
# A definition that a program can follow: an edge a → b is **residual** when
#
# - b is an addition: the function `operator.add`, `operator.iadd` or `torch.add`, or the method `add` or `add_`;
# - b uses the value of a;
# - a longer path leads from a to b as well, through at least one more node, and every node on it, a included, carries
#   tensors. (A node that carries a number, such as `x.size(0)`, has no `node.meta["tensor_meta"]`.)
#
# The definition is about the graph, not about intentions: `x + 0.04 * x**3` has a residual edge too. Three similar
# graphs have none: `x * sigmoid(x)`, `cat([x, f(x)])`, and `f(x) + g(x)`, where the paths fork and join without a
# direct edge.


# %%
def residual_edges(gm: fx.GraphModule) -> set[tuple[str, str]]:
    """Find the residual edges of a graph, as defined above.

    In:  a graph with shapes on its nodes. Operands may be keywords:
         `node.all_input_nodes` lists them all.
    Out: a set of pairs (name of a, name of b), one for each residual edge a → b; an
         empty set if there are none.
         Large graphs occur: a row of 60 diamonds has 2**60 paths, and a deep graph has
         1,200 nodes in a row, more than Python's recursion limit. On each of them at
         most 1,000,000 calls of functions written in Python are allowed.

    Example: for the graph drawn above, {("x", "add"), ("add", "add_1")}.
    """
    ### BEGIN SOLUTION
    additions = {operator.add, operator.iadd, torch.add, "add", "add_"}
    # Ancestors as sets: there may be far too many paths to follow each. a → node is
    # residual if a is also above another operand.
    above: dict[fx.Node, set[fx.Node]] = {}
    edges = set()
    for node in gm.graph.nodes:
        operands = [a for a in node.all_input_nodes if "tensor_meta" in a.meta]
        above[node] = set(operands).union(*(above[a] for a in operands))
        if node.op != "call_module" and node.target in additions:
            edges |= {
                (a.name, node.name)
                for a in operands
                if any(a in above[c] for c in operands)
            }
    return edges
    ### END SOLUTION


# %%
check("day01.residual-edges", residual_edges)

# %% [markdown]
# ## 3 · Depth, levels, and what may run in parallel
#
# With enough cores a graph takes as long as its longest chain. How long is that chain, and which nodes could run at the
# same time? In the network below `b` waits only for `x`.


# %%
class Branches(nn.Module):
    def forward(self, x):
        a = torch.relu(torch.tanh(x))
        b = torch.sigmoid(x)
        return a * b


draw(trace(Branches(), torch.randn(2, 4)))

# %% [markdown]
# A **working node** is any node except placeholders, get_attr and output. Its **level** is 0 when it reads no working
# node, else 1 + the largest level among the working nodes that it reads. The **depth** of the graph is its number of
# levels. Two working nodes **may run in parallel** when neither needs the other's result, directly or through other
# nodes. (These graphs have no in-place operations, so the edges determine everything.)


# %%
def levels(gm: fx.GraphModule) -> dict:
    """Find depth, levels, and the pairs of nodes that may run in parallel.

    In:  a graph. Unused nodes are working nodes like all others.
    Out: a dict with three entries:
         "depth": the number of levels;
         "levels": a list with one list of names for each level, level 0 first (the
             order within a level is free);
         "parallel": a set of pairs of names, each pair once: (a, b) or (b, a), and not
             both.
         The limits of exercise 2 hold here too: 1,000,000 function calls, 1,200 nodes
         in a row.

    Example: for the graph drawn above

        {"depth": 3,
         "levels": [["tanh", "sigmoid"], ["relu"], ["mul"]],
         "parallel": {("tanh", "sigmoid"), ("relu", "sigmoid")}}
    """
    ### BEGIN SOLUTION
    level: dict[fx.Node, int] = {}
    above: dict[fx.Node, set[fx.Node]] = {}
    pairs = set()
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "get_attr", "output"):
            continue
        operands = [a for a in node.all_input_nodes if a in level]
        pairs_above = set(operands).union(*(above[a] for a in operands))
        # In graph order no earlier node needs this one, so only those above it cannot
        # run beside it.
        pairs |= {
            (other.name, node.name) for other in level if other not in pairs_above
        }
        above[node] = pairs_above
        level[node] = 1 + max((level[a] for a in operands), default=-1)
    depth = 1 + max(level.values(), default=-1)
    rows = [[node.name for node in level if level[node] == n] for n in range(depth)]
    return {"depth": depth, "levels": rows, "parallel": pairs}
    ### END SOLUTION


# %%
check("day01.levels", levels)

# %% [markdown]
# ## 4 · Match FX nodes with ONNX nodes · stretch
#
# An exporter does not translate node by node. It merges operations that it can combine beforehand, splits those that
# the other IR has no operator for, and drops those without effect. To find a slow or wrong layer in an exported model,
# you have to map its nodes back. Here is a residual block, then the result of `torch.onnx.export`, and the names of its
# ONNX nodes.


# %%
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.act = (
            nn.Conv2d(3, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.SiLU(),
        )
        self.drop = nn.Dropout()

    def forward(self, x):
        return x + self.drop(self.act(self.norm(self.conv(x))))


image = torch.randn(1, 3, 8, 8)
draw(trace(Block().eval(), image))

# %%
exported = torch.onnx.export(Block().eval(), (image,), dynamo=True, verbose=False)
draw(exported)

# %%
[(node.name, node.op_type) for node in exported.model_proto.graph.node]

# %% [markdown]
# An operation of these blocks (all in eval mode) can become:
#
# | torch.fx | ONNX | word |
# |---|---|---|
# | `nn.Conv2d`, and `nn.BatchNorm2d` as its only reader | one Conv | merged, both |
# | the same, with batch norms kept | Conv, BatchNormalization | same, both |
# | `nn.BatchNorm2d` elsewhere | BatchNormalization | same |
# | `nn.Linear` on a 3-d tensor | MatMul, Add | split |
# | `nn.SiLU` | Sigmoid, Mul | split |
# | `nn.GELU` | Div, Erf, Add, Mul, Mul, or Gelu | split, or same |
# | `nn.Dropout`, `nn.Identity` | nothing | gone |
# | `nn.LayerNorm`, `nn.AdaptiveAvgPool2d(1)`, `nn.ReLU6` | LayerNormalization, GlobalAveragePool, Clip | same |
# | `torch.relu`, `F.relu`, `nn.ReLU`, `torch.sigmoid`, `nn.Sigmoid` | Relu, Sigmoid | same |
# | `operator.add`, `torch.add`, `operator.mul` | Add, Mul | same |
#
# Do not trust names, since exporters rename and reorder; trust only the edges. Operands keep their order, except
# that a bias may come first. Weights are in `model.graph.initializer`, by name.


# %%
def match_onnx(
    gm: fx.GraphModule, model: onnx.ModelProto
) -> dict[str, tuple[str, list[str]]]:
    """Find what became of each operation of an FX graph in ONNX.

    In:  a residual block as an FX graph with one input and one output, and the ONNX
         model exported from it.
         `model.graph.node` is a list of nodes with .name, .op_type, .input and .output,
         the last two lists of names of values; `model.graph.input`, `.output` and
         `.initializer` are lists of things with a .name.
    Out: a dict from the name of each FX node, but placeholders and output, to (word,
         names of ONNX nodes):
         ("same", [one name]): one ONNX node does its work, and no other FX node's;
         ("merged", [one name]): one ONNX node does its work and that of another FX
             node, which has the same entry;
         ("split", [several names]): several ONNX nodes share its work, each of them
             once, in any order;
         ("gone", []): nothing is left of it.

    Example: for the block drawn above and the ONNX graph below it, with your exporter's
             names

        {"conv": ("merged", ["node_Conv_9"]), "norm": ("merged", ["node_Conv_9"]),
         "act": ("split", ["node_Sigmoid_8", "node_silu"]), "drop": ("gone", []),
         "add": ("same", ["node_add"])}
    """
    ### BEGIN SOLUTION
    split = {
        nn.Linear: ["MatMul", "Add"],
        nn.SiLU: ["Sigmoid", "Mul"],
        nn.GELU: ["Div", "Erf", "Add", "Mul", "Mul"],
    }
    weights = {weight.name for weight in model.graph.initializer}
    maker = {name: node for node in model.graph.node for name in node.output}
    *_, output = gm.graph.nodes
    # FX node → the ONNX value that it corresponds to
    value = {output.args[0]: model.graph.output[0].name}
    entries: dict[str, tuple[str, list[str]]] = {}

    def collect(name: str, expected: list[str]) -> tuple[list[str], list[str]]:
        """The ONNX nodes behind a value, the last first, and their other inputs.

        They have the expected types.
        """
        left, nodes, values = Counter(expected), [], [name]
        for node in reversed(model.graph.node):
            if node.output[0] in values and left[node.op_type]:
                left[node.op_type] -= 1
                nodes.append(node.name)
                values += [i for i in node.input if i not in weights]
        return nodes, [
            v for v in values if v not in maker or maker[v].name not in nodes
        ]

    # From the output back: there it is known which values correspond, and each match
    # gives those of its operands.
    for node in reversed(gm.graph.nodes):
        if node.op in ("placeholder", "output") or node.name in entries:
            continue
        called = (
            type(gm.get_submodule(node.target)) if node.op == "call_module" else None
        )
        top = maker.get(value[node])
        operand = node.all_input_nodes[0]
        if called in (nn.Dropout, nn.Identity):
            entries[node.name], value[operand] = ("gone", []), value[node]
        elif called is nn.BatchNorm2d and top.op_type == "Conv":
            entries[node.name] = entries[operand.name] = ("merged", [top.name])
            value[operand.all_input_nodes[0]] = top.input[0]
        else:
            types = split.get(called, [])
            nodes, reads = collect(
                value[node], types if top.op_type in types else [top.op_type]
            )
            entries[node.name] = ("same" if len(nodes) == 1 else "split", nodes)
            operands = [a for a in node.args if isinstance(a, fx.Node)]
            value.update(zip(operands, reads, strict=False))
    return entries
    ### END SOLUTION


# %%
check("day01.match-onnx", match_onnx)

# %% [markdown]
# ## 5 · Swap ReLU for LeakyReLU
#
# This is the first exercise that changes a graph. A ReLU unit whose input is always negative never learns again;
# LeakyReLU passes a fraction of it (Maas, Hannun, Ng, Rectifier Nonlinearities Improve Neural Network Acoustic Models,
# ICML 2013). Swapping one for the other in a finished model sounds like search and replace. The picture shows three
# ReLUs, and two nodes that only look like one.


# %%
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.relu = nn.ReLU(), nn.Tanh()

    def forward(self, x):
        return self.act(x) + F.relu(x) + x.relu() + self.relu(x) + F.relu6(x)


draw(trace(Mixed(), torch.randn(2, 4)), mark=("act", "relu", "relu_1"))

# %% [markdown]
# A ReLU is one of these and nothing else:
#
# | form | which |
# |---|---|
# | function | `torch.relu`, `F.relu`, and in place: `torch.relu_`, `F.relu` with `inplace=True` |
# | method | `relu`, and in place: `relu_` |
# | module | `nn.ReLU` itself (no subclass), in place or not |


# %%
def swap_relu(gm: fx.GraphModule, slope: float) -> fx.GraphModule:
    """Replace every ReLU by a LeakyReLU with the given negative slope.

    In:  a graph, and the slope for negative values: LeakyReLU(x) is x where x > 0, else
         slope * x.
    Out: the graph, edited or a new one, in which every ReLU in any of the forms above
         is a LeakyReLU, one node for one. A ReLU that works in place becomes a
         LeakyReLU that works in place: others may read the overwritten tensor.
         A module that is called twice leaks at both calls. All other nodes are as
         before, whatever their names, and whatever is inside the modules that they
         call.

    Example: the graph of `F.relu(x, inplace=True)` becomes that of
             `F.leaky_relu(x, slope, inplace=True)`.
    """
    ### BEGIN SOLUTION
    for node in gm.graph.nodes:
        if (
            node.op == "call_module"
            and type(module := gm.get_submodule(node.target)) is nn.ReLU
        ):
            inplace = module.inplace
        elif node.op == "call_method" and node.target in ("relu", "relu_"):
            inplace = node.target == "relu_"
        elif node.target in (torch.relu, torch.relu_, F.relu):
            inplace = node.target is torch.relu_ or node.kwargs.get(
                "inplace", (*node.args, False, False)[1]
            )
        else:
            continue
        # Always a function, so that a module that is called twice needs no second
        # module, and no free name.
        x = node.args[0] if node.args else node.kwargs["input"]
        with gm.graph.inserting_before(node):
            leaky = gm.graph.call_function(F.leaky_relu, (x, slope, bool(inplace)))
        node.replace_all_uses_with(leaky)
        gm.graph.erase_node(node)
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("day01.swap-relu", swap_relu)

# %% [markdown]
# ## 6 · Shapes and dtypes without data · stretch
#
# A compiler needs shapes and dtypes for every plan: memory, tiles, layouts. To find them by running the model would be
# cheating, and slow for a model of 64 GiB. Tensors on the `meta` device have a shape, a dtype and no elements, and
# torch's operations work on them.

# %%
a, b = (
    torch.empty(100_000, 200_000, device="meta"),
    torch.empty(200_000, 3, dtype=torch.float32, device="meta"),
)
print(
    (a @ b).shape,
    (a > 0).dtype,
    (torch.empty(4, dtype=torch.int64, device="meta") / 2).dtype,
)

# %% [markdown]
# Your propagation supports these operations and no others. At any other operation it must not guess: it stops and names
# the node. It does the same where shapes do not fit, since torch's own message does not name the node.

# %%
FUNCTIONS = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.matmul,
    operator.gt, operator.getitem, torch.relu, torch.matmul, torch.cat, torch.flatten,
    F.relu,
}  # fmt: skip
METHODS = {
    "relu", "view", "reshape", "transpose", "flatten", "chunk", "size", "sum", "mean",
    "argmax", "to", "float",
}  # fmt: skip
MODULES = {
    nn.Linear,
    nn.Conv2d,
    nn.BatchNorm2d,
    nn.MaxPool2d,
    nn.ReLU,
    nn.Embedding,
    nn.LayerNorm,
}


# %%
def propagate(
    gm: fx.GraphModule, *inputs: torch.Tensor
) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Find shape and dtype of every tensor in a graph, without any data.

    In:  a graph without shapes, in eval mode, and one meta tensor for each placeholder,
         in order. Weights may be real tensors or meta tensors.
    Out: a dict from node name to (shape, dtype) for every node whose value is a tensor.
         The output node, and nodes that make a number (size) or several tensors
         (chunk), have no entry.
    Raises an error whose text contains the node's name, at the first node that calls
         something outside FUNCTIONS, METHODS and MODULES (where the type itself is
         meant, not a subclass), or whose operands do not fit.
    No operation may run on real elements; moving a weight to the meta device is fine.

    Example: for `torch.relu(x) / 2` with an int64 x of shape (2, 3):

        {"x": ((2, 3), torch.int64), "relu": ((2, 3), torch.int64),
         "truediv": ((2, 3), torch.float32)}
    """
    ### BEGIN SOLUTION
    values, waiting = {}, iter(inputs)

    def value_of(node: fx.Node):
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "placeholder":
            return next(waiting)
        if node.op == "get_attr":
            return operator.attrgetter(node.target)(gm).to("meta")
        if node.target in FUNCTIONS:
            return node.target(*args, **kwargs)
        if node.op == "call_method" and node.target in METHODS:
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        if (
            node.op == "call_module"
            and type(module := gm.get_submodule(node.target)) in MODULES
        ):
            # Copies on meta take the place of the weights for this call; the model
            # keeps its own.
            weights = {
                name: tensor.to("meta") for name, tensor in module.state_dict().items()
            }
            return torch.func.functional_call(module, weights, args, kwargs)
        raise TypeError(f"there is no rule for {node.format_node()}")

    for node in gm.graph.nodes:
        if node.op == "output":
            break
        try:
            values[node] = value_of(node)
        except Exception as error:
            raise ValueError(f"At node {node.name}: {error}") from error
    tensors = {
        node: value for node, value in values.items() if isinstance(value, torch.Tensor)
    }
    return {
        node.name: (tuple(value.shape), value.dtype) for node, value in tensors.items()
    }
    ### END SOLUTION


# %%
check("day01.propagate", propagate)

# %% [markdown]
# ## 7 · Straight-line Python to SSA · stretch
#
# Every graph so far had a new name for every value, although the Python code did not. Tracing renames values as a side
# effect; a compiler that reads source code needs a pass for it, and for straight-line code it is a short one. Watch
# torch.fx do it: three different `x` in the code, three nodes in the picture.


# %%
class Reuse(nn.Module):
    def forward(self, x, y):
        x = x + y
        x, y = y, x * 2
        x -= y
        return x


draw(trace(Reuse(), torch.randn(2), torch.randn(2)))

# %% [markdown]
# Your pass works on the source text. The language: one assignment in a line, `name = expression`, `a, b = …` (also
# nested, also `a = b = …`), or augmented, `name op= expression`; expressions of names, numbers, strings, tuples, `+ - *
# / // %`, calls with keywords, fields (`box.x`) and subscripts (`row[0]`). Values are numbers, which cannot be changed
# in place. A name that is read before it is assigned is an input from outside; so are functions.


# %%
def to_ssa(source: str) -> tuple[str, dict[str, str]]:
    """Rename a straight-line program so that each name is assigned exactly once.

    In:  the text of a program in the language above.
    Out: the text of the renamed program, and a dict from every name that the original
         assigns to the new name that holds its value at the end.
         Each assignment in the original gives exactly one new name; the choice of names
         is free. A name that comes in from outside keeps its name, and nothing is
         assigned to it. There are no augmented assignments left, for they read and
         write one name, and no copies are added, such as `b_1 = a_1` for `a = b = 2`.
         Nothing but names of variables changes; how the text is spaced and quoted does
         not matter (`ast.unparse` is welcome).

    Example: to_ssa("x = x + 1\\ny = x\\nx *= y - 1\\n") may give

        ("x_1 = x + 1\\ny_1 = x_1\\nx_2 = x_1 * (y_1 - 1)\\n", {"x": "x_2", "y": "y_1"})
    """
    ### BEGIN SOLUTION
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    last: dict[str, str] = {}

    class Read(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.Name(last.get(node.id, node.id), ast.Load())

    class Write(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            number = 1
            while (new := f"{node.id}_{number}") in names:
                number += 1
            names.add(new)
            last[node.id] = new
            return ast.Name(new, ast.Store())

    lines = []
    for statement in tree.body:
        targets, value = getattr(statement, "targets", None), statement.value
        if isinstance(statement, ast.AugAssign):
            targets = [statement.target]
            value = ast.BinOp(
                ast.Name(statement.target.id, ast.Load()), statement.op, value
            )
        # Before the targets get new names: `x = x + 1` reads the old x
        value = Read().visit(value)
        renamed = ast.Assign([Write().visit(target) for target in targets], value)
        lines.append(ast.unparse(ast.fix_missing_locations(renamed)) + "\n")
    return "".join(lines), last
    ### END SOLUTION


# %%
check("day01.to-ssa", to_ssa)

# %% [markdown]
# ## How far you are
#
# You have now read graphs, compared them across IRs, rewritten one, and made one from text. Day 2 is about the
# rewriting: what a pass is, and how to prove that it preserves the function.

# %%
progress("day01")
