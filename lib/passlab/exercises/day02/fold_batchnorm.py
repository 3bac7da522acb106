"""Day 2, fold batch norm into the convolution: visible cases and judge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from passlab.exercises.day02._shared import Rewrite, leftovers, ops, others, program, rewrite_case
from passlab.fx.judge import judge_pass, rebuild
from passlab.fx.ops import ConvReLU2d
from passlab.judge import Case, Finding, core, is_or_are, plural


def batch_norm(channels: int, **options: Any) -> nn.BatchNorm2d:
    """Return a BatchNorm2d that has seen data: no statistic and no parameter has its default value."""
    norm = nn.BatchNorm2d(channels, **options)
    with torch.no_grad():
        if norm.running_mean is not None:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.3, 2)
        if norm.affine:
            norm.weight.uniform_(0.5, 1.5).mul_(torch.randn(channels).sign())
            norm.bias.normal_()
    return norm


def _changed(before: fx.GraphModule, after: fx.GraphModule) -> str | None:
    """Return the name of the first module or tensor whose settings, sharing or values changed, or None."""
    old, new = _parts(before), _parts(after)
    for name in old | new:
        if name not in old or name not in new or old[name][0] != new[name][0] or not _equal(old[name][1], new[name][1]):
            return name
    return None


def _parts(model: fx.GraphModule) -> dict[str, tuple[str, Tensor | None]]:
    """Return name → settings of every module, and sharing and values of every parameter and buffer.

    The counters of batches are left out.
    """
    parts: dict[str, tuple[str, Tensor | None]] = {}
    first: dict[int, str] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if path:
            parts[path] = f"{type(module).__name__}({module.extra_repr()})", None
        for key, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if key != "num_batches_tracked":
                name = f"{path}.{key}".lstrip(".")
                parts[name] = first.setdefault(id(tensor), name), tensor
    return parts


def _equal(old: Tensor | None, new: Tensor | None) -> bool:
    return old is new is None or (old is not None and new is not None and torch.equal(old, new))


def _folded(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    rest = ops(after)["batch_norm"] - (ops(before)["batch_norm"] - len(case.expect.matches))
    if rest <= 0:
        return None
    pairs = ", ".join(case.expect.matches)
    left = f"{rest} {is_or_are(rest)} left"
    return f"{plural(len(case.expect.matches), 'batch norm')} can be folded here ({pairs}); {left}."


def _folded_too_much(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    old, new = ops(before), ops(after)
    folds = old["batch_norm"] - new["batch_norm"]
    if folds > len(case.expect.matches) + case.expect.optional:
        return f"You folded {plural(folds, 'batch norm')}; only {len(case.expect.matches)} may be: {case.expect.why}."
    return others(old, new, {"batch_norm"}, "remove batch norms and change the weights of convolutions")


def _folding_cost(before: fx.GraphModule, after: fx.GraphModule, case: Case) -> str | None:
    return leftovers(before, after, ops(before)["batch_norm"] - ops(after)["batch_norm"], "folded away")


_judge_fold = judge_pass(did=_folded, spared=_folded_too_much, cost=_folding_cost)


def judge(case: Case, value: Any) -> Iterator[Finding]:
    """Yield the five verdicts; the model that the graph was traced from must keep its weights."""
    (before,) = case.build()
    yield from _judge_fold(replace(case, build=lambda: (before,)), value["graph"])
    if name := _changed(rebuild(before), value["model"]):
        yield Finding(
            "spared",
            False,
            f"{name} of the original model was changed: a graph shares its modules with the model it was traced from. "
            f"Make a new Conv2d, give it the folded weights, and add it under a new name.",
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


def plain_net(*layers: str, eps: float = 1e-5) -> fx.GraphModule:
    """Return layers in a row, by name: conv…, bn… and relu."""
    new = {
        "conv": lambda: nn.Conv2d(3, 3, 3, padding=1),
        "bn": lambda: batch_norm(3, eps=eps),
        "relu": nn.ReLU,
    }
    parts = {f"{name}{i}": new[name]() for i, name in enumerate(layers)}

    def body(m: Any, x: Any) -> Any:
        for name in parts:
            x = getattr(m, name)(x)
        return x

    return program(body, torch.randn(2, 3, 6, 6), **parts)


def cases() -> list[Case]:
    """Return the visible cases of batch-norm folding."""
    verdicts = ("valid", "same", "spared")
    one, two = ("conv0 → bn1",), ("conv0 → bn1", "conv3 → bn4")
    return [
        core(rewrite_case("plain: a convolution and a batch norm", lambda: plain_net("conv", "bn"), Rewrite(one))),
        core(
            rewrite_case(
                "plain: two pairs, and a large eps",
                lambda: plain_net("conv", "bn", "relu", "conv", "bn", eps=0.1),
                Rewrite(two),
            )
        ),
        rewrite_case("a convolution with a bias", _one_pair, Rewrite(("conv → bn",))),
        rewrite_case(
            "no bias and another eps; no weight and bias in the batch norm",
            _odd_pairs,
            Rewrite(("conv2 → bn2", "conv3 → bn3")),
        ),
        rewrite_case(
            "a model in training",
            _training,
            Rewrite(
                why="in training a batch norm uses the statistics of the batch, which no constant weight can express"
            ),
            *verdicts,
        ),
        rewrite_case(
            "nothing but look-alikes",
            _not_conv_bn,
            Rewrite(
                why="up is a transposed convolution, fused ends in a ReLU, bn3 has no running statistics, "
                "and bn4 stands before its convolution"
            ),
            *verdicts,
        ),
        rewrite_case(
            "a convolution with a second user, and one that is called twice",
            _conv_used_otherwise,
            Rewrite(why="the value of conv1 is also added, and conv2 is called twice: two weights for one"),
            *verdicts,
        ),
    ]
