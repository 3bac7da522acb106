"""This course's additions to nbgrader's steps. Each class is one step; the lists at the end give their order.

- releasing: remove what belongs to the authored pair only, and stamp the release, so that copies show their origin
- grading: the engine runs and judges a notebook, in place of a kernel, and its verdicts are kept with their seed
- validating, on the learner's machine: a kernel, in which a cell that kills it costs only its question
"""

from __future__ import annotations

import atexit
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert.exporters import NotebookExporter
from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbformat.v4 import new_notebook
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.preprocessors import (
    ClearHiddenTests,
    ClearMarkScheme,
    Execute,
    GetGrades,
    NbGraderPreprocessor,
    SaveAutoGrades,
)
from nbgrader.utils import is_grade
from nbgrader.validator import Validator
from traitlets import Bool

from autograder.authoring.answers import run_seed
from autograder.authoring.notebooks import source_notebook
from autograder.grading.gradebook import GradebookError, variable
from autograder.grading.intake import dead_output, fill, job, read, repair
from autograder.grading.recorder import Recorder
from autograder.grading.scores import Run


class Stamp(NbGraderPreprocessor):
    """Stamp a release with its fingerprint, and remove the pairing with a `.py` that the learner does not have."""

    def preprocess(self, nb, resources):
        nb.metadata.pop("jupytext", None)
        content = "\0".join(f"{cell.cell_type}\0{cell.source}" for cell in nb.cells)
        nb.metadata["passlab"] = {"release": hashlib.sha256(content.encode()).hexdigest()[:12]}
        return nb, resources


class Repair(NbGraderPreprocessor):
    """Read a submission: reject what is not an ordinary notebook, and restore the cells and ids that it lost."""

    def preprocess(self, nb, resources):
        place, file = resources["nbgrader"], resources["metadata"]
        nb = read(Path(file["path"], f"{file['name']}.ipynb").absolute())
        for note in repair(nb, source_notebook(place["assignment"], place["notebook"])):
            self.log.warning("%s: %s", place["student"], note)
        return nb, resources


class Submitted(NotebookExporter):
    """Leave the reading of a submitted notebook to `Repair`: nbconvert would parse and validate it here."""

    def from_file(self, file_stream, resources=None, **kw):
        if any(isinstance(step, Repair) for step in self._preprocessors):
            return self.from_notebook_node(new_notebook(), resources, **kw)
        return super().from_file(file_stream, resources, **kw)


@cache
def _engine(unsafe: bool):
    """Return the engine of this process, started for the first notebook."""
    from autograder.engine.engine import Engine

    engine = Engine(1, unsafe)
    atexit.register(engine.close)
    return engine


_recorders: list[tuple[Recorder, Run]] = []


def _recorder(config) -> tuple[Recorder, Run]:
    """Return the recorder of this process, and its run, which covers all that nbgrader grades here."""
    if not _recorders:
        recorder = Recorder(config)
        atexit.register(recorder.close)
        _recorders.append((recorder, recorder.scratch_run(run_seed())))
    return _recorders[0]


class RunInEngine(NbGraderPreprocessor):
    """Run a notebook and judge its answers in the engine."""

    unsafe = Bool(False, help="Grade even if the sandbox is incomplete; feedback warns of it.").tag(config=True)

    def preprocess(self, nb, resources):
        place = resources["nbgrader"]
        assignment, notebook = place["assignment"], place["notebook"]
        authored = source_notebook(assignment, notebook)  # all cells run: nbgrader has cleared the submitted outputs
        todo = job(nb, authored, place["student"], assignment, notebook, run_seed(), run_all=True)
        result = _engine(self.unsafe).grade(todo)
        if result.failure:
            raise GradebookError(f"{place['student']}, {assignment}/{notebook}: {result.failure}")
        fill(nb, result)
        resources["passlab"] = result
        return nb, resources


class SaveVerdicts(NbGraderPreprocessor):
    """Keep the basis of the grades that nbgrader has just saved: the seed, and the verdict on each question."""

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
            path = os.path.join(folder, "progress.json")
            with variable("PASSLAB_PROGRESS", path):
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
        if reason := self.deadly.get(index):
            if cell.cell_type == "code":
                cell.outputs = [dead_output(reason)]
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
    """Replace the executor of `nbgrader validate`, which has no setting for it, by one that outlives a kernel."""
    steps = [CarryOn if step is Execute else step for step in Validator.preprocessors.default_args[0]]
    Validator.preprocessors.default_args = (steps,)


def _default(converter, trait: str) -> list:
    return list(converter.class_traits()[trait].default_args[0])


RELEASING = [*_default(GenerateAssignment, "preprocessors"), Stamp]
SANITIZING = [Repair, *_default(Autograde, "sanitize_preprocessors")]
GRADING = [RunInEngine if step is Execute else step for step in _default(Autograde, "autograde_preprocessors")]
GRADING.insert(GRADING.index(SaveAutoGrades) + 1, SaveVerdicts)
FEEDBACK = [GetGrades, ClearHiddenTests, ClearMarkScheme, CSSHTMLHeaderPreprocessor]
