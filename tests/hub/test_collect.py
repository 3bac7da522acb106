"""Collecting from the exchange: what a submission says of itself is not believed."""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange.default import collect
from nbgrader.utils import notebook_hash
from traitlets.config import Config

from autograder.grading import files as files_
from autograder.grading.exchange import Collect, ReleaseFeedback
from autograder.grading.gradebook import prepare
from autograder.grading.late import DAY, LateDays
from autograder.grading.paper import when
from autograder.toys import hubs

#: Whose submissions these are: as root, another user's, so that root's own files are foreign to them.
LEARNER = pwd.getpwnam("daemon") if hubs.is_root() else pwd.getpwuid(os.getuid())


@pytest.fixture
def now():
    """When the learner submits: as the test begins, since the machine's own clock dates the files."""
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def gradebook(tmp_path_factory):
    """An empty gradebook: making one takes seconds."""
    url = f"sqlite:///{tmp_path_factory.mktemp('gradebook')}/gradebook.db"
    prepare(Config({"CourseDirectory": {"db_url": url, "course_id": "passlab"}}))
    return url


@pytest.fixture
def exchange(tmp_path, gradebook):
    """`exchange(name, files)` puts a submission there: file name → text, or a path that a link shows to."""
    (tmp_path / "exchange/passlab/inbound").mkdir(parents=True)

    def submit(name: str, files: dict):
        folder = tmp_path / "exchange/passlab/inbound" / name
        folder.mkdir()
        for file, content in files.items():
            path = folder / file
            path.write_text(content) if isinstance(content, str) else path.symlink_to(content)
            os.chown(path, LEARNER.pw_uid, LEARNER.pw_gid, follow_symlinks=False)
        os.chown(folder, LEARNER.pw_uid, LEARNER.pw_gid)

    def collect(command=Collect, **options):
        config = Config()
        config.CourseDirectory.root = str(tmp_path / "course")
        config.CourseDirectory.course_id, config.CourseDirectory.assignment_id = "passlab", "day00"
        config.CourseDirectory.db_url = gradebook
        config.Exchange.root = str(tmp_path / "exchange")
        (tmp_path / "exchange").chmod(0o777)
        (tmp_path / "course").mkdir(exist_ok=True)
        log = logging.getLogger("test_collect")
        coursedir = CourseDirectory(config=config, log=log)
        command(coursedir=coursedir, config=config, log=log, **options).start()
        return tmp_path / "course/submitted"

    submit.collect = collect
    return submit


def stamp(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S.%f} UTC"


def name(learner: str, time: datetime, more: str = "x") -> str:
    return f"{learner}+day00+{stamp(time)}+{more}"


def files(time: datetime, **more) -> dict:
    return {"tiny.ipynb": "{}", "timestamp.txt": stamp(time), "submission_secret.txt": "s"} | more


def test_a_submission_arrives_as_it_is(exchange, now):
    exchange(name(LEARNER.pw_name, now), files(now))
    result = exchange.collect() / LEARNER.pw_name / "day00"
    assert {path.name: path.read_text() for path in result.iterdir()} == files(now)


def test_in_anothers_name_it_counts_as_its_owners(exchange, now):
    exchange(name("bob", now), files(now))
    assert [path.name for path in exchange.collect().iterdir()] == [LEARNER.pw_name]


def test_a_link_to_a_file_of_the_instructors_is_not_followed(exchange, now, caplog):
    foreign = Path("/etc/passwd")
    exchange(name(LEARNER.pw_name, now), files(now, **{"tiny.ipynb": foreign}))
    result = exchange.collect() / LEARNER.pw_name / "day00"
    assert "root" not in "".join(path.read_text() for path in result.iterdir())
    assert "tiny.ipynb was not copied: it is a link" in caplog.text


def test_a_file_of_another_owner_is_not_collected(exchange, now, tmp_path, caplog):
    if not hubs.is_root():
        pytest.skip("only root can give a file away")
    exchange(name(LEARNER.pw_name, now), files(now))
    (folder,) = (tmp_path / "exchange/passlab/inbound").iterdir()
    os.chown(folder / "tiny.ipynb", 0, 0)
    result = exchange.collect() / LEARNER.pw_name / "day00"
    assert not (result / "tiny.ipynb").exists() and "not a file of the learner's" in caplog.text


def test_links_to_the_own_folder_end(exchange, now, caplog):
    """Two of these made nbgrader's copy grow without end."""
    links = {"again": Path("."), "and again": Path(".")}
    exchange(name(LEARNER.pw_name, now), files(now, **links))
    result = exchange.collect() / LEARNER.pw_name / "day00"
    assert {path.name for path in result.rglob("*")} == {*files(now)}
    assert "again was not copied: it is a link" in caplog.text


def test_a_submission_that_is_a_link_is_not_collected(exchange, now, tmp_path, caplog):
    inbound = tmp_path / "exchange/passlab/inbound"
    (inbound / name(LEARNER.pw_name, now)).symlink_to("/etc/ssl")
    result = exchange.collect()
    assert not list(result.rglob("day00")) and "links are not followed" in caplog.text


def test_what_is_too_much_is_left_out_and_the_notebook_stays(exchange, now, monkeypatch, caplog):
    monkeypatch.setattr(files_, "LEARNER_FILES", 10)
    more = {f"more {number:02}": "x" for number in range(20)}
    exchange(name(LEARNER.pw_name, now), files(now, **more))
    result = exchange.collect() / LEARNER.pw_name / "day00"
    assert (result / "tiny.ipynb").exists() and "too many entries" in caplog.text
    assert len(list(result.iterdir())) == 11  # and the time


def test_a_link_to_a_folder_of_the_instructors_gives_nothing(exchange, now):
    exchange(name(LEARNER.pw_name, now), files(now, more=Path("/etc/ssl")))
    result = exchange.collect() / LEARNER.pw_name / "day00"
    assert not [path for path in (result / "more").rglob("*") if path.is_file()]


def test_a_pipe_does_not_stop_the_others(exchange, now, tmp_path):
    exchange(name(LEARNER.pw_name, now), files(now))
    (folder,) = (tmp_path / "exchange/passlab/inbound").iterdir()
    os.mkfifo(folder / "pipe")
    result = exchange.collect() / LEARNER.pw_name / "day00"
    assert (result / "tiny.ipynb").exists() and not (result / "pipe").exists()


def test_a_time_that_was_set_back_is_corrected(exchange, now):
    early = now - timedelta(days=3)
    exchange(name(LEARNER.pw_name, early), files(early))
    result = exchange.collect() / LEARNER.pw_name / "day00/timestamp.txt"
    assert result.read_text() >= stamp(now - timedelta(minutes=1))


def test_the_last_of_several_submissions_counts(exchange, now):
    before = now - timedelta(minutes=1)
    exchange(name(LEARNER.pw_name, before), files(before))
    exchange.collect()
    exchange(name(LEARNER.pw_name, now), files(now))
    assert (exchange.collect() / LEARNER.pw_name / "day00/timestamp.txt").read_text() == stamp(before)
    assert (exchange.collect(update=True) / LEARNER.pw_name / "day00/timestamp.txt").read_text() == stamp(now)


def test_a_name_without_a_time_stops_no_one(exchange, now):
    exchange(f"{LEARNER.pw_name}+day00+yesterday+x", {"tiny.ipynb": "old"})
    exchange(name(LEARNER.pw_name, now), files(now))
    assert (exchange.collect() / LEARNER.pw_name / "day00/tiny.ipynb").read_text() == "{}"


@pytest.mark.parametrize("time", ["9" * 30, "9999-12-31 23:59:59 -1400", "0001-01-01 00:00:00 Asia/Tokyo"])
def test_a_time_outside_the_calendar_stops_no_one(exchange, now, time):
    exchange(f"{LEARNER.pw_name}+day00+{time.replace('/', '-')}+x", {"tiny.ipynb": "old"})
    exchange(name(LEARNER.pw_name, now), files(now, **{"timestamp.txt": time}))
    result = exchange.collect() / LEARNER.pw_name / "day00"
    assert (result / "tiny.ipynb").read_text() == "{}"
    assert abs(when((result / "timestamp.txt").read_text()) - now.replace(tzinfo=None)) < timedelta(minutes=1)


def test_a_folder_in_place_of_the_time_stops_no_one(exchange, now, tmp_path):
    exchange(name(LEARNER.pw_name, now), {"tiny.ipynb": "{}"})
    (submission,) = (tmp_path / "exchange/passlab/inbound").iterdir()
    (submission / "timestamp.txt").mkdir()
    (submission / "timestamp.txt/a").touch()
    result = exchange.collect() / LEARNER.pw_name / "day00/timestamp.txt"
    assert when(result.read_text())


def test_the_time_is_written_so_that_all_read_the_same(exchange, now):
    """Grading once took a time of more than 200 bytes for none, and what was late for being on time."""
    exchange(name(LEARNER.pw_name, now), files(now, **{"timestamp.txt": f"{stamp(now)}{' ' * 300}"}))
    result = exchange.collect() / LEARNER.pw_name / "day00/timestamp.txt"
    assert result.read_text() == stamp(now)


def test_a_link_to_nowhere_stops_no_one(exchange, now, tmp_path, caplog):
    exchange(name(LEARNER.pw_name, now), files(now))
    later = name(LEARNER.pw_name, now + timedelta(days=1))
    (tmp_path / "exchange/passlab/inbound" / later).symlink_to("nowhere")
    exchange.collect()
    assert "was not collected" in caplog.text


def test_what_its_owner_removes_meanwhile_stops_no_one(exchange, now, tmp_path, monkeypatch):
    exchange(name(LEARNER.pw_name, now), files(now))
    gone = str(tmp_path / "exchange/passlab/inbound" / name("bob", now))
    found = collect.glob.glob
    monkeypatch.setattr(collect.glob, "glob", lambda pattern: [gone, *found(pattern)])
    assert (exchange.collect() / LEARNER.pw_name / "day00/tiny.ipynb").exists()


def test_a_path_that_is_too_long_is_left_out(exchange, now, tmp_path, caplog):
    exchange(name(LEARNER.pw_name, now), files(now))
    (submission,) = (tmp_path / "exchange/passlab/inbound").iterdir()
    with contextlib.chdir(submission):
        for number in range(18):
            os.mkdir(f"{number:0>250}")
            os.chdir(f"{number:0>250}")
        Path("a.ipynb").touch()
    result = exchange.collect() / LEARNER.pw_name / "day00"
    assert (result / "tiny.ipynb").exists() and "File name too long" in caplog.text


@pytest.mark.parametrize("secret", ["", b"\xff", "s" * 2_000, None])
def test_feedback_whose_secret_cannot_be_used_stops_no_one(exchange, now, tmp_path, secret, caplog):
    exchange(name(LEARNER.pw_name, now), files(now))
    submitted = exchange.collect() / LEARNER.pw_name / "day00/submission_secret.txt"
    submitted.unlink()
    if secret is not None:
        submitted.write_bytes(secret if isinstance(secret, bytes) else secret.encode())
    feedback = tmp_path / "course/feedback" / LEARNER.pw_name / "day00"
    feedback.mkdir(parents=True)
    (feedback / "tiny.html").write_text("well done")
    exchange.collect(ReleaseFeedback)
    (released,) = (tmp_path / "exchange/passlab/feedback").iterdir()
    assert released.read_text() == "well done" and "cannot be fetched" in caplog.text


def test_feedback_without_a_secret_beside_it_is_released_with_that_of_the_submission(exchange, now, tmp_path):
    exchange(name(LEARNER.pw_name, now), files(now))
    exchange.collect()
    feedback = tmp_path / "course/feedback" / LEARNER.pw_name / "day00"
    feedback.mkdir(parents=True)
    (feedback / "tiny.html").write_text("well done")
    exchange.collect(ReleaseFeedback)
    (released,) = (tmp_path / "exchange/passlab/feedback").iterdir()
    assert released.stem == notebook_hash(secret="s", notebook_id="tiny") and released.read_text() == "well done"


@pytest.mark.parametrize(
    ("late", "free", "penalty"), [(1, 0, 1.0), (DAY, 0, 1.0), (DAY + 1, 0, 2.0), (DAY, 1, None), (20 * DAY, 0, 10.0)]
)
def test_late_days(late, free, penalty):
    assert LateDays(per_day=0.1, free_days=free).late_submission_penalty("ada", 10.0, late) == penalty


def test_without_late_days_nbgraders_method_holds():
    assert LateDays().late_submission_penalty("ada", 10.0, DAY) is None
    assert LateDays(penalty_method="zero").late_submission_penalty("ada", 10.0, DAY) == 10.0
