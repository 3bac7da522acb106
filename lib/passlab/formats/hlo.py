"""HLO text, XLA's own IR: `lowered.as_text(dialect="hlo")`, or `lowered.compile().as_text()`, where XLA has fused.

A fusion is one node: one kernel. Its attribute `fused` lists its operations. Calls are inlined, loops and branches are
nodes with their computations as blocks.
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
    match = _ELEMENT.match(name)
    if not match:
        return name, None
    family, bits, suffix = match[1], int(match[2]), match[3].lower()
    if family == "complex<f":
        family, bits = "c", 2 * bits
    return f"{_FAMILY[family]}{bits}{f'_{suffix}' if suffix else ''}", bits / 8


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

    @property
    def parameter(self) -> int | None:
        """The number of a parameter, None for another instruction."""
        number = self.attrs.get("number", "")
        return int(number) if self.op == "parameter" and number.isdigit() else None


@dataclass
class Computation:
    name: str
    entry: bool
    instructions: list[Instruction] = field(default_factory=list)

    @property
    def root(self) -> Instruction | None:
        return next((i for i in self.instructions if i.root), self.instructions[-1] if self.instructions else None)


#: Attributes about an instruction's origin or a backend, not about its result.
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

    def _computation(self, computation: Computation, sources: list[list[str]] | None, scope: str) -> str | None:
        """Read the instructions; parameter i is a node with the inputs `sources[i]`. Return the id of the root."""
        ids: dict[str, str] = {}
        for instr in computation.instructions:
            ids[instr.name] = self._instruction(instr, ids, sources, scope)
        root = computation.root
        return ids[root.name] if root else None

    def _instruction(self, instr: Instruction, ids: dict[str, str], sources: list[list[str]] | None, scope: str) -> str:
        inputs = [ids.get(name) or self.build.missing(scope + name) for name in instr.operands]
        attrs: dict[str, Any] = dict(instr.attrs)
        called = [self.computations[n] for key in _CALLED for n in _names(attrs.get(key)) if n in self.computations]
        if instr.op == "call" and called and len(self.build.nodes) < _MOST:
            return self._call(called[0], inputs, scope) or self.build.missing(scope + instr.name)
        kind = kinds.HLO.get(instr.op, "compute")
        if instr.parameter is not None and sources is not None:
            inputs = sources[instr.parameter] if instr.parameter < len(sources) else []
        elif instr.op == "fusion":
            ops = [inner.op for c in called for inner in c.instructions if inner.op != "parameter"]
            attrs["fused"] = ", ".join(ops)
            op_kinds = {kinds.HLO.get(op, "compute") for op in ops}
            kind = next((k for k in ("compute", "control", "memory", "shape") if k in op_kinds), "compute")
        elif instr.op in ("while", "conditional"):
            for i, computation in enumerate(called):
                inputs += self._inner(instr, i, computation, inputs, scope)
        elif called:
            attrs["applies"] = ", ".join(inner.op for inner in called[0].instructions if inner.op != "parameter")
        label = attrs.get("value", "") if instr.op == "constant" else attrs.get("fused", "")
        return self.build.add(scope + instr.name, instr.op, kind, inputs, _type(instr.type), instr.text, attrs, label)

    def _call(self, computation: Computation, inputs: list[str], scope: str) -> str | None:
        """Inline a call: its parameters are the operands."""
        ids: dict[str, str] = {}
        scope = self._scope(computation, scope)
        for instr in computation.instructions:
            if instr.parameter is not None and instr.parameter < len(inputs):
                ids[instr.name] = inputs[instr.parameter]
            else:
                ids[instr.name] = self._instruction(instr, ids, None, scope)
        return ids[computation.root.name] if computation.root else None

    def _scope(self, computation: Computation, scope: str) -> str:
        name = scope + computation.name
        self.calls[name] = number = self.calls.get(name, -1) + 1
        return f"{name}{f'#{number}' if number else ''}/"

    def _inner(self, instr: Instruction, i: int, computation: Computation, inputs: list[str], scope: str) -> list[str]:
        """Read a computation of a loop or branch as a block; return the id of its result, if it has one."""
        if len(self.build.nodes) >= _MOST:
            return []
        outer = self.build.block
        name = ("condition", "body")[i] if instr.op == "while" else f"branch{i}"
        self.build.block = f"{scope}{instr.name}:{name}"
        operand = inputs[:1] if instr.op == "while" else inputs[1 + i : 2 + i]
        root = self._computation(computation, [operand], self._scope(computation, scope))
        self.build.block = outer
        return [root] if root else []


#: Attributes that name computations, in the order in which they run.
_CALLED = ("calls", "to_apply", "condition", "body", "branch_computations", "true_computation", "false_computation")


def _names(value: str | None) -> list[str]:
    return re.findall(r"[\w.\-]+", value or "")


def parse(text: str) -> dict[str, Computation]:
    """Parse the computations of an HLO module, by name; skip other lines."""
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
    tail = re.sub(r"/\*.*?\*/", "", line[start.end() :])
    end = _closing(tail, 0) if tail.startswith("(") else tail.find(" ")
    type, tail = tail[:end], tail[end:].strip()
    opened = tail.find("(")
    op, closed = tail[:opened], _closing(tail, opened)
    arguments = tail[opened + 1 : closed - 1]
    attrs = {}
    for part in _split(tail[closed:]):
        key, equals, value = part.partition("=")
        if equals and key not in _ASIDE:
            attrs[key] = value if key in _CALLED else cut(value)
    operands: list[str] = []
    if op == "parameter":
        attrs = {"number": arguments.strip(), **attrs}
    elif op == "constant":
        attrs = {"value": cut(" ".join(arguments.split())), **attrs}
    else:
        operands = [part.split()[-1].lstrip("%") for part in _split(arguments)]
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
    match = re.match(r"(\w+)\[(.*?)\]", text)
    if not match:
        return None, text, None
    dims = [int(dim) if dim.strip().isdigit() else dim.strip() for dim in match[2].split(",") if dim.strip()]
    return tensor_type(dims, *element(match[1]))
