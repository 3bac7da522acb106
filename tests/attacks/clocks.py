"""Clocks: answers that want the points for speed without the work, each with an honest twin that has them all.

The attacks of this kind need exercises that are timed, which the small course of the others does not have: day 8 and
day 10. An answer works in a process of its own, what it returns travels as data, and the judge times that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SCHEDULE, PIPELINE, TILE = "day08.schedule", "day08.pipeline", "day10.tile"


@dataclass(frozen=True)
class Race:
    """An attack on a timed exercise. `lost`: the verdicts that it must lose. `twin`: a right answer that does alike.

    Both are put to the first case of the exercise.
    """

    name: str
    tries: str
    exercise: str
    answer: Callable[..., Any]
    lost: set[str]
    twin: Callable[[], Callable[..., Any]]


def _bank(exercise: str, name: str = "") -> Callable[[], Callable[..., Any]]:
    """Return a function that loads a right answer; the reference without a name."""

    def load() -> Callable[..., Any]:
        from autograder.authoring import answers

        if not name:
            return answers.reference(exercise)
        return next(answer for answer in answers.load(exercise) if answer.__name__ == name)

    return load


# ── Kernels for C = A · B ─────────────────────────────────────────────────────────────────────────────────────────────

_KERNEL = """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main(
        A: T.Buffer(({n}, {k}), "float32"), B: T.Buffer(({k}, {m}), "float32"), C: T.Buffer(({n}, {m}), "float32")
    ):
        T.func_attr({{"tirx.noalias": True}})
        kept = T.sblock_alloc_buffer(({n} + 1, {m}), "float32", scope="global")
{body}
"""
#: The textbook's loops, which are slow: what an attack does when it has to.
_WORK = """
for i in range({n}):
    for j in range({m}):
        C[i, j] = T.float32(0)
        for r in range({k}):
            C[i, j] = C[i, j] + A[i, r] * B[r, j]
"""


def _kernel(body: str) -> Callable[..., Any]:
    """Return an answer: a kernel of these lines. `kept` is memory that it never sets up, and WORK stands for the loops.

    Memory of the same size is given out again, so what one run leaves in `kept` is there in the next.
    """

    def answer(n: int, m: int, k: int) -> Any:
        from passlab.relax import tvm

        lines = []
        for line in body.strip("\n").split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            lines += [indent + work for work in _WORK.strip().split("\n")] if line.strip() == "WORK" else [line]
        text = "\n".join(" " * 8 + line for line in lines)
        return tvm.script.from_source(_KERNEL.format(n=n, m=m, k=k, body=text.format(n=n, m=m, k=k)))

    return answer


_DONE = """
kept[0, 0] = T.float32(0)
for r in range({k}):
    kept[0, 0] = kept[0, 0] + A[0, r] * B[r, 0]
if T.abs(C[0, 0] - kept[0, 0]) < T.float32(0.001):
    kept[0, 0] = T.float32(0)
else:
    WORK
"""
_BY_FIRST = """
if kept[{n}, 0] == A[0, 0] and kept[{n}, 1] == B[0, 0]:
    for i in range({n}):
        for j in range({m}):
            C[i, j] = kept[i, j]
else:
    WORK
    for i in range({n}):
        for j in range({m}):
            kept[i, j] = C[i, j]
    kept[{n}, 0] = A[0, 0]
    kept[{n}, 1] = B[0, 0]
"""
_IDLE = """
if kept[0, 0] == T.float32(4104.5):
    kept[{n}, {m} - 1] = kept[{n}, {m} - 1] + T.float32(1)
else:
    kept[0, 0] = T.float32(4104.5)
    kept[{n}, {m} - 1] = T.float32(0)
if kept[{n}, {m} - 1] < T.float32(3):
    WORK
"""
_OUTSIDE = """
T.evaluate(T.call_extern("int32", "vfork"))
WORK
"""


def two_functions(n: int, m: int, k: int) -> Any:
    from passlab.exercises.day08.schedule import naive
    from passlab.relax import tvm

    function = naive(n, m, k)
    module = _kernel("C[0, 0] = T.float32(0)")(n, m, k)
    return tvm.IRModule({"main": module["main"], "work": function.with_attr("global_symbol", "work")})


def in_threads(n: int, m: int, k: int) -> Any:
    from passlab.exercises.day08.schedule import naive
    from passlab.relax import tvm

    schedule = tvm.s_tir.Schedule(naive(n, m, k))
    i, j, _ = schedule.get_loops(schedule.get_sblock("C"))
    schedule.parallel(schedule.fuse(i, j))
    return schedule.mod


def own_times(n: int, m: int, k: int) -> Any:
    from passlab.exercises.day08.schedule import naive
    from passlab.relax import tvm

    function = naive(n, m, k).with_attrs({"global_symbol": "main", "times": [1e-9], "seconds": 1e-9})
    return tvm.IRModule({"main": function}, attrs={"times": [1e-9]})


def patches_clocks(n: int, m: int, k: int) -> Any:
    import time

    import torch.utils.benchmark

    from passlab.building import server
    from passlab.building.requests import Built
    from passlab.exercises.day08.schedule import naive
    from passlab.measure import clock
    from passlab.relax import tvm
    from passlab.tvm import builds

    for name in ("perf_counter", "process_time", "thread_time", "monotonic", "time"):
        setattr(time, name, lambda: 0.0)
    torch.utils.benchmark.timer.timer = lambda: 0.0
    clock.timed = clock._turn = server._run = server._times = lambda *_, **__: 1e-9
    builds.run_module = lambda *_, **__: Built([], times=(1e-9,))
    return tvm.IRModule({"main": naive(n, m, k)})


# ── Others ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def known_result(module: Any) -> Any:
    """A model whose result on the inputs with which it was exported is a constant in it."""
    from passlab.exercises.day08.pipeline import cases
    from passlab.relax import relax, tvm

    task = cases()[0].expect
    builder, x = relax.BlockBuilder(), relax.Var("x", module["main"].params[0].ty)
    with builder.function("main", [relax.Var(module["main"].params[0].name, x.ty)]):
        with builder.dataflow():
            result = builder.emit_output(relax.const(tvm.runtime.tensor(task.model()(*task.inputs).detach().numpy())))
        builder.emit_func_output(result)
    return builder.get()


def marked_alone(program: Any, sizes: Any) -> Any:
    """The loops as they are, each in threads that work beside each other."""
    return program.schedule, {"parallel": [0, 1]}


ATTACKS = (
    Race(
        "done",
        "does nothing if the output holds the result",
        SCHEDULE,
        _kernel(_DONE),
        {"did", "cost"},
        _bank(SCHEDULE),
    ),
    Race(
        "by-first-element",
        "keeps its results, and knows inputs again by their first elements",
        SCHEDULE,
        _kernel(_BY_FIRST),
        {"did", "cost"},
        _bank(SCHEDULE, "packed"),
    ),
    Race("idle", "computes the first runs only", SCHEDULE, _kernel(_IDLE), {"same", "did", "cost"}, _bank(SCHEDULE)),
    Race("two-functions", "leaves the work to a second function", SCHEDULE, two_functions, {"valid"}, _bank(SCHEDULE)),
    Race("outside", "leaves the work to another process", SCHEDULE, _kernel(_OUTSIDE), {"valid"}, _bank(SCHEDULE)),
    Race(
        "in-threads",
        "works as long as ever, in threads",
        SCHEDULE,
        in_threads,
        {"did", "cost"},
        _bank(SCHEDULE, "as_in_the_lesson"),
    ),
    Race("own-times", "says itself how fast it is", SCHEDULE, own_times, {"did", "cost"}, _bank(SCHEDULE)),
    Race("clocks", "stops all clocks that it can reach", SCHEDULE, patches_clocks, {"did", "cost"}, _bank(SCHEDULE)),
    Race("known-result", "holds the result of known inputs", PIPELINE, known_result, {"same"}, _bank(PIPELINE)),
    Race("marked-alone", "marks slow loops as parallel", TILE, marked_alone, {"did", "cost"}, _bank(TILE)),
)
