"""Reasoning of a model before its answer, in its text between two marks."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

OPENING, CLOSING = "<think>", "</think>"


@attrs.frozen
class Thinking:
    """A form of thinking. label: a word after the opening that belongs to it."""

    opening: str
    closing: str
    label: str = ""


THINK = Thinking(OPENING, CLOSING)
GEMMA4 = Thinking("<|channel>", "<channel|>", "thought")
MAGISTRAL = Thinking("[THINK]", "[/THINK]")
FORMS = (THINK, GEMMA4, MAGISTRAL)
WORDS = tuple(word for form in FORMS for word in (form.opening, form.closing))


def thinking_of(template: str | None, controls: Iterable[str] = ()) -> Thinking | None:
    """The form of a model whose template has one of its marks, or whose vocabulary has it as a control token."""
    text, known = template or "", set(controls)
    in_template = (form for form in FORMS if form.opening in text or form.closing in text)
    return next(in_template, None) or next((form for form in FORMS if form.opening in known), None)


@attrs.define(eq=False)
class ThoughtReader:
    """Splits a text, piece by piece, into the thinking at its beginning and the rest.

    inside: the prompt ends with the opening, so that the text begins within the thinking. labelled: so does the label.
    """

    form: Thinking = THINK
    inside: bool = False
    answered: bool = False
    labelled: bool = False
    _rest: str = ""
    _fresh: bool = True
    _spaces: list[str] = attrs.field(factory=list)

    @classmethod
    def after(cls, prompt: str, thinking: Thinking) -> ThoughtReader:
        """A reader of the text that follows this prompt."""
        tail = prompt.rstrip()
        label = bool(thinking.label) and tail.endswith(thinking.opening + thinking.label)
        return cls(thinking, label or tail.endswith(thinking.opening), labelled=label or not thinking.label)

    def put(self, text: str) -> tuple[str, str]:
        """(thinking, answer): what was added to each of them."""
        self._rest += text
        thought = ""
        if not self.inside and not self.answered:
            self._open()
        if self.inside:
            thought = self._read_thought()
        return thought, self._read_answer()

    def end(self) -> tuple[str, str]:
        """Reasoning and answer that were held back."""
        rest, self._rest, self._spaces = "".join(self._spaces) + self._rest, "", []
        if not self.inside:
            return "", rest
        return (rest.lstrip() if self._fresh else rest).rstrip(), ""

    def _open(self) -> None:
        start, opening = self._rest.lstrip(), self.form.opening
        if not start:
            self._spaces += [self._rest]
            self._rest = ""
        elif start.startswith(opening):
            self.inside, self._rest, self._spaces = True, start.removeprefix(opening), []
            self.labelled = not self.form.label
        elif not opening.startswith(start):
            self.answered, self._fresh = True, False
            self._rest, self._spaces = "".join(self._spaces) + self._rest, []

    def _read_thought(self) -> str:
        """Reasoning up to the closing; a possible beginning of it, and white space before it, are held back."""
        closing = self.form.closing
        if self._fresh:
            self._rest = self._rest.lstrip()
        if not self.labelled and not self._skip_label():
            return ""
        text, self._rest = self._rest, ""
        self._fresh = self._fresh and not text
        at = text.find(closing)
        if at >= 0:
            thought = text[:at].rstrip()
            thought = "".join(self._spaces) + thought if thought else ""
            self.inside, self.answered, self._fresh, self._spaces = False, True, True, []
            self._rest = text[at + len(closing) :]
            return thought
        end = len(text) - next((n for n in range(len(closing) - 1, 0, -1) if text.endswith(closing[:n])), 0)
        thought, self._rest = text[:end].rstrip(), text[end:]
        spaces = text[len(thought) : end]
        if thought:
            thought, self._spaces = "".join(self._spaces) + thought, []
        self._spaces += [spaces] if spaces else []
        return thought

    def _skip_label(self) -> bool:
        """Skip the word after the opening; False where more text is needed."""
        label = self.form.label
        if label.startswith(self._rest) and self._rest != label:
            return False
        self.labelled = True
        if self._rest.startswith(label):
            self._rest = self._rest.removeprefix(label).lstrip()
        return True

    def _read_answer(self) -> str:
        """Answer without the white space between the reasoning and it."""
        if not self.answered:
            return ""
        text = self._rest.lstrip() if self._fresh else self._rest
        self._fresh, self._rest = self._fresh and not text, ""
        return text
