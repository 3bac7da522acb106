"""Each tier on laws of which it is known whether they hold, and pairs of programs that differ in one thing."""

from __future__ import annotations

import copy
import math
import operator

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from autograder.bench.pairs import differ, drawn_pair
from passlab import equivalent, random_graph
from passlab.proving import prove, smt

TYPES = {"f32": torch.float32, "f16": torch.float16, "i32": torch.int32, "i64": torch.int64}
FLOATS, WHOLE, ALL = ("f32", "f16"), ("i32", "i64"), tuple(TYPES)


def tensors(kind, shape=(3,), number=3):
    gen = torch.Generator().manual_seed(1)
    return tuple(torch.randn(shape, generator=gen).mul(5).to(TYPES[kind]) for _ in range(number))


#: law → (left, right, types for which it is proved, types for which it is refuted bit by bit)
SCALAR = {
    "x + 0 = x": (lambda x, y, z: x + 0, lambda x, y, z: x, WHOLE, FLOATS),
    "x + -0.0 = x": (lambda x, y, z: x + -0.0, lambda x, y, z: x, FLOATS, ()),
    "x · 1 = x": (lambda x, y, z: x * 1, lambda x, y, z: x, ALL, ()),
    "x + y = y + x": (lambda x, y, z: x + y, lambda x, y, z: y + x, ALL, ()),
    "(x + y) + z": (lambda x, y, z: (x + y) + z, lambda x, y, z: x + (y + z), WHOLE, FLOATS),
    "(x · y) · z": (lambda x, y, z: (x * y) * z, lambda x, y, z: x * (y * z), WHOLE, FLOATS),
    "(x + y) · z": (lambda x, y, z: (x + y) * z, lambda x, y, z: x * z + y * z, WHOLE, FLOATS),
    "−(−x) = x": (lambda x, y, z: x.neg().neg(), lambda x, y, z: x, ALL, ()),
    "x + (−y) = x − y": (lambda x, y, z: x + (-y), lambda x, y, z: x - y, ALL, ()),
    "−(x − y) = y − x": (lambda x, y, z: -(x - y), lambda x, y, z: y - x, WHOLE, FLOATS),
    "x − x = 0": (lambda x, y, z: x - x, lambda x, y, z: torch.zeros_like(x), WHOLE, FLOATS),
    "x / 4 = x · 0.25": (lambda x, y, z: x / 4, lambda x, y, z: x * 0.25, FLOATS, ()),
    "x / 3 = x · (1 / 3)": (lambda x, y, z: x / 3, lambda x, y, z: x * (1 / 3), (), ("f32",)),
    "√(x · x) = |x|": (lambda x, y, z: torch.sqrt(x * x), lambda x, y, z: abs(x), (), FLOATS),
    "|−x| = |x|": (lambda x, y, z: abs(-x), lambda x, y, z: abs(x), ALL, ()),
    "relu": (lambda x, y, z: x.relu().relu(), lambda x, y, z: F.relu(x), ALL, ()),
    "max(x, min(x, y)) = x": (lambda x, y, z: torch.maximum(x, torch.minimum(x, y)), lambda x, y, z: x, WHOLE, FLOATS),
    "x · 2 = x + x": (lambda x, y, z: x * 2, lambda x, y, z: x + x, ALL, ()),
    "x · 2 = x << 1": (lambda x, y, z: x * 2, lambda x, y, z: x << 1, WHOLE, ()),
    "not x < y": (lambda x, y, z: ~(x < y), lambda x, y, z: x >= y, WHOLE, FLOATS),
    "a select": (lambda x, y, z: torch.where(x > y, z, z), lambda x, y, z: z, ALL, ()),
    "x >= 0 of |x|": (lambda x, y, z: abs(x) >= 0, lambda x, y, z: x == x, (), ALL),
    "x & y + x | y": (lambda x, y, z: (x & y) + (x | y), lambda x, y, z: x + y, WHOLE, ()),
}
CASES = [(law, kind) for law, (*_, yes, no) in SCALAR.items() for kind in (*yes, *no)]


@pytest.mark.parametrize(("law", "kind"), CASES)
def test_laws_of_numbers(law, kind):
    left, right, proved, _ = SCALAR[law]
    if law == "x >= 0 of |x|" and kind in FLOATS:
        pytest.skip("of NaN both are false")
    proof = prove(left, right, tensors(kind), tests=False)
    if kind in proved:
        assert proof.verdict == "proved" and not proof.counterexample, proof
        return
    assert proof.verdict != "proved" and proof.counterexample, proof
    old, new = (program(*proof.counterexample.values()) for program in (left, right))
    assert str(old.tolist()) != str(new.tolist())


def layer_norm(x, y, z):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5)


#: law → (left, right, what "reals" must be)
TENSOR = {
    "distributes": (lambda x, y, z: (x + y) @ z, lambda x, y, z: x @ z + y @ z, True),
    "associates": (lambda x, y, z: (x @ y) @ z, lambda x, y, z: x @ (y @ z), True),
    "transposed": (lambda x, y, z: (x @ y).t(), lambda x, y, z: y.t() @ x.t(), True),
    "transposed, not swapped": (lambda x, y, z: (x @ y).t(), lambda x, y, z: x.t() @ y.t(), False),
    "does not commute": (lambda x, y, z: x @ y, lambda x, y, z: y @ x, False),
    "linear": (lambda x, y, z: F.linear(x, y, z[0]), lambda x, y, z: x @ y.t() + z[0], True),
    "columns": (lambda x, y, z: torch.cat([x @ y, x @ z], 1), lambda x, y, z: x @ torch.cat([y, z], 1), True),
    "rows of columns": (lambda x, y, z: torch.cat([x @ y, x @ z], 0), lambda x, y, z: x @ torch.cat([y, z], 1), None),
    "scaled": (lambda x, y, z: (x / 3) @ y, lambda x, y, z: (x @ y) * (1 / 3), True),
    "variance": (
        lambda x, y, z: ((x - x.mean()) ** 2).mean(),
        lambda x, y, z: (x * x).mean() - x.mean() ** 2,
        True,
    ),
    "layer norm": (lambda x, y, z: F.layer_norm(x, (4,)), layer_norm, True),
    "softmax": (lambda x, y, z: (x.softmax(-1) @ y) * 2, lambda x, y, z: x.softmax(-1) @ (y * 2), True),
    "√x² = |x|": (lambda x, y, z: torch.sqrt(x * x) @ y, lambda x, y, z: abs(x) @ y, True),
    "1×1 convolution": (
        lambda x, y, z: F.conv2d(x[None, :, :, None], y[:, :, None, None])[0, :, :, 0],
        lambda x, y, z: y @ x,
        True,
    ),
    "two axes": (lambda x, y, z: x.sum(0), lambda x, y, z: x.sum(1), False),
    "a larger sum": (lambda x, y, z: x.sum(), lambda x, y, z: x.sum() + 2147483647, None),
}


@pytest.mark.parametrize("law", TENSOR)
def test_laws_of_tensors(law):
    left, right, equal = TENSOR[law]
    proof = prove(left, right, tensors("f32", (4, 4)))
    assert proof.reals is equal
    assert proof.verdict == ("reals" if equal else "refuted"), proof
    assert proof.chance < 1e-9
    if equal:
        assert proof.max_abs < 1e-3 and "Equal over the reals; differs by rounding of at most" in repr(proof)


def test_convolutions_are_those_of_torch():
    x, w = torch.randint(-9, 9, (2, 4, 7, 6)).double(), torch.randint(-9, 9, (6, 2, 3, 2)).double()
    how = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}

    def by_hand(x, w):
        parts = [
            (F.unfold(half, (3, 2), (1, 2), (1, 2), (2, 1)).transpose(1, 2) @ each.flatten(1).t()).transpose(1, 2)
            for half, each in zip(x.split(2, 1), w.split(3), strict=True)
        ]
        return torch.cat(parts, 1).reshape(2, 6, 4, 8)

    assert torch.equal(F.conv2d(x, w, **how), by_hand(x, w))
    proof = prove(lambda x, w: F.conv2d(x * 2, w, **how), lambda x, w: F.conv2d(x, w + w, **how), (x, w), tests=False)
    assert proof.reals is True
    other = {**how, "dilation": (1, 1), "padding": (1, 1)}
    wrong = prove(lambda x, w: F.conv2d(x, w, **how), lambda x, w: F.conv2d(x, w, **other), (x, w), tests=False)
    assert wrong.reals is not True


def test_right_algebra_with_bad_numbers_and_wrong_algebra_are_told_apart():
    x = (torch.randn(64, generator=torch.Generator().manual_seed(0)) + 3e4,)
    two_passes, one_pass = (lambda x: ((x - x.mean()) ** 2).mean()), (lambda x: (x * x).mean() - x.mean() ** 2)
    bad = prove(two_passes, one_pass, x)
    wrong = prove(two_passes, lambda x: (x * x).mean() + x.mean() ** 2, x)
    assert bad.verdict == "refuted" and bad.reals is True and "the algebra is right" in repr(bad)
    assert wrong.verdict == "refuted" and wrong.reals is False and "They differ over the reals, too" in repr(wrong)


def test_what_is_between_products_of_matrices_is_proved_and_says_what_it_relies_on():
    twice, sum_of_both = (lambda x, y: (x @ y).relu().relu() * 2), (lambda x, y: F.relu(x @ y) + F.relu(x @ y))
    proof = prove(twice, sum_of_both, tensors("f32", (4, 4), 2))
    assert proof.verdict == "proved"
    assert proof.assumes == ("of equal operands, aten.mm.default gives equal results, bit by bit",)
    layer = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    assert prove(layer, lambda x: torch.tanh(layer[0](x)), tensors("f32", (2, 4), 1)).verdict == "proved"


def test_views_gathers_and_indices():
    x, i = torch.randn(4, 3), torch.tensor([2, 0, 2])
    gathers = (lambda x, i: x[i].t() * 2, lambda x, i: (x + x).t()[:, i])
    assert prove(*gathers, (x, i)).verdict == "proved"
    assert prove(lambda x, i: torch.cat([x, x])[i + 4], lambda x, i: x.index_select(0, i), (x, i)).verdict == "proved"
    assert prove(lambda x, i: x.flip(0)[i], lambda x, i: x[3 - i], (x, i)).verdict == "proved"
    assert prove(lambda x, i: x.flip(0)[i], lambda x, i: x[2 - i], (x, i)).verdict == "refuted"


def test_a_view_of_what_a_transpose_makes_contiguous():
    x = torch.randn(2, 3)
    assert prove(lambda x: x.t().contiguous().view(6), lambda x: x.t().flatten(), (x,)).verdict == "proved"
    assert prove(lambda x: x.t().contiguous().view(6), lambda x: x.flatten(), (x,)).verdict == "refuted"
    sums = (lambda x: x.t().contiguous().view(6).sum(), lambda x: x.sum(), (x,))
    assert prove(*sums).verdict == "reals"


def test_a_precondition_is_assumed():
    inverse = (lambda x: x / x, lambda x: torch.ones_like(x))
    assert prove(*inverse, tensors("f16", (2,), 1), tests=False).verdict != "proved"
    finite = prove(*inverse, tensors("f16", (2,), 1), when=lambda x: (x != 0) & (abs(x) < math.inf))
    assert finite.verdict == "proved"
    weak = prove(*inverse, tensors("f16", (2,), 1), when=lambda x: x != 0)
    assert weak.verdict != "proved" and not torch.isfinite(weak.counterexample["x"]).all()


def stats():
    return torch.zeros(3), torch.ones(3)


class Wrote(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return x


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda x: F.dropout(x, 0.5, True), "draws random numbers"),
        (lambda x: x.add_(1), "writes into an input"),
        (Wrote(), "writes into"),
        (nn.BatchNorm1d(3), "writes into"),
        (
            lambda x: F.batch_norm(x, None, None, training=True) + F.batch_norm(x, *stats(), training=True),
            "training mode",
        ),
        (lambda x: x * 2 if x.sum() > 0 else x, "depends on values of its inputs"),
        (lambda x: x * int(x.sum().item()), "depends on values of its inputs"),
    ],
)
def test_what_no_proof_can_treat_is_tested_and_says_so(program, words):
    x = torch.randn(2, 3) + 9
    proof = prove(program, copy.deepcopy(program), (x,))
    assert proof.verdict == "tested" and proof.trials and words in repr(proof), proof


def test_inputs_are_needed_and_other_shapes_are_refuted():
    with pytest.raises(ValueError, match="prove has no inputs: pass inputs"):
        prove(lambda x: x, lambda x: x)
    assert prove(lambda x: x, lambda x: x[None], (torch.ones(2),)).verdict == "refuted"
    assert prove(lambda x: x, lambda x: x.double(), (torch.ones(2),), tests=False).verdict == "refuted"


def test_a_limit_is_a_sentence_of_its_own():
    proof = prove(lambda x, y, z: (x * y) / y * z, lambda x, y, z: z * x * y / y, tensors("f32", (1,)), budget=0.001)
    assert proof.verdict != "proved"
    x = torch.ones(600, 600)
    large = prove(lambda x: x + 1, lambda x: 1 + x, (x,), tests=False)
    assert "at most 200,000 are looked at one by one" in large.why["bit by bit"] and large.reals


def test_steps_of_the_solver_are_counted_and_not_its_time(monkeypatch):
    terms, sides = smt.Terms(), (lambda x: x * 3 / 3, lambda x: x)
    from passlab.proving.capture import capture

    x = torch.ones(1)
    a, b = (int(terms.results(capture(side, (x,)), [x])[0][0]) for side in sides)
    answers = [smt.equal(terms, [(a, b)], [], 0.05) for _ in range(2)]
    assert answers[0] == answers[1] and answers[0].verdict == "undecided"
    assert "did not decide within 0.05 s" in answers[0].why


def test_no_false_proof():
    proofs, pairs, others = [], 0, 0
    for seed in range(200):
        if (pair := drawn_pair(seed)) is None:
            continue
        gm, twin, inputs = pair
        pairs += 1
        different = differ(gm, twin, inputs)
        others += different
        proof = prove(gm, twin, inputs, budget=0.05, tests=False)
        if different and proof.verdict in ("proved", "reals"):
            proofs.append((seed, repr(proof)))
    assert not proofs
    assert pairs > 100 and others > 50


def test_a_graph_is_proved_equal_to_itself():
    proved = 0
    for seed in range(40):
        gm = random_graph(seed, 10, mutation=False, random=False)
        proof = prove(gm, copy.deepcopy(gm), gm.meta["inputs"], tests=False)
        if "It writes" not in proof.why.get("bit by bit", ""):  # into the statistics of a batch norm
            assert proof.verdict == "proved", (seed, proof)
            proved += 1
    assert proved > 30


def test_a_swapped_operand_is_found_where_it_matters():
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    graph.output(graph.call_function(operator.sub, (a, b)))
    other = fx.Graph()
    a, b = other.placeholder("a"), other.placeholder("b")
    other.output(other.call_function(operator.sub, (b, a)))
    proof = prove(fx.GraphModule({}, graph), fx.GraphModule({}, other), tensors("i32", (2,), 2))
    assert proof.verdict == "refuted" and set(proof.counterexample) == {"a", "b"} and proof.place.startswith("For a = ")


def test_equivalent_proves_where_it_is_asked_to():
    x = torch.randn(3)
    proof = equivalent(lambda x: x * 1, lambda x: x, x, prove=True)
    assert proof and proof.verdict == "proved" and not proof.reason
    proof = equivalent(lambda x: x - x, lambda x: x * 0 + 1, x, prove=True)
    assert not proof and proof.verdict == "refuted" and "before gives" in proof.reason


def test_programs_differ_where_ordinary_numbers_give_one_of_them_no_value():
    """Over the reals 0/y is 0, but for y = 0; of floats, none of those tried is."""

    def divided_by(divisor):
        return lambda x, n: (x + 0 - x) / divisor(x, n)

    inputs = torch.randn(4), torch.tensor([1, 2, 7, 3])
    positive, remainder = divided_by(lambda x, n: torch.sigmoid(x) + 1), divided_by(lambda x, n: (n % 7).float())
    proof = prove(positive, remainder, inputs, tests=False)
    assert proof.verdict == "refuted" and "n = 7: before gives 0.0, after nan" in proof.place
    assert proof.why["over the reals"].startswith("Equal where both have a value")
    assert prove(positive, divided_by(lambda x, n: x), inputs, tests=False).verdict == "reals"
