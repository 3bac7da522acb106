"""Importing torch models and ONNX files. Each flavour has its own process, because one process uses one TVM."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FLAVOURS = [
    pytest.param(
        "relay",
        marks=pytest.mark.skipif(
            sys.platform != "linux" or platform.machine() != "x86_64", reason="Relay's TVM is for Linux on x86-64"
        ),
    ),
    "relax",
]

START = """
import numpy as np, torch, sys
from torch import nn
from passlab import models
from passlab.tvm import importers
from passlab.{flavour} import {flavour}, tvm
importer, from_onnx = importers.{flavour}_module, importers.{flavour}_from_onnx
torch.set_num_threads(1)
"""
RUN = {
    "relay": """
from tvm.contrib import graph_executor
def run(module, *inputs):
    with tvm.transform.PassContext(opt_level=1):  # 3 would also pack the layouts of all weights
        built = relay.build(module, "llvm")
    built = graph_executor.GraphModule(built["default"](tvm.cpu()))
    names = [v.name_hint for v in module["main"].params]
    built.run(**{n: np.asarray(x) for n, x in zip(names, inputs, strict=True)})
    return [built.get_output(i).numpy() for i in range(built.get_num_outputs())]
def names(module): return [v.name_hint for v in module["main"].params]
""",
    "relax": """
def run(module, *inputs):
    vm = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    out = vm["main"](*[tvm.runtime.tensor(np.asarray(x)) for x in inputs])
    return [out.numpy()] if hasattr(out, "numpy") else [o.numpy() for o in out]
def names(module): return [v.name for v in module["main"].params]
""",
}
SAME = """
def same(got, want):
    want = [w.detach() for w in (want if isinstance(want, tuple) else (want,))]
    assert len(got) == len(want), (len(got), len(want))
    for g, w in zip(got, want, strict=True):
        assert g.shape == tuple(w.shape) and g.dtype == w.numpy().dtype, (g.shape, g.dtype, w)
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-4, atol=1e-4)
def model(name):
    return models.ZOO[name].build(), models.ZOO[name].inputs(1)
def says(make):
    try:
        make()
    except (ValueError, TypeError) as error:
        return str(error)
"""


def python(flavour: str, code: str, timeout: int = 280) -> str:
    """What a fresh interpreter of that flavour prints last."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            START.format(flavour=flavour) + RUN[flavour] + SAME + code,
        ],
        env={**os.environ, "TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_small_models_compute_what_torch_does(flavour):
    code = """
for name in ("tiny", "convnet", "attention", "lstm"):
    net, inputs = model(name)
    module = importer(net, *inputs)
    assert names(module) == ["x"], name
    same(run(module, *inputs), net(*inputs))
    print(name)
"""
    assert python(flavour, code).split() == ["tiny", "convnet", "attention", "lstm"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_unbound_parameters_are_inputs_once_each(flavour):
    code = """
net, inputs = model("lstm")                     # uses its four parameters six times each
module, params = importer(net, *inputs, bind=False)
assert names(module) == ["x", *params] and len(params) == 4, names(module)
same(run(module, *inputs, *params.values()), net(*inputs))
other = {n: np.zeros_like(p) for n, p in params.items()}
assert not np.allclose(run(module, *inputs, *other.values())[0], net(*inputs).numpy())
"""
    python(flavour, code)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_two_parameters_of_one_operation_stay_two(flavour):
    code = """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Module(), nn.Module()
        self.a.weight, self.b.weight = nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 5.0))
    def forward(self, x, unused, flag):
        return (self.a.weight - self.b.weight) * x, torch.where(flag, x, self.b.weight)
net, inputs = Two().eval(), (torch.arange(3.0), torch.ones(2), torch.tensor([True, False, True]))
module = importer(net, *inputs)
assert names(module) == ["x", "unused", "flag"]
same(run(module, *inputs), net(*inputs))
assert net.a.weight is dict(net.named_parameters())["a.weight"] and net.a.weight.requires_grad
"""
    python(flavour, code)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_models_come_in_through_an_onnx_file(flavour, tmp_path):
    code = f"""
import onnx, warnings
warnings.simplefilter("error")                  # torch's exporter is deprecated, and silent here
for name in ("convnet", "skip"):
    net, inputs = model(name)
    proto = importers.to_onnx(net, *inputs)
    onnx.save(proto, {str(tmp_path / "m.onnx")!r})
    same(run(from_onnx({str(tmp_path / "m.onnx")!r}), *inputs), net(*inputs))
    module, params = from_onnx(proto, bind=False)
    assert names(module)[0] == "x" and len(params) == len(names(module)) - 1 > 3
    same(run(module, *inputs, *params.values()), net(*inputs))
kept = importers.to_onnx(*[model("convnet")[0], *model("convnet")[1]], fold=False)
norms = lambda proto: sum(node.op_type == "BatchNormalization" for node in proto.graph.node)
print(norms(kept), norms(importers.to_onnx(model("convnet")[0], *model("convnet")[1])))
"""
    assert python(flavour, code).split() == ["2", "0"]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_resnet18(flavour):
    code = """
net, inputs = models.ZOO["resnet18"].build(), (models.ZOO["resnet18"].inputs(1)[0][..., :32, :32],)
same(run(importer(net, *inputs), *inputs), net(*inputs))
"""
    python(flavour, code)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_cannot_be_imported_is_said_in_a_sentence(flavour, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"not protobuf at all")
    code = f"""
class Odd(nn.Module):
    def forward(self, x):
        return torch.special.i1(x)

x = torch.ones(3)
print(says(lambda: importer(Odd().eval(), x)))
print(says(lambda: importer(nn.Dropout(), x)))
print(says(lambda: importer(Odd, x)))
print(says(lambda: importer(Odd().eval(), 3)))
print(says(lambda: from_onnx({str(tmp_path / "none.onnx")!r})))
print(says(lambda: from_onnx({str(tmp_path / "bad.onnx")!r})))
print(says(lambda: from_onnx(3)))
"""
    odd, training, no_module, no_tensor, no_file, bad_file, no_model = python(flavour, code).splitlines()
    assert odd.startswith(f"Odd cannot be imported into {flavour.title()}: ") and "i1" in odd
    assert training == "Dropout is in training mode. Call model.eval() before importing it."
    assert no_module == "The importers take a torch.nn.Module, not type."
    assert no_tensor == "Input 0 of Odd must be an example tensor, not int."
    assert no_file.startswith("There is no ONNX file ")
    assert "is not an ONNX file that can be read" in bad_file
    assert no_model == "An ONNX model is a path or an onnx.ModelProto, not int."
