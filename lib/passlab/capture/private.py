"""Names of torch.compile that torch does not promise: all that this package takes from inside Dynamo, in one place.

tests/capture/test_private.py says what each is expected to do, so that a new torch names what it changed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import fx


class Report(NamedTuple):
    """What Dynamo says of one frame that it tried to compile.

    `id`: as of `compile_id`. `failed_guard`: the guard of the newest earlier version that did not hold, or "".
    `error`: why there is no compiled version, or "".
    """

    id: str
    function: str
    failed_guard: str
    error: str


class Stop(NamedTuple):
    """A graph break in the frame `function`: Dynamo's text, and the line where it stopped."""

    function: str
    text: str
    file: str
    line: int
    source: str


def breaks() -> list[Stop]:
    """Return the graph breaks of all frames since `forget`, those before the first operation of a frame, too."""
    from torch._dynamo.output_graph import graph_break_reasons

    stops = []
    for reason in graph_break_reasons:
        if stack := list(reason.user_stack):
            last = stack[-1]
            stops.append(
                Stop(_function(stack[0].name), reason.reason, last.filename, last.lineno or 0, last.line or "")
            )
    return stops


def _function(name: str) -> str:
    """Return "f" for the rest of f after a break, too, which Dynamo calls "torch_dynamo_resume_in_f_at_12"."""
    return re.sub(r"^torch_dynamo_resume_in_(.*)_at_\d+$", r"\1", name)


def compile_id() -> str:
    """Return the number of the frame and of its version that is being compiled: "0/1"."""
    return str(torch._guards.CompileContext.current_compile_id())


def sizes(gm: fx.GraphModule) -> dict[str, tuple]:
    """Return source → shape, with symbols, of each tensor that comes into a graph of Dynamo's."""
    placeholders = [node for node in gm.graph.find_nodes(op="placeholder") if "grapharg" in node.meta]
    arguments = [(node.meta["grapharg"].source, node.meta.get("example_value")) for node in placeholders]
    return {_source(source): tuple(tensor.shape) for source, tensor in arguments if isinstance(tensor, torch.Tensor)}


def _source(source: Any) -> str:
    name = source.name if isinstance(source.name, str) else source.name()
    return re.sub(r"^L\['(\w+)'\]$", r"\1", name)


def forget() -> None:
    """Drop the reports and breaks of what was compiled until now."""
    from torch._dynamo.output_graph import graph_break_reasons
    from torch._dynamo.utils import clear_compilation_metrics

    graph_break_reasons.clear()
    clear_compilation_metrics()


def reports() -> list[Report]:
    """Return a report for each frame that Dynamo has tried to compile since `forget`, in order (64 at most)."""
    from torch._dynamo.utils import get_compilation_metrics

    return [
        Report(
            metrics.compile_id or "",
            _function(metrics.co_name),
            _guard(metrics.recompile_reason or ""),
            "" if metrics.has_guarded_code else metrics.fail_reason or "it calls no operation of torch",
        )
        for metrics in get_compilation_metrics()
        if metrics.co_name is not None  # the compilation of a backward graph has no frame of its own
    ]


def _guard(reason: str) -> str:
    """Return "k == 1" for "0/0: k == 1     # def f(x, k): …"."""
    return reason.partition("\n")[0].partition(": ")[2].partition("  # ")[0].strip()


def guard_rows(entries: Sequence[Any]) -> list[tuple[str, str, Any, tuple[str, ...]]]:
    """Return (source, type, value, code) of each guard that a `guard_filter_fn` of torch.compile is shown."""
    return [(e.name, e.guard_type, e.value, tuple(dict.fromkeys(e.orig_guard.code_list or ()))) for e in entries]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Dynamo's own warnings on graph breaks and recompilations from the screen."""
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise what a backend raises as it is, without the wrapper in which Dynamo says how to debug Dynamo."""
    from torch._dynamo.exc import BackendCompilerFailed

    try:
        yield
    except BackendCompilerFailed as error:
        raise error.inner_exception from None


def lowered(forward: Any, backward: Any, inference: Any, partition: Any, decompositions: Any = None) -> Any:
    """Return a backend that has AOTAutograd make functional ATen graphs, and hands them to these compilers."""
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        partition_fn=partition,
        decompositions=decompositions or {},
    )


def written_inputs() -> list[int]:
    """Return the numbers of the inputs that the graph which is being compiled writes: its first results, in order."""
    known = torch._guards.TracingContext.get().fw_metadata
    return [] if known is None else list(known.mutated_inp_runtime_indices)


def overwritten(joint: fx.GraphModule) -> list[fx.Node]:
    """Return the inputs of a joint graph that torch overwrites with results of the forward graph, once that has run."""
    from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput

    results = joint.graph.find_nodes(op="output")[0].meta.get("desc") or ()
    written = [result.mutated_input for result in results if isinstance(result, InputMutationAOTOutput)]
    return [node for node in joint.graph.find_nodes(op="placeholder") if node.meta.get("desc") in written]


@contextmanager
def outside() -> Iterator[None]:
    """Let passes run as they do elsewhere: without the mode in which AOTAutograd traces, where tensors have no data."""
    from torch._guards import tracing
    from torch.utils._python_dispatch import _disable_current_modes

    with tracing(None), _disable_current_modes():
        yield
