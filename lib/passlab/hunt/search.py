"""The search for faults of a target."""

from __future__ import annotations

import copy
import importlib
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO

import torch
from torch import fx

from passlab.fx.shrink import shrink
from passlab.hunt.faults import Fault, arbiter, differ
from passlab.hunt.forked import Crash, T, forked
from passlab.hunt.graphs import drawn_graph
from passlab.hunt.targets import TARGETS, Target, results

#: Calls of a target while one graph is shrunk.
BUDGET = 100


def hunt(
    target: str | Target,
    graphs: int = 100,
    seed: int = 0,
    size: int = 10,
    minutes: float | None = None,
    tell: Callable[[str], None] = lambda sentence: None,
) -> list[Fault]:
    """Return the faults that a target shows on drawn graphs: one for each signature, with the most frequent first.

    graphs: how many are tried, with seeds from `seed` on, of half of `size` patterns or of `size` random nodes, see
    `drawn_graph`. minutes: of CPU time, after which no further graph is tried. tell: is given one sentence for each new
    fault. Raises ValueError for an unknown target.
    """
    if isinstance(target, str):
        if target not in TARGETS:
            raise ValueError(f"There is no target {target!r}. There are: {', '.join(TARGETS)}.")
        target = TARGETS[target]
    faults: dict[tuple, Fault] = {}
    end = None if minutes is None else time.process_time() + 60 * minutes
    for number in range(seed, seed + graphs):
        if end is not None and time.process_time() > end:
            break
        gm = drawn_graph(number, size, max(1, size // 2), **target.features)
        with quiet():
            fault = _try(target, gm)
        if fault is None:
            continue
        known = faults.setdefault(fault.signature, fault)
        known.seeds.append(number)
        if known is fault:
            tell(f"graph {number}: {fault.kind} with {', '.join(fault.operations)}. {fault.message}")
    return sorted(faults.values(), key=lambda fault: -len(fault.seeds))


def failure(target: Target, gm: fx.GraphModule) -> tuple[str, str] | None:
    """Return how a target fails on a graph, as (kind, sentence), or None. A refusal is not a failure, a crash is."""
    try:
        return _apart(target, lambda: _failure(target, gm))
    except Crash as crash:
        return "crash", str(crash)


def _apart(target: Target, function: Callable[[], T]) -> T:
    """Call a function, in a child if the target may crash."""
    if not target.native:
        return function()
    for module in target.native:
        importlib.import_module(module)
    return forked(function)


def _failure(target: Target, gm: fx.GraphModule) -> tuple[str, str] | None:
    inputs = gm.meta["inputs"]
    before = results(copy.deepcopy(gm), inputs)  # it may write into its parameters
    try:
        after = results(_applied(target, gm), inputs)
    except Exception as error:
        text = " ".join(str(error).split())
        if isinstance(error, NotImplementedError) or any(words in text for words in target.refuses):
            return None
        return type(error).__name__, f"It raises {type(error).__name__}: {text[:200]}"
    return differ(before, after)


def _try(target: Target, gm: fx.GraphModule) -> Fault | None:
    """Return the fault that a graph shows, on the smallest graph that shows the same kind, or None."""
    first = failure(target, gm)
    if first is None:
        return None
    kind = first[0]

    def fails(smaller: fx.GraphModule) -> bool:
        again = failure(target, smaller)
        return again is not None and again[0] == kind

    small = shrink(gm, fails, BUDGET) if fails(gm) else gm
    last = failure(target, small) or first
    return Fault(target, kind, last[1], small, second(target, small, kind))


def second(target: Target, gm: fx.GraphModule, kind: str) -> str:
    """Return what a second oracle says of a failure: "" if it does not agree."""
    if kind not in ("values", "form"):
        try:
            program = torch.export.export(gm, gm.meta["inputs"]).module()
            same = differ(results(copy.deepcopy(gm), gm.meta["inputs"]), results(program, gm.meta["inputs"])) is None
        except Exception:
            return ""
        return "torch.export takes the graph, and computes what eager does" if same else ""
    return _apart(target, lambda: arbiter(gm, results(_applied(target, gm), gm.meta["inputs"])))


def _applied(target: Target, gm: fx.GraphModule) -> Callable:
    """Return what a target makes of a copy of a graph, and of copies of its inputs: recording runs what writes."""
    return target.apply(copy.deepcopy(gm), tuple(x.clone() for x in gm.meta["inputs"]))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings and what compilers print from the reader, and restore the random generator afterwards."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    sys.stdout.flush()
    sys.stderr.flush()
    nothing, own = os.open(os.devnull, os.O_WRONLY), [os.dup(1), os.dup(2)]
    for place in (1, 2):  # TVM writes past sys.stderr, torch's tracer past sys.stdout
        os.dup2(nothing, place)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            with redirect_stderr(StringIO()):
                yield
    finally:
        for place, file in enumerate(own, 1):
            os.dup2(file, place)
            os.close(file)
        os.close(nothing)
        logging.disable(level)
