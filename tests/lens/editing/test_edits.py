"""Edits against plain modules that compute their attention by hand, with the edit written into the weights."""

import copy

import pytest
import torch
from torch import nn

import overt
from overt import lens
from overt.errors import InputError, KindError
from overt.learn import Tokenizer
from readable import HEADS, KINDS, WIDTH, Custom, alike, output_matrix, recorded, sequence, stack

SIZE = WIDTH // HEADS


def by_hand(model, x, layer, change):
    """The output of a stack whose weights (B, H, N, N) in one layer are changed by hand; the other layers run as they are."""
    recording = recorded(model, x)
    heads = [recording[layer, head] for head in range(HEADS)]
    weights = torch.stack([head.weights() for head in heads], dim=1)
    value = torch.stack([head.value for head in heads], dim=1)
    mixed = change(weights.clone()) @ value
    with torch.no_grad():
        for number, module in enumerate(model):
            x = x + output_matrix(module)(mixed.transpose(1, 2).flatten(2)) if number == layer else module(x)
    return x


def edited(model, x, edits, **options):
    with torch.no_grad(), lens.edit(model, edits, **options):
        return model(x)


def without_arc(weights, head=2, query=3, key=1):
    weights[:, head, query, key] = 0
    weights[:, head, query] /= weights[:, head, query].sum(-1, keepdim=True)
    return weights


@pytest.mark.parametrize("kind", KINDS)
def test_a_blocked_arc_has_no_weight_and_the_others_share_it(kind):
    model, x = stack(kind), sequence()
    alike(edited(model, x, lens.Edits().block((1, 2), query=3, key=1)), by_hand(model, x, 1, without_arc))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_not_edited_are_the_models_own_to_the_bit(kind):
    model, x = stack(kind, layers=1), sequence()
    with torch.no_grad():
        with lens.edit(model) as edits:
            plain = edits.scale((0, 0), 1.0) and model(x)
        with lens.edit(model, lens.Edits().block((0, 2), query=3, key=1)):
            result = model(x)
    others = [row for row in range(x.shape[1]) if row != 3]
    assert torch.equal(result[:, others], plain[:, others])
    assert not torch.equal(result[:, 3], plain[:, 3])


@pytest.mark.parametrize("kind", ["sdpa", "written out"])
def test_rows_times_keys_of_several_heads_are_blocked_together(kind):
    def change(weights):
        weights[:, :2, 3:6, :2] = 0
        weights[:, :2] /= weights[:, :2].sum(-1, keepdim=True)
        return weights

    model, x = stack(kind), sequence()
    edits = lens.Edits().block([(1, 0), (1, 1)], query=slice(3, 6), key=[0, 1])
    alike(edited(model, x, edits), by_hand(model, x, 1, change))


def test_a_blocked_key_of_every_query_is_a_deleted_one_by_the_kernels_too():
    model, x = stack(layers=1), sequence(length=150)
    result = edited(model, x, lens.Edits().block((0, None), key=7).temperature((0, None), 2.0))

    def change(weights):
        scores = weights.log() / 2
        scores[..., 7] = -torch.inf
        return scores.softmax(-1)

    alike(result, by_hand(model, x, 0, change))


@pytest.mark.parametrize("kind", KINDS)
def test_a_temperature_divides_the_scores_of_its_rows(kind):
    def change(weights):
        weights[:, 1, [0, 4]] = (weights[:, 1, [0, 4]].log() / 2).softmax(-1)
        return weights

    model, x = stack(kind), sequence()
    alike(edited(model, x, lens.Edits().temperature((0, 1), 2.0, query=[4, 0])), by_hand(model, x, 0, change))


def test_scales_multiply_and_come_together_with_other_changes():
    def change(weights):
        weights = without_arc(weights)
        weights[:, 2] *= 0.5
        return weights

    model, x = stack(), sequence()
    alike(edited(model, x, lens.Edits().block((1, 2), query=3, key=1).scale((1, 2), 0.5)), by_hand(model, x, 1, change))


def test_patterns_by_name_keep_to_the_mask():
    model, x = stack(layers=1, causal=True), sequence()
    rows = torch.arange(7)
    wanted = {
        "uniform": torch.ones(7, 7).tril() / torch.arange(1, 8)[:, None],
        "first": torch.eye(7)[torch.zeros(7, dtype=torch.long)],
        "previous": torch.eye(7)[(rows - 1).clamp(min=0)],
    }
    for pattern, weights in wanted.items():

        def change(every, weights=weights):
            every[:, 1] = weights
            return every

        alike(edited(model, x, lens.Edits().pattern((0, 1), pattern)), by_hand(model, x, 0, change))


def test_a_pattern_is_set_for_all_sequences_one_by_one_or_for_some_rows():
    model, x = stack(), sequence()
    weights = torch.rand(2, 7, 7)

    def whole(every):
        every[:, 3] = weights
        return every

    def some(every):
        every[:, 3, [2, 5]] = weights[0, :2]
        return every

    alike(edited(model, x, lens.Edits().pattern((1, 3), weights)), by_hand(model, x, 1, whole))
    alike(edited(model, x, lens.Edits().pattern((1, 3), weights[0, :2], query=[2, 5])), by_hand(model, x, 1, some))


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_another_run_takes_the_place_of_the_models_own(kind):
    model, x = stack(kind, layers=1), sequence()
    other = recorded(model, sequence(seed=5))
    plain_run = recorded(model, x)
    for part in ("output", "query", "key", "value", "weights"):
        result = edited(model, x, lens.Edits().patch((0, 2), other, part))
        parts = {name: getattr(plain_run[0, 2], name) for name in ("query", "key", "value")}
        if part in parts:
            parts[part] = getattr(other[0, 2], part)
        scores = parts["query"] @ parts["key"].mT / SIZE**0.5
        weights = other[0, 2].weights() if part == "weights" else scores.softmax(-1)
        head = other[0, 2].output if part == "output" else weights @ parts["value"]
        mixed = torch.stack([plain_run[0, number].output for number in range(HEADS)], dim=2)
        mixed[:, :, 2] = head
        with torch.no_grad():
            alike(result, x + output_matrix(model)(mixed.flatten(2)))


def test_a_patch_may_be_of_some_positions_and_of_another_head():
    model, x = stack(layers=1), sequence()
    other = recorded(model, sequence(seed=5))
    result = edited(model, x, lens.Edits().patch((0, 2), other, query=[1, 4], source=(0, 3)))
    plain_run = recorded(model, x)
    mixed = torch.stack([plain_run[0, number].output for number in range(HEADS)], dim=2)
    mixed[:, [1, 4], 2] = other[0, 3].output[:, [1, 4]]
    with torch.no_grad():
        alike(result, x + output_matrix(model)(mixed.flatten(2)))


def test_a_head_patched_from_the_same_run_changes_nothing():
    model, x = stack(), sequence()
    plain_run = recorded(model, x)
    with torch.no_grad():
        plain = model(x)
    for part in ("output", "query", "key", "value", "weights"):
        alike(edited(model, x, lens.Edits().patch((None, 1), plain_run, part)), plain)


def test_words_are_positions_of_each_sequence():
    model, x = stack(), sequence()
    tokens = [["the", "cat", "sat", "on", "the", "mat", "."], ["a", "b", "cat", "sat", "c", "d", "e"]]
    edits = lens.Edits().block((1, 2), query="sat", key="cat")

    def change(weights):
        weights[0, 2, 2, 1] = weights[1, 2, 3, 2] = 0
        weights[:, 2] /= weights[:, 2].sum(-1, keepdim=True)
        return weights

    alike(edited(model, x, edits, key_tokens=tokens), by_hand(model, x, 1, change))
    with pytest.raises(InputError, match=r"got “the” at 2 positions. Fix: write key=0 .*; key=4"):
        edited(model, x, lens.Edits().block((1, 2), query=3, key="the"), key_tokens=tokens[0])
    with pytest.raises(InputError, match="query as a word of the text, got “dog”; the tokens are: the cat"):
        edited(model, x, lens.Edits().block((1, 2), query="dog"), key_tokens=tokens[0])
    with pytest.raises(InputError, match="a word that is made of whole tokens, got “ca” inside of “cat”"):
        edited(model, x, lens.Edits().block((1, 2), query="ca"), key_tokens=tokens[0])
    with pytest.raises(KindError, match="a tokenizer, to find query='sat', got none"):
        edited(model, x, edits)


def test_the_report_says_what_was_changed_and_how_often():
    model, x = stack(), sequence()
    with torch.no_grad(), lens.edit(model) as edits:
        edits.block(head=(1, 2), query=3, key=1)
        model(x)
        model(x)
        edits.scale((0, 1), 0.5)
        assert edits.report().splitlines()[2].split() == ["scale", "0.5", "of", "L0H1", "never", "0"]
        model(x)
    assert edits.report().splitlines()[1].split() == ["block", "of", "L1H2,", "query", "3,", "key", "1", "3", "3"]


def test_a_change_that_never_happens_is_an_error_behind_the_block():
    model, x = stack(layers=2, causal=True), sequence()
    with pytest.raises(InputError, match="got block of L0H1, query 2, key 5, where the model's own mask bars these queries"):
        edited(model, x, lens.Edits().block((0, 1), query=2, key=5))
    named = r"got scale 0 of L0H1, query 20 and 1 pass without it; its calls are 0 to 1; the chosen ones have queries 0 to \d+ and keys"
    with pytest.raises(InputError, match=named):
        edited(model, x, lens.Edits().scale((0, 1), 0, query=20))
    with torch.no_grad(), pytest.raises(RuntimeError), lens.edit(model, lens.Edits().scale((9, 0), 0)):
        raise RuntimeError("an error of the block goes first")


@pytest.mark.parametrize(
    ("edits", "error", "words"),
    [
        (lambda: lens.Edits().block((0,)), KindError, r"heads as pairs \(layer, head\), at least one, got \(0,\)"),
        (lambda: lens.Edits().block((-1, 0)), InputError, r"layers and heads from 0 on, got \(-1, 0\)"),
        (lambda: lens.Edits().block((0, 0), query=1.5), KindError, "query as positions or a word of the text, got 1.5"),
        (lambda: lens.Edits().block((0, 0), key=""), InputError, "key as a word of the text, got an empty string"),
        (lambda: lens.Edits().scale((0, 0), float("nan")), InputError, "a factor as a finite number, got nan"),
        (lambda: lens.Edits().temperature((0, 0), 0), InputError, "a temperature as a finite number above 0, got 0"),
        (lambda: lens.Edits().pattern((0, 0), "last"), InputError, "one of uniform, previous, first, got 'last'"),
        (lambda: lens.Edits().pattern((0, 0), torch.ones(1, 1, 1, 1)), InputError, r"got \(1, 1, 1, 1\) torch.float32"),
        (lambda: lens.Edits().patch((0, 0), stack()), KindError, "from_ as a recording of another run, got Sequential"),
        (
            lambda: lens.Edits().patch((0, 0), recorded(stack(), sequence()), "bias"),
            InputError,
            "a part to patch, one of output",
        ),
        (
            lambda: lens.Edits().patch((0, 0), recorded(stack(), sequence()), key=1),
            InputError,
            "positions of the output, got key=",
        ),
        (
            lambda: lens.Edits().patch((0, 0), recorded(stack(), sequence(), keep="summary")),
            InputError,
            'with query, key and value, to patch the output, got one with keep="summary"',
        ),
    ],
)
def test_bad_edits_are_refused_where_they_are_written(edits, error, words):
    with pytest.raises(error, match=words):
        edits()


def test_what_does_not_fit_the_call_is_refused_with_its_shapes():
    model, x = stack(), sequence()
    with pytest.raises(InputError, match=r"the name of a module of Sequential, got 'encoder'"):
        edited(model, x, lens.Edits().scale(("encoder", 0), 0))
    with pytest.raises(InputError, match=r"heads from 0 to 3 of 1, got heads=\[4\]"):
        edited(model, x, lens.Edits().scale((1, 4), 0))
    with pytest.raises(InputError, match=r"weights of 7 rows and 7 keys, for 1, got \(3, 7\)"):
        edited(model, x, lens.Edits().pattern((1, 0), torch.rand(3, 7)))
    with pytest.raises(InputError, match=r"a recording of as many queries as 1 has, 7, got 5"):
        edited(model, x, lens.Edits().patch((1, 0), recorded(model, sequence(length=5))))
    with pytest.raises(InputError, match=r"a recording of 2 sequences, or of one, for patch output of L1H0, got 3"):
        edited(model, x, lens.Edits().patch((1, 0), recorded(model, sequence(batch=3))))
    wide = nn.MultiheadAttention(6 * HEADS, HEADS, batch_first=True).eval()
    with torch.no_grad(), lens.record(wide) as other:
        wide(*[torch.randn(2, 7, 6 * HEADS)] * 3)
    for part in ("output", "query", "value"):
        with pytest.raises(InputError, match=f"a {part} of 4 features, for patch {part} of L1H0, got 6 features"):
            edited(model, x, lens.Edits().patch((1, 0), other, part, source=(0, 0)))


def test_a_layer_that_cannot_be_edited_is_refused_where_it_runs_if_it_is_named_or_all_are():
    class Averaged(nn.Module):
        def forward(self, x):
            weights = (x @ x.mT).softmax(-1)
            return (weights[..., None] * x[:, None]).mean(-2)

    model, x = nn.Sequential(Custom(), Averaged()), sequence()
    for head in (("1", 0), None):
        with pytest.raises(InputError, match="attention of 1 that can be changed, for scale 0 of .* in an order that is not"):
            edited(model, x, lens.Edits().scale(head, 0.0))
    edited(model, x, lens.Edits().scale((0, 0), 0.0))


def test_gradients_and_dropout_are_refused_by_the_name_of_the_layer():
    model, x = stack(), sequence()
    with lens.edit(model, lens.Edits().block((0, 0), query=1, key=0)):
        assert not model(x).requires_grad
        with torch.enable_grad(), pytest.raises(InputError, match=r"a run without gradients.* got 0 under autograd"):
            model(x)
    assert torch.is_grad_enabled()
    noisy = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    with (
        torch.no_grad(),
        pytest.raises(InputError, match=r"a run without dropout, for block of L0H0.* got dropout 0.5"),
        lens.edit(noisy, lens.Edits().block((0, 0), query=1, key=0)),
    ):
        noisy(*[torch.randn(1, 5, 8)] * 3)


def test_previous_positions_of_another_sequence_are_refused():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x, y = torch.randn(1, 5, 8), torch.randn(1, 6, 8)
    with (
        torch.no_grad(),
        pytest.raises(InputError, match='pattern "previous" in attention of a sequence to itself'),
        lens.edit(attention, lens.Edits().pattern((0, 0), "previous")),
    ):
        attention(x, y, y)


def test_afterwards_the_model_is_as_before():
    model, x = stack(), sequence()
    with torch.no_grad():
        before, state = model(x), copy.deepcopy(model.state_dict())
        edited(model, x, lens.Edits().pattern(None, "uniform").block(None, query=1, key=0))
        assert torch.equal(model(x), before)
    assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
    assert overt.attention.mechanism.observers.get() == ()


def test_weights_without_scores_are_divided_again_only_if_they_sum_to_one():
    class Sigmoid(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(4, 8)

        def forward(self, x):
            query, key = self.project(x).chunk(2, -1)
            return torch.sigmoid(query @ key.mT) @ x

    torch.manual_seed(0)
    model, x = Sigmoid(), torch.randn(2, 5, 4)
    with torch.no_grad():
        query, key = model.project(x).chunk(2, -1)
        weights = torch.sigmoid(query @ key.mT)
        weights[:, 3, 1] = 0
        alike(edited(model, x, lens.Edits().block((0, 0), query=3, key=1)), weights @ x)


def test_custom_layers_are_named_in_edits():
    model, x = nn.Sequential(Custom(), Custom()).eval(), sequence()
    by_name, by_number = (edited(model, x, lens.Edits().block((layer, 1), query=3, key=0)) for layer in ("1.attention", 1))
    assert torch.equal(by_name, by_number)


class Reader(nn.Module):
    """Attention over embedded token ids."""

    def __init__(self, words):
        super().__init__()
        self.embed, self.layer = nn.Embedding(words, WIDTH), Custom()

    def forward(self, ids):
        return self.layer(self.embed(ids))


def test_a_word_of_several_tokens_is_all_of_them_and_a_repeated_one_is_refused_before_the_first_layer():
    tokenizer = Tokenizer.learn(["the small cats sat on the mats", "a cat sat"], merges=12)
    model, ids = Reader(tokenizer.words), torch.tensor([tokenizer.encode("the mats, the cats sat")])
    with torch.no_grad(), lens.record(model, tokenizer=tokenizer) as recording:
        model(ids)
    words = recording[0, 0].key_tokens[0]
    spelled = [
        number
        for number, word in enumerate(words)
        if recording.texts[0].index("cats") <= word.span[0] < len("the mats, the cats")
    ]
    assert len(spelled) > 1
    with torch.no_grad(), lens.edit(model, tokenizer=tokenizer) as edits, lens.record(model) as changed:
        edits.block(head=(0, 1), query="sat", key="cats")
        model(ids)
    weights = recording[0, 1].weights()
    row = len(words) - 1
    weights[:, row, spelled] = 0
    weights[:, row] /= weights[:, row].sum(-1, keepdim=True)
    alike(changed[0, 1].output, weights @ recording[0, 1].value)
    with pytest.raises(InputError, match="query as a word that occurs once, got “the” at 2 positions"):
        lens.effect(model, lambda: model(ids), lens.Edits().scale((0, 1), 0.0, query="the"), tokenizer=tokenizer)
    with torch.no_grad(), lens.edit(model, tokenizer=tokenizer) as edits, lens.record(model) as changed:
        edits.scale((0, 1), 0.0, query="the:2")
        model(ids)
    _, second = [number for number, word in enumerate(words) if word.strip() == "the"]
    assert changed[0, 1].output.any(-1)[0].logical_not().nonzero().flatten().tolist() == [second]


def test_weights_that_are_no_numbers_and_a_model_that_did_not_run_are_refused():
    with pytest.raises(InputError, match="weights that are finite numbers, got inf or NaN among them"):
        lens.Edits().pattern((0, 0), torch.tensor([0.5, float("nan")]))
    with (
        pytest.raises(InputError, match="and a model that did not run. Fix: run the model inside the block"),
        lens.edit(stack(), lens.Edits().scale((0, 0), 0.0)),
    ):
        pass
