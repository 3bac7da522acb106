"""Day 17: what its exercises give to the process that runs an answer."""
