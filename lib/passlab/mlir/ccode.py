"""MLIR on buffers as C: a walk over the operations that writes a statement for each.

    print(source(module))

It covers func, arith, math, scf, affine, cf, memref, and linalg on memrefs as a loop nest over its indexing maps. A
buffer is a pointer with sizes and strides; sizes known from the type are numbers in the code. Integers wrap, and a
multiplication and an addition fuse only as math.fma.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

from passlab.mlir.modules import MLIRError, name_of, property_of

#: Most axes of a buffer, and the length of the row that describes a result: address, state, rank, sizes, strides.
RANK = 16
ROW = 2 * RANK + 3
#: A place in an error: an operation by its number, in the order of the text.
OPERATION = "⟨op {}⟩"

_TYPES = {"f16": "_Float16", "f32": "float", "f64": "double", "i1": "_Bool", "index": "int64_t"}
_TYPES |= {f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)}

_PRELUDE = """#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <math.h>
#define FAIL(...) do { snprintf(said, 400, __VA_ARGS__); return 1; } while (0)
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
static inline int64_t mod(int64_t a, int64_t b) { int64_t r = a % b; return r < 0 ? r + b : r; }
static inline int64_t floordiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
static inline int64_t ceildiv(int64_t a, int64_t b) { return a / b + (a % b != 0 && (a % b < 0) == (b < 0)); }
static inline double minimum(double a, double b) {
  return a != a ? a : b != b ? b : a < b ? a : b < a ? b : signbit(a) ? a : b;
}
static inline double maximum(double a, double b) {
  return a != a ? a : b != b ? b : a > b ? a : b > a ? b : signbit(a) ? b : a;
}
static inline int64_t ipow(int64_t a, int64_t n) { int64_t r = 1; for (; n > 0; n--) r *= a; return r; }
static void *fresh(int64_t bytes, int fill, int64_t **state) {
  void *made = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (state) { if (made) memset(made, fill, bytes); *state = malloc(8); **state = 1; }
  return made;
}
"""

#: Operation → C, of its operands {0}, {1}, …; {t}: its type, {u}: unsigned, {f}: the suffix of functions of its type.
_ARITH = {
    "arith.addi": "({u}){0} + ({u}){1}",
    "arith.subi": "({u}){0} - ({u}){1}",
    "arith.muli": "({u}){0} * ({u}){1}",
    "arith.divsi": "{0} / {1}",
    "arith.remsi": "{0} % {1}",
    "arith.divui": "({u}){0} / ({u}){1}",
    "arith.remui": "({u}){0} % ({u}){1}",
    "arith.floordivsi": "floordiv({0}, {1})",
    "arith.ceildivsi": "ceildiv({0}, {1})",
    "arith.ceildivui": "({u}){0} / ({u}){1} + (({u}){0} % ({u}){1} != 0)",
    "arith.andi": "{0} & {1}",
    "arith.ori": "{0} | {1}",
    "arith.xori": "{0} ^ {1}",
    "arith.shli": "({u}){0} << {1}",
    "arith.shrsi": "{0} >> {1}",
    "arith.shrui": "({u}){0} >> {1}",
    "arith.maxsi": "MAX({0}, {1})",
    "arith.minsi": "MIN({0}, {1})",
    "arith.maxui": "MAX(({u}){0}, ({u}){1})",
    "arith.minui": "MIN(({u}){0}, ({u}){1})",
    "arith.addf": "{0} + {1}",
    "arith.subf": "{0} - {1}",
    "arith.mulf": "{0} * {1}",
    "arith.divf": "{0} / {1}",
    "arith.remf": "fmod{f}({0}, {1})",
    "arith.negf": "-{0}",
    "arith.maximumf": "maximum({0}, {1})",
    "arith.minimumf": "minimum({0}, {1})",
    "arith.maxnumf": "fmax{f}({0}, {1})",
    "arith.minnumf": "fmin{f}({0}, {1})",
    "arith.select": "{0} ? {1} : {2}",
    "math.absf": "fabs{f}({0})",
    "math.absi": "{0} < 0 ? -({u}){0} : ({u}){0}",
    "math.rsqrt": "1 / sqrt{f}({0})",
    "math.roundeven": "nearbyint{f}({0})",
    "math.powf": "pow{f}({0}, {1})",
    "math.ipowi": "ipow({0}, {1})",
    "math.fpowi": "pow{f}({0}, {1})",
    "math.ctpop": "__builtin_popcountll(({u}){0})",
    "math.isnan": "{0} != {0}",
    "math.isinf": "isinf({0}) != 0",
    "math.isfinite": "isfinite({0}) != 0",
}
_MATH = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 floor fma log
    log10 log1p log2 round sin sinh sqrt tan tanh trunc"""
_ARITH |= {
    f"math.{name}": f"{name}{{f}}({', '.join(f'{{{i}}}' for i in range(n))})"
    for name, n in ((name, {"fma": 3, "atan2": 2, "copysign": 2}.get(name, 1)) for name in _MATH.split())
}
#: Operations that divide integers, for the check of the divisor.
_DIVIDE = {f"arith.{name}" for name in "divsi remsi divui remui floordivsi ceildivsi ceildivui".split()}  # noqa: SIM905
#: Casts: C of {0}, signed as it is, and {w}, the operand as unsigned.
_CASTS = dict.fromkeys("extf truncf sitofp fptosi extsi trunci index_cast".split(), "{0}")  # noqa: SIM905
_CASTS |= {"uitofp": "{w}", "extui": "{w}", "index_castui": "{w}", "fptoui": "(uint64_t){0}"}
_CASTS = {f"arith.{name}": code for name, code in _CASTS.items()}
#: The C of each predicate, in MLIR's order: {0}, {1} signed, {w}, {x} unsigned.
_CMPI = """{0} == {1}; {0} != {1}; {0} < {1}; {0} <= {1}; {0} > {1}; {0} >= {1}
    {w} < {x}; {w} <= {x}; {w} > {x}; {w} >= {x}"""
_CMPF = """0; {0} == {1}; {0} > {1}; {0} >= {1}; {0} < {1}; {0} <= {1}; ({0} < {1} || {0} > {1}); !isunordered({0}, {1})
    !({0} < {1} || {0} > {1}); !({0} <= {1}); !({0} < {1}); !({0} >= {1}); !({0} > {1}); {0} != {1}
    isunordered({0}, {1}); 1"""
_PREDICATES = {name: re.split(r"; |\n +", table) for name, table in (("arith.cmpi", _CMPI), ("arith.cmpf", _CMPF))}


@dataclass
class Buffer:
    """A memref: names of its pointer and of its state (or "NULL"), and C for each size and stride."""

    pointer: str
    state: str
    sizes: list[str]
    strides: list[str]
    type: str


def source(module: Any, function: str = "main", checks: bool = True) -> str:
    """Return C for a module, with `passlab_main`, which calls one of its functions.

    checks: each access is checked against the buffer's sizes, and whether the buffer was freed.

    Raises MLIRError for an operation without a translation, with its place as ⟨op n⟩.
    """
    return _Writer(module, checks).source(function)


class _Writer:
    def __init__(self, module: Any, checks: bool):
        self.module, self.checks = module, checks
        self.numbers = {id(op): at for at, op in enumerate(module.walk())}
        self.functions = {op.sym_name.data: op for op in module.ops if name_of(op) == "func.func"}
        self.globals = {op.sym_name.data: op for op in module.ops if name_of(op) == "memref.global"}
        self.lines: list[str] = []
        self.depth = 0
        self.count = itertools.count()
        self.values: dict[Any, Any] = {}
        self.blocks: dict[Any, str] = {}

    # ------------------------------------------------------------------------------------------------ writing

    def put(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    @contextmanager
    def nest(self, head: str) -> Iterator[None]:
        self.put(f"{head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.put("}")

    def name(self, prefix: str = "v") -> str:
        return f"{prefix}{next(self.count)}"

    def place(self, op: Any) -> str:
        return OPERATION.format(self.numbers.get(id(op), 0))

    def refuse(self, op: Any, reason: str = "there is no C for it") -> MLIRError:
        return MLIRError(f"C cannot be written for {name_of(op)} {self.place(op)}: {reason}.")

    def fail(self, op: Any, bad: str, says: str, *numbers: str) -> None:
        """Write a check: if `bad`, the program ends with a message. says: its text, with {} for each of `numbers`."""
        values = "".join(f", (long long)({number})" for number in numbers)
        says = says.replace("%", "%%").replace("{}", "%lld")
        self.put(f'if ({bad}) FAIL("{name_of(op)} {self.place(op)} {says}."{values});')

    def source(self, function: str) -> str:
        for name, op in self.globals.items():
            self._global(name, op)
        heads = {name: self._head(name, op) for name, op in self.functions.items()}
        for head in heads.values():
            self.put(f"{head};")
        for name, op in self.functions.items():
            with self.nest(heads[name]):
                self._function(op)
        self._entry(function)
        return _PRELUDE + "\n".join(self.lines) + "\n"

    def ctype(self, type_: Any, op: Any = None) -> str:
        code = _TYPES.get(str(type_))
        if code is None:
            hint = ": bufferize the module first (one-shot-bufferize)" if type_.name == "tensor" else ""
            raise MLIRError(f"C cannot be written for values of type {str(type_)[:80]} {self.place(op)}{hint}.")
        return code

    # ------------------------------------------------------------------------------------------------ functions

    def _parts(self, type_: Any, name: str) -> tuple[list[str], Any]:
        """Return the C parameters for a value of a type, and the value that they make."""
        if type_.name != "memref":
            return [f"{self.ctype(type_)} {name}"], name
        buffer, parts = self._fields(type_, name)
        return [f"{buffer.type} *{name}", f"int64_t *{name}_s", *(f"int64_t {part}" for part in parts)], buffer

    def _fields(self, type_: Any, name: str) -> tuple[Buffer, list[str]]:
        """Return a buffer called `name`, and the names of the sizes and strides that its type does not fix."""
        sizes = [f"{name}_n{d}" if n < 0 else str(n) for d, n in enumerate(type_.get_shape())]
        layout = getattr(type_.layout, "get_strides", None)
        if layout is None and type_.layout.name != "none":
            raise MLIRError(f"C cannot be written for {type_}: its layout is a map. Use strided<…>.")
        if len(sizes) > RANK:
            raise MLIRError(f"C cannot be written for {type_}: it has more than {RANK} axes.")
        if layout:
            strides = [f"{name}_t{d}" if step is None else str(step) for d, step in enumerate(layout())]
        else:
            strides = _dense(sizes)
        parts = [part for part in (*sizes, *(strides if layout else ())) if not part.lstrip("-").isdigit()]
        return Buffer(name, f"{name}_s", sizes, strides, self.ctype(type_.element_type)), parts

    def _head(self, name: str, op: Any) -> str:
        params = [part for at, type_ in enumerate(op.function_type.inputs) for part in self._parts(type_, f"a{at}")[0]]
        return f"static int f_{_word(name)}({', '.join([*params, 'int64_t *made', 'char *said'])})"

    def _function(self, op: Any) -> None:
        region = op.regions[0]
        for at, arg in enumerate(region.blocks[0].args):
            self.values[arg] = self._parts(arg.type, f"a{at}")[1]
        self._region(region)

    def _region(self, region: Any) -> None:
        """Write the blocks of a function: with several, jumps between labels."""
        first, *others = region.blocks
        for block in others:
            self.blocks[block] = self.name("b")
            for arg in block.args:
                self.values[arg] = self.declare(arg.type)
        for block in (first, *others):
            if block is not first:
                self.put(f"{self.blocks[block]}:;")
            self.block(block)

    def _entry(self, function: str) -> None:
        op = self.functions[function]
        head = "int passlab_main(void **in, int64_t **shapes, int64_t *made, char *said)"
        with self.nest(head):
            arguments = []
            for at, type_ in enumerate(op.function_type.inputs):
                if type_.name != "memref":
                    arguments.append(f"*({self.ctype(type_)} *)in[{at}]")
                    continue
                buffer, parts = self._fields(type_, "x")
                sizes = [f"shapes[{at}][{d}]" if n < 0 else str(n) for d, n in enumerate(type_.get_shape())]
                codes = dict(zip(buffer.sizes, sizes, strict=True)) | dict(
                    zip(buffer.strides, _dense(sizes), strict=True)
                )
                arguments += [f"in[{at}]", "NULL", *(codes[part] for part in parts)]
            self.put(f"return f_{_word(function)}({', '.join([*arguments, 'made', 'said'])});")

    def do_return(self, op: Any) -> None:
        for at, operand in enumerate(op.operands):
            self._give(operand, f"made + {at * ROW}")
        self.put("return 0;")

    def _give(self, operand: Any, row: str) -> None:
        """Write a result into its row."""
        value = self.values[operand]
        if isinstance(value, Buffer):
            fields = [*value.sizes, *["0"] * (RANK - len(value.sizes)), *value.strides]
            self.put(f"({row})[0] = (int64_t){value.pointer}; ({row})[1] = (int64_t){value.state};")
            self.put(f"({row})[2] = {len(value.sizes)};")
            for at, field in enumerate(fields, 3):
                self.put(f"({row})[{at}] = {field};")
        else:
            self.put(f"({row})[0] = (int64_t)({row} + 3); ({row})[2] = 0;")
            self.put(f"memcpy({row} + 3, &{value}, sizeof {value});")

    def do_call(self, op: Any) -> None:
        name = op.callee.root_reference.data
        if name not in self.functions:
            raise self.refuse(op, f"the module has no function @{name}")
        arguments = []
        for operand, type_ in zip(op.operands, self.functions[name].function_type.inputs, strict=True):
            value = self.values[operand]
            if not isinstance(value, Buffer):
                arguments.append(value)
                continue
            formal, parts = self._fields(type_, "x")
            codes = dict(zip(formal.sizes, value.sizes, strict=True)) | dict(
                zip(formal.strides, value.strides, strict=True)
            )
            arguments += [value.pointer, value.state, *(codes[part] for part in parts)]
        row = self.name("r")
        self.put(f"int64_t {row}[{ROW * max(len(op.results), 1)}];")
        self.put(f"if (f_{_word(name)}({', '.join([*arguments, row, 'said'])})) return 1;")
        for at, result in enumerate(op.results):
            fields_at = f"({row} + {at * ROW})"
            value = self.values[result] = self.declare(result.type)
            if isinstance(value, Buffer):
                rank = len(value.sizes)
                fields = (
                    [f"{fields_at}[{3 + d}]" for d in range(rank)],
                    [f"{fields_at}[{3 + RANK + d}]" for d in range(rank)],
                )
                self.assign(
                    value, Buffer(f"({value.type} *){fields_at}[0]", f"(int64_t *){fields_at}[1]", *fields, value.type)
                )
            else:
                self.put(f"memcpy(&{value}, {fields_at} + 3, sizeof {value});")

    # ------------------------------------------------------------------------------------------------ variables

    def declare(self, type_: Any) -> Any:
        """Declare a variable of a type, a buffer's open sizes and strides included."""
        name = self.name()
        parts, value = self._parts(type_, name)
        self.put(" ".join(f"{part};" for part in parts))
        return value

    def assign(self, variable: Any, value: Any) -> None:
        if not isinstance(variable, Buffer):
            self.put(f"{variable} = {value};")
            return
        pairs = [(variable.pointer, value.pointer), (variable.state, value.state)]
        pairs += zip(variable.sizes, value.sizes, strict=True)
        if any("_t" in stride for stride in variable.strides):
            pairs += zip(variable.strides, value.strides, strict=True)
        self.put(" ".join(f"{left} = {right};" for left, right in pairs if re.fullmatch(r"v\d+(_\w+)?", left)))

    def pass_on(self, variables: Sequence[Any], operands: Sequence[Any]) -> None:
        """Assign to several variables at once, through copies, since a value may be one of the variables."""
        values = [self.values[operand] for operand in operands]
        if len(values) > 1:
            copies = []
            for operand, value in zip(operands, values, strict=True):
                copies.append(self.declare(operand.type))
                self.assign(copies[-1], value)
            values = copies
        for variable, value in zip(variables, values, strict=True):
            self.assign(variable, value)

    def start(self, types: Sequence[Any], inits: Sequence[Any]) -> list[Any]:
        """Declare variables that carry values around a loop, and initialize them."""
        variables = [self.declare(type_) for type_ in types]
        for variable, init in zip(variables, inits, strict=True):
            self.assign(variable, self.values[init])
        return variables

    def let(self, result: Any, code: str) -> None:
        """Declare the variable of a result, with its value."""
        name = self.values[result] = self.name()
        self.put(f"{self.ctype(result.type, result.owner)} {name} = {code};")

    # ------------------------------------------------------------------------------------------------ operations

    def block(self, block: Any, onward: Sequence[Any] = ()) -> None:
        """Write the operations of a block. onward: the variables that its yield sets."""
        for op in block.ops:
            self.op(op, onward)

    def op(self, op: Any, onward: Sequence[Any]) -> None:
        name = name_of(op)
        if name in ("scf.yield", "affine.yield", "memref.alloca_scope.return"):
            self.pass_on(onward, op.operands)
        elif name in _ARITH or name in _CASTS:
            self._compute(op, name)
        elif name in _OPERATIONS:
            try:
                _OPERATIONS[name](self, op)
            except KeyError:
                raise self.refuse(op, "one of its operands has no C") from None
        elif name.startswith("linalg.") and hasattr(op, "get_indexing_maps") and op.regions:
            self.do_generic(op)
        elif any(value.type.name == "tensor" for value in (*op.operands, *op.results)):
            raise self.refuse(op, "it works on tensors: bufferize the module first (one-shot-bufferize)")
        else:
            raise self.refuse(op)

    def _compute(self, op: Any, name: str) -> None:
        operands = [self.values[operand] for operand in op.operands]
        (result,), element = op.results, str(op.results[0].type)
        kind = self.ctype(result.type, op)
        unsigned = {"_Bool": "uint8_t"}.get(kind, f"u{kind}")
        if name in _CASTS:
            of = self.ctype(op.operands[0].type, op)
            signed = f"-(int){operands[0]}" if of == "_Bool" and name != "arith.trunci" else operands[0]
            code = _CASTS[name].format(signed, w=f"({'uint8_t' if of == '_Bool' else f'u{of}'}){operands[0]}")
        else:
            if name in _DIVIDE and self.checks:
                self.fail(op, f"!{operands[1]}", "divides by zero")
            if kind == "_Bool" and name.endswith("si") and "select" not in name:
                operands = [f"(-(int){operand})" for operand in operands]
            suffix = {"f64": "", "f32": "f", "f16": "f"}.get(element, "f")
            code = _ARITH[name].format(*operands, t=kind, u=unsigned, f=suffix)
        self.let(result, f"({code}) & 1" if element == "i1" and name not in _TRUTHS else f"({kind})({code})")

    def do_constant(self, op: Any) -> None:
        if not hasattr(op.value, "value"):
            raise self.refuse(op, "it is not a number")
        self.let(op.results[0], _literal(op.value.value.data))

    def do_cmp(self, op: Any) -> None:
        left, right = (self.values[operand] for operand in op.operands)
        table = _PREDICATES[name_of(op)]
        of = self.ctype(op.operands[0].type, op)
        unsigned = {"_Bool": "uint8_t"}.get(of, f"u{of}")
        codes = (f"(-(int){left})", f"(-(int){right})") if of == "_Bool" else (left, right)
        code = table[op.predicate.value.data].format(*codes, w=f"({unsigned}){left}", x=f"({unsigned}){right}")
        self.let(op.results[0], code)

    def do_bitcast(self, op: Any) -> None:
        value = self.values[op.operands[0]]
        variable = self.values[op.results[0]] = self.declare(op.results[0].type)
        self.put(f"memcpy(&{variable}, &{value}, sizeof {variable});")

    # ------------------------------------------------------------------------------------------------ control flow

    def do_for(self, op: Any) -> None:
        low, high, step, *inits = op.operands
        bounds = [self.values[value] for value in (low, high, step)]
        if self.checks:
            self.fail(op, f"{bounds[2]} <= 0", "has the step {}", bounds[2])
        self._loop(op, op.regions[0].blocks[0], *bounds, inits)

    def _loop(self, op: Any, block: Any, low: str, high: str, step: str, inits: Sequence[Any]) -> None:
        variables = self.start([result.type for result in op.results], inits)
        at, *carried = block.args
        index = self.values[at] = self.name("i")
        kind = self.ctype(at.type, op)
        self.values |= dict(zip(carried, variables, strict=True))
        with self.nest(f"for ({kind} {index} = {low}, {index}_e = {high}; {index} < {index}_e; {index} += {step})"):
            self.block(block, variables)
        self.values |= dict(zip(op.results, variables, strict=True))

    def do_affine_for(self, op: Any) -> None:
        low = self._bounds(op.lowerBoundMap.data, op.lowerBoundOperands, "MAX")
        high = self._bounds(op.upperBoundMap.data, op.upperBoundOperands, "MIN")
        self._loop(op, op.regions[0].blocks[0], low, high, str(op.step.value.data), op.inits)

    def _bounds(self, map_: Any, operands: Sequence[Any], pick: str) -> str:
        return _pick(self.apply(map_, operands), pick)

    def do_affine_parallel(self, op: Any) -> None:
        if op.results:
            raise self.refuse(op, "it reduces")
        lower, upper = op.lowerBoundsMap.data, op.upperBoundsMap.data
        first = lower.num_dims + lower.num_symbols
        lows = self._groups(op.lowerBoundsGroups, self.apply(lower, op.map_operands[:first]), "MAX")
        highs = self._groups(op.upperBoundsGroups, self.apply(upper, op.map_operands[first:]), "MIN")
        block = op.regions[0].blocks[0]
        steps = [str(step.value.data) for step in op.steps]
        self._nest(block.args, lows, highs, steps, lambda: self.block(block))

    def _groups(self, groups: Any, bounds: list[str], pick: str) -> list[str]:
        """Return one bound per loop: the largest or smallest of its group."""
        picked, sizes = [], groups.get_values()
        codes = iter(bounds)
        for size in sizes if len(sizes) > 1 else [sizes[0]] * (len(bounds) // sizes[0]):
            picked.append(_pick(list(itertools.islice(codes, size)), pick))
        return picked

    def do_parallel(self, op: Any) -> None:
        block = op.regions[0].blocks[0]
        bounds = [[self.values[value] for value in part] for part in (op.lowerBound, op.upperBound, op.step)]
        variables = self.start([result.type for result in op.results], op.initVals)
        self.reduced = variables
        self._nest(block.args, *bounds, lambda: self._reducing(block, variables))
        self.values |= dict(zip(op.results, variables, strict=True))

    def _reducing(self, block: Any, variables: list[Any]) -> None:
        for op in block.ops:
            if name_of(op) != "scf.reduce":
                self.op(op, ())
                continue
            for variable, operand, region in zip(variables, op.operands, op.regions, strict=True):
                inner = region.blocks[0]
                self.values[inner.args[0]], self.values[inner.args[1]] = variable, self.values[operand]
                for part in inner.ops:
                    if name_of(part) == "scf.reduce.return":
                        self.pass_on([variable], part.operands)
                    else:
                        self.op(part, ())

    def _nest(self, indices: Sequence[Any], lows: Any, highs: Any, steps: Any, body: Callable[[], None]) -> None:
        """Write nested loops whose iterations may run in any order."""
        if not indices:
            body()
            return
        index = self.values[indices[0]] = self.name("i")
        if len(indices) == 1:
            self.put("#pragma GCC ivdep")
        head = f"for (int64_t {index} = {lows[0]}, {index}_e = {highs[0]}; {index} < {index}_e; {index} += {steps[0]})"
        with self.nest(head):
            self._nest(indices[1:], lows[1:], highs[1:], steps[1:], body)

    def do_if(self, op: Any) -> None:
        self._branch(op, self.values[op.operands[0]])

    def do_affine_if(self, op: Any) -> None:
        condition, parts = op.condition.data, []
        for constraint in condition.constraints:
            lhs = self._expr(constraint.lhs, condition, op.args)
            rhs = self._expr(constraint.rhs, condition, op.args)
            parts.append(f"{lhs} {constraint.kind.value} {rhs}")
        self._branch(op, " && ".join(parts) or "1")

    def _branch(self, op: Any, condition: str) -> None:
        variables = [self.declare(result.type) for result in op.results]
        for head, region in zip((f"if ({condition})", "else"), op.regions, strict=True):
            if region.blocks:
                with self.nest(head):
                    self.block(region.blocks[0], variables)
        self.values |= dict(zip(op.results, variables, strict=True))

    def do_switch(self, op: Any) -> None:
        variables = [self.declare(result.type) for result in op.results]
        default, *cases = op.regions
        with self.nest(f"switch ({self.values[op.operands[0]]})"):
            for number, region in zip([*op.cases.get_values(), None], [*cases, default], strict=True):
                with self.nest("default:" if number is None else f"case {number}:"):
                    self.block(region.blocks[0], variables)
                    self.put("break;")
        self.values |= dict(zip(op.results, variables, strict=True))

    def do_while(self, op: Any) -> None:
        before, after = (region.blocks[0] for region in op.regions)
        carried = self.start([arg.type for arg in before.args], op.operands)
        results = [self.declare(result.type) for result in op.results]
        self.values |= dict(zip(before.args, carried, strict=True)) | dict(zip(after.args, results, strict=True))
        with self.nest("for (;;)"):
            for part in before.ops:
                if name_of(part) == "scf.condition":
                    self.pass_on(results, part.operands[1:])
                    self.put(f"if (!{self.values[part.operands[0]]}) break;")
                else:
                    self.op(part, ())
            self.block(after, carried)
        self.values |= dict(zip(op.results, results, strict=True))

    def do_scope(self, op: Any) -> None:
        variables = [self.declare(result.type) for result in op.results]
        if len(op.regions[0].blocks) != 1:
            raise self.refuse(op, "it has several blocks")
        with self.nest(""):
            self.block(op.regions[0].blocks[0], variables)
        self.values |= dict(zip(op.results, variables, strict=True))

    def do_br(self, op: Any) -> None:
        self._jump(op.successors[0], op.operands)

    def do_cond_br(self, op: Any) -> None:
        condition, first = op.operands[0], 1 + len(op.successors[0].args)
        for head, block, operands in zip(
            (f"if ({self.values[condition]})", "else"),
            op.successors,
            (op.operands[1:first], op.operands[first:]),
            strict=True,
        ):
            with self.nest(head):
                self._jump(block, operands)

    def _jump(self, block: Any, operands: Sequence[Any]) -> None:
        self.pass_on([self.values[arg] for arg in block.args], operands)
        self.put(f"goto {self.blocks[block]};")

    def do_assert(self, op: Any) -> None:
        message = re.sub(r"[^\w .,:;()<>=+*/-]", " ", op.msg.data)[:200]
        self.fail(op, f"!{self.values[op.operands[0]]}", f"fails: {message}")

    # ------------------------------------------------------------------------------------------------ affine maps

    def apply(self, map_: Any, operands: Sequence[Any]) -> list[str]:
        return [self._expr(expr, map_, operands) for expr in map_.results]

    def _expr(self, expr: Any, map_: Any, operands: Sequence[Any]) -> str:
        return _affine(expr, [self.values[operand] for operand in operands], map_.num_dims)

    def do_apply(self, op: Any) -> None:
        self.let(op.results[0], self.apply(property_of(op, "map").data, op.operands)[0])

    def do_min(self, op: Any) -> None:
        pick = "MIN" if name_of(op) == "affine.min" else "MAX"
        self.let(op.results[0], self._bounds(property_of(op, "map").data, op.operands, pick))

    # ------------------------------------------------------------------------------------------------ buffers

    def element(self, op: Any, buffer: Buffer, indices: Sequence[str], does: str) -> str:
        """Write the check of an element's indices, and return C for the element."""
        if self.checks:
            self._alive(op, buffer, does)
            if indices:
                in_bounds = " && ".join(
                    f"(uint64_t)({i}) < (uint64_t){n}" for i, n in zip(indices, buffer.sizes, strict=True)
                )
                place, shape = ", ".join(["{}"] * len(indices)), "×".join(["{}"] * len(indices))
                self.fail(op, f"!({in_bounds})", f"{does} [{place}] of a buffer of {shape}", *indices, *buffer.sizes)
        return f"{buffer.pointer}[{_offset(indices, buffer.strides)}]"

    def _alive(self, op: Any, buffer: Buffer, does: str) -> None:
        if self.checks and buffer.state != "NULL":
            self.fail(op, f"{buffer.state} && !*{buffer.state}", f"{does} a buffer that was freed")

    def do_load(self, op: Any) -> None:
        self.let(op.results[0], self.element(op, *self._at(op, op.operands), "reads"))

    def do_store(self, op: Any) -> None:
        value, *place = op.operands
        target = self.element(op, *self._at(op, place), "writes")
        self.put(f"{target} = {self.values[value]};")

    def _at(self, op: Any, operands: Sequence[Any]) -> tuple[Buffer, list[str]]:
        buffer, *indices = operands
        map_ = property_of(op, "map")
        if map_ is not None and name_of(op).startswith("affine."):
            return self.values[buffer], self.apply(map_.data, indices)
        return self.values[buffer], [self.values[index] for index in indices]

    def do_alloc(self, op: Any) -> None:
        (result,) = op.results
        type_, name = result.type, self.name()
        sizes = _fill([n if n >= 0 else None for n in type_.get_shape()], [self.values[v] for v in op.operands])
        buffer = Buffer(name, f"{name}_s", sizes, _dense(sizes), self.ctype(type_.element_type, op))
        self.values[result] = buffer
        count = " * ".join(["1", *(f"(int64_t){n}" for n in sizes)])
        static = math.prod(type_.get_shape()) if all(n >= 0 for n in type_.get_shape()) else None
        if name_of(op) == "memref.alloca" and static is not None and static <= 2**14 and not self.checks:
            self.put(f"{buffer.type} {name}[{max(static, 1)}] __attribute__((aligned(64)));")
            buffer.state = "NULL"
            return
        for size in sizes if static is None else ():
            self.fail(op, f"{size} < 0", "has a negative size")
        fill = "1" if buffer.type == "_Bool" else "255"
        state = f"&{name}_s" if self.checks else "NULL"
        self.put(f"int64_t *{name}_s = NULL;")
        self.put(f"{buffer.type} *{name} = fresh({count} * sizeof({buffer.type}), {fill}, {state});")
        self.fail(op, f"!{name}", "gets no memory for {} elements", count)

    def do_dealloc(self, op: Any) -> None:
        buffer = self.values[op.operands[0]]
        if not self.checks:
            self.put(f"free({buffer.pointer});")
            return
        self._alive(op, buffer, "frees")
        if buffer.state != "NULL":
            self.fail(op, f"!{buffer.state}", "frees a buffer that it did not allocate")
            self.put(f"*{buffer.state} = 0;")

    def do_copy(self, op: Any) -> None:
        source, target = (self.values[operand] for operand in op.operands)
        self._alive(op, source, "reads")
        self._alive(op, target, "writes")
        if self.checks:
            for size, extent in zip(source.sizes, target.sizes, strict=True):
                if size != extent:
                    self.fail(op, f"{size} != {extent}", "is between different shapes")
        indices = [self.name("i") for _ in source.sizes]
        with self._loops(indices, source.sizes):
            left, right = _offset(indices, target.strides), _offset(indices, source.strides)
            self.put(f"{target.pointer}[{left}] = {source.pointer}[{right}];")

    @contextmanager
    def _loops(self, indices: Sequence[str], sizes: Sequence[str]) -> Iterator[None]:
        for index, size in zip(indices, sizes, strict=True):
            self.put(f"for (int64_t {index} = 0; {index} < {size}; {index}++) {{")
            self.depth += 1
        yield
        for _ in indices:
            self.depth -= 1
            self.put("}")

    def do_dim(self, op: Any) -> None:
        buffer, at = self.values[op.operands[0]], self.values[op.operands[1]]
        row = ", ".join(buffer.sizes)
        self.let(op.results[0], f"((int64_t[]){{{row}}})[{at}]")

    def do_rank(self, op: Any) -> None:
        self.let(op.results[0], str(len(self.values[op.operands[0]].sizes)))

    def do_same(self, op: Any) -> None:
        self.values[op.results[0]] = self.values[op.operands[0]]

    def _view(self, op: Any, offset: str, sizes: list[str], strides: list[str]) -> None:
        """Make the result of an operation a view of its operand's buffer."""
        buffer, name = self.values[op.operands[0]], self.name()
        self.put(f"{buffer.type} *{name} = {buffer.pointer} + ({offset});")
        names = [[], []]
        for column, codes in zip(names, (sizes, strides), strict=True):
            for code in codes:
                simple = re.fullmatch(r"-?\w+", code)
                column.append(code if simple else self.name())
                if not simple:
                    self.put(f"int64_t {column[-1]} = {code};")
        self.values[op.results[0]] = Buffer(name, buffer.state, *names, buffer.type)

    def do_subview(self, op: Any) -> None:
        buffer = self.values[op.operands[0]]
        offsets, sizes, steps = self._mixed(op)
        if self.checks:
            for d, n in enumerate(buffer.sizes):
                last = f"({offsets[d]}) + (({sizes[d]}) - 1) * ({steps[d]})"
                bad = f"({sizes[d]}) < 0 || (({sizes[d]}) > 0 && (({offsets[d]}) < 0 || {last} >= {n}))"
                self.fail(op, bad, f"leaves its buffer along axis {d}")
        strides = [f"({stride}) * ({step})" for stride, step in zip(buffer.strides, steps, strict=True)]
        keep = _kept_axes(sizes, op.results[0].type.get_shape())
        self._view(op, _offset(offsets, buffer.strides), [sizes[d] for d in keep], [strides[d] for d in keep])

    def do_reinterpret(self, op: Any) -> None:
        (offset,), sizes, strides = self._mixed(op)
        self._view(op, offset, sizes, strides)

    def _mixed(self, op: Any) -> list[list[str]]:
        """Return the offsets, sizes and strides of an operation: some are attributes, others operands."""
        parts = []
        for name in ("offsets", "sizes", "strides"):
            fixed = getattr(op, f"static_{name}").get_values()
            operands = [self.values[value] for value in getattr(op, name)]
            parts.append(_fill([None if n == -(2**63) else n for n in fixed], operands))
        return parts

    def do_collapse(self, op: Any) -> None:
        buffer = self.values[op.operands[0]]
        groups = [[i.value.data for i in group] for group in op.reassociation]
        sizes = [" * ".join(buffer.sizes[d] for d in group) for group in groups]
        self._view(op, "0", sizes, [buffer.strides[group[-1]] for group in groups])

    def do_expand(self, op: Any) -> None:
        buffer = self.values[op.operands[0]]
        groups = [[i.value.data for i in group] for group in op.reassociation]
        operands = [self.values[value] for value in op.output_shape]
        sizes = _fill([None if n == -(2**63) else n for n in op.static_output_shape.get_values()], operands)
        strides = list(sizes)
        for at, group in enumerate(groups):
            stride = buffer.strides[at]
            for d in reversed(group):
                strides[d], stride = stride, f"({stride}) * ({sizes[d]})"
        self._view(op, "0", sizes, strides)

    def do_transpose(self, op: Any) -> None:
        buffer, order = (
            self.values[op.operands[0]],
            [expr.position for expr in property_of(op, "permutation").data.results],
        )
        self._view(op, "0", [buffer.sizes[d] for d in order], [buffer.strides[d] for d in order])

    def do_metadata(self, op: Any) -> None:
        buffer, rank = self.values[op.operands[0]], len(self.values[op.operands[0]].sizes)
        base, offset, *numbers = op.results
        self.values[base] = Buffer(buffer.pointer, buffer.state, [], [], buffer.type)
        self.let(offset, "0")
        for result, code in zip(numbers, (*buffer.sizes, *buffer.strides), strict=True):
            self.let(result, code)
        assert len(numbers) == 2 * rank

    def _global(self, name: str, op: Any) -> None:
        kind, initial = self.ctype(op.type.element_type, op), op.initial_value
        count = math.prod(op.type.get_shape())
        row = ""
        if hasattr(initial, "get_values"):
            numbers = [_literal(number) for number in initial.get_values()]
            row = f" = {{{', '.join(numbers * (count if len(numbers) == 1 else 1))}}}"
        self.put(f"static {kind} g_{_word(name)}[{max(count, 1)}]{row};")

    def do_get_global(self, op: Any) -> None:
        type_, name = op.results[0].type, op.name_.root_reference.data
        if name not in self.globals:
            raise self.refuse(op, f"the module has no memref.global @{name}")
        sizes = [str(n) for n in type_.get_shape()]
        self.values[op.results[0]] = Buffer(
            f"g_{_word(name)}", "NULL", sizes, _dense(sizes), self.ctype(type_.element_type, op)
        )

    # ------------------------------------------------------------------------------------------------ linalg

    def do_generic(self, op: Any) -> None:
        if op.results:
            raise self.refuse(op, "it works on tensors: bufferize the module first (one-shot-bufferize)")
        maps = [map_.data for map_ in op.get_indexing_maps()]
        operands = [self.values[operand] for operand in op.operands]
        indices = [self.name("i") for _ in range(maps[0].num_dims)]
        sizes: list[str] = [""] * maps[0].num_dims
        for map_, value in zip(maps, operands, strict=True):
            for axis, expr in enumerate(map_.results):
                if type(expr).__name__ == "AffineDimExpr" and isinstance(value, Buffer):
                    sizes[expr.position] = sizes[expr.position] or value.sizes[axis]
        if "" in sizes:
            raise self.refuse(op, f"no operand has a whole axis for d{sizes.index('')}")
        block, outs = op.regions[0].blocks[0], len(op.outputs)
        with self._loops(indices, sizes):
            for value, map_, arg in zip(operands, maps, block.args, strict=True):
                if isinstance(value, Buffer):
                    place = [_affine(expr, indices, map_.num_dims) for expr in map_.results]
                    self.let(arg, self.element(op, value, place, "reads")) if arg.uses or self.checks else None
                else:
                    self.values[arg] = value
            for inner in block.ops:
                if name_of(inner) == "linalg.index":
                    self.let(inner.results[0], indices[inner.dim.value.data])
                elif name_of(inner) == "linalg.yield":
                    for value, map_, result in zip(operands[-outs:], maps[-outs:], inner.operands, strict=True):
                        place = [_affine(expr, indices, map_.num_dims) for expr in map_.results]
                        self.put(f"{value.pointer}[{_offset(place, value.strides)}] = {self.values[result]};")
                else:
                    self.op(inner, ())


# ---------------------------------------------------------------------------------------------------- pieces of C


def _pick(codes: Sequence[str], pick: str) -> str:
    """Return C for the largest or smallest of several numbers. pick: MIN or MAX."""
    return reduce(lambda a, b: f"{pick}({a}, {b})", codes)


def _word(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in name)


def _dense(sizes: Sequence[str]) -> list[str]:
    """Return the strides of a buffer without gaps."""
    strides: list[str] = []
    for at in range(len(sizes)):
        inner = sizes[at + 1 :]
        number = all(n.isdigit() for n in inner)
        strides.append(str(math.prod(map(int, inner))) if number else " * ".join(inner))
    return [f"({stride})" if " " in stride else stride for stride in strides]


def _offset(indices: Sequence[str], strides: Sequence[str]) -> str:
    terms = [i if stride == "1" else f"({i}) * ({stride})" for i, stride in zip(indices, strides, strict=True)]
    return " + ".join(terms) or "0"


def _fill(fixed: Sequence[int | None], operands: Sequence[str]) -> list[str]:
    """Return `fixed` as C, with the operands in place of None."""
    operand = iter(operands)
    return [next(operand) if n is None else str(n) for n in fixed]


def _kept_axes(sizes: Sequence[str], shape: Sequence[int]) -> list[int]:
    """Return the axes of a view that its result type keeps: axes of size 1 may be dropped."""
    drop, axes = len(sizes) - len(shape), []
    for d, size in enumerate(sizes):
        fits = len(axes) < len(shape) and (shape[len(axes)] < 0 or str(shape[len(axes)]) == size)
        if drop and size == "1" and not (fits and len(sizes) - d - 1 < drop):
            drop -= 1
        else:
            axes.append(d)
    return axes


def _affine(expr: Any, values: Sequence[str], dims: int) -> str:
    kind = type(expr).__name__
    if kind == "AffineConstantExpr":
        return str(expr.value)
    if kind == "AffineDimExpr":
        return values[expr.position]
    if kind == "AffineSymExpr":
        return values[dims + expr.position]
    left, right = _affine(expr.lhs, values, dims), _affine(expr.rhs, values, dims)
    form = {"Add": "({} + {})", "Mul": "({} * {})", "Mod": "mod({}, {})", "FloorDiv": "floordiv({}, {})"}
    return form.get(expr.kind.name, "ceildiv({}, {})").format(left, right)


def _literal(number: float | int) -> str:
    if isinstance(number, float):
        if math.isnan(number):
            return "NAN"
        return ("-" if number < 0 else "") + "INFINITY" if math.isinf(number) else number.hex()
    return "(-9223372036854775807LL - 1)" if number == -(2**63) else f"{int(number)}" + "LL" * (abs(number) >= 2**31)


#: Operations on i1 whose C is 0 or 1 already.
_TRUTHS = {"math.isnan", "math.isinf", "math.isfinite", "arith.select", "arith.andi", "arith.ori", "arith.xori"}

_OPERATIONS: dict[str, Callable[[_Writer, Any], None]] = {
    "func.return": _Writer.do_return,
    "func.call": _Writer.do_call,
    "arith.constant": _Writer.do_constant,
    "arith.cmpi": _Writer.do_cmp,
    "arith.cmpf": _Writer.do_cmp,
    "arith.bitcast": _Writer.do_bitcast,
    "scf.for": _Writer.do_for,
    "scf.if": _Writer.do_if,
    "scf.while": _Writer.do_while,
    "scf.parallel": _Writer.do_parallel,
    "scf.index_switch": _Writer.do_switch,
    "scf.execute_region": _Writer.do_scope,
    "affine.for": _Writer.do_affine_for,
    "affine.if": _Writer.do_affine_if,
    "affine.parallel": _Writer.do_affine_parallel,
    "affine.apply": _Writer.do_apply,
    "affine.min": _Writer.do_min,
    "affine.max": _Writer.do_min,
    "affine.load": _Writer.do_load,
    "affine.store": _Writer.do_store,
    "cf.br": _Writer.do_br,
    "cf.cond_br": _Writer.do_cond_br,
    "cf.assert": _Writer.do_assert,
    "memref.alloc": _Writer.do_alloc,
    "memref.alloca": _Writer.do_alloc,
    "memref.alloca_scope": _Writer.do_scope,
    "memref.dealloc": _Writer.do_dealloc,
    "memref.load": _Writer.do_load,
    "memref.store": _Writer.do_store,
    "memref.copy": _Writer.do_copy,
    "memref.dim": _Writer.do_dim,
    "memref.rank": _Writer.do_rank,
    "memref.cast": _Writer.do_same,
    "memref.assume_alignment": _Writer.do_same,
    "memref.subview": _Writer.do_subview,
    "memref.reinterpret_cast": _Writer.do_reinterpret,
    "memref.collapse_shape": _Writer.do_collapse,
    "memref.expand_shape": _Writer.do_expand,
    "memref.transpose": _Writer.do_transpose,
    "memref.extract_strided_metadata": _Writer.do_metadata,
    "memref.get_global": _Writer.do_get_global,
    "linalg.generic": _Writer.do_generic,
}
