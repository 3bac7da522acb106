"""Passes over MLIR through the whole engine: modules travel as text, and are parsed, verified and run elsewhere."""

from __future__ import annotations

import json
from functools import cache

import pytest

from autograder.toys import tiny
from tests.support.engine import grade, points

#: A number that stands in the hidden inputs alone.
MARKER = 77031.25

SHARED = '''
"""Two questions about the same pass: it must give another module, which computes the same."""

import numpy as np

from passlab.judge import Case, Finding

TEXT = """func.func @main(%x: tensor<SIZExf32>) -> tensor<SIZExf32> {
  %y = arith.addf %x, %x : tensor<SIZExf32>
  %z = math.absf %y : tensor<SIZExf32>
  return %z : tensor<SIZExf32>
}"""


def made(size):
    from passlab.mlir import parse

    return parse(TEXT.replace("SIZE", str(size)))


def cases(size, value):
    x = np.full(size, value, "float32")
    return [Case(f"size {size}", lambda: (made(size),), inputs=lambda: [(x,), (-x,)])]


def judge(case, value):
    from xdsl.dialects.builtin import ModuleOp

    from passlab.mlir import MLIRError, text, verify
    from passlab.mlir.run import run_module

    try:
        assert isinstance(value, ModuleOp), f"It gave {type(value).__name__}."
        verify(value)
    except (AssertionError, MLIRError) as error:
        yield Finding("valid", False, str(error))
        return
    yield Finding("valid", True, "")
    (before,) = case.build()
    want = run_module(before, case.inputs())
    assert want.ok, want.error
    try:
        got = run_module(value, case.inputs(), checks=False, seconds=5)
    except MLIRError as error:
        yield Finding("same", False, str(error))
        return
    same = got.ok and all(np.array_equal(a[0], b[0]) for a, b in zip(want.outputs, got.outputs, strict=True))
    yield Finding("same", same, got.error or "It computes something else.")
    yield Finding("did", same and text(before) != text(value), "It is the same module.")
'''

EXERCISES = """
from passlab.judge import Exercise

NOTEBOOKS = {"passes": "mlir"}


def _exercise(name):
    points, hints = {"valid": 1.0, "same": 2.0, "did": 1.0}, ("one", "two", "three")
    return Exercise(f"day00.{name}", name, points, 1, 2, hints, seconds=20, notebook="passes")


EXERCISES = (_exercise("first"), _exercise("again"))
"""

VISIBLE = """
from passlab.exercises.day00 import _shared
from passlab.exercises.day00._shared import judge


def cases():
    return _shared.cases(3, 2.0)
"""

HIDDEN = f'''
"""The same on another size, and on other numbers."""

from passlab.exercises.day00 import _shared


def hidden(seed):
    return _shared.cases(5, {MARKER})
'''

#: The start of a notebook, with a right pass.
SETUP = """
import numpy as np
from xdsl.dialects.builtin import ModuleOp
from passlab.mlir import parse, pipeline, text
from passlab.mlir.run import run


def again(mod):
    return pipeline(mod, "convert-elementwise-to-linalg")


def size_of(mod):
    return next(op for op in mod.ops).function_type.inputs.data[0].get_shape()[0]


def loops(mod, index):
    n = size_of(mod)
    return parse(f'''
        func.func @main(%x: memref<{n}xf32>) -> memref<{n}xf32> {{
          %y = memref.alloc() : memref<{n}xf32>
          %c0 = arith.constant 0 : index
          %c1 = arith.constant 1 : index
          %n = arith.constant {n} : index
          scf.for %i = %c0 to %n step %c1 {{
            %a = memref.load %x[%i] : memref<{n}xf32>
            %b = arith.addf %a, %a : f32
            %c = math.absf %b : f32
            %far = arith.constant {index} : index
            %j = arith.addi %i, %far : index
            memref.store %c, %y[%j] : memref<{n}xf32>
          }}
          return %y : memref<{n}xf32>
        }}''')
"""

#: A bug in MLIR's own parser, which dies of a text with a mark: no text is known that does this to the real one.
DEADLY = """

class _Deadly(_Passes):
    def __init__(self, text, code, head):
        if "marked: fault" in text:
            ctypes.string_at(0)
        if "marked: abort" in text:
            os.abort()
        super().__init__(text, code, head)


_BY["passes"] = _Deadly
"""


def deadly(way: str) -> str:
    noted = f"next(iter(after.ops)).attributes['note'] = StringAttr('marked: {way}')"
    return f"from xdsl.dialects.builtin import StringAttr\n    after = again(mod)\n    {noted}\n    return after"


POSING = """class Posing(ModuleOp):
        def __str__(self):
            return text(again(mod))
        def print(self, printer):
            printer.print_string(text(again(mod)))

    return Posing(mod.body.clone())"""

#: Ways to answer: the body of the pass, its points, and what its learner reads. Who does not do it earns nothing.
ANSWERS = {
    "right": ("return again(mod)", 4.0, ""),
    "right, in loops": ("return loops(mod, 0)", 4.0, ""),
    "right, after a run of its own": (
        "x = np.ones(size_of(mod), 'f')\n"
        "    assert run(mod, x)[0][0] == run(loops(mod, 0), x)[0][0]\n    return again(mod)",
        4.0,
        "",
    ),
    "the same module": ("return mod", 0.0, "It is the same module."),
    "another function": ("return parse(text(mod).replace('absf', 'sqrt'))", 0.0, "It computes something else."),
    "not verified": (
        "return parse(text(mod).replace(f'-> tensor<{size_of(mod)}xf32>', '-> tensor<4xf32>'))",
        0.0,
        "line 5",
    ),
    "text": ("return text(mod)", 0.0, "It gave str."),
    "posing": (POSING, 0.0, "It is the same module."),
    "out of bounds": ("return loops(mod, 2**40)", 0.0, "ended its process while it ran"),
    "endless": (
        "n = size_of(mod)\n    return parse(f'''func.func @main(%x: memref<{n}xf32>) -> memref<{n}xf32> {{\n"
        "%t = arith.constant true\n scf.while : () -> () {{ scf.condition(%t) }} do {{ scf.yield }}\n"
        "return %x : memref<{n}xf32> }}''')",
        0.0,
        "still running",
    ),
    "inline assembly": (
        'return parse(\'func.func @main() { llvm.inline_asm "nop", "" : () -> ()\\n return }\', allowed=None)',
        0.0,
        "no operations of llvm",
    ),
    "a huge text": ("return parse(text(mod).replace('}', '%k = arith.constant 1 : i32\\n' * 9000 + '}'))", 0.0, ""),
    "patched": (
        "import passlab.mlir.run as r; r.run_module = r.run = None\n    return mod",
        0.0,
        "It is the same module.",
    ),
    "a parser that faults": (deadly("fault"), 0.0, "ended the process while it built the module"),
    "a parser that aborts": (deadly("abort"), 0.0, "ended the process while it built the module"),
    "crash": ("import os; os._exit(0)", 0.0, "ended"),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """way to answer → NotebookResult, all from one engine."""
    course = tiny.make(tmp_path_factory.mktemp("mlir") / "course")
    files = {"lib/passlab/exercises/day00/__init__.py": EXERCISES, "lib/passlab/exercises/day00/_shared.py": SHARED}
    for name in ("first", "again"):
        files[f"lib/passlab/exercises/day00/{name}.py"] = VISIBLE
        files[f"autograder/answers/day00/{name}.py"] = HIDDEN
    executors = "lib/passlab/mlir/executors.py"
    files[executors] = (course / executors).read_text() + DEADLY
    tiny.write(course, files)

    @cache
    def all_of_them() -> dict[str, dict]:
        submissions = {}
        for way, (body, _, _) in ANSWERS.items():
            source = f"{SETUP}\n\ndef first(mod):\n    {body}\n"
            submissions[way] = [("", source), ("first", ""), ("again", "")]
        return grade(course, submissions, seconds=30)

    return all_of_them


@pytest.mark.parametrize("way", ANSWERS)
def test_a_module_is_judged_by_what_it_computes(graded, way):
    result, (_, expected, message) = graded()[way], ANSWERS[way]
    first = next(iter(result["verdicts"].values()))
    assert (points(result)[0], message in first["message"]) == (expected, True), first["message"]


@pytest.mark.parametrize("way", ANSWERS)
def test_the_question_beside_it_has_all_of_its_points(graded, way):
    assert points(graded()[way])[1] == 4.0


@pytest.mark.parametrize("way", ANSWERS)
def test_nothing_of_a_hidden_input_comes_out(graded, way):
    measured = ("seconds", "cpu_seconds", "peak_mib")  # whose digits may be any
    shown = {name: value for name, value in graded()[way].items() if name not in measured}
    assert str(MARKER).removesuffix(".25") not in json.dumps(shown)
