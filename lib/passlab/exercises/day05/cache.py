"""Day 5, which loop order misses least? Visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from passlab.judge import Case, Finding, shown
from passlab.memory.cache import Cache, misses


def access(start: int, **steps: int) -> dict[str, Any]:
    """Return an access: its address in the first turn, and by how many bytes each loop moves it."""
    return {"start": start, "steps": steps}


def nest(name: str, loops: Mapping[str, int], accesses: Sequence[dict], sets: int, ways: int, line: int = 64) -> Case:
    cache = {"sets": sets, "ways": ways, "line": line}
    return Case(name, lambda: (dict(loops), [a | {"steps": dict(a["steps"])} for a in accesses], dict(cache)))


def product_of_matrices(n: int, apart: int) -> list[dict]:
    """Return the accesses of C[i][j] += A[i][k] * B[k][j] for n × n numbers of 8 bytes, arrays `apart` bytes apart."""
    a, b = access(0, i=8 * n, k=8), access(apart, k=8 * n, j=8)
    c = access(2 * apart, i=8 * n, j=8)
    return [a, b, c, c]


def cases() -> list[Case]:
    return [
        nest("a matrix, written", {"i": 8, "j": 16}, [access(0, i=128, j=8)], 2, 2),
        nest("a transpose", {"i": 16, "j": 16}, [access(0, i=128, j=8), access(2048, j=128, i=8)], 4, 4),
        nest("a product", dict.fromkeys("ijk", 8), product_of_matrices(8, 512), 2, 4),
        nest("a sum of columns", {"i": 24, "j": 4}, [access(0, i=256, j=8), access(8192, j=8)], 4, 2),
    ]


def true_misses(loops: Mapping[str, int], accesses: Sequence[dict], cache: Mapping[str, int]) -> dict[str, int]:
    """Return order of the loops → misses."""
    found = {}
    for order in permutations(loops):
        turns = np.indices([loops[name] for name in order]).reshape(len(order), -1)
        at = dict(zip(order, turns, strict=True))
        streams = [a["start"] + sum(step * at[name] for name, step in a["steps"].items()) for a in accesses]
        streams = [np.broadcast_to(stream, turns.shape[1]) for stream in streams]
        found["".join(order)] = misses(np.stack(streams, axis=1).ravel(), 1, Cache(**cache))
    return found


def _invalid(value: Any, orders: Mapping[str, int]) -> str:
    if not isinstance(value, tuple | list) or len(value) != 2:
        return f"Return a pair: an order of the loops, and a dict from order to misses; got {shown(value)}."
    best, counts = value
    if not isinstance(best, str) or best not in orders:
        return f"The first of the pair must be one of the orders {', '.join(orders)}; it is {shown(best)}."
    if not isinstance(counts, dict):
        return f"The second of the pair must be a dict from order to misses; it is of type {type(counts).__name__}."
    if lacking := [order for order in orders if order not in counts]:
        return f"The dict has no misses for the order {lacking[0]!r}."
    if strange := [order for order in counts if order not in orders]:
        return f"The dict names {shown(strange[0])}, which is no order of the loops."
    if bad := [order for order in orders if type(counts[order]) is not int]:
        return f"The misses of {bad[0]} must be of type int; they are {shown(counts[bad[0]])}."
    if bad := [order for order in orders if not 0 <= counts[order] < 10**9]:
        return f"The misses of {bad[0]} must be at least 0, and there are fewer than 10**9 accesses."
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    true = true_misses(*case.build())
    broken = _invalid(value, true)
    yield Finding("valid", not broken, broken)
    if broken:
        return
    best, counts = value
    for verdict, off in (
        ("did", [order for order in true if counts[order] < true[order]]),
        ("spared", [order for order in true if counts[order] > true[order]]),
    ):
        yield Finding(
            verdict,
            not off,
            f"The order {off[0]} misses {true[off[0]]} times in this cache; you count {counts[off[0]]}." if off else "",
        )
    least = min(true, key=true.get)
    slow = true[best] > true[least]
    yield Finding(
        "cost", not slow, f"You choose {best}, with {true[best]} misses; {least} has {true[least]}." if slow else ""
    )
