"""The work of a graph on a wafer: operations with fixed places, and the words between them.

    work = work_of(torch.fx.symbolic_trace(model), x)
    work[0].weights, work[0].flops, work[0].reads

On a wafer every operation has cores of its own, and examples stream through all of them: a pipeline. An operation keeps
its weights, and of its activations only the current window: a row of an image, the rows under a filter, a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from passlab.fx.nodes import op_name

#: Nodes that only change the shape: they need no core.
_VIEWS = """view reshape flatten transpose permute unflatten contiguous chunk split unsqueeze squeeze expand detach
getitem Identity Dropout Flatten new_zeros zeros_like size getattr"""
VIEWS = frozenset(_VIEWS.split())
#: Nodes that join words from several producers: a reader of the result reads from each of them.
JOINS = frozenset(("cat", "stack"))
WORD = 4


@dataclass(frozen=True)
class Read:
    """Words of one example that an operation reads from another.

    `resident`: it needs all of them before it starts, like the keys of an attention; otherwise they stream through it.
    """

    source: str
    words: int
    resident: bool = False


@dataclass(frozen=True)
class Operation:
    """An operation on one example.

    `weights`: bytes that it keeps. `window`, `result`: bytes of operands and of the result at a time. `words`: of its
    whole result. `matrix`: whether its weights are a matrix, which can be cut in two directions.
    """

    name: str
    reads: tuple[Read, ...] = ()
    weights: int = 0
    window: int = 0
    result: int = 0
    words: int = 0
    flops: int = 0
    matrix: bool = False

    @property
    def streamed(self) -> int:
        """Return the words that stream in for one example."""
        return sum(read.words for read in self.reads if not read.resident)


class _Reader(fx.Interpreter):
    """Runs a graph and records its operations. `sources`: node → the reads that its value consists of."""

    def __init__(self, gm: fx.GraphModule):
        super().__init__(gm)
        self.work: list[Operation] = []
        self.sources: dict[fx.Node, list[Read]] = {}

    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        self.sources[node] = []
        if not node.op.startswith("call_"):
            return value
        name = op_name(node, self.module)
        above = [read for operand in node.all_input_nodes for read in self.sources[operand]]
        if name in VIEWS:
            total = sum(read.words for read in above)
            part = value.numel() / total if isinstance(value, Tensor) and total else 1
            self.sources[node] = [Read(r.source, round(r.words * part), r.resident) for r in above]
        elif name in JOINS:
            self.sources[node] = above
        elif isinstance(value, Tensor):
            self.work.append(self._operation(node, name, value))
            self.sources[node] = [Read(node.name, value.numel())]
        return value

    def _operation(self, node: fx.Node, name: str, value: Tensor) -> Operation:
        module = self.fetch_attr(node.target) if node.op == "call_module" else None
        weights = [] if module is None else [p for p in (*module.parameters(), *module.buffers()) if p.dim()]
        weights += [self.env[n] for n in node.all_input_nodes if n.op == "get_attr"]
        operands = [self.env[n] for n in node.all_input_nodes if n.op != "get_attr"]
        operands = [t for t in operands if isinstance(t, Tensor)]
        product = name in ("matmul", "bmm") and len(operands) == 2
        reads = [
            Read(r.source, r.words, product and k == 1)
            for k, n in enumerate(node.all_input_nodes)
            for r in self.sources[n]
        ]
        kernel = module.kernel_size if hasattr(module, "kernel_size") else 1
        kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
        filters = module is not None and hasattr(module, "weight") and module.weight.dim() in (2, 4)
        streamed = operands[:1] if product else operands
        window = sum(_row(t) for t in streamed) * kernel[0]
        if filters:
            points = operands[0] if "Transpose" in name else value
            flops = 2 * points.numel() * module.weight[0].numel()
        else:
            flops = 2 * value.numel() * operands[0].shape[-1] if product else max(t.numel() for t in (*operands, value))
            flops *= math.prod(kernel) if "Pool" in name else 1
        constants = sum(t.numel() for t in weights) + (operands[1].numel() if product else 0)
        dense = product or (filters and getattr(module, "groups", 1) == 1)
        sizes = WORD * constants, WORD * window, WORD * _row(value)
        return Operation(node.name, _merged(reads), *sizes, value.numel(), flops, dense)


def _row(t: Tensor) -> int:
    """Return the numbers of one step of a stream: a row of an image in all channels, or a token."""
    return t.shape[1] * t.shape[3] if t.dim() == 4 and t.shape[3] > 1 else t.shape[-1]


def _merged(reads: list[Read]) -> tuple[Read, ...]:
    """Return the reads with one entry for each source."""
    words_of: dict[tuple[str, bool], int] = {}
    for read in reads:
        words_of[read.source, read.resident] = words_of.get((read.source, read.resident), 0) + read.words
    return tuple(Read(source, words, resident) for (source, resident), words in words_of.items())


def work_of(gm: fx.GraphModule, *inputs: Tensor) -> tuple[Operation, ...]:
    """Return the operations of a graph, in the order of a run on `inputs`.

    The graph's inputs are from outside the wafer, and not counted. Views and joins do not count as operations.
    """
    reader = _Reader(gm)
    with torch.no_grad():
        reader.run(*inputs)
    return tuple(reader.work)


def fused(work: Iterable[Operation], names: Sequence[str]) -> tuple[Operation, ...]:
    """Return the work with some operations as one, named like the last of them; words between them vanish.

    Raises ValueError for an unknown name, for an operation with a matrix, or if another operation reads an inner one.
    """
    work, members = tuple(work), set(names)
    parts = [operation for operation in work if operation.name in members]
    if len(parts) < len(members):
        raise ValueError(f"There is no operation {sorted(members - {o.name for o in parts})[0]!r}.")
    last = parts[-1].name
    for operation in work:
        if operation.name in members and operation.matrix:
            raise ValueError(f"{operation.name} has a matrix, which is cut in its own way: it stays an operation.")
        for read in operation.reads:
            if operation.name not in members and read.source in members - {last}:
                raise ValueError(f"{operation.name} reads {read.source}, which would be inside.")
    outside: dict[str, Read] = {}
    for operation in parts:  # words that several of them read are sent once
        for read in operation.reads:
            if read.source not in members and read.words > outside.get(read.source, Read("", 0)).words:
                outside[read.source] = read
    fused_operation = Operation(
        last,
        tuple(outside.values()),
        sum(o.weights for o in parts),
        max(o.window for o in parts),
        parts[-1].result,
        parts[-1].words,
        sum(o.flops for o in parts),
    )
    return tuple(fused_operation if o.name == last else o for o in work if o.name not in members - {last})
