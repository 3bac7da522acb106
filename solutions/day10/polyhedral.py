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
# # Day 10 · The polyhedral model: exercises
#
# Seven questions. Read the lesson first: [day10_polyhedral.ipynb](../../course/day10_polyhedral.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading asks the same on more cases, drawn anew each time. `hint("day10.domains")` opens a
# hint, three for each question.

# %%
from contextlib import suppress
from itertools import product

import islpy as isl
from IPython.display import display

from passlab import check, progress
from passlab.drawing import lattice
from passlab.exercises.cases_day10_nests import as_python
from passlab.polyhedral import PROGRAMS, tile

# %%
progress("day10")

# %% [markdown]
# ## 1 · Domains and accesses
#
# A loop nest comes as plain data: loops with bounds as in Python's `range`, guards, statements with the cells that they
# write and read. All expressions in it read the same in Python and in isl. (`s[]` is a cell by itself, of no array.)

# %%
EXAMPLE = {
    "parameters": ["N"],
    "body": [
        {
            "loop": "i",
            "range": ("0", "N", 2),
            "body": [
                {"statement": "S", "writes": ["A[i]"], "reads": ["B[N - i]"]},
                {
                    "if": "i > 3",
                    "body": [
                        {
                            "loop": "j",
                            "range": ("i", "-1", -1),
                            "body": [{"statement": "T", "writes": ["C[i, j]"], "reads": ["A[i]", "C[i, j]"]}],
                        }
                    ],
                },
            ],
        }
    ],
}
print(as_python(EXAMPLE))

# %% [markdown]
# isl writes sets and relations of integers as text. `%` is at home there, too, and so are `min` and `max`:

# %%
even = isl.UnionSet("[N] -> { S[i] : 0 <= i < N and i % 2 = 0 }")
both = even.union(isl.UnionSet("[N] -> { T[i, j] : 3 < i < N and i % 2 = 0 and 0 <= j <= i }"))
print(both)
print(isl.UnionMap("{ S[i] -> A[i] }").intersect_domain(both))


# %% nbgrader={"grade": false, "grade_id": "domains", "locked": false, "schema_version": 3, "solution": true, "task": false}
def domains(nest: dict) -> dict:
    """What runs, what it touches, and in which order, for a loop nest.

    In:  parameters, and a body: a list of
         {"loop": name, "range": (start, stop, step), "body": […]}   as Python's range; step is a number, not 0
         {"if": condition, "body": […]}
         {"statement": name, "writes": [cell, …], "reads": [cell, …]}
    Out: a dictionary of
         "domain":   isl.UnionSet of all instances; each is called as its statement, with the iterators around it from
                     the outermost to the innermost,
         "reads", "writes": isl.UnionMap from instances to cells (what they say outside the domain does not matter),
         "schedule": isl.UnionMap from instances to times, all of one length, so that instances run in the order of
                     their times. Any numbers will do that say the right order.

    Example:  for the nest above, "domain" is [N] -> { S[i] : 0 <= i < N and i % 2 = 0;
              T[i, j] : 3 < i < N and i % 2 = 0 and 0 <= j <= i },
              "reads" is [N] -> { S[i] -> B[N - i]; T[i, j] -> A[i]; T[i, j] -> C[i, j] },
              "schedule" can be { S[i] -> [i, 0, 0]; T[i, j] -> [i, 1, -j] }.
    """
    ### BEGIN SOLUTION
    found = list(statements(nest["body"], [], [], []))
    length = max(len(time) for _, _, _, time in found)
    parts = {"domain": isl.UnionSet("{ }")} | {name: isl.UnionMap("{ }") for name in ("reads", "writes", "schedule")}
    for item, iterators, conditions, time in found:
        instance = f"{item['statement']}[{', '.join(iterators)}]"
        time = time + ["0"] * (length - len(time))
        where = " and ".join(conditions) or "true"
        texts = {
            "domain": [f"{instance} : {where}"],
            "reads": [f"{instance} -> {cell}" for cell in item["reads"]],
            "writes": [f"{instance} -> {cell}" for cell in item["writes"]],
            "schedule": [f"{instance} -> [{', '.join(time)}]"],
        }
        for part, all_of_them in texts.items():
            for text in all_of_them:
                text = f"[{', '.join(nest['parameters'])}] -> {{ {text} }}"
                parts[part] = parts[part].union(type(parts[part])(text))
    return parts


def statements(body, iterators, conditions, time):
    """Each statement with the iterators around it, the conditions under which it runs, and its time."""
    for place, item in enumerate(body):
        here = [*time, str(place)]
        if "statement" in item:
            yield item, iterators, conditions, here
        elif "if" in item:
            yield from statements(item["body"], iterators, [*conditions, f"({item['if']})"], here)
        else:
            i, (start, stop, step) = item["loop"], item["range"]
            inside = f"{start} <= {i} < {stop}" if step > 0 else f"{start} >= {i} > {stop}"
            steps = f"({i} - ({start})) % {abs(step)} = 0"
            turn = i if step > 0 else f"-{i}"
            yield from statements(item["body"], [*iterators, i], [*conditions, inside, steps], [*here, turn])
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "domains-check", "locked": true, "points": 11, "schema_version": 3, "solution": false, "task": false}
check("day10.domains", domains)
### BEGIN HIDDEN TESTS
from autograder.grading import grade

grade("day10.domains", domains)
### END HIDDEN TESTS

# %% [markdown]
# ## 2 · Dependences
#
# Two instances depend on each other if they touch the same cell and at least one of them writes it. Which of them runs
# first says the schedule; which of them writes says the kind. A relation goes backwards with `.reverse()`, two follow
# each other with `.apply_range`, and who runs before whom is a relation, too:

# %%
order = isl.UnionMap("[N] -> { S[i] -> [i, 0] : 0 <= i < N; T[i] -> [i, 1] : 0 <= i < N }")
print(order.lex_lt_union_map(order))
print(isl.UnionMap("{ S[i] -> A[i] }").apply_range(isl.UnionMap("{ T[i] -> A[i + 1] }").reverse()))


# %% nbgrader={"grade": false, "grade_id": "dependences", "locked": false, "schema_version": 3, "solution": true, "task": false}
def dependences(
    domain: isl.UnionSet, reads: isl.UnionMap, writes: isl.UnionMap, schedule: isl.UnionMap
) -> dict[str, isl.UnionMap]:
    """Which instance must wait for which.

    In:  the instances that run; the cells they read and write; their times, no two the same. Accesses and schedule may
         say more than the domain: what is not in the domain does not run.
    Out: a dictionary of relations from source to target; the source has the smaller time.
         "flow":   the source writes a cell that the target reads,
         "anti":   the source reads a cell that the target writes,
         "output": both write the cell; all such pairs, whatever happens between the two;
         "values": the pairs of flow where the target reads what the source wrote: some cell that the one writes and
                   the other reads is written by no instance between them.
         An instance reads before it writes, and does not depend on itself.

    Example:  for (i = 0; i < N; i++) s[] = S(s[], A[i]) has flow, anti and output
              [N] -> { S[i] -> S[j] : 0 <= i < j < N }, and values [N] -> { S[i] -> S[i + 1] : 0 <= i < N - 1 }.
    """
    ### BEGIN SOLUTION
    reads, writes, schedule = (relation.intersect_domain(domain) for relation in (reads, writes, schedule))
    before = schedule.lex_lt_union_map(schedule)
    info = isl.UnionAccessInfo.from_sink(reads).set_must_source(writes).set_schedule_map(schedule)
    return {
        "flow": writes.apply_range(reads.reverse()).intersect(before),
        "anti": reads.apply_range(writes.reverse()).intersect(before),
        "output": writes.apply_range(writes.reverse()).intersect(before),
        "values": info.compute_flow().get_must_dependence(),
    }
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "dependences-check", "locked": true, "points": 9, "schema_version": 3, "solution": false, "task": false}
check("day10.dependences", dependences)
### BEGIN HIDDEN TESTS
from autograder.grading import grade

grade("day10.dependences", dependences)
### END HIDDEN TESTS


# %% [markdown]
# The lattice of seidel-1d, with the dependences that carry values, by your answer:

# %%
seidel = PROGRAMS["seidel"]
with suppress(Exception):
    values = dependences(seidel.domain, seidel.reads, seidel.writes, seidel.schedule)["values"]
    display(lattice(seidel, seidel.schedule, {"T": 3, "N": 7}, values, title="Which values go where in seidel-1d"))

# %% [markdown]
# ## 3 · Is this order legal?
#
# A schedule is any relation from instances to times. It is legal if the source of every dependence runs before the
# target; at the same time is not before. One pair where that is not so is reason enough, and the best error message
# that a compiler can give. `.sample()` of a relation is one of its elements, with numbers for the parameters:

# %%
print(isl.UnionMap("[N] -> { S[i] -> S[i + 1] : 0 <= i < N - 1 }").sample())


# %% nbgrader={"grade": false, "grade_id": "legality", "locked": false, "schema_version": 3, "solution": true, "task": false}
def legality(dependences: isl.UnionMap, schedule: isl.UnionMap) -> isl.BasicMap | None:
    """None if the schedule is legal, else one pair, source → target, that it runs in a wrong order or at once.

    In:  what depends on what, for all values of the parameters; a time for every instance, all of one length.
    Out: None, or a relation with one element, numbers for the parameters included.

    Example:  dependences { S[i, j] -> S[i + 1, j - 1] : 0 <= i < 9 and 0 < j < 10 }, schedule { S[i, j] -> [j, i] }:
              { S[i = 0, j = 1] -> S[1, 0] } is such a pair. For { S[i, j] -> [i, j] } it is None.
    """
    ### BEGIN SOLUTION
    violated = dependences.subtract(schedule.lex_lt_union_map(schedule))
    return None if violated.is_empty() else violated.sample()
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "legality-check", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
check("day10.legality", legality)
### BEGIN HIDDEN TESTS
from autograder.grading import grade

grade("day10.legality", legality)
### END HIDDEN TESTS


# %% [markdown]
# Square tiles of jacobi-1d, and the pair that your answer finds in this lattice. The arrow enters a tile that ran before:

# %%
jacobi = PROGRAMS["jacobi1d"]
squares = tile(jacobi.schedule, [0, 1], [4, 4])
in_the_picture = isl.Set("[T, N] -> { : T = 6 and N = 12 }")
with suppress(Exception):
    carried = dependences(jacobi.domain, jacobi.reads, jacobi.writes, jacobi.schedule)["values"]
    pair = legality(carried.intersect_params(in_the_picture), squares)
    display(lattice(jacobi, squares, {"T": 6, "N": 12}, pair, tiles=2, fronts=2, title="Why square tiles are illegal"))

# %% [markdown]
# ## 4 · Skew a stencil
#
# Tiles of a stencil may be cut along the dimensions of a schedule if no dependence goes back in any of them: a tile then
# needs only tiles that are before it in every dimension. And tiles with the same sum of coordinates need nothing of each
# other, so that they can run in parallel: the **wavefront**. For `(t, i)` of jacobi-1d the distance (1, -1) goes back.
# For `(t, t + i)` it is (1, 0).
#
# Too much of it is not good, either: a distance that is long crosses many tiles. The **reach** of a dimension is the
# largest distance of a dependence in it: 1 + 2 = 3 for `(t, t + i)`, and 1 + 101 = 102 for `(t, 100·t + i)`.


# %% nbgrader={"grade": false, "grade_id": "skew", "locked": false, "schema_version": 3, "solution": true, "task": false}
def skew(domain: isl.UnionSet, dependences: isl.UnionMap) -> isl.UnionMap:
    """A schedule in whose dimensions a stencil can be tiled.

    In:  the instances of one statement S, and what depends on what: always at the same distances, of which the first
         number that is not 0 is positive. There are two to four loops.
    Out: a schedule with as many numbers as there are loops, which gives each instance a time of its own, is legal, goes
         back in none of its dimensions for any dependence, and whose reaches add up to no more than they must.

    Example:  jacobi-1d, with distances (1, -1), (1, 0) and (1, 1): { S[t, i] -> [t, t + i] }. With (1, 0) and (1, 1)
              alone it stays { S[t, i] -> [t, i] }.
    """
    ### BEGIN SOLUTION
    vectors = distances(dependences)
    depth = len(vectors[0])
    rows = []
    for k in range(depth):
        best = None
        for multiples in product(range(1 + longest(vectors) * 2), repeat=k):
            row = tuple(int(i == k) + sum(m * r[i] for m, r in zip(multiples, rows, strict=True)) for i in range(depth))
            steps = [sum(a * b for a, b in zip(row, vector, strict=True)) for vector in vectors]
            if min(steps) >= 0 and (best is None or max(steps) < best[0]):
                best = max(steps), row
        rows.append(best[1])
    names = [f"i{k}" for k in range(depth)]
    times = [" + ".join(f"{c}*{name}" for c, name in zip(row, names, strict=True)) for row in rows]
    return isl.UnionMap(f"{{ S[{', '.join(names)}] -> [{', '.join(times)}] }}").intersect_domain(domain)


def distances(dependences):
    """The distances of the dependences as tuples of numbers."""
    found = []
    points = isl.Set.from_union_set(dependences.deltas()).project_out_all_params()
    depth = points.dim(isl.dim_type.set)

    def note(point):
        found.append(tuple(point.get_coordinate_val(isl.dim_type.set, k).to_python() for k in range(depth)))

    points.foreach_point(note)
    return found


def longest(vectors):
    return max(abs(step) for vector in vectors for step in vector)
    ### END SOLUTION


# %% nbgrader={"grade": true, "grade_id": "skew-check", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
check("day10.skew", skew)
### BEGIN HIDDEN TESTS
from autograder.grading import grade

grade("day10.skew", skew)
### END HIDDEN TESTS


# %% [markdown]
# Your schedule of jacobi-1d, cut into tiles of 4 by 4. The wavefront comes before the tile, and tiles of one colour run
# at the same time. Your answer to question 3 says whether they may:

# %%
with suppress(Exception):
    skewed = tile(skew(jacobi.domain, carried), [0, 1], [4, 4])
    waves = skewed.apply_range(isl.UnionMap("{ [a, b, i, j] -> [a + b, a, b, i, j] }"))
    print(legality(carried, waves) or "legal")
    display(lattice(jacobi, waves, {"T": 6, "N": 12}, carried, tiles=3, fronts=1, title="Wavefronts of tiles"))

# %% [markdown]
# ## 5 · From a schedule to a loop nest
#
# SECTION generate [H]

# %% [markdown]
# ## 6 · A schedule that is fast
#
# SECTION tile [H]

# %% [markdown]
# ## 7 · The same order in TVM
#
# SECTION tvm [H]
