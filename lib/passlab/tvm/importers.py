"""Import torch models and ONNX files as TVM modules, in Relay or in Relax.

    relay_module(models.ZOO["resnet18"].build(), x)          # parameters bound: constants inside the module
    module, params = relay_module(model, x, bind=False)      # parameters are inputs of main, after the model's own
    relay_from_onnx("model.onnx")                            # a path, or an onnx.ModelProto
    relax_module(model, x); relax_from_onnx(...)             # the same in today's TVM
    to_onnx(model, x)                                        # an onnx.ModelProto, written by torch

Reading order: requirements on a model, Relay, Relax, ONNX. One process holds one TVM (see passlab.relay), so the
functions of one flavour only work where that flavour does. A ValueError quotes TVM's reason for rejecting a model.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, fx, nn

from passlab.process.error_text import reason
from passlab.tvm.reach import reach

#: The newest ONNX operator set that Relay 0.17 reads completely and torch's TorchScript exporter writes.
OPSET = 17

_DRAWS_IN_TRAINING = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


def _check(model: nn.Module, inputs: tuple) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"The importers take a torch.nn.Module; got {type(model).__name__}.")
    for i, x in enumerate(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"Input {i} of {type(model).__name__} must be an example tensor; got {type(x).__name__}.")
    own = model.training and not isinstance(model, fx.GraphModule)  # a GraphModule's code does not depend on the flag
    if own or any(m.training for m in model.modules() if isinstance(m, _DRAWS_IN_TRAINING)):
        raise ValueError(f"{type(model).__name__} is in training mode. Call model.eval() before importing it.")


def input_names(model: nn.Module, inputs: tuple) -> list[str]:
    """Return the names of the inputs of the model's `forward`; starred ones get numbers."""
    names = []
    for name, parameter in inspect.signature(model.forward).parameters.items():
        starred = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{name}{i}" for i in range(len(inputs) - len(names))] if starred else [name]
    return names[: len(inputs)]


@contextlib.contextmanager
def _telling(name: str, into: str) -> Iterator[None]:
    """Silence the exporters, and raise a ValueError with the line of an error that names the cause."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:  # the frontends raise exceptions of any type
        raise ValueError(f"{name} cannot be imported into {into}: {reason(error) or type(error).__name__}.") from error


# Relay


def relay_module(model: nn.Module, *inputs: Tensor, bind: bool = True) -> Any:
    """Return the Relay module of a torch model in eval mode, by `torch.jit.trace` and TVM's PyTorch frontend.

    `main` takes the model's inputs under the names in `forward`. Parameters and buffers are constants, or with
    `bind=False` further inputs named as in torch ("conv1.weight"); then return (module, params).
    """
    tvm = reach("relay")
    relay = tvm.relay

    _check(model, inputs)
    with _telling(type(model).__name__, "Relay"):
        state = dict([*model.named_parameters(), *model.named_buffers()])

        def run(*args: Tensor) -> Any:
            with _replaced(model, dict(zip(map(id, state.values()), args[len(inputs) :], strict=True))):
                return model(*args[: len(inputs)])

        # As inputs of the trace, so that each parameter is one variable with its own name: the frontend makes one for
        # each use, and names it after the operation that uses it, which two parameters of one operation share.
        traced = torch.jit.trace(run, (*inputs, *state.values()), strict=False, check_trace=False)
        names = [*input_names(model, inputs), *state]
        infos = [(n, _shape_and_dtype(t)) for n, t in zip(names, (*inputs, *state.values()), strict=True)]
        # The frontend adds a hundred functions on arrays of tensors beside main in 0.1 s; only main stays.
        arrays = importlib.import_module("tvm.relay.prelude").TensorArrayOps
        with mock.patch.object(arrays, "register", lambda ops: None):
            module, extra = relay.frontend.from_pytorch(traced, infos)
        main = module["main"]
        main = relay.build_module.bind_params_by_name(main, extra)  # tensors that are not parameters
        free = {v.name_hint: v for v in main.params}
        own = [free.get(n) or relay.var(n, shape=s, dtype=d) for n, (s, d) in infos[: len(inputs)]]
        used = [n for n in state if n in free]
        main = relay.Function([*own, *(free[n] for n in used)], main.body)
        params = {n: state[n].detach().cpu().numpy() for n in used}
        if bind:
            main = relay.build_module.bind_params_by_name(main, params)
        module = relay.transform.InferType()(tvm.IRModule.from_expr(main))
    return module if bind else (module, params)


def _shape_and_dtype(t: Tensor) -> tuple[tuple[int, ...], str]:
    return tuple(t.shape), str(t.dtype).removeprefix("torch.")


@contextlib.contextmanager
def _replaced(model: nn.Module, by: dict[int, Tensor]) -> Iterator[None]:
    """Replace the model's parameters and buffers by other tensors (keyed by `id`) inside the `with` block.

    torch.func.functional_call does the same, but not while tracing.
    """
    homes = [home for module in model.modules() for home in (module._parameters, module._buffers)]
    tensors = [dict(home) for home in homes]
    try:
        for home in homes:
            home.update({name: by[id(t)] for name, t in home.items() if t is not None})
        yield
    finally:
        for home, was in zip(homes, tensors, strict=True):
            home.update(was)


def relay_from_onnx(source: Any, bind: bool = True) -> Any:
    """Return the Relay module of an ONNX file or `ModelProto`. `bind` as in `relay_module`."""
    tvm = reach("relay")
    relay = tvm.relay

    model, name = _proto(source, bind)
    with _telling(name, "Relay"):
        module, params = relay.frontend.from_onnx(model, _onnx_shapes(model), freeze_params=bind)
        module = relay.transform.DynamicToStatic()(module)
        module = relay.transform.InferType()(tvm.IRModule.from_expr(module["main"]))
    return module if bind else (module, {n: p.numpy() for n, p in params.items()})


# Relax


def relax_module(model: nn.Module, *inputs: Tensor, bind: bool = True, dynamic_shapes: Any = None) -> Any:
    """Return the Relax module of a torch model in eval mode, by `torch.export` and TVM's frontend for it.

    For a model that returns one tensor, `main` returns one, too. `bind` as in `relay_module`; the parameters' names
    are torch.export's ("p_conv1_weight"). `dynamic_shapes` goes to `torch.export.export`.
    """
    reach("relax")
    from tvm.relax.frontend.torch import from_exported_program

    _check(model, inputs)
    with _telling(type(model).__name__, "Relax"):
        program = torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes)
        module = from_exported_program(program, keep_params_as_input=not bind, unwrap_unit_return_tuple=True)
        return module if bind else _detached(module)


def relax_from_onnx(source: Any, bind: bool = True) -> Any:
    """Return the Relax module of an ONNX file or `ModelProto`. `bind` as in `relay_module`."""
    reach("relax")
    from tvm.relax.frontend.onnx import from_onnx

    model, name = _proto(source, bind)
    with _telling(name, "Relax"):
        module = from_onnx(model, shape_dict=_onnx_shapes(model), keep_params_in_input=not bind)
        return module if bind else _detached(module)


def _detached(module: Any) -> tuple[Any, Mapping[str, np.ndarray]]:
    from tvm.relax.frontend import detach_params

    module, params = detach_params(module)
    main = module["main"]
    own = len(main.params) - len(params.get("main", ()))
    named = zip(main.params[own:], params.get("main", ()), strict=True)
    return module, {var.name: value.numpy() for var, value in named}


# ONNX


def to_onnx(model: nn.Module, *inputs: Tensor, fold: bool = True) -> Any:
    """Return the model as an `onnx.ModelProto`, by torch's TorchScript exporter, in an operator set that Relay reads.

    `fold`: let the exporter fold constants, and batch norms into convolutions, as it does by default.
    """
    import onnx
    from onnxscript import optimizer

    _check(model, inputs)
    file, mode = io.BytesIO(), torch.onnx.TrainingMode.EVAL if fold else torch.onnx.TrainingMode.PRESERVE
    with _telling(type(model).__name__, "ONNX"):
        torch.onnx.export(
            model,
            inputs,
            file,
            input_names=input_names(model, inputs),
            opset_version=OPSET,
            training=mode,
            do_constant_folding=fold,
            dynamo=False,
        )
        written = onnx.load_from_string(file.getvalue())
        # Arithmetic on known shapes is done here: Relay would build and run it node by node.
        if fold:
            return optimizer.optimize(written)
        optimizer.fold_constants(written)
        optimizer.remove_unused_nodes(written)
        return written


def _proto(source: Any, bind: bool) -> tuple[Any, str]:
    """Return the model and its name in messages; unless bound, tensors that are not parameters become constants."""
    import onnx

    if isinstance(source, onnx.ModelProto):
        model, name = source, source.graph.name or "The ONNX model"
    elif isinstance(source, (str, Path)):
        try:
            model, name = onnx.load(source), str(source)
        except FileNotFoundError:
            raise ValueError(f"No ONNX file {source}.") from None
        except Exception as error:  # protobuf's DecodeError has no public name
            raise ValueError(f"{source} is not a readable ONNX file: {error}.") from error
    else:
        raise TypeError(f"Expected an ONNX model as a path or an onnx.ModelProto; got {type(source).__name__}.")
    return (model if bind else _shapes_as_constants(model)), name


def _shapes_as_constants(model: Any) -> Any:
    """Return the model with its integers and Resize scales as Constant nodes, because shapes depend on them."""
    import onnx

    scales = {name for node in model.graph.node if node.op_type in ("Resize", "Upsample") for name in node.input[1:]}
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    graph, changed = model.graph, onnx.ModelProto()
    changed.CopyFrom(model)
    fixed = [t for t in graph.initializer if t.data_type not in floats or t.name in scales]
    parameters = [t for t in graph.initializer if t.data_type in floats and t.name not in scales]
    constants = [onnx.helper.make_node("Constant", [], [t.name], value=t) for t in fixed]
    del changed.graph.initializer[:], changed.graph.node[:]
    changed.graph.initializer.extend(parameters)
    changed.graph.node.extend([*constants, *graph.node])
    return changed


def _onnx_shapes(model: Any) -> dict[str, list]:
    """Return the shapes of the inputs. Unknown sizes become 1: Relay and Relax compile fixed shapes here."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return {
        info.name: [d.dim_value or 1 for d in info.type.tensor_type.shape.dim]
        for info in model.graph.input
        if info.name not in weights
    }
