"""Formulas of the site: LaTeX between dollars, which notebooks typeset too, becomes MathML when a page is built."""

import re
from html import unescape

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def typeset(page: str) -> str:
    r"""The HTML of a page with each formula that pymdownx.arithmatex marked as a `math` element.

    >>> typeset(r'<span class="arithmatex">\(a\)</span>')
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>a</mi></mrow></math>'
    """
    return FORMULA.sub(_element, page)


def _element(formula: re.Match[str]) -> str:
    return convert(unescape(formula[2]).strip(), display="block" if formula[1] == "div" else "inline")
