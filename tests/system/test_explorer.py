"""The Pass Explorer in JupyterLab, with its kernel: passes on and off, in another order, by the keyboard."""

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from autograder.toys.browser import QUIET, chromium
from tests.system.test_browser import lab, run_all

__all__ = ["lab"]

CELL = """
import torch
from passlab import explore

class Repeats(torch.nn.Module):
    def forward(self, x):
        y = torch.exp(x + 1)
        return y * torch.exp(x + 1)

def careless(gm):
    raise ValueError("no such law")

explore(Repeats(), torch.randn(4), passes=["cse", "dce", careless])
"""


@pytest.fixture
def page(lab):
    """A notebook with one cell, open and run."""
    address, home = lab
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, home / "work" / "explore.ipynb")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page(viewport={"width": 1400, "height": 1100})
        page.set_default_timeout(120_000)
        page.goto(f"{address}/lab/tree/work/explore.ipynb?token=course")
        page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
        page.locator(".jp-CodeCell .cm-content").first.click()
        run_all(page, page)
        yield page
        browser.close()


def test_passes_are_switched_and_moved_by_keyboard_in_jupyterlab(page, tmp_path):
    explorer = page.locator(".passlab-explorer")
    states = explorer.locator("table.states")
    expect(states.locator("tbody tr").nth(1)).to_contain_text("✓ yes", timeout=120_000)
    expect(states).to_contain_text("It raised ValueError: no such law.")
    expect(states).to_contain_text("changes nothing: dce")
    expect(explorer.locator(".picture svg")).to_be_attached()

    tick = explorer.get_by_label("cse", exact=True)
    tick.focus()
    page.keyboard.press("Space")
    expect(explorer.locator("code")).to_have_text("['dce', careless]")
    expect(explorer.get_by_label("cse", exact=True)).to_be_focused()
    explorer.get_by_label("simplify", exact=True).check()
    explorer.get_by_role("button", name="Move simplify up").focus()
    page.keyboard.press("Enter")  # past fold, which is off
    page.keyboard.press("Enter")
    expect(explorer.locator("code")).to_have_text("['dce', 'simplify', careless]")
    expect(states).to_contain_text("2 passes change nothing: dce, simplify")
    explorer.get_by_label("torch.CSEPass", exact=True).check()
    expect(states.locator("tbody tr").last).to_contain_text("✓ yes")
    expect(states.locator("tbody tr").last).to_contain_text("removed")

    explorer.get_by_role("option").nth(2).focus()
    expect(explorer.get_by_role("status")).to_contain_text("Line 7: ")
    page.screenshot(path=str(tmp_path / "explorer.png"))
    found = Axe().run(page, ".passlab-explorer").response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []
