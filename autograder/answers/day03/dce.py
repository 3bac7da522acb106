"""Hidden cases and answers of day03.dce."""

from __future__ import annotations

import operator
import random
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.answers.day03._shared import generated
from autograder.authoring.answers import edited, right, wrong
from passlab.fx.cases import call, case, graph, least, most, nodes, read
from passlab.fx.effects import effects
from passlab.judge import Case, drawn

# ---------------------------------------------------------------------------------------------------- hidden cases


UNUSED = "It is unused and has no effect."
ATEN = torch.ops.aten


def none_of(*ops: str) -> list:
    return [most(op, 0, UNUSED, dead=True) for op in ops]


WRITES = "It writes into memory that others read."
NORM = "In training mode a batch norm updates its running statistics."


@case(
    "modules in training mode",
    graph(
        ...,
        (4, 3),
        training=True,
        bn=lambda: nn.BatchNorm1d(3),
        drop=nn.Dropout,
        plain=lambda: nn.Linear(3, 3),
        relu=lambda: nn.ReLU(inplace=True),
    ),
    did=none_of("Linear"),
    spared=[
        least("BatchNorm1d", 1, NORM),
        least("ReLU", 1, "This ReLU works in place: it changes x."),
        least("Dropout", 1, "A dropout in training mode draws."),
    ],
)
def modules(m: Any, x: fx.Proxy) -> fx.Proxy:
    m.bn(x)
    m.drop(x)
    m.plain(x)
    m.relu(x)
    return x * 2


@case(
    "written through a view",
    graph(..., (2, 3)),
    did=none_of("tanh"),
    spared=[least("zero_", 1, WRITES)],
)
def through_a_view(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = torch.relu(x)
    rows = y.view(-1)
    rows[:2].zero_()
    torch.tanh(rows)
    return y


@case(
    "operators by overload",
    graph(..., (2, 3)),
    did=none_of("mul"),
    spared=[least("mul_", 1, WRITES), least("iadd", 1, WRITES), least("bernoulli", 1, "It draws.")],
)
def overloads(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x + 0.5
    call(ATEN.mul_.Tensor, y, x)
    call(ATEN.mul.Tensor, y, x)
    call(ATEN.bernoulli.default, torch.sigmoid(y))
    call(operator.iadd, y, 1)
    return F.dropout(y, 0.5, True)


@case(
    "state",
    graph(..., (2, 3), steps=torch.zeros(1), w=(2, 3)),
    did=[most("get_attr", 2, UNUSED, dead=True)],
    spared=[least("add_", 1, WRITES), least("copy_", 1, WRITES)],
)
def buffers(m: Any, x: fx.Proxy) -> fx.Proxy:
    read(x, "steps").add_(1)
    read(x, "steps")
    read(x, "w").copy_(x)
    return torch.tanh(x)


@case("switched off", graph(..., (2, 3), drop=nn.Dropout), did=none_of("dropout", "relu", "Dropout"))
def silent(m: Any, x: fx.Proxy) -> fx.Proxy:
    F.dropout(x, 0.5, False)
    F.relu(x, inplace=False)
    m.drop(x)
    return x - 1


@case(
    "nothing is known about it",
    graph(..., (4, 3)),
    did=none_of("exp"),
    spared=[least("pca_lowrank", 1, "Its effects are 'unknown', so it stays (it draws, in fact).")],
)
def unknown(m: Any, x: fx.Proxy) -> fx.Proxy:
    torch.pca_lowrank(x, 2)
    torch.exp(x)
    return F.dropout(x, 0.5, True)


@case("a long dead chain", graph(..., (2, 3)), did=[nodes(3, UNUSED, dead=True)])
def long(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x
    for _ in range(1500):
        y = torch.tanh(y)
    return x + 1


@case("a long chain that is used", graph(..., (2, 3)), did=none_of("exp"))
def long_and_live(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = x
    for _ in range(1500):
        y = torch.tanh(y)
    torch.exp(y)
    return y


@case(
    "used in a list, a slice and a keyword",
    graph(..., (2, 3)),
    did=none_of("exp"),
    spared=[least(op, 1, "It is used.") for op in ("tanh", "floordiv", "sigmoid")],
)
def nested(m: Any, x: fx.Proxy) -> fx.Proxy:
    low, half = torch.sigmoid(x), x.size(1) // 2
    torch.exp(low)
    return torch.clamp(torch.cat([torch.tanh(x)[:, :half], x[:, half:]], 1), min=low)


@case("and, or", graph(..., (2, 3)), did=none_of("and_", "or_", "gt"))
def logic(m: Any, x: fx.Proxy) -> fx.Proxy:
    (x > 0) & (x > 1) | (x > 2)
    return x + 1


@case("sizes and copies", graph(..., (2, 3)), did=none_of("size", "numel", "clone", "to"))
def sizes(m: Any, x: fx.Proxy) -> fx.Proxy:
    x.size(0)
    x.numel()
    x.clone()
    x.to(torch.float64)
    return x + 1


@case("a draw by a method", graph(..., (2, 3)), did=none_of("exp"), spared=[least("bernoulli", 1, "It draws.")])
def method(m: Any, x: fx.Proxy) -> fx.Proxy:
    torch.sigmoid(x).bernoulli()
    torch.exp(x)
    return F.dropout(x, 0.5, True)


@case("noise that nobody reads", graph(..., (2, 3)), did=none_of("exp"), spared=[least("normal_", 1, "It draws.")])
def noise(m: Any, x: fx.Proxy) -> fx.Proxy:
    torch.zeros_like(x).normal_()
    torch.exp(x)
    return F.dropout(x, 0.5, True)


PARTS: dict[str, Any] = {
    "block": lambda: nn.Sequential(nn.Sequential(nn.BatchNorm1d(4), nn.Dropout()), nn.Tanh()),
    "layer": lambda: nn.TransformerEncoderLayer(4, 2, 8),
}


@case(
    "modules within modules",
    graph(..., (3, 4), training=True, **PARTS),
    did=none_of("Tanh"),
    spared=[
        least("BatchNorm1d", 1, NORM),
        least("Dropout", 1, "A dropout in training mode draws."),
        least("TransformerEncoderLayer", 1, "In training mode the dropouts within this layer draw."),
    ],
)
def within(m: Any, x: fx.Proxy) -> fx.Proxy:
    m.block(x)
    m.layer(x)
    return F.dropout(x, 0.5, True)


@case(
    "modules within modules, switched off",
    graph(..., (3, 4), **PARTS),
    did=none_of("Tanh", "BatchNorm1d", "Dropout", "TransformerEncoderLayer"),
)
def within_silent(m: Any, x: fx.Proxy) -> fx.Proxy:
    m.block(x)
    m.layer(x)
    return x * 2


@drawn
def random_graphs(rng: random.Random) -> Iterable[Case]:
    return generated("dce", rng, 4, 30, UNUSED, dead=True)


# ---------------------------------------------------------------------------------------------------- answers

KEPT = ("placeholder", "output")


def _sweep(gm, stays):
    """Erase unused nodes for which `stays` is false, from the end to the beginning."""
    for node in reversed(gm.graph.nodes):
        if not node.users and not stays(node):
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


@right("marks what can be noticed, starting from the nodes with effects, and erases the rest")
def mark_and_sweep(gm):
    todo = [node for node in gm.graph.nodes if effects(node)]
    marked = set(todo)
    while todo:
        for operand in todo.pop().all_input_nodes:
            if operand not in marked:
                marked.add(operand)
                todo.append(operand)
    for node in reversed(gm.graph.nodes):
        if node not in marked:
            gm.graph.erase_node(node)
    gm.recompile()
    return gm


@right("a worklist: erasing a node puts its operands back on the list")
def worklist(gm):
    todo = [node for node in gm.graph.nodes if not node.users]
    orphans = set()
    while todo:
        node = todo.pop()
        if node in orphans or node.users or effects(node):
            continue
        operands = node.all_input_nodes
        gm.graph.erase_node(node)
        orphans.add(node)
        todo.extend(operands)
    return gm


@right("asks torch for the sweep, and tells it which nodes are impure")
def torch_told(gm):
    gm.graph.eliminate_dead_code(is_impure_node=lambda node: bool(effects(node)))
    gm.recompile()
    return gm


@wrong("spared", "unused is dead: a write whose result is unused goes")
def unread_is_dead(gm):
    return _sweep(gm, lambda node: node.op in KEPT)


@wrong("spared", "torch's own pass knows what is safe (it removes in-place operations at torch level)")
def torch_untold(gm):
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


@wrong("spared", "only what is called something_ writes: setitem, out= and inplace=True are missed")
def underscores(gm):
    def stays(node):
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        effect = effects(node) - {"writes"}
        return effect or (node.op != "call_module" and name.endswith("_") and not name.endswith("__"))

    return _sweep(gm, stays)


@wrong("valid", "marks what is used, calling itself for the operands: a long chain is too deep for that")
def marks_recursively(gm):
    marked = set()

    def mark(node):
        if node not in marked:
            marked.add(node)
            for operand in node.all_input_nodes:
                mark(operand)

    for node in gm.graph.nodes:
        if effects(node):
            mark(node)
    for node in reversed(gm.graph.nodes):
        if node not in marked:
            gm.graph.erase_node(node)
    return gm


@wrong("same", "looks for operands among the arguments themselves: not in a list, a slice or a keyword")
def direct_operands(gm):
    todo = [node for node in gm.graph.nodes if effects(node)]
    marked = set(todo)
    while todo:
        node = todo.pop()
        for operand in node.all_input_nodes if node.op == "output" else node.args:
            if isinstance(operand, fx.Node) and operand not in marked:
                marked.add(operand)
                todo.append(operand)
    for node in reversed(gm.graph.nodes):
        if node not in marked:
            node.replace_all_uses_with(None)
            gm.graph.erase_node(node)
    return gm


@wrong("valid", "erases a dead node and then, calling itself, its operands: a long chain is too deep for that")
def recursive(gm):
    def drop(node):
        if node.users or effects(node):
            return
        operands = node.all_input_nodes
        gm.graph.erase_node(node)
        for operand in operands:
            drop(operand)

    for node in [n for n in gm.graph.nodes if not n.users]:
        drop(node)
    return gm


def _stays(condition):
    """Return an edit: an unused node stays if the condition is true."""
    return "effects(node)", f"({condition})"


forgets_draws = edited("spared", "an unused draw does nothing (but without it every later draw is another one)")(
    _stays('effects(node) - {"draws"}')
)
forgets_writes = edited("spared", "a write counts when its result is used")(_stays('effects(node) - {"writes"}'))
forgets_assertions = edited("spared", "an assertion has no result, so it is dead")(_stays('effects(node) - {"stops"}'))
every_underscore = edited("did", "takes every name that ends in an underscore for a write: operator.and_")(
    _stays('effects(node) or str(getattr(node.target, "__name__", "")).endswith("_")')
)
unread_memory = edited("spared", "what writes into memory that nobody reads is dead, even if it draws")(
    _stays('effects(node) and not (str(node.target) == "normal_" and len(node.args[0].users) == 1)')
)
draws_of_functions = edited("spared", "functions draw, methods do not")(
    _stays('effects(node) - ({"draws"} if node.op == "call_method" else set())')
)
outermost = edited("spared", "looks at a module's own class: its parts are not asked whether they draw")(
    _stays('effects(node) and not (node.op == "call_module" and any(gm.get_submodule(node.target).children()))')
)
sizes_stay = edited("did", "takes a size for a part of the signature")(
    _stays('node.target in ("size", "numel") or effects(node)')
)
modules_are_pure = edited("spared", "modules are pure: a batch norm in training mode, a ReLU in place")(
    _stays('node.op != "call_module" and effects(node)')
)
forwards = edited("did", "walks from the beginning to the end: only the last node of a dead chain goes")(
    ("reversed(gm.graph.nodes)", "list(gm.graph.nodes)")
)
keeps_modules = edited("did", "keeps every module, to be safe")(_stays('node.op == "call_module" or effects(node)'))
drops_inputs = edited("valid", "an unused input is dead, too")(_stays('node.op != "placeholder" and effects(node)'))

EQUIVALENT = {
    ("gm.recompile()", "pass"): "the graph is the result, and its code is generated anew",
}
