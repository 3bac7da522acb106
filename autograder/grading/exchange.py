"""Collect from nbgrader's exchange what learners cannot forge; release feedback, whichever command wrote it.

A submission in the exchange is a folder that its learner made: its name says whose it is and when it came, and it may
contain links. nbgrader believes the name and follows the links with the rights of the instructor, who can read the
solutions. The owner of a file and the time of its last change are the kernel's word, and are believed here.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nbgrader.exchange.default import ExchangeCollect, ExchangeReleaseFeedback, release_feedback
from nbgrader.utils import ignore_patterns, parse_utc

#: A clock's seconds between the name of a submission and its last file.
COPYING = timedelta(minutes=2)


class _Foreign(OSError):
    """A file in a submission that is not the learner's, or no file."""


class Collect(ExchangeCollect):
    """nbgrader's collect, by the owners of the submissions instead of their names."""

    def _path_to_record(self, path):
        try:
            record = super()._path_to_record(path)
        except ValueError:  # no time in its name
            record = {"filename": os.path.basename(path), "timestamp": datetime.min}
        owner = os.lstat(path).st_uid
        try:
            record["username"] = pwd.getpwuid(owner).pw_name
        except KeyError:  # the account is gone
            record["username"] = str(owner)
        return record

    def do_copy(self, src, dest, log=None):
        """Copy the files that belong to the owner of `src`. What cannot be copied is named in the log."""
        owner, latest = os.lstat(src).st_uid, os.lstat(src).st_ctime

        def copied(source, target):
            nonlocal latest
            # A link may take a file's place after any look at its name, so look at what has been opened.
            with open(os.open(source, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                found = os.fstat(file.fileno())
                if found.st_uid != owner or not stat.S_ISREG(found.st_mode):
                    raise _Foreign(0, "it is not a file of the learner's", os.fspath(source))
                latest = max(latest, found.st_ctime)
                with open(target, "wb") as out:
                    shutil.copyfileobj(file, out)

        limit = 1000 * self.coursedir.max_dir_size
        if self.get_size(src) > limit:
            self.log.error("%s was not collected: it has more than %d bytes", src, limit)
            return
        ignore = ignore_patterns(self.coursedir.ignore, self.coursedir.include, self.coursedir.max_file_size, self.log)
        try:
            shutil.copytree(src, dest, ignore=ignore, copy_function=copied)
        except (shutil.Error, OSError) as error:
            self.log.error("not all of %s was collected: %s", src, error)
        if os.path.isdir(dest):
            self._date(Path(dest), datetime.fromtimestamp(latest, UTC).replace(tzinfo=None))

    def _date(self, dest: Path, latest: datetime) -> None:
        """Let a submission that was changed after the time in its `timestamp.txt` count from its last change."""
        try:
            stamp = parse_utc((dest / "timestamp.txt").read_text())
        except (OSError, ValueError):
            stamp = datetime.min
        if latest - stamp > COPYING:
            self.log.warning("%s says it is of %s, but was changed at %s UTC", dest, stamp, latest)
            (dest / "timestamp.txt").write_text(f"{latest:%Y-%m-%d %H:%M:%S.%f} UTC")


class ReleaseFeedback(ExchangeReleaseFeedback):
    """nbgrader's release. It looks beside the feedback for two files, which `passlab grade` does not put there."""

    def copy_files(self):
        feedback = Path(self.coursedir.format_path(self.coursedir.feedback_directory, "*", "*"))
        for page in release_feedback.glob.glob(f"{self.src_path}/*.html"):
            folder = Path(page).parent
            learner = folder.relative_to(feedback.parents[1]).parts[0]
            submitted = self.coursedir.format_path(
                self.coursedir.submitted_directory, learner, self.coursedir.assignment_id
            )
            for name in ("timestamp.txt", "submission_secret.txt"):
                if not (folder / name).exists() and Path(submitted, name).exists():
                    shutil.copy(Path(submitted, name), folder)
        super().copy_files()
