"""The interface between passlab.tvm and the packages of Relay and Relax.

    current_dialect().nodes("main", module["main"])      # the dialect of the TVM that this process holds
    own("generate").random_module(7)          # another module of that package

A dialect is a module, `passlab.relay.dialect` or `passlab.relax.dialect`, with the functions of `Dialect`. Beside it,
both packages have the modules reader, measure, executors, generate, shrink and valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from passlab.building.parameters import Parameter
from passlab.graph.registry import load
from passlab.tvm.reach import loaded


@dataclass(frozen=True)
class Node:
    """One call of an operator. `name`: "nn.conv2d", "relax.nn.conv2d", or the name of the PrimFunc called.

    `expr`: the call; `var`: the variable bound to it (Relax; None in Relay); `function`: the enclosing function's name.
    """

    name: str
    expr: Any
    var: Any
    function: str


class CallValues(NamedTuple):
    """`calls`: (id in the view, operator) of the calls in `main` that make one tensor; `module` returns all of them."""

    calls: list[tuple[str, str]]
    module: Any


class Dialect(Protocol):
    NAME: str
    """ "relay" or "relax"."""
    Function: type
    Tuple: type
    BARE: dict[str, Any]
    """Options with which builds.run_module builds a module as it is, without fusion."""
    tvm: ModuleType

    def read(self, value: Any) -> Any:
        """Return the view of a module or function."""

    def typed(self, module: Any) -> Any:
        """Return the module or function with the types of all its parts."""

    def type_of(self, expr: Any) -> Any:
        """Return the type of an expression, or None where it has none."""

    def dtypes(self, type_: Any) -> Iterator[str]:
        """Yield the dtypes of the tensors in a type."""

    def key(self, expr: Any) -> Any:
        """Return a hashable that identifies an expression."""

    def parameters(self, function: Any) -> list[tuple[str, Any]]:
        """Return the parameters of a function as (name, type)."""

    def result(self, function: Any) -> Any:
        """Return the declared result type of a function."""

    def examples(self, function: Any, odd: int) -> Iterator[Parameter]:
        """Yield the parameters with sizes; symbolic dimensions become `odd`, odd + 2, … Raises ValueError."""

    def nodes(self, name: str, function: Any) -> Iterator[Node]:
        """Yield the calls of operators in a function, operands first."""

    def function_calls(self, function: Any) -> Iterator[Any]:
        """Yield the callees in a function that are not operators: functions, or variables that hold one."""

    def bindings(self, function: Any) -> Iterator[tuple[Any, Any]]:
        """Yield a function's bindings in order, as (variable, value)."""

    def groups(self, name: str, function: Any) -> Iterator[tuple[str, ...]]:
        """Yield the operators of each fused group in a function, and each other call by itself."""

    def consumers(self, function: Any) -> dict[Any, list[Any]]:
        """See passlab.tvm.modules.consumers."""

    def depth(self, functions: dict[str, Any]) -> int:
        """Return the number of calls on the longest path through `main`."""

    def hides_sums(self, names: list[str]) -> bool:
        """Return whether one of these operators may sum numbers although its name does not tell."""

    def equal_types(self, one: Any, other: Any) -> bool:
        """Return whether two types are equal up to the names of variables."""

    def mismatch(self, one: Any, other: Any) -> tuple[str, str] | None:
        """Return the paths at which two modules first differ in structure ("": unknown); None if they are equal."""

    def expose_calls(self, module: Any, most: int) -> CallValues | None:
        """Return a module that returns the value of every call; None for more than `most` calls or control flow."""

    def as_written(self, module: Any) -> Any | None:
        """Return the module in a form in which TVM, building it with BARE, simplifies no call of CANCELS or ZEROS.

        None for a module without such a call: one on floats with equal operands, or with a constant of 0.
        """


#: Operators that TVM replaces by a constant if both operands are equal, or if one is 0: wrong for NaN and inf.
CANCELS = ("subtract", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
ZEROS = ("multiply", "divide")


def numbered(names: dict[Any, int], *key: Any) -> int:
    """Return the number of a value: equal keys, which hold the numbers of its operands, have the same number."""
    return names.setdefault(key, len(names))


def current_dialect() -> Dialect:
    """Return the dialect of the TVM that this process holds. Raises RuntimeError where none is loaded."""
    return own("dialect")


def own(part: str) -> ModuleType:
    """Return a module, by name, of the package for the TVM that this process holds. Raises RuntimeError."""
    if not (flavour := loaded()):
        raise RuntimeError("No TVM is loaded in this process. Run `from passlab.relay import relay`, or passlab.relax.")
    return load(f"{flavour}.{part}")
