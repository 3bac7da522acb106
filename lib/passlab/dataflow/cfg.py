"""A program as a control-flow graph: blocks of assignments, each of which ends in a jump, a branch or a return.

It is not in SSA form: a variable may be assigned in several places. So "which value does x hold here?" is a question,
and the analyses of day 6 answer such questions.
"""

from __future__ import annotations

from dataclasses import dataclass

from passlab.judge import record

#: Kind of terminator → how many blocks it goes to.
TARGETS = {"jump": 1, "branch": 2, "return": 0}


@record
@dataclass(frozen=True)
class Instruction:
    """`dest = op args`. A constant has `op` "const" and a `value`; an instruction for its effect has `dest` ""."""

    dest: str
    op: str
    args: tuple[str, ...] = ()
    value: int | float | bool | str | None = None

    def __str__(self) -> str:
        words = [self.op, *self.args] + ([] if self.value is None else [repr(self.value)])
        return f"{self.dest} = {' '.join(words)}" if self.dest else " ".join(words)


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
    """Instructions that run one after the other, and where to go from there."""

    name: str
    instructions: tuple[Instruction, ...]
    terminator: Terminator

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", *(f"  {line}" for line in (*self.instructions, self.terminator))])


@record
@dataclass(frozen=True)
class Program:
    """A function: its parameters, and its blocks, of which it enters the first."""

    name: str
    parameters: tuple[str, ...]
    blocks: tuple[Block, ...]

    def __str__(self) -> str:
        return "\n".join([f"program {self.name}({', '.join(self.parameters)})", *map(str, self.blocks)])

    def __getitem__(self, name: str) -> Block:
        """Return the block of a name. Raise KeyError for an unknown one."""
        for block in self.blocks:
            if block.name == name:
                return block
        raise KeyError(f"{self.name} has no block {name!r}; its blocks are {_listed(b.name for b in self.blocks)}.")

    @property
    def entry(self) -> Block:
        return self.blocks[0]

    @property
    def variables(self) -> list[str]:
        """The parameters and all that is assigned, in the order of the text."""
        assigned = (line.dest for block in self.blocks for line in block.instructions if line.dest)
        return list(dict.fromkeys([*self.parameters, *assigned]))


def successors(program: Program) -> dict[str, list[str]]:
    """Return, for each block, the blocks that may run next: of a branch first the one for true."""
    return {block.name: list(block.terminator.targets) for block in program.blocks}


def predecessors(program: Program) -> dict[str, list[str]]:
    """Return, for each block, the blocks that may have run just before."""
    found: dict[str, list[str]] = {block.name: [] for block in program.blocks}
    for block in program.blocks:
        for target in block.terminator.targets:
            found[target].append(block.name)
    return found


def invalid(program: Program) -> str | None:
    """Return what makes a program not well-formed, as a sentence that names the block, or None."""
    if not program.blocks:
        return f"{program.name} has no block. A program needs at least one, which ends in a return."
    names = [block.name for block in program.blocks]
    known = set(names)
    if len(known) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        return f"Two blocks are called {twice}. Rename one of them."
    variables = set(program.variables)
    for block in program.blocks:
        if broken := _broken(block, known, variables):
            return broken
    return None


def _broken(block: Block, names: set[str], variables: set[str]) -> str | None:
    for line in block.instructions:
        for arg in line.args:
            if arg not in variables:
                return f"Block {block.name}: `{line}` reads {arg}, which is neither a parameter nor ever assigned."
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
    if unread := [arg for arg in end.args if arg not in variables]:
        return f"Block {block.name}: `{end}` reads {unread[0]}, which is neither a parameter nor ever assigned."
    return None


def _listed(names: object) -> str:
    return ", ".join(map(str, names))  # type: ignore[call-overload]
