"""`passlab new day03.strength-reduction --like cse`: write the files of a new exercise, small but whole.

What is written works: a reference answer, a visible case, a hidden one, a wrong and a right answer. So an author starts
from something that runs, and changes it piece by piece.
"""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from pathlib import Path
from string import Template

from autograder.authoring import source
from autograder.authoring.prove import RIGHT, WRONG
from passlab import exercises
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

# ---------------------------------------------------------------------------------------------------- a plain function

_PLAIN = {
    "solution": '''
# %% [markdown]
# ## $title


# %%
def $name(numbers: list[int]) -> list[int]:
    """The numbers twice as large, in the same order. `$name([1, 2])` is `[2, 4]`."""
    ### BEGIN SOLUTION
    return [2 * number for number in numbers]
    ### END SOLUTION


# %%
check("$id", $name)
''',
    "judge": '''"""$id: visible cases and judge."""

from passlab.judge import Case, Finding


two = Case("two numbers", lambda: ([1, 2],), expect=[2, 4])


def judge(case, value):
    yield Finding("did", value == case.expect, f"Expected {case.expect!r}, got {value!r}.")
''',
    "hidden": '''"""Hidden cases and answers of $id."""

from autograder.authoring.answers import edited, right
from passlab.judge import Case, drawn


@drawn
def lists(rng):
    numbers = rng.sample(range(3, 100), 5)
    return [Case("drawn", lambda: (numbers,), expect=[2 * number for number in numbers])]


@right("adds each number to itself")
def by_adding(numbers):
    return [number + number for number in numbers]


squared = edited("did", "2 * 2 is 4, so squares will do", ("2 * number", "number**2"))
''',
    "points": '{"did": 1}',
    "imports": "",
}

# ---------------------------------------------------------------------------------------------------- a pass over FX

_FX = {
    "solution": '''
# %% [markdown]
# ## $title


# %%
def $name(gm: fx.GraphModule) -> fx.GraphModule:
    """-(-x) = x.

    In:  any graph; its nodes have shapes.
    Out: each torch.neg of a torch.neg is replaced by the value that is negated twice.
    Stays: a single torch.neg, and what other nodes read.
    """
    ### BEGIN SOLUTION
    for node in list(gm.graph.nodes):
        if node.target is torch.neg and node.args[0].target is torch.neg:
            node.replace_all_uses_with(node.args[0].args[0])
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm
    ### END SOLUTION


# %%
check("$id", $name)
''',
    "judge": '''"""$id: visible cases and judge."""

import torch

from passlab.fx.cases import case, expecting, graph, least, most

#: What makes two values equal, and the verdicts that follow from it.
judge = expecting()


@case("negated twice", graph(..., (2, 3)), did=[most("neg", 0, "The two cancel.", dead=True)])
def twice(m, x):
    return torch.relu(torch.neg(torch.neg(x)))


@case("negated once", graph(..., (2, 3)), spared=[least("neg", 2, "Something is between the two.")])
def once(m, x):
    return torch.neg(torch.relu(torch.neg(x)))
''',
    "hidden": '''"""Hidden cases and answers of $id."""

import torch
from torch import fx

from autograder.authoring.answers import edited, right
from passlab.fx.cases import case, graph, least, most
from passlab.judge import drawn


@drawn
def chains(rng):
    times = rng.randrange(2, 5) * 2
    cancel = most("neg", 0, "All of them cancel.", dead=True)

    @case(f"negated {times} times", graph(..., (3, times)), did=[cancel])
    def often(m, x):
        for _ in range(times):
            x = torch.neg(x)
        return x.abs()

    return [often]


@case("the first is read", graph(..., (2, 2)), spared=[least("neg", 1, "A product reads it.")])
def shared(m, x):
    y = torch.neg(x)
    return y * torch.neg(y)


@right("an interpreter builds the graph anew")
def anew(gm):
    class Shorter(fx.Transformer):
        def call_function(self, target, args, kwargs):
            if target is torch.neg and args[0].node.target is torch.neg:
                return fx.Proxy(args[0].node.args[0], args[0].tracer)
            return super().call_function(target, args, kwargs)

    made = Shorter(gm).transform()
    made.graph.eliminate_dead_code()
    made.recompile()
    return made


any_neg = edited("same", "one negation is as good as none", ("node.args[0].args[0]", "node.args[0]"))
''',
    "points": '{"valid": 1, "same": 2, "did": 2, "spared": 1}',
    "imports": "import torch\nfrom torch import fx\n",
}


def _kind(like: str, day: str) -> tuple[dict[str, str], str]:
    """Return the texts for an exercise like another one, and the flavour of its notebook."""
    if not like:
        return _PLAIN, "torch"
    exercise = _find_exercise(like, day)
    spec = importlib.util.find_spec(exercises.module_name(exercise.id))
    text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    return (_FX if "passlab.fx.cases" in text else _PLAIN), exercise.flavour


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

    like: an exercise; the new one takes its flavour, and is a pass over FX if that one is. Raises ValueError with a
    sentence for an id that cannot be, or is taken; KeyError for an unknown `like`.
    """
    match = _ID.fullmatch(exercise_id)
    if not match:
        raise ValueError(
            f"{exercise_id!r} is not an id. Write the day, a dot and a name of small letters, digits and hyphens, such "
            "as day03.strength-reduction."
        )
    day, name = match.groups()
    texts, flavour = _kind(like, day)
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
    function = name.replace("-", "_")
    notebook = written[0].notebook if written else "exercises"
    title = title or name.replace("-", " ").capitalize()
    values = {
        "id": exercise_id,
        "day": day,
        "name": function,
        "title": title,
        "notebook": notebook,
        "flavour": flavour,
        "points": texts["points"],
        "more": "        stretch=True,\n" if stretch else "",
    }
    heading = {**values, "title": f"{title} · stretch" if stretch else title}
    files = {
        listing.parent / f"{function}.py": texts["judge"],
        home / "autograder/answers" / day / f"{function}.py": texts["hidden"],
    }
    if taken := next((path for path in files if path.exists()), None):
        raise ValueError(f"{taken.relative_to(home)} exists already. Move it away, or choose another name.")
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
    cells = Template(texts["solution"]).substitute(heading)
    if texts["imports"] not in solution.read_text(encoding="utf-8"):
        cells = f"\n# %%\n{texts['imports']}\n{cells}"
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
