"""StableHLO: text, an MLIR module, or JAX's lowering (`jax.jit(f).lower(x)`, or `view(jax.jit(f), x)`).

Calls of the module's own functions are inlined, so that the view shows what `call @relu` computes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from jaxlib.mlir import ir

from passlab.formats.hlo import element
from passlab.graph import Graph, kinds
from passlab.graph.assemble import UNKNOWN, Builder, Type, cut, several, short, tensor_type

#: The longest list of numbers to keep of a constant.
_FEW = 16

#: Calls are inlined up to this many nodes: functions that call each other twice, n deep, are 2ⁿ nodes.
_MOST = 100_000

#: `#stablehlo<comparison_direction GT>`
_ENUM = re.compile(r"#stablehlo<\w+ (\w+)>")

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def read(obj: Any, *inputs: Any) -> Graph:
    """Return the view of the module's function `main` (or else its first function)."""
    if isinstance(obj, str):
        return read_text(obj)
    if hasattr(obj, "trace"):  # jax.jit(f): lower it for these inputs
        obj = obj.lower(*inputs)
    elif hasattr(obj, "fun_name") and hasattr(obj, "lower"):  # jax.stages.Traced
        obj = obj.lower()
    module = obj.compiler_ir("stablehlo") if hasattr(obj, "compiler_ir") else obj
    with module.context:
        return _Reader(module).read()


def read_text(text: str) -> Graph:
    """Return the view of a module in MLIR text. Raise ValueError if MLIR cannot parse it."""
    from jax._src.interpreters.mlir import make_ir_context

    with make_ir_context() as context:
        context.allow_unregistered_dialects = True
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            reason = " ".join(str(error).split())
            remedy = "Lower other dialects first: torch's by passlab.mlir.imports.from_torch(model, x)"
            raise ValueError(f"MLIR cannot parse this text as a StableHLO module. {cut(reason)} {remedy}.") from None
        return _Reader(module).read()


class _Reader:
    def __init__(self, module: ir.Module):
        self.module = module
        functions = [op for op in module.body.operations if op.operation.name == "func.func"]
        self.functions = {_plain(op.attributes["sym_name"]): op for op in functions}
        if not functions:
            raise ValueError("This MLIR module has no function (func.func), so there is no graph to view.")
        self.entry = self.functions.get("main", functions[0])
        owner = module if "sym_name" in module.operation.attributes else self.entry
        self.build = Builder(_plain(owner.operation.attributes["sym_name"]), "StableHLO")
        # Value → id of its producer. The printer names values anew in each region: the names are "ours".
        self.producers: dict[Any, str] = {}
        self.scope = ""
        self.calls: dict[str, int] = {}

    def read(self) -> Graph:
        returned = self._function(self.entry, None)
        self.build.outputs = returned
        text = f"return {', '.join(returned)}"
        self.build.add("return", "func.return", "data", returned, text=text, ours=True)
        return self.build.graph(self.module.operation.get_asm(large_elements_limit=_FEW))

    def _function(self, function: Any, operands: list[str] | None) -> list[str]:
        """Read a function's body; its arguments become nodes, or are the ids `operands` if it is inlined."""
        state = ir.AsmState(function.operation)  # knows the names in the text
        for block in function.regions[0].blocks:
            for i, argument in enumerate(block.arguments):
                if operands is not None:
                    self.producers[argument] = operands[i]
                else:
                    self._argument(argument, state, ())
        return self._region(function.regions[0], state)

    def _argument(self, value: Any, state: Any, inputs: Iterable[str]) -> None:
        name = self.scope + value.get_name(state)
        text = f"{name}: {value.type}"
        self.producers[value] = self.build.add(name, "argument", "data", inputs, _type(value.type), text, ours=True)

    def _region(self, region: Any, state: Any) -> list[str]:
        returned: list[str] = []
        for block in region.blocks:
            for op in block.operations:
                name = op.operation.name
                if name.endswith((".return", ".yield")):
                    returned = [self._use(value, state) for value in op.operands]
                elif name == "func.call" and self._inline(op, state):
                    continue
                else:
                    self._op(op.operation, name, state)
        return returned

    def _use(self, value: Any, state: Any) -> str:
        return self.producers.get(value) or self.build.missing(self.scope + value.get_name(state))

    def _inline(self, op: Any, state: Any) -> bool:
        name = str(op.attributes["callee"]).lstrip("@")
        function = self.functions.get(name)
        if function is None or len(self.build.nodes) > _MOST:
            return False
        self.calls[name] = number = self.calls.get(name, -1) + 1
        scope, self.scope = self.scope, f"{name}{f'#{number}' if number else ''}/"
        results = self._function(function, [self._use(value, state) for value in op.operands])
        self.scope = scope
        self.producers.update(zip(op.results, results, strict=True))
        return True

    def _op(self, op: Any, name: str, state: Any) -> None:
        results = list(op.results)
        operands = [self._use(value, state) for value in op.operands]
        id = self.scope + (results[0].get_name(state).split("#")[0].split(":")[0] if results else name)
        kind = kinds.STABLEHLO.get(name.split(".")[-1], "compute")
        attrs = _attributes(op)
        if name == "func.call":
            kind, attrs["callee"] = "control", str(op.attributes["callee"]).lstrip("@")
        inputs = list(operands)
        if kind == "control":
            for i, region in enumerate(op.regions):
                inputs += self._inner(f"{id}:{_region_name(name, i)}", region, operands, state)
        elif len(op.regions):
            attrs["applies"] = _applied(op)
        label = str(attrs.get("value", "")) if name == "stablehlo.constant" else ""
        options = [*operands, *(f"{key}={short(value)}" for key, value in attrs.items())]
        type = several(_type(value.type) for value in results) if results else UNKNOWN
        text = f"{id} = {name}({', '.join(options)})"
        id = self.build.add(id, name, kind, inputs, type, text, attrs, label, ours=True)
        for value in results:
            self.producers[value] = id

    def _inner(self, name: str, region: Any, operands: list[str], state: Any) -> list[str]:
        """Read a region of a loop or branch; the arguments of a loop's regions take its operands on entry."""
        outer, self.build.block = self.build.block, name
        for block in region.blocks:
            for i, argument in enumerate(block.arguments):
                self._argument(argument, state, operands[i : i + 1])
        returned = self._region(region, state)
        self.build.block = outer
        return returned


def _attributes(op: Any) -> dict[str, Any]:
    """Return the attributes of an operation as Python values or text."""
    try:
        return {key: _plain(op.attributes[key]) for key in op.attributes}
    except TypeError:  # the bindings have no class for a complex constant
        text = re.search(r"dense<(.*?)> : ", str(op))
        return {"value": cut(text[1])} if text else {}


def _region_name(op: str, i: int) -> str:
    names = {"stablehlo.while": ("cond", "body"), "stablehlo.if": ("then", "else")}.get(op, ())
    return names[i] if i < len(names) else f"branch{i}"


def _applied(op: Any) -> str:
    """Return the operations that a reduce, sort or scatter applies to two elements: those in its region."""
    inside = [
        inner.operation.name.split(".")[-1] for region in op.regions for b in region.blocks for inner in b.operations
    ]
    return ", ".join(name for name in inside if name != "return")


def _plain(attribute: Any) -> Any:
    """Convert an attribute to a Python value if there is one, else to text; long constants are left out."""
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat and len(attribute) > _FEW:
            return f"{len(attribute)} numbers"
        try:
            return attribute.get_splat_value().value if attribute.is_splat else tuple(attribute)
        except (AttributeError, TypeError, ValueError):  # element types without a Python number
            return cut(str(attribute).removeprefix("dense<").rsplit("> : ", 1)[0])
    if isinstance(attribute, (ir.IntegerAttr, ir.BoolAttr, ir.FloatAttr, ir.StringAttr)):
        return attribute.value
    if isinstance(attribute, (ir.DenseI64ArrayAttr, ir.DenseI32ArrayAttr, ir.DenseBoolArrayAttr)):
        return tuple(attribute)
    return cut(_ENUM.sub(r"\1", str(attribute)).replace("#stablehlo.", ""))


def _type(type: Any) -> Type:
    if not isinstance(type, ir.RankedTensorType):
        return None, str(type), None
    return tensor_type(["?" if dim == _DYNAMIC else dim for dim in type.shape], *element(str(type.element_type)))
