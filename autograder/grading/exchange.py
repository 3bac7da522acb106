"""Collect from nbgrader's exchange what learners cannot forge; release feedback, whichever command wrote it.

A submission in the exchange is a folder that its learner made: its name says whose it is and when it came, and it may
contain links, to itself too. nbgrader believes the name and follows the links, for ever, with the rights of the
instructor, who can read the solutions. Here links are left out, and entries and bytes are counted while they are
copied, the same share for each learner. The owner of a file and the time of its last change are the kernel's word, and
are believed.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nbgrader.exchange.default import ExchangeCollect, ExchangeReleaseFeedback, release_feedback
from nbgrader.utils import ignore_patterns

from autograder.grading import files
from autograder.grading.intake import TIMESTAMP
from autograder.grading.paper import when

#: The file with the text, made by `nbgrader submit`, by which a learner fetches the feedback.
SECRET = "submission_secret.txt"
#: A clock's seconds between the name of a submission and its last file.
COPYING = timedelta(minutes=2)


class Collect(ExchangeCollect):
    """nbgrader's collect, by the owners of the submissions instead of their names."""

    src_records: list[dict[str, Any]]

    def init_src(self):
        super().init_src()
        self.src_records = [record for record in self.src_records if record["username"]]

    def _path_to_record(self, path):
        name = os.path.basename(path)
        time = when(name.rsplit("+", 3)[2])  # learner+assignment+time, and a random text
        record = {"filename": name, "timestamp": time or datetime.min, "username": ""}
        try:
            owner = os.lstat(path).st_uid
        except FileNotFoundError:  # its owner has just removed it
            return record
        try:
            record["username"] = pwd.getpwuid(owner).pw_name
        except KeyError:  # the account is gone
            record["username"] = str(owner)
        return record

    def copy_files(self):
        self.check_owner = False  # nbgrader would follow a link for it; the name that it checks is the owner's
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
        except (files.UnreadableError, FileNotFoundError) as why:
            self.log.error("%s was not collected: %s", src, why)
            return
        except files.DiskFullError as why:
            shutil.rmtree(dest, ignore_errors=True)  # not half a submission
            self.fail(f"{src} was not collected: {why}")
        for note in notes:
            self.log.error("%s: %s", src, note)
        self._date(Path(dest) / TIMESTAMP, datetime.fromtimestamp(latest, UTC).replace(tzinfo=None))

    def _date(self, path: Path, latest: datetime) -> None:
        """Write the time of a submission: its own, or that of its last change, if that was later.

        Its own is written anew: whoever reads it must not find what this has read as something else.
        """
        try:
            time = when(files.read_text(path)) or datetime.min
        except files.UnreadableError:
            time = datetime.min
        if latest - time > COPYING:
            self.log.warning("%s says it is of %s, but was changed at %s UTC", path.parent, time, latest)
            time = latest
        if path.is_dir():
            shutil.rmtree(path)
        path.write_text(f"{time:%Y-%m-%d %H:%M:%S.%f} UTC")


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
            texts = {name: _text(folder / name) or _text(Path(submitted, name)) for name in (TIMESTAMP, SECRET)}
            if not texts[SECRET]:  # nbgrader would stop at it
                self.log.error("%s/%s cannot be used: %s cannot be fetched", submitted, SECRET, page)
                texts[SECRET] = secrets.token_hex(16)
            for name, text in texts.items():
                (folder / name).unlink(missing_ok=True)
                (folder / name).write_text(text)
        super().copy_files()


def _text(path: Path) -> str:
    """Return the text of a short file, "" if it has none."""
    try:
        return files.read_text(path, 1_000)
    except files.UnreadableError:
        return ""
