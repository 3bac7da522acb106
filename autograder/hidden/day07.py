"""Day 7: the cases that learners do not see, drawn from a seed. Generated modules, zoo models, traps made by hand."""

from __future__ import annotations

# ------------------------------------------------------------------------------------------- exercises 1 to 4


# ------------------------------------------------------------------------------------------- exercises 5 to 8


HIDDEN = {
    # 1 to 4
    # 5 to 8
}
