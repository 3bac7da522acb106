"""Hidden cases and answers of day03.channels-last."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn

from autograder.answers.day03._shared import Build, zoo
from autograder.authoring.answers import plain, reference, right, wrong
from passlab.exercises.day03.channels_last import layout_case
from passlab.fx.cases import graph
from passlab.fx.layout import NCHW, NHWC, converts, is_image, wants
from passlab.judge import Case, core, drawn

# ---------------------------------------------------------------------------------------------------- hidden cases


CONV: dict[str, Any] = {"one": lambda: nn.Conv2d(3, 3, 3, padding=1), "two": lambda: nn.Conv2d(3, 3, 1)}
IMAGE = (2, 3, 4, 4)


@drawn
def plain_chains(rng: random.Random) -> list[Case]:
    """Return chains of convolutions (c), ops that take any layout (a) and flips, which want NCHW (f)."""
    free = (torch.relu, torch.tanh, torch.sigmoid)

    def chain(letters: str) -> Build:
        def body(m: Any, x: fx.Proxy) -> fx.Proxy:
            for i, letter in enumerate(letters):
                x = m.one(x) if letter == "c" else torch.flip(x, (1,)) if letter == "f" else free[i % 3](x)
            return x

        return graph(body, IMAGE, one=CONV["one"])

    few = rng.randrange(1, 9)
    return [
        core(layout_case("plain: NHWC runs through", chain("a" + ("c" + few * "a") * 3), 2)),
        core(layout_case("plain: two stretches", chain("cac" + few * "a" + "f" + few * "a" + "cca"), 4)),
    ]


@layout_case("one image, four readers", graph(..., IMAGE, **CONV), 4)
def two_readers(m: Any, x: fx.Proxy) -> tuple:
    y = m.one(x)
    return torch.relu(y), m.two(y), y.flatten(1), m.one(x)


@layout_case("turning back early pays", graph(..., IMAGE, IMAGE, IMAGE, **CONV), 2)
def ladder(m: Any, x: fx.Proxy, y: fx.Proxy, z: fx.Proxy) -> fx.Proxy:
    a = m.one(x) + y
    return torch.tanh(torch.relu(a * z) + y) * y


@layout_case("functions and weights", graph(..., IMAGE, weight=(3, 3, 3, 3), bias=(1, 3, 1, 1)), 1)
def functional(m: Any, x: fx.Proxy) -> fx.Proxy:
    y = F.conv2d(x, m.weight, padding=1)
    return F.avg_pool2d(y + m.bias, 2).mean((2, 3))


@drawn
def joins(rng: random.Random) -> list[Case]:
    few = rng.randrange(3, 6)

    def joined(number: int) -> Build:
        """Join the results of `number` convolutions and `few` inputs in one op, which takes them in one layout."""

        def body(m: Any, x: fx.Proxy) -> fx.Proxy:
            inputs = [x[:, i : i + 1] for i in range(few)]
            return torch.cat([getattr(m, f"c{i}")(x) for i in range(number)] + inputs, 1)

        convs = {f"c{i}": lambda: nn.Conv2d(6, 1, 1) for i in range(number)}
        return graph(body, (2, 6, 4, 4), **convs)

    return [
        layout_case("more convolutions than inputs", joined(few + 2), few + 2),
        layout_case("as many convolutions as inputs", joined(few), few + 1),
    ]


@layout_case("two knots", graph(..., IMAGE, IMAGE, IMAGE, last=lambda: nn.Conv2d(48, 2, 1), **CONV), 4)
def knots(m: Any, x: fx.Proxy, y: fx.Proxy, z: fx.Proxy) -> tuple:
    """Return two groups of ops, each cheapest as a whole on another side: no op gains by changing sides alone."""

    def knot(images: list[fx.Proxy]) -> fx.Proxy:
        for _ in range(3):
            images = [*images, torch.cat(images, 1)]
        return images[-1]

    plain = knot([m.one(x), y, torch.flip(y, (1,)), z])
    return plain.flatten(1), m.last(knot([m.one(x + 1), m.two(x), m.two(x * 2), torch.flip(z, (1,))]))


@layout_case("an image made of weights", graph(..., IMAGE, grid=(1, 3, 4, 4), **CONV), 3)
def made_of_weights(m: Any, x: fx.Proxy) -> fx.Proxy:
    return m.two(m.one(x) + m.grid * 2)


residual, skip, unet, vit = (layout_case(name, zoo(name), 2) for name in ("residual", "skip", "unet", "vit"))


def images(seed: int, size: int) -> Build:
    """Return a random graph of convolutions and ops that take any layout, with several inputs and outputs."""

    def body(m: Any, x: fx.Proxy, y: fx.Proxy, z: fx.Proxy) -> tuple:
        rng, pool = random.Random(seed), [x, y, z]
        for _ in range(size):
            a, b = rng.choice(pool[-4:]), rng.choice(pool)
            step = rng.choice(
                (
                    lambda a=a: m.conv(a),
                    lambda a=a: torch.relu(a),
                    lambda a=a: m.bn(a),
                    lambda a=a, b=b: a + b,
                    lambda a=a, b=b: a * torch.sigmoid(b),
                    lambda a=a: a.transpose(2, 3),
                )
            )()
            pool.append(step)
        return pool[-1], pool[-2].flatten(1), rng.choice(pool)

    return graph(body, *[(2, 3, 4, 4)] * 3, conv=lambda: nn.Conv2d(3, 3, 3, padding=1), bn=lambda: nn.BatchNorm2d(3))


@drawn
def random_graphs(rng: random.Random) -> Iterable[Case]:
    answer = reference("day03.channels-last")
    for i in range(5):
        build = images(rng.randrange(10**6), rng.randrange(6, 13))
        conversions = sum(converts(n) is not None for n in answer(build()).graph.nodes)
        yield layout_case(f"drawn, number {i + 1}", build, conversions)


# ---------------------------------------------------------------------------------------------------- answers

FORMATS = {NCHW: torch.contiguous_format, NHWC: torch.channels_last}


def _images(node):
    return [n for n in node.all_input_nodes if is_image(n)]


def _fixed(node):
    """Return the side of a node without a choice, None for a node with one."""
    want = wants(node)
    return want if want in (NCHW, NHWC) else None if _images(node) else NCHW


def _convert(gm, side, share=True, skip=lambda image, reader: False):
    """Put a conversion between each image and its readers on the other side."""
    for image in [n for n in gm.graph.nodes if is_image(n)]:
        others = [r for r in image.users if side[r] != side[image] and not skip(image, r)]
        for readers in [others] if share else [[reader] for reader in others]:
            if readers:
                with gm.graph.inserting_after(image):
                    new = gm.graph.call_method("contiguous", (image,), {"memory_format": FORMATS[side[readers[0]]]})
                new.meta = dict(image.meta)
                for reader in readers:
                    reader.replace_input_with(image, new)
    gm.recompile()
    return gm


def _greedy(gm, prefer=NHWC):
    """Put a node with a choice on the preferred side if one of its images is there."""
    side = {}
    for node in gm.graph.nodes:
        layouts = {side[n] for n in _images(node)}
        side[node] = _fixed(node) or (prefer if prefer in layouts else next(iter(layouts)))
    return side


def _conversions(gm, side):
    return sum(any(side[r] != side[n] for r in n.users) for n in gm.graph.nodes if is_image(n))


@right("a maximum flow by hand: augmenting paths, found breadth first (Edmonds and Karp)")
def augmenting_paths(gm):
    room = defaultdict(lambda: defaultdict(int))
    for node in gm.graph.nodes:
        fixed = _fixed(node)
        if fixed == NHWC:
            room[node][NHWC] = 10**9
        elif fixed == NCHW:
            room[NCHW][node] = 10**9
        for image in _images(node):
            forth, back = ("forth", image), ("back", image)
            room[image][forth], room[forth][node], room[node][back], room[back][image] = 1, 10**9, 10**9, 1

    def reach():
        origin, todo = {NCHW: None}, deque([NCHW])
        while todo:
            at = todo.popleft()
            for to, left in list(room[at].items()):
                if left > 0 and to not in origin:
                    origin[to] = at
                    todo.append(to)
        return origin

    while NHWC in (paths := reach()):
        at = NHWC
        while paths[at] is not None:
            room[paths[at]][at] -= 1
            room[at][paths[at]] += 1
            at = paths[at]
    return _convert(gm, {node: NCHW if node in paths else NHWC for node in gm.graph.nodes})


@right("branch and bound: a choice that already costs as much as the best known is given up")
def branch_and_bound(gm):
    nodes = list(gm.graph.nodes)
    best = min((_greedy(gm, prefer) for prefer in (NHWC, NCHW)), key=lambda side: _conversions(gm, side))
    least, side, converted = _conversions(gm, best), {}, set()

    def choose(i):
        nonlocal best, least
        while i < len(nodes) or len(converted) < least:
            if i == len(nodes):
                best, least = dict(side), len(converted)
                return
            node = nodes[i]
            options = (
                [_fixed(node)] if _fixed(node) else list(dict.fromkeys([*(side[n] for n in _images(node)), NHWC, NCHW]))
            )
            for option in options:
                new = {n for n in _images(node) if side[n] != option} - converted
                if len(converted) + len(new) < least:
                    side[node] = option
                    converted.update(new)
                    choose(i + 1)
                    converted.difference_update(new)
            return

    choose(0)
    return _convert(gm, best)


@plain("follows the layout down the chain, and gives each reader what it wants: neither joins nor several readers")
def down_the_chain(gm):
    layout = {}
    for node in list(gm.graph.nodes):
        want = wants(node)
        for image in [n for n in node.all_input_nodes if is_image(n)]:
            if want == "any" or layout[image] == want:
                want = layout[image]
                continue
            with gm.graph.inserting_before(node):
                new = gm.graph.call_method("to", (image,), {"memory_format": FORMATS[want]})
            node.replace_input_with(image, new)
        layout[node] = NCHW if want == "any" else want
    return gm


@wrong("cost", "wraps each convolution in two conversions", core=True)
def wrap_each(gm):
    return _convert(gm, {node: NHWC if wants(node) == NHWC else NCHW for node in gm.graph.nodes})


@wrong("cost", "NHWC wherever it can be: never turns back early, though it can pay")
def nhwc_if_possible(gm):
    return _convert(gm, _greedy(gm))


@wrong("cost", "turns back at the first op with an NCHW operand: a residual then costs a conversion")
def nchw_if_possible(gm):
    return _convert(gm, _greedy(gm, NCHW))


@wrong("cost", "every reader gets a conversion of its own")
def one_each(gm):
    best = min((_greedy(gm, prefer) for prefer in (NHWC, NCHW)), key=lambda side: _conversions(gm, side))
    return _convert(gm, best, share=False)


@wrong("cost", "converts at the inputs and at the outputs, whether there is a convolution or not")
def at_the_door(gm):
    side = _greedy(gm)
    for node in gm.graph.nodes:
        if wants(node) == "any" or node.op == "placeholder":
            layouts = {side[n] for n in _images(node)}
            converted = is_image(node) and node.op != "placeholder" and (NHWC in layouts or len(layouts) == 1)
            side[node] = NHWC if converted else NCHW
    return _convert(gm, side)


@wrong("spared", "never converts back: flatten and the output get NHWC", core=True)
def one_way(gm):
    side = _greedy(gm)
    return _convert(gm, side, skip=lambda image, reader: side[image] == NHWC)


@wrong("spared", "converts what goes into convolutions, and lets two layouts meet at an addition")
def layouts_meet(gm):
    side = _greedy(gm)
    return _convert(gm, side, skip=lambda image, reader: wants(reader) == "any")


@wrong("did", "lays the weights out as NHWC, and leaves the images as they are", core=True)
def weights_only(gm):
    for module in gm.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.to(memory_format=torch.channels_last)
    return gm


@wrong("did", "knows modules only: a call of F.conv2d gets what comes")
def modules_only(gm):
    side = _greedy(gm)
    for node in gm.graph.nodes:
        layouts = {side[n] for n in _images(node)}
        target = wants(node) if node.op == "call_module" or wants(node) != NHWC else "any"
        side[node] = target if target != "any" else NHWC if NHWC in layouts else NCHW
    return _convert(gm, side)


@wrong("same", "NHWC is another order of dimensions: permutes the images before each convolution")
def permutes(gm):
    for node in [n for n in gm.graph.nodes if wants(n) == NHWC]:
        image = node.all_input_nodes[0]
        with gm.graph.inserting_before(node):
            node.replace_input_with(image, gm.graph.call_method("permute", (image, 0, 2, 3, 1)))
    return gm


EQUIVALENT = {
    ("gm.recompile()", "pass"): "the graph is the result, and its code is generated anew",
    ("converted.meta = dict(node.meta)", "pass"): "shapes on the result are for the next pass",
    ("dict(node.meta)", "node.meta"): "nothing changes the dictionary later",
}
