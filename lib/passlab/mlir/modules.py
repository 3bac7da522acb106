"""MLIR modules: from text and back, verified, and through MLIR's own passes.

xDSL parses first, since it keeps the names of values; MLIR's own parser reads the rest. No text runs Python, and its
limits are checked before a parser sees it: rejecting a million nested regions, or a constant of a million million
elements, takes microseconds. A parser in C++ may still crash, so parse untrusted text in another process.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING, Any, NoReturn

from passlab.graph.names import did_you_mean
from passlab.mlir.tables import ALLOWED, PASSES

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.ir import Operation, SSAValue

#: Runs MLIR's own passes on a text in another process, and returns the text after each: `passlab.mlir.run.confine`.
elsewhere: Callable[[str, Sequence[str]], list[str]] | None = None

#: Limits on text: its bytes; nested regions; nested brackets of all kinds; signs in a row; digits of a number;
#: elements of one tensor, memref or vector, and its dimensions; characters of an alias's definition, or of an affine
#: map; characters of a word; operations.
BYTES = 2**20
REGIONS = 24
BRACKETS = 64
SIGNS = 16
DIGITS = 400
ELEMENTS = 2**26
RANK = 32
ALIAS = 4_000
WORD = 1_000
OPERATIONS = 10_000

#: Elements of one dense constant, splat or not.
CONSTANT = 2**20

#: Dialect → its class in `xdsl.dialects`.
DIALECTS = {
    "builtin": "builtin.Builtin",
    "func": "func.Func",
    "arith": "arith.Arith",
    "math": "math.Math",
    "linalg": "linalg.Linalg",
    "tensor": "tensor.Tensor",
    "scf": "scf.Scf",
    "memref": "memref.MemRef",
    "affine": "affine.Affine",
    "cf": "cf.Cf",
    "bufferization": "bufferization.Bufferization",
    "llvm": "llvm.LLVM",
    "ub": "ub.UB",
    "vector": "vector.Vector",
}

#: Pattern of a parser's or verifier's message → the remedy.
_REMEDIES = {
    r"use of undeclared SSA value|used but not defined": "Define the value above its first use, in the same region or "
    "an enclosing one.",
    r"redefinition of SSA value|already defined": "Each name is given once: choose another.",
    r"expects different type than prior uses|is used with type": "Write the type that the value was defined with.",
    r"does not dominate": "Move the definition above its first use.",
    r"number of loops|number of dims|Expected \d+ (?:dims|inputs)": "Each indexing map takes one dimension per "
    "iterator type.",
    r"operand.*rank .* to match the result rank of indexing_map": "A map has one result per dimension of its operand.",
    r"inferred .*operand.* shape|inferred input/output": "Compare the maps with the shapes of the operands.",
    r"terminator|must end with": "End the block with its terminator: func.return, linalg.yield, scf.yield.",
    r"match function result type|same types as the function output": "Return what the function's type promises.",
    r"not registered|Dialect .* not found|unregistered|is unknown|no dialect": "Is its name spelt right?",
    r"^linalg\.\w+ is not among": "Write it as linalg.generic.",
}


class MLIRError(ValueError):
    """MLIR that does not parse, does not verify, exceeds a limit, or that a pass cannot handle.

    `line`, `column`: the place in the text, counted from 1, or 0 where there is none.
    """

    def __init__(self, message: str, line: int = 0, column: int = 0):
        super().__init__(message)
        self.line, self.column = line, column


# ---------------------------------------------------------------------------------------------------- text to module


def parse(
    text: str,
    name: str = "module",
    *,
    allowed: Mapping[str, Iterable[str]] | None = ALLOWED,
    verified: bool = True,
) -> ModuleOp:
    """Return the module of a text in MLIR's syntax, pretty or generic.

        parse("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }")

    name: the name of the text in messages. allowed: dialect → its operations that may occur; None for all that a
    parser knows. verified: whether `verify` must accept the module. Values keep their names where xDSL parses them.

    Raises MLIRError with the line and the column of this text, and the remedy where one is known.
    """
    if not isinstance(text, str):
        raise MLIRError(f"The {name} must be text in MLIR's syntax; this is a {type(text).__name__}.")
    _measure(text, name)
    try:
        module = _parse(text, context(), name)
    except MLIRError:
        other = _parsed_by_mlir(text, name)
        if other is None:
            raise
        module = other
    _check(module, text, name, allowed)
    if verified:
        try:
            verify(module)
        except MLIRError as error:
            if (other := _verified_by_mlir(text, name)) is not None:
                _check(other, text, name, allowed)
                return other
            _blame(text, name, printed=error.line > 0)
            raise
    return module


def _verified_by_mlir(text: str, name: str) -> ModuleOp | None:
    """Return the module as MLIR reads it if it is valid so: xDSL has some rules that MLIR has not.

    To xDSL, a linalg.matmul of i8 that adds up in i32 has a body that adds i8 to i32; in MLIR's, both are extended.
    """
    try:
        if module := _parsed_by_mlir(text, name):
            verify(module)
        return module
    except MLIRError:
        return None


def _blame(text: str, name: str, printed: bool) -> None:
    """Raise MLIRError with the place in the text where MLIR's verifier rejects it.

    An error of its parser, which may be about a notation of xDSL's, counts only for modules that cannot be `printed`.
    """
    if elsewhere is not None or (ir := native()) is None:
        return
    try:
        ir.Module.parse(text, _native_context())
    except ir.MLIRError as error:
        for diagnosis in error.error_diagnostics:
            if not printed or any(note.message.startswith("see current operation") for note in diagnosis.notes):
                _raise(text, name, _place(diagnosis.location), diagnosis.message)


@cache
def _parser() -> Any:
    """Return xDSL's parser, mended: among floats of a tensor, 0xFF800000 stands for these bits, which are -inf."""
    from xdsl.dialects.builtin import AnyFloat
    from xdsl.parser import Parser

    class Bits(Parser._TensorLiteralElement):
        def to_type(self, parser: Any, type: Any) -> Any:
            if not isinstance(type, AnyFloat):
                return super().to_type(parser, type)
            assert isinstance(self.value, int), "it was written in hexadecimal"
            return next(iter(type.iter_unpack(self.value.to_bytes(type.compile_time_size, "little"))))

    class Mended(Parser):
        def _parse_tensor_literal_element(self) -> Any:
            hexadecimal = self._current_token.text[:2] in ("0x", "0X")
            element = super()._parse_tensor_literal_element()
            return Bits(element.is_negative, element.value, element.span) if hexadecimal else element

    return Mended


def _parse(text: str, context: Context, name: str) -> ModuleOp:
    """Return the module as xDSL parses it. Raises MLIRError."""
    from xdsl.utils.exceptions import ParseError

    try:
        module = _parser()(context, text).parse_module()
        for op in module.walk():
            _reconcile(op)
        return module
    except ParseError as error:
        _raise(text, name, _position(text, error.span.start), error.msg)
    except RecursionError:
        raise MLIRError(f"The {name} is nested too deeply to be read. Take inner regions apart.") from None
    except Exception as error:  # xDSL checks attributes while it parses, with exceptions of many types
        raise MLIRError(f"The {name} cannot be read: {_line(error)}.") from None


def _parse_unregistered(text: str) -> ModuleOp:
    """Return the module of a text that MLIR printed. Operations unknown to xDSL stay, without a class."""
    return _parse(text, context(allow_unregistered=True), "module")


def _parsed_by_mlir(text: str, name: str) -> ModuleOp | None:
    """Return the module as MLIR's own parser reads it, or None without MLIR. Raises MLIRError."""
    if elsewhere is not None:
        return _parse_unregistered(elsewhere(text, ["strip-debuginfo"])[0])
    return None if native() is None else from_iree(read(text, name, _native_context()))


def read(text: str, name: str, context: Any) -> Any:
    """Return IREE's module of a text, in a context of IREE's. Raises MLIRError with the place in the text."""
    ir = native()
    try:
        return ir.Module.parse(text, context)
    except ir.MLIRError as error:
        diagnosis = error.error_diagnostics[0] if error.error_diagnostics else None
        place = _place(diagnosis.location) if diagnosis else (0, 0)
        _raise(text, name, place, diagnosis.message if diagnosis else str(error))


def _place(location: Any) -> tuple[int, int]:
    match = re.search(r":(\d+):(\d+)", str(location))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _position(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _raise(text: str, name: str, place: tuple[int, int], reason: str) -> NoReturn:
    """Raise MLIRError with the place, the line's text, the reason and the remedy."""
    line, column = place
    lines = text.splitlines()
    quoted = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    quoted = (quoted if len(quoted) <= 120 else quoted[:119] + "…").encode(errors="replace").decode()
    reason = re.sub(r"\s+", " ", reason).strip().rstrip(".")
    reason = re.sub(
        r"^operation being parsed with an unregistered dialect.*", "no dialect of this name is known", reason
    )
    remedy = next((f" {advice}" for pattern, advice in _REMEDIES.items() if re.search(pattern, reason)), "")
    where = f", line {line}, column {column}" if line else ""
    raise MLIRError(f"The {name}{where}{f', `{quoted}`' if quoted else ''}: {reason}.{remedy}", line, column) from None


def _line(error: BaseException) -> str:
    """Return the first line of an exception's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")


# ---------------------------------------------------------------------------------------------------- limits

_TOKEN = re.compile(
    r'(?P<string>"(?:\\.|[^"\\\n])*")|(?P<comment>//[^\n]*)'
    r"|(?P<banned>\bdense_resource\b|\btuple<|!llvm\.struct\b|\{-#)"
    r"|(?P<open>[{(\[<])|(?P<arrow>->|>=|<=)|(?P<close>[})\]>])"
    r"|(?P<alias>^[ \t]*[#!][\w$.\-]+[ \t]*=(?!=))|(?P<signs>(?:-\s*){17,})"
    r"|(?P<shaped>\b(?:tensor|memref|vector)<(?P<dims>[\[\]0-9x?\s]*))|(?P<digits>[0-9]{401,})"
    r"|(?P<map>\baffine_(?:map|set)<)|(?P<word>\w{1001,})",
    re.MULTILINE,
)
_BANNED = {
    "dense_resource": ("a dense_resource names data that is not in the text", "Write a dense<…> constant."),
    "{-#": ("a resource section brings data that no operation names", "Write a dense<…> constant."),
    "!llvm.struct": ("structures, which may hold themselves, cannot be lowered here", "Use memrefs."),
    "tuple<": ("tuple types cannot be lowered here", "Return several results instead."),
}
_CLOSES = {"}": "{", ")": "(", "]": "[", ">": "<"}
#: Kind of token → why it is refused.
_REFUSED: dict[str, Callable[[str], str]] = {
    "signs": lambda word: f"more than {SIGNS} minus signs follow each other",
    "word": lambda word: f"a word has {len(word):,} characters; at most {WORD:,} are read",
    "digits": lambda word: f"a number has {len(word):,} digits; at most {DIGITS} are read",
    "banned": lambda word: ". ".join(_BANNED[word]),
}


def _measure(text: str, name: str) -> None:
    """Raise MLIRError if the text exceeds a limit; in one pass over the text, without parsing it."""

    def refuse(at: int, reason: str) -> NoReturn:
        _raise(text, name, _position(text, at), reason)

    _check_characters(text, name, refuse)
    nest: list[str] = []
    regions = 0
    for token in _TOKEN.finditer(text):
        kind, at, word = token.lastgroup, token.start(), token.group()
        if token["open"] or token["shaped"] or token["map"]:
            nest.append(word if token["open"] else "<")
            regions += nest[-1] == "{"
            if regions > REGIONS:
                refuse(at, f"regions lie in each other more than {REGIONS} deep. Take the inner ones apart")
            if len(nest) > BRACKETS:
                refuse(at, f"brackets lie in each other more than {BRACKETS} deep")
        if kind == "map" and ")>" not in text[at : at + ALIAS]:
            refuse(at, f"an affine map is written in at most {ALIAS:,} characters")
        if token["shaped"]:
            _elements(token["dims"], lambda reason, at=at: refuse(at, reason))
        elif token["close"] and nest and nest[-1] == _CLOSES[word]:
            regions -= nest.pop() == "{"
        elif kind in _REFUSED:
            refuse(at, _REFUSED[kind](word))
        elif kind == "alias":
            _alias(text, token.end(), lambda reason, at=at: refuse(at, reason))


def _check_characters(text: str, name: str, refuse: Callable[[int, str], NoReturn]) -> None:
    """Refuse a text that is too long, or not text."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        refuse(error.start, "half a character (a lone surrogate)")
    if size > BYTES:
        raise MLIRError(f"The {name} has {len(text):,} characters; at most {BYTES:,} bytes are read.")
    if text.startswith("ML\xefR"):
        refuse(0, "this is MLIR's bytecode. Print the module as text")
    if "\0" in text:
        refuse(text.index("\0"), "MLIR's text has no zero bytes")


def _elements(dims: str, refuse: Any) -> None:
    """Refuse a shape of too many elements; an unknown dimension counts as one."""
    total, sizes = 1, re.findall(r"\d+|\?", dims)
    if len(sizes) > RANK:
        refuse(f"a shape of {len(sizes):,} dimensions; at most {RANK} are read")
    for dim in sizes:
        if dim == "?":
            continue
        total *= max(int(dim), 1)
        if total > ELEMENTS:
            refuse(f"a shape of more than {ELEMENTS:,} elements. Make it smaller")


def _alias(text: str, at: int, refuse: Any) -> None:
    """Refuse an alias that could grow: one of several lines, of many characters, or made of other aliases."""
    body = text[at:].split("\n", 1)[0] if "\n" in text[at : at + ALIAS + 1] or len(text) - at <= ALIAS else ""
    if not body.strip() or any(
        body.count(opens) > body.count(closes) for closes, opens in _CLOSES.items() if opens != "<"
    ):
        refuse(f"an alias is defined on one line of at most {ALIAS:,} characters")
    if re.search(r"(?<![\w<])[#!](?!\w+<|\w+\.)[A-Za-z_]", body):
        refuse("an alias is made of other aliases. Write out what they stand for")


def _check(module: ModuleOp, text: str, name: str, allowed: Mapping[str, Iterable[str]] | None) -> None:
    """Raise MLIRError for too many operations, one not allowed, a constant too large, a function without body."""
    for number, op in enumerate(module.walk()):
        op_name = name_of(op)
        if number > OPERATIONS:
            raise MLIRError(f"The {name} has more than {OPERATIONS:,} operations. Make it smaller.")
        if allowed is not None:
            dialect, _, rest = op_name.partition(".")
            if dialect not in allowed:
                _raise(text, name, _find(text, op_name), f"{op_name}: programs here hold no operations of {dialect}")
            if rest not in allowed[dialect]:
                _raise(
                    text, name, _find(text, op_name), f"{op_name} is not among the operations that a program may hold"
                )
        if op_name == "func.func" and not op.regions[0].blocks:
            callee = op.properties["sym_name"].data
            place = _find(text, f"@{callee}")
            _raise(text, name, place, f"the function @{callee} has no body, so nothing can be run. Write its body")
        for attribute in (*op.properties.values(), *op.attributes.values()):
            data = getattr(attribute, "type", None)
            if getattr(attribute, "name", "") != "dense" or data is None:
                continue
            if (size := math.prod(data.get_shape())) > CONSTANT:
                reason = f"a constant of {size:,} elements; at most {CONSTANT:,}. Make it an argument, or linalg.fill"
                _raise(text, name, _find(text, "dense<"), reason)


def _find(text: str, name: str) -> tuple[int, int]:
    """Return the place of the first occurrence outside comments, or else of the first in them; (0, 0) without one."""
    blank = re.sub(r"//[^\n]*", lambda comment: " " * len(comment[0]), text)
    short = name.removeprefix("func.") if name.startswith("func.") and name not in blank else name
    match = re.search(rf"(?<![\w.$@]){re.escape(short)}(?![\w.])", blank) or re.search(re.escape(short), blank)
    return _position(text, match.start()) if match else (0, 0)


# ---------------------------------------------------------------------------------------------------- module to text


def text(module: Any) -> str:
    """Return the module in MLIR's pretty syntax, as xDSL prints it (IREE's modules: as MLIR does)."""
    if is_iree(module):
        return str(module)
    return printed_lines(module, False)[0]


def generic(module: Any) -> str:
    """Return the module in MLIR's generic syntax, which every parser reads."""
    if is_iree(module):
        return module.operation.get_asm(print_generic_op_form=True)
    return printed_lines(module, True)[0]


#: The file name of locations that `printed_lines` writes: their line is the number of an operation.
_NUMBERED = "operation"


def printed_lines(module: ModuleOp, plain: bool, located: bool = False) -> tuple[str, list[tuple[int, Operation]]]:
    """Return the text, and for each operation in the order of printing the line it starts on, from 1.

    located: write the names of values and the numbers of operations as locations, which MLIR's passes keep.
    """
    out = StringIO()
    printer = _printer()(out, print_generic_format=plain)
    printer.lines, printer.located = [], located
    printer.print_op(module)
    return out.getvalue(), printer.lines


def value_names(module: ModuleOp) -> dict[SSAValue, str]:
    """Return the names of all values as `text` prints them, without %."""
    printer = _printer()(StringIO())
    printer.lines, printer.located = [], False
    printer.print_op(module)
    return printer._ssa_values


@cache
def _printer() -> type:
    from xdsl.printer import Printer

    class LinePrinter(Printer):
        """Print, and note the line of each operation."""

        def print_op(self, op: Any) -> None:
            self.lines.append((self._current_line + 1, op))
            super().print_op(op)

        def print_op_with_default_format(self, op: Any) -> None:
            number = len(self.lines) - 1
            super().print_op_with_default_format(op)
            if self.located:
                hint = op.results[0].name_hint if op.results else None
                place = f'"{_NUMBERED}":{number}:0'
                self.print_string(f' loc("{hint}"({place}))' if hint else f" loc({place})")

        def print_block_argument(self, arg: Any, print_type: bool = True) -> None:
            super().print_block_argument(arg, print_type)
            if self.located and print_type and arg.name_hint:
                self.print_string(f' loc("{arg.name_hint}")')

    return LinePrinter


def name_of(op: Operation) -> str:
    """Return an operation's name, also of one that xDSL does not know (xDSL calls these builtin.unregistered)."""
    return op.attributes["op_name__"].data if op.name == "builtin.unregistered" else op.name


def property_of(op: Any, name: str) -> Any:
    """Return a property of an operation, or its attribute of this name; None if it has neither."""
    return op.properties.get(name) or op.attributes.get(name)


def copy(module: ModuleOp) -> ModuleOp:
    """Return a deep copy of a module, with the names of its values."""
    return module.clone()


def context(allow_unregistered: bool = False) -> Context:
    """Return a new context of xDSL with the dialects of the course; each loads when a text names it."""
    import importlib

    from xdsl.context import Context

    xdsl_context = Context(allow_unregistered=allow_unregistered)
    for name, path in DIALECTS.items():
        module, dialect = path.split(".")
        xdsl_context.register_dialect(
            name, lambda m=module, d=dialect: getattr(importlib.import_module(f"xdsl.dialects.{m}"), d)
        )
    xdsl_context.load_registered_dialect("builtin")
    return xdsl_context


# ---------------------------------------------------------------------------------------------------- verification


def verify(module: ModuleOp) -> None:
    """Check a module by xDSL's verifier, and by MLIR's own if it is installed.

    Raises MLIRError that names the line of `text(module)`.
    """
    from xdsl.dialects.builtin import ModuleOp

    if not isinstance(module, ModuleOp):
        raise MLIRError(f"verify takes a module of MLIR (xDSL's ModuleOp); this is a {type(module).__name__}.")
    for op in module.walk():
        try:
            op.verify(verify_nested_ops=False)
        except Exception as error:
            _refuse(module, op, _line(error).removeprefix("Operation does not verify: "))
    if elsewhere is not None:
        elsewhere(generic(module), [])
    elif native() is not None:
        to_iree(module)


def _refuse(module: ModuleOp, op: Any, reason: str) -> NoReturn:
    """Raise MLIRError about an operation, with its line in the printed text."""
    try:
        printed, lines = printed_lines(module, False)
    except Exception as error:  # an operation so broken that it has no pretty text
        raise MLIRError(f"The module: {name_of(op)}: {reason}. (It cannot be printed: {_line(error)}.)") from None
    line_of, printed_op = {id(op_at): line for line, op_at in lines}, op
    while printed_op is not None and id(printed_op) not in line_of:  # the body of linalg.matmul is not printed
        printed_op = printed_op.parent_op()
    line = line_of[id(printed_op)] if printed_op is not None else 0
    source = printed.splitlines()[line - 1] if line else ""
    _raise(printed, "module", (line, len(source) - len(source.lstrip()) + 1), f"{name_of(op)}: {reason}")


# ---------------------------------------------------------------------------------------------------- MLIR itself


@cache
def native() -> Any:
    """Return MLIR's own bindings (`iree.compiler.ir`), or None if they are not installed."""
    try:
        from iree.compiler import ir
    except ImportError:
        return None
    return ir


#: The message if `native` returns None.
MISSING = (
    "MLIR's own parser and passes come with iree-base-compiler, which has no package for this platform; what needs "
    "only xDSL works."
)


def _require_native() -> Any:
    if (ir := native()) is None:
        raise MLIRError(MISSING)
    return ir


@cache
def _native_context() -> Any:
    """Return this process's context of MLIR, which takes 30 ms to make. It has no threads, so the process may fork."""
    ir_context = _require_native().Context()
    ir_context.enable_multithreading(False)
    return ir_context


def is_iree(value: Any) -> bool:
    """Return whether the value is a module of IREE's bindings."""
    return type(value).__module__.startswith("iree.") and hasattr(value, "operation")


def from_iree(module: Any) -> ModuleOp:
    """Return the xDSL module of a module of IREE's bindings. Operations unknown to xDSL stay, without a class."""
    printed = module.operation.get_asm(print_generic_op_form=True, use_name_loc_as_prefix=True)
    return _parse(printed, context(allow_unregistered=True), "module")


def _reconcile(op: Operation) -> None:
    """Settle where xDSL and MLIR differ about an operation that xDSL has just read.

    A property that MLIR has and xDSL lacks is an attribute, or dropped where it is false. The indices of affine.load
    and affine.store, which xDSL reads as symbols, are dimensions: a loop's index may not be a symbol.
    """
    if not hasattr(op, "get_irdl_definition"):
        return
    if op.name in ("affine.load", "affine.store") and (map := op.properties["map"].data).num_symbols:
        from xdsl.dialects.builtin import AffineMapAttr
        from xdsl.ir.affine import AffineExpr

        dims = [AffineExpr.dimension(i) for i in range(map.num_dims + map.num_symbols)]
        indices = map.replace_dims_and_symbols(dims[: map.num_dims], dims[map.num_dims :], len(dims), 0)
        op.properties["map"] = AffineMapAttr(indices)
    properties = op.get_irdl_definition().properties
    for name in [name for name in op.properties if name not in properties]:
        value = op.properties.pop(name)
        if str(value) not in ("false", "0 : i1"):
            op.attributes[name] = value


def to_iree(module: ModuleOp, context: Any = None) -> Any:
    """Return a module of IREE's bindings, by default in this process's context. Raises MLIRError if MLIR rejects it."""
    ir = _require_native()
    try:
        printed, lines = printed_lines(module, True, located=True)
    except Exception as error:
        raise MLIRError(f"The module cannot be printed: {_line(error)}.") from None
    try:
        return ir.Module.parse(printed, context or _native_context())
    except ir.MLIRError as error:
        for diagnosis in error.error_diagnostics:
            line, _ = _place(diagnosis.location)
            numbered = f'"{_NUMBERED}"' in str(diagnosis.location)  # else: a place in the text that was sent
            op = lines[line][1] if numbered else next((op for start, op in reversed(lines) if start <= line), module)
            _refuse(module, op, diagnosis.message.removeprefix(f"'{name_of(op)}' op "))
        raise MLIRError(f"The module: {_line(error)}.") from None


def pipeline(module: ModuleOp, steps: str, trusted: bool = False) -> ModuleOp:
    """Return a new module: `module` after MLIR's own passes.

        pipeline(module, "linalg-fuse-elementwise-ops, canonicalize")
        pipeline(module, "builtin.module(func.func(affine-loop-tile{tile-size=32}))")

    steps: names of `PASSES` with their options, or a whole pipeline in MLIR's notation. trusted: `module` is the
    course's own, so MLIR may read it in this process even where it reads other modules in a confined one.
    Raises MLIRError for a pass that is unknown or fails.
    """
    return passes(module, [steps], trusted)[-1]


def passes(module: ModuleOp, steps: Sequence[str], trusted: bool = False) -> list[ModuleOp]:
    """Return the module after each step of a list of passes, as `pipeline` runs them, one after the other.

    Raises MLIRError for a pass that cannot be read, or fails.
    """
    if elsewhere is not None and not trusted:
        return [_parse_unregistered(after) for after in elsewhere(generic(module), steps)]
    ir = _require_native()
    from iree.compiler import passmanager

    ir_module = to_iree(module)
    after = []
    for step in steps:
        anchored = _anchor(step)
        try:
            passmanager.PassManager.parse(anchored, ir_module.context).run(ir_module.operation)
        except ValueError as error:
            reason = re.sub(r"MLIR Textual PassPipeline Parser:\d+:\d+: error: ", "", _line(error))
            raise MLIRError(f"The pipeline `{step}` cannot be read: {reason}.") from None
        except ir.MLIRError as error:
            _raise_failure(module, step, error)
        after.append(from_iree(ir_module))
    return after


def _raise_failure(module: ModuleOp, step: str, error: Any) -> NoReturn:
    """Raise MLIRError about a step of MLIR's passes, with the operation of the given module that it fails on."""
    if not error.error_diagnostics:
        raise MLIRError(f"The pipeline `{step}` fails: {_line(error)}.") from None
    diagnosis = error.error_diagnostics[0]
    reason = diagnosis.message.rstrip(".")
    number = re.search(rf'"{_NUMBERED}":(\d+)', str(diagnosis.location))
    if number is None:
        raise MLIRError(f"The pipeline `{step}` fails: {reason}.") from None
    op = printed_lines(module, True)[1][int(number[1])][1]
    current = next(
        (match[1] for note in diagnosis.notes if (match := re.search(r'"([\w.]+)"\(', note.message))), name_of(op)
    )
    try:
        _refuse(module, op, f"{reason} (it has become {current})" if current != name_of(op) else reason)
    except MLIRError as placed:
        raise MLIRError(f"The pipeline `{step}` fails. {placed}", placed.line, placed.column) from None


_ANCHORS = {"builtin.module", "func.func", "any"}


def _anchor(steps: str) -> str:
    """Return a pipeline in MLIR's notation, with each pass on the operation that it is for. Raises MLIRError."""
    if not isinstance(steps, str) or not steps.strip():
        raise MLIRError('A pipeline is text with the names of passes: "linalg-fuse-elementwise-ops, canonicalize".')
    bare = re.sub(r"\{[^{}]*\}", "", steps)
    if "{" in bare or "}" in bare:
        raise MLIRError(f"The pipeline `{steps}` has braces in braces, or braces that do not close.")
    names = [word for word in re.split(r"[\s(),]+", bare) if word and word not in _ANCHORS]
    for word in names:
        if word not in PASSES:
            hint = did_you_mean(word, PASSES, 3) or " passlab.mlir.PASSES lists those that run by name."
            raise MLIRError(f"There is no pass {word!r}.{hint}")
    if "(" in bare:
        return steps
    parts = []
    for step in re.findall(r"[\w\-]+(?:\{[^{}]*\})?", steps):
        anchor = PASSES[step.split("{")[0]][0]
        parts.append(f"{anchor}({step})" if anchor == "func.func" else step)
    return f"builtin.module({','.join(parts)})"
