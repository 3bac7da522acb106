"""Day 2, the two rewrites: visible cases of FuseConvReLU and of batch-norm folding, and the laws they are judged by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from passlab.fx.judge import judge_pass, rebuild
from passlab.fx.ops import ConvReLU2d, conv2d_relu
from passlab.judge import Case, Finding

# ---------------------------------------------------------------------------------------------------- programs


class _Tracer(fx.Tracer):
    """Keeps ConvReLU2d one node."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, ConvReLU2d) or super().is_leaf_module(module, name)


def program(body: Callable, *inputs: Tensor, training: bool = False, **parts: Any) -> fx.GraphModule:
    """The traced `body(self, *inputs)`, with `parts` as the modules and parameters of `self`.

    >>> program(lambda m, x: torch.relu(m.conv(x)), torch.randn(1, 3, 8, 8), conv=nn.Conv2d(3, 4, 3))
    """
    root = type("Program", (nn.Module,), {"forward": body})()
    for name, part in parts.items():
        setattr(root, name, part)
    root.train(training)
    tracer = _Tracer()
    gm = fx.GraphModule(root, tracer.trace(root))
    # When a call of a GraphModule fails, torch.fx loads its compiler (seconds) to print where. Here that is an answer.
    type(gm).__call__ = nn.Module.__call__
    gm.train(training)
    gm.meta["inputs"] = inputs
    return gm


def seeded(build: Callable, seed: int = 0) -> Callable[[], Any]:
    """`build()` with the same random numbers at every call; the caller's random state stays as it is."""

    @wraps(build)
    def again() -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return build()

    return again


def rewrite_case(name: str, build: Callable[[], fx.GraphModule], expect: Rewrite, *about: str, seed: int = 0) -> Case:
    """A case whose one argument is the graph that `build` makes."""
    return Case(name, seeded(lambda: (build(),), seed), about, expect=expect)


# ---------------------------------------------------------------------------------------------------- what is there


@dataclass(frozen=True)
class Rewrite:
    """What a pass has to do on one graph: how many matches, which (names to show), and why the look-alikes stay."""

    matches: tuple[str, ...] = ()
    why: str = ""


def live(gm: fx.GraphModule) -> list[fx.Node]:
    """The nodes that the output depends on, and the inputs."""
    todo, found = [n for n in gm.graph.nodes if n.op == "output"], set()
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(node.all_input_nodes)
    return [n for n in gm.graph.nodes if n in found or n.op == "placeholder"]


#: What a convolution is made with, besides its channels and its kernel size.
ATTRIBUTES = ("stride", "padding", "dilation", "groups", "padding_mode", "bias")

#: Functions and methods, by the one name the laws use for them.
_NAMES = {F.conv2d: "conv2d", conv2d_relu: "conv2d_relu", torch.relu: "relu", F.relu: "relu", "relu": "relu"}
_TYPES = {nn.Conv2d: "conv2d", ConvReLU2d: "conv2d_relu", nn.ReLU: "relu", nn.BatchNorm2d: "batch_norm"}


def op_of(gm: fx.GraphModule, node: fx.Node) -> str:
    """What a node does, however it is spelled: "conv2d", "relu", "conv2d_relu", "batch_norm", else its own name."""
    if node.op == "call_module":
        kind = type(gm.get_submodule(node.target))
        return _TYPES.get(kind, kind.__name__)
    if node.op in ("call_function", "call_method"):
        return _NAMES.get(node.target) or getattr(node.target, "__name__", str(node.target))
    return node.op


def ops(gm: fx.GraphModule) -> Counter[str]:
    """Op → number of live nodes that do it; weights read by get_attr are left out."""
    return Counter(op_of(gm, n) for n in live(gm) if n.op not in ("placeholder", "get_attr", "output"))


def parameters(gm: fx.GraphModule) -> int:
    """Numbers held by the parameters that live nodes use; one that is shared counts once."""
    held: dict[int, int] = {}
    for node in live(gm):
        if node.op == "call_module":
            held |= {id(p): p.numel() for p in gm.get_submodule(node.target).parameters()}
        elif node.op == "get_attr":
            at: Any = gm
            for part in node.target.split("."):
                at = getattr(at, part)
            held |= {id(at): at.numel()} if isinstance(at, nn.Parameter) else {}
    return sum(held.values())


def plural(n: int, one: str, many: str = "") -> str:
    """ "1 pair", "2 pairs"."""
    return f"{n} {one if n == 1 else many or one + 's'}"


def others(before: Counter, after: Counter, mine: set[str], verb: str) -> str | None:
    """A sentence about an op that is not the pass's business and came or went."""
    for op in sorted((before.keys() | after.keys()) - mine):
        if after[op] < before[op]:
            return f"{plural(before[op] - after[op], op + ' node')} went missing. The pass may only {verb}."
        if after[op] > before[op]:
            return f"{plural(after[op] - before[op], op + ' node')} came in. The pass may only {verb}."
    return None


def leftovers(before: fx.GraphModule, after: fx.GraphModule, removed: int, done: str) -> str | None:
    """A sentence about nodes that stayed behind: each match must make the node list shorter by one."""
    alive = set(live(after))
    dead = [n.name for n in after.graph.nodes if n not in alive]
    if len(after.graph.nodes) <= len(before.graph.nodes) - removed:
        return None
    if dead:
        return f"{dead[0]} is still in the graph though nothing uses it. Erase the nodes that you {done}."
    return (
        f"The graph has {len(after.graph.nodes)} nodes and {len(before.graph.nodes) - removed} would do: "
        f"every match should leave one node where there were two."
    )


# ---------------------------------------------------------------------------------------------------- conv → relu


def _fused(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    wanted, made = len(case.expect.matches), ops(after)["conv2d_relu"] - ops(before)["conv2d_relu"]
    if made >= wanted:
        return None
    pairs = ", ".join(case.expect.matches)
    return (
        f"{plural(wanted, 'pair')} can be fused here ({pairs}), "
        f"and your graph has {plural(max(made, 0), 'conv2d_relu node')}. "
        f"A ReLU is spelled in three ways (module, function, method), a convolution in two."
    )


def _fused_too_much(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    old, new = ops(before), ops(after)
    fused = new["conv2d_relu"] - old["conv2d_relu"]
    if fused > len(case.expect.matches):
        why = case.expect.why or "only a convolution whose one user is a ReLU may be fused"
        return f"{plural(fused, 'pair')} fused, {len(case.expect.matches)} allowed: {why}."
    for op in ("conv2d", "relu"):
        if new[op] < old[op] - fused:
            return (
                f"{plural(old[op] - fused - new[op], op + ' node')} went missing without being fused. {case.expect.why}"
            )
    return others(old, new, {"conv2d", "relu", "conv2d_relu"}, "put conv2d_relu in the place of conv2d and relu")


def _fusion_cost(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    old, new = ops(before), ops(after)
    convolutions = new["conv2d"] + new["conv2d_relu"] - old["conv2d"] - old["conv2d_relu"]
    if convolutions > 0:
        return f"{plural(convolutions, 'convolution')} more than before: a value is now computed twice."
    extra = parameters(after) - parameters(before)
    if extra > 0:
        return f"The graph holds {extra:,} more parameters than before. Share them: fused.weight = conv.weight."
    return leftovers(before, after, new["conv2d_relu"] - old["conv2d_relu"], "fused away")


def _lost(before: fx.GraphModule, after: fx.GraphModule) -> str:
    """A sentence about a fused module that is not made as the convolution whose weights it has. "" if there is none."""
    convs = [(path, m) for path, m in before.named_modules() if type(m) is nn.Conv2d]
    for node in live(after):
        fused = after.get_submodule(node.target) if node.op == "call_module" else None
        if type(fused) is not ConvReLU2d:
            continue
        mine = [(p, m) for p, m in convs if torch.equal(m.weight.double(), fused.weight.double())]
        if convs and not mine:
            return f"The weights of {node.target} are those of no convolution in the graph before."
        for name in ATTRIBUTES[:-1]:
            if mine and all(getattr(m, name) != getattr(fused, name) for _, m in mine):
                path, conv = mine[0]
                return f"{name} is {getattr(conv, name)!r} in {path}, and {getattr(fused, name)!r} in {node.target}."
        if mine and all((m.bias is None) != (fused.bias is None) for _, m in mine):
            return f"{mine[0][0]} and {node.target} do not both have a bias."
    return ""


_judge_fuse = judge_pass(did=_fused, spared=_fused_too_much, cost=_fusion_cost)


def judge_fuse(case: Case, value: Any) -> Iterator[Finding]:
    """The five verdicts; where the meaning changed, with the attribute that got lost."""
    for finding in _judge_fuse(case, value):
        if finding.verdict == "same" and not finding.ok:
            finding = replace(finding, message=f"{finding.message} {_lost(case.build()[0], value)}".strip())
        yield finding


def _attributes() -> fx.GraphModule:
    conv = nn.Conv2d(4, 6, 3, (2, 1), (2, 1), (1, 2), groups=2, bias=False, padding_mode="reflect")
    return program(lambda m, x: m.relu(m.conv(x)), torch.randn(1, 4, 9, 8), conv=conv, relu=nn.ReLU())


def _spellings() -> fx.GraphModule:
    def body(m, x):
        x = F.relu(m.conv1(x), inplace=True)
        x = m.conv2(x).relu()
        return torch.relu(F.conv2d(x, m.weight, None, 2, padding=1))

    first, second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)
    weight = nn.Parameter(torch.randn(5, 4, 3, 3))
    return program(body, torch.randn(1, 3, 7, 7), conv1=first, conv2=second, weight=weight)


def _two_users() -> fx.GraphModule:
    def body(m, x):
        a = m.conv1(x)
        b = m.conv2(torch.relu(a) + a)
        return torch.relu(b), b

    return program(body, torch.randn(1, 3, 6, 6), conv1=nn.Conv2d(3, 4, 3, padding=1), conv2=nn.Conv2d(4, 2, 1))


def _shared() -> fx.GraphModule:
    def body(m, x):
        a = m.relu(m.conv(x))
        b = torch.sigmoid(m.conv(a))
        return m.relu(a - b)

    return program(body, torch.randn(1, 4, 6, 6), conv=nn.Conv2d(4, 4, 3, padding=1), relu=nn.ReLU())


def _not_conv_relu() -> fx.GraphModule:
    def body(m, x):
        a = F.relu6(m.conv(x))
        b = F.leaky_relu(m.conv2(a), 0.2)
        c = torch.relu(m.up(b))
        return torch.relu(m.linear(c)) + m.conv2(torch.relu(c))

    parts = {
        "conv": nn.Conv2d(3, 4, 3, padding=1),
        "conv2": nn.Conv2d(4, 4, 1),
        "up": nn.ConvTranspose2d(4, 4, 3, padding=1),
        "linear": nn.Linear(6, 6),
    }
    return program(body, 3 * torch.randn(1, 3, 6, 6), **parts)


def fuse_cases() -> list[Case]:
    """The visible cases of FuseConvReLU."""
    return [
        rewrite_case("one conv, no attribute at its default", _attributes, Rewrite(("conv → relu",))),
        rewrite_case(
            "a ReLU spelled as function, as method, and behind F.conv2d",
            _spellings,
            Rewrite(("conv1 → relu", "conv2 → relu_1", "conv2d → relu_2")),
        ),
        rewrite_case(
            "two convolutions that something else uses too",
            _two_users,
            Rewrite(why="conv1 is also used by the addition, and conv2 is an output of the program"),
            *("valid", "same", "spared"),
        ),
        rewrite_case(
            "one conv module called twice, one relu module called twice",
            _shared,
            Rewrite(
                ("conv → relu",), "the second call of conv goes into a sigmoid, the second call of relu is of a sum"
            ),
        ),
        rewrite_case(
            "nothing but look-alikes",
            _not_conv_relu,
            Rewrite(why="relu6 and leaky_relu are other functions, a transposed convolution is another convolution"),
            *("valid", "same", "spared"),
        ),
    ]


# ---------------------------------------------------------------------------------------------------- conv → batch norm


def batch_norm(channels: int, **options: Any) -> nn.BatchNorm2d:
    """A BatchNorm2d that has seen data: no statistic and no parameter at its default."""
    norm = nn.BatchNorm2d(channels, **options)
    with torch.no_grad():
        if norm.running_mean is not None:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.3, 2)
        if norm.affine:
            norm.weight.uniform_(0.5, 1.5).mul_(torch.randn(channels).sign())
            norm.bias.normal_()
    return norm


def call_fold(answer: Callable, case: Case) -> dict[str, Any]:
    """Run the pass, and give beside its graph the model that it was given, as the pass left it."""
    (gm,) = case.build()
    model = rebuild(gm)  # a graph of its own: whatever becomes of gm, this one holds the modules that were there
    return {"graph": answer(gm), "model": model}


def _changed(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
    """What of a model is not as it was: a tensor's values, what it is shared with, a module's settings."""
    old, new = _parts(before), _parts(after)
    for name in old | new:
        if name not in old or name not in new or old[name][0] != new[name][0] or not _equal(old[name][1], new[name][1]):
            return name
    return None


def _parts(model: fx.GraphModule) -> dict[str, tuple[str, Tensor | None]]:
    """Name → settings for every module, sharing and values for every parameter and buffer but the counts of batches."""
    found: dict[str, tuple[str, Tensor | None]] = {}
    first: dict[int, str] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if path:
            found[path] = f"{type(module).__name__}({module.extra_repr()})", None
        for key, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if key != "num_batches_tracked":
                name = f"{path}.{key}".lstrip(".")
                found[name] = first.setdefault(id(tensor), name), tensor
    return found


def _equal(old: Tensor | None, new: Tensor | None) -> bool:
    return old is new is None or (old is not None and new is not None and torch.equal(old, new))


def _folded(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    left = ops(after)["batch_norm"] - (ops(before)["batch_norm"] - len(case.expect.matches))
    if left <= 0:
        return None
    pairs = ", ".join(case.expect.matches)
    return f"{plural(len(case.expect.matches), 'batch norm')} can be folded here ({pairs}); {left} stayed."


def _folded_too_much(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    old, new = ops(before), ops(after)
    gone = old["batch_norm"] - new["batch_norm"]
    if gone > len(case.expect.matches):
        return f"{plural(gone, 'batch norm')} folded, {len(case.expect.matches)} allowed: {case.expect.why}."
    return others(old, new, {"batch_norm"}, "take batch norms away and give convolutions other weights")


def _folding_cost(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    return leftovers(before, after, ops(before)["batch_norm"] - ops(after)["batch_norm"], "folded away")


_judge_fold = judge_pass(did=_folded, spared=_folded_too_much, cost=_folding_cost)


def judge_fold(case: Case, value: Any) -> Iterator[Finding]:
    """The five verdicts; and the model that the graph was traced from must keep its weights."""
    (before,) = case.build()
    yield from _judge_fold(replace(case, build=lambda: (before,)), value["graph"])
    if name := _changed(rebuild(before), value["model"]):
        yield Finding(
            "spared",
            False,
            f"{name} of the original model was changed: a graph shares its modules with the model it was traced from. "
            f"Make a new Conv2d, give that the folded weights, and call it under a name of its own.",
        )


def _one_pair() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 3, stride=2, padding=1), "bn": batch_norm(4)}
    return program(lambda m, x: torch.relu(m.bn(m.conv(x))), torch.randn(2, 3, 9, 9), **parts)


def _odd_pairs() -> fx.GraphModule:
    def body(m, x):
        return m.bn3(m.conv3(torch.relu(m.bn2(m.conv2(x)))))

    parts = {
        "conv2": nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2, bias=False, padding_mode="circular"),
        "bn2": batch_norm(6, eps=0.1),
        "conv3": nn.Conv2d(6, 5, 1),
        "bn3": batch_norm(5, affine=False),
    }
    return program(body, torch.randn(2, 4, 7, 7), **parts)


def _training() -> fx.GraphModule:
    parts = {"conv": nn.Conv2d(3, 4, 3), "bn": batch_norm(4)}
    return program(lambda m, x: m.bn(m.conv(x)), torch.randn(2, 3, 5, 5), training=True, **parts)


def _not_conv_bn() -> fx.GraphModule:
    def body(m, x):
        x = m.bn1(m.up(x))
        x = m.bn2(m.fused(x))
        x = m.bn3(m.conv1(x))
        return m.conv2(m.bn4(x))

    parts = {
        "up": nn.ConvTranspose2d(3, 3, 3),
        "bn1": batch_norm(3),
        "fused": ConvReLU2d(3, 4, 3),
        "bn2": batch_norm(4),
        "conv1": nn.Conv2d(4, 4, 3),
        "bn3": batch_norm(4, track_running_stats=False),
        "bn4": batch_norm(4),
        "conv2": nn.Conv2d(4, 2, 1),
    }
    return program(body, torch.randn(2, 3, 7, 7), **parts)


def _conv_used_otherwise() -> fx.GraphModule:
    def body(m, x):
        a = m.conv1(x)
        b = m.bn1(a) + a
        c = m.bn2(m.conv2(b))
        return m.bn2(m.conv2(torch.relu(c)))

    parts = {
        "conv1": nn.Conv2d(3, 4, 3, padding=1),
        "bn1": batch_norm(4),
        "conv2": nn.Conv2d(4, 4, 1, bias=False),
        "bn2": batch_norm(4),
    }
    return program(body, torch.randn(2, 3, 5, 5), **parts)


def fold_cases() -> list[Case]:
    """The visible cases of batch-norm folding."""
    kept = ("valid", "same", "spared")
    return [
        rewrite_case(
            "a convolution with a bias",
            _one_pair,
            Rewrite(("conv → bn",)),
        ),
        rewrite_case(
            "no bias and another eps; no weight and bias in the batch norm",
            _odd_pairs,
            Rewrite(("conv2 → bn2", "conv3 → bn3")),
        ),
        rewrite_case(
            "a model in training",
            _training,
            Rewrite(why="in training a batch norm uses the statistics of the batch, which no weight can know"),
            *kept,
        ),
        rewrite_case(
            "nothing but look-alikes",
            _not_conv_bn,
            Rewrite(
                why="up is a transposed convolution, fused ends in a ReLU, bn3 has no running statistics, "
                "and bn4 stands before its convolution"
            ),
            *kept,
        ),
        rewrite_case(
            "a convolution with a second user, and one that is called twice",
            _conv_used_otherwise,
            Rewrite(why="the value of conv1 is also added, and conv2 is called twice: two weights for one"),
            *kept,
        ),
    ]
