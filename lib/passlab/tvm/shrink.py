"""Shrinking a module of Relay or Relax to a smaller one that still fails.

    shrink_module(module, fails, budget=200)     # fails(module) -> bool

Both flavours are brought to one form: expressions that are returned, and *items*, which are bound before that (the
bindings of Relax; in Relay only lets, since other expressions are a graph already).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from passlab.tvm import modules as structure_tvm


def shrink_module(
    module: Any, fails: Callable[[Any], bool], budget: int = 300, *, drop_parameters: bool = False
) -> Any:
    """A smaller well-typed module for which `fails` is still true, found with at most `budget` calls of it.

    Calls give way to one of their operands, to a parameter or to a constant of the same type; outputs and values that
    nothing uses are dropped, and parameters only if asked. A `fails` that raises counts as false. Only `main` shrinks.
    Raises ValueError if the module does not fail to begin with.
    """
    module = structure_tvm.typed(module)
    if not fails(module):
        raise ValueError("shrink_module needs a module that fails, and `fails` is false for this one.")
    form = _RelayForm if structure_tvm.held()[0] == "relay" else _RelaxForm
    return _Shrinker(form(module), fails, budget - 1, drop_parameters).run()


class _Form:
    """A module, its main function taken apart: `params`, `items` (variable, value) and `outputs`."""

    params: list[Any]
    items: list[tuple[Any, Any]]
    outputs: list[Any]

    def __init__(self, module: Any):
        self.module, (_, self.tvm) = module, structure_tvm.held()
        self.main = module["main"]
        self.params = list(self.main.params)
        self.items, self.outputs = self.take_apart()

    @property
    def size(self) -> tuple[int, int, int, int]:
        """Fewer calls first, then fewer other expressions, then fewer outputs, then fewer parameters."""
        return len(structure_tvm.nodes(self.module, "main")), len(self.nodes()), len(self.outputs), len(self.params)

    def type(self, expr: Any) -> str:
        return str(structure_tvm.type_of(expr))

    def stand_ins(self, node: Any) -> list[Any]:
        """What could take the place of a node: operands, parameters, a constant, all of its type."""
        wanted = self.type(node)
        same = [e for e in [*self.operands(node), *self.params] if self.type(e) == wanted]
        constant = self.constant(structure_tvm.type_of(node))
        return [*same, *([] if constant is None else [constant])]

    def numbers(self, shape: Iterable[Any], dtype: str) -> Any:
        """A constant that is neither 0 nor 1 nor the same everywhere."""
        shape = tuple(int(n) for n in shape)
        count = math.prod(shape)
        array = np.linspace(0.5, 1.5, count) if dtype.startswith("float") else np.arange(1, count + 1)
        return array.reshape(shape).astype(dtype)


class _RelayForm(_Form):
    def take_apart(self) -> tuple[list, list]:
        relay, items, body = self.tvm.relay, [], self.main.body
        while isinstance(body, relay.Let):
            items.append((body.var, body.value))
            body = body.body
        return items, list(body.fields) if isinstance(body, relay.Tuple) else [body]

    def nodes(self) -> list[Any]:
        relay = self.tvm.relay
        kinds = (relay.Call, relay.TupleGetItem)
        return [e for e in structure_tvm.top_level(self.main) if isinstance(e, kinds)]

    def operands(self, node: Any) -> list[Any]:
        found = []
        for part in structure_tvm.parts_of(node):
            found += structure_tvm.parts_of(part) if isinstance(part, self.tvm.relay.Tuple) else [part]
        return found

    def constant(self, type: Any) -> Any:
        if not isinstance(type, self.tvm.ir.TensorType):
            return None
        return self.tvm.relay.const(self.numbers(type.shape, type.dtype), type.dtype)

    def unused(self) -> list[Any]:
        return [var for var, _ in self.items]

    def rebuild(self, outputs: list, drop: Sequence, replace: dict, parameters: Sequence) -> Any:
        relay, done = self.tvm.relay, {}

        def new(e: Any) -> Any:
            if e not in done:
                done[e] = new(replace[e]) if e in replace else copied(e)
            return done[e]

        def copied(e: Any) -> Any:
            if isinstance(e, relay.Call):
                return relay.Call(e.op, [new(a) for a in e.args], e.attrs, e.type_args)
            if isinstance(e, relay.Tuple):
                return relay.Tuple([new(a) for a in e.fields])
            if isinstance(e, relay.TupleGetItem):
                return relay.TupleGetItem(new(e.tuple_value), e.index)
            return e

        lets = []
        for var, value in self.items:
            if var in drop:
                done[var] = new(value)  # in place, wherever it is used
            else:
                lets.append((var, new(value)))
        body = new(outputs[0]) if len(outputs) == 1 else relay.Tuple([new(e) for e in outputs])
        for var, value in reversed(lets):
            body = relay.Let(var, value, body)
        main = relay.Function(parameters, body)
        others = {var: f for var, f in self.module.functions.items() if var.name_hint != "main"}
        module = self.tvm.IRModule({self.module.get_global_var("main"): main, **others})
        return relay.transform.InferType()(module)


class _RelaxForm(_Form):
    def take_apart(self) -> tuple[list, list]:
        relax, body = self.tvm.relax, self.main.body
        items = [(b.var, b.value) for block in body.blocks for b in block.bindings]
        self.value = dict(items)
        last = self.value.get(body.body, body.body)
        if not isinstance(last, (relax.Tuple, relax.Var)):
            return items, [body.body]
        others = [(var, value) for var, value in items if var != body.body]
        return others, list(last.fields) if isinstance(last, relax.Tuple) else [last]

    def nodes(self) -> list[Any]:
        return [var for var, _ in self.items]

    def operands(self, node: Any) -> list[Any]:
        found: list[Any] = []
        self.tvm.relax.analysis.post_order_visit(self.value[node], found.append)
        return [e for e in dict.fromkeys(found) if isinstance(e, self.tvm.relax.Var)]

    def constant(self, type: Any) -> Any:
        relax = self.tvm.relax
        if not isinstance(type, relax.TensorType) or not all(isinstance(n, self.tvm.tirx.IntImm) for n in type.shape):
            return None
        return relax.const(self.numbers(type.shape, str(type.dtype)), str(type.dtype))

    def unused(self) -> list[Any]:
        read = {e for var, _ in self.items for e in self.operands(var)} | set(self.outputs)
        return [var for var, _ in self.items if var not in read]

    def rebuild(self, outputs: list, drop: Sequence, replace: dict, parameters: Sequence) -> Any:
        relax, done = self.tvm.relax, {}

        def source(e: Any) -> Any:
            while e in replace:
                e = replace[e]
            return e

        live: set[Any] = set()
        todo = [source(e) for e in [*outputs, *(v for v in self.unused() if v not in drop)]]
        while todo:
            e = todo.pop()
            if e not in live and e in self.value:
                todo += [source(o) for o in self.operands(e)]
            live.add(e)

        def new(e: Any) -> Any:
            e = source(e)
            if isinstance(e, relax.Call):
                return relax.Call(e.op, [new(a) for a in e.args], e.attrs, e.ty_args)
            if isinstance(e, relax.Tuple):
                return relax.Tuple([new(a) for a in e.fields])
            if isinstance(e, relax.TupleGetItem):
                return relax.TupleGetItem(new(e.tuple_value), e.index)
            return done.get(e, e)

        others = {var: f for var, f in self.module.functions.items() if var.name_hint != "main"}
        build = relax.BlockBuilder(self.tvm.IRModule(others))
        with build.function("main", list(parameters)):
            with build.dataflow():
                for var, value in self.items:
                    if var in live:
                        done[var] = build.emit(new(value), name_hint=var.name)
                out = build.emit_output(
                    new(outputs[0]) if len(outputs) == 1 else relax.Tuple([new(e) for e in outputs])
                )
            build.emit_func_output(out)
        return build.get()


class _Shrinker:
    def __init__(self, form: _Form, fails: Callable[[Any], bool], budget: int, drop_parameters: bool):
        self.form, self.fails, self.budget, self.drop_parameters = form, fails, budget, drop_parameters

    def run(self) -> Any:
        progress = True
        while progress and self.budget > 0:
            before = self.form.size
            self.return_one()
            self.drop_outputs()
            self.drop_unused()
            self.replace_nodes()
            progress = self.form.size < before
        if self.drop_parameters:
            self.attempt(parameters=self.read_parameters())
        return self.form.module

    def attempt(
        self,
        outputs: list | None = None,
        drop: Sequence = (),
        replace: dict | None = None,
        parameters: Sequence | None = None,
    ) -> bool:
        """Make the edit; keep the result if it is smaller and still fails."""
        if self.budget <= 0:
            return False
        form = self.form
        outputs = form.outputs if outputs is None else outputs
        try:
            module = form.rebuild(outputs, drop, replace or {}, form.params if parameters is None else parameters)
            smaller = type(form)(module)
        except Exception:  # what TVM's type checker does not take is no candidate
            return False
        if smaller.size >= form.size:
            return False
        self.budget -= 1
        try:
            failed = bool(self.fails(module))
        except Exception:
            return False
        if failed:
            self.form = smaller
        return failed

    def return_one(self) -> None:
        """Return one inner node instead of all outputs: early ones first, at most 16 of them in one round."""
        nodes = [n for n in self.form.nodes() if not self.form.type(n).startswith(("(", "R.Tuple", "Tuple"))]
        stride = max(1, len(nodes) // 16)
        unused = self.form.unused()
        for node in [*nodes[::stride], *nodes[-1:]]:
            if self.attempt(outputs=[node], drop=unused) or self.attempt(outputs=[node]):
                return

    def drop_outputs(self) -> None:
        i = len(self.form.outputs) - 1
        while i >= 0 and len(self.form.outputs) > 1:
            self.attempt(outputs=[e for j, e in enumerate(self.form.outputs) if j != i])
            i -= 1

    def drop_unused(self) -> None:
        if self.attempt(drop=self.form.unused()):
            return
        for i in reversed(range(len(self.form.unused()))):
            if i < len(self.form.unused()):
                self.attempt(drop=[self.form.unused()[i]])

    def replace_nodes(self) -> None:
        """Replace nodes, later ones first, by what could take their place."""
        i = len(self.form.nodes()) - 1
        while i >= 0 and self.budget > 0:
            if i < len(self.form.nodes()):
                node = self.form.nodes()[i]
                any(self.attempt(replace={node: other}) for other in self.form.stand_ins(node))
            i -= 1

    def read_parameters(self) -> list[Any]:
        form = self.form
        read = {o for node in form.nodes() for o in form.operands(node)} | set(form.outputs)
        return [p for p in form.params if p in read]
