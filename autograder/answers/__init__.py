"""One folder per day, one module per exercise: its hidden cases, drawn from a seed, and its wrong and right answers."""

from passlab import course_paths

__path__ += course_paths.package_dirs("autograder/answers")
