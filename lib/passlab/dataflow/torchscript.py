"""TorchScript (`torch.jit.script`) as a control-flow graph: `prim::If` and `prim::Loop` become branches.

Block arguments and results become copies: TorchScript is in SSA form, and a variable that a loop carries is assigned on
entry and at the end of the body.
"""

from __future__ import annotations

from typing import Any

from passlab.dataflow.cfg import Block, Instruction, Program, Terminator

#: The number of turns that TorchScript gives to a `while`.
FOR_EVER = 2**63 - 1


class Blocks:
    """Blocks in the making: `add` writes into the open block, `close` ends it, `open` begins one."""

    def __init__(self, entry: str = "entry"):
        self.done: list[Block] = []
        self.name, self.lines = entry, []
        self.used: dict[str, int] = {entry: 0}

    def label(self, *names: str) -> list[str]:
        """Return labels that are not in use, one number for all: loop, body, done; loop.1, body.1, done.1."""
        number = max(self.used.get(name, -1) for name in names) + 1
        self.used.update(dict.fromkeys(names, number))
        return [f"{name}.{number}" if number else name for name in names]

    def add(self, dest: str, op: str, *args: str, value: Any = None) -> None:
        self.lines.append(Instruction(dest, op, args, value))

    def close(self, kind: str, args: tuple[str, ...] = (), targets: tuple[str, ...] = ()) -> None:
        self.done.append(Block(self.name, tuple(self.lines), Terminator(kind, args, targets)))
        self.lines = []

    def open(self, name: str) -> None:
        self.name = name

    def copies(self, dests: list[str], sources: list[str]) -> None:
        """Assign several variables at once. Where one is read after it is assigned, its old value is kept first."""
        sources = list(sources)
        for i, dest in enumerate(dests):
            if dest in sources[i + 1 :]:
                self.add(f"{dest}.old", "copy", dest)
                sources[i + 1 :] = [f"{dest}.old" if s == dest else s for s in sources[i + 1 :]]
            if dest != sources[i]:
                self.add(dest, "copy", sources[i])


def from_torchscript(function: Any) -> Program:
    """Return the program of a function or module in TorchScript (of a module: its `forward`, inlined)."""
    graph = getattr(function, "inlined_graph", None) or function.graph
    blocks, constants = Blocks(), {}

    def called(value: Any) -> str:
        plain = value.debugName().replace(".", "_")
        return f"v{plain}" if plain.isdigit() else plain

    def body(block: Any) -> list[str]:
        for node in block.nodes():
            kind = node.kind()
            ins, outs = [called(v) for v in node.inputs()], [called(v) for v in node.outputs()]
            if kind == "prim::If":
                branch(node, ins[0], outs)
            elif kind == "prim::Loop":
                loop(node, ins, outs)
            elif kind == "prim::Constant":
                constant = node.output().toIValue()
                constants[outs[0]] = constant if isinstance(constant, (int, float, str)) else str(constant)
                blocks.add(outs[0], "const", value=constants[outs[0]])
            else:
                blocks.add(outs[0] if outs else "", kind, *ins)
                for i, out in enumerate(outs[1:], 1):
                    blocks.add(out, f"{kind}#{i}", *ins)
        return [called(v) for v in block.outputs()]

    def branch(node: Any, condition: str, outs: list[str]) -> None:
        yes, no, join = blocks.label("then", "else", "join")
        blocks.close("branch", (condition,), (yes, no))
        for label, inner in zip((yes, no), node.blocks(), strict=True):
            blocks.open(label)
            blocks.copies(outs, body(inner))
            blocks.close("jump", (), (join,))
        blocks.open(join)

    def loop(node: Any, ins: list[str], outs: list[str]) -> None:
        head, inside, done = blocks.label("loop", "body", "done")
        (inner,) = node.blocks()
        turn, *carried = [called(v) for v in inner.inputs()]
        most, go, *given = ins
        again, below = f"{turn}_go", f"{turn}_more"
        counts = constants.get(most) != FOR_EVER
        if counts:
            blocks.add(turn, "const", value=0)
        blocks.copies([again, *carried], [go, *given])
        blocks.close("jump", (), (head,))
        blocks.open(head)
        if counts:
            blocks.add(below, "aten::lt", turn, most)
            blocks.add(below, "aten::__and__", below, again)
        blocks.close("branch", (below if counts else again,), (inside, done))
        blocks.open(inside)
        onward, *results = body(inner)
        blocks.copies([again, *carried], [onward, *results])
        if counts:
            blocks.add(f"{turn}_one", "const", value=1)
            blocks.add(turn, "aten::add", turn, f"{turn}_one")
        blocks.close("jump", (), (head,))
        blocks.open(done)
        blocks.copies(outs, carried)

    parameters = tuple(called(v) for v in graph.inputs())
    returned = body(graph)
    blocks.close("return", tuple(returned))
    title = getattr(function, "name", None) or getattr(function, "original_name", "forward")
    return Program(str(title), parameters, tuple(blocks.done))
