"""Translate a program in primitives to a Triton kernel.

    print(source(program, ["x", "y"], (), "fused"))      # Python text, made without a GPU

It supports element-wise groups with broadcasting whose results have one shape. Each program of the kernel computes
BLOCK elements; an element's index determines where its operands lie. It runs on a GPU or, if TRITON_INTERPRET=1 is in
the environment before Triton is imported, in Triton's interpreter on CPU tensors.
"""

from __future__ import annotations

import hashlib
import importlib.util
import linecache
import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import torch
from torch import fx

from passlab.kernels import code as kernel_code
from passlab.kernels.primitives import VIEWS, Unsupported, _words, constant, name_of

BLOCK = 1024
#: How Triton compiles a kernel for a GPU, so that it computes what eager torch does. A fused multiply-add rounds once
#: where torch rounds twice, and its product does not overflow. Some of CUDA's functions take subnormal numbers for 0.
AS_TORCH = {"enable_fp_fusion": False, "enable_reflect_ftz": False}

_PLACES = _words("broadcast_in_dim expand transpose permute t alias detach")
#: Primitive → its expression in Triton.
_EXPRESSIONS = {
    **{name: f"tl.{name}({{0}})" for name in ("abs", "exp", "exp2", "log", "log2", "sin", "cos", "floor", "ceil")},
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "(1 / tl.sqrt({0}))",
    "erf": "tl.math.erf({0})",
    "tanh": "(2 * tl.sigmoid(2 * {0}) - 1)",
    "neg": "(-{0})",
    "reciprocal": "(1 / {0})",
    "clone": "{0}",
    "view_of": "{0}",
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "bitwise_not": "(~{0})",
    "bitwise_and": "({0} & {1})",
    "bitwise_or": "({0} | {1})",
    "bitwise_xor": "({0} ^ {1})",
    "where": "tl.where({0}, {1}, {2})",
}
#: In float32 Triton's own division gives 0 for divisors above 2**126, and its own root is an approximation.
_ROUNDED = {
    "div": "tl.div_rn({0}, {1})",
    "reciprocal": "tl.div_rn(1.0, {0})",
    "sqrt": "tl.sqrt_rn({0})",
    "rsqrt": "tl.div_rn(1.0, tl.sqrt_rn({0}))",
}


def _type(dtype: torch.dtype) -> str:
    return "tl.int1" if dtype == torch.bool else f"tl.{str(dtype).removeprefix('torch.')}"


def source(program: fx.GraphModule, names: Sequence[str], skips: Sequence[int], name: str) -> str:
    """Return the kernel as Python text: a function `name` of pointers, inputs first. Raise Unsupported."""
    results = kernel_code.results(program)
    for node in results:
        if _layout(node) != _layout(results[0]):
            raise Unsupported(node.meta["of"], "for Triton, the results of a group must have one shape")
    body = _Body(program, names, skips, results[0])
    outs = [f"out{k}" for k in range(len(results))]
    for node, out in zip(results, outs, strict=True):
        body.lines.append(f"    tl.store({out} + number, {body.value(node, body.place)}, mask=inside)")
    head = [
        "import triton",
        "import triton.language as tl",
        "",
        "",
        "@triton.jit",
        f"def {name}({', '.join([*names, *outs])}, BLOCK: tl.constexpr):",
        f"    number = {body.program_number()} * BLOCK + tl.arange(0, BLOCK)",
        f"    inside = number < {math.prod(body.shape)}",
    ]
    return "\n".join([*head, *body.lines, ""])


def _layout(node: fx.Node) -> tuple:
    """Return the shape of a result, and the order of its dimensions in memory."""
    return tuple(node.meta["val"].shape), kernel_code.result_layout(node)[0]


class _Body:
    """The lines of a kernel whose results have the shape and order of `result`, and the variable of each value."""

    def __init__(self, program: fx.GraphModule, names: Sequence[str], skips: Sequence[int], result: fx.Node):
        operands = kernel_code.operands(program)
        self.pointers = dict(zip((node for _, node in operands), names, strict=True))
        self.layouts = {n: kernel_code.layout(n.meta["val"], skips[at] if skips else 0) for at, n in operands}
        self.shape, (dims, self.strides) = tuple(result.meta["val"].shape), kernel_code.result_layout(result)
        sizes = [self.shape[d] for d in dims]
        #: the variables that index an element of a result
        self.place = tuple(0 if n == 1 else f"i{d}" for d, n in enumerate(self.shape))
        self.lines: list[str] = []
        for k, d in enumerate(dims):
            below = math.prod(sizes[k + 1 :])
            self.lines.append(f"    i{d} = number{f' // {below}' if below > 1 else ''}{f' % {sizes[k]}' if k else ''}")
        self.known: dict[tuple, str] = {}

    def program_number(self) -> str:
        large = max([math.prod(self.shape), *(layout.span for layout in self.layouts.values())]) > 2**31 - BLOCK
        return "tl.program_id(0)" + ".to(tl.int64)" * large

    def value(self, node: fx.Node, at: tuple) -> str:
        """Return the text for element `at` of a node's value."""
        if (node, at) not in self.known:
            self.known[node, at] = self._value(node, at)
        return self.known[node, at]

    def _value(self, node: fx.Node, at: tuple) -> str:
        if (number := constant(node)) is not None:
            return _number(number)
        if node in self.pointers:
            return self._load(node, at)
        name = name_of(node.target)
        if name not in VIEWS:
            return self._compute(node, at)
        if name not in _PLACES:
            raise Unsupported(node.meta["of"], f"{name} has no translation to Triton here")
        viewed = node.args[0]
        return self.value(viewed, kernel_code.source_index(node, tuple(viewed.meta["val"].shape), at))

    def _assign(self, base: str, text: str) -> str:
        variable = f"v{len(self.lines)}_{base}"
        self.lines.append(f"    {variable} = {text}")
        return variable

    def _load(self, node: fx.Node, at: tuple) -> str:
        layout = self.layouts[node]
        steps = [f"{i} * {s}" for i, s in zip(at, layout.strides, strict=True) if i != 0 and s]
        if (at, layout.shape, layout.strides) == (self.place, self.shape, self.strides):  # laid out as the result
            steps = ["number"]
        index = " + ".join([*steps, *([str(layout.skip)] if layout.skip or not steps else [])])
        mask = ", mask=inside" if steps else ""  # a scalar takes no mask
        text = f"tl.load({self.pointers[node]} + ({index}){mask})"
        return self._assign(self.pointers[node], f"{text} != 0" if node.meta["val"].dtype == torch.bool else text)

    def _compute(self, node: fx.Node, at: tuple) -> str:
        primitive, dtype = name_of(node.target), node.meta["val"].dtype
        casts = primitive == "convert_element_type"
        if (primitive not in _EXPRESSIONS and not casts) or (primitive == "div" and not dtype.is_floating_point):
            raise Unsupported(node.meta["of"], f"{primitive} has no translation to Triton here")
        operands = [
            self.value(a, at if a.meta["val"].ndim else ()) if isinstance(a, fx.Node) else a if casts else _number(a)
            for a in node.args
        ]
        if casts:
            cast = f"({operands[0]} != 0)" if dtype == torch.bool else f"{operands[0]}.to({_type(dtype)})"
            return self._assign("cast", cast)
        rounded = _ROUNDED.get(primitive) if dtype == torch.float32 else None
        return self._assign(primitive, (rounded or _EXPRESSIONS[primitive]).format(*operands))


def _number(value: float) -> str:
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)


def build(
    program: fx.GraphModule, names: Sequence[str], skips: Sequence[int], name: str, block: int = BLOCK
) -> tuple[Callable, str]:
    """Return a callable that runs a program, and its source.

    Raise RuntimeError without Triton, and where there is neither a GPU nor Triton's interpreter.
    """
    text = source(program, names, skips, name)
    somewhere = torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1"
    if not somewhere or importlib.util.find_spec("triton") is None:
        raise RuntimeError('A Triton kernel needs a CUDA GPU and the package triton; backend="tvm" runs everywhere.')
    elements = kernel_code.results(program)[0].meta["val"].numel()
    return launcher(text, name, (-(-elements // block),), {"BLOCK": block}), text


def launcher(text: str, name: str, grid: tuple[int, ...], meta: Mapping[str, float]) -> Callable[..., None]:
    """Return a function that starts the kernel `name` of a source on tensors. meta: its other parameters.

    The source's top level is executed. On a GPU the kernel is compiled as `AS_TORCH` says; Triton's interpreter, which
    contracts and flushes nothing, takes no options.
    """
    from triton import JITFunction

    kernel = getattr(load_source(text, name), name)
    start, options = kernel[grid], AS_TORCH if isinstance(kernel, JITFunction) else {}
    return lambda *tensors: start(*tensors, **meta, **options)


def load_source(text: str, name: str) -> ModuleType:
    """Return a module made of a kernel's source. Its top level is executed.

    Triton reads the source of a function through `inspect`, which finds it in `linecache`.
    """
    filename = f"<kernel {name} {hashlib.sha256(text.encode()).hexdigest()[:16]}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    module = ModuleType(name)
    exec(compile(text, filename, "exec"), vars(module))
    return module
