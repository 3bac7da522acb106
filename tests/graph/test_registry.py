"""One table: a new IR is one line in it and one folder, and nothing of a compiler loads before it is asked for."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import passlab
from autograder.engine import wire
from passlab import bytes_moved, cost, diff, draw, equivalent, launches, shrink, view
from passlab.building import requests, server
from passlab.graph import registry
from passlab.process import messages
from passlab.process import server as process

PACKAGE = {
    "__init__": """
class Sum:
    def __init__(self, *numbers):
        self.numbers = numbers
""",
    "reader": """
from passlab.graph.assemble import UNKNOWN, Builder

def read(value, *inputs):
    build = Builder("sum", "toy")
    ids = [build.add(f"n{i}", "number", "data", (), UNKNOWN, str(n)) for i, n in enumerate(value.numbers)]
    build.outputs = [build.add("sum", "add", "compute", ids, UNKNOWN, "sum")]
    return build.graph("a sum")
""",
    "equivalent": """
from passlab.equivalence import Equivalence

def equivalent(before, after, inputs, options):
    total = [sum(side.numbers) if hasattr(side, "numbers") else side() for side in (before, after)]
    return Equivalence(total[0] == total[1], "" if total[0] == total[1] else f"{total[0]} is not {total[1]}.")
""",
    "measure": """
from passlab.graph import Cost, Measured

def launches(value, *inputs):
    return Measured(1, "launches", "toy")

def bytes_moved(value, *inputs):
    return Measured(8 * len(value.numbers), "bytes moved")

def cost(value, *inputs):
    return Cost(1, 1, int(bytes_moved(value)))
""",
    "wire": """
from passlab.process.refusal import Refused
from passlab.toy import Sum

def carries(value):
    return isinstance(value, Sum)

def encode(value):
    return bytes(value.numbers)

def decode(payload):
    if len(payload) > 4:
        raise Refused("A sum of more than four numbers.")
    return Sum(*payload)
""",
    "compiler": """
from passlab.building.compiler import Compiler

class Adder:
    def __init__(self, numbers):
        self.numbers = numbers

    def call(self, values):
        return lambda: [value + sum(self.numbers) for value in values]

    def trace(self, values):
        return ["add"], None

class Toy(Compiler):
    who, distribution, sources, own = "The toy", "numpy", (), ("passlab.toy.",)

    def load(self):
        return lambda text: [int(number) for number in text.split("+")]

    def build(self, module, params, head):
        return Adder(module)

COMPILER = Toy()
""",
    "shrink": """
def shrink(value, fails, budget):
    return min((type(value)(n) for n in value.numbers if fails(type(value)(n))), key=lambda s: s.numbers)
""",
}


@pytest.fixture
def Sum(tmp_path, monkeypatch):
    """A toy IR, registered as `passlab.graph.registry` says: a folder and a line."""
    folder = tmp_path / "toy"
    folder.mkdir()
    for name, text in PACKAGE.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(passlab, "__path__", [*passlab.__path__, str(tmp_path)])
    monkeypatch.setitem(registry.TYPES, "passlab.toy.Sum", registry.IR("toy", "a toy sum"))
    monkeypatch.setattr(registry, "COMPILERS", (*registry.COMPILERS, "toy"))
    registry.find_module.cache_clear()
    yield registry.load("toy").Sum
    for name in [name for name in sys.modules if name.startswith("passlab.toy")]:
        del sys.modules[name]
    registry.find_module.cache_clear()


def test_a_new_ir_is_one_line_and_one_folder(Sum):
    program = Sum(1, 2, 3)
    assert len(view(program)) == 4
    assert "4 nodes" in draw(program).text
    assert "removed" in diff(program, Sum(1, 2)).text or "-" in diff(program, Sum(1, 2)).text
    assert launches(program) == 1
    assert bytes_moved(program) == 24
    assert cost(program).nodes == 1
    assert equivalent(program, Sum(6))
    assert equivalent(program, Sum(7)).reason == "6 is not 7."
    assert equivalent(lambda: 6, program), "one side may be any function"
    assert shrink(program, lambda s: max(s.numbers) > 1).numbers == (2,)


def test_a_new_ir_travels_and_is_built_by_the_same_table(Sum):
    assert wire.decode(wire.encode([Sum(1, 2), 3]))[0].numbers == (1, 2)
    with pytest.raises(wire.Refused, match="more than four"):
        wire.decode(wire.encode(Sum(1, 2, 3, 4, 5)))
    head = {"do": "run", "params": {}, "inputs": [[["float32", [2]]]], "target": "llvm", "beside": [], "threads": 0}
    head |= {"timed": False, "repeats": 0}
    ours, theirs = socket.socketpair()
    builder = threading.Thread(target=_answering, args=(theirs, registry.compiler("toy")))
    builder.start()
    requests.use("toy", ours)
    built, wrong = (
        requests.ask("toy", head | {"text": 3}, [text, np.ones(2, np.float32)], 5.0) for text in (b"1+2", b"1+x")
    )
    requests.end("toy")
    builder.join()
    assert built.ok and built.outputs[0][0].tolist() == [4, 4]
    assert wrong.error == "The toy cannot build the module: invalid literal for int() with base 10: 'x'."


def _answering(control, own):
    """A builder that answers each request itself, and does not say how much CPU time that took."""
    with control:
        while True:
            order, fds, _, _ = socket.recv_fds(control, 1, 1)
            if not order:
                return
            with socket.socket(fileno=fds[0]) as sock:
                if order == process._TIME:
                    control.recv(process._NUMBER.size)
                else:
                    messages.send(sock, {"number": 1})
                    server.answer(sock, own, own.load())


def test_every_compiler_names_what_decides_its_results():
    for flavour in registry.COMPILERS:
        own = registry.compiler(flavour)
        assert own.sources and all((Path(passlab.__file__).parent / name).is_file() for name in own.sources), flavour
        assert f"passlab.{flavour}." in own.own


def test_no_such_flavour_is_a_sentence():
    assert registry.compiler("torch") is None
    with pytest.raises(ValueError, match="no flavour 'jax'; expected one of torch, relay, relax, mlir"):
        registry.compiler("jax")


def test_what_a_package_lacks_is_said(Sum):
    with pytest.raises(TypeError, match=r"view cannot read builtins.int; it takes: .*a toy sum"):
        view(3)
    assert registry.part(Sum(1), "generate") is None


def loaded_by(code: str) -> set[str]:
    code += "\nimport sys; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_torch_programs_load_nothing_of_tvm():
    loaded = loaded_by(
        "import torch, passlab, passlab.fx.judge, passlab.fx.shrink, passlab.fx.generate\n"
        "from passlab import equivalent, random_graph, view, cost\n"
        "gm = random_graph(1, size=5); view(gm); cost(gm); assert equivalent(gm, gm)"
    )
    assert not [name for name in loaded if name.startswith(("tvm", "passlab.tvm", "passlab.relay", "passlab.relax"))]


def test_every_row_names_a_package_that_reads():
    import importlib.util

    for row in registry.TYPES.values():
        if row.title:
            assert importlib.util.find_spec(f"passlab.{row.reader or row.package + '.reader'}"), row
