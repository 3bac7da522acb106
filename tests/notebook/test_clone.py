"""`passlab update` on real clones: it gets the newest version, and what a learner saved or wrote is still there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from passlab.notebook.clone import UpdateError, modified, pull
from passlab.notebook.workspace import prepare
from tests.notebook.test_workspace import add, notebook, run, texts

ROOT = Path(__file__).resolve().parents[2]
LESSON, EXERCISE = "course/day01_graphs.ipynb", "exercises/day01/graphs.ipynb"
COPY, ANSWERS = "work/course/day01_graphs.ipynb", "work/day01/graphs.ipynb"


class Pair(NamedTuple):
    """Those who write the course, and a learner, with a clone each."""

    authors: Path
    learner: Path

    def release(self, **files: str) -> None:
        """Commit and push files by their path, with `__` for `/` and `_dot_` for the last dot."""
        for name, text in files.items():
            path = self.authors / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git(self.authors, "add", "--all")
        git(self.authors, "commit", "--quiet", "--message", "A release")
        git(self.authors, "push", "--quiet", "--set-upstream", "origin", "main")

    def release_lesson(self, release: str) -> None:
        lesson = notebook(release, passlab={})  # a release is stamped into exercises only
        self.release(course__day01_graphs_dot_ipynb=lesson, course__day01_graphs_dot_py=f"# {release}\n")


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def state(folder: Path) -> tuple[str, str]:
    return git(folder, "rev-parse", "HEAD"), git(folder, "status", "--porcelain")


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.org")
    upstream, authors, learner = (tmp_path / name for name in ("upstream", "authors", "learner"))
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(upstream))
    git(tmp_path, "clone", "--quiet", str(upstream), str(authors))
    git(authors, "symbolic-ref", "HEAD", "refs/heads/main")
    both = Pair(authors, learner)
    both.release(_dot_gitignore="/work/\n__pycache__/\n", exercises__day01__graphs_dot_ipynb=notebook("e1"))
    both.release_lesson("one")
    git(tmp_path, "clone", "--quiet", str(upstream), str(learner))
    return both


def test_a_lesson_that_was_run_in_work_is_updated_without_a_word_about_files(pair):
    prepare(pair.learner)
    run(pair.learner / COPY)
    pair.release_lesson("two")
    [line] = pull(pair.learner)
    assert line.startswith("Updated to ") and line.endswith(": 1 new commit.")
    prepare(pair.learner)
    assert texts(pair.learner / LESSON) == texts(pair.learner / COPY) == ["release two"]


def test_notes_and_answers_stay_and_what_is_new_is_beside_them(pair):
    prepare(pair.learner)
    add(pair.learner / COPY, "a note")
    add(pair.learner / ANSWERS, "an answer")
    pair.release(exercises__day01__graphs_dot_ipynb=notebook("e2"), exercises__day02__a_dot_ipynb=notebook("new"))
    pair.release_lesson("two")
    assert list(pull(pair.learner))[-1].endswith(": 2 new commits.")
    lines = prepare(pair.learner)
    assert "work/day02/a.ipynb" in lines[0] and len(lines) == 3
    assert texts(pair.learner / COPY) == ["release one", "a note"]
    assert texts(pair.learner / ANSWERS) == ["release e1", "an answer"]
    [lesson] = (pair.learner / "work/course").glob("day01_graphs.release-*.ipynb")
    assert texts(lesson) == ["release two"]
    assert texts(pair.learner / "work/day01/graphs.release-e2.ipynb") == ["release e2"]


def test_lessons_and_exercises_saved_where_they_are_tracked_move_into_work(pair):
    saved = pair.learner / LESSON
    add(saved, "a note")
    run(saved)
    (pair.learner / "course/day01_graphs.py").write_text("# one\n# a note\n")  # saved with the notebook
    answered = pair.learner / EXERCISE
    add(answered, "an answer")
    before = saved.read_bytes(), answered.read_bytes()
    pair.release_lesson("two")
    pair.release(exercises__day01__graphs_dot_ipynb=notebook("e2"))
    plain = subprocess.run(["git", "pull"], cwd=pair.learner, capture_output=True, text=True)
    assert "would be overwritten" in plain.stderr, "without this the test asks nothing"
    lines = list(pull(pair.learner))
    moved = pair.learner / "work/course/day01_graphs.saved-in-course.ipynb"
    assert (moved.read_bytes(), (pair.learner / "work/day01/graphs.saved-in-exercises.ipynb").read_bytes()) == before
    assert moved.with_suffix(".py").read_text() == "# one\n# a note\n"
    assert any(LESSON in line and moved.name in line for line in lines) and len(lines) == 4
    assert texts(saved) == ["release two"] and state(pair.learner)[1] == ""


def test_what_was_moved_before_is_not_overwritten(pair):
    for release in ("two", "three", "four"):
        add(pair.learner / LESSON, f"before {release}")
        pair.release_lesson(release)
        list(pull(pair.learner))
    folder = pair.learner / "work/course"
    names = [f"day01_graphs.saved-in-course{number}.ipynb" for number in ("", "-2", "-3")]
    assert [texts(folder / name)[1] for name in names] == ["before two", "before three", "before four"]


def test_a_note_in_a_tracked_lesson_comes_along_into_work_and_is_kept_there(pair):
    add(pair.learner / LESSON, "a note")
    prepare(pair.learner)
    git(pair.learner, "checkout", "--", "course")
    prepare(pair.learner)
    pair.release_lesson("two")
    list(pull(pair.learner))
    prepare(pair.learner)
    assert texts(pair.learner / COPY) == ["release one", "a note"]


def test_an_author_gets_no_copy_of_each_draft(pair):
    prepare(pair.learner)
    add(pair.learner / LESSON, "a draft")
    assert modified(pair.learner) == [LESSON]
    assert prepare(pair.learner) == [] and texts(pair.learner / COPY) == ["release one"]


def test_files_that_are_not_in_the_way_may_be_changed(pair):
    (pair.learner / ".gitignore").write_text("/work/\n/mine/\n")
    add(pair.learner / EXERCISE, "an answer")
    pair.release_lesson("two")
    list(pull(pair.learner))
    assert texts(pair.learner / EXERCISE) == ["release e1", "an answer"] and not (pair.learner / "work").exists()
    assert (pair.learner / ".gitignore").read_text() == "/work/\n/mine/\n"


def refused(learner: Path) -> str:
    """Return why a clone is not updated; nothing in it may have changed."""
    before = state(learner)
    with pytest.raises(UpdateError) as error:
        list(pull(learner))
    assert state(learner) == before and not (learner / "work").exists()
    return str(error.value)


@pytest.mark.parametrize("staged", [False, True])
def test_other_changes_in_the_way_are_named(pair, staged):
    (pair.learner / ".gitignore").write_text("/mine/\n")
    add(pair.learner / LESSON, "a note")
    if staged:
        git(pair.learner, "add", ".gitignore")
    pair.release(_dot_gitignore="/work/\n/build/\n")
    pair.release_lesson("two")
    assert "`git stash push -- .gitignore`" in refused(pair.learner)
    git(pair.learner, "stash", "push", "--", ".gitignore")
    list(pull(pair.learner))
    assert texts(pair.learner / LESSON) == ["release two"]


def test_what_was_staged_is_its_author_s(pair):
    add(pair.learner / LESSON, "a draft")
    git(pair.learner, "add", LESSON)
    pair.release_lesson("two")
    assert LESSON in refused(pair.learner)


def test_a_lesson_changed_as_text_alone_is_its_author_s(pair):
    (pair.learner / "course/day01_graphs.py").write_text("# a draft\n")
    pair.release_lesson("two")
    assert "course/day01_graphs.py" in refused(pair.learner)


def test_a_file_of_one_s_own_with_the_name_of_a_new_one_is_named(pair):
    (pair.learner / "course/day02.ipynb").write_text("mine")
    pair.release(course__day02_dot_ipynb=notebook("new"))
    add(pair.learner / LESSON, "a note")
    pair.release_lesson("two")
    assert "of that name: course/day02.ipynb. Rename yours" in refused(pair.learner)
    assert (pair.learner / "course/day02.ipynb").read_text() == "mine"


def test_commits_of_one_s_own_are_named_unless_there_is_nothing_new(pair):
    (pair.learner / "mine.txt").write_text("")
    git(pair.learner, "add", "mine.txt")
    git(pair.learner, "commit", "--quiet", "--message", "My own idea")
    assert list(pull(pair.learner)) == ["origin/main has nothing new."]
    pair.release_lesson("two")
    assert "My own idea" in (sentence := refused(pair.learner)) and "git pull --rebase" in sentence


def test_without_an_upstream_there_is_a_remedy(pair):
    git(pair.learner, "checkout", "--quiet", "--detach")
    assert "git switch main" in refused(pair.learner)
    git(pair.learner, "checkout", "--quiet", "-b", "mine")
    assert "git branch -u origin/main" in refused(pair.learner)


def test_an_upstream_that_cannot_be_reached_is_git_s_to_explain(pair):
    git(pair.learner, "remote", "set-url", "origin", str(pair.learner / "nowhere"))
    assert "`git fetch` failed: " in (sentence := refused(pair.learner)) and "nowhere" in sentence


@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside another clone"])
def test_a_folder_that_is_no_clone_is_named(pair, tmp_path, inside):
    folder = (pair.learner if inside else tmp_path) / "unpacked"
    folder.mkdir()
    with pytest.raises(UpdateError, match="unpacked is not a git clone"):
        list(pull(folder))
    assert modified(folder) == []


def test_the_command_updates_with_the_new_version_s_library(pair):
    """The whole way, in a project that has as much of the library as the command needs."""
    library = pair.authors / "lib/passlab"
    library.mkdir(parents=True)
    for name in ("__init__.py", "course_paths.py", "cli.py"):
        shutil.copy(ROOT / "lib/passlab" / name, library)
    shutil.copytree(ROOT / "lib/passlab/notebook", library / "notebook", ignore=shutil.ignore_patterns("__pycache__"))
    pair.release(pyproject_dot_toml="")

    def update() -> subprocess.CompletedProcess:
        environment = os.environ | {"PYTHONPATH": str(pair.learner / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "passlab.cli", "update"]
        return subprocess.run(command, cwd=pair.learner, env=environment, capture_output=True, text=True)

    git(pair.learner, "pull", "--quiet")
    prepare(pair.learner)
    module = library / "notebook/clone.py"  # one that the old version has imported before
    pair.release(lib__passlab__notebook__clone_dot_py=module.read_text() + 'print("The new library")\n')
    pair.release_lesson("two")
    pair.release(exercises__day02__a_dot_ipynb=notebook("new"))
    result = update()
    assert result.returncode == 0, result.stderr
    updated, library_line, copied, replaced = result.stdout.splitlines()
    assert updated.startswith("Updated to ") and library_line == "The new library"
    assert "work/day02/a.ipynb" in copied and COPY in replaced and texts(pair.learner / COPY) == ["release two"]
    git(pair.learner, "checkout", "--quiet", "--detach")
    result = update()
    assert (
        result.returncode == 1
        and result.stderr.startswith("Nothing is updated: ")
        and "git switch main" in result.stderr
    )
    assert "Traceback" not in result.stderr
