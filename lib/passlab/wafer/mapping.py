"""The placement of pieces on cores, and its cost.

    mapping = {"norm": rectangle(0, 0), "qkv": rectangle(0, 1, 4, 3)}
    load(pieces, at(pieces, mapping, machine), machine)

A message takes the XY route. Each link carries a word a cycle, each core's ramp one in and one out, and each core
computes on its own. Examples stream through: in the steady state there is a new result every n cycles, where n is the
cycles of the busiest core, ramp or link for one example. Not counted: waiting of messages for each other (the simulator
counts it), and the words between the grid and the world outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from passlab.judge import and_more, shown
from passlab.wafer.machine import Core, Machine
from passlab.wafer.pieces import BETWEEN, INPUT, SUM, Pieces
from passlab.wafer.program import Message


class BadMapping(ValueError):
    """The mapping leaves something out, leaves the grid, or exceeds a core's memory."""


def rectangle(row: int, column: int, rows: int = 1, columns: int = 1) -> tuple[Core, ...]:
    """Return the cores of a rectangle, row by row; (row, column) is its north-west corner.

    >>> rectangle(0, 4, 2, 2)
    ((0, 4), (0, 5), (1, 4), (1, 5))
    """
    return tuple((r, c) for r in range(row, row + rows) for c in range(column, column + columns))


def at(
    pieces: Pieces, mapping: Mapping[str, Sequence[Core]] | Iterable[tuple[str, Sequence[Core]]], machine: Machine
) -> np.ndarray:
    """Return the number of each piece's core, row · columns + column, of a mapping operation → cores.

    Raises BadMapping for an operation that is missing, doubled or unknown, too few or too many cores for its pieces, a
    core off the grid, or one whose memory is exceeded.
    """
    try:
        pairs = list(mapping.items() if isinstance(mapping, Mapping) else mapping)
        places_of = dict(pairs)
    except (TypeError, ValueError):
        raise BadMapping(f"A mapping is a dict from operation to cores, or such pairs; got {shown(mapping)}.") from None
    if len(places_of) != len(pairs):
        names: set[str] = set()
        twice = next(name for name, _ in pairs if name in names or names.add(name))
        raise BadMapping(f"{twice} is mapped twice: each operation has one place.")
    if missing := [o.name for o in pieces.operations if o.name not in places_of]:
        raise BadMapping(f"The mapping leaves out {and_more(missing)}.")
    if unknown := [name for name in places_of if name not in pieces.shape]:
        raise BadMapping(f"The mapping names {str(unknown[0])[:60]!r}, and the graph has no such operation.")
    cores_used: list[Core] = []
    for operation in pieces.operations:
        cores, (p, q) = places_of[operation.name], pieces.shape[operation.name]
        if isinstance(cores, str) or not isinstance(cores, Sequence | np.ndarray):
            raise BadMapping(f"{operation.name} is mapped to {shown(cores)}: it must be a sequence of cores.")
        if len(cores) != p * q:
            raise BadMapping(f"{operation.name} is cut into {p} × {q} pieces, and is mapped to {len(cores)} cores.")
        cores_used += cores
    try:
        places = np.array(cores_used).reshape(len(pieces), 2)
        integers = places.dtype.kind in "iu"
    except ValueError:  # not all are pairs
        integers = False
    if integers:
        off = (places < 0).any(1) | (places >= (machine.rows, machine.columns)).any(1)
    else:
        off = np.array([bool(machine.why_not_a_core(core)) for core in cores_used], bool)
    if off.any():
        piece = int(off.argmax())
        raise BadMapping(f"{pieces.name(piece)}: {machine.why_not_a_core(cores_used[piece])}")
    cores = places.astype(np.int64) @ (machine.columns, 1)
    check(pieces, cores, machine)
    return cores


def check(pieces: Pieces, cores: np.ndarray, machine: Machine) -> None:
    """Raise BadMapping if the pieces of a core exceed its memory."""
    nbytes = np.bincount(cores, pieces.nbytes, machine.cores)
    over = int(nbytes.argmax())
    if nbytes[over] > machine.memory:
        names = and_more([pieces.name(int(i)) for i in np.flatnonzero(cores == over)], 3)
        row, column = divmod(over, machine.columns)
        raise BadMapping(
            f"Core ({row}, {column}) would have to hold {int(nbytes[over]):,} bytes ({names}); "
            f"its memory is {machine.memory:,}."
        )


def named(pieces: Pieces, cores: np.ndarray, machine: Machine) -> dict[str, tuple[Core, ...]]:
    """Return operation → cores, of the numbers of the pieces' cores."""
    places = [divmod(core, machine.columns) for core in cores.tolist()]
    return {o.name: tuple(places[i] for i in pieces.of(o.name)) for o in pieces.operations}


@dataclass(frozen=True)
class Load:
    """The cost of a mapping for one example.

    `traffic`: words × hops. `cycles`: from one result to the next, in the steady state; `busiest`: the core or link
    that limits them. `computing`, `ramps`, `memory`: arrays of rows × columns, cycles, cycles, bytes. `links`:
    direction → words on the link that leaves each core in it.
    """

    traffic: float
    cycles: float
    busiest: str
    computing: np.ndarray
    ramps: np.ndarray
    memory: np.ndarray
    links: dict[str, np.ndarray]

    @property
    def hottest(self) -> float:
        """Return the most words on one link."""
        return max(float(words.max()) for words in self.links.values())

    def __str__(self) -> str:
        return f"{self.traffic:,.0f} words · hops, a result every {self.cycles:,.0f} cycles ({self.busiest})"


def traffic(pieces: Pieces, cores: np.ndarray, machine: Machine) -> float:
    """Return words × hops for one example: the energy of the mapping."""
    row, column = np.divmod(cores, machine.columns)
    hops = abs(row[pieces.a] - row[pieces.b]) + abs(column[pieces.a] - column[pieces.b])
    return float(hops @ pieces.words)


def link_loads(a: np.ndarray, b: np.ndarray, words: np.ndarray, machine: Machine) -> dict[str, np.ndarray]:
    """Return direction → words on the link that leaves each core that way, by XY routes from cores a to cores b.

    A message adds its words to a run of links. Runs are added up by their ends: + where one begins, - behind its end,
    and then a running sum.
    """
    rows, columns = machine.rows, machine.columns
    (r, c), (end_row, end_column) = np.divmod(a, columns), np.divmod(b, columns)
    east, south = end_column > c, end_row > r
    return {
        "east": _runs(r, c, end_column, words * east, rows, columns),
        "west": _runs(r, end_column + 1, c + 1, words * (end_column < c), rows, columns),
        "south": _runs(end_column, r, end_row, words * south, columns, rows).T,
        "north": _runs(end_column, end_row + 1, r + 1, words * (end_row < r), columns, rows).T,
    }


def _runs(line: np.ndarray, start: np.ndarray, end: np.ndarray, words: np.ndarray, lines: int, wide: int) -> np.ndarray:
    """Return the sums of runs: `words` are added to the places start, …, end - 1 of a line."""
    size, offset = lines * (wide + 2), line * (wide + 2)
    ends = np.bincount(offset + start, words, size) - np.bincount(offset + np.maximum(end, 0), words, size)
    return ends.reshape(lines, wide + 2).cumsum(1)[:, :wide].round(6)


def load(pieces: Pieces, cores: np.ndarray, machine: Machine) -> Load:
    """Return the cost of running pieces on cores; `at` computes and checks these from a mapping."""
    grid = (machine.rows, machine.columns)
    separate = cores[pieces.a] != cores[pieces.b]
    a, b, words = cores[pieces.a][separate], cores[pieces.b][separate], pieces.words[separate]
    links = link_loads(a, b, words, machine)
    computing = np.bincount(cores, pieces.cycles, machine.cores).reshape(grid)
    ramps = np.maximum(np.bincount(a, words, machine.cores), np.bincount(b, words, machine.cores)).reshape(grid)
    memory = np.bincount(cores, pieces.nbytes, machine.cores).reshape(grid)
    loads = {"computing": computing, "its ramp": ramps} | {
        f"the link {name}": carried for name, carried in links.items()
    }
    limit = max(loads, key=lambda name: loads[name].max())
    row, column = np.unravel_index(int(loads[limit].argmax()), grid)
    busiest = f"core ({row}, {column}), {limit}"
    hops = sum(float(carried.sum()) for carried in links.values())
    return Load(hops, float(loads[limit].max()), busiest, computing, ramps, memory, links)


def messages(pieces: Pieces, cores: np.ndarray, machine: Machine) -> list[Message]:
    """Return the messages of one example, for the simulator.

    A block passes its input on as soon as it has it; all other messages wait for all inputs of their piece. Computing
    takes no time here, so this is the network alone. Pieces on the same core need no message.
    """
    words = np.ceil(pieces.words - 1e-9).astype(np.int64).tolist()
    into: dict[int, list[int]] = {}
    for edge, b in enumerate(pieces.b.tolist()):
        into.setdefault(b, []).append(edge)
    home, place = pieces.a.tolist(), [divmod(core, machine.columns) for core in cores.tolist()]
    sent = [place[a] != place[b] for a, b in zip(home, pieces.b.tolist(), strict=True)]
    number = dict(zip(np.flatnonzero(sent).tolist(), range(sum(sent)), strict=True))
    needs: list[tuple[int, ...]] = [()] * len(home)

    def waits(edge: int) -> tuple[int, ...]:
        """Return the messages that an edge waits for, through edges that are not messages."""
        hands_on = pieces.kind[edge] == INPUT
        edges = [e for e in into.get(home[edge], ()) if not hands_on or pieces.kind[e] != SUM]
        return tuple(dict.fromkeys(m for e in edges for m in ((number[e],) if e in number else needs[e])))

    result = []
    for edge in _by_need(pieces):
        needs[edge] = waits(edge)
    for edge in number:
        route = machine.route(place[home[edge]], place[int(pieces.b[edge])])
        result.append(Message(route, words[edge], waits=needs[edge]))
    return result


def _by_need(pieces: Pieces) -> list[int]:
    """Return the messages' numbers, each after those that it may wait for."""
    rank = pieces.owner[pieces.a] * 3 + np.where(pieces.kind == BETWEEN, 2, pieces.kind)
    return np.lexsort((pieces.a, rank)).tolist()
