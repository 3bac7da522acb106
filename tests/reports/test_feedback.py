"""The feedback page: what a learner must find in it, what nobody may find in it, and what no learner can do to it."""

import base64
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from autograder.engine import bounded_call
from autograder.engine.data import NotebookResult, Ran, Verdict
from autograder.grading.paper import Mark, Marks
from autograder.reports import feedback as rendering
from autograder.reports.feedback import feedback
from autograder.toys.browser import QUIET, chromium
from tests.support import growth

UNSAFE = "Graded without the whole sandbox (--unsafe): learners' code was not kept"
PLAINLY = "it is shown as it was written"
PIXEL = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()
HIDDEN = "\n### BEGIN HIDDEN TESTS\ngrade('day03.dce', dce)  # hiddenmarker\n### END HIDDEN TESTS\n"


def meta(name, points=None, **kind):
    graded = {} if points is None else {"points": points}
    return {"nbgrader": {"grade_id": name, "grade": points is not None, "solution": False, **graded, **kind}}


def html(text):
    return new_output("display_data", {"text/html": text, "text/plain": "plain"})


def make(outputs=(), answer="def dce(gm):\n    return gm", markdown="## Dead code", **result):
    """A notebook of one question, as the engine leaves it: 4 of 8 points."""
    nb = new_notebook()
    nb.cells = [
        new_markdown_cell(markdown),
        new_code_cell(answer, metadata=meta("dce", solution=True), outputs=list(outputs)),
        new_code_cell("check('day03.dce', dce)" + HIDDEN, metadata=meta("dce-check", 8, locked=True)),
        new_markdown_cell("an essay", metadata=meta("essay", 3, solution=True)),
    ]
    verdict = Verdict("day03.dce", 4.0, 8.0, 7, {"did": True, "spared": False}, "relu_1 is gone.")
    verdict.html, verdict.misconception = "<div id=card>the card</div>", "unread is dead"
    item = NotebookResult("ada", "day03", "optimizations", 7, {1: Ran(list(outputs))}, {2: verdict})
    for name, value in result.items():
        setattr(item, name, value)
    return nb, item


def text_of(page):
    return re.sub(r"<[^>]*>", "", page.split("<body>")[1])


def test_scores_come_first_with_links_then_the_notebook_and_the_card():
    page = feedback(*make())
    assert "4 of 11 points" in page and '<a href="#dce-check">dce</a>' in page and 'id="dce-check"' in page
    assert "1 answer has yet to be graded by a person" in page
    assert page.index("4 of 11 points") < page.index("Dead code") < page.index("<div id=card>the card</div>")
    assert "What this looks like:</b> unread is dead." in page
    assert UNSAFE not in page


def test_given_marks_comments_and_a_late_penalty_count():
    points = {"dce-check": Mark(5.0, 8.0), "essay": Mark(2.5, 3.0)}
    arguments = Marks(points, {"essay": "Nice, *but* <b>short</b>"}, 1.5)
    page = feedback(*make(), arguments)
    assert (
        "7.5 of 11 points, less 1.5 for handing in late" in page and "−1.5" in page and "still to be read" not in page
    )
    assert "Nice, <em>but</em> &lt;b&gt;short&lt;/b&gt;" in page
    assert '<a href="#comment-essay">' in page and 'id="comment-essay"' in page


def test_extra_credit_is_said_and_not_in_the_maximum():
    page = feedback(*make(), Marks({"dce-check": Mark(5.0, 8.0, stretch=True), "essay": Mark(2.5, 3.0)}))
    assert "2.5 of 3 points and 5 of 8 extra" in page
    page = feedback(*make(), Marks({"dce-check": Mark(0.0, 8.0, stretch=True)}))
    assert "0 of 8 extra points" in page and "0 of 0" not in page


def test_hidden_tests_are_not_in_it_closed_or_not():
    nb, result = make()
    assert "hiddenmarker" not in feedback(nb, result) and "day03.dce" in feedback(nb, result)
    nb.cells[2].source = nb.cells[2].source.split("### END")[0]
    assert "hiddenmarker" not in feedback(nb, result)
    del result.verdicts[2]
    assert "hiddenmarker" not in feedback(nb, result)


def test_an_unsafe_run_a_failure_and_a_crash_are_said():
    nb, result = make(unsafe=True, failure="no module named torch")
    result.verdicts[2].crash = "It ran out of memory."
    page = feedback(nb, result)
    assert page.count(UNSAFE) == 1 and "could not be graded: no module named torch" in page
    assert page.count("It ran out of memory.") == 2


def test_a_cell_that_claims_to_be_a_verdict_is_none():
    claim = {"application/vnd.passlab.verdict+json": {"points": 8}, "text/plain": "x"}
    claim |= {"text/html": "<p id=forged>8 of 8"}
    page = feedback(*make([new_output("display_data", claim)]))
    assert "<p id=forged>" not in page and "&lt;p id=forged&gt;" in page and "4 of 11 points" in page


def test_graded_cells_that_were_run_count_by_their_end():
    nb, result = make()
    nb.cells.append(new_code_cell("assert 1 == 1", metadata=meta("plain", 2)))
    result.ran[4] = Ran()
    assert "6 of 13 points" in feedback(nb, result)
    result.ran[4] = Ran(error="AssertionError: ")
    assert "4 of 13 points" in feedback(nb, result)


OUTPUTS = {
    "stream": (new_output("stream", text="\x1b[31mred\x1b[0m <i>&"), "red &lt;i&gt;&amp;"),
    "error": (new_output("error", ename="E", evalue="v", traceback=["\x1b[1mTrace</pre>"]), "Trace&lt;/pre&gt;"),
    "png": (new_output("display_data", {"image/png": PIXEL + "\n"}), f'src="data:image/png;base64,{PIXEL}"'),
    "bad png": (new_output("display_data", {"image/png": '"onerror=x', "text/plain": "plain"}), "<pre>plain</pre>"),
    "svg": (new_output("display_data", {"image/svg+xml": "<svg/>"}), 'src="data:image/svg+xml;base64,PHN2Zy8+"'),
    "widget": (new_output("display_data", {"application/javascript": "x()", "text/plain": "w<"}), "<pre>w&lt;</pre>"),
    "markdown": (new_output("display_data", {"text/markdown": "*a* <b>"}), "<em>a</em> &lt;b&gt;"),
    "surrogate": (new_output("stream", text="a\ud800b\x00c"), "a?bc"),
    "html": (html("<p class='x'>"), "&lt;p class=&#39;x&#39;&gt;"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_kind_of_output_is_shown_as_text_as_data_or_in_a_frame(name):
    output, shown = OUTPUTS[name]
    page = feedback(*make([output]))
    assert shown in page
    page.encode("utf-8")


def test_data_that_claims_to_be_safe_is_text():
    nb, result = make([html("")])
    nb.cells[1].outputs[0].data["text/html"] = {"__html__": "<b>"}
    assert "{&#39;__html__&#39;: &#39;&lt;b&gt;&#39;}" in feedback(nb, result)


def test_an_attachment_may_have_a_name_that_an_address_has_not():
    nb, result = make(markdown="![p](attachment:my%20%C3%BC.png) ![q](attachment:a&b.png)")
    nb.cells[0].attachments = {name: {"image/png": PIXEL} for name in ("my ü.png", "a&b.png")}
    assert feedback(nb, result).count(f'src="data:image/png;base64,{PIXEL}"') == 2


def test_an_attachment_is_data_or_nothing():
    nb, result = make(markdown="![p](attachment:a.png) ![q](attachment:b.html) ![r](attachment:gone)")
    nb.cells[0].attachments = {"a.png": {"image/png": PIXEL}, "b.html": {"text/html": "<script>"}}
    page = feedback(nb, result)
    assert f'src="data:image/png;base64,{PIXEL}"' in page and "attachment:" not in page
    assert len(re.findall(r"<img +alt", page)) == 2, "without an address"


HOSTILE = {
    "brackets": "[" * 19_000,
    "emphasis": "*a_ " * 4_900,
    "quotes": ">" * 19_000,
    "backticks": "".join("`" * n + " " for n in range(190)),
    "links": "[a](" * 4_900,
    "dollars": "$ $$ " * 3_900,
    "table": "|" * 9_000 + "\n" + "|-" * 4_500,
    "a megabyte": "word " * 200_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_holds_the_page_up(name):
    start = time.process_time()
    page = feedback(*make([new_output("stream", text=HOSTILE[name])], HOSTILE[name], HOSTILE[name]))
    assert time.process_time() - start < 20, "milliseconds; without limits these take minutes"
    assert len(page) < 1_000_000


def test_what_is_in_the_release_is_rendered_once_for_all_pages(monkeypatch):
    nb, result = make([new_output("stream", text="42\n" * 50)], answer="x = 1\n" * 40)
    release = [new_markdown_cell(f"## Part {n}\n\n" + "Some *text*. " * 40) for n in range(10)]
    release += [new_code_cell(f"def f{n}(x):\n    return [x + i for i in range({n})]\n" * 10) for n in range(10)]
    nb.cells += release
    call, texts = bounded_call.call, []
    monkeypatch.setattr(bounded_call, "call", lambda f, cells: texts.append(cells) or call(f, cells))
    for learner in range(20):
        nb.cells[1].source = f"def dce(gm):\n    return {learner}\n" * 20
        feedback(nb, result)
    assert len(texts[0]) > 20 and [len(cells) for cells in texts[1:]] == [1] * 19


ATTACK = """<script>parent.pwned=1;top.document.title='pwned'</script><img src=x onerror="parent.pwned=2">
<style>header,.total,.check{display:none!important}</style><svg onload="parent.pwned=3"></svg>
<a id=bad href="javascript:parent.pwned=4" target=_top>x</a><form id=f action="http://SERVER/f"><button>go</button>
</form><meta http-equiv=refresh content="0;url=http://SERVER/m"><img src="http://SERVER/i.png">
<link rel=stylesheet href="http://SERVER/s.css"><iframe src="http://SERVER/"></iframe>
<a id=out href="http://SERVER/a">y</a>
<div style="position:fixed;inset:0;z-index:9999;background:#fff"><b>Dead code</b> 10 of 10 points</div></body></html>"""
MARKDOWN = """<script>window.pwned=5</script> <style>.total{display:none}</style> <img src=x onerror="window.pwned=6">
[js](javascript:window.pwned=7) [JS](JaVaScRiPt:window.pwned=8) ![i](javascript:window.pwned=9) <b id=top>
[data](data:text/html;base64,PHNjcmlwdD4=) ![ext](http://SERVER/x.png) `</code><script>window.pwned=10</script>`
[on](x "t\\" onmouseover=window.pwned=11 \\"") <javascript:window.pwned=12> $</div><script>window.pwned=13</script>$

$$
</div><script>window.pwned=14</script>
$$

```</pre><script>window.pwned=15</script>
</pre><script>window.pwned=16</script>
```
"""


@pytest.fixture
def server():
    """A server of the learner's, to which nothing may be sent: its address and the paths that were asked for."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_response(204)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_):
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{listening.server_port}", requests
    listening.shutdown()


def test_in_a_browser_nothing_that_a_learner_wrote_runs_hides_or_leaves(tmp_path, server):
    from playwright.sync_api import sync_playwright

    svg = (
        "<svg xmlns='http://www.w3.org/2000/svg' onload='window.pwned=20' width='9' height='9'><script>window.pwned=21"
    )
    stacked = "a" + "\u0300" * 5_000
    outputs = [
        html(ATTACK),
        new_output("display_data", {"text/markdown": MARKDOWN}),
        new_output("display_data", {"image/svg+xml": svg + "</script></svg>"}),
        new_output("display_data", {"application/javascript": "window.pwned=22", "text/plain": "js"}),
        new_output("stream", text="</pre><script>window.pwned=23</script>" + stacked),
        html("<p style='height:333px'>tall</p>"),
    ]
    nb, result = make(outputs, "'''</pre><script>window.pwned=24</script>'''", MARKDOWN)
    nb.cells[0].attachments = {'a"><script>window.pwned=25</script>': {"image/png": PIXEL}}
    result.learner = "<script>window.pwned=26</script>"
    path = tmp_path / "page.html"
    address, requests = server
    path.write_text(feedback(nb, result).replace("SERVER", address), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page()
        page.on("popup", lambda popup: requests.append("popup"))
        page.goto(path.as_uri())
        page.wait_for_timeout(500)
        title = page.title()
        for link in page.locator("main a").all():
            if (link.get_attribute("href") or "").lower().startswith(("javascript", "data", "vbscript")):
                link.click(no_wait_after=True, force=True)
        frame = page.frames[1]
        for name in ("#bad", "#f button", "#out"):
            frame.locator(name).evaluate("node => node.click()")
        page.wait_for_timeout(500)
        assert page.evaluate("window.pwned") is None
        assert page.title() == title and title.startswith("optimizations")
        assert page.url == path.as_uri()
        assert requests == []
        assert page.locator(".total").is_visible() and page.locator(".total").inner_text() == "4 of 11 points"
        assert page.locator("section.check").count() == 1 and page.locator("section.check").is_visible()
        for place in (".total", "section.check h3"):  # nothing lies over it
            page.locator(place).scroll_into_view_if_needed()
            over = (
                "n => {const b = n.getBoundingClientRect(); return n.contains(document.elementFromPoint(b.x+5, b.y+5))}"
            )
            assert page.locator(place).evaluate(over)
        tall = page.locator("iframe").nth(1).evaluate("node => node.getBoundingClientRect().height")
        assert 333 <= tall <= 420, "a frame is as high as what is in it"
        browser.close()


def test_a_page_renders_so_much_and_shows_the_rest_as_it_is(monkeypatch):
    messages = []
    monkeypatch.setattr(bounded_call, "call", lambda _, texts: messages.extend(texts) or ["<p></p>"] * len(texts))
    cells = [new_markdown_cell("**a" * 6_600 + str(number), id=f"cell-{number}") for number in range(90)]
    page = feedback(new_notebook(cells=cells), NotebookResult("ada", "day01", "graphs", 3))
    assert sum(len(text) for _, text in messages) <= rendering.MOST_RENDERED < sum(len(cell.source) for cell in cells)
    assert page.count("**a" * 6_600) == len(cells) - len(messages) and PLAINLY in page


def colours(n: int) -> str:
    """Code that Python's lexer goes through again and again."""
    return "\n " * (n // 2)


def test_what_takes_too_long_to_render_is_shown_as_it_was_written_and_the_page_says_so():
    nb, result = make(answer=f"{colours(19_900)}x = '<b>'", markdown="## Dead *code*")
    page = feedback(nb, result)
    assert "x = &#39;&lt;b&gt;&#39;" in page and "## Dead *code*" in page and "4 of 11 points" in page
    assert PLAINLY in page
    nb.cells[1].source = "x = '<b>'"
    page = feedback(nb, result)
    assert PLAINLY not in page and '<span class="o">=</span>' in page and "<em>code</em>" in page


#: Name → n → a text of about n characters that a renderer or a lexer may take long for.
TEXTS = {
    "lines": colours,
    "spaces": lambda n: " " * n + "\n",
    "backslashes": lambda n: "\\" * n,
    "quotes": lambda n: '"' * n,
    "words": lambda n: "word " * (n // 5),
    "brackets": lambda n: "[" * n,
    "links": lambda n: "[a](" * (n // 4),
    "emphasis": lambda n: "*a_ " * (n // 4),
    "dollars": lambda n: "$ $$ " * (n // 5),
    "backticks": lambda n: "".join("`" * at + " " for at in range(int((2 * n) ** 0.5))),
    "a table": lambda n: "|" * (n // 2) + "\n" + "|-" * (n // 4),
    "entities": lambda n: "&a" * (n // 2),
    "strings that do not end": lambda n: "f'{" * (n // 3),
    "numbers": lambda n: "1" * n,
    "decorators": lambda n: "@a." * (n // 3),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_page_costs_the_grader_in_proportion_to_its_text(name):
    """What counts is the time of this process: rendering itself is aside, and has its own limits."""
    n, pages = 2_000, {}
    for size in (n, growth.STEP * n):
        nb, result = make([], TEXTS[name](size), TEXTS[name](size))
        nb.cells += [new_code_cell(f"{TEXTS[name](size)}#{number}") for number in range(5)]
        pages[size] = nb, result
    assert growth.ratio(lambda size: feedback(*pages[size]), n) <= growth.MOST


def test_a_text_that_shows_a_picture_again_and_again_makes_no_huge_page(monkeypatch):
    monkeypatch.setattr(rendering, "MOST_PICTURES", 300_000)
    nb, result = make(markdown="![p](attachment:a.png)\n\n" * 100)
    nb.cells[0].attachments = {"a.png": {"image/png": "A" * 100_000}}
    page = feedback(nb, result)
    assert 2 <= page.count("A" * 100_000) <= 3 and len(re.findall(r"<img +alt", page)) >= 97 and len(page) < 500_000


def test_a_picture_from_elsewhere_is_a_link():
    nb = new_notebook(cells=[new_markdown_cell("![x](http://a.invalid/b.png)")])
    page = feedback(nb, NotebookResult("ada", "day01", "graphs", 3))
    assert 'href="http://a.invalid/b.png"' in page and "<img" not in page
