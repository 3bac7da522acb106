"""Graphs: the attack is in the graph that an answer returns, for the moment in which it is run to be judged.

Operators that do not check what they are given would read and write in the process that runs the graph. If that one
knew hidden cases, points or the reference answer, or judged another question afterwards, the graph could find or change
them. Every attack has an honest twin: the same graft on the same answer, of something harmless, has all points.
"""

from __future__ import annotations

from autograder.toys.tiny_fx import QUESTIONS
from tests.attacks.attack import Attack, answer

#: A right answer; then a call is grafted onto the output of its graph: `call(…)` adds one to the graph.
_GRAFTED = (
    QUESTIONS["dce"].good.replace("def dce(gm)", "def right(gm)")
    + """
def dce(gm):
    gm = right(gm)
    out = gm.graph.output_node()
    with gm.graph.inserting_before(out):
        call, x = gm.graph.call_function, out.args[0]
        gm.register_buffer("far", torch.tensor([0, 2**40, 2**20]))
        far = gm.graph.get_attr("far")
        {graft}
        out.args = (made,)
    gm.recompile()
    return gm
"""
)
#: Points of an answer whose graph is valid, does what it should and spares what it should, but gives no result.
_BUT_SAME = 4
#: The wire's tables, told in the worker to pass everything on, so that only the other side is left to refuse it.
_FORGED = """
import autograder.engine.wire.packing as packing

def anything(target):
    return known(target) or (f"torch.{target.__name__}" if "." not in str(target) else str(target))

class Everything:
    def __contains__(self, name):
        return True

known, packing.targets.name_of = packing.targets.name_of, anything
packing.targets.barred_argument, packing.targets.METHODS = lambda target, names: None, Everything()
"""

_POOL = """made = call(torch.ops.aten.max_pool2d_with_indices_backward.grad_input,
            (call(torch.reshape, (x, (1, 1, 2, 2))), call(torch.reshape, (x, (1, 1, 2, 2))), [1, 1], [1, 1], [0, 0],
             [1, 1], False, call(torch.reshape, (far, (1, 1, 1, 3)))), {"grad_input": x})"""
_SEGMENTS = 'made = call(torch.segment_reduce, (x, "sum"), {"lengths": far, "unsafe": True})'
_STRIDES = "made = call(torch.ops.aten._reshape_alias.default, (x, [2**20], [1]))"

#: Name → (what it tries, the graft, points it has besides). Without points it is refused before it runs.
_ATTACKS = {
    "segments": ("a sum over segments reads behind a tensor, unchecked", _SEGMENTS, 0),
    "pool-backward": ("the gradient of a pooling is written where the indices say, unchecked", _POOL, 0),
    "alias": ("a view with unchecked strides reaches a megabyte behind a tensor", _STRIDES, 0),
    "strided": (
        "a view of a megabyte of which the tensor has 16 bytes",
        "made = call(torch.as_strided, (x, (2**20,), (1,)))",
        0,
    ),
    "wrapped": (
        "strides so large that they wrap around lead before the beginning of a tensor",
        'made = gm.graph.call_method("as_strided_", (x, (4, 4), (1, 2**63 - 1)))',
        0,
    ),
    "foreach": (
        "an operator for lists of tensors writes all at once",
        "made = call(torch._foreach_add_, ([x, far], 1))",
        0,
    ),
    "own-operator": (
        "an operator that the answer has registered runs its code",
        'torch.library.define("plattack::run", "(Tensor x) -> Tensor")\n'
        '        torch.library.impl("plattack::run", "cpu", torch.clone)\n'
        "        made = call(torch.ops.plattack.run.default, (x,))",
        0,
    ),
    "file": ("a tensor is mapped onto a file", 'made = call(torch.from_file, ("/proc/self/mem",), {"size": 64})', 0),
    "load": ("a file is unpickled", 'made = call(torch.load, ("/tmp/plattack",))', 0),
    "globals": (
        "the globals of a function of torch are read, and with them the process's objects",
        'made = call(getattr, (call(getattr, (x, "forward")), "__globals__"))',
        0,
    ),
    "address": ("a tensor's address is asked for", 'made = gm.graph.call_method("data_ptr", (x,))', 0),
    "endless": ("a sum of numbers that never ends", "made = call(sum, (call(range, (2**62,)),))", _BUT_SAME),
    "power": ("a power of more digits than there is time for", "made = call(pow, (7, 10**12))", _BUT_SAME),
    "memory": ("a list of all the memory there is", "made = call(list, (call(range, (2**50,)),))", _BUT_SAME),
    "grown": (
        "the input becomes a gigabyte long, so that a view of it lies over other memory",
        'made = call(operator.getitem, (gm.graph.call_method("resize_", (x, [2**36])), slice(-4, None)))',
        _BUT_SAME,
    ),
}
#: Attack → a graft of the same shape that is right.
_TWINS = {
    "segments": "made = call(torch.sub, (x, 0))",
    "pool-backward": "made = call(torch.reshape, (call(torch.reshape, (x, (1, 1, 2, 2))), (2, 2)))",
    "alias": "made = call(torch.ops.aten.view.default, (x, [2, 2]))",
    "strided": "made = call(torch.transpose, (call(torch.transpose, (x, 0, 1)), 0, 1))",
    "wrapped": 'made = gm.graph.call_method("view", (call(torch.clone, (x,)), (2, 2)))',
    "foreach": "made = call(operator.getitem, ([x, far], 0))",
    "own-operator": "made = call(torch.ops.aten.clone.default, (x,))",
    "file": "made = call(torch.sub, (x, call(torch.zeros, (2, 2))))",
    "load": "made = call(torch.sub, (x, call(torch.zeros_like, (x,))))",
    "globals": 'made = call(torch.reshape, (x, call(getattr, (x, "shape"))))',
    "address": 'made = call(torch.sub, (x, call(operator.sub, (gm.graph.call_method("numel", (x,)), 4))))',
    "endless": "made = call(torch.sub, (x, call(sum, (call(range, (1,)),))))",
    "power": "made = call(torch.div, (x, call(pow, (7, 0))))",
    "memory": "made = call(torch.sub, (x, call(operator.getitem, (call(list, (call(range, (2,)),)), 0))))",
    "grown": 'made = gm.graph.call_method("resize_", (call(torch.clone, (x,)), [2, 2]))',
}


def _attacks() -> list[Attack]:
    items = []
    for name, (tries, graft, earns) in _ATTACKS.items():
        items.append(answer(f"graph-{name}", tries, _GRAFTED.format(graft=graft), earns=earns))
        twin = _GRAFTED.format(graft=_TWINS[name])
        items.append(answer(f"graph-{name}-twin", f"nothing: the honest twin of graph-{name}", twin, works=True))
    for name in ("segments", "pool-backward", "alias", "wrapped"):
        tries, graft, _ = _ATTACKS[name]
        code = _FORGED + _GRAFTED.format(graft=graft)
        items.append(answer(f"graph-{name}-forged", f"{tries}; the worker's own check is patched away", code))
    return items


#: The first question's graph would leave something for the second's, which is right and must not be harmed.
_SPOILS = _GRAFTED.format(graft=_ATTACKS["grown"][1]) + QUESTIONS["cse"].good
ATTACKS = (
    *_attacks(),
    answer(
        "graph-for-the-next",
        "a graph spoils its process for the next question",
        _SPOILS,
        earns=_BUT_SAME + QUESTIONS["cse"].total,
    ),
)
