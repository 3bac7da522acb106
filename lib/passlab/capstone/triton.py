"""Kernels as Triton source: text, with what a launch needs to know.

    kernel = Triton(TEXT, "fused", ["x", "add"], grid=[4], meta={"BLOCK": 1024})
    Compiled(gm, groups=[["mul", "add"]], kernels={"mul": kernel})

On a GPU, Triton compiles the text. On a CPU no program is made of it: the group runs as it does without a kernel, and
Triton's interpreter, where the package is installed, tells whether the text computes what the group does. Bfloat16, and
more than MOST_PROGRAMS programs of the grid in a model, are left to the GPU.

The text may hold functions with @triton.jit and nothing else (`why_not_a_kernel`): no other import, no call of
Python's own library, no name with an underscore in front. It is looked at, compiled and run only where a returned graph
may run.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import math
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from passlab.capstone.interpreter import bounded, interpreting
from passlab.judge import record
from passlab.kernels import triton_source
from passlab.kernels.primitives import _words, state
from passlab.kernels.triton import BLOCK
from passlab.kernels.triton import launcher as kernel_launcher

#: Characters of a kernel's text; programs on an axis of its grid; programs that the interpreter runs for a model.
MOST_TEXT, MOST_GRID, MOST_PROGRAMS = 20_000, 2**31 - 1, 512

_IMPORTS = ("import triton", "import triton.language as tl")
_PYTHON = frozenset(["abs", "float", "int", "len", "max", "min", "range"])
_OF_TRITON = frozenset(["cdiv", "next_power_of_2"])
#: What a text may use of triton.math, of triton.language, and of a value. Types of pointers are not in it, nor anything
#: that leads out of the language.
_MATHS = _words("abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi")
_LANGUAGE = _MATHS | _words(
    """
    bfloat16 float16 float32 float64 int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 constexpr
    program_id num_programs arange full zeros zeros_like range static_range static_assert assume
    load store make_block_ptr advance atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg
    atomic_xor broadcast broadcast_to cast cat expand_dims flip interleave join permute ravel reshape split squeeze
    swizzle2d trans unsqueeze view add clamp maximum minimum mul sub where sigmoid softmax cdiv dot gather histogram
    argmax argmin associative_scan cumprod cumsum max min reduce reduce_or sort sum topk xor_sum philox rand randint
    randn debug_barrier max_constancy max_contiguous multiple_of
    """
)
_OF_VALUES = _words("T abs broadcast_to cast dtype element_ty expand_dims permute reshape shape sum to trans")
_SYNTAX = (
    *(ast.arguments, ast.arg, ast.keyword, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass),
    *(ast.For, ast.While, ast.If, ast.Break, ast.Continue, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp),
    *(ast.Call, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Name, ast.Tuple, ast.List),
    *(ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop),
)


@record
@dataclass(frozen=True)
class Triton:
    """A group's kernel.

    `source`: Python text with the function `name`, which is started on `grid` programs along one to three axes.
    `arguments`: the values of its parameters, in order: names of values that the group reads, paths of the parameters
    that it holds, and names of the nodes of the group that other nodes read, into which it writes. `meta`: its other
    parameters, by name, such as {"BLOCK": 1024}.

    Each tensor has its node's strides in the graph (`node.meta["val"].stride()`), new ones are contiguous.
    """

    source: str
    name: str
    arguments: list[str]
    grid: list[int]
    meta: dict[str, int | float | bool] = field(default_factory=dict)

    @property
    def programs(self) -> int:
        return math.prod(self.grid)


def why_not_a_kernel(head: str, kernel: object) -> str:
    """Return why this is not a kernel of the group that begins with `head`, or "". Its text is not checked here."""
    if type(kernel) is not Triton:
        return f"The kernel of {head} must be a Triton (passlab.capstone); got {type(kernel).__name__}."
    if type(kernel.source) is not str or len(kernel.source) > MOST_TEXT:
        return f"The source of the kernel of {head} must be text of at most {MOST_TEXT:,} characters."
    if type(kernel.name) is not str or not kernel.name.isidentifier():
        return f"The kernel of {head} must have the name of a function; got {str(kernel.name)[:40]!r}."
    if type(kernel.arguments) is not list or not all(type(name) is str for name in kernel.arguments):
        return f"The arguments of the kernel of {head} must be a list of names; got {str(kernel.arguments)[:60]}."
    fits = type(kernel.grid) is list and 1 <= len(kernel.grid) <= 3
    if not fits or not all(type(n) is int and 1 <= n <= MOST_GRID for n in kernel.grid):
        return f"The grid of the kernel of {head} is {str(kernel.grid)[:60]}; it must be a list of one to three sizes."
    fits = type(kernel.meta) is dict and all(type(name) is str for name in kernel.meta)
    if not fits or not all(type(value) in (int, float, bool) for value in kernel.meta.values()):
        return (
            f"The meta of the kernel of {head} must be a dict from parameters to numbers; got {str(kernel.meta)[:60]}."
        )
    return ""


def why_not_launched(head: str, kernel: Triton) -> str:
    """Return why a kernel's text cannot be compiled or started, or "". The text is parsed, and not executed."""
    try:
        return _why_not_triton(head, kernel, ast.parse(kernel.source))
    except SyntaxError as error:
        return f"The kernel of {head} has a syntax error in line {error.lineno or 1}: {error.msg}."
    except (ValueError, RecursionError, MemoryError) as error:
        return f"The kernel of {head} is not Python text: {str(error)[:100] or type(error).__name__}."


def _why_not_triton(head: str, kernel: Triton, tree: ast.Module) -> str:
    functions = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and [ast.unparse(d) for d in node.decorator_list] == ["triton.jit"]:
            functions[node.name] = node
        elif ast.unparse(node) not in _IMPORTS and not _says_nothing(node):
            problem = f"{ast.unparse(node).splitlines()[0][:60]!r} in line {node.lineno}"
            allowed = f"{' and '.join(map(repr, _IMPORTS))}, and functions with @triton.jit"
            return f"The kernel of {head} has {problem}: its text may hold {allowed}."
    for function in functions.values():
        if problem := _beyond_triton(function, functions.keys()):
            return f"The kernel of {head} uses {problem}, which is neither Triton's nor its own."
    if kernel.name not in functions:
        has = ", ".join(functions) or "none"
        return f"The source of the kernel of {head} has no function {kernel.name!r}; it has {has}."
    return _why_not_called(head, kernel, functions[kernel.name].args)


def _says_nothing(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _beyond_triton(function: ast.FunctionDef, functions: Collection[str]) -> str | None:
    """Return the first part of a function that is not Triton's language, with its line, or None.

    functions: the names of all in the text. The interpreter puts names of its own beside them, so a name must be one of
    these, of the function's own or of `_PYTHON`.
    """
    roots = [*function.body, function.args, *([function.returns] if function.returns else [])]
    parts = [part for root in roots for part in ast.walk(root)]
    before_a_dot = {id(part.value) for part in parts if isinstance(part, ast.Attribute)}
    own = {part.arg for part in parts if isinstance(part, ast.arg)}
    own |= {part.id for part in parts if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)}
    names = {*own, *functions, *_PYTHON, "tl", "triton"}
    for part in parts:
        problem = ""
        if not isinstance(part, _SYNTAX):
            problem = type(part).__name__
        elif isinstance(part, ast.Name) and (part.id.startswith("_") or _python(part.id) or part.id not in names):
            problem = part.id
        elif isinstance(part, ast.Name) and part.id in ("tl", "triton") and id(part) not in before_a_dot:
            problem = f"{part.id} by itself"
        elif isinstance(part, ast.Attribute) and not _is_known(part, id(part) in before_a_dot):
            problem = ast.unparse(part)[:60]
        elif isinstance(part, ast.Attribute | ast.Subscript) and not isinstance(part.ctx, ast.Load):
            problem = f"an assignment to {ast.unparse(part)[:60]}"
        if problem:
            return f"{problem} (line {getattr(part, 'lineno', function.lineno)})"
    return None


def _python(name: str) -> bool:
    return hasattr(builtins, name) and name not in _PYTHON


def _is_known(part: ast.Attribute, inner: bool) -> bool:
    """Return whether an attribute is one of Triton's functions and types, or of a tensor's. inner: a dot follows it."""
    if part.attr.startswith("_"):
        return False
    match part.value:
        case ast.Name(id="tl"):
            return part.attr in _LANGUAGE or (part.attr in ("math", "PropagateNan") and inner)
        case ast.Name(id="triton"):
            return part.attr in _OF_TRITON
        case ast.Attribute(value=ast.Name(id="tl"), attr="math"):
            return part.attr in _MATHS
        case ast.Attribute(value=ast.Name(id="tl"), attr="PropagateNan"):
            return part.attr in ("ALL", "NONE")
    return part.attr in _OF_VALUES


def _why_not_called(head: str, kernel: Triton, parameters: ast.arguments) -> str:
    """Return why arguments and meta do not fit the parameters of the function, or ""."""
    if parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.posonlyargs or parameters.defaults:
        return f"The parameters of {kernel.name}, the kernel of {head}, must be plain: without *, / and defaults."
    names = [a.arg for a in parameters.args]
    if extra := [name for name in kernel.meta if name not in names]:
        return f"The kernel of {head} has meta for {extra[0]!r}; {kernel.name} has the parameters {', '.join(names)}."
    others = [name for name in names if name not in kernel.meta]
    if len(others) != len(kernel.arguments):
        return (
            f"{kernel.name}, the kernel of {head}, has the parameters {', '.join(others) or 'none'} besides its meta; "
            f"the arguments are {', '.join(kernel.arguments) or 'none'}."
        )
    return ""


def why_not_for_group(head: str, kernel: Triton, part: fx.GraphModule) -> str:
    """Return why a kernel's arguments do not fit its group, or "".

    part: the group, by `passlab.kernels.extract_group`.
    """
    reads, outputs, constants = part.meta["inputs_of"], part.meta["outputs_of"], list(state(part))
    for name in kernel.arguments:
        if name not in (*reads, *outputs, *constants):
            read, hold = (", ".join(names) or "nothing" for names in (reads, constants))
            has = f"reads {read}, holds {hold} and makes {', '.join(outputs)}"
            return f"The kernel of {head} has the argument {name!r}; the group {has}."
    if missing := [name for name in outputs if name not in kernel.arguments]:
        return f"The kernel of {head} does not get {missing[0]}, which the group makes: name it among the arguments."
    return ""


def generated(part: fx.GraphModule) -> Triton:
    """Return the kernel that the course writes for a group that is cut out, of element-wise operations alone.

    Raises Unsupported, which names the node.
    """
    text, arguments = triton_source(part, "fused")
    (output,) = part.graph.find_nodes(op="output")
    return Triton(
        text, "fused", arguments, [-(-output.all_input_nodes[0].meta["val"].numel() // BLOCK)], {"BLOCK": BLOCK}
    )


# ------------------------------------------------------------------------------------------------ a launch


def runs_on(device: torch.device) -> bool:
    """Return whether Triton's kernels, or its interpreter for them, run on tensors of a device."""
    return device.type in ("cpu", "cuda") and importlib.util.find_spec("triton") is not None


def launcher(kernel: Triton, device: torch.device) -> Callable[..., None]:
    """Return a function that starts a kernel on its tensors: compiled on a GPU, interpreted on a CPU.

    It executes the text: check it by `why_not_launched` first.
    """
    key = (kernel.source, kernel.name, tuple(kernel.grid), kernel.meta)
    if device.type == "cuda":
        return kernel_launcher(*key)
    with interpreting():
        start = kernel_launcher(*key)

    def run(*tensors: Any) -> None:
        with interpreting(), bounded(tensors), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of infinities and NaN
            start(*tensors)

    return run
