"""A llama.cpp server on 127.0.0.1 with the GGUF file that is named: it prints its address, and ends with its input.

    python tests/lens/replay/llama_cpp_program.py model.gguf

The package xllamacpp has llama.cpp's own server compiled in.
"""

import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.n_ctx, parameters.n_parallel = 512, 1
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
parameters.n_threads_http = 1
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
