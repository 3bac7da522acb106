"""Bank answers to the exercises of day 1."""
