"""Communication as data: messages with a source, a route, words, and dependences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from passlab.judge import record, shown
from passlab.wafer.machine import Core, Machine


@record
@dataclass(frozen=True)
class Message:
    """Words that travel along a route of neighbouring cores, from its first core, the source, to its last.

    `drops`: the cores of the route that receive a copy (default: the last; several: multicast). `waits`: numbers of
    messages in the program that must first arrive at the source completely. `streams`: numbers of messages whose words
    are passed on one by one. All of them are added to the source's own words, or passed on unchanged if `adds` is
    False. `work`: cycles that the source works before it sends.
    """

    route: tuple[Core, ...]
    words: int
    waits: tuple[int, ...] = ()
    streams: tuple[int, ...] = ()
    drops: tuple[Core, ...] | None = None
    adds: bool = True
    work: int = 0

    @property
    def source(self) -> Core:
        """Return the core that sends."""
        return self.route[0]

    @property
    def targets(self) -> tuple[Core, ...]:
        """Return the cores that receive."""
        return self.route[-1:] if self.drops is None else self.drops


class Program:
    """Messages in arrays, so that a million of them fit.

    M messages, whose routes have F cores in all, and Q dependences: `words`, `adds`, `work` (M); `offsets` (M + 1) into
    `cores` and `drops` (F), a core being row · columns + column; `child`, `parent`, `stream` (Q).
    """

    def __init__(self, machine: Machine, arrays: dict[str, np.ndarray]) -> None:
        self.machine = machine
        self.words, self.adds, self.work = arrays["words"], arrays["adds"], arrays["work"]
        self.offsets, self.cores, self.drops = arrays["offsets"], arrays["cores"], arrays["drops"]
        self.child, self.parent, self.stream = arrays["child"], arrays["parent"], arrays["stream"]

    @property
    def count(self) -> int:
        """Return the number of messages."""
        return len(self.words)

    @property
    def sources(self) -> np.ndarray:
        """Return the sending core of each message (M)."""
        return self.cores[self.offsets[:-1]]

    def name(self, number: int) -> str:
        """Return a message's name: its number, its source and its last core."""
        first, last = self.offsets[number], self.offsets[number + 1] - 1
        return f"message {number}, {self.core(self.cores[first])} to {self.core(self.cores[last])}"

    def core(self, number: int) -> Core:
        """Return a core's (row, column)."""
        row, column = divmod(int(number), self.machine.columns)
        return row, column


def program(machine: Machine, messages: Sequence[Message]) -> Program:
    """Return the program of these messages.

    Raises ValueError for a route that leaves the grid or jumps, and for a message that waits for one that does not
    arrive at its source.
    """
    if reason := why_not_a_program(machine, messages):
        raise ValueError(reason)
    cores = [row * machine.columns + column for m in messages for row, column in m.route]
    drops = [place in m.targets for m in messages for place in m.route]
    depends = [(i, j, streamed) for i, m in enumerate(messages) for js, streamed in ((m.waits, False), (m.streams, True)) for j in js]  # fmt: skip  # noqa: E501
    child, parent, stream = zip(*depends, strict=True) if depends else ((), (), ())
    arrays = {
        "words": np.array([m.words for m in messages], np.int64),
        "adds": np.array([m.adds for m in messages], bool),
        "work": np.array([m.work for m in messages], np.int64),
        "offsets": np.cumsum([0, *(len(m.route) for m in messages)]),
        "cores": np.array(cores, np.int64),
        "drops": np.array(drops, bool),
        "child": np.array(child, np.int64),
        "parent": np.array(parent, np.int64),
        "stream": np.array(stream, bool),
    }
    return Program(machine, arrays)


def why_not_a_program(machine: Machine, messages: Any) -> str:
    """Return why these are not messages for the machine, as a sentence, or ""."""
    if not isinstance(messages, list | tuple):
        return f"A program is a list of messages; this is {shown(messages)}."
    for number, message in enumerate(messages):
        if not isinstance(message, Message):
            return f"Message {number} is {shown(message)}; it must be a Message."
        reason = _why_not_a_route(machine, message.route) or _why_not_numbers(message) or _why_not_drops(message)
        if reason := reason or _why_not_waits(messages, number, message):
            return f"Message {number}: {reason}"
    return ""


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 2**40


def _why_not_a_route(machine: Machine, route: Any) -> str:
    if not isinstance(route, list | tuple) or len(route) < 2:
        return f"its route is {shown(route)}; a route is at least two cores, from the source to the last."
    for core in route:
        if reason := machine.why_not_a_core(core):
            return reason
    for core, following in pairwise(route):
        if machine.distance(core, following) != 1:
            return f"its route goes from {tuple(core)} to {tuple(following)}, which are not neighbours."
    if len({tuple(core) for core in route}) < len(route):
        twice = next(tuple(core) for i, core in enumerate(route) if core in route[:i])
        return f"its route passes core {twice} twice."
    return ""


def _why_not_numbers(message: Message) -> str:
    if not _is_whole(message.words, 1):
        return f"it has {shown(message.words)} words; it needs a whole number, at least 1."
    if not _is_whole(message.work, 0):
        return f"its work is {shown(message.work)}; it must be a whole number of cycles, at least 0."
    if type(message.adds) is not bool:
        return f"adds is {shown(message.adds)}; it must be True or False."
    return ""


def _why_not_drops(message: Message) -> str:
    route, drops = message.route, message.drops
    if drops is None:
        return ""
    if not isinstance(drops, list | tuple) or any(core not in route[1:] for core in drops):
        return f"its drops are {shown(drops)}; they must be cores of its route, after the source."
    if route[-1] not in drops:
        return f"its route goes on to {tuple(route[-1])}, which is not one of its drops."
    return ""


def _why_not_waits(messages: Sequence[Message], number: int, message: Message) -> str:
    for field in ("waits", "streams"):
        if not isinstance(getattr(message, field), list | tuple):
            return f"{field} is {shown(getattr(message, field))}; it must be a tuple of numbers of messages."
    parents, source = (*message.waits, *message.streams), message.route[0]
    for i in parents:
        if type(i) is not int or not 0 <= i < len(messages):
            return f"it waits for message {shown(i)}; messages are numbered 0 … {len(messages) - 1}."
        parent = messages[i]
        arrives = isinstance(parent, Message) and isinstance(parent.route, list | tuple) and parent.route
        if i == number or not arrives or source not in parent.targets:
            return f"it waits for message {i}, which does not arrive at its source {tuple(source)}."
        if i in message.streams and parent.words != message.words:
            return f"it has {message.words} words and streams message {i}, which has {parent.words}."
    if len(set(parents)) < len(parents):
        return "it waits twice for one message."
    if not message.adds and len(parents) != 1:
        return f"it passes words on as they are (adds=False), so it waits for one message, not for {len(parents)}."
    return ""


def on_lines(machine: Machine, messages: Iterable[Message], starts: np.ndarray, step: int) -> Program:
    """Return a program in which many lines of cores run the same messages.

    `messages` are those of one line, on Machine(1, n): their cores are (0, place). Line i begins at core starts[i]
    (row · columns + column), and its next core is `step` further: 1 along a row, `columns` along a column.
    """
    messages = list(messages)
    line = program(Machine(1, 1 + max((place for m in messages for _, place in m.route), default=0)), messages)
    starts = np.asarray(starts, np.int64)
    lines, number = len(starts), np.arange(len(starts))
    sizes = np.diff(line.offsets)
    shift = number[:, None] * line.count
    arrays = {
        "words": np.tile(line.words, lines),
        "adds": np.tile(line.adds, lines),
        "work": np.tile(line.work, lines),
        "offsets": np.concatenate([[0], np.cumsum(np.tile(sizes, lines))]),
        "cores": (starts[:, None] + line.cores * step).ravel(),
        "drops": np.tile(line.drops, lines),
        "child": (shift + line.child).ravel(),
        "parent": (shift + line.parent).ravel(),
        "stream": np.tile(line.stream, lines),
    }
    return Program(machine, arrays)


def join(first: Program, second: Program, stream: bool = False, heads: bool = False) -> Program:
    """Return both programs as one: each message of the second waits for the messages of the first that arrive at its
    source. stream: it streams them instead. heads: only messages without dependences of their own wait."""
    arrivals = np.flatnonzero(first.drops)
    owner = np.repeat(np.arange(first.count), np.diff(first.offsets))[arrivals]
    order = np.argsort(first.cores[arrivals], kind="stable")
    at, owner = first.cores[arrivals][order], owner[order]
    low, high = np.searchsorted(at, second.sources, "left"), np.searchsorted(at, second.sources, "right")
    if heads:
        high = np.where(np.isin(np.arange(second.count), second.child), low, high)
    child = np.repeat(np.arange(second.count), high - low)
    parent = owner[ranges(low, high)]
    arrays = {field: np.concatenate([getattr(first, field), getattr(second, field)]) for field in ("words", "adds", "work", "cores", "drops")}  # fmt: skip  # noqa: E501
    arrays["offsets"] = np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]])
    arrays["child"] = np.concatenate([first.child, second.child + first.count, child + first.count])
    arrays["parent"] = np.concatenate([first.parent, second.parent + first.count, parent])
    arrays["stream"] = np.concatenate([first.stream, second.stream, np.full(len(child), stream)])
    return Program(first.machine, arrays)


def in_order(program: Program) -> list[int]:
    """Return the messages' numbers, each after those it waits for or streams. Raises ValueError for a cycle."""
    missing = np.bincount(program.child, minlength=program.count)
    order = np.argsort(program.parent, kind="stable")
    start = np.searchsorted(program.parent[order], np.arange(program.count + 1)).tolist()
    children = program.child[order].tolist()
    result = np.flatnonzero(missing == 0).tolist()
    for message in result:
        for child in children[start[message] : start[message + 1]]:
            missing[child] -= 1
            if not missing[child]:
                result.append(child)
    if len(result) < program.count:
        number = int(np.flatnonzero(missing > 0)[0])
        raise ValueError(f"{program.name(number).capitalize()}, waits, in the end, for itself.")
    return result


def carried(program: Program, own: np.ndarray) -> np.ndarray:
    """Return the words that each message carries (M, B), given those that each core has: (rows, columns, B)."""
    numbers = np.asarray(own).reshape(program.machine.cores, -1)
    words = np.zeros((program.count, numbers.shape[1]), numbers.dtype)
    words[program.adds] = numbers[program.sources[program.adds]]
    parents: dict[int, list[int]] = {}
    for child, parent in zip(program.child.tolist(), program.parent.tolist(), strict=True):
        parents.setdefault(child, []).append(parent)
    for message in in_order(program):
        if message in parents:
            words[message] += words[parents[message]].sum(0)
    return words


def ranges(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return low[0] … high[0] − 1, low[1] … high[1] − 1, and so on, in one array."""
    sizes = high - low
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(low - ends + sizes, sizes)
