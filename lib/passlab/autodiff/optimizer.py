"""Optimizer steps as one kernel for each group of parameters.

optimizer = Fused(ADAM, model.parameters(), lr=1e-3)
loss.backward()
optimizer.step()

torch.optim starts several small kernels for each parameter, and a small kernel costs its launch. The update is the same
element-wise program for all of them, so the parameters of a group become views of one long tensor, and one kernel steps
through that. Two copies go with it: one puts the gradients in a row, one writes the new numbers into the parameters.

Methods: D. Kingma, J. Ba, Adam: a method for stochastic optimization, ICLR 2015; I. Loshchilov, F. Hutter, Decoupled
weight decay regularization, ICLR 2019 (AdamW).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from passlab.kernels import Kernel


@dataclass(frozen=True)
class Method:
    """A way to update parameters, element by element.

    update(options, p, g, *state, *numbers) returns the new p and the new state. `state`: how many tensors beside p it
    keeps; they begin with zeros. `numbers(options, step)`: what changes from step to step, the first of which is 1.
    `defaults`: name → value of each option.
    """

    name: str
    state: int
    defaults: Mapping[str, Any]
    update: Callable[..., tuple]
    numbers: Callable[[Mapping[str, Any], int], tuple]


def _adam(options: Mapping[str, Any], p: Tensor, g: Tensor, m: Tensor, v: Tensor, size: Tensor, root: Tensor) -> tuple:
    b1, b2 = options["betas"]
    if options["weight_decay"]:
        g = g + options["weight_decay"] * p
    m = torch.lerp(m, g, 1 - b1)
    v = b2 * v + (1 - b2) * g * g
    return p - size * (m / (v.sqrt() / root + options["eps"])), m, v


def _adamw(options: Mapping[str, Any], p: Tensor, g: Tensor, *rest: Tensor) -> tuple:
    *state, shrink = rest
    return _adam({**options, "weight_decay": 0}, p * shrink, g, *state)


def _bias(options: Mapping[str, Any], step: int) -> tuple:
    """Return Adam's step size and the root by which it divides: its averages begin with 0, which both make up for."""
    b1, b2 = options["betas"]
    return options["lr"] / (1 - b1**step), (1 - b2**step) ** 0.5


def _sgd(options: Mapping[str, Any], p: Tensor, g: Tensor, speed: Tensor, lr: Tensor) -> tuple:
    if options["weight_decay"]:
        g = g + options["weight_decay"] * p
    speed = options["momentum"] * speed + g
    return p - lr * speed, speed


_ADAM = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}
#: Adam: steps by the average of gradients over the root of that of their squares; weight decay is part of the gradient.
ADAM = Method("adam", 2, {**_ADAM, "weight_decay": 0.0}, _adam, _bias)
#: AdamW: Adam whose weight decay shrinks the parameters directly.
ADAMW = Method(
    *("adamw", 2, {**_ADAM, "weight_decay": 0.01}, _adamw),
    lambda options, step: (*_bias(options, step), 1 - options["lr"] * options["weight_decay"]),
)
#: Gradient descent with momentum.
SGD = Method(
    *("sgd", 1, {"lr": 1e-3, "momentum": 0.0, "weight_decay": 0.0}, _sgd),
    lambda options, step: (options["lr"],),
)


class Fused:
    """An optimizer like those of torch.optim, with one kernel for each group of parameters.

    Fused(SGD, [{"params": weights, "weight_decay": 0.1}, {"params": biases}], lr=0.1, momentum=0.9)

    `groups` holds the options, which may change between steps (a schedule sets `groups[0]["lr"]`). A step joins all
    parameters with the same dtype, device, options and number of steps so far; a parameter without a gradient is left
    alone. The numbers are computed in float32 for parameters in half precision, and rounded once.

    At the first step the parameters of a group become views of one tensor, row by row (`p.data` is set). They keep
    their identity; a view of the old `p.data` that was taken before does not follow.
    """

    def __init__(self, method: Method, params: Iterable[Any], **options: Any):
        self.method = method
        params = list(params)
        parts = params if params and isinstance(params[0], dict) else [{"params": params}]
        self.groups = [{**method.defaults, **options, **part} for part in parts]
        self._row_of: dict[Tensor, _Row] = {}
        self._kernels: dict[tuple, Kernel] = {}
        for group in self.groups:
            group["params"] = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
            if unknown := [name for name in group if name not in method.defaults and name != "params"]:
                known = ", ".join(method.defaults)
                raise ValueError(f"{method.name} has no option {unknown[0]!r}; its options: {known}.")
        _check([p for group in self.groups for p in group["params"]])

    @torch.no_grad()
    def step(self) -> None:
        """Update all parameters that have a gradient."""
        for options, steps, params in self._groups():
            row = self._row(params, steps)
            row.step += 1
            kernel = self._kernel(options, params[0].dtype)
            wide = torch.float64 if params[0].dtype == torch.float64 else torch.float32
            numbers = [
                torch.tensor(number, dtype=wide, device=row.flat.device)
                for number in self.method.numbers(options, row.step)
            ]
            new, *row.state = kernel(
                row.flat, _in_a_row([p.grad for p in params if p.grad is not None]), *row.state, *numbers
            )
            row.flat.copy_(new)

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for group in self.groups:
            for p in group["params"]:
                p.grad = None

    def _groups(self) -> list[tuple[dict[str, Any], int, list[Tensor]]]:
        """Return (options, steps so far, parameters) for each kernel of the next step."""
        joined: dict[tuple, tuple[dict[str, Any], int, list[Tensor]]] = {}
        for group in self.groups:
            options = {name: _fixed(group[name]) for name in self.method.defaults}
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.is_sparse:
                    raise ValueError(f"The gradient of a parameter of shape {list(p.shape)} is sparse: make it dense.")
                steps = self._row_of[p].step if p in self._row_of else 0
                key = (p.dtype, p.device, steps, *options.values())
                joined.setdefault(key, (options, steps, []))[2].append(p)
        return list(joined.values())

    def _row(self, params: list[Tensor], steps: int) -> _Row:
        """Return the row of these parameters: the last one if they still lie in it, or else a new one."""
        row = self._row_of.get(params[0])
        if row is None or not row.holds(params):
            states = [self._row_of[p].state_of(p) if p in self._row_of else None for p in params]
            row = _Row(params, states, self.method.state, steps)
            self._row_of.update(dict.fromkeys(params, row))
        return row

    def _kernel(self, options: Mapping[str, Any], dtype: torch.dtype) -> Kernel:
        """Return the kernel of some options; their learning rate comes with the numbers of each step."""
        key = (dtype, *(value for name, value in options.items() if name != "lr"))
        if key not in self._kernels:
            self._kernels[key] = Kernel(update_graph(self.method, options, dtype))
        return self._kernels[key]


def update_graph(method: Method, options: Mapping[str, Any], dtype: torch.dtype) -> torch.fx.GraphModule:
    """Return one step of a method as a graph: from p, g, the state and the numbers to the new p and the new state."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    count = len(method.numbers(options, 1))

    def update(*args: Tensor) -> tuple[Tensor, ...]:
        parts, numbers = args[: 2 + method.state], args[2 + method.state :]
        results = method.update(options, *(part.to(wide) for part in parts), *numbers)
        return tuple(result.to(dtype) for result in results)

    example = [torch.zeros(2, dtype=dtype) for _ in range(2 + method.state)]
    gm = make_fx(update, tracing_mode="fake")(*example, *(torch.ones((), dtype=wide) for _ in range(count)))
    for node in gm.graph.find_nodes(op="placeholder"):
        node.meta.pop("val", None)  # the kernel is built for the sizes with which it is called
    return gm


class _Row:
    """Parameters as views of one tensor, `flat`, and their state, of the same length."""

    def __init__(self, params: Sequence[Tensor], states: Sequence[Sequence[Tensor] | None], count: int, step: int):
        self.params, self.step = list(params), step
        self.flat = _in_a_row(params)
        self.state = [
            _in_a_row([torch.zeros_like(p) if s is None else s[k] for p, s in zip(params, states, strict=True)])
            for k in range(count)
        ]
        self.at: dict[Tensor, int] = {}
        start = 0
        for p in params:
            self.at[p] = start
            p.data = self.flat[start : start + p.numel()].view(p.shape)
            start += p.numel()

    def holds(self, params: Sequence[Tensor]) -> bool:
        """Return whether these are its parameters, and still its views."""
        same = len(params) == len(self.params) and all(p is q for p, q in zip(params, self.params, strict=True))
        first, size = self.flat.data_ptr(), self.flat.element_size()
        return same and all(p.data_ptr() == first + size * self.at[p] for p in params)

    def state_of(self, p: Tensor) -> list[Tensor]:
        return [part[self.at[p] : self.at[p] + p.numel()] for part in self.state]


def _check(params: Sequence[Tensor]) -> None:
    """Raise ValueError for parameters that cannot lie in one row, each in a place of its own."""
    if not params:
        raise ValueError("There is no parameter to optimize: give model.parameters().")
    for p in params:
        if not p.is_floating_point():
            raise ValueError(f"A parameter of shape {list(p.shape)} holds {p.dtype}: Fused is for real numbers.")
    end = 0
    for p in sorted((p for p in params if p.numel()), key=Tensor.data_ptr):
        if p.data_ptr() < end:
            raise ValueError(
                f"A parameter of shape {list(p.shape)} shares its memory with another one, or is listed twice: list "
                "what is shared once."
            )
        last = sum((n - 1) * step for n, step in zip(p.shape, p.stride(), strict=True))
        end = p.data_ptr() + p.element_size() * (last + 1)


def _fixed(option: Any) -> Any:
    return tuple(option) if isinstance(option, list) else option


def _in_a_row(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
