"""Shrink an MLIR module to a smaller one that still fails.

    shrink(module, fails, budget=200)     # fails(module) -> bool

It drops results, replaces an operation by one of its operands or an argument of its type (in bodies too), erases
operations that only have effects (a loop, a store, a call), drops operands that the body of a linalg.generic does not
read, and then everything unused, private functions too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from passlab.equivalence import shrinking
from passlab.mlir.modules import MLIRError, copy, name_of, verify
from passlab.mlir.reader import as_module, functions

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Operation, SSAValue


def shrink(
    module: Any, fails: Callable[[ModuleOp], bool], budget: int = 300, *, drop_parameters: bool = False
) -> ModuleOp:
    """Return a smaller module that verifies and for which `fails` is still true, by at most `budget` calls of it.

    Unused arguments of `main` stay, unless `drop_parameters`. A `fails` that raises counts as false. Only
    `main` shrinks. Raises ValueError if `fails(module)` is false.
    """
    module = as_module(module)
    if not fails(copy(module)):
        raise ValueError("shrink expects a module that fails, but `fails` is false for this one.")
    search = _Shrinker(_State(copy(module)), fails, budget - 1)
    small = search.run()
    if drop_parameters and search.attempt(("parameters",)):
        small = search.state.program
    return small


class _State:
    """A module, and the parts that an edit names by their place."""

    def __init__(self, program: ModuleOp):
        self.program = program

    @property
    def function(self) -> Operation:
        return next(iter(functions(self.program).values()))

    @property
    def block(self) -> Any:
        return self.function.regions[0].blocks[0]

    @property
    def ops(self) -> list[Operation]:
        return list(self.function.walk())[1:]

    @property
    def size(self) -> tuple[int, int, int, int]:
        """The numbers of operations, results, operands and arguments, compared in this order."""
        ops = self.ops
        results = len(self.block.last_op.operands)
        return len(ops), results, sum(len(op.operands) for op in ops), len(self.block.args)


class _Shrinker(shrinking.Shrinker):
    state: _State

    def steps(self) -> Sequence[Callable[[], None]]:
        return self.return_one, self.drop_results, self.drop_effects, self.replace_operations, self.drop_operands

    def edited(self, edit: tuple) -> _State | None:
        state = _State(copy(self.state.program))
        try:
            getattr(self, f"_{edit[0]}")(state, *edit[1:])
            _sweep(state.function)
            _erase_uncalled(state.program)
            verify(state.program)
        except (MLIRError, ValueError, IndexError):  # not a module, so not a candidate
            return None
        return state

    # -- steps

    def return_one(self) -> None:
        """Return one inner value instead of all results: early ones first."""
        inner = [i for i, op in enumerate(self.state.block.ops) if op.results and name_of(op) != "tensor.empty"]
        for number in shrinking.sample(inner):
            if self.attempt(("only", number)):
                return

    def drop_results(self) -> None:
        number = len(self.state.block.last_op.operands) - 1
        while number >= 0 and len(self.state.block.last_op.operands) > 1:
            self.attempt(("without", number))
            number -= 1

    def drop_effects(self) -> None:
        """Erase operations without results, loops before the operations in them."""
        number = 0
        while number < len(self.state.ops) and self.budget > 0:
            number += not self.attempt(("effect", number))

    def replace_operations(self) -> None:
        number = len(self.state.ops) - 1
        while number >= 0 and self.budget > 0:
            if number < len(self.state.ops):
                op = self.state.ops[number]
                any(self.attempt(("replace", number, i)) for i in range(len(list(_stand_ins(op)))))
            number -= 1

    def drop_operands(self) -> None:
        for number in reversed(range(len(self.state.ops))):
            if number < len(self.state.ops) and name_of(op := self.state.ops[number]) == "linalg.generic":
                for i in reversed(range(len(op.operands) - 1)):
                    self.attempt(("operand", number, i))

    # -- edits

    def _only(self, state: _State, number: int) -> None:
        _return(state, [list(state.block.ops)[number].results[0]])

    def _without(self, state: _State, number: int) -> None:
        _return(state, [v for i, v in enumerate(state.block.last_op.operands) if i != number])

    def _effect(self, state: _State, number: int) -> None:
        op = state.ops[number]
        if op.results or op is op.parent.last_op:
            raise ValueError("this operation has a result, or ends its block")
        op.detach()
        op.erase()

    def _replace(self, state: _State, number: int, at: int) -> None:
        op = state.ops[number]
        op.results[0].replace_all_uses_with(list(_stand_ins(op))[at])

    def _operand(self, state: _State, number: int, at: int) -> None:
        from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, i32

        op = state.ops[number]
        reads, writes = (int(n) for n in op.properties["operandSegmentSizes"].get_values())
        argument = op.regions[0].blocks[0].args[at]
        if at >= reads or any(True for _ in argument.uses):
            raise ValueError("this operand is read")
        maps = op.properties["indexing_maps"].data
        op.operands = [v for i, v in enumerate(op.operands) if i != at]
        op.properties["indexing_maps"] = ArrayAttr([m for i, m in enumerate(maps) if i != at])
        op.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [reads - 1, writes])
        op.regions[0].blocks[0].erase_arg(argument)

    def _parameters(self, state: _State) -> None:
        for argument in list(state.block.args):
            if not any(True for _ in argument.uses):
                state.block.erase_arg(argument)
        _retype(state)


def _stand_ins(op: Operation) -> Iterator[SSAValue]:
    """Yield values that may replace an operation's result: its operands and the arguments around it, of its type."""
    if len(op.results) != 1 or not any(True for _ in op.results[0].uses):
        return
    parent, known = op, list(op.operands)
    while parent is not None:
        block = parent.parent_block()
        known += list(block.args) if block is not None else []
        parent = parent.parent_op()
    for value in dict.fromkeys(known):
        owner = getattr(value, "owner", None)
        blank = hasattr(owner, "results") and name_of(owner) in ("tensor.empty", "bufferization.alloc_tensor")
        if value.type == op.results[0].type and not blank:
            yield value


def _return(state: _State, values: list[SSAValue]) -> None:
    state.block.last_op.operands = values
    _retype(state)


def _retype(state: _State) -> None:
    from xdsl.dialects.builtin import FunctionType

    gives = [value.type for value in state.block.last_op.operands]
    state.function.properties["function_type"] = FunctionType.from_lists([a.type for a in state.block.args], gives)
    for name in ("res_attrs", "arg_attrs"):
        state.function.properties.pop(name, None)


def _sweep(function: Operation) -> None:
    """Erase operations whose results are unused; those without results have effects, or end a block."""
    for op in reversed(list(function.walk())):
        if op.results and not any(True for result in op.results for _ in result.uses):
            writes = any(not inner.results and name_of(inner).endswith(("store", "copy")) for inner in op.walk())
            if not writes and op.parent is not None:
                op.detach()
                op.erase()


def _erase_uncalled(program: ModuleOp) -> None:
    """Erase private functions without a call."""
    called = {op.properties["callee"].root_reference.data for op in program.walk() if name_of(op) == "func.call"}
    for name, function in functions(program).items():
        if "sym_visibility" in function.properties and name not in called:
            function.detach()
            function.erase()
