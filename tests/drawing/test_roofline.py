"""The roofline and the traffic chart say what they were given, and refuse what cannot be drawn."""

import re
import xml.etree.ElementTree as ET

import pytest

from passlab.drawing.roofline import roofline, traffic
from passlab.measure import machine as machines
from passlab.measure.machine import Machine, measure_machine

SVG = "{http://www.w3.org/2000/svg}"
LAPTOP = Machine(bandwidth=8e9, flops=64e9, launch=1e-6, name="a laptop")


def words(svg):
    return [it.text for it in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_roof_is_the_memory_below_the_ridge_and_the_arithmetic_above_it():
    assert LAPTOP.ridge == 8
    assert LAPTOP.attainable(2) == 16e9 and LAPTOP.attainable(8) == LAPTOP.attainable(100) == 64e9


def test_a_bound_takes_the_longer_of_moving_and_computing_and_adds_the_launches():
    assert LAPTOP.bound(flops=64e9, nbytes=0) == 1.0
    assert LAPTOP.bound(flops=64e9, nbytes=16e9) == 2.0
    assert LAPTOP.bound(flops=0, nbytes=0, launches=3) == pytest.approx(3e-6)


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ((0, 1, 0), "bandwidth must be greater than 0; got 0"),
        ((1, float("nan"), 0), "flops must be greater than 0; got nan"),
        ((1, 1, -1), "launch must not be negative; got -1"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(numbers, sentence):
    with pytest.raises(ValueError, match=sentence):
        Machine(*numbers)


def test_this_machine_is_measured_once():
    measure_machine.cache_clear()
    first = measure_machine()
    assert first.bandwidth > 1e8 and first.flops > 1e9 and 1e-8 < first.launch < 1e-2
    assert measure_machine() is first


def test_measuring_takes_the_least_time(monkeypatch):
    import torch

    clock = iter([0.0, 5.0, 10.0, 12.0, 20.0, 29.0])
    monkeypatch.setattr(machines.time, "perf_counter", lambda: next(clock))
    assert machines._best(lambda: None, 2, torch.device("cpu"), rounds=3) == 1.0


def test_a_roofline_tells_intensity_speed_and_the_share_of_the_roof():
    text = repr(roofline({"eager": (1e6, 8e6, 2e-3), "matmul": (2e9, 2e7, 1e-1)}, LAPTOP))
    eager, matmul = text.splitlines()[-2:]
    assert eager.split() == ["eager", "0.125", "0.5", "50%", "memory"]
    assert matmul.split() == ["matmul", "100", "20", "31%", "compute"]


def marked(svg, tip):
    """The drawn thing whose tip begins so."""
    groups = ET.fromstring(svg).iter(f"{SVG}g")
    return next(it for it in groups if (it.findtext(f"{SVG}title") or "").startswith(tip))


def corners(path):
    return [tuple(map(float, point)) for point in re.findall(r"[ML] ([\d.-]+) ([\d.-]+)", path.get("d"))]


def test_what_was_not_timed_is_hollow_and_lies_on_the_roof():
    picture = roofline({"timed": (1e6, 1e6, 1e-3), "bound": (1e6, 1e6)}, LAPTOP)
    assert "not timed" in repr(picture)
    timed, bound = (next(marked(picture.svg, tip).iter(f"{SVG}use")) for tip in ("timed", "bound"))
    assert "fill: #ffffff" in bound.get("style") and "fill: #0072b2" in timed.get("style")
    paths = [corners(it) for it in ET.fromstring(picture.svg).iter(f"{SVG}path") if "#1a1a1a" in it.get("style", "")]
    ((x0, y0), (x1, y1), _) = next(path for path in paths if len(path) == 3)
    x, y = float(bound.get("x")), float(bound.get("y"))
    assert abs((y - y0) - (y1 - y0) / (x1 - x0) * (x - x0)) < 0.5


def test_a_mark_lies_within_the_picture_however_far_the_numbers_are_apart():
    points = {"slow": (1e3, 1e9, 10.0), "fast": (1e15, 1e9, 1e3)}
    picture = roofline(points, LAPTOP)
    _, _, wide, high = map(float, ET.fromstring(picture.svg).get("viewBox").split())
    for name in points:
        mark = next(marked(picture.svg, name).iter(f"{SVG}use"))
        assert 10 < float(mark.get("x")) < wide - 10 and 10 < float(mark.get("y")) < high - 10
    assert {"slow", "fast"} <= set(words(picture.svg))


@pytest.mark.parametrize(
    "point", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, -1), (1,), (1, 2, 3, 4), (1, float("inf"), 1)]
)
def test_a_point_that_has_no_place_is_refused(point):
    with pytest.raises(ValueError, match="'odd' must be"):
        roofline({"odd": point}, LAPTOP)


def test_pictures_of_nothing_are_refused():
    with pytest.raises(ValueError, match="roofline got no programs"):
        roofline({}, LAPTOP)
    with pytest.raises(ValueError, match="traffic got no programs"):
        traffic({})
    with pytest.raises(ValueError, match="'add' of 'eager' moves -1 bytes"):
        traffic({"eager": {"add": -1}})


def test_traffic_has_a_box_for_each_kernel_as_wide_as_its_bytes():
    picture = traffic({"eager": {"mul": 8192, "add": 16384}, "fused": {"mul_add": 6144}})
    boxes = [next(marked(picture.svg, f"{name}: ").iter(f"{SVG}path")) for name in ("mul", "add", "mul_add")]
    wide = [max(x for x, _ in corners(box)) - min(x for x, _ in corners(box)) for box in boxes]
    assert wide[1] == pytest.approx(2 * wide[0], abs=0.2) and wide[2] == pytest.approx(0.75 * wide[0], abs=0.2)
    assert "24 KiB in 2 kernels" in picture.text and "6 KiB in 1 kernel  × 0.25" in picture.text


def test_a_program_without_traffic_can_be_drawn():
    assert "0 B in 0 kernels" in traffic({"nothing": {}, "one": {"add": 0}}).text


def test_names_are_escaped_and_the_picture_is_saved(tmp_path):
    picture = roofline({"a < b & c": (1e6, 1e6, 1e-3)}, LAPTOP, "x < y")
    assert "a < b & c" in words(picture.svg)
    saved = picture.save(tmp_path / "roof.svg").read_text()
    ET.fromstring(saved)
    assert "a < b & c" in picture.save(tmp_path / "roof.txt").read_text()
    assert picture.save(tmp_path / "roof.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"roof\.dot"):
        picture.save(tmp_path / "roof.dot")
    assert "<svg" in picture.html


def test_a_picture_is_the_same_every_time_and_leaves_no_trace():
    import matplotlib

    svg = roofline({"a $x$ 漢": (1e6, 1e6, 1e-3)}, LAPTOP).svg
    assert "a $x$ 漢" in words(svg)
    with matplotlib.rc_context({"figure.facecolor": "black", "font.size": 30}):
        before = dict(matplotlib.rcParams)
        assert svg == roofline({"a $x$ 漢": (1e6, 1e6, 1e-3)}, LAPTOP).svg, "whatever a notebook has set"
        assert dict(matplotlib.rcParams) == before
    assert "<style" not in svg and "<metadata" not in svg and ' id="axes' not in svg
