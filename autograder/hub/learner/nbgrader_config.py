"""nbgrader on a learner's server: fetch, submit and feedback, in `work/`."""

# mypy: disable-error-code="name-defined"

import os
from pathlib import Path

c = get_config()  # noqa: F821  (given by traitlets)

c.CourseDirectory.course_id = os.environ["PASSLAB_COURSE_ID"]
c.Exchange.root = os.environ["PASSLAB_EXCHANGE"]
c.Exchange.assignment_dir = str(Path.home() / "work")
