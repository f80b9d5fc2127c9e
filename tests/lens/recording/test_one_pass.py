"""Recorded in one pass, a model computes the same within rounding, and its statistics are those of a pass beside it."""

import pytest
import torch
import transformers
from torch.nn import functional

from overt.errors import InputError
from overt.lens import record

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
MODELS = {
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "Llama": SIZES | {"num_key_value_heads": 2},
    "Mistral": SIZES | {"num_key_value_heads": 2, "sliding_window": 6},
    "Bert": SIZES,
}


def model(name):
    torch.manual_seed(0)
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = getattr(transformers, f"{name}Config")(vocab_size=50, initializer_range=0.3, **special, **MODELS[name])
    return getattr(transformers, f"{name}Model")._from_config(config, attn_implementation="sdpa").eval()


def inputs():
    padding = torch.ones(2, 40, dtype=torch.long)
    padding[1, 30:] = 0
    return {"input_ids": torch.randint(1, 50, (2, 40), generator=torch.Generator().manual_seed(1)), "attention_mask": padding}


def recorded(network, **options):
    with torch.no_grad(), record(network, keep="summary", **options) as recording:
        output = network(**inputs())
    return output.last_hidden_state, recording


@pytest.mark.parametrize("name", MODELS)
def test_the_statistics_are_those_of_a_pass_beside_the_model(name):
    network = model(name)
    (plain, beside), (output, together) = recorded(network), recorded(network, one_pass=True)
    inside = inputs()["attention_mask"].bool()
    assert torch.allclose(plain[inside], output[inside], atol=1e-4)
    assert not torch.equal(plain, output)  # it was computed by another kernel
    assert together.verify().holds
    assert together.missing == beside.missing == []
    for one, other in zip(beside.roles(), together.roles(), strict=True):
        assert one.role == other.role
        assert one.scores == pytest.approx(other.scores, abs=1e-4)
    for layer in range(2):
        for head in range(4):
            left, right = beside[layer, head], together[layer, head]
            assert torch.allclose(left.entropy()[0], right.entropy()[0], atol=1e-4)
            assert torch.allclose(left.received(), right.received(), atol=1e-5)
            assert torch.allclose(left.map(8), right.map(8), atol=1e-5)
            assert torch.allclose(left.top(30)[0][0], right.top(30)[0][0], atol=1e-4)


@pytest.mark.parametrize("case", ["gradients", "dropout", "a second recording", "other layers"])
def test_what_one_pass_cannot_do_is_computed_by_torch(case):
    layer = torch.nn.Linear(8, 8)

    class Attends(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            x = self.layer(x)[None, None]
            return functional.scaled_dot_product_attention(x, x, x, dropout_p=0.3 if case == "dropout" else 0.0)

    network, x = Attends(), torch.randn(40, 8)
    options = {"layers": ["nothing"]} if case == "other layers" else {}
    torch.manual_seed(1)
    with torch.set_grad_enabled(case == "gradients"):
        plain = network(x)
        torch.manual_seed(1)
        if case == "a second recording":
            with record(network) as second, record(network, keep="summary", one_pass=True) as recording:
                output = network(x)
            assert len(second) == 1
        else:
            with record(network, keep="summary", one_pass=True, **options) as recording:
                output = network(x)
    assert torch.equal(plain, output)
    assert len(recording) == (case != "other layers")
    if case == "gradients":
        output.sum().backward()
        assert layer.weight.grad is not None


def test_an_error_beside_the_model_leaves_it_to_torch(monkeypatch):
    from overt.lens.statistics import summarized

    def fails(*_):
        raise RuntimeError("no memory")

    network = model("Llama")
    plain, _ = recorded(network)
    monkeypatch.setattr(summarized, "with_masses", fails)
    output, recording = recorded(network, one_pass=True)
    assert torch.equal(plain, output)
    assert any("no memory" in reason for _, reason in recording.missing)


@pytest.mark.parametrize("options", [{"keep": "qkv"}, {"keep": "summary", "heads": [0]}])
def test_one_pass_is_for_summaries_of_all_heads(options):
    with (
        pytest.raises(InputError, match='one_pass=True with keep="summary" and all heads'),
        record(model("Bert"), one_pass=True, **options),
    ):
        pass
