"""What the instructor's report may know of the work on a hub: `autograder.reports.activity`, of a section's learners.

    sudo .venv/bin/python -m autograder.hub.activity             # the learners without a section
    sudo .venv/bin/python -m autograder.hub.activity evening

Only root can read learners' homes. The figures go to `activity.csv` in the results' folder; the next report has them.
"""

from __future__ import annotations

import os
import sys

from autograder.hub import accounts
from autograder.reports.activity import ACTIVITY, gather, save
from autograder.reports.items import LEAST
from passlab import course_paths


def main(arguments: list[str]) -> int:
    if os.geteuid() != 0:
        print("Only root can read learners' homes: sudo .venv/bin/python -m autograder.hub.activity", file=sys.stderr)
        return 1
    section = arguments[0] if arguments else ""
    people = [one for one in accounts.read().values() if one.id != accounts.instructor() and one.section == section]
    if not people:
        print(f"No learner in accounts.csv has the section {section!r}.", file=sys.stderr)
        return 1
    figures = gather(accounts.home(one.id) / "work/progress.json" for one in people)
    path = course_paths.course() / "autograder/run" / section / ACTIVITY
    save(path, figures)
    print(f"{path} has figures of {len(figures)} exercises, of {LEAST} learners or more each: grade, to see them.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
