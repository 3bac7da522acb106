"""Faults that were found in the pinned versions, each as a program of a few lines.

    python -m passlab.hunt.known > docs/faults.md

What a target makes of each program is computed: a fault that a new version has mended fails the tests, and goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from passlab.hunt.faults import Fault, version_of
from passlab.hunt.search import failure, quiet, second
from passlab.hunt.targets import TARGETS

#: Weights of the programs below, which need no others.
ONES = torch.ones(3)


@dataclass(frozen=True)
class Known:
    """A fault: the targets that have it, a program that shows it, and its example inputs."""

    title: str
    targets: tuple[str, ...]
    program: Callable[..., Any]
    inputs: tuple[Tensor, ...]

    def graph(self) -> fx.GraphModule:
        """Return the traced program, in evaluation mode, with its inputs in `meta["inputs"]`."""
        root = self.program().eval() if isinstance(self.program, type) else self.program
        gm = fx.symbolic_trace(root)
        for node in gm.graph.nodes:
            node.type = None  # annotations of the program, which reports do not need
        gm.recompile()
        gm.meta["inputs"] = tuple(x.clone() for x in self.inputs)
        return gm

    def fault(self, name: str) -> Fault | None:
        """Return the fault as a target shows it, None if it is right now."""
        target, gm = TARGETS[name], self.graph()
        with quiet():
            failed = failure(target, gm)
            return failed and Fault(target, *failed, gm, second(target, gm, failed[0]))


#: All known faults, in the order of the page.
KNOWN: list[Known] = []


def known(title: str, targets: str, *inputs: Tensor) -> Callable[[Any], Any]:
    """Return a decorator that adds a program to `KNOWN`; targets: their names, with spaces between."""

    def add(program: Any) -> Any:
        KNOWN.append(Known(title, tuple(targets.split()), program, inputs))
        return program

    return add


def _numbers(*shape: int) -> Tensor:
    return torch.linspace(-1, 2, torch.Size(shape).numel()).reshape(shape)


@known("numbers of two types are merged", "cse", torch.tensor([1, 2, 3]))
def powers(n: Tensor) -> Any:
    return torch.pow(n, 2), torch.pow(n, 2.0)


@known("0.0 and -0.0 are merged", "cse", _numbers(3))
def signed_zeros(x: Tensor) -> Any:
    return torch.div(x, 0.0), torch.div(x, -0.0)


@known("a module and a method of the same name are merged", "cse", _numbers(3))
class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tanh = nn.Hardtanh()

    def forward(self, x: Tensor) -> Any:
        return self.tanh(x), x.tanh()


@known("a slice cannot be hashed before Python 3.12", "cse", _numbers(2, 3))
def sliced(x: Tensor) -> Any:
    return x[:, 1:]


@known("what is read around a write through a view is merged", "cse-aten", _numbers(2, 3))
def written(x: Tensor) -> Any:
    first = torch.sin(x)
    x[0].zero_()
    return first, torch.sin(x)


@known("alpha is dropped", "operators relax relax-fx", _numbers(2, 3), _numbers(2, 3) + 1)
def scaled(x: Tensor, y: Tensor) -> Any:
    return torch.sub(x, y, alpha=2)


@known(
    "alpha is dropped where a product and a sum become one call", "inductor", *(_numbers(2, 2) + i for i in range(3))
)
def fused(x: Tensor, y: Tensor, z: Tensor) -> Any:
    return torch.add(x @ y, z, alpha=2)


@known("0 is added to Boolean values, which stay Boolean", "onnx-traced relax relax-fx", torch.tensor([1, 5]))
def promoted(n: Tensor) -> Any:
    return (n > 4) + 0


@known("rounding_mode is dropped", "operators", _numbers(2, 3), _numbers(2, 3) + 2)
def rounded(x: Tensor, y: Tensor) -> Any:
    return torch.div(x, y, rounding_mode="floor")


@known("a float is added to integers, which stay integers", "relax relax-fx", torch.tensor([1, 2]))
def mixed(n: Tensor) -> Any:
    return n + 0.5


@known("integers are divided as integers", "relax relax-fx", torch.tensor([1, 2]))
def halved(n: Tensor) -> Any:
    return n / 2


@known("a division of integers by zero ends the process", "relax relax-fx", torch.tensor([0, 1]))
def by_zero(n: Tensor) -> Any:
    return n / n


@known("a product with 0.0 is 0.0, never -0.0", "relax relax-fx", _numbers(3))
def zeros(x: Tensor) -> Any:
    return 1 / (x * 0.0)


@known("integers in a function of floats", "relax relax-fx", torch.tensor([1, 2]))
def exponential(n: Tensor) -> Any:
    return torch.exp(n)


@known("integers with one bound only", "relax relax-fx", torch.tensor([1, 2]))
def bounded(n: Tensor) -> Any:
    return torch.clamp(n, min=1)


@known("a floor division by an integer", "relax", _numbers(3))
def floored(x: Tensor) -> Any:
    return x // 2


@known("a negative number beside unsigned integers", "relax relax-fx", torch.tensor([1, 2], dtype=torch.uint8))
def negative(n: Tensor) -> Any:
    return n + -1


@known("a number is subtracted from unsigned integers", "iree", torch.tensor([1, 2], dtype=torch.uint8))
def lowered(n: Tensor) -> Any:
    return n - 1


@known("an unsigned integer has a sign", "iree", torch.tensor([1, 200], dtype=torch.uint8))
def absolute(n: Tensor) -> Any:
    return torch.abs(n)


@known("0.0 and -0.0 are one constant", "onnx", _numbers(3))
def constants(x: Tensor) -> Any:
    return 1 / (x * 0.0), 1 / (x * -0.0)


@known("a number that comes from a weight", "const-fold", _numbers(2, 3))
class Item(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(ONES.clone(), requires_grad=False)

    def forward(self, x: Tensor) -> Any:
        return x * self.w.sum().item()


@known("random numbers are drawn once, when the weights are folded", "const-fold", _numbers(2, 3))
class Noise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(ONES.clone(), requires_grad=False)

    def forward(self, x: Tensor) -> Any:
        return x + F.dropout(self.w, 0.5, True), F.dropout(x, 0.5, True)


@known("operands that are given by name", "merge-matmul", _numbers(2, 3), _numbers(2, 3), _numbers(3, 2))
def named(x: Tensor, y: Tensor, z: Tensor) -> Any:
    return torch.matmul(input=x, other=z), torch.matmul(input=y, other=z)


@known("products of other ranks are concatenated", "merge-matmul", _numbers(2, 3), _numbers(2, 2, 3), _numbers(3, 2))
def ranks(x: Tensor, y: Tensor, z: Tensor) -> Any:
    return torch.matmul(x, z), torch.matmul(y, z)


@known("a batch norm is folded into a layer that something else calls", "fuse", _numbers(4, 3))
class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        nn.init.constant_(self.layer.weight, 0.5)
        nn.init.constant_(self.layer.bias, 1.0)
        nn.init.constant_(self.norm.weight, 2.0)

    def forward(self, x: Tensor) -> Any:
        return self.norm(self.layer(x)), self.layer(x)


@known("a batch norm without weights behind a linear layer", "fuse", _numbers(4, 3))
class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False)

    def forward(self, x: Tensor) -> Any:
        return self.norm(self.layer(x))


HEAD = """# Faults in pinned compilers

Computed by `python -m passlab.hunt.known`; do not edit. Each program is as small as `hunt` or a person could make it,
and breaks what its target promises: a pass that asks for graphs without writes has no fault on others. That nothing was
found in some graphs says nothing of those that were not tried.
"""


def page() -> str:
    """Return all known faults of the targets that are installed, in Markdown."""
    parts = [HEAD]
    for one in KNOWN:
        for name in one.targets:
            if version_of(TARGETS[name].package) and (fault := one.fault(name)):
                parts.append(fault.report().replace("\n\n", f"\n\n{one.title[0].upper()}{one.title[1:]}. ", 1))
    return "\n".join(parts)


if __name__ == "__main__":
    print(page(), end="")
