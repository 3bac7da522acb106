"""A pass over Relax may not hide operators in functions, closures or kernels that the program did not call."""

from __future__ import annotations

from passlab.relax import relax, tvm
from passlab.relax.cases import module, op
from passlab.tvm.judge import is_primitive, why_not_open

SHAPE = (2, 3)
BEFORE = module(lambda emit, x: emit(op.nn.relu(emit(op.nn.relu(x)))), SHAPE)
HELPER = module(lambda emit, x: emit(emit.helper(emit(op.nn.relu(x)))), SHAPE, helper=lambda emit, x: op.nn.relu(x))


def test_a_call_of_a_new_function_is_refused():
    assert "main calls helper, which hides operators from the laws" in why_not_open(BEFORE(), HELPER())
    assert not why_not_open(HELPER(), HELPER()) and not why_not_open(HELPER(), BEFORE())


def test_a_kernel_of_tir_is_refused():
    kernels = relax.transform.LegalizeOps()(BEFORE())
    assert "main calls relu, which hides operators" in why_not_open(BEFORE(), kernels)
    assert not why_not_open(kernels, kernels)


def test_a_closure_is_refused():
    inner = relax.Var("a", relax.TensorType(SHAPE, "float32"))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    with builder.function("main", [x]):
        body = relax.SeqExpr([], inner)
        closure = builder.emit(relax.Function([inner], body, inner.ty))
        builder.emit_func_output(builder.emit(relax.Call(closure, [x])))
    assert "hides operators" in why_not_open(BEFORE(), builder.get())


def test_functions_that_an_exercise_asks_for_may_be_called():
    fused = tvm.ir.transform.Sequential(
        [relax.transform.FuseOpsByPattern([("relu", relax.dpl.is_op("relax.nn.relu")(relax.dpl.wildcard()))])]
    )(BEFORE())
    assert "hides operators" in why_not_open(BEFORE(), fused)
    assert not why_not_open(BEFORE(), fused, is_primitive)
