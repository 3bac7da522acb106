"""Which package handles which IR: one table, and the dispatch on it.

    view(model, x)                          # calls the reader of the package for nn.Modules
    part(module, "measure").launches(module)

The package of an IR offers modules with fixed names, each with functions of fixed names; what it lacks is not available
for that IR:

    compiler     COMPILER, a `passlab.building.compiler.Compiler`: for the packages in `COMPILERS`
    reader       read(value, *inputs) -> Graph
    equivalent   equivalent(before, after, inputs, options) -> Equivalence; one side may be torch's
    measure      launches(value, *inputs), bytes_moved(value, *inputs), cost(value, *inputs)
    generate     random programs
    shrink       shrink(value, fails, budget) -> a smaller value
    wire         carries(value), encode(value) -> bytes, decode(payload) -> value, or Refused: for values that travel
    picture      draw(value, title="") -> Picture, where one box per node of the view is not enough, and perhaps
                 diff(before, after, title="") -> Picture

The table holds names only, and a package is imported when first used: TVM in particular, since a process can hold only
one. Everything else in passlab imports downwards; what is reached through here may lie above.
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from passlab.graph.model import Graph


class IR(NamedTuple):
    """A type of IR values. `package`: handles it. `title`: its name in messages, "" for a type without a view.
    `reader`: the module that reads it, if not the `reader` of the package."""

    package: str
    title: str
    reader: str = ""


#: The modules of fixed names, as above.
PARTS = ("compiler", "reader", "equivalent", "measure", "generate", "shrink", "wire", "picture")
#: The packages with a compiler. Its flavour, the name by which a notebook says that it needs it, is the package's name.
COMPILERS = ("relay", "relax", "mlir")

#: Type (module and qualified name) → its IR. A type is looked up with its bases, the nearest first.
#: A new IR is a line for each of its types here, one above if it has a compiler, and one folder beside this one.
TYPES = {
    "torch.fx.graph_module.GraphModule": IR("fx", "torch.fx.GraphModule"),
    "torch.fx.graph.Graph": IR("fx", "torch.fx.Graph"),
    "torch.nn.modules.module.Module": IR("fx", "torch.nn.Module (it is traced)"),
    "torch.jit._script.ScriptModule": IR("fx", "torch.jit.ScriptModule", "formats.torchscript"),
    "torch.jit.torch.jit.ScriptFunction": IR("formats", "torch.jit.ScriptFunction", "formats.torchscript"),
    "torch.export.exported_program.ExportedProgram": IR("fx", "torch.export.ExportedProgram", "formats.export"),
    "passlab.capture.recorder.Capture": IR("capture", "what torch.compile captures (passlab.capture.capture(f, x))"),
    "torch.onnx.ONNXProgram": IR("formats", "torch.onnx.ONNXProgram", "formats.onnx"),
    "onnx.onnx_ml_pb2.ModelProto": IR("formats", "onnx.ModelProto", "formats.onnx"),
    "jaxlib._jax.PjitFunction": IR("formats", "jax.jit(f) (it is lowered for the inputs)", "formats.stablehlo"),
    "jax._src.stages.Traced": IR("formats", "jax.stages.Traced", "formats.stablehlo"),
    "jax._src.stages.Lowered": IR("formats", "jax.stages.Lowered", "formats.stablehlo"),
    "jax._src.stages.Compiled": IR("formats", "jax.stages.Compiled", "formats.hlo"),
    "jaxlib.mlir._mlir_libs._mlir.ir.Module": IR("formats", "an MLIR module in StableHLO", "formats.stablehlo"),
    "tvm.ir.module.IRModule": IR("tvm", "an IRModule of Relay or Relax"),
    "tvm.relay.function.Function": IR("tvm", "relay.Function"),
    "tvm.relax.expr.Function": IR("tvm", "relax.Function"),
    "tvm.tirx.function.PrimFunc": IR("tvm", "tirx.PrimFunc"),
    "tvm.tir.function.PrimFunc": IR("tvm", "tir.PrimFunc"),
    "passlab.tvm.builds.Packed": IR("tvm", ""),
    "passlab.dataflow.cfg.Program": IR("dataflow", "a control-flow graph (passlab.dataflow.Program)"),
    "xdsl.dialects.builtin.ModuleOp": IR("mlir", "an MLIR module (xDSL's ModuleOp)"),
    "iree.compiler._mlir_libs._mlir.ir.Module": IR("mlir", "an MLIR module (IREE's ir.Module)"),
    "builtins.str": IR("formats", "text in HLO, StableHLO or MLIR", "formats.text"),
}


def ir(value: Any) -> IR | None:
    """Return the row of the table for a value, or None for a value that belongs to no IR."""
    for base in type(value).__mro__:
        if row := TYPES.get(f"{base.__module__}.{base.__qualname__}"):
            return row
    return None


def part(value: Any, name: str, default: str = "") -> ModuleType | None:
    """Return the module `name` of the package for `value`, or None where there is none.

    default: the package to use where the value belongs to no IR (a plain function), or its package lacks the module.
    """
    row = ir(value)
    return (find_module(row.package, name) if row else None) or find_module(default, name)


@cache
def find_module(package: str, name: str) -> ModuleType | None:
    """Return the module `name` of a package of passlab, or None where the package has no such module."""
    spec = package and importlib.util.find_spec(f"passlab.{package}.{name}")
    return load(f"{package}.{name}") if spec else None


def compiler(flavour: str) -> Any:
    """Return the `passlab.building.compiler.Compiler` of a flavour; None for "torch". Raises ValueError for another."""
    if flavour == "torch":
        return None
    if flavour not in COMPILERS:
        raise ValueError(f"There is no flavour {flavour!r}; expected one of {', '.join(('torch', *COMPILERS))}.")
    return load(f"{flavour}.compiler").COMPILER


def load(name: str) -> ModuleType:
    """Import a module of passlab by its name, such as "relay.dialect"."""
    return importlib.import_module(f"passlab.{name}")


def view(obj: Any, *inputs: Any) -> Graph:
    """Return the read-only view of any IR object; `obj` is not changed.

        view(model, x)                      # an nn.Module is traced first; x gives shapes
        view(torch.export.export(model, (x,)))
        view(jax.jit(f).lower(x))

    `inputs`: example inputs, for IRs without shapes (torch.fx). Raises TypeError for an object that is not an IR.
    """
    if isinstance(obj, Graph):
        return obj
    if (row := ir(obj)) and row.title:
        return load(row.reader or f"{row.package}.reader").read(obj, *inputs)
    accepted = ", ".join(row.title for row in TYPES.values() if row.title)
    raise TypeError(f"view cannot read {type(obj).__module__}.{type(obj).__qualname__}; it takes: {accepted}.")
