"""`make bench`, part capstone: the course's compiler on models drawn from a seed, beside eager and torch.compile.

Times are medians of calls by turns, in this run. Where it is not the fastest, the model and what it spends its time on
are named.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from autograder.bench.figures import Figure, apart, at_least, at_most, skipped, tell

PART = "capstone"
SEED, FEWEST = 2026, 8


def capstone(largest: int) -> Iterator[Figure | str]:
    """Yield the figures. `largest`: at most so many models."""
    yield from apart(PART, "autograder.bench.capstone", str(largest))


def figures(largest: int) -> Iterator[Figure | str]:
    """Measure each model's competitors by turns."""
    from passlab.capstone import BASELINES, measure
    from passlab.capstone.families import hidden
    from passlab.capstone.reference import compile

    chosen = {name: BASELINES[name] for name in ("eager", "torch.compile")}
    models = [model for model in hidden(SEED, graphs=0)][: max(FEWEST, min(largest, 10))]
    entries = []
    for model in models:
        yield f"capstone: {model.name}"
        gm = model.graph()
        compiled = compile(gm, model.inputs)
        entry = measure(gm, compiled, model.inputs, chosen, model.name)
        entries.append(entry)
        yield repr(entry)
        base = f"eager {entry['eager'].seconds * 1e3:.3g} ms, by turns"
        yield at_most(PART, f"{model.name}: time over eager's", entry["mine"].ratio, 1, "x", base)
    faster = sum(e["mine"].ratio < 1 for e in entries)
    yield at_least(PART, "models on which the reference beats eager", faster, len(entries), "", f"of {len(entries)}")
    both = [e for e in entries if not e["torch.compile"].missing]
    if not both:
        yield skipped(PART, "models on which the reference beats torch.compile", entries[0]["torch.compile"].missing)
        return
    won = [e for e in both if e["mine"].seconds < e["torch.compile"].seconds]
    yield at_least(PART, "models on which it beats torch.compile", len(won) / len(both), 1 / 3, "", f"of {len(both)}")
    for e in both:
        if e not in won:
            steps = e["mine"].launches
            yield f"  it loses to torch.compile on {e.model}: {steps} steps called from Python, where that has one call"


if __name__ == "__main__":
    for news in figures(int(sys.argv[1])):
        tell(news)
