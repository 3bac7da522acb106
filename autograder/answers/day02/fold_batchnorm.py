"""Hidden cases and answers of day02.fold-batchnorm."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from autograder.answers.day02._shared import (
    KEPT,
    free_name,
    names_of_weights,
    net_case,
    program_of,
    random_conv,
    zoo_case,
)
from autograder.authoring.answers import edited, plain, right, wrong
from passlab.exercises.day02._shared import Rewrite, op_of, program, rewrite_case
from passlab.exercises.day02.fold_batchnorm import batch_norm, plain_net
from passlab.exercises.day02.fold_batchnorm import cases as visible
from passlab.given.day02.fold_batchnorm import Centred
from passlab.judge import Case, core

# ---------------------------------------------------------------------------------------------------- hidden cases


def conv_bn_pairs(gm: fx.GraphModule) -> tuple[str, ...]:
    """Return the pairs that can be folded in a graph without dead nodes."""
    calls = [gm.get_submodule(n.target) for n in gm.graph.nodes if n.op == "call_module"]
    pairs = []
    for node in gm.graph.nodes:
        if node.op == "call_module" and op_of(gm, node) == "batch_norm":
            norm, before = gm.get_submodule(node.target), node.all_input_nodes[0]
            if norm.training or not norm.track_running_stats or before.op != "call_module":
                continue
            if (
                op_of(gm, before) == "conv2d"
                and len(before.users) == 1
                and calls.count(gm.get_submodule(before.target)) == 1
            ):
                pairs.append(f"{before.name} → {node.name}")
    return tuple(pairs)


def _conv_bn_layer(rng: random.Random, add: Callable, fresh: Callable, parts: dict, x: fx.Node) -> fx.Node:
    convs = [name for name in parts if name.startswith("conv")]
    reused = convs and rng.random() < 0.15
    y = add(rng.choice(convs) if reused else fresh("conv", random_conv(rng, 4)), x)
    if rng.random() < 0.15:
        y = add(rng.choice((torch.relu, torch.tanh)), y)
    options = {"eps": rng.choice((1e-5, 1e-3, 0.2)), "affine": rng.random() < 0.7}
    options["track_running_stats"] = rng.random() < 0.85
    z = add(fresh("bn", batch_norm(4, **options).eval()), y)
    if rng.random() < 0.5:
        z = add("act", z)
    return add(torch.sub, z, y) if rng.random() < 0.15 else z


def _weight_read() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 3), "bn": batch_norm(4)}
    return program(lambda m, x: m.bn(m.conv(x)) + m.conv.weight.square().mean(), torch.randn(2, 3, 5, 5), **parts)


def _tied() -> fx.GraphModule:
    one, two = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
    two.weight = one.weight
    body = lambda m, x: m.two(torch.tanh(m.bn(m.one(x))))  # noqa: E731
    return program(body, torch.randn(2, 3, 5, 5), one=one, bn=batch_norm(3), two=two)


def _one_norm() -> fx.GraphModule:
    parts = {"one": nn.Conv2d(3, 3, 1), "two": nn.Conv2d(3, 3, 3, bias=False), "bn": batch_norm(3)}
    return program(lambda m, x: m.bn(m.two(torch.relu(m.bn(m.one(x))))), torch.randn(2, 3, 5, 5), **parts)


def _nested_doubles() -> fx.GraphModule:
    block = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, bias=False), batch_norm(4, eps=1e-2), nn.ReLU())
    block = nn.Sequential(block, nn.Conv2d(4, 2, 1, groups=2), batch_norm(2, affine=False, momentum=None)).double()
    return program(lambda m, x: m.block(x), torch.randn(2, 3, 9, 9).double(), block=block)


def _two_names() -> fx.GraphModule:
    """Return one convolution, held under two names and called under both."""
    parts = {"conv": nn.Conv2d(3, 3, 1), "other": nn.Conv2d(3, 3, 1), "bn": batch_norm(3)}
    gm = program(lambda m, x: m.bn(m.conv(x)) + m.bn(m.other(torch.tanh(x))), torch.randn(2, 3, 5, 5), **parts)
    gm.set_submodule("other", gm.conv)
    return gm


def _subclass() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 3), "bn": Centred(4)}
    return program(lambda m, x: m.bn(m.conv(x)), torch.randn(2, 3, 5, 5), **parts)


def _written_between() -> fx.GraphModule:
    """Return operands by name, and an image that is written between convolution and batch norm."""

    def body(m, x):
        image = torch.tanh(x)
        y = m.conv(input=image)
        image.mul_(2)
        return m.bn(input=y), image

    return program(body, torch.randn(2, 3, 5, 5), conv=nn.Conv2d(3, 4, 3), bn=batch_norm(4))


def _frozen() -> fx.GraphModule:
    """Return a model in training whose batch norm is frozen."""
    parts = {"conv": nn.Conv2d(3, 4, 3), "bn": batch_norm(4)}
    gm = program(lambda m, x: m.bn(m.conv(x)), torch.randn(2, 3, 5, 5), training=True, **parts)
    gm.bn.eval()
    return gm


def _one_in_training() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 3), "bn": batch_norm(4)}
    gm = program(lambda m, x: m.bn(m.conv(x)), torch.randn(2, 3, 5, 5), **parts)
    gm.bn.train()
    return gm


def _returned_too() -> fx.GraphModule:
    """Return a convolution whose value is an output, too."""

    def body(m, x):
        y = m.conv(x)
        return m.bn(y), y

    return program(body, torch.randn(2, 3, 5, 5), conv=nn.Conv2d(3, 4, 3), bn=batch_norm(4))


#: Names that a pass could give to the folded form of the module conv.
TAKEN = (
    *("conv_folded", "folded_conv", "conv_bn", "conv_fused", "fused_conv", "conv_and_bn", "folded", "own_conv"),
    *("bn_folded", "folded_bn", "bn_fused", "fused_bn"),
)


def _two_norms() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 3), "bn": batch_norm(4), "second": batch_norm(4)}
    return program(lambda m, x: m.second(m.bn(m.conv(x))), torch.randn(2, 3, 5, 5), **parts)


def _names_taken() -> fx.GraphModule:
    def body(m, x):
        x = m.bn(m.conv(x))
        for name in TAKEN:
            x = torch.tanh(getattr(m, name)(x))
        return x

    convs = {name: nn.Conv2d(3, 3, 1) for name in ("conv", *TAKEN)}
    return program(body, torch.randn(1, 3, 5, 5), bn=batch_norm(3), **convs)


def _weights() -> fx.GraphModule:
    return names_of_weights(lambda m, x: m.bn(m.conv(x)), TAKEN, conv=nn.Conv2d(3, 3, 1), bn=batch_norm(3))


def _one_and_three() -> fx.GraphModule:
    parts = {
        "relu": nn.ReLU(),
        "up": nn.ConvTranspose2d(3, 3, 2, stride=2),
        "bn": batch_norm(3),
        "linear": nn.Linear(6, 6),
        "bn2": batch_norm(3),
        "conv": nn.Conv2d(3, 3, 1),
        "norm": nn.InstanceNorm2d(3, track_running_stats=True),
    }
    body = lambda m, x: m.norm(m.conv(m.bn2(m.linear(m.relu(m.bn(m.up(x)))))))  # noqa: E731
    return program(body, torch.randn(2, 3, 3, 3), **parts)


def _uneven() -> fx.GraphModule:
    """Return a convolution that steps, pads and spreads otherwise down an image than across."""
    conv = nn.Conv2d(3, 4, (2, 3), stride=(1, 2), padding=(0, 2), dilation=(2, 1))
    return program(lambda m, x: m.bn(m.conv(x)), torch.randn(2, 3, 7, 8), conv=conv, bn=batch_norm(4))


def hidden(seed: int) -> list[Case]:
    """Return random nets, models of the zoo, traps."""
    nets = [net_case(f"random net {i}", f"{seed}/{i}", _conv_bn_layer, conv_bn_pairs, 3 + 3 * i) for i in range(3)]
    traps = [
        rewrite_case("the weight is read elsewhere too", _weight_read, Rewrite(("conv → bn",))),
        rewrite_case("two convolutions with one weight", _tied, Rewrite(("one → bn",))),
        rewrite_case(
            "one batch norm behind two convolutions", _one_norm, Rewrite(("one → bn", "two → bn_1")), *KEPT[:2]
        ),
        rewrite_case(
            "float64, nested modules", _nested_doubles, Rewrite(("block_0_0 → block_0_1", "block_1 → block_2"))
        ),
        rewrite_case("a frozen batch norm in a model in training", _frozen, Rewrite(("conv → bn",))),
        rewrite_case(
            "one batch norm in training",
            _one_in_training,
            Rewrite(why="bn is in training, though the model around it is not"),
            *KEPT,
        ),
        rewrite_case(
            "one convolution under two names",
            _two_names,
            Rewrite(why="conv and other are one module, which is called twice: two weights for one"),
            *KEPT,
        ),
        rewrite_case(
            "a convolution whose value is returned, too",
            _returned_too,
            Rewrite(why="the value of conv is an output, too"),
            *KEPT,
        ),
        rewrite_case("names that are taken", _names_taken, Rewrite(("conv → bn",))),
        rewrite_case("names that weights have", _weights, Rewrite(("conv → bn",))),
        rewrite_case("two batch norms in a row", _two_norms, Rewrite(("conv → bn",), optional=1)),
        rewrite_case("an image that is written in between", _written_between, Rewrite(("conv → bn",))),
        rewrite_case("a subclass", _subclass, Rewrite(why="Centred is a BatchNorm2d by inheritance only"), *KEPT),
        rewrite_case(
            "other convolutions, other norms",
            _one_and_three,
            Rewrite(why="up is a transposed convolution, linear is not a convolution, and norm is an InstanceNorm2d"),
            *KEPT,
        ),
        rewrite_case("another stride down than across", _uneven, Rewrite(("conv → bn",))),
    ]
    zoo = [zoo_case(name, conv_bn_pairs) for name in ("convnet", "residual")]
    eps = random.Random(seed).choice((1e-3, 0.05, 0.3))
    plain_nets = [
        core(
            rewrite_case(
                "plain: a deeper net",
                lambda: plain_net("conv", "bn", "conv", "bn", "relu", "conv", "relu", eps=eps),
                Rewrite(("conv0 → bn1", "conv2 → bn3")),
            )
        ),
        core(
            rewrite_case(
                "plain: a batch norm behind a ReLU",
                lambda: plain_net("conv", "bn", "relu", "bn"),
                Rewrite(("conv0 → bn1",), "bn3 is behind a ReLU"),
            )
        ),
    ]

    def training() -> fx.GraphModule:
        return program_of("convnet").train()

    rewrite = Rewrite(why="the model is in training, where a batch norm uses the statistics of the batch")
    return [
        *visible(),
        *plain_nets,
        *nets,
        *traps,
        *zoo,
        rewrite_case("a zoo model in training", training, rewrite, *KEPT),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _numbers(conv, norm, eps=None):
    """Return weight and bias of the folded convolution."""
    scale = (norm.running_var + (norm.eps if eps is None else eps)).rsqrt()
    scale = scale if norm.weight is None else scale * norm.weight
    bias = -norm.running_mean if conv.bias is None else conv.bias - norm.running_mean
    return conv.weight * scale[:, None, None, None], bias * scale + (0 if norm.bias is None else norm.bias)


def _allowed(gm, node, norm):
    calls = [gm.get_submodule(n.target) for n in gm.graph.nodes if n.op == "call_module"]
    alone = len(node.users) == 1 and calls.count(gm.get_submodule(node.target)) == 1
    return not norm.training and norm.track_running_stats and alone


def _foldable(gm):
    """Yield (batch norm node, convolution node, convolution, batch norm) for each pair that can be folded."""
    for bn in list(gm.graph.nodes):
        node = bn.all_input_nodes[0] if bn.op == "call_module" else bn
        if node.op != "call_module" or bn is node:
            continue
        conv, norm = gm.get_submodule(node.target), gm.get_submodule(bn.target)
        if (type(conv), type(norm)) == (nn.Conv2d, nn.BatchNorm2d) and _allowed(gm, node, norm):
            yield bn, node, conv, norm


def _fold(gm, numbers=_numbers):
    for bn, node, conv, norm in _foldable(gm):
        new = copy.deepcopy(conv)
        with torch.no_grad():
            weight, bias = numbers(conv, norm)
        new.weight, new.bias = nn.Parameter(weight), nn.Parameter(bias)
        node.target = free_name(gm, f"folded_{node.name}")
        gm.add_submodule(node.target, new)
        bn.replace_all_uses_with(node)
        gm.graph.erase_node(bn)
    return gm


@right("lets torch's own fuse_conv_bn_eval do the arithmetic, and redirects the convolution's node")
def with_torch(gm):
    for bn, node, conv, norm in _foldable(gm):
        node.target = free_name(gm, f"{node.name}_and_{bn.name}")
        gm.add_submodule(node.target, fuse_conv_bn_eval(copy.deepcopy(conv).eval(), norm))
        bn.replace_all_uses_with(node)
        gm.graph.erase_node(bn)
    return gm


@right("works in float64 and builds the new convolution from attributes, in a rebuilt graph")
def in_double(gm):
    folded = {node: (bn, conv, norm) for bn, node, conv, norm in _foldable(gm)}
    graph, copies = fx.Graph(), {}
    behind = {bn: node for node, (bn, _, _) in folded.items()}
    for node in gm.graph.nodes:
        if node in folded:
            _, conv, norm = folded[node]
            double = copy.deepcopy(norm).double()
            scale = torch.exp(-0.5 * torch.log(double.running_var + norm.eps))
            scale = scale * double.weight if norm.affine else scale
            new = nn.Conv2d(
                *(conv.in_channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, conv.dilation),
                *(conv.groups, True, conv.padding_mode),
            ).to(conv.weight.dtype)
            with torch.no_grad():
                new.weight.copy_(torch.einsum("oihw,o->oihw", conv.weight.double(), scale))
                old = torch.zeros_like(scale) if conv.bias is None else conv.bias.double()
                new.bias.copy_((old - double.running_mean) * scale + (double.bias if norm.affine else 0))
            name = free_name(gm, f"{node.name}_bn")
            gm.add_submodule(name, new)
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), copies.__getitem__)
            copies[node] = graph.create_node("call_module", name, args, kwargs)
        elif node in behind:
            copies[node] = copies[behind[node]]
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return fx.GraphModule(gm, graph)


@right("copies the whole model first, and then may write into its weights")
def on_a_copy(gm):
    gm = copy.deepcopy(gm)
    read = {n.target.rpartition(".")[0] for n in gm.graph.nodes if n.op == "get_attr"}
    for bn, node, conv, norm in _foldable(gm):
        tied = sum(any(p is conv.weight for p in m.parameters(recurse=False)) for m in gm.modules()) > 1
        if tied or node.target in read:
            conv = copy.deepcopy(conv)
            node.target = free_name(gm, f"own_{node.name}")
            gm.add_submodule(node.target, conv)
        with torch.no_grad():
            weight, bias = _numbers(conv, norm)
            conv.weight.data, conv.bias = weight, nn.Parameter(bias)
        bn.replace_all_uses_with(node)
        gm.graph.erase_node(bn)
    return gm


@plain("affine batch norms in eval mode behind convolutions with a bias, everything used once")
def used_once(gm):
    for bn in list(gm.graph.nodes):
        if bn.op != "call_module" or type(gm.get_submodule(bn.target)) is not nn.BatchNorm2d:
            continue
        node, norm = bn.args[0], gm.get_submodule(bn.target)
        if node.op != "call_module" or type(gm.get_submodule(node.target)) is not nn.Conv2d:
            continue
        new = copy.deepcopy(gm.get_submodule(node.target))
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        new.weight = nn.Parameter(new.weight * scale.reshape(-1, 1, 1, 1))
        new.bias = nn.Parameter((new.bias - norm.running_mean) * scale + norm.bias)
        gm.add_submodule(f"{node.name}_with_norm", new)
        node.target = f"{node.name}_with_norm"
        bn.replace_all_uses_with(node)
        gm.graph.erase_node(bn)
    return gm


@wrong("same", "leaves out eps, which is not 1e-5 everywhere", core=True)
def without_eps(gm):
    return _fold(gm, numbers=lambda conv, norm: _numbers(conv, norm, eps=0.0))


@wrong("same", "folds the second of two batch norms into the weights as they were before the first")
def into_the_old_weights(gm):
    modules = {n: gm.get_submodule(n.target) for n in gm.graph.nodes if n.op == "call_module"}
    for bn, node, _, norm in _foldable(gm):
        new = copy.deepcopy(modules[node])
        with torch.no_grad():
            weight, bias = _numbers(modules[node], norm)
        new.weight, new.bias = nn.Parameter(weight), nn.Parameter(bias)
        node.target = free_name(gm, f"new_{node.name}")
        gm.add_submodule(node.target, new)
        bn.replace_all_uses_with(node)
        gm.graph.erase_node(bn)
    return gm


@wrong("same", "takes batch norms in either order: one before a convolution is folded into it, borders and all")
def also_before(gm):
    gm = _fold(gm)
    for bn in list(gm.graph.nodes):
        if bn.op != "call_module" or type(gm.get_submodule(bn.target)) is not nn.BatchNorm2d or len(bn.users) != 1:
            continue
        (node,) = bn.users
        conv = gm.get_submodule(node.target) if node.op == "call_module" else None
        if type(conv) is not nn.Conv2d or not _allowed(gm, node, gm.get_submodule(bn.target)):
            continue
        new = copy.deepcopy(conv)
        with torch.no_grad():
            scale = (gm.get_submodule(bn.target).running_var + gm.get_submodule(bn.target).eps).rsqrt()
            if conv.in_channels == scale.numel() and conv.groups == 1:
                new.weight = nn.Parameter(conv.weight * scale[None, :, None, None])
        gm.add_submodule(f"front_{node.name}", new)
        node.target = f"front_{node.name}"
        bn.replace_all_uses_with(bn.all_input_nodes[0])
        gm.graph.erase_node(bn)
    return gm


WEIGHT = "new.weight = nn.Parameter(conv.weight * scale.reshape(-1, 1, 1, 1))"

square = edited("same", "takes the first number of stride and dilation for both directions")(
    (
        "new = copy.deepcopy(conv)",
        "new = copy.deepcopy(conv)\nnew.stride, new.dilation = conv.stride[:1] * 2, conv.dilation[:1] * 2",
    )
)
bias_not_scaled = edited("same", "forgets to scale the convolution's own bias", core=True)(
    ("(0 if conv.bias is None else conv.bias) - bn.running_mean", "-bn.running_mean"),
    ("shift * scale", "shift * scale + (0 if conv.bias is None else conv.bias)"),
)
needs_affine = edited("valid", "does not think of affine=False: weight is None, and the arithmetic fails")(
    ("(1 if bn.weight is None else bn.weight)", "bn.weight")
)
also_in_training = edited("spared", "folds a model that is in training, where the statistics are those of the batch")(
    ("pair and not norm.training", "pair")
)
in_place = edited("spared", "writes the folded weights into the convolution of the original model")(
    ("copy.deepcopy(conv)", "conv"), (WEIGHT, "conv.weight.mul_(scale.reshape(-1, 1, 1, 1))")
)
behind_anything = edited("valid", "takes whatever is before a batch norm for its convolution", core=True)(
    ("alone and pair", "alone")
)
ignores_other_users = edited(
    "same", "folds although something else uses the convolution's value, which is now normalized"
)(("alone and pair", "pair"), ("...(bn)", "conv.replace_all_uses_with(new)\n...(bn)"))
outputs_forgotten = edited("spared", "counts the calls that use the convolution, and forgets the output")(
    ("len(conv.users) == 1", 'sum(user.op != "output" for user in conv.users) == 1'),
    ("gm.graph.erase_node(conv)", "if not conv.users:\n    gm.graph.erase_node(conv)"),
)
called_twice = edited("spared", "folds a convolution that is called twice: two sets of weights instead of one")(
    ("... and calls.count(module) == 1", "...")
)
asks_the_model = edited("did", "asks whether the model is in training, and not the batch norm")(
    ("not norm.training", "not gm.training")
)
leaves_dead_nodes = edited("cost", "leaves the old convolution in the graph: unused, and still run")(
    ("        gm.graph.erase_node(conv)\n", "")
)

EQUIVALENT = {
    ("gm.recompile()", "pass"): "the graph is the result, and its code is generated anew",
}
at_the_norm = edited("same", "puts the new convolution where the batch norm was: it reads what was written in between")(
    ("gm.graph.inserting_before(conv)", "gm.graph.inserting_before(bn)")
)
norm_by_isinstance = edited("spared", "asks isinstance of the batch norm: a subclass may compute something else")(
    ("type(norm) is nn.BatchNorm2d", "isinstance(norm, nn.BatchNorm2d)")
)
free_of_modules = edited("valid", "asks only modules whether a name is taken: a weight has it")(
    ("hasattr(gm, name)", "name in gm._modules")
)
name_not_asked = edited("same", "does not ask whether the name is taken: another module loses it")(
    ('name = f"{conv.name}_folded"', 'name = f"folded_{bn.name}"'), ("while hasattr(gm, name): ...", "while False: ...")
)
