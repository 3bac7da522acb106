"""Hidden cases and answers of day14.partition."""

from __future__ import annotations

import math
import random

import torch
from ortools.graph.python import max_flow
from torch import Tensor
from torch.nn import functional as F

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day05._tasks import until
from passlab.exercises.day14._joint import DEAR, Joint, drawn, repeatable, traced
from passlab.exercises.day14.partition import split_case
from passlab.fx.cases import seeded
from passlab.given.day14.partition import memory, part
from passlab.judge import Case

aten = torch.ops.aten


def _unread(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
    return [x + y.sum(0), torch.exp(x * y)]


def _linear(x: Tensor, y: Tensor) -> list[Tensor]:
    return [x + 2 * y]


def _two_views(x: Tensor, w: Tensor) -> list[Tensor]:
    """The gradients read two narrow views of a wide value that is computed once."""
    wide = F.linear(x, w)
    return [torch.sin(wide[:, :3]) * 2, torch.cos(wide[:, 3:5]).exp()]


def _read_early(x: Tensor, scale: Tensor, w: Tensor) -> list[Tensor]:
    old = torch.cat([scale, scale])
    new = 0.5 * scale + x.detach().amax(0)[: len(scale)]
    return [torch.tanh(F.linear(x, w) * old.sin()), (x * old.exp()).sum(), new]


def _read_in_a_view(x: Tensor, scale: Tensor) -> list[Tensor]:
    """Of the old scale, two values are read; a view of a view from which both follow would be smaller."""
    view = scale.unsqueeze(1).t()
    return [x * view.exp() + x.sin() * view.cos(), 0.5 * scale + x.detach().amax(0)]


def _constant(x: Tensor, y: Tensor) -> list[Tensor]:
    """The gradient by x is zeros, whatever the tangent is."""
    return [x**0 + y.exp()]


def _two_states(x: Tensor, mean: Tensor, scale: Tensor) -> list[Tensor]:
    """Two values are read of the old scale, so saving the scale itself would be smaller."""
    return [
        x * scale.exp() + x.sin() * scale.cos() + mean,
        0.9 * mean + x.detach().amax(0),
        0.9 * scale + x.detach().amin(0),
    ]


def _masks(x: Tensor) -> list[Tensor]:
    """A mask has one byte for each number: half the bytes of x, which has half as many numbers."""
    wide = torch.cat([x, x], 1)
    return [torch.where(wide > 0.2, wide, -3 * wide).sum(1)]


def _mean(x: Tensor) -> list[Tensor]:
    return [x.mean(1).exp().sin()]


def _norm(x: Tensor, w: Tensor) -> list[Tensor]:
    y = F.linear(x, w)
    variance, mean = torch.var_mean(y, 1, keepdim=True, correction=0)
    return [(y - mean) * (variance + 0.1).rsqrt()]


def _counted(x: Tensor, count: Tensor) -> list[Tensor]:
    """Adds to what it never reads for a gradient."""
    return [x.exp().tanh().sum(1), count + 1]


def _noisy(x: Tensor, w: Tensor) -> list[Tensor]:
    y = F.linear(x, w).tanh()
    return [torch.exp(y * (torch.rand_like(y) > 0.4)).sum(0), (y * torch.rand_like(y)).sum(1)]


def _dropped(x: Tensor, w: Tensor) -> list[Tensor]:
    y = F.linear(x, w).tanh()
    return [(y * torch.bernoulli(torch.sigmoid(y.detach()))).exp().sum(0)]


def _turned(x: Tensor) -> list[Tensor]:
    """The gradient reads a view of a wide value that follows from a narrow one."""
    return [torch.cat([x, x, x]).t().sin().exp()]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def graph(name, once=DEAR, **options):
        """A drawn graph in which a minimum cut saves less than what the gradients read, and more than nothing."""

        def draw():
            gm = drawn(rng, rng.randint(5, 7), **options)()
            return gm, Joint.of(gm, 2)

        gm, _ = until(draw, lambda pair: pair[1].simple() > pair[1].least(once) > 0)
        return split_case(name, lambda: gm, once)

    def program(name, body, shapes, written=None, outputs=1, once=DEAR, symbolic=False):
        build = seeded(lambda: traced(body, shapes, written, symbolic), rng.randrange(2**32))
        return split_case(name, build, once, outputs)

    rows, width, wide = rng.randint(3, 6), rng.randint(4, 7), rng.randint(8, 11)
    even = 2 * rng.randint(4, 6)
    square, weights = (rows, width), (wide, width)
    return [
        graph("drawn, number 1"),
        graph("drawn, number 2"),
        graph("drawn, number 3"),
        graph("drawn, with a random mask", noise=True),
        graph("drawn, with an input that is overwritten", state=True),
        graph("drawn, with symbols for sizes", symbolic=True),
        graph("drawn; everything may be computed twice", once=()),
        graph("drawn; exp, tanh and sin may not", once=DEAR | {aten.exp.default, aten.tanh.default, aten.sin.default}),
        program("random numbers", _noisy, {"x": square, "w": weights}, outputs=2),
        program(
            "an overwritten input", _read_early, {"x": (rows, even), "w": (even, even)}, {"scale": (even // 2,)}, 2
        ),
        program("a view of an overwritten input", _read_in_a_view, {"x": square}, {"scale": (width,)}),
        program("a gradient that no tangent reaches", _constant, {"x": square, "y": square}),
        program("a counter", _counted, {"x": square}, {"count": (1,)}),
        program("narrow views", _two_views, {"x": square, "w": weights}, outputs=2),
        program("nothing is read", _linear, {"x": square, "y": square}),
        program("an input without a gradient", _unread, {"x": square, "y": square, "z": (width,)}, outputs=2),
        program("a small value of a large input", _mean, {"x": square}),
        program("a tuple", _norm, {"x": square, "w": weights}),
        program("a mask", _masks, {"x": square}),
        program("two inputs that are overwritten", _two_states, {"x": square}, {"mean": (width,), "scale": (width,)}),
        program("a drawn mask", _dropped, {"x": square, "w": weights}),
        program("sizes of a large input", _mean, {"x": square}, symbolic=True),
        program(
            "a view that is not to be computed twice",
            _turned,
            {"x": square},
            outputs=1,
            once=DEAR | {aten.t.default},
        ),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _split(joint, outputs, cut):
    j = Joint.of(joint, outputs)
    return [
        part(joint, j.inputs, [*j.results[:outputs], *cut], also=j.writes),
        part(joint, [*cut, *j.tangents], j.results[outputs:]),
    ]


def _network(joint, outputs, once, size=memory):
    """The pipes of the network, (from, to, width), over the numbers of the forward nodes."""
    j = Joint.of(joint, outputs)
    blocked = {memory(node.args[0])[0] for node in j.writes}
    number = {node: 2 * i for i, node in enumerate(j.forward)}
    source, pipes, endless = 2 * len(number), [], 2**40
    for node, i in number.items():
        place = size(node)
        pipes.append((i, i + 1, place[1] if place and place[0] not in blocked else endless))
        if not repeatable(node, once):
            pipes.append((source, i, endless))
        pipes += [(number[operand] + 1, i, endless) for operand in node.all_input_nodes]
        if node in j.needed:
            pipes.append((i + 1, source + 1, endless))
    return number, source, pipes


@right("OR-Tools finds the flow, and the cut is the one nearest to the gradients")
def by_ortools(joint, outputs, once):
    return _cut(joint, outputs, *_network(joint, outputs, once))


def _cut(joint, outputs, number, source, pipes):
    flow = max_flow.SimpleMaxFlow()
    for pipe in pipes:
        flow.add_arc_with_capacity(*pipe)
    flow.add_arc_with_capacity(source, source + 1, 0)
    flow.solve(source, source + 1)
    later = set(flow.get_sink_side_min_cut())
    return _split(joint, outputs, [node for node, i in number.items() if i not in later and i + 1 in later])


@right("shortest augmenting paths by hand (Edmonds and Karp, 1972)")
def by_paths(joint, outputs, once):
    number, source, pipes = _network(joint, outputs, once)
    room = {}
    for a, b, width in pipes:
        room.setdefault(a, {})[b] = width
        room.setdefault(b, {}).setdefault(a, 0)
    while True:
        before, queue = {source: None}, [source]
        for a in queue:
            for b, width in room.get(a, {}).items():
                if width and b not in before:
                    before[b] = a
                    queue.append(b)
        if source + 1 not in before:
            break
        way, b = [], source + 1
        while before[b] is not None:
            way.append((before[b], b))
            b = before[b]
        least = min(room[a][b] for a, b in way)
        for a, b in way:
            room[a][b] -= least
            room[b][a] += least
    return _split(joint, outputs, [node for node, i in number.items() if i in before and i + 1 not in before])


@right("saves every value twice, which keeps no more memory alive")
def twice(joint, outputs, once):
    forward, backward = by_ortools(joint, outputs, once)
    (end,) = forward.graph.find_nodes(op="output")
    end.args = ([*end.args[0], *end.args[0][outputs:]],)
    tangent = next(node for node in backward.graph.nodes if node.name.startswith("tangent"))
    with backward.graph.inserting_before(tangent):
        for number in range(len(end.args[0][outputs:]) // 2):
            backward.graph.placeholder(f"again_{number}")
    return forward, backward


draws_again = edited("spared", "draws random numbers once more, as if they were the same")(("... or random", "..."))
draws_by_name = edited("spared", "takes for random only what has `rand` in its name")(
    ("torch.Tag.nondeterministic_seeded in tags", '"rand" in str(node.target)')
)
dear_again = edited("spared", "computes anything once more, whatever it costs")(
    ("... or node.target in once or ...", "... or ...")
)


views_again = edited("spared", "takes a view once more whatever `once` says, since it costs nothing")(
    (
        "node.target in once",
        "node.target in once and place not in [(memory(o) or [0])[0] for o in node.all_input_nodes]",
    )
)


@wrong("cost", "counts the numbers of a view, and forgets the memory that it keeps alive")
def views_alone(joint, outputs, once):
    def own(node):
        value = node.meta["val"]
        if not isinstance(value, Tensor):
            return memory(node)
        return memory(node)[0], math.prod(map(int, value.shape)) * value.itemsize

    return _cut(joint, outputs, *_network(joint, outputs, once, own))


@wrong("cost", "counts four bytes for each number, those of a mask, too")
def of_floats(joint, outputs, once):
    def size(node):
        place = memory(node)
        return place and (place[0], place[1] * 4 // getattr(node.meta["val"], "itemsize", 4))

    return _cut(joint, outputs, *_network(joint, outputs, once, size))


inputs_free = edited("cost", "takes inputs for free, since the caller has them anyway")(
    ('{"capacity": size}', '{"capacity": 0 if node in inputs else size}')
)
outputs_free = edited("cost", "takes outputs for free, since they are returned anyway")(
    ('{"capacity": size}', '{"capacity": 0 if node in results else size}')
)
stale = edited("same", "saves an input that is overwritten before the backward graph runs")(
    ("{memory(node.args[0])[0] for node in writes}", "set()")
)
stale_view = edited("same", "saves a view of a view of an input that is overwritten")(
    ("place in written", "place in written and (node.op == 'placeholder' or node.args[0].op == 'placeholder')")
)
stale_second = edited("same", "knows of the first write only when it says what is overwritten")(
    ("{memory(node.args[0])[0] for node in writes}", "{memory(node.args[0])[0] for node in writes[:1]}")
)
constant_gradient = edited("valid", "forgets gradients that no tangent reaches")(
    ("set(results[outputs:])", "set(results[outputs:]) - forward")
)
unwritten = edited("same", "loses the writes, which no result needs")(
    ("part(joint, primals, results[:outputs] + cut, also=writes)", "part(joint, primals, results[:outputs] + cut)")
)
everything = edited("did", "saves all that the forward graph computes")(
    (
        '(n, "before") in left and (n, "after") not in left',
        "n in forward and memory(n) and memory(n)[0] not in written",
    )
)


@wrong("same", "returns outputs in another order where their forms allow it")
def outputs_exchanged(joint, outputs, once):
    forward, backward = by_ortools(joint, outputs, once)
    _exchange(forward, outputs)
    return forward, backward


@wrong("same", "returns gradients in another order where their forms allow it")
def gradients_exchanged(joint, outputs, once):
    forward, backward = by_ortools(joint, outputs, once)
    _exchange(backward)
    return forward, backward


def _exchange(gm, number=None):
    """Reverse the first results of one form, `number` of all at most."""
    (end,) = gm.graph.find_nodes(op="output")
    results = list(end.args[0])
    places = [at for at, node in enumerate(results[:number]) if node is not None]
    first = results[places[0]].meta["val"]
    alike = [at for at in places if _form(results[at].meta["val"]) == _form(first)]
    for at, other in zip(alike, reversed([results[at] for at in alike]), strict=True):
        results[at] = other
    end.args = (results,)


def _form(value):
    return (value.shape, value.dtype) if isinstance(value, Tensor) else None


tangents_first = edited("valid", "puts the tangents first")(("cut + tangents", "tangents + cut"))
no_sizes = edited("did", "saves no numbers, only tensors: a size keeps the whole tensor alive")(
    ("place is None or ...", "place is None or not isinstance(node.meta['val'], torch.Tensor) or ...")
)
tuples = edited("valid", "saves a tuple")(("place is None or ...", "..."))


@wrong("cost", "saves what the gradients read, and computes nothing once more")
def simple(joint, outputs, once):
    saved = {}
    for node in Joint.of(joint, outputs).forward:
        if node in Joint.of(joint, outputs).needed and memory(node):
            saved.setdefault(memory(node)[0], node)
    return _split(joint, outputs, list(saved.values()))


@wrong("cost", "looks at one value at a time: it is computed once more if its operands are saved already or smaller")
def one_by_one(joint, outputs, once):
    j = Joint.of(joint, outputs)
    sizes, saved = j.sizes(), set(j.needed)
    for node in reversed(j.forward):
        operands = set(node.all_input_nodes) - saved
        known = all(sizes[o] is not None for o in operands)
        cheap = sizes[node] is None or (known and sum(sizes[o] for o in operands) <= sizes[node])
        if node in saved and repeatable(node, once) and cheap:
            saved = saved - {node} | operands
    return _split(joint, outputs, [node for node in j.forward if node in saved])


@wrong("cost", "saves only what the outputs need, too: a value that the gradients alone read is computed later")
def on_the_way(joint, outputs, once):
    j = Joint.of(joint, outputs)
    way, sizes = set(j.results[:outputs]), j.sizes()
    for node in reversed(j.forward):
        if node in way:
            way.update(node.all_input_nodes)
    number, source, pipes = _network(joint, outputs, once)
    off = {i for node, i in number.items() if node not in way and sizes[node] is not None}
    return _cut(joint, outputs, number, source, [(a, b, 2**40 if a in off else w) for a, b, w in pipes])
