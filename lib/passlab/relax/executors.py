"""Relax's virtual machine, and a module of TIR alone.

For the process that builds: smallest, build. For this process: runner.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from passlab.building.arrays import dtype_of
from passlab.building.compiler import Executor, Failed
from passlab.judge.words import plural
from passlab.relax import relax, tvm
from passlab.tvm.executors import Runner, context, device_of, itemsize, synced


def smallest() -> Any:
    """Return a module that computes x + x."""
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([4], "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, x)))
    return builder.get()


def build(module: Any, params: dict[str, np.ndarray], head: dict) -> Executor:
    """Build a module with the options in a request's head."""
    functions = [function for _, function in module.functions.items()]
    return (_Machine if any(isinstance(one, relax.Function) for one in functions) else _Tir)(module, params, head)


class _Machine:
    """A built Relax module. Inputs follow the types of its parameters: tensors, tuples of them, shapes, numbers."""

    def __init__(self, module: Any, params: dict[str, np.ndarray], head: dict):
        self.function = head["function"]
        target = _target(head)
        if not any(global_.name_hint == self.function for global_ in module.functions):
            raise Failed(f"The module has no function {self.function}.")
        if params:
            module = relax.transform.BindParams(self.function, params)(module)
        self.types = [param.ty for param in module[self.function].params]
        self.own = {global_.name_hint for global_ in module.functions}
        pipeline = relax.get_default_pipeline(target) if head["pipeline"] is None else _legal(target)
        with context(tvm, head):
            self.executable = tvm.compile(module, target, relax_pipeline=pipeline)
        self.device = device_of(tvm, target)
        self.vm = relax.VirtualMachine(self.executable, self.device)

    def _arguments(self, values: list[np.ndarray]) -> list[Any]:
        rest = list(values)
        arguments = [self._argument(type_, rest) for type_ in self.types]
        if rest:
            number = plural(len(values) - len(rest), "input")
            raise Failed(f"The function {self.function} takes {number}; got {len(values)}.")
        return arguments

    def _argument(self, type_: Any, rest: list[np.ndarray]) -> Any:
        if isinstance(type_, tvm.ir.TupleType):
            return [self._argument(field, rest) for field in type_.fields]
        if not rest:
            raise Failed(f"The function {self.function} takes more inputs than it got.")
        value = rest.pop(0)
        if isinstance(type_, relax.ShapeType):
            return tvm.runtime.ShapeTuple([int(n) for n in value])
        if isinstance(type_, tvm.ir.PrimType):
            return value.item()
        return tvm.runtime.tensor(value, self.device)

    def call(self, values: list[np.ndarray]) -> Callable[[], Any]:
        return synced(self.device, self.vm[self.function], *self._arguments(values))

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], list[int]]:
        """Return the kernels of one run, and the count and bytes of its storage."""
        kernels, allocations = [], [0, 0]

        def note(_function: Any, name: str, before: bool, _result: Any, *arguments: Any) -> None:
            if not before:
                return
            if name == "vm.builtin.alloc_storage":
                allocations[0] += 1
                allocations[1] += math.prod(arguments[1]) * itemsize(arguments[3])
            # A kernel may have any name, even one of these; the machine's own are registered with TVM.
            machinery = name.startswith(("vm.builtin.", "shape_func")) and name not in self.own
            if not machinery:
                kernels.append(name)

        vm = relax.VirtualMachine(self.executable, self.device)
        vm.set_instrument(note)
        vm[self.function](*self._arguments(values))
        return kernels, allocations


class _Tir:
    """A module of TIR alone: called with the inputs and a fresh buffer for each remaining parameter."""

    def __init__(self, module: Any, params: dict[str, np.ndarray], head: dict):
        self.name = head["function"]
        target = _target(head)
        if not any(global_.name_hint == self.name for global_ in module.functions):
            raise Failed(f"The module has no function {self.name}.")
        self.signature = module[self.name]
        with context(tvm, head):
            self.function = tvm.compile(module, target)[self.name]
        self.device = device_of(tvm, target)

    def _arguments(self, values: list[np.ndarray]) -> tuple[list[Any], list[Any]]:
        """Return all arguments, and those of them that are outputs."""
        params, solver, arguments = self.signature.params, importlib.import_module("tvm.sym").Analyzer(), []
        if len(values) > len(params):
            number = plural(len(params), "parameter")
            raise Failed(f"The function {self.name} takes {number}; got {plural(len(values), 'input')}.")
        for param, value in zip(params, values, strict=False):
            if isinstance(param.ty, tvm.ir.PrimType):
                solver.bind(param, tvm.tirx.const(value.item(), str(param.ty.dtype)))
                arguments.append(value.item())
                continue
            shape, dtype = param.ty.shape, str(param.ty.dtype)
            if len(shape) != value.ndim or dtype != value.dtype.name:
                expected, actual = f"{dtype} with {len(shape)} axes", f"{value.dtype.name} with {value.ndim}"
                raise Failed(f"The parameter {param.name} of {self.name} is {expected}; got {actual}.")
            for size, n in zip(shape, value.shape, strict=True):
                if isinstance(size, tvm.tirx.Var):
                    solver.bind(size, tvm.tirx.const(n, str(size.ty.dtype)), True)
            arguments.append(tvm.runtime.tensor(value, self.device))
        outputs = [self._buffer(param, solver) for param in list(params)[len(values) :]]
        return arguments + outputs, outputs

    def _buffer(self, param: Any, solver: Any) -> Any:
        """Return a buffer full of NaN, or of -1, so that elements which a schedule forgets to set show."""
        shape = [getattr(solver.simplify(size), "value", None) for size in param.ty.shape]
        if None in shape:
            raise Failed(f"The size of {param.name}, an output of {self.name}, does not follow from the inputs.")
        dtype = dtype_of(str(param.ty.dtype))
        filled = np.ones(shape, dtype) if dtype == np.bool_ else np.full(shape, -1).astype(dtype)
        if dtype.kind not in "biu":
            filled = np.full(shape, math.nan).astype(dtype)
        return tvm.runtime.tensor(filled, self.device)

    def call(self, values: list[np.ndarray]) -> Callable[[], Any]:
        arguments, outputs = self._arguments(values)
        run = synced(self.device, self.function, *arguments)

        def once() -> list[Any]:
            run()
            return outputs

        return once

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], None]:
        return [self.name], None


def _target(head: dict) -> Any:
    if head["target"] == "cuda":
        return tvm.target.Target.fromdevice_of(tvm.cuda(0))
    if head["target"] == "llvm" and not head["optimize"]:
        return tvm.target.Target({"kind": "llvm", "opt-level": 0})
    return tvm.target.Target(head["target"])


def _legal(target: Any) -> Any:
    """Return TVM's own pipeline from operators to a program, without the passes that fold and fuse."""
    steps = [relax.transform.LegalizeOps()]
    if target.kind.name == "cuda":
        dlight = importlib.import_module("tvm.s_tir.dlight")
        steps.append(dlight.ApplyDefaultSchedule(dlight.gpu.Fallback()))

    @tvm.transform.module_pass(opt_level=0)
    def legal(module: Any, _: Any) -> Any:
        with target:
            return tvm.transform.Sequential([*steps, relax.get_pipeline("default_build")])(module)

    return legal


def runner(module: Any, target: str, pipeline: Any, level: int) -> Runner:
    """Return the module in the virtual machine of this process."""
    if isinstance(module, relax.Function):
        module = tvm.IRModule.from_expr(module)
    chosen = tvm.target.Target(target) if isinstance(target, str) else target
    if pipeline is None:
        pipeline = relax.get_default_pipeline(chosen)
    device = tvm.device(chosen.kind.name, 0) if chosen.kind.name != "llvm" else tvm.cpu()
    machine = relax.VirtualMachine(tvm.compile(module, chosen, relax_pipeline=pipeline), device)
    inputs: list[Any] = []

    def give(arrays: list[np.ndarray]) -> None:
        inputs[:] = [tvm.runtime.tensor(array, device) for array in arrays]

    def run() -> list[Any]:
        result = machine["main"](*inputs)
        device.sync()
        return list(_flat(result))

    return Runner(give, run, len(module["main"].params))


def _flat(value: Any) -> Iterator[Any]:
    if hasattr(value, "numpy"):
        yield value
    else:
        for part in value:
            yield from _flat(part)
