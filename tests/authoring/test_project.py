"""The project's files agree with each other: pairs, releases, samples, pins, front matter, links."""

from __future__ import annotations

import ast
import builtins
import json
import pkgutil
import re
import tomllib

import jupytext
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from autograder.authoring import answers, notebooks, samples, source
from autograder.authoring.source import ROOT, blank
from autograder.engine.flavours import FLAVOURS
from autograder.toys import tiny
from passlab import exercises
from passlab.notebook.cells import Cell, cells

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
AUTHORED = notebooks.authored_paths()
LESSONS = [path for path in AUTHORED if path.parent.name == "course" and path.stem != "index"]
SOLUTIONS = source.notebooks()


def name(path) -> str:
    return str(path.relative_to(ROOT))


# Generated files


@pytest.fixture(scope="module")
def wanted():
    return notebooks.expected_files()


def test_every_pair_and_release_is_in_step(wanted):
    assert notebooks.out_of_step(wanted) == []


def test_the_sample_class_is_built_once(tmp_path):
    course = tiny.make(tmp_path / "c")
    tiny.run(course, "-m", "autograder.authoring.notebooks")
    build = [tiny.run(course, "-m", "autograder.authoring.samples").stdout for _ in range(2)]
    assert build == ["wrote autograder/samples\n", "The sample class was in step.\n"]
    assert len(list((course / samples.FOLDER).glob("*/*/*.ipynb"))) == len(samples.CLASS) + 1  # and the damaged one


def test_a_sample_answer_needs_nothing_that_a_learner_has_not():
    cells = [
        (name, cell)
        for path in source.notebooks()
        for name, place in source.places(path.parent.name).items()
        if (cell := samples.wrong_text(name, place.answer_expr))
    ]
    assert len(cells) > 50
    for name, cell in cells:
        assert not any(word in cell for word in ("autograder", "@wrong", "@right")), name
        tree = ast.parse(cell)
        known = {name for statement in tree.body for name in samples.names_of(statement)}
        used = [d.id for n in ast.walk(tree) for d in getattr(n, "decorator_list", ()) if isinstance(d, ast.Name)]
        assert not {*used} - known - {*dir(builtins)}, name


def test_building_twice_gives_the_same_bytes(wanted):
    assert notebooks.expected_files() == wanted


def test_what_is_out_of_step_is_found_and_mended(tmp_path):
    course = tiny.make(tmp_path / "c")
    build = tiny.run(course, "-m", "autograder.authoring.notebooks")
    assert "wrote exercises/day00/tiny.ipynb" in build.stdout

    def check():
        result = tiny.run(course, "-m", "autograder.authoring.notebooks", "--check")
        return result.returncode, result.stdout

    assert check() == (0, "All notebooks are in step.\n")
    authored = course / "solutions/day00/tiny.py"
    authored.write_text(authored.read_text().replace("# # Day 0", "# # Day nought"))
    (course / "exercises/day00/tiny.ipynb").write_text("{}")
    (course / "exercises/day00/notes.py").write_text("answers = 1")
    code, output = check()
    assert code == 1
    for place in (
        "solutions/day00/tiny.ipynb differs",
        "exercises/day00/tiny.ipynb differs",
        "exercises/day00/notes.py",
    ):
        assert place in output
    assert tiny.run(course, "-m", "autograder.authoring.notebooks").returncode == 0
    assert check()[0] == 0 and not (course / "exercises/day00/notes.py").exists()


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_no_solution_text_is_released(path):
    """No line of an answer is in the release, unless it also stands in a part that learners are given."""
    text = path.read_text()
    arguments = {line.strip() for line in blank(text).split("\n")}
    arguments |= {line.removeprefix("# ").strip() for line in arguments}
    secret = {line.strip() for line in text.split("\n")} - arguments
    assert len(secret) > 5
    released = ROOT / "exercises" / path.parent.name / f"{path.stem}.ipynb"
    nb = json.loads(released.read_text())
    shown = {line.strip() for cell in nb["cells"] for line in "".join(cell["source"]).split("\n")}
    assert not secret & shown
    raw = released.read_text()
    assert "HIDDEN TESTS" not in raw and "BEGIN SOLUTION" not in raw and "autograder.authoring.answers" not in raw
    assert not any(cell.get("outputs") for cell in nb["cells"])


def test_a_release_is_stamped_and_not_paired():
    def metadata(text):
        [released] = notebooks.release({"day00/tiny.ipynb": text}).values()
        return json.loads(released)["metadata"]

    text = SOLUTIONS[0].with_suffix(".ipynb").read_text()
    first, second = metadata(text), metadata(text.replace("Day 1", "Day one"))
    assert "jupytext" not in first and first["kernelspec"] == notebooks.KERNEL
    assert re.fullmatch("[0-9a-f]{12}", first["passlab"]["release"])
    assert first["passlab"] != second["passlab"]


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_an_exercise_is_its_solution_minus_the_answers(path):
    released = json.loads((ROOT / "exercises" / path.parent.name / f"{path.stem}.ipynb").read_text())
    stubs = {"".join(c["source"]) for c in released["cells"]}
    for cell in cells(path.read_text()):
        if cell.is_answer:
            assert blank(cell.text).strip() in stubs


def test_the_search_for_solution_text_can_fail():
    text = tiny.notebook()
    assert "solutionmarker" in text and "solutionmarker" not in blank(text)


# Exercises and their places


def test_every_exercise_has_its_three_files_and_every_file_its_exercise():
    ids = [exercise.id for day in exercises.days() for exercise in exercises.of_day(day)]
    assert [sentence for exercise_id in ids for sentence in answers.missing(exercise_id)] + answers.strays() == []


LOOK = """
from autograder.authoring import answers
print(*answers.missing("day00.shout"), *answers.strays(), sep="\\n")
"""


@pytest.mark.parametrize("names", ["lib/passlab/exercises/day00/shout.py", "autograder/answers/day00/shout.py"])
def test_the_file_that_is_missing_is_named(tmp_path, names):
    course = tiny.make(tmp_path / "course")
    (course / names).rename((course / names).with_name("whisper.py"))
    missing, stray = tiny.run(course, "-c", LOOK).stdout.splitlines()
    assert missing.startswith(f"{names} is missing") and stray.startswith(names.replace("shout", "whisper"))


def test_a_question_that_no_exercise_has_is_named(tmp_path):
    course = tiny.make(tmp_path / "course")
    path = course / "solutions/day00/tiny.py"
    path.write_text(path.read_text().replace('check("day00.shout"', 'check("day00.whisper"'))
    missing, stray = tiny.run(course, "-c", LOOK).stdout.splitlines()
    assert "check('day00.shout', …)" in missing and "'day00.whisper'" in stray


def test_points_and_ids_come_from_the_exercise():
    for place in source.places("day03").values():
        nb = notebooks.notebook(place.path)
    marks = {cell.id: cell.metadata.nbgrader for cell in nb.cells if "nbgrader" in cell.metadata}
    for exercise in exercises.of_day("day03"):
        name, answer = exercise.id.split(".")[1], marks[exercises.whole(exercise.id).split(".")[1]]
        assert answer.solution and not answer.grade
        assert marks[f"{name}-check"].points == (0 if exercise.stretch else exercise.total)
        assert marks[f"{name}-check"].locked


def test_an_editor_that_saves_the_pair_keeps_the_source_short():
    path = source.notebooks("day03")[0]
    assert "nbgrader" not in jupytext.writes(notebooks.notebook(path), fmt="py:percent")


# Help


def test_every_exercise_names_a_hint_for_what_it_must_do():
    every = [exercise for day in exercises.days() for exercise in exercises.of_day(day)]
    assert [exercise.id for exercise in every if "did" not in exercise.helps] == []


def test_the_words_of_an_exercise_for_its_laws_fit_the_line_of_a_verdict():
    every = [exercise for day in exercises.days() for exercise in exercises.of_day(day)]
    words = {(e.id, verdict): message for e in every for verdict, message in e.meaning.items()}
    long = [
        at
        for at, message in words.items()
        if len(message.split()) > 9 or message[:1].isupper() or message.endswith(".")
    ]
    assert long == []


def test_a_smaller_version_has_a_text_and_cases():
    """A module is read, not imported: it may need a compiler that this process does not hold."""

    def has_cases(exercise_id: str) -> bool:
        path = (ROOT / "lib" / exercises.module_name(exercise_id).replace(".", "/")).with_suffix(".py")
        body = ast.parse(path.read_text()).body
        return any(isinstance(part, ast.FunctionDef) and part.name == "smaller_cases" for part in body)

    every = [exercise for day in exercises.days() for exercise in exercises.of_day(day)]
    assert [e.id for e in every if has_cases(e.id) != bool(e.smaller)] == []
    assert any(e.smaller for e in every)


# Pins


def test_every_exercise_runs_in_a_process_that_there_is():
    results = {exercise.flavour for day in exercises.days() for exercise in exercises.of_day(day)}
    assert "torch" in results and results <= set(FLAVOURS)


def test_every_dependency_is_pinned():
    project = PYPROJECT["project"]
    listed = project["dependencies"] + [d for extra in project["optional-dependencies"].values() for d in extra]
    pins = [[(each.operator, "*" in each.version) for each in Requirement(d).specifier] for d in listed]
    assert all(pin == [("==", False)] for pin in pins), listed


def test_conda_installs_the_same_pins_as_pip():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    plain = [d for d in environment["dependencies"] if isinstance(d, str)]
    [pip] = [d["pip"] for d in environment["dependencies"] if isinstance(d, dict)]
    extras = ",".join(PYPROJECT["project"]["optional-dependencies"])
    assert pip == [f"--editable .[{extras}]"]
    assert f"--editable '.[{extras}]'" in (ROOT / "lib/setup.sh").read_text()
    assert {re.split("[=<>]", d)[0] for d in plain} == {"python", "pip", "graphviz", "cxx-compiler"}
    [python] = [d for d in plain if d.startswith("python")]
    assert python.split("=")[1] in SpecifierSet(PYPROJECT["project"]["requires-python"])


def test_the_installed_versions_are_the_pinned_ones():
    from importlib.metadata import version

    for dependency in map(Requirement, PYPROJECT["project"]["dependencies"]):
        if dependency.marker is None or dependency.marker.evaluate():
            assert dependency.specifier.contains(version(dependency.name).split("+")[0]), dependency


# Texts


def front_matter(path) -> dict:
    lines = path.read_text().split("\n")
    assert lines[0] == "# ---", f"{name(path)} has no front matter"
    end = lines.index("# ---", 1)
    return yaml.safe_load("\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[1:end]))


@pytest.mark.parametrize("path", AUTHORED, ids=name)
def test_front_matter_pairs_the_notebook_and_names_the_kernel(path):
    jupyter = front_matter(path)["jupyter"]
    assert jupyter["jupytext"]["formats"] == notebooks.PAIRING["formats"]
    assert jupyter["kernelspec"] == notebooks.KERNEL
    first = cells(path.read_text())[0]
    assert first.markdown and first.text.startswith("# # ")


@pytest.mark.parametrize("path", LESSONS, ids=name)
def test_a_lesson_ends_as_lessons_do(path):
    markdown = "\n".join(cell.text for cell in cells(path.read_text()) if cell.markdown).lower()
    assert "key takeaways" in markdown and "further reading" in markdown


def links(text: str) -> list[str]:
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|href)=\"([^\"]+)\"", text)


def pages():
    for path in AUTHORED:
        yield path, "\n".join(cell.text for cell in cells(path.read_text()) if cell.markdown)
    neighbour = (ROOT / name for name in ("README.md", "autograder/SECURITY.md", "autograder/hub/README.md"))
    for path in (*neighbour, *ROOT.glob("docs/*.md")):
        yield path, path.read_text(encoding="utf-8")


def anchors(page) -> set[str]:
    """Return what a link to a heading of a page can name, as GitHub forms it; none without a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S) if page.exists() else ""
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)", text, re.M)}


def broken(path, text) -> list[str]:
    """Links of a page that lead nowhere. The learner's copies in work/ come from exercises/."""
    wrong = []
    for link in links(text):
        if link.startswith(("https://", "#", "mailto:", "attachment:")):
            continue
        file, _, heading = link.partition("#")
        target = (path.parent / file).resolve()
        if target.is_relative_to(ROOT / "work"):
            target = ROOT / "exercises" / target.relative_to(ROOT / "work")
        headings = {"", *anchors(target)} if file.endswith(".md") else {heading}
        if link.startswith("http:") or not target.exists() or heading not in headings:
            wrong.append(link)
    return wrong


@pytest.mark.parametrize(("path", "text"), [pytest.param(*page, id=name(page[0])) for page in pages()])
def test_links_lead_somewhere(path, text):
    assert broken(path, text) == []


def test_the_search_for_broken_links_can_fail():
    text = "[a](nowhere.ipynb) [b](../work/day01/none.ipynb) [c](https://example.org) [d](http://example.org)"
    assert broken(ROOT / "course/x.py", text) == ["nowhere.ipynb", "../work/day01/none.ipynb", "http://example.org"]
    text = "[a](hub/README.md#who-sees-what) [b](hub/README.md#nobody)"
    assert broken(ROOT / "autograder/x.md", text) == ["hub/README.md#nobody"]


# Limits


def code_cells(text: str) -> list[Cell]:
    return [cell for cell in cells(text) if not cell.markdown]


def too_wide(text: str) -> list[str]:
    """Return the lines of code that JupyterLab cuts in a window of 1280 pixels, and the web book."""
    return [line for cell in code_cells(text) for line in cell.text.split("\n") if len(line) > 88]


@pytest.mark.parametrize("path", AUTHORED, ids=name)
def test_code_fits_its_cell_and_is_all_there_is_in_it(path):
    assert too_wide(path.read_text()) == []
    assert [line for cell in code_cells(path.read_text()) for line in re.findall("^# #+ .*", cell.text, re.M)] == []


def test_the_search_for_wide_lines_can_fail():
    assert too_wide(f"# %%\nx = '{'a' * 82}'\n# %% [markdown]\n# {'a' * 118}\n") == []
    assert len(too_wide(f"# %%\nx = '{'a' * 83}'\n")) == 1


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_the_time_an_answer_has_and_what_it_may_not_call_are_told(path):
    text = path.read_text()
    assert " ".join(text.replace("\n# ", " ").split()).count("an answer has five seconds of computing time") == 1
    imported = re.search(r"^from passlab import (\([^)]*\)|.*)", text, re.M)[1]
    assert re.search(r"\bhint\b", imported), "a learner has no hint(…) to call"
    places = [place for place in source.places(path.parent.name).values() if place.path == path]
    for place in places:
        exercise = exercises.find(ast.parse(place.check.text).body[0].value.args[0].value)
        message = re.findall(r"^    Time: (\d+) s of computing for each test case\.$", place.answer.text, re.M)
        assert message == ([] if exercise.seconds == 5 else [f"{exercise.seconds:g}"]), exercise.id
        closed = re.search(r"^    Not to be called: (.*?)\.$", place.answer.text, re.M | re.S)
        named = re.findall(r"[\w.]+\w", closed[1]) if closed else []
        assert named == list(exercise.closed), exercise.id


def closed_names():
    """Return the dotted names that exercises close; those of a TVM need a process that holds it."""
    rows = (one for day in exercises.days() for one in exercises.of_day(day) if one.flavour == "torch")
    return sorted({name for one in rows for name in one.closed})


@pytest.mark.parametrize("name", closed_names())
def test_a_closed_function_is_named_where_it_is_written(name):
    """A package that loads its names late does not have them yet: a check would leave such a function open."""
    owner, _, last = name.rpartition(".")
    assert last in vars(pkgutil.resolve_name(owner))
