"""Models of the noise of a series: one hypothesis per file, with its evidence, compared by leave-one-out log predictive densities."""
