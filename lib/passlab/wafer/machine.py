"""A wafer: a grid of small cores, each with its own memory and a router that is linked with four neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from passlab.judge import record, shown

#: a core's place on the grid, (row, column); (0, 0) is the north-west corner
Core = tuple[int, int]
#: from one core to a neighbour; the opposite direction is another link
Link = tuple[Core, Core]


@record
@dataclass(frozen=True)
class Machine:
    """A grid of rows × columns cores.

    `memory`: bytes of one core. `word`: bytes that a link carries in a cycle, in each direction. `ramp`: cycles from a
    core to its router, and back: T_R in Luczynski et al., "Near-Optimal Wafer-Scale Reduce", HPDC 2024. `clock`:
    cycles a second.

    >>> Machine(4, 6).distance((0, 0), (3, 5))
    8
    """

    rows: int
    columns: int
    memory: int = 48 * 1024
    ramp: int = 2
    word: int = 4
    clock: float = 850e6
    name: str = "a grid"

    def __post_init__(self) -> None:
        for field, least in (("rows", 1), ("columns", 1), ("memory", 1), ("ramp", 0), ("word", 1)):
            value = getattr(self, field)
            if type(value) is not int or value < least:
                raise ValueError(f"A machine's {field} must be a whole number, at least {least}; it is {shown(value)}.")
        if not isinstance(self.clock, int | float) or not 0 < self.clock < float("inf"):
            raise ValueError(f"A machine's clock is cycles a second, above 0; it is {shown(self.clock)}.")

    @property
    def cores(self) -> int:
        """Return the number of cores."""
        return self.rows * self.columns

    @property
    def links(self) -> int:
        """Return the number of links: two for each pair of neighbours, one a direction."""
        return 2 * (self.rows * (self.columns - 1) + (self.rows - 1) * self.columns)

    def __contains__(self, core: Any) -> bool:
        return not self.why_not_a_core(core)

    def why_not_a_core(self, core: Any) -> str:
        """Return why this is not a core of the machine, as a sentence, or ""."""
        if not isinstance(core, tuple | list) or len(core) != 2 or any(type(number) is not int for number in core):
            return f"A core is (row, column), two whole numbers; {shown(core)} is not."
        row, column = core
        if 0 <= row < self.rows and 0 <= column < self.columns:
            return ""
        return (
            f"Core {shown((row, column))} is off the grid, which has rows 0 … {self.rows - 1} and columns "
            f"0 … {self.columns - 1}."
        )

    def check(self, *cores: Any) -> None:
        """Raise ValueError if one of these is not a core of the machine."""
        for core in cores:
            if reason := self.why_not_a_core(core):
                raise ValueError(reason)

    def distance(self, start: Core, end: Core) -> int:
        """Return the number of links on a shortest path between two cores."""
        self.check(start, end)
        return abs(start[0] - end[0]) + abs(start[1] - end[1])

    def route(self, start: Core, end: Core) -> tuple[Core, ...]:
        """Return the cores of the XY route, from `start` to `end`: along the row first, then along the column.

        >>> Machine(2, 3).route((0, 0), (1, 2))
        ((0, 0), (0, 1), (0, 2), (1, 2))
        """
        self.check(start, end)
        (row, column), (end_row, end_column) = start, end
        east, south = (1 if end_column >= column else -1), (1 if end_row >= row else -1)
        row_part = [(row, c) for c in range(column, end_column + east, east)]
        return (*row_part, *((r, end_column) for r in range(row + south, end_row + south, south) if row != end_row))

    def hops(self, start: Core, end: Core) -> tuple[Link, ...]:
        """Return the links of the XY route between two cores."""
        cores = self.route(start, end)
        return tuple(pairwise(cores))

    def seconds(self, cycles: float) -> float:
        """Return the seconds that these cycles take."""
        return cycles / self.clock

    def words(self, nbytes: int) -> int:
        """Return the number of words that hold `nbytes`."""
        return -(-nbytes // self.word)
