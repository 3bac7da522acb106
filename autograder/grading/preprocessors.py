"""What this course adds to nbgrader's steps. Each class is one step; the lists at the end say where they stand.

- releasing: take out what belongs to the authored pair only, and stamp the release, so that copies know their origin
- grading: the engine runs and judges a notebook, in place of a kernel, and its verdicts are kept with their seed
- validating, on the learner's machine: a kernel, in which a cell that kills it costs its own question only
"""

from __future__ import annotations

import atexit
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.preprocessors import ClearHiddenTests, Execute, GetGrades, NbGraderPreprocessor, SaveAutoGrades
from nbgrader.utils import is_grade
from nbgrader.validator import Validator
from traitlets import Bool

from autograder.authoring.answers import run_seed
from autograder.authoring.notebooks import source_notebook
from autograder.grading.gradebook import Failed, variable
from autograder.grading.intake import died, fill, job, read, repair
from autograder.grading.recorder import Recorder
from autograder.grading.scores import Run


class Stamp(NbGraderPreprocessor):
    """A release carries a fingerprint of itself, and no pairing with a `.py` that the learner does not have."""

    def preprocess(self, nb, resources):
        nb.metadata.pop("jupytext", None)
        told = "\0".join(f"{cell.cell_type}\0{cell.source}" for cell in nb.cells)
        nb.metadata["passlab"] = {"release": hashlib.sha256(told.encode()).hexdigest()[:12]}
        return nb, resources


class Repair(NbGraderPreprocessor):
    """Take in a submission: refuse what is no ordinary notebook, and put back the cells and ids that it lost."""

    def preprocess(self, nb, resources):
        place, file = resources["nbgrader"], resources["metadata"]
        nb = read(Path(file["path"], f"{file['name']}.ipynb").absolute())
        for note in repair(nb, source_notebook(place["assignment"], place["notebook"])):
            self.log.warning("%s: %s", place["student"], note)
        return nb, resources


@cache
def _engine(unsafe: bool):
    """The engine of this process, started when the first notebook comes."""
    from autograder.engine.engine import Engine

    engine = Engine(1, unsafe)
    atexit.register(engine.close)
    return engine


_recorders: list[tuple[Recorder, Run]] = []


def _recorder(config) -> tuple[Recorder, Run]:
    """The recorder of this process, and the run of all that nbgrader grades in it."""
    if not _recorders:
        recorder = Recorder(config)
        atexit.register(recorder.close)
        _recorders.append((recorder, recorder.aside(run_seed())))
    return _recorders[0]


class RunInEngine(NbGraderPreprocessor):
    """Run a notebook and judge its answers in the engine."""

    unsafe = Bool(False, help="Grade even where the sandbox is not whole; feedback says so.").tag(config=True)

    def preprocess(self, nb, resources):
        place = resources["nbgrader"]
        assignment, notebook = place["assignment"], place["notebook"]
        authored = source_notebook(assignment, notebook)  # all is run: nbgrader has cleared what was handed in
        todo = job(nb, authored, place["student"], assignment, notebook, run_seed(), run_all=True)
        result = _engine(self.unsafe).grade(todo)
        if result.failure:
            raise Failed(f"{place['student']}, {assignment}/{notebook}: {result.failure}")
        fill(nb, result)
        resources["passlab"] = result
        return nb, resources


class SaveVerdicts(NbGraderPreprocessor):
    """Keep what is behind the grades that nbgrader has just saved: the seed, and the verdict on each question."""

    def preprocess(self, nb, resources):
        recorder, run = _recorder(self.config)
        recorder.note(run, resources["nbgrader"]["student"], nb, resources["passlab"])
        return nb, resources


class CarryOn(Execute):
    """Run a notebook in a kernel; where a cell kills it, run the notebook again without that cell.

    Standard error in a check cell counts as output, because nbgrader takes all points for a warning; and of what a
    cell prints, only the first `max_text` characters are kept.
    """

    max_deaths = 5
    max_text = 50_000

    def preprocess(self, nb, resources=None, km=None):
        with tempfile.TemporaryDirectory() as folder:
            nobodys = os.path.join(folder, "progress.json")
            with variable("PASSLAB_PROGRESS", nobodys):
                return self._carry_on(nb, resources, km)

    def _carry_on(self, nb, resources, km):
        self.deadly: dict[int, str] = {}
        while True:
            self.at = 0
            try:
                return Execute.preprocess(self, nb, resources, km)
            except DeadKernelError:
                self.deadly[self.at] = "The Python process ended in this cell (a crash, or a call of exit)."
            except CellTimeoutError:
                self.deadly[self.at] = "This cell ran too long and could not be interrupted."
            if len(self.deadly) >= self.max_deaths:
                rest = range(self.at + 1, len(nb.cells))
                self.deadly |= dict.fromkeys(rest, f"Not run: {self.max_deaths} cells above ended the Python process.")

    def preprocess_cell(self, cell, resources, index):
        self.at = index
        if why := self.deadly.get(index):
            if cell.cell_type == "code":
                cell.outputs = [died(why)]
            return cell, resources
        cell, resources = super().preprocess_cell(cell, resources, index)
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                if len(output.text) > self.max_text:
                    output.text = f"{output.text[: self.max_text]}\n… {len(output.text):,} characters in all"
                if is_grade(cell):
                    output.name = "stdout"
        return cell, resources


def use_for_validation() -> None:
    """`nbgrader validate` has no setting for its steps; give it an executor that outlives a kernel."""
    steps = [CarryOn if step is Execute else step for step in Validator.preprocessors.default_args[0]]
    Validator.preprocessors.default_args = (steps,)


def _default(converter, trait: str) -> list:
    return list(converter.class_traits()[trait].default_args[0])


RELEASING = [*_default(GenerateAssignment, "preprocessors"), Stamp]
SANITIZING = [Repair, *_default(Autograde, "sanitize_preprocessors")]
GRADING = [RunInEngine if step is Execute else step for step in _default(Autograde, "autograde_preprocessors")]
GRADING.insert(GRADING.index(SaveAutoGrades) + 1, SaveVerdicts)
FEEDBACK = [GetGrades, ClearHiddenTests, CSSHTMLHeaderPreprocessor]
