"""The book of a small course, built and opened in a browser: outputs, text forms, links, axe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from autograder.authoring.source import ROOT
from autograder.book import reading
from autograder.toys import tiny
from autograder.toys.browser import QUIET, chromium

LESSON = (
    tiny.HEADER
    + """# %% [markdown]
# # Day 21 · Small
#
# A formula, $x^2 + 1$, a price of $5 or $6, and [the exercises](../work/day21/exercises.ipynb).

# %%
import matplotlib.pyplot as plt
import torch

from passlab import draw, trace

gm = trace(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.randn(2, 4))
draw(gm, title="a small graph")

# %%
_, axes = plt.subplots()
axes.plot([1, 2, 4], label="a <b>")
axes.set(title="Growth", xlabel="days", ylabel="words")
plt.show()

# %%
from passlab import steps, timed

steps([(gm, ["0"], "before"), (gm, [], "after")])

# %%
timed({"eager": gm}, torch.randn(2, 4), repeats=2)

# %%
from passlab import guess

bet = guess("How many nodes has the small graph?", ...)

# %% tags=["hide-output"]
bet.compare(len(gm.graph.nodes))

# %% [markdown]
# | | seconds of the small graph |
# |---|---|
# | eager | few |
#
# $$a_1 + a_2 + a_3 + a_4 + a_5 + a_6 + a_7 + a_8 + a_9 + a_{10} + a_{11} + a_{12} + a_{13} + a_{14} + a_{15}$$
#
# and `passlab.a_function.with_a_long_name(and_an_argument, and_one_more, and_one_more)`

# %%
print("so many nodes:", len(gm.graph.nodes))
"""
)


def build(course: Path) -> subprocess.CompletedProcess:
    env = {**os.environ, "PASSLAB_COURSE": str(course), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "autograder.book"]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course of one lesson and one exercise, and what building its book said."""
    folder = tmp_path_factory.mktemp("book")
    (folder / "course").mkdir()
    (folder / "course/day21_small.py").write_text(LESSON)
    env = {**os.environ, "PASSLAB_COURSE": str(folder)}
    for words in (["passlab.cli", "new", "day21.double"], ["autograder.authoring.notebooks"]):
        subprocess.run([sys.executable, "-m", *words], cwd=ROOT, env=env, check=True, capture_output=True)
    return folder, build(folder)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        yield opened
        opened.close()


def test_the_book_is_built_and_has_no_broken_link(course):
    _, message = course
    assert message.returncode == 0, message.stdout + message.stderr
    assert "running day21_small.py" in message.stdout and "No broken link." in message.stdout
    assert re.search(r"Built in \d+ s, 1 of 1 lessons run \(limit: 900 s\)", message.stdout)
    assert "build/book/source" not in message.stderr, "Sphinx warns of a page: " + message.stderr


def test_the_table_of_laws_is_a_page(course):
    folder, _ = course
    page = next(path for path in folder.rglob("laws.html") if "_static" not in path.parts).read_text(encoding="utf-8")
    assert page.count("<tr") > 40 and "x · 0 = 0" in page


def test_a_page_opens_the_learner_s_copy_in_the_lab_and_links_within_the_book(course):
    html = course[0] / "build/book/html"
    lesson = (html / "day21_small.html").read_text()
    exercise = (html / "exercises/day21_exercises.html").read_text()
    assert "/lab/tree/work/course/day21_small.ipynb" in lesson and "exercises/day21_exercises.html" in lesson
    assert "/lab/tree/work/day21/exercises.ipynb" in exercise


def test_a_second_build_runs_only_what_has_changed(course):
    folder, _ = course
    lesson = folder / "course/day21_small.py"
    lesson.write_text(lesson.read_text().replace("A formula,", "One formula,"))
    subprocess.run(
        [sys.executable, "-m", "autograder.authoring.notebooks"],
        cwd=ROOT,
        env={**os.environ, "PASSLAB_COURSE": str(folder)},
        check=True,
    )
    again = build(folder)
    page = (folder / "build/book/html/day21_small.html").read_text()
    assert again.returncode == 0 and "running" not in again.stdout
    assert "0 of 1 lessons run (limit: 60 s" in again.stdout
    assert "One formula," in page and "so many nodes: " in page, "the text is new, the outputs are the stored ones"


def test_pictures_have_text_and_formulas_need_no_script(course):
    page = (course[0] / "build/book/html/day21_small.html").read_text()
    assert "<summary>As text</summary>" in page and "placeholder" in page
    assert '<img alt="Growth; words against days; a &lt;b&gt;."' in page
    assert "<math" in page and "$5 or $6" in page
    assert "mathjax" not in page.lower()


def test_what_answers_a_guess_is_folded_until_it_is_opened_by_keyboard(course, browser):
    page = browser.new_page()
    page.goto((course[0] / "build/book/html/day21_small.html").as_uri())
    truth = page.get_by_text("How many nodes has the small graph? 4.")
    fold = page.locator("details").filter(has=truth)
    expect(page.get_by_text("No guess yet:")).to_be_visible()
    expect(truth).to_be_hidden()
    fold.locator("summary").first.focus()
    page.keyboard.press("Enter")
    expect(truth).to_be_visible()
    page.close()


def test_an_exercise_has_its_text_and_no_answer(course):
    page = (course[0] / "build/book/html/exercises/day21_exercises.html").read_text()
    assert "twice as large" in page and "number in numbers" not in page


@pytest.mark.parametrize("name", ["index", "day21_small", "exercises/day21_exercises", "library"])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_comes_from_elsewhere(course, browser, name, colours):
    elsewhere = []
    look = dict(color_scheme=colours, reduced_motion="reduce")  # axe must not see a colour on its way to another
    page = browser.new_page(viewport={"width": 1200, "height": 900}, **look)
    page.on(
        "request",
        lambda requests: elsewhere.append(requests.url) if not requests.url.startswith(("file:", "data:")) else None,
    )
    page.goto((course[0] / f"build/book/html/{name}.html").as_uri())
    result = Axe().run(page)
    page.close()
    assert not elsewhere
    assert result.violations_count == 0, result.generate_report()


@pytest.mark.parametrize("name", ["index", "day21_small"])
def test_a_phone_need_not_scroll_sideways(course, browser, name):
    page = browser.new_page(viewport={"width": 360, "height": 740})
    page.goto((course[0] / f"build/book/html/{name}.html").as_uri())
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.close()
    assert wide <= 360


def test_axe_reads_every_page_in_every_look(browser, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "index.html").write_text('<html lang="en"><title>a</title><main><h1>a</h1></main>')
    grey = '<p style="color: light-dark(black, #444); background: light-dark(white, black)">dark on dark</p>'
    styled = f'<html lang="en" style="color-scheme: light dark"><title>b</title><main><h1>b</h1>{grey}</main>'
    (tmp_path / "deep/b.html").write_text(styled)
    seen, message = reading.read(browser, tmp_path, print)
    assert seen == 6
    assert [line.split(",")[0] for line in message] == ["deep/b.html (dark): color-contrast"]
