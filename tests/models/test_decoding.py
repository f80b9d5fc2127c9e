"""Greedy, drawn and beam search, each beside what it is by definition: all texts of a tiny vocabulary, written out."""

import itertools

import pytest
import torch

from overt.errors import InputError
from overt.models import LanguageModel, Seq2Seq, Transformer, beam_search, greedy_search, sample
from overt.models.decoding import filter_probabilities

START, END, WORDS = 1, 2, 5


def translator(seed=0, words=WORDS):
    torch.manual_seed(seed)
    model = Transformer(words, words, 8, 2, 1, 1, 16, tied="all", dropout=0.5)
    torch.nn.init.normal_(model.output.weight)  # so that texts differ in probability
    return model.double()


def recurrent(seed=0, words=WORDS):
    torch.manual_seed(seed)
    model = Seq2Seq(words, words, 8)
    torch.nn.init.normal_(model.output.weight)
    return model.double()


def language_model(seed=0):
    torch.manual_seed(seed)
    model = LanguageModel(WORDS, 8, 2, 1, 16, positions="rotary")
    torch.nn.init.normal_(model.output.weight)
    return model.double()


def chances(model, source, text):
    """The log probability of each token of a text and of its end, by one pass without caches."""
    model.eval()
    with torch.no_grad():
        if isinstance(model, LanguageModel):
            scores = model(torch.tensor([[*source, *text]]))[0, len(source) - 1 :]
        else:
            scores = model(torch.tensor([source]), torch.tensor([[START, *text]]))[0]
    return scores.log_softmax(-1)[range(len(text) + 1), [*text, END]]


def everything(model, source, longest, length_penalty):
    """All texts of at most `longest` tokens with their scores, best first."""
    words = [word for word in range(WORDS) if word != END]
    texts = [list(text) for length in range(longest + 1) for text in itertools.product(words, repeat=length)]
    scored = [(text, chances(model, source, text).sum().item() / (len(text) + 1) ** length_penalty) for text in texts]
    return sorted(scored, key=lambda each: -each[1])


SOURCES = [[3, 4, 1], [4, 3]]
PADDED, LENGTHS = torch.tensor([[3, 4, 1], [4, 3, 0]]), torch.tensor([3, 2])


@pytest.mark.each_value
@pytest.mark.parametrize("make", [translator, recurrent, language_model])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
def test_a_beam_that_holds_all_texts_finds_them_all_in_order(make, length_penalty):
    model = make()
    result = beam_search(model, PADDED, source_lengths=LENGTHS, size=85, best=85, longest=3, length_penalty=length_penalty)
    for source, texts in zip(SOURCES, result, strict=True):
        expected = everything(model, source, 3, length_penalty)
        assert len(expected) == 85  # 1 + 4 + 16 + 64
        assert [text.tokens for text in texts] == [text for text, _ in expected]
        assert [text.score for text in texts] == pytest.approx([score for _, score in expected], abs=1e-5)


def plain_beam(model, source, size, longest, length_penalty):
    """Beam search over one sentence, a text at a time."""
    live, ended = [([], 0.0)], []
    for length in range(longest + 1):
        words = [END] if length == longest else range(WORDS)
        grown = []
        for text, total in live:
            for word in words:
                tokens = text if word == END else [*text, word]
                gain = chances(model, source, tokens)[length if word == END else len(text)].item()
                grown.append((tokens, total + gain, word == END))
        remaining = sorted(grown, key=lambda each: -each[1])[: size - len(ended)]
        ended += [(text, total / (length + 1) ** length_penalty) for text, total, over in remaining if over]
        live = [(text, total) for text, total, over in remaining if not over]
        if not live:
            break
    return sorted(ended, key=lambda each: -each[1])


@pytest.mark.parametrize("make", [translator, recurrent, language_model])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.few_cases(3)
def test_a_narrow_beam_is_the_plain_search_sentence_by_sentence(make, size):
    model = make(seed=1)
    result = beam_search(model, PADDED, source_lengths=LENGTHS, size=size, best=size, longest=6)
    for source, texts in zip(SOURCES, result, strict=True):
        expected = plain_beam(model, source, size, 6, 1.0)
        assert [text.tokens for text in texts] == [tokens for tokens, _ in expected]
        assert [text.score for text in texts] == pytest.approx([score for _, score in expected], abs=1e-5)


@pytest.mark.parametrize("make", [translator, recurrent, language_model])
def test_greedy_takes_the_likeliest_word_each_time(make):
    model = make(seed=2)
    for source, result in zip(SOURCES, greedy_search(model, PADDED, source_lengths=LENGTHS, longest=6), strict=True):
        text: list[int] = []
        while len(text) < 6:
            each = [chances(model, source, text if word == END else [*text, word])[len(text)].item() for word in range(WORDS)]
            word = each.index(max(each))
            if word == END:
                break
            text.append(word)
        assert result.tokens == text
        assert result.score == pytest.approx(chances(model, source, text).sum().item(), abs=1e-5)


def test_the_best_of_a_beam_is_at_least_as_likely_as_the_greedy_text():
    model = translator(seed=3)
    best = beam_search(model, PADDED, source_lengths=LENGTHS, size=85, length_penalty=0.0, longest=3)
    for [text], other in zip(best, greedy_search(model, PADDED, source_lengths=LENGTHS, longest=3), strict=True):
        assert text.score >= other.score - 1e-9


def test_a_beam_of_one_is_greedy():
    model = translator(seed=4, words=50)
    source = torch.randint(3, 50, (6, 5), generator=torch.Generator().manual_seed(0))
    result = beam_search(model, source, size=1, length_penalty=0.0)
    assert [text.tokens for [text] in result] == [text.tokens for text in greedy_search(model, source)]


def test_a_larger_length_penalty_prefers_longer_texts():
    model = translator(seed=5)
    lengths = [
        len(beam_search(model, PADDED[:1], size=85, longest=3, length_penalty=penalty)[0][0].tokens)
        for penalty in (0.0, 1.0, 4.0)
    ]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


@pytest.mark.parametrize("write", [greedy_search, beam_search])
def test_a_row_is_written_as_if_it_were_alone(write):
    model = translator(seed=6, words=30)
    source = torch.randint(3, 30, (5, 6), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([6, 1, 4, 2, 5])
    together = write(model, source, source_lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        [alone] = write(model, source[row : row + 1, :length])
        pairs = zip(together[row], alone, strict=True) if write is beam_search else [(together[row], alone)]
        for result, wanted in pairs:
            assert result.tokens == wanted.tokens
            assert result.score == pytest.approx(wanted.score, abs=1e-5)


def never_ending(words=WORDS):
    """A translator that gives the end no chance: its scores are all 0, the end's is −1000."""

    class Endless(Transformer):
        def step(self, tokens, memory):
            return torch.zeros_like(super().step(tokens, memory)).index_fill(-1, torch.tensor([END]), -1000.0)

    return Endless(words, words, 8, 2, 1, 1, 16)


@pytest.mark.parametrize("write", [greedy_search, sample, beam_search])
def test_a_text_is_at_most_so_long_and_then_pays_for_its_end(write):
    for longest, expected in ((0, [0, 0]), (4, [4, 4]), (None, [16, 14])):
        result = write(never_ending(), PADDED, source_lengths=LENGTHS, longest=longest)
        texts = [text for [text] in result] if write is beam_search else result
        assert [len(text.tokens) for text in texts] == expected
        assert all(text.score < -1000 / 20 for text in texts)


def test_what_is_drawn_has_the_probability_that_the_model_gives_it():
    model, draws = translator(seed=7), 20_000
    expected = everything(model, SOURCES[0], 1, 0.0)
    result = sample(model, PADDED[:1].expand(draws, -1), longest=1, generator=torch.Generator().manual_seed(0))
    for tokens, score in expected:
        p = torch.tensor(score).exp().item()  # a text of one token must end, whatever that costs
        chance = p if not tokens else chances(model, SOURCES[0], tokens)[0].exp().item()
        share = sum(text.tokens == tokens for text in result) / draws
        assert abs(share - chance) < 5 * (chance * (1 - chance) / draws) ** 0.5 + 1e-9


def test_temperature_sharpens_what_is_drawn_from():
    model, draws = translator(seed=7), 5_000
    likeliest_word = chances(model, SOURCES[0], greedy_search(model, PADDED[:1])[0].tokens)[0].exp().item()
    first = greedy_search(model, PADDED[:1], longest=1)[0].tokens
    shares = []
    for temperature in (0.5, 1.0, 2.0):
        generator = torch.Generator().manual_seed(0)
        result = sample(model, PADDED[:1].expand(draws, -1), longest=1, temperature=temperature, generator=generator)
        shares.append(sum(text.tokens == first for text in result) / draws)
    assert shares[0] > shares[1] > shares[2]
    assert shares[1] == pytest.approx(likeliest_word, abs=0.04)


def test_a_drawn_texts_score_is_the_models_own_whatever_it_was_drawn_from():
    model = translator(seed=8)
    for text in sample(model, PADDED[:1].expand(20, -1), temperature=3.0, top_k=3, longest=4):
        assert text.score == pytest.approx(chances(model, SOURCES[0], text.tokens).sum().item(), abs=1e-5)


def test_a_generator_decides_what_is_drawn():
    model = translator(seed=9, words=50)
    first, second, other = (sample(model, PADDED, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_top_k_and_top_p_leave_only_the_likeliest():
    inputs = torch.tensor([[0.1, 0.4, 0.3, 0.2], [0.25, 0.25, 0.25, 0.25]])
    torch.testing.assert_close(
        filter_probabilities(inputs, top_k=2), torch.tensor([[0.0, 0.4, 0.3, 0.0], [0.25, 0.25, 0.0, 0.0]])
    )
    torch.testing.assert_close(
        filter_probabilities(inputs, top_p=0.65), torch.tensor([[0.0, 0.4, 0.3, 0.0], [0.25, 0.25, 0.25, 0.0]])
    )
    torch.testing.assert_close(filter_probabilities(inputs, top_k=1, top_p=0.9)[0], torch.tensor([0.0, 0.4, 0.0, 0.0]))
    torch.testing.assert_close(filter_probabilities(inputs, top_p=1e-9).count_nonzero(-1), torch.tensor([1, 1]))
    assert torch.equal(filter_probabilities(inputs, top_k=9, top_p=1.0), inputs)


@pytest.mark.parametrize("write", [greedy_search, sample, beam_search])
def test_dropout_is_off_while_writing_and_on_again_after_it(write):
    model = translator().train()
    options = {"generator": torch.Generator().manual_seed(0)} if write is sample else {}
    first = write(model, PADDED, **options)
    options = {"generator": torch.Generator().manual_seed(0)} if write is sample else {}
    assert first == write(model, PADDED, **options)
    assert model.training


@pytest.mark.parametrize("write", [greedy_search, sample, beam_search])
def test_no_rows_give_no_texts(write):
    assert write(translator(), torch.empty(0, 3, dtype=torch.long)) == []


@pytest.mark.parametrize("write", [greedy_search, beam_search])
def test_a_model_that_scores_nan_is_refused(write):
    model = translator()
    torch.nn.init.constant_(model.output.weight, torch.nan)
    with pytest.raises(InputError, match="a number as the model.s score of each word, got NaN"):
        write(model, PADDED)


@pytest.mark.parametrize(
    ("write", "options", "message"),
    [
        (beam_search, {"size": 0}, "size to be a whole number of at least 1, got 0"),
        (beam_search, {"best": 6}, "best of at most size, got best=6, size=5"),
        (greedy_search, {"longest": -1}, "longest to be a whole number of at least 0, got -1"),
        (sample, {"temperature": 0.0}, "temperature to be a number above 0, got 0.0"),
        (sample, {"top_k": 0}, "top_k to be a whole number of at least 1, got 0"),
        (sample, {"top_p": -0.5}, "top_p to be a number above 0, got -0.5"),
    ],
)
def test_a_setting_that_is_none_is_refused(write, options, message):
    with pytest.raises(InputError, match=message):
        write(translator(), PADDED, **options)


def test_a_prompt_of_no_tokens_is_refused():
    with pytest.raises(InputError, match="a prompt of at least one token, got an empty prompt"):
        greedy_search(language_model(), PADDED, source_lengths=torch.tensor([3, 0]))
