"""Linear token mixers in models: which functions compute them, and how their arguments and results are read.

A model's class calls a function of its mixer, for example `torch_chunk_gated_delta_rule(query, key, value, g=…, beta=…)`. While a
recording runs, the same function has a hook before and after it (`observe.py`), as functions of transformers' registry have: the
model calls it with its own arguments and gets its own result. `discover.py` finds such functions in the code of a model's classes:
functions that a method calls, functions that an instance holds as attributes, and methods that contain the recurrence themselves.

What the hooks see is recorded, after `check.py` has compared the first positions of the recurrence with the function's result, once for
each layer and function; `verify` compares all of them. What does not agree, and a mixer whose function did not run where it can be
observed, is in `missing`. Functions inside a mixer are not tracked.

To add a family, write a file here with its forms, and name them in `families.py`. A `Form` (`form.py`) has

    functions                   the names of its functions, or
    parameters, names, method   of a method of modules that is one: its parameters, the names in its code, and perhaps its name
    read(call)                  before the function runs: its arguments as a `Recurrence` of the positions of this call alone, where
                                `start` is the state that it was passed; or a sentence why it cannot be recorded
    result(call, returned)      after it: the output of the mixing alone (B, H, Q, E), and the state (B, H, D, E) that it leaves, or None
    after, or around(module)    sentences on what is after the mixing; convolutions before it are named without it

A form of a method that needs what modules inside it returned `reads_after`: `prepare` copies what the method may write to, and `read`
has `call.inner`. Tensors may be views of the model's: they are copied where they are kept. Positions of earlier calls are not the
form's concern: `history.py` recognises the state that a call begins with as the one that an earlier call left, for each sequence, and
puts the positions of that call before these.
"""
