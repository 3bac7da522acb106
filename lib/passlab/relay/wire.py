"""Read a Relay module from TVM 0.17's JSON, node by node, with Relay's own constructors.

TVM 0.17's loader does not check types: it reads a string in place of an array as an array. The constructors do check,
so they rebuild the graph. Only the attributes of operators pass through the loader, and each is then passed to the
constructor of its class. Spans and devices are left out; types are inferred again.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from passlab.process.error_text import reason
from passlab.process.refusal import Refused
from passlab.tvm.wire_parts import in_order, tensor

_OPS = re.compile(r"((nn|image|vision|qnn|dyn)\.)?\w+ | annotation\.(stop_fusion|checkpoint|cast_hint)", re.X)
#: Operators that match `_OPS` but call a Python function, or a function by its name.
_CALLS_OUT = {"debug", "call_lowered"}
#: Attributes that a function may not have: they name another compiler, or a symbol outside the module.
_ELSEWHERE = {"Compiler", "ExternalSymbol"}

#: The settings of an operator: its attributes.
_ATTRS = re.compile(r"relay\.attrs\.\w+")
_OTHER = "(something else)"  # replaces any node that settings may not contain

#: DLPack type code → NumPy's name, to which the bits are appended.
_DTYPES = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}


def read(graph: dict, nodes: list[dict]) -> Any:
    """Return the typed module or function that `graph` describes. Raises Refused, or what the constructors raise."""
    from passlab.relay import relay, tvm

    root = int(graph["root"])
    order = in_order(nodes, root, lambda at: _children(nodes[at]))
    objects = _settings(tvm, nodes, [at for at in order if _is_settings(nodes[at]["type_key"])])
    for at in order:
        if at not in objects:
            objects[at] = _make(tvm, graph, nodes[at], objects)
    module = objects[root]
    function = isinstance(module, relay.Function)
    if not function and not isinstance(module, tvm.IRModule):
        raise Refused("The JSON describes neither a module nor a function.")
    try:
        module = relay.transform.InferType()(tvm.IRModule.from_expr(module) if function else module)
    except Exception as error:
        raise Refused(f"The module is not well-typed: {reason(error)}") from None
    return module["main"] if function else module


#: Node type → its fields that refer to other nodes, in the order that `_make` expects.
_FIELDS = {
    "relay.Id": ("name_hint",),
    "GlobalVar": ("name_hint",),
    "relay.TensorType": ("shape",),
    "TupleType": ("fields",),
    "FuncType": ("arg_types", "ret_type", "type_params", "type_constraints"),
    "DictAttrs": ("__dict__",),
    "relay.Var": ("vid", "type_annotation"),
    "relay.Tuple": ("fields",),
    "relay.TupleGetItem": ("tuple_value",),
    "relay.Call": ("op", "args", "attrs"),
    "relay.attrs.ArangeAttrs": ("start", "stop", "step"),  # the only settings that are expressions
    "relay.Let": ("var", "value", "body"),
    "relay.If": ("cond", "true_branch", "false_branch"),
    "relay.Function": ("params", "body", "ret_type", "type_params", "attrs"),
    "IRModule": ("functions",),  # without the types that importers add: nodes that use them cannot travel
}
_LEAVES = {"", "runtime.String", "IntImm", "FloatImm", "tir.Any", "Op", "IncompleteType", "relay.Constant"}


def _is_settings(kind: str) -> bool:
    return bool(_ATTRS.fullmatch(kind)) and kind not in _FIELDS


def _children(node: dict) -> list[int]:
    """Return the numbers of the nodes that a node refers to. Raises Refused for a node type not on the list."""
    kind = node["type_key"]
    if kind in ("Array", "Map"):
        return [int(at) for at in node.get("data", [])]
    if kind in _FIELDS:
        return [int(node["attrs"][field]) for field in _FIELDS[kind]]
    if kind not in _LEAVES and not _is_settings(kind):
        raise Refused(f"The module contains a node of type {str(kind)[:60]}, which cannot travel.")
    return []


def _make(tvm: Any, graph: dict, node: dict, known: dict[int, Any]) -> Any:
    """Return the object for a node, made by its constructor from the objects of its children, by node number."""
    kind = node["type_key"]
    parts = [known[child] for child in _children(node)]
    if kind == "relay.Constant":
        return tvm.relay.Constant(tvm.nd.array(_array(graph["b64ndarrays"][int(node["attrs"]["data"])])))
    if kind not in _CONSTRUCTORS:
        raise Refused(f"The module contains a node of type {kind[:60]}, which cannot travel.")
    return _CONSTRUCTORS[kind](tvm, node, *parts)


def _map(tvm: Any, node: dict, *parts: Any) -> dict:
    if keys := node.get("keys"):  # text keys are stored in the node itself
        return dict(zip(keys, parts, strict=True))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _string(tvm: Any, node: dict) -> str:
    return base64.b64decode(node["repr_b64"])[8:].decode() if "repr_b64" in node else node.get("repr_str", "")


def _call(tvm: Any, node: dict, op: Any, args: list, attrs: Any) -> Any:
    return tvm.relay.Call(op, args, None if isinstance(attrs, dict) else attrs)


def _arange(tvm: Any, node: dict, start: Any, stop: Any, step: Any) -> Any:
    return tvm.ir.make_node(node["type_key"], start=start, stop=stop, step=step, dtype=node["attrs"]["dtype"])


def _operator(tvm: Any, node: dict) -> Any:
    name = node["repr_str"]
    if not _OPS.fullmatch(name) or name in _CALLS_OUT:
        raise Refused(f"The module uses the operator {name[:60]}, which cannot travel.")
    return tvm.ir.Op.get(name)


def _function(tvm: Any, node: dict, params: list, body: Any, returns: Any, types: list, attrs: dict | None) -> Any:
    function = tvm.relay.Function(params, body, returns, types)
    for key, value in (attrs or {}).items():
        if key in _ELSEWHERE:
            raise Refused(f"The module asks for an external compiler (a function has the attribute {key}).")
        if value is not None:
            function = function.with_attr(key, value)
    return function


#: Node type → its constructor, which gets TVM, the node and the objects of its children.
_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "": lambda tvm, node: None,
    "Array": lambda tvm, node, *parts: list(parts),
    "Map": _map,
    "runtime.String": _string,
    "IntImm": lambda tvm, node: tvm.tir.IntImm(node["attrs"]["dtype"], int(node["attrs"]["value"])),
    "FloatImm": lambda tvm, node: tvm.tir.FloatImm(node["attrs"]["dtype"], float(node["attrs"]["value"])),
    "tir.Any": lambda tvm, node: tvm.relay.Any(),
    "IncompleteType": lambda tvm, node: None,
    "Op": _operator,
    "relay.Id": lambda tvm, node, name: name,
    "GlobalVar": lambda tvm, node, name: tvm.relay.GlobalVar(name),
    "relay.TensorType": lambda tvm, node, shape: tvm.relay.TensorType(shape, node["attrs"]["dtype"]),
    "TupleType": lambda tvm, node, fields: tvm.relay.TupleType(fields),
    "FuncType": lambda tvm, node, *parts: tvm.relay.FuncType(*parts),
    "DictAttrs": lambda tvm, node, attrs: attrs,
    "relay.Var": lambda tvm, node, *parts: tvm.relay.Var(*parts),
    "relay.Tuple": lambda tvm, node, fields: tvm.relay.Tuple(fields),
    "relay.TupleGetItem": lambda tvm, node, of: tvm.relay.TupleGetItem(of, int(node["attrs"]["index"])),
    "relay.Call": _call,
    "relay.attrs.ArangeAttrs": _arange,
    "relay.Let": lambda tvm, node, *parts: tvm.relay.Let(*parts),
    "relay.If": lambda tvm, node, *parts: tvm.relay.If(*parts),
    "relay.Function": _function,
    "IRModule": lambda tvm, node, functions: tvm.IRModule(functions),
}


def _array(text: str) -> np.ndarray:
    read = tensor(text)
    if read.code == 4:
        dtype = np.dtype(ml_dtypes.bfloat16)
    else:
        boolean = (read.code, read.bits) in ((1, 1), (6, 8))
        dtype = np.dtype("bool" if boolean else f"{_DTYPES[read.code]}{read.bits}")
    return np.frombuffer(read.data, dtype).reshape(read.shape)


def _settings(tvm: Any, nodes: list[dict], numbers: list[int]) -> dict[int, Any]:
    """Return the settings of operators, by node number.

    TVM's loader reads them, from nodes reduced to the few types that settings may contain. Its objects are not kept:
    each value is read from them and passed to a constructor, which checks it.
    """
    if not numbers:
        return {}
    chosen = set(numbers)
    plain = [node if at in chosen else _plain(node) for at, node in enumerate(nodes)]
    arrays = [at for at, node in enumerate(plain) if node["type_key"] == "Array"]
    plain.append({"type_key": "Array", "data": [*numbers, *arrays]})
    root = len(nodes)
    # The loader follows arrays unchecked, so in_order visits all of them first: settings may refer to any.
    in_order(plain, root, lambda at: _children(plain[at]) if plain[at]["type_key"] == "Array" else [])
    text = json.dumps({"root": root, "nodes": plain, "b64ndarrays": [], "attrs": {}})
    loaded = tvm.runtime._ffi_node_api.LoadJSON(text)  # load_json would try to repair what fails
    settings = {}
    for at, value in zip(numbers, loaded, strict=False):  # the arrays follow and are not needed
        values = {name: _value(tvm, getattr(value, name)) for name in nodes[at]["attrs"]}
        settings[at] = tvm.ir.make_node(nodes[at]["type_key"], **values)
    return settings


def _plain(node: dict) -> dict:
    """Return the node without its span if settings may contain it, otherwise one that `_value` refuses."""
    kind = node["type_key"]
    if kind in ("IntImm", "FloatImm"):
        return {"type_key": kind, "attrs": {**node["attrs"], "span": "0"}}
    return node if kind in ("", "Array", "runtime.String") else {"type_key": "runtime.String", "repr_str": _OTHER}


def _value(tvm: Any, value: Any) -> Any:
    """Return a copy of a value of the settings. Raises Refused for types that they may not contain."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str) and value != _OTHER:
        return str(value)
    if isinstance(value, tvm.ir.Array):
        return [_value(tvm, part) for part in value]
    if isinstance(value, tvm.tir.IntImm | tvm.tir.FloatImm):
        return type(value)(value.dtype, value.value)
    raise Refused("An operator has a setting that cannot travel.")
