"""Hidden cases and answers of day01.read-relay."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np

from autograder.authoring.answers import edited, right, wrong
from passlab import models
from passlab.exercises.day01.read_relay import case, ladder, reads, typed
from passlab.judge import Case
from passlab.relay import relay, tvm
from passlab.relay.generate import random_relay
from passlab.tvm.importers import relay_module

# ---------------------------------------------------------------------------------------------------- hidden cases


def _zoo(name: str, bind: bool, fuse: bool = False) -> Callable[[], tvm.IRModule]:
    def build() -> tvm.IRModule:
        net = models.ZOO[name]
        module = relay_module(net.build(), *net.inputs(), bind=bind)
        if not bind:
            module = module[0]
        return relay.transform.FuseOps(2)(module) if fuse else module

    return build


def _generated(seed: int, size: int) -> Callable[[], tvm.IRModule]:
    return lambda: relay.transform.InferType()(random_relay(seed, size, ("pointwise", "diamond", "tuples", "outputs")))


def _returned() -> tvm.IRModule:
    """Return an input that main hands out as it came, and items of a tuple."""
    flags, x = relay.var("flags", shape=(7,), dtype="bool"), relay.var("x", shape=(4, 6), dtype="int16")
    parts = relay.split(x, 2, axis=1)
    table = relay.const(np.arange(3, dtype="int64"))
    return typed(relay.Tuple([flags, parts[0], parts[1], parts[0], table, table]), flags, x)


def _tuples() -> tvm.IRModule:
    """Return parameters that are tuples, one inside the other."""
    pair = relay.TupleType([relay.TensorType((2, 3), "float16"), relay.TensorType((), "int64")])
    x = relay.var("x", shape=(2, 3), dtype="float16")
    state = relay.Var("state", pair)
    nested = relay.Var("nested", relay.TupleType([pair, relay.TensorType((5,), "bool")]))
    first = relay.TupleGetItem(state, 0)
    inner = relay.TupleGetItem(relay.TupleGetItem(nested, 0), 0)
    return typed(relay.Tuple([relay.add(first, x), relay.multiply(first, inner), state]), x, state, nested)


def _identity() -> tvm.IRModule:
    x, other = relay.var("x", shape=(3, 3)), relay.var("other", shape=(1,))
    return typed(x, x, other)


def _names() -> tvm.IRModule:
    """Return functions whose parameters are named like main's, and operators that are called in two places."""
    x, y = relay.var("x", shape=(2, 2)), relay.var("y", shape=(2, 2))
    inner = [relay.var("x", shape=(2, 2)), relay.var("y", shape=(2, 2))]
    one = relay.Function(inner, relay.add(relay.add(inner[0], inner[0]), inner[1]))
    one = one.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    return typed(relay.add(one(y, y), relay.nn.relu(x)), x, y)


def _called_twice() -> tvm.IRModule:
    """Return one function that is called in two places: it holds a constant, and two expressions read its parameter."""
    kind = relay.TensorType((2, 3), "float16")
    x, pair, inner = relay.Var("x", kind), relay.Var("pair", relay.TupleType([kind, kind])), relay.Var("inner", kind)
    shifted = relay.add(relay.exp(inner), relay.const(np.full((3,), 0.5, "float16")))
    function = relay.Function([inner], relay.multiply(shifted, inner))
    function = function.with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    first = relay.TupleGetItem(pair, 0)
    return typed(relay.subtract(function(x), relay.subtract(function(first), first)), x, pair)


def _equal_calls() -> tvm.IRModule:
    """Return two calls of an operator on the same tensor, and two of these sums."""
    x = relay.var("x", shape=(2, 3))
    one, two = (relay.add(relay.tanh(x), relay.tanh(x)) for _ in range(2))
    return typed(relay.subtract(one, two), x)


def _equal_constants() -> tvm.IRModule:
    """Return two constants of the same numbers."""
    x = relay.var("x", shape=(2, 3))
    one, two = (relay.const(np.full((3,), 0.5, "float32")) for _ in range(2))
    return typed(relay.multiply(relay.add(x, one), two), x)


def _empty() -> tvm.IRModule:
    """Return a parameter without elements, read beside one with some."""
    x, empty = relay.var("x", shape=(2, 3)), relay.var("empty", shape=(0, 3))
    return typed(relay.concatenate([x, empty], axis=0), x, empty)


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [
        case("a parameter is returned", _returned),
        case("nothing but a parameter", _identity),
        case("names that mislead", _names),
        case("parameters that are tuples", _tuples),
        case("a function that is called twice", _called_twice),
        case("equal calls", _equal_calls),
        case("equal constants", _equal_constants),
        case("no elements", _empty),
        case("a longer ladder", lambda: ladder(14)),
        case("a convolutional network", _zoo("convnet", bind=True)),
        case("attention, weights as parameters", _zoo("attention", bind=False)),
        case("a network after fusion", _zoo("residual", bind=True, fuse=True)),
        *(case(f"generated {i}", _generated(rng.randrange(10**6), rng.randint(8, 16))) for i in range(3)),
    ]


# ---------------------------------------------------------------------------------------------------- answers


def _all(main):
    nodes = []
    relay.analysis.post_order_visit(main, nodes.append)
    return nodes


def _once_per_use(main):
    """Return the expressions as a tree has them."""
    nodes, stack = [], [main]
    while stack:
        e = stack.pop()
        nodes.append(e)
        stack += [*reads(e), *([e.op] if isinstance(e, relay.Call) else [])]
        stack += [e.body] if isinstance(e, relay.Function) else []
    return nodes


def _outside(main):
    """Return the expressions that are not in a function inside main."""
    nodes, stack = {}, [main.body]
    while stack:
        e = stack.pop()
        if e not in nodes:
            nodes[e] = None
            stack += reads(e)
    return list(nodes)


def _is_operator(e):
    return isinstance(e, relay.Call) and isinstance(e.op, tvm.ir.Op)


def _bytes(parameter):
    tensors, total = [parameter.checked_type], 0
    for kind in tensors:
        if isinstance(kind, tvm.ir.TupleType):
            tensors += kind.fields
        else:
            shape = [int(dim) for dim in kind.shape]
            total += int(np.prod(shape, dtype=np.int64)) * np.dtype(kind.dtype).itemsize
    return total


def _readers(main, nodes):
    counts = {parameter: int(main.body == parameter) for parameter in main.params}
    for e in nodes:
        for parameter in {r for r in reads(e) if r in counts}:
            counts[parameter] += 1
    return {parameter.name_hint: number for parameter, number in counts.items()}


def _read(module, operators=None):
    main = module["main"]
    nodes = _all(main)
    return {
        "operators": dict(Counter(e.op.name for e in (operators or _all)(main) if _is_operator(e))),
        "readers": _readers(main, nodes),
        "parameters": {parameter.name_hint: _bytes(parameter) for parameter in main.params},
        "constants": sum(e.data.numpy().nbytes for e in nodes if isinstance(e, relay.Constant)),
    }


@right("collects all expressions first, and asks them afterwards")
def by_list(module):
    return _read(module)


@right("a visitor with a method per kind of expression")
def by_visitor(module):
    class Visitor(relay.ExprVisitor):
        def __init__(self):
            super().__init__()
            self.operators, self.readers, self.constants = Counter(), Counter(), 0

        def reads(self, operands):
            self.readers.update({r for r in operands if isinstance(r, relay.Var)})

        def visit_call(self, call):
            if isinstance(call.op, tvm.ir.Op):
                self.operators[call.op.name] += 1
            self.reads(call.args)
            super().visit_call(call)

        def visit_tuple(self, tup):
            self.reads(tup.fields)
            super().visit_tuple(tup)

        def visit_tuple_getitem(self, item):
            self.reads([item.tuple_value])
            super().visit_tuple_getitem(item)

        def visit_constant(self, constant):
            self.constants += constant.data.numpy().nbytes

    main, visitor = module["main"], Visitor()
    visitor.reads([main.body])
    visitor.visit(main)
    return {
        "operators": visitor.operators,
        "readers": {parameter.name_hint: visitor.readers[parameter] for parameter in main.params},
        "parameters": {parameter.name_hint: _bytes(parameter) for parameter in main.params},
        "constants": visitor.constants,
    }


@wrong("spared", "walks the tree of operands: what is shared is counted at every use")
def every_use(module):
    return _read(module, operators=_once_per_use)


@wrong("did", "looks at main alone: what fusion put into functions is not seen")
def main_only(module):
    return _read(module, operators=_outside)


@wrong("did", "counts equal calls as one, though nothing says that they are shared")
def equal_as_one(module):
    return _read(module, operators=lambda main: {tvm.ir.structural_hash(e, True): e for e in _all(main)}.values())


first_of_tuple = edited("did", "counts the first tensor of a tuple only")(
    ("sum(map(size, kind.fields))", "size(kind.fields[0])")
)
reads_not_readers = edited("spared", "counts reads, not readers: multiply(x, x) reads x twice and is one reader")(
    ("set(reads(e))", "list(reads(e))")
)
calls_only = edited("did", "counts only calls as readers, and forgets tuples")(
    ("set(reads(e))", "set(reads(e)) if isinstance(e, relay.Call) else ()")
)
by_name = edited("spared", "finds readers by name: takes the parameters of functions inside main for main's")(
    ("Counter([main.body])", 'Counter([getattr(main.body, "name_hint", None)])'),
    ("set(reads(e))", "{r.name_hint for r in reads(e) if isinstance(r, relay.Var)}"),
    ("readers[p]", "readers[p.name_hint]"),
)
four_bytes = edited("did", "takes four bytes for every element, whatever the dtype")(
    ("np.dtype(kind.dtype).itemsize", "4")
)
constants_per_use = edited("spared", "adds up a constant at every use; it is stored once")(
    ("if isinstance(e, relay.Constant): ...", "for c in (c for c in reads(e) if isinstance(c, relay.Constant)): ..."),
    ("e.data", "c.data"),
)
constants_by_value = edited("did", "counts constants of the same numbers once, though each of them is stored")(
    ("constants.append(e.data.numpy().nbytes)", "constants.append(e.data.numpy().tobytes())"),
    ("sum(constants)", "sum(map(len, set(constants)))"),
)
never_empty = edited("did", "takes an element at least for a tensor")(
    ("np.prod([int(dim) for dim in kind.shape])", "np.prod([int(dim) or 1 for dim in kind.shape])")
)
every_call_of_a_function = edited("spared", "counts what is in a function once for each of its calls")(
    (
        "relay.analysis.post_order_visit(main, look)",
        """
        relay.analysis.post_order_visit(main, look)
        there = []
        relay.analysis.post_order_visit(main, there.append)
        called = [e.op for e in there if isinstance(e, relay.Call) and isinstance(e.op, relay.Function)]
        for function in (f for at, f in enumerate(called) if f in called[:at]):
            relay.analysis.post_order_visit(function, look)
        """,
    )
)
idle_left_out = edited("valid", "lists only the parameters that are used")(
    ("{p.name_hint: readers[p] for p in main.params}", "{p.name_hint: readers[p] for p in main.params if readers[p]}")
)
all_calls = edited("valid", "takes every call for a call of an operator, though it may call a function")(
    ("... and isinstance(e.op, tvm.ir.Op)", "...")
)

EQUIVALENT = {
    ("dict(operators)", "operators"): "a Counter is a dict",
}
