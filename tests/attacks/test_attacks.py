"""Attacks of the corpus, graded in one class with three honest learners: nobody gets what they did not earn.

All of them, where anything they depend on has changed since all were tried; otherwise a share (see `draw`).

Not covered, because grading itself tells it: one bit for each verdict, and time.
"""

from __future__ import annotations

import csv
import os
import re

import nbformat
import pytest

from autograder.reports.exports import harmless
from autograder.toys import tiny_fx
from tests.attacks import CORPUS, draw, field
from tests.attacks.attack import FULL, MARK
from tests.support.pages import acts, nbgraders

#: Kind → the attacks of this run.
TRIED = draw.tried()
ATTACKS = {attack.name: attack for kind in TRIED.values() for attack in kind}
#: They patch the process that all of the attacker's own questions share: honest work beside them may be lost with them.
SPOILS = {
    *("meta-path", "frames-verdicts-by-answer", "frames-stolen-by-answer", "no-payload", "pickle-payload"),
    *("code-in-settings", "not-numbers", "lying-tensor-file", "compressed", "deep-document", "broad-document"),
    *("wrong-tags", "random-damage"),
}
HONEST = (*field.HONEST, field.YESTERDAY)

#: Parts of a hidden case's marks, as they are and as an attack may have written them.
_PLAIN = {*tiny_fx.MARKS, *(tiny_fx.GIVEN[0][i : i + 7] for i in range(3))}
LEAKS = re.compile(
    "|".join(re.escape(f) for m in _PLAIN for f in (m, m[::-1], m.encode().hex(), m.encode().hex().upper()))
)
SCRIPT = re.compile(rf"<script>\s*(alert\('{MARK}|{MARK})|<img src=x onerror|<svg[^>]*onload=.?{MARK}", re.I)


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return field.run(tmp_path_factory.mktemp("attacks") / "course", ATTACKS)


def test_there_are_attacks_of_every_kind():
    names = [attack.name for attacks in CORPUS.values() for attack in attacks]
    assert len({*names}) == len(names) >= 400
    assert set(CORPUS) >= {"patching", "reading", "writing", "escaping", "exhausting", "crashing", "malformed", "data"}
    assert all(attack.tries for attacks in CORPUS.values() for attack in attacks)
    assert all(len(TRIED[kind]) >= min(2, len(attacks)) for kind, attacks in CORPUS.items())


@pytest.mark.parametrize("name", ATTACKS)
def test_no_point_more_than_the_work_in_it_earns_and_where_only_itself_is_lost_not_less(ground, name):
    attack, actual = ATTACKS[name], ground.got(name)
    assert actual <= attack.honest, f"{attack.tries}: {ground.outcome(name)}"
    if attack.keeps and name not in SPOILS:
        assert actual == attack.honest, f"{attack.tries}: {ground.outcome(name)}"


@pytest.mark.parametrize("learner", HONEST)
def test_honest_learners_have_full_marks(ground, learner):
    assert ground.points(learner) == FULL


def test_whoever_is_in_the_table_handed_something_in(ground):
    assert {row["learner"] for row in ground.rows} <= {*ground.learner.values(), *HONEST}


def test_what_was_graded_before_is_as_it_was(ground):
    before, after = ground.yesterday
    assert before[0] and before[2] and before == after


def test_nothing_is_written_outside(ground):
    assert ground.changed == []


def test_no_process_is_left(ground):
    assert ground.left == []


def test_nothing_arrives_over_the_network(ground):
    assert ground.arrived == []


def test_the_worst_was_tried_because_it_was_contained(ground):
    shown = [text for name in ATTACKS for where, text in ground.pages(name) if "cell" in where]
    assert len(shown) > len(ATTACKS)
    assert not any(f"{MARK}: not contained" in text for text in shown)


def _plain(page: str) -> str:
    return re.sub(r"<[^>]*>", "", page)


def test_no_hidden_content_comes_out(ground):
    results = {}
    for name in ATTACKS:
        for where, text in ground.pages(name):
            for seen in (text, _plain(text)):
                if leak := LEAKS.search(seen):
                    results[name] = f"{where}: {seen[max(0, leak.start() - 60) : leak.end() + 40]}"
    assert results == {}


def test_no_judge_is_in_reach(ground):
    values = {
        name for name in ATTACKS for where, text in ground.pages(name) if "cell" in where and f"{MARK} took" in text
    }
    assert values == set()


def test_no_page_runs_what_a_learner_wrote(ground):
    pages = {
        f"{name}, {where}": text for name in ATTACKS for where, text in ground.pages(name) if where.endswith("html")
    }
    pages["report"] = (ground.course / "autograder/run/report.html").read_text(encoding="utf-8")
    assert [name for name, text in pages.items() if SCRIPT.search(text)] == []


def test_no_page_runs_loads_or_leads_anywhere(ground):
    run, results = ground.course / "autograder/run", {}
    own = frozenset({"script", "meta", "style", "iframe", "svg"})
    pages = {str(path): path.read_text(encoding="utf-8") for path in (run / "feedback").rglob("*.html")}
    results = {name: message for name, text in pages.items() if (message := acts(text, own))}
    assert len(pages) > len(ATTACKS) / 2
    report = (run / "report.html").read_text(encoding="utf-8")
    assert (results, acts(report, own | {"button"})) == ({}, [])


@pytest.mark.parametrize("attack", TRIED["showing"], ids=lambda attack: attack.name)
def test_nor_does_a_page_of_nbgraders_and_panels_are_the_graders(ground, attack):
    learner = ground.learner[attack.name]
    run = ground.course / "autograder/run"
    [path] = (run / "autograded" / learner).rglob("*.ipynb")
    shown = nbgraders(nbformat.read(path, as_version=4), template_name="classic")
    assert acts(shown.partition("<body")[2]) == []
    [page] = (run / "feedback" / learner).rglob("*.html")
    assert len(re.findall(r"<section\s+class=.?check", page.read_text(encoding="utf-8"))) == len(tiny_fx.QUESTIONS)


def test_no_field_of_a_table_is_a_formula(ground):
    for name in ("grades.csv", "canvas.csv", "moodle.csv"):
        with (ground.course / "autograder/run" / name).open(newline="", encoding="utf-8") as lines:
            assert [field for line in csv.reader(lines) for field in line if harmless(field) != field] == []


def test_what_learners_are_called_stays_a_name(ground):
    run = ground.course / "autograder/run"
    learners = {*ground.learner.values(), *HONEST}
    assert not [name for name in learners if set(name) & set('<>"&\\/') or name.startswith(".")]
    assert len(learners) == len(ground.learner) + len(HONEST)
    for part in ("autograded", "feedback"):
        assert {*os.listdir(run / part)} <= learners
    assert {name for name in os.listdir(run) if "." not in name} == {"autograded", "feedback", "release", "submitted"}


def test_the_table(ground, record_property):
    """Printed at the end of the run: what each attack tried, got, could have got, and what came of it."""
    lines = [f"{'attack':24} {'got':>4} {'may':>4} stock   what it tries · what came of it"]
    for kind, attacks in TRIED.items():
        lines.append(f"── {kind}, {len(attacks)} of {len(CORPUS[kind])}")
        for attack in attacks:
            stock = "forged" if attack.forges_stock else ""
            message = f"{attack.tries} · {ground.outcome(attack.name)}"
            lines.append(f"{attack.name:24} {ground.got(attack.name):4g} {attack.honest:4g} {stock:7} {message}")
    lines.append(f"{len(ATTACKS)} attacks and {len(field.HONEST)} honest learners graded in {ground.seconds:.0f} s")
    record_property("table", "\n".join(lines))
    assert len(lines) == len(ATTACKS) + len(TRIED) + 2
