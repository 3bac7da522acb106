"""PassLab: graph IRs and compiler passes, learned by writing them.

Everything a notebook needs has one name here (`from passlab import draw, check`); torch and the compilers load when
they are first used.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

#: public name → module that holds it
HOME = {
    "draw": "drawing",
    "diff": "drawing",
    "explore": "explorer",
    "steps": "drawing",
    "chart": "drawing",
    "view": "graph",
    "trace": "fx.reader",
    "equivalent": "equivalence",
    "random_graph": "fx.generate",
    "shrink": "equivalence",
    "timed": "measure",
    "launches": "measure",
    "bytes_moved": "measure",
    "peak_memory": "measure",
    "cost": "measure",
    "backend": "capture",
    "check": "notebook.ui",
    "hint": "notebook.ui",
    "smaller": "notebook.ui",
    "solution": "notebook.ui",
    "progress": "notebook.overview",
    "milestones": "notebook.milestones",
    "guess": "notebook.guesses",
    "review": "notebook.reviews",
    "answer": "notebook.reviews",
    "fast_track": "notebook.reviews",
}
_MODULES = ("models",)

__all__ = [*HOME, *_MODULES]


def __getattr__(name: str):
    if name in HOME:
        return getattr(importlib.import_module(f"passlab.{HOME[name]}"), name)
    if name in _MODULES:
        return importlib.import_module(f"passlab.{name}")
    raise AttributeError(f"passlab has no {name!r}. It has: {', '.join(__all__)}.")


def __dir__():
    return __all__
