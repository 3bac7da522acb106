"""The view of every IR: node counts and edges reasoned by hand, broken graphs, and torch's own users as the oracle."""

from __future__ import annotations

import operator
import random
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn

from passlab import models
from passlab.fx.reader import trace
from passlab.graph import KINDS, Graph, Node, Table, table, view, why_not_ssa


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Block(nn.Module):
    """conv, bn, relu, conv, bn, add, relu: seven computations, one fork."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.conv2, self.bn2 = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + x)


def branch(x):
    if bool(x.sum() > 0):  # noqa: SIM108
        y = x * 2
    else:
        y = x - 1
    return y


X, IMAGE = torch.ones(2, 4), torch.ones(1, 3, 8, 8)


@pytest.fixture(scope="module")
def tiny():
    return Tiny().eval().requires_grad_(False)


@pytest.fixture(scope="module")
def block():
    return Block().eval().requires_grad_(False)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated, and says so
        yield


def traced(function):
    return fx.GraphModule(nn.Module(), fx.Tracer().trace(function))


def kinds(function):
    """Operation → kind for all but inputs and output."""
    return {node.op: node.kind for node in view(traced(function)) if node.op not in ("placeholder", "output")}


def counts(graph):
    return {kind: number for kind, number in graph.counts().items() if number}


def computes(graph):
    return [node.op for node in graph if node.kind == "compute"]


# The same two models in every IR.


def test_fx_tiny(tiny):
    graph = view(tiny, X)
    assert [node.op for node in graph] == ["placeholder", "Linear", "relu", "output"]
    assert graph.edges == (("x", "linear"), ("linear", "relu"), ("relu", "output"))
    assert graph.outputs == ("relu",)
    assert counts(graph) == {"compute": 2, "data": 2}
    assert set(graph.counts()) == set(KINDS)
    assert [node.bytes for node in graph] == [2 * 4 * 4, 2 * 8 * 4, 2 * 8 * 4, None]
    assert graph.bytes == 32 + 64 + 64
    assert graph.node("linear").attrs["out_features"] == 8
    assert graph.node("linear").text == "linear = self.linear(x)"


def test_fx_knows_no_shapes_without_inputs(tiny):
    graph = view(tiny)
    assert all(node.shape is None and node.dtype is None and node.bytes is None for node in graph)
    assert graph.bytes is None


def test_fx_residual(block):
    graph = view(block, IMAGE)
    assert computes(graph) == ["Conv2d", "BatchNorm2d", "relu", "Conv2d", "BatchNorm2d", "add", "relu"]
    assert graph.consumers("x") == ("conv1", "add")
    assert graph.node("add").inputs == ("bn2", "x")


def test_torchscript(tiny, block):
    graph = view(torch.jit.trace(tiny, X))
    assert computes(graph) == ["aten::linear", "aten::relu"]
    assert counts(graph) == {"compute": 2, "data": 4}  # input, weight, bias, return
    assert {node.label: node.shape for node in graph if node.op == "prim::GetAttr"} == {
        "linear.weight": (8, 4),
        "linear.bias": (8,),
    }
    assert [node.shape for node in graph if node.kind == "compute"] == [(2, 8), (2, 8)]
    residual = view(torch.jit.trace(block, IMAGE))
    names = "_convolution batch_norm relu _convolution batch_norm add relu"
    assert " ".join(op.removeprefix("aten::") for op in computes(residual)) == names
    assert len(residual.consumers("x")) == 2


def test_torchscript_of_source_has_no_shapes(tiny):
    graph = view(torch.jit.script(tiny))
    assert [node.type for node in graph if node.kind == "compute"] == ["", ""]


def test_torchscript_branch_is_a_control_node_with_blocks():
    graph = view(torch.jit.script(branch))
    (decision,) = (node for node in graph if node.op == "prim::If")
    assert decision.kind == "control"
    arms = {node.op: node.attrs["block"].split(":")[1] for node in graph if "block" in node.attrs}
    assert arms == {"aten::mul": "then", "aten::sub": "else"}
    # It uses the condition and what the two arms return.
    assert {graph.node(id).op for id in decision.inputs} == {"aten::Bool", "aten::mul", "aten::sub"}
    assert why_not_ssa(graph) == ""


def test_torchscript_loop_and_mutation():
    @torch.jit.script
    def loop(x, n: int):
        for _ in range(n):
            x = x * 2
        x.add_(1)
        return x

    graph = view(loop)
    assert [node.op for node in graph if node.kind == "control"] == ["prim::Loop"]
    (product,) = (node for node in graph if node.op == "aten::mul")
    (carried, _two) = (graph.node(id) for id in product.inputs)
    assert carried.op == "prim::Param" and carried.attrs["block"].endswith(":body")
    assert [graph.node(id).label or id for id in carried.inputs] == ["x.1"]
    assert "aten::add_ changes" in why_not_ssa(graph)


def test_export(tiny, block):
    graph = view(torch.export.export(tiny, (X,)))
    assert computes(graph) == ["aten.linear", "aten.relu"]
    assert counts(graph) == {"compute": 2, "data": 4}
    assert [(node.label, node.attrs["role"]) for node in graph if node.op == "placeholder"] == [
        ("linear.weight", "parameter"),
        ("linear.bias", "parameter"),
        ("", "user input"),
    ]
    assert graph.node("relu").type == "float32[2, 8]"
    residual = view(torch.export.export(block, (IMAGE,)))
    names = "conv2d batch_norm relu conv2d batch_norm add.Tensor relu"
    assert " ".join(op.removeprefix("aten.") for op in computes(residual)) == names


class Nested(nn.Module):
    def forward(self, x):
        def inner(x):
            return torch.cond(x.sum() > 5, lambda x: x.relu(), lambda x: x.exp(), (x,))

        return torch.cond(x.sum() > 0, inner, lambda x: x - 1, (x,))


def test_export_branches_are_blocks():
    graph = view(torch.export.export(Nested(), (X,)))
    inner, outer = (node for node in graph if node.kind == "control")
    assert (inner.op, outer.op) == ("cond", "cond")
    assert inner.attrs["block"] == "cond:true_graph_0" and "block" not in outer.attrs
    ends = [graph.node(id).op for id in outer.inputs]
    assert ends == ["aten.gt.Scalar", "placeholder", "getitem", "aten.sub.Tensor"]
    (exp,) = (node for node in graph if node.op == "aten.exp")
    # From the innermost operation along its first inputs to the input of the whole program.
    steps = [exp]
    while steps[-1].inputs:
        steps.append(graph.node(steps[-1].inputs[0]))
    assert [node.op for node in steps] == ["aten.exp", "placeholder", "placeholder", "placeholder"]
    assert steps[-1].id == "x"
    assert why_not_ssa(graph) == ""


def test_export_symbolic_dimension_is_a_name(tiny):
    batch = torch.export.Dim("batch", min=2, max=64)
    graph = view(torch.export.export(tiny, (torch.ones(4, 4),), dynamic_shapes={"x": {0: batch}}))
    rows, columns = graph.node("relu").shape
    assert isinstance(rows, str) and columns == 8
    assert graph.node("relu").bytes is None


@pytest.fixture(scope="module")
def onnx_block(block):
    return torch.onnx.export(block, (IMAGE,), dynamo=True, verbose=False)


def test_onnx(onnx_block):
    graph = view(onnx_block)
    assert computes(graph) == ["Conv", "Relu", "Conv", "Add", "Relu"]  # the exporter folds the batch norms
    assert counts(graph) == {"compute": 5, "data": 6}  # x, two weights, two biases, output
    assert len(graph.consumers("x")) == 2
    assert {node.shape for node in graph if node.kind == "compute"} == {(1, 3, 8, 8)}
    assert view(onnx_block.model_proto).edges == graph.edges


ONNX_CONTROL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2] x, int64 n, bool c) => (float[2] z, float[2] w) {
  one = Constant <value_float = 1.0> ()
  z = If (c) <
    then_branch = then () => (float[2] a) { a = Add(x, x) },
    else_branch = else () => (float[2] b) { b = Sub(x, one) }
  >
  w = Loop (n, , z) <
    body = body (int64 i, bool go, float[2] v) => (bool on, float[2] u) { on = Identity(go)  u = Mul(v, v) }
  >
}
"""


def onnx_model(text):
    import onnx

    return onnx.parser.parse_model(text)


def test_onnx_subgraphs():
    graph = view(onnx_model(ONNX_CONTROL))
    assert counts(graph) == {"compute": 3, "data": 8, "shape": 1, "control": 2}  # 3 + 3 inputs, constant, output
    assert graph.node("z").inputs == ("c", "a", "b")
    assert graph.node("w").inputs == ("n", "z", "on", "u")
    assert graph.node("v").inputs == ("z",) and graph.node("i").inputs == ("n",) and graph.node("go").inputs == ()
    assert graph.node("a").attrs["block"] == "z:then_branch"
    assert graph.node("a").inputs == ("x",)  # x + x reads one producer
    assert graph.outputs == ("z", "w")
    assert why_not_ssa(graph) == ""


def test_onnx_infers_shapes_without_touching_the_model():
    model = onnx_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float16[N, 3] x) => (float16[3, N] y)'
        "{ t = Transpose(x)  y = Relu(t) }"
    )
    before = model.SerializeToString()
    graph = view(model)
    assert graph.node("x").shape == ("N", 3) and graph.node("x").dtype == "float16"
    assert graph.node("t").kind == "shape" and graph.node("t").shape == (3, "N")
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("INT2", 3), ("UINT2", 3), ("INT4", 5), ("UINT4", 5), ("FLOAT4E2M1", 5), ("FLOAT8E4M3FN", 10), ("INT16", 20)],
)
def test_elements_of_less_than_a_byte_in_onnx(dtype, size):
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("x", getattr(TensorProto, dtype), [10])
    graph = view(helper.make_model(helper.make_graph([], "g", [value], [value])))
    assert graph.node("x").bytes == size


@pytest.mark.parametrize(
    ("body", "why"), [("y = Relu(z)", "z is used but never defined"), ("y = Relu(x) y = Exp(x)", "y is defined twice")]
)
def test_onnx_broken(body, why):
    graph = view(onnx_model(f'<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {{ {body} }}'))
    assert why_not_ssa(graph) == why


def tiny_in_jax(x, weight, bias):
    import jax.numpy as jnp

    return jnp.maximum(x @ weight.T + bias, 0)


@pytest.fixture(scope="module")
def lowered(tiny):
    import jax

    weight, bias = tiny.linear.weight.numpy(), tiny.linear.bias.numpy()
    return jax.jit(tiny_in_jax).lower(X.numpy(), weight, bias)


def test_stablehlo(lowered):
    graph = view(lowered)
    assert computes(graph) == ["stablehlo.dot_general", "stablehlo.add", "stablehlo.maximum"]
    # Three arguments, the 0, the return; a transpose, two broadcasts of the bias (to 1×8, to 2×8) and one of the 0.
    assert counts(graph) == {"compute": 3, "data": 5, "shape": 4}
    assert [node.type for node in graph if node.op == "argument"] == ["float32[2, 4]", "float32[8, 4]", "float32[8]"]
    assert graph.bytes == 4 * (2 * 4 + 8 * 4 + 8 + 4 * 8 + 2 * 8 + 1 * 8 + 2 * 8 + 2 * 8 + 1 + 2 * 8 + 2 * 8)


def test_stablehlo_ways_in_agree(lowered):
    import jax

    module = lowered.compiler_ir("stablehlo")
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((2, 4), (8, 4), (8,))]
    graph = view(lowered)
    for way in (view(lowered.as_text()), view(module), view(jax.jit(tiny_in_jax), *arguments)):
        assert (way.nodes, way.outputs) == (graph.nodes, graph.outputs)


def test_stablehlo_inlines_calls():
    import jax

    graph = view(jax.jit(lambda x: jax.nn.relu(jax.nn.relu(x) + 1)), X.numpy())
    assert computes(graph) == ["stablehlo.maximum", "stablehlo.add", "stablehlo.maximum"]
    assert not [node for node in graph if node.op == "func.call"]
    assert why_not_ssa(graph) == ""


def residual_in_jax(x, w1, s1, t1, w2, s2, t2):
    import jax
    import jax.numpy as jnp

    def conv(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")

    y = jnp.maximum(conv(x, w1) * s1 + t1, 0)
    return jnp.maximum(conv(y, w2) * s2 + t2 + x, 0)


def test_xla_residual():
    import jax

    weights, scale = jax.ShapeDtypeStruct((3, 3, 3, 3), "float32"), jax.ShapeDtypeStruct((3, 1, 1), "float32")
    image = jax.ShapeDtypeStruct((1, 3, 8, 8), "float32")
    lowered = jax.jit(residual_in_jax).lower(image, weights, scale, scale, weights, scale, scale)
    graph = view(lowered)
    expected = ["convolution", "multiply", "add", "maximum", "convolution", "multiply", "add", "add", "maximum"]
    assert computes(graph) == [f"stablehlo.{op}" for op in expected]
    assert len(graph.consumers("%arg0")) == 2
    hlo = view(lowered.as_text(dialect="hlo"))
    assert sorted(computes(hlo)) == sorted(expected)
    compiled = view(lowered.compile())
    assert compiled.node(compiled.outputs[0]).shape == (1, 3, 8, 8)
    assert len(computes(compiled)) < len(expected)  # XLA fuses the element-wise tails


def control_in_jax(x, n):
    import jax

    y = jax.lax.fori_loop(0, n, lambda i, v: v * 2 + i, x)
    return jax.lax.cond(y.sum() > 0, lambda v: v + 1, lambda v: v - 1, y)


def test_xla_control_flow():
    import jax

    lowered = jax.jit(control_in_jax).lower(X.numpy(), 3)
    graph = view(lowered)
    assert [node.op for node in graph if node.kind == "control"] == ["stablehlo.while", "stablehlo.case"]
    blocks = {node.attrs["block"].split(":")[1] for node in graph if "block" in node.attrs}
    assert blocks == {"cond", "body", "branch0", "branch1"}
    (total,) = (node for node in graph if node.op == "stablehlo.reduce")
    assert total.attrs["applies"] == "add"
    hlo = view(lowered.as_text(dialect="hlo"))
    assert [node.op for node in hlo if node.kind == "control"] == ["while", "conditional"]
    carried = [hlo.node(node.inputs[0]) for node in hlo if node.op == "parameter" and "block" in node.attrs]
    # Two computations of the loop take its state, two arms take what the loop left.
    assert [node.op for node in carried] == ["tuple", "tuple", "get-tuple-element", "get-tuple-element"]
    for each in (graph, hlo, view(lowered.compile())):
        assert why_not_ssa(each) == ""


HLO = """HloModule scale_and_shift, is_scheduled=true, entry_computation_layout={(f32[2,3]{1,0}, s32[])->f32[2,3]{1,0}}

%fused_computation (param_0: f32[2,3]) -> f32[2,3] {
  %param_0 = f32[2,3]{1,0} parameter(0)
  %constant.1 = f32[] constant(2)
  %broadcast.1 = f32[2,3]{1,0} broadcast(%constant.1), dimensions={}
  ROOT %multiply.1 = f32[2,3]{1,0} multiply(%param_0, %broadcast.1), metadata={op_name="jit(f)/mul (a, b"}
}

shift.1 {
  Arg_0 = f32[2,3]{1,0} parameter(0)
  table = f32[2,3]{1,0} constant({
    { 1, 2, 3 },
    { 4, 5, 6 } })
  ROOT sum = f32[2,3]{1,0} add(f32[2,3]{1,0} Arg_0, f32[2,3]{1,0} table)
}

ENTRY %main (x: f32[2,3], n: s32[]) -> f32[2,3] {
  %x = f32[2,3]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %pair = (f32[2,3]{1,0}, /*index=1*/s32[]) tuple(%x, %n)
  %first = f32[2,3]{1,0} get-tuple-element(%pair), index=0, metadata={op_name="f((g"}
  %fusion = f32[2,3]{1,0} fusion(%first), kind=kLoop, calls=%fused_computation
  ROOT %call = f32[2,3]{1,0} call(%fusion), to_apply=shift.1
}
"""


def test_hlo_text_by_hand():
    graph = view(HLO)
    assert [(node.id, node.op, node.inputs) for node in graph] == [
        ("x", "parameter", ()),
        ("n", "parameter", ()),
        ("pair", "tuple", ("x", "n")),
        ("first", "get-tuple-element", ("pair",)),
        ("fusion", "fusion", ("first",)),
        ("shift.1/table", "constant", ()),
        ("shift.1/sum", "add", ("fusion", "shift.1/table")),
    ]
    assert graph.node("pair").type == "(float32[2, 3], int32[])"
    assert graph.node("pair").bytes == 24 + 4
    assert graph.node("shift.1/table").attrs["value"] == "{ { 1, 2, 3 }, { 4, 5, 6 } }"
    assert graph.node("fusion").attrs["fused"] == "constant, broadcast, multiply"
    assert graph.node("fusion").kind == "compute"
    assert graph.outputs == ("shift.1/sum",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello", "this is neither: 'hello'"),
        ("", "this is neither"),
        ("HloModule empty", "no ENTRY computation"),
        ("module { func.func @f() { %x = stablehlo.nonsense } }", "nonsense"),
        ("module { } // func", "no function"),
    ],
)
def test_text_that_is_no_graph(text, says):
    with pytest.raises(ValueError, match=says):
        view(text)


# Kinds in torch.fx.


def test_kinds_of_shape_operations():
    def f(x):
        a, _b = x.reshape(2, -1).transpose(0, 1).chunk(2)
        return torch.cat([a.unsqueeze(0), torch.flatten(a).view(1, -1)], 1).permute(1, 0)[x.size(0) :]

    assert set(kinds(f).values()) == {"shape"}


def test_kinds_of_mutation():
    def f(x, out):
        x.add_(1)
        torch.mul(x, 2, out=out)
        return F.relu(x, inplace=True)

    assert kinds(f) == dict.fromkeys(["add_", "mul", "relu"], "memory")
    assert "changes a value" in why_not_ssa(view(traced(f)))


def test_kinds_of_operators():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(operator.setitem, (x, 0, 3.0))
    for target in (operator.iadd, operator.add, operator.and_, operator.getitem):
        graph.call_function(target, (x, x))
    results = {node.op: node.kind for node in view(graph) if node.id != "x"}
    assert results == {
        **{"setitem": "memory", "iadd": "memory", "add": "compute"},
        **{"and_": "compute", "getitem": "shape"},  # its underscore is only there because "and" is a word of Python
    }


def test_mutation_in_a_module_and_in_aten():
    assert view(nn.Sequential(nn.ReLU(inplace=True))).counts()["memory"] == 1

    class Update(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    graph = view(torch.export.export(Update(), (X,)))
    assert [(node.op, node.kind) for node in graph if node.op.startswith("aten")] == [
        ("aten.add_.Tensor", "memory"),
        ("aten.mul.Tensor", "compute"),
    ]


def test_copies_are_memory_and_no_mutation():
    def f(x):
        return x.clone().contiguous()

    assert kinds(f) == {"clone": "memory", "contiguous": "memory"}
    assert why_not_ssa(view(traced(f))) == ""


def test_kinds_of_the_rest():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.flat, self.weight = nn.Flatten(), nn.Parameter(torch.ones(4))

        def forward(self, x):
            return self.flat(x) * self.weight + torch.zeros_like(x)

    results = {node.op: node.kind for node in view(Model())}
    data = dict.fromkeys(("placeholder", "get_attr", "zeros_like", "output"), "data")
    assert results == data | {"Flatten": "shape", "mul": "compute", "add": "compute"}


def test_operands_in_kwargs_lists_dicts_and_slices():
    graph = fx.Graph()
    a, b, c, d, e = map(graph.placeholder, "abcde")
    graph.call_function(print, ([a, (b,)],), {"k": {"deep": c}, "s": slice(d, None, e)})
    graph.output(None)
    assert view(graph).node("print_1").inputs == ("a", "b", "c", "d", "e")


def test_tuple_values():
    def f(x):
        values, indices = x.max(dim=1)
        return values, indices

    graph = view(traced(f), torch.ones(3, 5))
    assert graph.node("max_1").type == "(float32[3], int64[3])"
    assert graph.node("max_1").bytes == 3 * 4 + 3 * 8
    assert graph.outputs == ("getitem", "getitem_1")


def test_type_of_nested_tuples():
    node = Node("n", "lstm", "compute", shape=((2, 5), ((1, 2), (1, 2))), dtype="float32")
    assert node.type == "(float32[2, 5], (float32[1, 2], float32[1, 2]))"
    assert Node("n", "x", "data").type == ""


# Shapes without side effects.


def test_view_changes_nothing(block):
    model = nn.Sequential(block, nn.Dropout()).train()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    x = torch.rand(2, 3, 8, 8)
    before, random_state = x.clone(), torch.get_rng_state()
    graph = view(model, x)
    assert graph.node(graph.outputs[0]).shape == (2, 3, 8, 8)
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    model.eval()

    gm = fx.symbolic_trace(block)
    view(gm, IMAGE)
    assert all("tensor_meta" not in node.meta for node in gm.graph.nodes)


def test_inputs_written_by_the_graph_stay_as_they_are():
    def f(x):
        return x.add_(1)

    x = torch.zeros(3)
    view(traced(f), x)
    trace(fx.GraphModule(nn.Module(), fx.Tracer().trace(f)), x)
    assert torch.equal(x, torch.zeros(3))


class Caches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.by_size, self.seen, self.last = {}, [], None

    def forward(self, x):
        self.last = self.by_size.setdefault(8, x * 2)
        self.seen.append(self.last)
        return self.last + 1


def test_tracing_leaves_nothing_in_what_a_model_caches():
    model = Caches()
    for _ in range(2):  # a second time with what the first had left would read nodes of another graph
        assert computes(view(model, X)) == ["mul", "add"]
        trace(model, X)
    assert (model.by_size, model.seen, model.last) == ({}, [], None)


def test_trace_is_shape_prop(block):
    from torch.fx.passes.shape_prop import ShapeProp

    own, theirs = trace(block, IMAGE), fx.symbolic_trace(block)
    ShapeProp(theirs).propagate(IMAGE)
    for a, b in zip(own.graph.nodes, theirs.graph.nodes, strict=True):
        assert a.meta["tensor_meta"] == b.meta["tensor_meta"]
    assert own.meta["inputs"] == (IMAGE,)


def test_meta_inputs_need_no_data(tiny):
    assert view(tiny, torch.empty(10**12, 4, device="meta")).node("relu").shape == (10**12, 8)


def test_zoo_has_shapes_everywhere():
    for name in ("attention", "skip", "lstm"):
        model = models.ZOO[name]
        graph = view(trace(model.build(), *model.inputs()))
        assert all(node.type for node in graph if node.op not in ("getattr", "output")), name


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ((torch.ones(2, 5),), r"\(float32\[2, 5\]\) at node linear \(linear = self.linear\(x\)\)"),
        ((X, X), "takes 1 input and got 2"),
    ],
)
def test_inputs_that_do_not_fit(tiny, inputs, says):
    with pytest.raises(ValueError, match=says):
        trace(tiny, *inputs)
    with pytest.raises(ValueError, match=says):
        view(tiny, *inputs)


def test_a_graph_that_does_not_run_is_shown_as_far_as_it_runs(tiny):
    graph = view(fx.symbolic_trace(tiny), torch.ones(2, 5))
    assert graph.node("x").shape == (2, 5) and graph.node("relu").shape is None
    assert "shapes cannot be multiplied" in graph.node("linear").attrs["error"]


def test_data_dependent_control_flow_says_so():
    class Branch(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x - 1

    with pytest.raises(
        ValueError, match=r"cannot trace Branch \(line \d+ of forward\): its forward decides what to run"
    ):
        view(Branch(), X)


def test_unknown_types_are_named():
    with pytest.raises(
        TypeError, match=r"cannot read builtins\.int; it takes: torch\.fx\.GraphModule, .*ExportedProgram"
    ):
        view(3)


def test_a_view_is_its_own_view(tiny):
    graph = view(tiny)
    assert view(graph) is graph


def test_unknown_node_names_its_like(tiny):
    with pytest.raises(KeyError, match="Did you mean linear"):
        view(tiny).node("linar")


# Broken torch.fx graphs are viewable.


def chain():
    graph = fx.Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(torch.relu, (x,))
    neg = graph.call_function(torch.neg, (relu,))
    graph.output(neg)
    return graph, x, relu, neg


class Rude:
    def __repr__(self):
        raise RuntimeError("no")


BROKEN = {
    "cycle": "relu.args = (neg,)",
    "foreign": "neg.args = (fx.Graph().placeholder('elsewhere'),)",
    "foreign, of the same name": "neg.args = (fx.Graph().placeholder('relu'),)",
    "ring": "neg._next = relu",
    "loop of one": "relu._next = relu",
    "twins": "neg.name = 'relu'",
    "no such module": "neg.op, neg.target = 'call_module', 'not.there'",
    "no target": "neg.target = None",
    "target of another kind": "neg.op, neg.target = 'call_module', ['neg']",
    "nonsense": "neg.op, neg.meta = 'nonsense', None",
    "rude operand": "neg._update_args_kwargs((relu, Rude()), {})",
}


def broken(name):
    graph, _, relu, neg = chain()
    exec(BROKEN[name], globals() | {"relu": relu, "neg": neg})
    return graph


@pytest.mark.parametrize("name", BROKEN)
def test_broken_graphs_are_viewable(name):
    graph, module = broken(name), fx.GraphModule(nn.Module(), fx.Graph())
    module._graph = graph
    graph.owning_module = module
    for shown in (view(graph), view(module), view(module, torch.ones(2))):
        assert shown.node("x").op == "placeholder"
        assert len({node.id for node in shown}) == len(shown)
        assert {end for edge in shown.edges for end in edge} <= {node.id for node in shown}
        assert repr(shown) and shown.text and shown.counts()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("cycle", "relu uses neg before it is defined"),
        ("foreign", "elsewhere is used but never defined"),
        ("twins", "relu is defined twice"),
    ],
)
def test_broken_graphs_are_not_ssa(name, why):
    assert why_not_ssa(view(chain()[0])) == ""
    assert why_not_ssa(view(broken(name))) == why


def test_empty_graph():
    graph = view(fx.Graph())
    assert (len(graph), graph.edges, graph.outputs, graph.bytes) == (0, (), (), None)


# torch's own users as the oracle.


def nested(rng, operands):
    """An operand that holds the given nodes somewhere in lists, tuples, dicts and slices, with constants between."""
    if len(operands) == 1 and rng.random() < 0.7:
        return operands[0]
    if not operands:
        return rng.choice([1, None, "same", (2, 3)])
    cut = rng.randrange(len(operands))
    left, right = operands[:cut], operands[cut:]
    parts = [nested(rng, left), nested(rng, right) if len(right) < len(operands) else right[0], 7]
    return rng.choice([list, tuple, lambda p: {"a": p[0], "b": p[1]}, lambda p: slice(p[0], p[1])])(parts)


def random_fx(seed, size):
    rng, graph = random.Random(seed), fx.Graph()
    items = [graph.placeholder("x")]
    for _ in range(size):
        operands = [rng.choice(items) for _ in range(rng.randrange(4))]
        cut = rng.randrange(len(operands) + 1)
        args = tuple(nested(rng, [o]) for o in operands[:cut])
        items.append(graph.call_function(print, args, {"k": nested(rng, operands[cut:])}))
    graph.output(nested(rng, [rng.choice(items) for _ in range(3)]))
    return graph


def agrees_with_users(graph):
    shown, fx_nodes = view(graph), list(graph.nodes)
    assert [node.id for node in shown] == [node.name for node in fx_nodes]
    for node in fx_nodes:
        assert set(shown.consumers(node.name)) == {user.name for user in node.users}
        assert shown.node(node.name).inputs == tuple(used.name for used in node.all_input_nodes)
    assert sorted(shown.edges) == sorted((node.name, user.name) for node in fx_nodes for user in node.users)
    assert sum(shown.counts().values()) == len(fx_nodes)
    assert why_not_ssa(shown) == "" or any(node.attrs.get("mutates") for node in shown)


@given(seed=st.integers(0, 10**6), size=st.integers(0, 40))
def test_edges_agree_with_torch_on_random_operands(seed, size):
    agrees_with_users(random_fx(seed, size))


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_edges_agree_with_torch_on_generated_graphs(seed):
    from passlab.fx.generate import random_graph

    gm = random_graph(seed, size=15)
    agrees_with_users(gm.graph)
    bare, shown = view(gm), view(gm, *gm.meta["inputs"])
    # What the generator wrote on the nodes is what a run gives.
    assert all(a.type == b.type for a, b in zip(bare, shown, strict=True) if a.type)


def test_a_long_chain_needs_no_recursion():
    graph = fx.Graph()
    value = graph.placeholder("x")
    for _ in range(20_000):
        value = graph.call_function(torch.relu, (value,))
    graph.output(value)
    shown = view(graph)
    assert counts(shown) == {"compute": 20_000, "data": 2}
    assert len(shown.edges) == 20_001


# The table.


def test_table(tiny, lowered):
    rows = table(
        {
            "torch.fx": view(fx.symbolic_trace(tiny)),
            "TorchScript": [view(torch.jit.trace(tiny, X)), view(torch.jit.script(branch))],
            "StableHLO": view(lowered),
        }
    )
    assert isinstance(rows, Table)
    fx_row, script_row, stable_row = ([*row] for row in rows.rows)
    assert fx_row == ["torch.fx", "4", "Linear, relu", "no", "yes", "none in this graph", "layers, framework functions"]
    assert script_row[5:] == ["prim::If, 2 blocks", "ATen operators"]
    assert stable_row[3:] == ["yes", "yes", "none in this graph", "tensor primitives"]
    assert "Linear, relu" in str(rows)
    assert len(str(rows).splitlines()) == 2 + 3
    assert rows._repr_html_().count("<tr>") == 1 + 3


def test_table_escapes_and_reports_mutation():
    def f(x):
        return x.add_(1)

    rows = table({"<fx>": view(traced(f))})
    assert rows.rows[0][4] == "no: add_ changes a value that already exists"
    assert "&lt;fx&gt;" in rows._repr_html_()
    assert table([view(traced(f))]).rows[0][0] == "torch.fx"


# The type of a graph.


def test_nodes_and_graphs_cannot_be_changed(tiny):
    graph = view(tiny)
    for thing, name in ((graph, "nodes"), (graph.nodes[0], "op")):
        with pytest.raises(AttributeError):
            setattr(thing, name, ())
    assert isinstance(graph, Graph) and hash(graph.nodes[0])
