"""Parameter-free self-attention on series and vectors, in NumPy.

The sequence's own numbers are queries, keys and values; nothing is trained. The house, from the bottom up:
`series` reads what comes in, `keys` says what "similar" means, `rows` attends, `risk` judges and chooses a bandwidth,
`analysis` puts it together; `vectors` is the same mechanism on vectors, as literally as it is usually written.
"""

from overt.smoothing.analysis import Smoothing, analyze, smooth
from overt.smoothing.vectors import Reweighted, reweight
from overt.smoothing.worked import Demonstration, demonstration

__all__ = ["Demonstration", "Reweighted", "Smoothing", "analyze", "demonstration", "reweight", "smooth"]
