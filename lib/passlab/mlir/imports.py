"""Bring models to linalg: from torch through torch-mlir's importer, from StableHLO through IREE's conversion.

    arrived = from_torch(model, x)
    run(arrived.module, *arrived.arrays)         # [model(x)]

torch.export traces the graph, IREE's importer writes it in the dialect `torch`, and torch-mlir's passes lower it.
Weights are arguments of `main`, after the model's inputs, so that the text stays short.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from passlab.mlir.modules import MLIRError, _line, _place, _raise, _require_native, from_iree, is_iree, read

if TYPE_CHECKING:
    import numpy as np
    import torch
    from xdsl.dialects.builtin import ModuleOp

_FROM_TORCH = "torchdynamo-export-to-torch-backend-pipeline,torch-backend-to-linalg-on-tensors-backend-pipeline"
_FROM_STABLEHLO = "iree-stablehlo-input-transformation-pipeline"


@dataclass(frozen=True)
class ImportedModel:
    """A model in linalg. `arrays`: the arguments of `main`, the example inputs and then the weights; `weights`: the
    names of the latter in the model, in that order; `before`: its text in the dialect `torch`."""

    module: ModuleOp
    arrays: tuple[np.ndarray, ...]
    weights: tuple[str, ...]
    before: str


def from_torch(model: torch.nn.Module, *inputs: torch.Tensor) -> ImportedModel:
    """Return a torch model in linalg on tensors. Raises MLIRError for one that does not export or lower."""
    import torch

    if not isinstance(model, torch.nn.Module):
        raise MLIRError(f"from_torch takes a torch.nn.Module; this is a {type(model).__name__}.")
    if model.training and any(m.training for m in model.modules() if type(m).__name__.startswith(("Batch", "Drop"))):
        raise MLIRError(f"{type(model).__name__} is in training mode. Call model.eval() before importing it.")
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    weights = {name: value for name, value in state.items() if value.is_floating_point()}

    class Bare(torch.nn.Module):
        """The model with its weights as inputs."""

        def forward(self, inputs: tuple, weights: tuple) -> Any:
            arguments = {**state, **dict(zip(weight_names, weights, strict=True))}
            return torch.func.functional_call(model, arguments, inputs)

    weight_names = tuple(weights)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(Bare(), (tuple(inputs), tuple(weights.values()))).run_decompositions()
            module, before = _import(program)
    except MLIRError:
        raise
    except Exception as error:
        raise MLIRError(f"{type(model).__name__} does not reach MLIR: {_line(error)}.") from None
    names = [*_input_names(model, len(inputs)), *weights]
    for argument, name in zip(_main(module).regions[0].blocks[0].args, names, strict=True):
        argument.name_hint = re.sub(r"^(?=\d)", "w", re.sub(r"\W", "_", name))
    arrays = tuple(tensor.detach().cpu().numpy() for tensor in (*inputs, *weights.values()))
    return ImportedModel(module, arrays, weight_names, before)


def _import(program: torch.export.ExportedProgram) -> tuple[ModuleOp, str]:
    """Return the module in linalg of an exported program, and its text in the dialect torch."""
    ir = _require_native()
    try:
        from iree.compiler.extras.fx_importer import FxImporter
    except ImportError as error:
        raise MLIRError(f"torch's models need the importer of iree-base-compiler: {_line(error)}.") from None
    _normal_norms(program.graph)
    with ir.Context() as context:
        importer = FxImporter(context=context, hooks=_hooks())
        importer.import_program(program, func_name="main")
        before = importer.module.operation.get_asm(large_elements_limit=16)
        return _lower(importer.module, _FROM_TORCH), before


def _hooks() -> Any:
    """Return hooks that write constants into the text: the importer's own, resources, are lost when it is read again.

    Constants are all tensors that are not arguments of `main`: those without floats, and those that are no buffers.
    """
    import torch
    from iree.compiler.extras import fx_importer
    from iree.compiler.ir import DenseElementsAttr, Operation

    class Written(fx_importer.FxImporterHooks):
        def resolve_literal(self, gni: Any, literal: Any, info: Any) -> Any:
            if not isinstance(literal, torch.Tensor) or literal.numel() <= 1:
                return None
            octets = literal.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            dtype = fx_importer.TORCH_DTYPE_TO_NPY_TYPE[literal.dtype]
            element = fx_importer.TORCH_DTYPE_TO_MLIR_TYPE[literal.dtype]()
            value = DenseElementsAttr.get(octets.view(dtype), type=element, shape=list(literal.shape))
            form = gni._cc.tensor_to_vtensor_type(literal)
            return Operation.create("torch.vtensor.literal", results=[form], attributes={"value": value}).result

    return Written()


def _normal_norms(graph: torch.fx.Graph) -> None:
    """Write batch normalization as torch-mlir knows it: functionalizing left an operator that it does not know."""
    import torch

    aten = torch.ops.aten
    for node in graph.nodes:
        if node.target is aten._native_batch_norm_legit_no_training.default:
            x, weight, bias, mean, var, momentum, eps = node.args
            (result,) = node.users  # its getitem, whose name may be that of an output; the statistics are not used
            result.target = aten.batch_norm.default
            result.args = x, weight, bias, mean, var, False, momentum, eps, False
            graph.erase_node(node)


def _input_names(model: torch.nn.Module, count: int) -> list[str]:
    import inspect

    parameters = inspect.signature(model.forward).parameters
    names = [name for name, p in parameters.items() if p.kind is not p.VAR_POSITIONAL]
    return [*names, *(f"x{i}" for i in range(count))][:count]


def _main(module: ModuleOp) -> Any:
    from passlab.mlir.reader import functions

    return next(iter(functions(module).values()))


def _lower(module: Any, steps: str, text: str = "") -> ModuleOp:
    """Return the module in linalg. text: its source, to report error positions in it."""
    ir = _require_native()
    from iree.compiler import passmanager

    try:
        manager = passmanager.PassManager.parse(f"builtin.module({steps},canonicalize,cse)", module.context)
        manager.run(module.operation)
    except ir.MLIRError as error:
        diagnosis = next(iter(error.error_diagnostics), None)
        reason = diagnosis.message.split(": %")[0] if diagnosis else _line(error)
        if text and diagnosis:
            _raise(text, "StableHLO", _place(diagnosis.location), reason)
        raise MLIRError(f"The model cannot be lowered to linalg: {reason}.") from None
    if "sym_name" in module.operation.attributes:  # IREE would run it as this name, not as "module"
        del module.operation.attributes["sym_name"]
    for function in module.body.operations:
        for name in [a for a in function.attributes if a.startswith(("torch.", "jax.", "mhlo.", "arg_", "res_"))]:
            del function.attributes[name]
    return from_iree(module)


def from_stablehlo(program: Any) -> ModuleOp:
    """Return StableHLO in linalg on tensors: its text, or what `jax.jit(f).lower(x)` returns.

    Raises MLIRError for what does not parse or lower.
    """
    ir = _require_native()
    text = program if isinstance(program, str) else program.as_text() if hasattr(program, "as_text") else None
    if is_iree(program):
        text = str(program)
    if text is None:
        raise MLIRError(f"from_stablehlo takes text, or jax.jit(f).lower(x); this is a {type(program).__name__}.")
    return _lower(read(text, "StableHLO", ir.Context()), _FROM_STABLEHLO, text)
