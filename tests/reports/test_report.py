"""The report page: its figures, what stands in it, and that it opens, sorts and holds no stranger's markup."""

import re
from types import SimpleNamespace

import pytest

from autograder.engine.data import NotebookResult, Verdict
from autograder.reports import pages
from autograder.reports.exports import Row, rows
from autograder.reports.report import Facts, report
from autograder.reports.similar import Pair, Similar
from autograder.toys.browser import QUIET, chromium
from tests.support import growth, synthetic

UNSAFE = "Graded without the whole sandbox (--unsafe): learners' code was not kept"
LAYERS = [
    SimpleNamespace(name="bubblewrap", holds=True, sentence="No network."),
    SimpleNamespace(name="cgroup", holds=False, sentence="No limit."),
]
FACTS = Facts(
    when="today",
    seed=4711,
    seconds=120.0,
    graded=60,
    workers="2 on this machine",
    layers=LAYERS,
    notes={"ada": ["Taken from old/."], "": ["One level deeper."]},
    unread=[("bob", "day01: graphs.ipynb is damaged.")],
    similar=Similar([Pair("ada", "cyd", ("cse", "dce"))], [("levels", tuple(f"l{n}" for n in range(43)))]),
)


def text(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.split("<body>")[1]))


def line_of(page, question):
    match = re.search(rf"<tr>(?:(?!</tr>).)*?>{question}<.*?</tr>", page, re.S)
    return text("<body>" + match[0])


def some():
    items = [Row(f"l{n}", "day03", "dce", 8, 8, status="right") for n in range(6)]
    items += [Row(f"l{n}", "day03", "dce", 4, 8, misconception="unread is dead", status="partly right") for n in (6, 7)]
    items += [Row("l8", "day03", "dce", 0, 8, misconception="forwards", status="crashed")]
    return [
        *items,
        Row("l9", "day03", "dce", 0, 8, status="not attempted"),
        Row("l9", "day03", "essay", None, 2, status="to be graded"),
    ]


def test_a_question_says_how_many_have_it_right_what_is_wrong_and_what_crashed():
    page = report(some(), [], Facts())
    line = line_of(page, "dce")
    assert "60 %" in line and "5.6 of 8" in line and "unread is dead (2 learners)" in line and line.split()[-3] == "1"
    assert "6 right, 2 partly right, 1 wrong, 1 not attempted" in page
    assert "10 learners, 10 submissions" in page
    assert "none known" not in line_of(page, "essay"), "nobody has gone astray there"


def test_totals_times_and_the_spread_come_from_rows_and_results():
    results = synthetic.make(30, seed=5)
    value = rows(synthetic.scores(results))
    page = report(value, results, FACTS)
    total = sum(row.points for row in value if row.learner == "learner-0007")
    assert f"{round(total, 2):g}" in line_of(page, "learner-0007")
    slowest = max(v.seconds for r in results for v in r.verdicts.values() if v.exercise == "day03.dce")
    assert (f"{slowest:.1f} s" if slowest >= 1 else f"{1000 * slowest:.0f} ms") in line_of(page, "dce")
    counts = re.findall(r'aria-label="learners by share of the points: ([^"]*)"', page)
    assert len(counts) == 3 and all(sum(map(int, re.findall(r": (\d+)", message))) == 30 for message in counts)


def test_how_it_was_graded_who_was_not_read_and_who_is_alike():
    message = text(report(some(), synthetic.make(1), FACTS))
    for part in ("4711", "30 a minute", "2 on this machine", "✓ bubblewrap", "✗ cgroup"):
        assert part in message, part
    assert "every layer that grading needs" in message
    for part in ("bob : day01: graphs.ipynb is damaged.", "ada : Taken from old/.", "One level deeper.", "43 learners"):
        assert part in message, part
    assert "ada cyd 2 cse, dce" in message
    assert UNSAFE not in message


def test_an_unsafe_run_says_so_whoever_knows_it():
    results = synthetic.make(2)
    results[1].unsafe = True
    assert report(some(), results, Facts()).count(UNSAFE) == 1
    assert report(some(), [], Facts(unsafe=True)).count(UNSAFE) == 1
    assert "graded with --unsafe" in report(some(), [], Facts(unsafe=True))


def test_an_empty_class_has_a_report():
    assert "Nothing was graded." in report([], [], Facts())


def test_a_thousand_learners_make_a_page_that_opens_quickly():
    classes = {}
    for size in (125, 125 * growth.STEP):
        results = synthetic.make(size, seed=1)
        pairs = [Pair(f"learner-{n:04}", f"learner-{n + 1:04}", ("cse", "dce", "gelu")) for n in range(size // 2)]
        classes[size] = rows(synthetic.scores(results)), results, Facts(similar=Similar(pairs))
    assert growth.ratio(lambda size: report(*classes[size]), 125) <= growth.MOST
    page = report(*classes[1000])
    assert len(page.encode()) < 1_000_000
    assert page.count('<th scope="row">learner-') == 1500


def test_in_a_browser_tables_sort_and_no_name_is_markup(tmp_path):
    from playwright.sync_api import sync_playwright

    evil = "<script>window.pwned=1</script><img src=x onerror='window.pwned=2'>"
    items = [Row("zoe", "day03", "dce", 8, 8, status="right"), Row("ada", "day03", "dce", 10, 8, status="right")]
    items += [Row(evil, evil, evil, 2, 8, misconception=evil, message=evil, status="wrong")]
    facts = Facts(
        notes={evil: [evil]}, unread=[(evil, evil)], similar=Similar([Pair(evil, evil, (evil,))], [(evil, (evil,) * 9)])
    )
    path = tmp_path / "report.html"
    path.write_text(report(items, synthetic.make(2), facts), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        page = browser.new_page()
        page.goto(path.as_uri())
        learners = page.locator("section", has=page.get_by_role("heading", name="Learners", exact=True))
        names = learners.locator("tbody th")
        assert names.all_inner_texts()[1:] == ["ada", "zoe"]
        head = learners.locator("thead th", has_text="core")
        head.get_by_role("button").click()
        assert names.all_inner_texts()[1:] == ["zoe", "ada"] and head.get_attribute("aria-sort") == "ascending"
        head.get_by_role("button").press("Enter")
        assert names.all_inner_texts()[:2] == ["ada", "zoe"] and head.get_attribute("aria-sort") == "descending"
        assert page.evaluate("window.pwned") is None and page.locator("img").count() == 0
        wide = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert wide, "a long name does not push the page sideways"
        browser.close()


def test_what_a_template_does_not_call_safe_is_escaped():
    from jinja2 import DictLoader

    made = pages.templates.__wrapped__()
    made.loader = DictLoader({"t": '<b title="{{ x }}">{{ x }}{{ [x] | join }}{{ x | cut(30) }}</b>{{ made | safe }}'})
    evil = "\x1b[31m<i\x00>\"'&"
    shown = "&lt;i&gt;&#34;&#39;&amp;"
    assert made.get_template("t").render(x=evil, made="<i>") == f'<b title="{shown}">{shown}{shown}{shown}</b><i>'
    every = "".join(path.read_text() for path in pages.TEMPLATES.glob("*.html"))
    assert "autoescape" not in every
    assert sorted(re.findall(r"{{ ([^}]*?) \| safe", every)) == ["bars.svg", "chart.svg", "pareto.svg", "verdict.html"]


@pytest.mark.parametrize("size", [1, 3])
def test_a_class_is_the_same_for_the_same_seed(size):
    assert synthetic.make(size, 7) == synthetic.make(size, 7) != synthetic.make(size, 8)


def test_cases_that_could_not_be_built_are_named_once():
    verdict = Verdict("day03.dce", 8, 8, 7, unbuilt=["very long"])
    results = [NotebookResult(who, "day03", "graphs", 7, verdicts={1: verdict}) for who in ("ada", "bob")]
    page = text(report(some(), results, Facts()))
    assert page.count("day03.dce, seed 7: very long") == 1 and "no points" in page
    assert "Cases left out" not in report(some(), [], Facts())


def test_core_and_extra_credit_have_columns_of_their_own():
    rows = [
        Row("ada", "day01", "a", 4, 4),
        Row("ada", "day01", "b", 3, 6, stretch=True),
        Row("bob", "day01", "a", 2, 4),
    ]
    table = report(rows, [], Facts()).partition("<h2>Learners</h2>")[2]
    text = " ".join(re.sub(r"<[^>]+>", " ", table).split())
    assert "learner core /4 extra /6 share" in text and "ada 4 3 " in text and "bob 2 0 " in text
