"""Equality saturation: all rewrites at once, then the cheapest term (see `graph`, `laws`, `extract`)."""

from passlab.egraph.extract import cheapest, cheapest_shared
from passlab.egraph.graph import Analysis, EGraph, Step
from passlab.egraph.laws import Law, Report, saturate

__all__ = ["Analysis", "EGraph", "Law", "Report", "Step", "cheapest", "cheapest_shared", "saturate"]
