"""Day 15, quantization as a pass: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"quantization": "torch"}

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        id="day15.grid",
        title="A grid for a range",
        section="A grid",
        points={"valid": 1, "same": 2, "did": 3, "spared": 2},
        difficulty=1,
        minutes=15,
        hints=(
            "Three steps, in this order: refuse what has no grid, extend the range to 0, and compute. Which comparison "
            "is true of NaN?",
            "A grid of b bits has the integers -2**(b - 1) to 2**(b - 1) - 1: between its ends are 2**b - 1 steps. A "
            "symmetric one uses as many steps above 0 as below it.",
            "Let low become min(low, 0) and high become max(high, 0). The zero point is round(first - low / scale), "
            "with the scale that is returned, so that low is at the first integer.",
        ),
        meaning={
            "valid": "a scale and a zero point, or None",
            "did": "the smallest scale that covers the range",
            "same": "0 and the ends are where they belong",
            "spared": "no grid where there is none, only there",
        },
        helps={"valid": 2, "same": 3, "did": 2, "spared": 1},
        closed=("passlab.quantization.grids.grid", "passlab.quantization.grids.weight_scales"),
    ),
    Exercise(
        id="day15.insert",
        title="Pairs in the right places",
        section="Insert",
        points={"valid": 1, "same": 2, "did": 3, "spared": 2, "cost": 2},
        difficulty=2,
        minutes=45,
        hints=(
            "Decide first, and change the graph afterwards: collect the values that need a pair, without repetition, "
            "while the graph is still the float one. A dict keeps the order of its keys.",
            "An operand of a layer: walk back while the node is one of MOVES. A result of a layer: look at its "
            "readers; if there is one, and it is a relu, the pair belongs behind that.",
            "node.replace_all_uses_with(pair, lambda user: user is not q) redirects all readers but the quantize. For "
            "weights, keep a dict from id(attribute(gm, node.target)) to the pair, and use "
            "layer.replace_input_with(weight, pair).",
        ),
        meaning={
            "valid": "a graph with the same inputs and outputs",
            "same": "pairs have the right grids, and nothing else changes",
            "did": "each value of a layer has its pair",
            "spared": "no pair anywhere else",
            "cost": "one pair for each value and each weight",
        },
        helps={"valid": 3, "same": 3, "did": 2, "spared": 2, "cost": 1},
        closed=("passlab.quantization.insert.insert",),
    ),
    Exercise(
        id="day15.fold",
        title="Integers between the layers",
        section="Integers only",
        points={"valid": 1, "same": 4, "did": 2, "spared": 2, "cost": 1},
        difficulty=2,
        minutes=50,
        hints=(
            "Start at each quantize and walk back: perhaps a relu, then the layer, then the dequantizes of its value "
            "and of its weight. Write a function that returns the layer, or None at the first thing that does not "
            "match.",
            "In float64: the bias is on the grid of scale s_x * s_w, and the factor is s_x * s_w / s_out; both are "
            "vectors, one number for each output. fixed_points(factors) makes multipliers and shifts.",
            "ends(bits) are the two ends of the result's grid. A relu cuts off what is below 0, and 0 is the integer "
            "zero_point: with one, the low end is the zero point.",
        ),
        meaning={
            "valid": "a graph with the same inputs and outputs",
            "same": "bit for bit the stated integers",
            "did": "each layer that can computes with integers",
            "spared": "all else stays in float",
            "cost": "the integers of a weight are stored once",
        },
        helps={"valid": 1, "same": 2, "did": 1, "spared": 1, "cost": 3},
        closed=("passlab.quantization.fold.fold", "passlab.quantization.fold.layer_of"),
    ),
    Exercise(
        id="day15.move",
        title="Bytes that move",
        section="Move",
        points={"valid": 1, "same": 3, "did": 4, "spared": 2},
        difficulty=2,
        minutes=40,
        stretch=True,
        hints=(
            "Do the laws one after the other: first let each quantize go up as far as it can, then each dequantize "
            "down, then remove the pairs that have met. For the first, go backward.",
            "For the first law: new quantize nodes before t, one for each of t.all_input_nodes, each put into t by "
            "replace_input_with. What read the old quantize reads t, and the old one is erased. The new ones may go "
            "further: keep them in a list of what is still to do.",
            "For the second law: collect the grids (node.args[1:]) of all operands in a set; it must have one entry, "
            "and no None. Put the new dequantize behind t, and let all users of t but this one read it: "
            "t.replace_all_uses_with(new, lambda user: user is not new).",
        ),
        meaning={
            "same": "all results, bit for bit",
            "did": "no law can be applied any more",
            "spared": "all functions are called as often as before",
        },
        helps={"valid": 1, "same": 3, "did": 1, "spared": 2},
        closed=("passlab.quantization.move.move",),
    ),
    Exercise(
        id="day15.pack",
        title="Two in a byte",
        section="Four bits",
        points={"valid": 1, "same": 3, "did": 4, "spared": 2},
        difficulty=2,
        minutes=45,
        stretch=True,
        hints=(
            "For each dequantize node: find its quantize, its weight and its scale. Compute the integers by calling "
            "quantize on the two attributes, with the node's other arguments. Store them, then visit dq.users.",
            "q[:, 0::2] and q[:, 1::2] are the two numbers of each byte. & 15 keeps the low four bits of a number, "
            "also of a negative one; << 4 moves them up. First of all, find the weights whose floats have to stay.",
            "A weight may be the first operand of a linear layer, or both, and the operands may have keywords: a "
            "function operands(input, weight, bias=None), called with *user.args and **user.kwargs, sorts them. "
            "What is left in dq.users after the layers are replaced reads dequantize(unpack(…)).",
        ),
        meaning={
            "did": "the fewest bytes are stored, none unpacked in vain",
            "spared": "everything else stays",
        },
        helps={"valid": 1, "same": 2, "did": 1, "spared": 2},
        closed=("passlab.quantization.pack.pack_int4",),
    ),
    Exercise(
        id="day15.migrate",
        title="Outliers into weights",
        section="Outliers moved into weights",
        points={"valid": 1, "same": 3, "did": 4, "spared": 2},
        difficulty=3,
        minutes=50,
        stretch=True,
        hints=(
            "Decide first, and change constants afterwards: one dictionary from nodes to the factor by which their "
            "value is divided, and one from layers to the factor by which their columns are multiplied.",
            "From a layer or norm, go forward over relus while there is one reader and it is a relu. Then "
            "list(x.users) are the readers: each must be a layer whose args[0] is x.",
            "The rows of a layer's weight are its outputs: weight / s[:, None], and bias / s. Its columns are its "
            "inputs: weight * s. A layer may need both. torch.cat of all weights, then abs().amax(0), is the maximum "
            "over columns.",
        ),
        meaning={
            "did": "the channels have moved as far as they should",
            "spared": "all other values are the same",
        },
        helps={"valid": 1, "same": 3, "did": 3, "spared": 2},
        closed=("passlab.quantization.migrate.migrate",),
    ),
    Exercise(
        id="day15.plan",
        title="A promise for all inputs",
        section="A mixed plan",
        points={"valid": 1, "same": 3, "did": 3, "cost": 3},
        difficulty=2,
        minutes=40,
        stretch=True,
        hints=(
            "Two parts: first the bound of a plan, as a loop over layers, then the search. m belongs to the float "
            "network, whatever the plan: compute it once, for all layers. W⁺ is weight.clamp(min=0).",
            "A recursive function search(bits, size, e): the bits of the first layers, their bytes, and e behind them. "
            "For each choice of the next layer it calls itself. So no beginning is computed twice.",
            "It returns at once in two cases. If the later layers with 32 bits, e = |W| e for each, end above the "
            "budget. And if its bytes and the fewest of the later layers are not fewer than those of the best plan so "
            "far. Try few bits first, so that a good plan is there early.",
        ),
        meaning={
            "valid": "bits for each layer",
            "same": "the error is within the budget, for all inputs",
            "did": "nearly the fewest bytes",
            "cost": "the fewest bytes",
        },
        helps={"valid": 1, "same": 1, "did": 2, "cost": 3},
        closed=("passlab.quantization.plan.plan",),
    ),
)
