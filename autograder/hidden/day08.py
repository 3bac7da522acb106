"""Day 8: the cases that learners do not see, drawn from a seed. Generated modules, zoo models, traps made by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from autograder.bank import reference
from passlab import models
from passlab.exercises.cases_day08 import case, module, op
from passlab.exercises.cases_day08_pipeline import FASTER, pipeline_case
from passlab.exercises.cases_day08_policy import number, policy_case
from passlab.exercises.cases_day08_rewrites import IMAGE, SQUARE, VECTOR, WEIGHT, conv
from passlab.exercises.cases_day08_schedule import schedule_case
from passlab.exercises.cases_day08_tuner import drawn_machine, tuner_case
from passlab.judge import Case
from passlab.relax import relax
from passlab.relax.generate import random_relax
from passlab.tvm.importers import relax_module

Build = Callable[[], Any]


def zoo(name: str) -> Build:
    """A model of the zoo, with its parameters. It is imported now: an answer's time is not for that."""
    return relax_module(models.ZOO[name].build(), *models.ZOO[name].inputs()).clone


def torch_model(make: Callable[[], nn.Module], *shape: int) -> Build:
    """A torch model with weights that are the same every time, imported now."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return relax_module(make().eval().requires_grad_(False), torch.randn(shape)).clone


def alive(build: Build) -> Build:
    """The module without what nobody reads: it is none of these exercises' business whether that stays."""
    return lambda: relax.transform.DeadCodeElimination()(build())


def generated(rng: random.Random, size: int, *features: str) -> Build:
    seed = rng.randrange(10**6)
    return alive(lambda: random_relax(seed, size, features))


# ---------------------------------------------------------------------------------------------------- the ported pass


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


def port(seed: int) -> list[Case]:
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


# ---------------------------------------------------------------------------------------------------- by pattern


def pattern(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def wrong_axis(e: Any, x: Any, y: Any, w: Any) -> Any:
        return e(op.nn.relu(e(op.add(e(conv(x, y)), w))))

    def rows(e: Any, x: Any, y: Any, w: Any) -> Any:
        return e(op.nn.gelu(e(op.add(e(op.matmul(x, y)), w))))

    def returned(e: Any, x: Any, y: Any, w: Any) -> Any:
        total = e(op.add(e(conv(x, y)), w), leave=True)
        return [total, e(op.nn.relu(total), leave=True)]

    def itself(e: Any, x: Any, y: Any, w: Any) -> Any:
        product = e(op.matmul(x, y))
        return e(op.nn.gelu(e(op.add(product, product)))), e(op.nn.gelu(e(op.add(e(op.matmul(x, y)), w))))

    features = ("conv", "dense", "pointwise", "outputs")
    half = [(IMAGE, "float16"), (WEIGHT, "float16"), ((1, 4, 1, 1), "float16")]
    square, bias = (1, 4, 4, 4), (4, 1, 1)

    def layers() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.GELU("tanh"), nn.Linear(4, 4))

    def images() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1))

    return [
        case("a bias along the rows of an image", module(wrong_axis, square, WEIGHT, (4,)), "spared", run=False),
        case("a bias in three dimensions", module(wrong_axis, square, WEIGHT, bias), "did", "spared"),
        case("half precision", module(wrong_axis, *half), "spared", run=False),
        case("a number for each row", module(rows, (8, 8), SQUARE, (8, 1)), "spared", run=False),
        case("a batch of products", module(rows, (3, 2, 8), (3, 8, 8), (8,)), "spared", run=False),
        case("a batch and one weight", module(rows, (3, 2, 8), SQUARE, (8,)), "did", "spared"),
        case("the sum leaves the block", module(returned, IMAGE, WEIGHT, (1, 4, 1, 1)), "spared", run=False),
        case("a product added to itself", module(itself, VECTOR, SQUARE, (1, 8)), "did", "spared"),
        case("linear layers from torch", torch_model(layers, 2, 8), "did", "spared"),
        case("convolutions from torch", torch_model(images, 1, 3, 6, 6), "did", "spared"),
        *(case(f"generated, number {i + 1}", generated(rng, 14, *features), "spared", run=not i) for i in range(3)),
    ]


# ---------------------------------------------------------------------------------------------------- a policy


def drawn(seed: int, size: int) -> Build:
    """A program of element-wise operations, dear and cheap ones, sums and products, at random."""

    def body(e: Any, x: Any, w: Any) -> Any:
        rng = random.Random(seed)
        full, narrow, read = [x], [], set()

        def take(values: list) -> Any:
            value = rng.choice(values[-3:])
            read.add(value.name)
            return value

        for _ in range(size):
            kind = rng.choices(("cheap", "dear", "two", "product", "sum", "wide"), (4, 2, 3, 1, 1.5, 2))[0]
            if kind == "cheap":
                full.append(e(rng.choice((op.nn.relu, op.abs, lambda v: op.multiply(v, number(0.5))))(take(full))))
            elif kind == "dear":
                full.append(e(rng.choice((op.tanh, op.erf, op.sigmoid, op.cos))(take(full))))
            elif kind == "two":
                full.append(e(rng.choice((op.add, op.subtract, op.maximum))(take(full), take(full))))
            elif kind == "product":
                full.append(e(op.multiply(e(op.matmul(take(full), w)), number(0.1))))
            elif kind == "sum" or not narrow:
                narrow.append(e(op.mean(take(full), axis=[1], keepdims=True)))
            else:
                full.append(e(op.subtract(take(full), take(narrow))))
        ends = [value for value in full[1:] if value.name not in read][-3:] or full[-1:]
        return tuple(ends) if len(ends) > 1 else ends[0]

    width = random.Random(seed).choice((48, 64, 96))
    return module(body, (width, width), (width, width))


def policy(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def softmax_by_hand(e: Any, x: Any) -> Any:
        top = e(op.max(x, axis=[1], keepdims=True))
        powers = e(op.exp(e(op.subtract(x, top))))
        return e(op.divide(powers, e(op.sum(powers, axis=[1], keepdims=True))))

    def gated(e: Any, x: Any, w: Any) -> Any:
        y = e(op.matmul(x, w))
        return e(op.multiply(e(op.multiply(y, e(op.sigmoid(y)))), e(op.matmul(e(op.nn.relu(x)), w))))

    def images(e: Any, x: Any, w: Any) -> Any:
        y = e(conv(e(op.nn.relu(e(conv(e(op.tanh(x)), w)))), w))
        return e(op.nn.relu(e(op.add(e(op.add(y, number(0.1))), x))))

    all_three = ("did", "spared", "cost")
    cases = [
        policy_case("a softmax by hand", module(softmax_by_hand, (96, 96)), *all_three),
        policy_case("a gate", module(gated, (64, 64), (64, 64)), *all_three),
        policy_case("two convolutions", module(images, (1, 4, 12, 12), WEIGHT), *all_three),
    ]
    for i in range(3):
        cases.append(policy_case(f"drawn, number {i + 1}", drawn(rng.randrange(10**6), 7), *all_three))
    big = drawn(rng.randrange(10**6), 24)
    cases.append(policy_case("drawn, a large one", big, *all_three, best=reference("day08.policy")))
    return cases


def schedule(seed: int) -> list[Case]:
    rng = random.Random(seed)
    prime = rng.choice((59, 67, 83, 101))
    return [
        schedule_case(256, 384, 256, timed=True),
        schedule_case(rng.randrange(3, 60), rng.randrange(33, 90), prime),
        schedule_case(prime, 1, rng.randrange(2, 40)),
        schedule_case(1, prime, 1),
    ]


def tuner(seed: int) -> list[Case]:
    rng = random.Random(seed)
    return [tuner_case(f"machine {i + 1}", drawn_machine(rng.randrange(100, 10**6)), i) for i in range(5)]


def pipeline(seed: int) -> list[Case]:
    rng = random.Random(seed)
    tokens = rng.choice((24, 32, 40))

    def block() -> nn.Module:
        return models.gpt(width=128, heads=4, context=tokens)

    def narrow() -> nn.Module:
        return models.resnet18(classes=10, width=16)  # in full it is more than an answer may send

    return [
        pipeline_case("a narrow ResNet-18", narrow, (1, 3, 64, 64), FASTER, True),
        pipeline_case(f"a block of {tokens} tokens", block, (1, tokens, 128), FASTER, False),
        pipeline_case("three images at once", models.ZOO["convnet"].build, (3, 3, 24, 40), FASTER, True),
    ]


HIDDEN: dict[str, Callable[[int], list[Case]]] = {
    "day08.port": port,
    "day08.pattern": pattern,
    "day08.policy": policy,
    "day08.schedule": schedule,
    "day08.tuner": tuner,
    "day08.pipeline": pipeline,
}
