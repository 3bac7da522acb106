"""nbgrader's own pages: nothing of a learner's runs or loads in them, and what they drew is still shown."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote

import pytest
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell

from autograder.engine import bounded_call
from autograder.grading.intake import VERDICT
from autograder.grading.safe_html import SafePage, ansi, clean, highlight, markdown
from autograder.toys import tiny
from autograder.toys.classes import GOOD, submit
from tests.support import jupyter
from tests.support.pages import acts, nbgraders

RUNS = [
    "<script>alert('plattack')</script>",
    "<img src=x onerror=alert('plattack')>",
    "<svg onload=alert('plattack')><animate onbegin=alert('plattack')></svg>",
    "<iframe srcdoc='<script>plattack</script>'></iframe>",
    "<a href=javascript:alert('plattack')>a</a><a href='data:text/html,<script>plattack</script>'>b</a>",
    "<div class='full-credit btn' style='position:fixed;top:0;background:url(http://plattack)'>a</div>",
    "<form action=http://plattack><button>a</button></form><base href=http://plattack><object data=http://plattack>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=plattack&gt;'>",
    "<noscript><p title='</noscript><img src=x onerror=plattack>'></noscript><style>@import 'http://plattack'</style>",
    "[a](javascript:plattack) ![b](http://plattack/x.png) <details open ontoggle=plattack>",
    '![a" onerror="plattack](x) [b]( "onmouseover=plattack) `<script>`\n\n```"><script>plattack\nx\n```\n',
    "```mermaid\n</pre><script>plattack</script>\n```\n\n# <img src=x onerror=plattack>\n\n$<img src=x onerror=pl>$",
    "&lt;script&gt;plattack&lt;/script&gt; \\<script>plattack</script>",
    "![a](attachment:a.png) ![b](attachment:none)",
]


def notebook(text: str):
    attachments = {"a.png": {'image/png"onerror="plattack': '"><script>plattack</script>'}}
    mimes = ("text/html", "text/markdown", "image/svg+xml", "text/latex", "text/plain", "image/png")
    outputs = [new_output("display_data", {mime: text}, metadata={mime: {"width": text}}) for mime in mimes]
    outputs += [
        new_output("display_data", {"application/javascript": text}),
        new_output("display_data", {"application/vnd.jupyter.widget-view+json": {"a": text}}),
        new_output("stream", text=text),
        new_output("error", ename=text, evalue=text, traceback=[text]),
    ]
    cells = [
        new_markdown_cell(text, attachments=attachments),
        new_markdown_cell(text),
        new_raw_cell(text, metadata={"raw_mimetype": "text/html"}),
        new_code_cell(text, outputs=outputs, metadata={"tags": [text.replace(",", "")], "magics_language": text}),
    ]
    for cell in cells[1::2]:
        cell.metadata["nbgrader"] = {"grade_id": "a", "points": 1, "grade": True, "solution": True, "task": False}
    metadata = {"title": text, "authors": [{"name": text}], "widgets": {"a": text}}
    return new_notebook(cells=cells, metadata=metadata)


@pytest.fixture(scope="module")
def body():
    def shown(nb, **more) -> str:
        return nbgraders(nb, template_name="classic", **more).partition("<body")[2]

    return shown


@pytest.mark.parametrize("text", RUNS)
def test_nothing_of_a_learner_runs_or_loads(body, text):
    assert acts(body(notebook(text))) == []


def test_without_the_sanitizer_it_would(body):
    acting = []
    for text in RUNS[:-1]:
        nb = notebook(text)
        nb.metadata.clear()  # on widgets that are not of nbconvert's form, it fails
        nb.cells[0].attachments = {name: {"image/png": ""} for name in ("a.png", "none")}
        del nb.cells[3].outputs[7]
        acting += [text] * bool(acts(body(nb, preprocessors=[], filters={})))
    assert len(acting) >= 10


def test_what_learners_show_is_shown(body):
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><circle r="3"/></svg>'
    shown = body(
        new_notebook(
            cells=[
                new_markdown_cell("# Title\n\n| a | b |\n|---|---|\n| **1** | $x<y$ |\n\n![p](attachment:a.png)\n"
                                  "\n```python\nreturn 1\n```", attachments={"a.png": {"image/png": "QUJD"}}),
                new_code_cell(
                    "draw()",
                    outputs=[
                        new_output("display_data", {"image/svg+xml": svg, "text/html": svg}),
                        new_output("display_data", {"text/html": "<table><tr><td style='color: red'>7</table>"}),
                        new_output("display_data", {VERDICT: {}, "text/html": f"<div class='card'>{svg}</div>"}),
                    ],
                ),
            ]
        )
    )  # fmt: skip
    for part in ("<h1>Title", "<strong>1</strong>", "x&lt;y", 'src="data:image/png;base64,QUJD"', 'class="k"'):
        assert part in shown, part
    assert base64.b64encode(svg.encode()).decode()[:30] in shown and "color: red" in shown
    assert shown.count("<svg") == 1, "the verdict's"


def test_a_feedback_page_forbids_it_a_second_time():
    value = nbgraders(notebook(RUNS[0]), SafePage, template_name="classic")
    assert re.search(r"<head>\s*<meta[^>]*Content-Security-Policy[^>]*default-src 'none'", value)


def test_much_html_and_much_markdown_take_no_time():
    assert "not shown" in clean("<b>" * 10**6)
    assert markdown({}, "[" * 10**6).startswith("<pre>")


def test_what_takes_too_long_is_shown_as_text_and_nothing_more_is_rendered(monkeypatch):
    monkeypatch.setattr(bounded_call, "call", lambda function, *_: called.append(function))
    called, context = [], {"resources": {}, "cell": {}}
    assert highlight(context, "x < 1") == '<div class="highlight"><pre>x &lt; 1</pre></div>'
    assert markdown(context, "*a* <b>") == "<pre>*a* &lt;b&gt;</pre>"
    assert called == ["autograder.grading.cleaning:highlighted"]
    assert "not shown" in clean("<b>a</b>")


def test_code_and_colours_are_shown(body):
    nb = new_notebook(cells=[new_code_cell("x = 1", outputs=[new_output("stream", text="\x1b[31mred\x1b[0m")])])
    page = body(nb)
    assert '<span class="n">x</span>' in page and "ansi-red-fg" in page
    assert ansi("\x1b[31m<" * 20_000) == "&lt;" * 20_000


#: What a learner is called in Canvas, and what a link to a page of formgrader has in place of a name.
CALLED = "<img src=x onerror=alert('plattack')>"
LINKED = [CALLED, '";alert("plattack");"', "'-alert('plattack')-'", "\\", "<!--<script>", "O'Neil & co"]


@pytest.fixture(scope="module")
def server(course):
    submit(course, "ada", GOOD)
    (course / "class/roster.csv").write_text(f'id,name\nada,"{CALLED}, {CALLED}"\n')
    graded = tiny.run(course, "-m", "passlab.cli", "grade", "class")
    assert graded.returncode == 0, graded.stderr
    with jupyter.serving(course) as page:
        yield page


def test_what_a_learner_is_called_does_nothing_in_formgrader(server):
    (notebook,) = json.loads(server("formgrader/api/submitted_notebooks/day00/tiny"))
    page = BeautifulSoup(server(f"formgrader/submissions/{notebook['id']}/"), "html.parser")
    assert not page.find_all("img", onerror=True)
    assert " ".join(page.select_one("a.name-shown").text.split()) == f"{CALLED}, {CALLED}"


@pytest.mark.parametrize("place", ["manage_students/{}", "manage_students/ada/{}", "gradebook/{}", "gradebook/day00/{}",
                                   "manage_submissions/{}"])  # fmt: skip
@pytest.mark.parametrize("name", LINKED)
def test_a_link_to_formgrader_does_nothing_there(server, place, name):
    """Whoever followed such a link, in a learner's Markdown for example, ran its script as the instructor."""
    page = BeautifulSoup(server(f"formgrader/{place.format(quote(name, safe=''))}"), "html.parser")
    assert not page.find_all("img", onerror=True)
    values = [re.findall(r"^var (?:student|assignment|notebook)_id = (.*);$", s.text, re.M) for s in page("script")]
    assert name in [json.loads(value) for found in values for value in found]
    assert name in [element.text for element in page.select("li.active")] or "manage_students/ada" in place
