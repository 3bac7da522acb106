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
# Seven questions. The core is questions 1, 2 and 3, about 75 minutes; the rest, about 175 minutes, is stretch: harder,
# and for extra credit. Read the lesson first: [day10_polyhedral.ipynb](../../course/day10_polyhedral.ipynb).
#
# Write each answer where it says `raise NotImplementedError()`. The cell below it checks the answer on a few cases and
# shows which laws it keeps; grading uses more cases, newly drawn each time. `hint("day10.domains")` opens a hint, three
# for each question. For each test case an answer has five seconds of computing time, unless its text says otherwise.

# %%
from collections.abc import Callable
from itertools import pairwise

import islpy as isl
from IPython.display import display

from passlab import check, exercises, hint, polyhedral, progress
from passlab.drawing import lattice
from passlab.given.day10.domains import as_python
from passlab.given.day10.tile import SOURCES
from passlab.polyhedral import PROGRAMS, tile
from passlab.relax import tvm

# %%
progress("day10")

# %% [markdown]
# ## 1 · Domains and accesses
#
# A loop nest is plain data: loops with bounds as in Python's `range`, guards, and statements with the cells that they
# write and read. Its expressions are Python's, and isl reads nearly all of them in the same way. Two things differ:
# `==` is written `=`, and `//` and `%` bind more tightly than anything else, so that `2 * i % 3` is `2 * (i % 3)`. (The
# nests of this exercise have no `//`, and `%` after a name only. `s[]` is a single cell, not part of an array.)

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
                            "body": [
                                {
                                    "statement": "T",
                                    "writes": ["C[i, j]"],
                                    "reads": ["A[i]", "C[i, j]"],
                                }
                            ],
                        }
                    ],
                },
            ],
        }
    ],
}
print(as_python(EXAMPLE))

# %% [markdown]
# isl writes sets and relations of integers as text. It knows `%`, `min` and `max`, too:

# %%
even = isl.UnionSet("[N] -> { S[i] : 0 <= i < N and i % 2 = 0 }")
both = even.union(
    isl.UnionSet("[N] -> { T[i, j] : 3 < i < N and i % 2 = 0 and 0 <= j <= i }")
)
print(both)
print(isl.UnionMap("{ S[i] -> A[i] }").intersect_domain(both))


# %%
def domains(nest: dict) -> dict:
    """The instances of a loop nest, the cells that they access, and their order.

    In:  parameters, and a body: a list of
         {"loop": name, "range": (start, stop, step), "body": […]}, as Python's range;
             step is a number, not 0
         {"if": condition, "body": […]}
         {"statement": name, "writes": [cell, …], "reads": [cell, …]}
    Out: a dictionary of
         "domain": isl.UnionSet of all instances; each is called as its statement, with
             the iterators around it from the outermost to the innermost,
         "reads", "writes": isl.UnionMap from instances to cells (pairs outside the
             domain do not matter),
         "schedule": isl.UnionMap from instances to times, all of one length, so that
             instances run in the order of their times. Any numbers in the right order
             are right.
    Not to be called: passlab.polyhedral.parse.parse.

    Example:  for the nest above, "domain" is [N] -> { S[i] : 0 <= i < N and i % 2 = 0;
              T[i, j] : 3 < i < N and i % 2 = 0 and 0 <= j <= i },
              "reads" is
              [N] -> { S[i] -> B[N - i]; T[i, j] -> A[i]; T[i, j] -> C[i, j] },
              "schedule" can be { S[i] -> [i, 0, 0]; T[i, j] -> [i, 1, -j] }.
    """
    ### BEGIN SOLUTION
    leaves = list(statements(nest["body"], [], [], []))
    length = max(len(time) for _, _, _, time in leaves)
    parts = {"domain": isl.UnionSet("{ }")} | {
        name: isl.UnionMap("{ }") for name in ("reads", "writes", "schedule")
    }
    for item, iterators, conditions, time in leaves:
        instance = f"{item['statement']}[{', '.join(iterators)}]"
        # A time is the path to the statement: its place in each body and the turn of
        # each loop. Shorter paths are filled up with zeros; the places before the end
        # already tell statements apart.
        time = time + ["0"] * (length - len(time))
        where = " and ".join(conditions)
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
    """Yield each statement with its iterators, its conditions, and its time."""
    for place, item in enumerate(body):
        times = [*time, str(place)]
        if "statement" in item:
            yield item, iterators, conditions, times
        elif "if" in item:
            condition = f"({item['if'].replace('==', '=')})"
            yield from statements(
                item["body"], iterators, [*conditions, condition], times
            )
        else:
            i, (start, stop, step) = item["loop"], item["range"]
            inside = (
                f"{start} <= {i} < {stop}" if step > 0 else f"{start} >= {i} > {stop}"
            )
            steps = f"({i} - ({start})) % {abs(step)} = 0"
            # Times increase even in a loop that counts down.
            turn = i if step > 0 else f"-{i}"
            yield from statements(
                item["body"],
                [*iterators, i],
                [*conditions, inside, steps],
                [*times, turn],
            )
    ### END SOLUTION


# %%
check("day10.domains", domains)

# %% [markdown]
# ## 2 · Dependences
#
# Two instances depend on each other if they touch the same cell and at least one of them writes it. The schedule says
# which of them runs first; the kind depends on which of them writes. `.reverse()` inverts a relation, `.apply_range`
# composes two, and the order of execution is a relation, too:

# %%
order = isl.UnionMap(
    "[N] -> { S[i] -> [i, 0] : 0 <= i < N; T[i] -> [i, 1] : 0 <= i < N }"
)
print(order.lex_lt_union_map(order))
print(
    isl.UnionMap("{ S[i] -> A[i] }").apply_range(
        isl.UnionMap("{ T[i] -> A[i + 1] }").reverse()
    )
)


# %%
def dependences(
    domain: isl.UnionSet,
    reads: isl.UnionMap,
    writes: isl.UnionMap,
    schedule: isl.UnionMap,
) -> dict[str, isl.UnionMap]:
    """Find which instance must wait for which.

    In:  the instances that run; the cells they read and write; their times, no two the
         same. Accesses and schedule may contain instances outside the domain, which do
         not run.
    Out: a dictionary of relations from source to target; the source has the smaller
         time.
         "flow":   the source writes a cell that the target reads,
         "anti":   the source reads a cell that the target writes,
         "output": both write the cell; all such pairs, whatever happens in between;
         "values": the pairs of flow where the target reads what the source wrote: for
             some cell that the source writes and the target reads, no instance between
             them writes the cell.
         An instance reads before it writes, and does not depend on itself.
    Not to be called: passlab.polyhedral.dependences.dependences,
         passlab.polyhedral.dependences._values.

    Example:  for (i = 0; i < N; i++) s[] = S(s[], A[i]) has flow, anti and output
              [N] -> { S[i] -> S[j] : 0 <= i < j < N }, and values
              [N] -> { S[i] -> S[i + 1] : 0 <= i < N - 1 }.
    """
    ### BEGIN SOLUTION
    reads, writes, schedule = (
        relation.intersect_domain(domain) for relation in (reads, writes, schedule)
    )
    # All pairs of instances, the earlier one first. Writes between the two matter only
    # for "values".
    before = schedule.lex_lt_union_map(schedule)
    info = (
        isl.UnionAccessInfo.from_sink(reads)
        .set_must_source(writes)
        .set_schedule_map(schedule)
    )
    return {
        "flow": writes.apply_range(reads.reverse()).intersect(before),
        "anti": reads.apply_range(writes.reverse()).intersect(before),
        "output": writes.apply_range(writes.reverse()).intersect(before),
        "values": info.compute_flow().get_must_dependence(),
    }
    ### END SOLUTION


# %%
check("day10.dependences", dependences)


# %% [markdown]
# The lattice of seidel-1d, with the dependences that carry values, by your answer:

# %%
seidel = PROGRAMS["seidel"]
try:
    values = dependences(seidel.domain, seidel.reads, seidel.writes, seidel.schedule)[
        "values"
    ]
    display(
        lattice(
            seidel,
            seidel.schedule,
            {"T": 3, "N": 7},
            values,
            title="Which values go where in seidel-1d",
        )
    )
except Exception:
    print("The picture needs an answer to question 2.")

# %% [markdown]
# ## 3 · Is this order legal?
#
# A schedule is any relation from instances to times. It is legal if the source of every dependence runs before the
# target; the same time is not enough. One pair that violates this is reason enough to reject the schedule; it is also
# the best error message that a compiler can give. `.sample()` of a relation is one of its elements, with numbers for
# the parameters:

# %%
print(isl.UnionMap("[N] -> { S[i] -> S[i + 1] : 0 <= i < N - 1 }").sample())


# %%
def legality(dependences: isl.UnionMap, schedule: isl.UnionMap) -> isl.BasicMap | None:
    """None if the schedule is legal, else one pair, source → target, that it breaks.

    A pair is broken if the source does not run before the target.

    In:  the dependences, for all values of the parameters; a time for every instance,
         all of one length.
    Out: None, or a relation with one element, numbers for the parameters included.
    Not to be called: passlab.polyhedral.dependences.violated,
         passlab.polyhedral.dependences.legal.

    Example:  dependences { S[i, j] -> S[i + 1, j - 1] : 0 <= i < 9 and 0 < j < 10 },
              schedule { S[i, j] -> [j, i] }:
              { S[i = 0, j = 1] -> S[1, 0] } is such a pair.
              For { S[i, j] -> [i, j] } it is None.
    """
    ### BEGIN SOLUTION
    # A dependence holds if its source comes strictly first: the others are broken.
    violated = dependences.subtract(schedule.lex_lt_union_map(schedule))
    return None if violated.is_empty() else violated.sample()
    ### END SOLUTION


# %%
check("day10.legality", legality)


# %% [markdown]
# Square tiles of jacobi-1d, and the pair that your answer finds in this lattice. The arrow enters a tile that ran
# before:

# %%
jacobi = PROGRAMS["jacobi1d"]
squares = tile(jacobi.schedule, [0, 1], [4, 4])
in_the_picture = isl.Set("[T, N] -> { : T = 6 and N = 12 }")
carried = polyhedral.dependences(jacobi, "values").intersect_params(in_the_picture)
try:
    pair = legality(carried, squares)
    display(
        lattice(
            jacobi,
            squares,
            {"T": 6, "N": 12},
            pair,
            tiles=2,
            fronts=2,
            title="Why square tiles are illegal",
        )
    )
except Exception:
    print("The picture needs an answer to question 3.")

# %% [markdown]
# ## 4 · Skew a stencil · stretch
#
# A stencil may be cut into tiles along the dimensions of a schedule if no dependence goes backwards in any of them: a
# tile then needs only tiles that come before it. And tiles with the same sum of coordinates are independent of each
# other, so they can run in parallel: the **wavefront**. For `(t, i)` of jacobi-1d the distance (1, -1) goes backwards.
# For `(t, t + i)` it is (1, 0).
#
# Do not skew too much: a long distance crosses many tiles. The **reach** of a dimension is the
# largest distance of a dependence in it. The two of `(t, t + i)` add up to 1 + 2 = 3, those of `(t, 100·t + i)` to
# 1 + 101 = 102.


# %%
def skew(domain: isl.UnionSet, dependences: isl.UnionMap) -> isl.UnionMap:
    """A schedule in whose dimensions a stencil can be tiled.

    In:  the instances of one statement S, and their dependences: always at the same
         distances, of which the first number that is not 0 is positive. There are two
         to four loops.
    Out: a schedule with as many numbers as there are loops, which gives each instance
         its own time and is legal, and in whose dimensions no dependence goes
         backwards. Its reaches add up to no more than those of the best skewing:
         number k of its times is iterator k plus whole multiples, which may be
         negative, of those outside.
    Not to be called: islpy.ScheduleConstraints.compute_schedule,
         islpy.UnionSet.compute_schedule.

    Example:  jacobi-1d, with distances (1, -1), (1, 0) and (1, 1):
              { S[t, i] -> [t, t + i] }. With (1, 0) and (1, 1) alone it stays
              { S[t, i] -> [t, i] }.
    """
    ### BEGIN SOLUTION
    vectors = distances(dependences)
    names, times = [f"i{k}" for k in range(len(vectors[0]))], []
    for k, name in enumerate(names):
        # The set of all multiples with which no distance goes backwards, or beyond
        # `reach`. isl finds the smallest reach in it; to try all multiples up to some
        # number may miss it.
        multiples = [f"m{i}" for i in range(k)]
        steps = [
            " + ".join(
                [
                    str(vector[k]),
                    *(
                        f"{step} * {m}"
                        for step, m in zip(vector, multiples, strict=False)
                    ),
                ]
            )
            for vector in vectors
        ]
        within = " and ".join(f"0 <= {step} <= reach" for step in steps)
        possible = isl.Set(f"{{ [{', '.join(['reach', *multiples])}] : {within} }}")
        best = possible.upper_bound_val(
            isl.dim_type.set, 0, possible.dim_min_val(0)
        ).sample_point()
        chosen = [
            best.get_coordinate_val(isl.dim_type.set, 1 + i).to_python()
            for i in range(k)
        ]
        times.append(
            " + ".join(
                [
                    name,
                    *(
                        f"{m} * {outer}"
                        for m, outer in zip(chosen, names, strict=False)
                    ),
                ]
            )
        )
    return isl.UnionMap(
        f"{{ S[{', '.join(names)}] -> [{', '.join(times)}] }}"
    ).intersect_domain(domain)


def distances(dependences):
    """Return the distances of the dependences as tuples of numbers."""
    vectors = []
    points = isl.Set.from_union_set(dependences.deltas()).project_out_all_params()
    depth = points.dim(isl.dim_type.set)

    def add(point):
        vectors.append(
            tuple(
                point.get_coordinate_val(isl.dim_type.set, k).to_python()
                for k in range(depth)
            )
        )

    points.foreach_point(add)
    return vectors
    ### END SOLUTION


# %%
check("day10.skew", skew)


# %% [markdown]
# Your schedule of jacobi-1d, cut into tiles of 4 by 4, with the wavefront as the outermost dimension. Tiles of one
# colour may run in either order:

# %%
jacobi = PROGRAMS["jacobi1d"]
carried = polyhedral.dependences(jacobi, "values")
try:
    skewed = tile(skew(jacobi.domain, carried), [0, 1], [4, 4])
    for then in ("-a", "a"):
        waves = skewed.apply_range(
            isl.UnionMap(f"{{ [a, b, i, j] -> [a + b, {then}, i, j] }}")
        )
        print(
            f"[a + b, {then}, …]",
            "is legal" if polyhedral.legal(jacobi, waves) else "is not legal",
        )
    display(
        lattice(
            jacobi,
            waves,
            {"T": 6, "N": 12},
            carried,
            tiles=2,
            fronts=1,
            title="Wavefronts of tiles",
        )
    )
except Exception:
    print("The picture needs an answer to question 4.")

# %% [markdown]
# ## 5 · From a schedule to a loop nest · stretch
#
# isl turns a schedule into a tree of loops, `isl.AstNode`, whose leaves run statements. Its bounds are exact, even
# where tiles do not divide the size, and that makes them long:

# %%
triangle = polyhedral.parse(
    """
for i in range(N):
    for j in range(i + 1):
        C[i, j] = A[i, j] * 2
"""
)
tree = polyhedral.ast(
    triangle, "{ S[i, j] -> [floor((i - j)/3), floor(j/2), j, i] }", {"N": 10}
)
print(tree.to_C_str())

# %% [markdown]
# What remains is to walk isl's tree and build TVM's loops, so that they can be compiled.


# %%
def generate(
    node: isl.AstNode, statement: Callable[[str, list], tvm.tirx.Stmt]
) -> tvm.tirx.Stmt:
    """Build the loops of isl's AST in TensorIR.

    In:  the root of an AST; sizes are numbers in it. Its nodes (`node.get_type()`) are
         for_, if_, block and user, of isl.ast_node_type. `statement(name, values)`
         makes the TensorIR that runs the statement S[v0, v1, …]: values are expressions
         of TensorIR, one for each of its variables. An if_ may have an else.
         `a ? b : c` is a select.
         Of isl's divisions only fdiv_q must round down; in pdiv_q and pdiv_r nothing is
         negative, div has no remainder, and zdiv_r is only compared with 0: for these,
         every way to round is right.
    Out: a statement of TensorIR (tvm.tirx.For, IfThenElse, SeqStmt, or what `statement`
         made) that runs the same iterations in the same order.
         All loops begin at 0 and have no step: TVM 0.27 is wrong about nested loops
         that have one, or begin elsewhere. They are serial, or unrolled where the
         number of turns is a constant.
    Stays: the order; no iteration runs twice, and none outside the domain.
    Not to be called: passlab.polyhedral.tensor_ir._Builder.statement.

    Example:  for (int t0 = 0; t0 <= 6; t0 += 2) S(t0, 1);   becomes
              For(turn, 0, 4, ForKind.SERIAL, statement("S", [2 * turn, const(1)])), all
              of tvm.tirx
    """
    ### BEGIN SOLUTION
    return loops(node, statement, {})


tirx = tvm.tirx


def loops(node, statement, values):
    """Return the loops of a node. `values`: isl variable → expression in TensorIR."""
    kinds = isl.ast_node_type
    match node.get_type():
        case kinds.block:
            inner = node.block_get_children()
            parts = [
                loops(inner.get_ast_node(at), statement, values)
                for at in range(inner.n_ast_node())
            ]
            return tirx.SeqStmt(parts)
        case kinds.if_:
            test = number(node.if_get_cond(), values)
            other = (
                loops(node.if_get_else_node(), statement, values)
                if node.if_has_else_node()
                else None
            )
            return tirx.IfThenElse(
                test, loops(node.if_get_then_node(), statement, values), other
            )
        case kinds.user:
            name, *iteration = arguments(node.user_get_expr())
            return statement(
                name.get_id().get_name(), [number(part, values) for part in iteration]
            )
    name = node.for_get_iterator().get_id().get_name()
    first, body = number(node.for_get_init(), values), node.for_get_body()
    # A loop of one turn is its body.
    if node.for_is_degenerate():
        return loops(body, statement, {**values, name: first})
    condition, step = node.for_get_cond(), node.for_get_inc().get_val().to_python()
    last = number(arguments(condition)[1], values)
    if condition.get_op_type() == isl.ast_expr_op_type.lt:
        last = last - 1
    # TVM's loops start at 0 and go by 1; the iterator is computed from the turn.
    turn = tirx.Var(name, "int32")
    body = loops(body, statement, {**values, name: first + step * turn})
    return tirx.For(turn, 0, (last - first) // step + 1, tirx.ForKind.SERIAL, body)


def arguments(operation):
    return [operation.get_op_arg(at) for at in range(operation.get_op_n_arg())]


def number(value, values):
    """Return an isl expression in TensorIR."""
    if value.get_type() == isl.ast_expr_type.int:
        return tirx.const(value.get_val().to_python(), "int32")
    if value.get_type() == isl.ast_expr_type.id:
        return values[value.get_id().get_name()]
    first, *rest = (number(part, values) for part in arguments(value))
    if not rest:  # minus
        return -first
    if value.get_op_type() == op.select:
        return tirx.Select(first, *rest)
    for other in rest:
        first = OPERATIONS[value.get_op_type()](first, other)
    return first


op = isl.ast_expr_op_type
OPERATIONS = {
    op.add: lambda a, b: a + b,
    op.sub: lambda a, b: a - b,
    op.mul: lambda a, b: a * b,
    op.min: tirx.min,
    op.max: tirx.max,
    **dict.fromkeys((op.div, op.fdiv_q, op.pdiv_q), lambda a, b: a // b),
    **dict.fromkeys((op.pdiv_r, op.zdiv_r), lambda a, b: a % b),
    **{op.eq: tirx.EQ, op.le: tirx.LE, op.lt: tirx.LT, op.ge: tirx.GE, op.gt: tirx.GT},
    op.and_: tirx.all,
    op.or_: tirx.any,
}
### END SOLUTION


# %%
check("day10.generate", generate)


# %% [markdown]
# Your loops for a rectangle whose tiles do not divide it, as TVM shows them:

# %%
try:
    exercise = exercises.find("day10.generate")
    print(exercise.call(generate, exercise.cases()[1]).script())
except Exception:
    print("The loops need an answer to question 5.")

# %% [markdown]
# ## 6 · A schedule that is fast · stretch
#
# Now the clock decides. There are two products of matrices; the second, A·Aᵀ of a matrix that is stored transposed,
# computes only a triangle, and stores it by columns. The judge builds the loops of your schedule with
# `polyhedral.prim_func(program, schedule, sizes, **marks)`, marks the loops that you name as parallel, vectorized or
# unrolled, and compiles them for this machine. Loops are named by dimensions of the times, counted from 0.

# %%
for source in SOURCES.values():
    print(source)
print(polyhedral.parse(SOURCES["matmul"]).schedule)


# %%
def fast(
    program: polyhedral.Program, sizes: dict[str, int]
) -> tuple[isl.UnionMap | str, dict[str, list[int]]]:
    """An order in which the loops are fast, and marks for them.

    In:  one of the programs above, `program.name` is "matmul" or "gram", and its sizes.
    Out: a schedule, { S[i, j] -> […]; T[i, j, k] -> […] }, and {"parallel": […],
         "vectorize": […], "unroll": […]}, which name dimensions of its times ("unroll"
         may be missing). With about 200 in each dimension:
         - matmul is at least 6 times as fast as the loops as they are written, and gram
           1.5 times, in the same run.
         - Of the loops around T with more than one turn, the outermost is parallel and
           the innermost a vector of 4 to 64 turns; at a border, where tiles are cut
           off, the latter need not be.
         - From one turn of the vector to the next, each subscript stays, or the last
           one grows by 1: C[3, 8], C[3, 9], …
         `complete`: the third holds for the innermost loop, a vector or not, and it has
         at least 4 turns; `efficient`: all three hold.
    Stays: the result, for all sizes, odd ones too. Every iteration has one time, no two
         have the same, and each runs after those that it depends on; in a loop that is
         parallel or a vector, no turn depends on another.
    Time: 10 s of computing for each test case.

    Example:  ("{ S[i, j] -> [i, j, 0, 0]; T[i, j, k] -> [i, j, 1, k] }",
               {"parallel": [0]})   (as written, on all cores)
    """
    ### BEGIN SOLUTION
    # Tiles of 8 × 32 sums, small enough for registers; k runs outside of the tile, so
    # that each number it loads is used in a row or a column of sums. In gram j and i
    # are exchanged, so that the vector runs along memory.
    rows, columns = ("j", "i") if program.name == "gram" else ("i", "j")
    tiles, element = f"floor({rows}/8), floor({columns}/32)", f"{rows}, {columns}"
    schedule = (
        f"{{ S[i, j] -> [{tiles}, 0, 0, {element}]; "
        f"T[i, j, k] -> [{tiles}, 1, k, {element}] }}"
    )
    return schedule, {"parallel": [0], "vectorize": [5]}
    ### END SOLUTION


# %%
check("day10.tile", fast)


# %% [markdown]
# The order in which your schedule visits the elements of C, with its two outermost dimensions as tiles:

# %%
try:
    gram = polyhedral.parse(SOURCES["gram"], "gram")
    schedule, _ = fast(gram, {"N": 36, "K": 1})
    zeros = polyhedral.parse(
        "for i in range(N):\n    for j in range(i + 1):\n        C[j, i] = 0"
    )
    display(
        lattice(
            zeros, schedule, {"N": 36}, tiles=2, title="The elements of C, by tiles"
        )
    )
except Exception:
    print("The picture needs an answer to question 6.")

# %% [markdown]
# ## 7 · The same order in TVM · stretch
#
# TVM has no map from iterations to times: its schedules are made of primitives that change loops. With two of them,
# `split` and `reorder`, loops become tiles, and many orders can be expressed in both languages. Not all: TVM loops
# run forward, and their tiles begin at multiples of the tile size.

# %%
written = polyhedral.prim_func(
    PROGRAMS["transpose"], PROGRAMS["transpose"].schedule, {"N": 10}
)
by_hand = tvm.s_tir.Schedule(written)
i, j = by_hand.get_loops(by_hand.get_sblock("S"))
outer, inner = by_hand.split(i, [None, 4])
by_hand.reorder(outer, j, inner)
same = "{ S[i, j] -> [floor(i/4), j, i] }"
print(
    polyhedral.visits(by_hand.mod["main"])
    == polyhedral.order(PROGRAMS["transpose"], same, {"N": 10})
)


# %%
def primitives(
    function: tvm.tirx.PrimFunc, schedule: isl.Map
) -> tvm.tirx.PrimFunc | tvm.IRModule | None:
    """Split and reorder the function's loops into the order of the schedule.

    In:  a function of TensorIR whose loops run in the order in which they are written,
         one for each variable of its only block, "S", from 0; and a map of isl from
         iterations to times, { S[i, j, …] -> […] }.
    Out: the scheduled function, or module, if each dimension is a variable,
         floor(variable/n) or a number, and tiles of one variable are whole tiles of its
         larger ones: splits and reorders give that order.
         None for the others: a variable counts down, two are added, tiles begin
         elsewhere, have different sizes, as in [floor(2i/5), j, i], or cut through
         tiles, as in [floor(i/4), floor(i/6), j, i], or a remainder is taken, as in
         [i mod 4, floor(i/4), j].
         Splits and reorders can still give the order of some of the others: that of
         the remainders, or that of [floor(i/4), floor(i/6), i, j], which is [i, j].
         For those, such loops are as right as None.
    Not to be called: passlab.polyhedral.tensor_ir.prim_func,
         passlab.polyhedral.tensor_ir._Builder.statement.

    Example:  { S[i, j] -> [floor(i/4), j, i] }  is
              split(i, [None, 4]) and reorder(outer, j, inner), as above;
              { S[i, j] -> [-i, j] }  is None
    """
    ### BEGIN SOLUTION
    # For each variable, its n from large to small
    grains = [[] for _ in range(schedule.dim(isl.dim_type.in_))]
    order = []  # (variable, which of its loops)
    for dim in range(schedule.dim(isl.dim_type.out)):
        [(_, value)] = isl.PwMultiAff.from_map(schedule).get_pw_aff(dim).get_pieces()
        if value.is_cst():
            continue
        variable, n = variable_of(value)
        if variable is None:
            return None
        finest = grains[variable][-1] if grains[variable] else None
        if finest and n % finest == 0:
            continue
        if finest and finest % n:
            return None
        order.append((variable, len(grains[variable])))
        grains[variable].append(n)
    result = tvm.s_tir.Schedule(function)
    parts = []
    for loop, sizes in zip(
        result.get_loops(result.get_sblock("S")), grains, strict=True
    ):
        turns = [large // small for large, small in pairwise(sizes)]
        parts.append(result.split(loop, [None, *turns]))
    result.reorder(*(parts[variable][part] for variable, part in order))
    return result.mod


def variable_of(value):
    """Return (k, n) if the value is floor(v/n) of variable number k; else (None, 0).

    n = 1 is v itself.
    """
    n = 1
    if value.dim(isl.dim_type.div):
        inside = value.get_div(0)
        n = inside.get_denominator_val().to_python()
        if not (value - inside.floor()).is_cst():
            return None, 0
        value = inside.scale_val(isl.Val(n))
    factors = [
        value.get_coefficient_val(isl.dim_type.in_, k).to_python()
        for k in range(value.dim(isl.dim_type.in_))
    ]
    if not value.get_constant_val().is_zero() or sorted(factors) != [0] * (
        len(factors) - 1
    ) + [1]:
        return None, 0
    return factors.index(1), n
    ### END SOLUTION


# %%
check("day10.tvm", primitives)
