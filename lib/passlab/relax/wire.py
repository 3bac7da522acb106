"""Read a Relax module from TVM 0.27's JSON: check node types and operators against lists, cycles, well-formedness.

TVM's reflection tells which fields of a node refer to other nodes, and its loader checks the type of every field.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from passlab.process.error_text import reason
from passlab.process.refusal import Refused
from passlab.tvm.wire_parts import in_order, tensor

#: The node types of ordinary modules: Relax and TIR, but nothing that names a function outside the module.
_PLAIN = {"None", "int", "bool", "float", "DataType", "ffi.String", "ffi.Shape", "ffi.Tensor", "ir.Op", "ir.SourceName"}
_CONTAINERS = {"ffi.Array", "ffi.Map"}
_TYPES = re.compile(
    r"""prim\.\w+ | relax\.attrs\.\w+ | relax\.(Any|Shape|Tensor|Func)Type
    | relax\.expr\.(Function|ShapeExpr|SeqExpr|If|DataflowVar|MatchCast|VarBinding|BindingBlock|DataflowBlock)
    | ir\.(IRModule|SourceMap|DictAttrs|GlobalVar|Var|Call|Tuple|TupleGetItem|TensorLoad|TensorRegion|GenericConst
          |StringImm|IntImm|FloatImm|Range|(Prim|Pointer|Tuple|Func|String)?Type|Span|SequentialSpan)
    | tirx\.(PrimFunc|BufferType|BufferRegionType|IterVar|IndexMap|Bind|AttrStmt|AssertStmt|BufferStore|DeclBuffer
            |AllocBuffer|SeqStmt|Evaluate|IfThenElse|For|While|Return|Break|Continue)
    | s_tir\.(MatchBufferRegion|SBlock|SBlockRealize)""",
    re.X,
)
_OPS = re.compile(
    r"""relax\.((nn|image|vision|memory|builtin|grad)\.)?\w+ | prim\.\w+
    | tirx\.(a?(cos|sin|tan)h?|assume|atan2|copysign|ctpop|erf|exp(2|10)?|fabs|floor|fma|fmod|hypot|is(finite|inf|nan)
            |ldexp|log(10|1p)?|nearbyint|nextafter|popcount|pow|q_multiply_shift(_per_axis)?|reinterpret|round|rsqrt
            |sigmoid|sqrt|trunc|tvm_(storage_sync|thread_allreduce|thread_invariant|tuple)|undef
            |vector(combine|high|low))""",
    re.X,
)
#: Operators that match `_OPS` but call a function by its name, or a closure.
_CALLS_OUT = re.compile(r"relax\.(call_(?!tir$|tir_inplace$)\w+|\w*closure)")
#: Fields of these types (none, int, bool, float, data type) are stored in the node; all others are node numbers.
_INLINE = {0, 1, 2, 3, 5}


def read(graph: dict, nodes: list[dict]) -> Any:
    """Return the module or function that `graph` describes. Raises Refused, or what TVM's loader raises."""
    from passlab.relax import relax, tvm

    if set(graph) - {"root_index", "nodes", "metadata"}:
        raise Refused("The module's JSON has keys other than root_index, nodes and metadata.")
    root = graph["root_index"]
    for at in in_order(nodes, root, lambda at: _children(nodes[at])):
        _check_allowed(nodes[at])
    if nodes[root]["type"] not in ("ir.IRModule", "relax.expr.Function"):
        raise Refused("The JSON describes neither a module nor a function.")
    # Serialized again so that TVM reads exactly what was checked: parsers differ on duplicate keys.
    module = tvm.ir.load_json(json.dumps({"root_index": root, "nodes": nodes}))
    try:
        relax.analysis.well_formed(module)
    except Exception as error:
        raise Refused(f"The module is not well-formed: {reason(error)}") from None
    return module


def _children(node: dict) -> list[int]:
    """Return the numbers of the nodes that a node refers to. Raises Refused for a node type not on the list."""
    kind, data = node["type"], node.get("data")
    if kind in _PLAIN:
        return []
    if kind in _CONTAINERS:
        return list(data)
    if not isinstance(kind, str) or not _TYPES.fullmatch(kind):
        raise Refused(f"The module contains a node of type {str(kind)[:60]}, which cannot travel.")
    inline = _fields(kind)
    return [value for name, value in data.items() if not inline[name]]


@functools.cache
def _fields(kind: str) -> dict[str, bool]:
    """Return field → whether its value is stored in the node itself."""
    from tvm_ffi import core

    fields, info = {}, core._lookup_or_register_type_info_from_type_key(kind)
    while info is not None:
        fields |= {field.name: field.field_static_type_index in _INLINE for field in info.fields or ()}
        info = info.parent_type_info
    return fields


def _check_allowed(node: dict) -> None:
    """Raise Refused for an operator that is not on the list, a damaged tensor, or a pragma that carries code."""
    kind, data = node["type"], node.get("data")
    if kind == "ir.Op":
        if not _OPS.fullmatch(data) or _CALLS_OUT.fullmatch(data):
            raise Refused(f"The module uses the operator {data[:60]}, which cannot travel.")
    elif kind == "ffi.Tensor":
        tensor(data)
    elif kind == "ffi.String" and data.startswith("pragma_import"):
        raise Refused(f"The module contains code in another language ({data[:40]}).")
