"""Estimate how long a lesson and an exercise take, by a rule: `python -m autograder.authoring.minutes` lists them.

The weights were fitted to seven days that people worked through with a clock, who knew Python and a little PyTorch. An
exercise takes them a minute for 60 words of text, two thirds of a minute for a line of the reference answer, and six
minutes for each step of difficulty; a lesson a minute for 40 words and a minute for 8 lines of code. All estimates are
rounded to five minutes.

A day fits a day: the core of a lesson takes at most `LESSON` minutes, the core exercises at most `EXERCISES`. The rest
is stretch: its heading says so, and its points are extra credit. The core of a stretch exercise takes as long as its
plain answer; what is left of the whole exercise is stretch.
"""

from __future__ import annotations

import ast
import io
import math
import re
import tokenize
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from autograder.authoring import answers, source
from passlab import exercises
from passlab.judge import Exercise, Written, listed
from passlab.notebook.cells import Cell, cells

LESSON, EXERCISES = 75, 120
STRETCH = " · stretch"
#: How the heading of a stretch exercise ends that has a core of its own.
BOTH = " · core and stretch"

_HEADING = re.compile(r"^# (#{1,3}) (?!BEGIN |END )(.*)$", re.M)
_RUBRIC = re.compile(rf"^# {source.RUBRIC.begin}.*?^# {source.RUBRIC.end}", re.M | re.S)
_GUESS = re.compile(r"guess$|\w+\.compare$")
_NUMBER = re.compile(r"\d+")
_BLANK = (tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class Section(NamedTuple):
    """A part of a notebook under one heading, with its cells. A part of a stretch section is stretch, too."""

    heading: str
    cells: list[Cell]
    stretch: bool


def sections(path: Path) -> list[Section]:
    """Return the sections of an authored notebook."""
    parts: list[Section] = []
    inside = False
    for cell in cells(path.read_text(encoding="utf-8")):
        if cell.markdown and (heading := _HEADING.search(cell.text)):
            marked = heading[2].endswith(STRETCH)
            inside = marked if len(heading[1]) < 3 else inside
            parts.append(Section(heading[2], [], marked or inside))
        if parts:
            parts[-1].cells.append(cell)
    return parts


def _rounded(minutes: float) -> int:
    return max(5, round(minutes / 5) * 5)


def _words(text: str) -> int:
    return len(re.findall(r"\w+", text))


def _lines(text: str) -> int:
    """Return the lines of a cell without comments, as they are where a line has 120 columns, however it is wrapped.

    A docstring is one line: its words are counted by themselves.
    """
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except tokenize.TokenError:  # a magic
        return sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in text.split("\n"))
    count = columns = breaks = last = 0
    is_text = True
    for token in tokens:
        if token.type in _BLANK:
            continue
        if token.type == tokenize.NEWLINE:
            count += 1 if is_text else breaks + 1 if breaks else math.ceil((columns + 4) / 120)
            columns = breaks = 0
            is_text = True
            continue
        is_text &= token.type == tokenize.STRING
        if token.start[0] != token.end[0]:  # lines of text
            breaks += token.end[0] - token.start[0]
        elif token.start[0] != last:
            columns += len(token.line.strip())
        last = token.end[0]
    return count


def lesson(path: Path, stretch: bool = False) -> int:
    """Return the minutes that a lesson's core takes, or its sections marked stretch (0 if there are none)."""
    cells = [cell for section in sections(path) if section.stretch == stretch for cell in section.cells]
    words = sum(_words(cell.text) for cell in cells if cell.markdown)
    lines = sum(_lines(_without_guesses(cell.text)) for cell in cells if not cell.markdown)
    return _rounded(words / 40 + lines / 8) if cells else 0


def _without_guesses(text: str) -> str:
    """Return a cell without what asks for a guess and compares it: who wants to read on leaves it out."""
    try:
        statements = ast.parse(text).body
    except SyntaxError:  # a magic
        return text
    lines = text.split("\n")
    for statement in reversed(statements):
        call = getattr(statement, "value", None)
        if isinstance(call, ast.Call) and _GUESS.match(ast.unparse(call.func)):
            del lines[statement.lineno - 1 : statement.end_lineno]
    return "\n".join(lines)


def _section(one: Exercise | Written) -> tuple[Section, Cell]:
    """Return the section of its notebook that holds an exercise, and its answer cell."""
    if isinstance(one, Written):
        return _section_of_written(one)
    place = source.find(one.id)
    return next(s for s in sections(place.path) if place.answer in s.cells), place.answer


def _section_of_written(one: Written) -> tuple[Section, Cell]:
    """Return the section of its notebook that holds a question graded by a person, and the cell of its answer.

    Raises KeyError if the notebook has no rubric of it.
    """
    path = source.COURSE / "solutions" / one.day / f"{one.notebook}.py"
    for section in sections(path):
        for cell, answer in pairwise(section.cells):
            if f"{source.RUBRIC.begin} {one.id}\n" in cell.text:
                return section, answer
    raise KeyError(f"{path.name} has no “{source.RUBRIC.begin} {one.id}” in a section of its own.")


def exercise(one: Exercise | Written) -> int:
    """Return the minutes that an exercise takes: reading it, thinking, and writing an answer like the reference.

    Prose takes a minute for 10 words, where code takes two thirds of a minute for a line.
    """
    section, answer = _section(one)
    before = section.cells[: section.cells.index(answer)]
    if isinstance(one, Written):
        text = "\n".join(_RUBRIC.sub("", cell.text) for cell in before)
        return _rounded(_words(text) / 60 + _words(answer.text) / 10 + 6 * one.difficulty)
    blank = source.blank(answer.text)
    words = _words(blank) + sum(_words(cell.text) for cell in before if cell.markdown)
    lines = _plain_lines(one) or _lines(answer.text) - _lines(blank) + 1  # the stub is one line
    minutes = _rounded(words / 60 + lines * 2 / 3 + 6 * one.difficulty)
    return max(5, minutes - one.core.minutes) if one.core else minutes


def _plain_lines(one: Exercise) -> int:
    """Return the lines of the plain answer to a core, without its mark and its heading; 0 for another exercise."""
    if not exercises.is_core(one.id):
        return 0
    path = source.COURSE / Path(*answers.module_name(one.id).split(".")).with_suffix(".py")
    text = path.read_text(encoding="utf-8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    plain = [f for f in functions if any(ast.unparse(mark).startswith("plain(") for mark in f.decorator_list)]
    return min((_lines(ast.get_source_segment(text, f) or "") - 1 for f in plain), default=0)


def _all(day: str) -> list[Exercise | Written]:
    """Return the exercises of a day, those that a person grades last."""
    return [*exercises.of_day(day), *exercises.written(day)]


def _is_stretch(one: Exercise | Written) -> bool:
    return isinstance(one, Exercise) and one.stretch


def _end(one: Exercise | Written) -> str:
    """Return how the heading of an exercise ends, or ""."""
    if isinstance(one, Written):
        return ""
    if one.core or exercises.is_core(one.id):
        return BOTH
    return STRETCH if one.stretch else ""


def _core_and_stretch(some: Iterable[Exercise | Written]) -> tuple[int, int]:
    """Return the minutes of core and of stretch exercises, as they are stated."""
    times = [0, 0]
    for one in some:
        times[_is_stretch(one)] += one.minutes
    return times[0], times[1]


def head(path: Path) -> str:
    """Return the sentence in the head of an exercise notebook: its core and its stretch, with their minutes."""
    tasks = [e for e in _all(path.parent.name) if e.notebook == path.stem]
    core, stretch = _core_and_stretch(tasks)
    if not core:
        return f"It is stretch, about {stretch} minutes: harder, and for extra credit."
    plain = {e.id: exercises.is_core(e.id) for e in tasks}
    questions = listed(_numbers(e for e in tasks if not _is_stretch(e) and not plain[e.id]))
    parts = [f"question{'s' * (not questions.isdigit())} {questions}"] if questions else []
    if numbers := _numbers(e for e in tasks if plain[e.id]):
        parts.append(f"the plain cases of {listed(numbers)}")
    first = f"The core is {' and '.join(parts)}, about {core} minutes"
    rest = f"; the rest, about {stretch} minutes, is stretch: harder, and for extra credit." if stretch else "."
    return first + rest


def _numbers(some: Iterable[Exercise | Written]) -> list[str]:
    """Return the numbers in the headings of exercises."""
    headings = (_NUMBER.match(_section(one)[0].heading) for one in some)
    return [heading[0] for heading in headings if heading]


def told_of_lesson(path: Path) -> str:
    """Return the sentence in the head of a lesson."""
    stretch = lesson(path, stretch=True)
    extra = f", and {stretch} more for what is marked stretch" if stretch else ""
    return f"The lesson takes about {lesson(path)} minutes{extra}."


def rows(lessons: Iterable[Path]) -> Iterator[str]:
    """Yield the rows of the index's table of minutes: day, lesson and exercises, each core + stretch."""
    for path in lessons:
        day = path.stem.split("_")[0]
        times = (lesson(path), lesson(path, stretch=True)), _core_and_stretch(_all(day))
        columns = [f"{core} + {stretch}" if stretch else f"{core}" for core, stretch in times]
        yield f"| {int(day.removeprefix('day'))} | {' | '.join(columns)} |"


def wrong() -> Iterator[str]:
    """Yield one sentence for each estimate, heading or head of a notebook that does not follow from the rule."""
    for day in exercises.days():
        for one in _all(day):
            if one.minutes != (by_rule := exercise(one)):
                yield f"{one.id}: minutes={by_rule} by the rule, not {one.minutes}."
            heading, end = _section(one)[0].heading, _end(one)
            if not heading.endswith(end) or (not end and heading.endswith("stretch")):
                yield (
                    f"{one.id}: its heading should end in “{end.strip()}”." if end else f"{one.id}: it is not stretch."
                )
        core, _ = _core_and_stretch(_all(day))
        if core > EXERCISES:
            yield f"{day}: its core exercises take {core} minutes; at most {EXERCISES} fit a day."
    for path in source.notebooks():
        if head(path) not in _prose(path):
            yield f"{path.parent.name}/{path.name}: its head should say: {head(path)}"
    lessons = sorted((source.ROOT / "course").glob("day*.py"))
    yield from _wrong_lessons(lessons)
    index = (source.ROOT / "course" / "index.py").read_text(encoding="utf-8")
    yield from (f"course/index.py should have the row: {row}" for row in rows(lessons) if row not in index)


def _wrong_lessons(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        if lesson(path) > LESSON:
            yield f"{path.name}: its core takes {lesson(path)} minutes; at most {LESSON} fit a day."
        if told_of_lesson(path) not in _prose(path):
            yield f"{path.name}: its head should say: {told_of_lesson(path)}"


def _prose(path: Path) -> str:
    return " ".join(path.read_text(encoding="utf-8").replace("\n#", "\n").split())


if __name__ == "__main__":
    for path in sorted((source.ROOT / "course").glob("day*.py")):
        print(f"{path.stem:<28}{lesson(path):4} min, stretch {lesson(path, stretch=True)}")
    for day in exercises.days():
        for one in _all(day):
            print(f"{one.id:<28}{exercise(one):4} min{' (stretch)' * _is_stretch(one)}")
    print(*wrong(), sep="\n")
