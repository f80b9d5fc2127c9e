"""English contractions without their apostrophe, if they are unambiguous."""

import re

# _NOT: verbs before n't; no other English word is written like these. "cant" and "wont" are rare nouns, after a possessive or an article.
_NOT = "do|does|did|is|are|was|were|has|have|had|could|should|would|must|need|ca|wo|ai"
_PRONOUNS = {
    "im": "i'm", "ive": "i've", "youre": "you're", "youve": "you've", "youll": "you'll", "youd": "you'd", "theyre": "they're",
    "theyve": "they've", "theyll": "they'll", "theyd": "they'd", "weve": "we've", "hes": "he's", "shes": "she's", "itll": "it'll",
    "thats": "that's", "whats": "what's", "theres": "there's", "wheres": "where's", "whos": "who's", "hows": "how's",
}  # fmt: skip
_NOUN_BEFORE = re.compile(r"\b(?:a|an|the|his|her|my|your|our|their|its|this|that|of|is|are|was|were)\s+$", re.IGNORECASE)
# _ITS: "its" is "it's" before an article, "not", a possessive or a verb of the weather; "lets" is "let's" at the start of a sentence.
_ITS = re.compile(r"\s+(?:an?|the|not|my|your|his|her|our|their|been|raining|snowing|pouring)\b(?!-)", re.IGNORECASE)
_LETS = re.compile(
    r"\s+(?:go|eat|see|try|get|play|start|take|talk|do|make|dance|leave|hope|not|have|wait|begin|meet|buy)\b", re.IGNORECASE
)
_CONTRACTED = re.compile(rf"({_NOT})nt", re.IGNORECASE)


def contracted(text: str, start: int, stop: int) -> str | None:
    """The word text[start:stop] with its apostrophe, in its own case; None if it has none.

    Words with other meanings (were, well, ill, wed, shell, hell, id, its, lets) are unchanged unless the next word decides.

    >>> [contracted("i dont know", 2, 6), contracted("Its raining", 0, 3), contracted("well done", 0, 4)]
    ["don't", "It's", None]
    """
    word, before, after = text[start:stop], text[:start], text[stop:]
    if after.startswith(("'", "’", "-")) or before.endswith(("'", "’", "-")):
        return None
    if match := _CONTRACTED.fullmatch(word):
        noun = word.lower() in ("cant", "wont") and _NOUN_BEFORE.search(before)
        return None if noun else match[1] + ("N'T" if word.isupper() else "n't")
    lower = word.lower()
    if lower == "its" and _ITS.match(after):
        return f"{word[:2]}'{word[2]}"
    if lower == "lets" and not re.search(r"\w[^.!?]*$", before) and _LETS.match(after):
        return f"{word[:3]}'{word[3]}"
    if (full := _PRONOUNS.get(lower)) is None or (lower == "hes" and _NOUN_BEFORE.search(before)):
        return None
    return full.upper() if word.isupper() else (full[0].upper() + full[1:] if word[0].isupper() else full)
