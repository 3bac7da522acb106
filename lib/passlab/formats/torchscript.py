"""TorchScript, from `torch.jit.trace` or `torch.jit.script`. Calls are inlined; a weight is one node."""

from __future__ import annotations

from typing import Any

import torch

from passlab.fx.nodes import attribute
from passlab.graph import Graph, kinds
from passlab.graph.assemble import UNKNOWN, Builder, Type, cut, several, short, tensor_type


def read(obj: Any, *inputs: Any) -> Graph:
    """Return the view of a ScriptModule or ScriptFunction, with the types it knows; `inputs` are not needed."""
    module = obj if isinstance(obj, torch.jit.ScriptModule) else None
    name = getattr(obj, "original_name", None) or getattr(obj, "name", None) or type(obj).__name__
    return _Reader(str(name), module).read(obj.inlined_graph)


class _Reader:
    def __init__(self, name: str, module: torch.jit.ScriptModule | None):
        self.build = Builder(name, "TorchScript")
        self.module = module
        self.producers: dict[str, str] = {}  # value → id of its producer
        self.paths: dict[str, str] = {}  # value that is a module → its path, "" for the root

    def read(self, graph: Any) -> Graph:
        for value in graph.inputs():
            if self._is_module(value):
                self.paths[value.debugName()] = ""
            else:
                self._define(value, "prim::Param", (), text=f"%{value.debugName()} : {value.type()}")
        returned = self._block(graph)
        self.build.outputs = list(returned)
        text = f"return ({', '.join('%' + id for id in returned)})"
        self.build.add("return", "prim::Return", "data", returned, text=text, ours=True)
        return self.build.graph(str(graph))

    def _is_module(self, value: Any) -> bool:
        """Return whether the value is a module (the model itself or a part of it)."""
        return self.module is not None and value.type().kind() == "ClassType" and "__torch__" in str(value.type())

    def _define(self, value: Any, op: str, inputs: Any, **attrs: Any) -> None:
        name = value.debugName()
        self.producers[name] = self.build.add(name, op, _kind(op), inputs, type=_type(value), **attrs)

    def _block(self, block: Any) -> list[str]:
        """Read the nodes of a block; return the ids of its results."""
        for node in block.nodes():
            self._node(node)
        return [id for value in block.outputs() if (id := self._use(value)) is not None]

    def _use(self, value: Any) -> str | None:
        name = value.debugName()
        return None if name in self.paths else self.producers.get(name) or self.build.missing(name)

    def _node(self, node: Any) -> None:
        op, results = node.kind(), list(node.outputs())
        if op == "prim::GetAttr" and self._get_attr(node, results[0]):
            return
        inputs = [id for value in node.inputs() if (id := self._use(value)) is not None]
        attrs = {name: _attribute(node, name) for name in node.attributeNames()}
        id = results[0].debugName() if results else op.split("::")[-1]
        for i, block in enumerate(node.blocks()):
            starts = list(node.inputs())  # of a loop: trip count, first condition, and the values carried along
            starts = [starts[0], *starts[2:]] if op == "prim::Loop" else starts
            inputs += self._inner(f"{id}:{_block_name(op, i)}", block, starts)
        kind = _kind(op)
        if _writes(node):
            kind, attrs["mutates"] = "memory", True
        text = cut(str(node).split("\n")[0].split(" # ")[0].split(", scope: ")[0])
        label = short(attrs["value"]) if op == "prim::Constant" and "value" in attrs else ""
        type = several(map(_type, results)) if results else UNKNOWN
        id = self.build.add(id, op, kind, inputs, type, text, attrs, label, ours=not results)
        for value in results:
            self.producers[value.debugName()] = id

    def _inner(self, name: str, block: Any, starts: list[Any]) -> list[str]:
        """Read a block inside a node, whose parameters take the values `starts`; return the ids of its results."""
        outer, self.build.block = self.build.block, name
        for value, start in zip(block.inputs(), starts, strict=False):
            self._define(value, "prim::Param", [self._use(start)], text=f"%{value.debugName()} : {value.type()}")
        returned = self._block(block)
        self.build.block = outer
        return returned

    def _get_attr(self, node: Any, result: Any) -> bool:
        """Follow `prim::GetAttr` through the modules: a module is a step on the path, a weight becomes one node."""
        owner = next(iter(node.inputs())).debugName()
        if owner not in self.paths:
            return False
        path = f"{self.paths[owner]}.{node.s('name')}".lstrip(".")
        if self._is_module(result):
            self.paths[result.debugName()] = path
            return True
        weight = attribute(self.module, path)
        type = UNKNOWN
        if isinstance(weight, torch.Tensor):
            type = tensor_type(weight.shape, str(weight.dtype).removeprefix("torch."), weight.dtype.itemsize)
        name = result.debugName()
        text = f"%{name} : {result.type()} = self.{path}"
        self.producers[name] = self.build.add(name, "prim::GetAttr", "data", (), type, text, {"target": path}, path)
        return True


def _block_name(op: str, i: int) -> str:
    return ("then", "else")[i] if op == "prim::If" else "body"


def _attribute(node: Any, name: str) -> Any:
    """Return the value of an attribute; each kind has its own accessor."""
    try:
        value = getattr(node, node.kindOf(name))(name)
    except Exception:
        return f"<{node.kindOf(name)}>"
    return f"tensor{list(value.shape)}" if isinstance(value, torch.Tensor) and value.numel() > 1 else value


def _writes(node: Any) -> bool:
    """Return whether the operator's schema marks an operand as written, as in `add_(Tensor(a!) self, …)`."""
    schema = node.schema()
    return "!" in schema.split("->")[0] if schema != "(no schema)" else node.kind() == "prim::SetAttr"


def _kind(op: str) -> str:
    home, _, name = op.partition("::")
    return kinds.PRIM.get(name, "compute") if home == "prim" else kinds.TORCH.get(name.strip("_"), "compute")


def _type(value: Any) -> Type:
    """Return shape and dtype of a tensor as far as TorchScript knows them; the name of any other type."""
    type = value.type()
    if type.kind() == "TupleType":
        return several(
            _tensor(part) if part.kind() == "TensorType" else (None, str(part), None) for part in type.elements()
        )
    return _tensor(type) if type.kind() == "TensorType" else (None, str(type), None)


def _tensor(type: Any) -> Type:
    dtype, sizes = type.dtype(), type.varyingSizes()
    name = str(dtype).removeprefix("torch.") if dtype is not None else None
    shape = None if sizes is None else ["?" if dim is None else dim for dim in sizes]
    return tensor_type(shape, name, dtype.itemsize if dtype is not None else None)
