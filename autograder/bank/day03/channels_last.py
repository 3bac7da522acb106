"""Bank of day03.channels-last. Choosing a side for each node, and putting the conversions in, are two steps."""

from __future__ import annotations

from collections import defaultdict, deque

import torch

from autograder.bank import right, wrong
from passlab.fx.layout import NCHW, NHWC, is_image, wants

FORMATS = {NCHW: torch.contiguous_format, NHWC: torch.channels_last}


def _images(node):
    return [n for n in node.all_input_nodes if is_image(n)]


def _fixed(node):
    """The side of a node without a choice, None for a node with one."""
    want = wants(node)
    return want if want in (NCHW, NHWC) else None if _images(node) else NCHW


def _convert(gm, side, share=True, skip=lambda image, reader: False):
    """Put a conversion between an image and its readers on the other side."""
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
    """A node with a choice goes to the preferred side if one of its images is there."""
    side = {}
    for node in gm.graph.nodes:
        there = {side[n] for n in _images(node)}
        side[node] = _fixed(node) or (prefer if prefer in there else next(iter(there)))
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
        came, todo = {NCHW: None}, deque([NCHW])
        while todo:
            at = todo.popleft()
            for to, left in list(room[at].items()):
                if left > 0 and to not in came:
                    came[to] = at
                    todo.append(to)
        return came

    while NHWC in (came := reach()):
        at = NHWC
        while came[at] is not None:
            room[came[at]][at] -= 1
            room[at][came[at]] += 1
            at = came[at]
    return _convert(gm, {node: NCHW if node in came else NHWC for node in gm.graph.nodes})


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


@wrong("cost", "wraps each convolution in two conversions")
def wrap_each(gm):
    return _convert(gm, {node: NHWC if wants(node) == NHWC else NCHW for node in gm.graph.nodes})


@wrong("cost", "NHWC wherever it can be: it is never worth while to turn back early")
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
            there = {side[n] for n in _images(node)}
            side[node] = (
                NHWC if is_image(node) and (node.op != "placeholder" and (NHWC in there or len(there) == 1)) else NCHW
            )
    return _convert(gm, side)


@wrong("spared", "never converts back: flatten and the output get NHWC")
def one_way(gm):
    side = _greedy(gm)
    return _convert(gm, side, skip=lambda image, reader: side[image] == NHWC)


@wrong("spared", "converts what goes into convolutions, and lets two layouts meet at an addition")
def layouts_meet(gm):
    side = _greedy(gm)
    return _convert(gm, side, skip=lambda image, reader: wants(reader) == "any")


@wrong("did", "lays the weights out as NHWC, and leaves the images as they are")
def weights_only(gm):
    for module in gm.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.to(memory_format=torch.channels_last)
    return gm


@wrong("did", "knows modules only: a call of F.conv2d gets what comes")
def modules_only(gm):
    side = _greedy(gm)
    for node in gm.graph.nodes:
        there = {side[n] for n in _images(node)}
        wanted = wants(node) if node.op == "call_module" or wants(node) != NHWC else "any"
        side[node] = wanted if wanted != "any" else NHWC if NHWC in there else NCHW
    return _convert(gm, side)


@wrong("same", "NHWC is another order of dimensions: permutes the images before each convolution")
def permutes(gm):
    for node in [n for n in gm.graph.nodes if wants(n) == NHWC]:
        image = node.all_input_nodes[0]
        with gm.graph.inserting_before(node):
            node.replace_input_with(image, gm.graph.call_method("permute", (image, 0, 2, 3, 1)))
    return gm
