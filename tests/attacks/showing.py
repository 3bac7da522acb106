"""Showing: what a notebook shows tries to run or load something in a page, or to look like the grader's own words.

Each text stands in a Markdown cell, in an attachment, in outputs of every type, in printed text, and in an error. The
pages are those that grading writes, those of nbgrader's own commands, and formgrader's.
"""

from __future__ import annotations

import base64

import nbformat
from nbformat.notebooknode import NotebookNode

from tests.attacks.attack import EARNED, MARK, Attack

_SAYS = f"alert('{MARK}')"
_CODED = base64.b64encode(f"<script>{_SAYS}</script>".encode()).decode()

#: name → (what it tries, the text)
_TEXTS = {
    "svg": (
        "SVG with scripts, handlers, links, animations of an address and foreign HTML",
        f"<svg xmlns='http://www.w3.org/2000/svg' oNlOaD={_SAYS}><a href='javascript:{_SAYS}'><text>x</text></a>"
        f"<animate attributeName=href values='javascript:{_SAYS}'/><set attributeName=onmouseover to={_SAYS}>"
        f"<foreignObject><iframe srcdoc='<script>{_SAYS}</script>'></iframe></foreignObject>"
        f"<use href='data:image/svg+xml;base64,{_CODED}#x'/></svg>",
    ),
    "mathml": (
        "MathML, SVG and tables that a parser moves elsewhere than the one that cleans",
        "<math><mtext><table><mglyph><style><math><img src onerror=" + _SAYS + "></style></table></mtext>"
        f"<annotation-xml encoding='text/html'><script>{_SAYS}</script></annotation-xml></math>"
        f"<svg></p><style><a id='</style><img src=1 onerror={_SAYS}>'><form><math><mtext></form><form><mglyph>"
        f"<style></math><img src onerror={_SAYS}>",
    ),
    "latex": (
        "formulas that link, write HTML, and end the page's own quotes",
        f"$\\href{{javascript:{_SAYS}}}{{x}}$ $\\unicode{{<img src=1 onerror={_SAYS}>}}$ $$\\require{{html}}"
        f"\\style{{position:fixed}}{{</script><script>{_SAYS}</script>}}$$ \\(<img src=x onerror={_SAYS}>\\)",
    ),
    "links": (
        "addresses with a script in them, in odd letters and with characters in between",
        f"[a](JaVaScRiPt:{_SAYS}) [b](java\tscript:{_SAYS}) [c](&#106;avascript:{_SAYS}) <vbscript:{MARK}> "
        f"[d](data:text/html;base64,{_CODED}) ![e](javascript:{_SAYS}) <a href=' \x01javascript:{_SAYS}'>f</a>"
        f"\n\n[g]: javascript:{_SAYS}\n\n[g] <a href='&Tab;javascript&colon;{_SAYS}'>h</a> "
        f"<area href=javascript:{MARK}>",
    ),
    "loads": (
        "pictures, fonts, styles and frames from elsewhere, which tell who looks at the page",
        f"![x](http://{MARK}.invalid/a.png) <img srcset='http://{MARK}.invalid/a 1x'><link rel=stylesheet "
        f"href=http://{MARK}.invalid><style>@import 'http://{MARK}.invalid'; body{{background:url(//{MARK}.invalid)}}"
        f"</style><p style='background:url(http://{MARK}.invalid);position:fixed'>x</p><video poster=//{MARK}.invalid "
        f"src=//{MARK}.invalid></video><object data=//{MARK}.invalid></object><embed src=//{MARK}.invalid>",
    ),
    "leads": (
        "the page is sent elsewhere: refresh, base, frames, forms that are sent at once",
        f"<meta http-equiv=refresh content='0;url=http://{MARK}.invalid'><base href=http://{MARK}.invalid target=_top>"
        f"<iframe src=javascript:{_SAYS}></iframe><iframe srcdoc='&lt;script&gt;{_SAYS}&lt;/script&gt;'></iframe>"
        f"<form action=http://{MARK}.invalid><input autofocus onfocus={_SAYS}><button formaction=javascript:{MARK}>x",
    ),
    "handlers": (
        "handlers of every kind, in names that end early",
        f"<details open ontoggle={_SAYS}><p OnMouseOver={_SAYS} style=x:expression({_SAYS})>x</p></details>"
        f'<img alt="`><script>{_SAYS}</script>"><p title="</p><img src=x onerror={_SAYS}>"><x/onclick={_SAYS}>y</x>'
        f"<noscript><p title='</noscript><img src=x onerror={_SAYS}>'></noscript><!--><img src=x onerror={_SAYS}>-->",
    ),
    "panels": (
        "panels, scores and buttons that look like the grader's",
        "</div></section></main><section class='check' id='dce'><h3><span>Check: dce</span><span>5 of 5 points</span>"
        "</h3></section><p class='total'>23 of 23 points</p><button class='full-credit'>x</button>"
        "<div id='comment-dce' class='comment'><b>Comment</b>full marks</div>",
    ),
}


def _shows(name: str, tries: str, text: str) -> Attack:
    def change(nb: NotebookNode) -> NotebookNode:
        v4 = nbformat.v4
        attached = {"a.png": {"image/png": text, "image/svg+xml": text}, f"x'{text}": {"text/html": text}}
        mimes = ("text/html", "text/markdown", "text/latex", "image/svg+xml", "image/png", "text/plain")
        data = {mime: {mime: text} for mime in mimes}
        data["widget"] = {"application/vnd.jupyter.widget-view+json": {"model_id": text}}
        data["script"] = {"application/javascript": _SAYS}
        code = "from IPython.display import display\nimport sys\n"
        code += f"text = {text!r}\nfor data in {data!r}.values():\n    display(data, raw=True)\n"
        code += (
            "print(text)\nprint(text, file=sys.stderr)\nraise type(text.replace(chr(0), ''), (Exception,), {})(text)"
        )
        nb.cells.insert(1, v4.new_markdown_cell(f"{text}\n\n![x](attachment:a.png)", attachments=attached, id="text"))
        nb.cells.insert(2, v4.new_code_cell(code, id="shown"))
        nb.cells.insert(3, v4.new_raw_cell(text, id="raw", metadata={"raw_mimetype": "text/html"}))
        nb.metadata.update(title=text, authors=[{"name": text}])
        return nb

    return Attack(f"shows-{name}", tries, notebook=change)


def _long_text(nb: NotebookNode) -> NotebookNode:
    """What takes half a second to render for each cell."""
    nb.cells += [nbformat.v4.new_markdown_cell("**a" * 6_600, id=f"long-{number}") for number in range(90)]
    return nb


def _long_html(nb: NotebookNode) -> NotebookNode:
    code = "from IPython.display import HTML, display\nfor tag in ('b', 'div', 'p a=b'):\n"
    code += "    display(HTML(f'<{tag}>' * 90_000))"
    nb.cells.append(nbformat.v4.new_code_cell(code, id="long"))
    return nb


ATTACKS = (
    *(_shows(name, *about) for name, about in _TEXTS.items()),
    Attack("shows-long-text", "Markdown that takes a minute to render", notebook=_long_text),
    Attack("shows-long-html", "tags that take minutes to clean", notebook=_long_html),
    _shows("nothing-odd", "control: an ordinary text in all these places", "**Fine**, $x < 1$ & so on"),
)
assert all(attack.honest == EARNED for attack in ATTACKS)
