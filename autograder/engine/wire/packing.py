"""Turn a value into a document (lists, text and numbers for JSON) and the memory of its tensors.

    document, storages = pack(value)

A document is `[value, storages, tensors, shapes, modules, graphs]`. Objects with an identity (a tensor, its memory, a
module, a graph) are stored once in a table and referred to by index, so that two references to one object are still
that after the journey. Anything else is plain JSON, or a list that begins with a tag: `["t", 1, 2]` is a tuple.

This runs beside learner code. It dispatches on exact types and uses torch's own methods, so that a class with
overridden methods is refused or packed as its base class; still, the other side does not trust what comes from here.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.fx.passes.shape_prop import TensorMetadata

from autograder.engine.wire import kinds, modules, symbols, targets
from passlab.graph import registry
from passlab.process.refusal import Refused

_NAMES: dict[type, dict[Any, str]] = {
    torch.dtype: {v: k for k, v in kinds.DTYPES.items()},
    torch.memory_format: {v: k for k, v in kinds.FORMATS.items()},
    torch.layout: {v: k for k, v in kinds.LAYOUTS.items()},
}
_CLASSES = {cls: name for name, cls in kinds.CLASSES.items()}
_TENSORS = (torch.Tensor, nn.Parameter)
_WANTED = "Return numbers, text or tensors, lists, tuples, sets or dicts of these, or a GraphModule."
_OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")


def pack(value: Any) -> tuple[list, list[torch.UntypedStorage]]:
    """Return the document of a value and the memory of its tensors. Raises Refused for what cannot travel."""
    packer = _Packer()
    root = packer.value(value, 0)
    tables = packer.storages, packer.tensors, packer.shapes, packer.modules, packer.graphs
    return [root, *tables], packer.memory


class _Packer:
    """The tables of a document, which grow while a value is walked. `where`: the current part, for messages."""

    def __init__(self):
        self.storages: list[list] = []
        self.tensors: list[list] = []
        self.shapes: list[list] = []
        self.modules: list[list | None] = []
        self.graphs: list[list | None] = []
        self.memory: list[torch.UntypedStorage] = []
        self.places: dict[int, int] = {}
        self.nodes: dict[int, dict[fx.Node, int]] = {}  # id of a graph → place of each of its nodes
        self.alive: list[Any] = []  # keeps objects alive whose id is in `places`
        self.items = 0
        self.where = "The returned value"
        self.inside: dict[fx.Node, int] | None = None  # while operands are walked: node → its place in the graph
        self.noted = False  # while the notes of a node are walked

    def refuse(self, value: object) -> Refused:
        return Refused(f"{self.where} contains {kinds.kind(value)}, which cannot leave your notebook. {_WANTED}")

    # ------------------------------------------------------------------------------------------------ plain values

    def value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is str:
            if self.inside is not None and not kinds.is_text(value):
                raise Refused(f"{self.where} contains the text {value!r:.60}, which torch.fx reserves for itself.")
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else self.big(value)
        if kind is float:
            return value if math.isfinite(value) else ["f", str(value)]
        if depth > kinds.DEPTH:
            raise Refused(f"{self.where} is nested more than {kinds.DEPTH} levels deep, or contains itself.")
        pack = _PACK.get(kind)
        if pack is None:
            recorded = kinds.RECORDS.get(kind.__name__) is kind
            pack = _Packer.record if recorded else _compilers(value) or _base_packer(value)
        if pack is None:
            raise self.refuse(value)
        packed = pack(self, value, depth + 1)
        if self.inside is not None and type(packed) is list and packed[0] not in kinds.OPERANDS:
            raise Refused(
                f"{self.where} has {kinds.kind(value)} as an operand. An operand must be a node, a number or text."
            )
        return packed

    def big(self, value: int) -> list:
        text = format(value, "x")
        if len(text) > kinds.DIGITS:
            raise Refused(f"{self.where} contains an integer of more than {kinds.DIGITS * 4:,} bits.")
        return ["i", text]

    def many(self, tag: str, values: Any, depth: int) -> list:
        self.count(len(values))
        return [tag, *[self.value(v, depth) for v in values]]

    def count(self, more: int) -> None:
        self.items += more
        if self.items > kinds.ITEMS:
            raise Refused(f"{self.where} contains more than {kinds.ITEMS:,} values.")

    def pack_set(self, tag: str, values: Any, depth: int) -> list:
        """Pack a set, in an order that depends only on its contents."""
        self.count(len(values))
        return [tag, *sorted((self.value(v, depth) for v in values), key=repr)]

    def mapping(self, value: dict, depth: int) -> list:
        self.count(2 * len(value))
        flat: list[Any] = ["d"]
        for key, item in value.items():
            flat += self.value(key, depth), self.value(item, depth)
        return flat

    def pack_name(self, tag: str, value: Any) -> list:
        name = _NAMES[type(value)].get(value)
        if name is None:
            raise self.refuse(value)
        return [tag, name]

    def function(self, value: Any, depth: int) -> list:
        name = targets.name_of(value)
        if name is None:
            called = getattr(value, "__name__", "?")
            raise Refused(
                f"{self.where} contains the function {called}: only functions of torch, math and operator can travel."
            )
        return ["fn", name]

    def cls(self, value: type, depth: int) -> list:
        if value in _CLASSES:
            return ["ty", _CLASSES[value]]
        return self.function(value, depth)

    def record(self, value: Any, depth: int) -> list:
        fields = [getattr(value, f.name) for f in dataclasses.fields(value)]
        return ["rec", type(value).__name__, *[self.value(v, depth) for v in fields]]

    def shape(self, value: TensorMetadata, depth: int) -> list:
        """Pack ShapeProp's record of a tensor. It goes into a table because many nodes share one."""
        if value.is_quantized or type(value.shape) is not torch.Size or type(value.stride) is not tuple:
            raise self.refuse(value)
        return ["sh", self.place(self.shapes, value, self._shape)]

    def _shape(self, value: TensorMetadata) -> list:
        sizes = [[self.value(n, 0) for n in part] for part in (value.shape, value.stride)]
        return [
            sizes[0],
            self.value(value.dtype, 0),
            bool(value.requires_grad),
            sizes[1],
            self.value(value.memory_format, 0),
        ]

    def symbolic(self, value: torch.SymInt, depth: int) -> list:
        """Pack a size that is not known: its text, and the number that it stood for."""
        text, number = str(value), value.node.hint
        if not self.noted or type(number) is not int or not symbols.is_text(text):
            raise self.refuse(value)
        return ["sy", text, self.value(number, depth)]

    def fake(self, value: FakeTensor, depth: int) -> list:
        """Pack a tensor without data, as the notes of a captured graph have them."""
        if not self.noted or value.layout is not torch.strided or value.device.type != "cpu":
            raise self.refuse(value)
        sizes = [self.many("l", part, depth) for part in (value.shape, value.stride())]
        return ["ft", *sizes, self.value(value.dtype, depth), bool(value.requires_grad)]

    def place(self, table: list, value: Any, make: Callable[[Any], Any]) -> int:
        """Return the index of `value` in a table, where it is put when it is first met."""
        key = id(value)
        known = self.places.get(key)
        if known is None:
            self.alive.append(value)
            made = make(value)
            known = self.places[key] = len(table)
            table.append(made)
        return known

    # ------------------------------------------------------------------------------------------------------ tensors

    def tensor(self, value: torch.Tensor, depth: int) -> list:
        return ["T", self.place(self.tensors, value, self._tensor)]

    def _tensor(self, t: torch.Tensor) -> list:
        dtype = _NAMES[torch.dtype].get(t.dtype)
        if t.layout is not torch.strided or dtype is None or t.is_nested:
            what = "a nested tensor" if t.is_nested else f"a tensor of {t.dtype}, {t.layout}"
            raise Refused(f"{self.where} contains {what}. Return a dense tensor of an ordinary dtype.")
        if t.device.type not in ("cpu", "meta"):
            raise Refused(f"{self.where} contains a tensor on {t.device}. Move it to the CPU with tensor.cpu().")
        try:
            storage = t.untyped_storage()
        except (RuntimeError, NotImplementedError):
            raise Refused(
                f"{self.where} contains a tensor without its own memory (perhaps made inside vmap or grad)."
            ) from None
        flags = t.requires_grad | (type(t) is nn.Parameter) << 1 | t.is_conj() << 2 | t.is_neg() << 3
        return [self.storage(storage), dtype, list(t.shape), list(t.stride()), t.storage_offset(), int(flags)]

    def storage(self, storage: torch.UntypedStorage) -> int:
        known = self.places.get(key := -storage._cdata)
        if known is None:
            known = self.places[key] = len(self.storages)
            self.storages.append([storage.nbytes(), storage.device.type])
            self.memory.append(storage)
            if sum(size for size, device in self.storages if device == "cpu") > kinds.PAYLOAD_BYTES:
                raise Refused(f"{self.where} contains more than {kinds.PAYLOAD_BYTES >> 20} MiB of tensors.")
        return known

    # ------------------------------------------------------------------------------------------------------ modules

    def module(self, value: nn.Module, depth: int) -> list:
        known = self.places.get(id(value))
        if known is None:
            self.alive.append(value)
            self.places[id(value)] = -1
            traced = fx.GraphModule in type.mro(type(value))
            try:
                pack: Callable[[Any, int], list] = self.graph_module if traced else self.plain_module
                row = pack(value, depth)
            except Refused:
                del self.places[id(value)]
                raise
            known = self.places[id(value)] = len(self.modules)
            self.modules.append(row)
        if known < 0:
            raise Refused(f"{self.where} contains a module that contains itself.")
        return ["M", known]

    def plain_module(self, module: nn.Module, depth: int) -> list:
        name = modules.class_name(module, self.where)
        return [name, *self.parts(module, depth, None)]

    def parts(self, module: nn.Module, depth: int, needed: set[str] | None) -> list:
        """Pack training flag, parameters, buffers, children and settings; leave out what cannot travel.

        Raises Refused if a part in `needed` cannot travel; None: every part is needed.
        """
        modules.refuse_hooks(module, self.where)
        state, outer = vars(module), self.where
        transient = state["_non_persistent_buffers_set"]
        found: list[list] = [[], [], [], []]
        lists = (state["_parameters"], state["_buffers"], state["_modules"], dict(modules.settings(module)))
        for rows, held in zip(found, lists, strict=True):
            for name, value in held.items():
                self.where = f"{outer}.{name}" if outer.startswith("Module ") else f"Module {name}"
                if type(name) is not str:
                    raise Refused(f"{outer} has a part whose name is {kinds.kind(name)}; it must be text.")
                try:
                    row = [name, self.value(value, depth)]
                    if held is lists[3] and modules.hides_tensor(type(module), value):
                        raise Refused(f"{self.where} is a tensor that is no parameter or buffer. Register it as one.")
                    if held is lists[3] and not modules.may_be_set(type(module), name):
                        raise Refused(f"{self.where} hides the {name} of its class. Remove it from the module.")
                except Refused:
                    if needed is None or name in needed:
                        raise
                    continue
                rows.append([*row, name in transient] if held is lists[1] else row)
        self.where = outer
        return [bool(module.training), *found]

    def graph_module(self, gm: fx.GraphModule, depth: int) -> list:
        graph = vars(gm).get("_graph")
        if not isinstance(graph, fx.Graph):
            raise Refused(f"{self.where} contains a GraphModule without a graph.")
        outer = self.where
        place = self.graph(graph, depth)[1]
        needed = {str(row[2]).split(".")[0] for row in self.graphs[place][0] if row[1] in ("get_attr", "call_module")}
        for row in self.graphs[place][0]:
            if row[1] in ("get_attr", "call_module") and modules.part(gm, row[2]) == "other":
                raise Refused(f"Node {row[0]} refers to {row[2]!r}, which is not a module, parameter or buffer.")
        parts = self.parts(gm, depth, needed)
        self.where = outer
        called = type(gm).__name__
        inputs = vars(gm).get("meta", {}).get("inputs")
        notes = ["d"] if inputs is None else ["d", "inputs", self.value(inputs, depth)]
        return ["GraphModule", *parts, place, called if kinds.is_word(called) else "GraphModule", notes]

    # ------------------------------------------------------------------------------------------------------- graphs

    def graph(self, graph: fx.Graph, depth: int) -> list:
        known = self.places.get(id(graph))
        if known is None:
            self.alive.append(graph)
            known = self.places[id(graph)] = len(self.graphs)
            self.graphs.append(None)
            self.graphs[known] = self._graph(graph, depth)
        return ["G", known]

    def _graph(self, graph: fx.Graph, depth: int) -> list:
        """Return [the nodes in order, strays]. Strays are nodes outside the graph that are used as operands in it."""
        if type(vars(graph)["_codegen"]) is not fx.graph.CodeGen:
            raise Refused(
                f"{self.where} contains a graph with packed inputs (from torch.export or concrete_args). "
                f"Return one whose inputs are placeholders only."
            )
        nodes = self.nodes_in_order(graph)
        place = {node: i for i, node in enumerate(nodes)}
        self.nodes[id(graph)] = place
        self.count(len(nodes))
        outer, outside = self.where, self.inside
        strays: list[Any] = []
        for node in nodes:
            for operand in node._input_nodes:
                if operand not in place:
                    place[operand] = len(nodes) + len(strays)
                    strays.append([operand.name, operand.graph is not graph])
        rows = []
        try:
            for node in nodes:
                self.where, self.inside = f"Node {node.name}", place
                row = self.node(node, depth)
                self.inside = None
                rows.append([*row, self.notes(node), node.graph is not graph])
        finally:
            self.where, self.inside = outer, outside
        return [rows, strays]

    def nodes_in_order(self, graph: fx.Graph) -> list[fx.Node]:
        """Return the nodes of a graph in its order. Raises Refused if its node list is damaged."""
        nodes: dict[fx.Node, None] = {}
        for node in fx.graph._node_list(graph):
            if type(node) is not fx.Node:
                raise Refused(f"The graph's node list contains a {type(node).__name__} instead of a torch.fx.Node.")
            if node in nodes:
                raise Refused(f"The graph's node list has a cycle at {node.name}, which was inserted twice.")
            nodes[node] = None
            if len(nodes) > kinds.NODES:
                raise Refused(f"{self.where} contains a graph of more than {kinds.NODES:,} nodes.")
        return list(nodes)

    def node(self, node: fx.Node, depth: int) -> list:
        op, target = node.op, node.target
        if op not in _OPS:
            raise Refused(f"Node {node.name} has the opcode {op!r:.40}; it must be one of {', '.join(_OPS)}.")
        args, kwargs = self.value(node.args, depth), self.mapping(node.kwargs, depth)
        for key in node.kwargs:
            if not kinds.is_word(key):
                raise Refused(f"Node {node.name} has the keyword argument {key!r:.40}, which is not a Python name.")
        if op.startswith("call_") and (barred := targets.barred_argument(target, node.kwargs)):
            raise Refused(
                f"Node {node.name} gives {barred}=, which this operation does not take in a graph. Remove it."
            )
        kind = self.annotation(node.type)
        return [str(node.name), op, self.target(node, op, target), args, kwargs, kind]

    def target(self, node: fx.Node, op: str, target: Any) -> Any:
        name = node.name
        if op == "call_function":
            return self.callee(node, target)
        if op == "output":
            return op
        if type(target) is not str:
            raise Refused(f"Node {name} is a {op} whose target is {kinds.kind(target)}; it must be text.")
        if op == "call_method" and target not in targets.METHODS:
            raise Refused(
                f"Node {name} calls the method {target!r:.60}: a graph may only call tensor methods that compute."
            )
        if op == "placeholder" and not kinds.is_parameter(target):
            raise Refused(f"Node {name} is an input called {target!r:.60}, which is not a Python name.")
        if op in ("get_attr", "call_module") and not kinds.is_path(target):
            raise Refused(f"Node {name} refers to {target!r:.60}, which the module does not have. Add it to gm first.")
        return target

    def callee(self, node: fx.Node, target: Any) -> list:
        """Pack the target of a call_function: its name, or a plain value, which a judge then reports."""
        name = targets.name_of(target)
        if name == "builtins.getattr" and (len(node.args) < 2 or node.args[1] not in targets.ATTRIBUTES):
            read = node.args[1] if len(node.args) > 1 else "?"
            raise Refused(
                f"Node {node.name} reads the attribute {read!r:.40}: a graph may only read shape, dtype and the like."
            )
        if name is not None:
            return ["fn", name]
        if target is None or type(target) in (bool, int, float, str):
            return ["no", self.value(target, 0)]
        if not callable(target):
            raise Refused(f"Node {node.name} calls {target!r:.60}, which is not callable.")
        called = getattr(target, "__name__", None) or type(target).__name__
        raise Refused(
            f"Node {node.name} calls {called}: a graph may only call functions that compute, of torch, math, operator "
            f"and passlab. Express what a function of your own computes as nodes of the graph."
        )

    def annotation(self, kind: Any) -> Any:
        """Pack a node's type if it is text or a class in the table. Any other is dropped: no judge uses it."""
        if type(kind) is str:
            return kind if len(kind) <= kinds.NAME else None
        return ["ty", _CLASSES[kind]] if isinstance(kind, type) and kind in _CLASSES else None

    def notes(self, node: fx.Node) -> list:
        flat: list[Any] = ["d"]
        meta = node.meta
        self.noted = True
        for key in kinds.NOTES:
            if key in meta:
                try:
                    flat += key, self.value(meta[key], 0)
                except Refused:  # an instance of a learner's class, or a size without a number: no judge uses it
                    continue
        self.noted = False
        return flat

    def operand(self, node: fx.Node, depth: int) -> list:
        """Pack a node: as an operand, its place in the same graph; elsewhere, its graph and its place there."""
        if self.inside is not None:
            return ["n", self.inside[node]]
        place = self.graph(node.graph, depth)[1]
        within = self.nodes[id(node.graph)].get(node)
        if within is None:
            raise Refused(f"{self.where} contains the node {node.name}, which was erased from its graph.")
        return ["N", place, within]


def _onnx(packer: _Packer, value: Any, depth: int) -> list:
    return ["o", base64.b64encode(value.SerializeToString(deterministic=True)).decode()]


def _compilers(value: Any) -> Callable[[_Packer, Any, int], Any] | None:
    """Return how to pack a module of a compiler, or None for another value."""
    codec = registry.part(value, "wire")
    return _module if codec is not None and codec.carries(value) else None


def _module(packer: _Packer, value: Any, depth: int) -> list:
    """Pack a module by the codec of its IR's package: its bytes travel as a tensor."""
    codec, row = registry.part(value, "wire"), registry.ir(value)
    assert codec and row, "`_compilers` has found them"
    payload = bytearray(codec.encode(value))
    return ["ir", row.package, packer.value(torch.frombuffer(payload, dtype=torch.uint8), depth)]


#: Exact type → how it is packed.
_PACK: dict[type, Callable[..., Any]] = {
    tuple: lambda p, v, d: p.many("t", v, d),
    list: lambda p, v, d: p.many("l", v, d),
    immutable_list: lambda p, v, d: p.many("l", v, d),
    torch.Size: lambda p, v, d: p.many("sz", v, d),
    dict: _Packer.mapping,
    immutable_dict: _Packer.mapping,
    set: lambda p, v, d: p.pack_set("s", v, d),
    frozenset: lambda p, v, d: p.pack_set("fs", v, d),
    complex: lambda p, v, d: ["c", p.value(v.real, d), p.value(v.imag, d)],
    bytes: lambda p, v, d: ["b", base64.b64encode(v).decode()],
    slice: lambda p, v, d: ["sl", *[p.value(x, d) for x in (v.start, v.stop, v.step)]],
    range: lambda p, v, d: ["r", *[p.value(x, d) for x in (v.start, v.stop, v.step)]],
    type(...): lambda p, v, d: ["..."],
    torch.dtype: lambda p, v, d: p.pack_name("dt", v),
    torch.memory_format: lambda p, v, d: p.pack_name("mf", v),
    torch.layout: lambda p, v, d: p.pack_name("lo", v),
    torch.device: lambda p, v, d: ["dv", str(v)],
    fx.Node: _Packer.operand,
    fx.Graph: _Packer.graph,
    TensorMetadata: _Packer.shape,
    torch.SymInt: _Packer.symbolic,
    FakeTensor: _Packer.fake,
    type: _Packer.cls,
}
_PACK |= dict.fromkeys(_TENSORS, _Packer.tensor)
_PACK |= {
    type(f): _Packer.function for f in (len, _onnx, torch.Tensor.add, torch.ops.aten.add, torch.ops.aten.add.Tensor)
}

#: Base classes: instances of their subclasses travel as plain ones, an OrderedDict as a dict, a named tuple as a tuple.
_PLAIN: dict[type, Callable[[_Packer, Any, int], Any]] = {
    bool: lambda p, v, d: bool(v),
    int: lambda p, v, d: p.value(int.__add__(v, 0), d),
    float: lambda p, v, d: p.value(float.__float__(v), d),
    str: lambda p, v, d: str.__str__(v),
    tuple: lambda p, v, d: p.many("t", list(tuple.__iter__(v)), d),
    list: lambda p, v, d: p.many("l", list(list.__iter__(v)), d),
    collections.OrderedDict: lambda p, v, d: p.mapping(dict(collections.OrderedDict.items(v)), d),
    dict: lambda p, v, d: p.mapping(dict(dict.items(v)), d),
    set: lambda p, v, d: p.pack_set("s", list(set.__iter__(v)), d),
    frozenset: lambda p, v, d: p.pack_set("fs", list(frozenset.__iter__(v)), d),
    fx.Graph: _Packer.graph,
    nn.Module: _Packer.module,
    numpy.bool_: lambda p, v, d: bool(v),
    numpy.number: lambda p, v, d: p.value(v.item(), d),
    type: _Packer.cls,
}


def _base_packer(value: Any) -> Callable[[_Packer, Any, int], Any] | None:
    """Return how to pack an instance of another class: as the first plain base class in its MRO, or None."""
    for base in type.mro(type(value)):
        if base in _PLAIN:
            return _PLAIN[base]
    onnx = sys.modules.get("onnx")
    return _onnx if onnx is not None and type(value) is onnx.ModelProto else None
