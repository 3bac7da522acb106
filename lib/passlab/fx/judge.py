"""Judge passes over torch.fx: is the result a valid graph, and which laws did the pass keep?

`judge_pass` makes the judge of an exercise whose answer is `pass(gm) -> gm`. Only the nodes of the returned graph
count: the judge rebuilds the module from them, so neither a forgotten `recompile()` nor an overridden method matters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from passlab.equivalence.result import Options
from passlab.fx.equivalent import equivalent
from passlab.fx.nodes import attribute, why_not_ordered
from passlab.fx.programs import Program
from passlab.judge import Case, Finding, pass_judge
from passlab.judge.expect import Law

_NOTHING = object()


def _placeholders(graph: fx.Graph) -> list[str]:
    return [n.target for n in graph.nodes if n.op == "placeholder"]


@cache
def _signature(target: Callable) -> inspect.Signature | None:
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):  # most built-in functions have no signature
        return None


def _why_not_bound(node: fx.Node) -> str:
    """Return why the operands of a call_function do not fit its target, in Python's words."""
    signature = _signature(node.target)
    if signature is not None:
        try:
            signature.bind(*node.args, **node.kwargs)
        except TypeError as error:
            return str(error)
    return ""


#: Modules that are a program themselves.
_PROGRAMS = (fx.GraphModule, nn.Sequential, nn.ModuleList, nn.ModuleDict)


def _program(part: nn.Module) -> str | None:
    """Return the text of a module with programs inside, or None for one without."""
    inside = list(part.modules())
    if not any(isinstance(module, _PROGRAMS) for module in inside):
        return None
    return "\n".join([repr(part), *(str(module.graph) for module in inside if isinstance(module, fx.GraphModule))])


def _why_not_open(before: fx.GraphModule | None, after: fx.GraphModule) -> str:
    """Return which node hides others from the laws, which look at the nodes of one graph.

    A node hides others if it calls a module that holds modules, or reads a module. Layers that the program called
    before are allowed: the same class or, if it has programs inside, the same text.
    """
    called = [attribute(before, n.target) for n in before.graph.find_nodes(op="call_module")] if before else []
    classes, programs = {type(part) for part in called}, {_program(part) for part in called}
    for node in after.graph.nodes:
        part = attribute(after, node.target) if node.op in ("call_module", "get_attr") else None
        if not isinstance(part, nn.Module):
            continue
        if node.op == "get_attr":
            return f"Node {node.name} reads the module {node.target!r} as a value. Call its operations in the graph."
        text = _program(part)
        if (text not in programs) if text else (any(part.children()) and type(part) not in classes):
            return (
                f"Node {node.name} calls {node.target}, a module that holds operations of its own, where no law "
                f"sees them. Write them as nodes of the graph."
            )
    return ""


def why_not_valid(before: fx.GraphModule | None, after: object) -> str:
    """Return why `after` is not a valid result of a pass over `before`, in one sentence, or "".

    Checked in this order: None or another type returned; nodes of another graph; nodes erased but still used; a cycle;
    a use before its definition; modules and attributes that do not exist; operands that do not fit; nodes hidden in
    modules; a missing or misplaced output; placeholders other than those of `before`.
    """
    if not isinstance(after, fx.GraphModule):
        return _why_not_a_graph_module(after)
    reason = (
        why_not_ordered(after.graph)
        or _why_not_callable(after)
        or _why_not_open(before, after)
        or _why_not_one_output(after.graph)
    )
    if before is not None:
        reason = reason or _why_not_the_signature(before.graph, after.graph)
    return reason


def _why_not_a_graph_module(value: object) -> str:
    if value is None:
        return "The pass returned None. End it with `return gm`."
    if isinstance(value, fx.Graph):
        return "The pass returned a Graph. Return a GraphModule: `fx.GraphModule(gm, graph)`, or the gm you edited."
    return f"The pass returned {type(value).__name__}, not a torch.fx.GraphModule."


def _why_not_callable(gm: fx.GraphModule) -> str:
    """Return which node calls or reads something that is missing, or does not fit its operands."""
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr") and attribute(gm, node.target, _NOTHING) is _NOTHING:
            return f"Node {node.name} refers to {node.target!r}, which the module does not have. Add it to gm first."
        if node.op == "call_function" and not callable(node.target):
            return f"Node {node.name} calls {node.target!r}, which is not callable."
        if node.op == "call_function" and (reason := _why_not_bound(node)):
            return f"The operands of node {node.name} do not fit {node.target.__name__}: {reason}."
    return ""


def _why_not_one_output(graph: fx.Graph) -> str:
    nodes = list(graph.nodes)
    outputs = [n for n in nodes if n.op == "output"]
    if len(outputs) != 1:
        return f"A graph has exactly one output node; this one has {len(outputs)}."
    if outputs[0] is not nodes[-1]:
        return f"Nodes follow the output node {outputs[0].name}: they never run."
    return ""


def _why_not_the_signature(before: fx.Graph, after: fx.Graph) -> str:
    """Return how the inputs, or the number of outputs, have changed."""
    old, new = _placeholders(before), _placeholders(after)
    if old != new:
        return (
            f"The inputs changed: the program took ({', '.join(old)}) and now takes ({', '.join(new)}). "
            f"Placeholders are the signature; keep them even when nothing uses them."
        )
    counts = _arity(before), _arity(after)
    if None not in counts and counts[0] != counts[1]:
        return f"The program returned {_values(counts[0])} and now returns {_values(counts[1])}."
    return ""


def _arity(graph: fx.Graph) -> int | None:
    """Return how many values the output node names, or None for a single node (which may itself be a tuple)."""
    result = next(n for n in graph.nodes if n.op == "output").args[0]
    return len(result) if isinstance(result, tuple | list | dict) else None


def _values(n: int) -> str:
    return f"{n} value" + ("" if n == 1 else "s")


def rebuild(gm: fx.GraphModule) -> fx.GraphModule:
    """Rebuild the nodes as a fresh, compiled GraphModule; parameters and modules are shared with `gm`."""
    graph, copies = fx.Graph(), {}
    for node in gm.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    rebuilt = fx.GraphModule(gm, graph)
    rebuilt.training = gm.training  # of this module only: a child may be frozen separately
    rebuilt.meta.update(gm.meta)
    return rebuilt


def _nan_everywhere(before: fx.GraphModule, after: fx.GraphModule, inputs: tuple) -> bool:
    """Return whether some output of `after` is all NaN where that of `before` is not."""
    runs = [Program(gm).run(inputs) for gm in (before, after)]
    if any(run.error for run in runs):  # it does not even run, which the comparison has reported
        return False
    outputs = ([t for t in tree_leaves(run.output) if isinstance(t, torch.Tensor) and t.numel()] for run in runs)
    pairs = zip(*outputs, strict=False)
    return any(bool(new.isnan().all()) and not old.isnan().all() for old, new in pairs)


def _sameness(before: fx.GraphModule, after: fx.GraphModule, case: Case, options: Options) -> Finding:
    """Return the finding on whether the two compute the same function."""
    inputs = case.inputs() if case.inputs else None
    result = equivalent(before, after, inputs, options)
    reason = "" if result.ok else result.reason
    if not result.ok and _nan_everywhere(before, after, inputs or before.meta.get("inputs", ())):
        reason = f"An output of your graph is NaN everywhere, on ordinary inputs. {reason}"
    small = (result.graph, result.graph_after) if result.graph is not None else (before, after)
    mark = (result.first_diverging,) if result.first_diverging else ()
    return Finding("same", result.ok, reason, before=small[0], after=small[1], mark=mark)


def _valid(before: fx.GraphModule, after: object) -> Finding:
    """Return the finding on whether a pass returned a well-formed graph."""
    broken = why_not_valid(before, after)
    if not broken:
        return Finding("valid", True)
    return Finding("valid", False, broken, before=before, after=after if isinstance(after, fx.GraphModule) else None)


def judge_pass(
    did: Law, spared: Law | None = None, cost: Law | None = None, **equivalence
) -> Callable[[Case, object], Iterator[Finding]]:
    """Return the judge of a pass over FX graphs: valid, then same (by `equivalent`), then the exercise's own laws.

    See `passlab.judge.expect.pass_judge`. Keyword arguments are options of `equivalent`.
    """
    options = Options(**equivalence)
    return pass_judge(
        _valid,
        lambda before, value: (before, rebuild(value)),
        lambda before, after, case: _sameness(before, after, case, options),
        did,
        spared,
        cost,
    )
