"""The passes that can be explored, by name, and one call of a pass.

A pass works on one IR. Between two IRs a conversion stands in the list, as a pass of its own: `to_relax`, `to_relay` or
`to_mlir`, each from torch.fx. An IR is named by its package: "fx", "relax", "relay", "mlir".
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from torch import fx

from passlab.building.compiler import Unreachable
from passlab.fx import rewrites, torch_passes
from passlab.fx.stages import STAGES
from passlab.graph.names import did_you_mean
from passlab.graph.registry import ir, load
from passlab.process.error_text import reason


class Pass(NamedTuple):
    """A pass in a list. `code`: how a list of passes in Python names it. `about`: one line on what it does.

    `takes`: the IR that it works on, "" for any. `gives`: that of its result, for a conversion to another.
    """

    name: str
    run: Callable[[Any], Any]
    code: str
    about: str = ""
    takes: str = ""
    gives: str = ""


class Outcome(NamedTuple):
    """What a pass returns. `value`: the program after it, None where it failed; `problem`: why, as a sentence.

    `weights`: what a converted program takes after the inputs.
    """

    value: Any
    problem: str = ""
    weights: tuple = ()


#: Name → pass over torch.fx: this course's, then torch's.
TORCH: dict[str, Callable[[fx.GraphModule], Any]] = {
    **STAGES,
    "conv_bn_relu": rewrites.conv_bn_relu,
    "gemm": rewrites.gemm,
    "layer_norm": rewrites.layer_norm,
    "rms_norm": rewrites.rms_norm,
    "residual": rewrites.residual,
    "torch.CSEPass": torch_passes.merge,
    "torch.eliminate_dead_code": torch_passes.eliminate,
    "torch.const_fold": torch_passes.fold,
    "torch.fuse": torch_passes.fuse,
}
#: Flavour of TVM → names of its passes without arguments that change a graph.
TVM = {
    "relax": (
        *("CanonicalizeBindings", "DecomposeOpsForInference", "FoldConstant", "EliminateCommonSubexpr"),
        *("DeadCodeElimination", "LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"),
    ),
    "relay": (
        *("SimplifyInference", "CanonicalizeOps", "FoldConstant", "SimplifyExpr", "EliminateCommonSubexpr"),
        *("DeadCodeElimination", "FoldScaleAxis", "FuseOps"),
    ),
}


#: IR → its name in sentences.
TITLES = {"fx": "torch.fx", "relax": "Relax", "relay": "Relay", "mlir": "MLIR"}


def language(value: Any) -> str:
    """Return the IR of a value that has passes of its own, "" for others."""
    package = getattr(ir(value), "package", "")
    if package == "tvm":
        return load("tvm.reach").loaded()
    return package if package == "mlir" or isinstance(value, fx.GraphModule) else ""


def catalogue(value: Any) -> dict[str, Pass]:
    """Return name → pass for the IR of a value; empty for an IR without passes of its own, or if MLIR is missing.

    From torch.fx, conversions lead to the other IRs, whose passes follow with the IR before their names.
    """
    own = language(value)
    passes = _passes(own)
    for to in [to for to in TITLES if own == "fx" and to != own]:
        passes.append(_conversion(to))
        passes += [item._replace(name=f"{to}.{item.name}", code=repr(f"{to}.{item.name}")) for item in _passes(to)]
    return {item.name: item for item in passes}


def _passes(own: str) -> list[Pass]:
    """Return the passes of an IR."""
    if own == "fx":
        return [Pass(name, run, repr(name), _about(run), own) for name, run in TORCH.items()]
    if own in TVM:
        return [Pass(name, partial(_tvm, own, name), repr(name), takes=own) for name in TVM[own]]
    if own == "mlir" and importlib.util.find_spec("iree"):
        mlir = load("mlir")
        return [Pass(name, partial(_mlir, name), repr(name), about, own) for name, (_, about) in mlir.PASSES.items()]
    return []


def _conversion(to: str) -> Pass:
    name = f"to_{to}"
    return Pass(name, partial(_convert, to), repr(name), f"Convert torch.fx to {TITLES[to]}.", "fx", to)


def _convert(to: str, gm: fx.GraphModule) -> Any:
    inputs = gm.meta.get("inputs")
    if not inputs:
        raise Unreachable("A conversion needs example inputs: explore(model, x).")
    if to == "mlir":
        return load("mlir.imports").from_torch(gm, *inputs)
    return getattr(load("tvm.importers"), f"{to}_module")(gm, *inputs)


def _tvm(flavour: str, name: str, module: Any) -> Any:
    transform = importlib.import_module(f"tvm.{flavour}.transform")
    if hasattr(transform, "InferType"):  # Relay's passes want the types of a module that no pass has read yet
        module = transform.InferType()(module)
    return getattr(transform, name)()(module)


def _mlir(name: str, module: Any) -> Any:
    return load("mlir").pipeline(module, name)


def chosen(value: Any, passes: Iterable[str | Callable[[Any], Any]]) -> list[Pass]:
    """Return passes as they were given, by name or as callables. Raises ValueError for an unknown name."""
    known, result = catalogue(value), []
    for choice in passes:
        if isinstance(choice, str):
            if choice not in known:
                hint = did_you_mean(choice, known, 3) or f" There are: {', '.join(known) or 'none'}."
                raise ValueError(f"explore knows no pass {choice!r} for this IR.{hint}")
            result.append(known[choice])
        elif callable(choice):
            name = _name(choice)
            result.append(Pass(name, choice, name, _about(choice)))
        else:
            raise ValueError(
                f"explore takes passes as names or functions; got {type(choice).__name__}: {choice!r:.60}."
            )
    return result


def _name(run: Any) -> str:
    if info := getattr(run, "info", None):  # a pass of TVM
        return str(getattr(info, "name", info))
    return getattr(run, "__name__", "") or type(run).__name__


def _about(run: Any) -> str:
    described = inspect.isroutine(run) or isinstance(run, type)
    return (inspect.getdoc(run) or "").split("\n")[0] if described else ""


def call(item: Pass, value: Any) -> Outcome:
    """Call a pass on a value that it may change; an exception or a wrong result is a sentence."""
    own = language(value)
    if item.takes not in ("", own):
        to = "move it up" if item.takes == "fx" else f"put to_{item.takes} before it"
        return Outcome(None, f"It works on {TITLES[item.takes]}, and here the program is in {TITLES.get(own)}: {to}.")
    try:
        result = item.run(value)
    except Unreachable as error:
        return Outcome(None, str(error))
    except Exception as error:
        sentence = reason(error)
        return Outcome(None, f"It raised {type(error).__name__}{f': {sentence}' if sentence else ''}.")
    result = getattr(result, "graph_module", result)  # torch's PassResult
    weights: tuple = ()
    if item.gives == "mlir":
        weights, result = result.arrays[len(result.arrays) - len(result.weights) :], result.module
    if isinstance(value, fx.GraphModule) and isinstance(result, fx.GraphModule):
        result.recompile()
    if ir(result) is None or (own == "fx" and not language(result)):
        shown = "None" if result is None else type(result).__name__
        return Outcome(None, f"It returned {shown}; a pass returns the program.")
    return Outcome(result, weights=weights)
