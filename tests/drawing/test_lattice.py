"""Lattices show every point at its time, what waits for what, and what was left out."""

import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

from passlab.drawing import lattice, plot, slider
from passlab.drawing.lattice import ARROWS, PANELS, POINTS, colour, instance

SVG = "{http://www.w3.org/2000/svg}"
STENCIL = SimpleNamespace(
    statements=[SimpleNamespace(name="S", domain="[T, N] -> { S[t, i] : 0 <= t < T and 0 <= i < N }")]
)
NEIGHBOURS = "[T, N] -> { S[t, i] -> S[t + 1, j] : 0 <= t < T - 1 and i - 1 <= j <= i + 1 }"
SIZES = {"T": 3, "N": 4}


def tips(svg: str, start: str = "") -> list[str]:
    return [it.text for it in ET.fromstring(svg).iter(f"{SVG}title") if (it.text or "").startswith(start)]


def points(svg: str) -> dict[str, tuple[float, float, str]]:
    """Instance → x, y and colour of its circle."""
    circles = {}
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        if group.get("class") == "pt":
            dot, name = group.find(f"{SVG}circle"), group.find(f"{SVG}title").text.split(":")[0]
            circles[name] = float(dot.get("cx")), float(dot.get("cy")), dot.get("fill")
    return circles


def grid(rows: int, columns: int) -> dict:
    return {("S", (y, x)): (y, x) for y in range(rows) for x in range(columns)}


# --- points and time


def test_the_first_dimension_goes_down_and_the_second_to_the_right():
    spots = points(plot(grid(2, 3)).svg)
    assert len(spots) == 6
    assert spots["S[0, 0]"][0] < spots["S[0, 1]"][0] and spots["S[0, 0]"][1] == spots["S[0, 1]"][1]
    assert spots["S[0, 0]"][1] < spots["S[1, 0]"][1] and spots["S[0, 0]"][0] == spots["S[1, 0]"][0]


def test_colours_follow_time_and_not_place():
    backwards = plot({("S", (x,)): -x for x in range(5)})
    forwards = points(plot({("S", (x,)): x for x in range(5)}).svg)
    assert points(backwards.svg)["S[4]"][2] == forwards["S[0]"][2] == colour(0, 4)[0]
    assert len({fill for _, _, fill in forwards.values()}) == 5


def test_numbers_can_be_read_on_every_colour():
    def light(code: str) -> float:
        parts = [int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for step in range(101):
        fill, ink = colour(step, 100)
        one, two = sorted((light(fill), light("#FFFFFF" if ink == "#fff" else ink)))
        assert (two + 0.05) / (one + 0.05) > 3.5, (step, fill, ink)


def test_time_goes_from_dark_to_light_so_that_it_is_seen_without_colours():
    grey = [sum(int(colour(n, 20)[0][i : i + 2], 16) * w for i, w in ((1, 3), (3, 6), (5, 1))) for n in range(21)]
    assert grey == sorted(grey)


def test_points_of_one_front_have_one_step_and_a_band():
    times = {("S", (t, i)): (t + i, t) for t in range(3) for i in range(3)}
    alone, fronts = plot(times), plot(times, fronts=1)
    assert len({fill for *_, fill in points(alone.svg).values()}) == 9
    assert len({fill for *_, fill in points(fronts.svg).values()}) == 5
    assert tips(fronts.svg, "step 2") == ["step 2: 3 points that may run at once"] and not tips(alone.svg, "step 2")
    assert "may run at once" in fronts.svg and "may run at once" not in alone.svg


def test_deep_loops_are_drawn_slice_by_slice():
    cube = plot({("S", (i, j, k)): (k, i, j) for i in range(2) for j in range(2) for k in range(3)})
    assert "S, i = 0" in cube.svg and "S, i = 1" in cube.svg and "S, i = 2" not in cube.svg
    assert "S, i = 1  (step of each point, j → k)" in cube.text
    places = {spot[:2] for spot in points(cube.svg).values()}
    assert len(places) == 12


def test_text_has_the_step_of_every_point():
    rows = plot({("S", (y, x)): (x, y) for y in range(2) for x in range(3) if x >= y}).text.splitlines()
    assert [line.split() for line in rows[1:]] == [["0", "1", "2"], ["0", "0", "1", "3"], ["1", "·", "2", "4"]]


# --- arrows, tiles, what is broken


def test_an_arrow_begins_at_its_source_and_ends_at_its_target():
    picture = plot(grid(2, 2), [(("S", (0, 1)), ("S", (1, 0)))])
    [path] = [it for it in ET.fromstring(picture.svg).iter(f"{SVG}path") if "Q" in it.get("d")][:1]
    x, y, *_, u, v = map(float, re.findall(r"[\d.]+", path.get("d")))
    spots = points(picture.svg)
    near = {name: min(abs(x - a) + abs(y - b) for a, b in [spot[:2]]) for name, spot in spots.items()}
    far = {name: min(abs(u - a) + abs(v - b) for a, b in [spot[:2]]) for name, spot in spots.items()}
    assert min(near, key=near.get) == "S[0, 1]" and min(far, key=far.get) == "S[1, 0]"
    assert "S → S by (1, -1)" in picture.text


def test_tiles_are_outlined_and_counted():
    picture = plot(grid(4, 6), tiles={at: (at[1][0] // 2, at[1][1] // 3) for at in grid(4, 6)})
    assert len(tips(picture.svg, "tile (")) == 4 and "4 tiles" in picture.text
    assert all("6 points" in tip for tip in tips(picture.svg, "tile ("))


@pytest.mark.parametrize(
    ("time", "sentence"),
    [
        ((5, 1), "S[0] has to run before S[1], but runs in step 1, and S[1] in step 0."),
        ((3, 3), "S[0] has to run before S[1], and both run in step 0."),
        ((1, 5), "S[0] has to run before S[1], and does: in steps 0 and 1."),
    ],
)
def test_a_violated_pair_is_told_and_circled(time, sentence):
    pair = (("S", (0,)), ("S", (1,)))
    picture = plot(dict(zip(pair, time, strict=True)), violated=pair)
    assert sentence in picture.text and sentence in " ".join(ET.fromstring(picture.svg).itertext())
    assert picture.svg.count('fill="none" stroke="#C24E00"') == 3  # two rings and a line


# --- sizes


def test_what_is_too_much_is_left_out_and_said():
    many = grid(50, 60)
    arrows = [(("S", (y, x)), ("S", (y, x + 1))) for y in range(50) for x in range(59)]
    picture = plot(many, arrows, violated=(("S", (49, 58)), ("S", (49, 59))))
    shown = len(points(picture.svg))
    assert POINTS / 2 < shown <= POINTS and len(tips(picture.svg, "S[")) <= shown + ARROWS
    for sentence in (
        f"{shown} of 3,000 points",
        f"The picture shows {ARROWS} of",
        "S[49, 58] and S[49, 59], is not among",
    ):
        assert sentence in picture.note and sentence.split()[0] in picture.svg


def test_slices_are_limited():
    deep = plot({("S", (i, j, k)): (i, j, k) for i in range(40) for j in range(2) for k in range(2)})
    assert f"The picture shows {PANELS} of 40 slices." in deep.note and len(points(deep.svg)) == PANELS * 4


def test_no_points_are_an_error_that_says_so():
    with pytest.raises(ValueError, match="no points"):
        plot({})


def test_names_are_escaped():
    ET.fromstring(plot({("<b>", (0,)): 0, ("<b>", (1,)): 1}, title="a < b & c").svg)
    ET.fromstring("<div>" + plot({("<b>", (0,)): 0}).html + "</div>")


# --- from isl


def test_a_schedule_of_isl_gives_times_arrows_tiles_and_fronts():
    skewed = "{ S[t, i] -> [floor(t / 2), floor((t + i) / 2), t + i, t] }"
    picture = lattice(STENCIL, skewed, SIZES, NEIGHBOURS, tiles=2)
    scene = picture.scene
    assert scene.times["S", (2, 1)] == (1, 1, 3, 2) and len(scene.times) == 12
    assert len(scene.arrows) == 2 * (3 * 4 - 2) and (("S", (0, 0)), ("S", (1, 1))) in scene.arrows
    assert scene.tiles["S", (2, 1)] == (1, 1) and picture.panels[0].names == ("i", "t")
    assert lattice(STENCIL, "{ S[t, i] -> [2t + i, t] }", SIZES, fronts=1).scene.last == 2 * 2 + 3


def test_the_violated_pair_is_given_as_text():
    broken = lattice(STENCIL, "{ S[t, i] -> [i, t] }", SIZES, NEIGHBOURS, violated=("S[0, 1]", "S[1, 0]"))
    assert "S[0, 1] has to run before S[1, 0], but runs in step 3, and S[1, 0] in step 1." in broken.text
    assert instance("S[-1, 20]") == ("S", (-1, 20)) and instance("A[]") == ("A", ())
    with pytest.raises(ValueError, match="is written like"):
        instance("S(1)")


def test_huge_sizes_are_cut_before_points_are_listed():
    huge = lattice(STENCIL, "{ S[t, i] -> [t, i] }", {"T": 10**6, "N": 10**6}, NEIGHBOURS)
    assert len(huge.scene.times) <= POINTS and "smallest coordinates" in huge.note


def test_a_size_without_a_number_is_named():
    with pytest.raises(ValueError, match="The size N has no value"):
        lattice(STENCIL, "{ S[t, i] -> [t, i] }", {"T": 3})


# --- the slider


def test_the_slider_has_a_place_for_each_step_and_needs_no_script():
    page = slider(STENCIL, "{ S[t, i] -> [2t + i, t] }", SIZES, fronts=1).html
    assert page.count("<input") == 8 and "<script" not in page
    assert "Step 2: S[0, 2], S[1, 0] (4 of 12 have run)" in page
    assert page.count("checked>") == 1 and "--now:7" in page


def test_many_steps_share_places():
    far = slider(STENCIL, "{ S[t, i] -> [t, i] }", {"T": 10, "N": 25})
    assert far.count == 84 and far.by == 3 and far.at(83)[:2] == (249, 249)
    assert "Steps 0 to 2: S[0, 0], S[0, 1], S[0, 2] (3 of 250 have run)" in far.html


def test_the_live_slider_moves_what_is_now():
    box = slider(STENCIL, "{ S[t, i] -> [t, i] }", SIZES).live()
    row, style, picture = box.children
    bar, caption = row.children[1:]
    assert "--now:11" in style.value and "S[2, 3]" in caption.value
    bar.value = 4
    assert "--now:4" in style.value and "S[1, 0]" in caption.value and "<svg" in picture.value


def test_a_picture_is_saved_without_graphviz(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    saved = plot(grid(2, 2)).save(tmp_path / "grid.svg")
    ET.parse(saved)
    with pytest.raises(ValueError, match=r"saved as \.svg, \.html, \.txt"):
        plot(grid(2, 2)).save(tmp_path / "grid.png")
