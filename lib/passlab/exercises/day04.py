"""Day 4, fusion: its exercises. Cases and judges need torch and TVM: they are in modules beside this."""

from __future__ import annotations

from passlab.exercises import later
from passlab.judge import Exercise

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        id="day04.linear-act",
        title="Linear, bias and activation",
        points={"valid": 1, "same": 2, "did": 3, "spared": 3, "cost": 1},
        difficulty=3,
        minutes=25,
        hints=(
            "Start at the activation and walk up: is its operand a product, or a sum of a product and a bias? Write "
            "one function that says (x, weight, bias) of a node, whatever its spelling, or None.",
            "Both orders of the sum: for y, b in (node.args, node.args[::-1]). A value is read once if len(node.users) "
            "is 1 and it stands once among the operands of that user. A bias has the shape (weight.shape[0],), and "
            "with kwargs (alpha, beta) nothing matches. Parameters of a module have the path 'fc.weight'.",
            "with gm.graph.inserting_before(activation): weight = gm.graph.get_attr('fc.weight'), then new = "
            "gm.graph.call_function(linear_act, (x, weight, bias, 'relu')). Hand over the users, then erase the "
            "activation, the sum, the product and w.t(), in this order, each if it has no users. Leave it all alone if "
            "x, weight or bias is in written(gm.graph).",
        ),
        cases=later("cases_day04_rewrites", "linear_cases"),
        judge=later("cases_day04_rewrites", "judge_linear"),
        flavour="relax",
    ),
    Exercise(
        id="day04.attention",
        title="Attention as one op",
        points={"valid": 1, "same": 2, "did": 4, "spared": 4, "cost": 1},
        difficulty=4,
        minutes=35,
        hints=(
            "Begin at the last product and walk up, one step of the formula at a time: dropouts, softmax, mask, scale, "
            "scores. Each step is a function that looks at a node and gives what is above it, or None.",
            "A step that may be missing gives its own operand back: no scale is the scale 1.0, and x / c is x * (1 / "
            "c). A sum is tried both ways: which side is the product? softmax knows its dimension as dim=, as second "
            "operand, as module.dim; -1 and rank - 1 are one. A dropout that does nothing has no effects(node).",
            "masked_fill(mask, -inf) hides where mask is True, attn_mask shows where it is True: "
            "torch.logical_not. Every value between the scores and the probabilities has one reader, which reads it "
            "once. At last compare shapes (leading dimensions of q, k, v; the scores before and behind the mask) and "
            "dtypes, and pass scale=1.0 where there is none.",
        ),
        cases=later("cases_day04_rewrites", "attention_cases"),
        judge=later("cases_day04_rewrites", "judge_attention"),
        flavour="relax",
    ),
)
