"""Texts of Triton kernels that reach for more than their arguments: none of them earns what the program does not.

Each is handed over with a graph that computes zeros. They are judged as in the grader: by a process that may not run
returned graphs, with a server for these in the sandbox. The control is the same with an honest text and graph.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from autograder.authoring.source import ROOT

#: In a process of its own, for the verifier's guards stay: the judge with a server in the sandbox.
JUDGE = """
import json, socket, sys
import torch
torch.set_num_threads(1)
from autograder.engine import graphs, sandbox, wire
from passlab import exercises
from passlab.capstone import Compiled, Triton
from passlab.fx.judge import rebuild
from passlab.judge.running import Outcome, judge_outcome

texts, honest = json.load(sys.stdin)
ours, theirs = socket.socketpair()
argv = [sys.executable, "-m", "passlab.process.forking", "autograder.engine.runner.programs", "relax"]
process = sandbox.launch("runner", [*argv, str(theirs.fileno())], fds=[theirs.fileno()])
theirs.close()
graphs.use(ours)
exercise = exercises.find("day12.compiler")
case = next(case for case in exercise.cases() if case.name == "the same value twice")
before, inputs = case.build()
tail = ["add", "relu", "mul_2"]
elements = 16 * 24


def handed(text, graph):
    arguments = ["mul_1", "mul_2"]
    kernel = Triton(text, "kernel", arguments, [1], {"elements": elements, "BLOCK": 512})
    return Compiled(graph, [tail], kernels={"add": kernel})


def zeros():
    graph = rebuild(before)
    (output,) = graph.graph.find_nodes(op="output")
    with graph.graph.inserting_before(output):
        output.args = (graph.graph.call_function(torch.mul, (output.args[0], 0.0)),)
    return graph


def lost(text, graph):
    graphs.allow(graphs.SECONDS)
    value = wire.decode(wire.encode(handed(text, graph)))
    with graphs.Disposable() as running:
        findings = judge_outcome(exercise, case, Outcome("ok", value, "", "", 0.0, False))
    running.close()
    return {f.verdict: f.message for f in findings if not f.ok}


print(json.dumps([lost(honest, before), [lost(text, zeros()) for text in texts]]))
"""

HEAD = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, elements, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < elements
    v = tl.maximum(tl.load(x + at, mask=inside) + 1, 0.0) * 0.5
"""
TAIL = "    tl.store(out + at, v, mask=inside)\n"

#: Kind → lines in the middle of an otherwise honest kernel.
LINES = {
    "a store behind the arguments": "tl.store(out + 4096 * 512, 0.0)",
    "a store before the arguments": "tl.store(out - 4096 * 512, 0.0)",
    "a store at a distance of 2**46": "tl.store(out + (elements.to(tl.int64) << 36), 0.0)",
    "a store beyond its mask": "tl.store(out + at * 4096, v)",
    "a load behind the arguments": "v += tl.load(x + 4096 * 512)",
    "a gather by numbers that were loaded": "v += tl.load(x + (v * 1e9).to(tl.int64), mask=inside)",
    "a number cast to a pointer": "tl.store(tl.cast(elements.to(tl.int64) + 0x7F0000000000, x.dtype), 0.0)",
    "a number cast by to()": "tl.store((elements.to(tl.int64) + 0x7F0000000000).to(x.dtype), 0.0)",
    "a number's bits cast to a pointer": "tl.store((elements.to(tl.int64)).to(x.dtype, bitcast=True), 0.0)",
    "floats cast to pointers": "tl.store(v.to(tl.float64).to(tl.int64, bitcast=True).to(x.dtype, bitcast=True), v)",
    "an address read as a number": "tl.store(out + (x.to(tl.int64) % 7), 0.0)",
    "a pointer to pointers": "tl.store(x.to(tl.pointer_type(tl.pointer_type(tl.int8))), x)",
    "a pointer type by its text": "tl.store(elements.to(tl.str_to_ty('*i8', None)), 0)",
    "a tensor by its constructor": "v = tl.tensor(x, tl.int64)",
    "an atomic behind the arguments": "tl.atomic_add(out + 4096 * 512, 1.0)",
    "an atomic with a wild mask": "tl.atomic_add(out + at * 4096, v, mask=at >= 0)",
    "an exchange behind the arguments": "tl.atomic_cas(out.to(x.dtype) + 4096 * 512, 0.0, 1.0)",
    "a block pointer that is too large": (
        "tl.store(tl.make_block_ptr(out, (1 << 20,), (4096,), (0,), (512,), (0,)), v, boundary_check=(0,))"
    ),
    "a block pointer that begins elsewhere": (
        "tl.store(tl.make_block_ptr(out + 4096 * 512, (512,), (1,), (0,), (512,), (0,)), v)"
    ),
    "a block pointer that moves away": (
        "tl.store(tl.advance(tl.make_block_ptr(out, (512,), (1,), (0,), (512,), (0,)), (1 << 22,)), v)"
    ),
    "a descriptor": "tl.make_tensor_descriptor(out, (1 << 20,), (1,), (512,)).store([1 << 19], v)",
    "assembly": "v = tl.inline_asm_elementwise('ud2', '=r,r', [v], tl.float32, True, 1)",
    "numpy, which the interpreter has": "v = np.abs(v)",
    "inspect, which the interpreter has": "v = inspect.cast(v)",
    "a handle of the interpreter": "v = TensorHandle(v, tl.int64)",
    "the interpreter's builder": "interpreter_builder.cast(v)",
    "partial, which the interpreter has": "v = partial(partial)(partial)(v)",
    "a module of Triton": "v = triton.runtime.interpreter.np",
    "a library of Triton": "v = tl.extra.cuda.libdevice.abs(v)",
    "a handle by its name": "v = v.handle.data.ctypes",
    "its own code": "v = kernel.fn.__globals__",
    "a dunder in a text": "v = getattr(v, '__class__')",
    "print": "print(v)",
    "static_print": "tl.static_print(v)",
    "a format that looks inside": "tl.static_assert(BLOCK < 0, '{0.handle}'.format(v))",
    "a function of a value's type": "v = x.dtype.to_ir(v)",
    "exec by a comprehension": "v = [exec for exec in (v,)][0]",
    "a walrus": "(tl := v)",
    "an import": "import os",
    "an assignment to tl": "tl.load = tl.store",
    "a deletion": "del v",
    "a try": "try:\n        v = v\n    except ValueError:\n        pass",
    "a nested function": "def inner():\n        pass",
    "an endless loop": "while BLOCK > 0:\n        v = v + 1",
    "all memory": "v = tl.zeros((1 << 40,), tl.float32)",
}
#: Kind → a whole text.
TEXTS = {
    "code beside the kernels": "open('/tmp/plattack', 'w')\n" + HEAD + TAIL,
    "a decorator of its own": HEAD.replace("@triton.jit", "@triton.jit\n@print") + TAIL,
    "a default that runs": HEAD.replace("elements,", "elements=print(1),") + TAIL,
    "an annotation that runs": HEAD.replace("BLOCK: tl.constexpr", "BLOCK: print(1)") + TAIL,
    "a class": HEAD + TAIL + "\nclass kernel: pass\n",
    "an async function": HEAD.replace("def kernel", "async def kernel") + TAIL,
    "a function called as one of the interpreter": "@triton.jit\ndef interpreter_semantic(v):\n    return v\n"
    + HEAD
    + TAIL,
    "no function": "x = 1",
    "null bytes": HEAD + "\0" + TAIL,
    "a hundred thousand brackets": HEAD + "    v = " + "(" * 9_000 + "v" + ")" * 9_000 + "\n" + TAIL,
}
ATTACKS = {kind: f"{HEAD}    {lines}\n{TAIL}" for kind, lines in LINES.items()} | TEXTS


@pytest.fixture(scope="module")
def judged():
    done = subprocess.run(
        [sys.executable, "-c", JUDGE],
        input=json.dumps([list(ATTACKS.values()), HEAD + TAIL]),
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'lib'}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    honest, verdicts = json.loads(done.stdout.splitlines()[-1])
    return honest, dict(zip(ATTACKS, verdicts, strict=True))


def test_an_honest_kernel_is_valid_and_the_same(judged):
    honest, _ = judged
    assert not {"valid", "same"} & honest.keys(), honest


@pytest.mark.parametrize("kind", ATTACKS)
def test_no_text_earns_more_than_its_program_is_worth(judged, kind):
    verdicts = judged[1][kind]
    assert {"valid", "same"} & verdicts.keys(), "a program that computes zeros is found equivalent"


@pytest.mark.parametrize("kind", [kind for kind in ATTACKS if kind != "a function called as one of the interpreter"])
def test_a_text_that_reaches_further_is_refused(judged, kind):
    message = judged[1][kind].get("valid", "")
    assert "kernel of add" in message or "No program can be built" in message, judged[1][kind]
