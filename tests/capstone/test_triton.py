"""Kernels that a compiler hands over as Triton source, run by Triton's interpreter."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autograder.engine import wire
from passlab import trace
from passlab.capstone import BadCompiled, Compiled, Triton, build, counts, examined, why_not_compiled
from passlab.capstone.building import TRITON
from passlab.capstone.triton import MOST_PROGRAMS, launcher, why_not_launched
from passlab.fx import isolation

TEXT = """
import triton
import triton.language as tl


@triton.jit
def twice(v):
    return v * 2


@triton.jit
def fused(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = twice(tl.load(x + at, mask=inside)) + tl.load(y + at, mask=inside)
    tl.store(out + at, tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=inside)
"""
GROUP = ["mul", "add", "relu"]
X = torch.linspace(-3, 3, 300).reshape(10, 30), torch.linspace(2, -2, 300).reshape(10, 30)
KERNEL = Triton(TEXT, "fused", ["x", "y", "relu"], [3], {"n": 300, "BLOCK": 128})


def traced(function=lambda x, y: torch.relu(x * 2 + y) @ y.t(), *inputs):
    return trace(function, *(inputs or X))


def handed(**changed):
    return Compiled(traced(), [GROUP], kernels={"mul": dataclasses.replace(KERNEL, **changed)})


def test_a_handed_over_kernel_runs_and_counts_as_its_group():
    gm, compiled = traced(), handed()
    assert why_not_compiled(gm, compiled) == ""
    program = build(compiled, X, interpret=True)
    assert program.kinds == {"relu": TRITON, "t": "torch operator", "matmul": "torch operator"}
    other = (X[1] + 1, X[0] * 2)
    for inputs in (X, other):
        assert torch.equal(program(*inputs), gm(*inputs))
    assert counts(compiled, X) == counts(Compiled(gm, [GROUP]), X)
    assert examined(compiled, X, gm) == examined(Compiled(gm, [GROUP]), X, gm)


def test_a_kernel_reads_parameters_and_writes_several_results():
    text = """
import triton
import triton.language as tl

@triton.jit
def both(x, weight, sums, scaled, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    v = tl.load(x + row) * tl.load(weight + tl.arange(0, WIDTH))
    tl.store(scaled + row, v)
    tl.store(sums + tl.program_id(0), tl.sum(v, 0))
"""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.rand(16))

        def forward(self, x):
            scaled = x * self.scale
            return scaled.sum(-1), scaled

    x = torch.randn(6, 16)
    gm = trace(Two().eval(), x.t().contiguous().t())
    kernel = Triton(text, "both", ["x", "scale", "sum_1", "mul"], [6], {"WIDTH": 16})
    program = build(Compiled(gm, [["mul", "sum_1"]], kernels={"mul": kernel}), (x,), interpret=True)
    torch.testing.assert_close(program(x), gm(x))
    assert [t.stride() for t in program(x)] == [t.stride() for t in gm(x)]


def test_what_a_kernel_makes_lies_in_the_arena():
    gm = traced(lambda x, y: torch.relu(torch.relu(x * 2 + y) * 2 + y) @ y.t())
    groups = [GROUP, ["mul_1", "add_1", "relu_1"]]
    second = dataclasses.replace(KERNEL, arguments=["relu", "y", "relu_1"])
    program = build(Compiled(gm, groups, kernels={"mul": KERNEL, "mul_1": second}), X, interpret=True)
    steps = [program.graph.get_submodule(n.target) for n in program.graph.graph.find_nodes(op="call_module")]
    assert [len(step.places) for step in steps] == [1, 1]
    assert torch.equal(program(*X), gm(*X))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"source": 3}, "The source of the kernel of mul must be text of at most 20,000 characters."),
        ({"name": "a b"}, "The kernel of mul must have the name of a function; got 'a b'."),
        ({"arguments": ("x",)}, "The arguments of the kernel of mul must be a list of names; got ('x',)."),
        ({"grid": []}, "The grid of the kernel of mul is []; it must be a list of one to three sizes."),
        ({"grid": [0]}, "The grid of the kernel of mul is [0]"),
        ({"meta": {"n": "300"}}, "The meta of the kernel of mul must be a dict from parameters to numbers"),
    ],
)
def test_a_kernel_in_another_form_gets_a_sentence(changed, sentence):
    assert why_not_compiled(traced(), handed(**changed)).startswith(sentence)


@pytest.mark.parametrize(
    ("compiled", "sentence"),
    [
        (lambda gm: Compiled(gm, kernels=[]), "Compiled.kernels must be a dict"),
        (
            lambda gm: Compiled(gm, [GROUP], kernels={"add": KERNEL}),
            "There is a kernel for 'add', which is not the first",
        ),
        (lambda gm: Compiled(gm, [GROUP], kernels={"mul": TEXT}), "The kernel of mul must be a Triton"),
        (
            lambda gm: Compiled(gm, [GROUP], {"mul": {"tile": 1024}}, kernels={"mul": KERNEL}),
            "The group of mul has a schedule and a Triton kernel: a kernel has its own loops. Leave one out.",
        ),
    ],
)
def test_kernels_of_no_group_get_a_sentence(compiled, sentence):
    gm = traced()
    assert why_not_compiled(gm, compiled(gm)).startswith(sentence)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"source": TEXT.replace("v * 2", "v *")}, "The kernel of mul has a syntax error in line 8: invalid syntax."),
        ({"source": "\0"}, "The kernel of mul has a syntax error in line 1"),
        ({"source": "-" * 15_000 + "1"}, "The kernel of mul is not Python text"),
        ({"name": "missing"}, "The source of the kernel of mul has no function 'missing'; it has twice, fused."),
        (
            {"meta": {"BLOCK": 128}},
            "fused, the kernel of mul, has the parameters x, y, out, n besides its meta; the arg",
        ),
        ({"meta": {"n": 1, "WIDTH": 1}}, "The kernel of mul has meta for 'WIDTH'; fused has the parameters x, y, out"),
        (
            {"arguments": ["x", "z", "relu"]},
            "The kernel of mul has the argument 'z'; the group reads x, y, holds nothing",
        ),
        ({"arguments": ["x", "y", "y"]}, "The kernel of mul does not get relu, which the group makes: name it among"),
        ({"source": TEXT.replace("v * 2", "v * two")}, "The kernel of mul uses two (line 8), which is neither"),
    ],
)
def test_a_kernel_that_cannot_be_started_gets_a_sentence(changed, sentence):
    compiled = handed(**changed)
    assert why_not_compiled(traced(), compiled) == "", "the text is not looked at here"
    assert examined(compiled, X)["broken"].startswith(sentence)
    with pytest.raises(BadCompiled):
        build(compiled, X, interpret=True)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("import triton\n", "import triton\nimport os\n", "has 'import os' in line 3"),
        ("import triton\n", "import triton\nopen('x', 'w')\n", "in line 3: its text may hold 'import triton' and"),
        ("@triton.jit\ndef twice", "@triton.jit\n@print\ndef twice", "has '@triton.jit' in line 8"),
        ("def twice(v)", "def twice(v=print)", "uses print (line 7)"),
        ("def twice(v)", "def twice(v: print)", "uses print (line 7)"),
        ("def twice(v)", "def twice(v) -> print", "uses print (line 7)"),
        ("v * 2", "__import__('os')", "uses __import__ (line 8)"),
        ("v * 2", "eval('1')", "uses eval (line 8)"),
        ("v * 2", "tl.core.builtins", "uses tl.core.builtins (line 8)"),
        ("v * 2", "tl.math.core", "uses tl.math.core (line 8)"),
        ("v * 2", "tl.math", "uses tl.math (line 8)"),
        ("v * 2", "tl", "uses tl by itself (line 8)"),
        ("v * 2", "triton.runtime", "uses triton.runtime (line 8)"),
        ("v * 2", "v.handle.data", "uses v.handle.data (line 8)"),
        ("return v * 2", "tl.load = tl.store", "uses an assignment to tl.load (line 8)"),
        ("v * 2", "np.abs(v)", "uses np (line 8)"),
        ("v * 2", "TensorHandle(v, tl.int64)", "uses TensorHandle (line 8)"),
        ("v * 2", "tl.tensor(v, v.dtype)", "uses tl.tensor (line 8)"),
        ("v * 2", "v.to(tl.pointer_type(tl.int8))", "uses tl.pointer_type (line 8)"),
        ("v * 2", "tl.inline_asm_elementwise('nop', '', [v], tl.int8, True, 1)", "uses tl.inline_asm_elementwise"),
        ("v * 2", "v.__class__", "uses v.__class__ (line 8)"),
        ("v * 2", "(lambda: v)()", "uses Lambda (line 8)"),
        ("v * 2", "[v for _ in range(3)]", "uses ListComp (line 8)"),
        ("return v * 2", "import os", "uses Import (line 8)"),
        ("return v * 2", "global v", "uses Global (line 8)"),
    ],
)
def test_the_text_holds_nothing_but_kernels(old, new, told):
    told_here = why_not_launched("mul", dataclasses.replace(KERNEL, source=TEXT.replace(old, new, 1)))
    assert told_here is not None and told in told_here


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("v * 2", "v * 3", "The Triton kernel of mul computes something else than its group: its result at"),
        ("propagate_nan=tl.PropagateNan.ALL", "propagate_nan=tl.PropagateNan.ALL) + tl.where(v != v, 1.0, 0.0", None),
        ("tl.maximum(v", "tl.maximum(tl.where(v != v, 0.0, v)", "is nan by torch and 0"),
        (
            "    tl.store",
            "    tl.store(x + at, v, mask=inside)\n    tl.store",
            "writes into a tensor that it only reads.",
        ),
    ],
    ids=["other numbers", "the same", "NaN lost", "an operand"],
)
def test_a_kernel_computes_what_its_group_does(old, new, sentence):
    result = examined(handed(source=TEXT.replace(old, new, 1)), X)
    assert result["broken"] == "" and (sentence in result["differs"] if sentence else result["differs"] == "")


STORE = "    tl.store(out + at, tl.maximum(v, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=inside)"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("    v += tl.load(x + 10**7 + at)", "it reads outside of its arguments, 128 of 128 numbers at once"),
        ("    v += tl.load(x - 1)", "it reads outside of its arguments, 1 of 1 numbers"),
        ("    v += tl.load(x + at * 2, mask=inside)", "it reads outside of its arguments"),
        ("    tl.store(out + 10**7 + at, v)", "it writes outside of its arguments"),
        ("    tl.store(out + 2**40, 0.0)", "it writes outside of its arguments"),
        ("    tl.store((out + 299).to(tl.int64).to(x.dtype), 0.0)", "it takes a number for an address, or an address"),
        ("    tl.store(tl.cast(n.to(tl.int64), x.dtype), 0.0)", "it takes a number for an address, or an address"),
        ("    tl.store(n.to(tl.int64).to(x.dtype, bitcast=True), 0.0)", "it takes a number for an address"),
        ("    tl.atomic_add(out + 300, 1.0)", "it writes outside of its arguments"),
        ("    tl.atomic_cas(out.to(y.dtype) + 300, 0.0, 1.0)", "it writes outside of its arguments"),
        (
            "    there = tl.make_block_ptr(out, (512,), (1,), (0,), (512,), (0,))\n"
            "    tl.store(there, tl.zeros((512,), tl.float32))",
            "it writes outside of its arguments",
        ),
        (
            "    there = tl.make_block_ptr(out, (300,), (-1,), (0,), (256,), (0,))\n    v += tl.sum(tl.load(there))",
            "it reads outside of its arguments",
        ),
    ],
)
def test_a_kernel_reaches_nothing_but_its_arguments(line, told):
    assert STORE in TEXT
    broken = examined(handed(source=TEXT.replace(STORE, f"{line}\n{STORE}")), X)["broken"]
    assert broken.startswith("The kernel of mul does not run: ") and told in broken


def test_a_kernel_may_use_block_pointers_and_atomics_within_its_arguments():
    lines = """
    row = tl.make_block_ptr(x, (300,), (1,), (at0,), (128,), (0,))
    column = tl.make_block_ptr(y, (300,), (1,), (at0,), (128,), (0,))
    v = twice(tl.load(row, boundary_check=(0,))) + tl.load(column, boundary_check=(0,))
    tl.atomic_add(out + at, 1.0, mask=inside)
"""
    text = TEXT.replace("    v = twice", f"    at0 = tl.program_id(0) * BLOCK{lines}    v = twice")
    result = examined(handed(source=text), X)
    assert (result["broken"], result.get("differs")) == ("", "")


def test_a_place_in_an_arena_is_all_that_a_kernel_may_write():
    arena = torch.zeros(900)
    compiled, (x, y) = handed(), X
    kernel = dataclasses.replace(KERNEL, source=TEXT.replace("tl.store(out + at", "tl.store(out + at + 1"))
    with pytest.raises(Exception, match="writes outside of its arguments"):
        launcher(kernel, arena.device)(x, y, arena[300:600])
    launcher(compiled.kernels["mul"], arena.device)(x, y, arena[300:600])
    assert torch.equal(arena[300:600], torch.relu(x * 2 + y).flatten()) and arena[600:].sum() == 0


def test_what_the_interpreter_cannot_run_is_left_to_a_gpu():
    wrong_text = TEXT.replace("v * 2", "v * 3")
    assert examined(handed(source=wrong_text), X)["differs"]
    assert examined(handed(source=wrong_text, grid=[MOST_PROGRAMS + 1]), X)["differs"] == ""


def test_a_kernel_travels_as_data():
    other = wire.decode(wire.encode(handed()))
    assert other.kernels == {"mul": KERNEL}
    with pytest.raises(wire.Refused):
        wire.decode(wire.encode(handed(grid=["3"])))


def test_a_returned_text_is_not_run_here(monkeypatch):
    compiled = handed()
    monkeypatch.setattr(isolation, "_run", lambda *a, **k: None)
    for node in compiled.graph.graph.nodes:
        isolation.mark(node)
    with pytest.raises(isolation.MustBeIsolatedError):
        build(compiled, X, interpret=True)


def test_a_convolution_with_a_kernel_runs_by_its_library_on_a_cpu():
    layer, x = nn.Conv2d(2, 2, 1), torch.randn(1, 2, 4, 4)
    gm = trace(nn.Sequential(layer, nn.ReLU()).eval(), x)
    kernel = Triton(
        TEXT.replace("(x, y, out", "(x, out").replace("y + at", "x + at"),
        "fused",
        ["input_1", "_1"],
        [1],
        {"n": 1, "BLOCK": 1},
    )
    program = build(Compiled(gm, [["_0", "_1"]], kernels={"_0": kernel}), (x,))
    assert program.kinds["_1"] == "library call"
    torch.testing.assert_close(program(x), F.relu(layer(x)))
