"""Linear token mixers in models: which functions compute them, and how their arguments and results are read.

A model's class calls a function of its mixer, for example `torch_chunk_gated_delta_rule(query, key, value, g=…, beta=…)`. While a
recording runs, the function has a hook before and after it (`observe.py`), like the functions of transformers' registry: the model
calls it with its own arguments and gets its own result. `discover.py` finds these functions in the code of a model's classes:
functions that a method calls, functions that an instance holds as attributes, and methods that contain the recurrence themselves.

A call is recorded after `check.py` has compared the first positions of its recurrence with the function's result, once for each layer
and function; `verify` compares all positions. `missing` lists calls that do not agree, and mixers whose function could not be
observed. Functions inside a mixer are not tracked.

To add a family, write a file here with its forms, and name them in `families.py`. A `Form` (`form.py`) has

    functions                   the names of its functions, or
    parameters, names, method   if a method is the mixer: its parameters, the names in its code, and optionally its name
    read(call)                  before the function runs: its arguments as a `Recurrence` of only this call's positions, where
                                `start` is the state that it gets; or a sentence why it cannot be recorded
    result(call, returned)      after it: the output (B, H, Q, E) of only the mixing, and the final state (B, H, D, E) or None
    after, or around(module)    sentences on the operations after the mixing; convolutions before it are named automatically

A form of a method that needs the results of modules inside it `reads_after`: `prepare` copies the tensors that the method may write
to, and `read` has `call.inner`. Tensors may be views of the model's, because the recorder copies them. A form ignores earlier calls:
`history.py` recognises a call's start state as the final state of an earlier call, for each sequence, and puts the positions of that
call before these.
"""
