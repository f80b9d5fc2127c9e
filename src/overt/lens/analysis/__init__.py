"""Reading attention honestly: what its weights can be asked, and what each answer leaves out.

Every question is a function of a recording, and `overt.lens` hands them out: `rollout`, `mean_attention`, `norm_weights`, `alignment`,
`compare`, `ablate`. docs/reading.md tells what they find in a small model.
"""
