"""Steps of many parameters as few kernels, against torch.optim."""

import pytest
import torch
from torch import nn

from passlab import launches
from passlab.autodiff.optimizer import ADAM, ADAMW, SGD, Fused

METHODS = {
    "adam": (ADAM, torch.optim.Adam, {"lr": 1e-2}),
    "adam with decay": (ADAM, torch.optim.Adam, {"lr": 1e-2, "weight_decay": 0.1}),
    "adam, other averages": (ADAM, torch.optim.Adam, {"lr": 1e-2, "betas": (0.8, 0.9), "eps": 1e-3}),
    "adamw": (ADAMW, torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.2}),
    "sgd": (SGD, torch.optim.SGD, {"lr": 1e-2}),
    "momentum": (SGD, torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}),
    "momentum with decay": (SGD, torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9, "weight_decay": 0.1}),
}


def network(dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3)).to(dtype)


def train(model, optimizer, steps=20, used=lambda step, name: True, between=lambda step: None):
    gen = torch.Generator().manual_seed(1)
    dtype = next(model.parameters()).dtype
    for step in range(steps):
        between(step)
        optimizer.zero_grad()
        model(torch.randn(8, 5, generator=gen).to(dtype)).square().mean().backward()
        for name, p in model.named_parameters():
            if not used(step, name):
                p.grad = None
        optimizer.step()
    return model


def compare(one, other, **close):
    for (name, p), q in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, **close, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", METHODS)
def test_twenty_steps_are_torchs(name):
    method, theirs, options = METHODS[name]
    for dtype, close in ((torch.float32, {"rtol": 1e-4, "atol": 1e-6}), (torch.float64, {"rtol": 1e-10, "atol": 0})):
        own, right = network(dtype), network(dtype)
        train(own, Fused(method, own.parameters(), **options))
        train(right, theirs(right.parameters(), **options, foreach=False))
        compare(own, right, **close)


def test_half_precision_is_computed_in_float32_and_rounded_once():
    own, right = network(torch.bfloat16), network(torch.bfloat16)
    train(own, Fused(ADAM, own.parameters(), lr=1e-2, weight_decay=0.1))
    train(right, torch.optim.Adam(right.parameters(), lr=1e-2, weight_decay=0.1, fused=True))
    compare(own, right, rtol=1e-2, atol=1e-4)
    assert all(p.dtype == torch.bfloat16 for p in own.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_step_of_half_precision_is_that_of_float32_rounded(dtype):
    half = nn.Parameter(torch.randn(40, generator=torch.Generator().manual_seed(0)).to(dtype))
    whole = nn.Parameter(half.detach().float())
    half.grad = torch.randn(40, generator=torch.Generator().manual_seed(1)).to(dtype)
    whole.grad = half.grad.float()
    for p in (half, whole):
        Fused(SGD, [p], lr=0.1, momentum=0.9).step()
    assert torch.equal(half, whole.to(dtype))


def test_a_parameter_without_a_gradient_is_left_alone_and_keeps_its_own_count_of_steps():
    def used(step, name):
        return name != "2.weight" or step % 3 == 1

    for method, theirs in ((ADAM, torch.optim.Adam), (ADAMW, torch.optim.AdamW)):
        own, right = network(), network()
        train(own, Fused(method, own.parameters(), weight_decay=0.1), used=used)
        train(right, theirs(right.parameters(), weight_decay=0.1), used=used)
        compare(own, right, rtol=1e-4, atol=1e-6)
    start = network()
    train(own := network(), Fused(ADAM, own.parameters()), used=lambda step, name: name != "2.weight")
    assert torch.equal(own[2].weight, start[2].weight) and not torch.equal(own[0].weight, start[0].weight)


def _split(model):
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    weights = [p for name, p in model.named_parameters() if name.endswith("weight")]
    return [{"params": weights, "weight_decay": 0.3}, {"params": biases, "lr": 0.1}]


def test_several_groups_have_options_of_their_own():
    own, right = network(), network()
    train(own, Fused(ADAM, _split(own), lr=1e-2))
    train(right, torch.optim.Adam(_split(right), lr=1e-2))
    compare(own, right, rtol=1e-4, atol=1e-6)


def test_parameters_of_several_types_go_in_several_groups():
    own, right = (nn.ModuleList([nn.Linear(5, 5), nn.Linear(5, 5).double()]) for _ in range(2))
    right.load_state_dict(own.state_dict())
    for model, optimizer in ((own, Fused(ADAM, own.parameters())), (right, torch.optim.Adam(right.parameters()))):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        optimizer.step()
    compare(own, right)


def test_a_learning_rate_may_change_between_steps():
    own, right = network(), network()
    fused, theirs = Fused(ADAM, own.parameters(), lr=1e-2), torch.optim.Adam(right.parameters(), lr=1e-2)

    def slower(step):
        fused.groups[0]["lr"] = theirs.param_groups[0]["lr"] = 1e-2 / (1 + step)

    compare(train(own, fused, between=slower), train(right, theirs, between=slower), rtol=1e-4, atol=1e-6)
    assert len(fused._kernels) == 1


def test_new_numbers_of_a_parameter_are_taken_over():
    own, right = network(), network()
    for model, optimizer in (
        (own, Fused(SGD, own.parameters(), momentum=0.9)),
        (right, torch.optim.SGD(right.parameters(), momentum=0.9)),
    ):

        def halve(step, model=model):
            if step == 5:
                model[0].weight.data = model[0].weight.data / 2
            if step == 7:
                model.load_state_dict({name: value * 0.9 for name, value in model.state_dict().items()})

        train(model, optimizer, between=halve)
    compare(own, right, rtol=1e-4, atol=1e-6)


def test_one_kernel_for_each_group():
    model = network()
    fused = Fused(ADAM, model.parameters())
    train(model, fused, 2)
    kernels = launches(fused.step).detail
    assert [name for name in kernels if name.startswith("fused_")] != [] and sum(kernels.values()) == 3
    assert kernels["aten.cat"] == kernels["aten.copy_"] == 1
    groups = Fused(ADAM, _split(model))
    groups.step()
    assert launches(groups.step) == 6
    loop = torch.optim.Adam(model.parameters(), foreach=False)
    loop.step()
    assert launches(loop.step) >= 8 * len(list(model.parameters()))


def test_a_parameter_stays_itself():
    model = network()
    before, first = list(model.parameters()), model[0].weight
    fused = Fused(ADAM, model.parameters())
    train(model, fused, 1)
    place = first.data_ptr()
    train(model, fused, 3)
    assert all(p is q for p, q in zip(model.parameters(), before, strict=True)) and first.data_ptr() == place
    assert len({p.untyped_storage().data_ptr() for p in model.parameters()}) == 1


def test_what_cannot_be_optimized_is_refused():
    model = network()
    with pytest.raises(ValueError, match="adam has no option 'momentum'; its options: lr, betas, eps, weight_decay"):
        Fused(ADAM, model.parameters(), momentum=0.9)
    with pytest.raises(ValueError, match=r"shape \[16, 5\] shares its memory .* or is listed twice"):
        Fused(SGD, [model[0].weight, model[0].weight])
    with pytest.raises(ValueError, match="shares its memory"):
        Fused(SGD, [model[0].weight, nn.Parameter(model[0].weight.data[3:])])
    with pytest.raises(ValueError, match=r"There is no parameter.*model\.parameters\(\)"):
        Fused(SGD, [])
    with pytest.raises(ValueError, match=r"holds torch\.complex64"):
        Fused(SGD, [nn.Parameter(torch.ones(2, dtype=torch.complex64))])
    rows = nn.Embedding(4, 2, sparse=True)
    rows(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match=r"gradient of a parameter of shape \[4, 2\] is sparse: make it dense"):
        Fused(SGD, rows.parameters()).step()
