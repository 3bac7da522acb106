"""Cards in a browser, on a page with JupyterLab's rules for lines of code and tables in its dark theme."""

import pytest
from playwright.sync_api import sync_playwright

from autograder.toys.browser import QUIET, chromium
from passlab.drawing.player import State, player
from passlab.notebook.overview import progress
from passlab.notebook.ui import Card

#: As in JupyterLab 4's `rendermime`, with the colours of its dark theme.
DARK = """body{background:#111;color:#fff;width:650px}
pre{color:#fff;background:#111;white-space:pre-wrap;word-break:break-all;margin:0}
code{color:#fff;background:#333}
tbody tr{background:#111;color:#fff}"""
LONG = "def f(x):  # " + "words " * 30
CARDS = {
    "solution": lambda: Card("", "solution", code=LONG, where="there").html,
    "question": lambda: (
        Card(
            "",
            "question",
            title="?",
            text="a = add_(x)\nb = x\n\n" + "`add_` writes. Which words are broken where a line ends?" + " Any?" * 9,
            choices=[],
            tail="",
            drawn=None,
        ).html
    ),
    "guessed": lambda: Card("", "guessed", lead="No:", text="`add_` writes.", tail="").html,
    "milestones": lambda: Card("", "milestones", rows=[("gpt", "yours", 3, 2, 1, 3, 1)], notes=[]).html,
    "progress": lambda: progress_card(),
    "player": lambda: player([State("one", "first", "")], "picture", title="A title"),
}
READABLE = """root => [...root.querySelectorAll("*")].filter(e => e.checkVisibility() && e.innerText?.trim()).map(e => {
    let at = e, ground = "rgba(0, 0, 0, 0)";
    while (at && ground === "rgba(0, 0, 0, 0)") {
        ground = getComputedStyle(at).backgroundColor;
        at = at.parentElement;
    }
    const light = colour => colour.match(/[0-9.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 765;
    return [e.tagName, Math.abs(light(ground) - light(getComputedStyle(e).color)), light(ground)];
}).filter(([tag, contrast, ground]) => contrast < 0.3 || ground < 0.5).map(([tag]) => tag)"""


def progress_card(day: str | None = "day01") -> str:
    shown: list[Card] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("passlab.notebook.overview.show", shown.append)
        progress(day)
    return shown[0].html


@pytest.fixture(scope="module")
def page():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        yield browser.new_page(viewport={"width": 700, "height": 900})
        browser.close()


@pytest.mark.parametrize("name", CARDS)
def test_a_card_can_be_read_in_the_dark(page, name):
    page.set_content(f"<!doctype html><style>{DARK}</style><main>{CARDS[name]()}</main>")
    assert page.locator("main").evaluate(READABLE) == []


@pytest.mark.parametrize("name", ["solution", "question"])
def test_lines_end_between_words(page, name):
    page.set_content(f"<!doctype html><style>{DARK}</style><main>{CARDS[name]()}</main>")
    breaks = "all => all.filter(e => getComputedStyle(e).wordBreak === 'break-all' && "
    breaks += "getComputedStyle(e).whiteSpace !== 'pre').length"
    assert page.locator("main *").evaluate_all(breaks) == 0


def test_prose_of_a_question_is_no_code_and_its_names_are(page):
    page.set_content(f"<main>{CARDS['question']()}</main>")
    assert page.locator("pre").inner_text() == "a = add_(x)\nb = x"
    assert page.locator("code").first.inner_text() == "add_"


def test_the_days_fit_the_output_of_a_window_of_800_pixels(page):
    page.set_content(f"<!doctype html><main style='width:350px'>{progress_card(None)}</main>")
    assert page.locator("summary").count() > 1
    assert page.locator("main > div").evaluate("card => card.scrollWidth <= card.clientWidth")
