"""The prompts of a comparison: from a file or the model, by family, checked against the model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from spec_commands.common import print_note
from spec_commands.prompts import Prompt

from spec_compare.inputs.conversation import Conversation, turns_of
from spec_compare.inputs.sized import SizedPrompt
from spec_compare.measuring.resizing import resize_prompt
from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_compare.measuring.measure import RequestSettings
    from spec_core import Target

BUILT_IN = Path(__file__).parent.parent / "inputs"
"""Folder of the prompts for models without prompts of their own."""


def choose_prompts(
    prompts: list[Prompt], name: str, families: Iterable[str] = (), limit: int | None = None
) -> list[Prompt]:
    """Choose at most ``limit`` prompts of each named family, or of every family. name: of the file, for the error.

    Raises UsageError for an unknown family.
    """
    families = set(families)
    known = {p.family for p in prompts}
    if unknown := families - known:
        raise UsageError(f"{name} has no family {min(unknown)!r}", hint=f"families: {', '.join(sorted(known))}")
    return _limit([p for p in prompts if not families or p.family in families], limit)


def shipped_file(targets: Iterable[Target]) -> Path:
    """Prompts that come with the first of the models that has some, else this package's, which is noted.

    These are chats if all models have a chat template, else texts to continue.
    """
    targets = list(targets)
    file = next((path for target in targets if (path := target.info.prompts) is not None), None)
    if file is not None:
        return Path(file)
    chats = all(getattr(target.tokenizer, "chat_template", None) for target in targets)
    names = " and ".join(dict.fromkeys(target.info.name for target in targets))
    kind = "chats" if chats else "texts to continue"
    print_note(f"no prompts come with {names}: built-in {kind} are used; --prompts FILE measures your own")
    return BUILT_IN / f"built-in-{'chats' if chats else 'texts'}.jsonl"


def fitting_prompts(prompts: list[Prompt], target: Target, settings: RequestSettings) -> list[Prompt]:
    """The prompts; messages without pictures become token ids here, so that the chat template is not measured.

    Raises UsageError for a prompt that leaves no room to generate, before anything is measured.
    """
    return [
        _resize(prompt, prompts, target, settings)
        if isinstance(prompt, SizedPrompt)
        else _fitting(prompt, target, settings)
        for prompt in prompts
    ]


def _resize(prompt: SizedPrompt, prompts: list[Prompt], target: Target, settings: RequestSettings) -> Prompt:
    tokens = resize_prompt(prompt, prompts, target)
    _check_room(prompt, len(tokens), settings.max_tokens - 1, target.info.context)
    return attrs.evolve(prompt, given=tokens)


def _fitting(prompt: Prompt, target: Target, settings: RequestSettings) -> Prompt:
    from spec_commands.prompt import tokens_of

    try:
        tokens = tokens_of(prompt.given, target)
        later = [t for text in _later(prompt) for t in tokens_of([{"role": "user", "content": text}], target)]
    except UsageError as error:
        raise UsageError(f"prompt {prompt.id!r}: {error.reason}", hint=error.hint) from error
    cut = tokens[: settings.prompt_tokens] if turns_of(prompt) == 1 else tokens
    _check_room(prompt, len(cut), len(later) + len(_later(prompt)) * settings.max_tokens, target.info.context)
    pictured = min(tokens, default=0) < 0
    if pictured and len(cut) < len(tokens):
        raise UsageError(
            f"prompt {prompt.id!r} has pictures and {len(tokens)} tokens, {settings.prompt_tokens} are allowed",
            hint="remove it from --prompts, or allow more with --prompt-tokens",
        )
    whole = pictured or (isinstance(prompt.given, str) and len(cut) == len(tokens))
    return prompt if whole else attrs.evolve(prompt, given=cut)


def _check_room(prompt: Prompt, tokens: int, later: int, context: int) -> None:
    """later: max tokens of the answers and turns that follow the first one."""
    if 0 < tokens + later < context:
        return
    more = f", and up to {later} of later turns and answers" if later else ""
    raise UsageError(
        f"prompt {prompt.id!r} has {tokens} tokens{more}, but the context is {context}",
        hint="remove it from --prompts, or load the model with a larger --context if it allows one",
    )


def _later(prompt: Prompt) -> tuple[str, ...]:
    """The turns of a conversation after the first."""
    return prompt.turns[1:] if isinstance(prompt, Conversation) else ()


def _limit(prompts: list[Prompt], limit: int | None) -> list[Prompt]:
    """The first ``limit`` of each family, in file order."""
    seen: dict[str, int] = {}
    kept = []
    for p in prompts:
        seen[p.family] = seen.get(p.family, 0) + 1
        if limit is None or seen[p.family] <= limit:
            kept.append(p)
    return kept
