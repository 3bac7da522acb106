"""Day 5, which loop order misses least? Visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from passlab.judge import Case, Finding, shown
from passlab.judge.forms import why_not_a_dict, why_not_a_list
from passlab.memory.cache import Cache, misses


def access(start: int, **steps: int) -> dict[str, Any]:
    """Return an access: its address in the first turn, and by how many bytes each loop moves it."""
    return {"start": start, "steps": steps}


def nest(name: str, loops: Mapping[str, int], accesses: Sequence[dict], sets: int, ways: int, line: int = 64) -> Case:
    cache = {"sets": sets, "ways": ways, "line": line}
    return Case(name, lambda: (dict(loops), [a | {"steps": dict(a["steps"])} for a in accesses], dict(cache)))


def product_of_matrices(n: int, distance: int) -> list[dict]:
    """Return the accesses of C[i][j] += A[i][k] * B[k][j] for n × n numbers of 8 bytes, arrays `apart` bytes apart."""
    a, b = access(0, i=8 * n, k=8), access(distance, k=8 * n, j=8)
    c = access(2 * distance, i=8 * n, j=8)
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
    counts = {}
    for order in permutations(loops):
        turns = np.indices([loops[name] for name in order]).reshape(len(order), -1)
        at = dict(zip(order, turns, strict=True))
        streams = [a["start"] + sum(step * at[name] for name, step in a["steps"].items()) for a in accesses]
        streams = [np.broadcast_to(stream, turns.shape[1]) for stream in streams]
        counts["".join(order)] = misses(np.stack(streams, axis=1).ravel(), 1, Cache(**cache))
    return counts


def _invalid(value: Any, orders: Mapping[str, int]) -> str:
    if wrong := why_not_a_list(value, "a pair: an order of the loops, and a dict from order to misses", 2):
        return wrong
    best, counts = value
    if not isinstance(best, str) or best not in orders:
        return f"The first of the pair must be one of the orders {', '.join(orders)}; it is {shown(best)}."

    def each(order: str, misses: Any) -> str:
        if type(misses) is not int:
            return f"The misses of {order} must be of type int; they are {shown(misses)}."
        few = 0 <= misses < 10**9
        return "" if few else f"The misses of {order} must be at least 0, and there are fewer than 10**9 accesses."

    form = "as the second of the pair a dict from order to misses"
    return why_not_a_dict(counts, form, orders, "misses", "an order of the loops", each, label="The order {!r}")


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
