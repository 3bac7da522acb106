"""The compilers and passes that `hunt` tests, in their pinned versions."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from passlab.fx import torch_passes

#: Features of `drawn_graph` for graphs that only compute: no writes, no random numbers.
FUNCTIONAL = {"mutation": False, "random": False}

Run = Callable[..., Any]


@dataclass(frozen=True)
class Target:
    """A pass or compiler. apply(gm, inputs) → a callable; it may change gm.

    `promise`: what its documentation promises, and for which graphs. `features`: of `drawn_graph`, for graphs that meet
    these conditions. `refuses`: the beginnings of messages that say a graph is not supported: not a fault. `native`:
    modules that hold the compiler, if it may crash: they are loaded once, and each graph runs in a child.
    """

    name: str
    promise: str
    apply: Callable[[fx.GraphModule, tuple[Tensor, ...]], Run]
    features: Mapping[str, bool] = field(default_factory=lambda: FUNCTIONAL)
    package: str = "torch"
    refuses: tuple[str, ...] = ()
    native: tuple[str, ...] = ()


def _merge_aten(gm: fx.GraphModule, inputs: tuple) -> Run:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.passes.dialect.common.cse_pass import CSEPass, get_CSE_banned_ops

    result: Any = CSEPass(get_CSE_banned_ops())(make_fx(gm)(*inputs))
    return result.graph_module


def _operators(gm: fx.GraphModule, inputs: tuple) -> Run:
    from torch.fx.experimental.normalize import NormalizeOperators

    return NormalizeOperators(gm).transform()


def _merge_matmul(gm: fx.GraphModule, inputs: tuple) -> Run:
    from torch.fx.experimental.merge_matmul import merge_matmul

    return merge_matmul(gm)


def _inductor(gm: fx.GraphModule, inputs: tuple) -> Run:
    torch.compiler.reset()
    return torch.compile(gm, fullgraph=True)


def _onnx(gm: fx.GraphModule, inputs: tuple, **options: Any) -> Run:
    import onnx
    from onnx.reference import ReferenceEvaluator

    file: Any = io.BytesIO()
    export: Any = torch.onnx.export
    options["input_names"] = [f"in_{node.name}" for node in gm.graph.find_nodes(op="placeholder")]
    if options.get("dynamo"):
        model = export(gm, inputs, verbose=False, **options).model_proto
    else:
        export(gm, inputs, file, **options)
        model = onnx.load_from_string(file.getvalue())
    evaluator = ReferenceEvaluator(model)
    inputs_of_model = {value.name for value in model.graph.input}  # an exporter may drop inputs that nothing reads

    def run(*args: Tensor) -> list[Tensor]:
        values = {
            name: x.numpy() for name, x in zip(options["input_names"], args, strict=True) if name in inputs_of_model
        }
        outputs: Any = evaluator.run(None, values)
        return [torch.from_numpy(value.copy()) for value in outputs]

    return run


def _relax(gm: fx.GraphModule, inputs: tuple) -> Run:
    from tvm.relax.frontend.torch import from_exported_program

    return _on_the_vm(from_exported_program(torch.export.export(gm, inputs)))


def _relax_fx(gm: fx.GraphModule, inputs: tuple) -> Run:
    from tvm.relax.frontend.torch import from_fx

    forms = [(tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in inputs]
    return _on_the_vm(from_fx(gm, forms))


def _iree(gm: fx.GraphModule, inputs: tuple) -> Run:
    from passlab.mlir.imports import from_torch
    from passlab.mlir.run import run as run_module

    dtypes = [x.dtype for x in results(copy.deepcopy(gm), inputs)]
    arrived = from_torch(gm, *inputs)
    weights = arrived.arrays[len(inputs) :]

    def run(*args: Tensor) -> list[Tensor]:
        arrays = run_module(arrived.module, *(_signless(x).numpy() for x in args), *weights, by="iree")
        outputs = [torch.from_numpy(array.copy()) for array in arrays]
        pairs = zip(outputs, dtypes, strict=True)
        return [x.view(dtype) if (x.dtype, dtype) == (torch.int8, torch.uint8) else x for x, dtype in pairs]

    return run


def _signless(x: Tensor) -> Tensor:
    """Return unsigned bytes as MLIR has them: its integers have no sign, and their arrays are signed."""
    return x.view(torch.int8) if x.dtype == torch.uint8 else x


def _on_the_vm(module: Any) -> Run:
    """Build a module of Relax as it is, without other passes than those that building needs, and return its `main`."""
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())

    def run(*args: Tensor) -> list[Tensor]:
        return _tensors(machine["main"](*(tvm.runtime.tensor(x.numpy()) for x in args)))

    return run


def _tensors(value: Any) -> list[Tensor]:
    if hasattr(value, "numpy"):
        return [torch.from_numpy(value.numpy().copy())]
    return [tensor for part in value for tensor in _tensors(part)]


def results(run: Run, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors that a program returns on a copy of the inputs, in order. Its random numbers are the same."""
    if isinstance(run, fx.GraphModule):
        run = run.forward  # a graph's own __call__ imports all of Dynamo to say where it failed
    torch.manual_seed(0)
    with torch.no_grad():
        return [x for x in tree_leaves(run(*(x.clone() for x in inputs))) if isinstance(x, Tensor)]


_UNSUPPORTED = ("Unsupported function", "Unsupported module type", "Unsupported operator", "Exporting the operator")
_RELAX = ("torch.export", "torch._dynamo", "tvm.relax.frontend.torch")

#: Name → target.
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            "cse",
            "torch.fx CSEPass: the same function, for graphs without writes and random numbers (its docstring: not "
            "safe “in non-functional dialects”).",
            lambda gm, inputs: torch_passes.merge(gm),
        ),
        Target(
            "cse-aten",
            "torch.fx CSEPass with its list of banned operations, on ATen graphs: the same function and the same "
            "draws; its list names the random operations and the writes to leave alone.",
            _merge_aten,
            {"mutation": True, "random": True},
        ),
        Target(
            "dce",
            "Graph.eliminate_dead_code: the same function, for graphs that consist “entirely of functional operations” "
            "(its docstring).",
            lambda gm, inputs: torch_passes.eliminate(gm),
        ),
        Target(
            "const-fold",
            "torch.fx const_fold.split_const_subgraphs: the same function. The docstring states no condition.",
            lambda gm, inputs: torch_passes.fold(gm),
            {"mutation": True, "random": True},
        ),
        Target(
            "operators",
            "torch.fx.experimental.normalize.NormalizeOperators: the same calls, “different ways of spelling” one "
            "call rewritten as one. The docstring states no condition.",
            _operators,
        ),
        Target(
            "merge-matmul",
            "torch.fx.experimental.merge_matmul: the same function, products that share their right operand merged. "
            "The docstring states no condition, and shows matrices.",
            _merge_matmul,
        ),
        Target(
            "fuse",
            "torch.fx.experimental.optimization.fuse: the same function “for inference purposes”, batch norms folded "
            "into the layers before them.",
            lambda gm, inputs: torch_passes.fuse(gm.eval()),
        ),
        Target(
            "jit-trace",
            "torch.jit.trace: a program that computes on these inputs what the module computes.",
            lambda gm, inputs: torch.jit.trace(gm, inputs, check_trace=False, strict=False),
        ),
        Target("inductor", "torch.compile: the same function as the module, up to rounding.", _inductor),
        Target(
            "onnx",
            "torch.onnx.export(dynamo=True): a model that computes what the module computes.",
            lambda gm, inputs: _onnx(gm, inputs, dynamo=True),
            package="onnx",
        ),
        Target(
            "onnx-traced",
            "torch.onnx.export(dynamo=False): a model that computes what the module computes on these inputs.",
            lambda gm, inputs: _onnx(gm, inputs, dynamo=False),
            package="onnx",
            refuses=_UNSUPPORTED,
        ),
        Target(
            "relax",
            "Relax's from_exported_program: a module that computes what the exported program computes.",
            _relax,
            package="apache-tvm",
            refuses=_UNSUPPORTED,
            native=_RELAX,
        ),
        Target(
            "relax-fx",
            "Relax's from_fx: a module that computes what the graph computes.",
            _relax_fx,
            package="apache-tvm",
            refuses=_UNSUPPORTED,
            native=_RELAX,
        ),
        Target(
            "iree",
            "torch-mlir's importer and IREE: a program that computes what the exported program computes.",
            _iree,
            package="iree-base-compiler",
            refuses=("cannot be lowered to linalg", "does not reach MLIR"),
            native=("torch.export", "torch._dynamo", "iree.compiler", "passlab.mlir.imports", "passlab.mlir.run"),
        ),
    )
}
