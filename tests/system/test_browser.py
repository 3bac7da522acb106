"""JupyterLab in a real browser: from the front door to day 1's exercises, run all, and look at what is there."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from autograder.toys.browser import QUIET, chromium

ROOT = Path(__file__).resolve().parents[2]
PLACE = """from passlab.memory.buffers import Buffer
from passlab.notebook.placing import place

place([Buffer("a", 0, 2, 1), Buffer("b", 1, 3, 2)])"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab on a copy of the course, as `passlab lab` starts it. Gives its address, and its folder."""
    tmp_path = tmp_path_factory.mktemp("lab")
    home = tmp_path / "passlab"
    for name in ("course", "exercises", "lib", "solutions"):
        shutil.copytree(ROOT / name, home / name, ignore=shutil.ignore_patterns("__pycache__"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_TOKEN": "course"}
    environment |= {"JUPYTER_CONFIG_DIR": str(tmp_path / "jupyter")}
    log = (tmp_path / "lab.log").open("w")
    command = [sys.executable, "-m", "passlab.cli", "lab", "--no-browser", f"--port={port}"]
    server = subprocess.Popen(
        command, cwd=home, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(480):
            try:
                urllib.request.urlopen(f"{address}/api?token=course", timeout=120)
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "lab.log").read_text()
                time.sleep(0.5)
        else:
            raise AssertionError(f"JupyterLab does not answer: {(tmp_path / 'lab.log').read_text()}")
        yield address, home
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(120)


def run_all(page, panel):
    """Run all cells of the notebook in `panel`. While JupyterLab still connects its kernel, the menu does nothing."""
    for _ in range(12):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name=re.compile("^Run All Cells")).first.click()
        with contextlib.suppress(AssertionError):
            return expect(panel.locator(".jp-CodeCell .jp-InputPrompt").first).not_to_have_text("[ ]:", timeout=10_000)
    raise AssertionError("no cell ran")


def test_from_the_index_to_a_verdict_in_the_first_exercise(lab, tmp_path):
    address, home = lab
    notebook = home / "work" / "day01" / "graphs.ipynb"
    assert notebook.exists(), "passlab lab copies the exercises into work/"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(240_000)
        page.goto(f"{address}/?token=course")
        page.get_by_role("heading", name="PassLab").wait_for()
        page.wait_for_url("**/lab/tree/work/course/index.ipynb")
        page.get_by_role("link", name="A model is a graph").click()
        page.get_by_role("heading", name="Day 1 · A model is a graph").wait_for()
        page.wait_for_url("**/lab/tree/work/course/day01_graphs.ipynb")
        page.get_by_role("tab", name=re.compile("index.ipynb")).click()
        page.get_by_role("link", name="Read and measure graphs").click()
        tab = page.get_by_role("tab", name=re.compile("^graphs.ipynb"))
        tab.wait_for()
        panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        # "Run All Cells" runs the notebook that was touched last, and only when its kernel is there.
        panel.get_by_role("heading", name="Day 1").first.click()
        panel.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
        assert not page.locator(".lm-TabBar-tab.jp-mod-dirty").count(), "a notebook that was only opened is not changed"
        run_all(page, panel)
        expect(panel.locator(".jp-OutputArea svg[role=img]").first).to_be_attached(timeout=300_000)
        verdict = panel.locator(".jp-OutputArea").filter(has_text="not written yet")
        expect(verdict.first).to_be_attached(timeout=300_000)
        assert panel.locator(".jp-OutputArea svg[role=img] text").count() > 0
        page.screenshot(path=str(tmp_path / "exercise.png"))
        browser.close()
    assert json.loads(notebook.read_text())["cells"], "the learner's copy is still a notebook"


def test_the_list_of_files_has_each_lesson_once_and_no_menu_is_the_instructor_s(lab):
    address, home = lab
    lessons = sorted(path.name for path in (home / "course").glob("*.ipynb"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(240_000)
        page.goto(f"{address}/?token=course")
        page.get_by_role("heading", name="PassLab").wait_for()
        names = page.locator(".jp-DirListing-itemText")
        expect(names).to_have_text(lessons)
        cut = names.evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)")
        assert not cut, "names of lessons are shown whole"
        assert "File" in page.locator(".lm-MenuBar-itemLabel").all_inner_texts()
        assert "Create Assignment" not in page.inner_text("body") and "Validate" not in page.inner_text("body")
        assert "Nbgrader" not in page.locator(".lm-MenuBar-itemLabel").all_inner_texts()
        page.locator(".jp-BreadCrumbs-home").click()
        expect(names).to_have_text(["lib", "solutions", "work"])
        browser.close()


def _run(page, text):
    """Run the open notebook's code cell that has a text, and return its output.

    A kernel that is still starting shows itself as idle, and drops what it is sent: the keys are pressed until the
    cell has a number or a star.
    """
    panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    panel.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
    cell = panel.locator(".jp-CodeCell").filter(has=page.locator(".jp-InputArea", has_text=text))
    for _ in range(24):
        cell.locator(".jp-InputArea-editor").click()
        page.keyboard.press("Control+Enter")
        with contextlib.suppress(AssertionError):
            expect(cell.locator(".jp-InputPrompt")).not_to_have_text("[ ]:", timeout=10_000)
            return cell.locator(".jp-OutputArea-output")
    raise AssertionError(f"the cell with {text!r} did not run")


def test_progress_fits_a_small_screen_and_shows_the_days_first(lab, tmp_path):
    address, home = lab
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(240_000)
        page.goto(f"{address}/?token=course")
        shown = _run(page, "progress()")
        days = shown.locator("summary")
        days.last.wait_for()
        assert days.count() == len(list((home / "exercises").glob("day*")))
        expect(shown.get_by_text("day01.levels")).to_be_hidden()
        wide = "[e, ...e.querySelectorAll('*')].filter(p => p.scrollWidth > p.clientWidth + 1 && p.clientWidth).length"
        wide = f"e => {wide}"
        assert shown.evaluate(wide) == 0
        days.first.focus()
        page.keyboard.press("Enter")
        expect(shown.get_by_text("day01.levels")).to_be_visible()
        assert shown.evaluate(wide) == 0, "no part of it has to be scrolled sideways"
        page.screenshot(path=str(tmp_path / "progress.png"))
        browser.close()


def test_buffers_are_placed_by_hand_in_a_notebook(lab, tmp_path):
    address, home = lab
    cell = {"cell_type": "code", "metadata": {}, "source": PLACE, "outputs": [], "execution_count": None}
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    text = json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 4})
    (home / "work" / "place.ipynb").write_text(text)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(240_000)
        page.goto(f"{address}/lab/tree/work/place.ipynb?token=course")
        shown = _run(page, "place")
        box = shown.get_by_role("slider", name="b: 2 bytes")
        box.focus()
        page.keyboard.press("ArrowDown")
        expect(shown.get_by_role("status")).to_contain_text("Height 2, bound 3. a and b overlap.")
        page.screenshot(path=str(tmp_path / "place.png"))
        browser.close()
