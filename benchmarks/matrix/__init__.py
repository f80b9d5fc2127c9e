"""The matrix of models: every model that can be made small, run alone, recorded and on overt's backend, and judged."""
