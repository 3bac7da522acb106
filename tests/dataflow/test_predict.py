"""The table of measured operators, the two predictions, and how they are judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from passlab import models
from passlab.dataflow.predict import (
    KINDS,
    SIZES,
    fit,
    in_network,
    load,
    load_machine,
    load_noise,
    measure,
    measure_often,
    roofline,
    score,
    without,
)
from passlab.drawing.predicted import scatter


def test_the_table_holds_the_zoo():
    rows = load()
    assert {row.model for row in rows} >= set(SIZES)
    assert {row.kind for row in rows} <= {*KINDS.values(), "depthwise"}
    assert all(row.seconds > 0 and row.nbytes > 0 and row.flops > 0 for row in rows)
    assert load_machine().flops > 1e9 and 0 < load_noise() < 0.1


def test_a_row_says_how_much_a_layer_does():
    (layer, *_) = measure("mlp", models.ZOO["mlp"].build(), (4, 16), rounds=2)
    assert layer.kind == "linear" and layer.flops == 2 * 16 * 32 * 4
    assert layer.nbytes == 4 * (4 * 16 + 16 * 32 + 32 + 4 * 32)


def test_a_fit_is_nearer_than_the_roofline_on_a_network_not_seen():
    rows, machine = load(), load_machine()
    new = [row for row in rows if row.model == "vit"]
    times = [row.seconds for row in new]
    predict = fit(without(rows, new)[::3], machine)
    fitted, alone = score(predict(new), times), score(roofline(new, machine), times)
    assert fitted.error < alone.error / 2 and fitted.rank > alone.rank


def test_a_fit_can_tell_the_same_operator_in_two_networks_apart():
    alike = [row for row in load() if row.model == "mlp" and row.sizes == "1x16"]
    slow = [replace(row, model="slow", sizes="8x16", seconds=2 * row.seconds) for row in alike]
    rows, machine = [*alike, *slow] * 20, load_machine()
    (fast_time, *_), (slow_time, *_) = (fit(rows, machine, context=in_network(rows))(run) for run in (alike, slow))
    assert slow_time > 1.9 * fast_time
    assert len(set(fit(rows, machine)([alike[0], slow[0]]))) == 1, "without its network, both are one operator"


def test_all_visits_but_the_least_times_of_two_halves_are_dropped():
    machine, pairs = measure_often([("mlp", models.mlp((16, 8)), (4, 16))], visits=2, rounds=2)
    assert machine.bandwidth > 0 and [(one.node, one.kind) for one, _ in pairs] == [("_0", "linear")]
    assert all(replace(one, seconds=0) == replace(other, seconds=0) for one, other in pairs)


def test_an_unseen_operator_has_no_twin_among_the_seen():
    rows = load()
    new = [row for row in rows if row.model == "resnet18"]
    left = without(rows, new)

    def alike(row):
        return replace(row, model="", sizes="", node="", seconds=0)

    others = [row for row in rows if row.model != "resnet18"]
    assert not {alike(row) for row in left} & {alike(row) for row in new}
    assert {alike(row) for row in others} - {alike(row) for row in left} <= {alike(row) for row in new}
    assert 0 < len(left) < len(others), "resnet50 begins as resnet18 does"


def test_scores():
    assert score([1, 2, 4], [1, 2, 4]) == type(score([1, 2], [1, 2]))(0.0, 1.0)
    assert score([3, 3, 3], [1, 2, 3]).rank == 0
    assert score([3, 2, 1], [1, 2, 3]).rank == -1
    assert score([1.1, 2.2, 30], [1, 2, 3]).error == pytest.approx(0.1)
    with pytest.raises(ValueError, match="1 predictions for 2 times"):
        score([1], [1, 2])
    with pytest.raises(ValueError, match="at least 2"):
        fit([], load_machine())


def test_a_damaged_table_names_its_row(tmp_path):
    bad = tmp_path / "operators.csv"
    bad.write_text("# name = x\nmodel,sizes\nmlp,1\n")
    with pytest.raises(ValueError, match=r"Row 1 of operators\.csv"):
        load(bad)


def test_the_picture_has_a_text():
    text = str(scatter({"a": ([1e-6, 2e-6], [1e-6, 4e-6])}, title="T"))
    assert "T" in text
    with pytest.raises(ValueError, match="as many predictions"):
        scatter({"a": ([1e-6], [1e-6, 4e-6])})
