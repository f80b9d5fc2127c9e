"""A keyword of another library's attention is refused in a sentence that says what to write, and what it says is the same thing."""

import re

import pytest
import torch
from torch.nn import functional

import overt
from overt.attention import keywords
from overt.errors import KindError

x = torch.randn(2, 3, 4)


def refusal(call=overt.attend, **unknown):
    inputs = (x, x) if call is overt.summarize else (x, x, x)
    with pytest.raises(KindError) as caught:
        call(*inputs, **unknown)
    assert isinstance(caught.value, TypeError)
    return caught.value


@pytest.mark.parametrize("call", [overt.attend, overt.steps, overt.summarize, overt.plan])
def test_every_call_says_what_to_write(call):
    error = refusal(call, is_causal=True)
    assert str(error) == (
        "Expected score, mask, bias and normalizer as the arguments of attention, got is_causal=True. "
        "Fix: write mask=overt.Causal(offset=0), which is aligned at the start as torch's is_causal is."
    )


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("is_causal", False, "leave it out"),
        ("attn_mask", torch.zeros(3, 3), "write bias=attn_mask, which is added to the scores"),
        ("attn_mask", torch.ones(3, 3) > 0, "write mask=attn_mask where True means may attend"),
        ("attn_mask", None, "leave it out"),
        ("key_padding_mask", x[..., 0] > 0, r"write mask=overt.masks.from_padding\(key_padding_mask\)"),
        ("attention_mask", x[..., 0] > 0, r"write mask=overt.masks.from_attention_mask\(attention_mask\)"),
        ("scale", 0.5, r"write score=overt.Dot\(scale=0.5\)"),
        ("softmax_scale", 0.5, r"write score=overt.Dot\(scale=0.5\)"),
        ("softcap", 30.0, r"write score=overt.Dot\(softcap=30.0\)"),
        ("enable_gqa", True, "leave it out: fewer heads"),
        ("need_weights", True, r"call overt.steps\(…\).weights"),
        ("need_weights", False, "leave it out"),
        ("average_attn_weights", True, r"call overt.steps\(…\).weights.mean\(-3\)"),
        ("dropout_p", 0.1, "write dropout=0.1"),
        ("block_mask", object(), "write mask= "),
        ("score_mod", abs, "write score= "),
        ("return_aux", True, r"call overt.attend\(…, return_lse=True\)"),
        ("causal", True, r"write mask=overt.Causal\(\), "),
        ("window_size", (3, 0), r"write mask=overt.Window\(before, after\)"),
        ("alibi_slopes", torch.ones(2), r"write bias=overt.ALiBi\(alibi_slopes\)"),
        ("normaliser", overt.Sparsemax(), "write normalizer="),
        ("biases", torch.zeros(3, 3), "write bias="),
        ("colour", "red", "leave colour out"),
    ],
)
def test_each_keyword_has_its_fix(name, value, fix):
    assert re.match(fix, refusal(**{name: value}).fix)


def test_several_keywords_are_answered_in_one_error():
    error = refusal(scale=0.5, dropout_p=0.1)
    assert error.got == "scale=0.5, dropout_p=0.1"
    assert error.fix == "scale: write score=overt.Dot(scale=0.5); dropout_p: write dropout=0.1"


def test_what_the_fixes_say_is_what_torch_computes():
    query, padding = torch.randn(2, 2, 5, 4), torch.zeros(2, 3, dtype=torch.bool)
    key, value, numbers = torch.randn(2, 2, 3, 4), torch.randn(2, 2, 3, 4), torch.randn(5, 3)
    padding[0, 2] = True
    sdpa = functional.scaled_dot_product_attention
    pairs = [
        (sdpa(query, key, value, is_causal=True), overt.attend(query, key, value, mask=overt.Causal(offset=0))),
        (sdpa(query, key, value, attn_mask=numbers > 0), overt.attend(query, key, value, mask=numbers > 0)),
        (sdpa(query, key, value, attn_mask=numbers), overt.attend(query, key, value, bias=numbers)),
        (sdpa(query, key, value, scale=0.3), overt.attend(query, key, value, score=overt.Dot(scale=0.3))),
        (sdpa(query, key[:, :1], value[:, :1], enable_gqa=True), overt.attend(query, key[:, :1], value[:, :1])),
        (
            sdpa(query, key, value, attn_mask=~padding[:, None, None]),
            overt.attend(query, key, value, mask=overt.masks.from_padding(padding)),
        ),
    ]
    for torchs, ours in pairs:
        torch.testing.assert_close(torch.nan_to_num(torchs), ours)


def test_every_name_in_a_fix_exists():
    for fix in keywords.FIXES.values():
        for name in re.findall(r"overt\.([\w.]+\w)", fix):
            value = overt
            for part in name.split("."):
                value = getattr(value, part)
