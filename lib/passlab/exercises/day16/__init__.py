"""Day 16, all rewrites at once: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"saturation": "torch"}

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        id="day16.egraph",
        title="An e-graph",
        section="Congruence",
        points={"valid": 1, "same": 2, "did": 4, "spared": 2},
        difficulty=2,
        minutes=40,
        hints=(
            "Keep three lists: for each term its leader, its e-node as it was added, and the answers. `find` follows "
            "leaders; a union lets the leader of one class point to that of the other.",
            "rebuild: go through all terms with a new dictionary from e-nodes, with find(operand) for each operand, to "
            "the first term that has it. Join every later term with it. Repeat that until a whole round joins nothing.",
            "At the end, rebuild once more. Then go through the terms and collect (label, *classes of the operands) "
            "for the class of each term: as keys of a dictionary, so that none is there twice.",
        ),
        meaning={
            "valid": "answers and classes of the right form",
            "same": "terms in one class are equal",
            "did": "equal terms are in one class",
            "spared": "each e-node is stored once",
        },
        helps={"valid": 3, "same": 1, "did": 2, "spared": 3},
    ),
    Exercise(
        id="day16.saturate",
        title="Saturation",
        section="Saturation",
        points={"valid": 1, "same": 2, "did": 4, "spared": 2, "cost": 1},
        difficulty=2,
        minutes=45,
        hints=(
            "To match a pattern with a class: if it is a variable, compare with what it is bound to, or bind it. "
            "Otherwise try each e-node of the class that has the label and as many operands.",
            "Operand by operand, keep a list of all bindings so far: bindings = [b for old in bindings for b in "
            "matches(part, operand, old)]. It begins with the one that was passed in.",
            "First collect (class, right side, binding) for all laws and all classes, then apply all of them: "
            "graph.union(number, instance(right, binding)). Count the unions that return True, and rebuild before you "
            "count e-nodes.",
        ),
        meaning={
            "valid": "a report of the right form",
            "same": "terms in one class are equal",
            "did": "what the laws make equal is in one class",
            "spared": "it stops where it must",
            "cost": "no e-node too many or too few",
        },
        helps={"valid": 3, "same": 1, "did": 2, "spared": 3, "cost": 3},
        closed=(
            "passlab.egraph.laws.saturate",
            "passlab.egraph.laws.matches",
            "passlab.egraph.laws.new_matches",
            "passlab.egraph.search.search",
            "passlab.egraph.discover.follows",
        ),
    ),
    Exercise(
        id="day16.laws",
        title="The weakest precondition",
        section="What a law needs",
        points={"valid": 1, "same": 3, "did": 3, "spared": 2},
        difficulty=2,
        minutes=25,
        hints=(
            "Both sides, and each condition, are tensors with one entry for each input. First compute where the sides "
            "are the same, as the lesson does for x · 0 = 0.",
            "itertools.combinations(conditions, count) gives the choices of `count`. Where a choice admits is the "
            "product (&) of its conditions; with none, everywhere. It is enough if it admits no input for which the "
            "sides differ.",
            "Of all choices that are enough, take one with the largest sum. If none is enough, take an input that "
            "satisfies all conditions and for which the sides differ: .nonzero()[0] gives its place.",
        ),
        meaning={
            "valid": "a decision of the right form",
            "same": "no input was overlooked",
            "did": "no weaker precondition is enough",
            "spared": "refuted laws come with an input",
        },
        helps={"valid": 3, "same": 1, "did": 2, "spared": 3},
    ),
    Exercise(
        id="day16.extract",
        title="The cheapest term",
        section="The cheapest term",
        points={"valid": 1, "did": 3, "cost": 4},
        difficulty=2,
        minutes=40,
        stretch=True,
        hints=(
            "As trees: keep for each class the cheapest e-node so far and its price. Go through all classes again and "
            "again, until no price changes. An e-node has a price as soon as all its operands have one.",
            "With shared parts, the cheapest trees are only a start: a part that is dear by itself can pay if two need "
            "it. Let an integer program decide: a 0-1 variable for each class that is used and for each e-node that is "
            "taken. A class that is used takes one, and the operands of what is taken are used.",
            "Loops: give each class a level, a whole number. If an e-node is taken, its operands are on lower levels: "
            "model.add(level[operand] < level[number]).only_enforce_if(take). As trees, replace an e-node only by a "
            "cheaper one, not by one that costs the same.",
        ),
        meaning={
            "valid": "a choice that makes terms",
            "did": "as trees, none is cheaper",
            "cost": "with shared parts, none is cheaper",
        },
        helps={"valid": 3, "did": 1, "cost": 2},
        closed=("passlab.egraph.extract.cheapest", "passlab.egraph.extract.cheapest_shared"),
    ),
    Exercise(
        id="day16.proof",
        title="Why two terms are equal",
        section="Why are two terms equal?",
        points={"valid": 1, "did": 4, "spared": 2, "cost": 2},
        difficulty=2,
        minutes=40,
        stretch=True,
        hints=(
            "First write a generator of all single steps from a term: try each law, both ways, at the whole term; then "
            "the steps of each operand, with its number put before their places.",
            "Search from both ends: two dictionaries, from each term that was reached to the chain that leads to it. "
            "In each round take the side with fewer new terms one step further. A term in both dictionaries joins two "
            "chains: the second one is walked in reverse, and each of its laws is read the other way.",
            "To match is to fill a dictionary: binding.setdefault(variable, term) == term is right for the first and "
            "for each later occurrence. Look for a common term before the first round and after each of the `most` "
            "rounds; if there is none then, there is no chain.",
        ),
        meaning={
            "valid": "steps of the right form",
            "did": "each step holds, the last reaches the end",
            "spared": "no chain where there is none",
            "cost": "no more steps than are allowed",
        },
        helps={"valid": 1, "did": 2, "spared": 3, "cost": 2},
        closed=("passlab.egraph.graph.EGraph.explain",),
    ),
    Exercise(
        id="day16.discover",
        title="Laws found by evaluation",
        section="Laws found by evaluation",
        points={"valid": 1, "same": 2, "did": 4, "spared": 3},
        difficulty=2,
        minutes=35,
        stretch=True,
        seconds=10.0,
        hints=(
            "All terms of n operations: one of them is outermost, and its operands share the other n - 1. So keep the "
            "terms in lists by their number of operations, and build each list from the earlier ones.",
            "Go through the terms from small to large, with a dictionary from values to the first term that has this "
            "value: key = tuple(value(term, numbers).flatten().tolist()). A term with a known value is the left side "
            "of an equation, the known term the right one, if its variables allow that.",
            "Numbers are not enough: use matrices, of which a @ b is not b @ a. Add an equation only if follows says "
            "that it does not follow from the laws so far. At the end, leave out each law that follows from those that "
            "are still there.",
        ),
        meaning={
            "valid": "laws of the right form",
            "same": "each law is true",
            "did": "all true laws follow from them",
            "spared": "none follows from the others",
        },
        helps={"valid": 2, "same": 3, "did": 1, "spared": 3},
        closed=(
            "passlab.egraph.discover.discover",
            "passlab.egraph.discover.candidates",
            "passlab.egraph.discover.enumerate_terms",
        ),
    ),
)
