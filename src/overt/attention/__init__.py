"""The attention mechanism: `mechanism.attend`, its parts, and the kernels that compute it."""
