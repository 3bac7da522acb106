"""Hidden cases and answers of day09.pipeline."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter

from autograder.authoring.answers import edited, right, wrong
from passlab import mlir
from passlab.exercises.day09.pipeline import (
    AFFINE,
    BLOCKS,
    BUFFERIZE,
    CLEAN,
    CSE,
    FORWARD,
    FUSE,
    GENERALIZE,
    INSIDE,
    LOOPS,
    LOWER,
    MERGE,
    chain,
    pipeline_case,
)
from passlab.judge import Case

# ---------------------------------------------------------------------------------------------------- hidden cases


def hidden(seed: int) -> list[Case]:
    rng = random.Random(seed)
    side = rng.randint(3, 9)

    def names(*some):
        return rng.sample(some, len(some))

    def ops(*before):
        return chain(side, *before, *rng.choices(["exp", "tanh", "sin", "sqrt"], k=2))

    # In these orders, the first pass that changes something is a wrong start.
    return [
        pipeline_case("a transpose, too", ops("transpose"), names(BUFFERIZE, FUSE, GENERALIZE), _ONE_NEST, 3),
        pipeline_case("loops as they come", ops("transpose"), [FUSE, BUFFERIZE, LOOPS], {"linalg": 0}, 2),
        pipeline_case("no names", ops("transpose"), [FUSE, GENERALIZE], {"linalg.transpose": 0}, 1),
        pipeline_case("jumps", ops(), names(BLOCKS, LOOPS, BUFFERIZE), {"linalg": 0, "scf": 0}, 3),
        pipeline_case("loops that are merged", ops(), [AFFINE, MERGE, BUFFERIZE], {"linalg": 0, "affine.for": 2}, 3),
        pipeline_case(
            "no buffer", chain(side, "exp", "tanh", "sum"), [FORWARD, BUFFERIZE, AFFINE, MERGE], _NO_BUFFER, 4
        ),
        pipeline_case(
            "a pass without its option", ops(), ["affine-super-vectorize", LOOPS, BUFFERIZE], {"tensor": 0}, 1
        ),
        pipeline_case(
            "a pass that fails at first", _elementwise(side), [LOOPS, BUFFERIZE, TO_LINALG], {"linalg": 0}, 3
        ),
        pipeline_case("few constants", ops(), [CLEAN, BUFFERIZE, AFFINE, LOWER], _FEW, 4),
        pipeline_case("no way on tensors", ops(), names(LOOPS, CSE), {"linalg": 0}, None),
        pipeline_case("no way after a failure", ops(), [INSIDE, LOOPS], {"linalg": 0, "bufferization": 1}, None),
        pipeline_case("the same pass twice", _loops(rng), [UNROLL], {"affine.for": 0}, 2),
        pipeline_case("a move that no number shows", _loops(rng), names(UNROLL, HOIST), _UNROLLED, 3),
        pipeline_case("a name that begins like another", chain(side, "exp", "tanh"), [FUSE], _TAN, 1),
        pipeline_case("nothing to do", ops("sum"), names(FUSE, GENERALIZE, BUFFERIZE), {"memref": 0, "linalg": 8}, 0),
        pipeline_case("many beginnings", _invariant(rng), _MANY, _ONE_POWER, 2),
    ]


_ONE_NEST = {"linalg.generic": 1, "linalg.transpose": 0, "tensor": 0}
_NO_BUFFER = {"linalg": 0, "tensor": 0, "memref.alloc": 0}
_TAN = {"linalg.generic": 1, "math.tan": 0}
_UNROLLED = {"affine.for": 0, "arith.constant": 3}
UNROLL, HOIST = "affine-loop-unroll{unroll-factor=4 unroll-up-to-factor=true}", "loop-invariant-code-motion"


TO_LINALG = "convert-elementwise-to-linalg"


def _elementwise(side: int) -> str:
    """Return a module with a product of whole tensors, which cannot be bufferized before it is linalg."""
    product = f"  %p = arith.mulf %r0, %x : tensor<{side}x{side}xf32>\n  return %p"
    return chain(side, "exp").replace("  return %r0", product)


def _loops(rng: random.Random) -> str:
    """Return a module of two loops, the inner one with a constant in it. What is unrolled twice has no loop."""
    rows, columns = rng.sample((2, 3, 4), 2)
    kind = f"memref<{rows}x{columns}xf32>"
    return f"""func.func @main(%x: {kind}) {{
  affine.for %i = 0 to {rows} {{
    affine.for %j = 0 to {columns} {{
      %half = arith.constant 0.5 : f32
      %a = affine.load %x[%i, %j] : {kind}
      %h = arith.mulf %a, %half : f32
      affine.store %h, %x[%i, %j] : {kind}
    }}
  }}
  return
}}
"""


#: Each changes the module of `_invariant`, and only HOIST before UNROLL reaches the goal in two steps. A search that
#: keeps the first three modules, the last three, or the three nearest to the goal, loses the one after HOIST.
_MANY = [CLEAN, UNROLL, "affine-loop-normalize", HOIST, LOWER]
_ONE_POWER = {"affine.for": 1, "scf": 0, "math.powf": 1}


def _invariant(rng: random.Random) -> str:
    """Return a module of two loops that do not begin at 0, with a power in them that does not change."""
    rows = rng.choice((3, 4, 5))
    kind = f"memref<{rows + 1}x3xf32>"
    return f"""func.func @main(%x: {kind}, %s: f32) {{
  affine.for %i = 1 to {rows + 1} {{
    affine.for %j = 1 to 3 {{
      %two = arith.constant 2.0 : f32
      %p = math.powf %s, %two : f32
      affine.store %p, %x[%i, %j] : {kind}
    }}
  }}
  return
}}
"""


_FEW = {"linalg": 0, "affine": 0, "arith.constant": 3}

# ---------------------------------------------------------------------------------------------------- answers


def _counts(module):
    return Counter(re.findall(r'"(\w+\.[\w.]+)"\(', mlir.generic(module)))


def _reached(counts, goal):
    return not any(
        sum(n for op, n in counts.items() if op == kind or op.startswith(kind + ".")) > most
        for kind, most in goal.items()
    )


def _difference(old, new):
    return {op: new[op] - old[op] for op in old | new if new[op] != old[op]}


def _by_rounds(module, names, goal, width=None):
    level, texts = [((), module)], {mlir.generic(module)}
    while level:
        for steps, at in level:
            if _reached(_counts(at), goal):
                stages = [module, *(mlir.passes(module, list(steps)) if steps else [])]
                pairs = itertools.pairwise(stages)
                return [(n, _difference(_counts(a), _counts(b))) for n, (a, b) in zip(steps, pairs, strict=True)]
        further = []
        for steps, at in level:
            for name in names:
                try:
                    after = mlir.pipeline(at, name)
                except mlir.MLIRError:
                    continue
                if mlir.generic(after) not in texts:
                    texts.add(mlir.generic(after))
                    further.append(((*steps, name), after))
        level = further[:width]


@right("one round after the other, from the printed text, and puts the steps together from the modules at the end")
def by_rounds(module, names, goal):
    return _by_rounds(module, names, goal)


@right("tries deeper and deeper, up to six steps, and goes on only where a pass has changed the text")
def deeper(module, names, goal):
    def search(at, depth):
        counts = _counts(at)
        if depth == 0:
            return [] if _reached(counts, goal) else None
        for name in names:
            try:
                after = mlir.pipeline(at, name)
            except mlir.MLIRError:
                continue
            change = _difference(counts, _counts(after))
            moved = mlir.text(after) != mlir.text(at)
            if moved and (rest := search(after, depth - 1)) is not None:
                return [(name, change), *rest]
        return None

    return next((steps for depth in range(7) if (steps := search(module, depth)) is not None), None)


depth_first = edited("cost", "takes the module that was found last: a way, but not a shortest one")(
    ("for state, steps in waiting: ...", "while waiting:\n    state, steps = waiting.pop()\n    ...")
)
zeros = edited("same", "tells what did not change, too, or what was removed in the place of what was added")(
    ("{op: n for op, n in ... if n}", "{op: n for op, n in ...}")
)
since_start = edited("same", "tells what changed since the beginning")(
    ("change.subtract(ops)", "change.subtract(Counter(op.name for op in module.walk()))")
)
no_dialects = edited("did", "reads a goal as names of operations only")(("ops[kind] + dialects[kind]", "ops[kind]"))
exactly = edited("did", "wants exactly as many as the goal allows")(("... <= most", "... == most"))
once = edited("did", "runs no pass a second time")(
    ("names", "(name for name in names if name not in [step for step, _ in steps])")
)
fails_for_good = edited("did", "does not run a pass again that has failed")(
    ("continue", "names = [one for one in names if one != name]\ncontinue")
)
fails = edited("valid", "does not expect a pass to fail")(("mlir.MLIRError", "ZeroDivisionError"))
no_answer = edited("did", "returns the empty pipeline where there is none")(("    return None\n", "    return []\n"))
names_alone = edited("valid", "returns the names without what they changed")(
    ("return steps\n", "return [name for name, _ in steps]\n")
)


@wrong("did", "returns the empty pipeline, which changes nothing, and rightly says nothing of changes")
def empty(module, names, goal):
    return []


@wrong("did", "says that there is no way")
def no_way(module, names, goal):
    return None


@wrong("did", "runs the passes once, in the order in which they are given")
def as_given(module, names, goal):
    steps = []
    for name in names:
        if _reached(_counts(module), goal):
            break
        try:
            after = mlir.pipeline(module, name)
        except mlir.MLIRError:
            continue
        steps.append((name, _difference(_counts(module), _counts(after))))
        module = after
    return steps


@wrong("did", "goes on with three modules only after each round")
def narrow(module, names, goal):
    return _by_rounds(module, names, goal, width=3)
