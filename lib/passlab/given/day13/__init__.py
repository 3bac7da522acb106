"""What the exercises of day 13 give to the process that runs an answer."""
