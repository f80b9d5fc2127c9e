"""Spans that a translation copies exactly: addresses, mark-up, code, file names, numbers that a model rounds, emoji.

Kinds of spans, by their treatment:

- named, amount, number, date: parts of the sentence; the model reads a placeholder (`placeholders.py`)
- mark, opening, closing: no words; removed from the model's input, and restored by the attention of the words around them
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

# REMOVED: kinds without a placeholder in the model's input.
REMOVED = ("mark", "opening", "closing")

_DOMAINS = "com|org|net|edu|gov|info|io|dev|app|fr|de|uk|eu|ca|ch|be|es|it|nl|example"
_SUFFIXES = (
    "txt|md|rst|csv|tsv|json|jsonl|xml|html?|css|tex|log|toml|ya?ml|ini|cfg|conf|pdf|docx?|xlsx?|pptx?|odt|rtf|epub|py|ipynb|js|ts|jsx|tsx|c|h|cpp|"
    "hpp|cc|cs|java|rs|go|rb|php|sh|bat|exe|dll|so|zip|gz|tar|bz2|xz|7z|rar|iso|dmg|apk|jpe?g|png|gif|svg|bmp|tiff?|webp|mp3|mp4|wav|ogg|flac|avi|"
    "mkv|mov|sql|db|parquet|safetensors|bin|bak|tmp|lock|srt|vtt"
)
_UNITS = r"(?:°[CF]?|%|‰|km/h|mph|kWh?|[kmcµ]?[mgl]|lbs?|oz|ft|[KMGT]i?B|[kMG]?Hz|[mk]?V|W|€|£|¥|\$|px|ms)(?![\w])"
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+[.,]\d+|\d+"
# _PICTURE, _EMOJI: Unicode's pictographs with modifiers and joiners, keycaps, and emoticons.
_PICTURE = r"[\u2190-\u21ff\u2300-\u23ff\u25a0-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff©®™]"
_EMOJI = (
    rf"(?:[\U0001f1e6-\U0001f1ff]{{2}}|{_PICTURE}|[0-9#*]\ufe0f?\u20e3)(?:[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]|\u200d{_PICTURE})*"
    r"|(?<![\w:])(?:[:;=]['’]?-?[)(DPpOo|/*](?![\w/])|<3(?!\d)|\^_?\^|:[a-z][a-z0-9_]+:)"
)
# _INSTALLERS: commands in a sentence, with the name after them.
_INSTALLERS = (
    "pip3? (?:un)?install|npm (?:install|run)|apt(?:-get)? install|brew install|conda install|cargo (?:install|add)|uv (?:pip install|add)|"
    "docker (?:run|pull)|git (?:clone|checkout)"
)
_GIT = "commit|push|pull|add|status|init|merge|rebase|fetch|log|diff|stash|reset"
# _PATTERNS in order: if two match at the same place, the first one counts.
_PATTERNS: list[tuple[str, str]] = [
    ("named", r"(?P<ticks>`{1,3})(?!`).{1,500}?(?<!`)(?P=ticks)(?!`)"),
    ("mark", r"<!--.{0,1000}?-->|</?[A-Za-z][\w:-]*(?:\s[^<>]*)?/?>|\[/?(?:b|i|u|s|url|img|quote|code|size|color)(?:=[^\]\s]*)?\]"),
    ("closing", r"(?<=\S)\]\([^\s()]*(?:\([^\s()]*\)[^\s()]*)*(?: \"[^\"]*\")?\)"),
    ("named", r"(?:(?:https?|ftp|file|ssh|git|s3|ws)://|www\.|mailto:)[^\s<>\"“”]+"),
    ("named", r"(?<![\w.+-])[\w.+-]*\w@[\w-]+(?:\.[\w-]+)+"),
    ("named", rf"(?<![\w@.-])(?:[a-zA-Z0-9][\w-]*\.)+(?:{_DOMAINS})(?:/[^\s<>\"“”]*|:\d+[^\s<>\"“”]*)?(?![\w-])"),
    ("named", r"(?<![\w])(?:[A-Za-z]:\\|\\\\\w)[^\s\"'<>|*?]*"),
    ("named", r"(?<![\w<.…])(?:~|\.{1,2})?/[\w.@+*-]+(?:/[\w.@+*-]*)*"),
    ("named", r"(?<![\w/.-])[\w.-]+(?:/[\w.-]+)*/(?:[\w.-]+\.\w{1,5}(?!\w)|(?=\s|$))"),
    ("named", rf"(?<![\w.*-])(?:[\w*-]+\.)+(?:{_SUFFIXES})(?![\w-])"),
    ("named", r"(?<![\w.…])\.(?:git|env|bash|vim|zsh|ssh|docker|npm|editor)[\w.]*"),
    ("mark", r"&(?:#\d+|#x[\da-fA-F]+|[A-Za-z]+);"),
    ("named", r"\$\$.{1,500}?\$\$|\$(?=\S)(?=[^$]{0,200}[\\^_={}])[^$]{1,200}(?<=\S)\$(?!\d)"),
    ("named", r"\{\{?\s?[\w.:]*\s?\}?\}|\$\{\w+\}|\$[A-Z_]{2,}\b|%\(\w+\)[sd]|%[sd]\b"),
    ("named", rf"\b(?:sudo )?(?:{_INSTALLERS})(?: --?[\w-]+)* [\w@/.-]*\w(?:(?:\[[\w,]+\])?[=<>~]=[\w.*]+)?"),
    ("named", rf"\bgit (?:{_GIT})(?: --?[\w-]+(?: \"[^\"]*\")?)*"),
    ("named", r"(?<![\w-])--[a-z][\w-]*(?:=\S*\w)?"),
    ("named", r"(?<![\w&/])[@#][^\W\d_]\w*(?:\.\w+)*|(?<![\w&/])#\d+"),
    ("named", r"(?<![\w.:>])\w+(?:(?:\.|::|->)\w+)*\((?:\)|[^()\s]*[=\"'_.\d][^()\s]*\))|(?<![\w:>])\w+(?:(?:::|->)\w+)+"),
    ("named", r"(?<![\w.])[a-z]{2,}(?:\.[a-z_]{2,})+\b|(?<!\w)_*[A-Za-z0-9]+(?:_+[A-Za-z0-9]+)+_*(?!\w)|\b__\w+?__\b"),
    ("named", r"\b[a-z]+[A-Z][A-Za-z0-9]*\b|\b(?=\w{4})(?:[A-Za-z]+-?\d+|\d+[A-Za-z]+\d)[\w]*(?:-\w+)*\b|\b\d{2,}[A-Z]\b"),
    ("named", r"\b(?:Ctrl|Alt|Shift|Cmd|Option)(?:[+-]\w+)+"),
    ("named", r"\+\d[\d ()-]{6,}\d|\b\d{2,4}(?:-\d{3,4}){1,3}\b"),
    ("date", r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?\b|\b\d{4}/\d\d?/\d\d?\b"),
    ("date", r"\b\d\d?(?P<sign>[/.-])\d\d?(?P=sign)(?:\d{4}|\d\d)\b"),
    ("number", r"\bv?\d+(?:\.\d+){2,}[\w.-]*\w|\bv?\d+(?:\.\d+){2,}|\bv\d+(?:\.\d+)*\b|\b\d\d?:\d\d:\d\d\b|\b\d+/\d+\b"),
    ("amount", rf"(?:[$€£¥]|\b(?:US|CA|A)\$) ?(?:{_NUMBER})(?![\d%])(?! (?:thousand|million|billion|trillion))"),
    ("amount", rf"(?<![\w.,])(?:{_NUMBER}) ?[€£¥]"),
    ("number", rf"(?<![\w.,])[-−±]?(?:{_NUMBER})(?: (?={_UNITS}))?(?:{_UNITS})"),
    ("number", r"(?<![\w.])[-−±]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+[.,]\d+|\d{5,})(?!\w)"),
    ("mark", _EMOJI),
    ("opening", r"(?:!\[|\[)(?=[^\[\]]{1,500}\]\()|(?<![\w*~=])(?:\*\*\*|\*\*|\*|~~|==)(?=[^\s*~=])|(?<![\w_])__?(?=[^\s_])"),
    ("closing", r"(?<=\S)(?:\*\*\*|\*\*|\*|~~|==)(?![\w*~=])|(?<=[^\s_])__?(?![\w_])"),
]  # fmt: skip


_SPAN = re.compile("|".join(f"(?P<{kind}{number}>{pattern})" for number, (kind, pattern) in enumerate(_PATTERNS)))
_NAME = re.compile(r"</?([A-Za-z][\w:-]*)|\[/?(\w+)")
# _PLAIN_DOLLARS: whole numbers of dollars, which are translated well: "$20" is "20 dollars".
_PLAIN_DOLLARS = re.compile(r"\$\d{1,4}")
_PLAIN_NUMBER = re.compile(r"\d{1,4} [A-Za-z/]+")
_TIME = re.compile(r"\b(?:at|by|till|until|before|after|around|from|to) (\d\d?\.[0-5]\d)(?= |[.?!,]?$)")
_VOID = ("br", "hr", "img", "input", "meta", "link", "wbr")


class Span(NamedTuple):
    """A protected part of a text, text[start:stop]; `partner` is the index of the mark that it opens or closes."""

    start: int
    stop: int
    kind: str
    partner: int | None = None


def find_spans(text: str) -> list[Span]:
    """The protected spans of a text, in order, without overlaps; opening and closing marks refer to each other.

    >>> text = "See **https://example.com**, Tom."
    >>> [(text[span.start : span.stop], span.kind, span.partner) for span in find_spans(text)]
    [('**', 'opening', 2), ('https://example.com', 'named', None), ('**', 'closing', 0)]
    """
    spans = list(_matched(text))
    pairs = dict(_pairs(text, spans))
    pairs |= {close: open for open, close in pairs.items()}
    # A sign without a partner is no mark.
    return _numbered([(span, pairs.get(number)) for number, span in enumerate(spans)])


def _numbered(entries: list[tuple[Span, int | None]]) -> list[Span]:
    lasting = [n for n, (span, partner) in enumerate(entries) if partner is not None or span.kind not in ("opening", "closing")]
    position = {number: index for index, number in enumerate(lasting)}
    return [entries[n][0]._replace(partner=None if (p := entries[n][1]) is None else position[p]) for n in lasting]


def _matched(text: str) -> Iterator[Span]:
    start, times = 0, {match.start(1) for match in _TIME.finditer(text)}
    while match := _SPAN.search(text, start):
        kind = (match.lastgroup or "").rstrip("0123456789")
        content = match.group()
        stop = match.end() - len(content) + len(_trimmed(content) if kind == "named" else content)
        start = max(stop, match.start() + 1)
        plain = _PLAIN_DOLLARS.fullmatch(content) or _PLAIN_NUMBER.fullmatch(content) or match.start() in times
        if not plain:
            # A name in its own brackets is no part of the sentence.
            bracketed = kind == "named" and text[match.start() - 1 : match.start()] == "(" and text[stop : stop + 1] == ")"
            yield Span(match.start() - 1, stop + 1, "mark") if bracketed else Span(match.start(), stop, kind)
            start += bracketed


def _trimmed(content: str) -> str:
    """A span without the surrounding punctuation of the sentence, and without a bracket that it does not open."""
    while content and content[0] != "`":
        last = content[-1]
        unopened = last in ")]}" and content.count(last) > content.count("([{"[")]}".index(last)])
        quoted = last == '"' and content.count(last) % 2 == 0
        if quoted or (not unopened and (last not in ".,;:!?'’\"*_~" or content.endswith("__"))):
            break
        content = content[:-1]
    return content


def _pairs(text: str, spans: list[Span]) -> Iterator[tuple[int, int]]:
    """The indices of marks that open and close the same part: tags of one name, equal signs, the two ends of a link."""
    waiting: list[tuple[int, str]] = []
    for number, span in enumerate(spans):
        content = text[span.start : span.stop]
        name, closes = _name(content, span.kind)
        index = next((i for i in reversed(range(len(waiting))) if waiting[i][1] == name), None) if closes else None
        if index is not None:
            yield waiting[index][0], number
            del waiting[index:]
        elif name and not content.startswith(("</", "[/", "](")) and not content.endswith("/>") and name not in _VOID:
            waiting.append((number, name))


def _name(content: str, kind: str) -> tuple[str, bool]:
    """The name of the part that a mark opens or closes, "" if none, and whether the mark may close it."""
    if kind == "mark":
        match = _NAME.match(content)
        return (match[1] or match[2] if match else "").lower(), content.startswith(("</", "[/"))
    if kind in ("opening", "closing"):
        return ("[" if content[0] in "![]" else content), kind == "closing"
    return "", False
