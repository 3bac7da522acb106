"""docs/exercises.md on adding an exercise, followed to the letter in a course of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autograder.authoring.source import ROOT
from autograder.toys import tiny

#: A block of code, and the file that is named last before it.
_BLOCK = re.compile(r"`(?P<path>[\w/]+\.py)`[^`]*(?:`(?!``)[^`]*`[^`]*)*?\n\n```python\n(?P<code>.*?)```", re.S)


def section(heading: str) -> str:
    """Return a section of the page for authors."""
    page = (ROOT / "docs/exercises.md").read_text(encoding="utf-8")
    return page.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def blocks() -> dict[str, str]:
    """File → what the page puts into it, in the names of the tiny course."""
    text = section("The files of an exercise").replace("day03", "day00").replace("optimizations", "tiny")
    return {matches["path"]: matches["code"] for matches in _BLOCK.finditer(text)}


def prove(course) -> dict:
    process = tiny.run(course, "-m", "passlab.cli", "prove", "--json", "--exercise", "day00.reverse")
    assert process.stdout, process.stderr
    [proof] = json.loads(process.stdout)
    return proof


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return tiny.make(tmp_path_factory.mktemp("new") / "course")


def test_an_exercise_is_added_by_following_the_page(course):
    parts = blocks()
    listing = "lib/passlab/exercises/day00/__init__.py"
    files = ["lib/passlab/exercises/day00/reverse.py", "autograder/answers/day00/reverse.py"]
    assert list(parts) == [listing, "solutions/day00/tiny.py", *files]

    text = (course / listing).read_text().rstrip()
    assert text.endswith(")")
    (course / listing).write_text(text[:-1] + parts[listing].partition("# the existing ones\n")[2])
    assert [sentence.split()[0] for sentence in prove(course)["problems"]] == [*files, "solutions/day00/tiny.py"]

    notebook = course / "solutions/day00/tiny.py"
    notebook.write_text(f"{notebook.read_text()}\n{parts['solutions/day00/tiny.py']}")
    tiny.write(course, {file: parts[file] for file in files})
    proof = prove(course)
    assert proof["problems"] == ["it has 1 wrong answer; 6 are needed", "it has 1 right answer; 2 are needed"]
    rows = {row["name"]: (row["points"], row["problem"]) for row in proof["rows"]}
    nothing = dict.fromkeys(("stub", "unchanged"), (0, ""))
    assert rows == nothing | {"reference": (3, ""), "joined": (3, ""), "sorted_down": (0, "")}

    built = tiny.run(course, "-m", "autograder.authoring.notebooks")
    assert built.returncode == 0, built.stderr
    released = json.loads((course / "exercises/day00/tiny.ipynb").read_text())
    marks = {cell["id"]: cell["metadata"]["nbgrader"] for cell in released["cells"] if "nbgrader" in cell["metadata"]}
    assert marks["reverse-check"]["points"] == 3 and marks["reverse"]["solution"]


@pytest.mark.parametrize("ir", ["fx", "relay", "relax", "mlir"])
def test_the_cases_of_the_page_judge_a_pass_that_does_nothing(tmp_path, ir):
    codes = re.findall(r"```python\n(.*?)```", section("Cases for a pass"), re.S)
    [code] = [code for code in codes if f"from passlab.{ir}.cases import" in code]
    ask = """
from passlab.judge import cases_in

[case] = cases_in(__name__)
for finding in judge(case, *case.build()):
    print(finding.verdict, finding.ok)
"""
    (tmp_path / "example.py").write_text(f"{code}\n{ask}")
    output = shell("python example.py", tmp_path)
    assert output.returncode == 0, output.stderr
    expected = {"valid": True, "same": True, "did": ir == "relay", "spared": True, "cost": True}
    assert output.stdout.splitlines() == [f"{verdict} {ok}" for verdict, ok in expected.items()]


# ---------------------------------------------------------------------------------------------------- passlab new


def walk() -> tuple[str, str, str]:
    """The commands before the added answers, those answers, and the commands after them, as the page has them."""
    text = section("A course of your own")
    before, after = re.findall(r"```sh\n(.*?)```", text, re.S)
    [answers] = re.findall(r"```python\n(.*?)```", text, re.S)
    return before, answers, after


def edited_by_hand() -> str:
    """The file of that walk that is edited between its commands: there is one."""
    [named] = set(re.findall(r"`my-course/([\w/]+\.py)`", section("A course of your own")))
    return named


def shell(script: str, folder: Path, **env: str) -> subprocess.CompletedProcess:
    """Run commands in a shell that finds `passlab`."""
    items = {k: v for k, v in os.environ.items() if k not in ("PASSLAB_RUN", "PASSLAB_SEED", "PASSLAB_COURSE")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", "-c", script]
    env = items | env | {"PATH": path, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)


def files(folder: Path) -> dict[str, bytes]:
    """Path → content of what an author keeps of a course; what grading and proofs leave there is apart."""
    items = ("solutions/*/*.py", "lib/**/*.py", "autograder/answers/**/*.py")
    return {str(path.relative_to(folder)): path.read_bytes() for glob in items for path in folder.glob(glob)}


def test_a_course_of_ones_own_from_nothing_to_grades(tmp_path):
    before, answers, after = walk()
    commands = [line for line in (before + after).splitlines() if line.strip() and not line.startswith("#")]
    assert len(commands) < 10
    started = shell(before, tmp_path)
    assert "it has 1 wrong answer; 6 are needed" in started.stdout, started.stderr
    assert "it has 1 right answer; 2 are needed" in started.stdout
    folder = tmp_path / "my-course"
    three = {"solutions/day21/exercises.py", "lib/passlab/exercises/day21/double.py", edited_by_hand()}
    value = files(folder)
    generated = {path for path in value if path.endswith("/__init__.py")}
    assert value.keys() == three | generated and len(three) == 3
    with (folder / edited_by_hand()).open("a") as out:
        out.write("\n" + answers)
    done = shell(f"set -e\n{after}", tmp_path, PASSLAB_COURSE=str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 of 6 wrong answers fall short" in done.stdout and "The proof holds." in done.stdout
    assert "day21.double: 2 of 2 fall" in done.stdout
    assert [path for path, text in files(folder).items() if text != value.get(path)] == [edited_by_hand()]
    released = json.loads((folder / "exercises/day21/exercises.ipynb").read_text())
    assert "number in numbers" not in str(released["cells"])

    handed_in = tmp_path / "class/ada/day21/exercises.ipynb"
    handed_in.parent.mkdir(parents=True)
    handed_in.write_text((folder / "solutions/day21/exercises.ipynb").read_text())
    graded = shell("passlab grade class", tmp_path, PASSLAB_COURSE=str(folder))
    assert "ada, day21: 1 of 1 points" in graded.stdout, graded.stderr
    assert (folder / "autograder/run/grades.csv").is_file()


def test_a_course_of_ones_own_outlives_an_update_of_the_project(tmp_path):
    own, project = tmp_path / "own", tmp_path / "project"
    own.mkdir()
    named = {"PASSLAB_COURSE": str(own)}
    tiny.machinery(project)
    assert tiny.run(project, "-m", "passlab.cli", "new", "day21.double", **named).returncode == 0
    with (own / edited_by_hand()).open("a") as out:
        out.write("\n" + walk()[1])
    assert tiny.run(project, "-m", "passlab.cli", "release", **named).returncode == 0
    result = files(own)

    shutil.rmtree(project)  # an update replaces all of it
    tiny.machinery(project)
    version = project / "lib/passlab/__init__.py"
    version.write_text(re.sub('__version__ = ".*"', '__version__ = "9.9.9"', version.read_text()))
    assert tiny.run(project, "-c", "import passlab; print(passlab.__version__)", **named).stdout == "9.9.9\n"
    proved = tiny.run(project, "-m", "passlab.cli", "prove", **named)
    assert proved.returncode == 0 and "The proof holds." in proved.stdout, proved.stdout + proved.stderr
    (own / "exercises/day21/exercises.ipynb").unlink()
    released = tiny.run(project, "-m", "passlab.cli", "release", **named)
    assert released.returncode == 0 and (own / "exercises/day21/exercises.ipynb").is_file(), released.stderr
    assert files(own) == result


def proof_of(course: Path, words: str) -> dict:
    """What `passlab prove` says of the one exercise that `passlab new` writes into a course of one's own."""
    course.mkdir()
    value = shell(f"passlab new {words} && passlab prove --json", course.parent, PASSLAB_COURSE=str(course))
    assert "\n[" in value.stdout, value.stdout + value.stderr
    [proof] = json.loads(value.stdout[value.stdout.index("\n[") :])
    return proof


@pytest.mark.parametrize(
    ("like", "flavour", "names"),
    [
        ("day03.cse", "torch", "import torch"),
        ("day07.cse", "relay", "passlab.relay.cases"),
        ("day08.port", "relax", "passlab.relax.cases"),
        ("day09.patterns", "mlir", "passlab.mlir.cases"),
    ],
)
def test_a_pass_like_another_is_over_the_same_ir_and_works(tmp_path, like, flavour, names):
    own = tmp_path / "own"
    proof = proof_of(own, f"day22.shorter --like {like} --stretch")
    assert proof["problems"] == ["it has 1 wrong answer; 6 are needed", "it has 1 right answer; 2 are needed"]
    rows = {row["kind"]: row for row in proof["rows"]}
    assert {kind: row["problem"] for kind, row in rows.items()} == dict.fromkeys(
        ("stub", "reference", "unchanged", "right", "wrong"), ""
    )
    full = sum({"valid": 1, "same": 2, "did": 2, "spared": 1}.values())
    assert [rows[kind]["points"] for kind in ("reference", "right")] == [full, full]
    assert rows["wrong"]["points"] < full and rows["unchanged"]["points"] == 0
    listing = (own / "lib/passlab/exercises/day22/__init__.py").read_text()
    assert f'NOTEBOOKS = {{"exercises": "{flavour}"}}' in listing
    assert names in (own / "lib/passlab/exercises/day22/shorter.py").read_text()


def test_the_notebook_is_the_first_of_the_day_that_has_the_flavour(tmp_path):
    listing = "lib/passlab/exercises/day22/__init__.py"
    notebooks = 'NOTEBOOKS = {"first": "torch", "second": "mlir"}'
    tiny.write(tmp_path, {listing: f"from passlab.judge import Exercise\n\n{notebooks}\n\nEXERCISES = ()\n"})
    done = shell("passlab new day22.shorter --like day09.patterns", tmp_path, PASSLAB_COURSE=str(tmp_path))
    assert "wrote solutions/day22/second.py" in done.stdout, done.stderr
    assert '        notebook="second",\n' in (tmp_path / listing).read_text()


def test_a_day_of_the_project_is_not_written_into_a_course_of_ones_own(tmp_path):
    output = shell("passlab new day07.x", tmp_path, PASSLAB_COURSE=str(tmp_path))
    assert output.returncode == 1 and output.stderr.startswith("The project has a day07 of its own, which hides yours.")
    assert files(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("Day3.x", "'Day3.x' is not an id. Write the day, a dot and a name"),
        ("day03.cse", "There is already an exercise day03.cse."),
        ("day21.x", "This course has no day21. A new day of your own belongs into a folder of your own"),
        ("day03.x --like nothing", "There is no exercise 'nothing' that the new one could be like."),
        ("day04.x --like cse", "'cse' is the name of several exercises: day03.cse, day07.cse."),
        (
            "day03.x --like day08.port",
            "An exercise like day08.port needs a notebook of flavour relax; day03 has optimizations (torch). "
            "Choose another day, or name an exercise of day03 after --like.",
        ),
        (
            "day04.x --like day09.patterns",
            "An exercise like day09.patterns needs a notebook of flavour mlir; day04 has",
        ),
    ],
)
def test_what_new_refuses(tmp_path, words, sentence):
    course = ROOT / "lib/passlab/exercises"
    listings = {path: path.read_text() for path in course.glob("day0[34]/__init__.py")}
    output = shell(f"passlab new {words}", tmp_path)
    assert output.returncode == 1 and output.stderr.startswith(sentence), output.stderr
    assert {path: path.read_text() for path in listings} == listings


def test_a_course_that_is_not_there(tmp_path):
    output = shell("passlab prove", tmp_path, PASSLAB_COURSE=str(tmp_path / "nowhere"))
    assert output.returncode == 1
    assert (
        output.stderr
        == f"PASSLAB_COURSE names {tmp_path / 'nowhere'}, which is not a folder: make it, or unset the variable.\n"
    )
