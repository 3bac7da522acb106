"""`make bench`: measure the course's own code, each figure next to a baseline from the same run and a target.

    python -m autograder.bench                    # all of it, as a table
    python -m autograder.bench passes --json      # one part, as JSON
    python -m autograder.bench --largest 10000    # smaller graphs

Figures that cannot be measured are listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

from autograder.authoring import fresh
from autograder.bench import (
    backend,
    book,
    capstone,
    course,
    dataflow,
    days,
    egraph,
    explorer,
    first_hour,
    fusion,
    fusion_cost,
    grading,
    house,
    hub,
    hunt,
    memory,
    memory_more,
    misconceptions,
    mlir,
    polyhedral,
    predict,
    quantization,
    records,
    sixty,
    training,
    tvm,
    wafer,
    wafer_mapping,
    world,
)
from autograder.bench.figures import Figure, not_measured

PARTS = {
    "first-hour": first_hour.first_hour,
    "passes": course.passes,
    "equivalent": course.equivalence,
    "start": course.start,
    "checks": course.checks,
    "tests": course.tests,
    "class": grading.sample_class,
    "sixty": sixty.sixty,
    "grading": grading.grading,
    "load": grading.load,
    "days": days.days,
    "tvm": tvm.tvm,
    "fusion": fusion.fusion,
    "fusion-cost": fusion_cost.fusion_cost,
    "polyhedral": polyhedral.polyhedral,
    "memory": memory.memory,
    "memory-more": memory_more.memory_more,
    "training": training.training,
    "quantization": quantization.quantization,
    "egraph": egraph.egraph,
    "hunt": hunt.hunt,
    "explorer": explorer.explorer,
    "backend": backend.backend,
    "dataflow": dataflow.dataflow,
    "predict": predict.predict,
    "wafer": wafer.wafer,
    "mlir": mlir.mlir,
    "misconceptions": misconceptions.misconceptions,
    "wafer-mapping": wafer_mapping.wafer_mapping,
    "hub": hub.hub,
    "book": book.book,
    "house": house.house,
    "capstone": capstone.capstone,
    "records": records.records,
    "world": world.world,
}


def measure(parts: list[str], largest: int) -> Iterator[Figure | str]:
    """Yield the figures of the parts, in order, interspersed with progress messages."""
    for part in parts:
        for news in _figures(PARTS[part], largest):
            yield replace(news, part=part) if isinstance(news, Figure) else news


def _figures(part: Callable[[int], Iterator[Figure | str]], largest: int) -> Iterator[Figure | str]:
    """Yield the news of a part; one that fails, or has nothing to measure, yields a figure with the reason."""
    measured = False
    try:
        for news in part(largest):
            measured |= isinstance(news, Figure)
            yield news
    except Exception as error:
        yield not_measured("the rest of this part", f"{type(error).__name__}: {str(error).strip()[:200]}")
    else:
        if not measured:
            yield not_measured("this part", "there is nothing to measure")


def table(figures: list[Figure]) -> Any:
    from rich.table import Table

    shown = Table("part", "what", "seen", "target", "", "baseline, details")
    for f in figures:
        shown.add_row(f.part, f.what, f.seen, f.target, {True: "held", False: "missed", None: ""}[f.held], f.baseline)
    return shown


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m autograder.bench", description="Measure the course's own code.")
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; default: all")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--largest", type=int, default=course.SIZES[-1], help="largest graph of part passes, in nodes")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; expected any of {', '.join(PARTS)}")

    import torch
    from rich.console import Console

    warnings.simplefilter("ignore")
    fresh.build()
    figures, begin, progress = [], time.perf_counter(), Console(stderr=True)
    with progress.status("starting") as status:
        for news in measure(options.parts or list(PARTS), options.largest):
            if isinstance(news, Figure):
                figures.append(news)
                news = f"{news.what}: {news.seen}"
            line = f"{time.perf_counter() - begin:4.0f} s, {len(figures)} figures; {news}"
            if progress.is_terminal:
                status.update(line)
            else:
                print(line, file=sys.stderr, flush=True)
    machine = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available(),
    }
    missed = [f for f in figures if f.held is False]
    if options.json:
        print(json.dumps({"machine": machine, "figures": [asdict(f) for f in figures]}, indent=1))
    else:
        console = Console(width=None if sys.stdout.isatty() else 160)
        console.print(table(figures))
        successes = sum(f.held is True for f in figures)
        unmeasured = sum(f.seen.startswith("not measured") for f in figures)
        console.print(f"{successes} targets held, {len(missed)} missed, {unmeasured} figures not measured. {machine}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
