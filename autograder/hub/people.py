"""The roster for a hub on Kubernetes: `python -m autograder.hub.people roster.csv FOLDER INSTRUCTOR`.

Writes people.json, values for helm with a user id and a section for each learner, and passwd, the names of these ids
for the instructor's server. Learners keep their numbers of an earlier people.json, since these numbers own their files
on the exchange. A number is never given to a second learner.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from autograder.grading.intake import UnreadableError
from autograder.grading.roster import read_roster
from autograder.hub import accounts
from autograder.hub.accounts import Refused

#: Below are the system's users, 1000 is the instructor, and above 61000 are those of the sandbox.
FIRST, LAST = 20_001, 60_000
_PASSWD = "root:x:0:0:root:/root:/bin/sh\n{instructor}:x:1000:1000::/home/learner:/bin/bash\n"


def enter(roster: Iterable[tuple[str, str]], instructor: str, earlier: dict) -> dict:
    """Return helm's values for a roster, (id, section), with the numbers of earlier values. Raises Refused."""
    accounts.check_instructor(instructor)
    learners, known = dict(roster), earlier.get("custom", {})
    numbers = {name: one["uid"] for name, one in {**known.get("left", {}), **known.get("people", {})}.items()}
    people = {}
    for name, section in learners.items():
        accounts.check_names(name, section)
        if name in (instructor, "root"):
            raise Refused(f"{name} on the roster is the instructor's or the system's name: choose another id.")
        numbers.setdefault(name, max(numbers.values(), default=FIRST - 1) + 1)
        people[name] = {"uid": numbers[name], "section": section}
    if max(numbers.values(), default=FIRST) > LAST:
        raise Refused(f"There are no more user ids up to {LAST}: begin a new people.json, and a new exchange.")
    left = {name: {"uid": uid} for name, uid in numbers.items() if name not in people}
    return {"custom": {"instructor": instructor, "people": people, "left": left}}


def passwd(values: dict) -> str:
    """Return the /etc/passwd of the instructor's server, those who have left included."""
    custom = values["custom"]
    everybody = {**custom["people"], **custom["left"]}
    rows = (f"{name}:x:{one['uid']}:{one['uid']}::/home/learner:/bin/bash\n" for name, one in everybody.items())
    return _PASSWD.format(instructor=custom["instructor"]) + "".join(rows)


def main(arguments: list[str]) -> None:
    if len(arguments) != 3:
        sys.exit("Usage: python -m autograder.hub.people roster.csv FOLDER INSTRUCTOR")
    roster, folder, instructor = Path(arguments[0]), Path(arguments[1]), arguments[2]
    target = folder / "people.json"
    try:
        earlier = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
        rows = [(learner.id, learner.section) for learner in read_roster(roster).values()]
        values = enter(rows, instructor, earlier)
    except (Refused, UnreadableError, OSError, ValueError) as error:
        sys.exit(str(error))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "passwd").write_text(passwd(values), encoding="utf-8")
    target.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    print(f"{len(values['custom']['people'])} learners in {target} and {folder / 'passwd'}.")


if __name__ == "__main__":
    main(sys.argv[1:])
