"""One folder per day, one module per exercise: its hidden cases, drawn from a seed, and its wrong and right answers."""

from passlab import place

__path__ += place.parts("autograder/answers")
