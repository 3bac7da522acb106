"""Day 6: what exercises give to the process that runs an answer."""
