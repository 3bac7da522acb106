"""torch.fx: `GraphModule`, `Graph`, and an `nn.Module`, which is traced first."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from passlab.graph import Graph, Node

#: Names of functions, methods and (in lower case) leaf modules, by kind. What is in no row computes.
KIND = {
    "data": "tensor zeros ones full empty arange linspace eye scalar_tensor zeros_like ones_like full_like empty_like "
    "new_zeros new_ones new_full new_empty new_tensor as_tensor lift_fresh_copy",
    "shape": "reshape reshape_as view view_as permute transpose t mT swapaxes swapdims movedim moveaxis adjoint "
    "flatten unflatten ravel squeeze unsqueeze expand expand_as broadcast_to broadcast_tensors repeat "
    "repeat_interleave tile cat concat concatenate stack hstack vstack dstack split chunk tensor_split unbind getitem "
    "select narrow slice index_select gather take take_along_dim flip roll rot90 pad constantpad1d constantpad2d "
    "zeropad2d reflectionpad2d replicationpad2d pixel_shuffle pixelshuffle pixel_unshuffle pixelunshuffle "
    "channelshuffle unfold as_strided diagonal tril triu size dim numel shape getattr stride is_contiguous len "
    "detach alias identity view_as_real view_as_complex real imag unsafe_view _unsafe_view sym_size",
    "control": "cond while_loop map scan if_else _assert _assert_async _assert_scalar _assert_tensor_metadata "
    "sym_constrain_range sym_constrain_range_for_size map_impl associative_scan",
    "memory": "setitem clone contiguous copy copy_ to_copy cpu cuda resize_ set_ out",
}
_KIND_OF = {name: kind for kind, names in KIND.items() for name in names.split()}

#: Opcodes whose kind does not hang on a target.
_OPCODE_KIND = {"placeholder": "data", "get_attr": "data", "output": "data"}

#: operator.iadd and its kin write into their first operand.
_INPLACE_OPERATORS = {
    f"i{name}" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "pow", "and", "or")
}
_INPLACE_OPERATORS |= {"ixor", "ilshift", "irshift", "iconcat"}

#: Longest text kept of one constant operand: a list of 10,000 numbers is cut.
_LONGEST = 200


def read(obj: Any, *inputs: Any) -> Graph:
    """The view of a GraphModule, a Graph, or an nn.Module; `inputs`, when given, are used to find shapes."""
    if isinstance(obj, fx.Graph):
        graph, module = obj, obj.owning_module
    else:
        module = obj if isinstance(obj, fx.GraphModule) else symbolic_trace(obj)
        graph = module.graph
    found = find_shapes(module, *inputs) if inputs and module is not None else {}
    name = type(obj).__name__ if isinstance(obj, torch.nn.Module) else "graph"
    return from_nodes(list(_walk(graph)), "torch.fx", getattr(module, "_get_name", lambda: name)(), module, found)


def _walk(graph: fx.Graph) -> Iterable[fx.Node]:
    """The nodes of a graph, also when its linked list was bent into a ring."""
    seen = set()
    for node in graph.nodes:
        if node in seen:
            return
        seen.add(node)
        yield node


def from_nodes(
    fx_nodes: list[fx.Node], ir: str, name: str, module: torch.nn.Module | None = None, found: dict | None = None
) -> Graph:
    """The view of a list of FX nodes; `found` gives values by node where `node.meta` does not."""
    found, modules = found or {}, {}
    listed = dict.fromkeys(fx_nodes)
    missing = dict.fromkeys(used for node in fx_nodes for used in node.all_input_nodes if used not in listed)
    ids: dict[fx.Node, str] = {}
    taken: set[str] = set()
    for node in [*fx_nodes, *missing]:  # names are unique in one graph, not across graphs that were mixed up
        id, number = node.name, 1
        while id in taken:
            id, number = f"{node.name}#{number}", number + 1
        taken.add(id)
        ids[node] = id
    nodes = [Node(ids[node], "missing", "data", text=f"{ids[node]} is used and not in the graph") for node in missing]
    outputs: list[str] = []
    for node in fx_nodes:
        nodes.append(_node(node, ids, module, modules, found))
        if node.op == "output":
            outputs += [ids[used] for used in node.all_input_nodes]
    return Graph(name, ir, tuple(nodes), tuple(outputs), "\n".join(node.text for node in nodes))


def _node(node: fx.Node, ids: dict, module: torch.nn.Module | None, modules: dict, found: dict) -> Node:
    leaf = _leaf(module, node.target, modules) if node.op == "call_module" else None
    op, label = _op(node, leaf)
    value = found.get(node, node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value"))))
    shape, dtype, size = describe(value)
    attrs = {"opcode": node.op}
    if node.op in ("call_module", "get_attr"):
        attrs["target"] = node.target
    attrs |= {name: getattr(leaf, name, None) for name in getattr(leaf, "__constants__", ())}
    attrs |= {f"arg{i}": arg for i, arg in enumerate(node.args) if _constant(arg)}
    attrs |= {name: arg for name, arg in node.kwargs.items() if _constant(arg)}
    return Node(
        id=ids[node],
        op=op,
        kind=_kind(node, op, leaf),
        inputs=tuple(ids[used] for used in node.all_input_nodes),
        shape=shape,
        dtype=dtype,
        bytes=None if node.op == "output" else size,
        text=_text(node, op, ids[node]),
        attrs=attrs,
        label=label,
    )


def _leaf(module: torch.nn.Module | None, target: str, modules: dict) -> torch.nn.Module | None:
    """The module a call_module node calls, or None where there is none of that name."""
    if target not in modules:
        try:
            modules[target] = module.get_submodule(target) if module is not None else None
        except AttributeError:
            modules[target] = None
    return modules[target]


def _op(node: fx.Node, leaf: torch.nn.Module | None) -> tuple[str, str]:
    """The operation's name, and the label to show beside it."""
    if node.op == "call_module":
        return (type(leaf).__name__ if leaf is not None else str(node.target)), str(node.target)
    if node.op == "get_attr":
        return "get_attr", str(node.target)
    if node.op == "call_function":
        return target_name(node.target), ""
    return (str(node.target) if node.op == "call_method" else node.op), ""


def target_name(target: Any) -> str:
    """`relu` for torch.relu, `aten.relu` for torch.ops.aten.relu.default, `aten.add.Tensor` for another overload."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target).removesuffix(".default")
    return getattr(target, "__name__", None) or str(target)


def _kind(node: fx.Node, op: str, leaf: torch.nn.Module | None) -> str:
    if node.op in _OPCODE_KIND:
        return _OPCODE_KIND[node.op]
    if node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True or getattr(leaf, "inplace", False):
        return "memory"
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        return "memory"
    bare = op.split(".")[1] if "." in op and node.op == "call_function" else op
    bare = bare if node.op != "call_module" else bare.lower()
    if bare in _KIND_OF:
        return _KIND_OF[bare]
    if node.op != "call_module" and (bare in _INPLACE_OPERATORS or (bare.endswith("_") and not bare.endswith("__"))):
        return "memory"
    return _KIND_OF.get(bare.strip("_"), "compute") if bare.startswith("__") else "compute"


def _constant(arg: Any) -> bool:
    """Does this operand hold no node?"""
    holds = []
    fx.node.map_arg(arg, holds.append)
    return not holds


def _text(node: fx.Node, op: str, id: str) -> str:
    """The node as a line of Python: `relu = relu(linear)`."""
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


def short(arg: Any) -> str:
    """`repr`, cut when long, and never an error."""
    try:
        text = repr(arg)
    except Exception as error:
        text = f"<{type(arg).__name__}: {type(error).__name__} in its repr>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def describe(value: Any) -> tuple[tuple | None, str | None, int | None]:
    """(shape, dtype, bytes) of a tensor, fake tensor, TensorMetadata, or a tuple or dict of them."""
    if hasattr(value, "shape") and hasattr(value, "dtype") and isinstance(value.dtype, torch.dtype):
        shape = tuple(dim if type(dim) is int else str(dim) for dim in value.shape)
        size = value.dtype.itemsize
        for dim in shape:
            size = size * dim if size is not None and type(dim) is int else None
        return shape, str(value.dtype).removeprefix("torch."), size
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        parts = [part for part in map(describe, value) if part[0] is not None]
        if parts:
            shapes, dtypes, sizes = zip(*parts, strict=True)
            dtype = dtypes[0] if len(set(dtypes)) == 1 else ", ".join(dtypes)
            return shapes, dtype, None if None in sizes else builtins.sum(sizes)
    if isinstance(value, (bool, int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return None, type(value).__name__.lower().removeprefix("sym"), None
    return None, None, None


def symbolic_trace(model: torch.nn.Module) -> fx.GraphModule:
    """`torch.fx.symbolic_trace`, whose failure says what to do. The caller's module is not changed."""
    try:
        return fx.symbolic_trace(model)
    except fx.proxy.TraceError as error:
        why = "it decides what to run by looking at a tensor's values (an if, a while, or a loop over a tensor)"
        raise ValueError(
            f"torch.fx cannot trace {type(model).__name__}: {why}, and symbolic tracing has no values. "
            f"Use torch.export with torch.cond, or torch.jit.script, and view that. (torch says: {error})"
        ) from error


class _Shapes(fx.Interpreter):
    """Runs a graph on fake tensors and keeps what each node gave."""

    def __init__(self, module: fx.GraphModule):
        super().__init__(module, garbage_collect_values=False)
        self.found: dict[fx.Node, Any] = {}

    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        self.found[node] = value
        return value


def find_shapes(gm: fx.GraphModule, *inputs: Any) -> dict[fx.Node, Any]:
    """Node → a value of the right shape and dtype without data. Neither `gm`, `inputs` nor the random state change."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map_only

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = tree_map_only(torch.Tensor, mode.from_tensor, inputs)
    shapes = _Shapes(gm)
    with mode, torch.no_grad():
        shapes.run(*fakes)
    return shapes.found


def trace(model: torch.nn.Module, *inputs: Any) -> fx.GraphModule:
    """See `passlab.trace`."""
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    gm = symbolic_trace(model)
    if inputs:
        for node, value in find_shapes(gm, *inputs).items():
            node.meta["tensor_meta"] = fx.node.map_aggregate(
                value, lambda v: _extract_tensor_metadata(v) if isinstance(v, torch.Tensor) else v
            )
        gm.meta["inputs"] = inputs
    return gm
