"""Day 7: programs drawn as recipes, for the hidden cases of the passes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from autograder.authoring.answers import reference, something_to_do
from passlab.judge import Case, as_decorator
from passlab.judge.expect import Expectation
from passlab.relay import relay, tvm
from passlab.relay.cases import case, field, number, weight
from passlab.tvm.judge import counts

UNARY = {
    "tanh": relay.tanh,
    "relu": relay.nn.relu,
    "sigmoid": relay.sigmoid,
    "softmax 0": lambda x: relay.nn.softmax(x, axis=0),
    "softmax 1": lambda x: relay.nn.softmax(x, axis=1),
    "leaky": lambda x: relay.nn.leaky_relu(x, 0.3),
    "plus one": lambda x: x + number(1),
    "times row": lambda x: x * weight(4, seed=3),
    "left half": lambda x: relay.concatenate([field(relay.split(x, 2, axis=1).astuple(), 0)] * 2, axis=1),
}
BINARY = {"add": relay.add, "subtract": relay.subtract, "maximum": relay.maximum}


def recipe(rng: random.Random, steps: int) -> list[tuple[str, ...]]:
    """Return steps (op, numbers of its operands) on two inputs or earlier steps; a third repeat an earlier one."""
    result: list[tuple] = []
    for at in range(steps):
        if result and rng.random() < 0.35:
            result.append(rng.choice(result))
        elif rng.random() < 0.5:
            result.append((rng.choice(list(UNARY)), rng.randrange(at + 2)))
        else:
            result.append((rng.choice(list(BINARY)), rng.randrange(at + 2), rng.randrange(at + 2)))
    return result


def apply(step: tuple, values: list[relay.Expr]) -> relay.Expr:
    op, *at = step
    return (UNARY.get(op) or BINARY[op])(*(values[i] for i in at))


def fewest(limit: int, reason: str) -> Expectation:
    """Expect at most `limit` calls of operators in all."""

    def law(before: tvm.IRModule, after: tvm.IRModule) -> str | None:
        calls = counts(after).total()
        return (
            None if calls <= limit else f"{reason} {counts(before).total()} calls became {calls}; {limit} are enough."
        )

    return law


def generated(
    name: str, draw: Callable[[], Callable[[], tvm.IRModule]], reason: str, **laws: list[Expectation]
) -> list[Case]:
    """Return two modules, built by what `draw()` returns, that must get as small as the reference makes them."""
    answer = reference(f"day07.{name}")

    def drawn(i: int) -> Case:
        build = draw()
        return case(f"generated, number {i + 1}", build, did=[fewest(counts(answer(build())).total(), reason)], **laws)

    return [something_to_do(f"day07.{name}", partial(drawn, i)) for i in range(2)]


@as_decorator
def with_helper(body: Callable, helper: Callable) -> Callable[[], tvm.IRModule]:
    """Return main(x) = body(x, @helper), in a module with @helper."""

    def build() -> tvm.IRModule:
        var, x, z = relay.GlobalVar("helper"), relay.var("x", shape=(2, 4)), relay.var("z", shape=(2, 4))
        module = tvm.IRModule({var: relay.Function([z], helper(z), z.type_annotation)})
        module["main"] = relay.Function([x], body(x, var), x.type_annotation)
        return relay.transform.InferType()(module)

    return build
