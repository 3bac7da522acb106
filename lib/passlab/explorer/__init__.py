"""The Pass Explorer: passes in any order, each on or off, and what each of them does to a program.

    explore(model, x)                                # this course's and torch's passes, all off at first
    explore(model, x, passes=[my_cse, "dce"])        # these are on; the others follow
    print(explore(model, x, passes=[my_cse]))        # the same in words

Reading order: programs (a model with its source), passes (which there are, and one call), origins (where a node comes
from), states (the program after each pass), show (widget, page and text). `explorer.js` draws all three.
"""

from passlab.explorer.show import Explorer, explore

__all__ = ["Explorer", "explore"]
