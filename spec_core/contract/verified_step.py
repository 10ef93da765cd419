"""What hooks see of a step after its forward: ``accept``, ``rollback``, and ``process`` with ``rows.step``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from spec_core.contract.batch import DraftResult, TargetOutput, shares
from spec_core.contract.checks import check_verdict
from spec_core.contract.fields import field_of, write
from spec_core.contract.hook_step import FailingStep, HookStep, NoisyStep
from spec_core.contract.probes import ProbeRows
from spec_core.contract.sealed import own_output
from spec_core.contract.sequence import Sequence
from spec_core.contract.values import Verdict
from spec_core.errors import PhaseError
from spec_core.sampling.noise import DOMAIN_COIN, private_key, uniform
from spec_core.sampling.reference import NoiseKey


class VerifiedStep(HookStep):
    """A step whose forward was run."""

    __slots__ = ()

    @property
    def output(self) -> TargetOutput:
        """What the forward computed. Until all verdicts are final its logits are a copy; its trace is for owners of
        target state alone.
        """
        output = own_output(self._shown[0])
        if output is None:
            raise PhaseError("this step has no output yet: a step is valid until the process hook returns")
        return output

    def logits(self, seq: Sequence) -> Tensor:
        """[1+K, V]: row 0 follows the last committed token, row 1+j follows draft j."""
        part = self._shown[0].part(seq)
        return self.output.logits[part.logits_row : part.logits_row + 1 + part.drafted]

    def mask(self, seq: Sequence, row: int) -> np.ndarray | None:
        """[ceil(V / 32)] uint32: the tokens that the request's constraint allows at ``row`` of ``logits(seq)``, token
        ``id`` as bit ``id % 32`` of word ``id // 32``. None: all.
        """
        masks = self._shown[0].part(seq).masks
        return None if masks is None else masks[row]

    def history(self, seq: Sequence, row: int) -> list[int]:
        """Tokens before the choice at ``row`` of ``logits(seq)``: prompt, output, and that row's drafted prefix."""
        draft = self._shown[0].part(seq).draft
        if row == 0 or draft is None:
            return seq.tokens
        return seq.tokens + [draft.ids[i] for i in draft.ancestry(row - 1)]


class AcceptStep(VerifiedStep, FailingStep):
    """A step whose sequences need verdicts."""

    __slots__ = ()
    _hook = "accept"

    @property
    def undecided(self) -> Iterator[Sequence]:
        """Sequences that need a verdict in this step and have none yet."""
        step = self._shown[0]
        for part in step.parts:
            if part.decides and part.verdict is None and part.seq.finish != "error":
                step.current_sequence = part.seq
                yield part.seq

    def decide(self, seq: Sequence, verdict: Verdict) -> None:
        """Set the verdict of a sequence; the first one is final.

        Raises ValueError for a path that the draft does not have, and for a second verdict.
        """
        step = self._writable("decide")
        part = step.part(seq)
        if part.verdict is not None or not part.decides:
            raise ValueError("this sequence already has a verdict, or needs none in this step")
        check_verdict(verdict, part.draft, step.target.info.vocab)
        write(part, "verdict", verdict)
        write(part, "rule", step.plugin)

    def coins(self, seq: Sequence, n: int) -> np.ndarray:
        """Uniforms in (0, 1) for a rule with private noise: [n] float64; every call in a step gives the same numbers.

        Drafters cannot read them, and no other step or request of the run gets the same numbers.
        """
        return uniform(
            private_key(seq.seed, seq.noise_stream), seq.output_position, np.arange(n), seq.number, DOMAIN_COIN
        )

    def choosing(self, seq: Sequence) -> NoiseKey:
        """(seed, stream, domain) of the noise with which the core chooses a token."""
        return self._shown[0].choosing(seq)


class ProcessStep(VerifiedStep):
    """A step whose verdicts are final: ``rows.step``."""

    __slots__ = ()
    _hook = "process"

    @property
    def verdicts(self) -> dict[Sequence, Verdict]:
        """The verdict of each sequence that has one, after the cut at stop tokens and limits."""
        return self._shown[0].verdicts

    def kept_rows(self, seq: Sequence) -> list[int]:
        """Batch rows of the kept drafts, root first."""
        part = self._shown[0].part(seq)
        return [part.first_draft_row + i for i in part.verdict.path] if part.verdict else []

    @property
    def draft_results(self) -> Iterator[tuple[Sequence, DraftResult]]:
        """(sequence, share) of the calling plugin's own drafts in this step, to learn what was accepted.

        ``share.full_verdict`` is the verdict on them before the cut at a stop or limit, ``share.verdict`` the one after
        it. Tokens that extended a draft appear only if all tokens before them were accepted: otherwise none was tested.
        """
        step = self._shown[0]
        for seq in self.verdicts:
            for share in shares(step._by_seq[seq], step.plugin):
                yield seq, share


class RollbackStep(ProcessStep, FailingStep, NoisyStep):
    """A step whose state is restored to the kept paths."""

    __slots__ = ()
    _hook = "rollback"

    def probe_rows(self, seq: Sequence) -> ProbeRows | None:
        """Outputs of the rows that the calling plugin probed for a sequence in this step; None if it probed none."""
        step = self._shown[0]
        part = step.part(seq)
        at = [p.first + i for p in field_of(part, "probes") if p.source == step.plugin for i in range(len(p.ids))]
        if not at:
            return None
        output = self.output
        logits, rows = ([first + part.drafted + i for i in at] for first in (part.logits_row + 1, part.first_draft_row))
        hidden, final = output.hidden, output.final
        states = {i: hidden[i][rows] for i in hidden}
        return ProbeRows(output.logits[logits], states, None if final is None else final[rows])

    def rewind(self, seq: Sequence, position: int) -> None:
        """Evaluate the tokens from ``position`` on again, as pending rows of the next forward.

        Only for a sequence with a verdict in this step, since rewinding a long prompt could repeat forever. Only an
        owner of target state may call it, after it restored that state to ``position``. Raises ValueError otherwise.
        """
        step = self._writable("rewind")
        part = step.part(seq)
        if step.plugin not in step.owners:
            raise ValueError("only an owner of target state can rewind a sequence: Compat(owns={...})")
        if part.verdict is None:
            raise ValueError("only a sequence with a verdict in this step can be rewound")
        if not 0 <= position <= part.end + len(part.verdict.path):
            raise ValueError(f"cannot rewind to position {position}: rows 0 to {part.end} are committed")
        write(part, "rewound", position if part.rewound is None else min(part.rewound, position))
