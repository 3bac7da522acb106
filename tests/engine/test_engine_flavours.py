"""Relay and Relax through the whole engine: modules go to the learner's code as data, and come back as data."""

from __future__ import annotations

import pytest

from tests.support import tiny
from tests.support.engine import grade, points
from tests.support.flavours import FLAVOURS

SHARED = '''
"""Two questions, each about a pass of one compiler: relu(x) becomes tanh(x)."""

from passlab.judge import Case, Exercise, Finding


def relay_module(name, size):
    from passlab.relay import relay, tvm

    x = relay.var("x", shape=(size,), dtype="float32")
    weight = relay.const([1.5] * size, "float32")
    body = getattr(relay, name)(relay.add(x, weight)) if name == "tanh" else relay.nn.relu(relay.add(x, weight))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))


def relax_module(name, size):
    from passlab.relax import relax, tvm

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((size,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            sum_ = builder.emit(relax.op.add(x, relax.const([1.5] * size, "float32")))
            made = builder.emit_output(relax.op.tanh(sum_) if name == "tanh" else relax.op.nn.relu(sum_))
        builder.emit_func_output(made)
    return builder.get()


def cases(make, size):
    return [Case(f"size {size}", lambda: (make("relu", size),), expect=lambda: make("tanh", size))]


def _same(one, other):
    import tvm

    try:
        tvm.ir.assert_structural_equal(one, other)
    except ValueError:
        return False
    return True


def judge(case, value):
    import tvm

    yield Finding("valid", isinstance(value, tvm.IRModule), f"It gave {type(value).__name__}.")
    if isinstance(value, tvm.IRModule):
        yield Finding("did", _same(value, case.expect()), "There is no tanh in place of the relu.")
'''

EXERCISES = """
from passlab.judge import Exercise

NOTEBOOKS = {"old": "relay", "new": "relax"}


def _exercise(name, notebook):
    points, hints = {"valid": 1.0, "did": 2.0}, ("one", "two", "three")
    return Exercise(f"day00.pass-{name}", name, points, 1, 2, hints, seconds=20, notebook=notebook)


EXERCISES = (_exercise("relay", "old"), _exercise("relax", "new"))
"""

VISIBLE = """
from passlab.exercises.day00 import _shared
from passlab.exercises.day00._shared import judge


def cases():
    return _shared.cases(_shared.{name}_module, 3)
"""

HIDDEN = '''
"""The same on another size."""

from passlab.exercises.day00 import _shared


def hidden(seed):
    return _shared.cases(_shared.{name}_module, 5 + seed)
'''

RELAY = """
from passlab.relay import relay, tvm


class ToTanh(relay.ExprMutator):
    def visit_call(self, call):
        call = super().visit_call(call)
        return relay.tanh(call.args[0]) if call.op.name == "nn.relu" else call


def pass_relay(mod):
    return relay.transform.InferType()(tvm.IRModule.from_expr(ToTanh().visit(mod["main"])))
"""

RELAX = """
from passlab.relax import relax, tvm
from tvm.relax.expr_functor import PyExprMutator, mutator


@mutator
class ToTanh(PyExprMutator):
    def visit_call_(self, call):
        call = super().visit_call_(call)
        return relax.op.tanh(call.args[0]) if call.op.name == "relax.nn.relu" else call


def pass_relax(mod):
    made = ToTanh(mod)
    made.builder_.update_func(mod.get_global_var("main"), made.visit_expr(mod["main"]))
    return made.builder_.get()
"""

#: Ways to answer, beside right: what to add to the right source, and the points.
ANSWERS = {
    "right": ("", 3.0),
    "unchanged": ("def pass_{name}(mod):\n    return mod", 0.0),
    "of another type": ("def pass_{name}(mod):\n    return str(mod)", 0.0),
    "crash": ("def pass_{name}(mod):\n    import os\n    os._exit(0)", 0.0),
    "patched": (
        "tvm.ir.assert_structural_equal = tvm.ir.base.assert_structural_equal = lambda *_: None\n"
        "def pass_{name}(mod):\n    return mod",
        0.0,
    ),
}
RIGHT = {"relax": RELAX, "relay": RELAY}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """(flavour, way to answer) → NotebookResult, all of them from one engine."""
    course = tiny.make(tmp_path_factory.mktemp("flavours") / "course")
    files = {"lib/passlab/exercises/day00/__init__.py": EXERCISES, "lib/passlab/exercises/day00/_shared.py": SHARED}
    for name in ("relay", "relax"):
        files[f"lib/passlab/exercises/day00/pass_{name}.py"] = VISIBLE.format(name=name)
        files[f"autograder/answers/day00/pass_{name}.py"] = HIDDEN.format(name=name)
    tiny.write(course, files)
    submissions = {}
    for flavour in FLAVOURS:
        for way, (more, _) in ANSWERS.items():
            source = f"{RIGHT[flavour]}\n{more.format(name=flavour)}"
            submissions[f"{flavour}: {way}"] = [("", source), (f"pass-{flavour}", "")]
    return grade(course, submissions, seconds=30)


@pytest.mark.parametrize("way", ANSWERS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_pass_is_judged_by_the_module_it_returns(graded, flavour, way):
    result = graded[f"{flavour}: {way}"]
    assert points(result) == [ANSWERS[way][1]], [verdict["message"] for verdict in result["verdicts"].values()]
    (verdict,) = result["verdicts"].values()
    assert len(verdict["cases"]) == (1 if way == "crash" else 2), "the visible case and the hidden one"
