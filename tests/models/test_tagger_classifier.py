"""Tagger and Classifier, and what reads for them: recurrence, recurrence with context, self-attention in its place."""

import pytest
import torch

from overt.errors import InputError, KindError
from overt.layers import AttentionPool, Sinusoidal
from overt.models import Classifier, Tagger

WAYS = {
    "lstm": {},
    "gru, two layers": {"encoder": "gru", "layers": 2},
    "rnn with c": {"encoder": "rnn", "self_attention": "additive"},
    "convolution": {"encoder": "convolution"},
    "convolution with c": {"encoder": "convolution", "self_attention": "dot"},
    "attention": {"encoder": "attention"},
    "attention with places": {"encoder": "attention", "self_attention": "general", "positions": "sinusoidal"},
    "words alone": {"encoder": "embeddings"},
    "nothing learned": {"encoder": "embeddings", "self_attention": "plain"},
    "transformer": {"encoder": "transformer", "heads": 2, "positions": "rotary"},
}
WORDS = 12


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


def tagger(**options):
    torch.manual_seed(0)
    return Tagger(WORDS, 5, 8, **options).double().eval()


def classifier(**options):
    torch.manual_seed(0)
    return Classifier(WORDS, 3, 8, **options).double().eval()


def ids(*shape, seed=1):
    return torch.randint(2, WORDS, shape, generator=torch.Generator().manual_seed(seed))


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


def test_a_recurrent_tagger_is_torchs_own_lstm_between_two_matrices():
    model, tokens = tagger(embedding=6), ids(2, 5)
    lstm = torch.nn.LSTM(6, 8, batch_first=True, bidirectional=True).double()
    lstm.load_state_dict(model.reader.layer.state_dict())
    states, _ = lstm(model.reader.embedding.weight[tokens])
    close(model(tokens), states @ model.output.weight.T + model.output.bias)


def test_with_self_attention_the_tags_are_read_from_h_and_c():
    model, tokens = tagger(self_attention="additive"), ids(5)
    h, _ = model.reader.layer.layer(model.reader.embedding.weight[tokens][None])
    scoring = model.reader.layer.attention.scoring
    scores = torch.tanh(scoring.query(h[0])[:, None] + scoring.key(h[0])[None]) @ scoring.weight  # (n, n)
    c = scores.softmax(-1) @ h[0]
    close(model(tokens[None])[0], model.output(torch.cat([h[0], c], dim=-1)))


def test_plain_attention_learns_nothing_and_mixes_by_dot_products():
    model, tokens = classifier(encoder="embeddings", self_attention="plain"), ids(5)
    x = model.reader.embedding.weight[tokens]
    c = (x @ x.T).softmax(-1) @ x
    close(model(tokens[None])[0], model.output(torch.cat([x, c], dim=-1).mean(0)))
    assert {name for name, _ in model.named_parameters()} == {"reader.embedding.weight", "output.weight", "output.bias"}


def test_learned_attention_has_queries_keys_and_values():
    attention = tagger(encoder="attention").reader.layer.attention
    assert {name for name, _ in attention.named_parameters()} == {"scoring.query.weight", "scoring.key.weight", "value.weight"}


def test_a_padded_batch_is_each_text_alone(way):
    tokens, lengths = ids(3, 6), [6, 2, 4]
    tags, classes = tagger(**way), classifier(**way)
    tagged, classed = tags(tokens, lengths=lengths), classes(tokens, lengths=lengths)
    for row, length in enumerate(lengths):
        close(tagged[row, :length], tags(tokens[row : row + 1, :length])[0])
        close(classed[row], classes(tokens[row : row + 1, :length])[0])


@pytest.mark.parametrize("pool", ["mean", "max", "attention"])
def test_a_pool_sees_no_padding(pool):
    model, tokens = classifier(pool=pool), ids(2, 6)
    states = model.reader(tokens[1:, :4])
    expected = {"mean": states.mean(1), "max": states.amax(1)}
    if pool == "attention":
        expected[pool] = model.pool(states)
    close(model.states(tokens, lengths=[6, 4])[1:], expected[pool])


@pytest.mark.parametrize("pool", ["mean", "max", "attention"])
def test_a_text_of_no_words_is_a_vector_of_zeros(pool):
    model, tokens = classifier(pool=pool, self_attention="dot"), ids(2, 6)
    states = model.states(tokens, lengths=[6, 0])
    assert states[0].any()
    assert not states[1].any()


def test_words_told_by_their_parts_are_the_sum_of_them():
    model, tokens = tagger(), ids(2, 5, 3)
    close(model.reader.layer(model.reader.embedding.weight[tokens].sum(2))[0], model.states(tokens))


def test_positions_are_added_to_the_words_as_large_as_these_are_at_first():
    model, tokens = tagger(encoder="embeddings", positions="sinusoidal"), ids(2, 5)
    words = model.reader.embedding.weight[tokens]
    close(model.states(tokens), words + 0.1 * Sinusoidal(8)(torch.zeros_like(words)))


def test_weights_are_those_of_each_attention(way):
    model, tokens = tagger(**way), ids(2, 6)
    result = model.weights(tokens, lengths=[6, 4])["encoder"]
    heads = 2 if way.get("encoder") == "transformer" else 1
    expected = (
        [] if not (way.get("self_attention") or way.get("encoder") in {"attention", "transformer"}) else [(2, heads, 6, 6)]
    )
    assert [weights.shape for weights in result] == expected
    for weights in result:
        assert not weights[1, :, :, 4:].any()
        close(weights[1, :, :4].sum(-1), torch.ones(heads, 4).double())


def test_the_weights_of_a_pool_make_its_vector():
    model, tokens = classifier(pool="attention"), ids(2, 6)
    assert isinstance(model.pool, AttentionPool)
    [weights] = model.weights(tokens, lengths=[6, 4])["pool"]
    close(torch.einsum("bn,bnd->bd", weights, model.reader(tokens, lengths=[6, 4])), model.states(tokens, lengths=[6, 4]))


@pytest.mark.parametrize("make", [tagger, classifier])
def test_the_config_builds_the_same_shape(make, way):
    model, tokens = make(**way), ids(2, 6)
    second = type(model)(**model.config).double().eval()
    second.load_state_dict(model.state_dict())
    close(second(tokens), model(tokens))


@pytest.mark.parametrize("make", [tagger, classifier])
def test_every_parameter_learns(make, way):
    model = make(**way)
    model(ids(2, 6)).square().sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"encoder": "cnn"},
            "encoder to be one of 'rnn', 'gru', 'lstm', 'convolution', 'attention', 'embeddings', 'transformer', got 'cnn'",
        ),
        ({"positions": "rotary"}, "positions to be one of None, 'sinusoidal', got 'rotary'"),
        ({"self_attention": "product"}, "score as one of additive, concat, general, dot, cosine, gaussian"),
        ({"encoder": "transformer", "self_attention": "dot"}, "no embedding and self_attention beside a Transformer"),
        ({"dropout": -0.1}, "dropout to be a probability, got -0.1"),
        ({"layers": 0}, "layers of a model of at least 1, got 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, said):
    with pytest.raises(InputError, match="^Expected " + said):
        tagger(**options)


def test_a_pool_that_is_not_known_is_refused():
    with pytest.raises(InputError, match="pool to be one of 'mean', 'max', 'attention', got 'last'"):
        classifier(pool="last")


def test_inputs_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="token ids of tokens from 0 to 11"):
        tagger()(ids(2, 6) + 8)
    with pytest.raises(KindError, match="Expected tokens as token ids"):
        tagger()(ids(2, 6).float())
    with pytest.raises(InputError, match="lengths from 0 to 6, the number of positions, got 3 to 7"):
        classifier()(ids(2, 6), lengths=[3, 7])
    with pytest.raises(InputError, match=r"Expected tokens as token ids \(B, n\)"):
        tagger(encoder="transformer")(ids(2, 6, 3))
