"""Passes over Relay and Relax through the whole engine: modules travel as data to the learner's code and back.

What comes back is compared with what went, then built and run: in a process of its own, whatever it holds.
"""

from __future__ import annotations

import json
from functools import cache

import pytest

from autograder.toys import tiny
from passlab.building.cache import FOLDER
from tests.support.engine import grade, points
from tests.support.flavours import FLAVOURS

#: A number that stands in the hidden inputs alone.
MARKER = 77031.25

SHARED = '''
"""Two questions for each compiler, about the same pass: it must give another module, which computes the same."""

import numpy as np

from passlab.tvm import builds
from passlab.judge import Case, Exercise, Finding


def relay_module(size):
    from passlab.relay import relay, tvm

    x = relay.var("x", shape=(size,), dtype="float32")
    body = relay.nn.relu(relay.add(x, relay.const([1.5] * size, "float32")))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))


def relax_module(size):
    from passlab.relax import relax, tvm

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((size,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            sum_ = builder.emit(relax.op.add(x, relax.const([1.5] * size, "float32")))
            made = builder.emit_output(relax.op.nn.relu(sum_))
        builder.emit_func_output(made)
    return builder.get()


def cases(make, size, value):
    inputs = np.full(size, value, "float32")
    return [Case(f"size {size}", lambda: (make(size),), inputs=lambda: [(inputs,), (-inputs,)])]


def _alike(one, other):
    import tvm

    try:
        tvm.ir.assert_structural_equal(one, other)
    except ValueError:
        return False
    return True


def judge(case, value):
    import tvm

    yield Finding("valid", isinstance(value, tvm.IRModule), f"It gave {type(value).__name__}.")
    if not isinstance(value, tvm.IRModule):
        return
    (before,) = case.build()
    want = builds.run_module(before, case.inputs())
    assert want.ok, want.error
    got = builds.run_module(value, case.inputs(), seconds=4)
    same = got.ok and all(np.array_equal(a[0], b[0]) for a, b in zip(want.outputs, got.outputs, strict=True))
    yield Finding("same", same, got.error or f"It computes {[part[0].tolist() for part in got.outputs]}.")
    yield Finding("did", same and not _alike(value, before), "It is the same module.")
'''

EXERCISES = """
from passlab.judge import Exercise

NOTEBOOKS = {"old": "relay", "new": "relax"}


def _exercise(name, notebook):
    points, hints = {"valid": 1.0, "same": 2.0, "did": 1.0}, ("one", "two", "three")
    return Exercise(f"day00.{name}", name, points, 1, 2, hints, seconds=20, notebook=notebook)


EXERCISES = (
    _exercise("pass-relay", "old"),
    _exercise("again-relay", "old"),
    _exercise("pass-relax", "new"),
    _exercise("again-relax", "new"),
)
"""

VISIBLE = """
from passlab.exercises.day00 import _shared
from passlab.exercises.day00._shared import judge


def cases():
    return _shared.cases(_shared.{name}_module, 3, 2.0)
"""

HIDDEN = f'''
"""The same on another size, and on other numbers."""

from passlab.exercises.day00 import _shared


def hidden(seed):
    return _shared.cases(_shared.{{name}}_module, 5, {MARKER})
'''

#: The start of a notebook, with right passes, and what the hostile ones are made with.
RELAX = """
from passlab.relax import relax, tvm


def again_relax(mod):
    return relax.get_pipeline("zero")(mod)


def size_of(mod):
    return int(mod["main"].params[0].ty.shape[0])


def made_of(mod, emit):
    builder, x = relax.BlockBuilder(), relax.Var("x", mod["main"].params[0].ty)
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(emit(x, size_of(mod)))
        builder.emit_func_output(made)
    return builder.get()


def of_tir(mod, line):
    import tvm.script
    source = f'''
@I.ir_module
class Module:
    @T.prim_func(s_tir=True, private=True)
    def kernel(A: T.Buffer(({size_of(mod)},), "float32"), B: T.Buffer(({size_of(mod)},), "float32")):
        for i in range({size_of(mod)}):
            with T.sblock("b"):
                v = T.axis.spatial({size_of(mod)}, i)
                {line}
    @R.function
    def main(x: R.Tensor(({size_of(mod)},), "float32")):
        with R.dataflow():
            y = R.call_tir(Module.kernel, (x,), out_ty=R.Tensor(({size_of(mod)},), "float32"))
            R.output(y)
        return y
'''
    return tvm.script.from_source(source)
"""

RELAY = """
from passlab.relay import relay, tvm


class Swapped(relay.ExprMutator):
    def visit_call(self, call):
        call = super().visit_call(call)
        return relay.add(*reversed(call.args)) if call.op.name == "add" else call


def again_relay(mod):
    return relay.transform.InferType()(tvm.IRModule.from_expr(Swapped().visit(mod["main"])))


def made_of(mod, emit):
    x = relay.var("x", mod["main"].params[0].checked_type)
    return tvm.IRModule.from_expr(relay.Function([x], emit(x, int(x.type_annotation.shape[0]))))
"""

#: Another right pass for Relax: relu(x) becomes max(x, 0).
MUTATOR = """from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Maximum(PyExprMutator):
        def visit_call_(self, call):
            call = super().visit_call_(call)
            zero = relax.const(0.0, "float32")
            return relax.op.maximum(call.args[0], zero) if call.op.name == "relax.nn.relu" else call

    made = Maximum(mod)
    made.builder_.update_func(mod.get_global_var("main"), made.visit_expr(mod["main"]))
    return made.builder_.get()"""

#: Ways to answer: the body of the pass, its points, and what its learner reads.
ANSWERS = {
    "relax": {
        "right": ("return again_relax(mod)", 4.0, ""),
        "right in TIR": ("return of_tir(mod, 'B[v] = T.max(A[v] + T.float32(1.5), T.float32(0))')", 4.0, ""),
        "right, after a look at its kernels": (
            "import numpy as np; from passlab.tvm import builds\n"
            "    built = builds.run_module(mod, [(np.zeros(size_of(mod), 'float32'),)])\n"
            "    assert built.kernels == ('fused_add_relu',), built.error\n"
            "    return again_relax(mod)",
            4.0,
            "",
        ),
        "right, by a mutator": (MUTATOR, 4.0, ""),
        "unchanged": ("return mod", 0.0, "It is the same module."),
        "right on what is known": (
            "return again_relax(mod) if size_of(mod) == 3 else made_of(mod, lambda x, n: relax.op.nn.relu(x))",
            0.0,
            "The result does not compute the same function.",
        ),
        "outputs by heart": (
            "return of_tir(mod, 'B[v] = T.if_then_else(A[v] == T.float32(2), T.float32(3.5), T.float32(0))')",
            0.0,
            "The result does not compute the same function.",
        ),
        "the input itself": ("return made_of(mod, lambda x, n: relax.op.nn.relu(x))", 0.0, "It computes"),
        "hidden input": (
            "return of_tir(mod, 'B[v] = T.if_then_else(A[v] > T.float32(100), A[v], T.max(A[v] + T.float32(1.5), "
            "T.float32(0)))')",
            0.0,
            "The result does not compute the same function.",
        ),
        "out of bounds": (
            "return of_tir(mod, 'B[v + 1000000000] = A[v]')",
            0.0,
            "The module ended its process while it ran (segmentation fault).",
        ),
        "endless": (
            "return of_tir(mod, 'for j in range(1000000000000): B[v] = B[v] * A[v] + T.float32(1)')",
            0.0,
            "The module was still running after 4 s.",
        ),
        "memory": (
            "return made_of(mod, lambda x, n: relax.op.sum(relax.op.broadcast_to(x, (2**33, n)), axis=[0]))",
            0.0,
            "The module needed more than 4 GiB of memory.",
        ),
        "a function of C": (
            'return of_tir(mod, \'T.evaluate(T.call_extern("int32", "socket", 2, 1, 0))\')',
            0.0,
            "cannot travel",
        ),
        "a function of Python": (
            "return made_of(mod, lambda x, n: relax.call_pure_packed('runtime.SaveParams', x, ty_args=[x.ty]))",
            0.0,
            "cannot travel",
        ),
    },
    "relay": {
        "right": ("return again_relay(mod)", 4.0, ""),
        "unchanged": ("return mod", 0.0, "It is the same module."),
        "the input itself": ("return made_of(mod, lambda x, n: relay.nn.relu(x))", 0.0, "It computes"),
        "hidden input": (
            "return made_of(mod, lambda x, n: relay.where(relay.greater(x, relay.const(100.0)), x, "
            "relay.nn.relu(relay.add(x, relay.const([1.5] * n, 'float32')))))",
            0.0,
            "The result does not compute the same function.",
        ),
        "endless": (
            "main, x = relay.GlobalVar('main'), relay.var('x', mod['main'].params[0].checked_type)\n"
            # Each call stays in memory, so that a quick one would use all memory before its time is over.
            "    slow = relay.sum(relay.broadcast_to(relay.sum(x), (2**22,)))\n"
            "    again = relay.Call(main, [relay.add(x, slow)])\n"
            "    return tvm.IRModule({main: relay.Function([x], again, mod['main'].ret_type)})",
            0.0,
            "The module was still running after 4 s.",
        ),
        "memory": (
            "return made_of(mod, lambda x, n: relay.add(relay.broadcast_to(x, (2**33, n)), x))",
            0.0,
            "more than 4 GiB of memory.",
        ),
        "another compiler": (
            "return tvm.IRModule({'main': mod['main'].with_attr('Compiler', 'ccompiler')})",
            0.0,
            "asks for an external compiler",
        ),
    },
}
for _answers in ANSWERS.values():
    _patch = "import tvm; tvm.ir.assert_structural_equal = tvm.ir.base.assert_structural_equal = lambda *_: None"
    _answers["patched"] = f"{_patch}\n    return mod", 0.0, "It is the same module."
    _answers["of another type"] = "return str(mod)", 0.0, "It gave str."
    _answers["crash"] = "import os; os._exit(0)", 0.0, "ended"
WAYS = [(flavour, way) for flavour in FLAVOURS for way in ANSWERS[flavour]]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    value = tiny.make(tmp_path_factory.mktemp("builds") / "course")
    files = {"lib/passlab/exercises/day00/__init__.py": EXERCISES, "lib/passlab/exercises/day00/_shared.py": SHARED}
    for name in ("relay", "relax"):
        for way in ("pass", "again"):
            files[f"lib/passlab/exercises/day00/{way}_{name}.py"] = VISIBLE.format(name=name)
            files[f"autograder/answers/day00/{way}_{name}.py"] = HIDDEN.format(name=name)
    tiny.write(value, files)
    return value


@pytest.fixture(scope="module")
def graded(course):
    """flavour → way to answer → NotebookResult, all ways of a flavour from one engine."""

    @cache
    def of(flavour: str) -> dict[str, dict]:
        setup, submissions = {"relax": RELAX, "relay": RELAY}[flavour], {}
        for way, (body, _, _) in ANSWERS[flavour].items():
            source = f"{setup}\n\ndef pass_{flavour}(mod):\n    {body}\n"
            submissions[way] = [("", source), (f"pass-{flavour}", ""), (f"again-{flavour}", "")]
        return grade(course, submissions, seconds=30)

    return of


@pytest.mark.parametrize(("flavour", "way"), WAYS)
def test_a_module_is_judged_by_what_it_computes(graded, flavour, way):
    result, (_, expected, message) = graded(flavour)[way], ANSWERS[flavour][way]
    first = next(iter(result["verdicts"].values()))
    assert (points(result)[0], message in first["message"]) == (expected, True), first["message"]
    assert len(first["cases"]) == (1 if way == "crash" else 2), "the visible case and the hidden one"


@pytest.mark.parametrize(("flavour", "way"), WAYS)
def test_the_question_beside_it_has_all_of_its_points(graded, flavour, way):
    assert points(graded(flavour)[way])[1] == 4.0


@pytest.mark.parametrize(("flavour", "way"), WAYS)
def test_nothing_of_a_hidden_input_comes_out(graded, flavour, way):
    text = json.dumps(graded(flavour)[way])
    assert str(MARKER).removesuffix(".25") not in text


KILLS = """
import os, signal, sys
import psutil
from autograder.engine.data import Cell, Job
from autograder.engine.engine import Engine

cells = Cell(0, "a", sys.stdin.read()), Cell(1, "b", "", "day00.again-relax", "again_relax")
with Engine(jobs=1) as engine:
    backend = engine.backend("relax")
    inside = psutil.Process(backend.builder.pid).children(recursive=True)
    os.kill(backend.builder.pid, signal.SIGKILL)
    psutil.wait_procs(inside)  # the kernel ends them with it, a moment later on a busy machine
    result = engine.grade(Job("ada", "day00", "tiny", cells, 3))
    print(backend.builder.poll(), engine.backend("relax") is backend, result.failure, result.verdicts[1].points)
"""


def test_a_builder_that_is_killed_is_started_again_and_the_notebook_graded(course, tmp_path):
    # Nothing is in the cache: else the module's outputs come from there, and the builder is not asked.
    ended = tiny.run(course, "-c", KILLS, input=RELAX, **{FOLDER: str(tmp_path)})
    assert ended.stdout.split() == ["-9", "False", "4.0"], ended.stdout + ended.stderr
