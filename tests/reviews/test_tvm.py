"""What the questions on Relay say is what Relay's TVM does, where it is installed."""

from __future__ import annotations

import json

from passlab.reviews import draw
from tests.support.flavours import python, relay_here

#: Prints the number of kernels that FuseOps leaves of each chain of operators.
FUSE = """
import json
from passlab.relay import relay, tvm
from passlab.tvm.modules import groups

STEPS = {
    "relu": relay.nn.relu,
    "exp": relay.exp,
    "negative": relay.negative,
    "transpose": relay.transpose,
    "sum": lambda x: relay.sum(x, axis=[1], keepdims=True),
    "dense": lambda x: relay.nn.dense(x, relay.var("w", shape=(8, 8))),
}
counts = []
for chain in json.loads(CHAINS):
    value = relay.var("x", shape=(8, 8))
    for op in chain:
        value = STEPS[op](value)
    main = relay.Function(relay.analysis.free_vars(value), value)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(main))
    with tvm.transform.PassContext(opt_level=3):
        counts.append(len(groups(relay.transform.FuseOps()(module))))
print(json.dumps(counts))
"""


@relay_here
def test_fuse_ops_leaves_as_many_kernels_as_the_answer_says():
    drawn = [draw("fuse-ops", seed) for seed in range(300)]
    chains = json.dumps([question.text.split("\n")[0].split(" → ")[1:] for question in drawn])
    counts = json.loads(python(f"CHAINS = {chains!r}\n{FUSE}").splitlines()[-1])
    wrong = [(q.text, count) for q, count in zip(drawn, counts, strict=True) if q.answer != count]
    assert not wrong
