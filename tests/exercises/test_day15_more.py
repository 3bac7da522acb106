"""Day 15, exercises 4 to 7: their judges against the library and all plans, and sentences for broken answers."""

from __future__ import annotations

import itertools
import operator
import random

import pytest
import torch

from autograder.answers.day15._shared import alone_in_a_tuple
from autograder.authoring.answers import hidden_cases, reference
from passlab import exercises
from passlab.exercises.day15 import migrate, move, pack
from passlab.exercises.day15 import plan as plans
from passlab.given.day15.pack import linear_int4, unpack
from passlab.given.day15.plan import BITS, bytes_of, quantized
from passlab.quantization import dequantize, functional, insert, observe, pack_int4, random_network
from passlab.quantization import migrate as library_migrate
from passlab.quantization import move as library_move
from tests.support.judged import lost

MORE = ["day15.move", "day15.pack", "day15.migrate", "day15.plan"]


def without(function):
    """Return an answer that replaces the calls of a function by their first operand."""

    def answer(gm, *_):
        for node in gm.graph.find_nodes(op="call_function", target=function):
            node.replace_all_uses_with(node.args[0])
        return gm

    return answer


@pytest.mark.parametrize(
    ("exercise_id", "answer", "case", "verdict", "sentence"),
    [
        ("day15.move", lambda gm: gm, "before a quantize", "did", "144 bytes; 36 are enough."),
        ("day15.move", lambda gm: gm, "between two layers", "did", "192 bytes; 48 are enough."),
        ("day15.move", without(torch.relu), "functions that compute", "same", "result 0 differs in"),
        ("day15.move", without(dequantize), "behind a dequantize", "same", "result 0 differs in"),
        (
            "day15.move",
            alone_in_a_tuple,
            "before a quantize",
            "same",
            "the graph should return one value; it returns a tuple of 1.",
        ),
        ("day15.pack", lambda gm: gm, "a layer", "did", "220 bytes of constants (w 160, s 40, b 20); 80 are enough."),
        ("day15.pack", without(dequantize), "a layer", "same", "The graph cannot run"),
        ("day15.pack", without(torch.relu), "a layer", "same", "is off by"),
        ("day15.migrate", lambda gm, *_: gm, "a norm and a layer", "did", "In channel 0 of layer_norm the"),
        ("day15.migrate", without(torch.tanh), "a norm and three layers", "same", "Result 0 is off by"),
        ("day15.plan", lambda *_: [32, 32], "two layers", "did", "are enough."),
        ("day15.plan", lambda *_: [2, 2], "two layers", "same", "It is over the budget for x = ["),
        ("day15.plan", lambda *_: [3, 8], "two layers", "valid", "3 is none of the bits 2, 4, 8, 32."),
        ("day15.plan", lambda *_: [8], "two layers", "valid", "with 1 entry"),
    ],
)
def test_sentences(exercise_id, answer, case, verdict, sentence):
    result = lost(exercise_id, answer, case)
    assert result[0] == verdict and sentence in result[1], result


@pytest.mark.parametrize("exercise_id", MORE)
def test_hidden_cases_follow_their_seed(exercise_id):
    names = [[case.name for case in hidden_cases(exercise_id, seed)] for seed in (1, 1, 2)]
    assert names[0] == names[1] == names[2] and len(set(names[0])) == len(names[0])


# ---------------------------------------------------------------------------------------------------- move


def test_the_reference_moves_what_the_library_moves():
    """On networks of the library without methods: the same results, and no more bytes that move."""
    nets = [
        net for net in map(random_network, range(24)) if not net.graph.find_nodes(op="call_method", target="reshape")
    ]
    assert len(nets) > 4
    for seed, net in enumerate(nets[:8]):
        (x,) = net.meta["inputs"]
        pairs = insert(net, observe(net, [(x,)]))
        pairs.meta["inputs"] = (x,)
        theirs = library_move(pairs)
        ours = reference("day15.move")(insert(net, observe(net, [(x,)])))
        assert ours(x).equal(pairs(x)) and theirs(x).equal(pairs(x)), seed
        totals = [sum(move.moved_bytes(gm, (x,)).values()) for gm in (ours, theirs)]
        assert totals[0] <= totals[1], seed


@pytest.mark.parametrize("function", move.MOVING)
def test_functions_that_move_keep_the_laws(function):
    args = {
        torch.reshape: ((8, 9),), torch.flatten: (1,), torch.transpose: (0, 1), torch.permute: ((2, 0, 1, 3),),
        torch.flip: ((1,),), torch.roll: (1, 2), operator.getitem: (slice(1),), torch.cat: (1,),
        torch.amax: ((1, 2),), torch.nn.functional.max_pool2d: (2, 1, 1),
    }[function]  # fmt: skip
    q = torch.randint(-128, 128, (2, 2, 3, 6), dtype=torch.int8)

    def t(x):
        return function([x, x], *args) if function is torch.cat else function(x, *args)

    on = 0.05, 7, 8
    assert dequantize(t(q), *on).equal(t(dequantize(q, *on)))
    x = torch.randn(2, 2, 3, 6) * 4
    assert move.quantize(t(x), *on).equal(t(move.quantize(x, *on)))


# ---------------------------------------------------------------------------------------------------- pack


def test_packed_weights_are_the_librarys():
    (case,) = [case for case in exercises.find("day15.pack").cases() if case.name == "a layer"]
    (gm,) = case.build()
    scale, weight = gm.s, gm.w
    packed = reference("day15.pack")(gm)
    (node,) = packed.graph.find_nodes(op="call_function", target=linear_int4)
    integers = pack.quantize(weight, scale, 0, 4, group=4)
    assert packed.get_buffer(node.args[1].target).equal(pack_int4(integers))


def test_the_fused_layer_multiplies_by_what_is_unpacked():
    q = torch.randint(-8, 8, (5, 12), dtype=torch.int8)
    scale, x, bias = torch.rand(5, 3) + 0.1, torch.randn(2, 3, 12), torch.randn(5)
    weight = dequantize(unpack(pack_int4(q)), scale, 0, 4, group=4)
    torch.testing.assert_close(linear_int4(x, pack_int4(q), scale, bias), torch.nn.functional.linear(x, weight, bias))


# ---------------------------------------------------------------------------------------------------- migrate


def test_the_factors_are_the_librarys():
    case = exercises.find("day15.migrate").cases()[0]
    gm, largest, alpha = case.build()
    by = migrate.factors(gm, largest, alpha)
    theirs = library_migrate(functional(gm), [gm.meta["inputs"]], alpha)
    (norm,) = [node for node in by if migrate.norm(node)]
    (after,) = [node for node in theirs.graph.nodes if migrate.norm(node)]
    old, new = (migrate.attribute(m, n.args[2].target) for m, n in ((gm, norm), (theirs, after)))
    torch.testing.assert_close(old / new, by[norm])


def test_quantization_errs_less_after_it():
    size = migrate.hot(2, 5)

    @migrate.migrate_case("large in two channels", (64, 8), g=size, b=(8,), w=torch.randn(4, 8) / size)
    def case(m, x):
        return torch.nn.functional.linear(migrate.call(torch.nn.functional.layer_norm, x, (8,), m.g, m.b), m.w)

    gm, largest, alpha = case.build()
    (x,) = gm.meta["inputs"]
    y = gm(x)

    def error(net):
        return float((insert(net, observe(net, [(x,)]))(x) - y).norm())

    before = error(gm)
    assert error(reference("day15.migrate")(gm, largest, alpha)) < before / 2


# ---------------------------------------------------------------------------------------------------- plan


def test_the_fewest_bytes_are_those_of_the_best_of_all_plans():
    rng = random.Random(5)
    for _ in range(12):
        layers = plans.drawn_layers(rng, [rng.randint(2, 6) for _ in range(4)])
        budget = plans.budget_for(layers, [rng.choice(BITS) for _ in range(3)])
        sizes = [
            sum(bytes_of(weight, number) for (weight, _), number in zip(layers, bits, strict=True))
            for bits in itertools.product(BITS, repeat=3)
            if plans.error_bound(layers, bits, -1, 1) <= budget
        ]
        assert plans.fewest_bytes(layers, -1, 1, budget) == min(sizes)


def test_no_input_has_an_error_above_the_bound():
    rng = random.Random(6)
    for _ in range(20):
        layers = plans.drawn_layers(rng, [rng.randint(2, 6) for _ in range(4)])
        bits = [rng.choice(BITS) for _ in range(3)]
        bound = plans.error_bound(layers, bits, -0.5, 2.0)
        assert plans.counterexample(layers, bits, -0.5, 2.0, bound * (1 + 1e-9)) is None
        other = [(quantized(weight, number), bias) for (weight, bias), number in zip(layers, bits, strict=True)]
        x = torch.rand(500, layers[0][0].shape[1], dtype=torch.float64) * 2.5 - 0.5
        assert float((plans.run(other, x) - plans.run(layers, x)).abs().max()) <= bound * (1 + 1e-9)
