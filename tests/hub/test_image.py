"""The container images, as far as they can be checked without building one: what goes into them, and who runs them."""

from __future__ import annotations

import re
import shlex
import tomllib
import zipfile

import pytest

from autograder.authoring.source import ROOT
from autograder.hub import image
from autograder.hub.accounts import Refused
from autograder.toys import tiny

CONTAINERFILE = (image.CONTAINER / "Containerfile").read_text().replace("\\\n", " ")


def stages() -> dict[str, list[str]]:
    """Name of a stage → its instructions and, first, those of the stages that it is built on."""
    results: dict[str, list[str]] = {}
    for line in (line.strip() for line in CONTAINERFILE.splitlines()):
        if start := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            lines = results[start[2]] = list(results.get(start[1], []))
        elif line and not line.startswith("#") and results:
            lines.append(line)
    return results


def copied(stage: str) -> list[str]:
    """The files and folders that a stage takes from the folder it is built from."""
    words = [shlex.split(line)[1:-1] for line in stages()[stage] if line.startswith("COPY ")]
    return [word for line in words for word in line if not word.startswith("--")]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """target → the folder that its image is built from, of the tiny course for learners."""
    scratch = tmp_path_factory.mktemp("image")
    course = tiny.make(scratch / "course")
    tiny.write(course, {"course/day00_tiny.py": tiny.HEADER + "# %% [markdown]\n# # Day 0\n"})
    for name in ("LICENSE", "lib/setup.sh", "pyproject.toml"):
        (course / name).write_bytes((ROOT / name).read_bytes())
    assert tiny.run(course, "-m", "passlab.cli", "release").returncode == 0
    words = ["-m", "autograder.hub.image", "learner", "--context", str(scratch / "learner")]
    process = tiny.run(course, *words)
    assert process.returncode == 0, process.stderr
    image.write_context(scratch / "instructor", "instructor")
    return {target: scratch / target for target in image.TARGETS}


def test_the_learners_image_has_no_solution_no_hidden_case_and_no_grader(contexts):
    folder = contexts["learner"]
    values = [path for name in copied("learner") for path in [folder / name, *(folder / name).rglob("*")]]
    files = [path for path in values if path.is_file()]
    names = {path.relative_to(folder).as_posix() for path in files}
    assert {"learner/exercises/day00/tiny.ipynb", "learner/pyproject.toml", "hub/server.py", "start"} <= names
    assert any(re.fullmatch(r"learner/lib/passlab-.*\.whl", name) for name in names)
    assert not [name for name in names if re.search(r"autograder|solutions|answers|hidden|tests/", name)]
    unpacked = folder.parent / "unpacked"
    (wheel,) = folder.glob("learner/lib/*.whl")
    zipfile.ZipFile(wheel).extractall(unpacked)
    files += [path for path in unpacked.rglob("*") if path.is_file()]
    for path in files:
        text = path.read_bytes()
        assert b"solutionmarker" not in text and b"hiddenmarker" not in text, path
        assert "autograder" not in path.relative_to(folder.parent).parts, path


def test_the_instructors_image_has_what_grading_needs_and_nothing_that_git_ignores(contexts):
    names = {path.relative_to(contexts["instructor"] / "instructor").as_posix() for path in files_of(contexts)}
    assert {"pyproject.toml", "autograder/commands.py", "solutions/day03/optimizations.py"} <= names
    assert not [name for name in names if re.match(r"tests/|\.venv/|\.git/|autograder/run/|work/", name)]


def files_of(contexts) -> list:
    return [path for path in (contexts["instructor"] / "instructor").rglob("*") if path.is_file()]


@pytest.mark.parametrize("target", image.TARGETS)
def test_an_image_takes_only_what_is_in_its_folder_and_does_not_run_as_root(contexts, target):
    assert [name for name in stages() if name not in ("system", "packages")] == [*image.TARGETS]
    missing = [name for name in copied(target) if not (contexts[target] / name).exists()]
    assert not missing
    modes = {path.stat().st_mode & 0o777 for path in contexts[target].rglob("*")}
    assert modes == {0o644, 0o755} and (contexts[target] / "start").stat().st_mode & 0o001
    other = {"learner": "instructor", "instructor": "learner"}[target]
    assert other not in copied(target) and "." not in copied(target)
    instructions = stages()[target]
    assert [line for line in instructions if line.startswith("USER ")] == ["USER 1000"]
    assert instructions.index("USER 1000") > max(i for i, line in enumerate(instructions) if line.startswith("RUN "))


def test_everything_comes_from_debian_and_pypi():
    assert re.findall(r"^FROM (\S+)", CONTAINERFILE, re.M) == ["${BASE}", "system", "packages", "packages"]
    addresses = set(re.findall(r"https?://[\w.-]+", CONTAINERFILE))
    assert addresses == {"https://download.pytorch.org"}
    assert not re.search(r"curl|wget|git clone|ADD ", CONTAINERFILE)


def test_the_packages_are_those_pinned_in_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pins = image.pins()
    assert set(project["dependencies"]) < set(pins["learner.txt"])
    assert {*pins["learner.txt"], *pins["instructor.txt"]} >= {
        *project["dependencies"],
        *extras["grade"],
        *extras["hub"],
    }
    assert [pin.split("==")[0] for pin in pins["learner.txt"] if pin not in project["dependencies"]] == [
        "nbgrader",
        "jupyterhub",
    ]
    assert "[" not in "".join(pins["all.txt"])
    assert all(pin in pins["all.txt"] for pin in extras["test"])
    assert len(pins["torch.txt"]) == 1 and pins["torch.txt"][0] in pins["learner.txt"]


def test_the_builder_that_is_there_gets_target_name_and_words(tmp_path, monkeypatch):
    (tmp_path / "buildah").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$(dirname "$0")/words"\nexit 7\n')
    (tmp_path / "buildah").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(image, "_BUILDERS", ("no-such-podman", "buildah"))
    monkeypatch.setattr(image, "write_context", lambda folder, target: None)
    assert image.build("learner", "x/passlab-learner:2", ["--build-arg", "BASE=y"]) == 7
    words = (tmp_path / "words").read_text().split()
    assert words[:5] == ["build", "--target", "learner", "--tag", "x/passlab-learner:2"]
    assert words[-3:-1] == ["--build-arg", "BASE=y"]
    monkeypatch.setattr(image, "_BUILDERS", ("no-such-podman",))
    with pytest.raises(Refused, match="apt install podman"):
        image.build("learner", "x", [])
