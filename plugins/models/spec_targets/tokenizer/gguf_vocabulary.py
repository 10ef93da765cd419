"""A tokenizer from GGUF metadata: BPE over bytes or characters, or SentencePiece with merges made from its scores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from spec_core.errors import UsageError, nearest_names
from spec_targets.formats.collector import without_collection
from spec_targets.formats.numbers import Numbers
from spec_targets.formats.texts import Texts
from spec_targets.tokenizer.base import SPECIAL, Tokenizer
from spec_targets.tokenizer.hostile import refuse_failures
from spec_targets.tokenizer.known import GEMMA4_CONTROL, flags_of
from spec_targets.tokenizer.merges import is_merge, listed_merges, scored_merges
from spec_targets.tokenizer.patterns import PATTERNS, Division, division
from spec_targets.tokenizer.prefix import Steps

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
LISTS = (list, Texts)
NUMBERS = (list, Numbers)
DAMAGED = "the file is damaged; get it again"
UNBUILT = "its tokenizer cannot be built"


class Metadata:
    """``tokenizer.ggml.*`` with types and lengths checked.

    pieces: tokens as mapped from the file, which a tokenizer keeps. tokens: the same in memory, for construction.
    """

    def __init__(
        self, metadata: Mapping[str, Any], where: str, ends: frozenset[int], flags: Flags | None, divisions: Divisions
    ) -> None:
        self.raw, self.where, self.ends, self.flags, self.divisions = metadata, where, ends, flags, divisions
        self.pieces: Sequence[str] = self.of("tokens", LISTS, required=True)
        self.tokens = list(self.pieces)
        if set(map(type, self.tokens)) != {str}:
            raise UsageError(f"{where}: tokenizer.ggml.tokens must be texts", hint=DAMAGED)
        self.types: list[int] = list(self.of("token_type", NUMBERS) or [NORMAL] * len(self.tokens))
        if len(self.types) != len(self.tokens):
            raise UsageError(f"{where}: {len(self.tokens)} tokens and {len(self.types)} token types", hint=DAMAGED)

    def of(self, key: str, kind: type | tuple[type, ...], required: bool = False) -> Any:
        value = self.raw.get(f"tokenizer.ggml.{key}")
        if (value is None and required) or (value is not None and not isinstance(value, kind)):
            raise UsageError(f"{self.where}: tokenizer.ggml.{key} is {type(value).__name__}", hint=DAMAGED)
        return value

    def division(self) -> Division:
        """How a text is divided. Raises UsageError for an unknown name."""
        pre = self.of("pre", str) or "default"
        if pre in PATTERNS:
            return division(pre)
        if pre not in self.divisions:
            raise UsageError(
                f"{self.where}: pre-tokenizer {pre!r} is unknown",
                hint=f"known: {nearest_names(pre, PATTERNS)}; an architecture's package can add it (Family.divisions)",
            )
        return self.divisions[pre]

    def id(self, key: str) -> int | None:
        value = self.of(f"{key}_token_id", int)
        if value is not None and not 0 <= value < len(self.tokens):
            raise UsageError(f"{self.where}: {key} token is {value} of {len(self.tokens)}", hint=DAMAGED)
        return value

    def mark_control(self, names: Collection[str]) -> None:
        """Make the tokens of these names control tokens, whatever the file says."""
        self.types = [CONTROL if text in names else kind for text, kind in zip(self.tokens, self.types, strict=True)]

    def ids(self, *kinds: int) -> list[int]:
        chosen = set(kinds)
        return [i for i, kind in enumerate(self.types) if kind in chosen]


Flags = Mapping[str, Mapping[str, Any]]
"""Matching of tokens, by their texts: ``lstrip``, ``rstrip``, ``single_word``, ``normalized``."""
Divisions = Mapping[str, Division]
"""Divisions of texts by ``tokenizer.ggml.pre``, in addition to the known ones."""
KNOWN_ONLY: Divisions = {}
"""No additional divisions."""


def from_gguf(
    metadata: Mapping[str, Any],
    where: str = "the file",
    ends: frozenset[int] = frozenset(),
    flags: Flags | None = None,
    divisions: Divisions = KNOWN_ONLY,
) -> Tokenizer:
    """The tokenizer of a model. ends: ids that end a text in addition to the metadata's. flags: matching of the
    declared tokens; None if none are declared, as in GGUF. divisions: see ``Divisions``. The merges are built when a
    text is encoded first.
    Raises UsageError for an unknown kind or pre-tokenizer."""
    meta = Metadata(metadata, where, ends, flags, divisions)
    makers = {"gpt2": _bpe, "llama": _spm, "gemma4": _character_bpe}
    model = meta.of("model", str, required=True)
    if model not in makers:
        raise UsageError(
            f"{where}: tokenizer model {model!r} is not supported",
            hint=f"supported: {nearest_names(model, makers)} (BPE and SentencePiece)",
        )
    with refuse_failures(f"{where}: {UNBUILT}", DAMAGED):
        return makers[model](meta)


def _bpe(meta: Metadata) -> Tokenizer:
    rule = meta.division()
    texts = meta.of("merges", LISTS) or []

    def make_backend() -> Backend:
        vocab = _first_ids(meta.tokens)
        merges = listed_merges(meta.tokens, vocab, texts)
        backend = Backend(models.BPE(vocab, merges, fuse_unk=False, ignore_merges=rule.whole))
        splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        backend.decoder = decoders.ByteLevel()
        if rule.compose:
            backend.normalizer = normalizers.NFC()
        return backend

    add_bos = meta.of("add_bos_token", bool)
    return _finish(meta, make_backend, add_bos=rule.add_bos if add_bos is None else add_bos, no_bos=rule.no_bos)


def _character_bpe(meta: Metadata) -> Tokenizer:
    """BPE over characters, ``▁`` for spaces, bytes for characters without a token, and bos before every text.

    A text is divided at newlines only; runs of them are merged like other text.
    """
    meta.mark_control(GEMMA4_CONTROL)
    meta.of("bos_token_id", int, required=True)
    meta.of("add_bos_token", bool)  # checked and not used, as in llama.cpp: these models need bos
    texts = meta.of("merges", LISTS, required=True)

    def make_backend() -> Backend:
        vocab = _first_ids(meta.tokens)
        merges = listed_merges(meta.tokens, vocab, texts)
        _check_complete(meta, vocab, texts, merges)
        backend = Backend(models.BPE(vocab, merges, byte_fallback=True))
        backend.normalizer = normalizers.Replace(" ", "▁")
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n+"), behavior="isolated")
        return backend

    return _finish(meta, make_backend, add_bos=True, spm=True)


def _check_complete(
    meta: Metadata, vocab: Mapping[str, int], texts: Sequence[Any], merges: Sequence[tuple[str, str]]
) -> None:
    """Raise UsageError if a merge was left out, or if a byte has no token."""
    if len(merges) != len(texts):
        bad = next(text for text in texts if not is_merge(text, vocab))
        raise UsageError(f"{meta.where}: the merge {str(bad)[:40]!r} is not of two tokens to a third", hint=DAMAGED)
    missing = next((name for byte in range(256) if (name := f"<0x{byte:02X}>") not in vocab), None)
    if missing is not None:
        raise UsageError(f"{meta.where}: the tokens of bytes are needed, {missing} is missing", hint=DAMAGED)


def _first_ids(tokens: list[str]) -> dict[str, int]:
    """Text -> id; of equal texts the first is used."""
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    return ids if len(ids) == len(tokens) else dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))


def _spm(meta: Metadata) -> Tokenizer:
    scores = meta.of("scores", NUMBERS, required=True)
    if len(scores) != len(meta.tokens):
        raise UsageError(f"{meta.where}: {len(meta.tokens)} tokens and {len(scores)} scores", hint=DAMAGED)
    unknown = meta.tokens[meta.id("unknown") or 0]
    prefix = meta.of("add_space_prefix", bool)
    prefix = True if prefix is None else prefix
    spaces = normalizers.Replace(" ", "▁")

    def make_backend() -> Backend:
        vocab = _first_ids(meta.tokens)
        merged = bytes(kind in (NORMAL, USER) for kind in meta.types)
        merges = scored_merges(meta.tokens, vocab, scores, merged, unknown)
        backend = Backend(models.BPE(vocab, merges, unk_token=unknown, byte_fallback=True, fuse_unk=True))
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces]) if prefix else spaces
        return backend

    add_bos = meta.of("add_bos_token", bool)
    return _finish(
        meta,
        make_backend,
        add_bos=True if add_bos is None else add_bos,
        spm=True,
        steps=Steps(spaces, None) if prefix else None,
        defaults={"bos": 1, "eos": 2},
    )


def _finish(
    meta: Metadata,
    make_backend: Callable[[], Backend],
    *,
    add_bos: bool,
    no_bos: bool = False,
    spm: bool = False,
    steps: Steps | None = None,
    defaults: Mapping[str, int] | None = None,
) -> Tokenizer:
    control, user = meta.ids(CONTROL, UNKNOWN), meta.ids(USER)
    known = flags_of([meta.tokens[i] for i in control], spm) if meta.flags is None else meta.flags
    special, plain = _added_tokens(meta, control, known, special=True), _added_tokens(meta, user, known, special=False)

    def make_complete() -> Backend:
        with refuse_failures(f"{meta.where}: {UNBUILT}", DAMAGED), without_collection():
            backend = make_backend()
            backend.add_special_tokens(special)
            backend.add_tokens(plain)
            return backend

    ids = {name: meta.id(name) for name in ("bos", "eos", "eot", "eom")}
    for name, value in (defaults or {}).items():
        if ids[name] is None and value < len(meta.tokens):
            ids[name] = value
    if no_bos:
        ids["bos"] = None
    template = meta.raw.get("tokenizer.chat_template")
    texts = {name: meta.tokens[i] for name, i in ids.items() if i is not None}
    others = {"unk": "unknown", "pad": "padding", "sep": "seperator", "mask": "mask"}
    texts |= {name: meta.tokens[i] for name, key in others.items() if (i := meta.id(key)) is not None}
    named = {name: meta.id(f"fim_{name}") for name in ("pre", "suf", "mid", "pad", "rep", "sep")}
    named |= {name[:3]: meta.id(name) for name in ("prefix", "suffix", "middle") if named[name[:3]] is None}
    fim = {name: token for name, token in named.items() if token is not None}
    tokenizer = Tokenizer(
        make_complete,
        meta.pieces,
        meta.tokens,
        control=frozenset(control),
        plain=frozenset(user),
        special_ids=ids,
        ends=meta.ends | {fim[name] for name in ("pad", "rep", "sep") if name in fim},
        add_bos=add_bos,
        spm=spm,
        strip_space=steps is not None,
        steps=steps,
        names={f"{name}_token": text for name, text in texts.items() if name in SPECIAL},
        chat_template=template if isinstance(template, str) else None,
    )
    tokenizer.fim = fim
    return tokenizer


def _added_tokens(meta: Metadata, ids: list[int], flags: Flags, special: bool) -> list[AddedToken]:
    """Tokens that are matched before a text is divided."""
    texts = [text for i in ids if (text := meta.tokens[i])]
    return [AddedToken(text, special=special, **{"normalized": False, **flags.get(text, {})}) for text in texts]
