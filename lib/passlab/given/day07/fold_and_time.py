"""Day 7, what folding a batch norm buys: how an answer runs on a case.

While the answer works, a witness writes down what it builds and how long each run takes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from passlab.building.requests import Built
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.tvm import builds

LEVEL, RUNS = 3, 5


@contextlib.contextmanager
def watched(x: np.ndarray) -> Iterator[tuple[list[tuple], list[tuple[float, float]]]]:
    """Give two lists that grow: (module, level, passes off) of each build, and the seconds of each run on `x`.

    The latter come in pairs: the run alone, and with the work of this witness, which whoever times it measures, too.
    """
    from tvm.contrib.graph_executor import GraphModule

    built, runs = [], []
    run, build, run_module = GraphModule.run, relay.build, builds.run_module
    time_evaluator = tvm.runtime.Module.time_evaluator

    def is_given(graph: Any) -> bool:
        inputs = (graph["get_input"](at).numpy() for at in range(graph["get_num_inputs"]()))
        return any(np.array_equal(value, x) for value in inputs)

    def noted_build(module: Any, *args: Any, **options: Any) -> Any:
        context = tvm.transform.PassContext.current()
        built.append((module, context.opt_level, context.disabled_pass))
        return build(module, *args, **options)

    def noted_run(graph: Any, **inputs: Any) -> None:
        begin = time.perf_counter()
        graph.set_input(**inputs)
        own = is_given(graph.module)
        start = time.perf_counter()
        run(graph)
        end = time.perf_counter()
        if own:
            runs.append((end - start, end - begin))

    def noted_evaluator(module: Any, *args: Any, **options: Any) -> Callable:
        def measured(*arguments: Any) -> Any:
            result = time_evaluator(module, *args, **options)(*arguments)
            runs.extend((seconds, seconds) for seconds in (result.results if is_given(module) else ()))
            return result

        return measured

    def noted_run_module(module: Any, inputs: Any, **options: Any) -> Built:
        built_module = run_module(module, inputs, **options)
        built.append((module, options.get("level", LEVEL), options.get("disabled", ())))
        runs.extend((seconds, seconds) for seconds in built_module.times)
        return built_module

    with (
        mock.patch.object(relay, "build", noted_build),
        mock.patch.object(GraphModule, "run", noted_run),
        mock.patch.object(tvm.runtime.Module, "time_evaluator", noted_evaluator),
        mock.patch.object(builds, "run_module", noted_run_module),
    ):
        yield built, runs


def call(answer: Callable, case: Case) -> Any:
    """Return the answer's sides as plain data: lists of numbers and text. The image travels as a torch tensor.

    Each side gets `built`, [level, passes off] of the builds of its module; `runs` are the two times of each run.
    """
    module, x = case.build()
    with watched(x.numpy()) as (built, runs):
        sides = answer(module, x.numpy())
    if not isinstance(sides, dict):
        return sides
    plain = {"runs": [[float(least), float(most)] for least, most in runs]}
    for name, side in sides.items():
        if isinstance(side, dict):
            side = dict(side)
            side["disabled"] = [str(one) for one in side.get("disabled") or ()]
            side["seconds"] = [float(one) for one in side.get("seconds") or ()]
            own = [(level, off) for module, level, off in built if _equal(module, side.get("module"))]
            side["built"] = [[level, sorted(map(str, off))] for level, off in own]
        plain[str(name)] = side if isinstance(side, dict) else float(side)
    return plain


def _equal(one: Any, other: Any) -> bool:
    one = tvm.IRModule.from_expr(one) if isinstance(one, relay.Function) else one
    return isinstance(other, tvm.IRModule) and tvm.ir.structural_equal(one, other)
