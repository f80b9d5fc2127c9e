"""A recipe's task: its loss is the cross-entropy of its real tokens, and its measures count what they say."""

import json
import math
import random
from dataclasses import replace

import pytest
import sacrebleu
import torch
from torch import nn

from overt.errors import InputError
from overt.learn.config.settings import Data, Decoding, Recipe, Tokenization, Training
from overt.learn.data.splits import split_share
from overt.learn.data.tokenizer import END, START
from overt.learn.tasks import translation
from overt.learn.tasks.build import build_task
from overt.learn.translator import Translator

WORDS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}
TRANSFORMER = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 32, "dropout": 0.0}
TRAINING = Training(updates=10, tokens_per_batch=40, label_smoothing=0.1, seed=3)


# Of each split: sentences whose words are tagged, and texts that have the class of their first word. The share of odd ones differs.
SPLITS = {
    "train": (["one two three four five", "two"], ["two four", "one three five", "five"]),
    "valid": (["four two", "three two four"], ["four", "two two", "four four", "three one"]),
    "test": (["five one", "three", "one four"], ["one one", "three five", "three three", "five five", "four two"]),
}


@pytest.fixture
def numbers(tmp_path):
    """Numbers in words, English and German, no row in two splits; "five one" has two translations in the test."""
    names = list(WORDS)
    splits = {
        "train": [" ".join(names[:count]) for count in range(1, 6)] + [" ".join(names[count:]) for count in range(1, 5)],
        "valid": ["two one", "one three five two four", "four three five one", "five four"],
        "test": [
            "three one",
            "one four",
            "two five three one four",
            "five two one four",
            "one three two",
            "five one",
            "five one",
        ],
    }
    for split, rows in splits.items():
        targets = [" ".join(WORDS[word] for word in row.split()) for row in rows]
        if split == "test":
            targets[-1] = "die fünf und eins"
        (tmp_path / f"{split}.en").write_text("\n".join(rows) + "\n")
        (tmp_path / f"{split}.de").write_text("\n".join(targets) + "\n")
    files = {split: (f"{split}.en", f"{split}.de") for split in ("train", "valid", "test")}
    return Recipe(
        data=Data(folder=str(tmp_path), **files),
        tokens=Tokenization(merges=40),
        model={"kind": "Transformer", **TRANSFORMER},
        training=TRAINING,
        decoding=Decoding(beam=2),
    )


@pytest.fixture
def labels(tmp_path):
    """Words and their tags, or texts and their classes: even numbers and odd ones, no text in two splits."""
    kind = {word: "ODD" if position % 2 else "EVEN" for position, word in enumerate(WORDS, 1)}
    rest = "\t_" * 6
    for split, (tagged, classed) in SPLITS.items():
        sentences = (
            "".join(f"{position}\t{word}\t_\t{kind[word]}{rest}\n" for position, word in enumerate(text.split(), 1))
            for text in tagged
        )
        (tmp_path / f"{split}.tags").write_text("\n".join(sentences) + "\n")
        (tmp_path / f"{split}.classes").write_text("".join(f"{kind[text.split()[0]]} {text}\n" for text in classed))

    def recipe(task: str) -> Recipe:
        name, form = {"tag": ("tags", "conllu"), "classify": ("classes", "labels")}[task]
        kind = {"tag": "Tagger", "classify": "Classifier"}[task]
        files = {split: (f"{split}.{name}",) for split in SPLITS}
        data = Data(format=form, folder=str(tmp_path), **files)
        return Recipe(task=task, data=data, model={"kind": kind, "width": 8, "encoder": "gru"}, training=TRAINING)

    return recipe


def everything(task):
    return task.batch(sorted(index for batch in task.batches(0) for index in batch))


@pytest.mark.parametrize(
    "model", [{"kind": "Transformer", **TRANSFORMER}, {"kind": "Seq2Seq", "width": 16}], ids=lambda model: model["kind"]
)
def test_the_loss_of_a_translation_is_the_cross_entropy_of_its_words_and_its_end(numbers, tmp_path, model):
    task, model = build_task(replace(numbers, model=model), tmp_path / "run")
    batch = everything(task)
    loss, count = task.loss(model, batch)
    scores = model(batch.source, batch.target, source_lengths=batch.source_lengths)
    expected = nn.functional.cross_entropy(
        scores.flatten(0, 1), batch.labels.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum"
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert count == sum(len(task.tokenizer.encode(row.target)) + 1 for row in task.corpus.train)


def test_the_loss_of_a_batch_is_the_sum_of_its_rows_losses(numbers, tmp_path):
    task, model = build_task(numbers, tmp_path / "run")
    whole, count = task.loss(model, task.batch([0, 4, 8]))
    rows = [task.loss(model, task.batch([index])) for index in (0, 4, 8)]
    assert whole.item() == pytest.approx(sum(loss.item() for loss, _ in rows), rel=1e-5)
    assert count == sum(number for _, number in rows)


def test_a_decoder_reads_the_start_and_what_came_before_each_label(numbers, tmp_path):
    task, _ = build_task(numbers, tmp_path / "run")
    batch = task.batch([4])
    [ids] = task.tokenizer.encode_all([task.corpus.train[4].target], target=True)
    assert batch.target.tolist() == [[1, *ids]]
    assert batch.labels.tolist() == [[*ids, 2]]
    assert batch.source.tolist() == [[*task.tokenizer.encode(task.corpus.train[4].source), 2]]


def test_a_translator_learns_its_sentences(numbers, tmp_path):
    task, model = build_task(replace(numbers, training=replace(TRAINING, label_smoothing=0.0)), tmp_path / "run")
    before = perplexity(task, model, task.corpus.train)
    by_heart(task, model)
    assert task.translate(model, task.corpus.train, beam=1) == [row.target for row in task.corpus.train]
    assert perplexity(task, model, task.corpus.train) < 1.2 < before


def by_heart(task, model):
    """Train until the training rows are known by heart."""
    batch, optimizer = everything(task), torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        loss, count = task.loss(model.train(), batch)
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()
    model.eval()


def perplexity(task, model, rows):
    """That of some rows, one after the other, by torch's cross-entropy."""
    total = count = 0
    for row in rows:
        source = torch.tensor([[*task.tokenizer.encode(row.source), END]])
        ids = task.tokenizer.encode(row.target, target=True)
        scores = model(source, torch.tensor([[START, *ids]]))[0]
        total += nn.functional.cross_entropy(scores, torch.tensor([*ids, END]), reduction="sum").item()
        count += len(ids) + 1
    return math.exp(total / count)


def test_validation_measures_are_those_of_the_validation_rows_translated_greedily(numbers, tmp_path):
    task, model = build_task(numbers, tmp_path / "run")
    by_heart(task, model)
    result, rows = task.evaluate(model), task.corpus.valid
    written = [each.text for each in Translator(model, task.tokenizer).translate([row.source for row in rows], beam=1)]
    assert result["bleu"] == sacrebleu.corpus_bleu(written, [[row.target for row in rows]]).score < 99
    assert result["perplexity"] == pytest.approx(perplexity(task, model, rows), rel=1e-5)
    assert result["perplexity"] > 2 * perplexity(task, model, task.corpus.train)


@pytest.mark.parametrize("count", [1, 2, 4, 7])
@pytest.mark.few_cases(1)
def test_so_many_validation_rows_spread_over_all_are_translated(numbers, tmp_path, monkeypatch, count):
    task, model = build_task(numbers, tmp_path / "run")
    by_heart(task, model)
    monkeypatch.setattr(translation, "QUICK", count)
    rows = [task.corpus.valid[number * 4 // min(count, 4)] for number in range(min(count, 4))]
    written = task.translate(model, rows, beam=1)
    assert task.evaluate(model)["bleu"] == sacrebleu.corpus_bleu(written, [[row.target for row in rows]]).score
    assert task.evaluate(model)["perplexity"] == pytest.approx(perplexity(task, model, task.corpus.valid), rel=1e-5)


def test_scores_of_a_test_are_sacrebleus_with_one_reference_a_row_and_with_all(numbers, tmp_path):
    task, model = build_task(numbers, tmp_path / "run")
    by_heart(task, model)
    result = task.test(model)
    texts = task.translate(model, task.corpus.test, beam=2)
    references = [row.target for row in task.corpus.test]
    assert (result["rows"], result["sources"]) == (7, 6)
    assert result["bleu"] == sacrebleu.corpus_bleu(texts, [references]).score
    assert result["chrf"] == sacrebleu.corpus_chrf(texts, [references]).score
    second = ["die fünf und eins" if row.source == "five one" else None for row in task.corpus.test[:6]]
    assert result["bleu_all_references"] == sacrebleu.corpus_bleu(texts[:6], [references[:6], second]).score
    assert result["bleu"] != result["bleu_all_references"]
    assert "nrefs:1|" in result["bleu_signature"]
    assert [(part["shortest"], part["longest"]) for part in result["by_length"]] == [(n, n) for n in (2, 2, 2, 2, 3, 4, 5)]
    json.dumps(result)


def test_a_test_searches_as_the_recipe_says_and_an_evaluation_greedily(numbers, tmp_path, monkeypatch):
    searches, translate = [], Translator.translate

    def watched(self, texts, **options):
        searches.append(options)
        return translate(self, texts, **options)

    monkeypatch.setattr(Translator, "translate", watched)
    task, model = build_task(replace(numbers, decoding=Decoding(beam=3, length_penalty=0.3, longest=7)), tmp_path / "run")
    task.evaluate(model.eval())
    task.test(model)
    assert searches == [{"beam": 1}, {"beam": 3, "length_penalty": 0.3, "longest": 7}]


def test_published_words_are_what_is_scored_where_moses_is_asked_for(numbers, tmp_path):
    tokens = replace(numbers.tokens, moses=True, lower=True)
    task, model = build_task(
        replace(numbers, tokens=tokens, data=replace(numbers.data, languages=("en", "de"))), tmp_path / "run"
    )
    assert "tok:none" in task.test(model)["bleu_signature"]


def test_references_are_split_into_words_by_the_rules_of_their_own_language(numbers, tmp_path):
    for file in tmp_path.glob("*.de"):
        file.write_text(file.read_text().replace("eins", "l'homme"))
    data = replace(numbers.data, languages=("en", "fr"))
    recipe = replace(
        numbers, tokens=replace(numbers.tokens, moses=True), data=data, training=replace(TRAINING, label_smoothing=0.0)
    )
    task, model = build_task(recipe, tmp_path / "run")
    by_heart(task, model)
    assert task.translate(model, task.corpus.train[:1]) == ["l' homme"]
    assert task.test(model, "train")["bleu"] == pytest.approx(100)


def test_the_same_recipe_gives_the_same_tokens_weights_and_batches(numbers, tmp_path):
    (first, one), (second, two) = (build_task(numbers, tmp_path / name) for name in ("first", "second"))
    assert (tmp_path / "first" / "tokenizer.json").read_bytes() == (tmp_path / "second" / "tokenizer.json").read_bytes()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert first.batches(3) == second.batches(3)


@pytest.mark.parametrize("name", ["numbers", "tag", "classify", "texts"])
def test_another_seed_gives_other_weights_and_other_batches(name, labels, tmp_path, request):
    recipe = labels(name) if name in ("tag", "classify") else request.getfixturevalue(name)
    weights, orders = [], []
    for seed in range(8):
        task, model = build_task(replace(recipe, training=replace(TRAINING, seed=seed, tokens_per_batch=1)), tmp_path / "run")
        weights.append(torch.cat([parameter.flatten() for parameter in model.parameters()]))
        orders.append([task.batches(epoch) for epoch in range(3)])
    assert len({tuple(each.tolist()) for each in weights}) == 8
    assert len(set(map(str, orders))) > 4


@pytest.mark.parametrize("moses", [False, True])
@pytest.mark.parametrize("merged", [False, True])
def test_pieces_are_in_lower_case_and_from_a_file_where_the_recipe_says_so(numbers, tmp_path, moses, merged):
    for split in ("train", "valid"):
        (tmp_path / f"{split}.en").write_text("ONE One\none\n")
        (tmp_path / f"{split}.de").write_text("EINS\neins\n")
    (tmp_path / "merges").write_text("o n\ne</w> i\nn e</w>\n" if moses else "▁ o\n▁o n\n")
    data = replace(numbers.data, languages=("en", "de"), test=())
    for lower in (False, True):
        tokens = Tokenization(merges=2, merges_file="merges" if merged else None, lower=lower, moses=moses)
        task, _ = build_task(replace(numbers, tokens=tokens, data=data), tmp_path / f"run{lower}")
        pieces = task.tokenizer.tokens(range(task.tokenizer.words))
        assert any("N" in piece for piece in pieces) == (not lower)
        assert not merged or ("on" if moses else "▁on") in pieces


def test_words_are_in_lower_case_and_frequent_where_the_recipe_says_so(labels, tmp_path):
    words = {}
    for minimum_count, lower in ((1, False), (1, True), (2, False), (3, True)):
        recipe = replace(labels("classify"), tokens=Tokenization(minimum_count=minimum_count, lower=lower))
        (tmp_path / "train.classes").write_text("ODD One two\nEVEN one two TWO\n")
        task, _ = build_task(recipe, tmp_path / f"run{minimum_count}{lower}")
        words[minimum_count, lower] = task.tokenizer.word_list
    assert words == {
        (1, False): ["two", "One", "TWO", "one"], (1, True): ["two", "one"], (2, False): ["two"], (3, True): ["two"],
    }  # fmt: skip


def test_a_run_that_goes_on_keeps_its_tokens(numbers, tmp_path):
    first, _ = build_task(numbers, tmp_path / "run")
    resumed, _ = build_task(replace(numbers, tokens=Tokenization(merges=3)), tmp_path / "run")
    assert resumed.tokenizer.words == first.tokenizer.words


def test_building_a_task_leaves_the_callers_random_numbers_alone(numbers, tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build_task(numbers, tmp_path / "run")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("task", ["tag", "classify"])
def test_the_loss_of_labels_is_their_cross_entropy(labels, tmp_path, task):
    task, model = build_task(labels(task), tmp_path / "run")
    batch = everything(task)
    loss, count = task.loss(model, batch)
    scores = model(batch.tokens, lengths=batch.lengths)
    expected = nn.functional.cross_entropy(
        scores.flatten(0, -2), batch.labels.flatten(), ignore_index=-1, label_smoothing=0.1, reduction="sum"
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert count == {"Tagger": 6, "Classifier": 3}[type(model).__name__]


class Says(nn.Module):
    """Scores that choose the same one of two labels always, for every word (B, n, 2) or for the text (B, 2)."""

    def __init__(self, label: int, each_word: bool):
        super().__init__()
        self.label, self.each_word, self.parameter = label, each_word, nn.Parameter(torch.zeros(1))

    def forward(self, tokens, lengths):
        return nn.functional.one_hot(torch.full(tokens.shape if self.each_word else tokens.shape[:1], self.label), 2).float()


@pytest.mark.parametrize(
    ("task", "label", "valid", "test"),
    [("tag", 0, 4 / 5, 1 / 5), ("tag", 1, 1 / 5, 4 / 5), ("classify", 0, 3 / 4, 1 / 5), ("classify", 1, 1 / 4, 4 / 5)],
)
def test_accuracy_counts_the_splits_labels_and_no_padding(labels, tmp_path, task, label, valid, test):
    says = Says(label, each_word=task == "tag")
    task, _ = build_task(labels(task), tmp_path / "run")
    assert task.evaluate(says) == {"accuracy": pytest.approx(100 * valid)}
    assert task.test(says) == {"rows": len(task.corpus.test), "accuracy": pytest.approx(100 * test)}


def test_a_label_that_training_has_not_counts_as_wrong(labels, tmp_path):
    task, _ = build_task(labels("classify"), tmp_path / "run")
    task.corpus.test.append(task.corpus.test[0]._replace(target="NEVER"))
    assert task.test(Says(1, each_word=False)) == {"rows": 6, "accuracy": pytest.approx(100 * 4 / 6)}


@pytest.mark.parametrize("name", ["numbers", "tag", "classify", "texts"])
def test_a_batch_takes_as_many_rows_as_its_tokens_allow_with_their_starts_and_ends(name, labels, tmp_path, request):
    recipe = labels(name) if name in ("tag", "classify") else request.getfixturevalue(name)
    task, _ = build_task(recipe, tmp_path / "run")
    for row in range(len(task.corpus.train)):
        batch = task.batch([row])
        width = max(tensor.shape[1] for tensor in batch if tensor.ndim == 2)
        limited = replace(recipe, training=replace(TRAINING, tokens_per_batch=4 * width - 1))
        corpus = task.corpus._replace(train=[task.corpus.train[row]] * 11)
        batches = type(task)(corpus, task.tokenizer, limited).batches(0)
        assert sorted(map(len, batches)) == [2, 3, 3, 3]


@pytest.mark.parametrize("name", ["numbers", "tag", "classify", "texts"])
def test_more_rows_than_a_batch_takes_are_each_counted_once(name, labels, tmp_path, request):
    recipe = labels(name) if name in ("tag", "classify") else request.getfixturevalue(name)
    task, model = build_task(recipe, tmp_path / "run")
    many = random.Random(0).choices(task.corpus.valid, k=131)

    def measured(rows):
        return type(task)(task.corpus._replace(valid=rows), task.tokenizer, recipe).evaluate(model.eval())

    single = {str(row): measured([row]) for row in task.corpus.valid}
    if name in ("tag", "classify"):
        counts = [len(row.target) if name == "tag" else 1 for row in many]
        total = sum(single[str(row)]["accuracy"] * count for row, count in zip(many, counts, strict=True))
        assert measured(many)["accuracy"] == pytest.approx(total / sum(counts), rel=1e-9)
    else:
        text = "target" if name == "numbers" else "source"
        counts = [len(task.tokenizer.encode(getattr(row, text))) + 1 for row in many]
        total = sum(math.log(single[str(row)]["perplexity"]) * count for row, count in zip(many, counts, strict=True))
        assert math.log(measured(many)["perplexity"]) == pytest.approx(total / sum(counts), rel=1e-6)


def test_words_may_be_told_by_their_parts(labels, tmp_path):
    task, model = build_task(replace(labels("tag"), tokens=Tokenization(parts=True)), tmp_path / "run")
    batch = everything(task)
    assert batch.tokens.shape == (2, 5, 6)
    assert task.loss(model, batch)[1] == 6


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "texts").write_text("one two\none two three\n\nfour\n")
    (tmp_path / "others").write_text("two two one\nfour\nthree four one two\n")
    data = Data(format="text", folder=str(tmp_path), train=("texts",), valid=("others",))
    model = {"kind": "LanguageModel", "width": 16, "heads": 2, "layers": 1, "feed_forward": 32, "dropout": 0.0}
    return Recipe(task="language", data=data, tokens=Tokenization(merges=0), model=model, training=TRAINING)


def test_the_loss_of_a_language_model_is_the_cross_entropy_of_letters_and_ends(texts, tmp_path):
    task, model = build_task(texts, tmp_path / "run")
    batch = everything(task)
    loss, count = task.loss(model, batch)
    expected = nn.functional.cross_entropy(
        model(batch.tokens).flatten(0, 1), batch.labels.flatten(), ignore_index=0, label_smoothing=0.1, reduction="sum"
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert count == sum(len(f" {row.source}") + 1 for row in task.corpus.train)


def test_perplexity_is_that_of_the_unsmoothed_loss(texts, tmp_path):
    task, model = build_task(texts, tmp_path / "run")
    by_heart(task, model)
    for rows, result in ((task.corpus.valid, task.evaluate(model)), (task.corpus.train, task.test(model, "train"))):
        ids = [task.tokenizer.encode(row.source) for row in rows]
        scores = torch.cat([model(torch.tensor([[START, *each]]))[0] for each in ids])
        expected = nn.functional.cross_entropy(scores, torch.tensor([label for each in ids for label in (*each, END)]))
        assert result["log_probability"] == pytest.approx(-expected.item(), rel=1e-5)
        assert result["perplexity"] == pytest.approx(expected.exp().item(), rel=1e-5)


def test_empty_lines_are_told(texts, tmp_path):
    task, _ = build_task(texts, tmp_path / "run")
    assert task.corpus.notes[0] == "train: 1 of 4 lines left out: one side is empty"


def test_a_recipe_without_validation_examples_is_refused(numbers, tmp_path):
    with pytest.raises(InputError, match="validation examples, got none"):
        build_task(replace(numbers, data=replace(numbers.data, valid=())), tmp_path / "run")


def test_a_folder_with_tokens_of_another_kind_of_task_is_refused(numbers, labels, tmp_path):
    build_task(numbers, tmp_path / "run")
    with pytest.raises(
        InputError, match=r"a tokenizer of whole words for the task 'tag', got .*tokenizer\.json, one of pieces of words"
    ):
        build_task(labels("tag"), tmp_path / "run")


def test_a_format_that_the_task_does_not_read_is_refused(numbers, tmp_path):
    with pytest.raises(InputError, match="data of format 'conllu' for the task 'tag', got 'lines'"):
        build_task(replace(numbers, task="tag"), tmp_path / "run")


def test_the_bounds_are_what_nearly_all_of_validation_keeps_within(numbers, tmp_path):
    task, model = build_task(numbers, tmp_path / "run")
    model.eval()
    sources = [row.source for row in task.corpus.valid]
    scores = [each.score for each in Translator(model, task.tokenizer).translate(sources)]
    shares = [split_share(task.tokenizer.tokens(task.tokenizer.encode(source))) for source in sources]
    low, second = sorted(scores)[:2]
    before, high = sorted(shares)[-2:]
    bounds = task.bounds(model)
    assert bounds["score_bound"] == pytest.approx(low + 0.01 * (len(scores) - 1) * (second - low))
    assert bounds["split_bound"] == pytest.approx(high - 0.01 * (len(shares) - 1) * (high - before))


def test_with_dropout_of_merges_an_epoch_repeats_and_the_next_differs(numbers, tmp_path):
    recipe = replace(numbers, tokens=Tokenization(merges=40, dropout=0.5, byte_fallback=True))
    task, model = build_task(recipe, tmp_path / "run")

    def rows(epoch):
        return [task.batch(indices).source.tolist() for indices in task.batches(epoch)]

    first, second = rows(0), rows(1)
    assert rows(0) == first != second
    texts = {task.tokenizer.decode([number for number in row if number > END]) for batch in first for row in batch}
    assert {row.source for row in task.corpus.train} <= texts  # whatever the pieces are, the text is the same
    loss, count = task.loss(model, task.batch(task.batches(0)[0]))
    assert math.isfinite(loss.item())
    assert count > 0
