"""Hidden cases and answers of day02.lost-attribute."""

from __future__ import annotations

import copy
import random
from dataclasses import replace

import torch
from torch import nn

from autograder.answers.day02.equivalent import in_steps
from autograder.authoring.answers import right, wrong
from passlab.exercises.day02._shared import ATTRIBUTES
from passlab.exercises.day02.lost_attribute import Planted, planted_case
from passlab.exercises.day02.lost_attribute import cases as visible
from passlab.exercises.day02.lost_attribute import conv as convolution
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases

_OTHER = {"stride": 2, "padding": 2, "dilation": 2, "groups": 2, "padding_mode": "reflect"}
_DEFAULT = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "padding_mode": "zeros", "bias": False}


def _stack(rng: random.Random, name: str | None, weights: str = "kept") -> list[tuple[dict, dict]]:
    """Return convolutions with attributes drawn anew; one of them loses `lost`, another changes one without effect."""
    layers: list[tuple[dict, dict]] = []
    for _ in range(rng.randint(0, 2)):
        layers.append((convolution(4, 4, padding=1, bias=rng.random() < 0.5), {}))
    keep = [a for a in _OTHER if rng.random() < 0.6 or a in (name, "padding" if name == "padding_mode" else name)]
    odd = convolution(4, 4, **{a: _OTHER[a] for a in keep})
    layers.append((odd, {} if name is None else {name: _DEFAULT[name]}))
    harmless = rng.choice(
        [
            (convolution(4, 4, padding="same", dilation=2), {"padding": 2}),
            (convolution(4, 4, 1, padding_mode="reflect"), {"padding_mode": "zeros"}),
            (convolution(4, 4, 1, dilation=3), {"dilation": 1}),
        ]
    )
    layers.insert(0 if rng.random() < 0.7 else len(layers), harmless)
    return layers


def _all_differ(name: str | None, place: int) -> list[tuple[dict, dict]]:
    """Return convolutions of which each looks different in another attribute; only the loss of `lost` has an effect."""
    layers = [
        (convolution(4, 4, padding="same", dilation=2), {"padding": 2}),
        (convolution(4, 4, 1, padding_mode="reflect"), {"padding_mode": "zeros"}),
        (convolution(4, 4, 1, dilation=3), {"dilation": 1}),
    ]
    if name != "groups":  # whose kernels then have zeros between the groups
        layers.append((convolution(4, 4, padding=1, groups=2), {"groups": 1}))
    if name:
        odd = convolution(4, 4, 3, padding=1, **{} if name in ("padding", "bias") else {name: _OTHER[name]})
        layers.insert(place, (odd, {name: _DEFAULT[name]}))
    rest = {"stride": 4, "dilation": 6}.get(name, 8)  # what is left of an image of 8 × 8: one step, whatever the stride
    return [*layers, (convolution(4, 32, rest, stride=2), {"stride": 1})]


def _zero_bias(name: str, changed: dict, lost: str | None, reason: str, seed: int) -> Case:
    """Return a convolution whose bias is zero, and what the pass changed."""
    case = planted_case(name, [(convolution(4, 4, padding=1), changed)], 8, Planted(lost, reason), seed)

    def build() -> tuple:
        before, after, inputs = case.build()
        nn.init.zeros_(before.get_submodule("convs.0").bias)
        return before, after, inputs

    return replace(case, build=build)


def hidden(seed: int) -> list[Case]:
    """Return stacks: one loses each attribute, one groups with weights that fit; others only look different."""
    cases = []
    for name in (*ATTRIBUTES, None, None):
        rng = random.Random(f"{seed}/{name}/{len(cases)}")
        reason = (
            f"{name} is gone in one layer; what else looks different has no effect." if name else "Nothing was lost."
        )
        expect = Planted(name, reason)
        cases.append(planted_case(f"hidden pass {len(cases) + 1}", _stack(rng, name), 14, expect, seed))
    grouped = convolution(4, 4, padding=1, groups=2)
    repeated = Planted("groups", "One group, its kernel repeated: each output now sees all inputs.", "repeated")
    block = Planted(None, "The kernel of one group has zeros between the old groups: the same function.", "block")
    cases.append(planted_case("groups, repeated", [(grouped, {"groups": 1})], 8, repeated, seed))
    cases.append(planted_case("groups, block by block", [(grouped, {"groups": 1})], 8, block, seed))
    for name in (*ATTRIBUTES, None):
        reason = f"Only the loss of {name} has an effect." if name else "None of the differences has an effect."
        weights = "repeated" if name == "groups" else "block"
        layers = _all_differ(name, rng.randrange(4))
        for draw in range(seed, seed + 100):  # until the last ReLUs leave something of the difference
            case = planted_case(f"all look different, {name}", layers, 8, Planted(name, reason, weights), draw)
            if in_steps(*case.build())[0] == (name is None):
                break
        cases.append(case)
    small = convolution(4, 4, 1, groups=2, dilation=3, padding_mode="reflect")
    defaults = {"groups": 1, "dilation": 1, "padding_mode": "zeros"}
    repeated = Planted("groups", "A kernel of one pixel has no dilation and no border.", "repeated")
    cases.append(planted_case("three differences in one layer", [(small, defaults)], 6, repeated, seed))
    odd = [(convolution(4, 4, 1, padding_mode="reflect"), {"padding_mode": "zeros", "bias": False})]
    border = Planted("bias", "A kernel of one pixel has no border; what the layer adds is gone.")
    cases.append(planted_case("the bias, and a border that is not there", odd, 6, border, seed))
    reason = "The image is zero, and so is any border around it; on others, padding by zeros is not reflecting."
    bordered = [(convolution(4, 4, padding=2, padding_mode="reflect"), {"padding_mode": "zeros"})]
    cases.append(planted_case("an image of zeros", bordered, 8, Planted("padding_mode", reason), seed, blank=True))
    strided = convolution(4, 4, stride=2, padding=1)
    everywhere = [(strided, {"stride": 1})] * 2 + [
        (convolution(4, 4, 1, padding_mode="reflect"), {"padding_mode": "zeros"})
    ]
    reason = "The pass lost the stride of both convolutions; the last one has no border."
    cases.append(planted_case("a stride lost twice", everywhere, 14, Planted("stride", reason), seed))
    reason = "The bias that is gone was zero; padding by 0 makes the difference."
    cases.append(_zero_bias("a bias of zeros, and the padding", {"bias": False, "padding": 0}, "padding", reason, seed))
    reason = "The bias that is gone was zero."
    cases.append(_zero_bias("a bias of zeros", {"bias": False}, None, reason, seed))
    return [*visible(), *cases]


# ---------------------------------------------------------------------------------------------------- answers

NAMES = ("stride", "padding", "dilation", "groups", "padding_mode")


def _convs(gm):
    modules = [gm.get_submodule(n.target) for n in gm.graph.nodes if n.op == "call_module"]
    return [m for m in modules if isinstance(m, nn.Conv2d)]


def _suspects(before, after):
    """Return (layer, attribute) where the two programs look different."""
    for layer, (conv, fused) in enumerate(zip(_convs(before), _convs(after), strict=True)):
        for name in NAMES:
            if getattr(conv, name) != getattr(fused, name):
                yield layer, name
        if (conv.bias is None) != (fused.bias is None):
            yield layer, "bias"


def _rebuild(conv, weight, bias, **changed):
    options = {name: getattr(conv, name) for name in NAMES} | changed
    new = type(conv)(conv.in_channels, conv.out_channels, conv.kernel_size, bias=bias is not None, **options)
    new.weight, new.bias = weight, bias
    return new


def _replace(gm, layer, new):
    gm = copy.deepcopy(gm)
    paths = [n.target for n in gm.graph.nodes if n.op == "call_module"]
    paths = [path for path in paths if isinstance(gm.get_submodule(path), nn.Conv2d)]
    gm.set_submodule(paths[layer], new)
    return gm


def _repaired(before, after, layer, name):
    """Return `after` with one attribute of one layer as it is in `before`."""
    conv, fused = _convs(before)[layer], _convs(after)[layer]
    if name == "bias":
        return _replace(after, layer, _rebuild(fused, fused.weight, conv.bias))
    weight = conv.weight if name == "groups" else fused.weight
    return _replace(after, layer, _rebuild(fused, weight, fused.bias, **{name: getattr(conv, name)}))


@right("repairs the suspects in `after`, attribute by attribute, instead of breaking `before`")
def by_repair(before, after, inputs):
    if in_steps(before, after, inputs)[0]:
        return None
    suspects = list(_suspects(before, after))
    for name in dict.fromkeys(name for _, name in suspects):
        repaired = after
        for layer in [layer for layer, suspect in suspects if suspect == name]:
            repaired = _repaired(before, repaired, layer, name)
        if in_steps(before, repaired, inputs)[0]:
            return name
    return suspects[-1][1]


@wrong("did", "repairs one layer at a time, though a pass may lose the attribute in several")
def one_layer_at_a_time(before, after, inputs):
    if in_steps(before, after, inputs)[0]:
        return None
    for layer, name in _suspects(before, after):
        if in_steps(before, _repaired(before, after, layer, name), inputs)[0]:
            return name
    return None


@right("runs the layers side by side: the first that differs on the same input is looked at alone, pair by pair")
def layer_by_layer(before, after, inputs):
    if in_steps(before, after, inputs)[0]:
        return None
    (x,) = inputs
    for layer, (conv, fused) in enumerate(zip(_convs(before), _convs(after), strict=True)):
        plain = lambda t, conv=conv: torch.relu(conv(t))  # noqa: E731
        if not in_steps(plain, fused, (x,))[0]:
            for at, name in _suspects(before, after):
                if at == layer:
                    bias = None if name == "bias" else conv.bias
                    weight = fused.weight if name == "groups" else conv.weight
                    changed = {} if name == "bias" else {name: getattr(fused, name)}
                    new = _rebuild(conv, weight, bias, **changed)
                    if not in_steps(conv, new, (x,))[0]:
                        return name
        with torch.no_grad():
            x = plain(x)
    return None


@wrong("spared", "compares attributes only: whatever looks different is called lost")
def by_looks(before, after, inputs):
    return next((name for _, name in _suspects(before, after)), None)


def _first(before, after, inputs, counts=lambda layer, name: True):
    """Return the first attribute that looks different and counts, if the programs differ."""
    if in_steps(before, after, inputs)[0]:
        return None
    return next((name for layer, name in _suspects(before, after) if counts(layer, name)), None)


@wrong("did", "knows that the programs differ, and then takes the first attribute that looks different")
def first_suspect(before, after, inputs):
    return _first(before, after, inputs)


@wrong("did", "guesses: takes what is lost most often of all that looks different")
def by_guess(before, after, inputs):
    if in_steps(before, after, inputs)[0]:
        return None
    suspects = {name for _, name in _suspects(before, after)}
    return next(
        name for name in ("bias", "groups", "stride", "padding", "padding_mode", "dilation") if name in suspects
    )


@wrong("did", "takes the last attribute that looks different")
def last_suspect(before, after, inputs):
    if in_steps(before, after, inputs)[0]:
        return None
    return [name for _, name in _suspects(before, after)][-1]


@wrong("spared", "calls a bias lost wherever there is none left, though it was zero")
def any_bias(before, after, inputs):
    gone = any(name == "bias" for _, name in _suspects(before, after))
    return "bias" if gone else by_repair(before, after, inputs)


@wrong("did", "looks at the first convolution only")
def first_layer(before, after, inputs):
    return _first(before, after, inputs, lambda layer, name: layer == 0)


@wrong("did", "compares on the given image only, on which different programs may agree")
def on_the_given(before, after, inputs):
    try:
        same = torch.allclose(before(*inputs), after(*inputs), atol=1e-5)
    except Exception:
        same = False
    return None if same else by_repair(before, after, inputs)


@wrong("did", "does not think of the bias, which is a parameter and not a number in the printed module")
def no_bias(before, after, inputs):
    return _first(before, after, inputs, lambda layer, name: name != "bias")


@wrong("did", "takes a program that fails for one that cannot be compared, or lets its error through")
def errors_are_none(before, after, inputs):
    try:
        after(*inputs)
    except Exception:
        return None
    return by_repair(before, after, inputs)


@wrong("did", "goes by the output's shape: what keeps the shape is not a loss")
def by_shape(before, after, inputs):
    try:
        if before(*inputs).shape == after(*inputs).shape:
            return None
    except RuntimeError:
        return "groups"
    return by_repair(before, after, inputs)


@wrong("did", "answers with the pair of values instead of the name")
def values(before, after, inputs):
    name = by_repair(before, after, inputs)
    if name in (None, "bias"):
        return name
    return next((getattr(a, name), getattr(b, name)) for a, b in zip(_convs(before), _convs(after), strict=True))


EQUIVALENT = {
    ('attribute != "bias" and ...', "False"): "compares the program with itself, which takes time and finds nothing",
}
