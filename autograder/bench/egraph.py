"""`make bench`, part egraph: saturation beside the best order of passes, proofs of laws, and laws that were found."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

from autograder.bench.figures import Figure, at_least, at_most, cpu, not_measured

#: Pairs of graphs that differ in one operand, constant or axis.
PAIRS = 10_000
#: Seconds of the solver for each of them.
BUDGET = 0.05
#: Most rounds of saturation, here and in egglog.
ROUNDS = 30


def egraph(largest: int) -> Iterator[Figure | str]:
    yield from orders()
    yield from analyses()
    yield from saturation()
    yield from peer()
    yield from proofs()
    yield from false_proofs()
    yield from discovery()


def orders() -> Iterator[Figure | str]:
    """Launches that saturation leaves, beside the best order of the small passes of day 3, and the least possible."""
    from autograder.bench import phases
    from passlab import trace
    from passlab.models import ZOO

    fewer = []
    for name, (module, inputs) in phases.EXAMPLES.items():
        best, saturated = phases.best_order(trace(module, *inputs)), phases.saturated(trace(module, *inputs))
        fewer.append(saturated.optimum < best)
        yield at_most(f"{name}: launches", saturated.optimum, best - 1, "", f"best order of passes: {best}")
    ratios = []
    for name, row in ZOO.items():
        yield f"{name}: saturating"
        gm = trace(row.build(), *row.inputs(1))
        best, saturated = phases.best_order(gm), phases.saturated(gm)
        ratios.append(saturated.greedy / max(1, saturated.optimum))
        yield at_most(f"{name}: launches", saturated.optimum, best, "", f"best order of passes: {best}")
    yield at_most("zoo: extraction by trees, launches / optimum, worst", max(ratios), 1.01, "")


def analyses() -> Iterator[Figure | str]:
    """How many times fewer e-nodes there are where numbers are computed."""
    from autograder.bench import phases

    yield "saturating a product with constants"
    without, using = phases.scaled(None), phases.scaled(phases.Numbers())
    yield at_least(
        "e-nodes of x · (2 · 3 · 5 · …) without an analysis / with",
        without / using,
        10,
        "x",
        f"{without:,} / {using:,}",
    )


def saturation() -> Iterator[Figure | str]:
    """CPU time to all orders and groupings of a sum, about 3**n e-nodes."""
    from autograder.bench import phases

    yield "saturating a sum"
    timed = cpu(partial(phases.sums, 10), 1)
    yield at_most("saturation to 50,000 e-nodes", timed.seconds * 50_000 / timed.result, 10, " s", f"{timed.result:,}")


def peer() -> Iterator[Figure | str]:
    """The same terms and laws in egglog, where it is installed: e-nodes, the smallest tree, CPU time."""
    if importlib.util.find_spec("egglog") is None:
        yield not_measured("the same terms and laws in egglog", "egglog is not installed: pip install egglog==13.2.0")
        return
    from autograder.bench import in_egglog, phases
    from passlab import trace
    from passlab.egraph import EGraph
    from passlab.egraph.programs import terms_of

    problems: dict[str, tuple] = {"a sum of 9": (phases.sum_of(9), phases.orders("add"), ROUNDS)}
    for name, (module, inputs) in phases.EXAMPLES.items():
        gm, graph = trace(module, *inputs), EGraph()
        (root,) = terms_of(gm, graph)
        problems[name] = graph.term(root), phases.LAWS, ROUNDS
    for name, problem in problems.items():
        yield f"{name}: in egglog"
        own_run, peer_run = cpu(partial(in_egglog.ours, *problem), 1), cpu(partial(in_egglog.egglog, *problem), 1)
        answer, baseline = (f"{run.result}, {run.seconds:.2g} s CPU" for run in (peer_run, own_run))
        yield Figure(f"{name}: by egglog", answer, f"here: {baseline}", "as here", peer_run.result == own_run.result)


def proofs() -> Iterator[Figure | str]:
    """The longest proof of a law of numbers, and how many laws are decided."""
    from passlab.proving.laws import LAWS, TYPES, decide

    decided, every, longest = 0, 0, 0.0
    for law in LAWS:
        if not law.of_numbers:
            continue
        for dtype in TYPES.values():
            yield law.text
            decision = decide(law, dtype)
            if decision.proof is None:
                continue
            every += 1
            decided += decision.proof.verdict in ("proved", "refuted") or bool(decision.proof.counterexample)
            longest = max(longest, decision.seconds)
    yield Figure("laws of numbers decided bit by bit", f"{decided} of {every}", value=decided)
    yield at_most("longest proof of a law of numbers", longest, 2, " s")


def false_proofs(number: int = PAIRS) -> Iterator[Figure | str]:
    """How many pairs of graphs that differ were proved equal."""
    from autograder.bench import pairs
    from passlab.proving import prove

    wrong, different = [], 0
    drawn = ((seed, pair) for seed in itertools.count() if (pair := pairs.drawn_pair(seed)))
    for count, (seed, pair) in enumerate(itertools.islice(drawn, number)):
        if count % 100 == 0:
            yield f"pair {count}"
        proof = prove(*pair, budget=BUDGET, tests=False)
        if proof.verdict in ("proved", "reals") and pairs.differ(*pair):
            wrong.append(seed)
        different += proof.verdict == "refuted" or pairs.differ(*pair)
    yield at_most(
        "false proofs of pairs that differ in one place",
        len(wrong),
        0,
        "",
        f"{number:,} pairs, of which {different:,} are different; {', '.join(map(str, wrong))}",
    )


def discovery() -> Iterator[Figure | str]:
    """How many laws are found among terms of up to three operations on matrices, none implied by the others."""
    from passlab.egraph.discover import PROPERTIES, TASO, discover, follows, same_form

    yield "discovering laws"
    timed: Any = cpu(partial(discover, operations=3), 1)
    verdicts = [finding.proof.verdict for finding in timed.result]
    known = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
    text = ", ".join(f"{verdict}: {count}" for verdict, count in known.items())
    title = "laws of +, ·, @ and transposition found, up to three operations"
    yield Figure(title, str(len(verdicts)), f"TASO keeps {TASO} of up to four; {text}; {timed.seconds:.0f} s CPU")
    laws = [finding.law for finding in timed.result]
    stated = sum(any(same_form(law, other) for other in PROPERTIES) for law in laws)
    implied = sum(follows(law.left, law.right, PROPERTIES) for law in laws)
    text = f"{implied} of {len(laws)} follow from TASO's properties of these operators, in an e-graph"
    yield Figure("laws found that are such properties", f"{stated} of {len(laws)}", text)
    derived = sum(follows(law.left, law.right, laws) for law in PROPERTIES)
    yield at_least("properties of TASO that follow from the laws found", derived, len(PROPERTIES), "")
