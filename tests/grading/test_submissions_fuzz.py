"""Any submission is read or raises UnreadableError; it stays in its place and costs no other learner anything."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autograder.engine import bounded_call
from autograder.engine.data import NotebookResult
from autograder.grading import files, intake, reading
from autograder.grading.files import UnreadableError, unpack
from autograder.grading.paper import when
from autograder.grading.roster import read_roster
from autograder.reports import exports
from autograder.reports.feedback import feedback
from autograder.reports.similar import digest
from tests.support import amounts
from tests.support.pages import acts
from tests.support.parts import places, put

FUZZ = settings(max_examples=2 * amounts.EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
KNOWN = {"day01": {"graphs"}, "day02": {"passes"}}
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
ODD = st.sampled_from(
    [None, True, -1, 0.5, 10**4000, float("nan"), float("inf"), "", "\ud800", "\0", [], {}, [[]], {"a": 1}, "day01"]
)
JSON = st.recursive(ODD | TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))


@pytest.fixture
def box():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


# Notebooks


@pytest.fixture(scope="module")
def authored(course):
    return nbformat.read(course / "solutions/day00/tiny.ipynb", as_version=4)


@contextlib.contextmanager
def one_file(content: bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tiny.ipynb")
        path.write_bytes(content)
        yield path


def taken_in(path: Path, authored) -> bool:
    """Read, repair and show a notebook as grading does; return whether it was one. Raises UnreadableError only."""
    try:
        nb = intake.read(path)
    except UnreadableError as error:
        assert len(str(error)) < 1_000
        return False
    intake.repair(nb, authored)
    graded = [cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert [(c.source, dict(c.metadata.nbgrader)) for c in graded] == [
        (c.source, dict(c.metadata.nbgrader)) for c in authored.cells if c.metadata.get("nbgrader", {}).get("grade")
    ]
    job = intake.job(nb, authored, "ada", "day00", "tiny", 3)
    assert [cell.exercise for cell in job.cells if cell.exercise]
    result = NotebookResult("ada", "day00", "tiny", 3, failure="not run")
    intake.fill(nb, result)
    nbformat.writes(nb).encode()
    page = feedback(nb, result)
    assert acts(page, frozenset({"script", "meta", "style", "iframe", "svg"})) == []
    return True


def test_a_notebook_with_anything_anywhere(authored, monkeypatch):
    plain = json.loads(nbformat.writes(authored))
    plain["cells"][0]["attachments"] = {"a.png": {"image/png": "AAAA"}}
    output = {"output_type": "display_data", "data": {"text/html": "<b>"}, "metadata": {}}
    plain["cells"][1] |= {"outputs": [output]} if plain["cells"][1]["cell_type"] == "code" else {}
    where = list(places(plain))
    # The process aside has tests of its own.
    monkeypatch.setattr(bounded_call, "call", lambda *_, data=None: reading.parsed(data) if data else None)
    read = []

    @FUZZ
    @given(st.lists(st.tuples(st.sampled_from(where), JSON), min_size=1, max_size=3))
    def odd(changes):
        result = plain
        for at, value in changes:
            with contextlib.suppress(KeyError, IndexError, TypeError):  # what was there is no longer
                result = put(result, at, value)
        with one_file(json.dumps(result).encode()) as path:
            read.append(taken_in(path, authored))

    odd()
    assert {True, False} == set(read), "some are read, some are not"


@settings(FUZZ, max_examples=2 * amounts.EXAMPLES)
@given(
    st.binary() | JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b"", b'{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": ']),
)
def test_what_is_no_notebook_is_damaged(content, head):
    with one_file(head + content) as path, contextlib.suppress(UnreadableError):
        intake.read(path)


def test_markdown_and_code_of_any_kind_act_on_no_page():
    words = r"""< > & " ' ` ``` $ $$ [ ] ( ) ! * ** _ ~~ | # - \ &lt; &#60; <!-- --> ]]> <![CDATA[ <script> </script>"""
    words += " <svg onload=a> <img src=x onerror=a> javascript:a attachment:a data:text/html,a http://a style= on x="
    pieces = st.sampled_from([*words.split(), " ", "\n", "\n\n", "\t"])

    @FUZZ
    @given(st.lists(pieces, max_size=25).map("".join), st.booleans())
    def odd(text, attached):
        cell = nbformat.v4.new_markdown_cell(text)
        if attached:
            cell.attachments = {"a": {text or "x": text, "image/svg+xml": text}}
        data = {"text/markdown": text, "text/plain": text}
        outputs = [
            nbformat.v4.new_output("display_data", data),
            nbformat.v4.new_output("error", ename=text, evalue=text, traceback=[text]),
        ]
        nb = nbformat.v4.new_notebook(cells=[cell, nbformat.v4.new_code_cell(text, outputs=outputs)])
        page = feedback(nb, NotebookResult(text, text, text, 3, failure=text))
        assert acts(page, frozenset({"script", "meta", "style", "iframe", "svg"})) == []
        assert page.count("<script") == 1

    odd()


# Archives

NAMES = "a.ipynb A.ipynb a.ipynb/b.ipynb ../a.ipynb /a.ipynb a/../../b.ipynb C:\\a.ipynb . a//b.ipynb a.txt é.ipynb"
NAME = st.sampled_from([*NAMES.split(), "", "a\nb.ipynb", "d/" * 30 + "a.ipynb", "x" * 300 + ".ipynb"])
NAME |= TEXT.map(lambda text: f"{text}.ipynb")
CONTENT = st.binary(max_size=60) | st.sampled_from([bytes(5 * files.MIB), b"{}" * 1000])
KIND = st.sampled_from([0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
METHOD = st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
DAMAGE = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=4)


def zipped(entries) -> bytes:
    value = io.BytesIO()
    with zipfile.ZipFile(value, "w") as archive:
        for name, content, kind, method in entries:
            info = zipfile.ZipInfo(name or "empty")
            info.external_attr, info.compress_type = (kind | 0o644) << 16, method
            with contextlib.suppress(UserWarning):
                archive.writestr(info, content)
    return value.getvalue()


def tarred(entries) -> bytes:
    value = io.BytesIO()
    kinds = {stat.S_IFLNK: tarfile.SYMTYPE, stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFIFO: tarfile.FIFOTYPE}
    with tarfile.open(fileobj=value, mode="w:gz", compresslevel=1) as archive:
        for name, content, kind, _ in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kinds.get(kind, tarfile.REGTYPE), "../../etc/passwd"
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return value.getvalue()


def damaged(data: bytes, damage) -> bytes:
    value = bytearray(data)
    for at, byte in damage:
        value[at % len(value)] = byte
    return bytes(value)


def as_notebook(parts: list[str]) -> str | None:
    return "/".join(parts).casefold() if parts[-1].endswith(".ipynb") else None


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("suffix", "packed"), [(".zip", zipped), (".tar.gz", tarred)])
def test_an_archive_is_unpacked_into_its_folder_or_is_damaged(suffix, packed):
    total, most = 6 * files.MIB, 5

    @FUZZ
    @given(st.lists(st.tuples(NAME, CONTENT, KIND, METHOD), max_size=7), DAMAGE)
    def odd(entries, damage):
        with tempfile.TemporaryDirectory() as folder:
            path, into = Path(folder, f"class{suffix}"), Path(folder, "into")
            into.mkdir()
            data = packed(entries)
            if suffix == ".tar.gz":  # damage the tar and not only gzip's checksum
                data = gzip.compress(damaged(gzip.decompress(data), damage), 1)
            path.write_bytes(damaged(data, damage) if suffix == ".zip" else data)
            with contextlib.suppress(UnreadableError):
                share = files.Share(total, most, "there are too many bytes.")
                notes = unpack(path, into, as_notebook, lambda _: share)
                assert len(notes) <= 52 and all(len(note) < 500 and note.isprintable() for note in notes)
            results = [p for p in Path(folder).rglob("*") if not p.is_dir()]
            assert all(p.is_file() and not p.is_symlink() and p.name.endswith(".ipynb") for p in results if p != path)
            assert all(p == path or p.is_relative_to(into) for p in results) and len(results) <= most + 1
            assert sum(p.stat().st_size for p in results if p != path) <= total

    odd()


# Folders of a class

PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), max_size=12).map("x{}".format)
ODDLY = ["ada", "Ada", "a*", "a?", "a_", " a", "..x", " ..", "<b>", 'a"b', "a\u202eb", "é", "e\u0301"]
WHO = st.sampled_from(ODDLY) | PLAIN
FOLDER = st.sampled_from(["day01", "__MACOSX", ".git", "honest ", "Honest", "honest*"]) | WHO
FOLDER |= st.builds("{}_{}_assignsubmission_{}".format, WHO, st.integers(1, 4), st.sampled_from(["file", "onlinetext"]))
FILE = st.sampled_from(["graphs.ipynb", "graphs-2.ipynb", "hw.zip", "other.ipynb"])
FLAT = st.builds("{}_{}{}_7_{}".format, WHO, st.sampled_from(["", "LATE_"]), st.integers(1, 4), FILE)
PATHS = (
    "day01/graphs.ipynb graphs.ipynb day02/passes.ipynb day77/graphs.ipynb a/b/day01/graphs.ipynb hw.zip day01/hw.zip"
)
PATHS += " day01/timestamp.txt day01/graphs-1.ipynb day01/graphs.ipynb/graphs.ipynb"
INSIDE = st.sampled_from(PATHS.split())


def write(path: Path, kind: str) -> None:
    assert ".." not in path.parts and path.is_relative_to(tempfile.gettempdir())
    with contextlib.suppress(OSError):  # a name that no file can have, or one that is there
        if os.path.lexists(path):  # and may be a pipe
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to("/etc/passwd")
        elif kind == "zip":
            path.write_bytes(zipped([("day01/graphs.ipynb", b"{}", 0, zipfile.ZIP_DEFLATED)]))
        else:
            path.write_text("{}")


TREE = st.lists(
    st.tuples(st.builds("{}/{}".format, FOLDER, INSIDE) | FLAT, st.sampled_from(["file", "zip", "link", "pipe"])),
    max_size=8,
)


@FUZZ
@given(TREE, st.dictionaries(st.integers(1, 4).map(str), st.sampled_from(["ada", "bob"]), max_size=2))
def test_a_class_of_any_folders_keeps_every_learner_apart(tree, numbers):
    with tempfile.TemporaryDirectory() as folder:
        home, scratch = Path(folder, "class"), Path(folder, "scratch")
        scratch.mkdir()
        copy = home / "honest/day01/graphs.ipynb"
        write(copy, "file")
        write(home / "second/day01/graphs.ipynb", "file")
        for path, kind in tree:
            write(home / path, kind)
        result = intake.collect(home, KNOWN, scratch, numbers, numbers)
        assert result.submissions["honest", "day01"].notebooks == {"graphs": copy}
        owners: dict[str, set[str]] = {}
        for (learner, _), submission in result.submissions.items():
            assert learner.isprintable() and not set(learner) & set('/<>"&\\*?[]') and not learner.startswith(".")
            for path in submission.notebooks.values():
                if path.is_relative_to(home) and path.parent != home:
                    owners.setdefault(learner, set()).add(path.relative_to(home).parts[0])
        for learner, folders in owners.items():
            assert len(folders) == 1 or learner in numbers.values() or all("_assignsubmission_" in f for f in folders)
        assert all(len(notes) <= intake.MAX_NOTES + 1 for notes in result.notes.values())


# Tables and small texts


@settings(FUZZ, max_examples=6 * amounts.EXAMPLES)
@given(st.binary() | st.text(alphabet='a,;"\n\r\t id=\ufeff\0', max_size=60).map(str.encode))
def test_a_roster_is_a_table_or_damaged(content):
    with one_file(content) as path, contextlib.suppress(UnreadableError):
        learners = read_roster(path)
        assert all(name == one.id and name for name, one in learners.items())


FORMULA = st.sampled_from(list("=+-@＝＋－＠﹦﹢﹣﹫;,\t\n\r\v\f\x1c\x85\u2028 \xa0\u3000\u200b\ufeff\u202e\x01\"'a1"))


@settings(FUZZ, max_examples=6 * amounts.EXAMPLES)
@given(st.text(FORMULA, max_size=12))
def test_no_text_is_a_formula_in_any_spreadsheet(text):
    value = exports.harmless(text)
    fields = [value]
    for separator in ";\t\n\r\v\f\x1c\x85\u2028":
        fields = [part for field in fields for part in field.split(separator)]
    for field in fields:
        assert not field.strip(' "\xa0\u3000\u200b\ufeff\u202e\x01').startswith(tuple("=+-@＝＋－＠﹦﹢﹣﹫"))
    assert exports.harmless(value) == value


@FUZZ
@given(st.text() | st.from_regex(r"[0-9TZ:+\-. a-zA-Z]{0,40}", fullmatch=True))
def test_a_time_is_a_time_or_none(text):
    result = when(text)
    assert result is None or result.tzinfo is None


@FUZZ
@given(
    st.text(st.characters(codec="utf-8"))
    | st.lists(st.sampled_from([*"'\"\\#([{)]}:\n \t=*.@", "def ", "'''"])).map("".join)
)
def test_any_answer_can_be_compared(text):
    assert len(digest(text)[0]) == 64
