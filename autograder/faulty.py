"""The bank's faulty passes over torch.fx: wrong answers that change what a graph computes, run as they are.

    for name, apply in faulty.passes(seed=7, number=20).items():
        print(name, why_wrong(apply, gm))              # "day03.cse/no_keywords", and how it fails on gm

They are passes that take and return a GraphModule and promise the same function. An answer that only misses
optimizations is not faulty. Day 1's swap-relu is not among them: it changes the function on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache

from torch import fx

from autograder.authoring.answers import load, reference

Pass = Callable[[fx.GraphModule], fx.GraphModule]

#: Exercise → names of its faulty answers, each with a case of the exercise, of seed 0, on which `why_wrong` sees it.
FAULTY: dict[str, dict[str, str]] = {
    "day02.fuse-conv-relu": {
        "loses_stride": "one conv, no attribute at its default",
        "dangling": "one conv, no attribute at its default",
        "fresh_weights": "one conv, no attribute at its default",
        "every_user_gets_the_relu": "two convolutions that something else uses too",
        "swaps_the_module": "one conv module called twice, one relu module called twice",
        "copies_weights": "one conv, no attribute at its default",
        "returns_nothing": "one conv, no attribute at its default",
        "at_the_relu": "an image that is written in between",
        "by_name": "nothing but look-alikes",
    },
    "day02.fold-batchnorm": {
        "used_once": "no bias and another eps; no weight and bias in the batch norm",
        "without_eps": "plain: a convolution and a batch norm",
        "also_before": "nothing but look-alikes",
        "bias_not_scaled": "plain: a convolution and a batch norm",
        "needs_affine": "no bias and another eps; no weight and bias in the batch norm",
        "also_in_training": "a model in training",
        "in_place": "the weight is read elsewhere too",
        "behind_anything": "plain: two pairs, and a large eps",
        "ignores_other_users": "a convolution with a second user, and one that is called twice",
        "asks_the_model": "one batch norm in training",
        "at_the_norm": "an image that is written in between",
        "norm_by_isinstance": "a subclass",
    },
    "day03.constant-folding": {
        "freezes_noise": "noise",
        "folds_the_example": "plain: an expression of two weights",
        "ignores_writes": "a counter",
        "ignores_later_writes": "written through a view",
        "flat_names": "numbers, and a layer's weight",
        "functions_only": "numbers, and a layer's weight",
    },
    "day03.dce": {
        "unread_is_dead": "four ways to write",
        "torch_untold": "four ways to write",
        "underscores": "four ways to write",
        "recursive": "a long dead chain",
        "forgets_draws": "an unused draw",
        "forgets_writes": "four ways to write",
        "modules_are_pure": "modules in training mode",
        "drops_inputs": "an unused input",
    },
    "day03.cse": {
        "text_of_the_node": "two dropouts",
        "no_keywords": "plain: look-alikes",
        "torch_ships_it": "lists and slices",
        "merges_draws": "two dropouts",
        "ignores_time": "a write in between",
        "ignores_twins": "twins that part",
        "python_equality": "look-alikes",
        "equal_keywords_merge": "keywords that Python calls equal",
        "nodes_only": "plain: look-alikes",
        "list_or_tuple": "spelled alike",
        "ignores_weights": "a layer's weight is written",
        "modules_by_class": "one module twice, and its like",
        "views_are_references": "copies that look like views",
        "raw_key": "lists and slices",
    },
    "day03.simplify": {
        "real_numbers": "plain: what stays",
        "five_laws": "integers",
        "modules_by_name": "modules with misleading names",
        "forgets_types": "integers",
        "forgets_options": "options",
        "any_two_transposes": "shapes",
        "forgets_writes": "a copy that is written",
        "as_on_paper": "NaN, inf, -0",
        "wrapping": "narrow integers and Boolean values",
    },
    "day03.gelu": {
        "one_grouping": "half of it is read elsewhere",
        "modules_by_name": "modules with misleading names",
        "plain_gelu": "the tanh form, twice",
        "any_constants": "plain: near-misses",
        "any_x": "near-misses",
        "ignores_options": "more near-misses",
        "ignores_writes": "a gate that is written",
        "eager": "plain: 0.5 x (1 + erf(x / √2))",
    },
    "day03.channels-last": {
        "permutes": "plain: a convolution and a ReLU",
    },
    "day04.linear-act": {
        "one_gelu": "the product written out, the bias added",
        "any_dtype": "additions that are not a bias",
        "loses_the_bias": "the product written out, the bias added",
        "ignores_options": "additions that are not a bias",
        "any_weight": "near-misses",
        "ignores_writes": "a bias that is written in between",
        "asks_once": "written in between",
        "modules_by_name": "near-misses",
        "returns_nothing": "modules and functions",
    },
    "day04.attention": {
        "default_scale": "four ways to scale",
        "mask_upside_down": "masks that are added, filled in, chosen",
        "drops_dropout": "dropout that draws",
        "any_transposition": "near-misses",
        "any_mask": "shapes and dtypes",
        "ignores_writes": "written in between",
        "asks_once": "a result is written before the next attention ends",
        "adds_booleans": "near-misses",
        "returns_nothing": "four ways to scale",
    },
}


@cache
def _every() -> dict[str, Pass]:
    return {
        f"{exercise}/{answer.__name__}": answer
        for exercise, cases in FAULTY.items()
        for answer in load(exercise)
        if answer.__name__ in cases
    }


def passes(seed: int | None = None, number: int | None = None) -> dict[str, Pass]:
    """Return the faulty passes under their names, EXERCISE/ANSWER, in order; `number` of them, drawn by `seed`."""
    every = _every()
    if number is None:
        return dict(every)
    drawn = set(random.Random(seed).sample(sorted(every), number))
    return {name: apply for name, apply in every.items() if name in drawn}


@cache
def right_passes() -> dict[str, Pass]:
    """Return the references and right answers of the same exercises: no oracle may find fault with them."""
    return {
        f"{exercise}/{answer.__name__}": answer
        for exercise in FAULTY
        for answer in (reference(exercise), *(answer for answer in load(exercise) if answer.mark.kind == "right"))
    }
