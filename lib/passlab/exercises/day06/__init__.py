"""Day 6, dataflow analysis and cost prediction: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"dataflow": "torch"}

EXERCISES = (
    Exercise(
        id="day06.solver",
        title="One solver",
        section="Facts, merge, transfer",
        points={"valid": 1, "did": 4, "same": 2, "cost": 3},
        difficulty=3,
        minutes=40,
        hints=(
            "Keep two dictionaries, one for the facts that come into a block and one for those that go out, all "
            "`initial` at first. A visit computes both for one block; if what goes out has changed, the blocks that "
            "read it must be visited again.",
            "Forward, a block reads what goes out of its predecessors; backward, of its successors. Start the merge "
            "with the boundary at the entry (backward: at blocks that return), elsewhere with initial. An edge "
            "function applies to each fact on its way.",
            "Number the blocks by reverse_postorder(program, analysis.direction), put all the numbers into a heap, and "
            "always pop the smallest. Push the readers of a changed fact, unless they are waiting already.",
        ),
        meaning={"same": "the visits that it returns lead to these facts"},
        helps={"valid": 1, "did": 2, "same": 1, "cost": 3},
        closed=(
            "passlab.dataflow.solver.solve",
            "passlab.dataflow.solver.round_robin",
            "passlab.dataflow.solver.FixpointState",
        ),
    ),
    Exercise(
        id="day06.liveness",
        title="Liveness",
        section="Facts, merge, transfer",
        points={"valid": 1, "did": 3, "spared": 3},
        difficulty=1,
        minutes=15,
        hints=(
            "Which way do the facts flow? Whether a value is needed depends on what comes later.",
            "Go through a block from its end to its start. An assignment ends a life, a read begins one. In which "
            "order, for x = add x 1?",
            "live = (live - {line.dest}) | set(line.args) for each line of reversed(block.instructions), starting with "
            "what is live after the block and the names that its terminator reads. Facts merge by union.",
        ),
        helps={"valid": 1, "did": 3, "spared": 2},
        closed=("passlab.dataflow.analyses.live_before",),
    ),
    Exercise(
        id="day06.constants",
        title="Constants, and branches not taken",
        section="Constants, and branches that are not taken",
        points={"valid": 1, "did": 4, "spared": 3},
        difficulty=2,
        minutes=30,
        hints=(
            "A fact is a dictionary of the variables whose value is known, and None for a place that no run reaches. "
            "None is the initial fact: merging with it gives the other one.",
            "Merging two dictionaries keeps what is in both with the same value. A result is known if all operands "
            "are; otherwise the variable must leave the dictionary, since it was assigned.",
            "The edge function sees the branching block, the target, and the fact after the block. If the condition "
            "is known, only one of the targets gets the fact, block.terminator.targets[0] for a number other than 0; "
            "the other gets None.",
        ),
        helps={"valid": 1, "did": 3, "spared": 2},
        closed=(
            "passlab.dataflow.analyses.constants_after",
            "passlab.dataflow.analyses.common_constants",
            "passlab.dataflow.analyses.constants_on_edge",
        ),
    ),
    Exercise(
        id="day06.gvn",
        title="Equal values",
        section="Equal values",
        points={"valid": 1, "did": 4, "spared": 3},
        difficulty=4,
        minutes=60,
        stretch=True,
        hints=(
            "A fact can be a set of equations: (x, ('add', 'a', 'b')) for x = a + b, (x, ('copy', 'y')) for x = y, and "
            "(x, ('const', 3)). If a fact holds all equations that follow, the merge of two facts is what is in both.",
            "An assignment x = op(a, b) forgets all equations in which x occurs, and adds one. Before, look for "
            "variables that hold the value already: x will be equal to them. Two variables are equal, too, if both "
            "are given the same constant.",
            "To keep a fact complete, close it after each instruction: equality goes both ways and is transitive; in "
            "an equation a variable can be replaced by an equal one; two variables with the same right side are equal. "
            "Repeat until nothing is new.",
        ),
        helps={"valid": 1, "did": 3, "spared": 2},
        closed=(
            "passlab.dataflow.equations.redundant",
            "passlab.dataflow.equations.equations_after_instruction",
            "passlab.dataflow.equations.equations_after",
            "passlab.dataflow.equations._closure",
        ),
    ),
    Exercise(
        id="day06.ranges",
        title="Ranges",
        section="Ranges",
        points={"valid": 1, "same": 4, "did": 4, "spared": 2},
        difficulty=3,
        minutes=50,
        stretch=True,
        hints=(
            "One pass from first to last: a dictionary from names to (low, high), and one rule for each operation. "
            "Find the end of each operand's range that makes the result smallest.",
            "A product is smallest and largest at a corner: one of low · low, low · high, high · low, high · high. For "
            "a layer no corner is needed: row by row, positive weights take the low end and negative ones the high "
            "end.",
            "up, down = weight.clamp(min=0).sum(1), weight.clamp(max=0).sum(1); the low end is (up * a + down * b + "
            "bias).min(). Compare node.args[0] is node.args[1] before you multiply corners, and let every operation "
            "that you have no rule for end in (-inf, inf).",
        ),
        helps={"same": 2, "did": 3, "spared": 3},
        closed=(
            "passlab.dataflow.ranges.ranges",
            "passlab.dataflow.ranges._transfer",
            "passlab.dataflow.ranges.TRANSFER",
            "passlab.dataflow.ranges.MODULES",
            "passlab.exercises.day06.ranges.bounds",
        ),
    ),
    Exercise(
        id="day06.precision",
        title="A safe float16 plan",
        section="A safe plan for float16",
        points={"valid": 1, "same": 3, "did": 3, "spared": 3},
        difficulty=2,
        minutes=30,
        stretch=True,
        hints=(
            "Collect, for each call, the largest magnitudes that float16 would have to hold, and compare their maximum "
            "with the limit. A range has two ends, and the lower one may be the larger in magnitude.",
            "Decide for each call separately: the values that it reads count, not the precision they were computed in. "
            "So after a node that has to stay in float32, others may be safe again.",
            "A mean of n numbers up to m adds up to n · m first. For a layer, (weight.abs().sum(1) * m + "
            "bias.abs()).max() bounds every sum on the way; terms that cancel in the result do not cancel there.",
        ),
        helps={"same": 1, "did": 2, "spared": 3},
        closed=("passlab.dataflow.precision.plan", "passlab.exercises.day06.precision.reaches"),
    ),
    Exercise(
        id="day06.shapes",
        title="Symbolic shapes",
        section="Symbolic shapes",
        points={"valid": 1, "same": 3, "did": 4, "spared": 3},
        difficulty=4,
        minutes=70,
        stretch=True,
        hints=(
            'Sizes are numbers or text; a formula is text that you put together: f"({a}) * ({b})". Write one helper '
            "that is given two sizes that must be equal: it compares numbers at once and notes a constraint otherwise.",
            "Broadcasting compares from the last dimension on: fill the shorter shape with ones in front. A size of 1 "
            "gives way; two other sizes must be equal. Symbols are never 1.",
            "reshape with -1: the product of all sizes, divided by the sizes that are given; the remainder must be 0. "
            "Without -1: both products are equal. max_pool2d: every side is at least the window, and becomes side // "
            "window.",
        ),
        helps={"same": 2, "did": 3, "spared": 2},
        closed=("passlab.dataflow.shapes.shapes", "passlab.dataflow.shapes._Rules"),
    ),
    Exercise(
        id="day06.predict",
        title="Predict the run time",
        section="How long will it take?",
        points={"valid": 1, "did": 3, "spared": 3, "cost": 4},
        difficulty=3,
        minutes=30,
        stretch=True,
        hints=(
            "The roofline knows the shape of the answer: a start, then the slower of moving and computing. It "
            "does not know the factors of this machine, and they depend on the kind of operator.",
            "Fit each kind by itself, on relative errors: divide each row by its seconds, so that the target is 1 "
            "everywhere. Errors of seconds would leave the choice to the few largest operators.",
            "Columns (1 / t, nbytes / t, flops / t), target 1, scipy.optimize.nnls: three numbers that are not "
            "negative. Unlike trees, they extrapolate beyond the largest measured operator.",
        ),
        meaning={
            "did": "the order of the operators is right",
            "spared": "it holds beyond the measured sizes",
            "cost": "the predictions are near",
        },
        helps={"did": 1, "spared": 3, "cost": 2},
        closed=("passlab.dataflow.predict.fit",),
    ),
)
