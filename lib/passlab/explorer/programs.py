"""A program to explore: a value of any IR, its view, and the lines of source that its nodes come from."""

from __future__ import annotations

import copy
import linecache
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch import fx

from passlab.fx.reader import find_shapes, symbolic_trace
from passlab.graph import Graph, view
from passlab.graph.registry import ir

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_TORCH = str(Path(torch.__file__).parent)


@dataclass(frozen=True)
class Line:
    """A line of source. `title`: names the function or file on its first line, "" on others."""

    number: int
    text: str
    title: str = ""


@dataclass(frozen=True)
class Program:
    """A value of an IR and its view. `error`: why it does not run on the inputs, or "". `weights`: the arrays that it
    takes after the inputs."""

    value: Any
    graph: Graph
    error: str = ""
    weights: tuple = ()


@dataclass
class Source:
    """The source of a program. `lines_of`: node → positions in `lines`, that of the innermost call last.
    `module_of`: node → dotted path of the module that it belongs to."""

    lines: list[Line] = field(default_factory=list)
    lines_of: dict[str, list[int]] = field(default_factory=dict)
    module_of: dict[str, str] = field(default_factory=dict)


class _Located(fx.Tracer):
    """A tracer that notes on each node the lines that made it: quicker than torch's `record_stack_traces`."""

    def __init__(self, outside: CodeType):
        super().__init__()
        self.outside = outside

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        frame, calls = sys._getframe(1), []
        while frame is not None and frame.f_code is not self.outside:
            code = frame.f_code
            if not code.co_filename.startswith(_TORCH):
                calls.append(f'File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}')
            frame = frame.f_back  # type: ignore[assignment]
        node.stack_trace = "\n".join(reversed(calls)) or None
        return node


def _trace(model: Any) -> fx.GraphModule:
    tracer = _Located(_trace.__code__)
    try:
        if not isinstance(model, torch.nn.Module):
            return _function(model)
        return fx.GraphModule(model, tracer.trace(model), type(model).__name__)
    except Exception:
        return symbolic_trace(model)  # raises an error that names the line and what to do about it


def _function(function: Any) -> fx.GraphModule:
    tracer = _Located(_function.__code__)
    graph = tracer.trace(function)
    return fx.GraphModule(tracer.root, graph, getattr(function, "__name__", "function"))


def capture(model: Any, inputs: tuple) -> Program:
    """Return a program that passes may change: a copy of a value of an IR, or a traced model or function.

    Raises ValueError for a model that cannot be traced.
    """
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise ValueError(f"{model.__name__} is a class. Explore a model of it: {model.__name__}().")
    traced = isinstance(model, torch.nn.Module) and not isinstance(model, fx.GraphModule | torch.jit.ScriptModule)
    if traced or (ir(model) is None and callable(model)):
        return read(_trace(copy.deepcopy(model)), inputs)
    return read(duplicate(model), inputs)


def duplicate(value: Any) -> Any:
    """Return a copy for a pass to change. A module of TVM is shared, as its passes return new ones."""
    if isinstance(value, fx.GraphModule):
        return copy.deepcopy(value)
    return value.clone() if hasattr(value, "clone") else value


def read(value: Any, inputs: tuple, weights: tuple = ()) -> Program:
    """Return the program of a value. A torch.fx graph gets shapes on its nodes, as `passlab.trace` notes them."""
    if not isinstance(value, fx.GraphModule):
        return Program(value, view(value), weights=weights)
    if not inputs:
        return Program(value, view(value))
    shapes, _, reason = find_shapes(value, *inputs)
    for node, data in shapes.items():
        if isinstance(data, bool | int | float):
            node.meta["type"] = type(data)
        else:
            node.meta["tensor_meta"] = data
    value.meta["inputs"] = inputs
    return Program(value, view(value), f"It does not run on the inputs: {reason}." if reason else "")


def source(program: Program) -> Source:
    """Return the lines that made the nodes; where none are noted, the program's own text."""
    result, places = Source(), {}
    graph = getattr(program.value, "graph", None)
    nodes = list(graph.nodes) if isinstance(graph, fx.Graph) else []
    for node in nodes:
        places[node.name] = [(file, int(number)) for file, number, _ in _FRAME.findall(node.stack_trace or "")]
        result.module_of[node.name] = _module(node)
    index: dict[tuple[str, int], int] = {}
    for file, number in dict.fromkeys(place for calls in places.values() for place in calls):
        if (file, number) not in index:
            for line in _block(file, number):
                index[file, line.number] = len(result.lines)
                result.lines.append(line)
    if not index:
        result.lines = [Line(i, node.text or node.id) for i, node in enumerate(program.graph, 1)]
        result.lines_of = {node.id: [i] for i, node in enumerate(program.graph)}
        return result
    known = ((name, [index[place] for place in calls if place in index]) for name, calls in places.items())
    result.lines_of = {name: lines for name, lines in known if lines}
    return result


def _module(node: fx.Node) -> str:
    """Return the path of the module whose forward calls a node; a module that is called as one node is not it."""
    paths = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    if node.op == "call_module" and paths and paths[-1] == node.target:
        paths.pop()
    return paths[-1].removeprefix("L['self'].") if paths else ""


def _block(file: str, number: int) -> Iterator[Line]:
    """Yield the lines of the function around a line of a file; the line alone where there is no function."""
    lines = linecache.getlines(file)
    if number > len(lines):
        return
    first = next(_above(lines, number, "def "), number)
    last, depth = number, _depth(lines[first - 1])
    while last < len(lines) and (not lines[last].strip() or _depth(lines[last]) > depth) and first != number:
        last += 1
    while not lines[last - 1].strip():
        last -= 1
    name = re.search(r"def (\w+)", lines[first - 1])
    owner = next(_above(lines, first, "class "), 0)
    of = re.search(r"class (\w+)", lines[owner - 1]) if owner else None
    title = ".".join(match[1] for match in (of, name) if match) or Path(file).name
    for i in range(first, last + 1):
        yield Line(i, lines[i - 1].rstrip()[depth:], title if i == first else "")


def _above(lines: list[str], number: int, word: str) -> Iterator[int]:
    """Yield the numbers of lines above a line that begin with a word and are indented less, the nearest first."""
    depth = _depth(lines[number - 1])
    for i in range(number - 1, 0, -1):
        if lines[i - 1].lstrip().startswith(word) and _depth(lines[i - 1]) < depth:
            yield i


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
