"""Hidden cases and answers of day02.fuse-conv-relu."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import torch
from torch import fx, nn
from torch.fx.traceback import NodeSource
from torch.nn import functional as F

from autograder.answers.day02._shared import KEPT, free_name, names_of_weights, net_case, random_conv, zoo_case
from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day02._shared import Rewrite, op_of, program, rewrite_case
from passlab.exercises.day02.fuse_conv_relu import cases as visible
from passlab.fx.generate import random_graph
from passlab.fx.ops import ConvReLU2d, conv2d_relu
from passlab.given.day02.fuse_conv_relu import Clipped
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _is_conv(gm: fx.GraphModule, node: fx.Node) -> bool:
    return node.op.startswith("call_") and op_of(gm, node) == "conv2d"


def conv_relu_pairs(gm: fx.GraphModule) -> tuple[str, ...]:
    """Return the fusible pairs of a graph without dead nodes: "conv → relu"."""
    pairs = []
    for node in gm.graph.nodes:
        if _is_conv(gm, node) and len(node.users) == 1:
            (user,) = node.users
            if user.op.startswith("call_") and op_of(gm, user) == "relu":
                pairs.append(f"{node.name} → {user.name}")
    return tuple(pairs)


def _conv_relu_layer(rng: random.Random, add: Callable, fresh: Callable, parts: dict, x: fx.Node) -> fx.Node:
    convs = [name for name in parts if name.startswith("conv")]
    if convs and rng.random() < 0.2:
        y = add(rng.choice(convs), x)
    elif rng.random() < 0.2:
        weight = nn.Conv2d(4, 4, 3).weight
        gets = fresh("conv", nn.Conv2d(4, 4, 3, bias=False))
        parts[gets].weight = weight
        y = add(gets, x)
    else:
        y = add(fresh("conv", random_conv(rng, 4)), x)
    activation = rng.choice(("act", "relu", torch.relu, F.relu, F.relu, F.relu6, torch.tanh, None))
    z = y if activation is None else add(activation, y)
    return add(torch.sub, z, y) if rng.random() < 0.15 and z is not y else z


def _generated_case(seed: int, pairs: Callable) -> Case:
    def make() -> fx.GraphModule:
        only = ("conv", "pointwise", "modules", "reduce", "outputs")
        gm = random_graph(seed, 40, only=only)
        gm.graph.eliminate_dead_code()
        gm.recompile()
        return gm

    expect = Rewrite(pairs(make()), "nothing else in this graph is such a pair")
    return rewrite_case("a generated program", make, expect, *(() if expect.matches else KEPT))


def _doubles() -> fx.GraphModule:
    def body(m, x):
        x = torch.relu(input=m.block[0](x))
        x = m.block[2](m.block[1](input=x))
        return F.relu(F.conv2d(input=x, weight=m.weight, bias=m.bias, padding="same", groups=2), inplace=True)

    block = nn.Sequential(
        nn.Conv2d(3, 4, (1, 3), padding="same", dilation=2, padding_mode="replicate"),
        nn.Conv2d(4, 4, 3, stride=(2, 1), bias=False),
        nn.ReLU(inplace=True),
    ).double()
    parts = {"weight": nn.Parameter(torch.randn(4, 2, 3, 3).double()), "bias": nn.Parameter(torch.randn(4).double())}
    return program(body, torch.randn(2, 3, 7, 8).double(), block=block, **parts)


def _twice() -> fx.GraphModule:
    def body(m, x):
        y = m.relu(m.conv(x))
        return m.relu(m.conv(y)), m.relu(y), m.relu(m.pool(y))

    return program(
        body, torch.randn(1, 4, 6, 6), conv=nn.Conv2d(4, 4, 3, padding=1), relu=nn.ReLU(), pool=nn.AvgPool2d(2)
    )


def _fused_before() -> fx.GraphModule:
    def body(m, x):
        return torch.relu(m.fused(x)) + torch.relu(m.conv3(x.unsqueeze(2)).squeeze(2)), F.hardtanh(m.conv(x), 0.0, 1.0)

    parts = {"fused": ConvReLU2d(3, 4, 3), "conv3": nn.Conv3d(3, 4, (1, 3, 3)), "conv": nn.Conv2d(3, 4, 1)}
    return program(body, torch.randn(1, 3, 6, 6), **parts)


def _written_between() -> fx.GraphModule:
    def body(m, x):
        image = torch.tanh(x)
        y = m.conv(image)
        image.mul_(2)
        z = F.conv2d(image, m.weight)
        image.add_(1)
        return torch.relu(y), torch.relu(z), image

    return program(body, torch.randn(1, 3, 5, 5), conv=nn.Conv2d(3, 3, 1), weight=nn.Parameter(torch.randn(3, 3, 3, 3)))


#: Names that a pass could give to the fused form of the module conv.
TAKEN = ("conv_relu", "relu_conv", "conv_fused", "fused_conv", "fused", "fused_0", "conv_relu_fused", "fused_conv_relu")


def _names_taken() -> fx.GraphModule:
    def body(m, x):
        x = torch.relu(m.conv(torch.relu(x)))
        for name in TAKEN:
            x = torch.tanh(getattr(m, name)(x))
        return x

    return program(body, torch.randn(1, 3, 5, 5), **{name: nn.Conv2d(3, 3, 1) for name in ("conv", *TAKEN)})


def _subclasses() -> fx.GraphModule:
    def body(m, x):
        return m.clipped(m.conv(x)), m.relu(m.fused(x))

    parts = {"conv": nn.Conv2d(3, 4, 1), "clipped": Clipped(), "fused": ConvReLU2d(3, 4, 1), "relu": nn.ReLU()}
    return program(body, 3 * torch.randn(1, 3, 5, 5), **parts)


def _weights() -> fx.GraphModule:
    return names_of_weights(lambda m, x: torch.relu(m.conv(x)), TAKEN, conv=nn.Conv2d(3, 3, 1))


def _relu6() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 1), "relu6": nn.ReLU6()}
    return program(lambda m, x: m.relu6(m.conv(x)), 9 * torch.randn(1, 3, 5, 5), **parts)


def _clamped() -> fx.GraphModule:
    def body(m, x):
        return m.conv(x).clamp_min(0.5), F.conv2d(x, m.weight).clamp(0, 1)

    return program(
        body, 3 * torch.randn(1, 3, 5, 5), conv=nn.Conv2d(3, 4, 1), weight=nn.Parameter(torch.randn(4, 3, 1, 1))
    )


def _sum_and_conv() -> fx.GraphModule:
    """Return a ReLU of a sum that has a convolution in it; the convolution's one user is not the ReLU."""

    def body(m, x):
        return torch.relu(m.conv1(x) + x) + torch.relu(torch.sigmoid(m.conv2(x)))

    return program(
        body, torch.randn(1, 4, 5, 5), conv1=nn.Conv2d(4, 4, 3, padding=1), conv2=nn.Conv2d(4, 4, 3, padding=1)
    )


def _keyword_of_relu() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 1), "relu": nn.ReLU()}
    return program(lambda m, x: m.relu(input=m.conv(x)), torch.randn(1, 3, 5, 5), **parts)


def _even_kernel() -> fx.GraphModule:
    conv = nn.Conv2d(3, 4, (2, 4), padding="same")
    return program(lambda m, x: torch.relu(m.conv(x)), torch.randn(1, 3, 6, 7), conv=conv)


def _weight_read() -> fx.GraphModule:
    conv = nn.Conv2d(3, 4, 1)
    return program(lambda m, x: torch.relu(m.conv(x)) * m.conv.weight.sum(), torch.randn(1, 3, 5, 5), conv=conv)


def _used_by_keyword() -> fx.GraphModule:
    def body(m, x):
        y = m.conv(x)
        return torch.sub(torch.relu(y), other=y)

    return program(body, torch.randn(1, 3, 5, 5), conv=nn.Conv2d(3, 4, 1))


def _named_relu() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 1), "relu": nn.GELU()}
    return program(lambda m, x: m.relu(m.conv(x)), torch.randn(1, 3, 5, 5), **parts)


def _other_convolutions() -> fx.GraphModule:
    def body(m, x):
        return torch.relu(F.conv1d(x[0], m.line)), torch.relu(F.conv_transpose2d(x, m.image))

    parts = {"line": nn.Parameter(torch.randn(4, 5, 3)), "image": nn.Parameter(torch.randn(3, 3, 2, 2))}
    return program(body, torch.randn(1, 3, 5, 5), **parts)


def _names_taken_again() -> fx.GraphModule:
    names = tuple(f"{name}{end}" for name in TAKEN for end in ("", "_", "_0", "_1", "_2"))
    return names_of_weights(lambda m, x: torch.relu(m.conv(x)), names, conv=nn.Conv2d(3, 3, 1))


def hidden(seed: int) -> list[Case]:
    """Return random nets, models of the zoo, a generated program, traps."""
    nets = [net_case(f"random net {i}", f"{seed}/{i}", _conv_relu_layer, conv_relu_pairs, 3 + 4 * i) for i in range(3)]
    traps = [
        rewrite_case(
            "float64, keywords, nested modules",
            _doubles,
            Rewrite(("block_0 → relu", "block_1 → block_2", "conv2d → relu_1")),
        ),
        rewrite_case(
            "one conv module, two pairs",
            _twice,
            Rewrite(("conv → relu", "conv_1 → relu_1"), "the last ReLUs are not of a convolution"),
        ),
        rewrite_case(
            "what is fused already, and a 3-D convolution",
            _fused_before,
            Rewrite(why="ConvReLU2d is a Conv2d by inheritance only, conv3 is a Conv3d, and hardtanh is no ReLU"),
            *KEPT,
        ),
        rewrite_case(
            "an image that is written in between", _written_between, Rewrite(("conv → relu", "conv2d → relu_1"))
        ),
        rewrite_case("names that are taken", _names_taken, Rewrite(("conv → relu_1",))),
        rewrite_case("names that weights have", _weights, Rewrite(("conv → relu",))),
        rewrite_case("a ReLU6 module", _relu6, Rewrite(why="nn.ReLU6 stops at 6"), *KEPT),
        rewrite_case("clamps", _clamped, Rewrite(why="clamp_min(0.5) and clamp(0, 1) are other functions"), *KEPT),
        rewrite_case(
            "subclasses",
            _subclasses,
            Rewrite(why="Clipped is a ReLU by inheritance only, as ConvReLU2d is a Conv2d"),
            *KEPT,
        ),
        rewrite_case("a ReLU further down", _sum_and_conv, Rewrite(why="the ReLU is not of the convolution"), *KEPT),
        rewrite_case("the operand of a ReLU module by keyword", _keyword_of_relu, Rewrite(("conv → relu",))),
        rewrite_case("as much padding as an even kernel needs", _even_kernel, Rewrite(("conv → relu",))),
        rewrite_case("a weight that something else reads", _weight_read, Rewrite(("conv → relu",))),
        rewrite_case(
            "a second use by keyword", _used_by_keyword, Rewrite(why="the subtraction reads conv, too"), *KEPT
        ),
        rewrite_case("a GELU under the name relu", _named_relu, Rewrite(why="the module relu is a GELU"), *KEPT),
        rewrite_case(
            "functions of other convolutions",
            _other_convolutions,
            Rewrite(why="conv1d and conv_transpose2d are other functions"),
            *KEPT,
        ),
        rewrite_case("names that are taken, and their successors", _names_taken_again, Rewrite(("conv → relu",))),
    ]
    zoo = [zoo_case(name, conv_relu_pairs) for name in ("skip", "residual")]
    return [*visible(), *nets, *traps, *zoo, _generated_case(seed, conv_relu_pairs)]


# ---------------------------------------------------------------------------------------------------- answers

ATTRIBUTES = ("stride", "padding", "dilation", "groups", "padding_mode")


def _is_relu(gm, node):
    if node.op == "call_module":
        return type(gm.get_submodule(node.target)) is nn.ReLU
    return node.op in ("call_function", "call_method") and node.target in (torch.relu, F.relu, "relu")


def _convolution(gm, node):
    """Return the Conv2d that a node calls, F.conv2d, or None."""
    if node.op == "call_module" and type(gm.get_submodule(node.target)) is nn.Conv2d:
        return gm.get_submodule(node.target)
    return F.conv2d if node.op == "call_function" and node.target is F.conv2d else None


def _alone(gm, node):
    """Return whether a ReLU is the only user of a node."""
    return [_is_relu(gm, user) for user in node.users] == [True]


def _module(conv, keep=ATTRIBUTES):
    options = {name: getattr(conv, name) for name in keep}
    fused = ConvReLU2d(conv.in_channels, conv.out_channels, conv.kernel_size, bias=conv.bias is not None, **options)
    fused.weight, fused.bias = conv.weight, conv.bias
    return fused


def _fuse(gm, make):
    """Make each convolution's own node the fused one; `make(conv)` gives the fused module."""
    for node in list(gm.graph.nodes):
        conv = _convolution(gm, node)
        if conv is None or not _alone(gm, node):
            continue
        (relu,) = node.users
        if conv is F.conv2d:
            node.target = conv2d_relu
        else:
            node.target = free_name(gm, f"fused_{node.name}")
            gm.add_submodule(node.target, make(conv))
        node.meta["from_node"] = [node, relu]
        relu.replace_all_uses_with(node)
        gm.graph.erase_node(relu)
    return gm


@right("turns the convolution's own node into the fused one, with a copied module of another class")
def in_the_conv_node(gm):
    def make(conv):
        fused = copy.copy(conv)
        fused.__class__ = ConvReLU2d
        return fused

    return _fuse(gm, make)


@right("rebuilds the graph node by node and never edits the old one")
def rebuilt(gm):
    graph, copies, fused = fx.Graph(), {}, set()
    for node in gm.graph.nodes:
        conv = _convolution(gm, node)
        if conv is not None and _alone(gm, node):
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
            if conv is F.conv2d:
                copies[node] = graph.call_function(conv2d_relu, args, kwargs)
            else:
                name = free_name(gm, f"relu_of_{node.name}")
                gm.add_submodule(name, _module(conv))
                copies[node] = graph.create_node("call_module", name, args, kwargs)
            copies[node].meta["from_node"] = [NodeSource(n) for n in (node, *node.users)]
            fused.add(node)
        elif _is_relu(gm, node) and node.all_input_nodes[0] in fused:
            copies[node] = copies[node.all_input_nodes[0]]
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(gm, graph)


@wrong("same", "leaves an attribute at its default: stride, dilation, or the padding mode, which only the border shows")
def loses_stride(gm):
    return _fuse(gm, lambda conv: _module(conv, [a for a in ATTRIBUTES if a != "stride"]))


@wrong("valid", "erases the ReLU before its users were handed over, by unlinking it")
def dangling(gm):
    for relu in list(gm.graph.nodes):
        if _is_relu(gm, relu) and _convolution(gm, relu.all_input_nodes[0]) is not None:
            relu._remove_from_list()
    return gm


SHARE = "fused.weight, fused.bias = conv.weight, conv.bias"
ONE_USER = "        if len(conv.users) != 1:\n            continue\n"

fresh_weights = edited("same", "makes a fresh module and forgets to take over the weights")((SHARE, ""))
every_user_gets_the_relu = edited(
    "same", "fuses although the convolution has a second user, which now sees the ReLU too"
)((ONE_USER, ""), ("...(relu)", "conv.replace_all_uses_with(fused)\n...(relu)"))
swaps_the_module = edited(
    "same", "puts the fused module in the place of the old one: other calls of it get a ReLU too"
)(('name = free_name(f"{conv.name}_relu")', "name = conv.target"), ("gm.add_submodule", "gm.set_submodule"))
without_sources = edited("did", "does not say which nodes the fused one stands for")(
    ('fused.meta["from_node"] = ...', "pass")
)
modules_only = edited("did", "knows ReLU as a module only")(
    ("(node.op, node.target) in ...", "False and (node.op, node.target) in ...")
)
copies_weights = edited("cost", "copies the weights instead of sharing them: the model grows")(
    (SHARE, "fused.to(conv.weight.dtype).load_state_dict(conv.state_dict())")
)
leaves_dead_nodes = edited("cost", "leaves the old convolution in the graph, unused")(
    ("        gm.graph.erase_node(conv)\n", "")
)
returns_nothing = edited("valid", "forgets to return the graph")(("return gm", "return None"))
at_the_relu = edited("same", "puts the fused node where the ReLU was: it reads x after what was written in between")(
    ("gm.graph.inserting_before(conv)", "gm.graph.inserting_before(relu)")
)
by_name = edited("spared", "asks isinstance: a ConvReLU2d is a Conv2d as well, and a relu6 has relu in its name")(
    ("... is nn.ReLU", '... .__name__ in ("ReLU", "ReLU6")'),
    ('{..., ..., (..., "relu")}', '{..., ..., ("call_function", F.relu6), (..., "relu")}'),
    ("type(gm.get_submodule(conv.target)) is nn.Conv2d", "isinstance(gm.get_submodule(conv.target), nn.Conv2d)"),
)
free_of_modules = edited("valid", "asks only modules whether a name is taken: a weight has it")(
    ("not hasattr(gm, name)", "name not in gm._modules")
)
relu6_modules = edited("spared", "takes nn.ReLU6 for a ReLU")(("... is nn.ReLU", "... in (nn.ReLU, nn.ReLU6)"))
clamps = edited("spared", "takes every clamp_min for a ReLU, whatever its bound")(
    ('{..., ..., (..., "relu")}', '{..., ..., (..., "relu"), ("call_method", "clamp_min")}')
)
positional_relu = edited("did", "finds the operand of a ReLU module by position only")(
    ("if not is_relu(relu): ...", "if not is_relu(relu) or (relu.op == 'call_module' and relu.kwargs): ...")
)
symmetric_padding = edited("same", 'writes padding="same" as equal numbers, which no even kernel has')(
    (
        "conv.padding, conv.dilation",
        """tuple(d * (k - 1) // 2 for d, k in zip(conv.dilation, conv.kernel_size)) if conv.padding == "same"
        else conv.padding, conv.dilation""",
    )
)
deletes_modules = edited("valid", "deletes a convolution that no node calls any more, though its weight is read")(
    (
        "gm.graph.erase_node(conv)",
        """gm.graph.erase_node(conv)
if conv.op == "call_module" and not gm.graph.find_nodes(op="call_module", target=conv.target):
    gm.delete_submodule(conv.target)""",
    )
)
counts_positional_uses = edited("spared", "looks for other users among positional operands only")(
    ("len(conv.users) != 1", 'sum(conv in u.args or u.op == "output" for u in conv.users) != 1')
)
relu_by_name = edited("spared", "takes a module with the name relu for a ReLU, whatever it is")(
    ("return ... is nn.ReLU", 'return ... is nn.ReLU or node.target == "relu"')
)
any_convolution = edited("spared", "takes conv1d and conv_transpose2d for conv2d")(
    ("conv.target is F.conv2d", "conv.target in (F.conv1d, F.conv2d, F.conv_transpose2d)")
)
free_after_one_step = edited("valid", "takes the second choice of a name without asking whether it is free, too")(
    ('free_name(f"{name}_")', 'f"{name}_"')
)

EQUIVALENT = {
    ("gm.recompile()", "pass"): "the graph is the result, and its code is generated anew",
}
