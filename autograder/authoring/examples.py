"""The small exercises that `passlab new` writes: a plain function, and a pass over each IR.

Each works as it is: a reference, a visible case, a hidden one that is drawn, a wrong and a right answer. In the texts,
$id, $name and $title are those of the new exercise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """The texts of an exercise: its cells, the module with its judge, the module with hidden cases and answers."""

    solution: str
    judge: str
    hidden: str
    #: as it is written in the day's list
    points: str
    #: the lines that its cells need above them
    imports: str


# ---------------------------------------------------------------------------------------------------- a plain function

PLAIN = Example(
    solution='''
# %% [markdown]
# ## $title


# %%
def $name(numbers: list[int]) -> list[int]:
    """The numbers twice as large, in the same order. `$name([1, 2])` is `[2, 4]`."""
    ### BEGIN SOLUTION
    return [2 * number for number in numbers]
    ### END SOLUTION


# %%
check("$id", $name)
''',
    judge='''"""$id: visible cases and judge."""

from passlab.judge import Case, Finding


two = Case("two numbers", lambda: ([1, 2],), expect=[2, 4])


def judge(case, value):
    yield Finding("did", value == case.expect, f"Expected {case.expect!r}, got {value!r}.")
''',
    hidden='''"""Hidden cases and answers of $id."""

from autograder.authoring.answers import edited, right
from passlab.judge import Case, drawn


@drawn
def lists(rng):
    numbers = rng.sample(range(3, 100), 5)
    return [Case("drawn", lambda: (numbers,), expect=[2 * number for number in numbers])]


@right("adds each number to itself")
def by_adding(numbers):
    return [number + number for number in numbers]


squared = edited("did", "2 * 2 is 4, so squares will do")(("2 * number", "number**2"))
''',
    points='{"did": 1}',
    imports="",
)

# ---------------------------------------------------------------------------------------------------- a pass over FX

FX = Example(
    solution='''
# %% [markdown]
# ## $title


# %%
def $name(gm: fx.GraphModule) -> fx.GraphModule:
    """-(-x) = x.

    In:  any graph; its nodes have shapes.
    Out: each torch.neg of a torch.neg is replaced by the value that is negated twice.
    Stays: a single torch.neg, and what other nodes read.
    """
    ### BEGIN SOLUTION
    for node in list(gm.graph.nodes):
        if node.target is torch.neg and node.args[0].target is torch.neg:
            node.replace_all_uses_with(node.args[0].args[0])
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("$id", $name)
''',
    judge='''"""$id: visible cases and judge."""

import torch

from passlab.fx.cases import case, expecting, graph, least, most

#: What makes two values equal, and the verdicts that follow from it.
judge = expecting()


@case("negated twice", graph(..., (2, 3)), did=[most("neg", 0, "The two cancel.", dead=True)])
def twice(m, x):
    return torch.relu(torch.neg(torch.neg(x)))


@case("negated once", graph(..., (2, 3)), spared=[least("neg", 2, "Something is between the two.")])
def once(m, x):
    return torch.neg(torch.relu(torch.neg(x)))
''',
    hidden='''"""Hidden cases and answers of $id."""

import torch
from torch import fx

from autograder.authoring.answers import edited, right
from passlab.fx.cases import case, graph, least, most
from passlab.judge import drawn


@drawn
def chains(rng):
    times = rng.randrange(2, 5) * 2
    cancel = most("neg", 0, "All of them cancel.", dead=True)

    @case(f"negated {times} times", graph(..., (3, times)), did=[cancel])
    def often(m, x):
        for _ in range(times):
            x = torch.neg(x)
        return x.abs()

    return [often]


@case("the first is read", graph(..., (2, 2)), spared=[least("neg", 1, "A product reads it.")])
def shared(m, x):
    y = torch.neg(x)
    return y * torch.neg(y)


@right("an interpreter builds the graph anew")
def anew(gm):
    class Shorter(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is torch.neg and args[0].node.target is torch.neg:
                return fx.Proxy(args[0].node.args[0], args[0].tracer)
            return super().call_function(target, args, kwargs)

    result = Shorter(gm).transform()
    result.graph.eliminate_dead_code()
    result.recompile()
    return result


any_neg = edited("same", "one negation is as good as none")(("node.args[0].args[0]", "node.args[0]"))
''',
    points='{"valid": 1, "same": 2, "did": 2, "spared": 1}',
    imports="import torch\nfrom torch import fx\n",
)

# ---------------------------------------------------------------------------------------------------- a pass over Relay

RELAY = Example(
    solution='''
# %% [markdown]
# ## $title


# %%
def $name(mod: tvm.IRModule) -> tvm.IRModule:
    """relu(relu(x)) = relu(x).

    In:  a module with types.
    Out: a new module, in which no relu reads the result of a relu.
    Stays: a relu that reads anything else.
    """
    ### BEGIN SOLUTION
    relu = relay.op.get("nn.relu")

    class Shorter(relay.ExprMutator):
        def visit_call(self, call):
            call = super().visit_call(call)
            value = call.args[0]
            if call.op == relu and isinstance(value, relay.Call) and value.op == relu:
                return value
            return call

    functions = {var: Shorter().visit(f) for var, f in mod.functions.items()}
    return relay.transform.InferType()(tvm.IRModule(functions))
    ### END SOLUTION


# %%
check("$id", $name)
''',
    judge='''"""$id: visible cases and judge."""

from passlab.relay import relay
from passlab.relay.cases import case, expecting, least, most, program

#: What makes two values equal, and the verdicts that follow from it.
judge = expecting()


@case("relu twice", program(..., (2, 3)), did=[most("nn.relu", 1, "The second changes nothing.")])
def twice(x):
    return relay.tanh(relay.nn.relu(relay.nn.relu(x)))


@case("a tanh between", program(..., (2, 3)), spared=[least("nn.relu", 2, "The second reads a tanh.")])
def once(x):
    return relay.nn.relu(relay.tanh(relay.nn.relu(x)))
''',
    hidden='''"""Hidden cases and answers of $id."""

from autograder.authoring.answers import edited, right
from passlab.judge import drawn
from passlab.relay import relay, tvm
from passlab.relay.cases import case, least, most, program


@drawn
def chains(rng):
    times = rng.randrange(3, 6)
    first = most("nn.relu", 1, "Only the first changes anything.")

    @case(f"relu {times} times", program(..., (2, times)), did=[first])
    def often(x):
        for _ in range(times):
            x = relay.nn.relu(x)
        return relay.exp(x)

    return [often]


@case("two values", program(..., (2, 2), (2, 2)), spared=[least("nn.relu", 2, "They read different values.")])
def beside(x, y):
    return relay.nn.relu(x) + relay.nn.relu(y)


@right("a pattern and its callback")
def by_pattern(mod):
    patterns = relay.dataflow_pattern

    class Shorter(patterns.DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.inner = patterns.is_op("nn.relu")(patterns.wildcard())
            self.pattern = patterns.is_op("nn.relu")(self.inner)

        def callback(self, pre, post, matched):
            return matched[self.inner][0]

    functions = {var: patterns.rewrite(Shorter(), f) for var, f in mod.functions.items()}
    return relay.transform.InferType()(tvm.IRModule(functions))


both = edited("same", "takes two relus for none")(("return value", "return value.args[0]"))
''',
    points='{"valid": 1, "same": 2, "did": 2, "spared": 1}',
    imports="from passlab.relay import relay, tvm\n",
)

# ---------------------------------------------------------------------------------------------------- a pass over Relax

RELAX = Example(
    solution='''
# %% [markdown]
# ## $title


# %%
def $name(mod: tvm.IRModule) -> tvm.IRModule:
    """relu(relu(x)) = relu(x).

    In:  a module; each function has one dataflow block.
    Out: a new module, in which no relu reads the result of a relu.
    Stays: a relu that reads anything else.
    """
    ### BEGIN SOLUTION
    relu = tvm.ir.Op.get("relax.nn.relu")

    @relax.expr_functor.mutator
    class Shorter(relax.PyExprMutator):
        def visit_call_(self, call):
            call = self.visit_expr_post_order(call)
            value = call.args[0]
            while isinstance(value, relax.Var):
                value = self.lookup_binding(value)
            if call.op == relu and isinstance(value, relax.Call) and value.op == relu:
                return call.args[0]
            return call

    shorter = Shorter(mod)
    for variable, function in mod.functions.items():
        if isinstance(function, relax.Function):
            shorter.builder_.update_func(variable, shorter.visit_expr(function))
    return shorter.builder_.get()
    ### END SOLUTION


# %%
check("$id", $name)
''',
    judge='''"""$id: visible cases and judge."""

from passlab.relax.cases import case, expecting, least, module, most, op

#: What makes two values equal, and the verdicts that follow from it.
judge = expecting()


@case("relu twice", module(..., (2, 3)), did=[most("relax.nn.relu", 1, "The second changes nothing.")])
def twice(emit, x):
    return op.tanh(emit(op.nn.relu(emit(op.nn.relu(x)))))


@case("a tanh between", module(..., (2, 3)), spared=[least("relax.nn.relu", 2, "The second reads a tanh.")])
def once(emit, x):
    return op.nn.relu(emit(op.tanh(emit(op.nn.relu(x)))))
''',
    hidden='''"""Hidden cases and answers of $id."""

from autograder.authoring.answers import edited, right
from passlab.judge import drawn
from passlab.relax import relax, tvm
from passlab.relax.cases import case, least, module, most, op
from passlab.tvm.judge import counts


@drawn
def chains(rng):
    times = rng.randrange(3, 6)
    first = most("relax.nn.relu", 1, "Only the first changes anything.")

    @case(f"relu {times} times", module(..., (2, times)), did=[first])
    def often(emit, x):
        for _ in range(times):
            x = emit(op.nn.relu(x))
        return op.exp(x)

    return [often]


@case("two values", module(..., (2, 2), (2, 2)), spared=[least("relax.nn.relu", 2, "They read different values.")])
def beside(emit, x, y):
    return op.add(emit(op.nn.relu(x)), emit(op.nn.relu(y)))


@right("a pattern, as often as there are relus")
def by_pattern(mod):
    inner = relax.dpl.is_op("relax.nn.relu")(relax.dpl.wildcard())
    outer = relax.dpl.is_op("relax.nn.relu")(inner)
    for _ in range(counts(mod)["relax.nn.relu"]):
        main = relax.dpl.rewrite_call(outer, lambda call, matched: matched[inner], mod["main"])
        mod = relax.transform.DeadCodeElimination()(tvm.IRModule({"main": main}))
    return mod


both = edited("same", "takes two relus for none")(("return call.args[0]", "return value.args[0]"))
''',
    points='{"valid": 1, "same": 2, "did": 2, "spared": 1}',
    imports="from passlab.relax import relax, tvm\n",
)

# ---------------------------------------------------------------------------------------------------- a pass over MLIR

MLIR = Example(
    solution='''
# %% [markdown]
# ## $title


# %%
def $name(module: ModuleOp) -> ModuleOp:
    """x + 0 = x.

    In:  a module of functions on integers; zeros are on the right of sums.
    Out: the same module, in which no arith.addi adds the constant 0.
    Stays: every other arith.addi.
    """
    ### BEGIN SOLUTION
    for op in list(module.walk()):
        if op.name == "arith.addi" and number(op.rhs) == 0:
            Rewriter.replace_op(op, [], [op.lhs])
    return module
    ### END SOLUTION


# %%
check("$id", $name)
''',
    judge='''"""$id: visible cases and judge."""

from passlab.mlir.cases import case, expecting, least, most, program

#: What makes two values equal, and the verdicts that follow from it.
judge = expecting()

zero = case(
    "a zero is added",
    program("""
        func.func @main(%x: i32) -> i32 {
          %zero = arith.constant 0 : i32
          %sum = arith.addi %x, %zero : i32
          %product = arith.muli %sum, %sum : i32
          return %product : i32
        }
    """),
    did=[most("arith.addi", 0, "It adds nothing.")],
)

one = case(
    "a one is added",
    program("""
        func.func @main(%x: i32) -> i32 {
          %one = arith.constant 1 : i32
          %sum = arith.addi %x, %one : i32
          return %sum : i32
        }
    """),
    spared=[least("arith.addi", 1, "The constant is not 0.")],
)
''',
    hidden='''"""Hidden cases and answers of $id."""

from xdsl.pattern_rewriter import RewritePattern

from autograder.authoring.answers import edited, right
from passlab.judge import drawn
from passlab.mlir.cases import case, least, most, program
from passlab.mlir.rewriting import number, rewrite


def sums(*numbers):
    """Return the text of a module: x plus the first number, plus the second, and so on."""
    lines = []
    for at, value in enumerate(numbers, 1):
        lines.append(f"%c{at} = arith.constant {value} : i32")
        lines.append(f"%v{at} = arith.addi %v{at - 1}, %c{at} : i32")
    body = " ".join(lines)
    return f"func.func @main(%v0: i32) -> i32 {{ {body} return %v{len(numbers)} : i32 }}"


@drawn
def chains(rng):
    times = rng.randrange(2, 5)
    other = rng.randrange(2, 100)
    return [
        case(f"{times} zeros", program(sums(*[0] * times)), did=[most("arith.addi", 0, "All add nothing.")]),
        case(f"plus {other}", program(sums(other)), spared=[least("arith.addi", 1, f"It adds {other}.")]),
    ]


@right("a pattern, and the driver")
def by_pattern(module):
    class PlusZero(RewritePattern):
        def match_and_rewrite(self, op, rewriter):
            if op.name == "arith.addi" and number(op.rhs) == 0:
                rewriter.replace(op, [], [op.lhs])

    rewrite(module, [PlusZero()])
    return module


any_number = edited("same", "takes every constant for 0")(("number(op.rhs) == 0", "number(op.rhs) is not None"))
''',
    points='{"valid": 1, "same": 2, "did": 2, "spared": 1}',
    imports="""from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from passlab.mlir.rewriting import number
""",
)

#: The IR of a pass → the exercise.
OF_IR = {"fx": FX, "relay": RELAY, "relax": RELAX, "mlir": MLIR}
