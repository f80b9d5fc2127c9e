"""The recipes of docs/how-to/recipes.md equal their papers' formulas, written here in float64 with all pairs at once."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import overt

PAGE = Path(__file__).parents[3] / "docs/how-to/recipes.md"


@pytest.fixture(scope="module")
def recipes() -> dict[str, Any]:
    functions: dict[str, Any] = {}
    for code in re.findall(r'```python exec="1"[^\n]*\n(.*?)```', PAGE.read_text(), flags=re.DOTALL):
        exec(code, functions)
    return functions


def randoms(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]


def weights(query, key, allowed=None):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    return torch.softmax(scores if allowed is None else scores.masked_fill(~allowed, -torch.inf), dim=-1)


def causal(queries, keys):
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def same(result, wanted, inputs):
    torch.testing.assert_close(result, wanted)
    upstream = torch.randn_like(wanted)
    for one, other in zip(*(torch.autograd.grad(of, inputs, upstream) for of in (result, wanted)), strict=True):
        torch.testing.assert_close(one, other)


def test_every_recipe_is_at_most_ten_lines():
    code = "\n".join(re.findall(r'```python exec="1"[^\n]*\n(.*?)```', PAGE.read_text(), flags=re.DOTALL))
    bodies = re.findall(r"^def (\w+)\(.*?\n((?:    .*\n)+)", code, flags=re.MULTILINE)
    assert {name for name, _ in bodies} == {"merge", "cascade", "with_sink", "softmax_off_by_one", "differential", "moba"}
    assert {name for name, body in bodies if len(body.splitlines()) > 9} == set()


def test_merging_leaves_rows_without_keys_zero_and_finite(recipes):
    query, key, value = inputs = randoms((2, 5, 4), (2, 12, 4), (2, 12, 3))
    allowed = torch.rand(5, 12, generator=torch.Generator().manual_seed(1)) < 0.5
    allowed[0], allowed[1, :6], allowed[2, 6:] = False, False, False
    spans = [slice(0, 6), slice(6, 12)]
    parts = [overt.attend(query, key[:, s], value[:, s], mask=allowed[:, s], return_lse=True) for s in spans]
    whole = overt.attend(query, key, value, mask=allowed, return_lse=True)
    same(recipes["merge"](*parts)[0], whole[0], inputs)
    torch.testing.assert_close(recipes["merge"](*parts)[1], whole[1])


def test_a_cascade_attends_to_prefix_and_suffix(recipes):
    query, prefix_key, prefix_value, key, value = inputs = randoms(
        (3, 2, 4, 5), (2, 9, 5), (2, 9, 5), (3, 2, 6, 5), (3, 2, 6, 5)
    )
    keys = torch.cat([prefix_key.expand(3, -1, -1, -1), key], dim=-2)
    values = torch.cat([prefix_value.expand(3, -1, -1, -1), value], dim=-2)
    same(recipes["cascade"](*inputs), weights(query, keys, causal(4, 15)) @ values, inputs)


def test_a_sink_takes_its_share(recipes):
    query, key, value, sink = inputs = randoms((2, 3, 6, 4), (2, 3, 8, 4), (2, 3, 8, 5), (3,))
    scores = query @ key.mT / 2
    extended = torch.cat([scores, sink[:, None, None].expand(2, 3, 6, 1)], dim=-1)
    same(recipes["with_sink"](*inputs), torch.softmax(extended, dim=-1)[..., :-1] @ value, inputs)
    torch.testing.assert_close(
        recipes["with_sink"](*inputs), overt.attend(query, key, value, normalizer=overt.Softmax(sink=sink))
    )


def test_softmax_off_by_one_adds_one_to_the_sum(recipes):
    query, key, value = inputs = randoms((2, 6, 4), (2, 8, 4), (2, 8, 5))
    exponentials = torch.exp(query @ key.mT / 2)
    same(recipes["softmax_off_by_one"](*inputs), exponentials / (1 + exponentials.sum(-1, keepdim=True)) @ value, inputs)


def test_differential_attention_is_the_difference_of_two(recipes):
    query, key, value, strength = inputs = randoms((2, 3, 7, 8), (2, 3, 7, 8), (2, 3, 7, 6), (3,))
    maps = [weights(query[..., part], key[..., part], causal(7, 7)) for part in (slice(0, 4), slice(4, 8))]
    difference = (maps[0] - strength[:, None, None] * maps[1]) @ value
    epsilon = torch.finfo(torch.float64).eps
    wanted = 0.2 * difference / (difference.square().mean(-1, keepdim=True) + epsilon).sqrt()
    same(recipes["differential"](*inputs), wanted, inputs)


@pytest.mark.parametrize("top", [1, 2, 3])
def test_mixture_of_block_attention_selects_blocks_as_its_paper_does(recipes, top):
    query, key, value = inputs = randoms((1, 2, 20, 6), (1, 2, 20, 6), (1, 2, 20, 6))
    size, allowed = 4, torch.zeros(1, 2, 20, 20, dtype=torch.bool)
    for head in range(2):
        for token in range(20):
            current = token // size
            means = key.detach()[0, head].unflatten(0, (-1, size)).mean(1)
            scores = {block: float(query.detach()[0, head, token] @ means[block]) for block in range(current)}
            chosen = [current, *sorted(scores, key=scores.__getitem__, reverse=True)[: top - 1]]
            for block in chosen:
                allowed[0, head, token, block * size : (block + 1) * size] = True
    same(recipes["moba"](*inputs, size, top), weights(query, key, allowed & causal(20, 20)) @ value, inputs)
