"""Heads that connect labelled pairs: the planted one is result, noise is not, and every bad pair is a sentence."""

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from torch.nn import functional
from typer.testing import CliRunner

from json_schemas import validated
from overt.errors import InputError, KindError
from overt.lens import find_heads
from overt.lens.analysis.finding.measuring import competitors, pair_tasks
from overt.lens.analysis.finding.pairs import read_pairs
from overt.lens.analysis.finding.statistics import adjusted_p_values, intervals
from overt.lens.analysis.surveys.reading.encoding import TextReader

NOUNS, PRONOUNS, FILLERS = ["cat", "dog", "cow", "hen", "fox"], ["it", "them"], ["the", "saw", "and", "then", "by", "near"]
WORDS = [*NOUNS, *PRONOUNS, *FILLERS]


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(["[UNK]", *WORDS])}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


class Planted(nn.Module):
    """Three heads: one attends evenly, one from pronouns to the noun of the first kinds, one by chance."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key = nn.Embedding(len(WORDS) + 1, 12), nn.Embedding(len(WORDS) + 1, 12)
        with torch.no_grad():
            self.query.weight[:, :8] = 0
            self.key.weight[:, :8] = 0
            for number, word in enumerate(WORDS, 1):
                self.query.weight[number, 4] = 6.0 if word in PRONOUNS else 0.0
                self.key.weight[number, 4] = 6.0 if word in ("cat", "dog") else 0.0

    def forward(self, input_ids):
        query, key = (table(input_ids).unflatten(-1, (3, 4)).transpose(1, 2) for table in (self.query, self.key))
        return functional.scaled_dot_product_attention(query, key, key)


def sentences(count, seed=0):
    """Texts in which a pronoun means the cat or the dog, and another noun stands nearer as often as not."""
    draws, texts = np.random.default_rng(seed), []
    while len(texts) < count:
        key, other = draws.choice(NOUNS[:2]), draws.choice(NOUNS[2:])
        first, second = (key, other) if draws.random() < 0.5 else (other, key)
        fillers = [str(draws.choice(FILLERS[1:])) for _ in range(4)]
        text = f"the {first} {fillers[0]} {fillers[1]} the {second} {fillers[2]} {draws.choice(PRONOUNS)} {fillers[3]}"
        pronoun = text.split()[-2]
        if text not in [made[0] for made in texts]:
            texts.append((text, pronoun, str(key), [str(other)]))
    return texts


def test_the_planted_head_is_found_on_one_half_and_holds_on_the_other(tokenizer):
    result = find_heads(Planted(), sentences(60), tokenizer=tokenizer)
    best = result.heads[0]
    assert best.head == (0, 1)
    assert best.name == "L0H1"
    assert best.accuracy == 1.0
    assert best.interval == (1.0, 1.0)
    assert best.p_value < 0.01
    assert [head.head for head in result.significant] == [(0, 1)]
    assert 0.2 < result.baselines["distance"] < 0.8
    assert result.baselines["chance"] == pytest.approx(0.5)
    assert result.texts == (30, 30)
    even = next(head for head in result.heads if head.head == (0, 0))
    assert even.accuracy == 0.5  # equal weights are ½
    assert even.mass == pytest.approx(1 / 9)


def test_without_distractors_a_key_competes_with_every_other_token(tokenizer):
    result = find_heads(Planted(), [pair[:3] for pair in sentences(30)], tokenizer=tokenizer)
    assert result.heads[0].head == (0, 1)
    assert result.baselines["chance"] == pytest.approx(1 / 8)
    assert any("no distractors" in note for note in result.notes)


def test_noise_is_not_significant(tokenizer):
    torch.manual_seed(3)
    model = Planted()
    with torch.no_grad():
        for table in (model.query, model.key):
            table.weight.normal_()
    accidents = 0
    for seed in range(10):
        draws = np.random.default_rng(seed)
        pairs = [(text, query, *((key, [other]) if draws.random() < 0.5 else (other, [key])))
                 for text, query, key, [other] in sentences(40, seed)]  # fmt: skip
        accidents += bool(find_heads(model, pairs, tokenizer=tokenizer, seed=seed).significant)
    assert accidents <= 2


def test_p_values_of_many_columns_bound_the_chance_of_any_accident():
    texts, accidents = np.arange(40), 0
    for seed in range(60):
        differences = np.random.default_rng(seed).choice([-1.0, 1.0], (40, 50))
        accidents += adjusted_p_values(differences, texts, seed).min() < 0.05
    assert accidents <= 8  # 3 are expected; unadjusted it would be nearly all
    differences[:, 7] = np.abs(differences[:, 7])
    assert adjusted_p_values(differences, texts, 0).argmin() == 7


def test_intervals_draw_texts_and_not_pairs():
    values = np.repeat(np.random.default_rng(0).integers(0, 2, 25), 8)[:, None].astype(float)
    of_pairs = intervals(values, np.arange(200), 0)
    of_texts = intervals(values, np.repeat(np.arange(25), 8), 0)
    assert of_texts[1, 0] - of_texts[0, 0] > 2 * (of_pairs[1, 0] - of_pairs[0, 0])


def test_few_texts_are_said_to_be_few(tokenizer):
    result = find_heads(Planted(), sentences(6), tokenizer=tokenizer)
    assert any("no guide below 10" in note for note in result.notes)
    assert "no guide below 10" in " ".join(result.text(width=60).split())


def test_pairs_whose_key_the_mask_hides_are_counted(tokenizer):
    class Causal(Planted):
        def forward(self, input_ids):
            query, key = (table(input_ids).unflatten(-1, (3, 4)).transpose(1, 2) for table in (self.query, self.key))
            return functional.scaled_dot_product_attention(query, key, key, is_causal=True)

    pairs = [(text, key, query) for text, query, key, _ in sentences(12)] + [pair[:3] for pair in sentences(12, seed=1)]
    result = find_heads(Causal(), pairs, tokenizer=tokenizer)
    assert result.notes[0] == (
        "In 12 of 24 pairs no head gives the key any weight: the model's mask hides it, as it hides a key behind its query or outside of "
        "a window."
    )


def test_files_tables_and_json_have_the_same_pairs(tokenizer, tmp_path):
    pairs = sentences(12)
    lines = [json.dumps(dict(zip(("text", "query", "key", "distractors"), pair, strict=True))) for pair in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = [f"{text},{query},{key},{'|'.join(others)}" for text, query, key, others in pairs]
    (tmp_path / "pairs.csv").write_text("\n".join(["text,query,key,distractors", *rows]), encoding="utf-8")
    assert read_pairs(tmp_path / "pairs.jsonl") == read_pairs(tmp_path / "pairs.csv") == read_pairs(pairs)
    result = find_heads(Planted(), tmp_path / "pairs.csv", tokenizer=tokenizer)
    assert json.loads(json.dumps(result.to_dict()))["heads"][0]["name"] == result.heads[0].name
    assert next(iter(result.table()["name"])) == result.heads[0].name
    for width in (80, 40):
        assert all(len(line) <= width for line in result.text(width=width).splitlines())
    assert result.plot().get_figwidth() == pytest.approx(3.35)


def test_phrases_are_found_as_the_model_reads_them(tokenizer):
    [pair] = read_pairs([("the cat saw the dog and it", "it", "the dog", ["the cat"])])
    [task] = pair_tasks(TextReader(Planted(), tokenizer, 20), [pair])
    assert task.tokens == ((6,), (3, 4), ((0, 1),))
    assert competitors(task) == [(0, 1)]
    [pair] = read_pairs([("the cat saw the dog and it", "it", "the:2")])
    [task] = pair_tasks(TextReader(Planted(), tokenizer, 20), [pair])
    assert task.tokens.key == (3,)


def test_a_model_of_two_texts_and_no_tokenizer_are_refused(tokenizer):
    class Translator(Planted):
        def forward(self, source, target):
            return super().forward(source)

    with pytest.raises(InputError, match="reads one text, got a Translator, which is called with source, target"):
        find_heads(Translator(), sentences(12), tokenizer=tokenizer)
    with pytest.raises(KindError, match="a tokenizer, to find words in the texts, got None"):
        find_heads(Planted(), sentences(12), tokenizer=None)


def test_the_same_token_is_the_same_word_with_any_space_and_case():
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(["[UNK]", "Cat", "dog", "cat", *FILLERS])}))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    pairs = [(f"Cat saw the dog {filler} {other} cat", "cat", "Cat", ["dog"]) for filler in FILLERS for other in FILLERS[:2]]
    assert find_heads(Planted(), pairs, tokenizer=made).baselines["same token"] == 1.0


def test_words_behind_the_longest_text_are_refused_as_such(tokenizer):
    [pair] = read_pairs([(f"the cat {'and ' * 30}it", "it", "cat")])
    with pytest.raises(InputError, match="pair 1: 'it', behind the 20 tokens that the model reads. Fix: shorten the text"):
        pair_tasks(TextReader(Planted(), tokenizer, 20), [pair])


def test_a_word_that_the_tokenizer_does_not_have_is_refused_as_such(tokenizer):
    [pair] = read_pairs([("the otter saw it", "it", "otter")])
    with pytest.raises(
        InputError, match=r"pair 1: 'otter' in 'the .UNK. saw it', as the tokenizer writes the text. Fix: name words that it"
    ):
        pair_tasks(TextReader(Planted(), tokenizer, 20), [pair])


def test_tables_have_their_columns_named_and_any_usual_separator(tmp_path):
    for separator in ",;\t":
        table = "\n".join(separator.join(row) for row in [("text", "query", "key"), (TEXT, "it", "cat")])
        (tmp_path / "pairs.csv").write_text(table, encoding="utf-8")
        assert read_pairs(tmp_path / "pairs.csv") == [(TEXT, "it", "cat", ())]
    (tmp_path / "pairs.csv").write_text(f"{TEXT},it,cat\n", encoding="utf-8")
    with pytest.raises(InputError, match="the columns text, query and key, got .*whose first line is 'the cat saw"):
        read_pairs(tmp_path / "pairs.csv")


TEXT = "the cat saw the dog and it"
BAD = {
    "no pairs": ([], InputError, "at least one labelled pair, got none"),
    "a number": ([(TEXT, 6, "cat")], InputError, "as words, got pair 1 with query=6. Fix: write words of the text, and not"),
    "no key": ([{"text": TEXT, "query": "it"}], InputError, "got pair 1 with key=None"),
    "not a pair": ([TEXT, TEXT], InputError, "got str as pair 1"),
    "another word": (
        [(TEXT, "it", "cat"), ("the cow saw it", "it", "hen")],
        InputError,
        "words of the text, got pair 2: 'hen' in",
    ),
    "two of them": ([(TEXT, "it", "the")], InputError, "words that occur once, got pair 1: 'the', which occurs 2 times"),
    "overlap": ([(TEXT, "it", "the dog", ["dog"])], InputError, "pair 1, whose 'the dog' and 'dog' overlap"),
    "one text": ([(TEXT, "it", "cat"), (TEXT, "it", "dog")], InputError, "at least two texts"),
    "no list": (7, KindError, "pairs as a list, or the name of a .jsonl or .csv file, got int"),
    "distractors": ([(TEXT, "it", "cat", [4])], InputError, r"got pair 1 with distractors=\[4\]"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_pairs_are_refused_in_a_sentence(tokenizer, case):
    pairs, error, message = BAD[case]
    with pytest.raises(error, match=message):
        find_heads(Planted(), pairs, tokenizer=tokenizer)


def test_a_wrong_seed_or_group_is_refused_and_a_frozen_layer_stays_frozen(tokenizer):
    pairs = [(TEXT, "it", "cat"), (f"{TEXT} again", "it", "cat")]
    with pytest.raises(InputError, match="seed to be a whole number of at least 0, got -1"):
        find_heads(Planted(), pairs, tokenizer=tokenizer, seed=-1)
    with pytest.raises(KindError, match=r"groups as names or numbers, got \[1\]"):
        find_heads(Planted(), pairs, tokenizer=tokenizer, groups=[[1], [2]])
    model = Planted().train()
    frozen = next(module for module in model.modules() if module is not model).eval()
    find_heads(model, pairs, tokenizer=tokenizer)
    assert model.training
    assert not frozen.training


def test_a_word_inside_of_a_token_is_refused_with_the_token():
    made = Tokenizer(models.WordLevel({"[UNK]": 0, "cat-and-dog": 1, "it": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    [pair] = read_pairs([("cat-and-dog it", "it", "cat")])
    with pytest.raises(InputError, match="pair 1: 'cat', which is a part of the token 'cat-and-dog'"):
        pair_tasks(TextReader(Planted(), made, 20), [pair])


def test_files_that_are_no_pairs_are_refused(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"text": "a b"', encoding="utf-8")
    with pytest.raises(InputError, match="a JSON object on each line, got .*line 1"):
        read_pairs(tmp_path / "pairs.jsonl")
    (tmp_path / "pairs.xml").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="pairs in a .jsonl or .csv file"):
        read_pairs(tmp_path / "pairs.xml")
    with pytest.raises(InputError, match="none.jsonl"):
        read_pairs(tmp_path / "none.jsonl")


def test_the_command_prints_the_answer_first_and_writes_every_number(tmp_path):
    from overt.cli.main import app

    texts = [
        f"The {noun} was tired, so it slept beside the {other}."
        for noun in ("cat", "dog", "horse", "child")
        for other in ("door", "fire")
    ]
    rows = [
        json.dumps({"text": text, "query": "it", "key": text.split()[1], "distractors": [text.split()[-1][:-1]]})
        for text in texts
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(rows), encoding="utf-8")
    out = tmp_path / "heads.json"
    result = CliRunner().invoke(app, ["heads", "minilm", str(tmp_path / "pairs.jsonl"), "--rows", "3", "--json", str(out)])
    assert result.exit_code == 0, result.output
    assert "of the pairs" in result.output
    assert "random weights" in result.output
    assert len(validated(out, "heads")["heads"]) == 72
    for option, path, message in (
        ("--plot", "a.bmp", "ends in .pdf, .svg or .png"),
        ("--json", "no/a.json", "an existing folder"),
    ):
        refused = CliRunner().invoke(app, ["heads", "minilm", str(tmp_path / "pairs.jsonl"), option, str(tmp_path / path)])
        assert message in " ".join(refused.stderr.split())
        assert not refused.stdout  # before the heads were measured
