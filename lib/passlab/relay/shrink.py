"""Relay's part of `passlab.tvm.shrink`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from passlab.relay import relay, tvm
from passlab.relay.dialect import bindings, parts_of, top_level
from passlab.tvm import shrink


class Form(shrink.Form):
    def take_apart(self) -> tuple[list, list]:
        items, body = list(bindings(self.main)), self.main.body
        while isinstance(body, relay.Let):
            body = body.body
        return items, list(body.fields) if isinstance(body, relay.Tuple) else [body]

    def nodes(self) -> list[Any]:
        kinds = (relay.Call, relay.TupleGetItem)
        return [e for e in top_level(self.main) if isinstance(e, kinds)]

    def operands(self, node: Any) -> list[Any]:
        parts = []
        for part in parts_of(node):
            parts += parts_of(part) if isinstance(part, relay.Tuple) else [part]
        return parts

    def constant(self, type: Any) -> Any:
        if not isinstance(type, tvm.ir.TensorType):
            return None
        return relay.const(self.numbers(type.shape, type.dtype), type.dtype)

    def unused(self) -> list[Any]:
        return [var for var, _ in self.items]

    def rebuild(self, outputs: list, drop: Sequence, replace: dict, parameters: Sequence) -> Any:
        copies = {}

        def new(e: Any) -> Any:
            if e not in copies:
                copies[e] = new(replace[e]) if e in replace else copied(e)
            return copies[e]

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
                copies[var] = new(value)  # in place, wherever it is used
            else:
                lets.append((var, new(value)))
        body = new(outputs[0]) if len(outputs) == 1 else relay.Tuple([new(e) for e in outputs])
        for var, value in reversed(lets):
            body = relay.Let(var, value, body)
        main = relay.Function(parameters, body)
        others = {var: f for var, f in self.program.functions.items() if var.name_hint != "main"}
        module = tvm.IRModule({self.program.get_global_var("main"): main, **others})
        return relay.transform.InferType()(module)
