"""Hidden cases and answers of day14.vjp."""

from __future__ import annotations

import random
from math import inf, nan

import torch
from torch import Tensor

from autograder.authoring.answers import edited, right, wrong
from passlab.autodiff import RULES
from passlab.exercises.day14.vjp import numbers, row, rule
from passlab.given.day14.vjp import OPERATIONS
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def size() -> int:
        return rng.randrange(2, 5)

    def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return numbers(*shape, seed=rng.randrange(2**31), dtype=dtype)

    a, b, c = size(), size(), size()
    alpha, n = rng.choice([-2, 0.5, 3]), rng.choice([2, 4, -1, 1.5])
    wide, lone = drawn(a, b, c), drawn(1, b, 1)
    ordinary = [
        rule("add, a number of no dimensions", "add", drawn(), drawn(a, b), alpha=alpha),
        rule("add, whole numbers first", "add", torch.arange(b), drawn(a, b)),
        rule("add, float32 and float64", "add", drawn(a, b), drawn(a, 1, dtype=torch.float32)),
        rule("mul, broadcast on both sides", "mul", drawn(a, 1, c), drawn(b, 1)),
        rule("mul, a tensor by itself", "mul", wide, lone),
        rule("div, a row by a matrix", "div", drawn(b), drawn(a, b)),
        rule("div, broadcast divisor", "div", drawn(a, b), drawn(a, 1)),
        rule("pow, another exponent", "pow", drawn(a, b).abs(), n),
        rule("pow, n = 1", "pow", drawn(a, b), 1),
        rule("exp of float32", "exp", drawn(a, dtype=torch.float32)),
        rule("sqrt of three dimensions", "sqrt", wide.abs()),
        rule("tanh of one number", "tanh", drawn()),
        rule("relu of three dimensions", "relu", wide),
        rule("maximum, broadcast", "maximum", drawn(a, b), drawn(1, b)),
        rule("where, all broadcast", "where", drawn(b) > 0, drawn(a, 1), drawn(c, 1, 1)),
        rule("where, two types", "where", drawn(a) > 0, drawn(a, dtype=torch.float32), drawn(a)),
        rule("where, whole numbers on one side", "where", drawn(a) > 0, drawn(a), torch.arange(a)),
        rule("sum, two dimensions in any order", "sum", wide, [2, 0]),
        rule("sum, the last and the first", "sum", wide, [-1, -3]),
        rule("sum, kept", "sum", wide, [rng.randrange(3)], keepdim=True),
        rule("sum of nothing", "sum", drawn(0, b), [0]),
        rule("amax, two dimensions", "amax", wide, [0, -1]),
        rule("amax in the middle", "amax", wide, [1]),
        rule("norm, kept", "norm", wide, [-2], keepdim=True),
        rule("norm, two dimensions", "norm", wide, [1, 0]),
        rule("softmax from the end", "softmax", wide, -rng.randrange(1, 4)),
        rule("softmax along the first", "softmax", drawn(a, b), 0),
        rule("expand with -1", "expand", drawn(a, 1, 1), [b, -1, c, 2]),
        rule("expand a number", "expand", drawn(), [a, b]),
        rule("view of three dimensions", "view", wide, [a * b, -1]),
        rule("view to one more", "view", drawn(a * b), [a, 1, b]),
        rule("permute, a cycle", "permute", drawn(a, b, c, 2), rng.choice([[1, 2, 3, 0], [3, 0, 1, 2], [2, 0, 3, 1]])),
        rule("permute, from the end", "permute", wide, rng.choice([[-1, 0, 1], [1, -1, 0]])),
        rule("mm", "mm", drawn(a, b), drawn(b, c)),
        rule("where, float16 on one side", "where", row(1, 0, 1) > 0, numbers(3, dtype=torch.float16), numbers(3)),
        rule("mm of float32", "mm", drawn(a, b, dtype=torch.float32), drawn(b, 1, dtype=torch.float32)),
    ]
    special = row(0, 1, -2, inf, -inf, nan)
    ties = torch.stack([row(2, 2, 2), row(inf, inf, 1), row(0, 1, nan), row(-inf, -inf, 3)])
    norms = torch.stack([row(0, 0, 0), row(inf, 1, 0), row(1, nan, 0), row(1, -2, 2)])
    edges = [
        rule("edges of relu, with g", "relu", row(-1, -1, 2), g=row(inf, nan, inf), edge=True),
        rule("edges of sqrt, below 0", "sqrt", special, edge=True),
        rule("edges of sqrt, with g", "sqrt", row(0, 0), g=row(0, 1), edge=True),
        rule("edges of exp", "exp", special, edge=True),
        rule("edges of tanh", "tanh", special, edge=True),
        rule("edges of div, below", "div", row(1, 0, inf, 1), row(0, 0, inf, inf), edge=True),
        rule("edges of div, squares out of range", "div", row(1e200, 1, 1e-300), row(1e200, 1e170, 1e-200), edge=True),
        rule("edges of mul", "mul", special, row(inf, nan, 0, 0, 1, 2), edge=True),
        rule("edges of pow, n = 0", "pow", special, rng.choice([0, 0.0]), edge=True),
        rule("edges of pow, n = 1/2", "pow", row(0, 1, inf), 0.5, edge=True),
        rule("edges of pow, n = 1", "pow", special, 1, edge=True),
        rule(
            "edges of maximum, with g",
            "maximum",
            row(0, 1, nan, 2, 3),
            row(1, 0, 1, nan, 3),
            g=row(nan, inf, 1, 2, 3),
            edge=True,
        ),
        rule("edges of maximum, broadcast ties", "maximum", torch.ones(2, 3).double(), row(1, 0, 2), edge=True),
        rule("edges of where", "where", row(1, 0, 1) > 0, special[3:], special[:3], g=row(inf, nan, 2), edge=True),
        rule("edges of amax, rows", "amax", ties, [1], edge=True),
        rule("edges of amax, columns kept", "amax", ties[:2], [0], keepdim=True, edge=True),
        rule("edges of amax, all", "amax", ties[[0, 3]], [0, 1], edge=True),
        rule("edges of norm, rows", "norm", norms, [1], edge=True),
        rule("edges of norm, all zeros kept", "norm", torch.zeros(a, b).double(), [0, 1], keepdim=True, edge=True),
        rule(
            "edges of softmax", "softmax", torch.stack([row(-inf, 0, 1), row(inf, 0, 1), row(nan, 0, 1)]), 1, edge=True
        ),
        rule("edges of pow, n = 0 with g", "pow", row(2, 2, 0), 0, g=row(inf, nan, 1), edge=True),
        rule("edges of norm, small numbers", "norm", row(3e-13, 4e-13), [0], edge=True),
    ]
    return ordinary + edges


# ---------------------------------------------------------------------------------------------------- answers


def unbroadcast(t, like):
    t = t.sum(list(range(t.dim() - like.dim()))) if t.dim() > like.dim() else t
    for d, n in enumerate(like.shape):
        if n == 1 and t.shape[d] != 1:
            t = t.sum(d, keepdim=True)
    return t.to(like.dtype)


def of_one(op, g, out, x, y):
    """Return the gradient of an operation of one tensor."""
    if op == "exp":
        return out * g
    if op == "sqrt":
        return g / out / 2
    if op == "tanh":
        return g * (1 - out.square())
    if op == "relu":
        return torch.where(x <= 0, torch.zeros((), dtype=g.dtype), g)
    if op == "pow":
        return g.new_zeros(g.shape) if y == 0 else g * y * x.pow(y - 1)
    if op == "softmax":
        return out * (g - torch.sum(out * g, y, True))
    if op == "view":
        return g.reshape(x.shape)
    if op == "permute":
        order = [d % x.dim() for d in y]
        return g.permute([order.index(d) for d in range(x.dim())])
    return g


def of_reduced(op, g, out, x, dims):
    """Return the gradient of a reduction."""
    dims = {d if d >= 0 else d + x.dim() for d in dims}
    shape = [1 if d in dims else n for d, n in enumerate(x.shape)]
    g, out = g.reshape(shape), out.reshape(shape)
    if op == "sum":
        return g.expand(x.shape)
    if op == "amax":
        equal = (x == out).to(g.dtype)
        return g * equal / equal.sum(sorted(dims), keepdim=True)
    return g * torch.where(out == 0, torch.zeros((), dtype=g.dtype), x / out)


@right("gives each operation a branch, and undoes a broadcast by hand")
def by_branches(op, g, out, *args, **kwargs):
    x, y = args[0], args[1] if len(args) > 1 else None
    zero = torch.zeros((), dtype=g.dtype)
    if op == "add":
        gradients = g, kwargs.get("alpha", 1) * g
    elif op == "mul":
        gradients = y * g, x * g
    elif op == "div":
        gradients = g / y, -(g * out / y)
    elif op == "maximum":
        half = torch.where(x == y, 0.5, 1.0)
        gradients = torch.where(x < y, zero, g * half), torch.where(x > y, zero, g * half)
    elif op == "where":
        gradients = None, torch.where(x, g, zero), torch.where(x, zero, g)
    elif op == "mm":
        gradients = torch.mm(g, y.t()), torch.mm(x.t(), g)
    elif op in ("sum", "amax", "norm"):
        gradients = of_reduced(op, g, out, x, y), None
    else:
        gradients = of_one(op, g, out, x, y), None
    return tuple(
        unbroadcast(t, a) if isinstance(a, Tensor) and a.is_floating_point() else None
        for a, t in zip(args, gradients, strict=False)
    )


def down(t, like):
    floats = isinstance(like, Tensor) and like.dtype.is_floating_point
    return t.sum_to_size(like.shape).to(like.dtype) if floats else None


def of_expanded(op, g, out, x, y, alpha=1):
    """Return the gradients of an operation of two tensors of the result's shape."""
    if op == "add":
        return g, g * alpha
    if op == "mul":
        return g * y, g * x
    if op == "div":
        return g / y, -g / y * out
    shared = g * (1 - 0.5 * (x == y).to(g.dtype))
    return shared.masked_fill(x < y, 0), shared.masked_fill(y < x, 0)


def of_kept(op, g, out, x, dims):
    """Return the gradient of a reduction that keeps its dimensions."""
    if op == "sum":
        return g.expand_as(x)
    if op == "amax":
        return g * (x == out) / (x == out).sum(dims, keepdim=True)
    return g * torch.where(out == 0, torch.zeros_like(x), x / out)


@right("takes broadcasting apart first: expands the operands, and lets expand's own rule do the rest")
def expanded_first(op, g, out, *args, **kwargs):
    first = args[0]
    if op in ("add", "mul", "div", "maximum"):
        both = of_expanded(op, g, out, *(a.expand(out.shape) for a in args), **kwargs)
        return tuple(down(t, a) for t, a in zip(both, args, strict=True))
    if op == "where":
        c = first.expand(out.shape)
        return None, down(g.masked_fill(c.logical_not(), 0), args[1]), down(g.masked_fill(c, 0), args[2])
    if op == "mm":
        return g @ args[1].transpose(0, 1), first.transpose(0, 1) @ g
    one = {
        "exp": lambda: g * out,
        "sqrt": lambda: 0.5 * g / out,
        "tanh": lambda: g - g * out**2,
        "relu": lambda: torch.where(out > 0, g, torch.where(out.isnan(), g, 0)),
        "expand": lambda: down(g, first),
        "view": lambda: g.reshape(first.shape),
    }
    if op in one:
        return (one[op](), *[None] * (len(args) - 1))
    arg = args[1]
    if op == "pow":
        return (first.pow(arg - 1) * arg * g if arg != 0 else torch.zeros_like(first)), None
    if op == "softmax":
        return g * out - out * (g * out).sum(arg, keepdim=True), None
    if op == "permute":
        return g.permute(sorted(range(first.dim()), key=lambda d: arg[d] % first.dim())), None
    shape = [1 if d in [e % first.dim() for e in arg] else n for d, n in enumerate(first.shape)]
    return of_kept(op, g.view(shape), out.view(shape), first, arg), None


no_sum = edited("did", "does not sum what was broadcast")(
    ("gradient.sum_to_size(x.shape).to(x.dtype)", "gradient.to(x.dtype)")
)
no_cast = edited("did", "leaves the gradient in the result's type")(
    ("gradient.sum_to_size(x.shape).to(x.dtype)", "gradient.sum_to_size(x.shape)")
)
no_alpha = edited("did", "forgets alpha")(("g * alpha", "g"))
minus = edited("did", "forgets the minus of a quotient")(("-g * (x / y) / y", "g * (x / y) / y"))
square = edited("same", "squares the divisor, which overflows")(("-g * (x / y) / y", "-g * x / (y * y)"))
all_dims = edited("did", "puts dimensions back from the highest on")(
    ("sorted(d % x.dim() for d in dim)", "sorted((d % x.dim() for d in dim), reverse=True)")
)
same_order = edited("did", "permutes forward again instead of back")(("g.permute(back)", "g.permute(dims)"))
slope = edited("same", "gives relu the slope 1 at 0")(("out <= 0", "x < 0"))
masked = edited("same", "multiplies with a mask, which makes NaN of inf")(
    ("g.masked_fill(out <= 0, 0)", "g * (out > 0)")
)
first_takes_all = edited("same", "lets the first of two equal operands take all")(
    ("torch.where(x == y, g / 2, g)", "g"), ("x > y", "x >= y")
)
whole = edited("same", "gives every largest element all of the gradient")(
    ("spread(g, x, dim, keepdim) * chosen / number", "spread(g, x, dim, keepdim) * chosen")
)
nan_norm = edited("same", "divides by a norm of 0")(("direction.masked_fill(zero, 0)", "direction"))
power_zero = edited("same", "uses the law of powers for n = 0, too")(
    ("g * (n * x ** (n - 1)) if n else torch.zeros_like(g)", "g * (n * x ** (n - 1))")
)
power_times_zero = edited("same", "multiplies with 0 for n = 0, which makes NaN of inf")(
    ("g * (n * x ** (n - 1)) if n else torch.zeros_like(g)", "g * (n * x ** (n - 1)) if n else g * 0")
)
small_norm = edited("same", "adds 1e-12 to the norm, so as not to divide by 0")(
    ("direction = x / spread(out, x, dim, keepdim)", "direction = x / (spread(out, x, dim, keepdim) + 1e-12)")
)
two_types = edited("did", "takes float32 and float64 for the only types of floats")(
    (
        "isinstance(x, Tensor) and x.is_floating_point()",
        "isinstance(x, Tensor) and x.dtype in (torch.float32, torch.float64)",
    )
)
where_mask = edited("same", "multiplies with the condition")(("g.masked_fill(~c, 0)", "g * c"))
softmax_alone = edited("did", "differentiates softmax element by element")(
    ("(g - (g * out).sum(dim, keepdim=True)) * out", "g * out * (1 - out)")
)
integers = edited("spared", "gives integers a gradient")(
    ("isinstance(x, Tensor) and x.is_floating_point()", "isinstance(x, Tensor) and gradient is not None")
)
short = edited("valid", "leaves out the arguments at the end that have no gradient")(
    ("gradients += [None] * (len(args) - len(gradients))", "args = args[:len(gradients)]")
)


@wrong("valid", "takes the rules that the next question is given")
def by_the_library(op, g, out, *args, **kwargs):
    names = {"sum": "sum.dim_IntList", "pow": "pow.Tensor_Scalar", "where": "where.self", "softmax": "_softmax.default"}
    name = names.get(op, f"{op}.Tensor" if op in ("add", "mul", "div") else f"{op}.default")
    packet, _, overload = name.partition(".")
    found = RULES[getattr(getattr(torch.ops.aten, packet), overload)].apply(g, out, *args, **kwargs)
    found = [*found, *[None] * (len(args) - len(found))]
    return tuple(down(t, x) if t is not None else None for t, x in zip(found, args, strict=True))


@wrong("valid", "multiplies with a Jacobian that torch's forward mode computes")
def by_forward_mode(op, g, out, *args, **kwargs):
    def gradient(i, x):
        function = lambda x: OPERATIONS[op](*args[:i], x, *args[i + 1 :], **kwargs)  # noqa: E731
        jacobian = torch.func.jacfwd(function)(x).reshape(g.numel(), x.numel())
        return (g.reshape(1, -1) @ jacobian.to(g.dtype)).reshape(x.shape).to(x.dtype)

    floats = [isinstance(x, Tensor) and x.is_floating_point() for x in args]
    return tuple(gradient(i, x) if floats[i] else None for i, x in enumerate(args))


def amax_chooses(op, g, out, x, dim, keepdim=False):
    if not keepdim:
        for d in sorted(d % x.dim() for d in dim):
            g, out = g.unsqueeze(d), out.unsqueeze(d)
    chosen = x == out
    return torch.where(chosen, g / chosen.sum(dim, keepdim=True), 0.0), None


@wrong("same", "gives amax's g to the largest elements alone, and so nothing to a row with a NaN")
def nan_row(op, g, out, *args, **kwargs):
    if op == "amax":
        return amax_chooses(op, g, out, *args, **kwargs)
    return expanded_first(op, g, out, *args, **kwargs)


EQUIVALENT: dict[tuple[str, str], str] = {}
