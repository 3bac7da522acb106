"""One folder per day, one module per exercise: its hidden cases, drawn from a seed, and its wrong and right answers."""
