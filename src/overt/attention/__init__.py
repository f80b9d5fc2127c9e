"""The mechanism, all of it and nothing else: `mechanism.attend`, what it is made of, and the kernels that compute it."""
