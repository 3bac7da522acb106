"""Graphs as work, work in pieces, and what a mapping costs: against counting by hand, link by link."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import torch

from passlab.models import ZOO
from passlab.wafer.machine import Machine
from passlab.wafer.mapping import BadMapping, at, load, messages, named, rectangle, traffic
from passlab.wafer.pieces import SUM, BadWork, cut, inner_words, piece_bytes
from passlab.wafer.placing import greedy, row_major, search
from passlab.wafer.program import program
from passlab.wafer.simulate import simulate
from passlab.wafer.work import Operation, Read, work_of


def zoo(name):
    row = ZOO[name]
    return work_of(torch.fx.symbolic_trace(row.build()), *row.inputs(1))


#: A norm, a layer of 6 inputs and 4 results, and two readers of it.
WORK = (
    Operation("norm", (), 0, 24, 24, 6, 12),
    Operation("layer", (Read("norm", 6),), 96, 24, 16, 4, 48, True),
    Operation("relu", (Read("layer", 4),), 0, 16, 16, 4, 4),
    Operation("add", (Read("relu", 4), Read("layer", 4)), 0, 32, 16, 4, 4),
)
SHAPES = {"norm": (1, 1), "layer": (2, 3), "relu": (1, 2), "add": (1, 1)}


def test_the_work_of_a_linear_layer():
    layer, relu = zoo("tiny")
    assert (layer.weights, layer.flops, layer.words, layer.matrix) == (4 * (64 + 8), 2 * 64, 8, True)
    assert relu.reads == (Read(layer.name, 8),) and not relu.matrix


def test_an_attention_holds_its_keys_and_streams_its_queries():
    scores = {o.name: o for o in zoo("gpt")}["matmul"]
    assert [(read.words, read.resident) for read in scores.reads] == [(16 * 64, False), (16 * 64, True)]
    assert scores.weights == 4 * 16 * 64 and scores.streamed == 16 * 64


def test_weights_are_those_of_the_model():
    model = ZOO["resnet18"].build()
    own = sum(t.numel() for t in [*model.parameters(), *model.buffers()] if t.dim())
    assert sum(o.weights for o in zoo("resnet18")) == 4 * own


SIZES = dict.fromkeys(("convnet", "skip", "unet", "lstm", "attention", "vit"), 24) | {"mobilenetv2": 32, "resnet18": 40}


@pytest.mark.parametrize("name", SIZES)
def test_every_model_can_be_cut_placed_and_run(name):
    machine = Machine(SIZES[name], SIZES[name])
    pieces = cut(zoo(name), machine)
    assert len(pieces) <= 0.9 * machine.cores and pieces.nbytes.max() <= machine.memory
    assert sum(p * q for p, q in pieces.shape.values()) == len(pieces)
    cores = greedy(pieces, machine)
    assert len(set(cores.tolist())) == len(pieces)
    assert simulate(program(machine, messages(pieces, cores, machine))).cycles > 0


def test_words_in_an_operation_and_between_two():
    pieces = cut(WORK, Machine(4, 4), shapes=SHAPES)
    inside = [pieces.owner[a] == pieces.owner[b] for a, b in zip(pieces.a, pieces.b, strict=True)]
    assert pieces.words[inside].sum() == inner_words(WORK[1], 2, 3) == 6 * 1 + 4 * 2
    assert pieces.words[~np.array(inside)].sum() == 6 + 4 + 4 + 4
    sums = [
        (pieces.name(a), pieces.name(b)) for a, b in zip(pieces.a, pieces.b, strict=True) if b == pieces.first["relu"]
    ]
    assert sums == [("layer[0, 2]", "relu[0, 0]")], "sums end in the last column"


def test_a_block_needs_the_window_of_its_column_and_the_result_of_its_row():
    assert piece_bytes(WORK[1], 2, 3) == 96 // 6 + 24 // 3 + 16 // 2
    assert piece_bytes(WORK[3], 2, 3) == -(-32 // 6) + -(-16 // 6)


def by_hand(pieces, cores, machine):
    """Walk each message link by link."""
    carried = collections.Counter()
    for a, b, words in zip(pieces.a.tolist(), pieces.b.tolist(), pieces.words.tolist(), strict=True):
        for link in machine.hops(divmod(int(cores[a]), machine.columns), divmod(int(cores[b]), machine.columns)):
            carried[link] += words
    return carried


@pytest.mark.parametrize("seed", range(4))
def test_loads_are_those_of_messages_walked_by_hand(seed):
    machine = Machine(7, 9)
    pieces = cut(zoo("mlp"), machine)
    cores = np.random.default_rng(seed).permutation(machine.cores)[: len(pieces)]
    if seed == 3:
        cores[:5] = cores[5]  # several pieces on one core send each other nothing
    result, carried = load(pieces, cores, machine), by_hand(pieces, cores, machine)
    ways = {(0, 1): "east", (0, -1): "west", (1, 0): "south", (-1, 0): "north"}
    for (local, remote), words in carried.items():
        way = ways[remote[0] - local[0], remote[1] - local[1]]
        assert result.links[way][local] == pytest.approx(words)
    assert result.traffic == pytest.approx(sum(carried.values())) == pytest.approx(traffic(pieces, cores, machine))
    assert sum((links > 0).sum() for links in result.links.values()) == len(carried)
    assert result.hottest == pytest.approx(max(carried.values()))
    assert result.computing.sum() == pytest.approx(sum(o.flops for o in pieces.operations) / 2)


def test_the_busiest_is_named():
    pieces, machine = cut(WORK, Machine(4, 4), shapes=SHAPES), Machine(4, 4)
    assert load(pieces, np.zeros(len(pieces), int), machine).busiest == "core (0, 0), computing"
    far = np.array([0, *range(1, 7), 12, 12, 3])
    assert "link" in load(pieces, far, machine).busiest or "ramp" in load(pieces, far, machine).busiest


def test_messages_carry_the_same_words_as_the_loads():
    machine = Machine(4, 4)
    pieces = cut(WORK, machine, shapes=SHAPES)
    cores = np.arange(len(pieces))
    value = messages(pieces, cores, machine)
    assert sum(m.words for m in value) == np.ceil(pieces.words).sum()
    run = simulate(program(machine, value))
    assert run.traffic().sum() >= load(pieces, cores, machine).traffic
    last = [m for m in value if m.route[-1] == (2, 1)]
    assert all(m.waits for m in last), "the end waits for what comes before"


def test_a_sum_waits_for_the_sum_to_its_left_and_for_its_input():
    machine = Machine(4, 4)
    pieces = cut(WORK, machine, shapes=SHAPES)
    value = messages(pieces, np.arange(len(pieces)), machine)
    sums = [value[k] for k in np.flatnonzero(pieces.kind == SUM)]
    middle = next(m for m in sums if m.route[0] == divmod(pieces.first["layer"] + 4, 4))
    assert len(middle.waits) == 2


MACHINE = Machine(3, 5, memory=120)
GOOD = {"norm": rectangle(0, 0), "layer": rectangle(0, 1, 2, 3), "relu": rectangle(2, 0, 1, 2), "add": rectangle(2, 2)}


def test_a_mapping_and_its_numbers():
    pieces = cut(WORK, MACHINE, shapes=SHAPES)
    cores = at(pieces, GOOD, MACHINE)
    assert cores.tolist() == [0, 1, 2, 3, 6, 7, 8, 10, 11, 12]
    assert named(pieces, cores, MACHINE) == GOOD
    assert at(pieces, list(GOOD.items()), MACHINE).tolist() == cores.tolist()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"relu": None}, "The mapping leaves out relu."),
        ({"gelu": rectangle(0, 0)}, "The mapping names 'gelu', and the graph has no such operation."),
        ({"layer": rectangle(0, 1, 2, 2)}, "layer is cut into 2 × 3 pieces, and is mapped to 4 cores."),
        ({"layer": rectangle(0, 3, 2, 3)}, "layer[0, 2]: Core (0, 5) is off the grid, which has rows 0 … 2"),
        ({"add": ((-1, 0),)}, "add: Core (-1, 0) is off the grid"),
        ({"add": (("a", 0),)}, "add: A core is (row, column), two whole numbers"),
        ({"add": ((0.5, 0),)}, "add: A core is (row, column), two whole numbers; (0.5, 0) is not."),
        ({"add": 3}, "add is mapped to 3: it must be a sequence of cores."),
        ({"add": ((0,),)}, "add: A core is (row, column), two whole numbers"),
        (
            {"norm": rectangle(2, 2), "add": rectangle(2, 2), "relu": rectangle(2, 2) * 2},
            "Core (2, 2) would have to hold",
        ),
    ],
)
def test_what_is_told_of_a_broken_mapping(changed, sentence):
    pieces = cut(WORK, MACHINE, shapes=SHAPES)
    mapping = {name: cores for name, cores in (GOOD | changed).items() if cores is not None}
    with pytest.raises(BadMapping) as caught:
        at(pieces, mapping, MACHINE)
    assert str(caught.value).startswith(sentence)


def test_an_operation_that_is_mapped_twice():
    pieces = cut(WORK, MACHINE, shapes=SHAPES)
    with pytest.raises(BadMapping, match="norm is mapped twice"):
        at(pieces, [*GOOD.items(), ("norm", rectangle(0, 0))], MACHINE)
    for none in (None, [1, 2], [([], ())]):
        with pytest.raises(BadMapping, match="A mapping is a dict from operation to cores, or such pairs"):
            at(pieces, none, MACHINE)


@pytest.mark.parametrize(
    ("work", "machine", "sentence"),
    [
        ((WORK[0], WORK[0]), MACHINE, "Two operations are called 'norm'"),
        (WORK[1:], MACHINE, "layer reads 'norm', and no operation before it has that name."),
        ((Operation("wide", weights=10**6),), MACHINE, "wide does not fit: cut into 3 × 5 pieces"),
        (tuple(Operation(f"o{i}", weights=100) for i in range(16)), MACHINE, "The operations need 16 cores"),
    ],
)
def test_what_is_told_of_work_that_does_not_fit(work, machine, sentence):
    with pytest.raises(BadWork) as caught:
        cut(work, machine)
    assert str(caught.value).startswith(sentence)


def test_more_cores_make_the_slowest_piece_faster():
    work = zoo("gpt")
    slowest = [cut(work, Machine(side, side)).cycles.max() for side in (6, 12, 24)]
    assert slowest[0] > 2 * slowest[1] > 4 * slowest[2]


def test_greedy_and_search_against_rows():
    machine = Machine(14, 14)
    pieces = cut(zoo("gpt"), machine)
    plans = [row_major(pieces, machine), greedy(pieces, machine), search(pieces, machine, evaluations=200_000)]
    rows, near, result = (traffic(pieces, cores, machine) for cores in plans)
    assert rows > 1.4 * near > 1.5 * result
    assert all(len(set(cores.tolist())) == len(pieces) for cores in plans)


def test_a_search_depends_on_its_seed_alone_and_never_gets_worse():
    machine = Machine(8, 8)
    pieces = cut(zoo("attention"), machine)
    runs = [search(pieces, machine, evaluations=20_000, seed=seed) for seed in (1, 1, 2)]
    assert (runs[0] == runs[1]).all() and (runs[0] != runs[2]).any()
    start = greedy(pieces, machine)
    none = search(pieces, machine, evaluations=0)
    assert (none == start).all()
    assert traffic(pieces, search(pieces, machine, start, 500), machine) <= traffic(pieces, start, machine)


def test_the_search_finds_the_best_line_of_four():
    """Four operations in a chain on 2 × 2 cores: every word one hop."""
    chain = tuple(Operation(f"o{i}", (Read(f"o{i - 1}", 5),) if i else (), 0, 4, 4, 5, 1) for i in range(4))
    machine = Machine(2, 2)
    pieces = cut(chain, machine, fill=1.0, shapes={o.name: (1, 1) for o in chain})
    cores = search(pieces, machine, start=np.array([0, 3, 1, 2]), evaluations=2000)
    assert traffic(pieces, cores, machine) == 15
