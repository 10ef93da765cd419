"""From a request to a sequence."""

from __future__ import annotations

from collections.abc import Mapping

from spec_core.contract.request import Request
from spec_core.contract.sequence import Sequence
from spec_core.contract.target import Target
from spec_core.errors import UsageError
from spec_core.loop.request_checks import checked, prompt
from spec_core.sampling.stop import Stop, Text


def sequence(
    request: Request,
    target: Target,
    always: frozenset[str],
    drafters: frozenset[str],
    switched_off: Mapping[str, str],
) -> Sequence:
    """Check a request against the target and make its sequence. Raises UsageError.

    always: plugins that serve every sequence. drafters: those a request may choose among.
    switched_off: {plugin: why} of those that failed earlier in this run.
    """
    clean = checked(request, target)
    eog = frozenset() if clean.ignore_eos else target.info.eog
    return Sequence(
        tokens=clean.prompt,
        prompt=len(clean.prompt),
        limit=clean.n,
        sampling=clean.sampling,
        stop=Stop(eog | clean.stop_tokens, clean.stop),
        seed=clean.seed,
        name=clean.name,
        embeds=clean.embeds,
        methods=_methods(clean.methods, always, drafters, switched_off),
        draft_max=clean.draft_max,
        offset=clean.offset,
        stream=clean.stream,
        text=None if target.tokenizer is None else Text(target.tokenizer.stream(), clean.stop),
    )


def prompt_tokens(request: Request, target: Target) -> list[int]:
    """Token ids of the prompt, checked."""
    return prompt(request.prompt, request.embeds, target)


def _methods(
    asked: tuple[str, ...] | None, always: frozenset[str], drafters: frozenset[str], switched_off: Mapping[str, str]
) -> frozenset[str] | None:
    if asked is None:
        return None
    failed = sorted(set(asked) & set(switched_off))
    if failed:
        raise UsageError(
            f"the request asks for {', '.join(failed)}, switched off in this run: {switched_off[failed[0]]}",
            mend="leave it out of the request, or start a new run",
        )
    unknown = set(asked) - drafters
    if unknown:
        known = ", ".join(sorted(drafters)) or "no methods"
        raise UsageError(
            f"the request asks for {', '.join(sorted(unknown))}, this run has {known}",
            mend="start the run with that method, or leave it out of the request",
        )
    return always | frozenset(asked)
