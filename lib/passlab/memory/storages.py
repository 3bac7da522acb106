"""The storages of an FX graph: the values that share each of them, and the nodes that touch it.

    for storage in storages(gm, *inputs):
        print(storage.name, storage.kind, storage.size, storage.values)

A value is not a storage: a view shares that of its base, and the result of an in-place operation that of its operand.
So the graph runs once on fake tensors, which have shapes, strides and storages but no numbers, and values are grouped
by storage.
"""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from passlab.judge.words import plural


class CannotPlan(ValueError):
    """The storages of this graph are not known before it runs."""


@dataclass
class Storage:
    """Memory that values of a graph share.

    `name`: the node that allocates it, with ".1" and so on for further storages of the same node. `kind`: "input",
    "parameter" (both belong to the caller and are not planned) or "value". `size`: bytes. `values`: names of the nodes
    whose values share it, in order. `touched`: positions in the graph of the nodes that allocate, read or write it.
    `is_output`: whether the graph returns a value in it. `width`: bytes of the widest number in it.
    """

    name: str
    kind: str
    size: int
    values: list[str] = field(default_factory=list)
    touched: list[int] = field(default_factory=list)
    is_output: bool = False
    width: int = 1


def storages(gm: fx.GraphModule, *inputs: torch.Tensor) -> list[Storage]:
    """Return the storages of a graph on these inputs, in the order of their allocation.

    Raises CannotPlan for sizes that depend on numbers or are symbolic, for a sparse tensor, or if the graph does not
    run on these inputs.
    """
    return recorded(gm, *inputs)[0]


def recorded(gm: fx.GraphModule, *inputs: torch.Tensor) -> tuple[list[Storage], dict[str, torch.Tensor | None]]:
    """Return the storages of a graph and, by node, a tensor without data and the layout of the node's value, or None.

    Raises CannotPlan as `storages` does.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    recorder = _Recorder(gm, mode)
    fakes = [recorder.fake(value) for value in _inputs(gm, inputs)]
    with mode, torch.no_grad():
        recorder.run(*fakes)
    return list(recorder.storages.values()), recorder.likes


def _inputs(gm: fx.GraphModule, inputs: tuple) -> list[Any]:
    """Return the inputs, or else the examples in the placeholders' metadata."""
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    values = list(inputs) or [node.meta.get("val") for node in places]
    for node, value in zip(places, values, strict=False):
        if isinstance(value, torch.SymInt) or (
            isinstance(value, torch.Tensor) and not all(type(n) is int for n in value.shape)
        ):
            shape = list(getattr(value, "shape", [value]))
            raise CannotPlan(
                f"The size of {node.name} is symbolic ({', '.join(map(str, shape))}): a plan needs numbers. Give "
                "example inputs."
            )
    if len(values) > len(places) or any(not node.args for node in places[len(values) :]):
        raise CannotPlan(f"The graph has {plural(len(places), 'input')}; {len(values)} given.")
    if missing := [node.name for node, value in zip(places, values, strict=False) if value is None and not inputs]:
        raise CannotPlan(f"The shape of {missing[0]} is not known: give example inputs.")
    return values


class _Recorder(fx.Interpreter):
    """Run a graph on fake tensors and record each storage at its first use."""

    def __init__(self, gm: fx.GraphModule, mode: FakeTensorMode):
        super().__init__(gm, garbage_collect_values=False)
        self.mode, self.step = mode, -1
        self.extra_traceback = False
        self.storages: dict[int, Storage] = {}
        self.alive: list[Any] = []  # all values: a new storage may reuse the address of a freed one
        self.likes: dict[str, torch.Tensor | None] = {}
        self.fakes: dict[int, Any] = {}
        self.counts: Counter[str] = Counter()  # node → storages that it has allocated so far
        for module in gm.modules():  # parameters of leaf modules are outside the arena, too
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                self.fakes.setdefault(id(tensor), mode.from_tensor(tensor))

    def fake(self, value: Any) -> Any:
        return self.mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

    def fetch_attr(self, target: str) -> Any:
        value = super().fetch_attr(target)
        return self.fakes.setdefault(id(value), self.fake(value)) if isinstance(value, torch.Tensor) else value

    def call_module(self, target: str, args: tuple, kwargs: dict) -> Any:
        module = self.fetch_attr(target)
        tensors = {name: self.fakes[id(t)] for name, t in (*module.named_parameters(), *module.named_buffers())}
        return torch.func.functional_call(module, tensors, args, kwargs)

    def run_node(self, node: fx.Node) -> Any:
        self.step += 1
        try:
            value = super().run_node(node)
        except Exception as error:
            if type(error).__name__ in ("DynamicOutputShapeException", "DataDependentOutputException"):
                raise CannotPlan(
                    f"The size of {node.name} depends on numbers that are known only at run time."
                ) from None
            raise CannotPlan(
                f"{node.name} does not run on these inputs: {str(error).strip().splitlines()[0]}"
            ) from error
        if odd := {t.layout for t in _tensors(value)} - {torch.strided}:
            layout = str(odd.pop()).removeprefix("torch.")
            raise CannotPlan(f"{node.name} has the layout {layout}: only a dense tensor has one storage to place.")
        self.alive.append(value)
        # a later node may change the shape in place
        self.likes[node.name] = value.detach() if isinstance(value, torch.Tensor) else None
        selects = node.op == "call_function" and node.target is operator.getitem
        operands = () if selects else [self.env[operand] for operand in node.all_input_nodes]
        for tensor in _tensors(operands):
            self._touch(tensor, node)
        for tensor in _tensors(value):
            self._touch(tensor, node, is_value=node.op != "output")
        if node.op == "output":
            for tensor in _tensors(value):
                self.storages[_key(tensor)].is_output = True
        return value

    def _touch(self, tensor: torch.Tensor, node: fx.Node, is_value: bool = False) -> None:
        key = _key(tensor)
        if key not in self.storages:
            nbytes = tensor.untyped_storage().nbytes()
            if not isinstance(nbytes, int):
                raise CannotPlan(f"The size of {node.name} is symbolic ({nbytes} bytes): a plan needs numbers.")
            kind = {"placeholder": "input", "get_attr": "parameter"}.get(node.op, "value")
            count = self.counts[node.name]
            self.counts[node.name] += 1
            self.storages[key] = Storage(f"{node.name}.{count}" if count else node.name, kind, nbytes)
        storage = self.storages[key]
        storage.width = max(storage.width, tensor.dtype.itemsize)
        if is_value and storage.values[-1:] != [node.name]:
            storage.values.append(node.name)
        if not storage.touched or storage.touched[-1] != self.step:
            storage.touched.append(self.step)


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
