"""Checks of drafts and verdicts. A violation is an error of the plugin that made them."""

from __future__ import annotations

import torch

from spec_core.contract.kinds import GREEDY, is_declared
from spec_core.contract.values import Draft, Verdict

PRECISE = (torch.float32, torch.float64)
ONE_WITHIN = 1e-4
"""Tolerance of a row's sum: float32 rounding over the largest vocabularies; a float64 row may be a float32 softmax."""


def check_proposal(draft: Draft, declared: frozenset[str], temperature: float) -> None:
    """Refuse a proposal that ``compat`` did not declare: the rule was chosen for the declared ones."""
    if not isinstance(draft, Draft):
        raise TypeError(f"propose needs a Draft, got {type(draft).__name__}")
    if is_declared(draft.proposal, declared, temperature):
        return
    names = ", ".join(sorted(declared)) or "none"
    if draft.proposal == "deterministic" and GREEDY in declared:
        raise ValueError(
            f"a 'deterministic' draft for a request at temperature {temperature:g}, but compat declared {names}: "
            f"greedy drafts are for temperature 0 alone"
        )
    raise ValueError(f"a {draft.proposal!r} draft, but compat declared {names}")


def check_extension(whole: Draft, leaf: int) -> None:
    """Check that all tokens after one token come from one method: only a token without successors can be extended."""
    if not 0 <= leaf < len(whole) or whole.children(leaf):
        raise ValueError(f"token {leaf} of a draft of {len(whole)} is not a leaf: extend where nothing follows")


def check_draft(draft: Draft, budget: int, nodes: int, vocab: int, trees: bool) -> None:
    """Raise ValueError or TypeError for a draft that breaks the contract."""
    ids = draft.ids
    if not ids:
        raise ValueError("the draft is empty; to draft nothing, do not call propose")
    if draft.parents is None:
        _check_length(len(ids), budget)
    else:
        _check_tree(draft, budget, nodes, trees)
    if min(ids) < 0 or max(ids) >= vocab:
        bad = next(i for i in ids if not 0 <= i < vocab)
        raise ValueError(f"token id {bad} is outside the vocabulary of {vocab}")
    if draft.confidence is not None:
        _check_confidence(draft.confidence, len(ids))
    if draft.proposal == "sampled":
        _check_probs(draft, vocab)


def _check_confidence(confidence: tuple[float, ...], count: int) -> None:
    if len(confidence) != count:
        raise ValueError(f"{len(confidence)} confidences for {count} tokens")
    if not all(0 <= c <= 1 for c in confidence):
        raise ValueError(f"confidences must be from 0 to 1, got {list(confidence)}")


def _check_length(length: int, budget: int) -> None:
    if length > budget:
        raise ValueError(f"a draft of {length} tokens exceeds the budget of {budget}")


def _check_tree(draft: Draft, budget: int, nodes: int, trees: bool) -> None:
    parents = draft.parents or ()
    if not trees:
        raise ValueError("a tree was proposed, but no plugin declared Needs(trees=True)")
    check_parents(draft)
    if len(parents) > nodes:
        raise ValueError(f"a tree of {len(parents)} tokens exceeds the limit of {nodes}")
    _check_length(draft.depth, budget)
    if draft.proposal == "deterministic":
        _check_siblings(draft)


def check_parents(draft: Draft) -> None:
    """Raise ValueError for parents that are not one earlier token of each."""
    parents = draft.parents
    if parents is None:
        return
    if len(parents) != len(draft.ids):
        raise ValueError(f"{len(parents)} parents for {len(draft.ids)} tokens")
    if any(not -1 <= p < i for i, p in enumerate(parents)):
        raise ValueError(f"parents must be -1 or an earlier index, got {list(parents)}")


def _check_siblings(draft: Draft) -> None:
    """Refuse equal siblings: only the first could be kept. Sampled siblings may be equal, as draws are independent."""
    pairs = list(zip(draft.parents or (), draft.ids, strict=True))
    if len(set(pairs)) < len(pairs):
        parent, token = next(pair for i, pair in enumerate(pairs) if pair in pairs[:i])
        raise ValueError(f"token {token} is drafted twice after draft {parent}: draft it once")


def _check_probs(draft: Draft, vocab: int) -> None:
    """Check that every row of a ``sampled`` draft is a distribution with a positive probability of its token."""
    probs = draft.probs
    if probs is None or probs.shape != (len(draft.ids), vocab):
        got = None if probs is None else list(probs.shape)
        raise ValueError(f"proposal 'sampled' needs probs [{len(draft.ids)}, {vocab}], got {got}")
    if probs.dtype not in PRECISE:
        raise TypeError(f"probs must be float32 or float64, got {probs.dtype}: rounding changes the distribution")
    _check_rows(probs)
    drawn = probs.gather(1, draft.tokens.to(probs.device)[:, None])
    if not torch.all(drawn > 0):
        raise ValueError("a drafted token has probability 0 in its own row of probs")


def _check_rows(probs: torch.Tensor) -> None:
    """Check rows in two passes over [K, V]. If the sum is near 1, no term is NaN or infinite."""
    sums = probs.sum(-1)
    if bool(((sums - 1).abs() < ONE_WITHIN).all()) and float(probs.min()) >= 0:
        return
    row = next(i for i, p in enumerate(probs) if not (abs(float(sums[i]) - 1) < ONE_WITHIN and float(p.min()) >= 0))
    values = f"sum {float(sums[row]):.6g}, min {float(probs[row].min()):.6g}"
    raise ValueError(f"row {row} of probs is not a distribution (min 0, sum 1 within {ONE_WITHIN:g}): it has {values}")


def check_verdict(verdict: Verdict, draft: Draft | None, vocab: int) -> None:
    """Raise ValueError for a path that the draft does not have, or a token outside the vocabulary."""
    if not isinstance(verdict, Verdict):
        raise TypeError(f"decide needs a Verdict, got {type(verdict).__name__}")
    if not 0 <= verdict.next_token < vocab:
        raise ValueError(f"token id {verdict.next_token} is outside the vocabulary of {vocab}")
    if not _is_path(verdict.path, draft):
        raise ValueError(f"path {_few(verdict.path)} is not a path of the draft")


def _few(path: tuple[int, ...], count: int = 16) -> str:
    """The first items of a path, for a message."""
    return str(list(path[:count])) if len(path) <= count else f"[{', '.join(map(str, path[:count]))}, ...]"


def _is_path(path: tuple[int, ...], draft: Draft | None) -> bool:
    """Whether each draft index is a child of the one before it, and the first a child of the last committed token."""
    if path == ():
        return True
    if draft is None or draft.parents is None:
        return len(path) <= (0 if draft is None else len(draft.ids)) and path == tuple(range(len(path)))
    parent = -1
    for i in path:
        if not 0 <= i < len(draft.ids) or draft.parents[i] != parent:
            return False
        parent = i
    return True
