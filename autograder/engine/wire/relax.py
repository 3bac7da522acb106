"""Reading a Relax module from TVM 0.27's JSON: node types and operators from lists, no cycles, then well-formedness.

TVM's own reflection says which fields of a node refer to other nodes, and its loader checks every field's type.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from autograder.engine.wire.refusal import Refused
from autograder.engine.wire.tvm import first_line, in_order, tensor

#: Node types that honest modules are made of: Relax, TIR, and nothing that names a function outside the module.
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
#: Operators under those names that call a function by its name, or a closure.
_CALLS_OUT = re.compile(r"relax\.(call_(?!tir$|tir_inplace$)\w+|\w*closure)")
#: Fields of these kinds (none, int, bool, float, data type) stand in the node itself; all others are node numbers.
_INLINE = {0, 1, 2, 3, 5}


def read(graph: dict, nodes: list[dict]) -> Any:
    """The module, or function, that `graph` describes."""
    from passlab.relax import relax, tvm

    if set(graph) - {"root_index", "nodes", "metadata"}:
        raise Refused("The module's JSON has parts that no module has.")
    root = graph["root_index"]
    for at in in_order(nodes, root, lambda at: _children(nodes[at])):
        _allowed(nodes[at])
    if nodes[root]["type"] not in ("ir.IRModule", "relax.expr.Function"):
        raise Refused("What came is neither a module nor a function.")
    # Written anew, so that TVM reads what was checked: two keys of one name mean different things to two parsers.
    module = tvm.ir.load_json(json.dumps({"root_index": root, "nodes": nodes}))
    try:
        relax.analysis.well_formed(module)
    except Exception as error:
        raise Refused(f"The module is not well-formed: {first_line(error)}") from None
    return module


def _children(node: dict) -> list[int]:
    """The nodes that a node refers to."""
    kind, data = node["type"], node.get("data")
    if kind in _PLAIN:
        return []
    if kind in _CONTAINERS:
        return list(data)
    if not isinstance(kind, str) or not _TYPES.fullmatch(kind):
        raise Refused(f"The module holds something that cannot travel: {str(kind)[:60]}.")
    inline = _fields(kind)
    return [value for name, value in data.items() if not inline[name]]


@functools.cache
def _fields(kind: str) -> dict[str, bool]:
    """Field → does its value stand in the node itself?"""
    from tvm_ffi import core

    fields, info = {}, core._lookup_or_register_type_info_from_type_key(kind)
    while info is not None:
        fields |= {field.name: field.field_static_type_index in _INLINE for field in info.fields or ()}
        info = info.parent_type_info
    return fields


def _allowed(node: dict) -> None:
    """Raises Refused for an operator that is on no list, a damaged tensor, or a hint that has code in it."""
    kind, data = node["type"], node.get("data")
    if kind == "ir.Op":
        if not _OPS.fullmatch(data) or _CALLS_OUT.fullmatch(data):
            raise Refused(f"The module uses the operator {data[:60]}, which cannot travel.")
    elif kind == "ffi.Tensor":
        tensor(data)
    elif kind == "ffi.String" and data.startswith("pragma_import"):
        raise Refused(f"The module carries code of another language ({data[:40]}).")
