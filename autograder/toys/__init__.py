"""Small courses, classes of learners and a hub, for tests and benchmarks."""
