"""Day 17, breaking compilers: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"breaking": "torch"}

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        id="day17.oracle",
        title="An oracle",
        section="How different is different?",
        points={"valid": 1, "did": 3, "spared": 4, "same": 2},
        difficulty=2,
        minutes=40,
        hints=(
            "Write run(gm, inputs), which returns the outcome of a run (results and inputs together), or None after an "
            "error, and whether the state of the generator has moved. Call it four times, each time with new copies.",
            "Flatten two outcomes with torch.utils._pytree.tree_flatten: the nestings have to be equal; then compare "
            "leaf by leaf. Compare twice: as they are, everything but finite numbers; widened, the numbers.",
            "As they are: a.dtype == b.dtype, a.shape == b.shape, and of floats masked_fill(isfinite, 0) has to be "
            "equal, with NaN equal to NaN. Widened: torch.allclose with rtol=0, atol=1e-6 times the largest finite "
            "magnitude, equal_nan=True.",
        ),
        meaning={
            "valid": "one of the three words",
            "did": "no miss",
            "spared": "no false alarm",
            "same": "it knows when it cannot tell",
        },
        helps={"valid": 1, "did": 3, "spared": 3, "same": 1},
    ),
    Exercise(
        id="day17.generate",
        title="Graphs that break passes",
        section="Programs that break passes",
        points={"valid": 1, "did": 4, "spared": 2, "cost": 2},
        difficulty=2,
        minutes=50,
        hints=(
            "A graph may return many results: put into one graph several expressions of which each is nearly another "
            "one, or several uses of a law. Write down first what a pass must look at: each of these is one way to "
            "overlook something.",
            "cse: the same call with another keyword, number, type of number, dtype, order; two layers of one class; "
            "dropout twice; the same read before and after a write (of the value, of a view, of a parameter). dce: "
            "for each kind of effect, one whose result nobody uses, before something that notices it: a read of the "
            "memory, a later draw.",
            "simplify: run the laws on 0, inf, NaN, 1e30, on integers and uint8, with a parameter of ones that is "
            "wider than x, with alpha=2, with a write afterwards (to either of the two), and call layers neg, abs and "
            "relu that are something else.",
        ),
        meaning={
            "valid": "graphs that run, within the limits",
            "did": "half of the faulty passes are exposed",
            "spared": "three quarters are",
            "cost": "all are, or all but one",
        },
        helps={"valid": 1, "did": 1, "spared": 2, "cost": 3},
        closed=("passlab.fx.generate.random_graph",),
    ),
    Exercise(
        id="day17.shrink",
        title="The smallest graph",
        section="Shrinking",
        points={"valid": 1, "same": 2, "did": 3, "spared": 1, "cost": 2},
        difficulty=2,
        minutes=30,
        hints=(
            "Keep the reason of the whole graph. Try edits one by one; take an edit if the graph has fewer operations "
            "and fails for the same reason, and then begin anew. End if no edit helps.",
            "Write one function for all edits: it copies what given results need, and has for some nodes another node "
            "or a tensor, for a new input, in their place. Inputs come first in a graph: find out what is needed "
            "before you copy.",
            "Try those edits first that remove most: returning an inner node; cutting off late nodes. Some faults show "
            "only where an inner value is read twice: then two results have to stay, and to step back from one of them "
            "leads there.",
        ),
        meaning={
            "valid": "a graph that runs on its inputs",
            "same": "it fails for the same reason",
            "did": "it has few operations",
            "spared": "every input is read",
            "cost": "it has the fewest operations",
        },
        helps={"valid": 2, "same": 1, "did": 3, "spared": 2, "cost": 3},
        closed=("passlab.equivalence.shrink", "passlab.fx.shrink.shrink"),
    ),
    Exercise(
        id="day17.metamorphic",
        title="A law as an oracle",
        section="A law as an oracle",
        points={"valid": 1, "same": 3, "did": 5},
        difficulty=2,
        minutes=30,
        stretch=True,
        hints=(
            "For each row of the table, look for a law with which the wrong place moves: tanh(x) = -tanh(-x). With "
            "-x, what was negative is positive. Three graphs are enough, one for each part of the table.",
            "A subclass of fx.Transformer replaces each operation: in call_function(self, target, args, kwargs), "
            "return what stands for target(*args, **kwargs). For a sum, flip the operand; for softmax, also flip the "
            "result back; for a product of matrices, transpose.",
            "Against two operations in a row, put two negations after each operation. Against shared values, copy the "
            "graph from its output back, and each operand anew for each reader: graph.node_copy(node, computed), where "
            "computed is the function itself.",
        ),
        meaning={
            "valid": "graphs with the inputs of the program",
            "same": "no false alarm",
            "did": "faulty compilers are exposed",
        },
        helps={"valid": 1, "same": 2, "did": 3},
    ),
    Exercise(
        id="day17.triage",
        title="One class for each fault",
        section="Two faults or one?",
        points={"valid": 1, "did": 4, "spared": 4},
        difficulty=2,
        minutes=40,
        stretch=True,
        hints=(
            "Write a function signature(failure) that returns the same for failures of one fault. The classes are then "
            "a dictionary from signatures to lists of numbers.",
            "Walk through the graph in order, with a dictionary from nodes to the compiler's values. Compute each node "
            "anew from the compiler's values of its operands. The first value that differs is where the fault is.",
            "A node without a value goes on with what you computed, and hands its operations on to the node that reads "
            'it. Of a message, re.sub(r"\'[^\']*\'|\\d+", "…", text) removes names and numbers.',
        ),
        meaning={
            "valid": "each failure is in one class",
            "did": "the same fault is together",
            "spared": "different faults are apart",
        },
        helps={"valid": 1, "did": 2, "spared": 3},
    ),
    Exercise(
        id="day17.hunt",
        title="A fault in torch",
        section="Real compilers",
        points={"valid": 1, "spared": 1, "did": 5, "cost": 2},
        difficulty=3,
        minutes=40,
        stretch=True,
        hints=(
            "Read the source of the pass (inspect.getsource) and ask of each line what it takes for granted. What does "
            "CSEPass compare when it compares two calls? What becomes of keywords in NormalizeOperators?",
            "In Python, 1 == 1.0 and 0.0 == -0.0. NormalizeOperators keeps two operands of a call. A folded constant "
            "becomes a parameter: try a number or a dtype. merge_matmul concatenates the left operands. fuse puts new "
            "weights into a layer: who else calls it?",
            "Trace a module whose class has your forward: fx.symbolic_trace(root). passlab.hunt.search.failure("
            "TARGETS[target], gm), with gm.meta['inputs'] set, says how a pass fails on a graph. Keep two graphs for "
            "each target, and return the one that calls nothing of without.",
        ),
        meaning={
            "valid": "a graph that runs on its inputs",
            "spared": "the promise covers the graph",
            "did": "the pass breaks its promise",
            "cost": "the graph is small",
        },
        helps={"valid": 3, "spared": 3, "did": 2, "cost": 1},
    ),
)
