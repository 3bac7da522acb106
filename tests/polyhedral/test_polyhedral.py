"""The polyhedral model: what is transformed, what is refused and why, and which loops are affine."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from passlab.polyhedral import (
    PROGRAMS,
    NotAffine,
    ast,
    dependences,
    distribute,
    fuse,
    interchange,
    legal,
    order,
    parse,
    prim_func,
    python_source,
    random_arrays,
    reference,
    reverse,
    run_python,
    skew,
    tile,
    violated,
    why_not_a_schedule,
)
from passlab.polyhedral.program import at_sizes


def test_the_witness_without_sizes_is_at_the_smallest_sizes():
    jacobi = PROGRAMS["jacobi1d"]
    assert violated(dependences(jacobi), interchange(jacobi.schedule, 0, 1)) == ("S[0, 2]", "S[1, 1]")
    assert violated(dependences(jacobi), tile(jacobi.schedule, [0, 1], [4, 4])) == ("S[0, 4]", "S[1, 3]")
    assert violated(dependences(jacobi), tile(skew(jacobi.schedule, 1, 0), [0, 1], [4, 4])) is None


def test_fusing_and_distributing():
    program, ahead = PROGRAMS["two_loops"], PROGRAMS["two_loops_ahead"]
    fused = fuse(program.schedule, 0)
    assert order(program, fused, {"N": 2}) == [("S", (0,)), ("T", (0,)), ("S", (1,)), ("T", (1,))]
    assert legal(program, fused) and distribute(fused, 1).is_equal(program.schedule)
    assert not legal(ahead, fuse(ahead.schedule, 0))
    assert violated(dependences(ahead), fuse(ahead.schedule, 0)) == ("S[1]", "T[0]")
    matmul = PROGRAMS["matmul"]
    nests = distribute(matmul.schedule, 2, 2)
    assert legal(matmul, nests) and fuse(nests, 0, 2).is_equal(matmul.schedule)


def test_tiles_are_visited_one_after_the_other():
    program = PROGRAMS["copy"]
    visited = [at for _, at in order(program, tile(program.schedule, [0, 1], [2, 2]), {"N": 4})]
    tiles = [(i // 2, j // 2) for i, j in visited]
    assert [key for key, _ in itertools.groupby(tiles)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda s: interchange(s, 0, 2), "There is no dimension 2: the times of this schedule have 2, counted from 0."),
        (lambda s: tile(s, [0, 1], [4]), "tile needs one size for each of the dimensions [0, 1]; got [4]."),
        (lambda s: tile(s, [0], [0]), "Tile sizes must be at least 1; got [0]."),
        (lambda s: fuse(s, 1), "There is no dimension 2: the times of this schedule have 2, counted from 0."),
        (lambda s: reverse("{ S[i", 0), "isl cannot read '{ S[i'. It has 1 { and 0 }."),
    ],
)
def test_what_cannot_be_transformed_says_why(make, message):
    with pytest.raises(ValueError) as error:
        make(PROGRAMS["copy"].schedule)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    "schedule, message",
    [
        ("{ S[i, j] -> [i, j, 0, 0] }", "The schedule drops the statement T: it gives it no time."),
        ("{ S[i, j] -> [i, 0]; T[i, j, k] -> [j] }", "Times must have the same number of dimensions to be compared: "),
        ("{ X[i] -> [i] }", "The schedule orders X; the statements are S, T."),
        ("{ S[i] -> [i]; T[i, j, k] -> [i] }", "The statement S is in 2 loops; the schedule gives it 1 variables."),
        ("{ S[i, j] -> A[i, j] }", "The times of S are named A: drop the name, S[…] -> […]."),
        ("[Q] -> { S[i, j] -> [i, Q] }", "The schedule uses a size Q; the program has M, N, K."),
        (
            "{ S[i, j] -> [i, j, 0, 0]; T[i, j, k] -> [i, j, 1, k] : k > 2 }",
            "The schedule drops iterations of T: T[0, 0, 0] has no time.",
        ),
        (
            "{ S[i, j] -> [i, j, 0, 0]; T[i, j, k] -> [i, j, 1, x] : k <= x <= k + 1 }",
            "The schedule is not a function: it gives T[0, 0, 0] the times [0, 0, 1, 0] and [0, 0, 1, 1].",
        ),
        (
            "{ S[i, j] -> [i, j, 0, 0]; T[i, j, k] -> [i, j, 1, 0] }",
            "The schedule gives T[0, 0, 0] and T[0, 0, 1] the same time, so their order is undefined.",
        ),
        ("{ S[i, j] -> [i", "isl cannot read '{ S[i, j] -> [i'. It has 1 { and 0 }."),
        (3, "A schedule is a map of isl or its text; got int."),
    ],
)
def test_what_is_no_schedule_says_why(schedule, message):
    program = PROGRAMS["matmul"]
    assert why_not_a_schedule(program, schedule).startswith(message)
    if isinstance(schedule, str) and "cannot read" not in message:
        assert not legal(program, schedule)
        with pytest.raises(ValueError, match="T"):
            ast(program, schedule)


def test_kinds_and_marks_that_there_are_not_say_what_there_is():
    copy = PROGRAMS["copy"]
    with pytest.raises(ValueError, match="There is no dependence kind 'input'; choose from flow, anti, output, values"):
        dependences(copy, "input")
    with pytest.raises(ValueError, match="There is no dimension 2 to mark: the times of this schedule have 2"):
        prim_func(copy, copy.schedule, {"N": 4}, unroll=[2])


def test_a_schedule_is_none_of_these():
    for program in PROGRAMS.values():
        assert why_not_a_schedule(program, program.schedule) == ""


def test_an_illegal_order_computes_something_else():
    program, sizes = PROGRAMS["jacobi1d"], {"T": 6, "N": 12}
    arrays = random_arrays(program, sizes)
    want = reference(program, sizes, arrays)["A"]
    for schedule in (interchange(program.schedule, 0, 1), tile(program.schedule, [0, 1], [4, 4])):
        actual = run_python(python_source(program, schedule), sizes, arrays)["A"]
        assert np.abs(want - actual).max() > 1e-3


def test_loops_that_isl_writes_are_written_as_one_writes_them():
    jacobi = PROGRAMS["jacobi1d"]
    assert python_source(jacobi, jacobi.schedule) == (
        "for t0 in range(T):\n"
        "    for t1 in range(1, N - 1):\n"
        "        A[t0 + 1, t1] = (A[t0, t1 - 1] + A[t0, t1] + A[t0, t1 + 1]) / 3\n"
    )
    named = parse("for i in range(t0):\n    t1[i] = 0")
    assert "for u0 in range(t0)" in python_source(named, named.schedule)


#: Where the loop over i runs → what is said of that loop.
LOOPS = {
    "range(N * N)": "ends before `N * N`, which is not affine: it mu",
    "range(B[0])": "ends before `B[0]`, which is not affine: its va",
    "range(N / 2)": "ends before `N / 2`, which is not affine: / gi",
    "range(0.5)": "ends before `0.5`, which is not affine: it is no",
    "range(f(N))": "ends before `f(N)`, which is not affine: only s",
    "range(N // K)": "ends before `N // K`, which is not affine: it d",
    "range(0, N, K)": "has the step `K`: a step must be a number",
    "range(0, N, 0)": "has the step `0`: a step must be a number",
    "B": "runs over `B`, which is not a range.",
    "range()": "needs range(stop), range(start, stop) or",
}
#: What stands in a loop over i → what is said of that statement.
BODIES = {
    "A[i * i] = 0": "takes A at `i * i`, which is not affine",
    "A[i] = A[B[i]]": "takes A at `B[i]`, which is not affine: its v",
    "A[i:N] = 0": "takes a slice, `A[i:N]`: write the loop over it",
    "A[i][0] = 0": "has `A[i][0]`: write the subscripts in one br",
    "s = A[i]": "writes s, which is not an array element: write s[",
    "A[i], B[i] = 0, 1": "assigns to several targets at once",
    "A[i] **= 2": "updates with an operator other than +, -, * and /",
    "A[i] = sin(B[i])": "calls sin; the functions known here are max, min, abs, sqrt, exp",
    "A[i] = B[i] ** 2": "computes `B[i] ** 2`; write it with +, -, *, /",
    "A[i] = alpha * B[i]": "computes with alpha, which is neither the variable of a loop nor a size in",
}
OTHERS = {
    "for i, j in range(N):\n  A[i] = 0": "The loop in line 1 has several variables",
    "for i in range(N):\n  for i in range(N):\n    A[i] = 0": (
        "The loop over i (line 2) reuses the variable of an enclosing l"
    ),
    "for i in range(N):\n  A[i] = 0\nelse:\n  A[0] = 1": "The loop over i (line 1) has an else",
    "while N > 0:\n  A[0] = 0": "Line 1 is a while loop, whose iterations cannot be counted in advance",
    "for i in range(N):\n  A[i] = 0\n  break": "Line 3 leaves a loop with break: put the condition into the bounds.",
    "for i in range(N):\n  print(A[i])": "Line 2, `print(A[i])`, is neither a loop nor an assignment",
    "for i in range(N):\n  A[i] = 0\n  B[i] = A[i, 0]": "The statement T (line 3) gives A 2 subscripts; earlier it has",
    "for i in range(N):\n  if A[i] > 0:\n    A[i] = 0": "The condition in line 2 compares `A[i]`, which is not aff",
    "for i in range(N):\n  if f(i):\n    A[i] = 0": "The condition in line 2, `f(i)`, is not a comparison of affine",
    "for i in range(N):\n  A[i] = 0\nB[i] = 1": "The statement T (line 3) takes B at `i`, which is not affine: i is t",
    "for i in range(A):\n  A[i] = 0": "A (line 1) is both an array and a size: rename one of them.",
    "for mod in range(N):\n  A[mod] = 0": "mod (line 1) cannot be a name here",
    "for i in range(N):\n  pass": "These loops contain no statement: write an assignment",
    "for i in range(N)\n  A[i] = 0": "Line 1 is not Python: expected ':'.",
}
NOT_AFFINE = [
    *((f"for i in {over}:\n  A[i] = 0", f"The loop over i (line 1) {said}") for over, said in LOOPS.items()),
    *((f"for i in range(N):\n  {body}", f"The statement S (line 2) {said}") for body, said in BODIES.items()),
    *OTHERS.items(),
]


@pytest.mark.parametrize("source, message", NOT_AFFINE)
def test_what_is_not_affine_says_where_and_why(source, message):
    with pytest.raises(NotAffine) as error:
        parse(source)
    assert str(error.value).startswith(message) and str(error.value).endswith(".")


def test_loops_with_steps_bounds_and_conditions():
    program = parse(
        """
        for i in range(N - 1, 0, -2):
            for j in range(max(0, i - 6), min(i, N // 2)):
                if i + j != 4 and (i < 5 or j > 1):
                    A[i, j] = max(A[i, j], -B[(i + j) % 3], 1) - i
                else:
                    A[i, j] += 1
        """
    )
    sizes = {"N": 9}
    expected = [
        ("S" if i + j != 4 and (i < 5 or j > 1) else "T", (i, j))
        for i in range(8, 0, -2)
        for j in range(max(0, i - 6), min(i, 4))
    ]
    assert order(program, program.schedule, sizes) == expected and {name for name, _ in expected} == {"S", "T"}
    arrays = random_arrays(program, sizes)
    want, actual = (run_python(s, sizes, arrays) for s in (program.source, python_source(program, program.schedule)))
    assert all(np.array_equal(want[name], actual[name]) for name in arrays)


def test_shapes_and_sizes():
    jacobi = PROGRAMS["jacobi1d"]
    assert jacobi.shapes({"T": 3, "N": 8}) == {"A": (4, 8)}
    with pytest.raises(ValueError, match="There is no size for N: give"):
        jacobi.shapes({"T": 3})
    with pytest.raises(ValueError, match="The statement S reaches A at -1 on axis 0, before its beginning"):
        parse("for i in range(N):\n  A[i] = A[i - 1]").shapes({"N": 4})
    assert at_sizes(jacobi, jacobi["S"].domain, {"T": 0, "N": 8}).is_empty()
    with pytest.raises(KeyError, match="There is no statement Q; there are S"):
        jacobi["Q"]


@pytest.mark.parametrize("end", ["3", "N"])
def test_a_program_without_an_iteration_has_no_loops(end):
    program = parse(f"for i in range(5, {end}):\n    A[i] = 0.0")
    sizes = {"N": 2} if end == "N" else {}
    source = python_source(program, program.schedule, sizes)
    assert source.strip() == ""
    assert (run_python(source, sizes, {"A": np.ones(6)})["A"] == 1).all()
