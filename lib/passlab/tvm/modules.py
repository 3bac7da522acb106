"""Query modules of Relay and Relax, whichever TVM this process holds: calls, groups, consumers, differences.

    counts(module)["nn.conv2d"]; groups(fused); consumers(module)[x]; first_difference(one, other)

A *node* is a call of an operator. Nothing here changes a module.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from passlab.tvm.dialect import Node, current_dialect


def is_module(value: Any) -> bool:
    """Return whether `value` is an IRModule of the TVM that this process holds."""
    tvm = sys.modules.get("tvm")
    return tvm is not None and isinstance(value, tvm.IRModule)


def is_function(value: Any) -> bool:
    """Return whether `value` is a function of Relay or Relax (not of TIR)."""
    tvm = sys.modules.get("tvm")
    return tvm is not None and isinstance(value, current_dialect().Function)


def functions(module: Any) -> dict[str, Any]:
    """Return the functions of Relay or Relax in a module, by name; `main` first. A lone function counts as "main"."""
    if is_function(module):
        return {"main": module}
    by_name = {var.name_hint: f for var, f in module.functions.items() if is_function(f)}
    return {name: by_name[name] for name in sorted(by_name, key=lambda name: (name != "main", name))}


def typed(module: Any) -> Any:
    """Return the module with the types of all its parts: in Relay after InferType, in Relax itself."""
    return current_dialect().typed(module)


def nodes(module: Any, function: str | None = None) -> list[Node]:
    """Return the calls of operators in one function or in all, operands first. Raises KeyError."""
    inside = functions(module)
    if function is not None and function not in inside:
        raise KeyError(f"The module has no function {function!r}; it has {', '.join(inside) or 'none'}.")
    return [node for name, f in inside.items() if function in (None, name) for node in current_dialect().nodes(name, f)]


def bindings(function: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a function's bindings in order, as (variable, value): Relax's, branches included; Relay's lets."""
    return current_dialect().bindings(function)


def counts(module: Any, function: str | None = None) -> Counter[str]:
    """Return how often each operator is called: Counter({"nn.conv2d": 2, …}), in Relax "relax.nn.conv2d".

    Calls of TIR (`call_tir`) count under the name of their PrimFunc. Calls of the module's own functions do not count;
    the calls inside them do. Without `function`, all functions of the module.
    """
    return Counter(node.name for node in nodes(module, function))


def is_primitive(function: Any) -> bool:
    """Return whether FuseOps made this function, which is one kernel (attribute Primitive)."""
    return bool(function.attrs) and "Primitive" in function.attrs and bool(int(function.attrs["Primitive"]))


def has_composite(*names: str) -> Callable[[Any], bool]:
    """Return a test of whether a function's attribute Composite is one of these names."""
    return lambda function: (
        bool(function.attrs) and "Composite" in function.attrs and str(function.attrs["Composite"]) in names
    )


def groups(module: Any) -> list[tuple[str, ...]]:
    """Return the fused groups, sorted: for each primitive function the names of its operators, in order.

    A call outside all primitive functions is a group by itself (Relax's FuseOps leaves single operators bare; Relay's
    wraps them, too).
    """
    return sorted(
        group for name, function in functions(module).items() for group in current_dialect().groups(name, function)
    )


def consumers(module: Any, function: str = "main") -> dict[Any, list[Any]]:
    """Return the consumers in one function. Relay: expression → the calls, tuples, … that have it as a part, each once.

    Relax: variable → the variables whose bindings read it. Where the function returns x, `consumers(…)[x]` contains
    None.
    """
    return current_dialect().consumers(functions(module)[function])


def type_of(expr: Any) -> Any:
    """Return the type of an expression, or None where it has none (in Relay: before InferType)."""
    return current_dialect().type_of(expr)


def first_difference(one: Any, other: Any, names: tuple[str, str] = ("the first", "the second")) -> str | None:
    """Return where two modules or functions first differ in structure (names of variables do not count), or None.

    The sentence names the place: "At main, body.args[0]: the first has …, the second …".
    """
    steps = current_dialect().mismatch(one, other)
    if steps is None:
        return None
    if not any(steps):
        return "They differ."
    place = re.sub(
        r'^<root>\.?(functions\[I\.GlobalVar\("(\w+)"\)\]\.?)?', lambda m: f"{m[2]}, " if m[2] else "", steps[0]
    )
    left, right = (_at(root, path) for root, path in zip((one, other), steps, strict=True))
    return f"At {place.strip(', ') or 'the top'}: {names[0]} has {left}, {names[1]} {right}."


def _at(root: Any, path: str) -> str:
    """Return a short text for the node at a path such as <root>.functions[I.GlobalVar("main")].body.args[0]."""
    at = root
    for part in re.findall(r'\.(\w+)|\[I\.GlobalVar\("(\w+)"\)\]|\[(\d+)\]', path):
        attribute, function, index = part
        try:
            if attribute == "functions":
                continue
            at = getattr(at, attribute) if attribute else at[function] if function else at[int(index)]
        except Exception:
            return "nothing there"
    return short(_name_of(at))


def _name_of(value: Any) -> str:
    name = getattr(value, "name", None) or getattr(value, "name_hint", None)
    return name if isinstance(name, str) else str(value)


def callee_name(call: Any) -> str:
    """Return the name of a call's operator or function, or the contents of an anonymous function."""
    if hasattr(call.op, "name_hint"):
        return call.op.name_hint
    if is_function(call.op):
        return " + ".join(counts(call.op)) or "a function"
    return getattr(call.op, "name", "a call")


def short(text: str, most: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


class Signature(NamedTuple):
    """A function, its parameters as (name, type), and its result type."""

    function: Any
    parameters: list[tuple[str, Any]]
    result: Any


def signature(module: Any) -> Signature:
    """Return the signature of a module's `main`, or of the function itself."""
    function = module if is_function(module) else module["main"]
    return Signature(function, current_dialect().parameters(function), current_dialect().result(function))


def equal_types(one: Any, other: Any) -> bool:
    """Return whether two types are equal up to the names of variables."""
    return current_dialect().equal_types(one, other)
