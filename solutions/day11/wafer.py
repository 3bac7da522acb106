# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Day 11 · Beyond one chip: exercises
#
# Seven questions. The core is questions 1, 3 and 4, about 90 minutes; the rest, about 145 minutes, is stretch: harder, and
# for extra credit. Read the lesson first: [day11_wafer.ipynb](../../course/day11_wafer.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day11.cost")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
import functools
import itertools
import math
import random
from collections import Counter
from itertools import pairwise

from passlab import check, hint, progress
from passlab.given.day11.search import Board
from passlab.wafer import (
    FORMULAS,
    Machine,
    Message,
    bound,
    numbers,
    program,
    reduce_messages,
    simulate,
)
from passlab.wafer.scaling import Stencil

# %%
progress("day11")

# %% [markdown]
# ## 1 · Five numbers
#
# The cost of messages on the wafer follows from five numbers. They do not depend on the order of the messages:
#
# - `contention`: the most words that one core sends, or receives, all its messages together;
# - `energy`: words times links, summed over the messages; a multicast's words cross each link once;
# - `links`: how many different links are used; the way from one core to another is another link than the way back;
# - `distance`: the links of the longest way. A message that waits for others, or streams them, carries their words on,
#   so their way up to the core where it starts counts, too;
# - `depth`: how many messages there are in the longest chain, each waiting for the one before or streaming it.
#
# Then `cycles` is max(contention, energy / links + distance) + (2 · T_R + 1) · depth.


# %%
def five_numbers(messages: list[Message], ramp: int) -> dict[str, float]:
    """The cost of messages, by name.

    The names are contention, energy, links, distance, depth and cycles.

    In:  messages, one or more: each has route (its cores, from the source on), words,
         waits and streams (numbers of messages that arrive at its source), source, and
         targets (cores of the route that receive the words); ramp, T_R in cycles.
    Out: a dictionary with the six names.
    Not to be called: passlab.wafer.model.cost, passlab.wafer.model.numbers.

    Example: for one message of 10 words over 5 links and T_R = 2, contention 10,
             energy 50, links 5, distance 5, depth 1, cycles 20.
    """
    ### BEGIN SOLUTION
    words: Counter = Counter()
    used, energy = set(), 0
    for message in messages:
        hops = list(pairwise(message.route))
        energy += message.words * len(hops)
        used.update(hops)
        words["out", message.source] += message.words
        for core in message.targets:
            words["in", core] += message.words

    @functools.cache
    def before(number: int) -> tuple[int, int]:
        """The longest way to a message's source, and the depth of the message."""
        message, way, depth = messages[number], 0, 0
        for parent in (*message.waits, *message.streams):
            so_far, deep = before(parent)
            way = max(way, so_far + messages[parent].route.index(message.source))
            depth = max(depth, deep)
        return way, depth + 1

    everything = range(len(messages))
    c = {
        "contention": max(words.values()),
        "energy": energy,
        "links": len(used),
        "distance": max(before(i)[0] + len(messages[i].route) - 1 for i in everything),
        "depth": max(before(i)[1] for i in everything),
    }
    flow = c["energy"] / c["links"] + c["distance"]
    return c | {"cycles": max(c["contention"], flow) + (2 * ramp + 1) * c["depth"]}
    ### END SOLUTION


# %%
check("day11.cost", five_numbers)

# %% [markdown]
# ## 2 · A place for everything · stretch
#
# Every operation of a network needs cores that hold its weights, the window of its operands on which it works, and
# its part of the result. An operation gets a rectangle of p × q cores (p rows, q columns), and is cut like a matrix: a
# core in column j stores that column's share of the window, a core in row i that row's share of the result. So each of
# the p · q cores holds
#
# `ceil(weights / (p · q)) + ceil(window / q) + ceil(result / p)` bytes.
#
# Find a rectangle for each operation so that no core holds more than its memory. Rectangles may overlap: then a core
# holds parts of several operations. An operation that fits on one core by itself stays whole: its rectangle is 1 × 1.
# On some grids every operation can have cores of its own: these cases decide whether your answer is complete. On
# others, operations must share cores: these decide whether it is efficient.

# %%
OPERATIONS = [
    {"name": "wide", "weights": 400, "window": 1200, "result": 100},
    {"name": "tall", "weights": 400, "window": 100, "result": 1200},
    {"name": "one", "weights": 300, "window": 50, "result": 50},
    {"name": "two", "weights": 200, "window": 50, "result": 50},
]


# %%
def place(
    operations: list[dict], rows: int, columns: int, memory: int
) -> dict[str, tuple[int, int, int, int]]:
    """A rectangle of cores for each operation.

    In:  operations: dictionaries with "name", "weights", "window", "result", the last
         three in bytes; rows, columns: of the grid; memory: bytes of one core. There
         are up to 70 operations and 150 cores.
    Out: name → (row, column, rows, columns): the rectangle's first row and column, and
         how many it has.

    Example:  place(OPERATIONS, 2, 3, 1000) can be
              {"wide": (0, 0, 1, 2), "tall": (0, 2, 2, 1), "one": (1, 0, 1, 1),
               "two": (1, 0, 1, 1)}. Each core of wide has 200 + 600 + 100 bytes,
              core (1, 0) 400 + 300.
    """

    ### BEGIN SOLUTION
    def load(operation, p, q):
        parts = (
            (operation["weights"], p * q),
            (operation["window"], q),
            (operation["result"], p),
        )
        return sum(math.ceil(size / cores) for size, cores in parts)

    def cores(r, c, p, q):
        return itertools.product(range(r, r + p), range(c, c + q))

    free, places = dict.fromkeys(cores(0, 0, rows, columns), memory), {}
    shapes = sorted(cores(1, 1, rows, columns), key=math.prod)  # the fewest cores first
    for operation in sorted(operations, key=lambda o: -load(o, 1, 1)):
        options = (
            (r, c, p, q)
            for (p, q), (r, c) in itertools.product(shapes, cores(0, 0, rows, columns))
            if all(
                free.get(core, -1) >= load(operation, p, q)
                for core in cores(r, c, p, q)
            )
        )
        place = places[operation["name"]] = next(options)
        for core in cores(*place):
            free[core] -= load(operation, *place[2:])
    return places
    ### END SOLUTION


# %%
check("day11.place", place)

# %% [markdown]
# ## 3 · Placing stages near their neighbours
#
# Now the tasks are given, one for each core, and the words that they send each other. Choose the cores. A word that goes
# from core (a, b) to core (c, d) makes |a - c| + |b - d| hops; the sum of words × hops is the traffic. Place the tasks
# so that the traffic is small.
#
# Placed row by row, the tasks must have at least 1.4 times your traffic, on average (the geometric mean) over four
# networks of the zoo. Row by row is how the lesson fills a grid: task after task, in the order of the graph, a new row
# when one is full. Tasks may be numbered at random; the order of the graph then still counts. A few small cases have a
# limit of words × hops of their own, well above the minimum; the check names it.


# %%
def near(
    words: list[tuple[int, int, int]], count: int, rows: int, columns: int
) -> list[tuple[int, int]]:
    """A core of its own for each task.

    In:  words: (a, b, number): task a sends task b `number` words. Two tasks may be in
         several of these, in either order; some tasks are in none.
         count: tasks 0 … count - 1, up to 150. rows, columns: of the grid, which has as
         many cores or more.
    Out: [(row, column), ...], for task 0, task 1, and so on; no two are equal.
    Time: 5 s of computing for each test case, which is up to four networks.
    Not to be called: passlab.wafer.placing.greedy, passlab.wafer.placing.search.

    Example:  near([(0, 3, 100), (3, 0, 20), (1, 2, 50)], 5, 2, 3) can be
              [(0, 0), (0, 1), (1, 1), (1, 0), (0, 2)]: each word makes one hop.
    """
    ### BEGIN SOLUTION
    talks = [{} for _ in range(count)]
    for a, b, number in words:
        talks[a][b] = talks[a].get(b, 0) + number
        talks[b][a] = talks[b].get(a, 0) + number
    free, place = [(r, c) for r in range(rows) for c in range(columns)], {}
    pull = dict.fromkeys(range(count), 0)  # words to the tasks that are placed
    while pull:
        task = max(pull, key=pull.get)
        del pull[task]
        near = [
            (place[other], number)
            for other, number in talks[task].items()
            if other in place
        ]
        far = {
            core: sum(n * (abs(core[0] - r) + abs(core[1] - c)) for (r, c), n in near)
            for core in free
        }
        place[task] = min(free, key=far.get)
        free.remove(place[task])
        for other, number in talks[task].items():
            if other in pull:
                pull[other] += number
    return [place[task] for task in range(count)]
    ### END SOLUTION


# %%
check("day11.near", near)

# %% [markdown]
# ## 4 · The right tree
#
# Each of P cores on a line has B words; core 0 needs their sum. A reduce is a tree: core i sends the sum of its subtree
# to core `parents[i]`, which is core 0 or between i and core 0. A core receives from its children one after the other,
# the nearest first, and passes the last one's words on as they arrive. A core that is i links away processes a word
# i + 2 · T_R + 1 cycles after it was ready, T_R = 2. `reduce_messages(parents, words)` returns the messages of a tree.
#
# No tree is best for all P and B. The judge simulates yours; it may take a tenth more than `bound(P, B)`, the minimum
# over all trees by the law of the lesson. For one word per core, the law overestimates, and so does the bound. A tree
# within that tenth exists for each P and B, except for 3 cores with 5 or 6 words each, which no case has. Cases with
# fewer words than cores decide whether your answer is complete, the others whether it is efficient.


# %%
def reduce_tree(cores: int, words: int) -> list[int]:
    """A tree that sums on a line within a tenth of the bound.

    In:  the number of cores, from 2 to 64, and the words of each.
    Out: the list of parents: parents[i] is the core that core i sends to, smaller than
         i; parents[0] is -1.
    Not to be called: passlab.wafer.collectives.star, passlab.wafer.collectives.chain,
         passlab.wafer.collectives.tree, passlab.wafer.collectives.two_phase.

    Example: on 4 cores, a chain is [-1, 0, 1, 2], a star [-1, 0, 0, 0],
             a binary tree [-1, 0, 0, 2].
    """
    ### BEGIN SOLUTION
    start, last = [0, 0], [0, 0]  # for p cores: the first word's cycle; the last child
    for p in range(2, cores + 1):
        ready = {
            i: max(start[i] + words * (i > 1), start[p - i] + i + 5)
            for i in range(1, p)
        }
        last.append(min(ready, key=ready.get))
        start.append(ready[last[p]])
    parents, lines = [-1] * cores, [(0, cores)]  # lines: (first core, how many)
    for first, p in lines:
        if p > 1:
            child = first + last[p]
            parents[child] = first
            lines += [(first, last[p]), (child, p - last[p])]
    return parents
    ### END SOLUTION


# %%
check("day11.reduce", reduce_tree)

# %% [markdown]
# ## 5 · A matrix product with short paths · stretch
#
# On n × n cores, core (i, j) has the blocks A[i, j] and B[i, j] and computes C[i, j], the sum of A[i, k] B[k, j] over all
# k. Return the messages, step by step. In a step, blocks move, all at once; then every core multiplies its block of A by
# its block of B. The product must be a term of its C, a new one in each step; after the last step, each core has had all
# n terms. A message goes to another core; a block that stays needs none. The best steps depend on the memory of a core:
#
# - *Without room* for a second block of a matrix, a core that sends a block to another core no longer has it: blocks
#   *shift*. In the first step they may go any distance. After that, no block may go over more than two links: a way from
#   one end of a row to the other grows with the machine.
# - *With room*, a core keeps the block that it sends, and a message leaves a copy, for this step only, on cores that it
#   passes: a *broadcast*, such as `("A", (1, 2), [(1, 1), (1, 0)])`, to cores one after another in a row or column. In
#   all steps together, no block may go over more than n - 1 links, which are enough to reach all cores of its row or
#   column.


# %%
def mesh_product(n: int, room: bool) -> list[list[tuple]]:
    """The steps of a product on n × n cores.

    In:  n, at least 2; room, whether a core can hold a second block of each matrix.
    Out: a list of steps, each a list of (matrix, source, target), with matrix "A" or
         "B" and cores (row, column); with room, a list of targets, the nearest first.
    Not to be called: passlab.wafer.matmul.shift, passlab.wafer.matmul.cannon,
         passlab.wafer.matmul.summa, passlab.wafer.matmul._rotate,
         passlab.wafer.matmul.fold.

    Example: for n = 2 and no room, the first step may exchange the blocks of A in row 1
             and those of B in column 1, and the second one all blocks of A with their
             neighbours in the row, all blocks of B with those in the column.
    """
    ### BEGIN SOLUTION
    if room:
        steps = []
        for k in range(n):
            sides = [side for side in (range(k - 1, -1, -1), range(k + 1, n)) if side]
            pairs = list(itertools.product(range(n), sides))
            rows = [("A", (i, k), [(i, j) for j in side]) for i, side in pairs]
            steps.append(
                rows + [("B", (k, j), [(i, j) for i in side]) for j, side in pairs]
            )
        return steps
    # 0 2 4 5 3 1: neighbours are at most two links apart
    ring = [
        *range(0, n, 2),
        *reversed(range(1, n, 2)),
    ]
    place = {core: p for p, core in enumerate(ring)}
    first, turn = [], []
    for i, j in itertools.product(range(n), repeat=2):
        left, up = ring[(place[j] - place[i]) % n], ring[(place[i] - place[j]) % n]
        if left != j:
            first.append(("A", (i, j), (i, left)))
        if up != i:
            first.append(("B", (i, j), (up, j)))
        turn.append(("A", (i, j), (i, ring[place[j] - 1])))
        turn.append(("B", (i, j), (ring[place[i] - 1], j)))
    return [first] + [turn] * (n - 1)
    ### END SOLUTION


# %%
check("day11.matmul", mesh_product)

# %% [markdown]
# ## 6 · A search with a budget · stretch
#
# A compiler often cannot predict the effect of a change: it has to compile, simulate or measure, and that takes time. So
# a search has a budget of evaluations. Here a `Board` stands for the machine. It begins with the greedy placement and
# tells you, for one evaluation each, by how much the traffic would change if two cores exchanged their tasks.
#
# | on the board | |
# |---|---|
# | `board.rows`, `board.columns` | the size of the grid; a core is (row, column) |
# | `board.left` | evaluations that are left, 100,000 at first |
# | `board.change(a, b)` | the change of words × hops if cores a and b exchanged tasks; costs an evaluation |
# | `board.swap(a, b)` | exchanges them; costs nothing |
# | `board.cores()` | the current core of each task |
#
# A core may be free. When no evaluation is left, `change` raises an error. The board counts only to help you: the grader
# looks at the placement and the time. The budget is enough for all points.
#
# A case is three boards: a GPT block, an MLP and a residual block, cut for a small grid. On average (the geometric mean
# of the three), the greedy placement must have at least 1.05 times the traffic of yours, and 1.27 times for all points.


# %%
def search(board: Board, rng: random.Random) -> list[tuple[int, int]]:
    """A placement with little traffic, found within the budget.

    In:  board: a `Board`, as above; rng: random numbers, the same in each run.
    Out: [(row, column), ...], the core of each task, as board.cores() returns them,
         after any of your swaps.
    Time: 20 s of computing for each test case.
    Not to be called: passlab.wafer.placing.greedy, passlab.wafer.placing.search.

    Example:  search = lambda board, rng: board.cores() is valid,
              and no better than greedy.
    """
    ### BEGIN SOLUTION
    cores = [(r, c) for r in range(board.rows) for c in range(board.columns)]
    usual = sum(abs(board.change(*rng.sample(cores, 2))) for _ in range(100)) / 100
    total, longest = board.left, max(board.rows, board.columns)
    now = lowest = 0
    best = board.cores()
    while board.left:
        share = board.left / total  # from 1 to 0
        heat = usual * 0.003 ** (1 - share)
        reach = max(1, round(share * longest))
        r, c = rng.choice(cores)
        row = min(max(r + rng.randint(-reach, reach), 0), board.rows - 1)
        column = min(max(c + rng.randint(-reach, reach), 0), board.columns - 1)
        change = board.change((r, c), (row, column))
        if rng.random() < math.exp(min(0, -change / heat)):
            board.swap((r, c), (row, column))
            now += change
            if now < lowest:
                lowest, best = now, board.cores()
    return best
    ### END SOLUTION


# %%
check("day11.search", search)

# %% [markdown]
# ## 7 · Where scaling stops · stretch
#
# A square of columns, `stencil.depth` points each, is spread over p × p cores, b × b columns on each core. An iteration
# takes, one after the other,
#
# - work: `stencil.work` cycles for each point of a core;
# - halo: a core's four sides, b · depth words each, leave through its only gate, so they cost as much as one message of
#   all these words to a neighbour: B + P + 2 · T_R with P = 2;
# - sums: `stencil.sums` all-reduces of one word. Each goes to the middle of every row, then to the middle of that column,
#   and all the way back. Half a row, with its middle, has h = p // 2 + 1 cores. To the middle, a star takes
#   h + 2 · T_R + 1 cycles, and one more for the other half's sum; back, a broadcast takes 1 + h + 2 · T_R. A column
#   takes as long as a row.
#
# On one core there is neither halo nor sum. *Strong* scaling divides the same points among more cores; its efficiency is
# T(1) / (p² · T(p)). *Weak* scaling gives every core the same block; its efficiency is T(1) / T(p). A curve *bends*
# where its efficiency first falls below one half.


# %%
def scaling(
    stencil: Stencil, columns: int, block: int, sides: list[int], ramp: int
) -> dict:
    """Strong and weak scaling of an iteration, and where they bend.

    In:  a stencil with work, depth and sums; strong scaling has columns × columns
         columns in all, weak scaling block × block on every core; sides, the values of
         p, ascending from 1, all of which divide columns; ramp, T_R.
    Out: "strong" and "weak": side → cycles of an iteration. "fastest": the side whose
         strong scaling takes the fewest cycles, the smaller one of equals. "strong
         bend" and "weak bend": (side, "halo" or "sums"), the first side whose
         efficiency is below one half, and which of the two takes more cycles there,
         halo if equal; None if there is no such side.
    Not to be called: passlab.wafer.scaling.parts, passlab.wafer.scaling.strong,
         passlab.wafer.scaling.weak, passlab.wafer.scaling.efficiency,
         passlab.wafer.scaling.bend.
    """

    ### BEGIN SOLUTION
    def parts(b: int, p: int) -> tuple[int, int, int]:
        work = stencil.work * stencil.depth * b * b
        if p == 1:
            return work, 0, 0
        half = p // 2 + 1
        once = 2 * ((half + 2 * ramp + 1) + 1 + (1 + half + 2 * ramp))
        return work, 4 * b * stencil.depth + 2 + 2 * ramp, stencil.sums * once

    def bend(table: dict, cores) -> tuple[int, str] | None:
        one = sum(table[1])
        for p in sides:
            if one < 0.5 * cores(p) * sum(table[p]):
                return p, "halo" if table[p][1] >= table[p][2] else "sums"
        return None

    strong = {p: parts(columns // p, p) for p in sides}
    weak = {p: parts(block, p) for p in sides}
    return {
        "strong": {p: sum(strong[p]) for p in sides},
        "weak": {p: sum(weak[p]) for p in sides},
        "fastest": min(sides, key=lambda p: sum(strong[p])),
        "strong bend": bend(strong, lambda p: p * p),
        "weak bend": bend(weak, lambda p: 1),
    }
    ### END SOLUTION


# %%
check("day11.scaling", scaling)
