"""StableHLO text (`jax.jit(f).lower(x).as_text()`) as a control-flow graph: `while`, `if` and `case` become branches.

The text is parsed by MLIR itself. Calls of functions of the module remain calls.
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
        by_name = {str(op.attributes["sym_name"]).strip('"'): op for op in functions}
        if not by_name:
            raise ValueError("This MLIR module has no function (func.func), so there is no program to read.")
        name = "main" if "main" in by_name else next(iter(by_name))
        return _Reader().read(name, by_name[name])


class _Reader:
    def __init__(self):
        self.blocks = Blocks()
        self.names: dict[Any, str] = {}
        self.count = 0

    def read(self, name: str, function: Any) -> Program:
        body = function.regions[0].blocks[0]
        parameters = tuple(self.name(value, "arg") for value in body.arguments)
        self.blocks.close("return", tuple(self.body(body)))
        return Program(name, parameters, tuple(self.blocks.closed))

    def name(self, value: Any, prefix: str = "v") -> str:
        if value not in self.names:
            self.names[value] = f"{prefix}{self.count}"
            self.count += 1
        return self.names[value]

    def body(self, block: Any) -> list[str]:
        """Read the operations of a region's block; return the names of the values that it yields."""
        for op in block.operations:
            kind, args = op.operation.name, [self.name(value) for value in op.operands]
            if kind.endswith(".return"):
                return args
            dests = [self.name(value) for value in op.results]
            if kind == "stablehlo.while":
                self.loop(op, args, dests)
            elif kind in ("stablehlo.if", "stablehlo.case") and len(op.regions) == 2:
                # `if` runs its first region for true; `case` for the index 0, and its last for all others.
                regions = [region.blocks[0] for region in op.regions][:: 1 if kind.endswith("if") else -1]
                self.blocks.branch(args[0], dests, *(lambda inner=inner: self.body(inner) for inner in regions))
            elif kind == "stablehlo.case":
                self.switch(op, args[0], dests)
            elif kind == "stablehlo.constant":
                self.blocks.add(dests[0], "const", value=_number(op.attributes["value"]))
            else:
                self.blocks.operation(_operation_name(op, kind), args, dests)
        return []

    def loop(self, op: Any, args: list[str], dests: list[str]) -> None:
        head, inside, after = self.blocks.label("loop", "body", "done")
        test, body = (region.blocks[0] for region in op.regions)
        for block in (test, body):  # a loop-carried value has one variable in all regions
            self.names.update(zip(block.arguments, dests, strict=True))
        self.blocks.copies(dests, args)
        self.blocks.close("jump", (), (head,))
        self.blocks.open(head)
        (condition,) = self.body(test)
        self.blocks.close("branch", (condition,), (inside, after))
        self.blocks.open(inside)
        self.blocks.copies(dests, self.body(body))
        self.blocks.close("jump", (), (head,))
        self.blocks.open(after)

    def switch(self, op: Any, index: str, dests: list[str]) -> None:
        """Compare with one index after the other; the last region runs for all others."""
        *tested, last = (region.blocks[0] for region in op.regions)
        (join,) = self.blocks.label("join")
        for i, block in enumerate(tested):
            case, others = self.blocks.label("case", "others")
            self.blocks.add(f"{index}.{i}", "const", value=i)
            self.blocks.add(f"{index}.is{i}", "stablehlo.compare.EQ", index, f"{index}.{i}")
            self.blocks.close("branch", (f"{index}.is{i}",), (case, others))
            self.blocks.open(case)
            self.blocks.copies(dests, self.body(block))
            self.blocks.close("jump", (), (join,))
            self.blocks.open(others)
        self.blocks.copies(dests, self.body(last))
        self.blocks.close("jump", (), (join,))
        self.blocks.open(join)


def _operation_name(op: Any, kind: str) -> str:
    """Return the name with the direction of a comparison or the callee of a call."""
    if kind == "stablehlo.compare":
        return f"{kind}.{str(op.attributes['comparison_direction']).split()[-1].rstrip('>')}"
    return f"{kind}.{str(op.attributes['callee']).lstrip('@')}" if kind.endswith("call") else kind


def _number(attribute: Any) -> Any:
    """Return a constant as a number if all of its elements are equal, else as text."""
    try:
        return attribute.get_splat_value().value
    except (AttributeError, TypeError, ValueError):
        return str(attribute)[:60]
