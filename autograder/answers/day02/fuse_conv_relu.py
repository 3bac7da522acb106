"""Hidden cases and answers of day02.fuse-conv-relu.

Most wrong answers are one working pass with one thing left out.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import torch
from torch import fx, nn
from torch.nn import functional as F

from autograder.answers.day02._shared import KEPT, net_case, random_conv, zoo_case
from autograder.authoring.answers import right, wrong
from passlab.exercises.day02._shared import Rewrite, op_of, program, rewrite_case
from passlab.exercises.day02.fuse_conv_relu import cases as visible
from passlab.fx.generate import random_graph
from passlab.fx.ops import ConvReLU2d, conv2d_relu
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def _is_conv(gm: fx.GraphModule, node: fx.Node) -> bool:
    return node.op.startswith("call_") and op_of(gm, node) == "conv2d"


def conv_relu_pairs(gm: fx.GraphModule) -> tuple[str, ...]:
    """The fusible pairs of a graph without dead nodes: "conv → relu"."""
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


def _sum_and_conv() -> fx.GraphModule:
    """The ReLU is of a sum that has a convolution in it; the convolution's one user is not the ReLU."""

    def body(m, x):
        return torch.relu(m.conv1(x) + x) + torch.relu(torch.sigmoid(m.conv2(x)))

    return program(
        body, torch.randn(1, 4, 5, 5), conv1=nn.Conv2d(4, 4, 3, padding=1), conv2=nn.Conv2d(4, 4, 3, padding=1)
    )


def hidden(seed: int) -> list[Case]:
    """Random nets, models of the zoo, a generated program, traps."""
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
        rewrite_case("a ReLU further down", _sum_and_conv, Rewrite(why="the ReLU is not of the convolution"), *KEPT),
    ]
    zoo = [zoo_case(name, conv_relu_pairs) for name in ("skip", "residual")]
    return [*visible(), *nets, *traps, *zoo, _generated_case(seed, conv_relu_pairs)]


# ---------------------------------------------------------------------------------------------------- answers

ATTRIBUTES = ("stride", "padding", "dilation", "groups", "padding_mode")


def _is_relu(gm, node, spellings=("module", "function", "method")):
    if node.op == "call_module":
        return "module" in spellings and type(gm.get_submodule(node.target)) is nn.ReLU
    if node.op == "call_function":
        return "function" in spellings and node.target in (torch.relu, F.relu)
    return "method" in spellings and node.op == "call_method" and node.target == "relu"


def _convolution(gm, node):
    """The Conv2d that a node calls, F.conv2d, or None."""
    if node.op == "call_module" and type(gm.get_submodule(node.target)) is nn.Conv2d:
        return gm.get_submodule(node.target)
    return F.conv2d if node.op == "call_function" and node.target is F.conv2d else None


def _module(conv, keep=ATTRIBUTES, share=True):
    options = {name: getattr(conv, name) for name in keep}
    fused = ConvReLU2d(conv.in_channels, conv.out_channels, conv.kernel_size, bias=conv.bias is not None, **options)
    if share:
        fused.weight, fused.bias = conv.weight, conv.bias
    else:
        fused.to(conv.weight.dtype).load_state_dict(conv.state_dict())
    return fused


def _fuse(gm, make=_module, spellings=("module", "function", "method"), one_user=True, functional=True, erase=True):
    for relu in list(gm.graph.nodes):
        if not _is_relu(gm, relu, spellings):
            continue
        node = relu.all_input_nodes[0]
        conv = _convolution(gm, node)
        if conv is None or (one_user and len(node.users) > 1) or (conv is F.conv2d and not functional):
            continue
        with gm.graph.inserting_before(relu):
            if conv is F.conv2d:
                fused = gm.graph.call_function(conv2d_relu, node.args, node.kwargs)
            else:
                gm.add_submodule(f"fused_{node.name}", make(conv))
                fused = gm.graph.call_module(f"fused_{node.name}", node.args, node.kwargs)
        relu.replace_all_uses_with(fused)
        gm.graph.erase_node(relu)
        if erase and not node.users:
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


@right("turns the convolution's own node into the fused one, with a copied module of another class")
def in_the_conv_node(gm):
    for node in list(gm.graph.nodes):
        conv = _convolution(gm, node)
        if conv is None or [_is_relu(gm, user) for user in node.users] != [True]:
            continue
        (relu,) = node.users
        if conv is F.conv2d:
            node.target = conv2d_relu
        else:
            fused = copy.copy(conv)
            fused.__class__ = ConvReLU2d
            gm.add_submodule(f"{node.name}_with_relu", fused)
            node.target = f"{node.name}_with_relu"
        relu.replace_all_uses_with(node)
        gm.graph.erase_node(relu)
    return gm


@right("rebuilds the graph node by node and never edits the old one")
def rebuilt(gm):
    graph, copies, modules = fx.Graph(), {}, {}
    skipped = {}
    for node in gm.graph.nodes:
        conv = _convolution(gm, node)
        if conv is not None and [_is_relu(gm, user) for user in node.users] == [True]:
            skipped[node] = conv
        elif _is_relu(gm, node) and node.all_input_nodes[0] in skipped:
            old = node.all_input_nodes[0]
            args, kwargs = fx.node.map_arg((old.args, old.kwargs), copies.__getitem__)
            if skipped[old] is F.conv2d:
                copies[node] = graph.call_function(conv2d_relu, args, kwargs)
            else:
                modules[f"relu_of_{old.name}"] = _module(skipped[old])
                copies[node] = graph.create_node("call_module", f"relu_of_{old.name}", args, kwargs)
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    for name, module in modules.items():
        gm.add_submodule(name, module)
    return fx.GraphModule(gm, graph)


@wrong("same", "leaves the stride at its default")
def loses_stride(gm):
    return _fuse(gm, lambda conv: _module(conv, [a for a in ATTRIBUTES if a != "stride"]))


@wrong("same", "leaves the padding mode at zeros: only the border of the image is wrong")
def loses_padding_mode(gm):
    return _fuse(gm, lambda conv: _module(conv, ATTRIBUTES[:-1]))


@wrong("same", "leaves the dilation at its default")
def loses_dilation(gm):
    return _fuse(gm, lambda conv: _module(conv, [a for a in ATTRIBUTES if a != "dilation"]))


@wrong("same", "makes a fresh module and forgets to take over the weights")
def fresh_weights(gm):
    def make(conv):
        return ConvReLU2d(
            *(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation),
            *(conv.groups, conv.bias is not None, conv.padding_mode),
        )

    return _fuse(gm, make)


@wrong("same", "fuses although the convolution has a second user, which now sees the ReLU too")
def every_user_gets_the_relu(gm):
    for relu in list(gm.graph.nodes):
        if not _is_relu(gm, relu) or _convolution(gm, relu.all_input_nodes[0]) is None:
            continue
        node = relu.all_input_nodes[0]
        if node.op == "call_function":
            node.target = conv2d_relu
        else:
            gm.add_submodule(f"fused_{node.name}", _module(gm.get_submodule(node.target)))
            node.target = f"fused_{node.name}"
        relu.replace_all_uses_with(node)
        gm.graph.erase_node(relu)
    return gm


@wrong("spared", "fuses although the convolution has a second user, and keeps it for that one: computed twice")
def computed_twice(gm):
    return _fuse(gm, one_user=False)


@wrong("same", "puts the fused module in the place of the old one: other calls of it get a ReLU too")
def swaps_the_module(gm):
    for relu in list(gm.graph.nodes):
        if not _is_relu(gm, relu):
            continue
        node = relu.all_input_nodes[0]
        if _convolution(gm, node) is None or len(node.users) > 1:
            continue
        if node.op == "call_function":
            node.target = conv2d_relu
        else:
            gm.set_submodule(node.target, _module(gm.get_submodule(node.target)))
        relu.replace_all_uses_with(node)
        gm.graph.erase_node(relu)
    return gm


@wrong("same", "replaces the ReLU module by Identity: the other calls of that module lose their ReLU")
def identity_for_relu(gm):
    for relu in list(gm.graph.nodes):
        if not _is_relu(gm, relu, ("module",)):
            continue
        node = relu.all_input_nodes[0]
        if node.op == "call_module" and _convolution(gm, node) is not None and len(node.users) == 1:
            gm.add_submodule(f"fused_{node.name}", _module(gm.get_submodule(node.target)))
            node.target = f"fused_{node.name}"
            gm.set_submodule(relu.target, nn.Identity())
    return _fuse(gm)


@wrong("did", "knows ReLU as a module only")
def modules_only(gm):
    return _fuse(gm, spellings=("module",))


@wrong("did", "does not know F.conv2d")
def no_functional(gm):
    return _fuse(gm, functional=False)


@wrong("cost", "copies the weights instead of sharing them: the model grows")
def copies_weights(gm):
    return _fuse(gm, lambda conv: _module(conv, share=False))


@wrong("cost", "leaves the old convolution in the graph, dead")
def leaves_dead_nodes(gm):
    return _fuse(gm, erase=False)


@wrong("valid", "erases the ReLU before its users were handed over, by unlinking it")
def dangling(gm):
    for relu in list(gm.graph.nodes):
        if _is_relu(gm, relu) and _convolution(gm, relu.all_input_nodes[0]) is not None:
            relu._remove_from_list()
    return gm


@wrong("valid", "forgets to return the graph")
def returns_nothing(gm):
    _fuse(gm)


@wrong("spared", "asks isinstance: a ConvReLU2d is a Conv2d as well, and a relu6 has relu in its name")
def by_name(gm):
    for node in list(gm.graph.nodes):
        if not node.op.startswith("call_") or not node.all_input_nodes:
            continue
        name = type(gm.get_submodule(node.target)).__name__ if node.op == "call_module" else str(node.target)
        conv = node.all_input_nodes[0]
        if "relu" not in name.lower() or len(conv.users) > 1 or "elu2d" in name.lower():
            continue
        if conv.op == "call_function" and conv.target is F.conv2d:
            conv.target = conv2d_relu
        elif conv.op == "call_module" and isinstance(gm.get_submodule(conv.target), nn.Conv2d):
            gm.add_submodule(f"fused_{conv.name}", _module(gm.get_submodule(conv.target)))
            conv.target = f"fused_{conv.name}"
        else:
            continue
        node.replace_all_uses_with(conv)
        gm.graph.erase_node(node)
    return gm
