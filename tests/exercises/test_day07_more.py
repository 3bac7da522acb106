"""Day 7, instruments to folding: what holds beyond the proof. All of it runs in the process that holds Relay."""

from __future__ import annotations

import random

import numpy as np
import pytest

from passlab import exercises

MINE = ("instrument", "levels", "cse", "dce", "dense-gelu", "fold-and-time")
SEEDS = range(12)


@pytest.fixture
def there(in_own_process):
    """Call a function of this module where Relay is."""
    return lambda function, *args: in_own_process("day07.cse", function, *args)


# ---------------------------------------------------------------------------------------------------- instruments


def _witnessed(seed):
    """For each case of the instrument: what the judge's own instrument saw, and what TVM's timing instrument did."""
    from autograder.answers.day07 import instrument
    from passlab.exercises.day07 import _shared as shared_cases
    from passlab.exercises.day07 import instrument as cases
    from passlab.given.day07.instrument import _pass as made
    from passlab.relay import tvm

    messages = []
    for case in (*cases.cases(), *instrument.hidden(seed)):
        module, contexts, level = case.build()
        if len(contexts) != 1 or "Fails" in contexts[0]:
            continue  # TVM's instrument loses count where a pass fails
        witness, timing = shared_cases.Witness(), tvm.ir.instrument.PassTimingInstrument()
        result = cases.run(module, contexts, level, witness)
        with tvm.transform.PassContext(opt_level=level, instruments=[timing]):
            tvm.transform.Sequential([made(name) for name in contexts[0]])(module)
            lines = [line for line in timing.render().split("\n") if ":" in line]
        rows = cases.record_of(witness.events)
        right = [(line.strip().split(":")[0], len(line) - len(line.lstrip("\t"))) for line in lines]
        ends = [rows[0]["before"], rows[0]["after"]], [shared_cases.size(module), shared_cases.size(result)]
        messages.append((case.name, [(row["name"], row["depth"]) for row in rows], right, *ends))
    return messages


def test_the_judge_of_instruments_sees_what_tvms_own_instrument_sees(there):
    message = there(_witnessed, 3)
    assert len(message) >= 8
    for name, seen, right, sizes, counted in message:
        assert seen == right, name
        assert sizes == counted, name
    assert any(depth >= 3 for _, seen, *_ in message for _, depth in seen), "some pass is nested in three others"


def _levels():
    from passlab.exercises.day07.instrument import normed
    from passlab.exercises.day07.levels import table
    from passlab.relay.cases import program

    return table(program(normed, (1, 3, 4, 4), *[(4,)] * 4)())


def test_what_runs_at_which_level(there):
    table = there(_levels)
    lowest = {"SimplifyInference": 0, "FuseOps": 0, "FoldConstant": 2, "EliminateCommonSubexpr": 3}
    lowest |= {"AlterOpLayout": 3, "FastMath": 4, "InlineGlobals": 0}
    assert {name: table[name] for name in lowest} == {name: list(range(at, 5)) for name, at in lowest.items()}


def _said(exercise_id, source):
    """What is said of an answer, given as the source of an expression."""
    from passlab.judge import judge
    from passlab.relay import relay, tvm

    return judge(exercises.find(exercise_id), eval(source, {"relay": relay, "tvm": tvm})).failure.message


@pytest.mark.parametrize(
    ("name", "source", "sentence"),
    [
        ("cse", "lambda mod: relay.transform.InferType()(relay.nn.relu(mod))", "It raised"),
        ("cse", "lambda mod: mod['main']", "returned a Function, not an IRModule"),
        ("cse", "lambda mod: None", "returned None"),
        ("dce", "relay.transform.DeadCodeElimination()", "Only field 0 of its tuple is used."),
        ("dense-gelu", "lambda mod: mod", "Expected 2 calls of a function with Composite='dense_gelu'; found 0."),
        ("levels", "lambda mod, disabled=(): {'FuseOps': 0}", "the list of its levels"),
        ("fold-and-time", "lambda mod, x: mod", "Return a dict with plain, folded and ratio."),
    ],
)
def test_what_is_said(there, name, source, sentence):
    message = there(_said, f"day07.{name}", source)
    assert sentence in message and "Traceback" not in message


# ---------------------------------------------------------------------------------------------------- CSE, DCE


def _evaluate(module, inputs):
    """The outputs of a program of the generator, by NumPy; a dropout gives what it takes."""
    from passlab.relay import relay

    def softmax(x, axis):
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    ops = {
        "tanh": lambda a, x: np.tanh(x),
        "nn.relu": lambda a, x: np.maximum(x, 0),
        "sigmoid": lambda a, x: 1 / (1 + np.exp(-x)),
        "nn.softmax": lambda a, x: softmax(x, int(a.axis)),
        "nn.leaky_relu": lambda a, x: np.where(x > 0, x, x * float(a.alpha)),
        "nn.dropout": lambda a, x: (x, x),
        "add": lambda a, x, y: x + y,
        "subtract": lambda a, x, y: x - y,
        "maximum": lambda a, x, y: np.maximum(x, y),
        "multiply": lambda a, x, y: x * y,
        "split": lambda a, x: np.split(x, int(a.indices_or_sections), int(a.axis)),
        "concatenate": lambda a, x: np.concatenate(x, int(a.axis)),
    }
    known = dict(zip(module["main"].params, inputs, strict=True))

    def value(e):
        if e in known:
            return known[e]
        if isinstance(e, relay.Let):
            known[e.var] = value(e.value)
            return value(e.body)
        if isinstance(e, relay.Constant):
            result = e.data.numpy().astype("float64")
        elif isinstance(e, relay.Tuple):
            result = [value(f) for f in e.fields]
        elif isinstance(e, relay.TupleGetItem):
            result = value(e.tuple_value)[e.index]
        else:
            result = ops[e.op.name](e.attrs, *map(value, e.args))
        known[e] = result
        return result

    return value(module["main"].body)


def _reduced(name, seed):
    """A generated program before and after the reference: outputs; calls, also after TVM's pass and a second time."""
    from autograder.answers.day07 import _recipes, cse, dce
    from autograder.authoring import answers
    from passlab.relay import relay, tvm
    from passlab.tvm.judge import counts

    rng = random.Random(seed)
    steps = _recipes.recipe(rng, 14)
    tvms = {"cse": relay.transform.EliminateCommonSubexpr, "dce": relay.transform.DeadCodeElimination}[name]
    build = cse.graph_of(steps, 4) if name == "cse" else dce.named(steps, rng.sample(range(14), 3), rng.randrange(14))
    before, answer = build(), answers.reference(f"day07.{name}")
    after = answer(before)
    inputs = [np.random.default_rng(seed + i).standard_normal((2, 4)) for i in range(2)]
    assert tvm.ir.structural_equal(build(), before), "the program is another one the second time"
    return {
        "outputs": (_evaluate(before, inputs), _evaluate(after, inputs)),
        "calls": [counts(m).total() for m in (before, after, tvms()(before), answer(after))],
        "draws": counts(after)["nn.dropout"],
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["cse", "dce"])
def test_the_reference_keeps_the_meaning_of_generated_programs(there, name, seed):
    result = there(_reduced, name, seed)
    for one, other in zip(*result["outputs"], strict=True):
        np.testing.assert_array_equal(one, other)
    before, after, tvms, again = result["calls"]
    assert again == after <= tvms <= before
    assert result["draws"] == (name == "dce")


def test_the_generated_programs_have_something_to_do(there):
    for name in ("cse", "dce"):
        calls = [there(_reduced, name, seed)["calls"] for seed in SEEDS]
        assert sum(after < before for before, after, *_ in calls) >= 10


# ---------------------------------------------------------------------------------------------------- patterns, folding


def _near_misses(seed):
    """The sentences of spared cases on which a pattern that looks at nothing but operators makes a function."""
    from autograder.answers.day07 import dense_gelu
    from passlab.exercises.day07.dense_gelu import cases as gelu_cases

    cases = [case for case in (*gelu_cases(), *dense_gelu.hidden(seed)) if "did" not in case.about]
    y = dense_gelu._y()
    loose = dense_gelu._forms(y, number=dense_gelu._any, inner=dense_gelu._y())
    results = {}
    for case in cases:
        after = dense_gelu._partition(case.build()[0], loose, check=lambda whole: True)
        results[case.name] = any(law(case.build()[0], after) for law in case.expect.spared)
    return results


def test_each_near_miss_is_one(there):
    result = there(_near_misses, 5)
    # Patterns see these by themselves.
    missed = {"readers in the middle", "readers of each value in between", "readers of erf and of phi"}
    assert len(result) >= 8 and {name for name, caught in result.items() if not caught} == missed


def _limits(seed):
    """For each network: what it may hold when folded, and what TVM's own passes leave of these operators."""
    from autograder.answers.day07 import fold_and_time
    from passlab.exercises.day07.fold_and_time import cases as fold_cases
    from passlab.tvm.judge import counts

    results = {}
    for case in (*fold_cases(), *fold_and_time.hidden(seed)):
        left = counts(fold_and_time._folded(case.build()[0], *fold_and_time.ALL))
        results[case.name] = case.expect, {op: left[op] for op in case.expect}
    return results


def test_the_limits_of_folding_are_what_tvm_reaches(there):
    result = there(_limits, 0) | there(_limits, 1)
    assert len(result) >= 4
    for name, (limits, reached) in result.items():
        assert limits == reached, name
