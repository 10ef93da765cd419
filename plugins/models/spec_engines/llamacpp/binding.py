"""The functions of llama.cpp that the target calls. No other module knows their names."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import llama_cpp as api
import torch
from llama_cpp import _ggml
from torch import Tensor

from spec_core.errors import TargetError, UsageError

ROWS = 512
"""Max rows of one call."""
SNAPSHOTS = 16
"""Snapshots of recurrent state in a sequence: drafts up to this length are rolled back by llama.cpp."""
LEAVES = 64
"""Max leaves of a draft that branches: each path from the root to a leaf is a sequence to llama.cpp."""
NODES = 256
"""Cells beyond the context's, for the tokens of a draft that branches: two may have one position."""
ANY = -1
"""All sequences, to functions of llama.cpp that take one."""
CACHES = {"auto": 1, "float32": 0, "float16": 1, "q8": 8}
"""Our names of cache types, and ggml's numbers."""
FLASH_ATTENTION = 1
PARTIAL = 1
"""Flag of state functions: recurrent state alone."""
EMBEDDING = ("embd", "inp_embd", "inp_scaled", "model.input_embed")
"""Names of the input of block 0, by architecture; the last one that is computed counts."""
FINAL = "result_norm"
DIMENSIONS = 4
"""Positions of each row given as an embedding, in models with positions in several dimensions."""
IDS = ctypes.POINTER(ctypes.c_int32)
Owners = Sequence[Sequence[int]] | None

_base = ctypes.CDLL(str(next(_ggml.libggml_base_path.glob("*ggml-base*"))))
_base.ggml_get_name.restype = ctypes.c_char_p
_base.ggml_nbytes.restype = ctypes.c_size_t
_base.ggml_nrows.restype = ctypes.c_int64
for _function in (_base.ggml_get_name, _base.ggml_nbytes, _base.ggml_nrows):
    _function.argtypes = [ctypes.c_void_p]
_base.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]


@api.llama_log_callback
def _silent(level: int, text: bytes, data: Any) -> None:
    """Drop the hundreds of lines that llama.cpp writes for a model."""


@attrs.frozen
class Facts:
    """Facts of llama.cpp about a model. layers: blocks of the trunk, without those for drafting."""

    width: int
    layers: int
    context: int
    vocab: int
    recurrent: bool


class Model:
    """A loaded model; freed when it is garbage collected. allocate: False reads metadata only."""

    def __init__(self, path: str, allocate: bool = True, offload: bool = False) -> None:
        """Load a model. Raises UsageError for a file that llama.cpp cannot load."""
        api.llama_log_set(_silent, None)
        api.llama_backend_init()
        params = api.llama_model_default_params()
        if not allocate:
            params.no_alloc, params.load_mode = True, api.LLAMA_LOAD_MODE_NONE
        params.n_gpu_layers = -1 if offload else 0
        self.handle = api.llama_model_load_from_file(path.encode(), params)
        if not self.handle:
            raise UsageError(f"{path}: llama.cpp cannot load it", hint="check that llama.cpp supports its architecture")

    def __del__(self) -> None:
        if getattr(self, "handle", None) and api is not None:  # None when the interpreter ends
            api.llama_model_free(self.handle)
            self.handle = None

    @property
    def facts(self) -> Facts:
        handle = self.handle
        return Facts(
            api.llama_model_n_embd(handle),
            api.llama_model_n_layer(handle),
            api.llama_model_n_ctx_train(handle),
            api.llama_vocab_n_tokens(api.llama_model_get_vocab(handle)),
            api.llama_model_is_recurrent(handle) or api.llama_model_is_hybrid(handle),
        )


def offloads_layers() -> bool:
    """Whether the installed llama.cpp can compute on another device than the CPU."""
    return bool(api.llama_supports_gpu_offload())


@attrs.frozen
class Size:
    """Size of a sequence's memory. cache: ggml's number of the type of keys and values. trees: drafts may branch."""

    positions: int
    threads: int
    cache: int
    trees: bool = False


class Context:
    """Memory of one sequence of a run, and the calls on it; freed when it is garbage collected.

    With drafts that branch, llama.cpp has one sequence for each path of a draft; all of them hold the committed rows.
    """

    def __init__(self, model: Model, size: Size, tapped: bool = False) -> None:
        """tapped: hidden states can be read, at the cost of a call into Python for every operation.

        Raises TargetError if there is not enough memory.
        """
        self.model, self.size, self.taps = model, size, Taps() if tapped else None
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = size.positions, ROWS, ROWS, 1
        if size.trees:
            params.n_ctx, params.n_seq_max, params.kv_unified = size.positions + NODES, LEAVES, True
        params.n_rs_seq, params.flash_attn_type, params.swa_full = SNAPSHOTS, FLASH_ATTENTION, True
        params.n_threads = params.n_threads_batch = size.threads
        params.type_k = params.type_v = size.cache
        if self.taps is not None:
            params.cb_eval = self.taps.callback
        self.handle = api.llama_init_from_model(model.handle, params)
        if not self.handle:
            raise TargetError(
                f"llama.cpp has no memory for {size.positions} positions",
                hint="load the model with a smaller --context, or run fewer sequences at once",
            )
        self.memory = api.llama_get_memory(self.handle)
        self.vocab = model.facts.vocab
        self.arrays, self.logits = Arrays(), torch.empty(0, self.vocab)

    def __del__(self) -> None:
        if getattr(self, "handle", None) and api is not None:  # as above
            api.llama_free(self.handle)
            self.handle = None

    @property
    def snapshots(self) -> int:
        """Number of rows that recurrent state can be rolled back; 0 without recurrent layers."""
        return int(api.llama_n_rs_seq(self.handle))

    def decode(
        self, rows: Sequence[int] | Tensor, positions: Sequence[int], outputs: Sequence[bool], owners: Owners = None
    ) -> Tensor:
        """Evaluate tokens, or embeddings [n, D]; logits [W, V] of the wanted rows, valid until the next call.

        owners: the sequences that each row belongs to; None: sequence 0 alone. Raises TargetError if llama.cpp fails.
        """
        vectors: Tensor | None = None
        if isinstance(rows, Tensor):
            vectors = rows.float().contiguous()  # its memory is read until the call is over
            batch = embedding_batch(vectors, positions, outputs)
        else:
            batch = self.arrays.text(rows, positions, outputs)
        if owners is not None:
            batch = with_owners(batch, owners)
        code = api.llama_decode(self.handle, batch)
        if code != 0:
            raise TargetError(
                f"llama.cpp returned {code} for {len(rows)} rows at position {positions[0]}",
                hint="load the model with a larger --context, or report it",
            )
        if self.taps is not None:
            self.taps.collect(vectors)
        return self._logits(sum(outputs))

    def _logits(self, count: int) -> Tensor:
        """Copy the logits, because llama.cpp may free their memory; to one place, because allocation takes longer."""
        if self.logits.shape[0] != count:
            self.logits = torch.empty(count, self.vocab)
        if count:
            ctypes.memmove(self.logits.data_ptr(), api.llama_get_logits(self.handle), 4 * count * self.vocab)
        return self.logits

    def cut(self, length: int) -> bool:
        """Drop positions from ``length`` on; False if recurrent state cannot be rolled back so far."""
        if length == 0:
            api.llama_memory_clear(self.memory, True)
            return True
        return bool(api.llama_memory_seq_rm(self.memory, ANY if self.size.trees else 0, length, -1))

    def share(self, source: int, others: Iterable[int], start: int = 0) -> None:
        """The rows of sequence ``source`` from position ``start`` on become other sequences'; none is copied."""
        for other in others:
            api.llama_memory_seq_rm(self.memory, other, start, -1)
            api.llama_memory_seq_cp(self.memory, source, other, start, -1)

    def copy_state(self, partial: bool = True) -> bytes:
        """The state as bytes that llama.cpp can read. partial: of recurrent layers only."""
        flags = PARTIAL if partial else 0
        size = api.llama_state_seq_get_size_ext(self.handle, 0, flags)
        buffer = (ctypes.c_uint8 * size)()
        written = api.llama_state_seq_get_data_ext(self.handle, buffer, size, 0, flags)
        return bytes(buffer[:written]) if written < size else bytes(buffer)

    def put(self, state: bytes, partial: bool = True) -> None:
        """Restore what ``copied`` returned. Raises TargetError if llama.cpp refuses it."""
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        if not api.llama_state_seq_set_data_ext(self.handle, buffer, len(state), 0, PARTIAL if partial else 0):
            raise TargetError("llama.cpp did not restore a state that it had written", hint="report it")


class Arrays:
    """A batch of tokens of sequence 0, whose arrays are used again in every call."""

    def __init__(self) -> None:
        self.tokens: Any = (ctypes.c_int32 * ROWS)()
        self.positions: Any = (ctypes.c_int32 * ROWS)()
        self.wanted: Any = (ctypes.c_int8 * ROWS)()
        self.batch: Any = api.llama_batch(token=self.tokens, pos=self.positions, logits=self.wanted)

    def text(self, tokens: Sequence[int], positions: Sequence[int], outputs: Sequence[bool]) -> Any:
        count = self.batch.n_tokens = len(tokens)
        self.tokens[:count], self.positions[:count], self.wanted[:count] = tokens, positions, outputs
        return self.batch


def embedding_batch(rows: Tensor, positions: Sequence[int], outputs: Sequence[bool]) -> Any:
    """A batch of embeddings [n, D], whose memory the caller keeps.

    Models with positions in several dimensions read four of each row.
    """
    count = len(rows)
    return api.llama_batch(
        n_tokens=count,
        embd=ctypes.cast(rows.data_ptr(), ctypes.POINTER(ctypes.c_float)),
        pos=(ctypes.c_int32 * (DIMENSIONS * count))(*[*positions] * DIMENSIONS),
        logits=(ctypes.c_int8 * count)(*outputs),
    )


def with_owners(batch: Any, owners: Sequence[Sequence[int]]) -> Any:
    """The batch with the sequences of each row."""
    arrays = [(ctypes.c_int32 * len(row_owners))(*row_owners) for row_owners in owners]
    owned_batch: Any = api.llama_batch(batch.n_tokens, batch.token, batch.embd, batch.pos)
    owned_batch.logits = batch.logits
    owned_batch.n_seq_id = (ctypes.c_int32 * len(owners))(*map(len, arrays))
    owned_batch.seq_id = (IDS * len(owners))(*(ctypes.cast(array, IDS) for array in arrays))
    return owned_batch


class Taps:
    """Reads hidden states while llama.cpp computes."""

    def __init__(self) -> None:
        self.keys: dict[str, int] = {}
        self.found: dict[int, list[Tensor]] = {}
        self.now: dict[int, Tensor] = {}
        self.callback = api.ggml_backend_sched_eval_callback(self._on_operation)

    def _on_operation(self, tensor: int, ask: bool, data: Any) -> bool:
        """Answer for every operation: first whether its result is wanted, then take the result."""
        if not self.keys:
            return not ask
        key = self.keys.get(_base.ggml_get_name(tensor).decode("utf-8", "replace"))
        if ask:
            return key is not None
        if key is not None:
            rows, size = _base.ggml_nrows(tensor), _base.ggml_nbytes(tensor)
            value = torch.empty(rows, size // 4 // max(rows, 1))
            _base.ggml_backend_tensor_get(tensor, value.data_ptr(), 0, size)
            self.now[key] = value
        return True

    def request(self, names: Mapping[int, Sequence[str]]) -> None:
        """Request hidden states. names: {hidden state: names of tensors}; the last one that is computed counts."""
        self.keys = {name: key for key, several in names.items() for name in several}
        self.found = {key: [] for key in names}

    def collect(self, vectors: Tensor | None) -> None:
        """Collect the hidden states of a call. vectors: the embeddings of its rows, which no operation computes.

        Raises TargetError if llama.cpp computed nothing of the requested names.
        """
        if vectors is not None and 0 in self.found:
            self.now.setdefault(0, vectors)
        for key, pieces in self.found.items():
            if key not in self.now:
                raise TargetError(
                    f"llama.cpp computed no hidden state {key} that is known by name for this architecture",
                    hint="run a method that reads no hidden states, or use another target for this model",
                )
            pieces.append(self.now[key])
        self.now = {}

    def take(self) -> dict[int, Tensor]:
        """{hidden state: [n, D]} since the request."""
        return {key: torch.cat(pieces) for key, pieces in self.found.items()}
