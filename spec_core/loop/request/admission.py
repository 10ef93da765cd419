"""From a request to a sequence."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from spec_core.contract.fields import ReadOnlyList
from spec_core.contract.matcher import Matcher
from spec_core.contract.parts import stream_after
from spec_core.contract.request import Request
from spec_core.contract.sequence import Sequence
from spec_core.contract.target import Target
from spec_core.errors import FOREIGN, SpecError, UsageError, message, quote_value
from spec_core.loop.request import checks, prompt_checks
from spec_core.loop.request.pictures import read_pictures
from spec_core.loop.request.plugin_values import NO_READERS, Readers, check_plugin_values
from spec_core.sampling.given import COUNTS
from spec_core.sampling.stop import Stop, Text

SALT_MAX = 64
"""Characters of a salt that is kept as it is: the length of a SHA-256."""


def sequence(
    request: Request,
    target: Target,
    always: frozenset[str],
    drafters: frozenset[str],
    switched_off: Mapping[str, str],
    private: bool = False,
    controllers: frozenset[str] = frozenset(),
    readers: Readers = NO_READERS,
) -> Sequence:
    """Check a request against the target and make its sequence. Raises UsageError.

    always: plugins that serve every sequence. drafters: plugins that a request may select.
    switched_off: {plugin: reason} for plugins that failed earlier in this run. private: the rule uses private noise.
    controllers: plugins that limit the drafts of others, unless the request wants none of that.
    readers: {plugin: its ``Compat.request_values``}.
    """
    info, request = target.info, read_pictures(request, target)
    encoded = request.encoded
    embeds = prompt_checks.embeddings(request.embeds if encoded is None else encoded.embeds, target)
    tokens = prompt_checks.prompt(request.prompt, embeds, target, encoded)
    seq = Sequence(
        tokens=ReadOnlyList(tokens),
        prompt_len=len(tokens),
        max_tokens=prompt_checks.length(request.max_tokens, len(tokens), info.context),
        sampling=checks.sampling(request.sampling, info.vocab),
        min_tokens=_min_tokens(request),
        seed=checks.checked_seed(request.seed),
        stop=_stop(request, target),
        methods=_served_by(request, always, drafters, switched_off, controllers),
        draft_max=None if request.draft_max is None else checks.index_below("draft_max", request.draft_max, COUNTS),
        draft_min=_shortest(request, private),
        confidence_min=_surest(request, private),
        prediction=ReadOnlyList(prompt_checks.prediction(request.prediction, target, tokens)),
        plugin_values=check_plugin_values(request.plugin_values, readers, switched_off),
        reuse=checks.flag("reuse", request.reuse),
        cache_salt=_salt(request),
        priority=checks.number_within("priority", request.priority, checks.PRIORITY_MAX),
        embeds=embeds,
        encoded=encoded,
        offset=checks.index_below("offset", request.offset, checks.POSITIONS),
        noise_stream=checks.index_below("noise_stream", request.noise_stream, checks.STREAMS),
        name=checks.label("name", request.name),
        matcher=_matcher(request, target),
    )
    if target.tokenizer is not None:
        stream = stream_after(target.tokenizer, tokens, exact=seq.matcher is not None)
        seq.text = Text(stream, seq.stop.texts, unsearched=seq.min_tokens)
    return seq


def _salt(request: Request) -> str:
    """The salt; of a long one its SHA-256, since slots keep it."""
    salt = checks.label("cache_salt", request.cache_salt)
    return salt if len(salt) <= SALT_MAX else sha256(salt.encode("utf-8", "surrogatepass")).hexdigest()


def _stop(request: Request, target: Target) -> Stop:
    texts = checks.stop_texts(request.stop, target)
    tokens = checks.stop_tokens(request.stop_tokens, target.info.vocab)
    ignore_eos = checks.flag("ignore_eos", request.ignore_eos)
    return Stop(tokens if ignore_eos else target.info.eog | tokens, texts)


def _min_tokens(request: Request) -> int:
    count = checks.index_below("min_tokens", request.min_tokens, COUNTS)
    if count > request.max_tokens:
        raise UsageError(
            f"min_tokens = {count} is more than max_tokens = {request.max_tokens}", hint="give a larger max_tokens"
        )
    return count


def _matcher(request: Request, target: Target) -> Matcher | None:
    """The start of the constraint's text. Raises UsageError for one that cannot be used here."""
    if request.constraint is None:
        return None
    if not callable(getattr(request.constraint, "start", None)):
        raise UsageError(
            f"constraint = {quote_value(request.constraint)}",
            hint="give an object with start(target), such as spec_grammar.JsonSchema(...)",
        )
    if request.ignore_eos:
        raise UsageError("ignore_eos and a constraint are both given", hint="leave out one: a constraint ends its text")
    try:
        return request.constraint.start(target)
    except SpecError:
        raise
    except FOREIGN as error:
        reason = f"the constraint failed at its start: {type(error).__name__}: {message(error)}"
        raise UsageError(reason, hint="report it to the author of the constraint") from error


def _shortest(request: Request, private: bool) -> int:
    _check_shared("draft_min", request.draft_min, private)
    return checks.index_below("draft_min", request.draft_min, COUNTS)


def _surest(request: Request, private: bool) -> float:
    _check_shared("confidence_min", request.confidence_min, private)
    return checks.share("confidence_min", request.confidence_min)


def _check_shared(name: str, value: object, private: bool) -> None:
    """A rule with private noise must judge every drawn token: dropping some by their values would change the text."""
    if private and value:
        raise UsageError(
            f"{name} = {value!r:.40} drops drafted tokens, and the rule of this run must judge each of them",
            hint=f"leave {name} out, or run with the default rule",
        )


def prompt_tokens(request: Request, target: Target) -> list[int]:
    """Token ids of the prompt, checked."""
    request = read_pictures(request, target)
    embeds = request.embeds if request.encoded is None else request.encoded.embeds
    return prompt_checks.prompt(request.prompt, embeds, target)


def _served_by(
    request: Request,
    always: frozenset[str],
    drafters: frozenset[str],
    switched_off: Mapping[str, str],
    controllers: frozenset[str],
) -> frozenset[str] | None:
    """The plugins that serve the request; None means all of the run."""
    asked = _methods(request.methods, always, drafters, switched_off)
    if checks.flag("control", request.control) or not controllers:
        return asked
    return (always | drafters if asked is None else asked) - controllers


def _methods(
    names: tuple[str, ...] | None, always: frozenset[str], drafters: frozenset[str], switched_off: Mapping[str, str]
) -> frozenset[str] | None:
    if names is None:
        return None
    asked = checks.texts("methods", names, "a list of names")
    failed = sorted(set(asked) & set(switched_off))
    if failed:
        raise UsageError(
            f"the request names {', '.join(failed)}, switched off in this run: {switched_off[failed[0]]}",
            hint="leave it out of the request, or start a new run",
        )
    unknown = set(asked) - drafters
    if unknown:
        known = ", ".join(sorted(drafters)) or "no methods"
        raise UsageError(
            f"the request names {', '.join(sorted(unknown))}, this run has {known}",
            hint="start the run with that method, or leave it out of the request",
        )
    return always | frozenset(asked)
