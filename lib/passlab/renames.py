"""Modules of the first release, under the names by which its notebooks import them.

A learner's copy of a notebook outlives the library's folders: `from passlab.effects import written` goes on working.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: module that is gone → where its names are now, the first place that has a name
_MODULES = {
    "beside": ("notebook.beside",),
    "builds": ("tvm.builds",),
    "effects": ("fx.effects",),
    "exercises.cases_day04_cost": ("given.day04.cost", "exercises.day04.cost"),
    "exercises.cases_day04_groups": ("exercises.day04.groups",),
    "exercises.cases_day08_tuner": ("exercises.day08.tuner",),
    "exercises.cases_day10_nests": ("given.day10.domains", "exercises.day10.domains"),
    "exercises.cases_day10_tile": ("given.day10.tile", "exercises.day10.tile"),
    "fusing": ("relax.fusing",),
    "importers": ("tvm.importers",),
    "judge_tvm": ("tvm.judge",),
    "kernel_schedule": ("kernels.schedule",),
    "layout": ("fx.layout",),
    "machine": ("measure.machine",),
    "measure_tvm": ("tvm.measure", "measure"),
    "op_patterns": ("fx.patterns",),
    "ops": ("fx.ops",),
    "passes": ("fx.manager",),
    "pipelines": ("relax.pipelines",),
    "postdominators": ("fx.dominators",),
    "rewrites": ("fx.rewrites",),
    "stages": ("fx.stages",),
    "structure_tvm": ("tvm.modules",),
    "suspects": ("fx.suspects",),
}
RENAMED = {f"passlab.{old}": tuple(f"passlab.{new}" for new in places) for old, places in _MODULES.items()}
#: names that have changed with their module
_NAMES = {("passlab.exercises.cases_day08_tuner", "tuner_cases"): "cases"}


class _Renamed(MetaPathFinder, Loader):
    """Makes a module of an old name, whose names are looked up in the new places."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in RENAMED else None

    def exec_module(self, module: ModuleType) -> None:
        def look(name: str) -> Any:
            for place in RENAMED[module.__name__]:
                home = importlib.import_module(place)
                if hasattr(home, wanted := _NAMES.get((module.__name__, name), name)):
                    return getattr(home, wanted)
            raise AttributeError(f"{module.__name__} is now {RENAMED[module.__name__][0]}, which has no {name!r}.")

        module.__getattr__ = look


def install() -> None:
    """Let Python's import find the old names, after everything that there is."""
    sys.meta_path.append(_Renamed())
