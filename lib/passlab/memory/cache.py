"""Access patterns: the sectors that a warp loads, and the misses of a cache.

    transactions([4 * lane for lane in range(32)], 4)        # 4 sectors of 32 bytes, in 1 line of 128
    nest = Nest("C[i][j] += A[i][k] * B[k][j]", {"i": 64, "j": 64, "k": 64}, {name: (64, 64) for name in "ABC"})
    cache = Cache(sets=64, ways=8, line=64)                  # 32 KiB
    misses(nest.addresses("ikj"), nest.size, cache)

A GPU runs 32 threads, a warp, in lockstep. A load of the warp reads whole sectors of 32 bytes, each once for any number
of lanes; four sectors make a cache line of 128 bytes. (NVIDIA, CUDA C++ Best Practices Guide, "Coalesced access to
global memory".) A CPU's cache moves lines of 64 bytes. Line n belongs to set n mod sets; a full set evicts the line
that was used least recently (LRU).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

WARP, SECTOR, LINE = 32, 32, 128
#: Regular expressions: a statement in C, an access in it, and a sum as a subscript.
_STATEMENT, _ACCESS = r"(.*?)\s*([-+*/]?=)\s*(.*)", r"(\w+)((?:\[[^\]]+\])+)"
_SUM = r"\s*[-+]?\s*\w+(\s*[-+]\s*\w+)*\s*"


class Transactions(NamedTuple):
    """The sectors and lines that one load of a warp reads, by number, and the share of the sectors' bytes in use."""

    sectors: list[int]
    lines: list[int]
    used: float


def touched(addresses: Iterable[int | None], size: int, block: int) -> list[int]:
    """Return the numbers of the blocks of bytes that accesses of `size` bytes touch, ascending. None: no access."""
    starts = [address for address in addresses if address is not None]
    return sorted({n for start in starts for n in range(start // block, (start + size - 1) // block + 1)})


def transactions(addresses: Sequence[int | None], size: int = 4) -> Transactions:
    """Return the transactions of a warp's load: one address in bytes for each lane, None for an inactive lane.

    Raises ValueError for more than 32 lanes, or an address below 0.
    """
    if len(addresses) > WARP:
        raise ValueError(f"A warp has {WARP} lanes; there are {len(addresses)} addresses.")
    if bad := [lane for lane, address in enumerate(addresses) if address is not None and address < 0]:
        raise ValueError(f"Lane {bad[0]} loads address {addresses[bad[0]]}: addresses start at 0.")
    sectors, lines, loaded = (touched(addresses, size, block) for block in (SECTOR, LINE, 1))
    return Transactions(sectors, lines, len(loaded) / (SECTOR * len(sectors) or 1))


@dataclass(frozen=True)
class Cache:
    """A cache of `sets` sets, each with room for `ways` lines of `line` bytes."""

    sets: int = 64
    ways: int = 8
    line: int = 64

    def __post_init__(self):
        for name in ("sets", "line"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"A cache's {name} must be at least 1; got {value}.")
        if self.ways < 1:
            raise ValueError(f"A set of a cache has at least one way; got {self.ways}.")

    @property
    def bytes(self) -> int:
        return self.sets * self.ways * self.line


def hits(addresses: Sequence[int] | np.ndarray, size: int, cache: Cache) -> np.ndarray:
    """Return for each access of `size` bytes, in order, whether all of it is in the cache, which starts empty.

    Raises ValueError for an address below 0, or an access longer than a line.
    """
    addresses = np.asarray(addresses, dtype=np.int64)
    if (below := np.flatnonzero(addresses < 0)).size:
        raise ValueError(f"Access {below[0]} is to address {addresses[below[0]]}: addresses start at 0.")
    if not 1 <= size <= cache.line:
        raise ValueError(f"An access has 1 to {cache.line} bytes, the length of a line; got {size}.")
    sets: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(cache.sets)]  # lines, least recently used first

    def hit(line: int) -> bool:
        ways = sets[line % cache.sets]
        if line in ways:
            ways.move_to_end(line)
            return True
        ways[line] = None
        if len(ways) > cache.ways:
            ways.popitem(last=False)
        return False

    first, last = addresses // cache.line, (addresses + size - 1) // cache.line
    pairs = zip(first.tolist(), last.tolist(), strict=True)
    return np.array([hit(a) if a == b else hit(a) & hit(b) for a, b in pairs], dtype=bool)


def misses(addresses: Sequence[int] | np.ndarray, size: int, cache: Cache) -> int:
    """Return the number of accesses of `size` bytes that miss in a cache that starts empty."""
    return int((~hits(addresses, size, cache)).sum())


@dataclass(frozen=True)
class Nest:
    """A perfect loop nest: one statement in C, its loops with their bounds, and the shapes of its arrays.

    Bounds are a number of turns, from 0 on, or a pair (start, stop). Subscripts are sums of loop variables and numbers.
    The arrays follow one another, each at the start of a page, in row-major order.

    Raises ValueError for text that is not a statement, a subscript that is not such a sum, and a wrong number of
    subscripts.
    """

    body: str
    loops: Mapping[str, int | tuple[int, int]]
    arrays: Mapping[str, tuple[int, ...]]
    size: int = 8
    PAGE = 4096

    def __post_init__(self):
        if not re.fullmatch(_STATEMENT, self.body):
            raise ValueError(f"{self.body!r} is not a statement: write it as C[i] = …, or with +=, -=, *=, /=.")
        for name, subscripts in re.findall(_ACCESS, self.body):
            if name not in self.arrays:
                raise ValueError(f"{name}{subscripts} is not an access: the arrays are {', '.join(self.arrays)}.")
            if subscripts.count("[") != len(self.arrays[name]):
                raise ValueError(f"{name}{subscripts}: {name} has the shape {self.arrays[name]}.")
            for subscript in re.findall(r"\[(.*?)\]", subscripts):
                words = re.findall(r"[a-zA-Z_]\w*", subscript)
                if not re.fullmatch(_SUM, subscript) or not {*words} <= {*self.loops}:
                    raise ValueError(
                        f"{name}{subscripts}: {subscript!r} is not a sum of loops and numbers; the loops are "
                        f"{', '.join(self.loops)}."
                    )

    def turns(self, loop: str) -> tuple[int, int]:
        bounds = self.loops[loop]
        return bounds if isinstance(bounds, tuple) else (0, bounds)

    @property
    def starts(self) -> dict[str, int]:
        """Return array → its address in bytes."""
        pages = [-(-int(np.prod(shape)) * self.size // self.PAGE) for shape in self.arrays.values()]
        return {name: self.PAGE * page for name, page in zip(self.arrays, accumulate(pages, initial=0), strict=False)}

    def accesses(self) -> Iterator[tuple[str, int, dict[str, int]]]:
        """Yield (array, address in turn 0 of all loops, loop → bytes per turn) of each read, then of the write."""
        target, assign, source = re.fullmatch(_STATEMENT, self.body).groups()
        for text in [source, *([target] if assign != "=" else []), target]:
            for name, subscripts in re.findall(_ACCESS, text):
                address, steps, stride = self.starts[name], {}, self.size
                shape = self.arrays[name]
                for extent, subscript in zip(shape[::-1], re.findall(r"\[(.*?)\]", subscripts)[::-1], strict=True):
                    for sign, term in re.findall(r"([+-]?)\s*(\w+)", subscript):
                        step = -stride if sign == "-" else stride
                        if term.isdigit():
                            address += step * int(term)
                        else:
                            steps[term] = steps.get(term, 0) + step
                    stride *= extent
                yield name, address, steps

    def addresses(self, order: Sequence[str]) -> np.ndarray:
        """Return the addresses in bytes that the nest touches, for an order of its loops from the outermost in.

        Raises ValueError if the order does not name each loop once.
        """
        if sorted(order) != sorted(self.loops):
            raise ValueError(f"The order names {', '.join(order)}; the loops are {', '.join(self.loops)}.")
        ranges = [np.arange(*self.turns(loop)) for loop in order]
        columns = []
        for _, address, steps in self.accesses():
            column = np.array(address)
            for depth, (loop, turns) in enumerate(zip(order, ranges, strict=True)):
                column = column + (steps.get(loop, 0) * turns).reshape([-1] + [1] * (len(order) - depth - 1))
            columns.append(np.broadcast_to(column, [len(turns) for turns in ranges]))
        return np.stack(columns, axis=-1).ravel()
