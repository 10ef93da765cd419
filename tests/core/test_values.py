"""Values passed to and from plugins: checked when made, equal by content, trees compared with brute force."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spec_core import Compat, Draft, Needs, Stash, StashKey, Verdict
from spec_core.contract.batch import Batch, Part
from spec_core.contract.checks import check_draft, check_verdict
from spec_core.contract.sequence import Slot
from spec_core.toolkit.choosing import walk_draft


@st.composite
def trees(draw):
    """(token ids, parents): parents before children, few tokens, so that siblings are often equal."""
    n = draw(st.integers(1, 12))
    parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
    return draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), parents


chains = st.lists(st.integers(0, 3), min_size=1, max_size=10)


def brute_path(parents: list[int], i: int) -> list[int]:
    return [] if i < 0 else [*brute_path(parents, parents[i]), i]


@given(trees())
def test_ancestry_is_the_path_from_the_root(tree):
    """Itself included; the root has none."""
    draft = Draft(tree[0], parents=tree[1])

    for i in range(-1, len(draft)):
        assert tuple(brute_path(tree[1], i)) == draft.ancestry(i)


@given(trees())
def test_depth_is_the_length_of_the_path(tree):
    """1 follows the last committed token."""
    draft = Draft(tree[0], parents=tree[1])

    assert tuple(len(brute_path(tree[1], i)) for i in range(len(draft))) == draft.depths
    assert max(draft.depths) == draft.depth


@given(trees())
def test_children_are_the_first_of_equal_siblings(tree):
    """By token; of equal siblings the first one."""
    ids, parents = tree
    draft = Draft(ids, parents=parents)

    for node in range(-1, len(ids)):
        children = [j for j in range(len(ids)) if parents[j] == node]
        expected = {ids[j]: min(k for k in children if ids[k] == ids[j]) for j in children}
        assert expected == draft.children(node)


@given(chains)
def test_a_chain_is_the_tree_in_which_each_follows_the_one_before(ids):
    """A chain without parents and one with explicit parents behave the same."""
    chain, tree = Draft(ids), Draft(ids, parents=range(-1, len(ids) - 1))

    assert (chain.depths, chain.depth) == (tree.depths, tree.depth)
    for i in range(-1, len(ids)):
        assert (chain.ancestry(i), chain.children(i)) == (tree.ancestry(i), tree.children(i))


@given(trees(), st.lists(st.integers(0, 3), min_size=13, max_size=13))
@settings(max_examples=300)
def test_walking_finds_the_longest_agreeing_path(tree, choices):
    """Choices by depth: the kept path is the longest one whose tokens are the choices, and the next choice follows.

    Of equal siblings the first counts, with what follows it.
    """
    ids, parents = tree
    draft = Draft(ids, parents=parents)
    verdict = walk_draft(draft, lambda row: choices[draft.depths[row - 1] if row else 0])

    later = [j for j in range(len(ids)) if (ids[j], parents[j]) in list(zip(ids, parents, strict=True))[:j]]
    paths = [p for i in range(len(ids)) if not set(p := brute_path(parents, i)) & set(later)]
    agreeing = [p for p in paths if [ids[j] for j in p] == choices[: len(p)]]
    longest = max(map(len, agreeing), default=0)
    assert longest == len(verdict.path)
    assert [ids[j] for j in verdict.path] == choices[:longest]
    assert choices[longest] == verdict.next_token
    check_verdict(verdict, draft, 4)


@given(trees(), st.lists(st.integers(-2, 13), max_size=5))
def test_a_verdict_must_be_a_path_of_the_draft(tree, path):
    """From the root, each the child of the one before."""
    ids, parents = tree
    good = all(0 <= i < len(ids) for i in path) and (not path or brute_path(parents, path[-1]) == path)
    if good:
        check_verdict(Verdict(path, 0), Draft(ids, parents=parents), 4)
    else:
        with pytest.raises(ValueError):
            check_verdict(Verdict(path, 0), Draft(ids, parents=parents), 4)


@given(
    st.lists(st.integers(-2, 6), max_size=8),
    st.none() | st.lists(st.integers(-3, 8), max_size=8),
    st.integers(1, 5),
    st.integers(1, 8),
    st.booleans(),
)
@settings(max_examples=400)
def test_what_the_check_lets_through_is_a_draft(ids, parents, budget, nodes, allowed):
    """Compared with a check of each rule of the contract."""
    draft = Draft(ids, parents=parents)
    good = bool(ids) and all(0 <= i < 5 for i in ids)
    if parents is None:
        good = good and len(ids) <= budget
    else:
        good = good and allowed and len(parents) == len(ids) <= nodes
        good = good and all(-1 <= p < i for i, p in enumerate(parents))
        good = good and max(len(brute_path(parents, i)) for i in range(len(ids))) <= budget
        good = good and len(set(zip(parents, ids, strict=True))) == len(ids)
    if good:
        check_draft(draft, budget, nodes, 5, allowed)
    else:
        with pytest.raises(ValueError):
            check_draft(draft, budget, nodes, 5, allowed)


@pytest.mark.parametrize("proposal", ["deterministic", "unknown"])
def test_equal_siblings_are_refused_unless_they_were_drawn(proposal):
    """Only one of them can be kept; what was drawn twice is left as it was drawn, else its distribution is another."""
    equal = Draft([3, 4, 3], proposal=proposal, parents=[-1, -1, -1])
    cousins = Draft([3, 4, 5, 5], proposal=proposal, parents=[-1, -1, 0, 1])

    check_draft(cousins, 2, 8, 9, True)
    if proposal == "unknown":
        check_draft(equal, 2, 8, 9, True)
    else:
        with pytest.raises(ValueError, match="token 3 is drafted twice after draft -1"):
            check_draft(equal, 2, 8, 9, True)


@pytest.mark.parametrize(
    "tokens",
    [
        [1, 2, 3],
        (1, 2, 3),
        range(1, 4),
        torch.tensor([1, 2, 3]),
        torch.tensor([1, 2, 3], dtype=torch.int32),
        torch.tensor([1, 2, 3], dtype=torch.uint8),
        np.array([1, 2, 3]),
        [np.int64(1), torch.tensor(2), 3],
        (i for i in (1, 2, 3)),
    ],
    ids=["list", "tuple", "range", "int64", "int32", "uint8", "numpy", "mixed", "generator"],
)
def test_tokens_may_come_as_any_integers(tokens):
    """One host copy, made once; as a tensor they are int64."""
    draft = Draft(tokens)

    assert draft.ids == (1, 2, 3)
    assert all(type(i) is int for i in draft.ids)
    assert torch.equal(draft.tokens, torch.tensor([1, 2, 3])) and draft.tokens.dtype == torch.int64


@pytest.mark.parametrize(
    "tokens",
    [
        torch.tensor([1.0]),
        torch.tensor([[1]]),
        torch.tensor(1),
        torch.tensor([True]),
        [1.0],
        [True],
        ["1"],
        [None],
        "12",
        3,
        [torch.tensor(True)],
        [torch.tensor([1])],
        [np.True_],
        {1: "a"},
        {1: "a"}.keys(),
        {1},
        frozenset({1}),
        b"12",
        bytearray(b"12"),
        np.array([[1]]),
    ],
    ids=str,
)
def test_tokens_of_another_kind_are_refused(tokens):
    """Wrong types are refused, not rounded."""
    with pytest.raises(TypeError):
        Draft(tokens)


def test_the_proposal_of_a_draft_follows_from_its_probs():
    """A draft without probs is deterministic; with probs it was sampled from them."""
    assert Draft([1]).proposal == "deterministic"
    assert Draft([1], probs=torch.ones(1, 2)).proposal == "sampled"
    assert Draft([1], proposal="unknown").proposal == "unknown"
    with pytest.raises(ValueError, match="proposal must be one of deterministic, sampled, unknown"):
        Draft([1], proposal="rows")


@pytest.mark.parametrize("proposal", ["deterministic", "unknown"])
def test_only_drafts_that_were_drawn_have_probs(proposal):
    """Refused: a rule would divide by probabilities that the token was not drawn from."""
    with pytest.raises(ValueError, match=f"got them with '{proposal}'"):
        Draft([1], proposal=proposal, probs=torch.ones(1, 2))


@pytest.mark.parametrize("row", [[1.0, float("nan")], [1.5, -0.5], [float("inf"), 0.0], [0.5, 0.4998]], ids=str)
def test_the_row_that_is_no_distribution_is_named(row):
    draft = Draft([0, 0], probs=torch.tensor([[0.5, 0.5], row]))

    with pytest.raises(ValueError, match=r"row 1 of probs is not a distribution .* it has sum"):
        check_draft(draft, 2, 2, 2, trees=False)


def test_values_are_frozen_and_equal_by_content():
    """Values are immutable; a tensor field does not break ``==``."""
    draft = Draft([1, 2], probs=torch.full((2, 3), 1 / 3))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        draft.ids = (3,)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Verdict((), 1).next_token = 2

    assert draft == Draft([1, 2], probs=torch.full((2, 3), 1 / 3))
    assert draft != Draft([1, 2], probs=torch.eye(2, 3))
    assert draft != Draft([1, 2])
    assert Draft([1, 2]) != draft
    assert Verdict([0, 1], 5) == Verdict((0, 1), 5)


@pytest.mark.parametrize("token", [1.0, "1", None, True, torch.tensor(1.0)], ids=str)
def test_a_verdicts_token_is_an_integer(token):
    """A float would be rounded to another token."""
    with pytest.raises(TypeError):
        Verdict((), token)


def test_a_verdict_takes_tensors_of_integers():
    """Rules compute on tensors."""
    assert Verdict(torch.tensor([0, 1]), torch.tensor(7)) == Verdict((0, 1), 7)


def test_needs_add_up():
    """The target gets the union of all needs."""
    both = Needs(hidden={1}, final=True) | Needs(hidden={2, 1}, trees=True, all_logits=True, trace="states")

    assert both == Needs(hidden={1, 2}, final=True, trees=True, all_logits=True, trace="states")
    assert (Needs() | Needs()) == Needs()
    assert (Needs(trace="inputs") | Needs()).trace == "inputs"


def test_compat_takes_any_collection():
    """Collections are frozen, whatever type was passed."""
    compat = Compat(owns=["recurrent"], drafts=("sampled",), judges=["sampled"])

    assert (frozenset({"recurrent"}), frozenset({"sampled"})) == (compat.owns, compat.drafts)
    assert Compat().drafts is None and Compat(drafts=()).drafts == frozenset()


@given(st.lists(st.tuples(st.integers(1, 4), st.none() | trees()), min_size=1, max_size=4))
def test_batch_parents_are_rows_of_the_batch(shapes):
    """-1 at the first pending row of each part; drafts follow their parent's row, or the last pending one."""
    parts, expected, at = [], [], 0
    for pending, tree in shapes:
        draft = None if tree is None else Draft(tree[0], parents=tree[1])
        part = Part(None, 0, [1] * pending, True, draft=draft, row=at, first_draft_row=at + pending)
        expected += [-1, *range(at, at + pending - 1)]
        for p in tree[1] if tree else []:
            expected.append(at + pending + p if p >= 0 else at + pending - 1)
        at = len(expected)
        parts.append(part)
    batch = Batch(torch.zeros(at), torch.zeros(at), tuple(parts))

    assert expected == batch.parents


def test_stashes_are_private_to_their_keys():
    """Two instances of one plugin do not read each other's entries; an entry goes away with its owner."""
    one, other = StashKey(), StashKey()
    stash = Stash()
    stash[one] = 1

    assert (one in stash, other in stash, stash.get(other), stash.get(other, 5)) == (True, False, None, 5)
    assert (stash.setdefault(one, 9), stash.setdefault(other, 2), stash[other]) == (1, 2, 2)
    del stash[one]
    with pytest.raises(KeyError):
        stash[one]
    assert Slot().stash is not Slot().stash
