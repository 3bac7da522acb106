"""Day 14, steps in few kernels: visible cases and judge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from passlab.equivalence.seeds import own_seed
from passlab.fx.judge import rebuild, why_not_valid
from passlab.fx.programs import Program
from passlab.fx.values import aten_calls
from passlab.given.day14.optimizer import DEFAULTS
from passlab.judge import Case, Finding, enough, plural, shown
from passlab.judge.forms import why_not_a_list

#: How many tensors an optimizer keeps beside each parameter.
STATE = {"sgd": 1, "adam": 2}
#: How many steps are run.
STEPS = 5
#: ATen operations that belong to an element-wise kernel besides those that torch tags as such.
CONSTANTS = {
    *("aten.full_like.default", "aten.ones_like.default", "aten.zeros_like.default", "aten.scalar_tensor.default"),
    *("aten.clone.default", "aten._to_copy.default", "aten.full.default", "aten.lift_fresh_copy.default"),
    "aten.detach.default",
}
EVERY = (True,) * STEPS


def row(
    name: str,
    shape: Sequence[int],
    dtype: str = "float32",
    gradients: Sequence[bool] = EVERY,
    memory: str = "",
    **options: Any,
) -> dict[str, Any]:
    """Return a parameter as an answer gets it. Its memory has its own name, unless it is shared."""
    form = {"name": name, "memory": memory or f"memory of {name}", "shape": tuple(shape), "dtype": dtype}
    return {**form, "gradients": tuple(gradients), "options": options}


def steps_case(name: str, method: str, rows: Sequence[dict]) -> Case:
    return Case(name, lambda: (method, [one | {"options": dict(one["options"])} for one in rows]))


def drawn(rng: random.Random, method: str, count: int) -> list[dict]:
    """Return parameters with few different options, some of them written out though they are defaults."""
    choices: Any = {
        "sgd": [{}, {"lr": 1e-3}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}],
        "adam": [{}, {"betas": (0.9, 0.999)}, {"lr": 0.02, "weight_decay": 0.1}, {"eps": 0.01, "betas": (0.5, 0.9)}],
    }[method]
    late = tuple(step > 0 for step in range(STEPS))
    rows: list[dict] = []
    for i in range(count):
        shape = [rng.randint(1, 4) for _ in range(rng.randint(0, 2))]
        gradients = rng.choice([EVERY, EVERY, EVERY, late, (False,) * STEPS])
        dtype = rng.choice(["float32", "float32", "float64"])
        rows.append(row(f"p{i}", shape, dtype, gradients, **rng.choice(choices)))
    tied = rng.choice([one for one in rows if any(one["gradients"])] or rows)
    return [*rows, tied | {"name": "tied"}]


def cases() -> list[Case]:
    sgd = [
        row("w", (4, 3), lr=0.1, momentum=0.9),
        row("b", (4,), lr=0.1, momentum=0.9, dampening=0.0),
        row("v", (2, 4), lr=0.1, momentum=0.9, weight_decay=0.1),
        row("double", (3,), "float64", lr=0.1, momentum=0.9),
    ]
    adam = [
        row("embedding", (6, 2), lr=0.01, memory="table"),
        row("head", (6, 2), lr=0.01, memory="table"),
        row("bias", (6,), lr=0.01),
        row("frozen", (5,), lr=0.01, gradients=(False,) * STEPS),
        row("late", (3,), lr=0.01, gradients=(False, True, True, True, True)),
    ]
    decayed = [
        row("w", (3, 3), weight_decay=0.1, decoupled_weight_decay=True),
        row("b", (3,), weight_decay=0.1),
        row("up", (2,), maximize=True, weight_decay=0.2),
    ]
    damped = [row("w", (4,), lr=0.1, momentum=0.8, dampening=0.5), row("v", (4,), lr=0.1, momentum=0.8, nesterov=True)]
    return [
        steps_case("sgd", "sgd", sgd),
        steps_case("sgd, damped and Nesterov's", "sgd", damped),
        steps_case("adam: shared, frozen and late", "adam", adam),
        steps_case("adam with weight decay", "adam", decayed),
    ]


def options_of(method: str, one: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a parameter."""
    return DEFAULTS[method] | one["options"]


def key(method: str, one: Mapping[str, Any]) -> tuple:
    """Return what the parameters of a group have in common."""
    return one["dtype"], one["gradients"], *options_of(method, one).items()


def why_not_groups(value: Any, method: str, rows: Mapping[str, dict]) -> str:
    """Return why a value is not a list of groups of parameters with their graphs, or ""."""
    if reason := why_not_a_list(value, "a list of groups"):
        return reason
    names_: set[str] = set()
    for group in value:
        if not isinstance(group, dict) or set(group) != {"params", "graph"}:
            return f"A group is a dict with params and graph; one here is {shown(group)}."
        names, gm = group["params"], group["graph"]
        if not isinstance(names, (list, tuple)) or not names:
            return f"The params of a group are a list of one name or more; here they are {shown(names)}."
        for name in names:
            if not isinstance(name, str) or name not in rows:
                return f"{shown(name)} is not the name of a parameter."
            if name in names_:
                return f"{name} is in two groups, or twice in one."
            names_.add(name)
        if reason := why_not_valid(None, gm):
            return f"The graph of the group of {names[0]}: {reason}"
        if reason := _why_not_a_step(gm, STATE[method]):
            return f"The graph of the group of {names[0]} {reason}"
    return ""


def _why_not_a_step(gm: fx.GraphModule, state: int) -> str:
    inputs, results = len(gm.graph.find_nodes(op="placeholder")), gm.graph.find_nodes(op="output")[0].args[0]
    if inputs != state + 3:
        return f"takes {inputs} values; it must take p, g, {plural(state, 'tensor')} of state, and t."
    if not isinstance(results, (list, tuple)) or len(results) != state + 1:
        text = plural(len(results), "value") if isinstance(results, (list, tuple)) else "one value by itself"
        return f"returns {text}; it must return a list: the new p and {plural(state, 'new tensor')} of state."
    return ""


def why_not_one_kernel(gm: fx.GraphModule, inputs: Sequence[Tensor]) -> str:
    """Return which operation of a step is not element-wise, or why the step cannot run."""
    try:
        record = aten_calls(rebuild(gm), tuple(inputs))
    except Exception as error:
        return f"cannot run on flat tensors: {str(error).splitlines()[0][:200]}"
    for name, pointwise in record["calls"]:
        if not pointwise and name not in CONSTANTS:
            return f"calls {name}, which is not element-wise: it would not be one kernel."
    for value in record["results"]:
        if value is None or (value.shape, value.dtype) != (inputs[0].shape, inputs[0].dtype):
            form = f"{value.dtype}{list(value.shape)}" if value is not None else "no tensor"
            return f"returns {form} for a group of {inputs[0].dtype}{list(inputs[0].shape)}."
    return ""


def why_not_alike(value: Sequence[Mapping], method: str, rows: Mapping[str, dict]) -> str:
    """Return which parameters do not belong into one group, are stepped twice or never, or ""."""
    stepped: dict[str, str] = {}
    for group in value:
        first = rows[group["params"][0]]
        for one in (rows[name] for name in group["params"]):
            if not any(one["gradients"]):
                return f"{one['name']} never has a gradient: it is in no group."
            if other := stepped.get(one["memory"]):
                return f"{other} and {one['name']} are the same tensor, which would be stepped twice."
            stepped[one["memory"]] = one["name"]
            facts, others = one | options_of(method, one), first | options_of(method, first)
            keys = ("dtype", "gradients", *options_of(method, one))
            if different := next((key for key in keys if facts[key] != others[key]), None):
                return f"{first['name']} and {one['name']} share a group, and differ in `{different}`."
    for one in rows.values():
        if any(one["gradients"]) and one["memory"] not in stepped:
            return f"{one['name']} has gradients, and is in no group."
    return ""


def started(one: Mapping[str, Any]) -> tuple[Tensor, list[Tensor]]:
    """Return a parameter's first value, and its gradients; of several numbers, one is 0, another in each step."""
    generator = torch.Generator().manual_seed(own_seed(sum(map(ord, one["memory"]))))
    dtype = getattr(torch, one["dtype"])
    draw = [torch.randn(one["shape"], generator=generator, dtype=torch.float64).to(dtype) for _ in range(STEPS + 1)]
    value, *gradients = draw
    for step, gradient in enumerate(gradients):
        if gradient.numel() > 1:
            gradient.view(-1)[step % gradient.numel()] = 0
    return value, gradients


def by_torch(method: str, one: Mapping[str, Any]) -> list[Tensor]:
    """Return a parameter after each step of torch's own optimizer, flat."""
    value, gradients = started(one)
    parameter = nn.Parameter(value.clone())
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[method]([parameter], **options_of(method, one))
    after = []
    for step, used in enumerate(one["gradients"]):
        parameter.grad = gradients[step].clone() if used else None
        optimizer.step()
        after.append(parameter.detach().clone().reshape(-1))
    return after


def _is_like(results: Any, p: Tensor, count: int) -> bool:
    """Return whether these are `count` tensors of the form of p."""
    tensors = [x for x in results if isinstance(x, Tensor)] if isinstance(results, (list, tuple)) else []
    return len(tensors) == count == len(results) and all((x.shape, x.dtype) == (p.shape, p.dtype) for x in tensors)


def by_group(method: str, group: Mapping[str, Any], rows: Mapping[str, dict]) -> list[Tensor]:
    """Return the parameters of a group after each step, in a row. Raises ValueError if a step cannot run."""
    members = [rows[name] for name in group["params"]]
    draws = [started(one) for one in members]
    p = torch.cat([value.reshape(-1) for value, _ in draws])
    state, step_of, number, after = [torch.zeros_like(p) for _ in range(STATE[method])], Program(group["graph"]), 0, []
    for step, used in enumerate(members[0]["gradients"]):
        if used:
            number += 1
            g = torch.cat([gradients[step].reshape(-1) for _, gradients in draws])
            run = step_of.run((p, g, *state, torch.tensor(float(number), dtype=torch.float64)))
            if run.error or not _is_like(run.output, p, STATE[method] + 1):
                raise ValueError(f"Step {number} cannot run: {str(run.error or run.output)[:200]}")
            p, *state = run.output
        after.append(p.clone())
    return after


def difference(method: str, group: Mapping[str, Any], rows: Mapping[str, dict]) -> str:
    """Return where a group differs from torch.optim, or ""."""
    try:
        values = by_group(method, group, rows)
    except ValueError as error:
        return f"The graph of the group of {group['params'][0]}: {error}"
    for one in (rows[name] for name in group["params"]):
        size = started(one)[0].numel()
        for step, right in enumerate(by_torch(method, one)):
            value, values[step] = values[step][:size], values[step][size:]
            tolerance, digits = (1e-9, 10) if right.dtype == torch.float64 else (1e-5, 6)
            if not torch.allclose(value, right, rtol=tolerance, atol=tolerance):
                at = int((value - right).abs().nan_to_num(nan=torch.inf).argmax())
                actual, expected = (f"{x[at].item():.{digits}g}" for x in (value, right))
                return f"{one['name']} after step {step + 1}: element {at} is {actual}; torch.optim has {expected}."
    return ""


def judge(case: Case, value: Any) -> Iterator[Finding]:
    method, params = case.build()
    rows = {one["name"]: one for one in params}
    broken = why_not_groups(value, method, rows)
    for group in () if broken else value:
        size = sum(started(rows[name])[0].numel() for name in group["params"])
        flat = torch.ones(size, dtype=getattr(torch, rows[group["params"][0]]["dtype"]))
        inputs = [flat] * (2 + STATE[method]) + [torch.tensor(1.0, dtype=torch.float64)]
        if reason := why_not_one_kernel(group["graph"], inputs):
            broken = f"The graph of the group of {group['params'][0]} {reason}"
            break
    yield Finding("valid", not broken, broken)
    if broken:
        return
    unlike = why_not_alike(value, method, rows)
    yield Finding("spared", not unlike, unlike)
    if unlike:
        return
    wrong = next(filter(None, (difference(method, group, rows) for group in value)), "")
    yield Finding("same", not wrong, wrong)
    least = len({key(method, one) for one in params if any(one["gradients"])})
    few = len(value) <= least
    yield Finding("did", few, "" if few else f"Each step starts {plural(len(value), 'kernel')}; {enough(least)}.")
