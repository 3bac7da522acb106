"""Hidden cases and answers of day14.optimizer."""

from __future__ import annotations

import itertools
import random
from functools import partial

import torch
from torch import fx

from autograder.authoring.answers import edited, right, wrong
from passlab.exercises.day14.optimizer import STEPS, drawn, key, row, steps_case
from passlab.given.day14.optimizer import DEFAULTS
from passlab.judge import Case

NEVER = (False,) * STEPS


def _apart(options: dict, **others) -> list[dict]:
    """A parameter with these options, and for each other one a parameter that differs in it alone."""
    return [row("p", (3,), **options)] + [row(name, (3,), **options | {name: v}) for name, v in others.items()]


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)

    def rate():
        return round(rng.uniform(0.01, 0.2), 3)

    def some():
        """Gradients in some steps, the first not among them, and the same number of others."""
        while True:
            one = [rng.random() < 0.6 for _ in range(STEPS)]
            other = rng.sample(one, STEPS)
            if 1 < sum(one) < STEPS and not one[0] and one != other:
                return one, other

    one, other = some()
    lr, decay, speed = rate(), rate(), round(rng.uniform(0.3, 0.9), 2)
    damped = {"lr": lr, "momentum": speed, "dampening": round(rng.uniform(0.2, 0.7), 2)}
    fast = {"lr": lr, "momentum": speed}
    rows = [
        row("all", (2, 2), lr=lr, momentum=speed),
        row("some", (3,), gradients=one, lr=lr, momentum=speed),
        row("others", (3,), gradients=other, lr=lr, momentum=speed),
        row("never", (3,), gradients=NEVER, lr=lr, momentum=speed),
    ]
    tied = [row(name, (2, 3), memory="shared", lr=lr, betas=(0.8, 0.95)) for name in ("encoder", "decoder", "head")]
    late = [row("late", (4,), gradients=one, lr=lr), row("too", (2,), gradients=one, lr=lr, weight_decay=0)]
    wide = [row(name, (3,), dtype, lr=lr) for name, dtype in zip("abcd", ["float32", "float64"] * 2, strict=True)]
    cases = [
        steps_case("drawn sgd", "sgd", drawn(rng, "sgd", 8)),
        steps_case("drawn adam", "adam", drawn(rng, "adam", 8)),
        steps_case("dampening", "sgd", [row("p", (3,), **damped), row("q", (2,), gradients=one, **damped)]),
        steps_case("dampening, and a single step", "sgd", [row("p", (3,), gradients=(*NEVER[1:], True), **damped)]),
        steps_case("dampening without momentum", "sgd", [row("p", (3,), lr=lr, dampening=0.5, weight_decay=decay)]),
        steps_case(
            "Nesterov's momentum", "sgd", [row("p", (3,), lr=lr, momentum=speed, nesterov=True, weight_decay=decay)]
        ),
        steps_case("maximized", "sgd", [row("p", (3,), lr=lr, momentum=speed, maximize=True, weight_decay=decay)]),
        steps_case("maximized by adam", "adam", [row("p", (3,), lr=lr, maximize=True, weight_decay=decay)]),
        steps_case("gradients in some steps", "sgd", rows),
        steps_case("adam from a later step", "adam", late),
        steps_case("one tensor with three names", "adam", [*tied, row("own", (2,), lr=lr, betas=(0.8, 0.95))]),
        steps_case("two types in turn", "adam", wide),
        steps_case(
            "two kinds of weight decay",
            "adam",
            [
                row(name, (3,), lr=lr, weight_decay=decay, decoupled_weight_decay=apart)
                for name, apart in (("p", 0), ("q", 1))
            ],
        ),
        steps_case("a large eps", "adam", [row("p", (5,), "float64", lr=lr, eps=rate(), betas=(0.7, speed))]),
        steps_case("a number, and nothing", "sgd", [row("number", (), lr=lr), row("nothing", (0, 2), lr=lr)]),
        steps_case(
            "two dampenings without momentum",
            "sgd",
            [row(name, (3,), lr=lr, dampening=dampening) for name, dampening in (("p", 0.5), ("q", 0.25))],
        ),
        steps_case(
            "two kinds of no weight decay",
            "adam",
            [row(name, (3,), lr=lr, decoupled_weight_decay=apart) for name, apart in (("p", False), ("q", True))],
        ),
        steps_case("a default that is written out", "sgd", [row("p", (2,)), row("q", (2,), lr=1e-3, momentum=0)]),
        steps_case("one option of sgd differs", "sgd", _apart(fast, momentum=speed / 2, nesterov=True, maximize=True)),
        steps_case("one option of adam differs", "adam", _apart({"lr": lr}, betas=(0.8, 0.95), eps=1.0, maximize=True)),
        steps_case(
            "options in another order",
            "sgd",
            [row("p", (2,), lr=lr, momentum=speed), row("q", (2,), momentum=speed, lr=lr)],
        ),
    ]
    return [case for case in cases if any(any(one["gradients"]) for one in case.build()[1])]


# ---------------------------------------------------------------------------------------------------- answers


def _sgd(o, p, g, speed, t):
    if o["maximize"]:
        g = torch.neg(g)
    if o["weight_decay"]:
        g = torch.add(g, p, alpha=o["weight_decay"])
    if not o["momentum"]:
        return [torch.sub(p, g, alpha=o["lr"]), speed]
    first = torch.eq(t, 1)
    speed = torch.add(speed * o["momentum"], torch.where(first, g, g * (1 - o["dampening"])))
    g = torch.add(g, speed, alpha=o["momentum"]) if o["nesterov"] else speed
    return [torch.sub(p, g, alpha=o["lr"]), speed]


def _adam(o, p, g, mean, square, t):
    b1, b2 = o["betas"]
    g = torch.neg(g) if o["maximize"] else g
    if o["decoupled_weight_decay"]:
        p = torch.mul(p, 1 - o["lr"] * o["weight_decay"])
    else:
        g = torch.add(g, p, alpha=o["weight_decay"])
    mean = torch.lerp(mean, g, 1 - b1)
    square = torch.addcmul(square * b2, g, g, value=1 - b2)
    root = torch.sqrt(square) / torch.sqrt(1 - b2**t)
    return [p - o["lr"] / (1 - b1**t) * torch.div(mean, root + o["eps"]), mean, square]


@right("sorts, and groups neighbours; the operations are those of torch.optim's own loop")
def by_sorting(method, params):
    once = {one["memory"]: one for one in reversed(params) if any(one["gradients"])}
    rows = sorted(once.values(), key=lambda one: str(_all(method, one)))
    groups = itertools.groupby(rows, key=lambda one: _all(method, one))
    return [
        {"params": [one["name"] for one in members], "graph": _traced(method, options)} for options, members in groups
    ]


def _all(method, one):
    """All that the parameters of a group have in common, with numbers of one type."""
    options = {name: float(v) if type(v) is int else v for name, v in (DEFAULTS[method] | one["options"]).items()}
    return {"dtype": one["dtype"], "gradients": one["gradients"]} | options


def _traced(method, options):
    step = partial(_sgd if method == "sgd" else _adam, options)
    graph, state = fx.Graph(), 1 if method == "sgd" else 2
    names = ["p", "g", *(f"state{i}" for i in range(state)), "t"]
    tracer = fx.proxy.GraphAppendingTracer(graph)
    results = step(*(fx.Proxy(graph.placeholder(name), tracer) for name in names))
    graph.output([result.node for result in results])
    return fx.GraphModule({}, graph)


@right("as ATen operations, recorded by make_fx; the first name of a tensor stands for it")
def as_aten(method, params):
    from torch.fx.experimental.proxy_tensor import make_fx

    groups = []
    for one in params:
        earlier = [other["memory"] for other in params[: params.index(one)]]
        if one["memory"] in earlier or not any(one["gradients"]):
            continue
        same = next((group for group in groups if key(method, group[0]) == key(method, one)), None)
        same.append(one) if same else groups.append([one])
    result = []
    for group in groups:
        one = group[0]
        count = 3 if method == "sgd" else 4
        step = partial(_sgd if method == "sgd" else _adam, DEFAULTS[method] | one["options"])
        flat = [torch.ones(2, dtype=getattr(torch, one["dtype"])) for _ in range(count)]
        gm = make_fx(step)(*flat, torch.tensor(2.0, dtype=torch.float64))
        result.append({"params": [one["name"] for one in group], "graph": gm})
    return result


def _split(groups):
    return [{"params": [name], "graph": group["graph"]} for group in groups for name in group["params"]]


@wrong("did", "has a kernel for each parameter")
def one_by_one(method, params):
    return _split(as_aten(method, params))


as_given = edited("did", "compares the options that were given, and forgets the defaults")(
    (
        "(one['dtype'], one['gradients'], *options.values())",
        "(one['dtype'], one['gradients'], *one['options'].items())",
    )
)
idle_dampening = edited("spared", "compares dampenings only where there is momentum")(
    ("*options.values()", "*[v for k, v in options.items() if k != 'dampening' or options['momentum']]")
)
idle_decay = edited("spared", "compares the kinds of weight decay only where there is some")(
    (
        "*options.values()",
        "*[v for k, v in options.items() if k != 'decoupled_weight_decay' or options['weight_decay']]",
    )
)
any_nesterov = edited("spared", "compares the numbers among the options, and forgets the switch of Nesterov's step")(
    ("*options.values()", "*[v for k, v in options.items() if k != 'nesterov']")
)
any_averages = edited("spared", "compares the options that SGD has, too, and forgets betas and eps")(
    ("*options.values()", "*[v for k, v in options.items() if k not in ('betas', 'eps')]")
)
any_sign = edited("spared", "lets a group both descend and ascend")(
    ("*options.values()", "*[v for k, v in options.items() if k != 'maximize']")
)
by_order = edited("did", "takes the same options in another order for different ones")(
    ("DEFAULTS[method] | one['options']", "{**one['options'], **DEFAULTS[method], **one['options']}")
)
any_type = edited("spared", "mixes types")(
    ("(one['dtype'], one['gradients'], *options.values())", "(one['gradients'], *options.values())")
)
any_step = edited("spared", "mixes parameters that get gradients in different steps")(
    ("(one['dtype'], one['gradients'], *options.values())", "(one['dtype'], *options.values())")
)
same_number = edited("spared", "counts steps with a gradient, and forgets which")(
    ("(one['dtype'], one['gradients'], *options.values())", "(one['dtype'], sum(one['gradients']), *options.values())")
)
twice = edited("spared", "steps a shared tensor once for each of its names")(("one['memory'] in stepped or ...", "..."))
frozen = edited("spared", "puts what never has a gradient into a group")(
    ("one['memory'] in stepped or not any(one['gradients'])", "one['memory'] in stepped")
)
damped_first = edited("same", "dampens the first gradient, too")(("torch.where(t == 1, g, damped)", "damped"))
by_zero = edited("same", "takes a momentum of 0 for that of the first step")(
    ("torch.where(t == 1, g, damped)", "torch.where(speed == 0, g, damped)")
)
no_nesterov = edited("same", "forgets Nesterov's step")(("g + momentum * speed if nesterov else speed", "speed"))
no_correction = edited("same", "forgets that Adam's averages begin with zeros")(("lr / (1 - betas[0] ** t)", "lr"))
eps_inside = edited("same", "adds eps under the root")(
    ("(square / (1 - betas[1] ** t)) ** 0.5", "(square / (1 - betas[1] ** t) + eps) ** 0.5"),
    ("size * mean / (root + eps)", "size * mean / root"),
)
decay_in_gradient = edited("same", "adds weight decay to the gradient in any case")(
    ("p = p * (1 - lr * weight_decay)", "g = g + weight_decay * p")
)
keep_sign = edited("same", "turns the gradient round after weight decay")(
    (
        "damped = momentum * speed + (1 - dampening) * g",
        "g = -g if maximize else g; damped = momentum * speed + (1 - dampening) * g",
    ),
    ("g = -g if maximize else g; g = g + weight_decay * p", "g = g + weight_decay * p"),
)
