"""Seq2Seq: a recurrent translator with one context vector or with attention."""

import pytest
import torch

from overt.errors import InputError, KindError
from overt.lens import record
from overt.models import Seq2Seq, beam_search, sample

WAYS = {
    "bottleneck": {"attention": None},
    "previous": {},
    "current": {"score_with": "current"},
    "both": {"score_with": "both"},
    "lstm": {"layer": "lstm", "layers": 2},
    "lstm bottleneck": {"layer": "lstm", "layers": 2, "attention": None},
    "one way": {"bidirectional": False, "score_with": "current", "layer": "lstm"},
    "self-attention": {"self_attention": "additive"},
    "dot": {"attention": "dot", "tied": "target"},
}
SOURCE, TARGET = 11, 13


def model(**options):
    torch.manual_seed(0)
    return Seq2Seq(SOURCE, TARGET, 8, **options).double().eval()


def ids(*shape, words=SOURCE, seed=1):
    return torch.randint(4, words, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


def written_out(translator, source, target):
    """The formula of the class, for one sentence, with torch's own cells: GRU, additive."""
    embed = lambda embedding, word: embedding.table.weight[word] * embedding.table.embedding_dim**0.5  # noqa: E731
    states, last = translator.encoder(torch.stack([embed(translator.source_embedding, word) for word in source])[None])
    h, cell = states[0], torch.nn.GRUCell(translator.decoder.input_size, 8).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in translator.decoder.state_dict().items()})
    scoring = translator.attention.scoring
    s, rows = torch.tanh(translator.first_state(torch.cat([last[0, 0], last[1, 0]]))), []

    def attended(s):
        e = torch.stack([scoring.weight @ torch.tanh(scoring.query.weight @ s + scoring.key.weight @ state) for state in h])
        return e.softmax(0) @ h

    c = torch.zeros(16).double()
    for word in target:
        y = embed(translator.target_embedding, word)
        c = attended(s) if translator.score_with == "previous" else c
        s = cell((y if translator.score_with == "current" else torch.cat([y, c]))[None], s[None])[0]
        c = c if translator.score_with == "previous" else attended(s)
        rows.append(translator.output(torch.tanh(translator.readout(torch.cat([y, s, c])))))
    return torch.stack(rows)


@pytest.mark.parametrize("asks", ["previous", "current", "both"])
def test_it_is_the_formula_written_out(asks):
    translator, source, target = model(score_with=asks), ids(6), ids(5, words=TARGET)
    close(translator(source[None], target[None])[0], written_out(translator, source, target))


def test_the_bottleneck_is_one_vector_at_every_step():
    translator, source = model(attention=None), ids(1, 6)
    _, last = translator.encoder(translator.source_embedding(source))
    memory = translator.start(source)
    close(memory.source, torch.cat([last[0], last[1]], dim=-1))
    translator.step(ids(1, words=TARGET), memory)
    close(memory.source, torch.cat([last[0], last[1]], dim=-1))


def test_steps_give_what_the_whole_pass_gives(way):
    translator, source, target = model(**way), ids(3, 6), ids(3, 5, words=TARGET)
    lengths = torch.tensor([6, 2, 4])
    memory = translator.start(source, source_lengths=lengths)
    steps = torch.stack([translator.step(target[:, i], memory) for i in range(5)], dim=1)
    close(steps, translator(source, target, source_lengths=lengths))


def test_a_padded_batch_is_each_sentence_alone(way):
    translator, source, target = model(**way), ids(3, 6), ids(3, 5, words=TARGET)
    lengths, target_lengths = [6, 2, 4], [3, 5, 1]
    whole = translator(source, target, source_lengths=lengths, target_lengths=target_lengths)
    for row, (read, written) in enumerate(zip(lengths, target_lengths, strict=True)):
        close(whole[row, :written], translator(source[row : row + 1, :read], target[row : row + 1, :written])[0])


def test_what_padding_holds_changes_nothing_and_learns_nothing(way):
    translator, source, target = model(**way), ids(2, 6), ids(2, 5, words=TARGET)
    other = source.clone()
    source[1, 3:], other[1, 3:] = 0, 1
    outputs, gradients = [], []
    for inputs in (source, other):
        translator.zero_grad()
        scores = translator(inputs, target, source_lengths=[6, 3])
        scores.square().sum().backward()
        outputs.append(scores)
        gradients.append(translator.source_embedding.table.weight.grad)
    close(outputs[0], outputs[1])
    assert not gradients[0][:2].any()
    assert not gradients[1][:2].any()


def test_blanked_states_follow_a_targets_end():
    states = model().states(ids(2, 6), ids(2, 5, words=TARGET), target_lengths=[5, 2])
    assert states[1, :2].all()
    assert not states[1, 2:].any()


def test_no_word_sees_what_comes_after_it(way):
    translator, source, target = model(**way), ids(2, 6), ids(2, 5, words=TARGET)
    changed = target.clone()
    changed[:, 3] = 1
    before, after = translator(source, target), translator(source, changed)
    close(after[:, :3], before[:, :3])
    assert not torch.allclose(after[:, 3:], before[:, 3:])


def test_reordered_rows_go_on_from_where_they_were(way):
    translator, source, target = model(**way), ids(2, 6), ids(3, 4, words=TARGET)
    memory = translator.start(source, source_lengths=[6, 3])
    memory.reorder([1, 0, 1])
    for i in range(2):
        translator.step(target[:, i], memory)
    memory.reorder(torch.tensor([2, 1, 0]))  # within each sentence, as beams move
    first = torch.stack([target[2], target[1], target[0]])
    first[:, 2:] = target[:, 2:]
    for i in range(2, 4):
        result = translator.step(target[:, i], memory)
    close(result, translator(source[[1, 0, 1]], first, source_lengths=[3, 6, 3])[:, 3])


def test_rows_that_leave_take_their_source_with_them(way):
    translator, source, word = model(**way), ids(3, 6), ids(3, words=TARGET)
    memory = translator.start(source, source_lengths=[6, 3, 5])
    memory.reorder([2])
    close(translator.step(word[2:], memory), translator(source[2:], word[2:, None], source_lengths=[5])[:, 0])


def test_the_score_of_a_text_that_a_beam_wrote_is_its_log_probability_in_one_pass(way):
    translator, source, lengths = model(**way), ids(2, 6), torch.tensor([6, 3])
    for row, texts in enumerate(
        beam_search(translator, source, source_lengths=lengths, size=3, best=3, length_penalty=0.0, longest=4)
    ):
        for text in texts:
            target = torch.tensor([[1, *text.tokens]])
            scores = translator(source[row : row + 1, : lengths[row]], target)[0].log_softmax(-1)
            expected = sum(scores[i, word].item() for i, word in enumerate([*text.tokens, 2]))
            assert text.score == pytest.approx(expected, abs=1e-5)


def test_drawn_texts_are_those_of_the_generators_seed():
    translator, source = model(), ids(4, 6)
    first, second, other = (sample(translator, source, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_the_lens_records_each_step_of_the_decoder():
    translator = model(self_attention="additive")
    with record(translator) as recording:
        translator(ids(1, 6), ids(1, 3, words=TARGET))
    assert recording.layers == ["encoder.attention", "attention", "attention", "attention"]
    assert recording.verify().holds


def test_the_weights_are_those_that_the_decoder_used():
    for way in ({}, {"score_with": "current"}, {"score_with": "both"}):
        translator, source, target = model(**way), ids(2, 6), ids(2, 5, words=TARGET)
        read, _, _ = translator._read(source, None)
        _, contexts = translator._decoded(translator.target_embedding(target), translator.start(source))
        cross = translator.weights(source, target)["cross"][0]
        assert cross.shape == (2, 1, 5, 6)
        close(cross[:, 0] @ read, contexts)


def test_weights_of_padding_are_zero_and_the_others_sum_to_one():
    translator = model(self_attention="general")
    weights = translator.weights(ids(2, 6), ids(2, 5, words=TARGET), source_lengths=[6, 3], target_lengths=[5, 2])
    assert [weights["cross"][0].shape, weights["encoder"][0].shape] == [(2, 1, 5, 6), (2, 1, 6, 6)]
    assert not weights["cross"][0][1, :, :, 3:].any()
    assert not weights["cross"][0][1, :, 2:].any()
    close(weights["cross"][0][1, 0, :2].sum(-1), torch.ones(2).double())
    close(weights["encoder"][0][1, 0, :3].sum(-1), torch.ones(3).double())


def test_without_attention_there_are_no_weights():
    assert model(attention=None).weights(ids(2, 6), ids(2, 5, words=TARGET)) == {}


def test_every_parameter_learns(way):
    translator = model(**way)
    translator(ids(2, 6), ids(2, 5, words=TARGET)).square().sum().backward()
    assert [name for name, weight in translator.named_parameters() if weight.grad is None or not weight.grad.any()] == []


def test_the_config_builds_the_same_shape(way):
    translator = model(**way)
    second = Seq2Seq(**translator.config).double()
    second.load_state_dict(translator.state_dict())
    source, target = ids(2, 6), ids(2, 5, words=TARGET)
    close(second.eval()(source, target), translator(source, target))


def test_tied_matrices_are_one():
    shared = Seq2Seq(9, 9, 8, tied="all")
    assert shared.output.weight is shared.target_embedding.table.weight is shared.source_embedding.table.weight
    target = Seq2Seq(9, 10, 8, tied="target")
    assert target.output.weight is target.target_embedding.table.weight


def test_dropout_is_for_training_only():
    translator, source, target = model(dropout=0.5), ids(2, 6), ids(2, 5, words=TARGET)
    close(translator(source, target), translator(source, target))
    translator.train()
    assert not torch.allclose(translator(source, target), translator(source, target))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer": "rnn"}, "layer to be one of 'gru', 'lstm', got 'rnn'"),
        ({"score_with": "next"}, "score_with to be one of 'previous', 'current', 'both', got 'next'"),
        ({"tied": "both"}, "tied to be one of 'all', 'target', None, got 'both'"),
        (
            {"tied": "all"},
            "one vocabulary for both languages, for one matrix of source, target and output, got source_words=11",
        ),
        ({"attention": None, "self_attention": "dot"}, "attention where there is self_attention: without it"),
        (
            {"attention": "bahdanau"},
            "score as one of additive, concat, general, dot, cosine, gaussian, got 'bahdanau'",
        ),
        ({"width": 0}, "width of Seq2Seq of at least 1, got 0"),
        ({"dropout": 2.0}, "dropout to be a probability, got 2.0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, said):
    with pytest.raises(InputError, match="^Expected " + said.replace("[", r"\[")):
        Seq2Seq(SOURCE, TARGET, **{"width": 8} | options)


def test_inputs_that_do_not_fit_are_refused():
    translator, source, target = model(), ids(2, 6), ids(2, 5, words=TARGET)
    with pytest.raises(InputError, match="token ids of source from 0 to 10"):
        translator(source + 9, target)
    with pytest.raises(KindError, match=r"Expected target as token ids \(B, T\), got a torch.float32 tensor"):
        translator(source, target.float())
    with pytest.raises(InputError, match="lengths from 0 to 6, the number of positions, got 3 to 7"):
        translator(source, target, source_lengths=[3, 7])
    with pytest.raises(InputError, match=r"one length for each sequence, \(B,\)"):
        translator(source, target, target_lengths=[3])
