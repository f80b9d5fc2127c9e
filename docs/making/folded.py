"""The gallery shows pictures; the lines that made each are folded below it."""

import re

CODE = re.compile(r'<div class="(?:[\w-]+ )*highlight">.*?</pre></div>', re.DOTALL)


def folded(page: str) -> str:
    """The HTML of a page whose blocks of code can be opened.

    >>> folded('<div class="highlight"><pre>b</pre></div>')
    '<details class="lines"><summary>The lines that made it</summary><div class="highlight"><pre>b</pre></div></details>'
    """
    return CODE.sub(r'<details class="lines"><summary>The lines that made it</summary>\g<0></details>', page)
