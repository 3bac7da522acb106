"""A program as a control-flow graph: blocks of assignments, each of which ends in a jump, a branch or a return.

It is not in SSA form: a variable may be assigned in several places. The analyses of day 6 determine which values it may
hold at a point.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from passlab.judge import record

#: Kind of terminator → number of its targets.
TARGETS = {"jump": 1, "branch": 2, "return": 0}


@record
@dataclass(frozen=True)
class Instruction:
    """`dest = op args`. A constant has `op` "const" and a `value`; an instruction without a result has `dest` ""."""

    dest: str
    op: str
    args: tuple[str, ...] = ()
    value: int | float | bool | str | None = None

    def __str__(self) -> str:
        text = " ".join([self.op, *self.args] + ([] if self.value is None else [repr(self.value)]))
        return f"{self.dest} = {text}" if self.dest else text


@record
@dataclass(frozen=True)
class Terminator:
    """The end of a block: `jump target`, `branch condition if_true if_false`, or `return values`."""

    kind: str
    args: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.kind, *self.args, *self.targets))


@record
@dataclass(frozen=True)
class Block:
    """A sequence of instructions and its terminator."""

    name: str
    instructions: tuple[Instruction, ...]
    terminator: Terminator

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", *(f"  {instr}" for instr in (*self.instructions, self.terminator))])


@record
@dataclass(frozen=True)
class Program:
    """A function: its parameters and its blocks, with the entry first."""

    name: str
    parameters: tuple[str, ...]
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return "\n".join([f"program {self.name}({', '.join(self.parameters)})", *map(str, self.blocks)])

    def __getitem__(self, name: str) -> Block:
        """Return a block by its name. Raise KeyError for an unknown one."""
        for block in self.blocks:
            if block.name == name:
                return block
        raise KeyError(f"{self.name} has no block {name!r}; its blocks are {_listed(b.name for b in self.blocks)}.")

    @property
    def entry(self) -> Block:
        return self.blocks[0]

    @property
    def variables(self) -> list[str]:
        """The parameters and all assigned variables, in the order of the text."""
        dests = (instr.dest for block in self.blocks for instr in block.instructions if instr.dest)
        return list(dict.fromkeys([*self.parameters, *dests]))


def successors(program: Program) -> dict[str, list[str]]:
    """Return, for each block, the blocks that may run next; for a branch, the target for true first."""
    return {block.name: list(block.terminator.targets) for block in program.blocks}


def predecessors(program: Program) -> dict[str, list[str]]:
    """Return, for each block, the blocks that may run just before it."""
    sources: dict[str, list[str]] = {block.name: [] for block in program.blocks}
    for block in program.blocks:
        for target in block.terminator.targets:
            sources[target].append(block.name)
    return sources


def why_not_a_program(program: Program) -> str:
    """Return why a program is not well-formed, as a sentence that names the block, or ""."""
    if not program.blocks:
        return f"{program.name} has no block. A program needs at least one, which ends in a return."
    names = [block.name for block in program.blocks]
    known = set(names)
    if len(known) < len(names):
        name = next(name for i, name in enumerate(names) if name in names[:i])
        return f"Two blocks are called {name}. Rename one of them."
    variables = set(program.variables)
    for block in program.blocks:
        if reason := _why_not_a_block(block, known, variables):
            return reason
    return ""


def _why_not_a_block(block: Block, names: set[str], variables: set[str]) -> str:
    for instr in block.instructions:
        if instr.op == "const" and not isinstance(instr.value, Real | str):
            return f"Block {block.name}: `{instr}`: a constant is a number or text, as in `x = const 3`."
        for arg in instr.args:
            if arg not in variables:
                return f"Block {block.name}: `{instr}` reads {arg}, which is neither a parameter nor ever assigned."
    end = block.terminator
    if end.kind not in TARGETS:
        return f"Block {block.name} ends in `{end.kind}`. A block ends in {_listed(TARGETS)}."
    if len(end.targets) != TARGETS[end.kind]:
        return f"Block {block.name}: a {end.kind} has {TARGETS[end.kind]} target(s), `{end}` has {len(end.targets)}."
    if end.kind != "return" and len(end.args) != (end.kind == "branch"):
        return f"Block {block.name}: `{end}`: a branch has one condition, a jump none."
    if unknown := [target for target in end.targets if target not in names]:
        return f"Block {block.name} goes to {unknown[0]}, and there is no block of that name."
    if len(set(end.targets)) < len(end.targets):
        return f"Block {block.name} branches to {end.targets[0]} either way. Write `jump {end.targets[0]}`."
    if unknown := [arg for arg in end.args if arg not in variables]:
        return f"Block {block.name}: `{end}` reads {unknown[0]}, which is neither a parameter nor ever assigned."
    return ""


def _listed(names: object) -> str:
    return ", ".join(map(str, names))  # type: ignore[call-overload]
