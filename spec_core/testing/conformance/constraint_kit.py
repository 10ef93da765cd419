"""Conformance of a constraint: ``make`` returns a new one, whose matcher a run would use."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import ClassVar

import attrs
import numpy as np

from spec_core.contract.matcher import Matcher, allows_token, words
from spec_core.contract.request import Request
from spec_core.loop.run import Run
from spec_core.testing.conformance.base import Conformance, expect, expect_same, run_together
from spec_core.testing.conformance.promise import promise
from spec_core.testing.drafters import Oracle


class ConstraintConformance(Conformance):
    """Inherit, let ``make`` return a new constraint, and ``target`` a target with the vocabulary that it is for.

    The kit looks ahead at places of texts that the constraint allows: ``documents``, token ids, and random
    ones. Most tokens that it tries are ``structural``, as far as those are allowed: a matcher errs at tokens that end
    one part of its grammar and begin another, which chance seldom finds.

    places: number of places for each check.
    """

    places: ClassVar[int] = 60
    structural: ClassVar[tuple[int, ...]] = ()

    def documents(self) -> list[list[int]]:
        return []

    def after(self, tokens: list[int]) -> Matcher:
        """A new matcher after these tokens."""
        matcher: Matcher = self.make().start(self.model)
        for token in tokens:
            expect(matcher.advance(token), f"advance({token}) is False in {tokens}, its mask allows it")
        return matcher

    def one_request(self) -> None:
        self.texts(self.requests()[:1])

    def texts(self, requests: list[Request]) -> list[list[int]]:
        """Output of plain decoding under the constraint."""
        run = Run(self.model, rollback=self.owner(), reuse=False)
        return run_together(run, [self.with_constraint(request) for request in requests])

    def with_constraint(self, request: Request) -> Request:
        return attrs.evolve(request, constraint=self.make(), ignore_eos=False)

    @promise("Tokens that were appended and undone leave no trace: the masks equal a text's without them.")
    def test_undone_tokens_leave_no_trace(self) -> None:
        for rng, tokens in self._places():
            looking = self.after(tokens)
            drafted = self._draft(rng, looking, rng.randint(1, 3))
            looking.rollback(len(drafted))
            if rng.random() < 0.5:  # the next look may repair what the draft has left
                self._equal(looking, tokens, f"after {drafted} were appended and undone")
            token = self.choose(rng, self.after(tokens).masks(())[0])
            if token is not None:
                expect(looking.advance(token), f"advance({token}) is False after {drafted} were undone")
                self._equal(looking, [*tokens, token], f"after {drafted} were appended and undone, then {token}")

    @promise("``masks`` and ``forced`` change nothing.")
    def test_looking_changes_nothing(self) -> None:
        for rng, tokens in self._places():
            looking = self.after(tokens)
            drafted = [t for t in (self.choose(rng, looking.masks(())[0]) for _ in range(2)) if t is not None]
            looking.masks(drafted)
            looking.forced_tokens(8)
            self._equal(looking, tokens, f"after masks({drafted}) and forced(8)")

    @promise("``masks(drafted)`` has the masks that appending the drafted tokens one by one gives.")
    def test_masks_of_a_draft_are_those_of_its_tokens(self) -> None:
        for rng, tokens in self._places():
            drafted = self._draft(rng, self.after(tokens), 3)
            masks = self.after(tokens).masks(drafted)
            for i, row in enumerate(masks[: len(drafted)]):
                single = self.after([*tokens, *drafted[:i]]).masks(())[0]
                expect(np.array_equal(row, single), f"row {i} of masks({drafted}) is another one")

    @promise("A token is accepted exactly if its mask allows it, and a refused one changes nothing.")
    def test_tokens_of_the_mask_are_accepted_and_no_others(self) -> None:
        for rng, tokens in self._places():
            looking = self.after(tokens)
            mask = looking.masks(())[0]
            for token in rng.sample(range(self.model.info.vocab), 8):
                if token in self.model.info.eog:
                    continue
                taken = looking.advance(token)
                expect(taken == allows_token(mask, token), f"advance({token}) is {taken}, its mask says {not taken}")
                if taken:
                    looking.rollback(1)
            self._equal(looking, tokens, "after refused tokens")

    @promise("Two texts of one constraint share nothing.")
    def test_two_texts_share_nothing(self) -> None:
        constraint = self.make()
        one, other = constraint.start(self.model), constraint.start(self.model)
        first = other.masks(()).copy()
        self._draft(random.Random(0), one, 8)
        expect(np.array_equal(first, other.masks(())), "the masks of one text depend on another")

    @promise("With drafts the text of a seed is that of plain decoding under the constraint.")
    def test_text_with_drafts_is_plain(self) -> None:
        requests = self.requests()
        plain = self.texts(requests)
        known = {r.name: [*r.prompt, *text] for r, text in zip(requests, plain, strict=True)}
        drafter = Oracle(known, lambda i, seq: (i + seq.verdict_count) % 3 > 0, vocab=self.model.info.vocab)
        texts = run_together(self.run([drafter]), [self.with_constraint(request) for request in requests])
        for tokens, expected, request in zip(texts, plain, requests, strict=True):
            expect_same(tokens, expected, f"seed={request.seed}")

    def choose(self, rng: random.Random, mask: np.ndarray) -> int | None:
        """A token that a mask [W] allows, no end of the text; None where there is none."""
        usual = [t for t in self.structural if allows_token(mask, t)]
        if usual and rng.random() < 0.8:
            return rng.choice(usual)
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: self.model.info.vocab]
        tokens = [int(t) for t in np.flatnonzero(bits) if t not in self.model.info.eog]
        return rng.choice(tokens) if tokens else None

    def _draft(self, rng: random.Random, matcher: Matcher, depth: int) -> list[int]:
        """Tokens that were appended, each after a look at its mask."""
        drafted: list[int] = []
        while len(drafted) < depth and not matcher.complete:
            token = self.choose(rng, matcher.masks(())[0])
            if token is None or not matcher.advance(token):
                break
            drafted.append(token)
        if not matcher.complete:
            matcher.masks(())
        return drafted

    def _places(self) -> Iterator[tuple[random.Random, list[int]]]:
        """Beginnings of texts, after which the text is not complete."""
        documents = self.documents() or [self._walk(random.Random(seed)) for seed in range(4)]
        for seed in range(self.places):
            rng = random.Random(seed)
            text = documents[seed % len(documents)]
            yield rng, text[: rng.randrange(len(text) + 1)]

    def _walk(self, rng: random.Random) -> list[int]:
        matcher = self.after([])
        text: list[int] = []
        while len(text) < 40:
            token = self.choose(rng, matcher.masks(())[0])
            if token is None or not matcher.advance(token) or matcher.complete:
                break
            text.append(token)
        return text

    def _equal(self, matcher: Matcher, tokens: list[int], when: str) -> None:
        plain = self.after(tokens)
        mask, expected = matcher.masks(())[0], plain.masks(())[0]
        shape = mask.shape == (words(self.model.info.vocab),)
        expect(shape and np.array_equal(mask, expected), f"the mask after {tokens} is another one {when}")
        expect(matcher.complete == plain.complete, f"complete is {matcher.complete} {when}")
