"""Escaping: the folder, the names and the notebook's own data are made to lead somewhere else."""

from __future__ import annotations

import io
import os
import shutil
import socket
import tarfile
import zipfile
from collections.abc import Callable

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.toys.tiny_fx import QUESTIONS
from tests.attacks.attack import FULL, GOOD, MARK, WORK, Attack, Place, called, folder, read


def _notebook(name: str, tries: str, change: Callable[[NotebookNode], None], **more) -> Attack:
    def changed(nb: NotebookNode) -> NotebookNode:
        change(nb)
        return nb

    return Attack(name, tries, notebook=changed, **more)


# ── what lies in the folder ───────────────────────────────────────────────────────────────────────────────────────────


def _instead(make: Callable[[Place], None]) -> Callable[[Place], None]:
    """Something else where the notebook should be."""

    def change(place: Place) -> None:
        place.notebook.unlink()
        make(place)

    return change


def _neighbour(place: Place):
    return place.submissions / "m-between" / "day00" / "fx.ipynb"


def _linked_day(place: Place) -> None:
    shutil.rmtree(place.notebook.parent)
    place.notebook.parent.symlink_to(_neighbour(place).parent, target_is_directory=True)


def _linked_learner(place: Place) -> None:
    shutil.rmtree(place.own)
    place.own.symlink_to(_neighbour(place).parents[1], target_is_directory=True)


def _fifo(place: Place) -> None:
    os.mkfifo(place.notebook)


def _socket(place: Place) -> None:
    local = os.getcwd()
    os.chdir(place.notebook.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(place.notebook.name)
    finally:
        os.chdir(local)


def _device(place: Place) -> None:
    try:
        os.mknod(place.notebook, 0o20666, os.makedev(1, 5))  # /dev/zero, which never ends
    except PermissionError:  # only root makes devices; then one is pointed to
        place.notebook.symlink_to("/dev/zero")


def _climbing(place: Place) -> None:
    """Archives with paths that climb out, absolute ones, links, and a bomb."""
    target = "../../m-between/day00/fx.ipynb"
    with zipfile.ZipFile(place.own / "day00.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(target, b"{}")
        packed.writestr(f"/var/tmp/{MARK}-zip", b"x")
        link = zipfile.ZipInfo("day00/link")
        link.external_attr = 0o120777 << 16
        packed.writestr(link, str(place.submissions))
        packed.writestr("day00/fx.ipynb", b"0" * 300_000_000)
    with tarfile.open(place.own / "day00.tar.gz", "w:gz") as packed:
        for name, link in ((target, None), (f"/var/tmp/{MARK}-tar", None), ("day00/up", "../../..")):
            info = tarfile.TarInfo(name)
            if link:
                info.type, info.linkname = tarfile.SYMTYPE, link
                packed.addfile(info)
            else:
                info.size = 2
                packed.addfile(info, io.BytesIO(b"{}"))


def _many_files(place: Place) -> None:
    deep = place.own
    for _ in range(60):
        deep = deep / "d"
    deep.mkdir(parents=True)
    for number in range(2_000):
        (place.own / f"{number}.ipynb").write_text("{}")
        (place.own / f"{number}.py").touch()


def _python_beside(place: Place) -> None:
    for name in ("torch.py", "sitecustomize.py", "nbgrader_config.py", "conftest.py", "passlab.py", "autograder.py"):
        (place.notebook.parent / name).write_text("grade = check = lambda *a: 5.0\n")
    (place.own / "roster.csv").write_text("nobody\n")
    shutil.copytree(place.notebook.parent, place.own / "autograder" / "hidden")


def _timestamp(text: str) -> Callable[[Place], None]:
    return lambda place: (place.notebook.parent / "timestamp.txt").write_text(text) and None


def _linked_timestamp(place: Place) -> None:
    (place.notebook.parent / "timestamp.txt").symlink_to("/etc/passwd")


_STRANGE = (
    "[!z]*",
    "*",
    "{m-between,zz-after}",
    "'; update grade set auto_score = 5; --",
    '"); drop table grade; --',
    "<script>alert('plattack')",
    "$(touch plattack)`touch plattack`",
    "-rf ~",
    "=cmd|' !A0",
    "%s%n{0}{learner.__class__}",
    "m-between\u202e\u200b",
    "m-between\n",
    "line\nbreak\ttab",
    "n" * 240,
    "NUL",
    "zz-after ",
)


# ── what the notebook says about itself ───────────────────────────────────────────────────────────────────────────────


def _by_id(nb: NotebookNode) -> dict[str, NotebookNode]:
    return {cell.id: cell for cell in nb.cells}


def _kernelspec(nb: NotebookNode) -> None:
    nb.metadata.kernelspec = {"name": "../../plattack", "display_name": "bash", "language": "bash", "argv": ["sh"]}
    nb.metadata.language_info = {"name": "bash", "file_extension": "/../../x", "nbconvert_exporter": "script"}


def _points(nb: NotebookNode) -> None:
    for one in nb.cells:
        if "nbgrader" in one.metadata:
            one.metadata.nbgrader.update(points=100, max_score=100, auto_score=100, manual_score=100, extra_credit=9)
    nb.metadata["nbgrader"] = {"score": 100, "max_score": 100}


def _manual(nb: NotebookNode) -> None:
    for one in nb.cells:
        if one.metadata.get("nbgrader", {}).get("grade"):
            one.metadata.nbgrader.update(solution=True, task=True, locked=False)


def _swapped_ids(nb: NotebookNode) -> None:
    """The one right answer stands in for all others."""
    cells = _by_id(nb)
    for name in QUESTIONS:
        if name != "count-nodes":
            cells[name].metadata.nbgrader["grade_id"] = "count-nodes"
            cells[f"{name}-check"].metadata.nbgrader["grade_id"] = "count-nodes-check"


def _other_exercise(nb: NotebookNode) -> None:
    for one in nb.cells:
        if one.metadata.get("nbgrader", {}).get("grade"):
            one.source = 'check("day00.count-nodes", count_nodes)\n3.0'


def _own_checks(nb: NotebookNode) -> None:
    for one in nb.cells:
        if one.metadata.get("nbgrader", {}).get("grade"):
            one.source = "def check(*a): return 5.0\ngrade = check\n5.0"


def _locked_cells(nb: NotebookNode) -> None:
    nb.cells[0].source = "# changed"
    nb.cells[1].source = "check = lambda *a: 5.0\nimport operator\nimport torch\nfrom torch import fx"


def _no_checks(nb: NotebookNode) -> None:
    nb.cells = [one for one in nb.cells if not one.metadata.get("nbgrader", {}).get("grade")]


def _twice(nb: NotebookNode) -> None:
    doubled = []
    for one in nb.cells:
        doubled.append(one)
        if one.metadata.get("nbgrader"):
            copied = nbformat.from_dict(one)
            copied.id, copied.source = f"{one.id}-2", one.source if one.metadata.nbgrader.get("solution") else "5.0"
            doubled.append(copied)
    nb.cells = doubled


def _retyped(kind: str) -> Callable[[NotebookNode], None]:
    def change(nb: NotebookNode) -> None:
        for place, one in enumerate(nb.cells):
            if one.metadata.get("nbgrader", {}).get("grade"):
                value = nbformat.v4.new_raw_cell if kind == "raw" else nbformat.v4.new_markdown_cell
                nb.cells[place] = value("5.0", id=one.id, metadata=one.metadata)

    return change


def _answer_in_check(nb: NotebookNode) -> None:
    cells = _by_id(nb)
    for name, text in GOOD.items():
        cells[f"{name}-check"].source = text + cells[f"{name}-check"].source


def _extra_cells(nb: NotebookNode) -> None:
    """Cells after the last check, and before the first, bind the names of answers and graders anew."""
    code = "check = grade = lambda *a: 5.0\nimport sys\n"
    code += "sys.modules['autograder.authoring.answers'] = sys\nsys.grade = grade"
    nb.cells.insert(0, nbformat.v4.new_code_cell(code))
    nb.cells.append(
        nbformat.v4.new_code_cell(code, metadata={"nbgrader": {"grade": True, "points": 50, "grade_id": "x"}})
    )


def _somebody_else(nb: NotebookNode) -> None:
    nb.metadata.update(nbgrader={"student": "zz-after", "assignment": "day00"}, student="zz-after", learner="zz-after")
    nb.metadata["passlab"] = {"release": "0" * 12, "learner": "zz-after", "seed": 7}


def _sql(nb: NotebookNode) -> None:
    for number, one in enumerate(nb.cells):
        one.metadata["tags"] = ["'; update grade set auto_score = 5; --", "remove_cell", "skip-execution"]
        if one.metadata.get("nbgrader", {}).get("grade"):
            one.metadata.nbgrader["grade_id"] += "'; drop table grade; --"
        one.metadata["name"] = f"{number}') on conflict do update set auto_score = 5; --"


def _scripts(nb: NotebookNode) -> None:
    nb.metadata["title"] = "</title><script>plattack()</script>"
    nb.cells.insert(1, nbformat.v4.new_markdown_cell("<script>plattack()</script> <img src=x onerror=plattack()>"))


_MAGICS = """
%%bash
echo plattack; kill -9 $PPID; touch @COURSE@/plattack-bash ~/plattack-bash
"""

ATTACKS = (
    folder(
        "linked-notebook",
        "the notebook is a link to another learner's",
        _instead(lambda p: p.notebook.symlink_to(_neighbour(p))),
        0,
    ),
    folder("linked-day", "the folder of the assignment is a link to another learner's", _linked_day, 0),
    folder("linked-learner", "the learner's folder is a link to another learner's", _linked_learner, 0),
    # It cannot be told from a copy, and refusing it would refuse the other learner too. The report names the pair.
    folder(
        "hard-link",
        "the notebook is another learner's file under a second name",
        _instead(lambda p: p.notebook.hardlink_to(_neighbour(p))),
        FULL,
        keeps=False,
    ),
    folder(
        "linked-solution",
        "the notebook is a link to the solutions",
        _instead(lambda p: p.notebook.symlink_to(p.course / "solutions/day00/fx.ipynb")),
        0,
    ),
    folder(
        "linked-to-itself",
        "the notebook is a link to itself, the folder one to its parent",
        _instead(lambda p: (p.notebook.symlink_to(p.notebook), (p.own / "up").symlink_to(p.own))),
        0,
    ),
    folder("fifo", "the notebook is a pipe that nobody writes into", _instead(_fifo), 0),
    folder("socket", "the notebook is a socket", _instead(_socket), 0),
    folder("device", "the notebook is a device that never ends", _instead(_device), 0),
    folder("folder-as-notebook", "the notebook is a folder", _instead(lambda p: p.notebook.mkdir()), 0),
    folder("archives", "zip and tar with paths that climb out, links, and 300 MB of zeros", _climbing),
    folder("many-files", "two thousand notebooks and a path of sixty folders beside the notebook", _many_files),
    folder("python-beside", "modules called like those of the grader lie beside the notebook", _python_beside),
    folder("unreadable", "the notebook may not be read", lambda p: p.notebook.chmod(0), keeps=False),
    folder("timestamp-past", "handed in in the year 1", _timestamp("0001-01-01 00:00:00 UTC")),
    folder("timestamp-future", "handed in in the year 9999", _timestamp("9999-12-31 23:59:59.999999 UTC")),
    folder(
        "timestamp-garbage",
        "handed in at a time that is SQL, and long",
        _timestamp("'; drop table grade; -- " + "9" * 100_000),
    ),
    folder("timestamp-link", "the time of handing in is a link to /etc/passwd", _linked_timestamp),
    *called("strange-name", _STRANGE),
    _notebook("kernelspec", "the notebook asks for another kernel, language and exporter", _kernelspec),
    _notebook("points-100", "every cell's metadata say 100 points", _points),
    _notebook("manual-grading", "check cells become cells to be graded by hand", _manual),
    _notebook("swapped-ids", "all answers and checks take the ids of the one that is right", _swapped_ids),
    _notebook("easier-exercise", "every check cell checks the easiest exercise", _other_exercise),
    _notebook("own-checks", "check cells give five points without a check", _own_checks),
    _notebook("locked-cells", "text and imports, which are locked, are changed", _locked_cells),
    _notebook("no-checks", "the check cells are deleted", _no_checks),
    _notebook("twice", "every cell is there twice, the second check gives five points", _twice),
    _notebook("markdown-checks", "check cells become text", _retyped("markdown")),
    _notebook("raw-checks", "check cells become raw cells", _retyped("raw")),
    _notebook("answers-in-checks", "right answers stand in the check cells, which are locked", _answer_in_check),
    _notebook(
        "extra-cells",
        "cells of one's own before the first and after the last, one worth 50 points",
        _extra_cells,
        keeps=False,
    ),
    _notebook("somebody-else", "the metadata name another learner", _somebody_else),
    _notebook("sql-in-ids", "ids, tags and names of cells are SQL", _sql),
    _notebook("scripts", "text cells and the title hold scripts for whoever opens the feedback", _scripts),
    Attack("magics", "shell commands, files and exits by magics", WORK | {"identities": _MAGICS.lstrip()}, harms=True),
    *read(
        r"""
# %% cell system-calls harms
# system calls that sandboxes forget: io_uring, bpf, keyrings, userfaultfd, handles, namespaces, modules
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"x86_64": (425, 321, 250, 323, 304, 308, 272, 155, 165, 175, 298, 435, 303, 167, 246, 169, 172, 173, 317)}
for number in numbers.get(platform.machine(), ()):
    if number not in (169, 246):  # reboot, kexec: not even in a sandbox
        print(number, libc.syscall(number, 0, 0, 0, 0, 0, 0), ctypes.get_errno())

# %% cell scripts-in-outputs
# outputs hold scripts for whoever opens the feedback
from IPython.display import HTML, Javascript, Markdown, SVG, display
display(HTML("<script>plattack()</script><img src=x onerror=plattack()>"))
display(Javascript("plattack()"))
display(Markdown("<script>plattack()</script>"))
display(SVG("<svg xmlns='http://www.w3.org/2000/svg' onload='plattack()'><script>plattack()</script></svg>"))
print("<script>plattack()</script>")
raise ValueError("<script>plattack()</script>")
"""
    ),
)
