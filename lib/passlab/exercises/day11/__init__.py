"""Day 11, beyond one chip: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"wafer": "torch"}

EXERCISES = (
    Exercise(
        id="day11.cost",
        title="Five numbers",
        section="Five numbers",
        points={"valid": 1, "did": 3, "same": 3, "cost": 1},
        difficulty=2,
        minutes=30,
        hints=(
            "Three of the numbers are sums or counts over messages, one at a time. For distance and depth, a message "
            "needs those of the messages that it waits for or streams: ask for them first.",
            "Count words sent and words received by a core apart; a multicast is sent once and each target gets it. "
            "Links are pairs of cores that follow each other in a route: keep them in a set.",
            "Write before(number), cached: the longest way up to the message's source, and its depth. A parent brings "
            "its own way and route.index(source) more links, since it may go on beyond that core.",
        ),
        meaning={
            "did": "contention, energy and links are right",
            "same": "distance and depth follow what waits",
            "cost": "the cycles follow from the five numbers",
        },
        helps={"valid": 1, "did": 2, "same": 3, "cost": 1},
        closed=("passlab.wafer.model.cost", "passlab.wafer.model.numbers"),
    ),
    Exercise(
        id="day11.place",
        title="A place for everything",
        section="Where?",
        points={"valid": 1, "did": 3, "spared": 2, "cost": 3},
        difficulty=2,
        minutes=25,
        stretch=True,
        hints=(
            "How many bytes does each core of a p × q rectangle hold? Write that function first. For the window only "
            "the number of columns counts, for the result only the number of rows.",
            "Keep the free bytes of each core in a dictionary. Large operations go first, because they need many cores "
            "side by side; small ones find room in what is left, also beside other operations.",
            "For each operation, go through all shapes, those with the fewest cores first, and for each shape through "
            "all corners; take the first place where every core has enough free bytes. Not on every grid will the "
            "first shape of several with equally many cores do.",
        ),
        helps={"valid": 1, "did": 1, "spared": 3, "cost": 2},
    ),
    Exercise(
        id="day11.near",
        title="Placing stages near their neighbours",
        section="A network on the grid",
        points={"valid": 1, "did": 4, "spared": 3},
        difficulty=2,
        minutes=30,
        hints=(
            "Place one task after the other, each on the free core where its words to those that are placed already "
            "travel least. The first one can go anywhere, for example into a corner.",
            "Numbers of tasks say nothing. Next is always the task with the most words to those that are placed: it "
            "has the most to lose.",
            "If it is still too far: once all are placed, exchange two cores, of which one may be free, and keep it "
            "if words × hops went down. The words of the two tasks alone tell; twenty thousand pairs take a second.",
        ),
        meaning={
            "did": "words travel less far than row by row",
            "spared": "it does not depend on the numbers of tasks",
        },
        helps={"valid": 1, "did": 1, "spared": 2},
        closed=("passlab.wafer.placing.greedy", "passlab.wafer.placing.search"),
    ),
    Exercise(
        id="day11.reduce",
        title="The right tree",
        section="A reduce is a tree",
        points={"valid": 1, "did": 4, "cost": 4},
        difficulty=3,
        minutes=30,
        hints=(
            "Simulate the four trees of the lesson on P = 16 beside bound(16, B), for B from 1 to 1024: mostly one of "
            "them is near. On P = 17 with 4 words, or P = 26 with 48, none is: a tree has to be built for P and B.",
            "Let core 0 receive its last message from core i. Cores 0 … i - 1 form a tree of their own, whose sum must "
            "be complete before, and cores i … P - 1 another one, whose words pass through. So the best trees of "
            "fewer cores make the best tree of P.",
            "Let start[p] be the cycle in which the first word of the sum of p cores is ready, start[1] = 0. It is the "
            "least over i of max(start[i] + (words if i > 1 else 0), start[p - i] + i + 5). Keep the best i for each "
            "p, then split 0 … P - 1 at its i, parents[i] = 0, and both parts in the same way.",
        ),
        helps={"valid": 1, "did": 2, "cost": 2},
        closed=(
            "passlab.wafer.collectives.star",
            "passlab.wafer.collectives.chain",
            "passlab.wafer.collectives.tree",
            "passlab.wafer.collectives.two_phase",
        ),
    ),
    Exercise(
        id="day11.matmul",
        title="A matrix product with short paths",
        section="Products of matrices on a mesh",
        points={"valid": 1, "did": 5, "cost": 4},
        difficulty=4,
        minutes=45,
        stretch=True,
        hints=(
            "Begin with Cannon's algorithm: row i of A moves by i at first, column j of B by j; then everything moves "
            "by one core a step. It is right, but a block goes from one end of a row to the other.",
            "The cores of a row need not form a ring in the order of their positions. Which order of 0 … 5 has "
            "neighbours, the last and the first among them, that are at most two apart?",
            "0 2 4 5 3 1. Let place[core] be the position in this ring. Core (i, j) must begin with k at position "
            "(place[i] + place[j]) % n, and then take the block of the next position, for A along the row, for B along "
            "the column. With room nothing shifts: in step k, column k sends its blocks of A to both sides along the "
            "rows, and row k its blocks of B along the columns.",
        ),
        helps={"valid": 1, "did": 1, "cost": 2},
        closed=(
            "passlab.wafer.matmul.shift",
            "passlab.wafer.matmul.cannon",
            "passlab.wafer.matmul.summa",
            "passlab.wafer.matmul._rotate",
            "passlab.wafer.matmul.fold",
        ),
    ),
    Exercise(
        id="day11.search",
        title="A search with a budget",
        section="Fusion, layout and tuning are other problems here",
        points={"valid": 1, "did": 2, "cost": 4},
        difficulty=4,
        minutes=40,
        stretch=True,
        hints=(
            "Exchange two random cores whenever the change is negative. It improves, and then it is stuck: no single "
            "exchange helps. Sometimes it must be allowed to get worse.",
            "Annealing takes a change for the worse with probability exp(-change / heat). The heat begins at about the "
            "size of a usual change, which a hundred trials tell, and falls by the same factor in each step, to some "
            "thousandth of it. Remember the best placement that you have seen.",
            "share = 1 - board.left / total; heat = first * 0.003 ** share. Add up the changes of the exchanges that "
            "you make: when the sum is the lowest so far, keep board.cores(). Late in the search only cores near each "
            "other are worth a trial.",
        ),
        helps={"valid": 1, "did": 1, "cost": 2},
        closed=("passlab.wafer.placing.greedy", "passlab.wafer.placing.search"),
        seconds=20,
    ),
    Exercise(
        id="day11.scaling",
        title="Where scaling stops",
        section="Scaling",
        points={"valid": 1, "same": 4, "did": 3, "cost": 1},
        difficulty=3,
        minutes=35,
        stretch=True,
        hints=(
            "Write one function for the three parts of an iteration, given the block b and the side p. Strong scaling "
            "calls it with b = columns // p, weak scaling with the same b for every p.",
            "In strong scaling, work falls with p², the halo with p, and the sums grow with p. One core has no halo "
            "and no sums.",
            "Keep the three parts for each side. The efficiency is sum(table[1]) / (cores · sum(table[p])), with p² "
            "for cores in strong scaling and 1 in weak scaling; at the first one below 0.5, compare halo and sums.",
        ),
        meaning={
            "same": "the cycles of each side are right",
            "did": "the fastest side and the bends are found",
            "cost": "it is known what bends each curve",
        },
        helps={"valid": 1, "same": 2, "did": 3, "cost": 3},
        closed=(
            "passlab.wafer.scaling.parts",
            "passlab.wafer.scaling.strong",
            "passlab.wafer.scaling.weak",
            "passlab.wafer.scaling.efficiency",
            "passlab.wafer.scaling.bend",
        ),
    ),
)
