"""Day 10, the polyhedral model: its exercises."""

from __future__ import annotations

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"polyhedral": "relax"}

EXERCISES = (
    Exercise(
        id="day10.domains",
        title="Domains and accesses",
        section="A loop nest is a set",
        points={"valid": 1, "same": 3, "did": 4, "spared": 3},
        difficulty=2,
        minutes=35,
        hints=(
            "Walk the nest with three lists that grow on the way down: the enclosing iterators, the conditions that "
            "hold there, and the time. At a statement all three are complete, and the rest is assembling text: '[N] "
            "-> { S[i, j] : 0 <= i < N and 0 <= j < i }'.",
            "A loop adds its iterator, its bounds, and with a step s the condition (i - (start)) % s = 0; a loop that "
            "counts down starts at its largest value and stays above stop. Each level adds two numbers to the time: "
            "the position of the loop in the body around it, and the iterator (-i if it counts down).",
            "Only times of the same length can be compared: collect all statements first, then pad the shorter times "
            "with zeros. A guard is a level without an iterator. Start from isl.UnionSet('{ }') and add to it with "
            ".union.",
        ),
        helps={"valid": 1, "same": 3, "did": 2, "spared": 2},
        closed=("passlab.polyhedral.parse.parse",),
    ),
    Exercise(
        id="day10.dependences",
        title="Dependences",
        section="Dependences",
        points={"valid": 1, "did": 4, "spared": 4},
        difficulty=3,
        minutes=25,
        hints=(
            "Begin with execution order: schedule.lex_lt_union_map(schedule) holds the pairs of instances of which "
            "the first has the smaller time. Restrict the schedule to the domain first.",
            "Which instances touch the same cell? writes maps instances to cells, reads.reverse() maps cells to "
            "instances: writes.apply_range(reads.reverse()) holds the candidates for flow dependences. Intersect it "
            "with the execution order.",
            "For value-based dependences let isl do the work: info = isl.UnionAccessInfo.from_sink(reads), then "
            "set_must_source(writes), set_schedule_map(schedule), compute_flow(), get_must_dependence(). It finds, "
            "for each read and each cell, the last write.",
        ),
        helps={"did": 2, "spared": 1},
        closed=(
            "passlab.polyhedral.dependences.dependences",
            "passlab.polyhedral.dependences._values",
        ),
    ),
    Exercise(
        id="day10.legality",
        title="Is this order legal?",
        section="Legality is one question",
        points={"valid": 1, "did": 4, "spared": 3},
        difficulty=2,
        minutes=15,
        hints=(
            "A schedule is legal if for every dependence the source gets a smaller time than the target, compared "
            "like words in a dictionary. Do not check the dimensions one by one, and do not check only one size.",
            "schedule.lex_lt_union_map(schedule) holds all pairs in the right order. Which dependences does it not "
            "contain? Equal times are not smaller: two instances with the same time may run in either order.",
            "violated = dependences.subtract(…); is_empty() tells you whether there are any, and .sample() gives one, "
            "with numbers for the parameters, too.",
        ),
        helps={"valid": 3, "did": 2, "spared": 1},
        closed=(
            "passlab.polyhedral.dependences.violated",
            "passlab.polyhedral.dependences.legal",
        ),
    ),
    Exercise(
        id="day10.skew",
        title="Skew a stencil",
        section="Tiling, and why it fails",
        points={"valid": 1, "same": 2, "did": 4, "cost": 3},
        difficulty=4,
        minutes=45,
        stretch=True,
        hints=(
            "dependences.deltas() holds the distances, target minus source. Write them down for jacobi-1d: (1, -1), "
            "(1, 0), (1, 1). A distance with -1 in the second dimension goes backwards there; what must you add to i "
            "so that no distance does?",
            "Go dimension by dimension: row 0 is t. Row k is the iterator k plus integer multiples of the earlier "
            "rows. No distance goes backwards in the earlier rows, so large enough multiples always work. How large "
            "is enough? In seidel-2d with nine points j needs the row t + i, not t alone, because (0, 1, -1) is a "
            "distance.",
            "Turn the distances into tuples of Python numbers: "
            "isl.Set.from_union_set(deltas).project_out_all_params(), then foreach_point, and "
            "point.get_coordinate_val(isl.dim_type.set, k).to_python(). isl finds the best multiples: write the set "
            "{ [reach, m0, m1] : 0 <= step <= reach and … } with a condition for each distance, whose step is "
            "m0 times its first number plus … plus its own. dim_min_val(0) is the smallest reach; "
            "upper_bound_val(isl.dim_type.set, 0, it) keeps the points that have it, and sample_point() is one. "
            "Negative multiples undo a drift: with distances (1, 1) and (1, 2), i - t gives (1, 0) and (1, 1).",
        ),
        helps={"same": 2, "did": 1, "cost": 3},
        closed=("islpy.ScheduleConstraints.compute_schedule", "islpy.UnionSet.compute_schedule"),
    ),
    Exercise(
        id="day10.generate",
        title="From a schedule to a loop nest",
        section="From the map back to loops",
        points={"valid": 1, "same": 3, "did": 5},
        difficulty=3,
        minutes=55,
        stretch=True,
        hints=(
            "Write two recursive functions: one for nodes, which returns statements, and one for expressions. Both "
            "take a dictionary from the names of isl's variables to TensorIR expressions, which grows at every loop.",
            "A loop has node.for_get_iterator(), for_get_init(), for_get_cond(), for_get_inc() and for_get_body(). "
            "The condition is an operation of two arguments, t1 <= bound or t1 < bound; the increment is a number, "
            ".get_val().to_python(). Let the TensorIR loop count iterations from 0, tirx.For(turn, 0, turns, "
            "ForKind.SERIAL, body), and put the value of isl's variable into the dictionary: first + step · turn. A "
            "loop with a single iteration can be degenerate (for_is_degenerate()): then it has no condition.",
            "An expression is an int (get_val), an id (get_id().get_name()) or an operation (get_op_type, "
            "get_op_n_arg, get_op_arg(k)). A table from isl.ast_expr_op_type to functions of two numbers is nearly "
            "enough: add, sub, mul, min, max, div, fdiv_q, pdiv_q, pdiv_r, zdiv_r, eq, le, lt, ge, gt, and_, or_. "
            "Only minus has one argument; select has three, tirx.Select(test, then, otherwise), and min and max can "
            "have three. // rounds down in TensorIR, as fdiv_q requires.",
        ),
        helps={"valid": 2, "same": 2, "did": 2},
        closed=("passlab.polyhedral.tensor_ir._Builder.statement",),
    ),
    Exercise(
        id="day10.tile",
        title="A schedule that is fast",
        section="A product of matrices",
        points={"valid": 1, "same": 3, "did": 2, "cost": 4},
        difficulty=4,
        minutes=30,
        stretch=True,
        hints=(
            "The choice of the innermost loop matters most. With k innermost, the products jump through memory and "
            "each sum has to wait for the one before. In matmul with j innermost, neighbours are contiguous and "
            "independent: { S[i, j] -> [i, 0, 0, j]; T[i, j, k] -> [i, 1, k, j] }. Its 0 and 1 keep the zeros before "
            "the sums. In gram, which variable is the last subscript of C?",
            "A row of C is read and written again for each k. A tile of 8 rows and 32 columns fits into registers, if "
            "all its sums are finished before the next tile starts. For matmul: floor(i/8) and floor(j/32) outermost, "
            "then k, then i and j. In gram the rows are those of j.",
            "Vectorize the innermost dimension, and run the outermost in parallel: tiles share nothing. The vector is "
            "as long as a tile has columns. Do not mark a dimension of k as parallel or vectorize: its sums depend on "
            "each other.",
        ),
        meaning={"did": "the innermost loop goes along memory"},
        helps={"same": 1, "did": 1, "cost": 2},
        seconds=10.0,
    ),
    Exercise(
        id="day10.tvm",
        title="The same order in TVM",
        section="The same order in TVM",
        points={"valid": 1, "same": 1, "did": 4, "spared": 3},
        difficulty=3,
        minutes=45,
        stretch=True,
        hints=(
            "Read the schedule as a list of (variable, n): floor(v/n), and v alone with n = 1. isl helps: "
            "isl.PwMultiAff.from_map(schedule).get_pw_aff(d).get_pieces() has one piece, a set and an isl.Aff. "
            "aff.get_coefficient_val(isl.dim_type.in_, k) is the coefficient of variable k; if "
            "aff.dim(isl.dim_type.div) is not 0, aff.get_div(0) is the expression inside the floor, v/n.",
            "For each variable keep the finest n so far. A dimension whose n is a multiple of it adds nothing new. "
            "One whose n divides it adds a loop: of finest / n iterations, or of as many as needed if it is the "
            "variable's first. Any other n cuts through tiles, and no split can express that.",
            "schedule = tvm.s_tir.Schedule(function); loops = schedule.get_loops(schedule.get_sblock('S')). A loop "
            "with n of 8, 2 and 1 is schedule.split(loop, [None, 4, 2]). Pass all the parts, in the order in which "
            "their dimensions came, to one schedule.reorder(*parts). If sizes do not divide evenly, TVM adds the "
            "conditions.",
        ),
        helps={"valid": 1, "did": 2, "spared": 2},
        closed=("passlab.polyhedral.tensor_ir.prim_func", "passlab.polyhedral.tensor_ir._Builder.statement"),
    ),
)
