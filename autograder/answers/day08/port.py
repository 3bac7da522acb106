"""Hidden cases and answers of day08.port.

Most wrong answers are one working pass from which one piece of care is taken away.
"""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

from autograder.answers.day08._shared import Build, alive, generated
from autograder.authoring.answers import right, wrong
from passlab import models
from passlab.exercises.day08._shared import IMAGE, WEIGHT, conv
from passlab.judge import Case
from passlab.relax import relax, tvm
from passlab.relax.cases import case, module, op
from passlab.tvm.importers import relax_module

# ---------------------------------------------------------------------------------------------------- hidden cases


def zoo(name: str) -> Build:
    """A model of the zoo, with its parameters. It is imported now: an answer's time is not for that."""
    return relax_module(models.ZOO[name].build(), *models.ZOO[name].inputs()).clone


def convolutions(seed: int) -> Build:
    """Convolutions and relus at random: chains, forks, values that are returned."""

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


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def two_relus(e: Any, x: Any, w: Any) -> Any:
        y = e(conv(x, w))
        return e(op.add(e(op.nn.relu(y)), e(op.nn.relu(y))))

    def no_operator(e: Any, x: Any, w: Any) -> Any:
        return e(op.nn.relu(e(e.helper(e(op.nn.relu(e(conv(x, w))))))))

    def helper(e: Any, x: Any) -> Any:
        return e(op.nn.relu(e(op.nn.relu(x))))

    def attributes(e: Any, x: Any, w: Any) -> Any:
        wide = e(op.nn.relu(e(op.nn.conv2d(x, w, dilation=(1, 2), padding=(2, 0, 1, 3)))))
        return e(op.nn.relu(e(op.nn.conv2d(wide, w, strides=(2, 1))))), e(op.nn.conv2d(x, w))

    both = ("did", "spared")
    return [
        case("two relus of one conv", module(two_relus, IMAGE, WEIGHT), *both, run=False),
        case("a call of a function in between", module(no_operator, IMAGE, WEIGHT, helper=helper), *both),
        case("odd attributes", module(attributes, IMAGE, WEIGHT), *both),
        *(case(f"drawn, number {i + 1}", convolutions(rng.randrange(10**6)), *both, run=not i) for i in range(3)),
        case("generated", generated(rng, 14, "conv", "pointwise", "diamond", "tuples", "outputs"), *both, run=False),
        case("a model of the zoo", zoo("residual"), *both),
    ]


# ---------------------------------------------------------------------------------------------------- answers

CONV, RELU = "relax.nn.conv2d", "relax.nn.relu"


def _name(value):
    return value.op.name if isinstance(value, tvm.ir.Call) and isinstance(value.op, tvm.ir.Op) else ""


def _bindings(function):
    return [binding for block in function.body.blocks for binding in block.bindings]


def _reads(function):
    """How often each variable is read, what the function returns included."""
    found = Counter()
    for binding in _bindings(function):
        read = []
        relax.analysis.post_order_visit(
            binding.value, lambda e, read=read: read.append(e) if isinstance(e, relax.Var) else None
        )
        found.update(read)
    if isinstance(function.body.body, relax.Var):
        found[function.body.body] += 1
    return found


def _function(conv, attrs, primitive=True, defaults=False):
    operands = [relax.Var(name, operand.ty) for name, operand in zip(("a", "b"), conv.args, strict=True)]
    builder = relax.BlockBuilder()
    with builder.function("f", operands, attrs={"Primitive": True} if primitive else {}, private=True):
        with builder.dataflow():
            made = relax.op.nn.conv2d(*operands) if defaults else tvm.ir.Call(conv.op, operands, attrs, conv.ty_args)
            result = builder.emit_output(relax.op.nn.relu(builder.emit(made)))
        builder.emit_func_output(result)
    return builder.get()["f"]


USUAL = SimpleNamespace(
    reads=_reads,
    private=lambda variable: isinstance(variable, relax.DataflowVar),
    look=lambda mutator, variable: mutator.lookup_binding(variable),
    high=float("inf"),
    functions=lambda module: [v for v, f in module.functions.items() if isinstance(f, relax.Function)],
    build=_function,
    clips=True,
    joins=True,
    clean=True,
)


def _with(**changes):
    return SimpleNamespace(**{**vars(USUAL), **changes})


@relax.expr_functor.mutator
class _Port(relax.PyExprMutator):
    def visit_call_(self, call):
        how = self.how
        call = self.visit_expr_post_order(call)
        if _name(call) != RELU:
            return call
        operand = call.args[0]
        conv = how.look(self, operand)
        if how.joins and _name(conv) == CONV and how.private(operand) and self.reads[operand] == 1:
            if how.build is None:
                return call
            return tvm.ir.Call(self.builder_.add_func(how.build(conv, conv.attrs), "conv_relu"), conv.args)
        return relax.op.clip(operand, 0, how.high) if how.clips else call


def _port(module, how):
    mutator = _Port(module)
    mutator.how = how
    for variable in how.functions(module):
        mutator.reads = how.reads(module[variable])
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    made = mutator.builder_.get()
    return relax.transform.DeadCodeElimination()(made) if how.clean else made


@right("clips what may not join, then lets FuseOpsByPattern do the rest, with a check that it finds the same ones")
def by_pattern(module):
    clipped = _port(module, _with(build=None))
    pattern = relax.dpl.is_op(RELU)(relax.dpl.is_op(CONV)(relax.dpl.wildcard(), relax.dpl.wildcard()))
    return relax.transform.FuseOpsByPattern([("conv_relu", pattern)], bind_constants=False)(clipped)


@right("goes through the bindings in a loop and writes a new function, without a mutator")
def by_hand(module):
    builder = relax.BlockBuilder(module)
    for variable in USUAL.functions(module):
        function = module[variable]
        reads, values = _reads(function), {b.var: b.value for b in _bindings(function)}
        gone, blocks = set(), []
        for block in function.body.blocks:
            new = []
            for binding in block.bindings:
                value = binding.value
                if _name(value) == RELU:
                    operand = value.args[0]
                    conv = values.get(operand)
                    if _name(conv) == CONV and reads[operand] == 1 and isinstance(operand, relax.DataflowVar):
                        called = builder.add_func(_function(conv, conv.attrs), "conv_relu")
                        gone.add(operand)
                        value = tvm.ir.Call(called, conv.args)
                    else:
                        value = relax.op.clip(operand, 0, float("inf"))
                new.append(relax.VarBinding(binding.var, builder.normalize(value)))
            kept = [binding for binding in new if binding.var not in gone]
            blocks.append(type(block)(kept))
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
    for variable in USUAL.functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(module[variable]))
    return mutator.builder_.get()


@wrong("did", "asks whether the operand itself is a call of conv2d: in Relax it is always a variable")
def operand_is_a_call(module):
    return _port(module, _with(look=lambda mutator, variable: variable))


@wrong("spared", "does not count who reads the convolution")
def ignores_readers(module):
    return _port(module, _with(reads=lambda f: Counter({b.var: 1 for b in _bindings(f)}), private=lambda v: True))


@wrong("spared", "counts readers in the bindings alone: a value that is returned has a reader more")
def forgets_the_output(module):
    return _port(module, _with(reads=_reads_in_calls, private=lambda v: True))


def _reads_in_calls(function):
    """Only calls read: tuples do not."""
    found = Counter()
    for binding in _bindings(function):
        if isinstance(binding.value, tvm.ir.Call):
            found.update(arg for arg in binding.value.args if isinstance(arg, relax.Var))
    return found


@wrong("valid", "takes call.op.name of every call: a call of a function of the module has a GlobalVar there")
def every_call_has_a_name(module):
    for function in (module[v] for v in USUAL.functions(module)):
        for binding in _bindings(function):
            if isinstance(binding.value, tvm.ir.Call):
                binding.value.op.name  # noqa: B018
    return _port(module, USUAL)


@wrong("did", "rewrites main and leaves the module's other functions as they are")
def main_only(module):
    return _port(module, _with(functions=lambda m: [m.get_global_var("main")]))


@wrong("same", "makes a new convolution of the operands and forgets stride, padding, dilation and groups")
def loses_attributes(module):
    return _port(module, _with(build=lambda conv, attrs: _function(conv, attrs, defaults=True)))


@wrong("same", "clips at 6: that is relu6")
def relu_six(module):
    return _port(module, _with(high=6.0))


@wrong("did", "the functions lack the attribute Primitive: nobody will make one kernel of them")
def not_primitive(module):
    return _port(module, _with(build=lambda conv, attrs: _function(conv, attrs, primitive=False)))


@wrong("did", "fuses and does not clip what is left")
def does_not_clip(module):
    return _port(module, _with(clips=False))


@wrong("did", "clips every relu, also the one that should join its convolution")
def clips_all(module):
    return _port(module, _with(joins=False))


@wrong("spared", "leaves the old convolution where it is: it is computed twice")
def leaves_dead_code(module):
    return _port(module, _with(clean=False))


@wrong("valid", "forgets to return the module")
def returns_nothing(module):
    _port(module, USUAL)
