"""A class on a hub in a real browser: an instructor, a learner, and one of another section, from release to feedback.

The hub is started once. The tests are the steps of one story, in their order.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import time
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell
from playwright.sync_api import expect, sync_playwright

from autograder.grading.safe_html import FORMGRADER
from autograder.toys import hubs, tiny
from autograder.toys.browser import QUIET, chromium

ROSTER = "id,section\nada,\ncyd,\nbob,evening\n"
ANSWERS = {
    "double": "def double(x):\n    return 2 * x",
    "shout": "def shout(word):\n    return word.upper()",
    "sort-words": "def sort_words(words):\n    return words",
}
PAYLOAD = "<img src=x onerror=\"document.title='taken over'\"><script>document.title='taken over'</script>"
#: In the commands of bob's server and of the hub.
OTHERS = re.compile("/homes/bob|jupyterhub_config")
#: What ada's notebook finds of what is not hers. It writes what it could read. Of the files, it opens those that were
#: written since the class was made: no older file can hold an answer of it, and a machine has some 400,000 of them.
SPY = """
import glob, importlib.util, json, os, stat, sys

def tried(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path).read(200)
    except OSError as error:
        return type(error).__name__

places = json.loads('''{places}''')
seen = {{path: tried(path) for path in places}}
seen["packages"] = [importlib.util.find_spec(name) is not None for name in ("passlab", "nbgrader", "autograder")]
seen["processes"] = []
for pid in glob.glob("/proc/[0-9]*"):
    try:
        seen["processes"].append([os.stat(pid).st_uid, open(pid + "/cmdline").read().replace("\\0", " ")])
    except OSError:
        pass  # it has ended
marks = ["hidden" + "marker", "solution" + "marker", "It gave nothing" + " back"]
seen["files with"] = {{mark: [] for mark in marks}}
for folder, folders, names in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys", "/dev")]
    for name in names:
        path = os.path.join(folder, name)
        try:
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode) and status.st_ctime > {start} and status.st_size < 2_000_000:
                with open(path, "rb") as file:
                    text = file.read()
                for mark in marks:
                    seen["files with"][mark] += [path] * (mark.encode() in text)
        except OSError:
            pass  # it may not be read
seen["user"] = [os.getuid(), *os.getgroups()]
seen["capabilities"] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")]
seen["shell"], seen["stdin"] = os.environ["SHELL"], os.readlink(f"/proc/{{os.getppid()}}/fd/0")
json.dump(seen, open("spy.json", "w"))
print("the spy", "is done")
"""


class Class:
    """The people, and the folders behind them."""

    def __init__(self, browser, url: str, course: Path, hub: Path, start: float):
        self.browser, self.url, self.course, self.hub, self.start = browser, url, course, hub, start
        self.people = {}

    def __getitem__(self, name: str) -> hubs.Person:
        if name not in self.people:
            with (self.hub / "accounts.csv").open(newline="") as lines:
                passwords = {row["id"]: row["password"] for row in csv.DictReader(lines)}
            self.people[name] = hubs.Person(self.browser, self.url, name, passwords[name])
        return self.people[name]


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """The class, on a hub that runs."""
    assert hubs.is_root(), "These tests make system users, on a copy of /etc: run them as root."
    start = time.time() - 1  # a file's time is that of the kernel's last tick
    scratch = tmp_path_factory.mktemp("hub")
    course = tiny.make(scratch / "course")
    (course / "course/index.md").write_text("# The course\n")
    assert tiny.run(course, "-m", "autograder.authoring.notebooks").returncode == 0
    with hubs.running(course, scratch, ROSTER) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=QUIET)
        yield Class(browser, url, course, scratch / "hub", start)
        browser.close()


def press(page, sign: str, row: str, message: str) -> None:
    """Click the sign in a row of a table of formgrader, and read and close the message that comes."""
    page.locator("tr", has=page.get_by_text(row, exact=True)).locator(f".glyphicon-{sign}").click()
    expect(page.locator(".modal-body")).to_contain_text(message, timeout=120_000)
    # Bootstrap leaves the backdrop of a dialog that is closed while it fades in.
    page.wait_for_function("document.querySelector('.modal.in') && !document.getAnimations().length")
    page.locator(".modal-footer button").click()
    expect(page.locator(".modal-backdrop")).to_have_count(0)


def formgrader(room, page: str = "manage_assignments"):
    teacher = room["root"]
    teacher.page.goto(f"{teacher.server}/formgrader/{page}")
    return teacher.page


def assignments(person):
    """Open nbgrader's list of assignments in a learner's JupyterLab; return the page."""
    person.page.goto(f"{person.server}/lab?reset")
    person.page.get_by_role("menuitem", name="Nbgrader", exact=True).click()
    person.page.get_by_role("menuitem", name="Assignment List").click()
    return person.page


def worked(nb, spy: str):
    """Ada's notebook: two right answers, something that attacks whoever looks at it, and the spy."""
    for cell in nb.cells:
        cell.source = ANSWERS.get(cell.id, cell.source)
    attack = f"from IPython.display import HTML\n\nHTML({PAYLOAD!r})"
    nb.cells += [
        new_code_cell(attack),
        new_markdown_cell(PAYLOAD),
        new_code_cell(spy),
    ]
    return nb


def test_no_one_comes_in_without_the_password(room):
    page = room.browser.new_context().new_page()
    page.goto(f"{room.url}/hub/login")
    page.fill("#username_input", "ada")
    page.fill("#password_input", "ada")
    page.click("#login_submit")
    expect(page.locator(".login_error")).to_contain_text("Invalid username or password")
    assert (room.hub / "accounts.csv").stat().st_mode & 0o777 == 0o600
    page.close()


def test_the_instructor_releases(room):
    page = formgrader(room)
    press(page, "education", "day00", "Successfully created the student version")
    press(page, "cloud-upload", "day00", "Successfully released")
    assert (room.hub / "exchange/passlab/outbound/day00/tiny.ipynb").exists()


def test_a_learner_fetches_in_jupyterlab(room):
    page = assignments(room["ada"])
    page.get_by_text("Fetch", exact=True).click()
    expect(page.get_by_text("Submit", exact=True)).to_be_visible()
    assert "solutionmarker" not in (room.hub / "homes/ada/work/day00/tiny.ipynb").read_text()


@pytest.fixture(scope="module")
def seen(room):
    """What ada's notebook can read of the machine while bob's server runs, too. It is saved with its outputs."""
    ada, bob = room["ada"], room["bob"]
    assert bob.call("GET", "api/me")["identity"]["username"] == "bob"
    hub, project = room.hub, room.course
    places = [project, project / "autograder/answers/day00/double.py", project / "autograder/run/gradebook.db"]
    places += [hub / "homes", hub / "homes/bob", hub / "accounts.csv", hub / "hub", hub / "exchange"]
    places += [hub / "exchange/passlab/inbound", hub / "exchange/passlab/feedback", "/etc/shadow", "/root", "/tmp"]
    places += [tiny.ROOT, tiny.ROOT / "solutions", hub / "homes/ada"]
    file = hub / "homes/ada/work/day00/tiny.ipynb"
    spy = SPY.format(places=json.dumps([str(path) for path in places]), start=room.start)
    content = worked(nbformat.read(file, as_version=4), spy)
    ada.call("PUT", "api/contents/work/day00/tiny.ipynb", {"type": "notebook", "format": "json", "content": content})
    ada.page.goto(f"{ada.server}/lab/tree/work/day00/tiny.ipynb")
    panel = ada.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    panel.get_by_role("heading", name="Day 0").first.click()
    panel.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(state="attached")
    ada.page.get_by_role("menuitem", name="Run", exact=True).click()
    ada.page.get_by_role("menuitem", name=re.compile("^Run All Cells")).first.click()
    expect(panel.get_by_text("the spy is done")).to_be_attached(timeout=600_000)  # it looks at every file
    ada.page.keyboard.press("Control+s")
    for _ in range(300):
        with contextlib.suppress(nbformat.reader.NotJSONError):  # JupyterLab has not written it to the end
            if "the spy is done" in str(nbformat.read(file, as_version=4).cells[-1].outputs):
                break
        ada.page.wait_for_timeout(100)
    result = json.loads((hub / "homes/ada/work/day00/spy.json").read_text())
    return {path: result.get(str(path)) for path in places} | result


def test_a_learner_checks_an_answer(room, seen):
    output = (room.hub / "homes/ada/work/day00/tiny.ipynb").read_text()
    assert "day00.double" in json.loads((room.hub / "homes/ada/work/progress.json").read_text())
    assert "Expected" in output, "the check of sort-words shows what was expected"


def test_a_learner_sees_no_solution_and_no_hidden_case(room, seen):
    assert seen[room.course] == ["lib"]
    assert seen[room.course / "autograder/answers/day00/double.py"] == "FileNotFoundError"
    assert seen[room.course / "autograder/run/gradebook.db"] == "FileNotFoundError"
    assert seen["packages"] == [True, True, False], "passlab and nbgrader are there, autograder is not"
    assert seen[tiny.ROOT] == [".venv"] and seen[tiny.ROOT / "solutions"] == "FileNotFoundError"
    assert seen["/root"] in ("FileNotFoundError", [".pyenv"]), "no more of it than the interpreter"


def test_a_learner_who_reads_every_file_finds_no_solution_and_no_hidden_case(room, seen):
    files = seen["files with"]
    assert files.pop("It gave nothing back"), "the judge of the course, at least, can be read"
    assert files == {"hiddenmarker": [], "solutionmarker": []}


def test_a_learner_sees_no_others_files(room, seen):
    assert "work" in seen[room.hub / "homes/ada"]
    assert seen[room.hub / "homes"] == ["ada"] and seen[room.hub / "homes/bob"] == "FileNotFoundError"
    assert seen[room.hub / "accounts.csv"] == seen[room.hub / "hub"] == "FileNotFoundError"
    assert seen[room.hub / "exchange"] == ["passlab"], "the exchange of another section is not there"
    assert seen[room.hub / "exchange/passlab/inbound"] == "PermissionError"
    assert seen[room.hub / "exchange/passlab/feedback"] == "PermissionError"
    own = {path.parts[2] for path in (room.hub, tiny.ROOT) if path.parts[1] == "tmp"}
    assert set(seen["/tmp"]) == {"jupyter", *own}, "of the machine's, the hub's folder and the project's"
    assert seen["/etc/shadow"] == "PermissionError"


def test_a_learner_is_an_ordinary_user_who_sees_no_others_processes(seen):
    assert seen["user"][0] >= 1000 and 0 not in seen["user"]
    assert set(seen["capabilities"]) == {"0" * 16}
    assert seen["shell"] == "/bin/bash", "though the account has none, so that no other service lets a learner in"
    assert seen["stdin"] == "/dev/null", "not the terminal of root, which a server could read"
    commands = [command for _, command in seen["processes"]]
    assert any("ipykernel" in command for command in commands)
    assert all(owner == seen["user"][0] or "bwrap" in command.partition(" ")[0] for owner, command in seen["processes"])
    assert not [command for command in commands if OTHERS.search(command)], "neither bob's server nor the hub"
    files = [file.read_text().replace("\0", " ") for file in Path("/proc").glob("[0-9]*/cmdline")]
    assert len([command for command in files if OTHERS.search(command)]) > 1, "which do run on this machine"


def test_a_learner_cannot_use_anothers_server(room):
    page = room["ada"].page.context.new_page()
    for path in ("bob/lab", "bob/api/contents", "root/formgrader/manage_assignments"):
        name = path.split("/")[0]
        answer = page.goto(f"{room[name].server}/{path.removeprefix(name + '/')}")
        assert answer.status == 403, f"{path}: {answer.status} {answer.url}"
    page.close()


def test_a_learner_submits(room, seen):
    page = assignments(room["ada"])
    page.get_by_text("Submit", exact=True).click()
    expect(page.locator("body")).to_contain_text("Fetch Feedback")
    assert len(list((room.hub / "exchange/passlab/inbound").glob("ada+day00+*"))) == 1


def test_the_instructor_collects_and_grades_with_the_engine(room):
    page = formgrader(room)
    press(page, "cloud-download", "day00", "Successfully collected")
    page = formgrader(room, "manage_submissions/day00")
    press(page, "flash", "ada", "Successfully autograded")
    scores = room["root"].call("GET", "formgrader/api/submissions/day00")
    assert [(one["student"], one["score"]) for one in scores] == [("ada", 6.0)]


def test_nothing_of_a_learner_runs_in_the_instructors_pages(room):
    page, root = room["root"].page, room["root"]
    (notebook,) = root.call("GET", "formgrader/api/submitted_notebooks/day00/tiny")
    answer = page.goto(f"{root.server}/formgrader/submissions/{notebook['id']}/")
    assert answer.headers["content-security-policy"] == FORMGRADER
    expect(page.locator("body")).to_contain_text("<script>document.title='taken over'</script>")
    page.wait_for_timeout(500)
    assert page.title() != "taken over" and page.locator("[onerror]").count() == 0


def test_formgraders_page_is_ready_without_the_internet(room):
    page, root = room["root"].page, room["root"]
    (notebook,) = root.call("GET", "formgrader/api/submitted_notebooks/day00/tiny")
    page.goto(f"{root.server}/formgrader/submissions/{notebook['id']}/")
    page.wait_for_function("MathJax.loaded")
    assert page.evaluate("formgrader.last_selected.length") == 1, "the first box is selected, as MathJax's end tells it"
    assert root.elsewhere == []


def test_the_learner_fetches_the_feedback(room):
    page = formgrader(room)
    press(page, "comment", "day00", "Successfully generated feedback")
    press(page, "envelope", "day00", "Successfully released feedback")
    page = assignments(room["ada"])
    page.get_by_text("Fetch Feedback").click()
    expect(page.get_by_text("View Feedback")).to_be_visible()
    (feedback,) = (room.hub / "homes/ada/work/day00/feedback").glob("*/tiny.html")
    assert "hidden cases included" in feedback.read_text() and "hiddenmarker" not in feedback.read_text()


def test_a_second_section_is_a_second_course(room):
    teacher, bob = room["root"], room["bob"]
    assert bob.call("GET", "assignments?course_id=passlab-evening")["value"] == []
    teacher.page.goto(f"{room.url}/hub/spawn/root/evening")
    teacher.page.wait_for_url(re.compile("/user/root/evening/formgrader"))
    whole, teacher.server = teacher.server, f"{teacher.server}/evening"
    assert teacher.call("POST", "formgrader/api/assignment/day00/assign")["success"]
    assert teacher.call("POST", "formgrader/api/assignment/day00/release")["success"]
    day = {"course_id": "passlab-evening", "assignment_id": "day00"}
    assert bob.call("POST", "assignments/fetch", day)["success"]
    assert bob.call("POST", "assignments/submit", day)["success"]
    assert teacher.call("POST", "formgrader/api/assignment/day00/collect")["success"]
    assert (room.course / "autograder/run/evening/submitted/bob/day00/tiny.ipynb").exists()
    teacher.server = whole
