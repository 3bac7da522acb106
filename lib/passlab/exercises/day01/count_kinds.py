"""Day 1, count nodes by kind: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from passlab.exercises.day01._shared import net, traced
from passlab.graph import KINDS, view
from passlab.judge import Case, Finding, and_more
from passlab.judge.forms import is_number, why_not_a_dict, why_not_a_list
from passlab.judge.words import shown


def _three_forms() -> nn.Module:
    def forward(self, x):
        x = F.relu(self.linear(x))
        x = x.reshape(2, 2, 3).transpose(1, 2)
        return torch.flatten(x, 1) + self.shift

    return net(forward, linear=nn.Linear(4, 6), shift=nn.Parameter(torch.zeros(6)))


def _storage() -> nn.Module:
    def forward(self, x, y):
        torch._assert(x.shape[0] == 2, "two rows, please")
        z = torch.cat([x, y], 1).clone()
        left, right = z.add_(1).chunk(2, -1)
        return self.act(left).permute(1, 0).contiguous(), right.size(0)

    return net(forward, act=nn.ReLU(inplace=True))


def _misnamed() -> nn.Module:
    def forward(self, clone):
        x = self.reshape(clone)
        x = self.view(x)
        return self.relu(x), self.clone(x.sigmoid())

    return net(forward, reshape=nn.Linear(4, 4), view=nn.Tanh(), relu=nn.Flatten(), clone=nn.ReLU())


def cases() -> list[Case]:
    return [
        Case("functions, methods and modules", traced(_three_forms, (2, 4)), ("valid", "did")),
        Case("storage, shapes and an assertion", traced(_storage, (2, 3), (2, 3)), ("valid", "did")),
        Case("names that mislead", traced(_misnamed, (2, 4)), ("valid", "spared")),
    ]


def judge(case: Case, record: dict[str, Any]) -> Iterator[Finding]:
    """Judge `did`: every node is counted under its kind. `spared`: no node is counted under a kind that it is not."""
    gm = case.build()[0]
    expected, members = {}, {}
    for kind in KINDS:
        nodes = [node for node in view(gm) if node.kind == kind]
        members[kind] = [node.id for node in nodes]
        expected[kind] = (len(nodes), sum(node.bytes or 0 for node in nodes))
    value = record["value"]
    form = "a dict from each of the five kinds to (nodes, bytes)"
    broken = why_not_a_dict(value, form, KINDS, "entry; (0, 0) is one, too", "a kind", _why_not_a_count)
    if record["changed"]:
        broken = "The graph has changed. Only read it: other code uses it, too."
    yield Finding("valid", not broken, broken, before=gm)
    if broken:
        return
    for verdict, place, noun in (("did", 0, "Nodes"), ("did", 1, "Bytes"), ("spared", 0, "Nodes")):
        wrong = [kind for kind in KINDS if value[kind][place] != expected[kind][place]]
        excess = [kind for kind in wrong if value[kind][place] > expected[kind][place]]
        kind = next(iter(excess or wrong), None)
        message = ""
        if kind is not None:
            want, actual, names = expected[kind][place], value[kind][place], and_more(members[kind], 8) or "none"
            message = f"{noun} of kind {kind}: expected {want:,}, got {actual:,}. The {kind} nodes here: {names}."
        yield Finding(verdict, kind is None, message, before=gm, mark=tuple(members[kind]) if kind else ())


def _why_not_a_count(kind: str, pair: Any) -> str:
    if why_not_a_list(pair, "", 2) or not all(is_number(n) and isinstance(n, int) for n in pair):
        return f"The entry of {kind!r} must be two ints, (nodes, bytes); it is {shown(pair)}."
    return ""
