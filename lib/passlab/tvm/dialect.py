"""What Relay and Relax, each in a package of its own, tell about their modules; the rest of passlab.tvm asks here.

    held().nodes("main", module["main"])      # of the TVM that this process holds
    own("generate").random_module(7)          # another module of that package

A dialect is a module, `passlab.relay.dialect` or `passlab.relax.dialect`, with what `Dialect` lists. Beside it lie,
under the same names in both packages: reader, measure, executors, generate, shrink, valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, Protocol

from passlab.graph.registry import load
from passlab.tvm.reach import loaded


@dataclass(frozen=True)
class Node:
    """One call of an operator. `name`: "nn.conv2d", "relax.nn.conv2d", or the PrimFunc that is called.

    `expr`: the call; `var`: what it is bound to (Relax; None in Relay); `function`: the name of the function it is in.
    """

    name: str
    expr: Any
    var: Any
    function: str


class Parameter(NamedTuple):
    """A parameter of `main`: the shape in which it can be given, and whether that was chosen (a symbolic dimension)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    symbolic: bool


class Opened(NamedTuple):
    """`calls`: (id in the view, operator) of the calls in `main` that make one tensor; `module` returns all of them."""

    calls: list[tuple[str, str]]
    module: Any


class Dialect(Protocol):
    NAME: str
    """ "relay" or "relax"."""
    Function: type
    Tuple: type
    BARE: dict[str, Any]
    """How builds.run_module builds a module as it stands, nothing fused."""
    tvm: ModuleType

    def read(self, value: Any) -> Any:
        """The view of a module or function."""

    def typed(self, module: Any) -> Any:
        """The module or function with the types of all its parts."""

    def type_of(self, expr: Any) -> Any:
        """The type of an expression, or None where it has none."""

    def key(self, expr: Any) -> Any:
        """What tells an expression from all others."""

    def parameters(self, function: Any) -> list[tuple[str, Any]]:
        """The parameters of a function as (name, type)."""

    def result(self, function: Any) -> Any:
        """The type that a function says it returns."""

    def examples(self, function: Any, odd: int) -> Iterator[Parameter]:
        """The parameters with sizes; symbolic dimensions become `odd`, odd + 2, … Raises ValueError for no tensor."""

    def nodes(self, name: str, function: Any) -> Iterator[Node]:
        """The calls of operators in a function, operands first."""

    def bindings(self, function: Any) -> Iterator[tuple[Any, Any]]:
        """What a function binds, in order: variable, value."""

    def groups(self, name: str, function: Any) -> Iterator[tuple[str, ...]]:
        """The operators of each primitive function in a function, and each of the other calls by itself."""

    def consumers(self, function: Any) -> dict[Any, list[Any]]:
        """See passlab.tvm.modules.consumers."""

    def depth(self, functions: dict[str, Any]) -> int:
        """The number of calls on the longest path through `main`."""

    def hides_sums(self, names: list[str]) -> bool:
        """Are there operators among these whose names do not say whether they add numbers up?"""

    def equal_types(self, one: Any, other: Any) -> bool:
        """Are two types the same but for the names of variables?"""

    def mismatch(self, one: Any, other: Any) -> tuple[str, str] | None:
        """The paths at which two modules first differ in structure; None where they are equal. ("", ""): unknown."""

    def opened(self, module: Any, most: int) -> Opened | None:
        """None for more than `most` calls, and for control flow."""


def held() -> Dialect:
    """The dialect of the TVM that this process holds. Raises RuntimeError where none is loaded."""
    return own("dialect")


def own(part: str) -> ModuleType:
    """A module of the package of the TVM that this process holds, by its name there."""
    if not (flavour := loaded()):
        raise RuntimeError("No TVM is loaded in this process: `from passlab.relay import relay`, or passlab.relax.")
    return load(f"{flavour}.{part}")
