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
# # Day 2 · Writing a pass: exercises
#
# Seven questions. The core is question 2 and the plain cases of 3, 4 and 5, about 105 minutes; the rest, about 170
# minutes, is stretch: harder, and for extra credit. The text of a question says what its plain cases are: first make it
# work for those, then make it unbreakable. Read the lesson first: [day02_passes.ipynb](../../course/day02_passes.ipynb).
# An eighth question, in Relax, is in [relax.ipynb](relax.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day02.visitor")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import copy
import inspect
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from IPython.display import display
from torch import Tensor, fx, nn
from torch.nn import functional as F

from passlab import check, diff, draw, hint, models, progress, trace
from passlab.exercises import find
from passlab.fx.manager import Analysis, Pass, PassError
from passlab.fx.ops import ConvReLU2d, conv2d_relu
from passlab.fx.suspects import SUSPECTS

# %%
progress("day02")

# %% [markdown]
# ## 1 · A post-order visitor · stretch
#
# An analysis needs the results for the operands before it can handle a node. torch.fx keeps its node list in such an
# order; most IRs have only the edges. So here the walk starts at a root and follows operands. Any order in which
# operands come before users is correct.
#
# First versions often make three mistakes: a node that is used twice is visited twice (and its operands four times), a
# deep network hits Python's recursion limit, and unused nodes are visited too.


# %%
def visit(root: fx.Node, callbacks: dict[Any, Callable]) -> Any:
    """Call back once for every node that `root` depends on, operands before users.

    Return the result of `root`.

    In:  `root`, and a callback for each kind of node. A node that calls something
         (`node.op` is call_function, call_method or call_module) has the callback under
         `node.target`; if there is none, or for another node, it has the one under
         `node.op`. Use `node.all_input_nodes` for the operands.
    Out: every callback gets `callback(node, *results)`, where `results` are what the
         callbacks of the operands returned, in their order (None is a result like any
         other). A node without a callback gives None, and its operands are visited all
         the same.
         No node is visited twice, and none that `root` does not depend on. Graphs may
         be 100,000 nodes deep; the recursion limit stays as it is. The order of
         `graph.nodes` says nothing: a pass may be at work on the graph.

    Example: how deep is a node? For `relu(x) + x` this gives 2.

        visit(node, {"placeholder": lambda n: 0,
                     "call_function": lambda n, *depths: 1 + max(depths)})
    """
    ### BEGIN SOLUTION
    results, stack = {}, [root]
    while stack:
        node = stack[-1]
        waiting = [
            operand for operand in node.all_input_nodes if operand not in results
        ]
        # The node stays on the stack, below its operands, and is looked at again when
        # they have results.
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if node in results:  # it was put on the stack by several users
            continue
        callback = callbacks.get(node.target) if node.op.startswith("call_") else None
        callback = callback or callbacks.get(node.op)
        results[node] = (
            callback(node, *(results[o] for o in node.all_input_nodes))
            if callback
            else None
        )
    return results[root]
    ### END SOLUTION


# %%
check("day02.visitor", visit)

# %% [markdown]
# With the visitor, a few callbacks make an analysis. These print the formula of the last node of a small network:

# %%
with suppress(Exception):  # shows nothing before `visit` is written
    *_, output = trace(models.ZOO["convnet"].build()).graph.nodes
    spell = {
        op: lambda n, x: f"{getattr(n.target, '__name__', n.target)}({x})"
        for op in ("call_function", "call_method")
    }
    spell |= {
        "call_module": lambda n, x: f"{n.target}({x})",
        "placeholder": lambda n: n.name,
        "output": lambda n, x: x,
    }
    print(visit(output, spell))

# %% [markdown]
# ## 2 · Fuse conv2d and relu
#
# A convolution followed by a ReLU writes its whole result to memory, only for the ReLU to read it back. Every compiler
# fuses the two. `passlab.fx.ops` has both fused forms, with the operands of the unfused ones:
#
# | in the graph | becomes |
# |---|---|
# | an `nn.Conv2d` module and a ReLU | a `ConvReLU2d` module, made as `nn.Conv2d` is: channels, kernel size, stride, … |
# | `F.conv2d(x, weight, …)` and a ReLU | `conv2d_relu(x, weight, …)` |
#
# Most of the work is to keep every attribute, and to leave other nodes alone.


# %%
def fuse_conv_relu(gm: fx.GraphModule) -> fx.GraphModule:
    """`relu(conv2d(x))` = `conv2d_relu(x)`, if nothing else uses the convolution.

    In:  a graph. A convolution is a module of type nn.Conv2d (exactly: subclasses
         compute other things) or a call of F.conv2d. A ReLU is a module of type nn.ReLU
         (exactly), torch.relu or F.relu, or the method .relu().
    Out: the graph in which each such pair is one node: a call of a ConvReLU2d module,
         or of conv2d_relu. It keeps stride, padding, dilation, groups, padding mode and
         bias, and shares the weights with the old module. A module may be called from
         several places: the other calls stay as they are. Something may write into x
         between the convolution and the ReLU, and the name that you want for the new
         module may be taken. You may edit gm and return it. The fused node says which
         nodes it stands for: its meta["from_node"] is [conv.name, relu.name].

    Example:  x → conv(stride=2) → relu → out
    becomes   x → ConvReLU2d(stride=2) → out,
    and       c = conv(x); relu(c) + c   stays: the sum needs c.
    """

    ### BEGIN SOLUTION
    def is_relu(node):
        if node.op == "call_module":
            return type(gm.get_submodule(node.target)) is nn.ReLU
        return (node.op, node.target) in {
            ("call_function", torch.relu),
            ("call_function", F.relu),
            ("call_method", "relu"),
        }

    def free_name(name):
        return name if not hasattr(gm, name) else free_name(f"{name}_")

    def fused_module(conv):
        shape = (
            conv.in_channels,
            conv.out_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            conv.dilation,
        )
        fused = ConvReLU2d(*shape, conv.groups, padding_mode=conv.padding_mode)
        fused.weight, fused.bias = conv.weight, conv.bias
        return fused

    for relu in gm.graph.nodes:
        if not is_relu(relu):
            continue
        (conv,) = relu.all_input_nodes
        # Another user needs the value before the relu, so the convolution would run
        # twice.
        if len(conv.users) != 1:
            continue
        with gm.graph.inserting_before(conv):  # behind it, x may be written
            if conv.target is F.conv2d:
                fused = gm.graph.call_function(conv2d_relu, conv.args, conv.kwargs)
            elif (
                conv.op == "call_module"
                and type(gm.get_submodule(conv.target)) is nn.Conv2d
            ):
                name = free_name(f"{conv.name}_relu")
                gm.add_submodule(name, fused_module(gm.get_submodule(conv.target)))
                fused = gm.graph.call_module(name, conv.args, conv.kwargs)
            else:
                continue
        fused.meta["from_node"] = [conv.name, relu.name]
        relu.replace_all_uses_with(fused)
        gm.graph.erase_node(relu)
        gm.graph.erase_node(conv)
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("day02.fuse-conv-relu", fuse_conv_relu)

# %% [markdown]
# Your pass on one step of a U-Net. A ReLU follows two of its convolutions, but not the third:

# %%
with suppress(Exception):  # shows nothing before `fuse_conv_relu` is written
    image = models.ZOO["skip"].inputs()
    net = trace(models.ZOO["skip"].build(), *image)
    display(
        diff(
            net,
            fuse_conv_relu(copy.deepcopy(net)),
            *image,
            title="conv2d and relu, fused",
        )
    )

# %% [markdown]
# ## 3 · Fold batch norm into the convolution · core and stretch
#
# In evaluation mode a batch norm multiplies each channel by a number and adds another one. A convolution is linear, so
# both numbers can be moved into its weights, which saves an operation. With running mean μ, running variance σ², and
# the batch norm's own weight γ and bias β,
#
# $$\frac{(W * x + b) - \mu}{\sqrt{\sigma^2 + \varepsilon}}\,\gamma + \beta \;=\; (sW) * x + (s(b - \mu) + \beta),
# \qquad s = \frac{\gamma}{\sqrt{\sigma^2 + \varepsilon}}$$
#
# Do not change the model that the graph was traced from. The graph shares its modules, so a pass that scales
# `conv.weight` in place ruins the model for its other users.


# %%
def fold_batchnorm(gm: fx.GraphModule) -> fx.GraphModule:
    """`bn(conv(x))` = `conv'(x)` with other weights, if the numbers of bn are fixed.

    In:  a graph. Only modules count, and only of exactly these types: nn.Conv2d, and
         behind it nn.BatchNorm2d. Of two batch norms in a row the second may stay.
    Out: the graph without the batch norms that can be folded. One can be if
         - it is not training (`bn.training`) and keeps running statistics,
         - nothing else uses the value of the convolution,
         - the module of the convolution is called by this node only, under any name.
         Convolutions with and without bias, batch norms with and without weight and
         bias (`affine=False`). Something may write into x between the two. The modules
         of gm are those of the original model: no tensor of theirs may change, neither
         in value nor in place.
    Not to be called: passlab.fx.rewrites.conv_bn_relu,
         passlab.capstone.reference.fold_batchnorm, passlab.fx.torch_passes.fuse,
         passlab.quantization.graphs.functional,
         torch.fx.experimental.optimization.fuse,
         torch._inductor.fx_passes.pre_grad.fuse_conv_bn.
    The core: the model is not training. A convolution has a bias, a batch norm weight,
         bias and statistics; each module is called once, and each value has one user.

    Example: weights w = 3 without bias, μ = 1, σ² + ε = 4, γ = 2, β = 5:
             the new convolution has w = 3, bias = 4.
    """
    ### BEGIN SOLUTION
    calls = [
        gm.get_submodule(node.target)
        for node in gm.graph.nodes
        if node.op == "call_module"
    ]

    def foldable(conv, bn):
        if conv.op != "call_module":
            return False
        module, norm = gm.get_submodule(conv.target), gm.get_submodule(bn.target)
        alone = len(conv.users) == 1 and calls.count(module) == 1
        pair = type(module) is nn.Conv2d and type(norm) is nn.BatchNorm2d
        return alone and pair and not norm.training and norm.running_mean is not None

    def folded(conv, bn):
        # scale · (w·x + b - mean) + shift is linear in x: scale goes into the weight,
        # the rest into the bias.
        scale = (bn.running_var + bn.eps).rsqrt() * (
            1 if bn.weight is None else bn.weight
        )
        shift = (0 if conv.bias is None else conv.bias) - bn.running_mean
        # A copy, because the graph shares its modules with the model.
        new = copy.deepcopy(conv)
        new.weight = nn.Parameter(conv.weight * scale.reshape(-1, 1, 1, 1))
        new.bias = nn.Parameter(shift * scale + (0 if bn.bias is None else bn.bias))
        return new

    for bn in gm.graph.nodes:
        conv = bn.all_input_nodes[0] if bn.op == "call_module" else None
        if conv is None or not foldable(conv, bn):
            continue
        name = f"{conv.name}_folded"
        while hasattr(gm, name):
            name += "_"
        with torch.no_grad():
            gm.add_submodule(
                name, folded(gm.get_submodule(conv.target), gm.get_submodule(bn.target))
            )
        with gm.graph.inserting_before(conv):
            new = gm.graph.call_module(name, conv.args, conv.kwargs)
        bn.replace_all_uses_with(new)
        gm.graph.erase_node(bn)
        gm.graph.erase_node(conv)
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("day02.fold-batchnorm-core", fold_batchnorm)

# %%
check("day02.fold-batchnorm", fold_batchnorm)

# %% [markdown]
# The two passes belong together: only after the batch norm is removed does the ReLU follow the convolution directly.

# %%
with suppress(Exception):  # shows nothing before both passes are written
    image = models.ZOO["convnet"].inputs()
    net = trace(models.ZOO["convnet"].build(), *image)
    both = fuse_conv_relu(fold_batchnorm(copy.deepcopy(net)))
    display(
        diff(net, both, *image, title="batch norm folded, then conv2d and relu fused")
    )

# %% [markdown]
# ## 4 · A pass manager that names the culprit · core and stretch
#
# With twenty passes in a row, a broken graph shows up far from the pass that broke it. A manager verifies the graph
# after every pass, and so it can name the culprit. It also provides the facts that passes need. It computes each fact
# once and keeps it until a pass runs that does not promise to preserve it.
#
# A pass is described by `passlab.fx.manager.Pass`:

# %%
print(inspect.getsource(Pass))


# %%
class PassManager:
    """Runs passes in order, checks the graph between them, and provides facts.

    `passes`: the passes, in the order in which they run.
    `analyses`: name → function from a graph to a fact.
    `verify(gm)`: None, or a sentence that says why gm is broken (it also takes what is
    not a graph, such as None).
    `history` holds, for the last run, a tuple (pass name, nodes before, nodes after)
    for each pass.
    """

    def __init__(
        self,
        passes: list[Pass],
        analyses: dict[str, Analysis],
        verify: Callable[[Any], str | None],
    ):
        self.passes, self.analyses, self.verify = passes, analyses, verify
        self.history: list[tuple[str, int, int]] = []

    def run(self, gm: fx.GraphModule) -> fx.GraphModule:
        """Run all passes on `gm`; return what the last one returned.

        Each pass is called as `p.run(gm, facts)` with what the pass before it returned.
        `facts` maps the names in `p.requires` (these and no others) to what the
        analyses say about *this* graph. An analysis runs only when a pass requires it,
        and not again while all passes since then have had it in their `preserves`.

        Raises PassError(culprit, reason), and runs no further pass, if
        - the order is wrong, before anything runs: a name in `p.after` is not among the
          passes before p. Culprit: p.name, and the reason holds the missing name.
        - `verify` finds gm broken before the first pass. Culprit: "input", reason: what
          verify says.
        - `verify` finds what a pass returned broken. Culprit: the pass, reason: what
          verify says.
        - a pass raises. Culprit: the pass, reason: holds the text of its error;
          `raise PassError(...) from error`.

        The core: passes require nothing, preserve nothing and may come in any order;
        the input or what a pass returns may be broken (None, say), but no pass raises.

        Example: passes [fuse, dce], and fuse leaves a use before its definition. Then
                 dce does not run: `PassError("fuse", "Node relu uses …")` is raised.
        """
        ### BEGIN SOLUTION
        seen: set[str] = set()
        for p in self.passes:
            for missing in set(p.after) - seen:
                raise PassError(p.name, f"it must come after {missing}")
            seen.add(p.name)
        self.history, facts = [], {}
        if broken := self.verify(gm):
            raise PassError("input", broken)
        for p in self.passes:
            # Counted before the pass runs: it may edit this very graph.
            before = len(gm.graph.nodes)
            for name in p.requires:
                if name not in facts:
                    facts[name] = self.analyses[name](gm)
            try:
                gm = p.run(gm, {name: facts[name] for name in p.requires})
            except Exception as error:
                raise PassError(
                    p.name, f"it raised {type(error).__name__}: {error}"
                ) from error
            if broken := self.verify(gm):
                raise PassError(p.name, broken)
            # What the pass does not promise to preserve may be false now.
            facts = {name: fact for name, fact in facts.items() if name in p.preserves}
            self.history.append((p.name, before, len(gm.graph.nodes)))
        return gm
        ### END SOLUTION


# %%
check("day02.pass-manager-core", PassManager)

# %%
check("day02.pass-manager", PassManager)

# %% [markdown]
# Your manager with your passes on ResNet-18. Swap the two and look again: the order decides what there is to fuse.

# %%
with suppress(
    Exception
):  # shows nothing before the manager and both passes are written
    manager = PassManager(
        [
            Pass("fold-batchnorm", lambda gm, facts: fold_batchnorm(gm)),
            Pass("fuse-conv-relu", lambda gm, facts: fuse_conv_relu(gm)),
        ],
        {},
        lambda gm: gm.graph.lint(),
    )
    manager.run(trace(models.resnet18()))
    for name, before, after in manager.history:
        print(f"{name:16} {before:3} → {after:3} nodes")

# %% [markdown]
# ## 5 · Are two programs the same function? · core and stretch
#
# Every check in this course asks this question. The first step is to run both on random numbers; then you have to
# decide what to compare, and how closely. A `float16` has 11 significant bits, a `float64` has 53: one tolerance for
# both is wrong for one of them.
#
# `passlab.equivalent` does this and more. Here you write your own, and the next exercise uses it.


# %%
def equivalent(
    before: Callable, after: Callable, inputs: tuple
) -> tuple[bool, float, float]:
    """Do two programs compute the same, up to rounding? Returns (same, max_abs, mse).

    In:  two programs, and example inputs that both take (tensors; other values are
         passed on as they are). The example may be special (all positive, all zero):
         try random numbers of the same shapes and dtypes as well, of ordinary size and
         large. Leave integer and boolean tensors as they are: they may be indices.
    Out: same     True if no trial tells the programs apart. What counts: the number of
                  output tensors (also in nested lists and dicts), their shapes, dtypes
                  and values, and what the programs write into their inputs. Integers
                  and booleans must be equal; floats may differ by rounding, which
                  depends on the dtype and on the size of the values. NaN equals NaN,
                  and inf equals inf, in the same place. Programs that draw random
                  numbers are run from the same seed. If `after` raises, it is not the
                  same.
         max_abs  the largest absolute difference of an element, over everything
                  compared,
         mse      the largest mean squared difference of a tensor. Both are inf where
                  there is nothing to subtract (another shape, another dtype, a NaN on
                  one side, an error).
         The caller's tensors do not change, whatever the programs write.
    The core: one float32 tensor of ordinary size in, one out; no NaN or inf, no draws,
         no writes, no errors. Sizes differ at most in a broadcast.

    Example: `equivalent(lambda x: x, lambda x: x + 0.5, (torch.zeros(3),))`
             is (False, 0.5, 0.25), up to rounding.
    """

    ### BEGIN SOLUTION
    def leaves(program, args):
        """Everything a run shows: its outputs, and its inputs afterwards."""
        args = [x.clone() if isinstance(x, Tensor) else x for x in args]
        torch.manual_seed(0)
        with torch.no_grad():
            result = program(*args)
        tensors = []
        fx.node.map_aggregate(
            (result, args),
            lambda x: tensors.append(torch.as_tensor(x)) if x is not None else None,
        )
        return tensors

    def difference(a, b):
        """(largest absolute, mean squared, allowed) difference of two tensors."""
        if a.shape != b.shape or a.dtype != b.dtype:
            return math.inf, math.inf, 0.0
        # Integers must be equal, and float64 rounds the large ones.
        exact = 0.0 if torch.equal(a, b) else -1.0
        eps = torch.finfo(a.dtype).eps if a.is_floating_point() else exact
        a, b = a.double(), b.double()
        # inf and NaN must be in the same places; they would spoil every sum and maximum
        # below.
        special = ~(a.isfinite() & b.isfinite())
        if not torch.allclose(a[special], b[special], equal_nan=True):
            return math.inf, math.inf, 0.0
        if special.all():
            return 0.0, 0.0, 0.0
        gap = (a - b)[~special].abs()
        return (
            gap.max().item(),
            gap.square().mean().item(),
            32 * eps * a[~special].abs().max().item(),
        )

    def floats(x):
        return isinstance(x, Tensor) and x.is_floating_point()

    # One input can hide a difference: try others, and large ones, where activations
    # saturate.
    trials = [inputs]
    gen = torch.Generator().manual_seed(0)
    for size in (1, 100):
        trials.append(
            [
                size * torch.randn(x.shape, generator=gen).to(x.dtype)
                if floats(x)
                else x
                for x in inputs
            ]
        )
    same, max_abs, mse = True, 0.0, 0.0
    for args in trials:
        old = leaves(before, args)
        try:
            new = leaves(after, args)
        except Exception:
            return False, math.inf, math.inf
        if len(old) != len(new):
            return False, math.inf, math.inf
        for a, b in zip(old, new, strict=True):
            largest, squared, allowed = difference(a, b)
            same = same and largest <= allowed
            max_abs, mse = max(max_abs, largest), max(mse, squared)
    return same, max_abs, mse
    ### END SOLUTION


# %%
check("day02.equivalent-core", equivalent)

# %%
check("day02.equivalent", equivalent)

# %% [markdown]
# How exact is folding a batch norm? It rounds every weight once more, so the last bits differ:

# %%
with suppress(Exception):  # shows nothing before both are written
    image = models.ZOO["convnet"].inputs()
    net = trace(models.ZOO["convnet"].build(), *image)
    same, max_abs, mse = equivalent(net, fold_batchnorm(copy.deepcopy(net)), image)
    print(f"same: {same}, largest difference {max_abs:.1e}, mean squared {mse:.1e}")

# %% [markdown]
# ## 6 · Eight planted passes: which attribute got lost? · stretch
#
# Eight people wrote exercise 2. For each you get a graph before and after: a stack of `nn.Conv2d` with `nn.ReLU`, and
# the result of the pass. Some lost an attribute. Not every attribute that *looks* different changes the result, so a
# comparison of attributes would blame correct passes. Use your `equivalent`.
#
# Pass D lost the padding mode. Does it matter?

# %%
before, after, image = find("day02.lost-attribute").cases()[3].build()
print(before.get_submodule("convs.0"), after.get_submodule("convs.0"), sep="\n")
diff(before, after, *image, title="Pass D")


# %%
def lost_attribute(
    before: fx.GraphModule, after: fx.GraphModule, inputs: tuple
) -> str | None:
    """The attribute that a fusing pass lost, or None if the programs compute the same.

    In:  before: modules nn.Conv2d, each with an nn.ReLU behind it. after: as many
         ConvReLU2d in the same order. Inputs: one image, perhaps a special one, such as
         zeros. The weights are those of the convolutions. Only a pass that changed
         `groups` had to write a kernel of another shape, and may have filled it rightly
         or wrongly.
    Out: one of "stride", "padding", "dilation", "groups", "padding_mode", "bias": the
         one whose loss, in one layer or in several, makes the difference; at most one
         does. "bias" is lost where conv.bias is a parameter, and the fused module's is
         None. None if the programs compute the same, whatever their attributes look
         like.
    Time: 10 s of computing for each test case.

    Example: Conv2d(4, 4, 3, stride=2, padding="valid") → ConvReLU2d(4, 4, 3, padding=0)
             lost "stride". The padding is the same, written in another way.
    """

    ### BEGIN SOLUTION
    names = ("stride", "padding", "dilation", "groups", "padding_mode")

    def convolutions(gm):
        calls = [
            (n.target, gm.get_submodule(n.target))
            for n in gm.graph.nodes
            if n.op == "call_module"
        ]
        return [
            (path, module) for path, module in calls if isinstance(module, nn.Conv2d)
        ]

    def with_one_changed(conv, fused, attribute):
        """A copy of conv that has this one attribute from the fused module."""
        options = {
            name: getattr(fused if name == attribute else conv, name) for name in names
        }
        new = nn.Conv2d(
            conv.in_channels, conv.out_channels, conv.kernel_size, **options
        )
        new.weight = (fused if attribute == "groups" else conv).weight
        new.bias = (fused if attribute == "bias" else conv).bias
        return new

    for (path, conv), (_, fused) in zip(
        convolutions(before), convolutions(after), strict=True
    ):
        for attribute in (*names, "bias"):
            if attribute != "bias" and getattr(conv, attribute) == getattr(
                fused, attribute
            ):
                continue  # the copy would be the same program
            # Lose one attribute at a time: only a run tells whether it matters.
            changed = copy.deepcopy(before)
            changed.set_submodule(path, with_one_changed(conv, fused, attribute))
            if not equivalent(before, changed, inputs)[0]:
                return attribute
    return None
    ### END SOLUTION


# %%
check("day02.lost-attribute", lost_attribute)

# %% [markdown]
# ## 7 · Break six wrong passes · stretch
#
# Now the reverse. These are six passes that a hasty review would accept. Each matches, rewrites and cleans up
# correctly, but each makes an unjustified assumption. Find it, and prove it with a graph.
#
# `calls(node, targets)` asks whether a node calls one of these functions or methods. `_replace(gm, node, by)` puts `by`
# in the place of a node and erases the node, and its operand if nothing uses that any more. `add_relu(a, b, alpha=1)` is
# `relu(a + alpha * b)`.

# %%
for suspect in SUSPECTS.values():
    print(inspect.getsource(suspect))


# %%
def counterexample(name: str) -> tuple[fx.GraphModule, tuple]:
    """A small graph, and inputs, on which the pass `SUSPECTS[name]` is wrong.

    In:  the name of one of the six passes above.
    Out: (gm, inputs). `gm(*inputs)` runs; after the pass the graph still runs and gives
         something else: other outputs, or other values in the tensors of its caller. A
         pass that crashes does not count. Calls go to torch, its tensors or its
         modules. At most three calls.

    Example: a pass that replaces `x - y` by `y - x` is broken by

        (fx.symbolic_trace(lambda x, y: x - y),
         (torch.tensor([1.0]), torch.tensor([0.0])))
    """
    ### BEGIN SOLUTION
    x = torch.tensor([[-2.0, 0.3], [1.0, 8.1]])
    image = x.reshape(1, 1, 2, 2)

    def shared(x):
        total = x + 1
        return torch.relu(total) + total

    # In this order: a second user, other dimensions, digits that half cannot hold, a
    # view of the caller's tensor, an average instead of a maximum, an activation that
    # also cuts off at 6.
    programs = {
        "fuse_add_relu": (shared, x),
        "cancel_transposes": (
            lambda x: x.transpose(0, 1).transpose(1, 2),
            torch.randn(2, 3, 4),
        ),
        "drop_round_trips": (lambda x: x.half().float(), x),
        "relu_in_place": (lambda x: torch.relu(x.view(-1)), x),
        "relu_before_pool": (lambda x: torch.relu(F.avg_pool2d(x, 2)), image),
        "merge_relus": (lambda x: F.relu6(torch.relu(x)), x),
    }
    program, example = programs[name]
    return fx.symbolic_trace(program), (example,)
    ### END SOLUTION


# %%
check("day02.counterexample", counterexample)

# %% [markdown]
# Your counterexamples, as the passes see them:

# %%
with suppress(Exception):  # shows nothing before `counterexample` is written
    for name in SUSPECTS:
        display(draw(counterexample(name)[0], title=f"{name} breaks this"))

# %% [markdown]
# Tomorrow each pass makes a graph cheaper. You will need your visitor, your manager, and above all your doubts.
