"""What the exercises of day 4 share."""

from __future__ import annotations

from torch import fx

from passlab.fx.cases import live, parameters
from passlab.fx.nodes import op_name
from passlab.judge import listed, plural
from passlab.judge.expect import Expectation

FUSED = ("linear_act", "scaled_dot_product_attention")
#: What turns a boolean mask round.
TURNS = ("logical_not", "bitwise_not", "invert", "inv")


def replaced(before: fx.GraphModule, after: fx.GraphModule, part: str = "") -> str:
    """Words for the last of the nodes that are gone, as " for relu_1": of ops with `part` in their name, if any."""
    kept = {(node.name, op_name(node, after)) for node in live(after)}
    gone = [node for node in live(before) if (node.name, op_name(node, before)) not in kept]
    last = [node for node in gone if node.op.startswith("call") and not any(user in gone for user in node.users)]
    last = [node for node in last if part in op_name(node, before).lower()] or last
    return f" for {listed(last)}" if last else ""


def calls(number: int, why: str) -> Expectation:
    """At most `number` nodes call something (dead ones count), and no parameter is held twice."""

    def law(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
        alive = set(live(after))
        there = [n for n in after.graph.nodes if n.op.startswith("call")]
        if len(there) > number:
            dead = [n for n in there if n not in alive]
            rest = [n for n in there if op_name(n, after) not in FUSED]
            rest = [n for n in rest if op_name(n, after) not in TURNS] or rest
            left = f" Nothing uses {listed(dead)} any more: erase it." if dead else f" It still calls {listed(rest)}."
            return f"{why} The graph has {plural(len(there), 'call')}; {number} are enough.{left}"
        extra = parameters(after) - parameters(before)
        if extra > 0:
            return f"The graph holds {extra:,} more parameters than before. Read those that are there, by get_attr."
        return None

    return law
