"""Day 2, eight planted passes: which attribute got lost?: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from passlab.exercises.day02._shared import ATTRIBUTES, program
from passlab.fx.cases import seeded
from passlab.fx.ops import ConvReLU2d
from passlab.judge import Case, Finding, shown


@dataclass(frozen=True)
class Planted:
    """What one planted pass did. `lost`: the attribute, or None for a correct pass. `why`: the explanation to show.

    `weights`: how a pass that changes groups fills the larger kernel. "kept": not at all; "repeated": wrongly;
    "block": with zeros between the groups, which is right.
    """

    lost: str | None
    why: str
    weights: str = "kept"


def _widen(weight: Tensor, groups: int, method: str) -> Tensor:
    """Return the kernel of a grouped convolution as that of a convolution with one group."""
    if method == "repeated":
        return weight.repeat(1, groups, 1, 1)
    blocks = [torch.cat([w if i == j else 0 * w for j in range(groups)], 1) for i, w in enumerate(weight.chunk(groups))]
    return torch.cat(blocks)


def planted_case(
    name: str, layers: list[tuple[dict, dict]], size: int, expect: Planted, seed: int = 0, blank: bool = False
) -> Case:
    """Return a case whose arguments are a stack of conv → relu, the result of a planted pass, and example inputs.

    `layers`: for each convolution its arguments, and those that the pass changed. `blank`: the image is zero.
    """

    def build() -> tuple:
        old, new = [], []
        for options, changed in layers:
            conv = nn.Conv2d(**options)
            fused = ConvReLU2d(**(options | changed))
            weight = conv.weight.detach()
            if fused.groups < conv.groups and expect.weights != "kept":
                weight = _widen(weight, conv.groups, expect.weights)
            fused.weight = nn.Parameter(weight.clone())
            if fused.bias is not None:
                fused.bias = conv.bias
            old.append((conv, nn.ReLU()))
            new.append(fused)
        x = torch.randn(2, layers[0][0]["in_channels"], size, size) * (not blank)
        convs, relus = nn.ModuleList(c for c, _ in old), nn.ModuleList(r for _, r in old)

        def plain(m: Any, x: Tensor) -> Tensor:
            for conv, relu in zip(m.convs, m.relus, strict=True):
                x = relu(conv(x))
            return x

        def after(m: Any, x: Tensor) -> Tensor:
            for conv in m.convs:
                x = conv(x)
            return x

        before_gm = program(plain, x, convs=convs, relus=relus)
        return before_gm, program(after, x, convs=nn.ModuleList(new)), (x,)

    return Case(name, seeded(build, seed), ("spared" if expect.lost is None else "did",), expect=expect)


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Judge that the attribute that made the difference is named (did), and correct passes are acquitted (spared)."""
    name = case.expect.lost
    verdict = "spared" if name is None else "did"
    if value is not None and not (isinstance(value, str) and value in ATTRIBUTES):
        message = f"Return one of {', '.join(ATTRIBUTES)}, or None; it returned {shown(value)}."
    elif value == name:
        yield Finding(verdict, True)
        return
    elif name is None:
        message = f"Your answer is that {value} was lost, but the two programs compute the same. {case.expect.why}"
    else:
        message = (
            f"Your answer is {'that nothing was lost' if value is None else value}; expected {name}. {case.expect.why}"
        )
    before, after, _ = case.build()  # to be drawn
    yield Finding(verdict, False, message, before=before, after=after)


def conv(inputs: int, outputs: int, kernel: int = 3, **options: Any) -> dict:
    """Return the arguments of a convolution."""
    return {"in_channels": inputs, "out_channels": outputs, "kernel_size": kernel, **options}


def cases() -> list[Case]:
    """Return the visible cases of the lost attribute: eight planted passes."""
    odd = conv(4, 4, stride=2, padding=2, dilation=2, groups=2, padding_mode="reflect")
    plain = conv(4, 4, padding=1)
    same = conv(4, 4, padding="same", dilation=2)
    return [
        planted_case(
            "pass A",
            [(odd, {"padding": 0})],
            9,
            Planted("padding", "After, the first convolution pads by 0: the image shrinks."),
        ),
        planted_case(
            "pass B", [(plain, {}), (conv(4, 6, bias=True), {"bias": False})], 8, Planted("bias", "The bias is gone.")
        ),
        planted_case(
            "pass C",
            [(odd, {"groups": 1})],
            9,
            Planted(
                "groups", "After, groups is 1 and the weights have the shape for 2: the program fails when it runs."
            ),
        ),
        planted_case(
            "pass D",
            [(conv(4, 4, padding=0, padding_mode="circular"), {"padding_mode": "zeros"})],
            8,
            Planted(None, "padding_mode differs, but with padding 0 nothing is padded."),
        ),
        planted_case(
            "pass E",
            [(plain, {}), (odd, {"padding_mode": "zeros"})],
            9,
            Planted("padding_mode", "The second convolution pads with zeros instead of reflecting."),
        ),
        planted_case(
            "pass F",
            [(same, {"padding": 2}), (plain, {"bias": False})],
            8,
            Planted("bias", 'padding="same" became 2, which pads the same amount here; the bias makes the difference.'),
        ),
        planted_case(
            "pass G",
            [(plain, {}), (odd, {})],
            9,
            Planted(None, "The graph looks different, but every attribute is kept."),
        ),
        planted_case(
            "pass H",
            [(plain, {}), (conv(4, 4, stride=2, padding=1), {"stride": 1})],
            8,
            Planted("stride", "The second convolution visits every position instead of every second one."),
        ),
    ]
