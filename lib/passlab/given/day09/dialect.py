"""Day 9, dialect: the answer reads the text itself."""
