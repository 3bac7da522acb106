"""ONNX: a `ModelProto`, or the `ONNXProgram` of `torch.onnx.export`. Shapes come from ONNX's own shape inference."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import onnx
from onnx import TensorProto, helper

from passlab.graph import Graph, kinds
from passlab.graph.assemble import UNKNOWN, Builder, Type, cut, several, short, tensor_type

#: The two names in ONNX that differ from all other formats.
_DTYPES = {"float": "float32", "double": "float64"}
#: int4, uint2, float4e2m1: several elements share a byte.
_PACKED = re.compile(r"(?:u?int|float)([1-7])(?!\d)")


def read(obj: Any, *inputs: Any) -> Graph:
    """Return the view of a model, with the types that its values carry; `inputs` are not needed."""
    model = obj if isinstance(obj, onnx.ModelProto) else obj.model_proto
    with contextlib.suppress(Exception):  # over 2 GB, or not well-formed: keep the types in the file
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    reader = _Reader(model.graph.name or "graph")
    returned = reader.graph(model.graph)
    reader.build.outputs = returned
    reader.build.add("output", "output", "data", returned, text=f"return {', '.join(returned)}", ours=True)
    return reader.build.graph()


class _Reader:
    def __init__(self, name: str):
        self.build = Builder(name, "ONNX")
        self.producers: dict[str, str] = {}  # value → id of its producer
        self.types: dict[str, Type] = {}

    def graph(self, graph: onnx.GraphProto, starts: list[str | None] = ()) -> list[str]:
        """Read a graph or subgraph, whose inputs take the values `starts`; return the ids of its outputs."""
        for info in [*graph.value_info, *graph.input, *graph.output]:
            self.types[info.name] = _type(info.type)
        weights = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        starts = [*starts, *[None] * len(graph.input)]
        for info, start in zip(graph.input, starts, strict=False):
            if info.name not in weights:  # old models list their weights among the inputs too
                self._define(info.name, "input", [start] if start else [])
        for tensor in graph.initializer:
            self.types[tensor.name] = _tensor_type(tensor.data_type, tensor.dims)
            self._define(tensor.name, "initializer", [])
        for sparse in graph.sparse_initializer:
            self.types[sparse.values.name] = _tensor_type(sparse.values.data_type, sparse.dims)
            self._define(sparse.values.name, "initializer", [])
        for node in graph.node:
            self._node(node)
        return [self._use(info.name) for info in graph.output]

    def _define(self, name: str, op: str, inputs: list[str]) -> None:
        type = self.types.get(name, UNKNOWN)
        self.producers[name] = self.build.add(name, op, kinds.ONNX[op], inputs, type, f"{op} {name}")

    def _use(self, name: str) -> str:
        return self.producers.get(name) or self.build.missing(name)

    def _node(self, node: onnx.NodeProto) -> None:
        op = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        results = [name for name in node.output if name]
        id = results[0] if results else op
        operands = [self._use(name) for name in node.input if name]
        attrs, inputs = {}, list(operands)
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for graph in graphs:
                inputs += self._inner(f"{id}:{attribute.name}", node, graph, operands)
            if not graphs:
                attrs[attribute.name] = _attribute(attribute)
        label = cut(", ".join(map(str, attrs.values()))) if node.op_type == "Constant" else node.name
        options = [*operands, *(f"{name}={short(value)}" for name, value in attrs.items())]
        text = cut(f"{', '.join(results)} = {op}({', '.join(options)})")
        kind = kinds.ONNX.get(node.op_type, "compute")
        type = several(self.types.get(name, UNKNOWN) for name in results) if results else UNKNOWN
        id = self.build.add(id, op, kind, inputs, type, text, attrs, label, ours=not results)
        for name in results:
            self.producers[name] = id

    def _inner(self, name: str, node: onnx.NodeProto, graph: onnx.GraphProto, operands: list[str]) -> list[str]:
        """Read a subgraph. Its names may hide outer ones, which are restored afterwards."""
        outer, producers = self.build.block, dict(self.producers)
        self.build.block = name
        starts = operands[:]
        if node.op_type == "Loop":  # trip count and condition may be omitted, but the body has both as inputs
            starts = [self.producers.get(name) if name else None for name in node.input]
        returned = self.graph(graph, starts)
        self.build.block, self.producers = outer, producers
        return returned


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, TensorProto):
        if not value.dims or list(value.dims) == [1]:
            return onnx.numpy_helper.to_array(value).item()
        return f"tensor{list(value.dims)}"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return tuple(_plain(part) for part in value) if isinstance(value, list) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, (int, float, str)) else cut(str(value))


def _type(type: onnx.TypeProto) -> Type:
    kind = type.WhichOneof("value")
    if kind != "tensor_type":
        return None, (kind or "").removesuffix("_type") or None, None
    tensor = type.tensor_type
    if not tensor.elem_type:
        return UNKNOWN
    dims = None
    if tensor.HasField("shape"):
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
    return _tensor_type(tensor.elem_type, dims)


def _tensor_type(elem_type: int, dims: Any) -> Type:
    name = TensorProto.DataType.Name(elem_type).lower()
    itemsize = None
    if bits := _PACKED.match(name):
        itemsize = int(bits[1]) / 8
    elif name != "string":
        itemsize = helper.tensor_dtype_to_np_dtype(elem_type).itemsize
    return tensor_type(dims, _DTYPES.get(name, name), itemsize)
