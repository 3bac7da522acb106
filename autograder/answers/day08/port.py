"""Hidden cases and answers of day08.port.

Most wrong answers are the reference with one check left out.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

import numpy as np

from autograder.answers.day08._shared import Build, alive, generated
from autograder.authoring.answers import Edit, edited, right, something_to_do, wrong
from passlab import models
from passlab.exercises.day08._shared import IMAGE, WEIGHT, conv
from passlab.judge import Case, cases_in
from passlab.relax import relax, tvm
from passlab.relax.cases import case, module, op
from passlab.tvm.importers import relax_module

# ---------------------------------------------------------------------------------------------------- hidden cases


def zoo(name: str) -> Build:
    """Return a model of the zoo, with its parameters. It is imported now: an answer's time is not for that."""
    return relax_module(models.ZOO[name].build(), *models.ZOO[name].inputs()).clone


def convolutions(seed: int) -> Build:
    """Return convolutions and relus at random: chains, forks, values that are returned."""

    def body(e: Any, x: Any, w: Any) -> Any:
        rng = random.Random(seed)
        values = [x, e(op.nn.relu(e(conv(x, w))))]
        for _ in range(6):
            kind, value = rng.choice("ccrrsa"), rng.choice(values[-3:])
            if kind == "c":
                values.append(e(conv(value, w)))
                if rng.random() < 0.7:
                    values.append(e(op.nn.relu(values[-1])))
            elif kind == "r":
                values.append(e(op.nn.relu(value)))
            else:
                values.append(e(op.sigmoid(value) if kind == "s" else op.add(value, rng.choice(values))))
        return values[-1], rng.choice(values[1:])

    return alive(module(body, IMAGE, WEIGHT))


def helper(e: Any, x: Any) -> Any:
    return e(op.nn.relu(e(op.nn.relu(x))))


def conv_helper(e: Any, x: Any) -> Any:
    kernel = relax.const(np.random.default_rng(0).standard_normal(WEIGHT).astype("float32"))
    y, z = e(conv(e(op.nn.relu(e(conv(x, kernel)))), kernel)), e(conv(x, kernel))
    return e(op.add(e(op.add(y, e(op.nn.relu(y)))), e(op.nn.relu(z))))


BOTH = ("did", "spared")
SQUARE = (4, 4, 4, 4)


@case("convolutions in another function", module(..., IMAGE, WEIGHT, helper=conv_helper), *BOTH, run=False)
def helpers_convs(e: Any, x: Any, w: Any) -> Any:
    return e(op.nn.relu(e(conv(e(e.helper(x)), w))))


@case("channels last", module(..., (1, 6, 6, 4), (3, 3, 4, 4)))
def channels_last(e: Any, x: Any, w: Any) -> Any:
    return e(op.nn.relu(e(conv(x, w, data_layout="NHWC", kernel_layout="HWIO"))))


@case("a result in another layout", module(..., IMAGE, WEIGHT), run=False)
def turned(e: Any, x: Any, w: Any) -> Any:
    return e(op.nn.relu(e(conv(x, w, out_layout="NHWC"))))


@case("sums of another type", module(..., (IMAGE, "float16"), (WEIGHT, "float16")), run=False)
def wide_sums(e: Any, x: Any, w: Any) -> Any:
    return e(op.nn.relu(e(conv(x, w, out_dtype="float32"))))


@case("convolutions of other dimensions", module(..., (1, 4, 6), (4, 4, 3), IMAGE, WEIGHT), *BOTH, run=False)
def other_dimensions(e: Any, x: Any, w: Any, y: Any, v: Any) -> Any:
    back = e(op.nn.relu(e(op.nn.conv2d_transpose(y, v))))
    return e(op.nn.relu(e(op.nn.conv1d(x, w)))), e(op.nn.relu(e(conv(back, v))))


@case("two relus of one conv", module(..., IMAGE, WEIGHT), *BOTH, run=False)
def two_relus(e: Any, x: Any, w: Any) -> Any:
    y = e(conv(x, w))
    return e(op.add(e(op.nn.relu(y)), e(op.nn.relu(y))))


@case("a call of a function in between", module(..., IMAGE, WEIGHT, helper=helper), *BOTH)
def no_operator(e: Any, x: Any, w: Any) -> Any:
    return e(op.nn.relu(e(e.helper(e(op.nn.relu(e(conv(x, w))))))))


@case("two dataflow blocks", ..., *BOTH)
def two_blocks() -> tvm.IRModule:
    builder, (x, w) = (
        relax.BlockBuilder(),
        (relax.Var(n, relax.TensorType(s)) for n, s in (("x", IMAGE), ("w", WEIGHT))),
    )
    with builder.function("main", [x, w]):
        with builder.dataflow():
            first = builder.emit(op.nn.relu(builder.emit(conv(x, w))))
            left = builder.emit_output(conv(first, w))
        half = builder.emit(op.sigmoid(x))  # blocks that follow each other become one
        with builder.dataflow():
            joined = builder.emit(op.nn.relu(builder.emit(conv(builder.emit(op.nn.relu(left)), w))))
            result = builder.emit_output(op.add(joined, half))
        builder.emit_func_output(result)
    return builder.get()


@case("odd attributes", module(..., IMAGE, WEIGHT))
def attributes(e: Any, x: Any, w: Any) -> Any:
    wide = e(op.nn.relu(e(op.nn.conv2d(x, w, dilation=(1, 2), padding=(2, 0, 1, 3)))))
    return e(op.nn.relu(e(op.nn.conv2d(wide, w, strides=(2, 1))))), e(op.nn.conv2d(x, w))


@case(
    "attributes that no type shows",
    module(..., SQUARE, SQUARE, (SQUARE, "float16"), (SQUARE, "float16")),
    *BOTH,
    run=False,
)
def summed(e: Any, x: Any, w: Any, y: Any, v: Any) -> Any:
    """Return sums, which have the same type if an attribute of the convolution before is lost."""
    hows = [{"dilation": (1, 2)}, {"strides": (2, 1)}, {"data_layout": "NHWC", "kernel_layout": "HWIO"}]
    values = [e(op.nn.conv2d(x, w, padding=3, **how)) for how in hows]
    values.append(e(op.nn.conv2d(y, v, out_dtype="float32")))
    return tuple(e(op.astype(e(op.sum(e(op.nn.relu(value)))), "float64")) for value in values)


def _primitive(main: Any, body: Any) -> tvm.IRModule:
    """Return a module whose function `helper` has the attribute Primitive."""
    built = module(main, IMAGE, WEIGHT, helper=body)()
    variable = built.get_global_var("helper")
    built.update_func(variable, built[variable].with_attr("Primitive", True))
    return built


def calls_primitive(e: Any, x: Any, w: Any) -> Any:
    return e(op.nn.relu(e(conv(e(e.helper(e(op.nn.relu(x)))), w))))


def joined_before(e: Any, x: Any) -> Any:
    kernel = relax.const(np.random.default_rng(0).standard_normal(WEIGHT).astype("float32"))
    return e(op.nn.relu(e(conv(x, kernel))))


def relu_before(e: Any, x: Any) -> Any:
    return e(op.nn.relu(e(op.negative(x))))


@case("a primitive function with a convolution", ..., *BOTH, run=False)
def primitive_conv() -> tvm.IRModule:
    return _primitive(calls_primitive, joined_before)


@case("a primitive function with a relu of another value", ..., *BOTH)
def primitive_relu() -> tvm.IRModule:
    return _primitive(calls_primitive, relu_before)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def drawn(i: int) -> Case:
        return case(f"drawn, number {i + 1}", convolutions(rng.randrange(10**6)), *BOTH, run=not i)

    def of_any_kind() -> Case:
        features = ("conv", "pointwise", "diamond", "tuples", "outputs")
        return case("generated", generated(rng, 14, *features), *BOTH, run=False)

    return [
        *cases_in(__name__),
        *(something_to_do("day08.port", partial(drawn, i)) for i in range(3)),
        something_to_do("day08.port", of_any_kind),
        case("a model of the zoo", zoo("residual"), *BOTH),
    ]


EQUIVALENT = {
    (
        'isinstance(function, relax.Function) and "Primitive" not in (function.attrs or {})',
        '"Primitive" not in (function.attrs or {})',
    ): "the modules hold operators and no kernels",
    ("call = self.visit_expr_post_order(call)", "pass"): "operands are variables, and none changes its type",
    ("isinstance(value, relax.Var)", "True"): "nothing asks how often something else is used",
    ("note(function.body.body)", "pass"): "what leaves the function is no DataflowVar, so it is not hidden anyway",
}


# ---------------------------------------------------------------------------------------------------- answers

in_main_alone = edited("did", "counts readers in main alone, and clips what other functions hold")(
    ("mutator.readers = reads(function)", 'mutator.readers = reads(module["main"])')
)
_ATTRIBUTES = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout", "out_dtype")


def _anew(what: str, *attributes: str) -> Edit:
    """Return the answer that makes the convolution anew and leaves out these attributes."""
    kept = [name for name in _ATTRIBUTES if name not in attributes]
    anew = ", ".join(f"{name}=conv.attrs.{name}{' or None' * (name == 'out_dtype')}" for name in kept)
    return edited("valid", f"makes the convolution anew and leaves out {what}")(
        ("tvm.ir.Call(conv.op, operands, conv.attrs, conv.ty_args)", f"relax.op.nn.conv2d(*operands, {anew})")
    )


default_layouts = _anew("its layouts", "data_layout", "kernel_layout", "out_layout")
default_dilation = _anew("its dilation", "dilation")
default_out_layout = _anew("the layout of its result", "out_layout")
default_dtype = _anew("the dtype of its result", "out_dtype")
plain_ones = edited("did", "fuses no convolution with strides or dilation")(
    (
        'operator(conv) != "relax.nn.conv2d"',
        'operator(conv) != "relax.nn.conv2d" or max(*conv.attrs.strides, *conv.attrs.dilation) > 1',
    )
)

CONV, RELU = "relax.nn.conv2d", "relax.nn.relu"


def _name(value):
    return value.op.name if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op) else ""


def _bindings(function):
    return [binding for block in function.body.blocks for binding in block.bindings]


def _reads(function):
    """Return how often each variable is read, what the function returns included."""
    counts = Counter()
    for binding in _bindings(function):
        read = []
        relax.analysis.post_order_visit(
            binding.value, lambda e, read=read: read.append(e) if isinstance(e, relax.Var) else None
        )
        counts.update(read)
    if isinstance(function.body.body, relax.Var):
        counts[function.body.body] += 1
    return counts


def _functions(module):
    """Return the variables of the functions that are not primitive."""
    return [
        variable
        for variable, function in module.functions.items()
        if isinstance(function, relax.Function) and "Primitive" not in (function.attrs or {})
    ]


@relax.expr_functor.mutator
class _Clips(relax.PyExprMutator):
    """Clips where no convolution may join. `reads`: of the function that is visited."""

    def visit_call_(self, call):
        call = self.visit_expr_post_order(call)
        if _name(call) != RELU:
            return call
        operand = call.args[0]
        joins = isinstance(operand, relax.DataflowVar) and self.reads[operand] == 1
        joins = joins and _name(self.lookup_binding(operand)) == CONV
        return call if joins else relax.op.clip(operand, 0, float("inf"))


@right("clips what may not join, then lets FuseOpsByPattern do the rest, with a check that it finds the same ones")
def by_pattern(module):
    mutator = _Clips(module)
    for variable in _functions(module):
        mutator.reads = _reads(module[variable])
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    clipped = relax.transform.DeadCodeElimination()(mutator.builder_.get())
    pattern = relax.dpl.is_op(RELU)(relax.dpl.is_op(CONV)(relax.dpl.wildcard(), relax.dpl.wildcard()))
    return relax.transform.FuseOpsByPattern([("conv_relu", pattern)], bind_constants=False)(clipped)


def _function(conv):
    operands = [relax.Var(name, operand.ty) for name, operand in zip(("a", "b"), conv.args, strict=True)]
    builder = relax.BlockBuilder()
    with builder.function("f", operands, attrs={"Primitive": True}, private=True):
        with builder.dataflow():
            call = builder.emit(tvm.ir.Call(conv.op, operands, conv.attrs, conv.ty_args))
            result = builder.emit_output(relax.op.nn.relu(call))
        builder.emit_func_output(result)
    return builder.get()["f"]


@right("goes through the bindings in a loop and writes a new function, without a mutator")
def by_hand(module):
    builder = relax.BlockBuilder(module)
    for variable in _functions(module):
        function = module[variable]
        reads, values = _reads(function), {b.var: b.value for b in _bindings(function)}
        joined, blocks = set(), []
        for block in function.body.blocks:
            new = []
            for binding in block.bindings:
                value = binding.value
                if _name(value) == RELU:
                    operand = value.args[0]
                    conv = values.get(operand)
                    if _name(conv) == CONV and reads[operand] == 1 and isinstance(operand, relax.DataflowVar):
                        called = builder.add_func(_function(conv), "conv_relu")
                        joined.add(operand)
                        value = tvm.ir.Call(called, conv.args)
                    else:
                        value = relax.op.clip(operand, 0, float("inf"))
                new.append(relax.VarBinding(binding.var, builder.normalize(value)))
            bindings = [binding for binding in new if binding.var not in joined]
            blocks.append(type(block)(bindings))
        body = relax.SeqExpr(blocks, function.body.body)
        new = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
        builder.update_func(variable, new)
    return relax.transform.Normalize()(builder.get())


@wrong("did", "overrides visit_call: it is never called, and the module comes back as it was")
def no_underscore(module):
    @relax.expr_functor.mutator
    class Silent(relax.PyExprMutator):
        def visit_call(self, call):
            return relax.op.clip(call.args[0], 0, float("inf")) if _name(call) == RELU else call

    mutator = Silent(module)
    for variable in _functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return mutator.builder_.get()


operand_is_a_call = edited(
    "did", "asks whether the operand itself is a call of conv2d: in Relax it is a variable, and all is clipped"
)(("self.lookup_binding(call.args[0])", "call.args[0]"))
ignores_readers = edited("spared", "does not count who reads the convolution")(
    ("isinstance(call.args[0], relax.DataflowVar) and self.readers[call.args[0]] == 1", "True")
)
forgets_the_output = edited(
    "spared", "counts readers in the bindings alone: a value that is returned has a reader more"
)(
    ("... and self.readers[call.args[0]] == 1", "self.readers[call.args[0]] == 1"),
    ("...(binding.value, note)", "isinstance(binding.value, tvm.ir.Call) and ...(binding.value, note)"),
    ("note(function.body.body)", ""),
)
every_call_has_a_name = edited(
    "valid", "takes call.op.name of every call: a call of a function of the module has a GlobalVar there"
)(("... and isinstance(value.op, tvm.ir.Op)", "..."))
main_only = edited("did", "rewrites main and leaves the module's other functions as they are")(
    ("isinstance(function, relax.Function)", 'variable.name_hint == "main"')
)
every_function = edited("spared", "goes into primitive functions as well")(
    ('... and "Primitive" not in (function.attrs or {})', "...")
)
loses_attributes = edited(
    "same", "makes a new convolution without stride, padding, dilation and groups, or forgets Primitive"
)(("tvm.ir.Call(conv.op, operands, conv.attrs, conv.ty_args)", "relax.op.nn.conv2d(*operands)"))
any_convolution = edited("did", "takes conv1d and conv2d_transpose for conv2d")(
    ('operator(conv) != "relax.nn.conv2d"', 'not operator(conv).startswith("relax.nn.conv")')
)
relu_six = edited("same", "clips at 6: that is relu6")(('call.args[0], 0, float("inf")', "call.args[0], 0, 6.0"))
does_not_clip = edited("did", "fuses and does not clip what is left, or clips off the inf that relu keeps")(
    ('relax.op.clip(call.args[0], 0, float("inf"))', "call")
)
leaves_dead_code = edited("spared", "leaves the old convolution where it is: it is computed twice")(
    ("relax.transform.DeadCodeElimination()(mutator.builder_.get())", "mutator.builder_.get()")
)
returns_nothing = edited("valid", "forgets to return the module")(("return ...(....get())", "...(....get())"))
