"""Groups of linalg.generics that become one, and the affine maps between them: what fusing and reshaping share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdsl.ir.affine import AffineMap


@dataclass(eq=False)
class Group:
    """Generics that become one. The loops are those of the last, which keeps its place.

    parts: each generic with the map from the group's loops to its own, producers first. inputs: (value, map) → None,
    in order; outs: (value, map, result), of which the last are those of the last generic.
    """

    last: Any
    parts: list[tuple[Any, int]]
    inputs: dict[tuple[Any, int], None]
    outs: list[tuple[Any, int, Any]]
    reads: dict[Any, tuple[Any, int]] = field(default_factory=dict)  # argument of a body → the input that it reads
    members: set[Any] = field(default_factory=set)  # the generics of `parts`
    worklist: list[tuple[Any, int]] = field(default_factory=list)  # inputs whose producer may move in
    kinds: list[Any] = field(default_factory=list)  # parallel or reduction, for each loop
    split: bool = False  # whether loops were split to take in a reshape

    @property
    def loops(self) -> int:
        return len(self.kinds)


class Maps:
    """Affine maps by number, so that they are compared, composed and inverted once."""

    def __init__(self) -> None:
        self.maps: list[AffineMap] = []
        self.numbers: dict[AffineMap, int] = {}
        self.compositions: dict[tuple[int, int], int] = {}
        for name in ("plain", "inverse", "is_identity", "is_permutation", "identity", "picks", "joined"):
            setattr(self, name, cache(getattr(self, f"_{name}")))

    def number(self, map_: AffineMap) -> int:
        found = self.numbers.get(map_)
        if found is None:
            found = self.numbers[map_] = len(self.maps)
            self.maps.append(map_)
        return found

    def data(self, number: int) -> AffineMap:
        return self.maps[number]

    def compose(self, outer: int, inner: int) -> int:
        """Return the map that applies `inner`, then `outer`."""
        if self.is_identity(inner):
            return outer
        found = self.compositions.get((outer, inner))
        if found is None:
            found = self.compositions[outer, inner] = self.number(self.maps[outer].compose(self.maps[inner]))
        return found

    def _identity(self, loops: int) -> int:
        from xdsl.ir.affine import AffineMap

        return self.number(AffineMap.identity(loops))

    def _plain(self, number: int) -> frozenset[int]:
        """Return the dimensions that are a result by themselves."""
        from xdsl.ir.affine import AffineDimExpr

        return frozenset(expr.position for expr in self.maps[number].results if isinstance(expr, AffineDimExpr))

    def _is_permutation(self, number: int) -> bool:
        map_ = self.maps[number]
        return map_.num_dims == len(map_.results) == len(self._plain(number)) and not map_.num_symbols

    def _is_identity(self, number: int) -> bool:
        map_ = self.maps[number]
        return self._is_permutation(number) and all(expr.position == at for at, expr in enumerate(map_.results))

    def _inverse(self, number: int) -> int | None:
        """Return the number of the inverse of a permutation, or None for another map."""
        from xdsl.ir.affine import AffineDimExpr, AffineMap

        if not self._is_permutation(number):
            return None
        order = [expr.position for expr in self.maps[number].results]
        return self.number(AffineMap(len(order), 0, tuple(AffineDimExpr(order.index(d)) for d in range(len(order)))))

    def _picks(self, number: int) -> bool:
        """Return whether each result is a dimension, and none is twice."""
        map_ = self.maps[number]
        return len(map_.results) == len(self._plain(number)) and not map_.num_symbols

    def split(self, number: int, counts: tuple[int, ...]) -> int:
        """Return a map that picks dimensions, after dimension d has become counts[d] of them."""
        from xdsl.ir.affine import AffineDimExpr, AffineMap

        starts = list(accumulate(counts, initial=0))
        picked = [expr.position for expr in self.maps[number].results]
        results = [AffineDimExpr(starts[dim] + at) for dim in picked for at in range(counts[dim])]
        return self.number(AffineMap(starts[-1], 0, tuple(results)))

    def _joined(self, sizes: tuple[tuple[int, ...], ...]) -> int:
        """Return the map from split loops of these sizes to the loops that they were."""
        from xdsl.ir.affine import AffineDimExpr, AffineMap

        results, at = [], 0
        for parts in sizes:
            expr = AffineDimExpr(at)
            for step, size in enumerate(parts[1:], at + 1):
                expr = expr * size + AffineDimExpr(step)
            results.append(expr)
            at += len(parts)
        return self.number(AffineMap(at, 0, tuple(results)))
