"""Day 10, exercises 5 to 7: the sentences that broken answers get, that every case can be kept, and what is a trap.

All of it needs TVM, which this process does not hold: what is below `# There` runs in one that does (see
`in_own_process`).
"""

from __future__ import annotations

import pytest

from autograder.authoring import answers
from autograder.authoring.answers import hidden_cases
from passlab import exercises
from passlab.judge import judge

BROKEN = {
    "day10.generate": {
        "nothing": ("valid", "Return TensorIR; your function returned None."),
        "an empty loop": ("did", "S[0, 0] never runs; 35 of 35 iterations are missing."),
        "a loop without a variable": ("valid", "a variable is used where no loop defines it"),
        "a loop from 1": ("valid", "The loop over t begins at 1. Let it begin at 0"),
        "a loop with a step": ("valid", "The loop over t has a step, 2. Let it begin at 0"),
        "a loop from 1 with a step": ("valid", "The loop over t begins at 1 and has a step, 2. Let it"),
        "a division by 0": ("did", "A bound or a branch of the function divides by 0."),
        "endless loops": ("did", "The loops of the function turn more than 20,000,000 times. There should be"),
        "one statement again and again": (
            "did",
            "The function visits more than 70 iterations. There should be 35 iterations: which",
        ),
        "a call from elsewhere": ("valid", "calls code from elsewhere (call_extern)"),
    },
    "day10.tile": {
        "nothing": ("valid", "Return a pair: the schedule, and a dictionary of marks"),
        "no isl": ("valid", "isl cannot read The schedule as a UnionMap: 'i, k, j'."),
        "a strange mark": ("valid", "There is no mark 'fast'; use parallel, vectorize, unroll."),
        "a mark outside": ("valid", "parallel marks dimension 4; the times have 4, counted from 0."),
        "a mark that is no number": ("valid", "unroll must be a list of dimensions, counted from 0; it is [True]."),
        "a huge number": ("valid", "The schedule contains a number of 9 digits; the limit is 6."),
        "two times": ("valid", "The schedule is not a function: it gives S[0, 0] the times"),
        "iterations dropped": ("valid", "The schedule drops iterations of T: T[0, 0, 0] has no time."),
        "backwards": ("same", "The order is not legal: T[0, 0, 0] must run before T[0, 0, 1], but does not."),
        "a race": (
            "same",
            "The loop of dimension 3 must not be marked parallel: T[0, 0, 0] must run before T[0, 0, 1]",
        ),
        "two turns along memory": ("did", "has 2 turns; along memory, 4 or more are required."),
    },
    "day10.tvm": {
        "nothing": (
            "valid",
            "Your function returned None, but splits and reorders can express { S[i, j, k] -> [j, i, k] }.",
        ),
        "as it was": ("did", "Iteration number 5 in time, counted from 0, should be S[1, 0, 0]; it is S[0, 1, 0]."),
        "other parameters": ("valid", "The parameters must be float32 arrays of shapes (10, 7), (10, 5), (5, 7)"),
        "another statement": ("same", "elements of C are wrong"),
    },
}


@pytest.mark.parametrize(("exercise_id", "name"), [(one, name) for one, names in BROKEN.items() for name in names])
def test_a_broken_answer_gets_a_sentence_of_its_own(exercise_id, name, in_own_process):
    verdict, sentence = BROKEN[exercise_id][name]
    verdicts, message = in_own_process(exercise_id, lost_first, exercise_id, name)
    assert verdicts == verdict and sentence in message, (verdicts, message)


@pytest.mark.parametrize("exercise_id", BROKEN)
def test_right_answers_hold_on_cases_that_are_drawn(exercise_id, in_own_process):
    seeds = range(3) if exercise_id != "day10.tile" else range(1)
    assert in_own_process(exercise_id, lost_by_right_answers, exercise_id, seeds) == []


@pytest.mark.parametrize("seed", range(6))
def test_the_orders_that_are_asked_for_are_legal(seed, in_own_process):
    """Otherwise the arrays after the run could not be those of the loops as they are written."""
    legal, illegal = in_own_process("day10.generate", orders_that_are_legal, seed)
    assert illegal == [] and legal >= 12


def test_where_none_is_right_no_split_and_no_order_of_loops_is(in_own_process):
    """Every way to split each loop once or twice and to order the parts, tried out. Two cases say that some do."""
    items, tried = in_own_process("day10.tvm", orders_by_trying, range(2))
    assert items == [] and tried > 1000


@pytest.mark.parametrize("name", ["by remainders", "tiles that cut tiles, in one loop"])
def test_an_order_of_another_form_is_accepted_if_splits_give_it_and_no_other_order_is(name, in_own_process):
    accepted, refused = in_own_process("day10.tvm", other_form_by_hand, name)
    assert accepted == [] and len(refused) == 1 and "or loops in exactly that order" in refused[0]


def test_an_order_that_is_given_is_accepted_where_none_was_asked(in_own_process):
    assert in_own_process("day10.tvm", reversed_by_hand) == []


# ---------------------------------------------------------------------------------------------------- There


def lost_first(exercise_id, name):
    exercise = exercises.find(exercise_id)
    cases = exercise.cases()
    tile = 0 if name == "two turns along memory" else 2
    number = {"day10.generate": 3, "day10.tile": tile, "day10.tvm": int(name == "another statement")}[exercise_id]
    failure = judge(exercise, ANSWERS[exercise_id](name), [cases[number]]).failure
    return failure.verdict, failure.message


def of_generate(name):
    from passlab.relax import tvm

    tir = tvm.tirx

    def loop(turns, body, first=0, variable="t", step=None):
        step = step and tir.const(step, "int32")
        return tir.For(tir.Var(variable, "int32"), first, turns, tir.ForKind.SERIAL, body, step=step)

    def answer(node, statement):
        zero, turn = tir.const(0, "int32"), tir.Var("turn", "int32")
        nothing, once = tir.Evaluate(zero), statement("S", [zero, zero])
        test = tir.EQ(tir.truncdiv(zero + 7, turn), zero)
        return {
            "nothing": None,
            "an empty loop": loop(3, nothing),
            "a loop without a variable": loop(3, statement("S", [tir.Var("t", "int32"), zero])),
            "a loop from 1": loop(3, once, first=1),
            "a loop with a step": loop(3, once, step=2),
            "a loop from 1 with a step": loop(3, once, first=1, step=2),
            "a division by 0": tir.For(turn, 0, 3, tir.ForKind.SERIAL, tir.IfThenElse(test, once, None)),
            "endless loops": loop(10**9, loop(10**9, nothing), variable="u"),
            "one statement again and again": loop(10**9, once),
            "a call from elsewhere": tir.SeqStmt([once, tir.Evaluate(tir.call_extern("int32", "getpid"))]),
        }[name]

    return answer


def of_tile(name):
    order = "{ S[i, j] -> [i, 0, 0, j]; T[i, j, k] -> [i, 1, k, j] }"
    value = {
        "nothing": None,
        "no isl": ("i, k, j", {}),
        "a strange mark": (order, {"fast": [0]}),
        "a mark outside": (order, {"parallel": [4]}),
        "a mark that is no number": (order, {"unroll": [True]}),
        "a huge number": (order.replace("[i, 0", "[123456789i, 0"), {}),
        "two times": (order.replace(" }", "; S[i, j] -> [i, 0, 1, j] }"), {}),
        "iterations dropped": (order.replace(" }", " : k > 0 }"), {}),
        "backwards": (order.replace("1, k", "1, -k"), {}),
        "a race": ("{ S[i, j] -> [i, j, 0, 0]; T[i, j, k] -> [i, j, 1, k] }", {"parallel": [3]}),
        "two turns along memory": ("{ S[i, j] -> [i, 0, 0, 0, j]; T[i, j, k] -> [i, 1, floor(j/2), k, j] }", {}),
    }[name]
    return lambda program, sizes: value


def of_tvm(name):
    from passlab.relax import tvm

    def answer(function, schedule):
        match name:
            case "nothing":
                return None
            case "as it was":
                return function
            case "other parameters":
                a, *others = function.params
                return tvm.tirx.PrimFunc([*others, a], function.body, attrs=function.attrs)
        right = answers.reference("day10.tvm")(function, schedule)
        text = tvm.ir.save_json(right).replace('"prim.Mul"', '"prim.Add"', 1)
        return tvm.ir.load_json(text)

    return answer


ANSWERS = {"day10.generate": of_generate, "day10.tile": of_tile, "day10.tvm": of_tvm}


def lost_by_right_answers(exercise_id, seeds):
    exercise = exercises.find(exercise_id)
    right = [answers.reference(exercise_id), *(a for a in answers.load(exercise_id) if a.mark.kind == "right")]
    verdicts = []
    for seed in seeds:
        cases = hidden_cases(exercise_id, seed)
        results = [judge(exercise, answer, cases) for answer in right]
        verdicts += [
            f"seed {seed}: {result.failure.case}: {result.failure.message}" for result in results if not result.ok
        ]
    return verdicts


def orders_that_are_legal(seed):
    from passlab import polyhedral

    legal, illegal = 0, []
    for case in [*exercises.find("day10.generate").cases(), *hidden_cases("day10.generate", seed)]:
        nest = case.expect
        pair = polyhedral.violated(polyhedral.dependences(nest.program), nest.schedule, nest.sizes)
        legal += pair is None
        illegal += [(case.name, pair)] if pair else []
    return legal, illegal


def orders_by_trying(seeds):
    """Cases to be answered with None that split loops in some order do keep, and how many orders were tried."""
    from itertools import permutations, product

    from passlab import polyhedral

    cases = [
        *exercises.find("day10.tvm").cases(),
        *(case for seed in seeds for case in hidden_cases("day10.tvm", seed)),
    ]
    items, tried = [], 0
    for case in cases:
        nest = case.expect
        if "spared" not in case.about or case.name in BY_HAND:
            continue
        expected = [at for _, at in polyhedral.order(nest.program, nest.schedule, nest.sizes)]
        n, m = nest.sizes["N"], nest.sizes["M"]
        grains = [(), *((size,) for size in range(2, 9)), (4, 2), (6, 3), (6, 2)]
        for i, j in product(grains, grains):
            parts = [(0, size) for size in (*i, 1)] + [(1, size) for size in (*j, 1)]
            for times in permutations(parts) if len(parts) < 5 else ():
                tried += 1
                order = sorted(product(range(n), range(m)), key=lambda at: [at[v] // size for v, size in times])
                if order == expected:
                    items.append((case.name, times))
    return items, tried


#: Cases whose schedule has another form than splits give, and whose order they give: factors of i, order of the parts.
BY_HAND = {"by remainders": ([None, 4], (1, 0, 2)), "tiles that cut tiles, in one loop": ([None, 2], (0, 1, 2))}


def other_form_by_hand(name):
    """What the loops of that order lose, and what others do."""
    from passlab.relax import tvm

    exercise = exercises.find("day10.tvm")
    [case] = [case for case in exercise.cases() if case.name == name]
    factors, order = BY_HAND[name]

    def loops(function, order):
        schedule = tvm.s_tir.Schedule(function)
        i, j = schedule.get_loops(schedule.get_sblock("S"))
        parts = [*schedule.split(i, factors), j]
        schedule.reorder(*(parts[at] for at in order))
        return schedule.mod

    results = [exercise.call(lambda function, _, by=by: loops(function, by), case) for by in (order, order[::-1])]
    return [[finding.message for finding in exercise.judge(case, it) if not finding.ok] for it in results]


def reversed_by_hand():
    """What a function that does run backwards loses in the case that asks for None."""
    from passlab import polyhedral
    from passlab.relax import tvm

    exercise = exercises.find("day10.tvm")
    [case] = [case for case in exercise.cases() if case.name == "from the last row"]
    nest = case.expect
    module = tvm.IRModule({"main": polyhedral.prim_func(nest.program, nest.schedule, nest.sizes)})
    return [finding.message for finding in exercise.judge(case, module) if not finding.ok]
