"""The course's passes on the graphs of torch.compile, forward and backward.

    mine = reference()                               # a passlab.backend
    fast = torch.compile(model, backend=mine)
    fast(x).sum().backward()
    cost(mine.stages[1].after)                       # what the backward graph costs now

`PASSES` are those of days 3 and 4 for functional ATen graphs; `fuse` makes kernels of chains of element-wise
operations, broadcasts and reductions. Small products, convolutions and pools are computed within kernels
(`capstone.products`); large ones, and what else has no kernel here, stay calls of torch. A kernel is one launch, and
moves the bytes of its inputs and results: what it holds in between, of the size of a cache, is not counted. `program`
makes the same of a graph by day 12's compiler: kernels without checks, their results in one arena.

Reading order: the passes, the groups, the backend.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from passlab.autodiff import RECOMPUTED, bytes_of, partition
from passlab.autodiff.partition import EXPENSIVE
from passlab.capstone.building import build
from passlab.capstone.compiled import Compiled
from passlab.capstone.products import INSIDE, as_sums, max_pool, max_pool_backward
from passlab.capstone.reference import cse, dce, fold_constants
from passlab.capture import Backend, backend
from passlab.fx.effects import effects, root, viewed
from passlab.fx.nodes import name_of
from passlab.fx.reader import describe
from passlab.kernels import Unsupported, extract_group, fused, illegal
from passlab.kernels.groups import example_inputs
from passlab.kernels.primitives import VIEWS, primitives, reduces

aten = torch.ops.aten

#: Operations with several results, of which a kernel can make only the parts.
SEVERAL = (
    *(aten.native_batch_norm, aten._native_batch_norm_legit, aten._native_batch_norm_legit_no_training),
    *(aten._native_batch_norm_legit_functional, aten.native_batch_norm_backward, aten.native_layer_norm_backward),
    aten.unbind,
)


def decompositions() -> dict:
    """Return the operations that are taken apart before the joint graph is split: those with several results."""
    return {
        **torch._decomp.get_decompositions(SEVERAL),
        aten.native_layer_norm.default: _layer_norm,
        aten.var_mean.correction: _var_mean,
        aten.max_pool2d_with_indices.default: max_pool,
        aten.max_pool2d_with_indices_backward.default: max_pool_backward,
        aten.split.Tensor: _parts,
        aten.split_with_sizes.default: _narrowed,
    }


def _var_mean(
    x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the variance, as the mean of squared distances to the mean, and the mean."""
    dims = list(dim or range(x.ndim))
    count = math.prod(x.shape[d] for d in dims) - (1 if correction is None else correction)
    off = x - x.mean(dims, keepdim=True)
    return (off * off).sum(dims, keepdim=keepdim) / max(count, 0), x.mean(dims, keepdim=keepdim)


def _layer_norm(
    x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the normalized rows, their means and the inverse of their deviations: torch's own names one operation."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    variance, mean = _var_mean(wide, range(x.ndim - len(shape), x.ndim), correction=0, keepdim=True)
    inverse = (variance + eps).rsqrt()
    y = (wide - mean) * inverse
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return y.to(x.dtype), mean, inverse


def _parts(x: torch.Tensor, size: int, dim: int = 0) -> list[torch.Tensor]:
    return _narrowed(x, [min(size, x.shape[dim] - at) for at in range(0, x.shape[dim], size)], dim)


def _narrowed(x: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> list[torch.Tensor]:
    return [x.narrow(dim, sum(sizes[:at]), size) for at, size in enumerate(sizes)]


# ---------------------------------------------------------------------------------------------------------- the passes


def simplify(gm: fx.GraphModule) -> fx.GraphModule:
    """Remove what gives its operand back: `detach`, as no gradient flows through these graphs, and a second `t`."""
    for node in list(gm.graph.nodes):
        same = node.args[0] if node.target is aten.detach.default else None
        if node.target is aten.t.default and node.args[0].target is aten.t.default:
            same = node.args[0].args[0]
        if same is not None and not any(user.op == "output" for user in node.users):
            node.replace_all_uses_with(same)
            gm.graph.erase_node(node)
    return gm


def fuse(gm: fx.GraphModule) -> fx.GraphModule:
    """Make kernels of the groups of a graph. A graph whose sizes are symbols stays as it is."""
    return _with_kernels(fused, *grouped(gm))


def _with_kernels(make: Callable[..., Any], gm: fx.GraphModule, groups: list[list[str]]) -> Any:
    """Return `make(gm, groups)` without the groups that cannot be kernels, though each of their operations could."""
    try:
        return make(gm, groups)
    except ValueError as error:
        named = getattr(error, "node", None)
        smaller = [group for group in groups if named not in group and illegal(gm, [group]) is None]
        if len(smaller) == len(groups):
            raise
        return _with_kernels(make, gm, smaller)


def grouped(gm: fx.GraphModule) -> tuple[fx.GraphModule, list[list[str]]]:
    """Return a graph that computes the same, and the groups in it that shall be kernels."""
    if any(_symbolic(node) for node in gm.graph.nodes):
        return gm, []
    copy = fx.Graph()
    copy.output(copy.graph_copy(gm.graph, {}))
    gm = _views_apart(as_sums(fx.GraphModule(gm, copy)))
    groups = groups_of(gm)
    _views_together(gm, {name for group in groups for name in group})
    return gm, groups


def _symbolic(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) or (
        isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape)
    )


#: Operations without a kernel: once more would be a launch of its own, so the cut does not compute them once more.
APART = {aten.index.Tensor}

#: The passes of the reference, in their order.
PASSES = (fold_constants, simplify, cse, dce, fuse)


# ---------------------------------------------------------------------------------------------------------- the groups


#: Operations without operands whose numbers a kernel computes by itself: copied for each reader, as views are.
MADE = {
    *(aten.arange.default, aten.arange.start, aten.arange.start_step),
    *(aten.full.default, aten.zeros.default, aten.scalar_tensor.default),
}


def is_free(node: Any) -> bool:
    """Return whether a call moves no bytes, and each of its readers can have one of its own: views above all."""
    return (
        isinstance(node, fx.Node)
        and node.op == "call_function"
        and (
            node.target is operator.getitem
            or node.target in MADE
            or (name_of(node.target) in VIEWS and viewed(node) is not None)
        )
    )


def _views_apart(gm: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with a view of its own for each reader: views cost nothing, and each can go with its reader."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in reversed(graph.nodes):
        if is_free(node):
            for user in list(node.users)[1:]:
                with graph.inserting_before(node):
                    user.replace_input_with(node, graph.node_copy(node))
    return fx.GraphModule(gm, graph)


def _views_together(gm: fx.GraphModule, inside: set[str]) -> None:
    """Merge views of one tensor, except for those in groups."""
    first: dict[tuple, fx.Node] = {}
    for node in gm.graph.nodes:
        if is_free(node) and node.name not in inside:
            one = first.setdefault((node.target, repr(node.args), repr(node.kwargs)), node)
            if one is not node:
                node.replace_all_uses_with(one)
                gm.graph.erase_node(node)


def groups_of(gm: fx.GraphModule) -> list[list[str]]:
    """Return groups for kernels, of a graph in which each view has one reader.

    Each operation that is not fusible (a matrix product, say) ends a level: what it needs is below, what needs it is
    above. Groups within one level cannot wait for each other in a circle. In a level, those operations are together
    that read each other's results or the same tensor, and small groups, since starting a kernel costs more. What a
    level would read from a lower one is computed in both if that reads hardly more: the graph gets new nodes.
    """
    fusible = _fusible(gm)
    level = _levels(gm, fusible)
    _recompute(gm, fusible, level)
    _gather(gm, fusible, level)
    leader: dict[Any, Any] = {}

    def find(at: Any) -> Any:
        while (above := leader.setdefault(at, at)) is not at:
            leader[at] = at = leader.setdefault(above, above)
        return at

    for node in fusible:
        operands = _operands(node)
        for operand in operands:
            if operand in fusible and level[operand] == level[node]:
                leader[find(node)] = find(operand)
            elif _bytes(operand) >= max(map(_bytes, operands)):
                leader[find(node)] = find((operand, level[node]))
    parts: dict[Any, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        if node in fusible:
            parts.setdefault(find(node), []).append(node)
    large = {level[part[0]]: leading for leading, part in parts.items() if _moved(part) > SMALL}
    groups: dict[Any, list[fx.Node]] = {}
    for leading, part in parts.items():
        at = level[part[0]]
        groups.setdefault(large.get(at, at) if _moved(part) <= SMALL else leading, []).extend(part)
    return [[node.name for node in _with_views(gm, group)] for group in groups.values() if len(group) > 1]


#: Groups that read and write no more bytes are one kernel with the others of their level, and with a larger one.
SMALL = 2**22
#: A value is computed once more if its operands have at most this multiple of its bytes: a tensor and some vectors.
SLACK = 1.25
#: The most operations that are computed once more for one value.
MOST = 32


def _fusible(gm: fx.GraphModule) -> dict[fx.Node, bool]:
    """Return the nodes of which a kernel could be made, without views, and whether they reduce."""
    fusible = {}
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or not value.numel():
            continue
        if is_free(node) or effects(node) or not node.all_input_nodes:
            continue
        operands = node.all_input_nodes
        forms = tuple((describe(a.meta.get("val"))[1], getattr(a.meta.get("val"), "ndim", None)) for a in operands)
        constants = fx.node.map_arg((node.args, node.kwargs), operands.index)
        key = (node.target, forms, repr(constants))
        if key not in _known:
            _known[key] = _reduces(gm, node)
        if (reduces := _known[key]) is not None:
            fusible[node] = reduces
    return fusible


#: What `_reduces` has said, by operation, types of operands and constants.
_known: dict[tuple, bool | None] = {}


def _reduces(gm: fx.GraphModule, node: fx.Node) -> bool | None:
    """Return whether an operation reduces; None if no kernel can be made of it."""
    part = extract_group(gm, [node])
    if illegal(part, [[n.name for n in part.graph.nodes if n.op == "call_function"]], accepts=lambda nodes: True):
        return None
    try:
        return reduces(primitives(part, example_inputs(part)))
    except Unsupported:
        return None


def _operands(node: fx.Node) -> list[fx.Node]:
    """Return what a node reads, behind views."""
    return [source for source in dict.fromkeys(map(root, node.all_input_nodes)) if source.target not in MADE]


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    for user in node.users:
        if is_free(user):
            yield from _readers(user)
        else:
            yield user


def _bytes(node: fx.Node) -> int:
    return 0 if node.meta.get(INSIDE) else bytes_of(node) or 0


def _moved(part: list[fx.Node]) -> int:
    """Return the bytes that operations, as one kernel, read and write."""
    inside = set(part)
    read = {operand for node in part for operand in _operands(node)} - inside
    written = {node for node in part if any(reader not in inside for reader in _readers(node))}
    return sum(map(_bytes, read | written))


def _levels(gm: fx.GraphModule, fusible: Collection[fx.Node]) -> dict[fx.Node, int]:
    level: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        ready = max((level[a] for a in node.all_input_nodes), default=0)
        level[node] = ready + (node.op == "call_function" and node not in fusible and not is_free(node))
    return level


def _recompute(gm: fx.GraphModule, fusible: dict[fx.Node, bool], level: dict[fx.Node, int]) -> None:
    """Compute a value anew in each level that reads it, if what it is made of has no more bytes."""
    copies: dict[tuple[fx.Node, int], fx.Node] = {}

    def copy(node: fx.Node, at: int) -> fx.Node:
        """Return a node for a level: a view or an operation that is copied, or the value that it begins with."""
        if not is_free(node) and (node not in fusible or fusible[node] or level[node] == at):
            return node
        if (node, at) not in copies or is_free(node):
            with gm.graph.inserting_after(node):
                new = gm.graph.node_copy(node)
            new.args, new.kwargs = fx.node.map_arg((node.args, node.kwargs), lambda a: copy(a, at))
            new.meta[RECOMPUTED] = True
            level[new], copies[node, at] = at, new
            if node in fusible:
                fusible[new] = fusible[node]
        return copies[node, at]

    for node in reversed(list(gm.graph.nodes)):
        if node not in fusible or fusible[node]:
            continue
        made_of = _made_of(node, fusible)
        if made_of is None or sum(map(_bytes, made_of)) > SLACK * _bytes(node):
            continue
        for user in list(node.users):  # a view has one reader
            reader = next(_readers(user), user) if is_free(user) else user
            if reader in fusible and level[reader] > level[node]:
                user.replace_input_with(node, copy(node, level[reader]))
    for node in reversed(list(gm.graph.nodes)):
        if node.op == "call_function" and not node.users:
            gm.graph.erase_node(node)
            fusible.pop(node, None)


def _made_of(node: fx.Node, fusible: dict[fx.Node, bool]) -> set[fx.Node] | None:
    """Return the values with which the computation of a value begins; None if it takes more than a few operations."""
    inside, leaves, todo = {node}, set(), [node]
    while todo:
        for operand in _operands(todo.pop()):
            if operand in fusible and not fusible[operand]:
                if operand not in inside:
                    inside.add(operand)
                    todo.append(operand)
            else:
                leaves.add(operand)
        if len(inside) > MOST:
            return None
    return leaves


def _gather(gm: fx.GraphModule, fusible: dict[fx.Node, bool], level: dict[fx.Node, int]) -> None:
    """Move a result that is alone in its level, and that only the caller reads, to the next level with others."""
    number = Counter(level[node] for node in fusible)
    for node in fusible:
        alone = number[level[node]] == 1 and all(user.op == "output" for user in _readers(node))
        above = [at for at in sorted(number) if at > level[node] and number[at]]
        if alone and above:
            number[level[node]] -= 1
            level[node] = above[0]
            number[above[0]] += 1


def _with_views(gm: fx.GraphModule, group: list[fx.Node]) -> list[fx.Node]:
    """Return a group with the views between its members, and those before it that do not look into a larger tensor."""
    inside = set(group)
    for node in group:
        for operand in node.all_input_nodes:
            between = (source := root(operand)) in inside or source.target in MADE
            while operand not in inside and (between or _looks_into_all(operand)):
                inside.add(operand)
                operand = next(iter(operand.all_input_nodes), operand)
    return [node for node in gm.graph.nodes if node in inside]


def _looks_into_all(node: fx.Node) -> bool:
    """Return whether a node is a view, and of a tensor that has no more elements."""
    whole = viewed(node) if is_free(node) else None
    return whole is not None and whole.meta["val"].numel() <= node.meta["val"].numel()


# --------------------------------------------------------------------------------------------------------- the backend


def cut(joint: fx.GraphModule, inputs: Sequence[Any] = (), **known: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a joint graph as day 14 does, but compute nothing once more that has no kernel here."""
    return partition(joint, inputs, **{"expensive": EXPENSIVE | APART, **known})


def reference(**options: Any) -> Backend:
    """Return the course's own backend: its decompositions, its cut, its passes. options: as of `passlab.backend`."""
    return backend(*PASSES, **{"partition": cut, "decompositions": decompositions(), **options})


def built(**options: Any) -> Backend:
    """Return the same with day 12's compiler in the place of `fuse`: faster calls, and no kernels in its `stages`."""
    passes = [rewrite for rewrite in PASSES if rewrite is not fuse]
    own = {"partition": cut, "decompositions": decompositions(), "compiler": program}
    return backend(passes, **{**own, **options})


def program(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
    """Return a graph as a program of day 12's compiler, built when it is first called: a `compiler` for a backend."""
    parts = grouped(gm)
    programs: list[Callable] = []

    def run(*values: Any) -> Any:
        if not programs:
            programs.append(_with_kernels(lambda *parts: build(Compiled(*parts), values), *parts))
        return programs[0](*values)

    return run
