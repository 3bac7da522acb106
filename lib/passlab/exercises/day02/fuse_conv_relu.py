"""Day 2, fuse conv2d and relu: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from passlab.exercises.day02._shared import (
    ATTRIBUTES,
    Rewrite,
    leftovers,
    live,
    op_of,
    ops,
    others,
    program,
    rewrite_case,
)
from passlab.fx.cases import parameters
from passlab.fx.judge import judge_pass
from passlab.fx.ops import ConvReLU2d
from passlab.judge import Case, Finding, plural


def _fused(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    pairs_here, new = len(case.expect.matches), ops(after)["conv2d_relu"] - ops(before)["conv2d_relu"]
    if new >= pairs_here:
        return None
    pairs = ", ".join(case.expect.matches)
    return (
        f"{plural(pairs_here, 'pair')} can be fused here ({pairs}), "
        f"but your graph has {plural(max(new, 0), 'new conv2d_relu node')}. "
        f"A ReLU has three spellings (module, function, method), a convolution two."
    )


def _fused_too_much(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    old, new = ops(before), ops(after)
    fused = new["conv2d_relu"] - old["conv2d_relu"]
    if fused > len(case.expect.matches):
        reason = case.expect.why or "only a convolution whose only user is a ReLU may be fused"
        return f"You fused {plural(fused, 'pair')}; only {len(case.expect.matches)} may be: {reason}."
    for op in ("conv2d", "relu"):
        if new[op] < old[op] - fused:
            return (
                f"{plural(old[op] - fused - new[op], op + ' node')} disappeared without being fused. {case.expect.why}"
            )
    return others(old, new, {"conv2d", "relu", "conv2d_relu"}, "replace conv2d and relu by conv2d_relu")


def _fusion_cost(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    old, new = ops(before), ops(after)
    convolutions = new["conv2d"] + new["conv2d_relu"] - old["conv2d"] - old["conv2d_relu"]
    if convolutions > 0:
        return f"{plural(convolutions, 'convolution')} more than before: a value is now computed twice."
    extra = parameters(after) - parameters(before)
    if extra > 0:
        return f"The graph holds {extra:,} more parameters than before. Share them: fused.weight = conv.weight."
    return leftovers(before, after, new["conv2d_relu"] - old["conv2d_relu"], "fused away")


def _difference(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """Return a message about a fused module whose attributes differ from those of its convolution, or ""."""
    convs = [(path, m) for path, m in before.named_modules() if type(m) is nn.Conv2d]
    for node in live(after):
        fused = after.get_submodule(node.target) if node.op == "call_module" else None
        if type(fused) is not ConvReLU2d:
            continue
        same_weights = [(p, m) for p, m in convs if torch.equal(m.weight.double(), fused.weight.double())]
        if convs and not same_weights:
            return f"{node.target} has weights that match no convolution of the original graph."
        for name in ATTRIBUTES[:-1]:
            if same_weights and all(getattr(m, name) != getattr(fused, name) for _, m in same_weights):
                path, conv = same_weights[0]
                return f"{name} is {getattr(conv, name)!r} in {path}, and {getattr(fused, name)!r} in {node.target}."
        if same_weights and all((m.bias is None) != (fused.bias is None) for _, m in same_weights):
            return f"{same_weights[0][0]} and {node.target} do not both have a bias."
    return ""


_judge_fuse = judge_pass(did=_fused, spared=_fused_too_much, cost=_fusion_cost)


def judge(case: Case, value: dict[str, Any]) -> Iterator[Finding]:
    """Yield the five verdicts; where the meaning changed, name the lost attribute. A fused node names its sources."""
    complete = False
    for finding in _judge_fuse(case, value["graph"]):
        if finding.verdict == "same" and not finding.ok:
            finding = replace(
                finding, message=f"{finding.message} {_difference(case.build()[0], value['graph'])}".strip()
            )
        complete |= finding.verdict == "did" and finding.ok
        yield finding
    if complete and (message := _unnamed(case.expect, value)):
        yield Finding("did", False, message)


def _unnamed(expect: Rewrite, value: dict[str, Any]) -> str:
    """Return a message about a fused pair that no fused node says it stands for, or ""."""
    gm = value["graph"]
    stated = [value["sources"].get(n.name) for n in live(gm) if op_of(gm, n) == "conv2d_relu"]
    for pair in expect.matches:
        conv, relu = pair.split(" → ")
        if [conv, relu] not in stated:
            return (
                f"No fused node says that it stands for {conv} and {relu}. "
                f'Give it meta["from_node"] = [conv.name, relu.name].'
            )
    return ""


def _attributes() -> fx.GraphModule:
    conv = nn.Conv2d(4, 6, 3, (2, 1), (2, 1), (1, 2), groups=2, bias=False, padding_mode="reflect")
    return program(lambda m, x: m.relu(m.conv(x)), torch.randn(1, 4, 9, 8), conv=conv, relu=nn.ReLU())


def _spellings() -> fx.GraphModule:
    def body(m, x):
        x = F.relu(m.conv1(x), inplace=True)
        x = m.conv2(x).relu()
        return torch.relu(F.conv2d(x, m.weight, None, 2, padding=1))

    first, second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)
    weight = nn.Parameter(torch.randn(5, 4, 3, 3))
    return program(body, torch.randn(1, 3, 7, 7), conv1=first, conv2=second, weight=weight)


def _two_users() -> fx.GraphModule:
    def body(m, x):
        a = m.conv1(x)
        b = m.conv2(torch.relu(a) + a)
        return torch.relu(b), b

    return program(body, torch.randn(1, 3, 6, 6), conv1=nn.Conv2d(3, 4, 3, padding=1), conv2=nn.Conv2d(4, 2, 1))


def _shared() -> fx.GraphModule:
    def body(m, x):
        a = m.relu(m.conv(x))
        b = torch.sigmoid(m.conv(a))
        return m.relu(a - b)

    return program(body, torch.randn(1, 4, 6, 6), conv=nn.Conv2d(4, 4, 3, padding=1), relu=nn.ReLU())


def _not_conv_relu() -> fx.GraphModule:
    def body(m, x):
        a = F.relu6(m.conv(x))
        b = F.leaky_relu(m.conv2(a), 0.2)
        c = torch.relu(m.up(b))
        return torch.relu(m.linear(c)) + m.conv2(torch.relu(c))

    parts = {
        "conv": nn.Conv2d(3, 4, 3, padding=1),
        "conv2": nn.Conv2d(4, 4, 1),
        "up": nn.ConvTranspose2d(4, 4, 3, padding=1),
        "linear": nn.Linear(6, 6),
    }
    return program(body, 3 * torch.randn(1, 3, 6, 6), **parts)


def cases() -> list[Case]:
    """Return the visible cases of FuseConvReLU."""
    return [
        rewrite_case("one conv, no attribute at its default", _attributes, Rewrite(("conv → relu",))),
        rewrite_case(
            "a ReLU spelled as function, as method, and behind F.conv2d",
            _spellings,
            Rewrite(("conv1 → relu", "conv2 → relu_1", "conv2d → relu_2")),
        ),
        rewrite_case(
            "two convolutions that something else uses too",
            _two_users,
            Rewrite(why="conv1 is also used by the addition, and conv2 is an output of the program"),
            *("valid", "same", "spared"),
        ),
        rewrite_case(
            "one conv module called twice, one relu module called twice",
            _shared,
            Rewrite(
                ("conv → relu",), "the second call of conv goes into a sigmoid, the second call of relu is of a sum"
            ),
        ),
        rewrite_case(
            "nothing but look-alikes",
            _not_conv_relu,
            Rewrite(why="relu6 and leaky_relu are other functions, a transposed convolution is another convolution"),
            *("valid", "same", "spared"),
        ),
    ]
