"""``spec chat``: a conversation on a terminal, where each answer can be generated again without drafts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
import click
from spec_commands import common
from spec_commands.help import Command
from spec_commands.printing import escape_controls, print_line
from spec_commands.prompt import tokens_of
from spec_commands.text_equality import may_differ

from spec_cli import show
from spec_cli.conversation import Answer, Conversation, user_message
from spec_cli.generate import speed_figures
from spec_core.errors import UsageError, nearest_names

if TYPE_CHECKING:
    from spec_core import Request, Run
    from spec_core.commands import Prepared, Settings

PROMPT = "> "
ENDINGS = {"stop": "ended", "length": "cut at the limit"}
"""How an answer ended in other words than its ``finish_reason``."""


@click.command(cls=Command)
@common.options(common.MODEL, common.METHODS, common.GENERATION)
@click.option("--system", default="", help="A system prompt.")
@click.option("--show-drafts", is_flag=True, help="Colour each token by the method that drafted it.")
def chat(system: str, show_drafts: bool, **flags: Any) -> None:
    """Chat with a model on the terminal. /plain generates an answer again without drafts, /help lists the commands.

    Ctrl-C ends an answer, Ctrl-D the program. Lines of standard input are read if it is not a terminal.
    """
    settings = common.settings_of(flags)
    request = request_of(settings)
    with common.show_loading(settings):
        prepared = common.prepare_run(settings)
        check_template(prepared, system)
        run = common.load_run(prepared, settings)
    with run:
        Chat(run, Conversation(run, request, system), show_drafts).serve(reader())


def request_of(settings: Settings) -> Request:
    """A request of these settings without a prompt, so that errors in it are raised before a model is loaded."""
    from spec_core import Request

    sampling = common.sampling_of(settings)
    return Request([], max_tokens=settings["max_tokens"], seed=settings["seed"], sampling=sampling)


def check_template(prepared: Prepared, system: str) -> None:
    """Raise UsageError for a model without a chat template, or whose template refuses a system prompt."""
    messages = [{"role": "system", "content": system}] if system else []
    tokens_of([*messages, user_message("")], prepared.target)


def reader() -> Callable[[str], str]:
    """A function that asks for a line, with a first text in it; it raises EOFError at the end of the input."""
    if not sys.stdin.isatty():
        return lambda text: read_line()
    try:
        from prompt_toolkit import PromptSession
    except ImportError as error:
        hint = "run `pip install 'spec-core[chat]'`, or pipe messages in, one a line"
        raise UsageError("spec chat needs prompt_toolkit on a terminal", hint=hint) from error
    session: PromptSession[str] = PromptSession()
    return lambda text: session.prompt(PROMPT, default=text)


def read_line() -> str:
    line = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    return line.decode("utf-8", "replace").rstrip("\r\n")


@attrs.define(eq=False)
class Chat:
    """The dialogue with a user: lines that are messages, or commands, which begin with a slash."""

    run: Run
    conversation: Conversation
    shows_drafts: bool = False
    draft: str = ""
    """Text that stands in the next line, to be edited."""

    def serve(self, read: Callable[[str], str]) -> None:
        """Answer lines until the input ends."""
        while True:
            try:
                line, self.draft = read(self.draft).strip(), ""
                self.answer_line(line)
            except EOFError:
                return
            except KeyboardInterrupt:
                common.print_note("Ctrl-D or /quit ends the program")
            except UsageError as error:
                common.print_note(f"error: {error}")

    def answer_line(self, line: str) -> None:
        """Answer a message, or do what a command says. Raises EOFError for ``/quit``, UsageError."""
        name, _, rest = line.partition(" ")
        if name in COMMANDS:
            COMMANDS[name](self, rest.strip())
        elif name.startswith("/"):
            raise UsageError(
                f"there is no command {escape_controls(name)}", hint=f"commands: {nearest_names(name, COMMANDS)}"
            )
        elif line:
            self.print_answer(self.conversation.ask(line, self.show))

    @property
    def show(self) -> show.Show:
        names = [c.name for c in self.run.plugins if c.name in self.run.drafters]
        return show.drafts(names) if self.shows_drafts else show.print_text

    def print_answer(self, answer: Answer) -> None:
        """End the text of an answer, and say how it ended and how fast it was."""
        print_line()
        common.print_note(describe_answer(answer))

    def last_answer(self) -> Answer:
        if self.conversation.last is None:
            raise UsageError("there is no answer yet", hint="write a message first")
        return self.conversation.last

    def answer_again(self, _: str) -> None:
        """answer the last message again, with the next seed"""
        self.last_answer()
        self.print_answer(self.conversation.ask_again(self.conversation.last_message, self.show))

    def edit_message(self, text: str) -> None:
        """answer another message in the place of the last one; without a text, edit it"""
        self.last_answer()
        if text:
            self.print_answer(self.conversation.ask_again(text, self.show))
        else:
            self.draft = f"/edit {self.conversation.last_message}"

    def answer_plainly(self, _: str) -> None:
        """generate the last answer again without drafts, and compare text and speed"""
        last = self.last_answer()
        plain = self.conversation.answer_plainly(last, show.print_text)
        self.print_answer(plain)
        common.print_note(compare_answers(last, plain, self.may_differ))

    @property
    def may_differ(self) -> bool:
        """Whether texts with drafts may be others than those without, as rule or target say."""
        return may_differ(self.run, self.conversation.request.sampling.temperature)

    def print_statistics(self, _: str) -> None:
        """print the figures of the last answer"""
        answer = self.last_answer()
        numbers = {**answer.stats, **answer.times, "seed": answer.seed}
        for name, value in numbers.items():
            if isinstance(value, int | float) and name != "startup_seconds":
                common.print_note(f"{name:26} {value:,.6g}")

    def switch_marks(self, _: str) -> None:
        """mark drafted tokens, or stop"""
        self.shows_drafts = not self.shows_drafts
        common.print_note("drafted tokens are marked" if self.shows_drafts else "drafted tokens are not marked")

    def set_system(self, text: str) -> None:
        """set the system prompt of a new conversation"""
        self.conversation.system = text
        self.begin("")

    def begin(self, _: str) -> None:
        """begin a new conversation"""
        self.conversation.begin()
        common.print_note("a new conversation")

    def print_help(self, _: str) -> None:
        """list the commands"""
        for name, do in COMMANDS.items():
            common.print_note(f"{name:8} {do.__doc__}")

    def end(self, _: str) -> None:
        """end the program, as Ctrl-D does"""
        raise EOFError


COMMANDS: dict[str, Callable[[Chat, str], None]] = {
    "/again": Chat.answer_again,
    "/edit": Chat.edit_message,
    "/plain": Chat.answer_plainly,
    "/stats": Chat.print_statistics,
    "/drafts": Chat.switch_marks,
    "/system": Chat.set_system,
    "/new": Chat.begin,
    "/help": Chat.print_help,
    "/quit": Chat.end,
}
"""Commands of the dialogue; their docstrings are its help."""


def describe_answer(answer: Answer) -> str:
    """One line: tokens, how the text ended, and how fast it was."""
    ended = ENDINGS.get(answer.ended, answer.ended)
    return " · ".join([f"{len(answer.tokens)} tokens, {ended}", *speed_figures(answer.stats, answer.times)])


def compare_answers(drafted: Answer, plain: Answer, may_differ: bool) -> str:
    """One line about the same answer with and without drafts."""
    count = min(len(drafted.tokens), len(plain.tokens))  # either may have been interrupted
    if drafted.tokens[:count] == plain.tokens[:count]:
        verdict = "the same text"
    else:
        verdict = "another text, as may be with this rule or engine" if may_differ else "ANOTHER TEXT: please report it"
    rates = drafted.times["tokens_per_second"], plain.times["tokens_per_second"]
    if rates[0] is None or rates[1] is None:
        return verdict
    return f"{verdict}; with drafts {rates[0]:.1f} tokens/s, without {rates[1]:.1f}: {rates[0] / rates[1]:.2f} times"
