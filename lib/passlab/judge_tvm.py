"""Judging passes over modules of Relay and Relax, whichever TVM this process holds: which law did the pass keep?

`judge_pass` makes the judge of an exercise whose answer is `pass(mod) -> mod`. What is asked of a module's structure
(`counts`, `groups`, `consumers`, `spared`, `first_difference`) is read from it here. To check it (`valid`) may end the
process in TVM's C++, so that is done in a fork; to run it (`same`) is to run its author's code, so that is done by
`passlab.builds`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from passlab import builds
from passlab.judge import Case, Finding
from passlab.trials import TRIALS, Trials
from passlab.values import Difference, Errors, Tolerance, compare, leaves, nan_or_inf, steady

#: (before, after, case) → None when the law is kept, else the sentence that says where it was broken
Law = Callable[[Any, Any, Case], str | None]

#: what `same` tries unless told; "nonfinite" (inf and NaN) is for exercises whose law is about them
KINDS = ("ordinary", "structured", "extreme", "sizes")
ALL_KINDS = (*KINDS, "nonfinite")
_PHRASES = {**TRIALS, "ordinary": "On random inputs"}


# ---------------------------------------------------------------------------------------------------- reading a module


def held() -> tuple[str, Any]:
    """The flavour of this process, "relay" or "relax", and its module tvm. Raises RuntimeError where none is loaded."""
    tvm = sys.modules.get("tvm")
    if tvm is None:
        raise RuntimeError("No TVM is loaded in this process: `from passlab.relay import relay`, or passlab.relax.")
    return ("relay" if tvm.__version__.startswith("0.17") else "relax"), tvm


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
        for part in dict.fromkeys(_relay_parts(expr)):
            readers.setdefault(part, []).append(expr)
        readers.setdefault(expr, [])
    readers.pop(f, None)
    readers[f.body] = [None if reader == f else reader for reader in readers[f.body]]
    return readers


def _relay_parts(expr: Any) -> list[Any]:
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


def _described(node: Node) -> str:
    """A call with the types of its operands and its attributes, the names of variables left out."""
    types = ", ".join(str(type_of(arg)) for arg in node.expr.args)
    return f"{node.name}({types}){attributes(node.expr)}"


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
        return f"{lost.split('(')[0]} was to stay as it was, and this call of it is gone: {_short(lost)}."
    for made in new - old:
        return f"{made.split('(')[0]} was to stay as it was, and this call of it is new: {_short(made)}."
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
    return _short(_said_of(at))


def _said_of(value: Any) -> str:
    name = getattr(value, "name", None) or getattr(value, "name_hint", None)
    return name if isinstance(name, str) else str(value)


def _short(text: str, most: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


# ---------------------------------------------------------------------------------------------------- valid


def valid(before: Any, after: Any) -> str | None:
    """What makes `after` no answer to a pass over `before`: one sentence, or None when nothing does.

    Looked for, in this order: nothing or another type returned (a function is right where `before` is one); no `main`;
    parts that are missing; variables that nothing defines; types that do not fit (InferType) or what else is not
    well-formed; a signature that changed: parameters dropped, added, renamed, reordered or retyped, another result.
    Neither argument is changed. The checks of TVM run in a fork: where they crash, a sentence says so. `before` may be
    None: then there is no signature to keep.
    """
    flavour, tvm = held()
    a_function = is_function(before)
    wanted = f"a function of {flavour.capitalize()}" if a_function else "an IRModule"
    if after is None:
        return f"The pass returned None. End it with `return {'fn' if a_function else 'mod'}`."
    if isinstance(after, tvm.ir.transform.Pass):
        return f"The pass returned another pass ({after.info.name}). Apply it: `return that(mod)`."
    if a_function and is_module(after):
        return 'The pass returned an IRModule, not a function. Return its function: `return mod["main"]`.'
    if not a_function and is_function(after):
        return (
            "The pass returned a Function, not an IRModule. Put it into the module, "
            '`mod.update_func(mod.get_global_var("main"), fn)`, and return that.'
        )
    if not (is_function(after) if a_function else is_module(after)):
        return f"The pass returned {_a(after)}, not {wanted}."
    # not by `module["main"] = after`, which already looks at what it is given
    module = tvm.IRModule({tvm.ir.GlobalVar("main"): after}) if a_function else after
    said = _apart(lambda tell: _checked(flavour, module, tell))
    if said:
        return said
    if before is None:
        return None
    return _signature_change(typed(before), typed(after))


def _a(value: Any) -> str:
    kind = type(value).__name__
    article = "an" if kind[:1] in "AEIOUaeiou" else "a"
    return f"{article} {kind}"


class _Invalid(Exception):
    """A sentence about a module that is not valid."""


def _checked(flavour: str, module: Any, tell: Callable[[str], None]) -> None:
    """Raise _Invalid with a sentence, unless the module is valid. `tell` notes what is being done, should it crash."""
    names = [var.name_hint for var in module.functions]
    if "main" not in names:
        has = f"it has {', '.join(sorted(names))}" if names else "it is empty"
        raise _Invalid(f"The module has no function main; {has}.")
    if "main" not in functions(module):
        raise _Invalid(f"main is {_a(module['main'])}, not a function of {flavour.capitalize()}.")
    (_relay_checked if flavour == "relay" else _relax_checked)(module, names, tell)


def _relay_checked(module: Any, names: list[str], tell: Callable[[str], None]) -> None:
    _, tvm = held()
    relay = tvm.relay
    for name, function in functions(module).items():
        exprs: list[Any] = []
        tell(f"The pass returned a module whose function {name} TVM cannot even walk through")
        try:
            relay.analysis.post_order_visit(function, exprs.append)
        except tvm.error.TVMError:
            raise _Invalid(
                f"In {name}, an expression has None where one of its parts belongs: "
                "does every visit_ method of your mutator return something?"
            ) from None
        for call in (e for e in exprs if isinstance(e, relay.Call)):
            _relay_call(call, name, names)
        taken = {p.name_hint for p in function.params}
        free = [v for v in relay.analysis.free_vars(function)]
        if free:
            raise _Invalid(_unbound(name, free[0].name_hint, taken))
        for p, times in Counter(p.name_hint for p in function.params).items():
            if times > 1 and len({hash(q) for q in function.params if q.name_hint == p}) < times:
                raise _Invalid(f"{name} has its parameter {p} twice.")
        if not relay.analysis.well_formed(function):
            raise _Invalid(
                f"{name} is not well-formed: a variable is bound more than once. "
                "Give every function and every let variables of its own."
            )
    tell("TVM crashed while it inferred the types of the module: look at the attributes and types you gave")
    bare = tvm.IRModule(dict(module.functions.items()), module.type_definitions)
    declared = {}
    for name, function in functions(module).items():
        if function.ret_type is not None and not isinstance(function.ret_type, tvm.ir.type.IncompleteType):
            declared[name] = function.ret_type
    for name in declared:
        f = bare[name]
        bare.update_func(
            bare.get_global_var(name), relay.Function(f.params, f.body, None, f.type_params, f.attrs, f.span)
        )
    inferred = _inferred(bare)
    if isinstance(inferred, str):
        raise _Invalid(inferred)
    for name, ret in declared.items():
        got = inferred[name].ret_type
        if not tvm.ir.structural_equal(got, ret, map_free_vars=True):
            raise _Invalid(
                f"{name} says that it returns {ret}, and its body is {got}: "
                "leave the return type out when you make the function, InferType finds it."
            )


def _relay_call(call: Any, where: str, names: list[str]) -> None:
    """Look at what InferType takes for granted, and crashes on."""
    _, tvm = held()
    op = call.op
    if isinstance(op, tvm.ir.GlobalVar) and op.name_hint not in names:
        raise _Invalid(f"{where} calls {op.name_hint}, and the module has no function of that name.")
    if not isinstance(op, tvm.ir.Op):
        return
    if op.attrs_type_key and call.attrs is None:
        raise _Invalid(
            f"In {where}, {op.name} is called without its attributes: "
            "give relay.Call those of the old call (call.attrs), or use the function relay."
            f"{op.name}."
        )
    given = str(call.attrs).partition("(")[0]
    if op.attrs_type_key and given.startswith("relay.attrs.") and given != op.attrs_type_key:
        raise _Invalid(f"In {where}, {op.name} is called with {given}; its attributes are {op.attrs_type_key}.")


def _unbound(where: str, name: str, taken: Iterable[str]) -> str:
    if name in taken:
        return (
            f"{where} reads a variable {name} that is not its parameter {name} but another object of that name: "
            "use the parameter itself."
        )
    return f"{where} reads the variable {name}, which nothing defines: it is no parameter and nothing binds it."


def _inferred(module: Any) -> Any:
    """The module with types, or the sentence that says why it has none."""
    _, tvm = held()
    seen: list[str] = []
    with _diagnostics_to(seen):
        try:
            return tvm.relay.transform.InferType()(module)
        except tvm.error.TVMError as error:
            text = seen[0] if seen else _last_line(error)
        return f"The module is not well-typed{_culprit(module)}: {_short(text, 300).rstrip('.')}."


@contextlib.contextmanager
def _diagnostics_to(seen: list[str]):
    """What Relay says of programs that are wrong goes into a list, and not to the screen."""
    from tvm.ir import diagnostics

    diagnostics.override_renderer(lambda context: seen.extend(d.message for d in context.diagnostics))
    try:
        yield
    finally:
        diagnostics.override_renderer(None)


def _culprit(module: Any) -> str:
    """ " at nn.conv2d in main": the first call, operands first, that has no type although its operands have."""
    _, tvm = held()
    calls = nodes(module)
    for node in calls if len(calls) <= 300 else ():
        free = tvm.relay.analysis.free_vars(node.expr)
        if any(v.type_annotation is None for v in free):
            return ""
        try:
            tvm.relay.transform.InferType()(tvm.IRModule.from_expr(tvm.relay.Function(free, node.expr)))
        except tvm.error.TVMError:
            return f" at {node.name} in {node.function}"
    return ""


def _last_line(error: BaseException) -> str:
    """What a TVMError says, without the C++ stack above it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    start = next((i for i in range(len(lines) - 1, -1, -1) if re.match(r"\w*(Error|Exception): ", lines[i])), 0)
    text = re.sub(r"^\w+(Error|Exception): ", "", " ".join(lines[start:]).strip())
    return re.sub(r"^Check failed: \(.*?\) is false: ", "", text) or type(error).__name__


#: parts of what Relax's check says → what to do about it
_REMEDIES = {
    "of Expr": "Make expressions through the builder (`self.builder_.emit`, or BlockBuilder's): it gives them types.",
    "not populated": "Make expressions through the builder (`self.builder_.emit`): it gives them types.",
    "Missing()": "Make functions through BlockBuilder, which gives them types.",
    "is not defined": "Bind it before it is read.",
    "used outside DataflowBlock": "What a dataflow block gives to the outside is made by `emit_output`.",
    "defined more than once": "Give every binding a variable of its own.",
    "null pointer": "Does every visit_ method of your mutator return something?",
}


def _relax_checked(module: Any, names: list[str], tell: Callable[[str], None]) -> None:
    _, tvm = held()
    relax = tvm.relax
    tell("The pass returned a module that TVM cannot even walk through")
    for name, function in functions(module).items():
        taken = {p.name for p in function.params}
        called: list[Any] = []
        with contextlib.suppress(Exception):  # a part that is None: the check below says so
            relax.analysis.post_order_visit(function, called.append)
        for var in (e for e in called if isinstance(e, tvm.ir.GlobalVar)):
            if var.name_hint not in names:
                raise _Invalid(f"{name} calls {var.name_hint}, and the module has no function of that name.")
        with contextlib.suppress(tvm.error.InternalError):
            for v in relax.analysis.free_vars(function):
                if not v.same_as(function):
                    raise _Invalid(_unbound(name, v.name, taken))
    tell("TVM crashed while it checked whether the module is well-formed")
    try:
        relax.analysis.well_formed(module)
    except Exception as error:
        text = _last_line(error).split("\n")[0].split(" # Metadata omitted")[0]
        remedy = next((remedy for part, remedy in _REMEDIES.items() if part in text), "")
        raise _Invalid(f"The module is not well-formed: {_short(text, 300).rstrip('.')}. {remedy}".strip()) from None


def _apart(work: Callable[[Callable[[str], None]], None], seconds: int = 60) -> str | None:
    """Do `work(tell)` in a fork: the sentence of its _Invalid, or what it told last before it crashed."""
    try:
        reading, writing = os.pipe()
        pid = os.fork()
    except (AttributeError, OSError):  # Windows, or no process to be had: then here
        told: list[str] = []
        try:
            work(told.append)
        except _Invalid as invalid:
            return str(invalid)
        return None
    if pid == 0:
        end = "\0"
        try:
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            work(lambda doing: os.write(writing, f"{doing}\n".encode()))
            end = "\0fine"
        except _Invalid as invalid:
            end = f"\0{invalid}"
        except BaseException as error:
            end = f"\0TVM could not check the module: {type(error).__name__}: {_short(_last_line(error), 300)}"
        finally:
            os.write(writing, end.encode(errors="replace")[:8000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    doing, _, end = said.partition("\0")
    if end == "fine":
        return None
    if end:
        return end
    last = doing.strip().splitlines()[-1] if doing.strip() else "TVM crashed while it checked the module"
    return f"{last} ({'it did not end' if status == -signal.SIGALRM else 'its process ended'})."


def _params(module: Any) -> tuple[Any, list[tuple[str, Any]], Any]:
    """`main` of a module (or the function itself), its parameters as (name, type), and the type of its result."""
    function = module if is_function(module) else module["main"]
    if held()[0] == "relay":
        return function, [(p.name_hint, type_of(p)) for p in function.params], function.ret_type
    return function, [(p.name, p.ty) for p in function.params], function.ret_ty


def _equal_types(one: Any, other: Any) -> bool:
    flavour, tvm = held()
    if flavour == "relay":
        return bool(tvm.ir.structural_equal(one, other, map_free_vars=True))
    import tvm_ffi

    return bool(tvm_ffi.structural_equal(one, other, map_free_vars=True))


def _signature_change(before: Any, after: Any) -> str | None:
    _, old, old_result = _params(before)
    _, new, new_result = _params(after)
    was, now = [name for name, _ in old], [name for name, _ in new]
    took = f"main took ({', '.join(was)}) and now takes ({', '.join(now)})"
    if was != now:
        lost, more = [n for n in was if n not in now], [n for n in now if n not in was]
        if len(was) == len(now) and not lost:
            return f"The parameters changed their order: {took}. Callers give them by position."
        if len(was) == len(now):
            return f"The parameter {lost[0]} was renamed: {took}. Keep the parameters' own variables."
        if lost:
            return f"The parameter {lost[0]} was dropped: {took}. Keep parameters even when nothing reads them."
        return f"The parameter {(more or now)[0]} is new: {took}. Nobody would give it a value."
    for (name, old_type), (_, new_type) in zip(old, new, strict=True):
        if not _equal_types(old_type, new_type):
            was, now = _short(str(old_type)), _short(str(new_type))
            return f"The parameter {name} has another type: it was {was} and is now {now}."
    if not _equal_types(old_result, new_result):
        return f"main returned {_short(str(old_result))} and now returns {_short(str(new_result))}."
    return None


# ---------------------------------------------------------------------------------------------------- inputs


def random_inputs(module: Any, seed: int = 0, kinds: Sequence[str] = KINDS) -> list[tuple[np.ndarray, ...]]:
    """Inputs for `main` after the types of its parameters, for each of `kinds` at least one tuple of arrays.

    ordinary (normal numbers), structured (ramps, ones), extreme (0, -0, denormals, huge), nonfinite (inf, NaN), sizes
    (another size for each symbolic dimension; nothing where there is none). Integers are 0 to 3: they may be indices.
    A symbolic dimension gets an odd size. Raises ValueError for a parameter that is no tensor of known rank.
    """
    return [inputs for _, inputs in _inputs(module, seed, kinds)]


def _inputs(module: Any, seed: int, kinds: Sequence[str]) -> list[tuple[str, tuple]]:
    for kind in kinds:
        if kind not in ALL_KINDS:
            raise ValueError(f"There are no inputs of kind {kind!r}; there are {', '.join(ALL_KINDS)}.")
    module = typed(module)
    first, symbolic = _example(module, seed, 5)
    made = _after(first, seed, [kind for kind in kinds if kind != "sizes"])
    if symbolic and "sizes" in kinds:
        made.append(("sizes", _example(module, seed + 1, 7)[0]))
    return [(kind, tuple(_plain(t) for t in inputs)) for kind, inputs in made]


def _after(example: tuple[Tensor, ...], seed: int, kinds: Sequence[str]) -> list[tuple[str, tuple]]:
    """Inputs of these kinds after the pattern of an example."""
    floats = [t.dtype for t in example if t.is_floating_point()]
    trials = Trials([example], max(set(floats), key=floats.count) if floats else None, seed)
    trials.double = trials.spread = False
    return [(kind, trial.args) for kind in kinds for trial in trials.make(kind)]


def _plain(t: Tensor) -> Any:
    return t if t.dtype == torch.bfloat16 else t.contiguous().numpy()


def _example(module: Any, seed: int, odd: int) -> tuple[tuple[Tensor, ...], bool]:
    """Random tensors for `main`, and whether it has symbolic dimensions; those become `odd`, odd + 2, …"""
    gen, made, symbolic = torch.Generator().manual_seed(seed), [], False
    for name, shape, dtype, free in _shapes(module, odd):
        symbolic |= free
        kind = getattr(torch, {"bool": "bool", "boolean": "bool"}.get(dtype, dtype), None)
        if not isinstance(kind, torch.dtype):
            raise ValueError(f"The parameter {name} is of {dtype}, for which no inputs are made: give inputs.")
        if kind.is_floating_point:
            made.append(torch.randn(shape, generator=gen, dtype=torch.float64).to(kind))
        else:
            made.append(torch.randint(0, 2 if kind == torch.bool else 4, shape, generator=gen).to(kind))
    return tuple(made), symbolic


def _shapes(module: Any, odd: int) -> Iterator[tuple[str, tuple[int, ...], str, bool]]:
    """Name, shape and dtype of each parameter, and whether the shape was symbolic."""
    flavour, tvm = held()
    function, params, _ = _params(module)
    if flavour == "relax":
        free = list(tvm.relax.analysis.defined_symbolic_vars(function))
        if free:
            function = function.bind_symbolic_vars({v: odd + 2 * i for i, v in enumerate(free)})
        params = [(p.name, p.ty) for p in function.params]
    for name, type_ in params:
        tensor = tvm.relay.TensorType if flavour == "relay" else tvm.relax.TensorType
        shape = getattr(type_, "shape", None)
        if not isinstance(type_, tensor) or shape is None:
            raise ValueError(f"The parameter {name} is {type_}, not a tensor of known rank: give inputs.")
        if flavour == "relay":
            free = [d for d in shape if isinstance(d, tvm.tir.Any)]
        sizes = tuple(odd if flavour == "relay" and isinstance(d, tvm.tir.Any) else int(d) for d in shape)
        yield name, sizes, str(type_.dtype), bool(free)


# ---------------------------------------------------------------------------------------------------- same

#: parts of the names of operators that add several numbers up
SUMS = ("conv", "dense", "matmul", "einsum", "sum", "mean", "norm", "softmax", "attention", "pool", "variance", "std")


def depth(module: Any) -> int:
    """The number of calls on the longest path through `main`; what a call of a function does counts as its calls."""
    calls = counts(module).total()
    flavour, tvm = held()
    if flavour == "relax" or calls > 2000:
        return max(1, _relax_depth(module) if flavour == "relax" else calls)
    steps: dict[Any, int] = {}

    def visit(expr: Any) -> None:
        parts = [steps.get(part, 0) for part in _relay_parts(expr)]
        steps[expr] = max(parts, default=0) + (isinstance(expr, tvm.relay.Call) and isinstance(expr.op, tvm.ir.Op))

    function = module if is_function(module) else module["main"]
    tvm.relay.analysis.post_order_visit(function, visit)
    return max(1, *steps.values())


def _relax_depth(module: Any) -> int:
    _, tvm = held()
    inner = functions(module)

    def of(function: Any, level: int = 0) -> int:
        steps: dict[Any, int] = {}
        for var, value in bindings(function):
            read: list[Any] = []
            tvm.relax.analysis.post_order_visit(value, read.append)
            own = 0
            if isinstance(value, tvm.relax.Call):
                called = inner.get(getattr(value.op, "name_hint", ""))
                own = of(called, level + 1) if called is not None and level < 4 else 1
            steps[var] = own + max((steps.get(e, 0) for e in read if isinstance(e, tvm.relax.Var)), default=0)
        return max(steps.values(), default=0)

    return of(inner["main"])


def tolerance(*modules: Any, dtype: Any = None) -> Tolerance:
    """How far the outputs of these modules may lie apart: `passlab.values`' rule for their depth and coarsest floats.

    Names of TIR kernels say little of what they do: a module with `call_tir` counts as one with sums.
    """
    steps = max(depth(m) for m in modules)
    names = [name.lower() for m in modules for name in counts(m)]
    tir = any(not name.startswith("relax.") for name in names) and held()[0] == "relax"
    sums = tir or any(part in name for name in names for part in SUMS)
    return Tolerance.of(dtype or max((_coarsest(m) for m in modules), key=lambda d: torch.finfo(d).eps), steps, sums)


def _coarsest(module: Any) -> torch.dtype:
    """The float dtype with the fewest digits that some value of the module has."""
    found = {torch.float64}
    for name in set(re.findall(r"\b(bfloat16|float16|float32)\b", _types_text(module))):
        found.add(getattr(torch, name))
    found = found if len(found) == 1 else found - {torch.float64}
    return max(found, key=lambda d: torch.finfo(d).eps)


def _types_text(module: Any) -> str:
    module = typed(module)
    _, params, result = _params(module)
    types = {str(t) for _, t in params} | {str(result)}
    return " ".join(types | {str(type_of(n.var if n.var is not None else n.expr)) for n in nodes(module)})


@dataclass(frozen=True)
class Comparison:
    """What came of running two modules: `sentence` is "" when no trial told them apart. `errors`: the largest seen."""

    sentence: str = ""
    errors: Errors = field(default_factory=Errors)
    targets: tuple[str, ...] = ()
    trials: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    kind: str = ""
    inputs: tuple | None = None
    difference: Difference | None = None


def same(
    before: Any,
    after: Any,
    inputs: Sequence[Any] | None = None,
    reference: Callable | None = None,
    **how: Any,
) -> str | None:
    """Do both compute the same? None, or a sentence: built and run on every target there is, and compared.

    before      None: only `reference` counts, for an exercise that repairs a wrong module.
    inputs      a tuple of arrays or tensors, a list of such tuples, or None: random ones after the types of main.
    reference   a torch model (or function): on the inputs given, or on ordinary ones, it must agree, too.
    how         kinds: what else is tried (`KINDS`; () for nothing but the inputs given; add "nonfinite" where the law
                is about inf and NaN). targets: default `builds.targets()`. atol, rtol: instead of the tolerance that
                follows from dtype and depth. seed. All else goes to `builds.run_module` (level, pipeline, seconds, …).

    A difference counts unless moving the inputs of `before` by a few units of rounding moves the result as far, or one
    gives NaN where the other gives inf in a module that adds numbers up. `before` is built once, however often it is
    compared. Raises ValueError where `before` itself does not run: that is a fault of the exercise.
    """
    return compared(before, after, inputs, reference, **how).sentence or None


def compared(
    before: Any,
    after: Any,
    inputs: Sequence[Any] | None = None,
    reference: Callable | None = None,
    *,
    kinds: Sequence[str] | None = None,
    targets: Sequence[str] | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
    **run: Any,
) -> Comparison:
    """As `same`, with all that was seen."""
    pattern = before if before is not None else after
    trials = _trials(pattern, inputs, KINDS if kinds is None else kinds, seed)
    allowed = tolerance(*(m for m in (before, after) if m is not None))
    allowed = replace(allowed, atol=atol, rtol=allowed.rtol if rtol is None else rtol)
    errors, done, notes = Errors(), [], []
    chosen = tuple(targets or builds.targets())
    if before is None and reference is None:
        raise ValueError("same has nothing to compare with: give `before`, or a reference.")
    sent = None if before is None else builds.packed(before)
    mine = builds.packed(after)
    for target in chosen:
        expected = None
        if sent is not None:
            expected, trials, dropped = _expected(sent, trials, target, run)
            notes += dropped
        if expected is not None and mine.text == sent.text:
            done += [f"{kind} on {target}" for kind, _ in trials]
            continue  # the module itself came back, and it has just been run
        built = builds.run_module(mine, [x for _, x in trials], target=target, **run)
        if not built.ok:
            return Comparison(_failed(built, target), errors, chosen, tuple(done), tuple(notes), "error")
        for at, (kind, given) in enumerate(trials):
            got = [builds.as_torch(array) for array in built.outputs[at]]
            for found, phrase in _differences(
                expected[3 * at : 3 * at + 3] if expected else None,
                got,
                reference if kind in ("given", "ordinary", "sizes") else None,
                given,
                allowed,
                errors,
            ):
                sentence = f"{_PHRASES[kind]} ({target}), {phrase}{found.sentence}{_allowance(found, allowed)}."
                seen = tuple(done), tuple(notes)
                return Comparison(sentence, errors, chosen, *seen, kind, given, found)
            done.append(f"{kind} on {target}")
    return Comparison("", errors, chosen, tuple(done), tuple(dict.fromkeys(notes)))


def _allowance(found: Difference, allowed: Tolerance) -> str:
    """The tolerance, where it was numbers that differed."""
    return "" if found.bad is None else f"; rounding explains {allowed.rtol:.1e} of its size"


def _trials(pattern: Any, inputs: Any, kinds: Sequence[str], seed: int) -> list[tuple[str, tuple]]:
    """(kind, inputs) to run on: those given, and the kinds made after their pattern."""
    if inputs is None:
        return _inputs(pattern, seed, kinds or ("ordinary",))
    given = [tuple(x) for x in inputs] if isinstance(inputs, list) else [tuple(inputs)]
    made: list[tuple[str, tuple]] = [("given", x) for x in given]
    for kind in kinds:
        if kind not in ALL_KINDS:
            raise ValueError(f"There are no inputs of kind {kind!r}; there are {', '.join(ALL_KINDS)}.")
    example = tuple(x.detach() if isinstance(x, Tensor) else torch.as_tensor(np.array(x)) for x in given[0])
    rest = _after(example, seed, [kind for kind in kinds if kind != "sizes"])
    return made + [(kind, tuple(_plain(t) for t in x)) for kind, x in rest]


def _nudged(inputs: tuple, sign: int) -> tuple:
    """The inputs, floats moved by up to four units of rounding; zeros, inf and NaN stay."""
    gen, made = torch.Generator().manual_seed(1 + sign), []
    for x in inputs:
        t = x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
        if t.is_floating_point():
            noise = 2 * torch.rand(t.shape, generator=gen, dtype=torch.float64) - 1
            t = (t.double() * (1 + 4 * sign * torch.finfo(t.dtype).eps * noise)).to(t.dtype)
        made.append(_plain(t))
    return tuple(made)


_MOST_KEPT = 64
_kept: OrderedDict[str, tuple] = OrderedDict()


def _expected(sent: Any, trials: list, target: str, run: dict) -> tuple[list, list, list[str]]:
    """The outputs of `before`: for each trial those on its inputs and on these moved both ways. Kept by content.

    Edge values that `before` itself crashes on are left out: also returned are the trials that remain, and notes.
    """
    key = _digest(sent, trials, target, run)
    if key in _kept:
        _kept.move_to_end(key)
        return _kept[key]
    inputs = [x for _, x in trials for x in (x, _nudged(x, 1), _nudged(x, -1))]
    built = builds.run_module(sent, inputs, target=target, **run)
    notes: list[str] = []
    if not built.ok and built.stage in ("run", "crash"):
        plain = [(kind, x) for kind, x in trials if kind in ("given", "ordinary")]
        if plain and len(plain) < len(trials):
            trials = plain
            inputs = [x for _, x in trials for x in (x, _nudged(x, 1), _nudged(x, -1))]
            built = builds.run_module(sent, inputs, target=target, **run)
            notes.append(f"edge values left out on {target}: the module before the pass does not take them")
    if not built.ok:
        raise ValueError(f"The module before the pass does not run on {target}: {built.error}")
    outputs = [[builds.as_torch(array) for array in arrays] for arrays in built.outputs]
    _kept[key] = outputs, trials, notes
    if len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
    return _kept[key]


def _digest(sent: Any, trials: list, target: str, run: dict) -> str:
    digest = hashlib.sha256(f"{sent.flavour}\0{target}\0{sorted(run.items(), key=str)}\0{sent.text}".encode())
    for array in (sent.params or {}).values():
        digest.update(np.ascontiguousarray(array).tobytes())
    for kind, values in trials:
        digest.update(kind.encode())
        for x in values:
            t = x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))
            digest.update(f"{t.dtype}{tuple(t.shape)}".encode())
            digest.update(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b"")
    return digest.hexdigest()


def _failed(built: Any, target: str) -> str:
    """What became of a module that does not run, in a sentence."""
    doing = {
        "build": f"Your module does not build for {target}",
        "run": f"Your module builds for {target}, and fails when it runs",
        "crash": f"Your module crashed on {target}",
        "timeout": f"Your module took too long on {target}",
    }[built.stage]
    return f"{doing}: {built.error.rstrip('.')}."


def _differences(
    expected: list | None, got: list, reference: Callable | None, given: tuple, allowed: Tolerance, errors: Errors
) -> Iterator[tuple[Difference, str]]:
    """What sets the outputs apart from those of `before`, then from those of the reference."""
    if expected is not None:
        old, *moved = expected
        found = compare(old, got, allowed, "output", errors)
        for d in _unexcused(found, old, got, moved, allowed):
            yield d, ""
    if reference is not None:
        right = _reference_outputs(reference, given)
        for d in _unexcused(compare(right, got, allowed, "output", errors), right, got, [], allowed):
            sentence = d.sentence.replace(" before", " in torch", 1).replace(" after", " in your module", 1)
            yield replace(d, sentence=sentence), "compared with the torch model, "


def _unexcused(found: list, old: list, new: list, moved: list, allowed: Tolerance) -> list[Difference]:
    """The differences that remain when what rounding explains is set aside."""
    if any(d.bad is None for d in found):
        return [d for d in found if d.bad is None]
    for d in found:
        x, y = old[d.leaf], new[d.leaf]
        if allowed.sums:
            d.bad = d.bad & ~nan_or_inf(x, y)
        for run in moved:
            d.bad = d.bad & steady(x, y, run[d.leaf])
    return [d for d in found if d.bad.any()]


def _reference_outputs(reference: Callable, given: tuple) -> list[Tensor]:
    tensors = [x if isinstance(x, Tensor) else torch.from_numpy(np.array(x)) for x in given]
    with torch.no_grad():
        return [t for t in leaves(reference(*tensors)) if isinstance(t, Tensor)]


def covered() -> str:
    """Which devices modules are run on here, in a sentence for the notes of a report."""
    found = builds.targets()
    without = "" if "cuda" in found else "; there is no GPU that TVM can use here, so cuda was not tried"
    return f"Modules were built and run on {' and '.join(found)}{without}."


# ---------------------------------------------------------------------------------------------------- the judge


def judge_pass(
    did: Law,
    spared: Law | None = None,
    cost: Law | None = None,
    *,
    reference: Callable[[Case], Callable] | None = None,
    **how: Any,
) -> Callable[[Case, object], Iterator[Finding]]:
    """The judge of a pass over modules: valid, then same, then the exercise's own laws.

    A case's first built argument is the module (or function) before the pass; its `inputs()` are a tuple, or a list of
    tuples. `reference(case)` gives a torch model. Other keyword arguments go to `same`. Laws see modules with types.
    The modules of a case that names what it is about, and does not name `same`, are not run.
    """

    def judge(case: Case, value: object) -> Iterator[Finding]:
        before = case.build()[0]
        broken = valid(before, value)
        if broken:
            yield Finding("valid", False, broken, before=before)
            return
        before, after = typed(before), typed(value)
        yield Finding("valid", True)
        if not case.about or "same" in case.about:
            given = case.inputs() if case.inputs else None
            sentence = same(before, after, given, reference(case) if reference else None, **how)
            yield Finding("same", sentence is None, sentence or "", before=before, after=after)
        for verdict, law in (("did", did), ("spared", spared), ("cost", cost)):
            if law is not None:
                sentence = law(before, after, case)
                yield Finding(verdict, sentence is None, sentence or "", before=before, after=after)

    return judge
