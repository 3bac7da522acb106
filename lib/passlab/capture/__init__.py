"""What torch.compile does with a function: the graphs that Dynamo captures, the breaks between them, their guards.

program = capture(f, x)
program.graphs, program.breaks       # draw(program), view(program)
program(y); program.counts           # how many graphs each call compiled
"""

from passlab.capture.lowering import OVERWRITTEN, Backend, Lowered, Saved, backend, lower, min_cut, save_all
from passlab.capture.recorder import REASONS, Break, Capture, Compilation, Guard, capture

__all__ = [
    "OVERWRITTEN",
    "REASONS",
    "Backend",
    "Break",
    "Capture",
    "Compilation",
    "Guard",
    "Lowered",
    "Saved",
    "backend",
    "capture",
    "lower",
    "min_cut",
    "save_all",
]
