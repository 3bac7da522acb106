"""Side effects of torch.fx nodes, and which nodes share written memory.

    effects(node)       # frozenset({"draws"}) for dropout, frozenset({"writes"}) for x.add_(1), frozenset() for relu
    written(graph)      # the nodes whose memory some node writes, directly or through a view
    memory_order(graph) # which nodes must stay after which, beyond their operands

Reading order: the vocabulary, what torch knows about an operator (`Facts`), one node, a whole graph. Nearly all of it
is read from torch's operator schemas: in `add_(Tensor(a!) self, …) -> Tensor(a!)` the mark `a!` says "written", in
`view(Tensor(a) self, …) -> Tensor(a)` the mark `a` says "the result is the same memory", and the tag
`nondeterministic_seeded` says "draws random numbers". An operator without facts is "unknown", never pure.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import fx, nn

from passlab.fx.nodes import attribute, name_of

#: The vocabulary of `effects`.
EFFECTS = {
    "signature": "it is an input or the output: part of how the program is called",
    "draws": "it draws random numbers: every call gives others, and changes those of all later calls",
    "writes": "it changes memory that others can see",
    "stops": "it may stop the program: an assertion",
    "unknown": "nothing is known about it, so anything is possible",
}
PURE: frozenset[str] = frozenset()

_NAMES = {
    # Tensor methods and Python functions that have no operator schema and do nothing but compute.
    "plain": "size dim ndimension numel nelement stride is_contiguous is_floating_point is_complex element_size "
    "storage_offset float double half bfloat16 long int short char byte bool type tolist len getattr getitem tuple "
    "list slice abs round range",
    # Those whose result may be an operand or a part of it, although their schema (if any) does not show it.
    "viewing": "float double half bfloat16 long int short char byte bool type getattr getitem tuple list pos "
    "broadcast_tensors meshgrid atleast_1d atleast_2d atleast_3d",
    # Python operators that write into their first operand.
    "writing": "setitem delitem iadd isub imul itruediv ifloordiv imod imatmul ipow iand ior ixor ilshift irshift",
    # Those that draw unless switched off.
    "dropout": "dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout feature_alpha_dropout rrelu",
    # Those that always draw and consist of several operators.
    "drawing": "gumbel_softmax multi_head_attention_forward fractional_max_pool2d fractional_max_pool3d",
}
_NAMES = {group: frozenset(names.split()) for group, names in _NAMES.items()}
_NAMES["drawing"] |= _NAMES["dropout"]


@dataclass(frozen=True)
class Facts:
    """What is known about a target, independent of its arguments.

    `writes`: positions and names of the operands it writes. `views`: its result may be an operand's memory.
    """

    draws: bool = False
    writes: tuple[int | str, ...] = ()
    views: bool = True
    known: bool = True
    stops: bool = False
    signature: inspect.Signature | None = None


def _home(target: Any) -> str:
    """Return the package that defines a function. Built-ins of torch do not name it; they count as torch's."""
    if isinstance(target, str | torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return "torch"
    return (getattr(target, "__module__", None) or "torch").split(".")[0]


def _overloads(target: Any, name: str) -> list:
    """Return the torch operators that a target may stand for: those of its name that take tensors."""
    if isinstance(target, torch._ops.OpOverload):
        return [target]
    packet = target if isinstance(target, torch._ops.OpOverloadPacket) else getattr(torch.ops.aten, name, None)
    operators = [getattr(packet, overload) for overload in packet.overloads()] if packet is not None else []
    return [o for o in operators if "out" not in o._overloadname.split("_") and "Tensor" in str(o._schema)]


@lru_cache(maxsize=4096)
def facts(target: Callable | str) -> Facts:
    """Return what is known about the target of a call_function node, or about the method of that name."""
    name, home = name_of(target), _home(target)
    if home == "passlab":  # passlab.fx.ops: fused operations, pure by construction
        return Facts(views=False)
    if home not in ("torch", "_operator", "builtins", "math"):
        return Facts(known=False)
    if name.startswith(("_assert", "sym_constrain")):
        return Facts(stops=True)
    dunder = name.startswith("__") and hasattr(torch.Tensor, name)
    bare = name.strip("_") if dunder else name
    if (home == "_operator" or dunder) and bare in _NAMES["writing"]:
        return Facts(writes=(0,))
    operator = isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket)  # its schema says it all
    if home in ("_operator", "math") or dunder or (name in _NAMES["plain"] and not operator):
        return Facts(views=bare in _NAMES["viewing"])
    draws, signature = name in _NAMES["drawing"], inspect.signature(target) if inspect.isfunction(target) else None
    overloads = _overloads(target, name)
    if not overloads:
        writes = (0,) if name.endswith("_") and hasattr(torch.Tensor, name) else ()
        known = bool(writes) or getattr(target, "__module__", "") == "torch.nn.functional"
        return Facts(draws, writes, known=known, signature=signature)
    aliasing = torch.Tag.maybe_aliasing_or_mutating
    return Facts(
        draws=draws or any(torch.Tag.nondeterministic_seeded in o.tags for o in overloads),
        writes=_written_operands(overloads),
        views=name in _NAMES["viewing"]
        or any(aliasing in o.tags or any(r.alias_info for r in o._schema.returns) for o in overloads),
        signature=signature,
    )


def _written_operands(overloads: list) -> tuple[int | str, ...]:
    """Return the positions (names, for keyword-only ones) of the operands that any of the overloads writes."""
    positions: dict[int | str, None] = {}
    for overload in overloads:
        for place, argument in enumerate(overload._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                positions[argument.name if argument.kwarg_only else place] = None
    return tuple(positions)


def _option(node: fx.Node, known: Facts, name: str, default: Any = None) -> Any:
    """Return the value of a call's operand `name`, positional or by keyword; None if it is unknown."""
    if name in node.kwargs:
        return node.kwargs[name]
    if known.signature is not None:
        try:
            bound = known.signature.bind(*node.args, **node.kwargs)
        except TypeError:
            return default
        bound.apply_defaults()
        return bound.arguments.get(name, default)
    return default


def writes(node: fx.Node) -> list[fx.Node]:
    """Return the operands whose memory the node changes: `[x]` for `x.add_(1)`, `x[0] = 1`, `relu(x, inplace=True)`."""
    if node.op == "call_module":
        leaf = node.graph.owning_module.get_submodule(node.target) if node.graph.owning_module is not None else None
        inplace = any(getattr(m, "inplace", False) for m in leaf.modules()) if leaf is not None else True
        return node.all_input_nodes[:1] if inplace else []
    if node.op not in ("call_function", "call_method"):
        return []
    known = facts(node.target)
    if not known.known:
        return node.all_input_nodes
    places = list(known.writes)
    if known.signature is not None and "inplace" in known.signature.parameters and _option(node, known, "inplace"):
        places.append(0)
    if name_of(node.target) in ("batch_norm", "instance_norm") and _trains(node, known):
        places += [1, 2, "running_mean", "running_var"]
    if "out" in node.kwargs:
        places.append("out")
    nodes: dict[fx.Node, None] = {}
    for place in places:
        operand = node.kwargs.get(place) if isinstance(place, str) else _at(node.args, place)
        fx.node.map_arg(operand, lambda n: nodes.setdefault(n))
    return list(nodes)


def _at(args: tuple, place: int) -> Any:
    return args[place] if place < len(args) else None


def _trains(node: fx.Node, known: Facts) -> bool:
    """Return whether a functional dropout or batch norm runs in training mode (if unknown, it does)."""
    for name in ("training", "use_input_stats", "train"):
        value = _option(node, known, name)
        if value is not None:
            return value is not False
    booleans = [a for a in node.args if isinstance(a, bool)]
    return booleans[0] if booleans else True


def effects(node: fx.Node) -> frozenset[str]:
    """Return the node's side effects, as keys of `EFFECTS`; empty when it is pure.

    Modules are taken as they are now: a dropout in eval mode draws nothing.
    """
    if node.op in ("placeholder", "output"):
        return frozenset({"signature"})
    if node.op == "get_attr":
        return PURE
    if node.op == "call_module":
        if node.graph.owning_module is None:
            return frozenset({"unknown"})
        return module_effects(node.graph.owning_module.get_submodule(node.target))
    known = facts(node.target)
    if known.known and not (known.draws or known.writes or known.stops or known.signature or node.kwargs):
        return PURE
    kinds = set()
    if not known.known:
        kinds.add("unknown")
    if known.stops:
        kinds.add("stops")
    if known.draws and not _draws_nothing(node, known):
        kinds.add("draws")
    if known.known and writes(node):
        kinds.add("writes")
    return frozenset(kinds)


def has_effects(graph: fx.Graph) -> bool:
    """Return whether some call of a graph does more than compute: draws, writes, may stop the program."""
    return any(effects(node) for node in graph.nodes if node.op.startswith("call_"))


def _draws_nothing(node: fx.Node, known: Facts) -> bool:
    """Return whether a dropout is switched off, or an attention has none."""
    name = name_of(node.target)
    if name in _NAMES["dropout"]:
        return not _trains(node, known) or _option(node, known, "p", _at(node.args, 1)) == 0
    if name == "scaled_dot_product_attention":
        return node.kwargs.get("dropout_p", _at(node.args, 4) or 0.0) == 0
    return False


def module_effects(module: nn.Module) -> frozenset[str]:
    """Return the effects of calling a module, in its current mode."""
    kinds: set[str] = set()
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            for node in part.graph.nodes:
                kinds |= effects(node) - {"signature"}
            break
        home = type(part).__module__.split(".")[0]
        if home not in ("torch", "passlab"):
            kinds |= {"unknown"} if getattr(part, "_is_impure", True) else set()
        elif part.training and isinstance(part, nn.modules.dropout._DropoutNd | nn.RReLU | nn.RNNBase):
            rate = getattr(part, "p", getattr(part, "dropout", 1))
            kinds |= {"draws"} if rate else set()
        elif isinstance(part, nn.MultiheadAttention) and part.training and part.dropout:
            kinds.add("draws")
        elif part.training and getattr(part, "track_running_stats", False):
            kinds.add("writes")
        if getattr(part, "inplace", False):
            kinds.add("writes")
    return frozenset(kinds)


#: Modules whose result may be their operand, or a view of it.
_VIEW_MODULES = (nn.Identity, nn.Flatten, nn.Unflatten, nn.modules.dropout._DropoutNd)


def may_alias(node: fx.Node) -> bool:
    """Return whether the node's value may share memory with one of its operands."""
    if node.op in ("placeholder", "get_attr", "output"):
        return False
    if node.op == "call_module":
        leaf = node.graph.owning_module.get_submodule(node.target) if node.graph.owning_module is not None else None
        plain = type(leaf).__module__.startswith("torch.nn.modules.") and not any(leaf.children())
        return not plain or isinstance(leaf, _VIEW_MODULES) or bool(getattr(leaf, "inplace", False))
    known = facts(node.target)
    return known.views or not known.known or bool(writes(node))


def viewed(node: fx.Node) -> fx.Node | None:
    """Return the operand into whose memory the value of a call of ATen looks, by its schema; None if it does not.

    A part of a tuple of views looks into what was taken apart. `_unsafe_view` counts: only its schema hides the view.
    """
    base: Any = node.args[0] if node.op == "call_function" and node.args else None
    if node.target is operator.getitem:
        return viewed(base)
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.arguments or not schema.returns:
        return None
    looks = schema.arguments[0].alias_info and schema.returns[0].alias_info
    return base if looks or node.target is torch.ops.aten._unsafe_view.default else None


def root(node: fx.Node) -> fx.Node:
    """Return the node into whose memory a view looks, in the end; any other node itself."""
    while (base := viewed(node)) is not None:
        node = base
    return node


def _storage(node: fx.Node) -> Any:
    """Return a key that two get_attr nodes share if they read the same memory."""
    at = attribute(node.graph.owning_module, str(node.target))
    return at.untyped_storage().data_ptr() if isinstance(at, torch.Tensor) else node.target


def _module_storage(node: fx.Node) -> list[int]:
    """Return the keys (as `_storage`) of the parameters and buffers of the module that a node calls."""
    if node.op != "call_module" or node.graph.owning_module is None:
        return []
    module = node.graph.owning_module.get_submodule(node.target)
    return [t.untyped_storage().data_ptr() for t in (*module.parameters(), *module.buffers())]


def _memories(graph: fx.Graph) -> Callable[[Any], Any]:
    """Return node → a representative of its memory, the same for all nodes that may share it (by union-find)."""
    leader: dict[Any, Any] = {}

    def find(at: Any) -> Any:
        while (above := leader.setdefault(at, at)) is not at:
            leader[at] = leader.setdefault(above, above)
            at = above
        return at

    for node in graph.nodes:
        if node.op == "get_attr":
            leader[find(node)] = find(_storage(node))
        elif node.op == "placeholder":
            leader[find(node)] = find("inputs")
        elif may_alias(node):
            for operand in node.all_input_nodes:
                leader[find(node)] = find(operand)
    return find


def written(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes whose value some node of the graph writes into, directly or through a view of the same memory.

    Such a node is not one value: what it holds depends on the time. So does the result of a module whose parameters or
    buffers are written: its calls are among the nodes, too. Two inputs may be one tensor, so a write into one is a
    write into all. Takes almost linear time.
    """
    targets = [operand for node in graph.nodes for operand in writes(node)]
    training = [f"{n.target}." for n in graph.nodes if n.op == "call_module" and effects(n) & {"writes", "unknown"}]
    if not targets and not training:
        return set()
    targets += [n for n in graph.nodes if n.op == "get_attr" and any(n.target.startswith(path) for path in training)]
    find = _memories(graph)
    changed = {find(node) for node in targets}
    return {node for node in graph.nodes if any(find(at) in changed for at in (node, *_module_storage(node)))}


def memory_order(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return, for each node, the earlier nodes that it must stay after, whether it uses their values or not.

    Two nodes that touch the same memory keep their order if one of them writes it, and so do two that draw random
    numbers. Only the last such nodes are listed; the order of earlier ones follows. The lists are empty without writes.
    """
    find = _memories(graph)
    changed = {find(node) for node in written(graph)}
    wrote_last: dict[Any, fx.Node] = {}
    read_since: dict[Any, list[fx.Node]] = {}
    behind: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        kinds = effects(node)
        read = {find(at) for at in (*node.all_input_nodes, *_module_storage(node))} & changed
        wrote = {find(operand) for operand in writes(node)}
        wrote |= {"the generator"} if "draws" in kinds else set()
        wrote |= {node.target} if node.op == "call_module" and "writes" in kinds else set()
        before: dict[fx.Node, None] = {}
        for place in [*(read - wrote), *wrote]:
            if place in wrote_last:
                before[wrote_last[place]] = None
            if place in wrote:
                before.update(dict.fromkeys(read_since.pop(place, ())))
                wrote_last[place] = node
            else:
                read_since.setdefault(place, []).append(node)
        behind[node] = list(before)
    return behind
