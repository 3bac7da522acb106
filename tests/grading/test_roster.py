"""Rosters as they come: this project's own, Excel's, Canvas's gradebook and Moodle's participants."""

from __future__ import annotations

import codecs

import pytest

from autograder.grading.files import UnreadableError
from autograder.grading.gradebook import names
from autograder.grading.roster import Learner, read_roster

OWN = "id,name,Canvas ID,group\nada,Ada Løvelace,17,A\n,Nobody,1,\nbob,,,A\n"
LEARNERS = {"ada": Learner("ada", "Ada Løvelace", canvas_id="17", group="A"), "bob": Learner("bob", group="A")}


@pytest.fixture
def roster(tmp_path):
    """Write a roster and read it."""

    def read(content: str | bytes):
        path = tmp_path / "roster.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_roster(path)

    return read


@pytest.mark.parametrize(
    "content",
    [
        OWN,
        OWN.replace(",", ";"),
        OWN.replace(",", "\t"),
        OWN.replace("\n", "\r\n"),
        codecs.BOM_UTF8 + OWN.encode(),
        codecs.BOM_UTF16_LE + OWN.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + OWN.replace(",", "\t").encode("utf-16-be"),
        OWN.replace(",", ";").encode("cp1252"),
        "\n" + OWN,
    ],
    ids=["commas", "semicolons", "tabs", "lines of Windows", "BOM", "UTF-16", "UTF-16 BE", "Excel", "an empty line"],
)
def test_separators_and_encodings(roster, content):
    assert roster(content) == LEARNERS


def test_a_list_of_ids_needs_no_header(roster):
    assert roster("ada\nbob\n\n") == {"ada": Learner("ada"), "bob": Learner("bob")}
    assert roster("id\nada\n") == {"ada": Learner("ada")}
    assert roster("") == {}


def test_canvas_exported_gradebook(roster):
    text = (
        "Student,ID,SIS User ID,SIS Login ID,Section,day01 (77),Current Score\n"
        "    Points Possible,,,,,26,\n"
        '"Lovelace, Ada",17,s-1,ada,Mon,12,80\n'
        '"Hopper, Grace",18,s-2,,Tue,,\n'
        '"Student, Test",99,,abc,Mon,,\n'
    )
    assert roster(text) == {
        "ada": Learner("ada", "Lovelace, Ada", section="Mon", canvas_id="17", sis_id="s-1"),
        "s-2": Learner("s-2", "Hopper, Grace", section="Tue", canvas_id="18", sis_id="s-2"),
    }


def test_moodles_participants(roster):
    text = "First name,Last name,ID number,Email address,Groups\nAda,Lovelace,s-1,ada@example.org,A\n"
    assert roster(text) == {
        "ada@example.org": Learner("ada@example.org", "Ada Lovelace", "ada@example.org", sis_id="s-1", group="A")
    }


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("name,email\nAda,a@b\n", r"has no column id. Its first line is: name, email. The columns are id, name"),
        ("ada,Ada\nbob,Bob\n", "has no column id. Its first line is: ada, Ada."),
        ("id,name,shoe size,cat\nada,Ada,38,yes\n", "has columns that mean nothing here: shoe size and cat."),
        ("id,name\nada,A\nada,B\n", "has several lines for ada."),
        (b"\x81\x8d id", "is not text in UTF-8, UTF-16 or Windows-1252. Save it as CSV UTF-8."),
        (codecs.BOM_UTF16_LE + b"i", "is not text in UTF-8"),
        ('id,name\nada,"' + "x" * 200_000, "is not a CSV file"),
    ],
)
def test_what_is_no_roster_is_refused_with_what_was_found(roster, content, sentence):
    with pytest.raises(UnreadableError, match=sentence) as caught:
        roster(content)
    assert str(caught.value).startswith("roster.csv ")


@pytest.mark.parametrize(
    ("full", "parts"),
    [
        ("Ada Lovelace", ("Ada", "Lovelace")),
        ("Lovelace, Ada King", ("Ada King", "Lovelace")),
        ("Juan de la Cruz", ("Juan de la", "Cruz")),
        ("Plato", ("", "Plato")),
        ("", ("", "")),
    ],
)
def test_first_and_last_names(full, parts):
    assert names(full) == parts
