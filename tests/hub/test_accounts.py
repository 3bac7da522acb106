"""Who may log in to the hub, and what `make hub` says where it cannot run."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

from autograder.hub import __main__ as command
from autograder.hub import accounts, people
from autograder.hub.accounts import Refused
from autograder.toys import hubs, tiny


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PASSLAB_HUB", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.parametrize(
    ("learner", "section", "said"),
    [
        ("root", "", "is a system user of this machine already"),
        ("Ada Lovelace", "", "cannot be a system user"),
        ("../ada", "", "cannot be a system user"),
        ("-ada", "", "cannot be a system user"),
        ("ada", "../evening", "cannot name a folder"),
    ],
)
def test_a_roster_that_cannot_be_is_refused_before_anything_is_made(folder, learner, section, said):
    if learner == accounts.instructor():
        learner = "daemon"
    with pytest.raises(Refused, match=said):
        accounts.enter([("zoe", ""), (learner, section)])
    assert not folder.exists()


def test_an_instructor_whom_the_hub_takes_for_a_learner_is_refused(folder, monkeypatch):
    monkeypatch.setattr(accounts, "instructor", lambda: "Ada")
    for enter in (accounts.enter, lambda roster: people.enter(roster, "Ada", {})):
        with pytest.raises(Refused, match="whoever is called ada would be the instructor"):
            enter([("ada", "")])
    assert not folder.exists()


TWICE = """
import json, pwd, subprocess
from autograder.hub import accounts

first = accounts.enter([("ada", ""), ("bob", "evening")])
subprocess.run(["usermod", "--shell", "/bin/bash", "ada"], check=True)  # as earlier versions made it
second = accounts.enter([("ada", ""), ("cyd", "")])
kept = accounts.enter(None)
users = {name: pwd.getpwnam(name).pw_dir for name in ("ada", "bob", "cyd")}
assert {pwd.getpwnam(name).pw_shell for name in users} == {"/usr/sbin/nologin"}, "a key in ~/.ssh would let them in"
modes = {str(path.relative_to(accounts.folder())): oct(path.stat().st_mode) for path in accounts.folder().rglob("*")}
print(json.dumps([[one.id for one in made] for made in (first, second, kept)] + [users, modes]))
"""


def test_accounts_are_made_once_and_follow_the_roster(tmp_path, folder):
    assert hubs.is_root(), "This test makes system users, on a copy of /etc: run it as root."
    done = subprocess.run(
        [*hubs.sealed(tmp_path), sys.executable, "-c", TWICE], cwd=tiny.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *value, users, modes = json.loads(done.stdout.splitlines()[-1])
    assert value == [[accounts.instructor(), "ada", "bob"], ["cyd"], []]
    assert users["bob"] == str(folder / "homes/bob"), "who leaves the roster keeps their files, and cannot log in"
    with (folder / "accounts.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["id"] for row in rows] == [accounts.instructor(), "ada", "cyd"]
    assert len({row["password"] for row in rows}) == 3 and all(len(row["password"]) >= 16 for row in rows)
    assert modes["accounts.csv"].endswith("100600") and modes["hub"].endswith("40700")
    assert {modes[f"homes/{name}"][-3:] for name in users} == {"700"}
    assert modes["exchange"].endswith("1777") and modes["exchange/passlab-evening/inbound"].endswith("3733")


LINKED = """
import os, pwd
from autograder.hub import accounts

accounts.enter([("ada", ""), ("bob", "")])
inbound = accounts.folder() / "exchange/passlab/inbound"
before = inbound.stat().st_uid
for name, kind in (("ada", "work"), ("ada", "course"), ("bob", "work"), ("bob", "course")):
    (accounts.home(name) / kind).rmdir()
(accounts.home("ada") / "work").symlink_to(inbound)
(accounts.home("ada") / "course").symlink_to("nowhere")
(accounts.home("bob") / "work").touch()
os.mkfifo(accounts.home("bob") / "course")
accounts.enter(None)
assert inbound.stat().st_uid == before, "given away"
for name in ("ada", "bob"):
    for kind in ("work", "course"):
        about = (accounts.home(name) / kind).lstat()
        assert about.st_uid == pwd.getpwnam(name).pw_uid and about.st_mode & 0o170000 == 0o040000
"""


def test_a_link_in_a_home_folder_gives_nothing_away_and_stops_no_one(tmp_path):
    """Root gave what it led to, such as the submissions of all, to the learner who had made it."""
    assert hubs.is_root(), "This test makes system users, on a copy of /etc: run it as root."
    done = subprocess.run(
        [*hubs.sealed(tmp_path), sys.executable, "-c", LINKED], cwd=tiny.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_it_says_that_it_takes_root(monkeypatch, capsys):
    monkeypatch.setattr(command.os, "geteuid", lambda: 1000)
    assert command.main([]) == 1
    assert "sudo make hub" in capsys.readouterr().err


def test_it_says_how_to_get_node(monkeypatch, tmp_path):
    monkeypatch.setattr(command.course_paths, "PROJECT", tmp_path)
    monkeypatch.setattr(command.shutil, "which", lambda name, path=None: None)
    with pytest.raises(Refused, match=r"needs Node\.js, and node is not on the PATH \(Debian: apt install npm\)"):
        command.proxy()


def test_a_missing_program_is_named_with_its_package(monkeypatch):
    monkeypatch.setattr(accounts.shutil, "which", lambda name, path=None: None)
    with pytest.raises(Refused, match=r"needs bwrap, .* apt install bubblewrap"):
        accounts.program("bwrap", "bubblewrap")
