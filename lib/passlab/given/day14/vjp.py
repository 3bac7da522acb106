"""Day 14, rules for gradients: the operations, and how an answer runs on a case.

An answer computes with tensors; it is called once, with tensors that have a shape and a type but no numbers, and what
it computes is recorded as a graph. The graph is what is judged.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from passlab.judge import Case

#: Name → the operation.
OPERATIONS: dict[str, Callable] = {
    "add": torch.add,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "maximum": torch.maximum,
    "where": torch.where,
    "sum": torch.sum,
    "amax": torch.amax,
    "norm": lambda x, dim, keepdim=False: torch.linalg.vector_norm(x, 2, dim, keepdim),
    "softmax": torch.softmax,
    "expand": lambda x, shape: x.expand(shape),
    "view": lambda x, shape: x.view(shape),
    "permute": torch.permute,
    "mm": torch.mm,
}

#: How torch's errors begin where a program asks for a number that it does not have while it is recorded.
_NO_NUMBERS = ("GuardOnDataDependentSymNode", "DataDependentOutputException")


def call(answer: Callable, case: Case) -> dict[str, Any]:
    """Record what the answer computes. Return the graph of its gradients, and the kind of each entry it returned."""
    op, args, kwargs = case.build()
    kinds: list[str] = []

    def run(g: Tensor, out: Tensor, *tensors: Tensor) -> list[Tensor]:
        rest = iter(tensors)
        value = answer(op, g, out, *(next(rest) if isinstance(x, Tensor) else x for x in args), **kwargs)
        if not isinstance(value, tuple | list):
            kinds.append(f"not a tuple: {type(value).__name__}")
            return []
        kinds.extend("tensor" if isinstance(x, Tensor) else "None" if x is None else type(x).__name__ for x in value)
        return [x for x in value if isinstance(x, Tensor)]

    return {"kinds": kinds, "graph": recorded(run, op, args, kwargs)}


def recorded(run: Callable, op: str, args: tuple, kwargs: dict[str, Any]) -> fx.GraphModule:
    """Return the graph of run(g, out, *tensors): the operations on tensors, without the program around them."""
    out = OPERATIONS[op](*args, **kwargs)
    tensors = [x for x in args if isinstance(x, Tensor)]
    try:
        return record(run, [torch.ones_like(out), out, *tensors])
    except Exception as error:
        if type(error).__name__ in _NO_NUMBERS:
            raise ValueError(
                f"The rule of {op} asks for a number in a tensor (in an `if`, or by item()). While a rule is recorded, "
                "tensors have shapes and types but no numbers: use torch.where."
            ) from None
        raise


def record(run: Callable[..., Sequence[Tensor]], examples: Sequence[Any]) -> fx.GraphModule:
    """Return the graph of what `run` does with tensors like these, without operations that nothing uses.

    examples: `node.meta["val"]` of the nodes whose values `run` takes, or tensors like them. The graph is that of one
    call: a loop of Python is gone, what it did is there.
    """
    with quietly(), torch.no_grad():
        examples = [x.clone() if isinstance(x, Tensor) else x for x in examples]  # one tensor is one input
        gm = make_fx(lambda *args: list(run(*args)), tracing_mode="fake", _allow_non_fake_inputs=True)(*examples)
    gm = without_lifts(gm)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep torch from logging an error that is also raised."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def without_lifts(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a recorded graph that reads its constants directly, and keeps them as buffers."""
    for node in list(gm.graph.nodes):
        if node.target is torch.ops.aten.lift_fresh_copy.default:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)
        elif node.op == "get_attr" and node.target not in gm._buffers:
            constant = getattr(gm, node.target)
            delattr(gm, node.target)
            gm.register_buffer(node.target, constant)
    gm.recompile()
    return gm
