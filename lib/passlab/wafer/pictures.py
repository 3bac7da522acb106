"""What `passlab.drawing.mesh` draws, of mappings and of simulated programs."""

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
    """Return rows × columns: the number of the operation that has a piece on each core, -1 for none."""
    found = np.full(machine.cores, -1)
    found[cores] = pieces.owner
    return found.reshape(machine.rows, machine.columns)


def draw_placements(pieces: Pieces, plans: Mapping[str, np.ndarray], machine: Machine, title: str = "") -> Plot:
    """Draw placements side by side, each with the hops that a word travels on average."""
    total = pieces.words.sum() or 1
    drawn = {
        f"{name}: {traffic(pieces, cores, machine) / total:.2f} hops a word": owners(pieces, cores, machine)
        for name, cores in plans.items()
    }
    return placements(drawn, [o.name for o in pieces.operations], title or "Placement")


def draw_load(pieces: Pieces, cores: np.ndarray, machine: Machine, title: str = "") -> Plot:
    """Draw how long each core computes for one example, and how long each link is busy, in cycles."""
    found = load(pieces, cores, machine)
    return heat(found.computing, found.links, "cycles", title or "What cores and links do for one example")


def draw_traffic(run: Run, title: str = "Words on each link") -> Plot:
    """Draw what the links of a simulated program carried, and the words that each core received."""
    ways = dict(zip(("north", "east", "south", "west"), np.moveaxis(run.traffic(), 2, 0), strict=True))
    p, machine = run.program, run.program.machine
    number = np.repeat(np.arange(p.count), np.diff(p.offsets))
    received = np.bincount(p.cores[p.drops], p.words[number[p.drops]], machine.cores)
    return heat(received.reshape(machine.rows, machine.columns), ways, "words", title)


def play(run: Run, title: str = "", frames: int = 40) -> Playback:
    """Draw a simulated program in time. A link is coloured while words of a message pass it, a core while words of a
    message arrive. The colour is the message's depth: how many messages one after the other it waited for."""
    p, machine = run.program, run.program.machine
    each = max(1, math.ceil((run.cycles + 1) / min(frames, FRAMES)))
    depth = np.zeros(p.count, int)
    for number in np.argsort(run.ready, kind="stable").tolist():
        waited = p.parent[p.child == number]
        depth[number] = depth[waited].max() + 1 if len(waited) else 0
    made = []
    number = np.repeat(np.arange(p.count), np.diff(p.offsets))
    last = np.zeros(len(p.cores), bool)
    last[p.offsets[1:] - 1] = True
    start, end = run.passed, run.passed + p.words[number]
    for begin in range(0, run.cycles + 1, each):
        busy = (start < begin + each) & (end > begin)
        links = {
            (p.core(p.cores[k]), p.core(p.cores[k + 1])): int(depth[number[k]]) for k in np.flatnonzero(busy & ~last)
        }
        down = (start + machine.ramp < begin + each) & (end + machine.ramp > begin) & p.drops
        cores = {p.core(p.cores[k]): int(depth[number[k]]) for k in np.flatnonzero(down)}
        until = min(begin + each - 1, run.cycles)
        when = f"Cycle {begin}" if until == begin else f"Cycles {begin} to {until}"
        made.append(Frame(cores, links, f"{when} of {run.cycles}: {len(links)} links busy, {len(cores)} cores receive"))
    return playback(machine.rows, machine.columns, made, title, len(made) // 3)


def pipeline(pieces: Pieces, cores: np.ndarray, machine: Machine, examples: int = 6, title: str = "") -> Playback:
    """Draw examples that stream through operations: a core has the colour of the example on which it works.

    One frame is one turn of the pipeline; an operation works on an example one turn after all that it reads.
    """
    turn: dict[str, int] = {}
    for operation in pieces.operations:
        turn[operation.name] = 1 + max((turn[read.source] for read in operation.reads), default=-1)
    places = [divmod(core, machine.columns) for core in cores.tolist()]
    made = []
    for now in range(max(turn.values()) + examples):
        busy = {
            places[i]: now - turn[o.name]
            for o in pieces.operations
            if 0 <= now - turn[o.name] < examples
            for i in pieces.of(o.name)
        }
        seen = sorted({example for example in busy.values()})
        what = f"example {seen[0]}" if len(seen) == 1 else f"examples {seen[0]} to {seen[-1]}"
        made.append(Frame(busy, {}, f"Turn {now}: {len(busy)} of {machine.cores} cores work, on {what}"))
    return playback(machine.rows, machine.columns, made[:FRAMES], title, min(len(made), FRAMES) // 2)
