"""Day 4, the exercises about kernels: codegen, cost, measure. What the judges say, and that they say the truth.

What needs a TVM is below `# There` and runs in a process that holds it (see `in_own_process`). No verdict hangs on a
clock.
"""

from __future__ import annotations

import random

import pytest
import torch

from autograder.authoring import answers
from autograder.authoring.answers import hidden_cases
from passlab import bytes_moved, exercises, launches
from passlab.exercises.day04 import cost as choosing
from passlab.exercises.day04 import measure as measuring
from passlab.judge import judge

IDS = ("day04.codegen", "day04.cost", "day04.measure")


@pytest.mark.parametrize("exercise_id", IDS)
def test_hidden_cases_are_drawn_from_the_seed(exercise_id, in_own_process):
    one, again, other = (in_own_process(exercise_id, told, exercise_id, seed) for seed in (3, 3, 4))
    assert one == again != other


# ---------------------------------------------------------------------------------------------------- codegen

# What comes back for relu(exp(x) * exp(x)) of (2, 3): name → the verdict that is lost first, a part of the sentence.
BROKEN = {
    "nothing": ("valid", "Return a PrimFunc, or an IRModule that contains one; your function returned NoneType."),
    "empty_module": ("valid", "The module must hold one PrimFunc and nothing else; it holds 0 functions."),
    "no_output": ("valid", "The parameters must be float32 [2, 3]; float32 [2, 3] (inputs, then outputs); they are"),
    "half_output": ("valid", "they are float32 [2, 3]; float16 [2, 3]."),
    "with_layout": ("valid", "The buffer x has a layout, which is not supported here"),
    "endless": ("valid", "The kernel contains a While statement"),
    "any_length": ("valid", "The loop i must have a constant length"),
    "calls_out": ("valid", "The kernel calls code from elsewhere (call_extern)"),
    "writes_input": ("spared", "It writes to its input x"),
    "in_memory": ("did", "It allocates a buffer of 6 elements between input and output"),
    "writes_twice": ("did", "The output y has 6 elements; the loops store 78 times to it."),
    "through_output": ("did", "Several loops store all 6 elements of the output y"),
    "through_input": ("valid", "The buffer part is another name for a part of a buffer"),
    "writes_nothing": ("did", "The output y has 6 elements; the loops store 0 times to it."),
    "exp_twice": ("cost", "It calls functions like exp 24 times; the graph has 1 such operations (exp) on 6 elements"),
    "long_way": ("cost", "operations per element"),
    "off_by_one": ("same", "On ordinary inputs the output at"),
    "drops_nan": ("same", "On NaN, infinities and the like the output at"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_gets_its_own_sentence(name, in_own_process):
    verdict, sentence = BROKEN[name]
    verdicts, message = in_own_process("day04.codegen", judged, name)
    assert verdicts[0] == verdict and sentence in message, (verdicts, message)


def test_what_is_right_and_written_by_hand_has_all_points(in_own_process):
    assert in_own_process("day04.codegen", judged, "by_hand") == ([], "")


def test_a_kernel_travels_and_is_judged_the_same(in_own_process):
    assert in_own_process("day04.codegen", travels) == [[]] * len(exercises.find("day04.codegen").cases())


def test_the_reference_is_right_on_other_seeds(in_own_process):
    assert in_own_process("day04.codegen", reference_on, "day04.codegen", range(11, 15)) == []


# ---------------------------------------------------------------------------------------------------- measure


def test_the_numbers_of_a_chain_by_hand():
    gm, groups, machine = measuring.cases()[0].build()
    size = 64 * 128 * 4
    after = measuring.priced(gm, groups, machine)
    assert (after["launches"], after["bytes"], after["flops"]) == (1, 2 * size, 3 * 64 * 128)
    before = measuring.priced(gm, [[name] for name in groups[0]], machine)
    assert (before["launches"], before["bytes"], before["roof"]) == (3, 6 * size, "memory")
    assert before["seconds"] == pytest.approx(3 * 5e-6 + 6 * size / 1e10)


def test_the_numbers_of_a_product_by_hand():
    gm, _, machine = measuring.cases()[4].build()
    product = measuring.priced(gm, [["matmul"]], machine)
    assert product["flops"] == 2 * 128 * 256 * 128 and product["bytes"] == 4 * (2 * 128 * 256 + 128 * 128)
    assert product["roof"] == "compute" and product["seconds"] == pytest.approx(5e-6 + product["flops"] / 1e11)


@pytest.mark.parametrize("number", [0, 1, 2, 4, 5])  # in number 3 eager torch makes a tensor of a number first
def test_before_fusing_launches_and_bytes_are_those_that_passlab_counts(number):
    gm, _, machine = measuring.cases()[number].build()
    before = measuring.priced(gm, [[n.name] for n in gm.graph.nodes if n.op == "call_function"], machine)
    assert before["launches"] == launches(gm, *gm.meta["inputs"]) and before["bytes"] == bytes_moved(gm)


ROW = {"launches": 1, "bytes": 2, "flops": 3, "intensity": 1.5, "seconds": 1.0, "roof": "memory"}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([ROW, ROW], 'Return a dict with "before" and "after"; got '),
        ({"before": ROW}, "after has no row."),
        ({"before": ROW, "after": ROW, "between": ROW}, "'between' is not \"before\" or \"after\"."),
        ({"before": ROW, "after": 3}, "Return a dict for after; got 3."),
        ({"before": ROW, "after": {"launches": 1}}, "bytes of after has no value."),
        ({"before": ROW | {"gain": 2}, "after": ROW}, "'gain' is not one of launches, bytes, flops, intensity"),
        ({"before": ROW | {"bytes": "many"}, "after": ROW}, "bytes of before must be a number; it is 'many'."),
        ({"before": ROW, "after": ROW | {"launches": True}}, "launches of after must be a number; it is True."),
        ({"before": ROW, "after": ROW | {"roof": "launch"}}, "roof of after must be \"memory\" or \"compute\"; it is"),
    ],
)  # fmt: skip
def test_what_is_no_table_of_numbers_is_told_so(value, sentence):
    [finding] = measuring.judge(measuring.cases()[0], value)
    assert finding.verdict == "valid" and not finding.ok and sentence in finding.message


def test_a_wrong_number_is_told_with_the_right_one_and_the_kernels():
    case = measuring.cases()[0]
    gm, groups, machine = case.build()
    right = {
        row: {key: value for key, value in measuring.priced(gm, kernels, machine).items() if key != "kernels"}
        for row, kernels in (("before", [["mul"], ["add"], ["relu"]]), ("after", groups))
    }
    assert all(f.ok for f in measuring.judge(case, right))
    right["after"]["bytes"] += 4
    [verdicts] = [f for f in measuring.judge(case, right) if not f.ok]
    assert verdicts.verdict == "did"
    assert verdicts.message == (
        "after: bytes is 65,540; expected 65,536 (bytes by kernel: mul+add+relu 65,536)."
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- cost


def laptop(seed=0):
    return [choosing.Choice(situation, choosing.MACHINE) for situation in choosing.situations(random.Random(seed))]


def turned(seed=0):
    return choosing.turned(random.Random(seed))


def lost(choices, value):
    """The verdicts that are lost, and the first sentence."""
    findings = list(choosing.judge(choosing.cost_case("some", choices), value))
    message = [f.message for f in findings if f.message]
    return [f.verdict for f in findings if not f.ok], message[0] if message else ""


def test_each_side_has_the_kernels_that_the_reference_prices(in_own_process):
    """The situations' own formulas against the reference, which counts in the graph."""
    for message, priced in in_own_process("day04.cost", prices_of, range(5)):
        assert message == pytest.approx(priced)


@pytest.mark.parametrize("seed", range(20))
def test_one_side_is_far_ahead_whether_kernels_move_and_compute_at_once_or_in_turn(seed):
    for situation, machine, _ in laptop(seed) + turned(seed):
        gains = [situation.gain(machine, overlap) for overlap in (True, False)]
        assert min(gains) > 1.3 or max(gains) < 1 / 1.3, (situation.name, gains)


def test_every_number_of_the_machine_turns_a_choice_round():
    pairs = turned()
    for one, other in zip(pairs[::2], pairs[1::2], strict=True):
        assert one.situation == other.situation and one.fuse is not other.fuse
        assert {key for key in one.machine if one.machine[key] != other.machine[key]} == {one.turned}
    assert {choice.turned for choice in pairs} == set(choosing.MACHINE)


def test_a_wrong_choice_is_told_with_what_both_sides_do():
    choices = laptop()
    right = [choice.fuse for choice in choices]
    assert lost(choices, right) == ([], "")
    verdicts, message = lost(choices, [False, *right[1:]])
    assert verdicts == ["did"]
    assert message == (
        "12 of 13 choices are right. For example, a chain of 5 over many elements, on this machine: "
        "5 kernels, 4,000,000 bytes and 500,000 steps apart, 1 kernel, 800,000 bytes and 500,000 steps fused. "
        "So fuse; your answer is False."
    )
    assert lost(choices, [right[0], True, *right[2:]])[0] == ["did", "spared"]
    pairs = turned()
    assert lost(pairs, [True] * len(pairs))[0] == ["cost"]


@pytest.mark.parametrize("value", [[1.5], ["fuse"], [None], "True"])
def test_what_is_no_choice_is_told_so(value):
    [finding] = choosing.judge(choosing.cost_case("some", laptop()[:1]), value)
    assert finding.verdict == "valid" and "Return True (fuse) or False" in finding.message


def test_situations_of_one_name_and_the_same_shapes_are_the_same_function():
    """Their times are kept by name and shapes."""
    seen = {}
    for seed in range(20):
        for situation in choosing.situations(random.Random(seed)):
            code = situation.graph().code
            assert seen.setdefault(situation, code) == code


def test_both_sides_of_every_choice_compute_what_the_graph_does(in_own_process):
    differ, kernels = in_own_process("day04.cost", both_sides, 5)
    assert differ == []
    assert all(fused <= before for before, fused in kernels) and any(fused < before for before, fused in kernels)


# There


def told(exercise_id, seed):
    """What the hidden cases of a seed ask, as text."""
    message = []
    for case in hidden_cases(exercise_id, seed):
        arguments = case.build()
        graphs = [choice[0] for choice in arguments[0]] if exercise_id == "day04.cost" else [arguments[0]]
        shapes = [[tuple(n.meta["tensor_meta"].shape) for n in gm.graph.find_nodes(op="placeholder")] for gm in graphs]
        message.append((case.name, [gm.code for gm in graphs], shapes))
    return message


def squared(x):
    e = torch.exp(x)
    return torch.relu(e * e)


def kernel(last=None, lines=None, out="float32", layout=None, loops=None, stores=1, nan=True, again=False, wrap=None):
    """relu(exp(x)²) of (2, 3), with a part of it exchanged."""
    from passlab.relax import tvm

    tir = tvm.tirx
    x = tir.decl_buffer((2, 3), "float32", "x", **({} if layout else {"layout": None}))
    y = tir.decl_buffer((2, 3), out, "y", layout=None)
    power = tir.decl_buffer((1,), "float32", "power", scope="local", layout=None)
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    arguments, zero = tir.BufferLoad(x, [i, j]), tir.const(0, "float32")
    value = (
        tir.exp(arguments) * tir.exp(arguments) if again else tir.BufferLoad(power, [0]) * tir.BufferLoad(power, [0])
    )
    value = tir.Select(value < zero, zero, value) if nan else tir.max(value, zero)
    value = last(tir, value) if last else value
    body = [tir.AllocBuffer(power), tir.BufferStore(power, tir.exp(arguments), [0])] if not again else []
    body += [tir.BufferStore(y, value.astype(out), [i, j])] * stores
    body += lines(tir, x, y, i, j) if lines else []
    nest = tir.For(j, 0, 3, tir.ForKind.SERIAL, tir.SeqStmt(body) if len(body) > 1 else body[0])
    nest = wrap(tir, nest) if wrap else nest
    extent = loops(tir) if loops else 2
    return tir.PrimFunc([x, y], tir.For(i, 0, extent, tir.ForKind.SERIAL, nest))


def generators():
    from passlab.relax import tvm

    def two_nests(gm):
        tir = tvm.tirx
        x, y, z = (tir.decl_buffer((2, 3), "float32", name, layout=None) for name in "xyz")
        nests = []
        for source, target, of in ((x, z, tir.exp), (z, y, lambda v: v * v)):
            i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
            store = tir.BufferStore(target, of(tir.BufferLoad(source, [i, j])), [i, j])
            nests.append(tir.For(i, 0, 2, tir.ForKind.SERIAL, tir.For(j, 0, 3, tir.ForKind.SERIAL, store)))
        return tir.PrimFunc([x, y], tir.SeqStmt([tir.AllocBuffer(z), *nests]))

    def through(buffer, part, store):
        """Two loops with exp(x) between them in a buffer that is there anyway."""
        where = "part = T.match_buffer(x[i, j], (), 'float32', elem_offset=T.int32(), offset_factor=1)"
        text = f"""
@T.prim_func(s_tir=True, check_well_formed=False)
def main(x: T.Buffer((2, 3), "float32"), y: T.Buffer((2, 3), "float32")):
    for i, j in T.grid(2, 3):
        with T.sblock("exp"):
            {where if part else "T.evaluate(0)"}
            if i < 2:
                {store} = T.exp(x[i, j])
    for i, j in T.grid(2, 3):
        if j < 3:
            y[i, j] = T.max({buffer}[i, j] * {buffer}[i, j], T.float32(0))
"""
        return lambda gm: tvm.script.from_source(text)

    def chained(tir, value):
        for _ in range(20):
            value = value + value * 0.5
        return value

    def clears_x(tir, x, y, i, j):
        return [tir.BufferStore(x, tir.const(0, "float32"), [i, j])]

    def input_only(gm):
        result = kernel()
        return tvm.tirx.PrimFunc([result.params[0]], tvm.tirx.Evaluate(0))

    return {
        "nothing": lambda gm: None,
        "empty_module": lambda gm: tvm.IRModule({}),
        "no_output": input_only,
        "half_output": lambda gm: kernel(out="float16"),
        "with_layout": lambda gm: kernel(layout=True),
        "endless": lambda gm: kernel(wrap=lambda tir, nest: tir.While(tir.const(True, "bool"), nest)),
        "any_length": lambda gm: kernel(loops=lambda tir: tir.Var("n", "int32")),
        "calls_out": lambda gm: kernel(last=lambda tir, value: tir.call_extern("float32", "expf", value)),
        "writes_input": lambda gm: kernel(lines=clears_x),
        "in_memory": two_nests,
        "writes_twice": lambda gm: kernel(stores=13),
        "through_output": through("y", False, "y[i, j]"),
        "through_input": through("x", True, "part[()]"),
        "writes_nothing": lambda gm: kernel(stores=0),
        "exp_twice": lambda gm: kernel(again=True),
        "long_way": lambda gm: kernel(last=chained),
        "off_by_one": lambda gm: kernel(last=lambda tir, value: value + tir.const(1.0, "float32")),
        "drops_nan": lambda gm: kernel(nan=False),
        "by_hand": lambda gm: kernel(),
    }  # fmt: skip


def judged(name):
    """The verdicts that this answer loses, and the first sentence."""
    from passlab.exercises.day04.codegen import codegen_case, numbers

    exercise = exercises.find("day04.codegen")
    result = judge(exercise, generators()[name], [codegen_case("one", squared, numbers(2, 3))])
    message = [f for f in result.findings if f.message]
    order = [f.verdict for f in message] + [v for v, ok in result.verdicts.items() if not ok]
    return list(dict.fromkeys(order)), message[0].message if message else ""


def travels():
    """What the reference loses on each visible case, after its kernel came through the wire."""
    from autograder.engine import wire

    exercise, answer = exercises.find("day04.codegen"), answers.reference("day04.codegen")
    results = []
    for case in exercise.cases():
        result = wire.decode(wire.encode(exercise.call(answer, case)))
        results.append([(f.verdict, f.message) for f in exercise.judge(case, result) if not f.ok])
    return results


def reference_on(exercise_id, seeds):
    """What the reference loses on the hidden cases of these seeds."""
    exercise, answer = exercises.find(exercise_id), answers.reference(exercise_id)
    results = [judge(exercise, answer, hidden_cases(exercise_id, seed)) for seed in seeds]
    return [(f.case, f.verdict, f.message) for result in results for f in result.findings if not f.ok]


def prices_of(seeds):
    """The seconds of all kernels of each side: by the situation, and by the reference."""
    price = answers.reference("day04.cost").__globals__["price"]
    both = []
    for situation, machine, _ in [choice for seed in seeds for choice in laptop(seed) + turned(seed)]:
        gm = situation.graph()
        single = [[node] for node in gm.graph.nodes if node.op == "call_function"]
        grouped = [[node for node in gm.graph.nodes if node.name in group] for group in situation.named(gm)]
        fused = grouped + [[node] for [node] in single if not any(node in group for group in grouped)]
        for kernels, nodes in ((situation.apart, single), (situation.fused, fused)):
            message = [
                machine["launch"] + max(k.bytes / machine["bandwidth"], k.computes(machine) * machine["step"])
                for k in kernels
            ]
            both.append((sorted(message), sorted(price(kernel, machine) for kernel in nodes)))
    return both


def both_sides(seed):
    """Situations whose sides do not compute what torch does, and how many kernels there are on each side."""
    from passlab.building.arrays import as_torch
    from passlab.relax.fusing import fuse, prepare
    from passlab.relax.sides import as_relax, in_place
    from passlab.tvm import builds

    differ, kernels = [], []
    for situation in choosing.situations(random.Random(seed)):
        gm = situation.graph()
        module, groups = prepare(as_relax(gm)), situation.named(gm)
        inputs = [torch.randn(shape, generator=torch.Generator().manual_seed(1)) for shape in situation.shapes]
        expected = gm(*inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        counts = []
        for value in (module, fuse(module, groups, in_place)):
            built = builds.run_module(value, [inputs], pipeline="none")
            counts.append(len(built.kernels))
            same = built.ok and all(
                torch.allclose(as_torch(actual), want, 1e-3, 1e-3)
                for actual, want in zip(built.outputs[0], expected, strict=True)
            )
            if not same:
                differ.append((situation.name, built.error))
        kernels.append(tuple(counts))
    return differ, kernels
