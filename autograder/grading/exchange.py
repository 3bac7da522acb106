"""Collect from nbgrader's exchange what learners cannot forge; release feedback, whichever command wrote it.

A submission in the exchange is a folder that its learner made: its name says whose it is and when it came, and it may
contain links, to itself too. nbgrader believes the name and follows the links, for ever, with the rights of the
instructor, who can read the solutions. Here links are left out, and entries and bytes are counted while they are
copied, the same share for each learner. The owner of a file and the time of its last change are the kernel's word, and
are believed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nbgrader.exchange.default import ExchangeCollect, ExchangeReleaseFeedback, release_feedback
from nbgrader.utils import ignore_patterns, parse_utc

from autograder.grading import files

#: A clock's seconds between the name of a submission and its last file.
COPYING = timedelta(minutes=2)


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

    def copy_files(self):
        folder = Path(self.coursedir.root)
        self._share = files.shares(folder, len(self.src_records), 1000 * self.coursedir.max_dir_size)
        super().copy_files()

    def do_copy(self, src, dest, log=None):
        """Copy the regular files that belong to the owner of `src`. What is not copied is named in the log."""
        folder = Path(src).parent.resolve() / Path(src).name
        ignored = ignore_patterns(self.coursedir.ignore, self.coursedir.include, self.coursedir.max_file_size, self.log)

        def skip(path: Path) -> bool:
            return bool(ignored(str(folder / path.parent), [path.name]))

        try:
            notes, latest = files.copy(folder, Path(dest), self._share(), skip, os.lstat(folder).st_uid)
        except files.UnreadableError as why:
            self.log.error("%s was not collected: %s", src, why)
            return
        except files.DiskFullError as why:
            shutil.rmtree(dest, ignore_errors=True)  # not half a submission
            self.fail(f"{src} was not collected: {why}")
        for note in notes:
            self.log.error("%s: %s", src, note)
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
                if not (folder / name).exists():
                    with contextlib.suppress(files.UnreadableError):
                        text = files.read_bytes(Path(submitted, name), 1_000)
                        (folder / name).write_bytes(text)
        super().copy_files()
