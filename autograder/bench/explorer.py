"""`make bench`, part explorer: the Pass Explorer's first picture, a toggle, and large graphs. Times are CPU time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from autograder.bench.figures import Figure, apart, at_most, cpu, growth, not_measured

#: Sections of a deep model, of sixty nodes each.
SECTIONS = (1, 8, 80)
NODES = 60


def explorer(largest: int) -> Iterator[Figure | str]:
    yield from apart(first)
    yield from apart(toggles)
    yield from apart(page)


def first() -> Iterator[Figure | str]:
    """ResNet-18 in a fresh process: states, figures and picture, beside tracing and counting the model alone."""
    import torch

    from passlab import cost, explore, models, trace

    torch.set_num_threads(1)
    model, inputs = models.ZOO["resnet18"].build(), models.ZOO["resnet18"].inputs(1)

    def show() -> None:
        explored = explore(model, *inputs, passes=["torch.fuse", "cse"])
        json.dumps(explored.data([(), (0,), (0, 1)], True))
        for key in ("", "0", "0,1"):
            explored.answer({"what": "figures", "key": key})
        explored.answer({"what": "picture", "key": "0"})

    start = time.process_time()
    show()
    seconds = time.process_time() - start
    second, plain = cpu(show).seconds, cpu(lambda: cost(trace(model, *inputs))).seconds
    yield at_most("first picture of ResNet-18", seconds, 2, " s", f"{second:.2g} s the second time")
    title = "picture of ResNet-18, times trace and cost"
    yield Figure(title, f"{second / plain:.3g}x", f"{plain:.2g} s", value=second / plain)


def deep(sections: int) -> Any:
    """Return a model in which half of the nodes are repeated: ten layers in each section, of six nodes each."""
    import torch
    from torch import nn

    class Layer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(x) * 2
            return torch.sigmoid(y + torch.relu(x) * 2)

    return nn.Sequential(*(nn.Sequential(*(Layer() for _ in range(NODES // 6))) for _ in range(sections)))


def toggles() -> Iterator[Figure | str]:
    """The state after a pass is switched on, beside the same pass with a view and a count of its result."""
    import torch

    from passlab import cost, explore, trace, view
    from passlab.fx.stages import cse

    torch.set_num_threads(1)
    x = torch.randn(4)
    seconds: dict[int, float] = {}
    for sections in SECTIONS:
        model, nodes = deep(sections), sections * NODES
        yield f"{nodes:,} nodes"
        explored = [explore(model, x) for _ in range(3)]
        key = str([explorer.name for explorer in explored[0].states.passes].index("cse"))
        for explorer in explored:
            explorer.data([()], True)

        def toggle(explored: list = explored, key: str = key) -> None:
            one = explored.pop()
            one.answer({"what": "state", "key": key})
            one.answer({"what": "figures", "key": key})

        seconds[nodes] = cpu(toggle).seconds
        graphs = [trace(model, x) for _ in range(3)]

        def plain(graphs: list = graphs) -> None:
            gm = cse(graphs.pop())
            gm.recompile()
            view(gm, x)
            cost(gm, x)

        alone = cpu(plain).seconds
        title = f"a toggle, {nodes:,} nodes"
        if nodes <= 500:
            yield at_most(title, seconds[nodes], 0.5, " s", f"pass, view and cost alone: {alone:.2g} s")
        yield Figure(
            f"{title}, times pass, view and cost", f"{seconds[nodes] / alone:.3g}x", value=seconds[nodes] / alone
        )
    yield from growth("a toggle", seconds, 1.2)


def page() -> Iterator[Figure | str]:
    """The longest task of the script on a page with a large graph: to open it, and to unfold a part."""
    import torch

    from passlab import explore

    try:
        from playwright.sync_api import sync_playwright

        from autograder.toys.browser import QUIET, chromium

        program = chromium()
    except (ImportError, AssertionError) as error:
        yield not_measured("the script of 4,800 nodes", str(error))
        return
    content = explore(deep(SECTIONS[-1]), torch.randn(4), passes=["cse"]).html
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET)
        opened = browser.new_page()
        opened.set_content(f"<!doctype html><main>{content}</main>")
        opened.evaluate(_UNFOLD, 0)
        times = [opened.evaluate(_UNFOLD, i) for i in (1, 2, 3)]
        browser.close()
    yield at_most("unfolding a section among 4,800 nodes, script and layout", min(times) / 1e3, 0.1, " s")


#: Click the i-th section that is still closed; return the milliseconds until the page is laid out again.
_UNFOLD = """i => {
    const start = performance.now();
    document.querySelectorAll('[role=treeitem][aria-expanded=false]')[i].click();
    document.body.getBoundingClientRect();
    return performance.now() - start;
}"""
