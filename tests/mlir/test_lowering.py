"""Loops by a schedule compute what linalg says, whatever the sizes; the stages of lowering compute the same."""

import numpy as np
import pytest

from passlab.mlir import MLIRError, parse, text, verify
from passlab.mlir.lowering import MATMUL, bufferize, lower, lowering_stages
from passlab.mlir.run import run


def matmul(n, k, m):
    a, b, c = f"tensor<{n}x{k}xf32>", f"tensor<{k}x{m}xf32>", f"tensor<{n}x{m}xf32>"
    return parse(f"""
        func.func @main(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
          %r = linalg.matmul ins(%a, %b : {a}, {b}) outs(%c : {c}) -> {c}
          return %r : {c}
        }}""")


SCHEDULES = {
    "none": {},
    "order": {"order": (2, 0, 1)},
    "tiles": {"tiles": {0: 4, 1: 3, 2: 5}},
    "jam": {"order": (0, 2, 1), "jam": {0: 2, 2: 4}},
    "both": MATMUL | {"tiles": {1: 4, 2: 4}, "jam": {0: 4, 2: 2}},
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("sizes", [(8, 8, 8), (7, 10, 9), (1, 4, 13)], ids=str)
def test_a_schedule_changes_no_result(name, sizes):
    n, k, m = sizes
    random = np.random.default_rng(3)
    a, b, c = (random.normal(size=size).astype("f") for size in ((n, k), (k, m), (n, m)))
    before = bufferize(matmul(n, k, m))
    items = text(before)
    loops = lower(before, **SCHEDULES[name])
    verify(loops)
    assert not any(op.name.startswith("linalg.") for op in loops.walk()) and text(before) == items
    np.testing.assert_allclose(run(loops, a, b, c)[0], a @ b + c, rtol=1e-4, atol=1e-5)


def test_jamming_reads_less():
    def loads(**schedule):
        body = lower(bufferize(matmul(8, 8, 8)), order=(0, 2, 1), **schedule)
        return sum(op.name == "memref.load" for op in body.walk())

    # of a 2×2 jam: four of a, two of b, two of c, instead of four times three
    assert (loads(), loads(jam={0: 2, 2: 2})) == (3, 8)


def test_tensors_and_unknown_sizes_are_sentences():
    with pytest.raises(MLIRError, match="bufferize"):
        lower(matmul(4, 4, 4))
    with pytest.raises(MLIRError, match="known sizes"):
        lower(bufferize(matmul("?", "?", "?")))


def test_the_stages_of_lowering_compute_the_same():
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)).eval()
    x = torch.randn(4, 6)
    stages = lowering_stages(model, x)
    assert [stage.name for stage in stages] == ["torch", "linalg", "fused", "buffers", "loops", "jumps", "LLVM"]
    assert "torch.aten" in stages[0].value and "define" in stages[-1].value
    for stage in stages[1:-1]:
        result = run(stage.value, *stage.arrays)[0]
        np.testing.assert_allclose(result, model(x).detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=stage.name)
