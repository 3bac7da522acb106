"""`make bench`, parts passes, equivalent, start, checks and tests: the course's own code against torch's."""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from autograder.authoring.source import ROOT
from autograder.bench.figures import Figure, apart, at_most, exponent, growth, interleave, not_measured

SIZES = (1_000, 10_000, 100_000)
#: Parts of torch that would take longer than this many seconds are not measured.
LONGEST = 60.0


# Part 1: the reference passes of day 3.


def fresh(gm: Any) -> Any:
    """Return a copy of a graph that shares its weights."""
    import torch

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    copy = torch.fx.GraphModule(gm, graph)
    copy.meta.update(gm.meta)
    return copy


def on(gm: Any, run: Callable[[Any], Any]) -> Callable[[], Callable[[], Any]]:
    """Return a candidate for `interleave` that runs on a fresh copy of the graph."""

    def prepare() -> Callable[[], Any]:
        copy = fresh(gm)
        return lambda: run(copy)

    return prepare


def _torch_passes() -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """Return exercise → (name, pass) of torch's nearest equivalent. Each returns a graph ready to run, as ours do."""
    import torch
    from torch.fx import subgraph_rewriter
    from torch.fx.experimental.const_fold import split_const_subgraphs

    from passlab.fx import torch_passes

    def fold(gm):  # without the second module that torch_passes.fold makes
        folded = split_const_subgraphs(gm)
        folded.run_folding()
        return folded

    laws = (  # the laws of the exercise that a pattern can express: replace_pattern has no preconditions
        (lambda x: torch.relu(torch.relu(x)), lambda x: torch.relu(x)),
        (lambda x: torch.abs(torch.abs(x)), lambda x: torch.abs(x)),
        (lambda x: torch.abs(torch.neg(x)), lambda x: torch.abs(x)),
        (lambda x: torch.neg(torch.neg(x)), lambda x: x),
    )

    def rewrite(gm):
        for pattern, replacement in laws:
            subgraph_rewriter.replace_pattern(gm, pattern, replacement)
        return gm

    return {
        "day03.constant-folding": ("const_fold", fold),
        "day03.simplify": (f"replace_pattern, {len(laws)} of the laws", rewrite),
        "day03.cse": ("CSEPass", torch_passes.merge),
        "day03.dce": ("eliminate_dead_code", torch_passes.eliminate),
    }


def passes(largest: int) -> Iterator[Figure | str]:
    """Time the reference passes: growth with n, and against torch's on the same graphs."""
    from autograder.authoring.answers import reference
    from passlab.fx.generate import random_graph

    graphs = {}
    for n in (n for n in SIZES if n <= largest):
        yield f"making a graph of {n:,} nodes"
        graphs[n] = random_graph(0, size=n, views=False)  # CSEPass cannot hash a slice
    owns, torchs = [], []
    for exercise, (name, torch_pass) in _torch_passes().items():
        try:
            own = reference(exercise)
        except KeyError as error:
            yield not_measured(exercise, error.args[0])
            continue
        owns.append(own)
        torchs.append(torch_pass)
        yield from _one_pass(exercise, own, name, torch_pass, graphs)
    if owns:
        whole = in_a_row(owns), "in a row", in_a_row(torchs)
        yield from _one_pass(f"all {len(owns)} in a row", *whole, graphs)


def in_a_row(passes: list[Callable]) -> Callable[[Any], Any]:
    """Return one pass that runs these one after another."""
    return lambda gm: functools.reduce(lambda graph, step: step(graph), passes, gm)


def _one_pass(exercise: str, own: Callable, name: str, torch_pass: Callable, graphs: dict) -> Iterator[Figure | str]:
    times: dict[int, float] = {}
    torch_times: dict[int, float] = {}
    versus, reason = [], ""
    for n, gm in graphs.items():
        yield f"{exercise} at {n:,} nodes"

        rounds = 3 if n <= 10_000 else 1
        title = f"{exercise}: time at {n:,} nodes / torch's {name}"
        if 10 * max(torch_times.values(), default=0) > LONGEST:
            reason = f"torch's would take longer than {LONGEST:g} s"
        try:
            seconds = interleave({"mine": on(gm, own)} | ({} if reason else {"theirs": on(gm, torch_pass)}), rounds)
        except Exception as error:
            if "theirs" not in error.__notes__:
                raise
            reason = f"torch's raised {type(error).__name__}: {str(error)[:120]}"
            seconds = interleave({"mine": on(gm, own)}, rounds)
        times[n] = seconds["mine"]
        if "theirs" in seconds:
            torch_times[n] = seconds["theirs"]
            base = f"{times[n]:.3g} s / {torch_times[n]:.3g} s"
            versus.append(at_most(title, times[n] / torch_times[n], 1.0, "x", base))
        else:
            versus.append(not_measured(title, reason))
    theirs_too = f"; torch's {exponent(torch_times):.3g}" if len(torch_times) > 1 else ""
    yield from growth(exercise, times, 1.1, theirs_too)
    yield from versus


# Part 2: equivalence.


def equivalence(largest: int) -> Iterator[Figure | str]:
    """Time `equivalent` on a graph of 1,000 nodes and on models, relative to running both graphs on the same inputs."""
    from passlab import models, random_graph, trace
    from passlab.fx.torch_passes import fuse

    graph = random_graph(0, size=1_000)
    ratio, base = _over_both_runs(graph, graph.meta["inputs"])
    yield at_most("1,000 nodes: time / running both graphs once", ratio, 10, "x", base)
    for name in ("resnet50", "vit", "gpt"):
        yield f"equivalent on {name}"
        inputs = models.ZOO[name].inputs(1)
        graph = trace(models.ZOO[name].build(), *inputs)
        ratio, base = _over_both_runs(graph, inputs)
        yield Figure(f"{name}: time / running both graphs once", f"{ratio:.3g}x", base, value=ratio)
        if name == "resnet50":
            ratio, base = _over_both_runs(graph, inputs, fuse(fresh(graph)))
            what = "resnet50 and its folded batch norms, all trials: time / running both graphs once"
            yield Figure(what, f"{ratio:.3g}x", base, value=ratio)


def _over_both_runs(before: Any, inputs: tuple, after: Any = None) -> tuple[float, str]:
    """Return how long `equivalent` takes on two graphs, over a run of both, and the seconds of each.

    after: default, a copy of `before`, whose nodes compute the same: most trials are left out.
    """
    import torch

    from passlab import equivalent

    after = fresh(before) if after is None else after

    def run_both():
        with torch.no_grad():
            before(*inputs), after(*inputs)

    candidates = {"both": lambda: run_both, "equivalent": lambda: lambda: equivalent(before, after, inputs)}
    times = interleave(candidates, rounds=7)
    return times["equivalent"] / times["both"], f"{times['equivalent']:.3g} s / {times['both']:.3g} s"


# Part 3: starting up.


def first_picture(size: int) -> Iterator[Figure]:
    """Time the import of `draw` and a picture, in a fresh process that has imported torch."""
    import torch  # noqa: F401

    from passlab.fx.generate import random_graph

    gm = random_graph(0, size=size)
    begin = time.perf_counter()
    from passlab import draw

    assert "<svg" in draw(gm).svg
    seconds = time.perf_counter() - begin
    yield Figure(f"a picture of {size} nodes", f"{seconds:.3g} s", value=seconds)


def _python(code: str) -> float:
    """Run `code` in a fresh interpreter; return its wall seconds."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    return time.perf_counter() - begin


def start(largest: int) -> Iterator[Figure | str]:
    """Time imports and the first picture, each in fresh processes."""
    lines = ("", "import passlab", "from passlab import check, hint, draw")
    took = {line: min(_python(line) for _ in range(5)) for line in lines}
    for line in lines[1:]:
        base = f"bare interpreter {took['']:.3g} s"
        yield at_most(f"{line}, over a bare interpreter", took[line] - took[""], 0.3, " s", base)
    for size, limit, title in ((100, 0.5, "first draw of 100 nodes"), (5_000, 3, "draw of 5,000 nodes")):
        seconds = min(figure.value for _ in range(3) for figure in apart(first_picture, size))
        yield at_most(title, seconds, limit, " s", "after import torch, fresh process, best of 3")


# Part 4: the checks.


#: Flavour → seconds that a check may take. Checks of passes of TVM and MLIR build modules, which takes longer.
CHECK_SECONDS = {"torch": 1.0, "relay": 5.0, "relax": 5.0, "mlir": 2.0}
#: Seconds that the median of the checks without TVM and MLIR may take.
MEDIAN = 0.5


def _check(exercise_id: str) -> tuple[float, float, bool]:
    """Return the seconds of the reference answer's first check, of the better of two more, and whether all is right."""
    from autograder.authoring.answers import reference
    from passlab import exercises
    from passlab.judge import judge

    exercise, answer = exercises.find(exercise_id), reference(exercise_id)
    first, *repeats = (judge(exercise, answer) for _ in range(3))
    return first.seconds, min(each.seconds for each in repeats), first.ok


def checks(largest: int) -> Iterator[Figure | str]:
    """Time each exercise's check of the reference answer on its visible cases, after everything is imported.

    A process can hold only one TVM, so only exercises of one day, which share a compiler, share a process.
    """
    from passlab import exercises

    own = []
    for day in exercises.days():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            for exercise in exercises.of_day(day):
                try:
                    first, best, ok = process.submit(_check, exercise.id).result()
                except KeyError as error:
                    yield not_measured(exercise.id, error.args[0])
                    continue
                base = f"first time {first:.3g} s" + ("" if ok else ", reference not at full marks")
                yield at_most(exercise.id, best, CHECK_SECONDS[exercise.flavour], " s", base)
                own += [best] if exercise.flavour == "torch" else []
    if own:
        base = f"the slowest {max(own):.3g} s; of {len(own)} that need neither TVM nor MLIR"
        yield at_most("check of an exercise over FX, median", statistics.median(own), MEDIAN, " s", base)


# Part 5: the tests, and how much there is to test.


def tests(largest: int) -> Iterator[Figure | str]:
    """Count the lines of Python that have an author. How long tests take is measured in part first-hour."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines: Counter[str] = Counter()
    for name in listed.split():
        lines[name.split("/")[0]] += len((ROOT / name).read_text(encoding="utf-8").splitlines())
    base = ", ".join(f"{folder} {count:,}" for folder, count in lines.most_common())
    yield Figure("lines of Python", f"{lines.total():,}", base)
