"""The notebook's side of the course: checks, hints and solutions, the learner's copies, a second kernel."""
