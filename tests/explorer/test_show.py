"""An explorer as text and as a page without a kernel, opened in a browser."""

import json
import re

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright
from torch import nn

from autograder.toys.browser import QUIET, chromium
from passlab import explore
from passlab.explorer import show

X = torch.tensor([1.0, -0.5, 2.0, -1.5])  # ten layers make large numbers: of those sigmoid and tanh are 1


class Layer(nn.Module):
    def forward(self, x):
        y = torch.relu(x) * 2
        return y + torch.relu(x) * 2


class Deep(nn.Module):
    """Sections of ten layers, of five nodes each."""

    def __init__(self, sections):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(*(Layer() for _ in range(10))) for _ in range(sections))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.sigmoid()


def careless(gm):
    raise ValueError("no </script> such law")


@pytest.fixture(scope="module")
def explorer():
    return explore(Deep(1), X, passes=["cse", "dce", careless])


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        yield browser
        browser.close()


def opened(browser, content):
    page = browser.new_page(viewport={"width": 1200, "height": 1400})
    page.set_default_timeout(60_000)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    head = '<!doctype html><html lang="en"><title>Passes</title>'
    page.set_content(f"{head}<main><h1>Day</h1><h2>Passes</h2>{content}</main>")
    return page


@pytest.fixture
def page(browser, explorer):
    page = opened(browser, explorer.html)
    yield page
    assert page.errors == []
    page.close()


def live(browser, explorer):
    """Open an explorer that asks this process, as it asks a kernel in JupyterLab."""
    page = opened(browser, f"<style>{(show._HERE / 'explorer.css').read_text()}</style><div id=root></div>")
    page.expose_function("kernel", lambda what, key: explorer.answer({"what": what, "key": key}))
    data = json.dumps(explorer.data([explorer.on[:n] for n in range(len(explorer.on) + 1)], True))
    ask = "(what, key) => kernel(what, key).then((value) => told(value))"
    page.evaluate(f"{{{show._script()}\nconst told = explorer(document.getElementById('root'), {data}, {ask});}}")
    return page


# ---------------------------------------------------------------------------------------------------- text


def test_the_text_says_what_the_page_shows(explorer):
    text = explorer.text
    for part in (
        "Layer.forward",
        "Passes: ['cse', 'dce', careless]",
        "1 cse: 20 removed, 10 rewired",
        "  the same function in ",
        "2 dce: changes nothing",
        "3 careless: It raised ValueError: no </script> such law.",
    ):
        assert part in text
    assert "32 nodes" not in text.split("Passes: ")[1].split("1 cse")[0] and "51 nodes, 51 launches" in text
    assert re.search(r"− relu_1 = relu\(x\) +float32\[4\] · 16 B  ← \d+, \d+\n", text)


def test_a_page_records_every_choice_of_few_passes_and_what_leads_to_most():
    assert show.recorded(0) == [()]
    assert len(show.recorded(5)) == 2**5
    keys = set(show.recorded(9))
    assert tuple(range(9)) in keys and tuple(i for i in range(9) if i != 4) in keys
    assert all(key[:-1] in keys for key in keys if key), "a state is shown with those before it"
    assert len(keys) < 9 * 9 + 2


def test_states_that_are_equal_are_stored_once(explorer):
    data = explorer.data(show.recorded(3), False)
    assert len(data["steps"]) == 8 and sum("rows" in state for state in data["states"]) == 2


# ---------------------------------------------------------------------------------------------------- the page


def test_passes_are_switched_off_and_on_by_keyboard(page):
    states = page.locator("table.states")
    expect(states).to_contain_text("changes nothing: dce")
    expect(states).to_contain_text("It raised ValueError: no </script> such law.")
    expect(page.locator("h4").last).to_have_text("After cse")
    tick = page.get_by_label("cse", exact=True)
    tick.press("Space")
    expect(page.locator("code")).to_have_text("['dce', careless]")
    expect(states.get_by_role("button")).to_have_text(["start", "careless"])
    expect(page.locator("h4").last).to_have_text("At the start")
    expect(tick).to_be_focused()
    tick.press("Space")
    expect(states.get_by_role("button")).to_have_text(["start", "cse", "careless"])
    page.get_by_role("button", name="start").press("Enter")
    expect(page.get_by_role("treeitem").filter(has_text="relu_1 =")).to_have_count(1)
    expect(page.locator(".removed")).to_have_count(0)


def test_arrow_keys_move_in_the_tree_and_fold_it(page):
    items = page.get_by_role("treeitem")
    assert items.count() == 1 + 1 + 1 + 10 * 6 + 2, "input, two levels of sections, ten layers, sigmoid and output"
    items.first.focus()
    page.keyboard.press("ArrowDown")
    expect(items.nth(1)).to_be_focused()
    expect(items.nth(1)).to_have_text(re.compile("layers: 50 nodes, 30 changed"))
    page.keyboard.press("ArrowLeft")
    expect(items.nth(1)).to_have_attribute("aria-expanded", "false")
    expect(items.nth(1)).to_be_focused()
    assert items.count() == 4
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    expect(items.last).to_be_focused()
    page.keyboard.press("Home")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    expect(items.nth(3)).to_be_focused()


def test_a_node_and_its_lines_light_up_together(page):
    lit = page.locator(".source [aria-selected=true]")
    page.get_by_role("treeitem").filter(has_text="mul = mul").click()
    expect(lit).to_have_text([re.compile("x = layer"), re.compile(r"y = torch.relu\(x\) \* 2"), re.compile("return y")])
    page.get_by_role("option").filter(has_text="sigmoid").click()
    expect(lit).to_have_text([re.compile("sigmoid")])
    expect(page.locator(".graph .lit")).to_have_text([re.compile("sigmoid"), re.compile("return")][:1])
    expect(page.get_by_role("status")).to_have_text(re.compile(r"Line \d+: 1 node: sigmoid\."))
    page.keyboard.press("ArrowUp")
    expect(page.get_by_role("status")).to_have_text(re.compile(r"Line \d+: 50 nodes: relu, "))


def test_search_lists_the_nodes_that_match(page):
    page.get_by_role("searchbox").fill("RELU_1 =")
    expect(page.get_by_role("treeitem")).to_have_text([re.compile("relu_1 = relu")])
    expect(page.get_by_role("status")).to_have_text("1 node matches.")
    page.get_by_role("searchbox").fill("nothing of the kind")
    expect(page.get_by_role("treeitem")).to_have_text(["no node"])


def test_a_pipeline_is_copied_or_at_least_selected(page):
    page.get_by_role("button", name="Copy pipeline").click()
    expect(page.get_by_role("status")).to_contain_text(
        "pipeline is selected"
    )  # a page that is no file has no clipboard
    assert page.evaluate("getSelection().toString()") == "['cse', 'dce', careless]"


def test_the_page_has_no_barriers(page):
    found = Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []
    page.get_by_role("button", name="Picture").click()
    page.get_by_role("searchbox").fill("relu")
    found = Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []


def test_a_large_graph_is_folded_and_unfolds_part_by_part(browser):
    explorer = explore(Deep(100), X, passes=["cse"])
    page = opened(browser, explorer.html)
    items = page.get_by_role("treeitem")
    assert items.count() == 4, "5,000 nodes are one section"
    page.get_by_role("button", name="start").click()
    items.filter(has_text="layers: 5000 nodes").click()
    expect(items).to_have_count(4 + 100)
    items.filter(has_text="layers.42:").click()
    expect(items).to_have_count(4 + 100 + 10)
    page.get_by_role("option").filter(has_text="sigmoid").click()
    assert page.locator(".graph *").count() < 1000
    assert page.errors == []
    page.close()


# ---------------------------------------------------------------------------------------------------- with a kernel


def other(gm):
    for node in gm.graph.nodes:
        if node.target == "sigmoid":
            node.target = "tanh"
    return gm


def test_a_kernel_is_asked_for_figures_then_for_verdicts(browser):
    page = live(browser, explore(Deep(1), X, passes=["cse", other]))
    rows = page.locator("table.states tbody tr")
    expect(rows.nth(1)).to_contain_text("✓ yes")
    # A layer moves 4 · 32 + 48 bytes, the sigmoid 32; three values of 16 bytes live at once.
    expect(rows.nth(0).locator("td")).to_have_text(["–", "51", "51", "1.8 KiB", "48 B"])
    expect(rows.nth(2)).to_contain_text("✗ no")
    expect(rows.nth(3)).to_have_text(re.compile("^Not the same function. On the example inputs, "))
    assert page.errors == []
    page.close()


def test_everything_is_reached_by_the_keyboard_and_keeps_the_focus(browser):
    explorer = explore(Deep(1), X, passes=["cse", other])
    page = live(browser, explorer)
    rows = page.locator("table.states tbody tr")
    expect(rows.nth(2)).to_contain_text("✗ no")
    names, labels = [], page.locator(".passes li label")
    page.evaluate("document.activeElement.blur()")
    for _ in range(500):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "(() => { const it = document.activeElement;"
            "return it.ariaLabel || it.closest('label')?.textContent.trim() || it.textContent })()"
        )
        if name in names and name.startswith("Picture"):
            break
        names.append(name)
    listed = [text.strip() for text in labels.all_inner_texts()]
    assert len(listed) > 10 and {"to_relax", "to_relay", "to_mlir"} < set(listed)
    for one in listed:
        assert {one, f"Move {one} up", f"Move {one} down"} <= set(names)
    assert {"start", "cse", "Copy pipeline", "Search nodes"} <= set(names)

    page.get_by_role("button", name="Move cse down").focus()
    page.keyboard.press("Enter")
    expect(page.locator("code")).to_have_text("[other, 'cse']")
    expect(rows.nth(1)).to_contain_text("✗ no")
    expect(page.get_by_role("button", name="Move cse down")).to_be_focused()

    items = page.get_by_role("treeitem")
    items.first.focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    node = page.locator(".graph :focus").inner_text()
    lit = page.locator(".source [aria-selected=true]")
    numbers = re.search(r"line ([\d, ]+)", node)[1].split(", ")
    assert {re.match(r"\d+", text)[0] for text in lit.all_inner_texts()} == set(numbers)
    page.get_by_role("option").first.focus()
    page.keyboard.press("End")
    expect(page.locator(".graph .lit").first).to_be_attached()
    assert page.errors == []
    page.close()


def test_passes_of_another_ir_appear_behind_the_conversion_to_it(browser):
    pytest.importorskip("iree.compiler")
    page = live(browser, explore(Deep(1), X, passes=["cse"]))
    fuse = page.get_by_label("mlir.linalg-fuse-elementwise-ops", exact=True)
    expect(page.locator("table.states tbody tr").nth(1)).to_contain_text("✓ yes")
    expect(fuse).to_have_count(0)
    convert = page.get_by_label("to_mlir", exact=True)
    convert.focus()
    page.keyboard.press("Space")
    expect(convert).to_be_focused()
    expect(page.locator("table.states")).to_contain_text("converted to MLIR")
    fuse.focus()
    page.keyboard.press("Space")
    expect(fuse).to_be_focused()
    rows = page.locator("table.states tbody tr")
    expect(rows.last).to_contain_text("✓ yes")
    expect(page.locator("code")).to_have_text("['cse', 'to_mlir', 'mlir.linalg-fuse-elementwise-ops']")
    up = page.get_by_role("button", name="Move mlir.linalg-fuse-elementwise-ops up")
    for _ in range(40):  # past all of MLIR's passes before it, and the conversion
        if "here the program is in torch.fx" in rows.nth(2).inner_text():
            break
        up.focus()
        page.keyboard.press("Enter")
        expect(up).to_be_focused()
    expect(page.locator("code")).to_have_text("['cse', 'mlir.linalg-fuse-elementwise-ops', 'to_mlir']")
    found = Axe().run(page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []
    assert page.errors == []
    page.close()


def test_the_reason_of_a_program_that_does_not_run_is_shown(browser):
    page = live(browser, explore(Deep(1), "no tensor"))
    rows = page.locator("table.states tbody tr")
    expect(rows.nth(1)).to_have_text(re.compile("^It does not run on the inputs: "))
    expect(rows.nth(0).locator("td")).to_have_text(["–", "51", "?", "?", "?"])
    page.close()


def test_the_first_press_of_the_button_draws_a_large_graph(browser):
    page = live(browser, explore(Deep(3), X))
    button, drawn = page.get_by_role("button", name="Picture"), page.locator(".picture svg")
    expect(button).to_have_attribute("aria-pressed", "false")
    button.click()
    expect(drawn).to_be_visible()
    button.click()
    expect(drawn).to_be_hidden()
    page.close()


def test_the_verdict_is_in_sight_on_a_narrow_page(browser):
    page = live(browser, explore(Deep(1), X, passes=["cse", other]))
    page.set_viewport_size({"width": 380, "height": 900})
    rows = page.locator("table.states tbody tr")
    expect(rows.nth(2).locator("td").first).to_contain_text("✗ no")
    for part in (rows.nth(1).locator("td").first, rows.nth(3).locator(".reason")):
        box = part.bounding_box()
        assert box["x"] + box["width"] <= 380
    page.close()


def test_a_class_is_not_a_model():
    with pytest.raises(ValueError, match=r"Deep is a class. Explore a model of it: Deep\(\)"):
        explore(Deep, X)


def test_a_kernel_that_was_restarted_is_named(browser):
    explorer = explore(Deep(1), X, passes=["cse"])
    page = opened(browser, "<div id=root></div>")
    model = "{get: () => data, send() { throw new Error('Cannot send'); }, on() {}}"
    data = json.dumps(explorer.data([(), (0,)], True))
    page.evaluate(f"{{{show._script()}\nconst data = {data};\nlive({model}, document.getElementById('root'));}}")
    page.get_by_label("dce", exact=True).check()
    expect(page.get_by_role("status")).to_have_text("This explorer's kernel was restarted: run the cell again.")
    assert page.errors == []
    page.close()
