"""The zoo: published sizes, seeded weights that prove something, traceable, exportable."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from passlab import models

ALL = sorted(models.ZOO)


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    "name, count", [("resnet18", 11_689_512), ("resnet50", 25_557_032), ("mobilenetv2", 3_504_872)]
)
def test_published_parameter_counts(name, count):
    assert parameters(models.ZOO[name].build()) == count


def test_vit_defaults_are_vit_b_16():
    with torch.device("meta"):
        assert parameters(models.ViT(224, 16, 768, 12, 12, 1000)) == 86_567_656


def test_the_zoo_has_what_the_course_names():
    expected = "tiny mlp residual convnet skip attention resnet18 resnet50 mobilenetv2 unet gpt vit lstm"
    assert set(expected.split()) == set(models.ZOO)
    assert all(callable(getattr(models, name)) for name in models.ZOO)


@pytest.mark.parametrize("name", ALL)
def test_traces_and_exports_to_the_same_function(name):
    model, inputs = models.ZOO[name].build(), models.ZOO[name].inputs()
    expected = model(*inputs)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(*inputs), expected)
    torch.testing.assert_close(torch.export.export(model, inputs).module()(*inputs), expected)


@pytest.mark.parametrize("name", ALL)
def test_seeded_and_silent(name):
    entry = models.ZOO[name]
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    one = entry.build()
    assert torch.equal(torch.random.get_rng_state(), state), "building a model moved torch's random state"
    torch.manual_seed(2)
    two, other = entry.build(), entry.build(seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert not any(module.training for module in one.modules())
    assert not any(p.requires_grad for p in one.parameters())


@pytest.mark.parametrize("name", ALL)
def test_normalization_is_not_trivial(name):
    for module in models.ZOO[name].build().modules():
        if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
            assert (module.weight != 1).all() and (module.bias != 0).all()
        if isinstance(module, nn.BatchNorm2d):
            assert (
                (module.running_mean != 0).all() and (module.running_var != 1).all() and (module.running_var > 0).all()
            )


@pytest.mark.parametrize("name", ALL)
def test_activations_are_alive(name):
    """At every layer: finite, about unit size (0.05 to 20), and no ReLU that is nearly always or never at its bound."""
    model, wrong = models.ZOO[name].build(), []

    def look(module, _, out):
        if not (out.isfinite().all() and 0.05 < out.std() < 20):
            wrong.append((type(module).__name__, out.std().item()))
        bound = 6 if isinstance(module, nn.ReLU6) else float("inf")
        if isinstance(module, (nn.ReLU, nn.ReLU6)) and not 0.05 < ((out > 0) & (out < bound)).float().mean() < 0.98:
            wrong.append((type(module).__name__, "saturated"))

    for module in model.modules():
        if not list(module.children()):
            module.register_forward_hook(look)
    out = model(*models.ZOO[name].inputs())
    assert not wrong
    another = model(*models.ZOO[name].inputs(seed=1))
    assert (another - out).std() > 0.1 * out.std(), "the output hardly depends on the input"


@pytest.mark.parametrize("name", ALL)
def test_inputs_have_the_batch_asked_for_and_rows_do_not_mix(name):
    model, three = models.ZOO[name].build(), models.ZOO[name].inputs(batch=3)
    assert len(three[0]) == 3 and torch.equal(three[0], models.ZOO[name].inputs(batch=3)[0])
    torch.testing.assert_close(model(*three)[:1], model(*(x[:1] for x in three)), rtol=1e-4, atol=1e-4)


def test_residual_block_reads_as_the_lesson_says():
    nodes = [node.name for node in torch.fx.symbolic_trace(models.residual()).graph.nodes]
    assert nodes == ["x", "conv1", "bn1", "relu", "conv2", "bn2", "add", "relu_1", "output"]


def test_lstm_is_torch_lstm():
    own, theirs = models.lstm(), nn.LSTM(16, 32, batch_first=True)
    state = {"weight_ih_l0": own.input.weight, "weight_hh_l0": own.recur.weight}
    theirs.load_state_dict(state | {"bias_ih_l0": own.input.bias, "bias_hh_l0": own.recur.bias})
    (x,) = models.ZOO["lstm"].inputs()
    torch.testing.assert_close(own(x), theirs(x)[0])


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_scaled_dot_product_attention(causal):
    own = models.fill(models.Attention(16, 2, 8 if causal else None), seed=0)
    (x,) = models.ZOO["attention"].inputs()
    q, k, v = (t.reshape(2, 8, 2, 8).transpose(1, 2) for t in own.qkv(x).split(16, -1))
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    torch.testing.assert_close(own(x), own.proj(heads.transpose(1, 2).reshape(2, 8, 16)))


def test_gpt_sees_no_later_token_and_vit_sees_all():
    gpt, (x,) = models.ZOO["gpt"].build(), models.ZOO["gpt"].inputs()
    changed = x.clone()
    changed[:, 10] += 1
    same = (gpt(changed) == gpt(x)).all(-1)
    assert same[:, :10].all() and not same[:, 10:].any()
    plain = models.fill(models.Block(64, 4, nn.GELU), seed=0)
    assert not (plain(changed) == plain(x)).all(-1).any()


def test_gelu_is_the_tanh_form():
    x = torch.linspace(-6, 6, 200)
    torch.testing.assert_close(models.TanhGELU()(x), F.gelu(x, approximate="tanh"))
