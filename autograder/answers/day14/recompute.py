"""Hidden cases and answers of day14.recompute."""

from __future__ import annotations

import itertools
import random

import torch
from ortools.linear_solver import pywraplp
from torch import Tensor, fx
from torch.nn import functional as F

from autograder.authoring.answers import edited, right, wrong
from passlab.autodiff import work_of
from passlab.exercises.day05._tasks import until
from passlab.exercises.day14._joint import Joint, drawn, draws, traced
from passlab.exercises.day14.recompute import budget_case, least_work, merged
from passlab.fx.cases import seeded
from passlab.given.day14.partition import memory
from passlab.judge import Case


def _corrected(x: Tensor, w: Tensor) -> list[Tensor]:
    """Two variances differ in a keyword alone."""
    y = F.linear(x, w)
    one, _ = torch.var_mean(y, 1, keepdim=True, correction=0)
    other, _ = torch.var_mean(y, 1, keepdim=True, correction=1)
    return [(y * one).exp() * other.sin()]


def _types(x: Tensor, y: Tensor) -> list[Tensor]:
    """One sum of integers, and one of floats."""
    whole, floats = torch.full_like(y, 1, dtype=torch.int32), torch.full_like(y, 1.0)
    return [torch.exp(x * y) * (whole // 2 + 1) + torch.sin(x * y) * (floats / 2)]


def _ones(x: Tensor, y: Tensor) -> list[Tensor]:
    """Three calls differ in 1.0, 1 and True alone; with any two made one, it still runs, but on other numbers."""
    float_one, one, true = (torch.full((x.shape[1],), value) for value in (1.0, 1, True))
    # 2²⁴ + 1 is odd as an integer, and rounds to an even float32
    odd = one * (2**24 + 1) % 2
    return [torch.exp(x * y) * float_one + torch.sin(x * y) * odd + torch.cos(x) * (true + true)]


def _sorted(x: Tensor, w: Tensor) -> list[Tensor]:
    """The parts of a tuple are dear to keep, and what it is computed from is not."""
    values, _ = torch.sort(F.linear(x, w), 1)
    return [values.exp().sin()]


def _output(x: Tensor, w: Tensor) -> list[Tensor]:
    """The gradients read the output."""
    return [F.linear(x, w).exp()]


def _views(x: Tensor, w: Tensor) -> list[Tensor]:
    """Several views of one value are read."""
    y = F.linear(x, w)
    return [y[:, :2].sin() + y[:, 2:4].cos() * y[:, 1:3].exp()]


def _dear(x: Tensor, w: Tensor, v: Tensor) -> list[Tensor]:
    """What is dear, and the cheap chain behind it."""
    h = F.linear(x, w)
    return [F.linear(h.exp().sin().exp().cos(), v).tanh()]


def _doubled(x: Tensor, w: Tensor) -> list[Tensor]:
    """An expression is written twice, in another order of lines."""
    a, b = F.linear(x, w).tanh(), torch.exp(x)
    c, d = torch.exp(x), F.linear(x, w).tanh()
    return [(a * d).sin().sum(1) + (b * c).cos().sum(1)]


def _statistics(x: Tensor, w: Tensor) -> list[Tensor]:
    """A tuple is written twice, and so is a constant, which has no operands."""
    y = F.linear(x, w)
    one, _ = torch.var_mean(y, 1, keepdim=True, correction=0)
    other, _ = torch.var_mean(y, 1, keepdim=True, correction=0)
    left, right = torch.full((w.shape[0],), 2.0), torch.full((w.shape[0],), 2.0)
    return [(y * one * left).exp() * (other * right).sin()]


def _turned(x: Tensor, y: Tensor) -> list[Tensor]:
    """What is cheap is read through views, and what is dear is not."""
    dear, cheap = torch.exp(x.exp() + 1), y.exp()
    turned, flat = cheap.t(), cheap.view(-1)
    return [dear + y * y + (turned * turned).t() + (flat * flat).view(y.shape)]


def _of_noise(x: Tensor, y: Tensor) -> list[Tensor]:
    """One draw is enough to keep, and no input helps to compute what follows from it."""
    noise = torch.rand_like(x)
    return [x * noise.exp().sin() + y * noise.cos().exp()]


def _noisy(x: Tensor, y: Tensor) -> list[Tensor]:
    left, right = torch.rand_like(x), torch.rand_like(x)
    return [(x * left).sin() * (y * right).exp()]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def graph(name, share, **options):
        """A drawn graph in which something has to be computed once more; few memories come into question."""

        def draw():
            gm = drawn(rng, rng.randint(4, 6), **options)()
            case = budget_case(name, lambda: gm, share)
            whole, _, budget = case.build()
            one = merged(whole)
            return case, len(_choices(Joint.of(one, 2))) <= 13 and least_work(one, 2, budget)

        return until(draw, lambda pair: pair[1])[0]

    def program(name, body, shapes, share, about=()):
        return budget_case(name, seeded(lambda: traced(body, shapes), rng.randrange(2**32)), share, 1, about)

    rows, width, wide = rng.randint(3, 6), rng.randint(5, 7), rng.randint(8, 11)
    square, weights = (rows, width), (wide, width)
    two, three = {"x": square, "w": weights}, {"x": square, "w": weights, "v": (width, wide)}
    about = ("valid", "same", "spared", "cost")
    return [
        graph("drawn, number 1", 0.2),
        graph("drawn, number 2", 0.4),
        graph("drawn, number 3", 0.6),
        graph("drawn, number 4", 0.5),
        graph("drawn, the least memory", 0),
        graph("drawn, with a random mask", 0.4, noise=True),
        program("dear and cheap", _dear, three, rng.choice([0.3, 0.4, 0.5])),
        program("dear and cheap, enough memory", _dear, three, 1, about),
        program("a keyword differs", _corrected, two, 0.4),
        program("types differ", _types, {"x": square, "y": square}, 0.5),
        program("1.0, 1 and True", _ones, {"x": square, "y": square}, 0.5),
        program("an output is computed once more", _output, two, 0),
        program("a tuple, and the least memory", _corrected, two, 0),
        program("a tuple whose parts are dear to keep", _sorted, two, 0.4),
        program("views", _views, two, 0.8),
        program("written twice", _doubled, two, 0.3),
        program("random numbers, enough memory", _noisy, {"x": square, "y": square}, 1, about),
        program("random numbers", _noisy, {"x": square, "y": square}, 0),
        program("random numbers that many values follow from", _of_noise, {"x": square, "y": square}, 0),
        program("a tuple and a constant, each written twice", _statistics, two, 0.4),
        program("views of what is cheap", _turned, {"x": square, "y": square}, 0.6),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _ancestors(joint):
    nodes = set(joint.needed)
    for node in reversed(joint.forward):
        if node in nodes:
            nodes.update(node.all_input_nodes)
    return [node for node in joint.forward if node in nodes]


def _choices(joint):
    """The memories that come into question, each with its bytes."""
    return dict(place for node in _ancestors(joint) if (place := memory(node)))


def _again(joint, names):
    """The nodes that are computed once more if the memories `names` are kept, or None if that cannot be."""
    repeats, todo = {}, [node for node in joint.needed if (memory(node) or [None])[0] not in names]
    while todo:
        node = todo.pop()
        if node.op == "placeholder" or draws(node):
            return None
        if node not in repeats:
            repeats[node] = None
            todo += [o for o in node.all_input_nodes if (memory(o) or [None])[0] not in names]
    return repeats


def _rebuilt(gm, joint, repeats):
    """The graph with copies of the nodes `repeats`, in one block where the first node runs that a tangent reaches."""
    graph, old, new = fx.Graph(), {}, {}
    forward = set(joint.forward)
    *nodes, end = gm.graph.nodes
    for node in [node for node in nodes if node.op == "placeholder"]:
        old[node] = graph.node_copy(node)
    for node in [node for node in nodes if node in forward and node not in old]:
        old[node] = graph.node_copy(node, old.__getitem__)
    for node in [node for node in nodes if node in repeats]:
        new[node] = graph.create_node(
            node.op,
            node.target,
            *(fx.node.map_arg(part, lambda o: new.get(o, old[o])) for part in (node.args, node.kwargs)),
            name=f"again{len(new)}",
        )
    for node in [node for node in nodes if node not in old]:
        old[node] = graph.node_copy(node, lambda o: new.get(o, old[o]))
    graph.node_copy(end, old.__getitem__)
    return fx.GraphModule({}, graph)


@right("tries all sets of memories")
def by_sets(joint, outputs, budget):
    gm = merged(joint)
    j = Joint.of(gm, outputs)
    sizes, best = _choices(j), None
    for keep in itertools.product([False, True], repeat=len(sizes)):
        names = set(itertools.compress(sizes, keep))
        if sum(sizes[name] for name in names) <= budget and (repeats := _again(j, names)) is not None:
            work = sum(map(work_of, repeats))
            if best is None or work < best[0]:
                best = work, repeats
    return _rebuilt(gm, j, best[1])


@right("an integer program in another solver")
def by_mip(joint, outputs, budget):
    gm = merged(joint)
    j = Joint.of(gm, outputs)
    solver = pywraplp.Solver.CreateSolver("SCIP")
    sizes = _choices(j)
    saves = {name: solver.BoolVar(name) for name in sizes}
    repeats = {node: solver.BoolVar(f"again {node.name}") for node in _ancestors(j)}
    for node, twice in repeats.items():
        available = {o: repeats[o] + (saves[memory(o)[0]] if memory(o) else 0) for o in [node, *node.all_input_nodes]}
        if node in j.needed:
            solver.Add(available[node] >= 1)
        for operand in node.all_input_nodes:
            solver.Add(available[operand] >= twice)
        if node.op == "placeholder" or draws(node):
            solver.Add(twice == 0)
    solver.Add(sum(saves[name] * size for name, size in sizes.items()) <= budget)
    solver.Minimize(sum(twice * work_of(node) for node, twice in repeats.items()))
    solver.Solve()
    return _rebuilt(gm, j, _again(j, {name for name, keep in saves.items() if keep.solution_value() > 0.5}))


unmerged = edited("spared", "leaves equal nodes as they are")(("first.setdefault(key, copy)", "copy"))
tuples_unmerged = edited("spared", "merges only what is a tensor, and leaves equal tuples as they are")(
    ("not is_random(node)", 'not is_random(node) and isinstance(node.meta["val"], torch.Tensor)')
)
constants_unmerged = edited("spared", "merges only what has operands, and leaves equal constants as they are")(
    ("not is_random(node)", "not is_random(node) and node.all_input_nodes")
)
merged_again = edited("did", "merges at the end once more, without a look at the tag")(
    (
        "return fx.GraphModule({}, result)",
        "\n".join(
            (
                "seen = {}",
                "for node in list(result.nodes):",
                "    key = (node.target, str(node.args), str(node.kwargs))",
                "    if node.op == 'call_function' and not is_random(node) and seen.setdefault(key, node) is not node:",
                "        node.replace_all_uses_with(seen[key])",
                "        result.erase_node(node)",
                "return fx.GraphModule({}, result)",
            )
        ),
    )
)
inputs_free = edited("did", "keeps inputs for nothing, since the caller has them anyway")(
    (
        "keep * place[1] for place, keep in keeps.items()",
        "keep * place[1] for place, keep in keeps.items() if place[0] not in 'xywv'",
    )
)
counts_nodes = edited("cost", "counts nodes in place of work")(("again[node] * work_of(node)", "again[node]"))
views_cost = edited("cost", "counts the elements of a view as work")(
    (
        "again[node] * work_of(node)",
        'again[node] * (work_of(node) or node.meta["val"].numel() if places[node] else work_of(node))',
    )
)
fewest_bytes = edited("cost", "keeps as few bytes as can be, though there is room")(
    (
        "model.minimize(sum(again[node] * work_of(node) for node in places))",
        "model.minimize(sum(keep * place[1] for place, keep in keeps.items()))",
    )
)
one_mask = edited("same", "merges what draws random numbers")(("not is_random(node)", "True"))
new_mask = edited("same", "draws random numbers once more")(("... or is_random(node)", "..."))
no_keywords = edited("same", "merges nodes whose keywords differ")(
    ("(copy.target, str(copy.args), str(copy.kwargs))", "(copy.target, str(copy.args))")
)
equal_ones = edited("same", "takes 1, 1.0 and True for equal")(
    (
        "(copy.target, str(copy.args), str(copy.kwargs))",
        "(copy.target, str(copy.args).replace('True', '1').replace('1.0', '1'), str(copy.kwargs))",
    )
)
output_again = edited("spared", "returns what computes an output once more")(
    ("result.node_copy(end, old.__getitem__)", "result.node_copy(end, lambda node: new.get(node, old[node]))")
)
tuples_free = edited("did", "keeps tuples, for nothing")(
    ("again[node] + keeps.get(places[node], 0)", "again[node] + keeps.get(places[node], places[node] is None)"),
    ("solver.value(keeps.get(places[node], 0))", "solver.value(keeps.get(places[node], 1))"),
)
tuples_follow = edited("cost", "takes a tuple to be there already, and keeps nothing to compute it from")(
    ("again[node] + keeps.get(places[node], 0)", "again[node] + keeps.get(places[node], 1)")
)
narrow_views = edited("did", "counts the numbers of a view, and forgets the memory that it keeps alive")(
    (
        "places = {node: memory(node) for node in forward}",
        """places = {
    node: memory(node) and (node.name, node.meta["val"].numel() * node.meta["val"].itemsize)
    for node in forward
}""",
    )
)


@wrong("cost", "keeps what saves most work for a byte, one after the other, as long as there is room")
def greedy(joint, outputs, budget):
    gm = merged(joint)
    j = Joint.of(gm, outputs)
    sizes = _choices(j)
    names = {memory(node)[0] for node in j.cut(())}
    room = budget - sum(sizes[name] for name in names)
    while True:
        work = sum(map(work_of, _again(j, names)))
        gains = {
            name: (work - sum(map(work_of, _again(j, {*names, name})))) / size
            for name, size in sizes.items()
            if name not in names and size <= room
        }
        if not gains or max(gains.values()) <= 0:
            return _rebuilt(gm, j, _again(j, names))
        best = max(gains, key=gains.get)
        names.add(best)
        room -= sizes[best]
