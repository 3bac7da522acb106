"""Hidden cases and answers of day12.faster."""

from __future__ import annotations

import random
from contextlib import suppress

import torch
from torch import nn

from autograder.answers.day12.compiler import (
    BOTH,
    batch_norm,
    in_turn,
    kinds,
    last,
    read_twice,
    signs,
    unused_draw,
    written_between,
)
from autograder.answers.day12.plan import no_reuse
from autograder.authoring.answers import edited, reference, right, wrong
from passlab.capstone import Compiled, Triton, grouped
from passlab.capstone.compiled import with_shapes
from passlab.capstone.triton import generated
from passlab.exercises.day12._shared import graph_case
from passlab.exercises.day12.compiler import noisy, traced
from passlab.exercises.day12.faster import chain_case, image_case
from passlab.fx.cases import graph, seeded
from passlab.judge import Case
from passlab.kernels import Unsupported, subgraph
from passlab.memory.plan import planned


def by_turns(m, x, y):
    """Two chains, one step of each by turns: two groups grow at the same time."""
    a, b = torch.tanh(x), torch.sigmoid(y)
    a, b = a * 2, b + 1
    return (a - x) @ (b * y)


def no_convolution(m, x):
    return m.bn(torch.tanh(x)) + x


def hidden(seed: int) -> list[Case]:
    rng, same = random.Random(seed), ("valid", "same")
    layers = {"conv": lambda: nn.Conv2d(3, 4, 3, padding=1), "bn": batch_norm}
    return [
        chain_case(rng.choice((384, 512, 640)), rng.choice((768, 1024)), seed),
        image_case("residual", seed),
        graph_case("two chains by turns", seeded(graph(by_turns, (16, 16), (16, 16)), seed), same),
        traced("a value is written between equal reads", written_between, same, seed),
        traced("a draw that nothing uses", unused_draw, same, seed),
        traced("two draws", noisy, same, seed, True),
        traced("zeros of two signs", signs, same, seed),
        traced("ones of three types", kinds, same, seed),
        graph_case(
            "wide values one at a time", seeded(graph(in_turn, (16, 24), wide=(24, 400), back=(400, 24)), seed), same
        ),
        graph_case("a convolution that is read twice", seeded(graph(read_twice, (2, 3, 9, 9), **layers), seed), same),
        graph_case(
            "a batch norm behind no convolution", seeded(graph(no_convolution, (2, 4, 9, 9), **layers), seed), same
        ),
    ]


_RETURN = "return Compiled(gm, groups, plan=...)"
_FAST = "groups alone are fast enough for the demands"
_SINGLE = "the models that are timed have kernels for all nodes"
_CALL = "a kernel of one operation takes as long as the call"
_SLOW = "what it saves is too little for the demands"
EQUIVALENT = BOTH | {
    ("type(norm) is nn.BatchNorm2d and ... and ...", "False"): _FAST,
    ('node.op == "call_module"', "False"): _FAST,
    ("gm.graph.erase_node(bn)", "pass"): _SLOW,
    ('not node.op.startswith("call_")', "False"): "groupable refuses it anyway",
    ("why_not([*groups, [node.name]]) is None", "True"): _SINGLE,
    ("*groups, [node.name]", "*groups"): _SINGLE,
    ("*groups, [node.name]", "[node.name]"): _SINGLE,
    ("groups.append([node.name])", "groups.append([])"): _SLOW,
    ("len(group) > 1", "len(group) > 2"): _SLOW,
    ("len(group) > 1", "len(group) >= 1"): _CALL,
    ("len(group) > 1", "True"): _CALL,
    ("groups = [... for group in groups if ...]", "pass"): _CALL,
    ("Compiled(gm, groups, plan=...)", "Compiled(gm, groups)"): "there is a plan without one's own",
}

# ---------------------------------------------------------------------------------------------------- answers

no_groups = edited("did", "leaves every operation a launch of its own, or all but pairs, or but the first group")(
    (_RETURN, "return Compiled(gm)")
)
equal_reads = edited("same", "merges equal operations, though a write lies between them")(
    (
        "gm = rebuild(gm)",
        """
        gm, first = rebuild(gm), {}
        for node in gm.graph.nodes:
            if node.op == "call_function" and first.setdefault((node.target, node.args), node) is not node:
                node.replace_all_uses_with(first[node.target, node.args])
        """,
    )
)
equal_draws = edited("same", "merges two draws of random numbers")(
    (
        "gm = rebuild(gm)",
        """
        gm, first = rebuild(gm), {}
        for node in gm.graph.nodes:
            if "draws" in effects(node) and first.setdefault((node.target, node.args), node) is not node:
                node.replace_all_uses_with(first[node.target, node.args])
                gm.graph.erase_node(node)
        """,
    )
)
equal_constants = edited("same", "takes constants that are equal for the same: 1 and 1.0, 0.0 and -0.0")(
    (
        "gm = rebuild(gm)",
        """
        gm, first = rebuild(gm), {}
        for node in gm.graph.nodes:
            if node.op == "call_function" and {*map(type, node.args[1:])} & {bool, int, float}:
                node.replace_all_uses_with(first.setdefault((node.target, node.args), node))
        """,
    )
)
unused_dropped = edited(
    "same", "lets torch remove what nothing uses: a write, or a draw, after which all later ones are others"
)(
    (
        "gm = rebuild(gm)",
        "gm = rebuild(gm)\ngm.graph.eliminate_dead_code(lambda node: node.op in ('placeholder', 'output'))",
    )
)
no_value = edited("valid", "asks for what cannot be built: tiles of a billion elements, or two kernels for one group")(
    (_RETURN, 'return Compiled(gm, groups, {group[0]: {"tile": 10**9} for group in groups})')
)
too_large = edited("valid", "asks for 8 GiB more than it uses")(
    (
        "return Compiled(gm, groups, plan=...)",
        "plan = ...\nreturn Compiled(gm, groups, plan=Plan(plan.order, plan.offsets, plan.arena + 2**33))",
    )
)
no_model = edited("valid", "returns the graph, which is code")((_RETURN, "return gm"))


@wrong("same", "leaves out what takes long: the last addition")
def leaves_out(gm, inputs):
    model = reference("day12.faster")(gm, inputs)
    (output,) = model.graph.graph.find_nodes(op="output")
    end = output.args[0]
    output.args = (end.all_input_nodes[0],)
    model.graph.graph.eliminate_dead_code()
    left = {node.name for node in model.graph.graph.nodes}
    return Compiled(model.graph, [g for g in ([n for n in group if n in left] for group in model.groups) if g])


@wrong("valid", "gives every value a place of its own")
def own_places(gm, inputs):
    model = reference("day12.faster")(gm, inputs)
    return Compiled(model.graph, model.groups, plan=no_reuse(model.graph, model.groups, inputs))


ZEROS = """
import triton
import triton.language as tl

@triton.jit
def zeros(out, elements, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 0.0, mask=at < elements)
"""


def with_text(model, inputs, text=ZEROS):
    """The same with a kernel for each group that has one result: it writes zeros, or is another text."""
    gm, kernels = with_shapes(model.graph, inputs), {}
    for group in model.groups:
        part = subgraph(gm, group)
        (name, *others) = part.meta["outputs_of"]
        elements = next(node for node in gm.graph.nodes if node.name == name).meta["val"].numel()
        if not others:
            meta = {"elements": elements, "BLOCK": 1024}
            kernels[group[0]] = Triton(text, "zeros", [name], [-(-elements // 1024)], meta)
    return Compiled(model.graph, model.groups, plan=model.plan, kernels=kernels)


@wrong("same", "hands over Triton kernels that write zeros")
def zeros(gm, inputs):
    return with_text(reference("day12.faster")(gm, inputs), inputs)


@wrong("valid", "stores its inputs in an order that leaves out a dimension")
def no_order(gm, inputs):
    model = reference("day12.faster")(gm, inputs)
    names = [node.name for node in model.graph.graph.find_nodes(op="placeholder")]
    orders = {name: list(range(1, x.ndim)) for name, x in zip(names, inputs, strict=True)}
    return Compiled(model.graph, model.groups, layouts=orders)


@right("with the course's Triton kernels for element-wise groups, and weights with channels last")
def with_kernels(gm, inputs):
    model = reference("day12.faster")(gm, inputs)
    gm, kernels = with_shapes(model.graph, inputs), {}
    for group in model.groups:
        with suppress(Unsupported):
            kernels[group[0]] = generated(subgraph(gm, group))
    return Compiled(model.graph, model.groups, kernels=kernels, layouts=last(model.graph, inputs))


@right("with schedules: short tiles")
def with_schedules(gm, inputs):
    model = reference("day12.faster")(gm, inputs)
    schedules = {group[0]: {"tile": 1024} for group in model.groups}
    return Compiled(model.graph, model.groups, schedules, model.plan)


@right("without a plan of its own, and the groups in another order")
def other_order(gm, inputs):
    model = reference("day12.faster")(gm, inputs)
    groups = model.groups[::-1]
    return Compiled(model.graph, groups, plan=planned(grouped(model.graph, groups, inputs), *inputs))
