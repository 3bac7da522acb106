"""Shared parts of the day 4 exercises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from passlab.fx.cases import live, parameters
from passlab.fx.nodes import op_name
from passlab.judge import enough, listed, plural
from passlab.judge.expect import Expectation
from passlab.judge.forms import why_not_a_name

FUSED = ("linear_act", "scaled_dot_product_attention")
#: Operations that invert a boolean mask.
TURNS = ("logical_not", "bitwise_not", "invert", "inv")


def replaced(before: fx.GraphModule, after: fx.GraphModule, part: str = "") -> str:
    """Return words for the last of the removed nodes, such as " for relu_1"; prefer ops with `part` in their name."""
    names = {(node.name, op_name(node, after)) for node in live(after)}
    rest = [node for node in live(before) if (node.name, op_name(node, before)) not in names]
    last = [node for node in rest if node.op.startswith("call") and not any(user in rest for user in node.users)]
    last = [node for node in last if part in op_name(node, before).lower()] or last
    return f" for {listed(last)}" if last else ""


def why_not_a_call(gm: fx.GraphModule) -> Callable[[Any], str]:
    """Return a function that says, as the end of a sentence, why a value is not the name of a call, or ""."""
    op_of = {n.name: n.op for n in gm.graph.nodes}

    def why_not(name: Any) -> str:
        tail = why_not_a_name(name, op_of)
        return tail or ("" if op_of[name].startswith("call_") else "which is not an operation")

    return why_not


def calls(number: int, why: str) -> Expectation:
    """Expect at most `number` calls (dead ones count), and no duplicated parameter."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        alive = set(live(after))
        nodes = [n for n in after.graph.nodes if n.op.startswith("call")]
        if len(nodes) > number:
            dead = [n for n in nodes if n not in alive]
            rest = [n for n in nodes if op_name(n, after) not in FUSED]
            rest = [n for n in rest if op_name(n, after) not in TURNS] or rest
            remedy = f" Erase {listed(dead)}, now unused." if dead else f" It still calls {listed(rest)}."
            return f"{why} The graph has {plural(len(nodes), 'call')}; {enough(number)}.{remedy}"
        extra = parameters(after) - parameters(before)
        if extra > 0:
            return f"The graph holds {extra:,} more parameters than before. Read the existing ones with get_attr."
        return None

    return law
