"""Day 10, the polyhedral model: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; an exercise that names no notebook stands in the first
NOTEBOOKS = {"polyhedral": "relax"}

EXERCISES = (
    Exercise(
        id="day10.domains",
        title="Domains and accesses",
        points={"valid": 1, "same": 3, "did": 4, "spared": 3},
        difficulty=2,
        minutes=25,
        hints=(
            "Walk the nest with three lists that grow on the way down: the iterators around, the conditions that hold "
            "there, and the time. At a statement all three are complete, and the rest is putting text together: "
            "'[N] -> { S[i, j] : 0 <= i < N and 0 <= j < i }'.",
            "A loop adds its iterator, its bounds, and with a step s the condition (i - (start)) % s = 0; counting "
            "down, it starts at the largest and ends above stop. The time gets two numbers for each level: the place "
            "of the loop in the body around it, and the iterator (-i where it counts down).",
            "Times are compared only if they have the same length: collect all statements first, then fill up with "
            "zeros to the longest. A guard is a level without an iterator. isl.UnionSet('{ }') is where to start, and "
            ".union adds to it.",
        ),
    ),
    Exercise(
        id="day10.dependences",
        title="Dependences",
        points={"valid": 1, "did": 4, "spared": 4},
        difficulty=3,
        minutes=25,
        hints=(
            "Begin with what runs before what: schedule.lex_lt_union_map(schedule) holds the pairs of instances of "
            "which the first has the smaller time. Restrict the schedule to the domain first.",
            "Which instances touch the same cell? writes maps instances to cells, reads.reverse() maps cells to "
            "instances: writes.apply_range(reads.reverse()) is what could be flow. Intersect it with what runs before.",
            "For values ask isl: info = isl.UnionAccessInfo.from_sink(reads), then set_must_source(writes), "
            "set_schedule_map(schedule), compute_flow(), get_must_dependence(). It finds, for each read and each cell, "
            "the last write.",
        ),
    ),
    Exercise(
        id="day10.legality",
        title="Is this order legal?",
        points={"valid": 1, "did": 4, "spared": 3},
        difficulty=2,
        minutes=15,
        hints=(
            "A schedule is legal if for every dependence the source gets a time that is smaller than that of the "
            "target, compared like words in a dictionary. Do not look at dimensions one by one, nor at one size.",
            "schedule.lex_lt_union_map(schedule) holds all pairs in the right order. What of the dependences is not in "
            "it? Equal times are not smaller: two instances at once run in any order.",
            "violated = dependences.subtract(…); is_empty() says whether there is one, .sample() is one with numbers "
            "for the parameters, too.",
        ),
    ),
    Exercise(
        id="day10.skew",
        title="Skew a stencil",
        points={"valid": 1, "same": 2, "did": 4, "cost": 3},
        difficulty=4,
        minutes=30,
        hints=(
            "dependences.deltas() holds the distances, target minus source. Write them down for jacobi-1d: (1, -1), "
            "(1, 0), (1, 1). The second dimension goes back where a distance has -1 there; what has to be added to i "
            "so that none does?",
            "Dimension by dimension: row 0 is t. Row k is the iterator k plus whole multiples of the rows before it, "
            "which no dependence takes back, so enough of them always helps. How many are enough? In seidel-2d with "
            "nine points j needs the row t + i, not t alone: there (0, 1, -1) is a distance.",
            "Make the distances tuples of Python numbers: isl.Set.from_union_set(deltas).project_out_all_params(), "
            "then foreach_point, and point.get_coordinate_val(isl.dim_type.set, k).to_python(). With at most four "
            "dimensions you can try all multiples from -m to m, where m is the largest number in a distance, and take "
            "the row with the smallest reach of those that go back nowhere. Negative ones take back a drift: of (1, 1) "
            "and (1, 2), i - t makes (1, 0) and (1, 1).",
        ),
    ),
    Exercise(
        id="day10.generate",
        title="From a schedule to a loop nest",
        points={"valid": 1, "same": 3, "did": 5},
        difficulty=3,
        minutes=30,
        hints=(
            "Two functions that call themselves: one for nodes, which returns statements, one for expressions. Both "
            "take a dictionary from the names of isl's variables to TensorIR's expressions, which grows at every loop.",
            "A loop has node.for_get_iterator(), for_get_init(), for_get_cond(), for_get_inc() and for_get_body(). The "
            "condition is an operation of two arguments, t1 <= bound or t1 < bound; the increment has a number, "
            ".get_val().to_python(). Let TensorIR's loop count turns from 0, tirx.For(turn, 0, turns, ForKind.SERIAL, "
            "body), and say in the dictionary what isl's variable is then: first + step · turn. A loop of one turn can "
            "be degenerate (for_is_degenerate()): it has no condition.",
            "An expression is an int (get_val), an id (get_id().get_name()) or an operation (get_op_type, "
            "get_op_n_arg, get_op_arg(k)). A table from isl.ast_expr_op_type to functions of two numbers is enough: "
            "add, sub, mul, min, max, div, fdiv_q, pdiv_q, pdiv_r, zdiv_r, eq, le, lt, ge, gt, and_, or_. Only "
            "minus has one, and select has three, tirx.Select(test, then, otherwise); min and max can have three. // "
            "rounds down in TensorIR, as fdiv_q wants it.",
        ),
    ),
    Exercise(
        id="day10.tile",
        title="A schedule that is fast",
        points={"valid": 1, "same": 3, "did": 2, "cost": 4},
        difficulty=4,
        minutes=30,
        hints=(
            "Which loop is innermost decides most. In k the products jump through memory and wait for each other's "
            "sums; in j neighbours lie side by side, and nobody waits. Write the order i, k, j first: "
            "{ S[i, j] -> [i, 0, 0, j]; T[i, j, k] -> [i, 1, k, j] }. Its 0 and 1 keep zeros before sums.",
            "A row of C is read and written again for each k. A tile of 8 rows and 32 columns fits into registers, if "
            "all its sums are done before the next tile: floor(i/8) and floor(j/32) outermost, then k, then i and j.",
            "Vectorize the innermost dimension, unroll the one around it (8 turns), and run the outermost in parallel: "
            "tiles share nothing. Neither parallel nor vectorize may mark a dimension of k: sums wait for each other.",
        ),
        seconds=20.0,
    ),
    Exercise(
        id="day10.tvm",
        title="The same order in TVM",
        points={"valid": 1, "same": 1, "did": 4, "spared": 3},
        difficulty=3,
        minutes=25,
        hints=(
            "Read the schedule as a list of (variable, n): floor(v/n), and v alone with n = 1. isl helps: "
            "isl.PwMultiAff.from_map(schedule).get_pw_aff(d).get_pieces() has one piece, a set and an isl.Aff. "
            "aff.get_coefficient_val(isl.dim_type.in_, k) is what stands before variable k; where "
            "aff.dim(isl.dim_type.div) is not 0, aff.get_div(0) is what stands in the floor, v/n.",
            "Keep for each variable the finest n so far. A dimension whose n is a multiple of it says nothing new. One "
            "whose n divides it is one more loop: of finest / n turns, or of as many as it takes if it is the "
            "variable's first. Every other n cuts through tiles, and no split does that.",
            "schedule = tvm.s_tir.Schedule(function); loops = schedule.get_loops(schedule.get_sblock('S')). A loop "
            "with n of 8, 2 and 1 is schedule.split(loop, [None, 4, 2]). All the parts, in the order in which their "
            "dimensions came, go to one schedule.reorder(*parts). Tiles that do not divide are TVM's care.",
        ),
    ),
)
