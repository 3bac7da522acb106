"""Equality saturation: all rewrites at once, then the cheapest term (see `graph`, `laws`, `extract`)."""

from passlab.egraph.extract import cheapest, cheapest_shared
from passlab.egraph.graph import Analysis, EGraph, Step
from passlab.egraph.laws import Law, Report, matches, saturate
from passlab.egraph.picture import draw_classes

__all__ = ["Analysis", "EGraph", "Law", "Report", "Step", "cheapest", "cheapest_shared", "draw_classes", "matches"]
__all__ += ["saturate"]
