"""What a judge asks of a graph beside its results: the value of each node, its gradients, the operations that it calls.

A graph that may not run in this process runs in another one (`passlab.fx.isolation`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from passlab.fx.isolation import ProcessLostError, confined
from passlab.fx.programs import copy_inputs


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"


@confined
def _values(gm: fx.GraphModule, inputs: tuple, as_computed: bool) -> dict:
    values: dict[str, Any] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            values[n.name] = value.clone() if as_computed and isinstance(value, Tensor) else value
            return value

    recorder = Recorder(gm, garbage_collect_values=False)
    recorder.extra_traceback = False
    with torch.no_grad():
        recorder.run(*copy_inputs(inputs))
    return values


def values_of(gm: fx.GraphModule, inputs: tuple, as_computed: bool = False) -> dict[fx.Node, Any]:
    """Run a graph on a copy of its inputs and return node → its value, as it is after the run.

    Values that share memory share it in the result. as_computed: each tensor as it is before later nodes write into it,
    in memory of its own. Raises ValueError, with the reason, if the graph cannot run.
    """
    try:
        values = _values(gm, inputs, as_computed)
    except (Exception, ProcessLostError) as error:
        raise ValueError(_first_line(error)) from None
    missing = next((node.name for node in gm.graph.nodes if node.name not in values), None)
    if missing:
        raise ValueError(f"Node {missing} has no value.")
    return {node: values[node.name] for node in gm.graph.nodes}


def differentiate(program: Callable, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the results of a program, and the gradient of a weighted sum of them for each input (0 if it has none).

    program(*inputs) returns a sequence of tensors of floats. The n-th result, from 0, has the weight n + 1.5. A graph
    runs as it was compiled: `rebuild` one that was edited. Raises what the program raises; ProcessLostError if it ran
    in another process.
    """
    if isinstance(program, fx.GraphModule):
        both = _differentiated(program, tuple(inputs))
        return both["results"], both["gradients"]
    leaves = [x.clone().requires_grad_() for x in inputs]
    results = list(program(*(x.clone() for x in leaves)))
    loss: Any = sum(((at + 1.5) * value).sum() for at, value in enumerate(results))
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        return results, [torch.zeros_like(x) for x in leaves]
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    return (
        [x.detach() if isinstance(x, Tensor) else x for x in results],
        [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, gradients, strict=True)],
    )


@confined
def _differentiated(gm: fx.GraphModule, inputs: tuple) -> dict:
    results, gradients = differentiate(gm.forward, inputs)
    return {"results": results, "gradients": gradients}


@confined
def aten_calls(gm: fx.GraphModule, inputs: tuple) -> dict:
    """Return as "calls" the ATen operations that a graph runs: (name, whether it is pointwise) of each, in order; and
    as "results" what it returns, on the device meta, with None for what is not a tensor.

    Recorded by `make_fx`, without data. Raises what the graph raises; ProcessLostError if it ran in another process.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        whole = make_fx(lambda *args: list(gm(*args)), tracing_mode="fake")(*inputs)
    calls = [
        (str(node.target), torch.Tag.pointwise in node.target.tags)
        for node in whole.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    ]
    returned = whole.graph.output_node().args[0]
    assert isinstance(returned, list), "make_fx keeps the list that the function above returns"
    values = [node.meta["val"] if isinstance(node, fx.Node) else None for node in returned]
    results = [
        torch.empty(value.shape, dtype=value.dtype, device="meta") if isinstance(value, Tensor) else None
        for value in values
    ]
    return {"calls": calls, "results": results}
