"""`make gpu` without a GPU: Triton's interpreter, CUDA C to PTX, plans in arenas, judges, the table, the sentences."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import fx, nn

from autograder.bench.figures import Figure, at_least, not_measured
from autograder.gpu import __main__ as command
from autograder.gpu import judging, kernels, machine, speed
from autograder.gpu.job import Job, cores, each
from passlab.fx import isolation
from passlab.fx.programs import to_device
from passlab.judge import Judgement
from passlab.kernels.primitives import primitives
from passlab.kernels.triton import load_source, source
from tests.support import amounts

ROOT = Path(__file__).resolve().parents[2]


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "lib")])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": paths} | environment,
    )


def parts(folder: Path, *arguments: str, seconds: float = 1800) -> tuple[int, list[Figure], str]:
    """The exit code of `make gpu --interpret` with these arguments, its figures, and what it printed."""
    path = folder / "gpu.json"
    ran = python("-m", "autograder.gpu", *arguments, "--interpret", f"--seconds={seconds}", f"--json={path}")
    assert path.exists(), ran.stderr
    return ran.returncode, [Figure(**row) for row in json.loads(path.read_text())["figures"]], ran.stdout + ran.stderr


def value(figures: list[Figure], what: str) -> float:
    (result,) = [figure for figure in figures if figure.what == what]
    return result.value


# Kernels


def test_generated_kernels_are_as_eager_torch_in_the_interpreter(tmp_path):
    sample = 0 if amounts.FULL else 60
    code, figures, message = parts(tmp_path, "kernels", f"--sample={sample}")
    assert code == 0, message
    every, without = kernels.table(Job("cpu", 0))
    assert value(figures, "kernels compared") == (sample or len(every))
    assert "bfloat16: it truncates" in message and sum(without.values()) > 300
    assert not any("refused" in figure.baseline for figure in figures), message


@pytest.mark.parametrize("function", ["order", "chain"])
def test_a_wrong_kernel_is_noticed(function):
    script = f"""
import json
from autograder.gpu.kernels import compare_kernel
from passlab.kernels import triton
triton._EXPRESSIONS |= {{"maximum": "tl.minimum({{0}}, {{1}})", "add": "({{0}} - {{1}})"}}
print(json.dumps(compare_kernel({function!r}, "float32", "a matrix", "cpu")))
"""
    ran = python("-c", script, TRITON_INTERPRET="1")
    assert "in the kernel" in json.loads(ran.stdout.splitlines()[-1])["wrong"], ran.stderr


def test_the_table_has_every_type_and_a_gpu_leaves_nothing_out():
    every, without = kernels.table(Job("cuda", 0))
    assert not without and {dtype for _, dtype, _, _ in every} == {str(t).removeprefix("torch.") for t in kernels.ALL}
    for dtype in kernels.ALL:
        for name, value in (kernels.SHAPES | kernels.STRIDES).items():
            x, y = value(dtype)
            assert x.dtype == y.dtype == dtype and (torch.broadcast_shapes(x.shape, y.shape) or not x.ndim), name
        if dtype.is_floating_point:
            edges = kernels.values(dtype, 13, 77)
            assert edges.isnan().any() and edges.isinf().any() and (edges == torch.finfo(dtype).max).any()


def test_a_tensor_keeps_its_strides_on_another_device():
    x = torch.randn(5, 8)[1:, ::2]
    copy = kernels.place(x, "cpu")
    assert torch.equal(copy, x) and copy.stride() == x.stride() and copy.storage_offset() == x.storage_offset()


# CUDA C, plans, speed


def test_cuda_c_becomes_ptx(tmp_path):
    code, figures, message = parts(tmp_path, "tvm", f"--sample={0 if amounts.FULL else 2}")
    seen = {figure.what: figure.held for figure in figures if figure.part == "tvm" and figure.target}
    architectures = ("sm_80", "sm_90")
    assert code == 0 and seen == {f"CUDA C of TVM's kernels to PTX for {a}": True for a in architectures}, message
    assert "TVM's kernels, run: there is no GPU" in message


def test_plans_run_in_an_arena(tmp_path):
    code, figures, message = parts(tmp_path, "arena", "--sample=4")
    assert code == 0 and value(figures, "programs that are in an arena what they are") == 4, message
    assert value(figures, "arenas / bytes of all values") < 1


def test_compiled_models_are_built_with_triton_kernels(tmp_path):
    code, figures, message = parts(tmp_path, "capstone", "--sample=4")
    (result,) = [figure for figure in figures if figure.what == "programs that compute what their graph does"]
    assert code == 0 and result.seen == "4 of 4" and int(result.baseline.split()[0]) >= 2, message
    assert "time of compiled models: there is no GPU" in message


def test_the_chains_compute_what_eager_torch_does(tmp_path):
    code, figures, message = parts(tmp_path, "speed")
    differences = [figure for figure in figures if "largest relative difference" in figure.what]
    assert code == 0 and len(differences) == 4 and all(figure.held for figure in differences), message
    assert message.count("says nothing of speed") >= 4, "a time of the interpreter must not pass for a GPU's"


def test_the_model_of_coalescing():
    assert [speed.efficiency(layout) for layout in speed.READS] == [1, 0.5, 0.125, 0.125]
    for layout, step in speed.READS.items():
        assert max(speed.read(layout, "cpu", 64).stride()) >= 64
        assert speed.read(layout, "cpu", 64).stride(1) == (64 if layout == "transposed" else step)


@pytest.mark.parametrize("layout", speed.READS)
def test_a_thread_of_the_kernel_that_is_counted_reads_one_element(layout, tmp_path, monkeypatch):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    x, y = speed.read(layout, "cpu", 64), torch.zeros(64, 64)
    text = source(primitives(fx.symbolic_trace(lambda y, x: y + x), (y, x)), ["y", "x"], (), "sum")
    signature = dict.fromkeys(("y", "x", "out0"), "*fp32") | {"BLOCK": "constexpr"}
    code = ASTSource(load_source(text, "sum").sum, signature, {"BLOCK": speed.THREADS})
    grid = triton.compile(code, target=GPUTarget("cuda", 90, 32)).asm["ttgir"]
    assert re.findall(r"sizePerThread = \[(\d+)\]", grid) == ["1"]


def test_the_counters_of_ncu_are_read_by_kernel():
    text = io.StringIO()
    rows = csv.writer(text, quoting=csv.QUOTE_ALL)
    rows.writerow(["ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"])
    for kernel in (0, 1, 2):
        for at, metric in enumerate(speed._METRICS):
            if kernel < 2 or at:
                rows.writerow([kernel, "fused_add", metric, "", f"{1000 * (10 * kernel + at):,}"])
    result = speed.counters("==PROF== Connected\n" + text.getvalue())
    assert result == [
        {"sectors": 0, "read": 1000, "written": 2000},
        {"sectors": 10000, "read": 11000, "written": 12000},
    ]
    assert speed.counters("==ERROR== ERR_NVGPUCTRPERM\n") == []


# Judging on a device


def test_processes_share_the_cores(monkeypatch):
    """An answer pays CPU time for threads that wait for a core."""
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    job, count = Job("cpu", time.monotonic() + 120), min(2, cores())
    message = [*each(job, os.getenv, [("OMP_NUM_THREADS",)] * count)]
    assert message == [str(max(1, cores() // count))] * count


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(1))
        self.plain = torch.ones(3)

    def forward(self, x):
        return x * self.weight + self.count + self.plain


def test_all_of_a_graph_moves():
    gm = fx.symbolic_trace(Held())
    gm.meta["inputs"] = (torch.ones(3),)
    result, (x, name) = to_device((gm, [torch.ones(2), "same"]), "meta")
    values = [*result.parameters(), *result.buffers(), *result.meta["inputs"], x]
    values += [v for module in result.modules() for v in vars(module).values() if isinstance(v, torch.Tensor)]
    assert len(values) >= 4 and all(t.is_meta for t in values) and name == "same"


@pytest.fixture
def comparing(monkeypatch):
    """Undo afterwards that all graphs are compared on a device."""
    for owner, name in ((fx.GraphModule, "recompile"), (fx.Interpreter, "run_node"), (isolation, "_run")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(isolation, "_device", "cpu")


def test_graphs_are_compared_where_the_device_is(comparing):
    message = judging.prove_on("day02.fold-batchnorm-core", "cpu:0", 0)
    assert message["problems"] == [] and set(message["answers"]) == {"right", "wrong", "stub", "unchanged"}
    assert message["graphs"] > 0 and "same" in message["verdicts"] and message["runs"]["cpu:0"] > 100


def test_a_wrong_verdict_is_a_problem(comparing, monkeypatch):
    exercise = judging.exercises.find("day02.fold-batchnorm-core")
    monkeypatch.setattr(judging, "prove", functools.partial(judging.prove, judge=lambda *_: Judgement(exercise)))
    assert judging.prove_on("day02.fold-batchnorm-core", "cpu:0", 0)["problems"]


def test_a_package_that_only_the_notebook_imports_may_be_missing(tmp_path, monkeypatch):
    notebook = tmp_path / "notebook.py"
    notebook.write_text("import math\nimport no_such_package.deep\nfrom no_such_library import thing\n")
    monkeypatch.setattr(judging.source, "find", lambda _: SimpleNamespace(path=notebook))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    assert judging.stand_in("day00.any") == ["no_such_package.deep", "no_such_library"]
    namespace: dict = {}
    exec(notebook.read_text(), namespace)
    with pytest.raises(ModuleNotFoundError, match=r"no_such_library\.thing is missing here"):
        namespace["thing"]()


# The command


def test_without_a_gpu_it_says_so_and_does_nothing(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(command, "apart", None)
    for built, message in ((None, "was built without CUDA"), ("12.8", "finds no NVIDIA GPU")):
        monkeypatch.setattr(torch.version, "cuda", built)
        assert command.main(["kernels"]) == 2
        text = capsys.readouterr().err.strip()
        assert message in text and sys.executable in text and "\n" not in text


def test_a_python_without_torch_is_told_what_to_do(monkeypatch):
    result = machine.importlib.util.find_spec
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: None if name == "torch" else result(name))
    assert "it has no torch. Name another Python: make gpu PYTHON=" in machine.unfit(False)


def test_a_part_that_fails_or_takes_too_long_costs_only_itself(tmp_path):
    code, figures, message = parts(tmp_path, "judging", seconds=0.2)
    late = [figure for figure in figures if figure.part == "judging" and figure.seen.startswith("not measured")]
    assert code == 0 and late, message
    options = command.argparse.Namespace(seed=0, sample=0, seconds=900, interpret=True)
    (broken,) = command.apart("nonsense", options)
    assert broken.held is False and "there is no part nonsense" in broken.seen


def test_the_table_and_the_file_say_the_same(tmp_path, capsys):
    figures = [
        replace(at_least("bandwidth / that of a copy", 0.5, 0.85, "x"), part="speed"),
        Figure("chain", "wrong: 1 is 2", held=False, part="kernels"),
        replace(at_least("order", 3, 3, ""), part="kernels"),
        replace(not_measured("TVM's CUDA half", "the package tvm is missing here"), part="tvm"),
    ]
    text = command.table(figures, {"gpu": "a GPU"})
    assert "1 held, 1 wrong, 1 missed, 1 not measured. {'gpu': 'a GPU'}" in text
    assert text.index("chain") < text.index("Not measured") < text.index("tvm: TVM's CUDA half: the package tvm")
    assert [command.wrong(figure) for figure in figures] == [False, True, False, False]
    command.write(tmp_path / "a" / "gpu.json", figures, {"gpu": "a GPU"})
    stored = json.loads((tmp_path / "a" / "gpu.json").read_text())
    assert [Figure(**row) for row in stored["figures"]] == figures and stored["machine"] == {"gpu": "a GPU"}


#: Runs when a Python starts, in PYTHONPATH: the packages in `gone` are not there.
HIDING = """
import sys
from importlib.machinery import PathFinder

gone = frozenset({gone})


class Rest(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in gone else PathFinder.find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Rest
"""


def others(*items: str) -> list[str]:
    """The importable names here that belong neither to these packages nor to what they require."""
    expected, todo = set(), list(items)
    while todo:
        if (name := re.sub(r"[-_.]+", "-", todo.pop()).lower()) not in expected:
            expected.add(name)
            with contextlib.suppress(metadata.PackageNotFoundError):
                needs = [line for line in metadata.requires(name) or () if "extra ==" not in line]
                todo += [re.match(r"[\w.-]+", line)[0] for line in needs]
    owned = metadata.packages_distributions().items()
    named = {top: {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} for top, owners in owned}
    return sorted(top for top, owners in named.items() if not owners & (expected | {"passlab"}))


def test_a_python_with_torch_numpy_and_triton_is_enough(tmp_path):
    gone = others("torch", "numpy", "triton")
    assert {"rich", "scipy", "onnx", "tvm", "nbformat", "pytest"} <= set(gone) and "sympy" not in gone
    (tmp_path / "sitecustomize.py").write_text(HIDING.format(gone=gone))
    paths = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "lib")])
    words = ["--interpret", "--seconds=20", "--sample=1", f"--json={tmp_path / 'gpu.json'}"]
    ran = python("-m", "autograder.gpu", *words, PYTHONPATH=paths)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    figures = [Figure(**row) for row in json.loads((tmp_path / "gpu.json").read_text())["figures"]]
    assert {figure.part for figure in figures} >= {*command.PARTS, "machine"}
    lacking = {figure.what for figure in figures if figure.part == "machine"}
    assert {"the package tvm", "the package scipy", "the package onnx"} <= lacking
    assert value(figures, "kernels compared") == 1 and "is missing here" in ran.stdout
