"""The values that travel between the core, the target and the plugins.

Shapes: K drafted tokens of one sequence, R rows of one forward, V vocabulary, D width, L layers.
All are frozen: a value that a hook received does not change later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, Literal, get_args

import attrs
import torch
from attrs.validators import deep_iterable, deep_mapping, ge, in_, instance_of, is_callable, optional
from torch import Tensor

from spec_core.contract.kinds import (
    GREEDY,
    KINDS,
    PROPOSALS,
    Kind,
    Trace,
    convert_drafted,
    convert_judged,
    convert_names,
)
from spec_core.contract.memory_sizes import RecurrentSizes, WindowedRows
from spec_core.errors import suggest_fields
from spec_core.sampling.given import ints, strings

Learns = Literal["nothing", "length", "tokens"]
"""What earlier verdicts may change in later drafts of a method, see ``Compat.learns``."""
Exact = Literal["rows", "chains", "no", ""]
"""Rows of a target that have equal bits in every forward, see ``TargetInfo.exact``."""
EXACT: tuple[Exact, ...] = ("rows", "chains", "no", "")

tensor_eq = attrs.cmp_using(eq=torch.equal)


UNORDERED = (Mapping, Set, str, bytes, bytearray, memoryview)
"""Iterables that are refused as a list of numbers: a dict yields its keys, a set has no order, a text characters."""
ROWS, INT = (list, tuple), frozenset({int})
"""The usual types, accepted without further checks."""


def _ids(tokens: Any) -> tuple[int, ...]:
    """Host copy of token ids, made once; a tensor must be one-dimensional and integral."""
    if isinstance(tokens, Tensor):
        if tokens.dtype.is_floating_point or tokens.dtype == torch.bool or tokens.dim() != 1:
            raise TypeError(f"Draft.tokens must be int64 [K], got {tokens.dtype} {list(tokens.shape)}")
        return tuple(tokens.tolist())
    return _integers(tokens, "token ids")


def _integers(values: Iterable[Any], what: str) -> tuple[int, ...]:
    row = values if type(values) is tuple else _row(values, what)
    return row if INT.issuperset(map(type, row)) else tuple(map(_integer, row))


def _row(values: Iterable[Any], what: str) -> tuple[Any, ...]:
    if type(values) not in ROWS and isinstance(values, UNORDERED):
        raise TypeError(f"{what} must be a list or tensor, got the {type(values).__name__} {values!r}")
    return tuple(values)


def _integer(value: Any) -> int:
    """A token id: an int, or an integer of numpy or torch. A bool is refused, though it converts to an integer."""
    if type(value) is int:
        return value
    kind = str(getattr(value, "dtype", type(value).__name__))
    if "bool" in kind or not hasattr(value, "__index__") or getattr(value, "ndim", 0) != 0:
        raise TypeError(f"a token id must be an integer, got {value!r}")
    return value.__index__()


def _path(path: Iterable[Any]) -> tuple[int, ...]:
    return path if path == () else _integers(path, "indices of a path")


def _check_claim(kind: Kind, probs: Tensor | None) -> None:
    """Refuse ``probs`` of tokens that were not sampled: a rule reads them as the distributions drawn from."""
    if probs is not None and kind not in ("sampled", "mixed"):
        raise ValueError(
            f"probs belong to the proposal 'sampled', got them with {kind!r}: "
            f"leave out probs, or leave out proposal if every token was drawn from its row of probs"
        )


def _parents(parents: Any) -> tuple[int, ...] | None:
    return None if parents is None else _ids(parents)


@attrs.frozen(init=False)
class Draft:
    """Tokens proposed by a method for one sequence, to be checked in one target forward.

    ids: the K token ids on the host, drafted in this order.
    proposal: how the tokens were chosen: ``deterministic`` by a function of committed text and earlier drafts,
        ``sampled`` by drawing from ``probs`` (needed by Leviathan et al., 2211.17192), ``unknown`` otherwise. The core
        makes ``mixed`` drafts when a method extends the draft of another: only some of their tokens were drawn.
    probs: [K, V] float32 or float64, row i the distribution that token i was drawn from. Raises ValueError for a
        proposal that is ``deterministic`` or ``unknown``. In a ``mixed`` draft, the row of a token that was not drawn
        is a point mass.
    parents: K indices, -1 ... i-1; -1 is the last committed token. None means a chain.
    confidence: [K] floats in [0, 1], the method's estimate of the probability that each token is accepted if those
        before it in its path are; or None.
    """

    ids: tuple[int, ...]
    proposal: Kind
    probs: Tensor | None = attrs.field(eq=tensor_eq)
    parents: tuple[int, ...] | None
    confidence: tuple[float, ...] | None

    def __init__(
        self,
        tokens: Tensor | Iterable[int],
        proposal: Kind | None = None,
        probs: Tensor | None = None,
        parents: Tensor | Iterable[int] | None = None,
        confidence: Tensor | Iterable[float] | None = None,
    ) -> None:
        proposal = proposal or ("deterministic" if probs is None else "sampled")
        if proposal not in KINDS:
            greedy = "; greedy is said in Compat(drafts=...): the draft itself is deterministic"
            hint = greedy if str(proposal) == GREEDY else ""
            raise ValueError(f"proposal must be one of {', '.join(sorted(PROPOSALS))}, got {proposal!r}{hint}")
        _check_claim(proposal, probs)
        floats = None if confidence is None else tuple(float(c) for c in _row(confidence, "confidences"))
        self.__attrs_init__(_ids(tokens), proposal, probs, _parents(parents), floats)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> Tensor:
        """The ids as an int64 tensor [K] on the CPU."""
        return torch.tensor(self.ids, dtype=torch.int64)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of every draft token: 1 follows the last committed token."""
        if self.parents is None:
            return tuple(range(1, len(self.ids) + 1))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """Length of the longest path; 0 for an empty draft."""
        return len(self.ids) if self.parents is None else max(self.depths, default=0)

    def ancestry(self, i: int) -> tuple[int, ...]:
        """Indices from the root down to draft token ``i``, itself included; empty for -1."""
        if self.parents is None:
            return tuple(range(i + 1))
        path: list[int] = []
        while i >= 0:
            path.append(i)
            i = self.parents[i]
        return tuple(reversed(path))

    def children(self, i: int) -> dict[int, int]:
        """{token id: draft index} of the children of draft ``i`` (-1: the last committed token).

        The first of equal siblings is returned.
        """
        if self.parents is None:
            return {self.ids[i + 1]: i + 1} if i + 1 < len(self.ids) else {}
        children: dict[int, int] = {}
        for j, parent in enumerate(self.parents):
            if parent == i:
                children.setdefault(self.ids[j], j)
        return children


@attrs.frozen
class Verdict:
    """The tokens of a draft that are kept, and the token that follows them.

    path: draft indices from the root to the last kept token; a chain of k kept tokens is 0 ... k-1.
    next_token: the token after the path, which is not a drafted one.
    tv_distance: for a lossy rule, the total variation distance between the distribution of its tokens and the target's,
        summed over positions.
    """

    path: tuple[int, ...] = attrs.field(converter=_path)
    next_token: int = attrs.field(converter=_integer)
    tv_distance: float = 0.0


@suggest_fields
@attrs.frozen
class Needs:
    """Outputs of a forward besides the logits that the rules need.

    logits: the plugin reads rows of logits in ``rollback`` or ``process`` (``step.logits``, ``step.output.logits``). A
        run always has them, other engines may not.
    hidden: indices i of hidden states: i < L is the residual stream at the entry of block i, i = L after the last.
    final: the hidden state after the final norm, the input of the output matrix.
    trees: drafts may branch. all_logits: a logits row for every row of the batch.
    trace: what to record of recurrent layers for draft rows: their states, or the inputs of their update.
    depth: record it only for the first ``depth`` drafted tokens of each sequence; None means all.
    weights: GGUF names of the target's weights that the plugin reads with ``target.tensor``, such as
        ``token_embd.weight``. cached_layers: blocks of the target whose keys and values the plugin reads with its
        ``CacheReader``. constraints, predictions: the plugin drafts only from these fields of requests.
    probes: rows of a sequence that the plugin may add to a forward with ``step.probe``, in addition to drafts.
    choices: a rule reads the target's tokens with ``toolkit.choosers``, as does a run without a rule: a target may
        choose them in its forward.
    runs_target: the plugin evaluates sequences of its own on the target. partial: it runs rows through a part of its
        blocks, with ``partial_forward``. A run allows both and gives these fields; other engines may not.
    """

    hidden: frozenset[int] = attrs.field(default=frozenset(), converter=ints)
    final: bool = False
    trees: bool = False
    logits: bool = attrs.field(default=False, kw_only=True)
    all_logits: bool = False
    trace: Trace | None = attrs.field(default=None, validator=in_((None, "states", "inputs")))
    depth: int | None = None
    weights: frozenset[str] = attrs.field(default=frozenset(), converter=convert_names, kw_only=True)
    cached_layers: frozenset[int] = attrs.field(default=frozenset(), converter=ints, kw_only=True)
    constraints: bool = attrs.field(default=False, kw_only=True)
    predictions: bool = attrs.field(default=False, kw_only=True)
    choices: bool = attrs.field(default=False, kw_only=True)
    runs_target: bool = attrs.field(default=False, kw_only=True)
    partial: bool = attrs.field(default=False, kw_only=True)
    probes: int = attrs.field(default=0, kw_only=True, validator=[instance_of(int), ge(0)])

    def __or__(self, other: Needs) -> Needs:
        single: dict[str, Any] = {"trace": self.trace or other.trace, "depth": (self if self.trace else other).depth}
        single["probes"] = self.probes + other.probes
        names = (field.name for field in attrs.fields(Needs) if field.name not in single)
        return Needs(**single, **{name: getattr(self, name) | getattr(other, name) for name in names})


@attrs.frozen
class Refusal:
    """Why a plugin cannot serve this target, and what the user can do.

    reason: what was found and what was needed. hint: what to do.
    """

    reason: str
    hint: str


def _refusals(refusals: Iterable[Refusal]) -> tuple[Refusal, ...]:
    """``tuple`` with annotations, which type checkers need for an attrs converter."""
    return tuple(refusals)


@suggest_fields
@attrs.frozen
class Compat:
    """A plugin's answer to ``compat``: its capabilities and requirements.

    owns: kinds of target state that it rolls back.
    needs: what each target forward must return for it.
    refusals: reasons why it cannot run here; any refusal stops the run before a weight is read.
    drafts: the kinds of proposal that it drafts; None means ``deterministic`` for a plugin with a draft hook, empty
        means that it never drafts. ``greedy`` are deterministic drafts for requests at temperature 0 alone.
    extends: it may extend the drafts of other methods, with ``step.leaves`` and ``step.extend``.
    judges: for a rule, the kinds of proposal it can judge, ``mixed`` for drafts that are drawn in part only, ``greedy``
        for deterministic ones at temperature 0 alone; None means all.
    noise: for a rule, ``shared`` if it decides with the noise that drafters may read, else ``private``.
    lossy: for a rule, why its text does not have the target's distribution; None if it has.
    steers: for a rule, what it does to the text, which is defined without drafts but is not the target's: guidance by
        another model, a watermark. With drafts the text is that of the rule alone, and speeds are compared with it.
    forwards: function of the drafted length K: max forwards of its own per step; the conformance kit checks it.
    memory: bytes that it takes in addition to the target's, if it takes much: ``weights``, and ``row`` for every
        position of a sequence. Where it gives rows back, also ``kept_row``, the part of ``row`` that stays, and
        ``windows``, what the rest of a sequence takes at most. The memory plan of a server adds them up.
    notes: facts for the user before the run, such as the memory it will take; printed by ``spec compat``.
    load: called once no plugin refuses; weights are read only there.
    shares: another sequence may begin with rows of one that it has seen: its values in ``seq.stash`` have ``fork()``, a
        copy that has a life of its own, or it makes what is missing from the tokens.
    catches_up: it reads generated tokens from ``seq.tokens`` when it drafts: rows are delivered to it only in steps
        with rows of a prompt, and ``rollback`` is called only in steps with a draft. Has no effect on owners of state
        and rules.
    learns: what earlier verdicts may change in its later drafts: ``nothing``, as these depend on committed text alone;
        their ``length``; or their ``tokens`` too, where drafts are equal after equal verdicts.
    shares_learning: one text may change the drafts of another, of the same cache salt.
    keeps_former_text: on a reused slot, tokens of the earlier text may help the next one; they are compared before use.
    request_values: {name: check} values that requests may give to it, see ``step.request_values``. ``check(value)``
        returns what the plugin will read, in the thread that submits; ValueError, TypeError or UsageError refuses the
        request.
    report: what the plugin did in the run, for statistics and JSON; its text ``summary`` is also printed.
    close: called once when the run is closed, after its texts have ended: the place to save what was learned. Not
        called for a run that was never closed, for a plugin that was switched off, and by other engines.
    """

    owns: frozenset[str] = attrs.field(default=frozenset(), converter=convert_names)
    needs: Needs = attrs.field(default=Needs(), validator=instance_of(Needs))
    refusals: tuple[Refusal, ...] = attrs.field(
        default=(), converter=_refusals, validator=deep_iterable(instance_of(Refusal))
    )
    drafts: frozenset[str] | None = attrs.field(default=None, converter=attrs.converters.optional(convert_drafted))
    extends: bool = False
    judges: frozenset[str] | None = attrs.field(default=None, converter=attrs.converters.optional(convert_judged))
    noise: Literal["shared", "private"] = attrs.field(default="shared", validator=in_(("shared", "private")))
    lossy: str | None = attrs.field(default=None, validator=optional(instance_of(str)))
    steers: str | None = attrs.field(default=None, validator=optional(instance_of(str)), kw_only=True)
    forwards: Callable[[int], int] | None = attrs.field(default=None, validator=optional(is_callable()))
    memory: Mapping[str, int] = attrs.field(factory=dict)
    notes: tuple[str, ...] = attrs.field(default=(), converter=strings)
    load: Callable[[Any], None] | None = attrs.field(default=None, validator=optional(is_callable()))
    shares: bool = False
    catches_up: bool = False
    learns: Learns = attrs.field(default="nothing", validator=in_(get_args(Learns)), kw_only=True)
    shares_learning: bool = attrs.field(default=False, kw_only=True)
    keeps_former_text: bool = attrs.field(default=False, kw_only=True)
    request_values: Mapping[str, Callable[[Any], Any]] = attrs.field(
        factory=dict, validator=deep_mapping(instance_of(str), is_callable()), kw_only=True
    )
    report: Callable[[], Mapping[str, Any]] | None = attrs.field(default=None, validator=optional(is_callable()))
    close: Callable[[], None] | None = attrs.field(default=None, validator=optional(is_callable()))


@suggest_fields
@attrs.frozen
class TargetInfo:
    """Facts about a target, for plugins: plain values, which can be written as JSON.

    vocab: V, rows of the output matrix. width: D. layers: L, blocks of the trunk.
    states: kinds of state a step changes, such as ``attention`` and ``recurrent``.
    context: max positions of a sequence. vocab_id: identity of the tokenizer; if equal, equal ids are equal tokens.
    trees: whether ``forward`` accepts drafts that branch. family: the architecture, as named in its file.
    bos: the id a text begins with, or None. eog: ids that end a text.
    batch_device: where tokens and positions of a batch are; empty: on ``device``. chooses: see ``Batch.choices``.
    exact: which rows have equal bits however they are computed: ``rows``, every row, alone, with drafts, in a tree and
        in a batch; ``chains``, the rows of text and of drafts that are chains; ``no``, none: a draft may change the
        winner of a near tie. Empty if it is not known, as before weights are read. exact_why: why it is not ``rows``.
    tensors: names of the weights that ``tensor`` gives; None means all that the model has.
    file: where its weights are. types: {storage type: tensors}. options: the settings with which it was loaded.
    kernels, threads: what executes it, for people. weight_bytes, row_bytes, step_bytes: memory of all weights, of a
    position of a sequence, and of the largest step; None if they are not known. recurrent: sizes of recurrent layers.
    windowed: what layers with a window keep, where they give rows back; None: all rows are kept.
    layer_max: limits of further layers that its executor runs: ``head``, width of an attention head, ``inputs``,
    hidden states that a layer reads; a missing one is none.
    rotation_base: of the positions in attention, before any scaling; norm_epsilon: of the norms. None: not known.
    companions: {method: location} of its drafters. prompts: a file of its prompts.
    """

    name: str
    vocab: int
    width: int
    layers: int
    context: int
    states: frozenset[str] = frozenset({"attention"})
    trees: bool = True
    vocab_id: str = ""
    dtype: str = "float32"
    device: str = "cpu"
    family: str = ""
    bos: int | None = None
    eog: frozenset[int] = frozenset()
    batch_device: str = ""
    chooses: bool = False
    exact: Exact = attrs.field(default="", validator=in_(EXACT))
    exact_why: str = ""
    tensors: frozenset[str] | None = attrs.field(default=None, converter=attrs.converters.optional(convert_names))
    file: str = ""
    types: Mapping[str, int] = attrs.field(factory=dict)
    options: Mapping[str, str] = attrs.field(factory=dict)
    kernels: str = ""
    threads: str = ""
    weight_bytes: int | None = None
    row_bytes: int | None = None
    step_bytes: int | None = None
    recurrent: RecurrentSizes | None = None
    windowed: WindowedRows | None = None
    layer_max: Mapping[str, int] = attrs.field(factory=dict)
    rotation_base: float | None = None
    norm_epsilon: float | None = None
    companions: Mapping[str, str] = attrs.field(factory=dict)
    prompts: str | None = None

    @property
    def row_device(self) -> str:
        """Device of the tokens and positions of a batch."""
        return self.batch_device or self.device

    def rows_bytes(self, positions: int, step: int = 0) -> int | None:
        """Max bytes of the attention rows of a sequence of this length; None if they are not known.

        step: max rows of the sequence in one forward.
        """
        if self.row_bytes is None or self.windowed is None:
            return None if self.row_bytes is None else positions * self.row_bytes
        kept = self.windowed.rows + max(step, self.windowed.step)
        return positions * self.row_bytes - max(0, positions - kept) * self.windowed.row_bytes

    @property
    def exactness(self) -> str | None:
        """``exact`` with its reason, for reports (``no: float16 on a device``); None if it is not known."""
        return ": ".join(filter(None, (self.exact, self.exact_why))) or None
