"""`passlab new day03.strength-reduction --like cse`: write the files of a new exercise, small but whole.

What is written works (see `autograder.authoring.examples`), so an author starts from something that runs, and changes
it piece by piece.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path
from string import Template

from autograder.authoring import source
from autograder.authoring.examples import OF_IR, PLAIN, Example
from autograder.authoring.prove import RIGHT, WRONG
from passlab import exercises
from passlab.graph import registry
from passlab.judge import Exercise

_ID = re.compile(r"(day\w+)\.([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")

_HEADER = """# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # $day: exercises

# %%
from passlab import check, hint, progress

# %%
progress("$day")
"""

_DAY = '''"""$day: its exercises."""

from passlab.judge import Exercise

#: notebook → flavour; exercises without a notebook belong to the first
NOTEBOOKS = {"$notebook": "$flavour"}

EXERCISES = ()
'''

_ROW = """    Exercise(
        id="$id",
        title="$title",
        points=$points,
        difficulty=1,
        minutes=10,
        hints=("Where to begin.", "What the difficulty is.", "Nearly the answer."),
$more    ),
)
"""


def _example(like: Exercise) -> tuple[str, Example]:
    """Return the IR that an exercise is about and the example of a pass over it; "" and a plain function without one.

    The IR is the one in whose `cases` the exercise's are written, else that of its notebook, if its module names it.
    """
    spec = importlib.util.find_spec(exercises.module_name(like.id))
    text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    written_in = re.search(r"passlab\.(\w+)\.cases", text)
    ir = written_in[1] if written_in else like.flavour if f"passlab.{like.flavour}" in text else ""
    return (ir, OF_IR[ir]) if ir in OF_IR else ("", PLAIN)


def _notebook(day: str, notebooks: dict[str, str], like: Exercise | None, ir: str) -> str:
    """Return the first notebook of a day that fits an exercise like another. Raises ValueError if none does."""
    if like is None:
        return next(iter(notebooks))
    fit = {like.flavour, ir if ir in registry.COMPILERS else "torch"}
    if fitting := next((name for name, flavour in notebooks.items() if flavour in fit), None):
        return fitting
    choices = ", ".join(f"{name} ({flavour})" for name, flavour in notebooks.items())
    raise ValueError(
        f"An exercise like {like.id} needs a notebook of flavour {' or '.join(sorted(fit))}; {day} has {choices}. "
        f"Choose another day, or name an exercise of {day} after --like. Without --like you get a plain "
        "function, which fits any notebook."
    )


def _find_exercise(name: str, day: str) -> Exercise:
    """Return an exercise by its id or its name, of this course or of the project; of several, that of the same day.
    Raises KeyError."""
    days = sorted(m.name for m in pkgutil.iter_modules(exercises.__path__) if m.name.startswith("day"))
    hits = [e for day in days for e in exercises.of_day(day) if name in (e.id, e.id.split(".")[1])]
    if nearest := [e for e in hits if e.day == day or len(hits) == 1]:
        return nearest[0]
    raise KeyError(
        f"{name!r} is the name of several exercises: {', '.join(e.id for e in hits)}."
        if hits
        else f"There is no exercise {name!r} that the new one could be like."
    )


def write(exercise_id: str, like: str = "", title: str = "", stretch: bool = False) -> list[Path]:
    """Write the files of a new exercise and return them. Nothing that exists is changed, except that the notebook gets
    cells and the day's list an entry, both at the end.

    like: an exercise; the new one is a pass over the same IR, in a notebook of the same flavour. Raises ValueError with
    a sentence for an id that cannot be, or is taken, and for a day without such a notebook; KeyError for an unknown
    `like`.
    """
    match = _ID.fullmatch(exercise_id)
    if not match:
        raise ValueError(
            f"{exercise_id!r} is not an id. Write the day, a dot and a name of small letters, digits and hyphens, such "
            "as day03.strength-reduction."
        )
    day, name = match.groups()
    model = _find_exercise(like, day) if like else None
    ir, texts = _example(model) if model else ("", PLAIN)
    home = source.COURSE
    listing = home / "lib/passlab/exercises" / day / "__init__.py"
    written = exercises.of_day(day) if listing.exists() else ()
    if any(exercise.id == exercise_id for exercise in written):
        raise ValueError(f"There is already an exercise {exercise_id}.")
    if home == source.ROOT and not listing.exists():
        raise ValueError(
            f"This course has no {day}. A new day of your own belongs into a folder of your own: name it in "
            "PASSLAB_COURSE."
        )
    if home != source.ROOT and (source.ROOT / "lib/passlab/exercises" / day).is_dir():
        raise ValueError(f"The project has a {day} of its own, which hides yours. Choose another day, such as day21.")
    function = name.replace("-", "_")
    flavour = model.flavour if model else "torch"
    notebooks = importlib.import_module(f"{exercises.__name__}.{day}").NOTEBOOKS if listing.exists() else {}
    notebook = _notebook(day, notebooks, model, ir) if notebooks else "exercises"
    options = f'        notebook="{notebook}",\n' if notebooks and notebook != next(iter(notebooks)) else ""
    title = title or name.replace("-", " ").capitalize()
    values = {
        "id": exercise_id,
        "day": day,
        "name": function,
        "title": title,
        "notebook": notebook,
        "flavour": flavour,
        "points": texts.points,
        "more": options + ("        stretch=True,\n" if stretch else ""),
    }
    heading = {**values, "title": f"{title} · stretch" if stretch else title}
    files = {
        listing.parent / f"{function}.py": texts.judge,
        home / "autograder/answers" / day / f"{function}.py": texts.hidden,
    }
    if existing := next((path for path in files if path.exists()), None):
        raise ValueError(f"{existing.relative_to(home)} exists already. Move it away, or choose another name.")
    for folder in ("course", "exercises"):
        (home / folder).mkdir(exist_ok=True)
    package = home / "autograder/answers" / day / "__init__.py"
    _begin(package, f'"""Hidden cases and answers of {day}."""\n')
    _begin(listing, Template(_DAY).substitute(values))
    solution = home / "solutions" / day / f"{notebook}.py"
    _begin(solution, Template(_HEADER).substitute(values))
    for path, text in files.items():
        path.write_text(Template(text).substitute(values), encoding="utf-8")
    _enter(listing, Template(_ROW).substitute(values))
    cells = Template(texts.solution).substitute(heading)
    if texts.imports not in solution.read_text(encoding="utf-8"):
        cells = f"\n# %%\n{texts.imports}\n{cells}"
    with solution.open("a", encoding="utf-8") as out:
        out.write("\n" + cells)
    exercises.of_day.cache_clear()
    return [solution, *files, listing]


def _begin(path: Path, text: str) -> None:
    """Write a file that is not there yet."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _enter(listing: Path, row: str) -> None:
    """Add an entry at the end of EXERCISES. Raises ValueError if the list does not end the file."""
    text = listing.read_text(encoding="utf-8").rstrip()
    start, end = ("(\n", "EXERCISES = ()") if text.endswith("EXERCISES = ()") else ("", ")")
    if not text.endswith(end) or "EXERCISES" not in text:
        raise ValueError(f"{listing} does not end with EXERCISES = (…): add the exercise to the list by hand.")
    head = f"{text[:-2]}" if start else text[: -len(end)]
    listing.write_text(head + start + row, encoding="utf-8")


def remaining_steps() -> list[str]:
    """Return what an author still has to do after `write`, one line each."""
    return [
        "the text, the answer, the cases and the judge: what stands there is an example",
        "the hints, points, difficulty and minutes, in the day's list",
        f"wrong and right answers: one of each is there, {WRONG} and {RIGHT} are needed",
    ]
