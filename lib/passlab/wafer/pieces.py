"""Operations cut into pieces, one for a core, and the words that pass between pieces.

    pieces = cut(work_of(gm, x), machine)
    pieces.shape["attention_qkv"]        # (rows, columns) of its blocks

A matrix is cut into p × q blocks. A block in column j needs only that share of the input, and goes through the
products with it; the partial sums are added from left to right along its row, and the input is handed from top to
bottom down its column. So input · (p - 1) + result · (q - 1) words pass between neighbouring blocks: flat or tall, a
shape has its price. Other operations are cut into equal parts that do not talk to each other.
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
#: A shape may have this many times the blocks of the smallest one, if fewer words then pass between its blocks.
SLACK = 1.15
#: What a message is: input on its way down a column, sums on their way along a row, a result for another operation.
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
    """Return the words that pass between the pieces of an operation that is cut into p × q, for one example."""
    return operation.streamed * (p - 1) + operation.words * (q - 1) if operation.matrix else 0


@dataclass(frozen=True)
class Pieces:
    """Operations cut into pieces, numbered operation by operation, and in an operation row by row.

    `owner`: piece → number of its operation. `nbytes`, `cycles`: what it keeps, how long it computes for an example.
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
        """Return a piece's name: that of its operation, with its block's row and column if there are several."""
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
        ends, others, both = np.r_[low, high], np.r_[high, low], np.r_[total, total]
        order = np.lexsort((others, ends))
        start = np.searchsorted(ends[order], np.arange(len(self) + 1))
        return start, others[order], both[order]


def check_work(operations: Iterable[Operation]) -> None:
    """Raise BadWork for two operations of one name, or a read of what there is not."""
    known: set[str] = set()
    for operation in operations:
        if operation.name in known:
            raise BadWork(f"Two operations are called {operation.name!r}: give each its own name.")
        for read in operation.reads:
            if read.source not in known:
                raise BadWork(f"{operation.name} reads {read.source!r}, and no operation before it has that name.")
        known.add(operation.name)


def cut(operations: Sequence[Operation], machine: Machine, fill: float = 0.9, shapes: dict | None = None) -> Pieces:
    """Cut operations so that each piece fits into a core's memory and the slowest piece is as fast as possible.

    `fill`: the share of the machine's cores that may be used. A piece is busy as long as it computes, or as long as its
    words pass the ramp; the number of cycles that none may exceed is found by bisection. `shapes`: name → (p, q), if
    they are known already. Raises BadWork if the pieces cannot fit.
    """
    operations = tuple(operations)
    check_work(operations)
    if shapes is None:
        most = int(machine.cores * fill)
        options = [_options(operation, machine) for operation in operations]
        low, high = 1.0, max((float(took.max()) for _, _, took, _ in options), default=1.0) + 1
        best = _shapes(options, high)
        if (needed := sum(p * q for p, q in best)) > most:
            raise BadWork(
                f"The operations need {needed} cores of {machine.memory:,} bytes, and {most} may be used: "
                "take a larger grid, or fewer operations."
            )
        while high / low > 1.01:
            middle = (low * high) ** 0.5
            found = _shapes(options, middle)
            if found is None or sum(p * q for p, q in found) > most:
                low = middle
            else:
                high, best = middle, found
        shapes = {o.name: shape for o, shape in zip(operations, best, strict=True)}
    return _joined(operations, shapes)


def _options(operation: Operation, machine: Machine) -> tuple[np.ndarray, ...]:
    """Return (p, q, cycles, words inside) of all shapes whose pieces fit into a core's memory, by number of pieces."""
    p, q = (axis.ravel() for axis in np.mgrid[1 : machine.rows + 1, 1 : machine.columns + 1])
    across, down = (q, p) if operation.matrix else (p * q, p * q)
    nbytes = -(-operation.weights // (p * q)) - (-operation.window // across) - (-operation.result // down)
    inside = (operation.streamed * (p - 1) + operation.words * (q - 1)) * operation.matrix
    inside = inside + abs(p - q)  # parts that do not talk to each other lie in a square
    order = np.lexsort((inside, p * q))
    order = order[nbytes[order] <= machine.memory]
    if not len(order):
        raise BadWork(
            f"{operation.name} does not fit: cut into {machine.rows} × {machine.columns} pieces, it still needs "
            f"{piece_bytes(operation, machine.rows, machine.columns):,} bytes a core, which has {machine.memory:,}."
        )
    computing = operation.flops / (RATE * p * q)
    ramp = np.maximum(operation.streamed / across + operation.words / p * operation.matrix, operation.words / down)
    return p[order], q[order], np.maximum(computing, ramp)[order], inside[order]


def _shapes(options: Sequence[tuple[np.ndarray, ...]], cycles: float) -> list[tuple[int, int]] | None:
    """Return a shape for each operation, so that no piece is busy for longer; None if there is none."""
    found = []
    for p, q, took, inside in options:
        fast = np.flatnonzero(took <= cycles)
        if not len(fast):
            return None
        number = p[fast] * q[fast]
        fast = fast[: np.searchsorted(number, int(SLACK * number[0]), side="right")]
        best = fast[inside[fast].argmin()]
        found.append((int(p[best]), int(q[best])))
    return found


def _joined(operations: tuple[Operation, ...], shapes: dict[str, tuple[int, int]]) -> Pieces:
    """Return the pieces of operations with given shapes, and their messages."""
    counts = np.array([shapes[o.name][0] * shapes[o.name][1] for o in operations])
    first = dict(zip((o.name for o in operations), np.cumsum([0, *counts[:-1]]).tolist(), strict=True))
    named = {operation.name: operation for operation in operations}
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
            outs = outs[columns - 1 :: columns] if named[read.source].matrix else outs  # where the sums end
            ins = block[0] if operation.matrix and not read.held else block.ravel()
            sends.append(_matched(outs, ins, read.words))
    a, b, words, kind = (np.concatenate([s[k] for s in sends] or [np.zeros(0)]) for k in range(4))
    owner = np.repeat(np.arange(len(operations)), counts)
    nbytes = np.array([piece_bytes(o, *shapes[o.name]) for o in operations], np.int64)[owner]
    cycles = np.array([o.flops for o in operations], float)[owner] / (RATE * counts[owner])
    return Pieces(operations, shapes, owner, nbytes, cycles, *(x.astype(np.int64) for x in (a, b)), words, kind)


def _alike(a: np.ndarray, b: np.ndarray, words: float, kind: int) -> tuple[np.ndarray, ...]:
    return a.ravel(), b.ravel(), np.full(a.size, words), np.full(a.size, kind)


def _matched(outs: np.ndarray, ins: np.ndarray, words: int) -> tuple[np.ndarray, ...]:
    """Return (a, b, words, kind): equal shares of a result lie at `outs`, equal shares of it are wanted at `ins`."""
    m, n = len(outs), len(ins)
    cuts = np.union1d(np.arange(m + 1) * n, np.arange(n + 1) * m)
    shares = np.diff(cuts) * (words / (m * n))
    return outs[cuts[:-1] // n], ins[cuts[:-1] // m], shares, np.full(len(shares), BETWEEN)
