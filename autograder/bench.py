"""`make bench`: how fast the course's own code is, each figure beside a baseline from the same run, and its target.

    python -m autograder.bench                    # all of it, as a table
    python -m autograder.bench passes --json      # one part, as JSON
    python -m autograder.bench --largest 10000    # smaller graphs

Parts: passes, equivalent, start, checks, class, grading, load. Ratios travel between machines, seconds do not: a target
in seconds is for a laptop. What cannot be measured is listed with the reason.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from autograder import bench_grading
from autograder.source import ROOT

SIZES = (1_000, 10_000, 100_000)
#: Something of torch's that would take longer than this is not waited for.
PATIENCE = 60.0


@dataclass(frozen=True)
class Figure:
    """One line of the table. `held`: was the target reached; None where there is none or nothing was measured."""

    part: str
    what: str
    seen: str
    baseline: str = ""
    target: str = ""
    held: bool | None = None
    value: float | None = None


def at_most(part: str, what: str, value: float, limit: float, unit: str, baseline: str = "") -> Figure:
    """A figure that has to stay at or under a limit."""
    return Figure(part, what, _number(value, unit), baseline, f"≤ {limit:g}{unit}", value <= limit, value)


def skipped(part: str, what: str, why: str) -> Figure:
    return Figure(part, what, f"not measured: {why}")


def _number(value: float, unit: str) -> str:
    return f"{value:.3g}{unit}"


def interleaved(candidates: dict[str, Callable[[], Callable[[], Any]]], rounds: int) -> dict[str, float]:
    """Name → least CPU seconds of this process, which a busy machine distorts less than the clock on the wall.

    A candidate first makes what it needs, off the clock, and returns what is timed.
    """
    best = dict.fromkeys(candidates, math.inf)
    for _ in range(rounds):
        for name, prepare in candidates.items():
            try:
                run = prepare()
                gc.collect()
                gc.disable()  # a collection that walks 100,000 nodes would be charged to whoever triggers it
                start = time.process_time()
                run()
                best[name] = min(best[name], time.process_time() - start)
            except Exception as error:
                error.add_note(name)
                raise
            finally:
                gc.enable()
    return best


def exponent(times: dict[int, float]) -> float:
    """The e of time ≈ c·n^e: least squares through the logarithms."""
    xs, ys = [math.log(n) for n in times], [math.log(t) for t in times.values()]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)


# Part 1: the reference passes of day 3.


def fresh(gm: Any) -> Any:
    """A copy of a graph that shares its weights."""
    import torch

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    copy = torch.fx.GraphModule(gm, graph)
    copy.meta.update(gm.meta)
    return copy


def _torch_passes() -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """Exercise → what torch ships that comes nearest, by name. Each returns its graph ready to run, as ours do."""
    import torch
    from torch.fx import subgraph_rewriter
    from torch.fx.experimental.const_fold import split_const_subgraphs
    from torch.fx.passes.dialect.common.cse_pass import CSEPass

    def fold(gm):
        folded = split_const_subgraphs(gm)
        folded.run_folding()
        return folded

    laws = (  # those of the exercise that a pattern can say: replace_pattern knows no preconditions
        (lambda x: torch.relu(torch.relu(x)), lambda x: torch.relu(x)),
        (lambda x: torch.abs(torch.abs(x)), lambda x: torch.abs(x)),
        (lambda x: torch.abs(torch.neg(x)), lambda x: torch.abs(x)),
        (lambda x: torch.neg(torch.neg(x)), lambda x: x),
    )

    def rewrite(gm):
        for pattern, replacement in laws:
            subgraph_rewriter.replace_pattern(gm, pattern, replacement)
        return gm

    def cse(gm):
        return CSEPass()(gm).graph_module

    def dce(gm):
        gm.graph.eliminate_dead_code()
        gm.recompile()
        return gm

    return {
        "day03.constant-folding": ("const_fold", fold),
        "day03.simplify": (f"replace_pattern, {len(laws)} of the laws", rewrite),
        "day03.cse": ("CSEPass", cse),
        "day03.dce": ("eliminate_dead_code", dce),
    }


def passes(largest: int) -> Iterator[Figure | str]:
    """Time of the reference passes against n, and against torch's on the same graphs."""
    from autograder.bank import reference
    from passlab.generate import random_graph

    graphs = {}
    for n in (n for n in SIZES if n <= largest):
        yield f"making a graph of {n:,} nodes"
        graphs[n] = random_graph(0, size=n, views=False)  # CSEPass cannot hash a slice
    ours, torchs = [], []
    for exercise, (name, theirs) in _torch_passes().items():
        try:
            mine = reference(exercise)
        except KeyError as error:
            yield skipped("passes", exercise, error.args[0])
            continue
        ours.append(mine)
        torchs.append(theirs)
        yield from _one_pass(exercise, mine, name, theirs, graphs)
    if ours:
        whole = in_a_row(ours), "in a row", in_a_row(torchs)
        yield from _one_pass(f"all {len(ours)} in a row", *whole, graphs)


def in_a_row(passes: list[Callable]) -> Callable[[Any], Any]:
    """One pass that is these, one after another."""
    return lambda gm: functools.reduce(lambda graph, step: step(graph), passes, gm)


def _one_pass(exercise: str, mine: Callable, name: str, theirs: Callable, graphs: dict) -> Iterator[Figure | str]:
    times: dict[int, float] = {}
    torch_times: dict[int, float] = {}
    versus, why = [], ""
    for n, gm in graphs.items():
        yield f"{exercise} at {n:,} nodes"

        def put(run: Callable, gm: Any = gm) -> Callable[[], Callable[[], Any]]:
            def prepare() -> Callable[[], Any]:
                copy = fresh(gm)
                return lambda: run(copy)

            return prepare

        rounds = 3 if n <= 10_000 else 1
        what = f"{exercise}: time at {n:,} nodes / torch's {name}"
        if 10 * max(torch_times.values(), default=0) > PATIENCE:
            why = f"torch's would take longer than {PATIENCE:g} s"
        try:
            found = interleaved({"mine": put(mine)} if why else {"mine": put(mine), "theirs": put(theirs)}, rounds)
        except Exception as error:
            if "theirs" not in error.__notes__:
                raise
            why = f"torch's raised {type(error).__name__}: {str(error)[:120]}"
            found = interleaved({"mine": put(mine)}, rounds)
        times[n] = found["mine"]
        if "theirs" in found:
            torch_times[n] = found["theirs"]
            base = f"{times[n]:.3g} s / {torch_times[n]:.3g} s"
            versus.append(at_most("passes", what, times[n] / torch_times[n], 1.0, "x", base))
        else:
            versus.append(skipped("passes", what, why))
    if len(times) > 1:
        seen = ", ".join(f"{n:,}: {t:.3g} s" for n, t in times.items())
        if len(torch_times) > 1:
            seen += f"; torch's {exponent(torch_times):.3g}"
        yield at_most("passes", f"{exercise}: growth, exponent of n", exponent(times), 1.1, "", seen)
    yield from versus


# Part 2: equivalence.


def equivalence(largest: int) -> Iterator[Figure | str]:
    """`equivalent` on a graph of 1,000 nodes, relative to running both graphs on the same inputs."""
    from passlab import equivalent, random_graph

    before = random_graph(0, size=1_000)
    after, inputs = fresh(before), before.meta["inputs"]

    def run_both():
        before(*inputs), after(*inputs)

    found = interleaved({"both": lambda: run_both, "equivalent": lambda: lambda: equivalent(before, after)}, rounds=7)
    base = f"{found['equivalent']:.3g} s / {found['both']:.3g} s"
    what = "1,000 nodes: time / running both graphs once"
    yield at_most("equivalent", what, found["equivalent"] / found["both"], 10, "x", base)


# Part 3: starting up.

DRAW = """
import time
import torch
from passlab.generate import random_graph
gm = random_graph(0, size={size})
start = time.perf_counter()
from passlab import draw
assert "<svg" in draw(gm).svg
print(time.perf_counter() - start)
"""


def _python(code: str) -> tuple[float, str]:
    """Seconds of a fresh interpreter running `code`, and what it printed."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().split("\n")[-1])
    return time.perf_counter() - start, done.stdout


def start(largest: int) -> Iterator[Figure | str]:
    """Import and first picture, each in fresh processes."""
    lines = ("", "import passlab", "from passlab import check, hint, draw")
    took = {line: min(_python(line)[0] for _ in range(5)) for line in lines}
    for line in lines[1:]:
        base = f"bare interpreter {took['']:.3g} s"
        yield at_most("start", f"{line}, over a bare interpreter", took[line] - took[""], 0.3, " s", base)
    for size, limit, what in ((100, 0.5, "first draw of 100 nodes"), (5_000, 3, "draw of 5,000 nodes")):
        seconds = min(float(_python(DRAW.format(size=size))[1]) for _ in range(3))
        yield at_most("start", what, seconds, limit, " s", "after import torch, fresh process, best of 3")


# Part 4: the checks.


def checks(largest: int) -> Iterator[Figure | str]:
    """Each exercise's visible cases, put to the reference answer; the better of two, once everything is imported."""
    from autograder.bank import reference
    from passlab import exercises
    from passlab.judge import judge

    for day in exercises.days():
        for exercise in exercises.of_day(day):
            try:
                answer = reference(exercise.id)
            except KeyError as error:
                yield skipped("checks", exercise.id, error.args[0])
                continue
            first, *again = (judge(exercise, answer) for _ in range(3))
            base = f"first time {first.seconds:.3g} s" + ("" if first.ok else ", reference not at full marks")
            yield at_most("checks", exercise.id, min(j.seconds for j in again), 1.0, " s", base)


# Part 5: a class.

KERNEL = """
import nbformat, time
from nbclient import NotebookClient
nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import torch, passlab")])
start = time.perf_counter()
NotebookClient(nb, kernel_name="python3").execute()
print(time.perf_counter() - start)
"""


def sample_class(largest: int) -> Iterator[Figure | str]:
    """Grading the sample class, per notebook, beside a notebook that only imports torch."""
    samples = list((ROOT / "autograder/samples").glob("*/*/*.ipynb"))
    if not samples:
        yield skipped("class", "sample class", "autograder/samples holds no notebook")
        return
    environment = os.environ | {"PASSLAB_RUN": "autograder/run/bench"}
    yield f"grading {len(samples)} notebooks"
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "passlab.cli", "grade", "--seed", "0"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    took = time.perf_counter() - begin
    table = ROOT / "autograder/run/bench/grades.csv"
    if not table.exists():
        yield skipped(
            "class", "sample class", f"grading ended with {(done.stderr.strip() or 'nothing').splitlines()[-1]}"
        )
        return
    kernel = min(float(_python(KERNEL)[1]) for _ in range(2))
    each = took / len(samples)
    base = f"{took:.3g} s for {len(samples)} notebooks on {os.cpu_count()} cores; a kernel with torch {kernel:.3g} s"
    yield Figure("class", "grading, per notebook", f"{each:.3g} s", base, value=each)
    yield Figure("class", "grading, per notebook / a kernel", f"{each / kernel:.3g}x", value=each / kernel)


PARTS = {
    "passes": passes,
    "equivalent": equivalence,
    "start": start,
    "checks": checks,
    "class": sample_class,
    "grading": bench_grading.grading,
    "load": bench_grading.load,
}


def measure(parts: list[str], largest: int) -> Iterator[Figure | str]:
    """The figures of the parts, in their order, and between them words on what goes on.

    A part that breaks, or has nothing to measure, is a figure that says so.
    """
    for part in parts:
        figures = 0
        try:
            for figure in PARTS[part](largest):
                figures += isinstance(figure, Figure)
                yield figure
        except Exception as error:
            yield skipped(part, "the rest of this part", f"{type(error).__name__}: {str(error).strip()[:200]}")
        else:
            if not figures:
                yield skipped(part, "this part", "there is nothing to measure")


def table(figures: list[Figure]) -> Any:
    from rich.table import Table

    shown = Table("part", "what", "seen", "target", "", "baseline, details")
    for f in figures:
        shown.add_row(f.part, f.what, f.seen, f.target, {True: "held", False: "missed", None: ""}[f.held], f.baseline)
    return shown


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m autograder.bench", description="How fast the course's code is.")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all if none is named")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="largest graph of part passes, in nodes")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")

    import torch
    from rich.console import Console

    warnings.simplefilter("ignore")
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
        held = sum(f.held is True for f in figures)
        unmeasured = sum(f.seen.startswith("not measured") for f in figures)
        console.print(f"{held} targets held, {len(missed)} missed, {unmeasured} figures not measured. {machine}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
