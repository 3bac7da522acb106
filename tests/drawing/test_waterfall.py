"""A waterfall tells what each step took away or added, in the picture and in its text form."""

import xml.etree.ElementTree as ET

import pytest

from passlab.drawing import waterfall

SVG = "{http://www.w3.org/2000/svg}"
STEPS = {"as traced": 80, "folded": 60, "laid out": 66, "planned": 66, "fused": 20}


def words(picture) -> list[str]:
    return [text.text for text in ET.fromstring(picture.svg).iter(f"{SVG}text")]


def test_each_step_is_told_with_its_change():
    lines = repr(waterfall("kernels", STEPS)).splitlines()
    assert lines[0] == "kernels" and len(lines) == 2 + len(STEPS)
    assert lines[1].split() == ["as", "traced", "█" * 40, "80"]
    assert "█" * 30 + "░" * 10 in lines[2] and lines[2].endswith("60  −25%")
    assert "█" * 30 + "▓" * 3 in lines[3] and lines[3].endswith("66  +10%")
    assert lines[4].endswith("66  no difference") and lines[5].endswith("20  −70%")


def test_the_picture_says_the_same_without_colours():
    text = words(waterfall("kernels", STEPS))
    assert {"kernels", "as traced", "−25%", "+10%", "no difference", "−70%", "20"} <= set(text)


def test_a_change_within_the_spread_is_called_no_gain():
    picture = waterfall("a call", {"before": 0.010, "after": 0.0096}, "s", {"before": 0.0005, "after": 0.0007})
    assert "9.6 ms  within the spread" in repr(picture)
    assert "9.6 ms  −4%" in repr(waterfall("a call", {"before": 0.010, "after": 0.0096}, "s"))


@pytest.mark.parametrize(("unit", "amount"), [("B", "2 MiB"), ("s", "2.1e+06 s"), ("kernels", "2,097,152 kernels")])
def test_units(unit, amount):
    assert amount in repr(waterfall("t", {"a": 2**21, "b": 2**20}, unit))


@pytest.mark.parametrize("figures", [{}, {"one": 1}, {"a": 1, "b": -1}])
def test_what_cannot_be_drawn_is_refused(figures):
    with pytest.raises(ValueError, match="two figures or more, none below zero"):
        waterfall("t", figures)
