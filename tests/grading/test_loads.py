"""What the process that grades a class does not load: its start is most of the time that a small class takes."""

import subprocess
import sys

MODULES = "autograder.commands, autograder.grading.class_run, autograder.reports.feedback, autograder.reports.report"


def test_the_process_that_grades_a_class_does_not_load_torch():
    code = f"import sys, {MODULES}\nprint('torch' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert process.stdout.strip() == "False"
