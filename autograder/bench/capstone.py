"""`make bench`, part capstone: the course's compiler on models drawn from a seed, beside the other compilers.

All run on one thread. The time over eager's is CPU time, which a busy machine changes little; those beside
torch.compile and TVM are by the clock: medians of calls by turns, in this run. A difference within the spread of both
is none. Where the course's compiler is slower than another, the figure says what its steps spend the time on.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import truediv
from typing import Any

from autograder.bench.figures import Figure, apart, at_least, at_most, not_measured
from passlab.judge import plural

SEED, GRAPHS, FEWEST, MOST = 2026, 2, 8, 12
#: The compilers beside the course's own.
OTHERS = ("torch.compile", "TVM")
#: Rounds in which eager and the course's compiler are timed.
ROUNDS = 21
#: How often a program is run, step by step, to see where its time goes.
RUNS = 30


def capstone(largest: int) -> Iterator[Figure | str]:
    """Yield the figures. `largest`: the most models to measure."""
    yield from apart(figures, largest)


def figures(largest: int) -> Iterator[Figure | str]:
    """Measure each model's competitors by turns."""
    import torch

    from passlab.capstone import BASELINES, build, measure
    from passlab.capstone.comparing import keep_memory, seconds_by_turns
    from passlab.capstone.families import hidden
    from passlab.capstone.reference import compile

    chosen = {name: BASELINES[name] for name in ("eager", *OTHERS)}
    entries, lost, own = [], [], []
    torch.set_num_threads(1)
    keep_memory()
    for model in hidden(SEED, graphs=GRAPHS)[: max(FEWEST, min(largest, MOST))]:
        yield f"capstone: {model.name}"
        gm = model.graph()
        compiled = compile(gm, model.inputs)
        entry = measure(gm, compiled, model.inputs, chosen, model.name)
        if not entry.equivalent:
            yield at_most(f"{model.name}: not equivalent", 1, 0, "", entry.reason)
            continue
        entries.append(entry)
        eager, mine = entry["eager"], entry["mine"]
        seen = ", ".join(f"{row.name} {row.missing or f'{row.ratio:.2f}'}" for row in entry.rows[1:-1])
        program = build(compiled, model.inputs, parallel=False)
        took = seconds_by_turns(compiled, gm, model.inputs, ROUNDS)
        own.append(statistics.quantiles(map(truediv, took["mine"], took["eager"])))
        low, ratio, high = own[-1]
        base = (
            f"quartiles {low:.2f} to {high:.2f}; eager {statistics.median(took['eager']) * 1e3:.3g} ms; by the clock "
        )
        base += f"{mine.ratio:.2f}, {seen}, eager ± {eager.spread / eager.seconds:.0%}"
        yield at_most(f"{model.name}: time over eager's", ratio, 1, "x", base)
        for what in ("launches", "bytes", "peak"):
            ratio = getattr(mine, what) / max(1, getattr(eager, what))
            base = f"{getattr(mine, what):,} of {getattr(eager, what):,}"
            yield at_most(f"{model.name}: {what} over eager's", ratio, 1, "x", base)
        over = {name: mine.seconds / entry[name].seconds for name in OTHERS if not entry[name].missing}
        if slower := {name: ratio for name, ratio in over.items() if ratio > 1}:
            where = f"its steps: {time_shares(program, model.inputs)}"
            lost += [Figure(f"{model.name}: time over {n}'s", f"{r:.3g}x", where, value=r) for n, r in slower.items()]
    if own:
        mean = statistics.geometric_mean(middle for _, middle, _ in own)
        yield at_most("time over eager's, geometric mean", mean, 1, "x", f"CPU time; {len(own)} models")
    faster, clear = (sum(ratios[at] < 1 for ratios in own) for at in (1, 2))
    base = f"of {len(entries)}; on {clear} in three quarters of the rounds"
    yield at_least("models on which the reference beats eager", faster, len(entries), "", base)
    for name in OTHERS:
        yield from beside(entries, name)
    yield from lost


def beside(entries: Sequence[Any], name: str) -> Iterator[Figure]:
    """Yield the figures of the reference beside another compiler, over the models on which that one runs."""
    both = [e for e in entries if not e[name].missing]
    if not both:
        yield not_measured(f"models on which the reference beats {name}", entries[0][name].missing)
        return
    mean = statistics.geometric_mean(e["mine"].seconds / e[name].seconds for e in both)
    yield at_most(f"time over {name}'s, geometric mean", mean, 1, "x", f"by the clock; {len(both)} models")
    won = sum(e["mine"].seconds < e[name].seconds for e in both)
    base = f"{won} of {len(both)}, {sum(_beyond(e['mine'], e[name]) for e in both)} by more than both spreads"
    yield at_least(f"share of the models on which it beats {name}", won / len(both), 1 / 3, "", base)


def _beyond(own: Any, other: Any) -> bool:
    """Return whether one row is faster than another by more than their spreads."""
    return own.seconds + own.spread / 2 < other.seconds - other.spread / 2


def time_shares(program: Any, inputs: Sequence[Any]) -> str:
    """Return what the steps of a program spend its time on, by kind, as shares of their sum."""
    import torch
    from torch import fx

    class Watch(fx.Interpreter):
        def run_node(self, node: fx.Node) -> Any:
            begin = time.perf_counter()
            value = super().run_node(node)
            took[node.name].append(time.perf_counter() - begin)
            return value

    took: dict[str, list[float]] = {node.name: [] for node in program.graph.graph.nodes}
    with torch.no_grad():
        for _ in range(RUNS):
            Watch(program.graph).run(*inputs)
    count = Counter(program.kinds.values())
    seconds = dict.fromkeys(count, 0.0)
    for name, kind in program.kinds.items():
        seconds[kind] += statistics.median(took[name])
    total = sum(seconds.values())
    return ", ".join(f"{seconds[kind] / total:.0%} in {plural(count[kind], kind)}" for kind in seconds)
