"""The control-flow graph of an MLIR function: blocks, and the jumps between them, for drawing.

flow(blocks(pipeline(module, "convert-scf-to-cf")))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from passlab.dataflow.cfg import Block, Instruction, Program, Terminator

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

#: Blocks that may follow → what a block ends with.
_ENDS = ("return", "jump", "branch")


def blocks(module: ModuleOp) -> Program:
    """Return the blocks of a module's first function: the names of their operations, and where each goes on.

    Values are left out: the program is for drawing, and says nothing to an analysis. Raises ValueError for a block with
    more than two successors (`cf.switch`).
    """
    function = next(iter(module.ops))
    label = {block: f"bb{number}" for number, block in enumerate(function.regions[0].blocks)}
    made = []
    for block, name in label.items():
        *inside, end = block.ops
        ahead = tuple(label[target] for target in end.successors)
        if len(ahead) >= len(_ENDS):
            raise ValueError(f"{name} goes on in {len(ahead)} blocks; only jumps and branches are drawn.")
        lines = tuple(Instruction("", op.name) for op in inside)
        made.append(Block(name, lines, Terminator(_ENDS[len(ahead)], (), ahead)))
    return Program(function.sym_name.data, (), tuple(made))
