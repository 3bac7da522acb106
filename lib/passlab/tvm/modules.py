"""What a module of Relay or Relax is made of, whichever TVM this process holds: calls, groups, readers, differences.

    counts(module)["nn.conv2d"]; groups(fused); consumers(module)[x]; first_difference(one, other)

A *node* is a call of an operator. All of this reads; nothing changes a module.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from passlab.relax import loaded


def held() -> tuple[str, Any]:
    """The flavour of this process, "relay" or "relax", and its module tvm. Raises RuntimeError where none is loaded."""
    tvm = sys.modules.get("tvm")
    if tvm is None:
        raise RuntimeError("No TVM is loaded in this process: `from passlab.relay import relay`, or passlab.relax.")
    return loaded(), tvm


def is_module(value: Any) -> bool:
    """Is `value` an IRModule of the TVM that this process holds?"""
    tvm = sys.modules.get("tvm")
    return tvm is not None and isinstance(value, tvm.IRModule)


def is_function(value: Any) -> bool:
    """Is `value` a function of Relay or Relax (not of TIR)?"""
    tvm = sys.modules.get("tvm")
    return tvm is not None and isinstance(value, (tvm.relay if held()[0] == "relay" else tvm.relax).Function)


def functions(module: Any) -> dict[str, Any]:
    """The functions of Relay or Relax in a module, by name; `main` first. A function alone counts as "main"."""
    if is_function(module):
        return {"main": module}
    found = {var.name_hint: f for var, f in module.functions.items() if is_function(f)}
    return {name: found[name] for name in sorted(found, key=lambda name: (name != "main", name))}


def typed(module: Any) -> Any:
    """The module with the types of all its parts: in Relay after InferType, in Relax itself."""
    flavour, tvm = held()
    if flavour == "relax":
        return module
    if is_function(module):
        return tvm.relay.transform.InferType()(tvm.IRModule.from_expr(module))["main"]
    return tvm.relay.transform.InferType()(module)


@dataclass(frozen=True)
class Node:
    """One call of an operator. `name`: "nn.conv2d", "relax.nn.conv2d", or the PrimFunc that is called.

    `expr`: the call; `var`: what it is bound to (Relax; None in Relay); `function`: the name of the function it is in.
    """

    name: str
    expr: Any
    var: Any
    function: str


def nodes(module: Any, function: str | None = None) -> list[Node]:
    """The calls of operators in a module, operands first; in one function or in all."""
    flavour, _ = held()
    inside = functions(module)
    if function is not None and function not in inside:
        raise KeyError(f"The module has no function {function!r}; it has {', '.join(inside) or 'none'}.")
    read = _relay_nodes if flavour == "relay" else _relax_nodes
    return [node for name, f in inside.items() if function in (None, name) for node in read(name, f)]


def _relay_nodes(name: str, function: Any) -> Iterator[Node]:
    _, tvm = held()
    found: list[Any] = []
    tvm.relay.analysis.post_order_visit(function, found.append)
    for expr in found:
        if isinstance(expr, tvm.relay.Call) and isinstance(expr.op, tvm.ir.Op):
            yield Node(expr.op.name, expr, None, name)


def bindings(function: Any) -> Iterator[tuple[Any, Any]]:
    """The bindings of a function of Relax in order, also those in branches: variable, what it is bound to."""
    _, tvm = held()
    relax = tvm.relax

    def inside(expr: Any) -> Iterator[tuple[Any, Any]]:
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    value = binding.value
                    if isinstance(value, relax.If):
                        yield from inside(value.true_branch)
                        yield from inside(value.false_branch)
                    elif isinstance(value, relax.Function):
                        yield from inside(value.body)
                    yield binding.var, value

    yield from inside(function.body)


def _relax_nodes(name: str, function: Any) -> Iterator[Node]:
    _, tvm = held()
    for var, value in bindings(function):
        if isinstance(value, tvm.relax.Call) and (called := _relax_name(value)):
            yield Node(called, value, var, name)


def _relax_name(call: Any) -> str | None:
    """The operator's name, or that of the PrimFunc or packed function which the operator calls."""
    _, tvm = held()
    if isinstance(call.op, tvm.relax.ExternFunc):
        return call.op.global_symbol
    if not isinstance(call.op, tvm.ir.Op):
        return None  # a function of the module: its own calls count
    if call.op.name.startswith(("relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed")) and call.args:
        called = call.args[0]
        return getattr(called, "name_hint", None) or getattr(called, "global_symbol", call.op.name)
    return call.op.name


def counts(module: Any, function: str | None = None) -> Counter[str]:
    """How often each operator is called: Counter({"nn.conv2d": 2, …}), in Relax "relax.nn.conv2d".

    Calls of TIR (`call_tir`) count under the name of their PrimFunc; calls of the module's own functions do not count,
    what is in those does. Without `function`, all functions of the module.
    """
    return Counter(node.name for node in nodes(module, function))


def is_primitive(function: Any) -> bool:
    """Is this a function that FuseOps made, one kernel? (Its attribute Primitive.)"""
    return bool(function.attrs) and "Primitive" in function.attrs and bool(int(function.attrs["Primitive"]))


def groups(module: Any) -> list[tuple[str, ...]]:
    """What is fused with what: for each primitive function the names of its operators, in order; the list is sorted.

    A call outside of all primitive functions is a group by itself (Relax's FuseOps leaves single operators bare, that
    of Relay wraps them, too).
    """
    flavour, tvm = held()
    found = []
    if flavour == "relax":
        for name, function in functions(module).items():
            called = [node.name for node in _relax_nodes(name, function)]
            found += [tuple(called)] if is_primitive(function) else [(one,) for one in called]
        return sorted(found)
    for name, function in functions(module).items():
        inside: set[int] = set()
        exprs: list[Any] = []
        tvm.relay.analysis.post_order_visit(function, exprs.append)
        for expr in exprs:
            if is_function(expr) and is_primitive(expr):
                fused = list(_relay_nodes(name, expr))
                inside |= {hash(node.expr) for node in fused}
                found.append(tuple(node.name for node in fused))
        found += [(node.name,) for node in _relay_nodes(name, function) if hash(node.expr) not in inside]
    return sorted(found)


def consumers(module: Any, function: str = "main") -> dict[Any, list[Any]]:
    """Who reads what, in one function. Relay: expression → the calls, tuples, … that have it as a part, each once.

    Relax: variable → the variables whose bindings read it. What the function itself returns is read by the key None:
    it is listed in `consumers(…)[x]` as None.
    """
    flavour, tvm = held()
    f = functions(module)[function]
    readers: dict[Any, list[Any]] = {p: [] for p in f.params}
    if flavour == "relax":
        for var, value in bindings(f):
            readers.setdefault(var, [])
            read: list[Any] = []
            tvm.relax.analysis.post_order_visit(value, lambda e, read=read: read.append(e))
            for v in dict.fromkeys(e for e in read if isinstance(e, tvm.relax.Var)):
                if v in readers:
                    readers[v].append(var)
        if f.body.body in readers:
            readers[f.body.body].append(None)
        return readers
    exprs: list[Any] = []
    tvm.relay.analysis.post_order_visit(f, exprs.append)
    for expr in exprs:
        for part in dict.fromkeys(parts_of(expr)):
            readers.setdefault(part, []).append(expr)
        readers.setdefault(expr, [])
    readers.pop(f, None)
    readers[f.body] = [None if reader == f else reader for reader in readers[f.body]]
    return readers


def parts_of(expr: Any) -> list[Any]:
    """The expressions that one expression of Relay is made of, not counting parameters and operators."""
    _, tvm = held()
    relay = tvm.relay
    if isinstance(expr, relay.Call):
        return [*([] if isinstance(expr.op, tvm.ir.Op) else [expr.op]), *expr.args]
    if isinstance(expr, relay.Tuple):
        return list(expr.fields)
    if isinstance(expr, relay.TupleGetItem):
        return [expr.tuple_value]
    if isinstance(expr, relay.Let):
        return [expr.value, expr.body]
    if isinstance(expr, relay.If):
        return [expr.cond, expr.true_branch, expr.false_branch]
    return [expr.body] if isinstance(expr, relay.Function) else []


def top_level(function: Any) -> list[Any]:
    """The expressions of a function of Relay, operands first, without those inside of other functions in it."""
    _, tvm = held()
    order, done = [], set()
    todo = [(function.body, False)]
    while todo:
        expr, ready = todo.pop()
        if ready:
            order.append(expr)
        elif expr not in done:
            done.add(expr)
            parts = [part for part in parts_of(expr) if not isinstance(part, tvm.relay.Function)]
            todo += [(expr, True), *((part, False) for part in reversed(parts))]
    return order


def view_ids(function: Any) -> dict[int, str]:
    """The ids that expressions of a function of Relay have in its view, by the expressions' handles."""
    from passlab.graph.assemble import walk
    from passlab.relay.reader import _Reader

    reader = _Reader("main", {})
    walk(reader.entry(function, ""))
    return reader.made


def _described(node: Node) -> str:
    """A call with the types of its operands and its attributes, the names of variables left out."""
    parts = [str(type_of(arg)) for arg in node.expr.args]
    parts += [f"{key}={value}" for key, value in attributes(node.expr).items()]
    return f"{node.name}({', '.join(parts)})"


def attributes(call: Any) -> dict[str, str]:
    """The attributes of a call as text, by name."""
    if call.attrs is None:
        return {}
    with contextlib.suppress(Exception):
        return {str(k): str(call.attrs[k]) for k in sorted(map(str, call.attrs.keys()))}
    return {"": str(call.attrs)}


def type_of(expr: Any) -> Any:
    """The type of an expression, or None where it has none (in Relay: before InferType)."""
    if held()[0] == "relax":
        return getattr(expr, "ty", None)
    try:
        return expr.checked_type
    except ValueError:  # not inferred yet; a parameter still says what it is declared as
        return getattr(expr, "type_annotation", None)


def spared(before: Any, after: Any, ops: Iterable[str]) -> str | None:
    """Are all calls of these operators still there, with the same operand types and attributes, and no new ones?

    None when they are, else the sentence that names the first that is not.
    """
    wanted = set(ops)
    old, new = (Counter(_described(n) for n in nodes(typed(m)) if n.name in wanted) for m in (before, after))
    for lost in old - new:
        return f"{lost.split('(')[0]} was to stay as it was, and this call of it is gone: {short(lost)}."
    for made in new - old:
        return f"{made.split('(')[0]} was to stay as it was, and this call of it is new: {short(made)}."
    return None


def first_difference(one: Any, other: Any, names: tuple[str, str] = ("the first", "the second")) -> str | None:
    """Are two modules or functions equal in structure (names of variables do not count)? None, or where they part.

    The sentence names the first place in which they differ: "At main, body.args[0]: the first has …, the second …".
    """
    flavour, tvm = held()
    if flavour == "relay":
        if tvm.ir.structural_equal(one, other):
            return None
        paths = tvm.ir.base.get_first_structural_mismatch(one, other)
    else:
        import tvm_ffi

        if tvm_ffi.structural_equal(one, other):
            return None
        paths = tvm_ffi.get_first_structural_mismatch(one, other)
    if paths is None:
        return "They differ."
    steps = [_step(path) for path in paths]
    place = re.sub(
        r'^<root>\.?(functions\[I\.GlobalVar\("(\w+)"\)\]\.?)?', lambda m: f"{m[2]}, " if m[2] else "", steps[0]
    )
    left, right = (_at(root, path) for root, path in zip((one, other), steps, strict=True))
    return f"At {place.strip(', ') or 'the top'}: {names[0]} has {left}, {names[1]} {right}."


def _step(path: Any) -> str:
    return str(path)


def _at(root: Any, path: str) -> str:
    """What stands at a path such as <root>.functions[I.GlobalVar("main")].body.args[0], shortly."""
    at = root
    for part in re.findall(r'\.(\w+)|\[I\.GlobalVar\("(\w+)"\)\]|\[(\d+)\]', path):
        attribute, function, index = part
        try:
            if attribute == "functions":
                continue
            at = getattr(at, attribute) if attribute else at[function] if function else at[int(index)]
        except Exception:
            return "nothing there"
    return short(_named(at))


def _named(value: Any) -> str:
    name = getattr(value, "name", None) or getattr(value, "name_hint", None)
    return name if isinstance(name, str) else str(value)


def short(text: str, most: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def signature(module: Any) -> tuple[Any, list[tuple[str, Any]], Any]:
    """`main` of a module (or the function itself), its parameters as (name, type), and the type of its result."""
    function = module if is_function(module) else module["main"]
    if held()[0] == "relay":
        return function, [(p.name_hint, type_of(p)) for p in function.params], function.ret_type
    return function, [(p.name, p.ty) for p in function.params], function.ret_ty


def equal_types(one: Any, other: Any) -> bool:
    flavour, tvm = held()
    if flavour == "relay":
        return bool(tvm.ir.structural_equal(one, other, map_free_vars=True))
    import tvm_ffi

    return bool(tvm_ffi.structural_equal(one, other, map_free_vars=True))
