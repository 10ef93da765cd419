"""Draft the end of the text once more: right where a text repeats itself, and free where it does not."""

import attrs
from attrs.validators import ge

from spec_core import Draft, hookimpl


@attrs.define(eq=False)
class Echo:
    """The last ``length`` tokens, again."""

    length: int = attrs.field(default=4, validator=ge(1), metadata={"help": "how many tokens to repeat"})

    @hookimpl
    def draft(self, step):
        for seq, budget in step.undrafted:
            end = seq.tokens[-min(budget, self.length) :]
            if min(end) >= 0:  # a prompt row given as an embedding has no token to repeat
                step.propose(seq, Draft(end))
