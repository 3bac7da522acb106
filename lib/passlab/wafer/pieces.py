"""Operations cut into pieces, one for each core, and the words between pieces.

    pieces = cut(work_of(gm, x), machine)
    pieces.shape["attention_qkv"]        # (rows, columns) of its blocks

A matrix is cut into p × q blocks. A block in column j needs only that share of the input; partial sums are added from
left to right along its row, and the input passes from top to bottom down its column. So input · (p - 1) + result ·
(q - 1) words pass between neighbouring blocks: flat or tall, a shape has its price. Other operations are cut into equal
parts that exchange nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from passlab.wafer.machine import Machine
from passlab.wafer.work import Operation

#: Floating-point operations of a core in one cycle: one multiplication and one addition.
RATE = 2
#: A shape may have this many times the blocks of the smallest one if that saves words between its blocks.
SLACK = 1.15
#: Kinds of messages: input down a column, sums along a row, a result for another operation.
INPUT, SUM, BETWEEN = range(3)


class BadWork(ValueError):
    """The operations are not a program, or the machine cannot hold them."""


def piece_bytes(operation: Operation, p: int, q: int) -> int:
    """Return the bytes of one piece of p × q: its weights, and its share of the window and of the result.

    A block of a matrix needs the window's share of its column and the result's share of its row.
    """
    across, down = (q, p) if operation.matrix else (p * q, p * q)
    return -(-operation.weights // (p * q)) - (-operation.window // across) - (-operation.result // down)


def inner_words(operation: Operation, p: int, q: int) -> int:
    """Return the words between the p × q pieces of an operation, for one example."""
    return operation.streamed * (p - 1) + operation.words * (q - 1) if operation.matrix else 0


@dataclass(frozen=True)
class Pieces:
    """Operations cut into pieces, numbered operation by operation, and in an operation row by row.

    `owner`: piece → number of its operation. `nbytes`, `cycles`: its memory, and its computing time for an example.
    `a`, `b`, `words`: the messages, from piece a to piece b; `kind`: INPUT, SUM or BETWEEN.
    """

    operations: tuple[Operation, ...]
    shape: dict[str, tuple[int, int]]
    owner: np.ndarray
    nbytes: np.ndarray
    cycles: np.ndarray
    a: np.ndarray
    b: np.ndarray
    words: np.ndarray
    kind: np.ndarray

    def __len__(self) -> int:
        return len(self.owner)

    @cached_property
    def first(self) -> dict[str, int]:
        """The number of each operation's first piece."""
        counts = [p * q for p, q in self.shape.values()]
        return dict(zip(self.shape, np.cumsum([0, *counts[:-1]]).tolist(), strict=True))

    def of(self, name: str) -> range:
        """Return the numbers of an operation's pieces."""
        p, q = self.shape[name]
        return range(self.first[name], self.first[name] + p * q)

    def name(self, piece: int) -> str:
        """Return a piece's name: its operation's, with the block's row and column if there are several."""
        operation = self.operations[self.owner[piece]].name
        p, q = self.shape[operation]
        return (
            operation if p * q == 1 else f"{operation}[{', '.join(map(str, divmod(piece - self.first[operation], q)))}]"
        )

    @cached_property
    def neighbours(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Both ends of all messages as (start, other, words): piece i has the rows start[i] to start[i + 1] - 1.

        Messages between the same two pieces, either way, are one row for each of the two.
        """
        low, high = np.minimum(self.a, self.b), np.maximum(self.a, self.b)
        pair, back = np.unique(low * len(self) + high, return_inverse=True)
        total = np.bincount(back, self.words)
        low, high = pair // len(self), pair % len(self)
        ends, others, sums = np.r_[low, high], np.r_[high, low], np.r_[total, total]
        order = np.lexsort((others, ends))
        start = np.searchsorted(ends[order], np.arange(len(self) + 1))
        return start, others[order], sums[order]


def check_work(operations: Iterable[Operation]) -> None:
    """Raise BadWork for a duplicate name, or a read of an operation that does not precede the reader."""
    names: set[str] = set()
    for operation in operations:
        if operation.name in names:
            raise BadWork(f"Two operations are called {operation.name!r}: give each its own name.")
        for read in operation.reads:
            if read.source not in names:
                raise BadWork(f"{operation.name} reads {read.source!r}, and no operation before it has that name.")
        names.add(operation.name)


def cut(operations: Sequence[Operation], machine: Machine, fill: float = 0.9, shapes: dict | None = None) -> Pieces:
    """Cut operations so that each piece fits into a core's memory and the slowest piece is as fast as possible.

    `fill`: the share of the machine's cores that may be used. A piece is busy while it computes, or while its words
    pass the ramp; bisection finds the smallest limit on these cycles. `shapes`: name → (p, q), if known already.
    Raises BadWork if the pieces cannot fit.
    """
    operations = tuple(operations)
    check_work(operations)
    if shapes is None:
        most = int(machine.cores * fill)
        options = [_options(operation, machine) for operation in operations]
        low, high = 1.0, max((float(took.max()) for _, _, took, _ in options), default=1.0) + 1
        best = _shapes(options, high)
        if (count := sum(p * q for p, q in best)) > most:
            raise BadWork(
                f"The operations need {count} cores of {machine.memory:,} bytes, and {most} may be used: "
                "take a larger grid, or fewer operations."
            )
        while high / low > 1.01:
            middle = (low * high) ** 0.5
            candidate = _shapes(options, middle)
            if candidate is None or sum(p * q for p, q in candidate) > most:
                low = middle
            else:
                high, best = middle, candidate
        shapes = {o.name: shape for o, shape in zip(operations, best, strict=True)}
    return _joined(operations, shapes)


def _options(operation: Operation, machine: Machine) -> tuple[np.ndarray, ...]:
    """Return (p, q, cycles, words inside) of all shapes whose pieces fit into a core's memory, by number of pieces."""
    p, q = (axis.ravel() for axis in np.mgrid[1 : machine.rows + 1, 1 : machine.columns + 1])
    across, down = (q, p) if operation.matrix else (p * q, p * q)
    nbytes = -(-operation.weights // (p * q)) - (-operation.window // across) - (-operation.result // down)
    inner = (operation.streamed * (p - 1) + operation.words * (q - 1)) * operation.matrix
    inner = inner + abs(p - q)  # of parts that exchange nothing: as square as possible
    order = np.lexsort((inner, p * q))
    order = order[nbytes[order] <= machine.memory]
    if not len(order):
        raise BadWork(
            f"{operation.name} does not fit: cut into {machine.rows} × {machine.columns} pieces, it still needs "
            f"{piece_bytes(operation, machine.rows, machine.columns):,} bytes a core, which has {machine.memory:,}."
        )
    computing = operation.flops / (RATE * p * q)
    ramp = np.maximum(operation.streamed / across + operation.words / p * operation.matrix, operation.words / down)
    return p[order], q[order], np.maximum(computing, ramp)[order], inner[order]


def _shapes(options: Sequence[tuple[np.ndarray, ...]], cycles: float) -> list[tuple[int, int]] | None:
    """Return a shape for each operation such that no piece is busy for more than `cycles`, or None."""
    shapes = []
    for p, q, times, inner in options:
        fast = np.flatnonzero(times <= cycles)
        if not len(fast):
            return None
        number = p[fast] * q[fast]
        fast = fast[: np.searchsorted(number, int(SLACK * number[0]), side="right")]
        best = fast[inner[fast].argmin()]
        shapes.append((int(p[best]), int(q[best])))
    return shapes


def _joined(operations: tuple[Operation, ...], shapes: dict[str, tuple[int, int]]) -> Pieces:
    """Return the pieces of operations with given shapes, and their messages."""
    counts = np.array([shapes[o.name][0] * shapes[o.name][1] for o in operations])
    first = dict(zip((o.name for o in operations), np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
    by_name = {operation.name: operation for operation in operations}
    sends: list[tuple[np.ndarray, ...]] = []
    for operation in operations:
        p, q = shapes[operation.name]
        block = first[operation.name] + np.arange(p * q).reshape(p, q)
        if operation.matrix:
            if p > 1 and operation.streamed:
                sends.append(_alike(block[:-1], block[1:], operation.streamed / q, INPUT))
            if q > 1:
                sends.append(_alike(block[:, :-1], block[:, 1:], operation.words / p, SUM))
        for read in operation.reads:
            rows, columns = shapes[read.source]
            outs = first[read.source] + np.arange(rows * columns)
            outs = outs[columns - 1 :: columns] if by_name[read.source].matrix else outs  # where the sums end
            ins = block[0] if operation.matrix and not read.resident else block.ravel()
            sends.append(_matched(outs, ins, read.words))
    a, b, words, kind = (np.concatenate([s[k] for s in sends] or [np.zeros(0)]) for k in range(4))
    owner = np.repeat(np.arange(len(operations)), counts)
    nbytes = np.array([piece_bytes(o, *shapes[o.name]) for o in operations], np.int64)[owner]
    cycles = np.array([o.flops for o in operations], float)[owner] / (RATE * counts[owner])
    return Pieces(operations, shapes, owner, nbytes, cycles, *(x.astype(np.int64) for x in (a, b)), words, kind)


def _alike(a: np.ndarray, b: np.ndarray, words: float, kind: int) -> tuple[np.ndarray, ...]:
    return a.ravel(), b.ravel(), np.full(a.size, words), np.full(a.size, kind)


def _matched(outs: np.ndarray, ins: np.ndarray, words: int) -> tuple[np.ndarray, ...]:
    """Return (a, b, words, kind): equal shares of a result are at `outs`, and equal shares of it are read at `ins`."""
    m, n = len(outs), len(ins)
    cuts = np.union1d(np.arange(m + 1) * n, np.arange(n + 1) * m)
    shares = np.diff(cuts) * (words / (m * n))
    return outs[cuts[:-1] // n], ins[cuts[:-1] // m], shares, np.full(len(shares), BETWEEN)
