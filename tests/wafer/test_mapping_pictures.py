"""Pictures of mappings and runs show what was mapped and what ran."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from passlab.models import ZOO
from passlab.wafer import TREES, Machine, Message, program, reduce_messages, simulate
from passlab.wafer.mapping import load
from passlab.wafer.pictures import draw_load, draw_placements, draw_traffic, owners, pipeline, play
from passlab.wafer.pieces import cut
from passlab.wafer.placing import greedy, row_major
from passlab.wafer.work import Operation, Read, fused, work_of

MACHINE = Machine(6, 7)
ROW = ZOO["mlp"]
PIECES = cut(work_of(torch.fx.symbolic_trace(ROW.build()), *ROW.inputs(1)), MACHINE)


def test_owners_are_where_the_pieces_lie():
    cores = greedy(PIECES, MACHINE)
    grid = owners(PIECES, cores, MACHINE)
    assert (grid >= 0).sum() == len(PIECES)
    assert all(grid.ravel()[core] == owner for core, owner in zip(cores, PIECES.owner, strict=True))


def test_titles_tell_the_hops():
    cores = row_major(PIECES, MACHINE)
    text = draw_placements(PIECES, {"rows": cores}, MACHINE).text
    assert f"rows: {load(PIECES, cores, MACHINE).traffic / PIECES.words.sum():.2f} hops a word" in text
    assert "busiest link east" in draw_load(PIECES, cores, MACHINE).text


def test_a_playback_of_one_message():
    """Three words over three cores: the links are busy one after the other, for three cycles each."""
    line = Machine(1, 3)
    run = simulate(program(line, [Message(line.route((0, 0), (0, 2)), 3)]))
    frames = play(run).frames
    assert len(frames) == run.cycles + 1
    busy = {
        link: [k for k, frame in enumerate(frames) if link in frame.links] for frame in frames for link in frame.links
    }
    first, second = busy[(0, 0), (0, 1)], busy[(0, 1), (0, 2)]
    assert len(first) == len(second) == 3 and second[0] == first[0] + 1
    working = [k for k, frame in enumerate(frames) if (0, 2) in frame.cores]
    assert len(working) == 3 and working[0] == second[0] + 1 + line.ramp


def test_depth_is_colour():
    run = simulate(program(Machine(1, 4), reduce_messages(TREES["chain"](4), 4)))
    seen = {link: colour for frame in play(run).frames for link, colour in frame.links.items()}
    assert seen == {((0, 3), (0, 2)): 0, ((0, 2), (0, 1)): 1, ((0, 1), (0, 0)): 2}


def test_traffic_of_a_run():
    run = simulate(program(Machine(1, 4), reduce_messages(TREES["star"](4), 5)))
    assert "busiest link west: 15 words, from core (0, 1)" in draw_traffic(run).text


def test_a_pipeline_fills_and_empties():
    cores = row_major(PIECES, MACHINE)
    frames = pipeline(PIECES, cores, MACHINE, examples=9).frames
    sizes = [len(frame.cores) for frame in frames]
    assert max(sizes) == len(PIECES) and sizes[0] < max(sizes) > sizes[-1]
    assert set(frames[0].cores.values()) == {0} and set(frames[-1].cores.values()) == {8}


CHAIN = (
    Operation("lin", (), 64, 16, 16, 4, 32, True),
    Operation("pow", (Read("lin", 4),), 0, 16, 16, 4, 4),
    Operation("add", (Read("lin", 4), Read("pow", 4)), 0, 32, 16, 4, 4),
    Operation("out", (Read("add", 4),), 0, 16, 16, 4, 4),
)


def test_fused_operations_read_once():
    work = fused(CHAIN, ["pow", "add"])
    assert [o.name for o in work] == ["lin", "add", "out"]
    assert work[1].reads == (Read("lin", 4),) and work[1].flops == 8


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["pow", "gelu"], "There is no operation 'gelu'"),
        (["lin", "pow"], "lin has a matrix"),
        (["pow", "out"], "add reads pow, which would be inside"),
    ],
    ids=["unknown", "matrix", "read outside"],
)
def test_what_cannot_be_fused(names, sentence):
    with pytest.raises(ValueError, match=sentence):
        fused(CHAIN, names)


def test_arrays_of_a_load_have_the_shape_of_the_grid():
    result = load(PIECES, row_major(PIECES, MACHINE), MACHINE)
    assert {a.shape for a in (result.computing, result.ramps, result.memory, *result.links.values())} == {(6, 7)}
    assert not result.links["east"][:, -1].any() and not result.links["west"][:, 0].any()
    assert not result.links["south"][-1].any() and not result.links["north"][0].any()
    assert np.isclose(result.memory.sum(), PIECES.nbytes.sum())
