"""torch.fx: `GraphModule`, `Graph`, and an `nn.Module`, which is traced first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.passes.shape_prop import TensorMetadata
from torch.utils._pytree import tree_leaves, tree_map_only

from passlab.graph import Graph, Node, kinds
from passlab.graph.assemble import UNKNOWN, Type, several, short, tensor_type
from passlab.judge.words import plural

#: Opcodes whose kind does not depend on a target.
_OPCODE_KIND = {"placeholder": "data", "get_attr": "data", "output": "data"}


def read(obj: Any, *inputs: Any) -> Graph:
    """Return the view of a GraphModule, a Graph or an nn.Module; `inputs`, if given, serve shape inference."""
    if not isinstance(obj, (fx.Graph, fx.GraphModule)):
        gm = symbolic_trace(obj)
        values = _need_shapes(gm, *inputs) if inputs else {}
        return from_nodes(list(gm.graph.nodes), "torch.fx", gm._get_name(), gm, values)
    graph, module = (obj, obj.owning_module) if isinstance(obj, fx.Graph) else (obj.graph, obj)
    values, failed, reason = {}, None, ""
    if inputs and isinstance(module, fx.GraphModule):
        values, failed, reason = find_shapes(module, *inputs)
    name = module._get_name() if module is not None else "graph"
    view = from_nodes(list(_walk(graph)), "torch.fx", name, module, values)
    if failed is not None:
        view.node(failed.name).attrs["error"] = reason
    return view


def _walk(graph: fx.Graph) -> Iterable[fx.Node]:
    """Yield the nodes of a graph, even if its linked list has become a ring."""
    visited = set()
    for node in graph.nodes:
        if node in visited:
            return
        visited.add(node)
        yield node


def from_nodes(
    fx_nodes: list[fx.Node], ir: str, name: str, module: torch.nn.Module | None = None, values: dict | None = None
) -> Graph:
    """Return the view of a list of FX nodes; `values` gives those of nodes where `node.meta` does not."""
    values, modules = values or {}, {}
    listed = dict.fromkeys(fx_nodes)
    missing = dict.fromkeys(used for node in fx_nodes for used in node.all_input_nodes if used not in listed)
    ids: dict[fx.Node, str] = {}
    names: set[str] = set()
    for node in [*fx_nodes, *missing]:  # names are unique within a graph, not across mixed graphs
        id, number = node.name, 1
        while id in names:
            id, number = f"{node.name}#{number}", number + 1
        names.add(id)
        ids[node] = id
    nodes = [Node(ids[node], "missing", "data", text=f"{ids[node]} is used but not in the graph") for node in missing]
    outputs: list[str] = []
    for node in fx_nodes:
        nodes.append(_node(node, ids, module, modules, values))
        if node.op == "output":
            outputs += [ids[used] for used in node.all_input_nodes]
    return Graph(name, ir, tuple(nodes), tuple(outputs), "\n".join(node.text for node in nodes))


def _node(node: fx.Node, ids: dict, module: torch.nn.Module | None, modules: dict, values: dict) -> Node:
    leaf = _leaf(module, node.target, modules) if node.op == "call_module" else None
    op, label = _op(node, leaf)
    meta = node.meta or {}
    value = values.get(node, meta.get("val", meta.get("tensor_meta", meta.get("example_value"))))
    shape, dtype, size = describe(value)
    if dtype is None and meta.get("type") in (bool, int, float):
        dtype = meta["type"].__name__
    attrs = {"opcode": node.op}
    if node.op in ("call_module", "get_attr"):
        attrs["target"] = node.target
    attrs |= {name: getattr(leaf, name, None) for name in getattr(leaf, "__constants__", ())}
    attrs |= {f"arg{i}": arg for i, arg in enumerate(node.args) if _constant(arg)}
    attrs |= {name: arg for name, arg in node.kwargs.items() if _constant(arg)}
    kind = _kind(node, op, leaf)
    if kind == "memory" and _writes(node, op, leaf):
        attrs["mutates"] = True
    if ids[node] != node.name:
        attrs["redefines"] = node.name
    return Node(
        id=ids[node],
        op=op,
        kind=kind,
        inputs=tuple(ids[used] for used in node.all_input_nodes),
        shape=shape,
        dtype=dtype,
        bytes=None if node.op == "output" else size,
        text=_text(node, op, ids[node]),
        attrs=attrs,
        label=label,
    )


def _leaf(module: torch.nn.Module | None, target: str, modules: dict) -> torch.nn.Module | None:
    """Return the module that a call_module node calls, or None if it does not exist."""
    if not isinstance(target, str):
        return None
    if target not in modules:
        try:
            modules[target] = module.get_submodule(target) if module is not None else None
        except AttributeError:
            modules[target] = None
    return modules[target]


def _op(node: fx.Node, leaf: torch.nn.Module | None) -> tuple[str, str]:
    """Return the operation's name, and the label to show beside it."""
    if node.op == "call_module":
        return (type(leaf).__name__ if leaf is not None else str(node.target)), str(node.target)
    if node.op == "get_attr":
        return "get_attr", str(node.target)
    if node.op == "call_function":
        return target_name(node.target), ""
    return (str(node.target) if node.op == "call_method" else node.op), ""


def target_name(target: Any) -> str:
    """Name a target: `relu` for torch.relu, `aten.relu` for aten.relu.default, `aten.add.Tensor` for others."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removesuffix(".default")
    return getattr(target, "__name__", None) or str(target)


def _kind(node: fx.Node, op: str, leaf: torch.nn.Module | None) -> str:
    if node.op in _OPCODE_KIND:
        return _OPCODE_KIND[node.op]
    if _writes(node, op, leaf):
        return "memory"
    if node.op == "call_module":
        return kinds.MODULES.get(op, "compute")
    bare = op.split(".")[1] if isinstance(node.target, torch._ops.OpOverload) else op
    return kinds.TORCH.get(bare) or kinds.TORCH.get(bare.strip("_"), "compute")


def _writes(node: fx.Node, op: str, leaf: torch.nn.Module | None) -> bool:
    """Return whether the node writes into existing storage, by its schema, its name, `out=` or `inplace=True`."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    if node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True or getattr(leaf, "inplace", False):
        return True
    if node.op == "call_module":
        return False
    if op.strip("_") in kinds.WRITING_OPERATORS:
        return True
    named_so = op.endswith("_") and not op.startswith("_")
    return named_so and getattr(node.target, "__module__", None) != "_operator"  # not for and_, or_, not_


def _constant(arg: Any) -> bool:
    """Return whether an operand holds no node."""
    holds = []
    fx.node.map_arg(arg, holds.append)
    return not holds


def _text(node: fx.Node, op: str, id: str) -> str:
    """Format the node as a line of Python: `relu = relu(linear)`."""
    if node.op == "placeholder":
        return f"{id} = input{f' (default {short(node.args[0])})' if node.args else ''}"
    if node.op == "get_attr":
        return f"{id} = self.{node.target}"
    if node.op == "output":
        return f"return {short(node.args[0]) if node.args else None}"
    operands = [short(arg) for arg in node.args] + [f"{name}={short(arg)}" for name, arg in node.kwargs.items()]
    if node.op == "call_method" and operands:
        return f"{id} = {operands[0]}.{op}({', '.join(operands[1:])})"
    called = f"self.{node.target}" if node.op == "call_module" else op
    return f"{id} = {called}({', '.join(operands)})"


def describe(value: Any) -> Type:
    """Return (shape, dtype, bytes) of a tensor, fake tensor, TensorMetadata, or a tuple or dict of them."""
    if isinstance(getattr(value, "dtype", None), torch.dtype) and hasattr(value, "shape"):
        return tensor_type(value.shape, str(value.dtype).removeprefix("torch."), value.dtype.itemsize)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        parts = [part for part in map(describe, value) if part[0] is not None]
        return several(parts) if len(parts) > 1 or not parts else ((parts[0][0],), *parts[0][1:])
    if isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return None, type(value).__name__.lower().removeprefix("sym"), None
    return UNKNOWN


def symbolic_trace(model: torch.nn.Module | Callable) -> fx.GraphModule:
    """Call `torch.fx.symbolic_trace`. The caller's module is not changed.

    Raises ValueError, which tells why the model cannot be traced and what to do.
    """
    try:
        with _attributes_kept(model):
            return fx.symbolic_trace(model)
    except Exception as error:
        reason = "its forward uses a tensor in a way that symbolic tracing, which has no values, cannot follow"
        if isinstance(error, fx.proxy.TraceError):
            reason = "its forward decides what to run by looking at values (an if, a while, a loop over a tensor)"
        raise ValueError(
            f"torch.fx cannot trace {type(model).__name__}{_line_of(error)}: {reason}. View torch.jit.script(model) "
            f"or torch.export.export(model, inputs) instead. (torch says: {type(error).__name__}: {error})"
        ) from error


@contextmanager
def _attributes_kept(model: torch.nn.Module | Callable) -> Iterator[None]:
    """Restore the attributes of all modules: where a forward caches what it computes, tracing leaves proxies there."""
    before = [
        (vars(module), dict(vars(module)), {k: copy(v) for k, v in vars(module).items() if type(v) in (dict, list)})
        for module in (model.modules() if isinstance(model, torch.nn.Module) else ())
    ]
    try:
        yield
    finally:
        for attributes, values, contents in before:
            attributes.clear()
            attributes.update(values)
            for name, value in contents.items():
                values[name].clear()
                (values[name].update if isinstance(value, dict) else values[name].extend)(value)


def _line_of(error: BaseException) -> str:
    """Return " (line 12 of forward)" for the innermost line outside torch."""
    place, step = "", error.__traceback__
    while step:
        code = step.tb_frame.f_code
        if (
            f"{os.sep}torch{os.sep}" not in code.co_filename
            and "passlab" not in code.co_filename
            and code.co_name != "module_call_wrapper"
        ):
            place = f" (line {step.tb_lineno} of {code.co_name})"
        step = step.tb_next
    return place


class _Shapes(fx.Interpreter):
    """Runs a graph on stand-ins for all tensors and keeps the metadata of each value: shape, dtype, strides, no data.

    Parameters and buffers have stand-ins too: a batch norm in training writes its statistics into those.
    """

    def __init__(self, module: fx.GraphModule, stand_in: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__(module, garbage_collect_values=False)
        self.extra_traceback = False  # else torch adds the node and a hint at a log viewer to the error
        self.stand_in = stand_in
        self.metadata: dict[fx.Node, Any] = {}

    def run_each(self, nodes: list[fx.Node], inputs: tuple) -> None:
        """Do what `run` does on this list of nodes: `run` never returns if the graph's own list is a ring."""
        self.args_iter = iter(tree_map_only(torch.Tensor, self.stand_in, inputs))
        last_use = {used: node for node in nodes for used in node.all_input_nodes}
        for node in nodes:
            self.env[node] = value = self.run_node(node)
            self.metadata[node] = fx.node.map_aggregate(value, _metadata)
            for used in node.all_input_nodes:
                if last_use[used] is node:
                    del self.env[used]

    def fetch_attr(self, target: str) -> Any:
        value = super().fetch_attr(target)
        return self.stand_in(value) if isinstance(value, torch.Tensor) else value

    def call_module(self, target: str, args: tuple, kwargs: dict) -> Any:
        leaf = self.module.get_submodule(target)
        state = {name: self.stand_in(tensor) for name, tensor in [*leaf.named_parameters(), *leaf.named_buffers()]}
        return torch.func.functional_call(leaf, state, args, kwargs)


def _metadata(value: Any) -> Any:
    """Return the metadata that ShapeProp keeps. (Its own function would load sympy, a third of a second.)"""
    if not isinstance(value, torch.Tensor):
        return value
    formats = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d) if _strided(value) else ()
    fits = (f for f in formats if value.dim() in _RANKS.get(f, (value.dim(),)) and value.is_contiguous(memory_format=f))
    stride = value.stride() if formats else ()
    return TensorMetadata(
        value.shape, value.dtype, value.requires_grad, stride, next(fits, None), value.is_quantized, {}
    )


def _strided(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_quantized


#: Ranks for which a memory format is defined; contiguous is for all.
_RANKS = {torch.channels_last: (4,), torch.channels_last_3d: (5,)}


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def _without_data(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


class Inference(NamedTuple):
    """The inferred shapes: node → TensorMetadata; after a failure, the node (None: the inputs) and the reason."""

    metadata: dict[fx.Node, Any]
    failed: fx.Node | None
    why: str


def find_shapes(gm: fx.GraphModule, *inputs: Any) -> Inference:
    """Infer the shapes of a graph's values.

    This takes one run on copies, or one without data if an input is on the meta device. Neither `gm`, `inputs` nor the
    random state change. A graph that uses a value before it is defined is not run.
    """
    nodes, visited = list(_walk(gm.graph)), set()
    for node in nodes:
        if not visited.issuperset(node.all_input_nodes):
            return Inference({}, node, "it uses a value that is not defined before it")
        visited.add(node)
    inputs = gm.graph.process_inputs(*inputs)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    least = sum(1 for node in placeholders if not node.args)
    if not least <= len(inputs) <= len(placeholders) and not any(
        str(node.target).startswith("*") for node in placeholders
    ):
        return Inference({}, None, f"it takes {plural(least, 'input')} and got {len(inputs)}")

    dataless = any(isinstance(leaf, torch.Tensor) and leaf.is_meta for leaf in tree_leaves(inputs))
    shapes = _Shapes(gm, _without_data if dataless else _copy)
    devices = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices), torch.device("meta") if dataless else nullcontext():
            shapes.run_each(nodes, inputs)
    except Exception as error:
        failed = next((node for node in nodes if node not in shapes.metadata), None)
        reason = str(error).strip().split("\n")[0].rstrip(".!") or type(error).__name__
        return Inference(shapes.metadata, failed, reason)
    return Inference(shapes.metadata, None, "")


def _need_shapes(gm: fx.GraphModule, *inputs: Any) -> dict[fx.Node, Any]:
    """Call `find_shapes`; raise ValueError with the node that does not accept these inputs."""
    values, node, reason = find_shapes(gm, *inputs)
    if reason:
        types = ", ".join(_type_text(value) for value in inputs)
        where = f" at node {node.name} ({_text(node, *_op(node, None)[:1], node.name)})" if node is not None else ""
        raise ValueError(f"{gm._get_name()} does not run on the inputs ({types}){where}: {reason}.")
    return values


def _type_text(value: Any) -> str:
    shape, dtype, _ = describe(value)
    return f"{dtype}{list(shape)}" if shape is not None else short(value)


def trace(model: torch.nn.Module | Callable, *inputs: Any) -> fx.GraphModule:
    """Trace `model` with torch.fx.symbolic_trace, with shapes on its nodes (`node.meta["tensor_meta"]`) when `inputs`
    are given.

    The inputs are kept in `gm.meta["inputs"]`. Shape inference is one run on copies: batch-norm statistics, the inputs
    and the random state do not change. Parameters are shared with `model`, as in torch. Raise ValueError if torch.fx
    cannot trace the model, or if it does not run on the inputs.
    """
    gm = symbolic_trace(model)
    if inputs:
        for node, value in _need_shapes(gm, *inputs).items():
            if any(isinstance(leaf, TensorMetadata) for leaf in _leaves(value)):
                node.meta["tensor_meta"] = value
            elif isinstance(value, (bool, int, float)):
                node.meta["type"] = type(value)
        gm.meta["inputs"] = inputs
    return gm


def _leaves(value: Any) -> list:
    """Return the leaves of nested tuples, lists and dicts; a TensorMetadata (itself a tuple) is one leaf."""
    return tree_leaves(value, is_leaf=lambda part: isinstance(part, TensorMetadata))
