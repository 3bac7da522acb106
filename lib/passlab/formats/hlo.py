"""HLO text, XLA's own IR: `lowered.as_text(dialect="hlo")`, or `lowered.compile().as_text()`, where XLA has fused.

A fusion is one node: one kernel. What it computes is in its attribute `fused`. Calls are inlined, loops and branches
are nodes with their computations as blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from passlab.graph import Graph, kinds
from passlab.graph.assemble import UNKNOWN, Builder, Type, cut, several, tensor_type

_ELEMENT = re.compile(r"(bf|f|si|ui|i|s|u|c|complex<f)(\d+)(\w*)>?$")
_FAMILY = {"bf": "bfloat", "f": "float", "i": "int", "si": "int", "s": "int", "ui": "uint", "u": "uint", "c": "complex"}


def element(name: str) -> tuple[str, float | None]:
    """Return (dtype, bytes per element) for type names of HLO and MLIR: `s32`, `i32`, `pred`, `complex<f32>`."""
    if name in ("pred", "i1"):
        return "bool", 1
    found = _ELEMENT.match(name)
    if not found:
        return name, None
    family, bits, rest = found[1], int(found[2]), found[3].lower()
    if family == "complex<f":
        family, bits = "c", 2 * bits
    return f"{_FAMILY[family]}{bits}{f'_{rest}' if rest else ''}", bits / 8


@dataclass
class Instruction:
    """One line: `ROOT %max.2 = f32[2,8]{1,0} maximum(%add.0, %broadcast.3), metadata={…}`."""

    name: str
    type: str
    op: str
    operands: list[str]
    attrs: dict[str, str]
    text: str
    root: bool


@dataclass
class Computation:
    name: str
    entry: bool
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def root(self) -> Instruction | None:
        return next((i for i in self.instructions if i.root), self.instructions[-1] if self.instructions else None)


#: Attributes that tell where an instruction came from or how a backend runs it, not what it computes.
_ASIDE = {"metadata", "backend_config", "frontend_attributes", "sharding", "origin", "control-predecessors"}

#: Calls are inlined up to this many nodes.
_MOST = 100_000

_HEADER = re.compile(r"(ENTRY\s+)?%?([\w.\-]+)\s*(\(.*\)\s*->\s*.*)?\{$")
_NAME = re.compile(r"(ROOT\s+)?%?([\w.\-]+) = ")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def read(obj: Any, *inputs: Any) -> Graph:
    """Return the view of HLO text, or of a compiled JAX function; the entry computation is the graph."""
    text = obj if isinstance(obj, str) else obj.as_text()
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str):
        self.text = text
        self.computations = parse(text)
        name = re.search(r"HloModule\s+([^\s,]+)", text)
        self.build = Builder(name[1] if name else "module", "HLO")
        self.calls: dict[str, int] = {}

    def read(self) -> Graph:
        entry = next((c for c in self.computations.values() if c.entry), None)
        if entry is None:
            raise ValueError("This HLO text has no ENTRY computation, so there is no graph to view.")
        root = self._computation(entry, None, "")
        self.build.outputs = [root] if root else []
        return self.build.graph(self.text)

    def _computation(self, computation: Computation, given: list[list[str]] | None, scope: str) -> str | None:
        """Read the instructions; parameter i is a node made from `given[i]`. Return the id of the root."""
        made: dict[str, str] = {}
        for instruction in computation.instructions:
            made[instruction.name] = self._instruction(instruction, made, given, scope)
        root = computation.root
        return made[root.name] if root else None

    def _instruction(self, it: Instruction, made: dict[str, str], given: list[list[str]] | None, scope: str) -> str:
        inputs = [made.get(name) or self.build.missing(scope + name) for name in it.operands]
        attrs: dict[str, Any] = dict(it.attrs)
        called = [self.computations[n] for key in _CALLED for n in _names(attrs.get(key)) if n in self.computations]
        if it.op == "call" and called and len(self.build.nodes) < _MOST:
            return self._call(called[0], inputs, scope) or self.build.missing(scope + it.name)
        kind = kinds.HLO.get(it.op, "compute")
        if it.op == "parameter" and given is not None and it.attrs.get("number", "").isdigit():
            number = int(it.attrs["number"])
            inputs = given[number] if number < len(given) else []
        elif it.op == "fusion":
            ops = [inner.op for c in called for inner in c.instructions if inner.op != "parameter"]
            attrs["fused"] = ", ".join(ops)
            found = {kinds.HLO.get(op, "compute") for op in ops}
            kind = next((k for k in ("compute", "control", "memory", "shape") if k in found), "compute")
        elif it.op in ("while", "conditional"):
            for i, computation in enumerate(called):
                inputs += self._inner(it, i, computation, inputs, scope)
        elif called:
            attrs["applies"] = ", ".join(inner.op for inner in called[0].instructions if inner.op != "parameter")
        label = attrs.get("value", "") if it.op == "constant" else attrs.get("fused", "")
        return self.build.add(scope + it.name, it.op, kind, inputs, _type(it.type), it.text, attrs, label)

    def _call(self, computation: Computation, inputs: list[str], scope: str) -> str | None:
        """Inline a call: its parameters are the operands."""
        made: dict[str, str] = {}
        scope = self._scope(computation, scope)
        for it in computation.instructions:
            if it.op == "parameter" and it.attrs.get("number", "").isdigit() and int(it.attrs["number"]) < len(inputs):
                made[it.name] = inputs[int(it.attrs["number"])]
            else:
                made[it.name] = self._instruction(it, made, None, scope)
        return made[computation.root.name] if computation.root else None

    def _scope(self, computation: Computation, scope: str) -> str:
        name = scope + computation.name
        self.calls[name] = number = self.calls.get(name, -1) + 1
        return f"{name}{f'#{number}' if number else ''}/"

    def _inner(self, it: Instruction, i: int, computation: Computation, inputs: list[str], scope: str) -> list[str]:
        """Read a computation of a loop or branch as a block; return the id of its result, if it has one."""
        if len(self.build.nodes) >= _MOST:
            return []
        outer = self.build.block
        name = ("condition", "body")[i] if it.op == "while" else f"branch{i}"
        self.build.block = f"{scope}{it.name}:{name}"
        operand = inputs[:1] if it.op == "while" else inputs[1 + i : 2 + i]
        root = self._computation(computation, [operand], self._scope(computation, scope))
        self.build.block = outer
        return [root] if root else []


#: Attributes that name computations, in the order in which they run.
_CALLED = ("calls", "to_apply", "condition", "body", "branch_computations", "true_computation", "false_computation")


def _names(value: str | None) -> list[str]:
    return re.findall(r"[\w.\-]+", value or "")


def parse(text: str) -> dict[str, Computation]:
    """Parse the computations of an HLO module, by name; skip lines that belong to none."""
    computations: dict[str, Computation] = {}
    current: Computation | None = None
    pending, depth = [], 0  # an instruction may span several lines
    for line in text.splitlines():
        line = line.strip()
        if not pending and " = " not in line and (header := _HEADER.match(line)):
            current = computations[header[2]] = Computation(header[2], bool(header[1]))
        elif not pending and line.startswith("}"):
            current = None
        elif current is not None and (pending or _NAME.match(line)):
            pending.append(line)
            depth += _depth(line)
            if depth <= 0:
                current.instructions.append(_instruction(" ".join(pending)))
                pending, depth = [], 0
    return computations


def _depth(text: str) -> int:
    bare = _STRING.sub("", text)
    return sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))


def _instruction(line: str) -> Instruction:
    start = _NAME.match(line)
    rest = re.sub(r"/\*.*?\*/", "", line[start.end() :])
    end = _closing(rest, 0) if rest.startswith("(") else rest.find(" ")
    type, rest = rest[:end], rest[end:].strip()
    opened = rest.find("(")
    op, closed = rest[:opened], _closing(rest, opened)
    inside = rest[opened + 1 : closed - 1]
    attrs = {}
    for part in _split(rest[closed:]):
        key, equals, value = part.partition("=")
        if equals and key not in _ASIDE:
            attrs[key] = value if key in _CALLED else cut(value)
    operands: list[str] = []
    if op == "parameter":
        attrs = {"number": inside.strip(), **attrs}
    elif op == "constant":
        attrs = {"value": cut(" ".join(inside.split())), **attrs}
    else:
        operands = [part.split()[-1].lstrip("%") for part in _split(inside)]
    return Instruction(start[2], type, op, operands, attrs, line.split(", metadata=")[0], bool(start[1]))


def _closing(text: str, at: int) -> int:
    """Return the position after the bracket that closes the one at `at` (skipping strings)."""
    depth, quoted = 0, False
    for i in range(at, len(text)):
        if text[i] == '"' and text[i - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (text[i] in "([{") - (text[i] in ")]}")
            if depth == 0:
                return i + 1
    return len(text)


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets and strings."""
    parts, depth, quoted, start = [], 0, False, 0
    for i, char in enumerate(text):
        if char == '"' and text[i - 1 : i] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (char in "([{") - (char in ")]}")
            if char == "," and depth == 0:
                parts.append(text[start:i])
                start = i + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _type(text: str) -> Type:
    """Parse `f32[2,8]{1,0}`, or a tuple of such."""
    if text.startswith("("):
        parts = _split(text[1:-1])
        return several(map(_type, parts)) if parts else UNKNOWN
    found = re.match(r"(\w+)\[(.*?)\]", text)
    if not found:
        return None, text, None
    dims = [int(dim) if dim.strip().isdigit() else dim.strip() for dim in found[2].split(",") if dim.strip()]
    return tensor_type(dims, *element(found[1]))
