"""Day 14: what its exercises give to the process that runs an answer."""
