"""What a notebook talks to: checks, hints and solutions, the learner's copies, a second kernel."""
