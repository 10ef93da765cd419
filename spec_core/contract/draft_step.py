"""What ``draft`` sees of a step: which sequences may draft, and calls that propose drafts and probes."""

from __future__ import annotations

from collections.abc import Iterator
from operator import index

from spec_core.contract.batch import Part, Piece
from spec_core.contract.checks import check_draft, check_extension, check_proposal
from spec_core.contract.fields import field_of, write
from spec_core.contract.hook_step import NoisyStep
from spec_core.contract.plan import NO_LIMITS, DraftPlan
from spec_core.contract.probes import Probes, create_piece
from spec_core.contract.sequence import Sequence
from spec_core.contract.splice import join_drafts, likely_first
from spec_core.contract.step_record import StepRecord
from spec_core.contract.trimming import shorten_draft
from spec_core.contract.values import Draft


class DraftStep(NoisyStep):
    """A step before its forward."""

    __slots__ = ()
    _hook = "draft"

    @property
    def wants_probs(self) -> bool:
        """Whether the active rule reads ``Draft.probs``."""
        return self._shown[0].wants_probs

    @property
    def records(self) -> list[StepRecord]:
        """What each step took since a controller was last called, oldest first."""
        return [*self._shown[0].records]

    @property
    def undrafted(self) -> Iterator[tuple[Sequence, int]]:
        """(sequence, budget) of each that may draft and has no draft yet; budget is at least 1."""
        step = self._shown[0]
        for part in step.parts:
            if part.budget and part.draft is None and step.serves(part.seq):
                budget = part.length_max(step.plugin)
                if budget > 0:
                    step.current_sequence = part.seq
                    yield part.seq, budget

    def nodes(self, seq: Sequence) -> int:
        """Max tokens of a tree for this sequence; the budget limits its depth."""
        step = self._shown[0]
        return step.nodes_max(step._by_seq[seq])

    def propose(self, seq: Sequence, draft: Draft) -> None:
        """Propose a draft. Raises ValueError or TypeError if it breaks the contract."""
        step = self._writable("propose")
        part = step.part(seq)
        if part.draft is not None or not part.budget or not seq.wants(step.plugin):
            raise ValueError("this sequence was not offered: it already has a draft, or may not draft in this step")
        check_proposal(draft, step.proposals.get(step.plugin, frozenset()), seq.sampling.temperature)
        if draft.proposal == "sampled":
            draft = own_draft(draft)
        check_draft(draft, part.length_max(step.plugin), step.nodes_max(part), step.target.info.vocab, step.trees)
        short: Draft | None = draft
        if seq.confidence_min or seq.draft_min:
            short = shorten_draft(draft, seq.confidence_min, seq.draft_min)
        if short is not None:
            write(part, "draft", short)
            field_of(part, "pieces").append(Piece(step.plugin, short))

    @property
    def leaves(self) -> Iterator[tuple[Sequence, Draft, int, int]]:
        """(sequence, draft, leaf, budget): the ends of other methods' drafts, where more may be drafted.

        For a plugin that declared ``Compat(extends=True)``; nothing for any other. draft: what was proposed so far.
        leaf: index of a token that nothing follows; a chain has one, its last. budget: longest path that may follow it,
        at least 1. Of a tree the leaf whose path is the most likely comes first, by the confidence of its tokens.
        """
        step = self._shown[0]
        for part in step.parts:
            if part.draft is None or step.plugin not in step.extenders or not step.serves(part.seq):
                continue
            draft, depths = part.draft, part.draft.depths
            for leaf in likely_first(draft):
                budget = self._further(part, depths[leaf])
                if budget > 0 and draft.ids[leaf] not in part.seq.stop.tokens:
                    step.current_sequence = part.seq
                    yield part.seq, draft, leaf, budget

    def extend(self, seq: Sequence, draft: Draft, leaf: int) -> None:
        """Append a draft after a token that nothing follows: its first tokens follow ``leaf``.

        Raises ValueError or TypeError where it breaks the contract, and for a leaf that ``leaves`` did not offer.
        """
        step = self._writable("extend")
        part, leaf = step.part(seq), index(leaf)
        if part.draft is None or step.plugin not in step.extenders or not seq.wants(step.plugin):
            raise ValueError("there is no draft to extend, or compat did not declare extends=True")
        check_extension(part.draft, leaf)
        check_proposal(draft, step.proposals.get(step.plugin, frozenset()), seq.sampling.temperature)
        if draft.proposal == "sampled":
            draft = own_draft(draft)
        longest = self._further(part, part.draft.depths[leaf])
        check_draft(draft, longest, self._tokens_left(part), step.target.info.vocab, step.trees)
        short = shorten_draft(draft, seq.confidence_min, 0) if seq.confidence_min else draft
        if short is not None:
            field_of(part, "pieces").append(Piece(step.plugin, short, part.drafted, leaf))
            write(part, "draft", join_drafts(field_of(part, "draft"), short, leaf))

    def probe_room(self, seq: Sequence) -> int:
        """How many rows the plugin may probe for this sequence: its ``Needs(probes=...)``, or 0 if there is no room."""
        step = self._shown[0]
        part = step.part(seq)
        if not part.probes_max or not step.serves(seq) or not part.length_max(step.plugin):
            return 0
        return step.probing.get(step.plugin, 0) - sum(len(p.ids) for p in part.probes if p.source == step.plugin)

    def probe(self, seq: Sequence, probes: Probes) -> None:
        """Evaluate rows with the step that are no drafts: they are never kept, and ``probe_rows`` gives their outputs.

        Their parents number the draft tokens that the sequence has now: propose first. Raises ValueError or TypeError
        if they break the contract.
        """
        step = self._writable("probe")
        room, part, info = self.probe_room(seq), step.part(seq), step.target.info
        piece = create_piece(step.plugin, probes, part.drafted, part.probed, room, info.vocab, info.width)
        field_of(part, "probes").append(piece)

    def price(self, seq: Sequence, fixed: float | None, usual: float) -> float:
        """The min chance, 0 to 1, with which a path must be accepted for another token to pay.

        A drafter may stop by it; it may decide whether the next token is drawn, not whether a drawn one stands.

        :param fixed: the user's own, which counts where it is not None; otherwise the controller's.
        :param usual: where no controller set one.
        """
        if fixed is not None:
            return fixed
        step = self._shown[0]
        limit = (step._by_seq[seq].limits or NO_LIMITS).get(step.plugin)
        if limit is None or limit.price is None:
            return usual
        step.priced.add(step.plugin)
        return limit.price

    def plan(self, plan: DraftPlan) -> None:
        """Set what methods may draft, in this step and the next ones, while the plan lasts.

        It has no effect on a sequence whose request wants no control. No hook of the controller is called in the
        steps that follow the plan. For a controller, which is called before all methods and drafts nothing:
        Compat(drafts=()). Raises ValueError for any other plugin, for a second plan in one step, and for a method
        that the run does not have.
        """
        step = self._writable("plan")
        if step.proposals.get(step.plugin):
            raise ValueError(
                "step.plan is for controllers, which never draft: return Compat(drafts=()) "
                "from compat, or propose a shorter draft"
            )
        if step.draft_plan is not None:
            raise ValueError("this step has a plan already: call step.plan once")
        if unknown := sorted(plan.methods - {*step.methods}):
            raise ValueError(f"the plan names {', '.join(unknown)}; the methods of this run are {list(step.methods)}")
        step.draft_plan = plan
        step.planner = step.plugin
        step.apply(plan, step.plugin)
        for part in step.parts:
            if plan.drop and part.seq.wants(step.plugin):
                part.seq.drop(plan.drop, step.proposals)

    def _further(self, part: Part, depth: int) -> int:
        """Longest path that the asking plugin may add after a token of this depth."""
        return min(part.budget - depth, self._tokens_left(part), part.length_max(self._shown[0].plugin))

    def _tokens_left(self, part: Part) -> int:
        """Tokens that the asking plugin may add to a draft of others."""
        step = self._shown[0]
        whole = part.nodes if step.trees else part.budget
        return min(whole - part.drafted, step.nodes_max(part))


def own_draft(draft: Draft) -> Draft:
    """A draft with a copy of ``probs``: a drafter may write into its buffer again before a rule reads them."""
    probs = None if draft.probs is None else draft.probs.detach().clone()
    return Draft(draft.ids, draft.proposal, probs, draft.parents, draft.confidence)
