"""Pictures of a mesh: what they show, as text and as SVG."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from passlab.drawing.mesh import FRAMES, Frame, heat, placements, playback

LINKS = {way: np.zeros((3, 4)) for way in ("east", "west", "south", "north")}
LINKS["east"][1, 2] = 7


@pytest.mark.parametrize("shape", [(3, 4), (30, 40)], ids=["drawn", "pixels"])
def test_heat_is_a_picture_with_its_units(shape):
    links = {way: np.ones(shape) for way in LINKS}
    picture = heat(np.arange(np.prod(shape)).reshape(shape), links, "cycles", title="A mesh")
    ET.fromstring(picture.svg)
    assert "A mesh" in picture.svg and "a core, cycles" in picture.svg and "a link, cycles" in picture.svg


def test_heat_as_text_names_the_busiest_link():
    text = heat(np.eye(3, 4), LINKS, "words").text
    assert "busiest link east: 7 words, from core (1, 2)" in text
    assert text.splitlines()[2] == "@   "


def test_placements_draw_each_plan():
    plans = {"rows": np.array([[0, 0, 1], [1, 2, -1]]), "search": np.array([[0, 1, 1], [0, 2, -1]])}
    picture = placements(plans, ["norm", "qkv", "soft"], "Who is where")
    ET.fromstring(picture.svg)
    assert all(word in picture.svg for word in ("rows", "search", "Who is where"))
    assert "aab\nbc." in picture.text and "abb\nac." in picture.text


def test_a_placement_is_needed():
    with pytest.raises(ValueError, match="no placement to draw"):
        placements({})


FRAMES_3 = [
    Frame({(0, 0): 0}, {}, "core (0, 0) computes"),
    Frame({}, {((0, 0), (0, 1)): 1}, "it sends"),
    Frame({(0, 1): 1}, {}, "(0, 1) has it"),
]


def test_a_playback_shows_one_frame_at_a_time():
    picture = playback(1, 2, FRAMES_3, "Two cores")
    assert all(f'class="fr fr{k}"' in picture.html for k in range(3))
    assert len(re.findall(r'<input type="radio"', picture.html)) == 3
    one = re.search(r'name="(pl\w+)"', picture.html)[1]
    assert re.search(r'name="(pl\w+)"', playback(1, 2, FRAMES_3).html)[1] != one, "it may stand on a page twice"
    for k in range(3):
        ET.fromstring(picture.still(k))
    lines = [picture.still(k).count("<line") for k in range(3)]
    assert lines[1] == lines[0] + 1 == lines[2] + 1
    assert picture.text.splitlines() == ["Two cores", *(f"{k}: {frame.caption}" for k, frame in enumerate(FRAMES_3))]


def test_a_playback_lives_as_a_widget():
    widgets = pytest.importorskip("ipywidgets")
    live = playback(1, 2, FRAMES_3).live()
    bar, caption = live.children[0].children[1:]
    assert isinstance(bar, widgets.IntSlider) and caption.value == FRAMES_3[0].caption
    bar.value = 2
    assert caption.value == FRAMES_3[2].caption and ".fr2" in live.children[1].value


@pytest.mark.parametrize(
    ("frames", "start", "sentence"),
    [([], 0, "nothing to play"), (FRAMES_3 * FRAMES, 0, "too many to play"), (FRAMES_3, 3, "There is no frame 3")],
    ids=["none", "many", "start"],
)
def test_what_cannot_be_played(frames, start, sentence):
    with pytest.raises(ValueError, match=sentence):
        playback(1, 2, frames, start=start)
