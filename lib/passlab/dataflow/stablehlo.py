"""StableHLO text (`jax.jit(f).lower(x).as_text()`) as a control-flow graph: `while`, `if` and `case` become branches.

The text is parsed by MLIR itself. Calls of the module's own functions stay calls.
"""

from __future__ import annotations

from typing import Any

from passlab.dataflow.cfg import Program
from passlab.dataflow.torchscript import Blocks


def from_stablehlo(text: str) -> Program:
    """Return the program of a module's `main` (or else its first function). Raise ValueError for other text."""
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir

    with make_ir_context() as context:
        context.allow_unregistered_dialects = True
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            raise ValueError(f"MLIR cannot parse this text as a StableHLO module: {str(error)[:200]}") from None
        functions = [op for op in module.body.operations if op.operation.name == "func.func"]
        named = {str(op.attributes["sym_name"]).strip('"'): op for op in functions}
        if not named:
            raise ValueError("This MLIR module has no function (func.func), so there is no program to read.")
        name = "main" if "main" in named else next(iter(named))
        return _Reader(name).read(named[name])


class _Reader:
    def __init__(self, name: str):
        self.name, self.blocks = name, Blocks()
        self.names: dict[Any, str] = {}
        self.count = 0

    def read(self, function: Any) -> Program:
        body = function.regions[0].blocks[0]
        parameters = tuple(self.called(value, "arg") for value in body.arguments)
        returned = self.body(body)
        self.blocks.close("return", tuple(returned))
        return Program(self.name, parameters, tuple(self.blocks.done))

    def called(self, value: Any, kind: str = "v") -> str:
        if value not in self.names:
            self.names[value] = f"{kind}{self.count}"
            self.count += 1
        return self.names[value]

    def body(self, block: Any) -> list[str]:
        """Read the operations of a region's block; return the names of what it yields."""
        for op in block.operations:
            kind, ins = op.operation.name, [self.called(value) for value in op.operands]
            if kind.endswith(".return"):
                return ins
            outs = [self.called(value) for value in op.results]
            if kind == "stablehlo.while":
                self.loop(op, ins, outs)
            elif kind in ("stablehlo.if", "stablehlo.case") and len(op.regions) == 2:
                self.branch(op, kind, ins[0], outs)
            elif kind == "stablehlo.case":
                self.switch(op, ins[0], outs)
            elif kind == "stablehlo.constant":
                self.blocks.add(outs[0], "const", value=_number(op.attributes["value"]))
            else:
                self.plain(op, kind, ins, outs)
        return []

    def plain(self, op: Any, kind: str, ins: list[str], outs: list[str]) -> None:
        if kind == "stablehlo.compare":
            kind += f".{str(op.attributes['comparison_direction']).split()[-1].rstrip('>')}"
        elif kind.endswith("call"):
            kind += f".{str(op.attributes['callee']).lstrip('@')}"
        self.blocks.add(outs[0] if outs else "", kind, *ins)
        for i, out in enumerate(outs[1:], 1):
            self.blocks.add(out, f"{kind}#{i}", *ins)

    def loop(self, op: Any, ins: list[str], outs: list[str]) -> None:
        head, inside, done = self.blocks.label("loop", "body", "done")
        test, body = (region.blocks[0] for region in op.regions)
        carried = outs  # one variable for a value that the loop carries, in all of its regions
        for block in (test, body):
            self.names.update(zip(block.arguments, carried, strict=True))
        self.blocks.copies(carried, ins)
        self.blocks.close("jump", (), (head,))
        self.blocks.open(head)
        (condition,) = self.body(test)
        self.blocks.close("branch", (condition,), (inside, done))
        self.blocks.open(inside)
        self.blocks.copies(carried, self.body(body))
        self.blocks.close("jump", (), (head,))
        self.blocks.open(done)

    def branch(self, op: Any, kind: str, condition: str, outs: list[str]) -> None:
        yes, no, join = self.blocks.label("then", "else", "join")
        regions = [region.blocks[0] for region in op.regions]
        # `if` runs its first region for true; `case` for the index 0, and its last for all others.
        self.blocks.close("branch", (condition,), (yes, no))
        for label, block in zip((yes, no), regions if kind.endswith("if") else regions[::-1], strict=True):
            self.blocks.open(label)
            self.blocks.copies(outs, self.body(block))
            self.blocks.close("jump", (), (join,))
        self.blocks.open(join)

    def switch(self, op: Any, index: str, outs: list[str]) -> None:
        """Ask for one index after the other; the last region runs for all that are left."""
        *tested, last = (region.blocks[0] for region in op.regions)
        (join,) = self.blocks.label("join")
        for i, block in enumerate(tested):
            here, others = self.blocks.label("case", "others")
            self.blocks.add(f"{index}.{i}", "const", value=i)
            self.blocks.add(f"{index}.is{i}", "stablehlo.compare.EQ", index, f"{index}.{i}")
            self.blocks.close("branch", (f"{index}.is{i}",), (here, others))
            self.blocks.open(here)
            self.blocks.copies(outs, self.body(block))
            self.blocks.close("jump", (), (join,))
            self.blocks.open(others)
        self.blocks.copies(outs, self.body(last))
        self.blocks.close("jump", (), (join,))
        self.blocks.open(join)


def _number(attribute: Any) -> Any:
    """Return a constant as a number if all of its elements are equal, else as text."""
    try:
        return attribute.get_splat_value().value
    except (AttributeError, TypeError, ValueError):
        return str(attribute)[:60]
