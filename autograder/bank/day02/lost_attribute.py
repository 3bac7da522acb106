"""Bank of day02.lost-attribute."""

from __future__ import annotations

import copy

import torch
from torch import nn

from autograder.bank import right, wrong
from autograder.bank.day02.equivalent import in_steps as equivalent
from passlab.fx.ops import ConvReLU2d

NAMES = ("stride", "padding", "dilation", "groups", "padding_mode")


def _convs(gm):
    modules = [gm.get_submodule(n.target) for n in gm.graph.nodes if n.op == "call_module"]
    return [m for m in modules if isinstance(m, nn.Conv2d)]


def _suspects(before, after):
    """(layer, attribute) where the two programs look different."""
    for layer, (conv, fused) in enumerate(zip(_convs(before), _convs(after), strict=True)):
        for name in NAMES:
            if getattr(conv, name) != getattr(fused, name):
                yield layer, name
        if (conv.bias is None) != (fused.bias is None):
            yield layer, "bias"


def _made(conv, weight, bias, **changed):
    made = {name: getattr(conv, name) for name in NAMES} | changed
    new = type(conv)(conv.in_channels, conv.out_channels, conv.kernel_size, bias=bias is not None, **made)
    new.weight, new.bias = weight, bias
    return new


def _replace(gm, layer, new):
    gm = copy.deepcopy(gm)
    paths = [n.target for n in gm.graph.nodes if n.op == "call_module"]
    paths = [path for path in paths if isinstance(gm.get_submodule(path), nn.Conv2d)]
    gm.set_submodule(paths[layer], new)
    return gm


@right("repairs the suspects in `after` one by one, instead of breaking `before`")
def by_repair(before, after, inputs):
    if equivalent(before, after, inputs)[0]:
        return None
    suspects = list(_suspects(before, after))
    for layer, name in suspects:
        conv, fused = _convs(before)[layer], _convs(after)[layer]
        if name == "bias":
            new = _made(fused, fused.weight, conv.bias)
        else:
            weight = conv.weight if name == "groups" else fused.weight
            new = _made(fused, weight, fused.bias, **{name: getattr(conv, name)})
        if equivalent(before, _replace(after, layer, new), inputs)[0]:
            return name
    return suspects[-1][1]


@right("runs the layers side by side: the first that differs on the same input is looked at alone, pair by pair")
def layer_by_layer(before, after, inputs):
    if equivalent(before, after, inputs)[0]:
        return None
    (x,) = inputs
    for layer, (conv, fused) in enumerate(zip(_convs(before), _convs(after), strict=True)):
        plain = lambda t, conv=conv: torch.relu(conv(t))  # noqa: E731
        if not equivalent(plain, fused, (x,))[0]:
            for at, name in _suspects(before, after):
                if at == layer:
                    bias = None if name == "bias" else conv.bias
                    weight = fused.weight if name == "groups" else conv.weight
                    changed = {} if name == "bias" else {name: getattr(fused, name)}
                    new = _made(conv, weight, bias, **changed)
                    if not equivalent(conv, new, (x,))[0]:
                        return name
        with torch.no_grad():
            x = plain(x)
    return None


@wrong("spared", "compares attributes only: whatever looks different is called lost")
def by_looks(before, after, inputs):
    return next((name for _, name in _suspects(before, after)), None)


@wrong("did", "knows that the programs differ, and then takes the first attribute that looks different")
def first_suspect(before, after, inputs):
    return None if equivalent(before, after, inputs)[0] else by_looks(before, after, inputs)


@wrong("did", "looks at the first convolution only")
def first_layer(before, after, inputs):
    if equivalent(before, after, inputs)[0]:
        return None
    return next((name for layer, name in _suspects(before, after) if layer == 0), None)


@wrong("did", "does not think of the bias, which is a parameter and no number in the printed module")
def no_bias(before, after, inputs):
    if equivalent(before, after, inputs)[0]:
        return None
    return next((name for _, name in _suspects(before, after) if name != "bias"), None)


@wrong("did", "takes a program that fails for one that cannot be compared, and lets it go")
def errors_are_none(before, after, inputs):
    try:
        after(*inputs)
    except Exception:
        return None
    return by_repair(before, after, inputs)


@wrong("did", "lets the error of a failing program through")
def errors_go_through(before, after, inputs):
    after(*inputs)
    return by_repair(before, after, inputs)


@wrong("did", "goes by the output's shape: what keeps the shape is no loss")
def by_shape(before, after, inputs):
    try:
        if before(*inputs).shape == after(*inputs).shape:
            return None
    except RuntimeError:
        return "groups"
    return by_repair(before, after, inputs)


@wrong("did", "compares the attributes of ConvReLU2d with its defaults instead of the convolution before")
def against_defaults(before, after, inputs):
    if equivalent(before, after, inputs)[0]:
        return None
    defaults = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, "padding_mode": "zeros"}
    for fused in _convs(after):
        if isinstance(fused, ConvReLU2d):
            for name, default in defaults.items():
                if getattr(fused, name) == default:
                    return name
            if fused.bias is None:
                return "bias"
    return None


@wrong("did", "answers with the pair of values instead of the name")
def values(before, after, inputs):
    name = by_repair(before, after, inputs)
    if name in (None, "bias"):
        return name
    return next((getattr(a, name), getattr(b, name)) for a, b in zip(_convs(before), _convs(after), strict=True))
