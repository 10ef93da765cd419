"""A conversation of ``spec chat``: its messages, and answers with or without drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from spec_commands.printing import PASSING

from spec_cli.show import Show
from spec_cli.watch import Prefill, Watch, prefill

if TYPE_CHECKING:
    from spec_core import Request, Run, Step
    from spec_core.commands import Generation


INTERRUPTED = "interrupted"
"""How an answer ended that Ctrl-C has ended."""


@attrs.define
class Answer:
    """A text of the model. seed: of its noise. ended: its ``finish_reason``, or INTERRUPTED.

    times: as of ``Watch.times``. stats: as in docs/metrics.md.
    """

    text: str
    tokens: list[int]
    seed: int
    ended: str
    times: dict[str, float | None]
    stats: dict[str, Any]


@attrs.define(eq=False)
class Conversation:
    """Messages of a system, a user and a model in turns, the last an answer or none.

    request: the settings of every answer, without a prompt.
    """

    run: Run
    request: Request
    system: str = ""
    messages: list[dict[str, str]] = attrs.field(factory=list)
    last: Answer | None = None
    _watch: Watch = attrs.field(factory=lambda: Watch(0.0), init=False)
    _prefill: Prefill | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.run.observe(self._look)

    def _look(self, step: Step) -> None:
        self._watch.look(step)
        if self._prefill is not None:
            self._prefill.look(step)

    def begin(self) -> None:
        """Forget all messages but the system's."""
        self.messages, self.last = [], None

    @property
    def last_message(self) -> str:
        """The last message of the user; empty before the first."""
        return next((m["content"] for m in reversed(self.messages) if m["role"] == "user"), "")

    def ask(self, text: str, show: Show) -> Answer:
        """Answer a message. Raises UsageError for one that does not fit; it is then not kept."""
        return self._continue([*self.messages, user_message(text)], self.request, show)

    def ask_again(self, text: str, show: Show) -> Answer:
        """Answer this message in the place of the last one, with the next seed."""
        seed = self.request.seed if self.last is None else self.last.seed + 1
        return self._continue([*self._before(), user_message(text)], attrs.evolve(self.request, seed=seed), show)

    def answer_plainly(self, last: Answer, show: Show) -> Answer:
        """Generate the last answer again, by its own seed and without drafts; the conversation stays as it is."""
        request = attrs.evolve(self.request, seed=last.seed, methods=(), max_tokens=max(1, len(last.tokens)))
        return self._answer([*self._before(), user_message(self.last_message)], request, show)

    def _before(self) -> list[dict[str, str]]:
        """The messages before the last one of the user."""
        at = max((i for i, m in enumerate(self.messages) if m["role"] == "user"), default=0)
        return self.messages[:at]

    def _continue(self, messages: list[dict[str, str]], request: Request, show: Show) -> Answer:
        self.last = self._answer(messages, request, show)
        self.messages = [*messages, {"role": "assistant", "content": self.last.text}]
        return self.last

    def _answer(self, messages: list[dict[str, str]], request: Request, show: Show) -> Answer:
        """Generate and show a text until it ends, or until Ctrl-C ends it."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        self._watch.asked = self._watch.now()
        generation = self.run.generate(attrs.evolve(request, prompt=[*system, *messages]))
        self._prefill = prefill([generation.seq])
        try:
            for event in generation:
                show(event)
            return self._describe(generation, generation.result.finish_reason)
        except KeyboardInterrupt:
            generation.close()
            return self._describe(generation, INTERRUPTED)
        finally:
            self._prefill = None
            PASSING.clear()

    def _describe(self, generation: Generation, ended: str) -> Answer:
        result = generation.result
        times = self._watch.times(generation.seq, result.prompt_tokens - result.reused, len(result.tokens))
        return Answer(result.text, result.tokens, result.seed, ended, times, dict(result.stats))


def user_message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
