"""Views of Relax."""

from __future__ import annotations

import pytest
from tvm.relax.dpl import is_op, wildcard
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from passlab import diff, view
from passlab.relax import relax, tvm
from tests.support.views import elsewhere, ops, plain


@I.ir_module
class Mixed:
    @R.function
    def main(x: R.Tensor(("n", 4), "float16"), c: R.Tensor((), "bool"), s: R.Shape(["n"])):
        n = T.int64()
        if c:
            with R.dataflow():
                a = R.nn.relu(x)
                y = R.add(a, R.const(1.0, "float16"))
                R.output(y)
            z = y
        else:
            z = R.negative(x)
        q = R.match_cast(z, R.Tensor((n, 4), "float16"))
        t = (q, x)
        u = t[0]
        r = R.reshape(q, R.shape([n * 4]))
        v = R.split(x, 2, axis=1)
        return R.add(u, x)


@I.ir_module
class Recursive:
    @R.function
    def main(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
        cls = Recursive
        y = R.tanh(x)
        z: R.Tensor((2, 2), "float32") = cls.main(y)
        return z


@I.ir_module
class Calls:
    @R.function
    def twice(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
        y = R.tanh(x)
        return y

    @R.function
    def main(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
        cls = Calls
        y = cls.twice(x)
        z = cls.twice(y)
        return z


@pytest.fixture(scope="module")
def seen() -> dict:
    """What came of each module; made once, and the tests look at it."""
    seen = {}

    def built(params, body):
        bb = relax.BlockBuilder()
        with bb.function("main", params):
            with bb.dataflow():
                out = bb.emit_output(body(bb))
            bb.emit_func_output(out)
        return bb.get()

    def tensor(name, *shape):
        return relax.Var(name, relax.TensorType(shape, "float32"))

    def lowered(module, *passes):
        with tvm.target.Target("llvm"):
            for name in passes:
                module = getattr(relax.transform, name)()(module)
        return module

    x, w, b = tensor("x", 2, 4), tensor("w", 4, 8), tensor("b", 8)
    tiny = built([x, w, b], lambda bb: relax.op.nn.relu(bb.emit(relax.op.add(bb.emit(relax.op.matmul(x, w)), b))))
    before = tiny.script()
    seen["tiny"] = plain(tiny)
    seen["function"] = plain(tiny["main"])
    seen["changed"] = tiny.script() != before

    legal = lowered(tiny, "LegalizeOps")
    fused = lowered(legal, "AnnotateTIROpPattern", "FuseOps")
    seen["legal"] = plain(legal)
    seen["fused"] = plain(fused)
    seen["fused kernels"] = plain(lowered(fused, "FuseTIR"))
    seen["diff"] = diff(tiny, fused).text
    pattern = is_op("relax.add")(is_op("relax.matmul")(wildcard(), wildcard()), wildcard())
    seen["composite"] = plain(relax.transform.FuseOpsByPattern([("passlab.linear", pattern)])(tiny))
    codegen = relax.transform.FuseOpsByPattern([("passlab.linear", pattern)], annotate_codegen=True)
    seen["codegen"] = plain(codegen(tiny))
    with tvm.target.Target("llvm"):
        seen["default"] = plain(relax.get_default_pipeline(tvm.target.Target("llvm"))(tiny))

    seen["mixed"] = plain(Mixed)
    seen["calls"] = plain(Calls)
    seen["recursive"] = plain(Recursive)

    seen["views"] = [view(m) for m in (tiny, fused, Mixed, Calls)]

    def chain(bb):
        e = x
        for _ in range(3000):
            e = bb.emit(relax.op.tanh(e))
        return relax.op.tanh(e)

    seen["deep"] = len(view(built([x], chain)))
    return seen


def test_tiny(seen):
    tiny = seen["tiny"]
    assert tiny["ir"] == "Relax" and tiny["name"] == "main"
    assert ops(tiny) == ["Var", "Var", "Var", "relax.matmul", "relax.add", "relax.nn.relu", "return"]
    add = tiny["nodes"]["lv1"]
    assert add == ["relax.add", "compute", ["lv", "b"], "float32[2, 8]", 64, "lv1 = R.add(lv, b)", {"dataflow": "True"}]
    assert tiny["nodes"]["w"][1:5] == ["data", [], "float32[4, 8]", 128]
    assert tiny["outputs"] == ["gv"] and tiny["nodes"]["return"][2] == ["gv"]
    assert tiny["row"][3:] == ["yes", "yes", "none in this graph", "tensor operators"]


def test_a_function_by_itself(seen):
    assert seen["function"]["nodes"] == seen["tiny"]["nodes"]


def test_the_module_stays_as_it_is(seen):
    assert seen["changed"] is False


def test_call_tir_is_called_after_its_function(seen):
    legal = seen["legal"]
    assert ops(legal) == ["Var", "Var", "Var", "matmul", "add", "relu", "return"]
    assert legal["nodes"]["lv1"][5] == "lv1 = R.call_tir(add, lv, b)" and legal["row"][-1] == "kernels"


def test_a_primitive_function_is_one_node(seen):
    (op, kind, inputs, type, *_, attrs) = next(n for n in seen["fused"]["nodes"].values() if n[1] == "compute")
    assert (op, kind, inputs, type) == ("fused_matmul_add_relu", "compute", ["x", "w", "b"], "float32[2, 8]")
    assert attrs["fused"] == "matmul, add, relu"
    assert "fused_matmul_add_relu" in ops(seen["fused kernels"]) and len(seen["fused"]["nodes"]) == 5
    assert "fused_matmul_add_relu" in seen["diff"] and "- lv = R.matmul" in seen["diff"]


def test_a_composite_function_has_its_name(seen):
    for form, op in (("composite", "passlab.linear"), ("codegen", "fused_relax_matmul_relax_add_passlab")):
        assert ops(seen[form])[3:5] == [op, "relax.nn.relu"]
        (node,) = (n for n in seen[form]["nodes"].values() if "fused" in n[6])
        assert node[6]["fused"] == "relax.matmul, relax.add"
        assert seen[form]["row"][-1] == "tensor operators, kernels"


def test_after_the_pipeline_memory_is_explicit(seen):
    lowered = seen["default"]
    assert "changes a value" in lowered["ssa"]
    kinds = {node[0]: node[1] for node in lowered["nodes"].values()}
    assert kinds["relax.vm.alloc_storage"] == kinds["relax.vm.alloc_tensor"] == "memory"
    assert "Constant" not in kinds, "the dtypes of what is allocated are no values"
    assert kinds["fused_matmul_add_relu"] == "compute" and lowered["row"][-1] == "kernels, runtime calls"


def test_branches_tuples_and_symbolic_dimensions(seen):
    nodes = seen["mixed"]["nodes"]
    assert nodes["z"][:3] == ["If", "control", ["c", "y", "z_else"]]
    assert nodes["a"][6] == {"block": "z:then", "dataflow": "True"} and nodes["z_else"][6] == {"block": "z:else"}
    assert nodes["x"][3:5] == ["float16[n, 4]", None] and nodes["r"][3] == "float16[n * 4]"
    assert nodes["s"][3] == "shape" and nodes["c"][3:5] == ["bool[]", 1]
    assert nodes["t"][5] == "t = (q, x)" and nodes["u"][5] == "u = t[0]" and nodes["v"][1] == "shape"
    assert nodes["q"][:3] == ["match_cast", "shape", ["z"]]
    assert seen["mixed"]["row"][5] == "If, 2 blocks" and seen["mixed"]["ssa"] == ""


def test_calls_of_other_functions_are_inlined(seen):
    assert ops(seen["calls"]) == ["Var", "relax.tanh", "relax.tanh", "return"]
    assert ops(seen["recursive"]) == ["Var", "relax.tanh", "Call", "return"]


def test_depth_needs_no_recursion(seen):
    assert seen["deep"] == 3003


def test_a_graph_is_plain_data_that_needs_no_tvm(seen, tmp_path):
    names = ("tiny", "fused", "mixed", "calls")
    assert elsewhere(seen["views"], tmp_path) == [len(seen[name]["nodes"]) for name in names]
