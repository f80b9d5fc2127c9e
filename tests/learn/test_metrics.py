"""Scores are sacrebleu's own, with their signature."""

import math
from collections import Counter

import pytest
import sacrebleu

from overt.errors import InputError
from overt.learn.metrics import bleu, bleu_by_length, chrf

TEXTS = ["the cat sat on the mat .", "a dog barks at night", "it is raining here today"]
REFERENCES = [["the cat sat on a mat ."], ["the dog barks at night"], ["it rains here today"]]


def bleu_by_hand(texts, references):
    """Papineni et al. 2002, section 2.3, with one reference a text and words between spaces."""
    logs = []
    for order in range(1, 5):
        right = total = 0
        for text, [reference] in zip(texts, references, strict=True):
            runs, wanted = (
                Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))
                for words in (text.split(), reference.split())
            )
            right += sum((runs & wanted).values())
            total += sum(runs.values())
        logs.append(math.log(right / total))
    length, wanted = sum(len(text.split()) for text in texts), sum(len(group[0].split()) for group in references)
    return 100 * min(1.0, math.exp(1 - wanted / length)) * math.exp(sum(logs) / 4)


def test_bleu_is_that_of_its_formula():
    assert bleu(TEXTS, REFERENCES, tokenize="none").value == pytest.approx(bleu_by_hand(TEXTS, REFERENCES))


def test_the_signature_says_how_words_were_counted():
    assert "tok:none" in bleu(TEXTS, REFERENCES, tokenize="none").signature
    assert "tok:13a" in bleu(TEXTS, REFERENCES).signature


def test_of_several_references_the_one_that_fits_counts():
    both = [[*group, text] for group, text in zip(REFERENCES, TEXTS, strict=True)]
    assert bleu(TEXTS, both).value == pytest.approx(100)


def test_texts_may_have_different_numbers_of_references():
    mixed = [[*REFERENCES[0], TEXTS[0]], REFERENCES[1], REFERENCES[2]]
    assert bleu(TEXTS, REFERENCES).value < bleu(TEXTS, mixed).value < 100


def test_references_that_a_text_does_not_have_are_left_out_whichever_text_has_most():
    three = [REFERENCES[0], [TEXTS[1], *REFERENCES[1], "a cat"], REFERENCES[2]]
    ranks = [[group[0] for group in three], [None, REFERENCES[1][0], None], [None, "a cat", None]]
    assert bleu(TEXTS, three).value == sacrebleu.corpus_bleu(TEXTS, ranks).score


def test_chrf_is_sacrebleus():
    expected = sacrebleu.corpus_chrf(TEXTS, [[group[0] for group in REFERENCES]]).score
    assert chrf(TEXTS, REFERENCES).value == expected


def test_bleu_by_length_parts_the_rows_by_their_sources_length():
    parts = bleu_by_length([9, 5, 7], TEXTS, REFERENCES, bins=3)
    assert [(part.shortest, part.longest, part.rows) for part in parts] == [(5, 5, 1), (7, 7, 1), (9, 9, 1)]
    assert parts[2].bleu == pytest.approx(bleu(TEXTS[:1], REFERENCES[:1]).value)


def test_bleu_by_length_has_eight_parts_of_like_many_rows_each_of_its_own_texts():
    lengths = [17, 3, 5, 5, 8, 9, 12, 14, 1, 16, 6, 11, 2, 4, 7, 10, 13, 15]
    texts = [f"a b c d e{length}" for length in lengths]
    references = [[text if length % 2 else text.replace("c", "x")] for text, length in zip(texts, lengths, strict=True)]
    parts = bleu_by_length(lengths, texts, references)
    order = sorted(range(18), key=lambda index: lengths[index])
    assert [part.rows for part in parts] == [2, 2, 2, 3, 2, 2, 2, 3]
    for part in parts:
        rows, order = order[: part.rows], order[part.rows :]
        assert (part.shortest, part.longest) == (lengths[rows[0]], lengths[rows[-1]])
        assert part.bleu == bleu([texts[index] for index in rows], [references[index] for index in rows]).value


def test_parts_without_rows_are_left_out_and_words_are_counted_as_asked():
    [part] = bleu_by_length([3], ["don't stop here now"], [["don't stop here then"]], bins=5, tokenize="none")
    assert part == (3, 3, 1, bleu(["don't stop here now"], [["don't stop here then"]], tokenize="none").value)


def test_texts_without_references_are_refused():
    with pytest.raises(InputError, match="texts, and a group of references for each, got 3 texts and 2 groups of references"):
        bleu(TEXTS, REFERENCES[:2])
