"""Draw mappings and simulated programs, by `passlab.drawing.mesh`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from passlab.drawing.axes import Plot
from passlab.drawing.mesh import FRAMES, Frame, Playback, heat, placements, playback
from passlab.wafer.machine import Machine
from passlab.wafer.mapping import load, traffic
from passlab.wafer.pieces import Pieces
from passlab.wafer.simulate import Run


def owners(pieces: Pieces, cores: np.ndarray, machine: Machine) -> np.ndarray:
    """Return rows × columns: the number of the operation that has a piece on each core, or -1."""
    grid = np.full(machine.cores, -1)
    grid[cores] = pieces.owner
    return grid.reshape(machine.rows, machine.columns)


def draw_placements(pieces: Pieces, plans: Mapping[str, np.ndarray], machine: Machine, title: str = "") -> Plot:
    """Draw placements side by side, each with the average hops of a word."""
    total = pieces.words.sum() or 1
    panels = {
        f"{name}: {traffic(pieces, cores, machine) / total:.2f} hops a word": owners(pieces, cores, machine)
        for name, cores in plans.items()
    }
    return placements(panels, [o.name for o in pieces.operations], title or "Placement")


def draw_load(pieces: Pieces, cores: np.ndarray, machine: Machine, title: str = "") -> Plot:
    """Draw how long each core computes for one example, and how long each link is busy, in cycles."""
    loads = load(pieces, cores, machine)
    return heat(loads.computing, loads.links, "cycles", title or "What cores and links do for one example")


def draw_traffic(run: Run, title: str = "Words on each link") -> Plot:
    """Draw the words that each link of a simulated program carried and each core received."""
    ways = dict(zip(("north", "east", "south", "west"), np.moveaxis(run.traffic(), 2, 0), strict=True))
    p, machine = run.program, run.program.machine
    number = np.repeat(np.arange(p.count), np.diff(p.offsets))
    received = np.bincount(p.cores[p.drops], p.words[number[p.drops]], machine.cores)
    return heat(received.reshape(machine.rows, machine.columns), ways, "words", title)


def play(run: Run, title: str = "", frames: int = 40) -> Playback:
    """Draw a simulated program in time. A link is coloured while words of a message pass it, a core while they arrive.
    The colour is the message's depth: the length of the chain of messages that it waited for."""
    p, machine = run.program, run.program.machine
    span = max(1, math.ceil((run.cycles + 1) / min(frames, FRAMES)))
    depth = np.zeros(p.count, int)
    for number in np.argsort(run.ready, kind="stable").tolist():
        parents = p.parent[p.child == number]
        depth[number] = depth[parents].max() + 1 if len(parents) else 0
    pictures = []
    number = np.repeat(np.arange(p.count), np.diff(p.offsets))
    last = np.zeros(len(p.cores), bool)
    last[p.offsets[1:] - 1] = True
    start, end = run.passed, run.passed + p.words[number]
    for begin in range(0, run.cycles + 1, span):
        busy = (start < begin + span) & (end > begin)
        links = {
            (p.core(p.cores[k]), p.core(p.cores[k + 1])): int(depth[number[k]]) for k in np.flatnonzero(busy & ~last)
        }
        down = (start + machine.ramp < begin + span) & (end + machine.ramp > begin) & p.drops
        cores = {p.core(p.cores[k]): int(depth[number[k]]) for k in np.flatnonzero(down)}
        until = min(begin + span - 1, run.cycles)
        when = f"Cycle {begin}" if until == begin else f"Cycles {begin} to {until}"
        pictures.append(
            Frame(cores, links, f"{when} of {run.cycles}: {len(links)} links busy, {len(cores)} cores receive")
        )
    return playback(machine.rows, machine.columns, pictures, title, len(pictures) // 3)


def pipeline(pieces: Pieces, cores: np.ndarray, machine: Machine, examples: int = 6, title: str = "") -> Playback:
    """Draw examples that stream through operations: a core has the colour of the example it works on.

    One frame is one turn of the pipeline; an operation works on an example one turn after its producers.
    """
    turn: dict[str, int] = {}
    for operation in pieces.operations:
        turn[operation.name] = 1 + max((turn[read.source] for read in operation.reads), default=-1)
    places = [divmod(core, machine.columns) for core in cores.tolist()]
    pictures = []
    for time in range(max(turn.values()) + examples):
        busy = {
            places[i]: time - turn[o.name]
            for o in pieces.operations
            if 0 <= time - turn[o.name] < examples
            for i in pieces.of(o.name)
        }
        numbers = sorted({example for example in busy.values()})
        label = f"example {numbers[0]}" if len(numbers) == 1 else f"examples {numbers[0]} to {numbers[-1]}"
        pictures.append(Frame(busy, {}, f"Turn {time}: {len(busy)} of {machine.cores} cores work, on {label}"))
    return playback(machine.rows, machine.columns, pictures[:FRAMES], title, min(len(pictures), FRAMES) // 2)
