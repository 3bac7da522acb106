"""Compiled models: the attack is in the data that a compiler hands over, of which a program would be built."""

from __future__ import annotations

from tests.attacks.attack import Attack, answer

_COMPILED = """
import torch
from passlab.capstone import Compiled, Triton
from passlab.memory.plan import Plan
{more}
def dce(gm):
    return {value}
"""
_CODE = """
class Runs(Compiled):
    def __getattribute__(self, name):
        open("/tmp/plattack", "w").close()
        return super().__getattribute__(name)

class Opens:
    def __reduce__(self):
        return open, ("/tmp/plattack", "w")
"""

#: Name → (what it tries, what the answer returns).
_ATTACKS = {
    "subclass": ("a Compiled of the answer's own class, whose fields run code when they are read", "Runs(gm)"),
    "pickled": ("a schedule that would open a file if it were unpickled", "Compiled(gm, [], {'a': {'tile': Opens()}})"),
    "knobs": ("loops in tiles of a billion elements", "Compiled(gm, [['add']], {'add': {'tile': 10**9}})"),
    "names": ("a million groups", "Compiled(gm, [['add']] * 1_000_000)"),
    "places": (
        "a plan whose places lie before and far behind the arena",
        "Compiled(gm, [], {}, Plan(('x',), {'x': -2**70}, 2**70))",
    ),
    "kernel": (
        "a kernel whose text opens a file",
        "Compiled(gm, [['add']], kernels={'add': Triton(\"open('/tmp/plattack', 'w')\", 'f', [], [1])})",
    ),
    "layouts": ("a value of a million dimensions", "Compiled(gm, layouts={'x': list(range(1_000_000))})"),
    "deep": ("schedules inside schedules, ten thousand deep", "Compiled(gm, [], deep)"),
}


def _attacks() -> list[Attack]:
    deep = "deep = {}\nfor _ in range(10_000):\n    deep = {'a': deep}\n"
    return [
        answer(f"compiled-{name}", tries, _COMPILED.format(more=_CODE + deep, value=value))
        for name, (tries, value) in _ATTACKS.items()
    ]


ATTACKS = tuple(_attacks())
