"""Methods that break one promise each, beside healthy ones that keep all.

Longer than our files are: there is one small class per promise, and they are read beside each other.
"""

from __future__ import annotations

import random
from typing import Any

import attrs
import torch

from spec_core import Compat, Draft, Needs, Probes, StashKey, Verdict, hookimpl
from spec_core.sampling.noise import gumbel
from spec_core.toolkit import evaluate, partial_forward, partial_problem


@attrs.define(eq=False)
class Lookup:
    """Healthy: drafts what followed the last earlier occurrence of the last token."""

    length: int = 3
    log: StashKey[list[int]] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            ids = self.ahead(seq, min(budget, self.length))
            if ids:
                step.propose(seq, Draft(ids))

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            self.learn(seq.stash.setdefault(self.log, []), span)

    def ahead(self, seq, count: int) -> list[int]:
        log = seq.stash.get(self.log, [])
        at = next((i for i in reversed(range(len(log))) if log[i] == seq.tokens[-1]), len(log))
        ids = log[at + 1 : at + 1 + count]
        return ids[: ids.index(-1)] if -1 in ids else ids

    def learn(self, log: list[int], span) -> None:
        log[span.start :] = span.tokens


@attrs.define(eq=False)
class TakesALength(Lookup):
    """Healthy: drafts at most as many tokens as the request says."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"deterministic"}, request_values={"length": self.check_length})

    def check_length(self, value) -> int:
        if type(value) is not int or not 0 <= value <= 9:
            raise ValueError("give a whole number from 0 to 9")
        return value

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            ids = self.ahead(seq, min(budget, step.request_values(seq).get("length", self.length)))
            if ids:
                step.propose(seq, Draft(ids))


@attrs.define(eq=False)
class TakesAnyLength(TakesALength):
    """Accepts any value as the length of drafts."""

    def check_length(self, value) -> Any:
        return value


@attrs.define(eq=False)
class PoolsBySalt(Lookup):
    """Healthy: drafts what followed the last two tokens in any text with the same cache salt, and says so."""

    pool: dict[tuple[Any, ...], int] = attrs.field(factory=dict, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"deterministic"}, shares_learning=True)

    def salt_of(self, seq) -> str:
        return seq.cache_salt

    def ahead(self, seq, count: int) -> list[int]:
        token = self.pool.get((self.salt_of(seq), *seq.tokens[-2:]), -1)
        return [token] if token >= 0 else []

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            for end in range(max(span.start, 1), span.end):
                self.pool[(self.salt_of(seq), *seq.tokens[end - 1 : end + 1])] = seq.tokens[end + 1]


@attrs.define(eq=False)
class PoolsAllTexts(PoolsBySalt):
    """Drafts from texts with another salt too."""

    def salt_of(self, seq) -> str:
        return ""


@attrs.define(eq=False)
class Attends(Lookup):
    """Healthy: drafts what followed the row whose key is most like that of the last row."""

    reader: Any = attrs.field(default=None, init=False)

    @hookimpl
    def compat(self, target):
        return Compat(needs=Needs(cached_layers={0}), load=self.load)

    def load(self, target) -> None:
        self.reader = target.cache_reader

    def ahead(self, seq, count: int) -> list[int]:
        rows = self.rows(seq)
        keys, _ = rows.read(0)
        last = (keys[0, :-1] - keys[0, -1]).square().sum(-1)
        at = int(last.argmin()) + 1 if len(last) else len(seq.tokens)
        ids = seq.tokens[at : at + count]
        return ids[: ids.index(-1)] if -1 in ids else ids

    def rows(self, seq):
        return self.reader.rows(seq, seq.evaluated)


@attrs.define(eq=False)
class ReadsKeysItDoesNotDeclare(Attends):
    """Its needs name no block."""

    @hookimpl
    def compat(self, target):
        return Compat(load=self.load)


@attrs.define(eq=False)
class WritesKeys(Attends):
    """Scales the key of the first row a little."""

    def rows(self, seq):
        rows = super().rows(seq)
        for key in getattr(rows.memory, "keys", ())[:1]:
            key *= 1.0 + 1e-12
        return rows


@attrs.define(eq=False)
class ReadsOneRowTooMany(Attends):
    """Wants the key of the last token too, which has none yet."""

    def rows(self, seq):
        return self.reader.rows(seq, seq.evaluated + 1)


@attrs.define(eq=False)
class NamesATypeThatIsNotThere(Lookup):
    """Its setting's type was imported for type checkers only."""

    width: Tokens = 4  # noqa: F821


@attrs.define(eq=False)
class Sampler:
    """Healthy: draws from a fixed random table with the step's noise, and shows its rows where they are wanted."""

    length: int = 2
    table: Any = attrs.field(default=None, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"sampled", "unknown"}, forwards=lambda k: k, load=self.load)

    def load(self, target) -> None:
        vocab = target.info.vocab
        self.table = torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            ids, probs = [seq.tokens[-1]], []
            for i in range(min(budget, self.length)):
                probs.append(torch.softmax(self.table[ids[-1]], -1))
                ids.append(self.draw(step, seq, i, probs[-1]))
            step.propose(seq, self.create_draft(step, ids[1:], torch.stack(probs)))

    def draw(self, step, seq, i: int, q) -> int:
        return int((q.log() + step.noise(seq, i)).argmax())

    def create_draft(self, step, ids, probs) -> Draft:
        return Draft(ids, probs=probs) if step.wants_probs else Draft(ids, proposal="unknown")


@attrs.define(eq=False)
class ReadsTheText(Lookup):
    """Healthy: need not be called in every step, as it reads the whole text when it drafts."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(catches_up=True)

    def ahead(self, seq, count: int) -> list[int]:
        seq.stash.setdefault(self.log, [])[:] = seq.tokens[:-1]
        return super().ahead(seq, count)


@attrs.define(eq=False)
class NeverCatchesUp(ReadsTheText):
    """Says that it reads generated tokens when it drafts, and knows those of prompts only."""

    def ahead(self, seq, count: int) -> list[int]:
        return Lookup.ahead(self, seq, count)


@attrs.define(eq=False)
class Raises(Lookup):
    """Raises when it learns from a generated token."""

    def learn(self, log, span) -> None:
        super().learn(log, span)
        assert not span.start, "not expected"


# by the text


@attrs.define(eq=False)
class KeepsItsDrafts(Lookup):
    """Accepts whatever it drafted itself."""

    @hookimpl
    def accept(self, step) -> None:
        for seq in step.undecided:
            if step.part(seq).source == step.plugin:
                rows = step.logits(seq)
                step.decide(seq, Verdict(range(len(rows) - 1), int(rows[-1].argmax())))


@attrs.define(eq=False)
class OneLogForAll(Lookup):
    """Keeps one log on the instance, and counts on its growing row by row."""

    mine: list[int] = attrs.field(factory=list, init=False)

    def learn(self, log, span) -> None:
        assert span.start == len(self.mine), "a gap in the rows"
        self.mine += span.tokens
        super().learn(log, span)


@attrs.define(eq=False)
class DividesByWhatWasKept(Lookup):
    """Weighs its last drafts by how many of them were kept, though it may be none."""

    fared: list[int] = attrs.field(factory=list, init=False)

    @hookimpl
    def rollback(self, step) -> None:
        for seq, verdict in step.verdicts.items():
            if step.part(seq).source == step.plugin:
                self.fared.append(len(verdict.path))
        if len(self.fared) > 8:
            1 / sum(self.fared[-8:])


@attrs.define(eq=False)
class TakesEveryDraftForItsOwn(Lookup):
    """Expects that a verdict is about a draft of its own."""

    sent: StashKey[int] = attrs.field(factory=StashKey, init=False)

    def ahead(self, seq, count):
        ids = super().ahead(seq, count)
        seq.stash[self.sent] = len(ids)
        return ids

    @hookimpl
    def rollback(self, step) -> None:
        for seq, verdict in step.verdicts.items():
            if step.part(seq).draft is not None:
                assert len(verdict.path) <= seq.stash.get(self.sent, 0), "more was kept than was drafted"


@attrs.define(eq=False)
class ExpectsOneRow(Lookup):
    """Takes the last committed token for the only row that is not evaluated yet."""

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            (last,) = step.part(seq).pending
            ids = self.ahead(seq, min(budget, self.length))
            if ids and last >= 0:
                step.propose(seq, Draft(ids))


@attrs.define(eq=False)
class CleansUpWhatIsNotThere(Lookup):
    """Deletes at the end what it made when it drafted: a text may end before."""

    asked: StashKey[bool] = attrs.field(factory=StashKey, init=False)

    def ahead(self, seq, count):
        seq.stash[self.asked] = True
        return super().ahead(seq, count)

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            self.learn(seq.stash.setdefault(self.log, []), span)
            if seq.finish:
                del seq.stash[self.asked]


@attrs.define(eq=False)
class AdvancesTheConstraint(Lookup):
    """Leaves a request's constraint after its own draft."""

    def ahead(self, seq, count: int) -> list[int]:
        ids = super().ahead(seq, count)
        if seq.matcher is not None:
            for token in ids:
                seq.matcher.advance(token)
        return ids


@attrs.define(eq=False)
class CountsThemIn(Lookup):
    """Counts sequences in and out, but a cancelled one has no last row; its room is the number that runs at once."""

    inside: set = attrs.field(factory=set, init=False)

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            self.learn(seq.stash.setdefault(self.log, []), span)
            self.inside.add(seq)
            assert len(self.inside) <= 3, "no room for another sequence"
            if seq.finish:
                self.inside.remove(seq)


@attrs.define(eq=False)
class DraftsEverybody(Lookup):
    """Goes over the parts of the step instead of what is offered."""

    def ahead(self, seq, count):
        return seq.tokens[-1:] if count else []

    @hookimpl
    def draft(self, step) -> None:
        for part in step.parts:
            ids = self.ahead(part.seq, min(part.budget, self.length))
            if ids:
                step.propose(part.seq, Draft(ids))


@attrs.define(eq=False)
class LooksUpEveryToken(Lookup):
    """Every token gets a row of a table; a position given as an embedding has none."""

    def learn(self, log, span) -> None:
        torch.nn.functional.one_hot(torch.tensor(span.tokens), 48)
        super().learn(log, span)


@attrs.define(eq=False)
class HasTooFewPlaces(Lookup):
    """Has a table of positions that is a little shorter than the context."""

    places: int = attrs.field(default=0, init=False)

    @hookimpl
    def compat(self, target) -> None:
        self.places = target.info.context - 4

    def learn(self, log, span) -> None:
        assert span.end <= self.places, "position outside of the table"
        super().learn(log, span)


# by what is proposed


class Mute:
    """Never drafts."""

    @hookimpl
    def draft(self, step) -> None:
        pass


@attrs.define(eq=False)
class IgnoresTheBudget(Lookup):
    """Drafts its own length, whatever is allowed."""

    def ahead(self, seq, count):
        return super().ahead(seq, self.length)


@attrs.define(eq=False)
class ProposesNothing(Lookup):
    """Says that it has nothing by an empty draft."""

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            step.propose(seq, Draft(self.ahead(seq, min(budget, self.length))))


@attrs.define(eq=False)
class FillsUp(Lookup):
    """Fills short drafts up with an id that is no token."""

    def ahead(self, seq, count):
        ids = super().ahead(seq, count)
        return ids + [48] * (count - len(ids))


@attrs.define(eq=False)
class SaysAnotherProposal(Lookup):
    """Declares deterministic drafts and proposes unknown ones."""

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            ids = self.ahead(seq, min(budget, self.length))
            if ids:
                step.propose(seq, Draft(ids, proposal="unknown"))


@attrs.define(eq=False)
class IsGreedyAtEveryTemperature(Lookup):
    """Declares greedy and sampled drafts, and drafts without a row for requests with a temperature."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"sampled", "greedy"})


@attrs.define(eq=False)
class ProbesItsGuesses(Lookup):
    """Healthy: reads what follows its last guess, and drafts that when the text comes there."""

    known: StashKey[dict[tuple[int, int], int]] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(needs=Needs(probes=2, logits=True), drafts={"deterministic"}, learns="tokens")

    @hookimpl
    def draft(self, step) -> None:
        for seq, budget in step.undrafted:
            if self.has_room(step, seq):
                step.probe(seq, Probes([seq.tokens[0] % 40, 5]) if seq.tokens[0] >= 0 else Probes([1, 5]))
            token = seq.stash.get(self.known, {}).get(tuple(seq.tokens[-2:]), -1)
            if token >= 0:
                step.propose(seq, Draft([token]))
            elif ids := self.ahead(seq, min(budget, self.length)):
                step.propose(seq, Draft(ids))

    def has_room(self, step, seq) -> bool:
        return step.probe_room(seq) >= 2

    @hookimpl
    def rollback(self, step) -> None:
        for seq in step.verdicts:
            if seq.wants(step.plugin) and (rows := step.probe_rows(seq)) is not None:
                known = seq.stash.setdefault(self.known, {})
                known[max(seq.tokens[0], 0) % 40, 5] = int(rows.logits[1].argmax())


@attrs.define(eq=False)
class ProbesWithoutRoom(ProbesItsGuesses):
    """Does not ask whether the step has rows left."""

    def has_room(self, step, seq) -> bool:
        return True


@attrs.define(eq=False)
class ThrowsDice(Lookup):
    """Declares deterministic drafts and chooses their length by chance."""

    def ahead(self, seq, count):
        return super().ahead(seq, random.randint(1, count))


@attrs.define(eq=False)
class HasItsOwnChance(Sampler):
    """Draws by a generator of its own."""

    def draw(self, step, seq, i, q):
        return int(torch.multinomial(q, 1))


@attrs.define(eq=False)
class ShowsNoDistribution(Sampler):
    """Its rows sum to less than 1."""

    def create_draft(self, step, ids, probs):
        return super().create_draft(step, ids, probs * 0.99)


@attrs.define(eq=False)
class AlwaysShowsRows(Sampler):
    """Makes rows of probs though nobody reads them."""

    def create_draft(self, step, ids, probs):
        return Draft(ids, probs=probs)


@attrs.define(eq=False)
class DrawsTheBest(Sampler):
    """Takes the most likely token and says that it was drawn."""

    def draw(self, step, seq, i, q):
        return int(q.argmax())


@attrs.define(eq=False)
class DrawsFromOldNumbers(Sampler):
    """Has numbers of its own for every position, the same whenever it is drawn."""

    def draw(self, step, seq, i, q):
        return int((q.log() + gumbel(seq.seed, seq.output_position + i, len(q), domain=5)).argmax())


@attrs.define(eq=False)
class Spender(Lookup):
    """Healthy: pretends to run a model once per drafted token, all sequences together."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(forwards=lambda k: k)

    @hookimpl
    def draft(self, step) -> None:
        lengths = [0]
        for seq, budget in step.undrafted:
            ids = self.ahead(seq, min(budget, self.length))
            if ids:
                lengths.append(len(ids))
                step.propose(seq, Draft(ids))
        step.report_cost(forwards=self.rows_needed(lengths))

    def rows_needed(self, lengths: list[int]) -> int:
        return max(lengths)


@attrs.define(eq=False)
class SpendsMore(Spender):
    """Runs its model for one sequence after the other."""

    def rows_needed(self, lengths):
        return sum(lengths)


@attrs.define(eq=False)
class ReadsWeightsEarly(Lookup):
    """Reads weights when it is only asked what it can."""

    weights: Any = attrs.field(default=None, init=False)

    @hookimpl
    def compat(self, target) -> None:
        self.weights = target.tensor("token_embd.weight")


@attrs.define(eq=False)
class Reader(Lookup):
    """Healthy: reads hidden states, and drafts a token that depends on the last one."""

    last: StashKey[Any] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(needs=Needs(hidden={1}))

    def ahead(self, seq, count):
        if self.last not in seq.stash:
            return []
        return [int(seq.stash[self.last].sum().abs() * 1000) % 48]

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            seq.stash[self.last] = self.keep(span.hidden[1][-1:])

    def keep(self, hidden):
        return hidden.clone()


@attrs.define(eq=False)
class NormalisesInPlace(Reader):
    """Scales what it was shown instead of a copy."""

    def keep(self, hidden):
        hidden /= hidden.norm()
        return hidden.clone()


# by what is remembered


class ReadsLogitsUnasked(Lookup):
    """Looks at the best token of every row, and does not declare it."""

    @hookimpl
    def rollback(self, step) -> None:
        for seq in step.verdicts:
            step.logits(seq).argmax(-1)


@attrs.define(eq=False)
class RunsTheTarget(Lookup):
    """Healthy: asks the target for the token after the text, in a sequence of its own, and says so."""

    target: Any = attrs.field(default=None, init=False)

    @hookimpl
    def compat(self, target) -> Compat:
        return Compat(needs=Needs(runs_target=True), load=self.load)

    def load(self, target) -> None:
        self.target = target

    def ahead(self, seq, count):
        return [int(evaluate(self.target, list(seq.tokens)).logits[-1].argmax())]


class RunsTheTargetUnasked(RunsTheTarget):
    """Its needs do not say it."""

    @hookimpl
    def compat(self, target) -> Compat:
        return Compat(load=self.load)


@attrs.define(eq=False)
class RunsAPart(Lookup):
    """Healthy: makes the first block ready, where the target runs parts, and says so."""

    @hookimpl
    def compat(self, target) -> Compat:
        is_there = partial_problem(target) is None
        return Compat(needs=Needs(partial=is_there), load=self.load)

    def load(self, target) -> None:
        if partial_problem(target) is None:
            partial_forward(target, [0])


class RunsAPartUnasked(RunsAPart):
    """Its needs do not say it."""

    @hookimpl
    def compat(self, target) -> Compat:
        return Compat(load=self.load)


@attrs.define(eq=False)
class ReadsWeightsUnasked(Lookup):
    """Takes the target's embedding when it is loaded, and does not declare it."""

    weights: Any = attrs.field(default=None, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(load=self.take)

    def take(self, target) -> None:
        self.weights = target.tensor("token_embd.weight")


@attrs.define(eq=False)
class TakesTheLastRowOnly(Lookup):
    """Learns one row per step, though a chunk of a prompt or a kept draft has several."""

    def learn(self, log, span) -> None:
        log[span.start :] = [-1] * (len(span.tokens) - 1) + span.tokens[-1:]


@attrs.define(eq=False)
class BelievesItsDrafts(Lookup):
    """Enters drafts into its log, and takes the rows of the step for the end of it."""

    def ahead(self, seq, count):
        ids = super().ahead(seq, count)
        seq.stash.setdefault(self.log, []).extend(ids)
        return ids

    def learn(self, log, span) -> None:
        log += span.tokens


@attrs.define(eq=False)
class LearnsFromNeighbours(Lookup):
    """Remembers which token followed which, of all sequences together."""

    after: dict[int, int] = attrs.field(factory=dict, init=False)

    def ahead(self, seq, count):
        return [self.after[seq.tokens[-1]]] if seq.tokens[-1] in self.after else []

    def learn(self, log, span) -> None:
        self.after.update(zip(span.tokens, span.next, strict=True))


@attrs.define(eq=False)
class Counter(Lookup):
    """Healthy: drafts what followed a token at least twice."""

    seen: StashKey[dict] = attrs.field(factory=StashKey, init=False)

    def ahead(self, seq, count):
        counts = seq.stash.get(self.seen, {})
        return [b for (a, b), n in sorted(counts.items()) if a == seq.tokens[-1] and n >= 2][:1]

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            counts = seq.stash.setdefault(self.seen, {})
            for pair in zip(span.tokens, span.next, strict=True):
                counts[pair] = counts.get(pair, 0) + 1


@attrs.define(eq=False)
class AvoidsWhatWasRejected(Lookup):
    """Healthy: drafts no token that was rejected in this text, and says so."""

    rejected: StashKey[set[int]] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"deterministic"}, learns="tokens")

    def avoided_tokens(self, seq) -> set[int]:
        return seq.stash.setdefault(self.rejected, set())

    def ahead(self, seq, count):
        ids, avoided = super().ahead(seq, count), self.avoided_tokens(seq)
        return next((ids[:i] for i, token in enumerate(ids) if token in avoided), ids)

    @hookimpl
    def rollback(self, step) -> None:
        for seq, verdict in step.verdicts.items():
            part = step.part(seq)
            if part.draft is not None and len(verdict.path) < len(part.draft):
                self.avoided_tokens(seq).add(part.draft.ids[len(verdict.path)])


@attrs.define(eq=False)
class AvoidsByItsSlot(AvoidsWhatWasRejected):
    """Keeps what was rejected by slot, also when another text begins there."""

    by_slot: dict[int, set[int]] = attrs.field(factory=dict, init=False)

    def avoided_tokens(self, seq) -> set[int]:
        return self.by_slot.setdefault(seq.slot, set())


ONE_KEY: StashKey[dict] = StashKey()


@attrs.define(eq=False)
class HasOneKeyForAll(Counter):
    """Its key is made once for the class."""

    seen: StashKey[dict] = attrs.field(default=ONE_KEY, init=False)


@attrs.define(eq=False)
class OnlyAppends(Lookup):
    """Takes every row for the next one, though a used slot begins in the middle."""

    def learn(self, log, span) -> None:
        log += span.tokens


class Log(list):
    """Tokens of one sequence, copied for another one with the same rows."""

    def fork(self) -> Log:
        return Log(self)


@attrs.define(eq=False)
class SharesRows(Lookup):
    """Healthy: another sequence may begin with rows of one that it has seen."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"deterministic"}, shares=True)

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            self.learn(seq.stash.setdefault(self.log, self.new()), span)

    def new(self) -> Log:
        return Log()


class OneForBoth(Log):
    def fork(self) -> Log:
        return self


@attrs.define(eq=False)
class SharesTheLogItself(SharesRows):
    """Both sequences write to one log."""

    def new(self) -> Log:
        return OneForBoth()


@attrs.define(eq=False)
class KeepsTheView(Reader):
    """Keeps what it was shown instead of a copy."""

    def keep(self, hidden):
        return hidden


@attrs.define(eq=False)
class DropsItsBacklog(Lookup):
    """Puts its work off until it is asked, and forgets what it could not keep."""

    late: StashKey[list] = attrs.field(factory=StashKey, init=False)
    bound: int = 8

    def ahead(self, seq, count):
        log = seq.stash.get(self.log, [])
        for start, tokens in seq.stash.get(self.late, [])[-self.bound :]:
            log[start:] = tokens
        seq.stash[self.late] = []
        return super().ahead(seq, count)

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            seq.stash.setdefault(self.log, [])
            seq.stash.setdefault(self.late, []).append((span.start, span.tokens))


@attrs.define(eq=False)
class GivesUp(Lookup):
    """Falls silent when it was not asked for a while, and calls that a matter of length."""

    asked: StashKey[int] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(drafts={"deterministic"}, learns="length")

    def ahead(self, seq, count):
        since = len(seq.tokens) - seq.stash.get(self.asked, seq.prompt_len)
        seq.stash[self.asked] = len(seq.tokens)
        return super().ahead(seq, count) if since <= 60 else []


@attrs.define(eq=False)
class PutsOffForEver(Reader):
    """Keeps every row until it is asked."""

    late: StashKey[list] = attrs.field(factory=StashKey, init=False)

    def ahead(self, seq, count):
        seq.stash[self.late] = []
        return super().ahead(seq, count)

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            seq.stash[self.last] = self.keep(span.hidden[1][-1:])
            seq.stash.setdefault(self.late, []).append(span.hidden[1].clone())


@attrs.define(eq=False)
class CopiesTheText(Lookup):
    """Keeps the whole text again in every step."""

    texts: StashKey[list] = attrs.field(factory=StashKey, init=False)

    def ahead(self, seq, count):
        seq.stash.setdefault(self.texts, []).append(list(seq.tokens))
        return super().ahead(seq, count)


@attrs.define(eq=False)
class RemembersEverybody(Lookup):
    """Has a dictionary of sequences on the instance."""

    seen: dict = attrs.field(factory=dict, init=False)

    def ahead(self, seq, count):
        self.seen[seq] = len(seq.tokens)
        return super().ahead(seq, count)


# by what it adds to the drafts of others


@attrs.define(eq=False)
class Extends(Lookup):
    """Healthy: extends the drafts of others by what followed the last occurrence of their last token."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(extends=True)

    @hookimpl
    def draft(self, step) -> None:
        for seq, draft, leaf, budget in step.leaves:
            ids = self.behind(seq, draft.ids[leaf], min(budget, self.length))
            if ids:
                step.extend(seq, Draft(ids), leaf)
        super().draft(step)

    def behind(self, seq, token: int, count: int) -> list[int]:
        log = seq.stash.get(self.log, [])
        at = next((i for i in reversed(range(len(log))) if log[i] == token), len(log))
        return [token for token in log[at + 1 : at + 1 + count] if token >= 0]


@attrs.define(eq=False)
class RepeatsTheDraft(Extends):
    """Extends by what followed committed text, which the other method has drafted already."""

    def behind(self, seq, token: int, count: int) -> list[int]:
        return self.ahead(seq, count)


@attrs.define(eq=False)
class ExpectsItsExtensionToBeTested(Extends):
    """Learns from every extension, also from those whose first tokens were never reached."""

    @hookimpl
    def rollback(self, step) -> None:
        tested = {seq for seq, share in step.draft_results if share.leaf >= 0}
        for part in step.parts:
            extended = [piece for piece in part.pieces if piece.source == step.plugin and piece.leaf >= 0]
            assert not extended or part.seq in tested, "an extension without a verdict"


@attrs.define(eq=False)
class ExtendsFromStates(Extends):
    """Healthy: what it appends follows from the last hidden state of committed text and from the drafted token."""

    state: StashKey[Any] = attrs.field(factory=StashKey, init=False)

    @hookimpl
    def compat(self) -> Compat:
        return Compat(needs=Needs(final=True), extends=True)

    @hookimpl
    def process(self, rows) -> None:
        for seq, span in rows.by_sequence():
            seq.stash[self.state] = int(span.final[-1].argmax())

    def behind(self, seq, token: int, count: int) -> list[int]:
        return [seq.stash[self.state] + token // 2]

    def ahead(self, seq, count: int) -> list[int]:
        return self.behind(seq, seq.tokens[-1], count)


@attrs.define(eq=False)
class ReadsNoDraftedToken(ExtendsFromStates):
    """Appends what its layer says behind committed text, whatever was drafted since."""

    def behind(self, seq, token: int, count: int) -> list[int]:
        return super().behind(seq, seq.tokens[-1], count)


@attrs.define(eq=False)
class ExtendsWithAModel(Extends):
    """Healthy: pretends to run a model once for each token that it appends, all sequences together."""

    @hookimpl
    def compat(self) -> Compat:
        return Compat(extends=True, forwards=lambda k: k)

    @hookimpl
    def draft(self, step) -> None:
        lengths = [0]
        for seq, draft, leaf, budget in step.leaves:
            if ids := self.behind(seq, draft.ids[leaf], min(budget, self.length)):
                lengths.append(self.rows_needed(len(draft), len(ids)))
                step.extend(seq, Draft(ids), leaf)
        step.report_cost(forwards=max(lengths))

    def rows_needed(self, before: int, own: int) -> int:
        return own


@attrs.define(eq=False)
class ReadsEveryDraftedTokenTwice(ExtendsWithAModel):
    """Runs its model twice for each token of the other method."""

    def rows_needed(self, before: int, own: int) -> int:
        return 2 * before + own
