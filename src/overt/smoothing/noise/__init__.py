"""What the noise of a series is: a hypothesis a file, each with its evidence, compared by leave-one-out log predictive densities."""
