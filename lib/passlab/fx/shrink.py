"""Delta debugging on torch.fx graphs (after Zeller and Hildebrandt, IEEE Trans. Software Eng. 28(2), 2002).

    small = shrink(gm, lambda g: not equivalent(g, my_pass(copy.deepcopy(g))))

Four kinds of edits make a graph smaller, tried in large pieces first: return an inner node or the operands of an output
instead, drop outputs and unused nodes, replace nodes by an operand of the same shape or an earlier node of the same
value, replace nodes by new inputs. An edit stays if the graph is smaller and still fails, so the search terminates;
the graph returned has been seen to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, fx
from torch.utils import _pytree as pytree

from passlab.equivalence import shrinking
from passlab.equivalence.trials import example_inputs


def shrink(gm: fx.GraphModule, fails: Callable[[fx.GraphModule], bool], budget: int = 500) -> fx.GraphModule:
    """Return the smallest graph found for which `fails(gm)` is still true; `gm` itself is not changed.

    Every graph passed to `fails` is linted, has shapes on its nodes and its example inputs in `meta["inputs"]`; it
    shares parameters and submodules with `gm`. If `fails` raises, the graph counts as not failing. `fails` is called
    `budget` times at most. Raise ValueError if `fails(gm)` is false, or `gm` has neither inputs nor shapes.
    """
    inputs = example_inputs(gm)
    if inputs is None:
        raise ValueError("shrink needs example inputs: make the graph with passlab.trace, or set gm.meta['inputs'].")
    start = _State(gm, _values(gm, inputs))
    if not fails(start.program):
        raise ValueError("shrink needs a graph for which fails(gm) is true; for this one it is false.")
    small = _Shrinker(start, fails, budget - 1).run()
    small.recompile()
    return small


@dataclass
class _State:
    """A graph that fails, and its nodes' values by name."""

    program: fx.GraphModule
    values: dict[str, Any]

    @property
    def calls(self) -> list[fx.Node]:
        return [n for n in self.program.graph.nodes if n.op.startswith("call_")]

    @property
    def outputs(self) -> list[Any]:
        arranged = self.program.graph.output_node().args[0]
        return pytree.tree_leaves(arranged, is_leaf=lambda x: isinstance(x, fx.Node))

    @property
    def size(self) -> tuple[int, int, int]:
        """The order of graphs: fewer operations first, then fewer inputs and constants, then fewer outputs."""
        nodes = list(self.program.graph.nodes)
        calls = len(self.calls)
        return calls, len(nodes) - calls, len(self.outputs)


@dataclass
class _Edit:
    """A change: new outputs, nodes to drop, and nodes to replace (by a node, or by an input for None)."""

    outputs: list[Any] | None = None
    drop: set[fx.Node] = field(default_factory=set)
    replace: dict[fx.Node, fx.Node | None] = field(default_factory=dict)
    keep_operands: bool = False
    """Keep what only dropped nodes used."""
    bare_inputs: bool = False
    """Drop the inputs that nothing uses, too."""


def _values(gm: fx.GraphModule, inputs: tuple) -> dict[str, Any]:
    from passlab.fx.programs import Program, preserve_state

    program = Program(gm)
    with preserve_state(program):
        result = program.run(inputs, traced=True)
    if result.error is not None:
        raise ValueError(f"shrink cannot run the graph on its own inputs: {result.error}")
    return result.trace.values


class _Shrinker(shrinking.Shrinker):
    state: _State

    def steps(self) -> Sequence[Callable[[], None]]:
        return (
            self.return_inner_node,
            self.return_operands,
            self.drop_ends,
            self.bypass,
            self.cut_off,
            self.drop_inputs,
        )

    def edited(self, edit: _Edit) -> _State | None:
        return _apply(self.state, edit)

    def return_inner_node(self) -> None:
        """Return one inner node instead of all outputs: early ones first, at most 16 of them in one round."""
        progress = True
        while progress:
            calls = self.state.calls
            tensors = [n for n in calls if isinstance(self.state.values.get(n.name), Tensor)]
            inner = [n for n in shrinking.sample(tensors) if n is not tensors[-1]]
            progress = any(self.attempt(_Edit(outputs=[n], drop=set(calls))) for n in inner)
        inputs = [n for n in self.state.program.graph.find_nodes(op="placeholder") if n.users]
        any(self.attempt(_Edit(outputs=[n], bare_inputs=True)) for n in inputs[:2])

    def return_operands(self) -> None:
        """Return the operands of an output instead of it."""
        progress = True
        while progress:
            outputs = self.state.outputs
            progress = False
            for i, n in enumerate(outputs):
                if isinstance(n, fx.Node) and n.op.startswith("call_"):
                    rest = [x for j, x in enumerate(outputs) if j != i and x is not n]
                    progress = progress or self.attempt(_Edit(outputs=[*dict.fromkeys([*n.all_input_nodes, *rest])]))

    def drop_ends(self) -> None:
        """Drop unused nodes, and outputs."""
        self.in_pieces(
            lambda: [n for n in self.state.calls if not n.users],
            lambda piece: [_Edit(drop=set(piece)), _Edit(drop=set(piece), keep_operands=True)],
        )
        self.in_pieces(
            lambda: list(range(len(self.state.outputs))),
            lambda piece: [
                _Edit(outputs=[x for i, x in enumerate(self.state.outputs) if i not in piece], drop=drop)
                for drop in (set(self.state.calls), set())
            ],
        )

    def bypass(self) -> None:
        """Replace nodes by an operand of the same shape and dtype, or by an earlier node of the same value."""

        def edits(piece: Sequence[fx.Node]) -> Iterable[_Edit]:
            stand_ins = self.stand_ins()
            usable = {n: stand_ins[n] for n in piece if n in stand_ins}
            if usable:
                yield _Edit(replace={n: others[0] for n, others in usable.items()})
            if len(usable) == 1:
                (n, others), *_ = usable.items()
                yield from (_Edit(replace={n: other}) for other in others[1:])

        self.in_pieces(lambda: list(self.stand_ins()), edits)

    def stand_ins(self) -> dict[fx.Node, list[fx.Node]]:
        """Return, for each call, the nodes that could replace it."""
        first: dict[tuple, fx.Node] = {}
        twins: dict[fx.Node, list[fx.Node]] = {}
        for n in self.state.program.graph.nodes:
            value = self.state.values.get(n.name)
            if not isinstance(value, Tensor):
                continue
            twin = first.setdefault((value.shape, value.dtype, tuple(value.flatten().tolist())), n)
            if n.op.startswith("call_"):
                twins[n] = [i for i in n.all_input_nodes if self.alike(i, n)] + [twin] * (twin is not n)
        return {n: others for n, others in twins.items() if others}

    def cut_off(self) -> None:
        """Replace nodes by inputs of the same shape and dtype."""
        self.in_pieces(
            lambda: [n for n in self.state.calls if isinstance(self.state.values.get(n.name), Tensor)],
            lambda piece: [_Edit(replace=dict.fromkeys(piece))],
        )

    def drop_inputs(self) -> None:
        self.attempt(_Edit(bare_inputs=True))

    def alike(self, x: fx.Node, y: fx.Node) -> bool:
        a, b = self.state.values.get(x.name), self.state.values.get(y.name)
        return isinstance(a, Tensor) and isinstance(b, Tensor) and (a.shape, a.dtype) == (b.shape, b.dtype)

    def in_pieces(self, items: Callable[[], list], edits: Callable[[Sequence], Iterable[_Edit]]) -> None:
        """Try edits on halves of the items, then on quarters, down to single ones. Later items come first."""
        length = len(items())
        while length >= 1 and self.budget > 0:
            at = len(items())
            while at > 0 and self.budget > 0:
                piece = items()[max(0, at - length) : at]
                any(self.attempt(edit) for edit in edits(piece))
                at = min(at - length, len(items()))
            length = min(length // 2, len(items()))


def _apply(state: _State, edit: _Edit) -> _State | None:
    """Return the edited graph without its dead code; None if no output is left."""
    old, values = state.program, state.values

    def source(n: fx.Node) -> fx.Node:
        visited = set()
        while edit.replace.get(n) is not None and n not in visited:
            visited.add(n)
            n = edit.replace[n]
        return n

    outputs = state.outputs if edit.outputs is None else edit.outputs
    if not outputs:
        return None
    unused = (n for n in state.calls if n not in edit.drop)
    ends = [n for n in unused if all(u in edit.drop for u in n.users)] if edit.keep_operands else []
    ends = ends or [n for n in state.calls if not n.users and n not in edit.drop]
    live: set[fx.Node] = set()
    todo = [source(n) for n in [*outputs, *ends] if isinstance(n, fx.Node)]
    while todo:
        n = todo.pop()
        if n not in live:
            live.add(n)
            if n not in edit.replace:
                todo += [source(i) for i in n.all_input_nodes]
    graph, copies, inputs, results = fx.Graph(), {}, [], {}
    examples = dict(zip(old.graph.find_nodes(op="placeholder"), old.meta.get("inputs", ()), strict=False))
    for n in old.graph.nodes:
        new = n in live and n in edit.replace
        if not (new or (n.op == "placeholder" and (n in live or not edit.bare_inputs))):
            continue
        copies[n] = graph.create_node("placeholder", n.name if new else n.target, () if new else n.args, name=n.name)
        copies[n].meta.update(n.meta)
        inputs.append(values[n.name] if new else examples.get(n, values[n.name]))
        results[copies[n].name] = values[n.name]
    for n in old.graph.nodes:
        if n in live and n not in copies:
            copies[n] = graph.node_copy(n, lambda i: copies[source(i)])
            results[copies[n].name] = values.get(n.name)
    leaves = [copies[source(n)] if isinstance(n, fx.Node) else n for n in outputs]
    if edit.outputs is None:
        arranged = fx.map_arg(old.graph.output_node().args[0], lambda i: copies[source(i)])
    else:
        arranged = leaves[0] if len(leaves) == 1 else tuple(leaves)
    graph.output(arranged)
    graph.lint()
    gm = fx.GraphModule(old, graph)
    gm.training = old.training
    gm.meta["inputs"] = tuple(inputs)
    return _State(gm, results)
