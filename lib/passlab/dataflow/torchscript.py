"""TorchScript (`torch.jit.script`) as a control-flow graph: `prim::If` and `prim::Loop` become branches.

Block arguments and results become copies: TorchScript is in SSA form, and a loop-carried variable is assigned on entry
and at the end of the body.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from passlab.dataflow.cfg import Block, Instruction, Program, Terminator

#: The trip count of a `while` in TorchScript.
FOR_EVER = 2**63 - 1


class Blocks:
    """A list of blocks under construction: `add` writes into the open block, `close` ends it, `open` begins one."""

    def __init__(self, entry: str = "entry"):
        self.closed: list[Block] = []
        self.name, self.instructions = entry, []
        self.numbers: dict[str, int] = {entry: 0}

    def label(self, *names: str) -> list[str]:
        """Return new labels with one number for all: loop, body, done; loop.1, body.1, done.1."""
        number = max(self.numbers.get(name, -1) for name in names) + 1
        self.numbers.update(dict.fromkeys(names, number))
        return [f"{name}.{number}" if number else name for name in names]

    def add(self, dest: str, op: str, *args: str, value: Any = None) -> None:
        self.instructions.append(Instruction(dest, op, args, value))

    def operation(self, op: str, args: list[str], dests: list[str]) -> None:
        """Add an operation with any number of results; result i > 0 is computed by `op#i`."""
        self.add(dests[0] if dests else "", op, *args)
        for i, dest in enumerate(dests[1:], 1):
            self.add(dest, f"{op}#{i}", *args)

    def close(self, kind: str, args: tuple[str, ...] = (), targets: tuple[str, ...] = ()) -> None:
        self.closed.append(Block(self.name, tuple(self.instructions), Terminator(kind, args, targets)))
        self.instructions = []

    def open(self, name: str) -> None:
        self.name = name

    def copies(self, dests: list[str], sources: list[str]) -> None:
        """Assign several variables at once. A variable that is read after its assignment is saved first."""
        sources = list(sources)
        for i, dest in enumerate(dests):
            if dest in sources[i + 1 :]:
                self.add(f"{dest}.old", "copy", dest)
                sources[i + 1 :] = [f"{dest}.old" if s == dest else s for s in sources[i + 1 :]]
            if dest != sources[i]:
                self.add(dest, "copy", sources[i])

    def branch(self, condition: str, dests: list[str], *bodies: Callable[[], list[str]]) -> None:
        """Add an if-then-else. A body adds its blocks and returns the values of `dests`."""
        yes, no, join = self.label("then", "else", "join")
        self.close("branch", (condition,), (yes, no))
        for label, body in zip((yes, no), bodies, strict=True):
            self.open(label)
            self.copies(dests, body())
            self.close("jump", (), (join,))
        self.open(join)


def from_torchscript(function: Any) -> Program:
    """Return the program of a function or module in TorchScript (of a module: its `forward`, inlined)."""
    graph = getattr(function, "inlined_graph", None) or function.graph
    title = getattr(function, "name", None) or getattr(function, "original_name", "forward")
    reader = _Reader()
    reader.blocks.close("return", tuple(reader.body(graph)))
    return Program(str(title), tuple(map(_name, graph.inputs())), tuple(reader.blocks.closed))


def _name(value: Any) -> str:
    name = value.debugName().replace(".", "_")
    return f"v{name}" if name.isdigit() else name


class _Reader:
    def __init__(self):
        self.blocks, self.constants = Blocks(), {}

    def body(self, block: Any) -> list[str]:
        """Read the nodes of a block; return the names of its outputs."""
        for node in block.nodes():
            kind = node.kind()
            args, dests = list(map(_name, node.inputs())), list(map(_name, node.outputs()))
            if kind == "prim::If":
                self.blocks.branch(args[0], dests, *(lambda inner=inner: self.body(inner) for inner in node.blocks()))
            elif kind == "prim::Loop":
                self.loop(node, args, dests)
            elif kind == "prim::Constant":
                value = node.output().toIValue()
                self.constants[dests[0]] = value if isinstance(value, (int, float, str)) else str(value)
                self.blocks.add(dests[0], "const", value=self.constants[dests[0]])
            else:
                self.blocks.operation(kind, args, dests)
        return list(map(_name, block.outputs()))

    def loop(self, node: Any, args: list[str], dests: list[str]) -> None:
        blocks = self.blocks
        head, inside, after = blocks.label("loop", "body", "done")
        (inner,) = node.blocks()
        turn, *carried = map(_name, inner.inputs())
        count, condition, *initial = args
        flag, below = f"{turn}_go", f"{turn}_more"
        counts = self.constants.get(count) != FOR_EVER
        if counts:
            blocks.add(turn, "const", value=0)
        blocks.copies([flag, *carried], [condition, *initial])
        blocks.close("jump", (), (head,))
        blocks.open(head)
        if counts:
            blocks.add(below, "aten::lt", turn, count)
            blocks.add(below, "aten::__and__", below, flag)
        blocks.close("branch", (below if counts else flag,), (inside, after))
        blocks.open(inside)
        blocks.copies([flag, *carried], self.body(inner))
        if counts:
            blocks.add(f"{turn}_one", "const", value=1)
            blocks.add(turn, "aten::add", turn, f"{turn}_one")
        blocks.close("jump", (), (head,))
        blocks.open(after)
        blocks.copies(dests, carried)
