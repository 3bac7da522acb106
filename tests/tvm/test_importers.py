"""Importing torch models and ONNX files."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from passlab import models
from passlab.tvm import importers
from tests.support.flavours import each_flavour


@pytest.fixture
def ir(flavour):
    """`load`, `from_onnx`: its importers; `run(module, *inputs)`: what it computes; `names(module)`: its parameters."""
    if flavour == "relay":
        from passlab.relay import relay, tvm

        def run(module, *inputs):
            with tvm.transform.PassContext(opt_level=1):  # 3 would also pack the layouts of all weights
                built = relay.build(module, "llvm")
            from tvm.contrib import graph_executor

            built = graph_executor.GraphModule(built["default"](tvm.cpu()))
            built.run(**{n: np.asarray(x) for n, x in zip(names(module), inputs, strict=True)})
            return [built.get_output(i).numpy() for i in range(built.get_num_outputs())]

        def names(module):
            return [v.name_hint for v in module["main"].params]
    else:
        from passlab.relax import relax, tvm

        def run(module, *inputs):
            vm = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
            out = vm["main"](*[tvm.runtime.tensor(np.asarray(x)) for x in inputs])
            return [out.numpy()] if hasattr(out, "numpy") else [o.numpy() for o in out]

        def names(module):
            return [v.name for v in module["main"].params]

    load, from_onnx = (getattr(importers, f"{flavour}_{what}") for what in ("module", "from_onnx"))
    return SimpleNamespace(load=load, from_onnx=from_onnx, run=run, names=names)


def same(actual, want):
    want = [w.detach() for w in (want if isinstance(want, tuple) else (want,))]
    assert len(actual) == len(want), (len(actual), len(want))
    for g, w in zip(actual, want, strict=True):
        assert g.shape == tuple(w.shape) and g.dtype == w.numpy().dtype, (g.shape, g.dtype, w)
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-4, atol=1e-4)


def model(name):
    return models.ZOO[name].build(), models.ZOO[name].inputs(1)


@each_flavour
@pytest.mark.parametrize("name", ["tiny", "convnet", "attention", "lstm"])
def test_small_models_compute_what_torch_does(ir, name):
    net, inputs = model(name)
    module = ir.load(net, *inputs)
    assert ir.names(module) == ["x"]
    same(ir.run(module, *inputs), net(*inputs))


@each_flavour
def test_unbound_parameters_are_inputs_once_each(ir):
    net, inputs = model("lstm")  # uses its four parameters six times each
    module, params = ir.load(net, *inputs, bind=False)
    assert ir.names(module) == ["x", *params] and len(params) == 4, ir.names(module)
    same(ir.run(module, *inputs, *params.values()), net(*inputs))
    other = {n: np.zeros_like(p) for n, p in params.items()}
    assert not np.allclose(ir.run(module, *inputs, *other.values())[0], net(*inputs).numpy())


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Module(), nn.Module()
        self.a.weight, self.b.weight = nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 5.0))

    def forward(self, x, unused, flag):
        return (self.a.weight - self.b.weight) * x, torch.where(flag, x, self.b.weight)


@each_flavour
def test_two_parameters_of_one_operation_stay_two(ir):
    net, inputs = Two().eval(), (torch.arange(3.0), torch.ones(2), torch.tensor([True, False, True]))
    module = ir.load(net, *inputs)
    assert ir.names(module) == ["x", "unused", "flag"]
    same(ir.run(module, *inputs), net(*inputs))
    assert net.a.weight is dict(net.named_parameters())["a.weight"] and net.a.weight.requires_grad


@each_flavour
@pytest.mark.filterwarnings("error")  # torch's exporter is deprecated, and silent here
def test_models_come_in_through_an_onnx_file(ir, tmp_path):
    for name in ("convnet", "skip"):
        net, inputs = model(name)
        proto = importers.to_onnx(net, *inputs)
        onnx.save(proto, tmp_path / "m.onnx")
        same(ir.run(ir.from_onnx(str(tmp_path / "m.onnx")), *inputs), net(*inputs))
        module, params = ir.from_onnx(proto, bind=False)
        assert ir.names(module)[0] == "x" and len(params) == len(ir.names(module)) - 1 > 3
        same(ir.run(module, *inputs, *params.values()), net(*inputs))
    net, inputs = model("convnet")
    items, folded = importers.to_onnx(net, *inputs, fold=False), importers.to_onnx(net, *inputs)
    norms = [sum(node.op_type == "BatchNormalization" for node in proto.graph.node) for proto in (items, folded)]
    assert norms == [2, 0]


@each_flavour
def test_resnet18(ir):
    net, inputs = models.ZOO["resnet18"].build(), (models.ZOO["resnet18"].inputs(1)[0][..., :32, :32],)
    same(ir.run(ir.load(net, *inputs), *inputs), net(*inputs))


class Odd(nn.Module):
    def forward(self, x):
        return torch.special.i1(x)


@each_flavour
def test_what_cannot_be_imported_is_said_in_a_sentence(ir, flavour, tmp_path):
    def says(make):
        with pytest.raises((ValueError, TypeError)) as error:
            make()
        return str(error.value)

    (tmp_path / "bad.onnx").write_bytes(b"not protobuf at all")
    x = torch.ones(3)
    odd = says(lambda: ir.load(Odd().eval(), x))
    assert odd.startswith(f"Odd cannot be imported into {flavour.title()}: ") and "i1" in odd and "\n" not in odd
    assert says(lambda: ir.load(nn.Dropout(), x)) == (
        "Dropout is in training mode. Call model.eval() before importing it."
    )
    assert says(lambda: ir.load(Odd, x)) == "The importers take a torch.nn.Module; got type."
    assert says(lambda: ir.load(Odd().eval(), 3)) == "Input 0 of Odd must be an example tensor; got int."
    assert says(lambda: ir.from_onnx(str(tmp_path / "none.onnx"))).startswith("No ONNX file ")
    assert "is not a readable ONNX file" in says(lambda: ir.from_onnx(str(tmp_path / "bad.onnx")))
    assert says(lambda: ir.from_onnx(3)) == "Expected an ONNX model as a path or an onnx.ModelProto; got int."


@each_flavour
def test_a_frontend_prints_nothing(ir, flavour, capsys):
    """TVM's prints "Error converting operator …" before it raises."""
    infos = [
        onnx.helper.make_tensor_value_info(name, dtype, shape)
        for name, dtype, shape in (("x", 1, [2, 3]), ("axes", 7, [1]), ("y", 1, [2, 1]))
    ]
    node = onnx.helper.make_node("ReduceSum", ["x", "axes"], ["y"])
    graph = onnx.helper.make_graph([node], "unknown axes", infos[:2], infos[2:])
    with pytest.raises(ValueError, match="cannot be imported into"):
        ir.from_onnx(onnx.helper.make_model(graph))
    assert not capsys.readouterr().out
