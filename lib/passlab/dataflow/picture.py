"""How `draw` shows a control-flow graph: blocks with their instructions."""

from passlab.drawing.flow import flow as draw

__all__ = ["draw"]
