"""Forward and backward graphs: what AOTAutograd makes of a captured function, and a backend that runs passes on it.

low = lower(model, x)                                        # low.joint, low.forward, low.backward, low.saved
fast = torch.compile(model, backend=backend(cse, fuse))      # the passes run on every graph, backward graphs, too

In these graphs nothing is written in place: a write became an output, which torch copies back after the graph has run.
Their operations are ATen's, views are operations like others, and parameters are inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from passlab.capture import private
from passlab.capture.recorder import Capture
from passlab.equivalence.values import EXACT, Difference, Tolerance, beyond_rounding, compare, nudge
from passlab.fx.effects import effects, may_alias, writes
from passlab.fx.nodes import why_not_ordered
from passlab.fx.programs import needing_gradients
from passlab.fx.reader import describe
from passlab.judge.words import plural

#: A pass takes a graph and returns it, another, or None if it changed the one that it got.
Pass = Callable[[fx.GraphModule], fx.GraphModule | None]
#: A partitioner takes the joint graph (and what AOTAutograd tells it by name) and returns forward and backward graph.
Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]
#: Key of `node.meta`: torch writes a new value into the input once the forward graph has run, so it cannot be saved.
OVERWRITTEN = "overwritten"


def min_cut(joint: fx.GraphModule, inputs: Sequence[Any], **known: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a joint graph so that few bytes are saved: torch's own `min_cut_rematerialization_partition`."""
    from functorch.compile import min_cut_rematerialization_partition

    return min_cut_rematerialization_partition(joint, inputs, **known)


def save_all(joint: fx.GraphModule, inputs: Sequence[Any], **known: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a joint graph so that nothing is computed twice: torch's own `default_partition`."""
    from functorch.compile import default_partition

    return default_partition(joint, inputs, **known)


@dataclass(frozen=True)
class Saved:
    """A value that the forward graph keeps for the backward graph. `bytes` is None where a size is a symbol."""

    name: str
    shape: tuple
    dtype: str
    bytes: int | None


@dataclass(frozen=True)
class Lowered:
    """The graphs of a function: `forward` (with `saved` after its `outputs` results), `backward`, and `joint`, of which
    both are parts. Without anything that needs a gradient there is only `forward`."""

    forward: fx.GraphModule
    backward: fx.GraphModule | None = None
    joint: fx.GraphModule | None = None
    outputs: int = 0
    saved: tuple[Saved, ...] = ()

    @property
    def saved_bytes(self) -> int:
        """Return the bytes of the saved values whose size is known."""
        return sum(value.bytes or 0 for value in self.saved)


def lower(
    f: Callable, *inputs: Any, gradients: bool = False, partition: Partition = min_cut, dynamic: bool | None = None
) -> Lowered:
    """Return the functional ATen graphs of `f`, with a backward graph if a parameter or an input needs a gradient.

    gradients: whether all parameters of a module shall need one while it is captured (those of `models.ZOO` do not).
    partition: what splits the joint graph; `min_cut` (torch's) or `save_all`, or your own. dynamic: as of `capture`.
    Raises ValueError if Dynamo captures more than one graph, or none.
    """
    graphs: list[Lowered] = []
    joint: list[Lowered] = []

    def split(gm: fx.GraphModule, example: Sequence[Any], **known: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        whole = fx.GraphModule(gm, _copy(gm.graph))
        forward, backward = _checked(partition)(gm, example, **known)
        number = known["num_fwd_outputs"]
        results = list(forward.graph.find_nodes(op="output")[0].args[0])
        saved = tuple(_saved(node) for node in results[number:])
        joint.append(Lowered(forward, backward, whole, number, saved))
        return forward, backward

    def forward(gm: fx.GraphModule, example: Sequence[Any]) -> Callable:
        graphs.append(joint.pop() if joint else Lowered(gm, outputs=len(gm.graph.find_nodes(op="output")[0].args[0])))
        return _boxed(gm)

    def backward(gm: fx.GraphModule, example: Sequence[Any]) -> Callable:
        return _boxed(gm)

    program = Capture(f, dynamic, private.lowered(forward, backward, forward, split))
    if gradients and not isinstance(f, nn.Module):
        raise TypeError(f"gradients=True is for a module, whose parameters it means; got {type(f).__name__}.")
    with needing_gradients(f) if isinstance(f, nn.Module) and gradients else nullcontext():
        program(*inputs)
    if len(graphs) != 1:
        raise ValueError(f"lower wants a function that is captured as one graph; {_why_not_one(program, len(graphs))}")
    return graphs[0]


def _why_not_one(program: Capture, number: int) -> str:
    """Return how many graphs a function is, and why."""
    where = f" It breaks at {program.breaks[0]}." if program.breaks else ""
    if number or where:
        return f"this one is {number}.{where} Lower its parts, capture(f, *inputs).graphs, one by one."
    reason = next((record.error for record in program.compilations if record.error), "Dynamo left it to Python")
    return f"of {program.name}, nothing is captured: {reason}. Lower a function of tensors that computes with torch."


def _copy(graph: fx.Graph) -> fx.Graph:
    copy = fx.Graph()
    copy.output(copy.graph_copy(graph, {}))
    return copy


def _boxed(gm: Callable) -> Callable:
    from functorch.compile import make_boxed_func

    return make_boxed_func(gm)


def _saved(node: fx.Node) -> Saved:
    shape, dtype, size = describe(node.meta.get("val"))
    return Saved(node.name, shape or (), dtype or "", size)


@dataclass(frozen=True)
class Stage:
    """One graph that went through a backend. `kind`: "forward", "backward" or "inference" (no gradient is needed)."""

    kind: str
    before: fx.GraphModule
    after: fx.GraphModule


@dataclass
class Backend:
    """A backend for torch.compile that runs passes on each ATen graph, forward and backward, in order.

    `stages`: the graphs so far, before and after the passes. See `backend`.
    """

    passes: tuple[Pass, ...]
    partition: Partition = min_cut
    compiler: Callable[[fx.GraphModule, tuple], Callable] | None = None
    decompositions: Mapping[Any, Callable] = field(default_factory=dict)
    check: bool = False
    stages: list[Stage] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Backend({', '.join(map(_name, self.passes))})"

    def __call__(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        run = private.lowered(
            lambda graph, example: self._stage("forward", graph, example),
            lambda graph, example: self._stage("backward", graph, example),
            lambda graph, example: self._stage("inference", graph, example),
            _checked(self.partition),
            self.decompositions,
        )
        return run(gm, inputs)

    def _stage(self, kind: str, gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable:
        placeholders = [node.name for node in gm.graph.find_nodes(op="placeholder")]
        # The first results of a forward graph are copied back into the inputs that the function writes.
        written = [] if kind == "backward" else [placeholders[at] for at in private.written_inputs()]
        compared = len(outputs_of(gm)) if self.check else len(written)
        before = fx.GraphModule(gm, _copy(gm.graph))
        steps = []
        for rewrite in self.passes:
            name = _name(rewrite)
            with private.outside():
                result = rewrite(gm)
            if result is not None and not isinstance(result, fx.GraphModule):
                raise TypeError(
                    f"The pass {name} returned {type(result).__name__}; a pass returns a GraphModule or None."
                )
            gm = gm if result is None else result
            if reason := why_not_the_same_form(before, gm, written):
                raise ValueError(f"After the pass {name}, the {kind} graph is not valid. {reason}")
            gm.graph.lint()
            gm.recompile()
            if compared:
                steps.append((name, fx.GraphModule(gm, _copy(gm.graph))))
        if any("draws" in effects(node) for node in before.graph.nodes):
            compared = 0  # a pass may change the order in which random numbers are drawn
        self.stages.append(Stage(kind, before, gm))
        with private.outside():
            run = gm if self.compiler is None else self.compiler(gm, tuple(inputs))
        return _boxed(_compared(kind, before, steps, run, written, compared) if compared else run)


def _name(function: Callable) -> str:
    return getattr(function, "__name__", type(function).__name__)


def outputs_of(gm: fx.GraphModule) -> list[Any]:
    """Return what a graph returns, in order: nodes, or None."""
    return pytree.tree_leaves(gm.graph.find_nodes(op="output")[0].args[0], is_leaf=lambda value: value is None)


def why_not_the_same_form(before: fx.GraphModule, after: fx.GraphModule, written: Sequence[str] = ()) -> str:
    """Return how the inputs and outputs of a graph have changed, or why it cannot run; "" if it fits.

    written: the inputs whose new values are the first outputs.
    """
    if reason := why_not_ordered(after.graph):
        return reason
    if not after.graph.find_nodes(op="output"):
        return "It has no output node."
    inputs = [[node.name for node in gm.graph.find_nodes(op="placeholder")] for gm in (before, after)]
    if inputs[0] != inputs[1]:
        had, has = (", ".join(f"`{name}`" for name in names) or "none" for names in inputs)
        return f"Its inputs were {had} and are now {has}; torch hands over the former. Keep unused ones, too."
    old, new = outputs_of(before), outputs_of(after)
    if len(old) != len(new):
        return f"It has {len(new)} outputs where it had {len(old)}.{_lost(old, new, written=written)}"
    if reason := _why_not_alike(old, new, written=written):
        return reason
    for node in after.graph.nodes:
        if target := next((name for name in map(_input_below, writes(node)) if name), None):
            return (
                f"Node `{node.name}` writes into the input `{target}`, which is a tensor of the caller: such a graph "
                "only computes. Return the new value as before."
            )
    return ""


def _checked(partition: Partition) -> Partition:
    """Return a partitioner that raises ValueError where `partition` does not split a joint graph in two."""

    def split(joint: fx.GraphModule, inputs: Sequence[Any], **known: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        tangents = [node for node in joint.graph.find_nodes(op="placeholder") if node.name.startswith("tangent")]
        results, outputs = outputs_of(joint), known["num_fwd_outputs"]
        numbers = _numbered(joint)
        overwritten = private.overwritten(joint)
        for node in overwritten:
            node.meta[OVERWRITTEN] = True
        parts = partition(joint, inputs, **known)
        reason = _why_not_split(results[:outputs], results[outputs:], len(tangents), parts)
        reason = reason or _exchanged(results, numbers, outputs, *parts)
        if reason := reason or _why_not_kept(parts[0], outputs, {node.name for node in overwritten}):
            raise ValueError(f"The partition {_name(partition)} does not split the joint graph. {reason}")
        return parts

    return split


def _why_not_split(outputs: list[Any], gradients: list[Any], tangents: int, parts: Any) -> str:
    """Return why a value is not a forward and a backward graph with these results, or ""."""
    if not isinstance(parts, (tuple, list)) or [isinstance(gm, fx.GraphModule) for gm in parts] != [True, True]:
        return f"It must return two GraphModules, the forward and the backward graph; it returned {str(parts)[:80]}."
    forward, backward = map(outputs_of, parts)
    arguments, saved = len(parts[1].graph.find_nodes(op="placeholder")), len(forward) - len(outputs)
    if arguments != saved + tangents:
        return (
            f"The forward graph returns {len(forward)} values, the {len(outputs)} outputs and what it saves, and the "
            f"backward graph takes {arguments}, what is saved and {tangents} tangents.{_lost(outputs, forward)}"
        )
    if len(backward) != len(gradients):
        returned, lost = plural(len(backward), "gradient"), _lost(gradients, backward, "gradient")
        return f"The backward graph returns {returned}; the joint graph has {len(gradients)}.{lost}"
    return _why_not_alike(outputs, forward) or _why_not_alike(gradients, backward, "gradient")


def _why_not_kept(forward: fx.GraphModule, outputs: int, overwritten: Collection[str]) -> str:
    """Return which value that a forward graph saves is overwritten before the backward graph reads it, or ""."""
    for node in outputs_of(forward)[outputs:]:
        if (name := _input_below(node)) in overwritten:
            return (
                f"It saves `{node}`, in the memory of the input `{name}`, which is overwritten before the backward "
                "graph runs: save a value that is computed from it."
            )
    return ""


def _exchanged(
    results: list[Any], numbers: Mapping[Any, int], outputs: int, forward: fx.GraphModule, backward: fx.GraphModule
) -> str:
    """Return which result of a joint graph is returned in the place of another, or "" if none is known to be.

    numbers: of the nodes of the joint graph, before it was split.
    """
    ahead = _numbered(forward)
    behind = _numbered(backward, {node.name: number for node, number in ahead.items()})
    new = [*map(ahead.get, outputs_of(forward)[:outputs]), *map(behind.get, outputs_of(backward))]
    old = [numbers.get(value) for value in results]
    for at, (number, other) in enumerate(zip(old, new, strict=True)):
        if other is not None and other != number and other in old and number in new:
            pair = [
                _output(i, results[i]) if i < outputs else _output(i - outputs, results[i], "gradient")
                for i in (at, old.index(other))
            ]
            return f"It returns {pair[1]}, in the place of {pair[0]}."
    return ""


def _numbered(gm: fx.GraphModule, inputs: Mapping[str, int] | None = None) -> dict[fx.Node, int]:
    """Return node → a number; equal ones are of nodes that apply the same operations to inputs of the same names.

    inputs: name of an input → the number of what it is.
    """
    numbers: dict[fx.Node, int] = {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            numbers[node] = (inputs or {}).get(node.name, hash(node.name))
        elif node.op != "output":
            operands = fx.node.map_arg((node.args, node.kwargs), lambda operand: f"%{numbers[operand]}")
            numbers[node] = hash((node.target, repr(operands)))
    return numbers


def _lost(old: list[Any], new: list[Any], noun: str = "output", written: Sequence[str] = ()) -> str:
    """Return a sentence with the results whose names are gone, or ""."""
    names = {str(value) for value in new}
    missing = [_output(at, value, noun, written) for at, value in enumerate(old) if str(value) not in names]
    return f" Lost: {', '.join(missing)}." if missing else ""


def _why_not_alike(old: list[Any], new: list[Any], noun: str = "output", written: Sequence[str] = ()) -> str:
    """Return which result has another shape or type, or ""."""
    for at, (value, other) in enumerate(zip(old, new, strict=False)):
        forms = [form for item in (value, other) if (form := _form(item))]
        if len(forms) == 2 and forms[0] != forms[1]:
            return f"Its {_output(at, value, noun, written)}, was {forms[0]} and is now `{other}`, {forms[1]}."
    return ""


def _output(at: int, value: Any, noun: str = "output", written: Sequence[str] = ()) -> str:
    """Return "output 0, `mul`", and into which tensor of the caller it is written."""
    where = f" (written into the caller's tensor `{written[at]}`)" if at < len(written) else ""
    return f"{noun} {at}, `{value}`{where}"


def _form(value: Any) -> str:
    if not isinstance(value, fx.Node):
        return "None" if value is None else ""
    shape, dtype, _ = describe(value.meta.get("val"))
    return "" if shape is None else f"{dtype}[{', '.join(map(str, shape))}]"


def _input_below(node: fx.Node) -> str:
    """Return the name of the input whose memory a value is, directly or as a view, or ""."""
    while node.op != "placeholder":
        if not node.all_input_nodes or not may_alias(node):
            return ""
        node = node.all_input_nodes[0]
    return node.name


def _compared(
    kind: str,
    before: fx.GraphModule,
    steps: Sequence[tuple[str, fx.GraphModule]],
    run: Callable,
    written: Sequence[str],
    number: int,
) -> Callable:
    """Return `run`, whose first call compares its first `number` results with those of the graph before the passes."""
    todo = [before]

    def call(*inputs: Any) -> Any:
        if not todo:
            return run(*inputs)
        todo.clear()

        def results(graph: Callable, change: Callable[[torch.Tensor], torch.Tensor] = torch.clone) -> list[Any]:
            return list(graph(*pytree.tree_map_only(torch.Tensor, change, inputs)))[:number]

        old = results(before)
        runs: list[tuple[str, Callable]] = [(f"the pass {name}", graph) for name, graph in steps]
        for step, graph in [*runs, ("the compiler", run)]:
            new = results(graph)
            if differences := _differences(before, old, new, lambda by: results(before, _nudged(by)), written):
                raise ValueError(f"After {step}, the {kind} graph computes something else: {differences[0].sentence}.")
        return run(*inputs)

    return call


def _differences(
    before: fx.GraphModule, old: list[Any], new: list[Any], moved: Callable[[int], list[Any]], written: Sequence[str]
) -> list[Difference]:
    """Return how results differ beyond rounding. moved: the old ones from inputs that are moved up (1) or down (-1)."""
    differences = []
    for at, (node, value, other) in enumerate(zip(outputs_of(before), old, new, strict=False)):
        floats = isinstance(value, torch.Tensor) and value.is_floating_point()
        allowed = Tolerance.of(value.dtype, max(16, len(before.graph.nodes))) if floats else EXACT
        for difference in compare(value, other, allowed, _output(at, node, written=written)):
            difference.part, difference.leaf = "output", at
            differences.append(difference)
    if any(difference.bad is None for difference in differences):
        return differences
    return beyond_rounding(differences, old, new, map(moved, (1, -1))) if differences else []


def _nudged(by: int) -> Callable[[torch.Tensor], torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return lambda x: nudge(x, 4 * by * torch.finfo(x.dtype).eps, generator) if x.is_floating_point() else x.clone()


def backend(
    *passes: Pass | Sequence[Pass],
    partition: Partition = min_cut,
    compiler: Callable | None = None,
    decompositions: Mapping[Any, Callable] | None = None,
    check: bool = False,
) -> Backend:
    """Return a backend for `torch.compile` that runs these passes on the graphs of a model.

        mine = backend(cse, simplify)
        model = torch.compile(model, backend=mine)      # mine.stages: each graph before and after

    A list of passes stands for its members. A pass gets a functional graph of ATen operations (see above) and may rely
    on that. partition: what splits the joint graph in two. compiler: takes the last graph and its inputs, without data,
    and returns what runs in its place. decompositions: operation → its meaning in others, which take its place in the
    joint graph (`torch._decomp.get_decompositions`).

    A pass that changes the inputs or the outputs, their shapes or types, or makes the graph write into an input raises
    ValueError; so does a partition whose graphs do not return the outputs and gradients of the joint graph, or that
    saves an input that the function overwrites (torch's own may, `passlab.autodiff.partition` does not). check:
    compare, in the first call of each graph, all results with those before the passes. Without it, only those that are
    written into tensors of the caller are compared.
    """
    each: list[Any] = [one for item in passes for one in (item if isinstance(item, (list, tuple)) else [item])]
    for one in each:
        if not callable(one):
            raise TypeError(f"backend wants passes, which are functions; got {type(one).__name__}.")
    return Backend(tuple(each), partition, compiler, decompositions or {}, check)
