"""Day 4: which nodes of an FX graph Relay's FuseOps puts into one kernel. Visible cases, and a judge that runs FuseOps.

`passlab.relay.translate` makes one call of Relay from each operation, and FuseOps runs on the result. So that both see
the nodes in one order, the graphs are in post-order: operands before readers, the first operand first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passlab import models
from passlab.exercises._groups import without_groups
from passlab.exercises.day04._shared import why_not_a_call
from passlab.fx.cases import graph
from passlab.fx.patterns import canonical
from passlab.judge import Case, Finding, as_decorator
from passlab.judge.forms import why_not_groups
from passlab.relay.groups import fused_groups
from passlab.relay.translate import in_post_order, plain, to_relay


def zoo(name: str) -> Callable[[], fx.GraphModule]:
    return lambda: plain(models.ZOO[name].build(), *models.ZOO[name].inputs())


def is_projection(node: fx.Node) -> bool:
    """Return whether the node is a field of a tuple. That is not an operation: nothing is computed."""
    return canonical(node) == "getitem" and isinstance(node.args[1], int)


def operations(gm: fx.GraphModule) -> list[str]:
    """Return the names of the nodes that are computed, in graph order."""
    return [n.name for n in gm.graph.nodes if n.op.startswith("call_") and not is_projection(n)]


def right_groups(gm: fx.GraphModule) -> list[list[str]]:
    """Return the groups of FuseOps, as names of nodes."""
    module, names = to_relay(gm)
    return [[names[at] for at in group] for group in fused_groups(module)]


def _invalid(value: Any, gm: fx.GraphModule) -> str:
    if isinstance(value, list | tuple):
        value = [group for group in value if group not in ([], (), set())]
    return why_not_groups(value, "names of nodes", why_not_a_call(gm), every=operations(gm))


def _first_split(groups: Any, others: Any, place: dict[str, int]) -> tuple[str, str] | None:
    """Return two neighbours in one of `groups` that are in different groups of `others`, or None."""
    where = {name: number for number, group in enumerate(others) for name in group}
    for group in groups:
        for one, next_ in pairwise(sorted(group, key=place.__getitem__)):
            if where[one] != where[next_]:
                return one, next_
    return None


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge `valid`: each operation is in one group. `did`: the groups are those of FuseOps. `spared`: no large one."""
    [gm] = case.build()
    wrong = _invalid(value, gm)
    yield Finding("valid", not wrong, wrong, before=gm)
    if wrong:
        return
    place = {name: at for at, name in enumerate(operations(gm))}
    groups = [[name for name in group if name in place] for group in value]
    right = right_groups(gm)
    cut, join = _first_split(right, groups, place), _first_split(groups, right, place)
    split = f"FuseOps puts {cut[0]} and {cut[1]} into one kernel, but you keep them apart." if cut else ""
    merged = f"You put {join[0]} and {join[1]} into one kernel, but FuseOps keeps them apart." if join else ""
    yield Finding("did", not cut and not join, split or merged, before=gm, mark=cut or join or ())
    yield Finding("spared", not join, merged, before=gm, mark=join or ())


@as_decorator
def groups_case(name: str, build: Callable[[], fx.GraphModule]) -> Case:
    return Case(name, lambda: (in_post_order(build()),))


IMAGE = (1, 4, 6, 6)
KERNEL = {"w": (4, 4, 3, 3)}


def conv(m: Any, x: fx.Proxy) -> fx.Proxy:
    return F.conv2d(x, m.w, None, 1, 1)


def reductions(m: Any, x: fx.Proxy) -> tuple:
    return torch.relu(x).sum(1), torch.relu(x.sum(1)), torch.softmax(torch.exp(x), 1) * 2


def fork(m: Any, x: fx.Proxy) -> tuple:
    c = conv(m, x)
    return torch.relu(c), torch.sigmoid(c)


def diamond(m: Any, x: fx.Proxy) -> fx.Proxy:
    c = conv(m, x)
    return torch.relu(c) + torch.sigmoid(c)


def shapes(m: Any, x: fx.Proxy) -> fx.Proxy:
    c = (conv(m, x) * 2).permute(0, 2, 3, 1)
    return torch.relu((c + m.b).reshape(1, -1).transpose(0, 1))


def pieces(m: Any, x: fx.Proxy) -> fx.Proxy:
    left, right = torch.exp(x).chunk(2, 1)
    return torch.relu(torch.cat([torch.tanh(right), left], 1))


def pooling(m: Any, x: fx.Proxy) -> fx.Proxy:
    small = F.max_pool2d(torch.relu(conv(m, x)), 2)
    return torch.sigmoid(small) * small.mean((2, 3), keepdim=True)


def gelu(x: fx.Proxy) -> fx.Proxy:
    return x * (torch.erf(x * 0.5**0.5) + 1) * 0.5


def norm(m: Any, x: fx.Proxy) -> fx.Proxy:
    centred = x - x.mean(-1, True)
    return centred * torch.rsqrt((centred * centred).mean(-1, True) + 1e-5) * m.gamma + m.beta


def dense(x: fx.Proxy, w: Any, b: Any) -> fx.Proxy:
    return F.linear(x, w) + b


def block(m: Any, x: fx.Proxy) -> fx.Proxy:
    """Return a block of GPT-2 on one sequence of six tokens of width eight, two heads."""
    y = norm(m, x)

    def heads(w: Any) -> fx.Proxy:
        return F.linear(y, w).reshape(6, 2, 4).transpose(0, 1)

    scores = heads(m.q) @ heads(m.k).transpose(1, 2) * 0.5 + m.mask
    mixed = (torch.softmax(scores, -1) @ heads(m.v)).transpose(0, 1).reshape(6, 8)
    x = x + dense(mixed, m.o, m.beta)
    return x + dense(gelu(dense(norm(m, x), m.up, m.b)), m.down, m.beta)


WEIGHTS = {"q": (8, 8), "k": (8, 8), "v": (8, 8), "o": (8, 8), "up": (32, 8), "b": (32,), "down": (8, 32)}
BLOCK = {**WEIGHTS, "gamma": (8,), "beta": (8,), "mask": (6, 6)}


def cases() -> list[Case]:
    return [
        groups_case("reductions", graph(reductions, (2, 6))),
        groups_case("a residual block", zoo("residual")),
        without_groups(groups_case("a fork", graph(fork, IMAGE, **KERNEL))),
        groups_case("a fork that joins again", graph(diamond, IMAGE, **KERNEL)),
        groups_case("shapes behind a convolution", graph(shapes, IMAGE, **KERNEL, b=(4,))),
        groups_case("pieces", graph(pieces, IMAGE)),
        groups_case("pooling", graph(pooling, IMAGE, **KERNEL)),
        groups_case("dense, bias, GELU", graph(lambda m, x: gelu(dense(x, m.w, m.b)), (2, 4), w=(6, 4), b=(6,))),
        groups_case("a block of GPT-2", graph(block, (6, 8), **BLOCK)),
    ]
