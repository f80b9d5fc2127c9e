"""Linear token mixers in models: which functions compute them, and how their arguments and results are read.

A model's class calls a function of its mixer, for example `torch_chunk_gated_delta_rule(query, key, value, g=…, beta=…)`. While a
recording runs, the same function stands in its place with a hook before and behind it (`observe.py`), as with transformers' registry:
the model calls it with its own arguments and gets its own result. `discover.py` finds such functions in the code of a model's classes:
names of functions that a method calls, functions that an instance holds as attributes, and methods that contain the recurrence
themselves. What the hooks see is recorded if the recurrence gives the model's own output, else it stands in `missing`.

To add a family, write one file here with its forms, and name them in `families.py`:

    class Form                    form.py: what the functions are called (`functions`), or which methods are one (`methods`)
      .read(call)                 before the function runs: its arguments as a `Recurrence` of the positions of this call alone, where
                                  `start` is the state that the function was passed; or a sentence why it cannot be recorded
      .result(call, returned)     after it: the output of the mixing alone (B, H, Q, E), and the state (B, H, D, E) that it leaves, or None
      .around(module)             sentences on what stands after the mixing; convolutions before it are found and named by themselves

`call.arguments` has the arguments by name, defaults included, `call.module` the innermost module that runs, `call.inner` what modules
inside a method returned while it ran. Tensors may be views of the model's own: copies are made where they are kept. Positions of
earlier calls are not the family's concern: `history.py` recognises the state that a call begins with as one that an earlier call
left, and puts the keys and values of that call before these.
"""
