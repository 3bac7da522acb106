"""Day 7, exercises 1 to 4: the sentences that broken answers get, and the reference answers on random modules.

All of it needs Relay, which this process does not hold: what is below `# There` runs in one that does (see
`in_own_process`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from autograder.authoring import answers
from passlab import exercises
from passlab.judge import judge

PASSES = ("day07.relu-to-clip", "day07.batchnorm")


# What a pass must not return: name → the verdict that is lost first, and a part of the sentence.
BROKEN = {
    "nothing": ("valid", "The pass returned None. End it with `return mod`."),
    "text": ("valid", "The pass returned a str, not an IRModule."),
    "ill-typed": ("valid", "not well-typed at add in main: Incompatible broadcast type"),
    "drops a parameter": ("valid", "The parameter x was dropped: main took (x) and now takes ()."),
    "renames a parameter": ("valid", "The parameter x was renamed"),
    "changes the result": ("valid", "and now returns Tensor[(1, 4, 6, 6), float64]."),
    "no main": ("valid", "The module has no function main; it has other."),
    "divides by zero": ("same", "does not build for llvm: Check failed: pb->value != 0 (0 vs. 0) : Divide by zero."),
    "needs a terabyte": ("same", "To build the module took more than 4 GiB of memory."),
    "ends never": ("valid", "It used up its 2 s: it is too slow, or one of its loops never ends."),
    "calls itself": ("valid", "It went too deep (RecursionError)"),
    "unchanged": ("did", ""),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("exercise_id", PASSES)
def test_a_broken_pass_gets_its_own_sentence_and_the_next_answer_is_judged(exercise_id, name, in_own_process):
    verdict, sentence = BROKEN[name]
    verdicts, message, after = in_own_process(exercise_id, judged_after, exercise_id, name)
    assert verdicts[0] == verdict and sentence in message, (verdicts, message)
    assert not [other for other, (_, part) in BROKEN.items() if other != name and part and part in message], message
    assert after, "the reference answer, judged after it, has all points"


@pytest.mark.parametrize("seed", range(4))
def test_the_foretold_groups_are_those_of_fuse_ops_on_random_modules(seed, in_own_process):
    wrong, groups, calls = in_own_process("day07.fusion-groups", groups_that_differ, range(60 * seed, 60 * seed + 60))
    assert wrong == []
    assert groups < 0.9 * calls, "something is fused"


def test_the_judge_finds_the_groups_of_kernels_written_down_by_hand(in_own_process):
    result = in_own_process("day07.fusion-groups", groups_by_hand)
    assert result == {
        "sum of relu": [[0, 1]],
        "relu of sum": [[0], [1]],
        "fork": [[0], [1], [2]],
        "diamond": [[0, 1, 2, 3]],
        "at most two": [[0, 1], [2]],
    }


def test_fuse_ops_is_out_of_reach_for_the_answer_and_back_afterwards(in_own_process):
    message, there_again = in_own_process("day07.fusion-groups", asks_fuse_ops)
    assert "FuseOps does what this exercise asks" in message and there_again


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"groups": []}, "Return a list of groups; got {'groups': []}."),
        ([[0, 1], [1]], "Call 1 is in two groups, or twice in one."),
        ([[0], []], "A group is a list of numbers of calls; one here is []."),
        ([[0, 99]], "A group holds 99, and calls are numbered from 0 to 4."),
        ([[0, True]], "A group holds True, and calls are numbered from 0 to 4."),
        ([[0]], "Call 1 is missing: a call that is not fused forms a group of one."),
    ],
)
def test_an_answer_that_is_no_grouping_is_told_so(answer, sentence, in_own_process):
    assert sentence in in_own_process("day07.fusion-groups", said_of, "day07.fusion-groups", answer)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("a table", "Return a list of dictionaries; got 'a table'."),
        ([{"add": 1}], "The table has 1 row; expected 4: one before the first pass and one after each pass."),
        ([{"add": 1.0}] * 4, "Row 0 holds 'add': 1.0; keys must be names of operators and values ints."),
        ([7] * 4, "Row 0 must be a dictionary from operator to number of calls; it is 7."),
        ([{}] * 4, "Before the first pass, add is called once; your table says 0 times."),
    ],
)
def test_an_answer_that_is_no_table_is_told_so(answer, sentence, in_own_process):
    assert sentence in in_own_process("day07.pipeline-counts", said_of, "day07.pipeline-counts", answer)


def test_the_counts_of_resnet_18_are_those_the_lesson_shows(in_own_process):
    """With parameters as inputs nothing is constant: FoldConstant leaves what SimplifyInference made."""
    start, simplified, folded, fused = in_own_process("day07.pipeline-counts", counts_of_resnet)
    norms = start["nn.batch_norm"]
    assert norms == 20 and sum(simplified.values()) == sum(start.values()) + 10 * norms
    assert folded == simplified == fused


# There


def broken_passes():
    """What each name of BROKEN stands for."""
    from passlab.relay import relay, tvm

    def typed(params, body):
        return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))

    def ill_typed(mod):
        params = mod["main"].params
        return tvm.IRModule.from_expr(relay.Function(params, params[0] + relay.const([1.0] * 7)))

    def renames_a_parameter(mod):
        main = mod["main"]
        x = relay.var("y", main.params[0].checked_type)
        return typed([x], relay.bind(main.body, {main.params[0]: x}))

    def changes_the_result(mod):
        x = mod["main"].params[0]
        return typed([x], relay.cast(x, "float64"))

    class Adds(relay.ExprMutator):
        """Adds `more(x)` to each relu(x)."""

        def __init__(self, more):
            super().__init__()
            self.more = more

        def visit_call(self, call):
            call = super().visit_call(call)
            return call + self.more(call.args[0]) if getattr(call.op, "name", "") == "nn.relu" else call

    def seven_by_zero(x):
        zero = relay.cast(x * relay.const(0.0), "int32")
        return relay.cast(relay.floor_divide(relay.const(7, "int32"), zero), "float32")

    def running_sum(x):
        return relay.take(relay.cumsum(relay.broadcast_to(relay.sum(x), (2**40,)), axis=0), relay.const(0), axis=0)

    class Again(relay.ExprMutator):
        def visit_call(self, call):
            while True:
                self.visit(call.args[0])

    class Deeper(relay.ExprMutator):
        def visit_call(self, call):
            return self.visit_call(call)

    return {
        "nothing": lambda mod: None,
        "text": str,
        "ill-typed": ill_typed,
        "drops a parameter": lambda mod: typed([], relay.zeros((1, 4, 6, 6), "float32")),
        "renames a parameter": renames_a_parameter,
        "changes the result": changes_the_result,
        "no main": lambda mod: tvm.IRModule({relay.GlobalVar("other"): mod["main"]}),
        "divides by zero": lambda mod: typed(mod["main"].params, Adds(seven_by_zero).visit(mod["main"].body)),
        "needs a terabyte": lambda mod: typed(mod["main"].params, Adds(running_sum).visit(mod["main"].body)),
        "ends never": lambda mod: Again().visit(mod["main"]),
        "calls itself": lambda mod: Deeper().visit(mod["main"]),
        "unchanged": lambda mod: mod,
    }


def judged_after(exercise_id, name):
    """Return the verdicts that the broken pass loses on the first case, the messages, and whether the reference is
    right after it."""
    exercise = replace(exercises.find(exercise_id), seconds=2.0 if name == "ends never" else 20.0)
    first = [case for case in exercise.cases() if "same" in case.about][:1]
    result = judge(exercise, broken_passes()[name], first)
    verdicts = [verdict for verdict, ok in result.verdicts.items() if not ok and verdict in first[0].about]
    right = judge(exercise, answers.reference(exercise_id), first)
    return verdicts, result.failure.message, all(f.ok for f in right.findings)


def said_of(exercise_id, answer):
    exercise = exercises.find(exercise_id)
    return judge(exercise, lambda *arguments: answer, exercise.cases()[:1]).failure.message


def groups_that_differ(seeds):
    import random

    from passlab.relay.generate import random_relay
    from passlab.relay.groups import calls, fused_groups
    from passlab.tvm.generate import FEATURES

    answer, wrong, groups, number = answers.reference("day07.fusion-groups"), [], 0, 0
    features = [name for name in FEATURES if name not in ("dead", "blocks")]
    for seed in seeds:
        rng = random.Random(seed)
        module, limit = random_relay(seed, rng.randrange(4, 40), features), rng.choice((256, 256, 2, 3, 6))
        right = fused_groups(module, limit)
        groups, number = groups + len(right), number + len(calls(module))
        if sorted(map(sorted, answer(module, limit))) != right:
            wrong.append(seed)
    return wrong, groups, number


def groups_by_hand():
    from passlab.exercises.day07.fusion_groups import diamond, fork
    from passlab.relay import relay
    from passlab.relay.cases import program
    from passlab.relay.groups import fused_groups

    image, bodies = (1, 4, 6, 6), {}
    bodies["sum of relu"] = program(lambda x: relay.sum(relay.nn.relu(x)), (2, 3))
    bodies["relu of sum"] = program(lambda x: relay.nn.relu(relay.sum(x)), (2, 3))
    bodies["fork"], bodies["diamond"] = program(fork, image), program(diamond, image)
    chain = program(lambda x: relay.tanh(relay.tanh(relay.tanh(x))), (2, 3))
    return {name: fused_groups(build()) for name, build in bodies.items()} | {"at most two": fused_groups(chain(), 2)}


def asks_fuse_ops():
    from passlab.relay import relay
    from passlab.relay.groups import fused_groups

    exercise = exercises.find("day07.fusion-groups")
    case = exercise.cases()[0]
    result = judge(exercise, lambda mod: relay.transform.FuseOps()(mod), [case])
    return result.failure.message, bool(fused_groups(*case.build()))


def counts_of_resnet():
    from passlab.exercises.day07.pipeline_counts import zoo

    passes = ["SimplifyInference", "FoldConstant", "FuseOps"]
    rows = answers.reference("day07.pipeline-counts")(zoo("resnet18")(), passes)
    return [{str(op): number for op, number in row.items()} for row in rows]  # strings of TVM do not travel
