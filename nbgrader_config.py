"""nbgrader looks for this file where it is started; the settings themselves lie with the instructor's part."""

load_subconfig("autograder/nbgrader_config.py")  # noqa: F821  (given by traitlets)
