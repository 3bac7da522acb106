"""The common view of an MLIR module: each operation is a node, also those inside of regions.

A region's operations are nodes with the attribute `block`; the operation that holds the region follows them and uses
the values they yield. The arguments of a region are nodes too: their inputs are the operands of a linalg.generic,
element by element, or the initial values of a loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from passlab.formats.hlo import element
from passlab.graph import Graph, kinds
from passlab.graph.assemble import UNKNOWN, Builder, Type, cut, several, tensor_type, value_of
from passlab.mlir.modules import MLIRError, from_iree, is_iree, name_of, parse, printed_lines, property_of, value_names

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Block, Operation, Region, SSAValue

#: Terminators of a region that pass values to the operation around it.
YIELDS = frozenset(
    """linalg.yield scf.yield affine.yield scf.condition scf.reduce.return tensor.yield memref.alloca_scope.return
    """.split()  # noqa: SIM905
)
#: Operation → the names of its regions; others are `body`.
REGIONS = {
    "scf.if": ("then", "else"),
    "affine.if": ("then", "else"),
    "scf.while": ("before", "after"),
}
#: Attributes that the view leaves out, or shows in another form.
_UNSAID = {"operandSegmentSizes", "function_type", "sym_name", "op_name__", "indexing_maps", "iterator_types"}
_UNSAID |= {"fastmath", "overflowFlags", "resultSegmentSizes", "static_strides", "static_offsets", "static_sizes"}

_DYNAMIC = -(2**63)


def read(module: Any, *inputs: Any, bodies: bool = True) -> Graph:
    """Return the view of a module or a text: its function `main` (or the first), then the others as blocks `@name`.

    bodies: whether the operations inside of linalg are nodes; if not, they are the attribute `applies`.
    """
    module = parse(module, allowed=None) if isinstance(module, str) else as_module(module)
    return _Reader(module, bodies).read()


def as_module(module: Any) -> ModuleOp:
    """Return the xDSL module of a module of xDSL or IREE. Raises MLIRError for another value."""
    from xdsl.dialects.builtin import ModuleOp

    if is_iree(module):
        return from_iree(module)
    if not isinstance(module, ModuleOp):
        raise MLIRError(f"A module of MLIR is xDSL's ModuleOp or IREE's ir.Module; this is a {type(module).__name__}.")
    return module


def functions(module: ModuleOp) -> dict[str, Operation]:
    """Return name → function (func.func, llvm.func) of a module, `main` first."""
    ops = [op for op in module.body.ops if name_of(op) in ("func.func", "llvm.func")]
    by_name = {op.properties["sym_name"].data: op for op in ops}
    return {name: by_name[name] for name in sorted(by_name, key=lambda name: name != "main")}


class _Reader:
    def __init__(self, module: ModuleOp, bodies: bool):
        self.module, self.bodies = module, bodies
        self.text, lines = printed_lines(module, False)
        self.names = value_names(module)
        lines_of_text = self.text.splitlines()
        self.printed = {op: lines_of_text[line - 1].strip() for line, op in lines if line <= len(lines_of_text)}
        name = module.properties.get("sym_name") or module.attributes.get("sym_name")
        self.build = Builder(name.data if name else next(iter(functions(module)), "module"), "MLIR")
        self.ids: dict[SSAValue, str] = {}
        self.used_names: set[str] = set()

    def read(self) -> Graph:
        if not (by_name := functions(self.module)):
            raise MLIRError("This module has no function (func.func), so there is no graph to view.")
        for number, (name, function) in enumerate(by_name.items()):
            self.build.block = f"@{name}" if number else ""
            returned = self._function(function)
            if not number:
                self.build.outputs = returned
        return self.build.graph(self.text)

    def _function(self, function: Operation) -> list[str]:
        if not function.regions[0].blocks:
            return []
        returned: list[str] = []
        for number, block in enumerate(function.regions[0].blocks):
            for argument in block.args:
                self._argument(argument, [] if number == 0 else self._incoming(block, argument.index))
            for op in block.ops:
                if name_of(op) in ("func.return", "llvm.return"):
                    returned = [self._use(value) for value in op.operands]
                    self.build.add("return", name_of(op), "data", returned, text=self.printed.get(op, ""), ours=True)
                else:
                    self._op(op)
        return returned

    def _incoming(self, block: Block, index: int) -> list[str]:
        """Return the values that jumps pass to a block's argument, as far as they are defined above."""
        values = []
        for other in block.parent.blocks:
            end = other.last_op
            at = len(end.operands) - sum(len(after.args) for after in end.successors) if end else 0
            for target in end.successors if end else ():
                if target is block and at + index < len(end.operands):
                    values.append(end.operands[at + index])
                at += len(target.args)
        return [self.ids[value] for value in values if value in self.ids]

    def _argument(self, value: SSAValue, inputs: Iterable[str], printed: str = "", **attrs: Any) -> None:
        name = self._name(value)
        text = f"{name} = {printed}" if printed else f"{name}: {value.type}"
        id = self.build.add(name, "argument", "data", inputs, type_of(value.type), text, attrs, ours=True)
        self.ids[value] = id

    def _name(self, value: SSAValue) -> str:
        return f"%{self.names.get(value, '?')}"

    def _free(self, id: str) -> str:
        """Return an unused id for a node, which follows the nodes in its regions."""
        free, number = id, 1
        while free in self.used_names or free in self.build.ids:
            free, number = f"{id}#{number}", number + 1
        self.used_names.add(free)
        return free

    def _use(self, value: SSAValue) -> str:
        return self.ids.get(value) or self.build.missing(self._name(value))

    def _op(self, op: Operation) -> None:
        name, results = name_of(op), list(op.results)
        operands = [self._use(value) for value in op.operands]
        id = self._free(self._name(results[0]) if results else name)
        attrs = dict(_attributes(op))
        inputs = list(operands)
        visible = any(inner in self.printed for inner in inside(op))  # matmul, fill, … have no body in the text
        if visible and (self.bodies or not name.startswith("linalg.")):
            for number, region in enumerate(op.regions):
                inputs += self._region(op, id, region, number)
        elif visible:
            attrs["applies"] = ", ".join(name_of(inner).split(".")[-1] for inner in body_operations(op))
        if name.startswith("linalg.") and not results:
            attrs["mutates"] = True
        if name in ("memref.store", "affine.store", "memref.copy", "memref.dealloc", "linalg.copy", "llvm.store"):
            attrs["mutates"] = True
        kind = kinds.MLIR.get(name) or kinds.MLIR_DIALECTS.get(name.split(".")[0], "compute")
        if name == "linalg.generic" and kind == "compute" and results and not body_operations(op):
            kind = "shape"  # it yields what it reads: a transpose, a broadcast
        type = several(type_of(value.type) for value in results) if results else UNKNOWN
        label = attrs["value"] if name == "arith.constant" else ""
        text = self._generic(op, id) if name == "linalg.generic" else self.printed.get(op, "").removesuffix("{").strip()
        id = self.build.add(id, name, kind, inputs, type, text, attrs, str(label), ours=True)
        self.ids.update(dict.fromkeys(results, id))

    def _generic(self, op: Operation, id: str) -> str:
        """Return a linalg.generic on one line: `%3 = linalg.generic ins(%a[d0, d1], %b[d1]) outs(%e[d0, d1])`."""
        read = [f"{self._use(v)}{at}" for v, at in entering(op, 0).values()]
        count = _inputs(op)
        summary = f"linalg.generic ins({', '.join(read[:count])}) outs({', '.join(read[count:])})"
        over = "" if set(iterators(op)) <= {"parallel"} else f" [{', '.join(iterators(op))}]"
        return f"{id} = {summary}{over}" if op.results else f"{summary}{over}"

    def _region(self, op: Operation, id: str, region: Region, number: int) -> list[str]:
        """Read a region and return what it yields."""
        names = REGIONS.get(name_of(op), ())
        outer, self.build.block = self.build.block, f"{id}:{names[number] if number < len(names) else 'body'}"
        if outer:
            self.build.block = f"{outer}/{self.build.block}"
        yielded: list[str] = []
        for block in region.blocks:
            sources = entering(op, number)
            for argument in block.args:
                value, access = sources.get(argument.index, (None, ""))
                inputs = [self._use(value)] if value is not None else []
                self._argument(argument, inputs, f"{self._name(value)}{access}" if value is not None else access)
            for inner in block.ops:
                if name_of(inner) in YIELDS:
                    yielded += [self._use(value) for value in inner.operands]
                else:
                    self._op(inner)
        self.build.block = outer
        return yielded


def entering(op: Operation, number: int) -> dict[int, tuple[SSAValue | None, str]]:
    """Return index of a region's argument → (the operand it comes from, how it is read, such as `[d0, d1]`)."""
    name, operands = name_of(op), list(op.operands)
    if name == "linalg.generic":
        return {
            i: (value, read_at(results))
            for i, (value, (_, results)) in enumerate(zip(operands, maps(op), strict=False))
        }
    if name.startswith("linalg."):
        return {i: (value, "") for i, value in enumerate(operands)}
    if name == "scf.for":
        return {0: (None, "each index"), **{i: (v, " at first") for i, v in enumerate(operands[3:], 1)}}
    if name == "scf.while" and number == 0:
        return {i: (value, " at first") for i, value in enumerate(operands)}
    if name in ("affine.for", "scf.parallel", "affine.parallel", "scf.forall"):
        carried = operands[len(operands) - len(op.results) :] if name in ("affine.for", "scf.forall") else []
        own = len(op.regions[0].blocks[0].args) - len(carried)
        return dict.fromkeys(range(own), (None, "each index")) | {own + i: (v, "") for i, v in enumerate(carried)}
    return {}


def _inputs(op: Operation) -> int:
    """Return the number of operands that a linalg operation only reads."""
    sizes = property_of(op, "operandSegmentSizes")
    return int(sizes.get_values()[0]) if sizes is not None else len(op.operands) - 1


def maps(op: Operation) -> list[tuple[int, list[str]]]:
    """Return (number of loops, the results as text) for each operand of a linalg.generic."""
    attribute = property_of(op, "indexing_maps")
    return [(m.data.num_dims, [str(result) for result in m.data.results]) for m in attribute.data] if attribute else []


def read_at(results: list[str]) -> str:
    return f"[{', '.join(results)}]"


def iterators(op: Operation) -> list[str]:
    """Return "parallel" or "reduction" for each loop of a linalg.generic."""
    attribute = property_of(op, "iterator_types")
    return [getattr(kind.data, "value", str(kind.data)) for kind in attribute.data] if attribute else []


def inside(op: Operation) -> Iterator[Operation]:
    """Return the operations in the regions of an operation, and in theirs."""
    return (inner for region in op.regions for inner in region.walk())


def body_operations(op: Operation) -> list[Operation]:
    """Return the operations in the regions of an operation, without their terminators."""
    return [inner for inner in inside(op) if name_of(inner) not in YIELDS]


def _attributes(op: Operation) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an operation, as values of Python or short text."""
    if name_of(op) == "linalg.generic":
        yield "maps", ", ".join(read_at(results) for _, results in maps(op))
        yield "iterators", ", ".join(iterators(op))
    for name, value in {**op.properties, **op.attributes}.items():
        if name not in _UNSAID:
            yield name, _plain(value)


def _plain(attribute: Any) -> Any:
    import numpy as np

    kind = getattr(attribute, "name", "")
    if kind == "dense":
        values = np.asarray(attribute.get_values())
        values = values[:1] if attribute.is_splat() else values
        return next(iter(value_of(values).values()), f"{values.size} numbers")
    if kind in ("integer", "float"):
        return attribute.value.data
    if kind in ("string", "symbol_ref"):
        return attribute.data if kind == "string" else attribute.string_value()
    return cut(re.sub(r"#\w+(?:\.\w+)*<(\w+)>", r"\1", str(attribute)))


def type_of(type: Any) -> Type:
    """Return shape, dtype and bytes of a value's type; a number has the shape ()."""
    if not hasattr(type, "get_shape"):
        if str(type) == "index":
            return (), "index", 8
        dtype, size = element(str(type))
        return ((), dtype, None if size is None else int(size)) if size is not None else (None, dtype, None)
    dims = ["?" if dim in (-1, _DYNAMIC) else dim for dim in type.get_shape()]
    of = str(type.element_type)
    return tensor_type(dims, *(("index", 8) if of == "index" else element(of)))
