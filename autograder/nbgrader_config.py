"""Settings for nbgrader: `nbgrader generate_assignment day01`, `validate`, `autograde`, … from the project's folder.

PASSLAB_RUN names another folder for submissions, feedback and gradebook (the sample class has its own).
PASSLAB_COURSE names the folder of a course outside this project.
PASSLAB_DB names another database for the gradebook, such as postgresql://user:password@host/database.
PASSLAB_EXCHANGE names the folder of the exchange, and PASSLAB_COURSE_ID a course in it: a hub sets them.
PASSLAB_SEED fixes the seed from which the hidden cases are drawn; without it every run draws a new one.
"""

import contextlib
import os
import sys
from pathlib import Path

from autograder.grading import gradebook, preprocessors, safe_html
from autograder.grading.exchange import Collect, ReleaseFeedback
from autograder.grading.late import LateDays
from autograder.reports.export_plugin import SafeCsv
from passlab import course_paths

c = get_config()  # noqa: F821  (given by traitlets)

root = course_paths.course()
run = os.environ.get("PASSLAB_RUN", "autograder/run")
with contextlib.suppress(OSError):  # a project that cannot be written can still be read
    (root / run).mkdir(parents=True, exist_ok=True)

c.CourseDirectory.course_id = os.environ.get("PASSLAB_COURSE_ID", "passlab")
c.CourseDirectory.root = str(root)
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
c.CourseDirectory.submitted_directory = f"{run}/submitted"
c.CourseDirectory.autograded_directory = f"{run}/autograded"
c.CourseDirectory.feedback_directory = f"{run}/feedback"
c.CourseDirectory.source_with_tests_directory = f"{run}/source_with_tests"
c.CourseDirectory.solution_directory = f"{run}/solution"
c.CourseDirectory.db_url = gradebook.database(root / run)
# The `.py` beside each authored notebook holds the answers: it must never be copied into a release.
c.CourseDirectory.ignore = ["*.py", "*.pyc", "__pycache__", ".ipynb_checkpoints"]

c.ClearSolutions.code_stub = {"python": "raise NotImplementedError()"}
c.ClearMarkScheme.enforce_metadata = False  # a rubric stands above the answer, in a cell that gives no points itself
c.GenerateAssignment.preprocessors = preprocessors.RELEASING
c.Autograde.exporter_class = preprocessors.Submitted
c.Autograde.sanitize_preprocessors = preprocessors.SANITIZING
c.Autograde.autograde_preprocessors = preprocessors.GRADING
c.GenerateFeedback.preprocessors = preprocessors.FEEDBACK
# formgrader's pages and those of generate_feedback: what learners wrote neither runs nor loads there.
c.HTMLExporter.preprocessors = [safe_html.SafeHTML]
c.HTMLExporter.filters = safe_html.FILTERS
c.HTMLExporter.sanitize_html = False  # it would also take the pictures from verdicts
c.GenerateFeedback.exporter_class = safe_html.SafePage
c.ExportApp.plugin_class = SafeCsv
c.AssignLatePenalties.plugin_class = LateDays  # c.LateDays.per_day = 0.1 makes a late day cost a tenth
c.ExchangeFactory.collect = Collect
c.ExchangeFactory.release_feedback = ReleaseFeedback
if exchange := os.environ.get("PASSLAB_EXCHANGE"):
    c.Exchange.root = exchange
gradebook.take_literally(root)
preprocessors.use_for_validation()
safe_html.guard_formgrader()

# A cell gets a minute, then it is interrupted. Answers have a shorter limit of their own, kept by the judge.
c.Execute.timeout = 60
c.Execute.interrupt_on_timeout = True

# Kernels started from here are this environment's python3 and find its tools.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
