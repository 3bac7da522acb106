"""Buffers that are placed by hand, and first fit step by step: in text, and in a browser."""

import json

import pytest
from playwright.sync_api import expect, sync_playwright

from autograder.toys.browser import QUIET, chromium
from passlab.memory.allocate import ORDERS, first_fit
from passlab.memory.buffers import Buffer, check, height, lower_bound
from passlab.notebook.placing import first_fit_steps, place

BUFFERS = [Buffer("a", 2, 4, 2), Buffer("<b>", 3, 6, 3), Buffer("c", 5, 6, 1)]


def test_the_text_has_every_buffer_the_bound_and_every_step():
    text = place(BUFFERS, "Three").text.splitlines()
    assert text[:4] == ["Three", "a: 2 bytes, steps 2 to 3", "<b>: 3 bytes, steps 3 to 5", "c: 1 byte, step 5"]
    assert f"smaller than {lower_bound(BUFFERS)} bytes" in text[4]
    for name, order in ORDERS.items():
        offsets = first_fit(BUFFERS, order)
        lines = first_fit_steps(BUFFERS, order).text.splitlines()[1:]
        assert [line.split()[1].rstrip(":") for line in lines] == [b.name for b in sorted(BUFFERS, key=order)], name
        for line, buffer in zip(lines, sorted(BUFFERS, key=order), strict=True):
            assert f"Lowest free offset: {offsets[buffer.name]}." in line
        assert lines[-1].endswith(f"Height {height(BUFFERS, offsets)}, bound {lower_bound(BUFFERS)}.")
    by_size = first_fit_steps(BUFFERS).text.splitlines()[1:]
    assert "nothing is live with it" in by_size[0] and "live with it: <b> at 0 to 2" in by_size[1]


def test_what_graphviz_does_not_draw_says_nothing_of_it():
    for shown in (place(BUFFERS), first_fit_steps(BUFFERS)):
        assert shown._repr_mimebundle_()["text/plain"] == shown.text


def test_no_name_keeps_the_script_open():
    script = place([Buffer("<!--<script>", 0, 1, 1)]).html.partition("<script>")[2]
    assert "<" + "!--" not in script.replace("function", "") and script.count("<script") == 0


@pytest.mark.parametrize("buffers", [[], [Buffer("a", 0, 1, 100)], [Buffer("a", 0, 50, 1)], BUFFERS * 9])
def test_what_does_not_fit_a_screen_is_refused(buffers):
    for show in (place, first_fit_steps):
        with pytest.raises(ValueError, match="cannot be placed by hand"):
            show(buffers)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with both, in a window as wide as a notebook's output."""
    path = tmp_path_factory.mktemp("placing") / "page.html"
    body = place(BUFFERS, "Three").html + first_fit_steps(BUFFERS).html
    path.write_text(f'<!doctype html><html lang="en"><meta charset="utf-8"><title>x</title>{body}')
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page(viewport={"width": 800, "height": 900})
        page.set_default_timeout(30_000)
        page.goto(f"file://{path}")
        yield page
        browser.close()


def offsets_on(page):
    name, _, text = page.locator("code").inner_text().partition(" = ")
    assert name == "offsets"
    return json.loads(text)


def test_buffers_start_without_overlaps_and_move_by_keys(page):
    page.get_by_role("button", name="Start again").click()
    check(BUFFERS, offsets_on(page))
    status, box = page.get_by_role("status"), page.get_by_role("slider", name="<b>: 3 bytes")
    box.focus()
    page.keyboard.press("Home")
    expect(status).to_contain_text("a and <b> overlap.")
    expect(box).to_have_attribute("aria-valuetext", "offset 0, overlaps a")
    page.keyboard.press("End")
    expect(box).to_have_attribute("aria-valuenow", "3")
    page.keyboard.press("ArrowUp")
    expect(box).to_have_attribute("aria-valuenow", "3")  # the top
    page.keyboard.press("ArrowDown")
    expect(box).to_have_attribute("aria-valuenow", "2")
    page.keyboard.press("Tab")
    page.keyboard.press("Home")
    offsets = offsets_on(page)
    assert offsets == {"a": 0, "<b>": 2, "c": 0}
    expect(status).to_contain_text(f"Height {height(BUFFERS, offsets)}, bound {lower_bound(BUFFERS)}. No arena")


def test_a_buffer_follows_the_pointer_up_and_down(page):
    page.get_by_role("button", name="Start again").click()
    box = page.get_by_role("slider", name="c: 1 byte")
    before, place_ = offsets_on(page)["c"], box.bounding_box()
    x, y, byte = place_["x"] + 5, place_["y"] + place_["height"] / 2, place_["height"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y + 3 * byte)
    page.mouse.up()
    assert offsets_on(page)["c"] == before - 3
    page.mouse.move(x, y)
    assert offsets_on(page)["c"] == before - 3, "it is let go"
    assert abs(box.bounding_box()["x"] - place_["x"]) < 5, "time is fixed"


def test_first_fit_steps_show_what_is_placed_so_far(page):
    visible = page.locator(".card svg g[transform]:visible")
    expect(visible).to_have_count(1)
    page.get_by_role("radio").first.focus()
    for count in (2, 3):
        page.keyboard.press("ArrowRight")
        expect(visible).to_have_count(count)
    expect(page.locator(".bars :visible", has_text="3/3").first).to_contain_text("Lowest free offset")


def test_all_of_a_picture_is_inside_its_frame(page):
    cut = """all => all.filter(svg => {
        const frame = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text, rect")].some(part => {
            const box = part.getBoundingClientRect();
            return box.height && (box.top < frame.top || box.bottom > frame.bottom || box.right > frame.right);
        });
    }).length"""
    assert page.locator("svg").count() == 2
    assert page.locator("svg").evaluate_all(cut) == 0
