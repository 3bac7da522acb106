"""Day 16, all rewrites at once: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"saturation": "torch"}

EXERCISES: tuple[Exercise, ...] = (
    Exercise(
        id="day16.extract",
        title="The cheapest term",
        section="The cheapest term",
        points={"valid": 1, "did": 3, "cost": 4},
        difficulty=2,
        minutes=45,
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
        minutes=45,
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
            "did": "each step holds, and the chain ends where it must",
            "spared": "no chain where there is none",
            "cost": "no more steps than are allowed",
        },
        helps={"valid": 1, "did": 2, "spared": 3, "cost": 2},
        closed=("passlab.egraph.graph.EGraph.explain",),
    ),
    Exercise(
        id="day16.discover",
        title="Laws that nobody wrote",
        section="Laws that nobody wrote",
        points={"valid": 1, "same": 2, "did": 4, "spared": 3},
        difficulty=2,
        minutes=45,
        stretch=True,
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
