"""Sentences on which tokenizers are compared: words, letters of all kinds, a tokenizer's own marks, and any characters."""

import random

KINDS = [
    "abcdefghij ABC.,!?'-\"()", "éèüñçøåßİıſΣσςŒœÅé", "漢字かなカナ한국어中文", "\x00\x01\t\n\r\x7f\u200b\u200d\ufeff\u00ad\ufffd\u2028\u3000\u00a0",
    "😀👩\u200d👧🤩🏳️\u200d🌈❤️", "مرحبا שלום हिन्दी ไทย", "0123456789.,%$€£+-=<>^`~|", "".join(map(chr, range(0x20, 0x380))),
]  # fmt: skip


def sentences(words, marks, count, seed):
    """Words with all that stands around them, letters of all kinds, a tokenizer's own marks, and any characters there are."""
    draw = random.Random(seed)
    for _ in range(count):
        kind = draw.random()
        if kind < 0.4:
            yield " ".join(
                draw.choice([str, str.title, str.upper])(draw.choice(words)) + draw.choice(["", "", " ", ".", ",", "ing", "'s"])
                for _ in range(draw.randint(1, 25))
            )
        elif kind < 0.7:
            yield "".join(draw.choice(draw.choice(KINDS)) for _ in range(draw.randint(0, 60)))
        elif kind < 0.8:
            yield "".join(draw.choice([draw.choice(marks), draw.choice(words), " "]) for _ in range(draw.randint(1, 12)))
        elif kind < 0.9:
            yield "".join(
                chr(draw.choice([draw.randrange(0x20, 0xD800), draw.randrange(0xE000, 0x20000)]))
                for _ in range(draw.randint(1, 30))
            )
        else:
            yield " ".join(draw.choice(words) + draw.choice(draw.choice(KINDS)) for _ in range(draw.randint(1, 12)))
