"""Small tokenizers of every kind of spelling, learned from a few sentences, and the text that they read."""

import json
from functools import cache

import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from overt.learn.data.tokenizer import Tokenizer as OvertTokenizer

TEXT = "The animal didn’t cross the street because it was too tired"
EMOJI = "The 😁 street"


def trained(pieces, trainer, **options):
    settings = {"show_progress": False, "special_tokens": ["<pad>", "<s>", "</s>", "<unk>"], "vocab_size": 330}
    pieces.train_from_iterator([TEXT] * 4, trainer(**settings | options))
    return pieces


@cache
def byte_level():
    """As GPT-2's and most of the larger models."""
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer, pieces.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return trained(pieces, trainers.BpeTrainer, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


@cache
def word_piece():
    """As BERT's, which lowers the case."""
    pieces = Tokenizer(models.WordPiece(unk_token="<unk>"))
    pieces.normalizer, pieces.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    pieces.decoder = decoders.WordPiece()
    return trained(pieces, trainers.WordPieceTrainer, vocab_size=45)


@cache
def metaspace():
    """As SentencePiece's, with single bytes for what it does not know (Llama, Gemma)."""
    pieces = Tokenizer(models.BPE())
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    pieces.decoder = decoders.Sequence(steps)
    learned = json.loads(trained(pieces, trainers.BpeTrainer, vocab_size=60).model.__getstate__())
    vocabulary = learned["vocab"] | {f"<0x{byte:02X}>": len(learned["vocab"]) + byte for byte in range(256)}
    pieces.model = models.BPE(vocabulary, [tuple(pair) for pair in learned["merges"]], byte_fallback=True)
    return pieces


@cache
def words():
    """One piece a word, and no decoder."""
    pieces = Tokenizer(models.WordLevel(unk_token="<unk>"))
    pieces.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return trained(pieces, trainers.WordLevelTrainer)


@cache
def ours():
    """overt's own."""
    return OvertTokenizer.learn([TEXT], merges=40)


def fast(pieces):
    """A Hugging Face tokenizer of them."""
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=pieces, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def numbered(count=60, **special):
    """A Hugging Face tokenizer whose word number i is "wi"; w0 is unknown."""
    pieces = Tokenizer(models.WordLevel({f"w{number}": number for number in range(count)}, unk_token="w0"))
    pieces.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="w0", **special)
