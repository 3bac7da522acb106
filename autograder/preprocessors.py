"""What this course adds to nbgrader's steps. Each class is one step; the lists at the end say where they stand.

- releasing: take out what belongs to the authored pair only, and stamp the release, so that copies know their origin
- grading: a warning costs no points, and a cell that kills the kernel costs its own question only
- feedback: nothing of the hidden tests, be it source, traceback or output
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbformat.v4 import new_output
from nbgrader import utils
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.preprocessors import ClearHiddenTests, Execute, GetGrades, NbGraderPreprocessor
from nbgrader.validator import Validator

from autograder.grading import HIDDEN_BEGINS, VERDICT, run_seed
from autograder.intake import repair

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_CELL_LINE = re.compile(r"Cell In\[\d+\], line (\d+)")


class Stamp(NbGraderPreprocessor):
    """A release carries a fingerprint of itself, and no pairing with a `.py` that the learner does not have."""

    def preprocess(self, nb, resources):
        nb.metadata.pop("jupytext", None)
        told = "\0".join(f"{cell.cell_type}\0{cell.source}" for cell in nb.cells)
        nb.metadata["passlab"] = {"release": hashlib.sha256(told.encode()).hexdigest()[:12]}
        return nb, resources


class Repair(NbGraderPreprocessor):
    """Put back what a submission lost: check cells, and the ids by which cells are known."""

    def preprocess(self, nb, resources):
        from autograder.notebooks import source_notebook

        place = resources["nbgrader"]
        for note in repair(nb, source_notebook(place["assignment"], place["notebook"])):
            self.log.warning("%s: %s", place["student"], note)
        return nb, resources


class CarryOn(Execute):
    """Run a notebook; where a cell kills the kernel, run the notebook again without that cell.

    Standard error in a check cell counts as output, because nbgrader takes all points for a warning; and of what a
    cell prints, only the first `max_text` characters are kept.
    """

    max_deaths = 5
    max_text = 50_000

    def preprocess(self, nb, resources=None, km=None):
        """What the kernel is told by its environment: the seed of this run, and a progress file of nobody's."""
        with tempfile.TemporaryDirectory() as folder:
            progress = os.path.join(folder, "progress.json")
            with utils.setenv(PASSLAB_SEED=str(run_seed()), PASSLAB_PROGRESS=progress):
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
                cell.outputs = [new_output("error", ename="KernelDied", evalue=why, traceback=[f"KernelDied: {why}"])]
            return cell, resources
        cell, resources = super().preprocess_cell(cell, resources, index)
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                if len(output.text) > self.max_text:
                    output.text = f"{output.text[: self.max_text]}\n… {len(output.text):,} characters in all"
                if utils.is_grade(cell):
                    output.name = "stdout"
        return cell, resources


class HideTests(ClearHiddenTests):
    """Take the hidden tests out of feedback: their source, what they printed or drew, and tracebacks through them."""

    def preprocess_cell(self, cell, resources, cell_index):
        lines = cell.source.split("\n")
        first_hidden = next((n for n, line in enumerate(lines, 1) if self.begin_test_delimeter in line), None)
        super().preprocess_cell(cell, resources, cell_index)
        if first_hidden is not None and cell.cell_type == "code":
            cell.outputs = self._visible(cell.outputs, first_hidden)
        return cell, resources

    def _visible(self, outputs, first_hidden):
        kept, hidden = [], False
        for output in outputs:
            if HIDDEN_BEGINS in output.get("data", {}):
                hidden = True
            elif VERDICT in output.get("data", {}):
                kept.append(output)
            elif output.output_type == "error":
                kept.append(self._short(output, first_hidden, hidden))
            elif not hidden and output.output_type != "execute_result":
                kept.append(output)
        return kept

    def _short(self, error, first_hidden, hidden):
        """The error in one line; where it arose in the hidden part, without its text."""
        if error.ename != "KernelDied":
            at = _CELL_LINE.search(_ANSI.sub("", "\n".join(error.traceback)))
            if hidden or at is None or int(at[1]) >= first_hidden:
                error.evalue = "raised while the hidden tests ran"
        line = f"{error.ename}: {error.evalue}"
        return new_output("error", ename=error.ename, evalue=error.evalue, traceback=[line])


def use_for_validation() -> None:
    """`nbgrader validate` has no setting for its steps; give it the same executor as grading."""
    steps = [CarryOn if step is Execute else step for step in Validator.preprocessors.default_args[0]]
    Validator.preprocessors.default_args = (steps,)


def _default(converter, trait: str) -> list:
    return list(converter.class_traits()[trait].default_args[0])


RELEASING = [*_default(GenerateAssignment, "preprocessors"), Stamp]
SANITIZING = [Repair, *_default(Autograde, "sanitize_preprocessors")]
GRADING = [CarryOn if step is Execute else step for step in _default(Autograde, "autograde_preprocessors")]
FEEDBACK = [GetGrades, HideTests, CSSHTMLHeaderPreprocessor]
