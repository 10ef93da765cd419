"""A sequence: one running request, its slot of target memory, and the data that plugins keep about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from spec_core.contract.fields import write

if TYPE_CHECKING:
    from torch import Tensor

    from spec_core.contract.encoded_prompt import EncodedPrompt
    from spec_core.contract.matcher import Matcher
    from spec_core.sampling.parameters import Sampling
    from spec_core.sampling.stop import Stop

T = TypeVar("T")


class StashKey(Generic[T]):
    """A key made by the plugin that owns the entry; it is unique, so no other plugin can use it.

    Make it a field of the *instance* (``attrs.field(factory=StashKey, init=False)``): a run may have two instances.
    """

    __slots__ = ()


class Stash:
    """The data that plugins keep about a sequence, by StashKey. It is dropped with its slot, without a hook call."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[StashKey[Any], Any] = {}

    def __getitem__(self, key: StashKey[T]) -> T:
        return self._values[key]

    def __setitem__(self, key: StashKey[T], value: T) -> None:
        self._values[key] = value

    def __delitem__(self, key: StashKey[T]) -> None:
        del self._values[key]

    def __contains__(self, key: StashKey[Any]) -> bool:
        return key in self._values

    def fork(self) -> Stash:
        """Stash for a sequence that begins with the same rows: copies of the values that have ``fork()``."""
        copy = Stash()
        copy._values = {key: value.fork() for key, value in self._values.items() if hasattr(value, "fork")}
        return copy

    def get(self, key: StashKey[T], default: T | None = None) -> T | None:
        return self._values.get(key, default)

    def setdefault(self, key: StashKey[T], default: T) -> T:
        return self._values.setdefault(key, default)


@attrs.define(eq=False)
class Slot:
    """Memory of the target for one sequence. It outlives the request, so that an equal prefix can be reused.

    stash: plugins' data about the rows. state: the target's memory, None until ``target.open``.
    tokens: the token of each row; a negative number where it was given as an embedding, as in ``Sequence``.
    evaluated: number of valid rows. checkpoints: {position: recurrent state}.
    seen: {plugin: first position whose row ``process`` has not delivered to it}. salt: as in Request; of a long one its
    SHA-256. reserved: rows that the target has reserved memory for, which it may set; 0 is unknown.
    The state of a target that gives rows back has ``starts``, the (first, last) positions of ranges in which it can go
    on: empty is everywhere. At position 0 it always can.
    """

    stash: Stash = attrs.field(factory=Stash)
    state: Any = None
    tokens: list[int] = attrs.field(factory=list)
    evaluated: int = 0
    checkpoints: dict[int, Any] = attrs.field(factory=dict)
    seen: dict[str, int] = attrs.field(factory=dict)
    salt: str = ""
    reserved: int = 0

    def start_at(self, want: int, encoded: EncodedPrompt | None = None) -> int:
        """The last position up to ``want`` at which the target can go on.

        encoded: a prompt whose blocks see each other as wholes: the position is not within one.
        """
        start = self._kept_start(want)
        while encoded is not None and (block := encoded.block_at(start)) is not None and block[0] < start:
            start = self._kept_start(block[0])
        return start

    def _kept_start(self, want: int) -> int:
        starts = getattr(self.state, "starts", ())
        return max((min(want, last) for first, last in starts if first <= want), default=0) if starts else want


@attrs.define(eq=False)
class Sequence:
    """One running request. Only the core writes its fields; a plugin keeps its own data in ``seq.stash[key]``.

    tokens: prompt and output; the core appends. prompt_len: number of prompt tokens.
    embeds: {position: [D]} prompt rows given as embeddings. Their token is a negative number that names the contents:
        equal rows have equal numbers. Batches and spans have -1 there.
    encoded: what its prompt with pictures became, or None; drafters that see read ``encoded.pictured`` with the
        ``image_encoder`` of their own model.
    max_tokens: max output tokens. min_tokens: as in Request.
    methods: the plugins that may draft for this request; None means all of the run.
    draft_max: longest draft for this request; None means the run's setting. draft_min, confidence_min, reuse,
        cache_salt, priority: as in Request. prediction: token ids of the text that the request predicts.
    plugin_values: {plugin: {name: value}} what the checks of plugins returned for the request's own values; a plugin
        reads its own with ``step.request_values(seq)``.
    evaluated: number of rows the target holds. delivered: number of rows that ``process`` has delivered.
    reused: rows taken over from an earlier request with the same beginning.
    number: how many requests the run had before it; part of the key of private noise, so no two requests share noise.
    verdict_count: number of steps with a verdict for it. finish: "stop", "complete", "length", "cancelled", "error"
        or None.
    error: the exception that ended it, its own or another sequence's of the same step.
    text: its text as it grows, or None.
    matcher: the state of its constraint after the committed output, or None. Plugins read it through
        ``spec_core.toolkit.allowed_mask`` and ``forced_tokens``.
    offset, noise_stream: as in Request. stop: tokens and texts that end it. slot: its memory in the target.
    """

    tokens: list[int]
    prompt_len: int
    max_tokens: int
    sampling: Sampling
    stop: Stop
    seed: int = 0
    name: str = ""
    min_tokens: int = 0
    embeds: Mapping[int, Tensor] = attrs.field(factory=dict)
    encoded: EncodedPrompt | None = None
    methods: frozenset[str] | None = None
    draft_max: int | None = None
    draft_min: int = 0
    confidence_min: float = 0.0
    prediction: list[int] = attrs.field(factory=list)
    plugin_values: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    reuse: bool = True
    cache_salt: str = ""
    priority: int = 0
    offset: int = 0
    noise_stream: int = 0
    number: int = 0
    slot: Slot = attrs.field(factory=Slot)
    evaluated: int = 0
    delivered: int = 0
    reused: int = 0
    verdict_count: int = 0
    finish: str | None = None
    error: Exception | None = None
    text: Any = None
    matcher: Matcher | None = None

    @property
    def output_position(self) -> int:
        """Output position of the next token: the number of output tokens so far plus the request's ``offset``.

        The offset is included: a run of a plugin's own that continues this text takes this number as its ``offset``.
        """
        return len(self.tokens) - self.prompt_len + self.offset

    @property
    def is_held(self) -> bool:
        """Whether a constraint, or ``min_tokens``, limits the next token."""
        return self.matcher is not None or len(self.tokens) - self.prompt_len < self.min_tokens

    @property
    def stash(self) -> Stash:
        """Plugins' data about this sequence; it stays with the slot, like the rows it describes."""
        return self.slot.stash

    def wants(self, plugin: str) -> bool:
        """Whether this plugin may serve the sequence."""
        return self.methods is None or plugin in self.methods

    def drop(self, methods: frozenset[str], plugins: Iterable[str]) -> None:
        """Drop methods that no longer serve it; for the core alone. plugins: all of the run."""
        if methods:
            write(self, "methods", (frozenset(plugins) if self.methods is None else self.methods) - methods)

    def __repr__(self) -> str:
        name, output = self.name or hex(id(self)), len(self.tokens) - self.prompt_len
        return f"<Sequence {name} {self.prompt_len}+{output} {self.finish or ''}>"


def end_with_error(seq: Sequence, error: Exception) -> None:
    """End a sequence with an error, also while a hook runs."""
    write(seq, "finish", "error")
    write(seq, "error", error)
