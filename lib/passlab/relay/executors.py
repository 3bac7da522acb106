"""Relay's executors: the graph executor, and the virtual machine for programs with branches.

For the process that builds: prepare, smallest, build. For this process: runner.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from passlab.building.compiler import Executor, Failed
from passlab.judge.words import plural
from passlab.relay import relay, tvm
from passlab.relay.folding import build_once
from passlab.tvm.executors import Runner, context, device_of, itemsize, synced


def prepare(diagnoses: list[str]) -> None:
    """Import what a build needs. Collect the type checker's findings in `diagnoses`: errors only say there are some."""
    for name in ("tvm.contrib.graph_executor", "tvm.relay.backend.vm", "tvm.runtime.vm"):
        importlib.import_module(name)
    tvm.ir.diagnostics.override_renderer(lambda report: diagnoses.extend(one.message for one in report.diagnostics))


def smallest() -> Any:
    """Return a module that computes x + x."""
    x = relay.var("x", shape=(4,))
    return tvm.IRModule.from_expr(relay.Function([x], relay.add(x, x)))


def build(module: Any, params: dict[str, np.ndarray], head: dict) -> Executor:
    """Build a module with the options in a request's head. Raises Failed for a module without the function."""
    if not any(global_.name_hint == head["function"] for global_ in module.functions):
        raise Failed(f"The module has no function {head['function']}.")
    functions = {global_: function for global_, function in module.functions.items()}
    main = next((global_ for global_ in functions if global_.name_hint == "main"), tvm.ir.GlobalVar("main"))
    functions[main] = _own_names(module[head["function"]], params)
    module = relay.transform.InferType()(tvm.IRModule(functions))
    target = tvm.target.Target(head["target"])
    if head["target"] == "llvm" and not head["optimize"]:
        target = tvm.target.Target("llvm -opt-level=0")
    with build_once():
        return (_Machine if _needs_machine(module["main"]) else _Graph)(module, params, head, target)


class _Graph:
    """A Relay module in the graph executor, which knows all shapes."""

    def __init__(self, module: Any, params: dict[str, np.ndarray], head: dict, target: Any):
        self.count = len(module["main"].params)
        with context(tvm, head):
            built = relay.build(module, target, params=params)
        self.device = device_of(tvm, target)
        self.graph = json.loads(built.get_graph_json())
        self.module = importlib.import_module("tvm.contrib.graph_executor").GraphModule(built["default"](self.device))
        self.names = [param.name_hint for param in module["main"].params if param.name_hint not in params]

    def call(self, values: list[np.ndarray]) -> Callable[[], list[Any]]:
        if len(values) != len(self.names):
            raise Failed(f"The function takes {plural(len(self.names), 'input')}; got {len(values)}.")
        for name, value in zip(self.names, values, strict=True):
            if self.module.module["get_input_index"](name) >= 0:  # an unused one is absent
                self._set(name, value)
        outputs = [self.module.get_output(at) for at in range(self.module.get_num_outputs())]
        run = synced(self.device, self.module.run)

        def once() -> list[Any]:
            run()
            return outputs

        return once

    def _set(self, name: str, value: np.ndarray) -> None:
        expected = self.module.get_input(name)
        if tuple(expected.shape) != value.shape or expected.dtype != value.dtype.name:
            raise Failed(
                f"The input {name} is {expected.dtype} of shape {tuple(expected.shape)}; "
                f"got {value.dtype.name} of {value.shape}."
            )
        self.module.set_input(name, tvm.nd.array(value))

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], list[int]]:
        """Return the kernels in the executor's plan, and the count and bytes of the buffers that results share."""
        nodes, attrs, starts = self.graph["nodes"], self.graph["attrs"], self.graph["node_row_ptr"]
        kernels, pieces = [], {}
        for at, node in enumerate(nodes):
            if node["op"] != "tvm_op":
                continue
            name = node["attrs"]["func_name"]
            if name not in ("__nop", "__copy"):
                kernels.append(name.removeprefix("tvmgen_default_"))
            for entry in range(starts[at], starts[at + 1]):
                size = math.prod(attrs["shape"][1][entry]) * itemsize(attrs["dltype"][1][entry])
                piece = attrs["storage_id"][1][entry]
                pieces[piece] = max(size, pieces.get(piece, 0))
        return kernels, [len(pieces), sum(pieces.values())]


class _Machine:
    """A Relay module in Relay's virtual machine, which handles branches and shapes that depend on the inputs."""

    def __init__(self, module: Any, params: dict[str, np.ndarray], head: dict, target: Any):
        vm = importlib.import_module("tvm.relay.backend.vm")
        with context(tvm, head):
            self.executable = vm.compile(module, target, params=params)
        self.device = device_of(tvm, target)
        self.vm = importlib.import_module("tvm.runtime.vm").VirtualMachine(self.executable, self.device)

    def call(self, values: list[np.ndarray]) -> Callable[[], Any]:
        return synced(self.device, self.vm.run, *(tvm.nd.array(value, self.device) for value in values))

    def trace(self, values: list[np.ndarray]) -> tuple[list[str], None]:
        """Return the module's kernels, not in the order of a run."""
        names = (name.removeprefix("vm_mod_") for name in self.executable.primitive_ops)
        return [name for name in names if not name.startswith("shape_func")], None


def _own_names(function: Any, params: dict[str, np.ndarray]) -> Any:
    """Return the function with a unique name for each parameter, because inputs are set by name."""
    names = [param.name_hint for param in function.params]
    if len(set(names)) == len(names):
        return function
    fresh = {
        param: param if param.name_hint in params else relay.Var(f"input_{at}", param.type_annotation)
        for at, param in enumerate(function.params)
    }
    body = relay.bind(function.body, fresh)
    return relay.Function(list(fresh.values()), body, function.ret_type, function.type_params, function.attrs)


def _needs_machine(main: Any) -> bool:
    """Return whether the function branches, calls another, or has sizes that depend on the inputs."""
    reasons = []

    def look(node: Any) -> None:
        calls = isinstance(node, relay.Call) and isinstance(node.op, tvm.ir.GlobalVar)
        typed = isinstance(node, relay.Var | relay.Call)
        if isinstance(node, relay.If) or calls or (typed and relay.ty.is_dynamic(node.checked_type)):
            reasons.append(node)

    relay.analysis.post_order_visit(main, look)
    return bool(reasons)


def runner(module: Any, target: str, pipeline: Any, level: int) -> Runner:
    """Return the module in the graph executor of this process."""
    from tvm.contrib import graph_executor

    if isinstance(module, relay.Function):
        module = tvm.IRModule.from_expr(module)
    silent, tvm.autotvm.GLOBAL_SCOPE.silent = tvm.autotvm.GLOBAL_SCOPE.silent, True  # no recommendation to tune
    try:
        with tvm.transform.PassContext(opt_level=level), build_once():
            library = relay.build(module, target)
    finally:
        tvm.autotvm.GLOBAL_SCOPE.silent = silent
    device = tvm.device(target.split()[0], 0) if target != "llvm" else tvm.cpu()
    executor = graph_executor.GraphModule(library["default"](device))
    names = [p.name_hint for p in module["main"].params]

    def give(arrays: list[np.ndarray]) -> None:
        for name, array in zip(names, arrays, strict=True):
            executor.set_input(name, tvm.nd.array(array))

    def run() -> list[Any]:
        executor.run()
        device.sync()
        return [executor.get_output(i) for i in range(executor.get_num_outputs())]

    return Runner(give, run, len(names))
