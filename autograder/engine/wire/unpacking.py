"""Turn a document into the value it describes. The document may have been written by an attacker.

    value = unpack(document, blobs)

Nothing in it is imported, called, evaluated or resolved with getattr; names are looked up in the tables of `kinds`,
`targets` and `modules`. Text that becomes Python code when a graph is compiled (names of nodes, keywords, paths, text
operands) is checked here, because torch.fx writes it into the code verbatim. Anything that `packing` would not write
raises Refused or another exception, which `wire.decode` turns into Refused.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import TensorMetadata

from autograder.engine.wire import kinds, modules, targets
from autograder.engine.wire.symbols import Symbols, is_text
from passlab.fx import isolation
from passlab.graph import registry
from passlab.judge import travel
from passlab.process.refusal import Refused

_MOST = 2**62


def unpack(document: Any, blobs: dict[str, bytes]) -> Any:
    """Return the value of a document. blobs: number of a storage → its bytes. Raises Refused and other exceptions."""
    root, *tables = _rows(document, 6)
    return _Unpacker(blobs, *tables).value(root, 0)


def _rows(value: Any, length: int | None = None, most: int = kinds.ITEMS) -> list:
    """Return `value` if it is a list of that length. Raises Refused otherwise, as do the functions below."""
    if type(value) is not list or len(value) > most or (length is not None and len(value) != length):
        raise Refused("The payload has something else where a list of a certain length belongs.")
    return value


def _number(value: Any, most: int = _MOST) -> int:
    """Return `value` if it is an integer from 0 to `most`."""
    if type(value) is not int or not 0 <= value <= most:
        raise Refused("The payload has something else where a number belongs, or the number is out of range.")
    return value


def _text(value: Any, most: int = kinds.NAME) -> str:
    if type(value) is not str or len(value) > most:
        raise Refused("The payload has something else where a name belongs, or the name is too long.")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise Refused("The payload has something else where true or false belongs.")
    return value


def _entry(table: Mapping[str, Any], name: Any) -> Any:
    """Return the entry of a table with this name."""
    if type(name) is not str or name not in table:
        raise Refused("The payload uses a name that is not in the table for it.")
    return table[name]


class _Unpacker:
    """The objects of a document's tables, built in the order in which the tables refer to each other."""

    def __init__(self, blobs: dict[str, bytes], storages: Any, tensors: Any, shapes: Any, parts: Any, graphs: Any):
        self.items = 0
        self.bytes = 0
        self.inside: list[fx.Node] | None = None
        self.symbols = Symbols()
        self.noted = False  # while the notes of a node are read
        self.graphs: list[fx.Graph] = []
        self.aside = fx.Graph()  # owns all nodes that claim to belong to another graph
        self.modules: list[nn.Module] = []
        self.graph_nodes: list[list[fx.Node]] = []
        many, few = kinds.TENSORS, kinds.MODULES
        self.storages = [self._storage(row, blobs.get(str(i))) for i, row in enumerate(_rows(storages, most=many))]
        self.tensors = [self._tensor(row) for row in _rows(tensors, most=many)]
        self.noted = True
        self.shapes = [self._shape(row) for row in _rows(shapes, most=many)]
        self.noted = False
        rows = [_rows(row, 2) for row in _rows(graphs, most=few)]
        if sum(len(_rows(nodes)) + len(_rows(strays)) for nodes, strays in rows) > kinds.NODES:
            raise Refused(f"The payload contains more than {kinds.NODES:,} nodes.")
        # All nodes first: operands may refer to later nodes, or to nodes outside the graph.
        self.graphs = [self._bare_graph(nodes, strays) for nodes, strays in rows]
        for graph, nodes, (written, _) in zip(self.graphs, self.graph_nodes, rows, strict=True):
            self._operands(graph, nodes, written)
        for row in _rows(parts, most=few):
            self.modules.append(self._module(row))

    # ------------------------------------------------------------------------------------------------ plain values

    def value(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is str:
            if self.inside is not None and not kinds.is_text(value):
                raise Refused("The payload has a text operand that torch.fx reserves for itself.")
            return value
        if kind is int:
            if not -(2**63) <= value < 2**63:
                raise Refused("The payload has a number of more than 64 bits.")
            return value
        if kind is not list or not value or type(value[0]) is not str:
            raise Refused("The payload has something else where a tagged list belongs.")
        if depth > kinds.DEPTH:
            raise Refused(f"The payload is nested more than {kinds.DEPTH} levels deep.")
        tag = value[0]
        if self.inside is not None and tag not in kinds.OPERANDS:
            raise Refused("The payload has an operand that is not a node, a number or text.")
        self.items += len(value)
        if self.items > kinds.ITEMS:
            raise Refused(f"The payload contains more than {kinds.ITEMS:,} values.")
        return _entry(_UNPACK, tag)(self, value, depth + 1)

    def many(self, row: list, depth: int) -> list:
        return [self.value(v, depth) for v in row[1:]]

    def mapping(self, row: list, depth: int) -> dict:
        flat = self.many(row, depth)
        made = dict(zip(flat[::2], flat[1::2], strict=True))
        if 2 * len(made) != len(flat):
            raise Refused("The payload contains a dict with a duplicate key.")
        return made

    def big(self, row: list, depth: int) -> int:
        return int(_text(_rows(row, 2)[1], kinds.DIGITS + 1), 16)

    def odd_float(self, row: list, depth: int) -> float:
        return _entry({"nan": math.nan, "inf": math.inf, "-inf": -math.inf}, _rows(row, 2)[1])

    def complex(self, row: list, depth: int) -> complex:
        real, imag = self.many(_rows(row, 3), depth)
        if type(real) is not float or type(imag) is not float:
            raise Refused("The payload contains a complex number whose parts are not floats.")
        return complex(real, imag)

    def bytes_(self, row: list, depth: int) -> bytes:
        return base64.b64decode(_text(_rows(row, 2)[1], kinds.PAYLOAD_BYTES), validate=True)

    def range_(self, row: list, depth: int) -> range:
        bounds = self.many(_rows(row, 4), depth)
        if not all(type(b) is int for b in bounds):
            raise Refused("The payload contains a range whose bounds are not integers.")
        return range(*bounds)

    def size(self, row: list, depth: int) -> torch.Size:
        return torch.Size([_number(n) for n in row[1:]])

    def record(self, row: list, depth: int) -> Any:
        cls = _entry(kinds.RECORDS, row[1])
        instance = cls(*[self.value(v, depth) for v in row[2:]])
        if not travel.fits(instance):
            raise Refused("The payload holds a record whose fields are not what they are declared as.")
        return instance

    def device(self, row: list, depth: int) -> torch.device:
        return torch.device(_text(_rows(row, 2)[1], 20))

    def function(self, row: list, depth: int) -> Callable:
        target = targets.by_name(_text(_rows(row, 2)[1]))
        if target is None:
            raise Refused("The payload uses a function that a graph may not call.")
        return target

    def model(self, row: list, depth: int) -> Any:
        import onnx  # slow, and rarely needed

        return onnx.ModelProto.FromString(self.bytes_(row, depth))

    def module_of_ir(self, row: list, depth: int) -> Any:
        _, package, data = _rows(row, 3)
        known = [ir.package for ir in registry.TYPES.values()]
        codec = registry.find_module(package, "wire") if package in known else None
        if codec is None:
            raise Refused("The payload contains a module of an IR whose modules do not travel.")
        data = self.value(data, depth)
        if type(data) is not torch.Tensor or data.dtype is not torch.uint8:
            raise Refused("The payload contains a module whose data is not a tensor of bytes.")
        return codec.decode(data.numpy().tobytes())

    def entry(self, table: list, row: list) -> Any:
        return table[_number(_rows(row, 2)[1], len(table) - 1)]

    def node(self, row: list, depth: int) -> fx.Node:
        if self.inside is None:
            raise Refused("The payload has an operand outside a graph.")
        return self.entry(self.inside, row)

    def node_of_graph(self, row: list, depth: int) -> fx.Node:
        _, graph, place = _rows(row, 3)
        nodes = self.graph_nodes[_number(graph, len(self.graph_nodes) - 1)]
        return nodes[_number(place, len(nodes) - 1)]

    # ------------------------------------------------------------------------------------------------------ tensors

    def _storage(self, row: Any, blob: bytes | None) -> torch.UntypedStorage:
        size, device = _rows(row, 2)
        if _entry({"cpu": False, "meta": True}, device):
            return torch.UntypedStorage(_number(size), device="meta")
        if _number(size, kinds.PAYLOAD_BYTES) == 0:
            return torch.UntypedStorage(0)
        if blob is None or len(blob) != size:
            raise Refused("The payload has a tensor whose bytes do not match its table.")
        # Copied because torch needs aligned, writable memory.
        return torch.frombuffer(bytearray(blob), dtype=torch.uint8).clone().untyped_storage()

    def _tensor(self, row: Any) -> torch.Tensor:
        memory, name, shape, stride, offset, flags = _rows(row, 6)
        storage = self.storages[_number(memory, len(self.storages) - 1)]
        dtype = _entry(kinds.DTYPES, name)
        sizes = [_number(n) for n in _rows(shape, most=kinds.DIMENSIONS)]
        steps = [_number(n) for n in _rows(stride, len(sizes))]
        flags = _number(flags, 15)
        count, reach = math.prod(sizes), _number(offset)
        if count:
            reach += 1 + sum((n - 1) * step for n, step in zip(sizes, steps, strict=True))
        if reach * dtype.itemsize > storage.nbytes() or count > _MOST:
            raise Refused("The payload contains a tensor that reaches beyond its memory.")
        if storage.device.type == "cpu":
            self.bytes += count * dtype.itemsize
            if self.bytes > kinds.TENSOR_BYTES:
                raise Refused(f"The payload contains tensors of more than {kinds.TENSOR_BYTES >> 30} GiB.")
        grad, parameter, conjugate, negative = (bool(flags >> i & 1) for i in range(4))
        if (grad and not (dtype.is_floating_point or dtype.is_complex)) or (conjugate and not dtype.is_complex):
            raise Refused("The payload contains a tensor whose flags do not fit its dtype.")
        tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, sizes, steps)
        tensor = tensor.conj() if conjugate else tensor
        tensor = torch._neg_view(tensor) if negative else tensor
        return nn.Parameter(tensor, requires_grad=grad) if parameter else tensor.requires_grad_(grad)

    def _shape(self, row: Any) -> TensorMetadata:
        shape, dtype, grad, stride, memory_format = _rows(row, 5)
        sizes = [self._sizes(_rows(part, most=kinds.DIMENSIONS)) for part in (shape, stride)]
        kind, laid = self.value(dtype, 0), self.value(memory_format, 0)
        if type(kind) is not torch.dtype or not (laid is None or type(laid) is torch.memory_format):
            raise Refused("The payload contains a shape whose dtype or memory format is invalid.")
        return TensorMetadata(torch.Size(sizes[0]), kind, _flag(grad), sizes[1], laid, False, {})

    def symbolic(self, row: list, depth: int) -> torch.SymInt:
        _, text, number = _rows(row, 3)
        if not self.noted or not is_text(text) or type(number) is not int or abs(number) > _MOST:
            raise Refused("The payload contains a symbolic size without a text or a number.")
        return self.symbols.size(text, number)

    def _sizes(self, values: list) -> tuple[Any, ...]:
        """Return sizes or strides, each a number or a symbol that stands for one."""
        return tuple(self.symbolic(n, 0) if type(n) is list and n[:1] == ["sy"] else _number(n) for n in values)

    def fake(self, row: list, depth: int) -> torch.Tensor:
        _, shape, stride, dtype, grad = _rows(row, 5)
        sizes, strides = (self._sizes(_rows(part, most=kinds.DIMENSIONS)[1:]) for part in (shape, stride))
        kind = self.value(dtype, depth)
        if not self.noted or type(kind) is not torch.dtype or len(sizes) != len(strides):
            raise Refused("The payload contains a tensor without data whose dtype or sizes are invalid.")
        return self.symbols.tensor(sizes, strides, kind, _flag(grad))

    # ------------------------------------------------------------------------------------------------------ modules

    def _module(self, row: Any) -> nn.Module:
        row = _rows(row)
        traced = bool(row) and row[0] == "GraphModule"
        name, training, *parts = _rows(row, 9 if traced else 6)
        if not traced:
            module = modules.blank(_entry(modules.CLASSES, name))
            self._parts(module, training, parts)
            modules.remake(module)
            isolation.mark(module)
            return module
        graph, called, notes = parts[4:]
        if not kinds.is_word(called):
            raise Refused("The payload contains a GraphModule whose class has an invalid name.")
        gm = modules.lazy_graph_module(called)
        self._parts(gm, training, parts[:4])
        gm.meta.update(self._notes(notes, ("inputs",)))
        self._graph_of(gm, self.graphs[_number(graph, len(self.graphs) - 1)])
        return gm

    def _parts(self, module: nn.Module, training: Any, parts: list) -> None:
        state = vars(module)
        state["training"] = _flag(training)
        for name, value in self._name_rows(parts[0]):
            state["_parameters"][name] = self._part(value, nn.Parameter)
        for name, value, transient in self._name_rows(parts[1], 3):
            state["_buffers"][name] = self._part(value, torch.Tensor)
            if _flag(transient):
                state["_non_persistent_buffers_set"].add(name)
        for name, value in self._name_rows(parts[2]):
            state["_modules"][name] = self._part(value, nn.Module)
        for name, value in self._name_rows(parts[3]):
            if not modules.may_be_set(type(module), name):
                raise Refused("The payload gives a module a setting that would hide a part of its class.")
            state[name] = self.value(value, 0)
            if modules.hides_tensor(type(module), state[name]):
                raise Refused("The payload gives a layer a tensor that is no parameter or buffer of it.")

    def _name_rows(self, rows: Any, length: int = 2) -> list[list]:
        rows = [_rows(row, length) for row in _rows(rows)]
        names = {_text(row[0]) for row in rows}
        if len(names) != len(rows) or any("." in name or name.startswith("__") for name in names):
            raise Refused("The payload contains a module whose parts have invalid or duplicate names.")
        return rows

    def _part(self, value: Any, cls: type) -> Any:
        made = self.value(value, 0)
        if made is not None and not isinstance(made, cls):
            raise Refused(f"The payload has something else where a {cls.__name__} belongs.")
        return made

    def _graph_of(self, gm: fx.GraphModule, graph: fx.Graph) -> None:
        """Give a GraphModule its graph. Its nodes may refer to parts of the module, and to names it does not have."""
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module") and modules.part(gm, node.target) == "other":
                raise Refused("The payload contains a graph that refers to a method or an internal field of torch.")
        modules.with_graph(gm, graph)

    # ------------------------------------------------------------------------------------------------------- graphs

    def _bare_graph(self, written: list, strays: list) -> fx.Graph:
        """Return a graph with its nodes in order, still without operands. Foreign nodes belong to the side graph."""
        graph, aside, nodes = fx.Graph(), self.aside, []
        for row in written:
            name, op, target, _, _, kind, notes, foreign = _rows(row, 8)
            node = _append_node(graph, aside if _flag(foreign) else graph, _text(name), op, self._target(op, target))
            node.type = self._annotation(kind)
            node.meta = self._notes(notes, kinds.NOTES)
            isolation.mark(node)
            nodes.append(node)
        for row in strays:
            name, foreign = _rows(row, 2)
            nodes.append(_stray_node(aside if _flag(foreign) else graph, aside, _text(name)))
        self.graph_nodes.append(nodes)
        return graph

    def _target(self, op: Any, target: Any) -> Any:
        if op == "call_function":
            tag, what = _rows(target, 2)
            if tag == "no" and (what is None or type(what) in (bool, int, float, str)):
                return _Uncallable(what)
            return self.function(target, 0) if tag == "fn" else _entry({}, tag)
        fits = {
            "placeholder": kinds.is_parameter,
            "get_attr": kinds.is_path,
            "call_module": kinds.is_path,
            "call_method": targets.METHODS.__contains__,
            "output": "output".__eq__,
        }
        if not _entry(fits, op)(_text(target)):
            raise Refused(f"The payload has a {op} node with an invalid target.")
        return target

    def _annotation(self, kind: Any) -> Any:
        if kind is None or type(kind) is str:
            return kind and _text(kind)
        tag, name = _rows(kind, 2)
        return _entry(kinds.CLASSES, name) if tag == "ty" else _entry({}, tag)

    def _notes(self, notes: Any, keys: tuple[str, ...]) -> dict[str, Any]:
        self.noted = True
        made = self.value(notes, 0)
        self.noted = False
        if type(made) is not dict or not set(made) <= set(keys):
            raise Refused("The payload contains metadata under an unknown key.")
        return made

    def _operands(self, graph: fx.Graph, nodes: list[fx.Node], written: list) -> None:
        self.inside = nodes
        for node, row in zip(nodes, written, strict=False):
            args, kwargs = self.value(row[3], 0), self.value(row[4], 0)
            if type(args) is not tuple or type(kwargs) is not dict or not all(map(kinds.is_word, kwargs)):
                raise Refused("The payload has a node with invalid operands.")
            if node.target is getattr and (
                len(args) < 2 or type(args[1]) is not str or args[1] not in targets.ATTRIBUTES
            ):
                raise Refused("The payload has a node that reads an attribute that a graph may not read.")
            if targets.barred_argument(node.target, kwargs):
                raise Refused("The payload has a node with a keyword argument that a graph may not give.")
            node._update_args_kwargs(args, kwargs)
            if isinstance(node.target, _Uncallable):
                fx.Node.__setattr__(node, "target", node.target.what)
        self.inside = None


class _Uncallable:
    """A stand-in, while a call_function node is made, for a target that cannot be called."""

    def __init__(self, what: Any):
        self.what = what

    def __call__(self) -> None:
        """Do nothing. Never called: torch.fx only checks that a target is callable."""


def _append_node(graph: fx.Graph, owner: fx.Graph, name: str, op: str, target: Any) -> fx.Node:
    """Append a node to a graph as `Graph.create_node` does. owner: the graph that the node claims to belong to."""
    names = graph._graph_namespace
    node = fx.Node(graph, names.create_name(name, None), op, target, (), {}, None)
    names.associate_name_with_obj(node.name, node)
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    if owner is not graph:
        node.graph = owner
    return node


def _stray_node(owner: fx.Graph, names: fx.Graph, name: str) -> fx.Node:
    """Return a node that is in no node list: one that was erased, or one of another graph."""
    return fx.Node(owner, names._graph_namespace.create_name(name, None), "placeholder", "elsewhere", (), {}, None)


#: Tag → how to unpack it.
_UNPACK: dict[str, Callable[[_Unpacker, list, int], Any]] = {
    "t": lambda u, r, d: tuple(u.many(r, d)),
    "l": _Unpacker.many,
    "d": _Unpacker.mapping,
    "s": lambda u, r, d: set(u.many(r, d)),
    "fs": lambda u, r, d: frozenset(u.many(r, d)),
    "i": _Unpacker.big,
    "f": _Unpacker.odd_float,
    "c": _Unpacker.complex,
    "b": _Unpacker.bytes_,
    "sl": lambda u, r, d: slice(*u.many(_rows(r, 4), d)),
    "r": _Unpacker.range_,
    "...": lambda u, r, d: ...,
    "dt": lambda u, r, d: _entry(kinds.DTYPES, _rows(r, 2)[1]),
    "mf": lambda u, r, d: _entry(kinds.FORMATS, _rows(r, 2)[1]),
    "lo": lambda u, r, d: _entry(kinds.LAYOUTS, _rows(r, 2)[1]),
    "ty": lambda u, r, d: _entry(kinds.CLASSES, _rows(r, 2)[1]),
    "dv": _Unpacker.device,
    "sz": _Unpacker.size,
    "fn": _Unpacker.function,
    "rec": _Unpacker.record,
    "o": _Unpacker.model,
    "ir": _Unpacker.module_of_ir,
    "T": lambda u, r, d: u.entry(u.tensors, r),
    "sh": lambda u, r, d: u.entry(u.shapes, r),
    "sy": _Unpacker.symbolic,
    "ft": _Unpacker.fake,
    "M": lambda u, r, d: u.entry(u.modules, r),
    "G": lambda u, r, d: u.entry(u.graphs, r),
    "n": _Unpacker.node,
    "N": _Unpacker.node_of_graph,
}
