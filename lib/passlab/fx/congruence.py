"""Do two graphs call the same operations on the same values? Then one run tells what both compute.

    congruent(before, after)     # True for a copy, and for a graph that has lost nodes that were dead or computed twice

Value numbering (J. Cocke and J. T. Schwartz, "Programming Languages and Their Compilers", 1970): two nodes have one key
if they call one function on operands of one key. A key of `after` that `before` lacks, or anything that may not be a
function of its operands, makes the answer False, which says nothing about what the graphs compute.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import Tensor, fx, nn

from passlab.equivalence.values import unusual
from passlab.fx.effects import has_effects
from passlab.fx.nodes import attribute

#: Values that are the same if their types and their texts are.
_PLAIN = (int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, type(...))
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MISSING = object()


class _UnknownError(Exception):
    """Something of which it is not known when two of its kind are the same."""


def congruent(before: Any, after: Any) -> bool:
    """Return whether every node of `after`, its result included, computes what a node of `before` computes, bit by bit.

    Only for GraphModules without side effects, whose modules are torch's and in the mode in which they will run. The
    code of both must be that of their nodes. Paths, parameters and buffers must be the same, too.
    """
    if not (_ordinary(before) and _ordinary(after)) or has_effects(before.graph) or has_effects(after.graph):
        return False
    known: dict[Hashable, int] = {}
    try:
        _number(before, known)
        size = len(known)
        _number(after, known)
    except _UnknownError:
        return False
    return len(known) == size and _same_state(before, after)


def _ordinary(program: Any) -> bool:
    """Return whether a call of the program does what its nodes say, and nothing else."""
    return (
        isinstance(program, fx.GraphModule)
        and type(program).__bases__ == (fx.GraphModule,)
        and type(program.graph._codegen) is fx.graph.CodeGen
        and "forward" not in vars(program)
        and not _hooked(program)
    )


def _number(gm: fx.GraphModule, known: dict[Hashable, int]) -> None:
    """Enter the keys of a graph's nodes into `known`: key → its number. Raises _UnknownError."""
    numbers: dict[fx.Node, int] = {}
    inputs = 0
    for node in gm.graph.nodes:
        target: Any = node.target
        if node.op == "placeholder":
            target, inputs = inputs, inputs + 1
        operands = (_key(node.args, numbers), _key(node.kwargs, numbers))
        numbers[node] = known.setdefault((node.op, target, operands), len(known))


def _key(value: Any, numbers: dict[fx.Node, int]) -> Hashable:
    """Return a key of an operand, the same only for operands that are the same."""
    if isinstance(value, fx.Node):
        return numbers[value]
    if isinstance(value, _PLAIN):
        return type(value), repr(value)
    if isinstance(value, slice):
        return slice, *(_key(part, numbers) for part in (value.start, value.stop, value.step))
    if isinstance(value, list | tuple):
        return type(value), *(_key(part, numbers) for part in value)
    if isinstance(value, dict):
        return dict, *(_key(pair, numbers) for pair in value.items())
    raise _UnknownError(type(value).__name__)


def _same_state(before: fx.GraphModule, after: fx.GraphModule) -> bool:
    """Return whether what the nodes of `after` name is the same in both."""
    paths = {str(node.target) for node in after.graph.nodes if node.op in ("get_attr", "call_module")}
    return all(_same(attribute(before, path, _MISSING), attribute(after, path, _MISSING)) for path in paths)


def _same(one: Any, other: Any) -> bool:
    """Return whether two parts of modules are the same: tensors by their bits, torch's modules by their parts."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one is other or _same_bits(one, other)
    if isinstance(one, nn.Module):
        native = type(one).__module__.startswith("torch.nn.modules.")
        return native and not _hooked(one) and not _hooked(other) and _same(vars(one), vars(other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, set):
        return one == other
    return isinstance(one, _PLAIN) and repr(one) == repr(other)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two ordinary tensors have one layout and the same bits: unlike -0 and 0, a NaN and itself."""
    if unusual(one) or one.layout != torch.strided or one.is_complex() or one.stride() != other.stride():
        return False
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    return torch.equal(one.view(_BITS[one.element_size()]), other.view(_BITS[other.element_size()]))


def _hooked(module: nn.Module) -> bool:
    """Return whether a call of the module does more than its `forward`."""
    hooks: Iterable[Any] = (value for name, value in vars(module).items() if "_hooks" in name)
    return any(hooks) or "forward" in vars(module)
