"""The attack corpus: submissions that try to get what they did not earn, or to break what grades them.

One module for each kind; `attack` says what an attack is made of, `field` where it takes place. `test_attacks` hands
all of them in, in one class with three honest learners, and prints the table.
"""

from __future__ import annotations

from tests.attacks import (
    claiming,
    compiled,
    crashing,
    data,
    escaping,
    exhausting,
    graphs,
    growing,
    importing,
    malformed,
    mlir,
    nesting,
    packing,
    patching,
    reading,
    showing,
    signalling,
    writing,
)
from tests.attacks.attack import Attack, harmful

_MODULES = (
    *(patching, reading, signalling, writing, escaping, packing, showing),
    *(exhausting, growing, crashing, malformed, data, claiming, importing, nesting, graphs, mlir, compiled),
)

#: Kind → its attacks.
CORPUS: dict[str, tuple[Attack, ...]] = {
    module.__name__.split(".")[-1]: tuple(harmful(one) if one.harms else one for one in module.ATTACKS)
    for module in _MODULES
}
