"""autograder/SECURITY.md names attacks that there are, and every kind of them."""

from __future__ import annotations

import re

from autograder.authoring.source import ROOT
from tests.attacks import CORPUS, test_kernels, test_remote

PAGE = (ROOT / "autograder/SECURITY.md").read_text(encoding="utf-8")
WALLS = PAGE.split("## The walls")[1].split("\n## ")[0].strip().split("\n\n")
NAMES = {attack.name for attacks in CORPUS.values() for attack in attacks}


def test_every_wall_names_kinds_and_attacks_that_there_are():
    for wall in WALLS:
        kinds = re.search(r"\*([a-z,\s]+)\.\*\s+Shown\s+by", wall)
        assert kinds and set(re.split(r",\s+", kinds[1])) <= CORPUS.keys(), wall
        attacks = re.findall(r"`([^`]+)`", wall.split("Shown")[1])
        assert attacks and set(attacks) <= NAMES, set(attacks) - NAMES


def test_every_kind_of_attack_has_its_wall():
    message = {kind for wall in WALLS for kind in re.split(r"[,\s]+", re.search(r"\*([a-z,\s]+)\.\*", wall)[1])}
    assert message == CORPUS.keys()


def test_the_readme_and_the_page_for_instructors_lead_there():
    assert "(autograder/SECURITY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(../autograder/SECURITY.md)" in (ROOT / "docs/teaching.md").read_text(encoding="utf-8")


def test_the_honesty_figure_counts_what_is_tried():
    figure = re.search(
        r"Of (\d+) attempts .*? (\d+)\s+submissions of (\d+) kinds .*? (\d+) texts .*? (\d+) answers", PAGE, re.S
    )
    submissions, *others = sum(map(len, CORPUS.values())), len(test_kernels.ATTACKS), len(test_remote.ATTACKS)
    assert [int(n) for n in figure.groups()] == [submissions + sum(others), submissions, len(CORPUS), *others]
