"""Relax's part of `passlab.tvm.shrink`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from passlab.relax import relax, tvm
from passlab.tvm import shrink


class Form(shrink.Form):
    def take_apart(self) -> tuple[list, list]:
        body = self.main.body
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
        exprs: list[Any] = []
        relax.analysis.post_order_visit(self.value[node], exprs.append)
        return [e for e in dict.fromkeys(exprs) if isinstance(e, relax.Var)]

    def constant(self, type: Any) -> Any:
        if not isinstance(type, relax.TensorType) or not all(isinstance(n, tvm.tirx.IntImm) for n in type.shape):
            return None
        return relax.const(self.numbers(type.shape, str(type.dtype)), str(type.dtype))

    def unused(self) -> list[Any]:
        read = {e for var, _ in self.items for e in self.operands(var)} | set(self.outputs)
        return [var for var, _ in self.items if var not in read]

    def rebuild(self, outputs: list, drop: Sequence, replace: dict, parameters: Sequence) -> Any:
        copies = {}

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
            return copies.get(e, e)

        others = {var: f for var, f in self.program.functions.items() if var.name_hint != "main"}
        build = relax.BlockBuilder(tvm.IRModule(others))
        with build.function("main", list(parameters)):
            with build.dataflow():
                for var, value in self.items:
                    if var in live:
                        copies[var] = build.emit(new(value), name_hint=var.name)
                out = build.emit_output(
                    new(outputs[0]) if len(outputs) == 1 else relax.Tuple([new(e) for e in outputs])
                )
            build.emit_func_output(out)
        return build.get()
