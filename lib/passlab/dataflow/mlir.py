"""The control-flow graph of an MLIR function: blocks, and the jumps between them, for drawing.

flow(blocks(pipeline(module, "convert-scf-to-cf")))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from passlab.dataflow.cfg import Block, Instruction, Program, Terminator

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp

#: Number of successors → kind of the terminator.
_ENDS = ("return", "jump", "branch")


def blocks(module: ModuleOp) -> Program:
    """Return the blocks of a module's first function, with the names of their operations and their successors.

    The program is for drawing; it has no values, so it is of no use to an analysis. Raises ValueError for a block with
    more than two successors (`cf.switch`).
    """
    function = next(iter(module.ops))
    label = {block: f"bb{number}" for number, block in enumerate(function.regions[0].blocks)}
    result = []
    for block, name in label.items():
        *ops, end = block.ops
        targets = tuple(label[target] for target in end.successors)
        if len(targets) >= len(_ENDS):
            raise ValueError(f"{name} has {len(targets)} successors; only jumps and branches are drawn.")
        instructions = tuple(Instruction("", op.name) for op in ops)
        result.append(Block(name, instructions, Terminator(_ENDS[len(targets)], (), targets)))
    return Program(function.sym_name.data, (), tuple(result))
