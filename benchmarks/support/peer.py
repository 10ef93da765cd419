"""llama.cpp in a process of its own, for measurements in turns: it is idle while this project is measured.

``Peer`` is the client. The server is this file as a program, in an interpreter that has llama-cpp-python
0.3.36, built natively (``CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python==0.3.36``). Requests and answers are
lines of JSON.

The server is a loop over the lowest-level call, ``llama_decode``, with the default type of cache. Between two calls it
does only what llama.cpp's own programs do: put a token into a batch that is allocated once, and choose the next one
from the logits without copying them. At temperature 0 that is numpy's argmax, which is faster than the library's
greedy sampler; above it is the library's own chain of temperature and seeded draw.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

BATCH = 512
"""Rows of one ``llama_decode``, its default batch size; this many rows count as a prompt."""
SECONDS = 0.15
"""Seconds of a burst."""
Side = tuple[Callable[[], None], Callable[[int], None]]
"""Two functions: one resets the cache and is not timed, one runs a forward of a number of rows."""


class Peer:
    """llama.cpp behind a pipe, with a model and a context size in tokens."""

    def __init__(self, python: str, model: str, context: int, threads: int, sequences: int = 1) -> None:
        """sequences: each has ``context`` rows of its own."""
        command = [python, __file__, "-m", model, "--context", str(context), "--threads", str(threads)]
        command += ["--sequences", str(sequences)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{python} did not start: it needs llama-cpp-python 0.3.36, built for this machine")
        self.about: str = json.loads(line)
        """Version of the peer, and the processor features it was built with."""

    def ask(self, **request: Any) -> Any:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the peer ended on {str(request)[:200]}")
        return json.loads(line)

    def burst(self, rows: int, depth: int) -> float:
        """Seconds of a forward of a number of rows, or of one row of each sequence, after ``depth`` cached ones."""
        return float(self.ask(rows=rows, depth=depth))

    def generate(self, prompt: list[int], count: int, temperature: float, seed: int) -> dict[str, Any]:
        """``count`` tokens after a prompt, end tokens included: {"tokens", "prefill", "decode"}, times in seconds."""
        return self.ask(prompt=prompt, count=count, temperature=temperature, seed=seed)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def burst(side: Side, rows: int) -> float:
    """Median seconds of the forwards of a burst: at least three, or a single one if it is long."""
    reset, forward = side
    times: list[float] = []
    while sum(times) < SECONDS or (len(times) < 3 and sum(times) < 5 * SECONDS):
        reset()
        began = perf_counter()
        forward(rows)
        times.append(perf_counter() - began)
    return statistics.median(times)


def tokens(count: int) -> list[int]:
    """A model whose forwards are timed, the same for both sides."""
    return [5 + i % 300 for i in range(count)]


class Llama:
    """A context of llama.cpp with a number of sequences; all functions but ``decode_each`` use the first."""

    def __init__(self, model: str, context: int, threads: int, sequences: int = 1, repacked: bool = True) -> None:
        """repacked: weights may be stored anew for the processor, as llama.cpp's programs do; else they stay as the
        file has them, which also works where a processor announces AMX that its system does not allow."""
        from llama_cpp import llama_cpp as c

        self.c = c
        self._quiet = c.llama_log_callback(lambda level, text, data: None)
        c.llama_log_set(self._quiet, ctypes.c_void_p(0))
        c.llama_backend_init()
        how = c.llama_model_default_params()
        how.use_extra_bufts = repacked
        loaded = c.llama_model_load_from_file(model.encode(), how)
        options = c.llama_context_default_params()
        options.n_ctx, options.n_seq_max = context * sequences, sequences
        options.n_batch = options.n_ubatch = BATCH
        options.n_threads = options.n_threads_batch = threads
        self.context, self.sequences = c.llama_init_from_model(loaded, options), sequences
        self.memory = c.llama_get_memory(self.context)
        self.vocab = c.llama_vocab_n_tokens(c.llama_model_get_vocab(loaded))
        self.batch = c.llama_batch_init(BATCH, 0, 1)
        for i in range(BATCH):
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, 0
        self._rows: dict[tuple[int, int], Any] = {}

    def about(self) -> str:
        from llama_cpp import __version__

        return f"llama-cpp-python {__version__}, {self.c.llama_print_system_info().decode().strip()}"

    def decode(self, tokens: list[int], start: int, every: bool = False) -> None:
        """Evaluate at most one batch of tokens, with the logits of the last token or of all."""
        batch = self.batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i], batch.seq_id[i][0] = token, start + i, every, 0
        batch.logits[len(tokens) - 1] = True
        if self.c.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")

    def decode_each(self, token: int, position: int) -> None:
        """Evaluate one token for each sequence at a position, with its logits."""
        batch = self.batch
        batch.n_tokens = self.sequences
        for i in range(self.sequences):
            batch.token[i], batch.pos[i], batch.logits[i], batch.seq_id[i][0] = token, position, True, i
        if self.c.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")

    def prefill(self, tokens: list[int]) -> None:
        """Evaluate a prompt from position 0 on, a batch at a time."""
        for at in range(0, len(tokens), BATCH):
            self.decode(tokens[at : at + BATCH], at)

    def logits(self, row: int, count: int = 1) -> Any:
        """[count, V] from a row of the batch on, as a view; rows are contiguous."""
        import numpy as np

        pointer = self.c.llama_get_logits_ith(self.context, row)
        key = ctypes.addressof(pointer.contents), count
        if key not in self._rows:
            self._rows[key] = np.ctypeslib.as_array(pointer, shape=(count, self.vocab))
        return self._rows[key]

    def keep(self, rows: int) -> bool:
        """Keep this number of rows; False if the state cannot be rolled back and all rows are lost."""
        if rows and self.c.llama_memory_seq_rm(self.memory, 0, rows, -1):
            return True
        self.c.llama_memory_clear(self.memory, True)
        return False


def forwards(llama: Llama, depth: int) -> Side:
    """Forwards after ``depth`` cached rows."""
    llama.keep(0)
    llama.prefill(tokens(depth))

    def reset() -> None:
        if not llama.keep(depth):
            llama.prefill(tokens(depth))

    def forward(rows: int) -> None:
        prompt = rows >= BATCH
        llama.decode(tokens(rows), depth, every=not prompt)
        first, count = (rows - 1, 1) if prompt else (0, rows)
        llama.logits(first, count).argmax(axis=1)

    return reset, forward


def forwards_of_sequences(llama: Llama, depth: int) -> Side:
    """Forwards of one row for each sequence after ``depth`` cached rows; the number of rows is not read."""
    llama.keep(0)
    for position, token in enumerate(tokens(depth)):
        llama.decode_each(token, position)

    def reset() -> None:
        for sequence in range(llama.sequences):
            if not llama.c.llama_memory_seq_rm(llama.memory, sequence, depth, -1):
                raise RuntimeError("this model cannot roll one sequence back")

    def forward(rows: int) -> None:
        llama.decode_each(5, depth)
        llama.logits(0, llama.sequences).argmax(axis=1)

    return reset, forward


@contextmanager
def sampler(llama: Llama, temperature: float, seed: int) -> Iterator[Callable[[], int]]:
    """Chooses a token from the logits of the last row."""
    if temperature == 0:
        yield lambda: int(llama.logits(-1)[0].argmax())
        return
    c, context = llama.c, llama.context
    chain = c.llama_sampler_chain_init(c.llama_sampler_chain_default_params())
    c.llama_sampler_chain_add(chain, c.llama_sampler_init_temp(temperature))
    c.llama_sampler_chain_add(chain, c.llama_sampler_init_dist(seed))
    yield lambda: c.llama_sampler_sample(chain, context, -1)
    c.llama_sampler_free(chain)


def generate(llama: Llama, prompt: list[int], count: int, temperature: float, seed: int) -> dict[str, Any]:
    """Generate as ``Peer.generate`` does. Generation continues after an end token."""
    llama.keep(0)
    with sampler(llama, temperature, seed & 0xFFFFFFFF) as choose:
        began = perf_counter()
        llama.prefill(prompt)
        tokens = [choose()]
        first = perf_counter()
        for position in range(len(prompt), len(prompt) + count - 1):
            llama.decode(tokens[-1:], position)
            tokens.append(choose())
        return {"tokens": tokens, "prefill": first - began, "decode": perf_counter() - first}


class Server:
    """Answers requests; the cached rows of a depth are evaluated once for all bursts at it."""

    def __init__(self, llama: Llama) -> None:
        self.llama = llama
        self._depth: int | None = None
        self._side: Side | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        if "prompt" in request:
            self._depth = None
            return generate(self.llama, **request)
        return burst(self._at(request["depth"]), request["rows"])

    def _at(self, depth: int) -> Side:
        if self._depth != depth:
            several = self.llama.sequences > 1
            self._depth, self._side = depth, (forwards_of_sequences if several else forwards)(self.llama, depth)
        return self._side


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, help="a GGUF file")
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sequences", type=int, default=1)
    args = parser.parse_args()
    server = Server(Llama(args.model, args.context, args.threads, args.sequences))
    print(json.dumps(server.llama.about()), flush=True)
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
