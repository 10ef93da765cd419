"""``spec generate``: texts, streamed, coloured by the method that drafted each token, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import attrs
import click
from spec_commands import common, prompt, prompts
from spec_commands.heap import frozen_heap
from spec_commands.help import Command
from spec_commands.printing import print_line

from spec_cli import constraint_options, show
from spec_cli.watch import Watch, prefill
from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_core import Request, Result, Run, Tokenizer
    from spec_core.commands import Generation, Logprob, Settings

WITHOUT_DRAFTS = "no drafts: --method ngram drafts from the text itself, without a second model or a change of the text"
"""A line for a person who names no method: lookup that finds nothing takes hardly any time."""
REQUEST = [
    click.option("--logit-bias", "logit_bias", multiple=True, metavar="ID=B", help="Add B to the logit of a token."),
    click.option("--logprobs", type=int, help="With --json: log-probabilities of each token and of the N best."),
    click.option("--stop", multiple=True, help="Stop at this text."),
    click.option("--stop-token", "stop_tokens", type=int, multiple=True, help="Stop at this token."),
    click.option("--ignore-eos", is_flag=True, help="Do not stop at the model's own end tokens."),
    *constraint_options.OPTIONS,
    click.option(
        "--image",
        "images",
        multiple=True,
        type=click.Path(),
        help="A picture: PNG, JPEG or WEBP; several in their order.",
    ),
]


@click.command(cls=Command)
@common.options(common.MODEL, common.METHODS, prompt.OPTIONS, common.GENERATION, REQUEST)
@click.option("--prompts", "many", type=click.Path(path_type=Path), help="JSONL file of prompts, run as one batch.")
@click.option("--show-drafts", is_flag=True, help="Colour each token by the method that drafted it.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object instead of text; with --prompts one line per prompt."
)
def generate(many: Path | None, show_drafts: bool, as_json: bool, **flags: Any) -> None:
    """Generate a text, or with --prompts several. Methods change the speed, never the text.

    A line of --prompts is {"id": "1", "prompt": "..."}. Instead of "prompt" it may have "messages", a chat for the
    model's template, "tokens", a list of ids, or "turns", a conversation whose first turn is asked.
    """
    watch = Watch(perf_counter())
    places = common.pop_flags(flags, "prompt", "file", "tokens", "chat", "messages")
    asked = common.pop_flags(
        flags, "logit_bias", "logprobs", "stop", "stop_tokens", "ignore_eos", "images", *constraint_options.NAMES
    )
    if asked["logprobs"] is not None and not as_json:
        raise UsageError("--logprobs needs --json", hint="add --json, or leave --logprobs out")
    images = list(asked.pop("images"))
    settings = common.settings_of(flags)
    requests = [with_images(request, images) for request in requests_of(many, places, request_of(asked, settings))]
    with common.show_loading(settings):
        run = common.load_run(common.prepare_run(settings), settings)
    with run:
        _generate(run, requests, settings, watch, many is not None, show_drafts, as_json)


def _generate(
    run: Run, requests: list[Request], settings: Settings, watch: Watch, many: bool, show_drafts: bool, as_json: bool
) -> None:
    """Generate and print the texts. many: of --prompts."""
    generations = start_requests(run, requests, watch)
    if run.stats.lossy:
        common.print_note(f"LOSSY: {run.stats.lossy}")
    if run.stats.steers:
        common.print_note(f"STEERED: {run.stats.steers}")
    shower = _shower(run, show_drafts, as_json)
    with frozen_heap():
        for generation, request in zip(generations, requests, strict=True):
            if many and not as_json:
                print_line(f"--- {request.name}")
            try:
                for event in generation:
                    shower(event)
            except KeyboardInterrupt:
                print_line()
                common.print_note(describe_interruption(generation, watch, run))
                raise
            result, times = generation.result, times_of(generation, watch)
            if as_json:
                body = report(result, run.target.tokenizer, times)
                body = {"id": request.name, **body} if many else whole_report(body, run, settings)
                print_line(common.as_json(body))
            else:
                print_line()
                common.print_note(summary(result, times, plugin_summaries(run), limit_of(generation, run)))
    if not as_json and not run.drafters and sys.stderr.isatty():
        common.print_note(WITHOUT_DRAFTS)


def requests_of(many: Path | None, places: dict[str, Any], request: Request) -> list[Request]:
    """A request for every prompt, named by its id. Raises UsageError if prompts are passed in two ways."""
    if many is None:
        return [attrs.evolve(request, prompt=prompt.prompt_from(**places))]
    chat = places.pop("chat")
    if flags := [prompt.FLAGS[name] for name, value in places.items() if value is not None]:
        raise UsageError(f"prompts were passed by {' and '.join([*flags, '--prompts'])}", hint="pass them once")
    forms = (*prompts.FORMS, prompts.TURNS)
    return [attrs.evolve(request, prompt=p.given, name=p.id) for p in prompts.read_prompt_file(many, chat, forms)]


def with_images(request: Request, images: list[str]) -> Request:
    """The request with pictures: before the text of the first user's message, or in a text.

    Raises UsageError for token ids, and for messages without a user.
    """
    if not images:
        return request
    messages: Any = request.prompt
    if not isinstance(messages, list) or not messages or not isinstance(messages[0], dict):
        return attrs.evolve(request, images=images)
    at = next((i for i, message in enumerate(messages) if message["role"] == "user"), None)
    if at is None:
        raise UsageError("no message is the user's, and --image was passed", hint="add a message of the role user")
    content = messages[at]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    user = {**messages[at], "content": [*({"type": "image", "image": image} for image in images), *parts]}
    return attrs.evolve(request, prompt=[*messages[:at], user, *messages[at + 1 :]])


def start_requests(run: Run, requests: list[Request], watch: Watch) -> list[Generation]:
    """Start all requests, with the watch and the prompts' progress as observers."""
    watch.asked = watch.now()
    generations = run.generate(requests) if len(requests) > 1 else [run.generate(requests[0])]
    run.observe(watch.look)
    run.observe(prefill(g.seq for g in generations).look)
    return generations


def times_of(generation: Generation, watch: Watch) -> dict[str, float | None]:
    result = generation.result
    return watch.times(generation.seq, result.prompt_tokens - result.reused, len(result.tokens))


def request_of(asked: dict[str, Any], settings: Settings) -> Any:
    """The request without its prompt, so that errors in it are raised before a model is loaded."""
    from spec_core import Request

    biases = dict(_bias(text) for text in asked.pop("logit_bias"))
    sampling = common.sampling_of(settings, logit_bias=biases, logprobs=asked.pop("logprobs"))
    asked["constraint"] = constraint_options.constraint_of(**common.pop_flags(asked, *constraint_options.NAMES))
    return Request([], max_tokens=settings["max_tokens"], seed=settings["seed"], sampling=sampling, **asked)


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError as error:
        raise UsageError(f"--logit-bias {text!r} must be ID=B", hint="write --logit-bias 42=-1.5") from error


def _shower(run: Run, show_drafts: bool, as_json: bool) -> show.Show:
    if as_json:
        return show.print_nothing
    return show.drafts(c.name for c in run.plugins if c.name in run.drafters) if show_drafts else show.print_text


def report(result: Result, tokenizer: Tokenizer | None, times: dict[str, float | None]) -> dict[str, Any]:
    """Object that ``--json`` prints for one text; names of ``stats`` as in docs/metrics.md."""
    body = {
        "text": result.text,
        "tokens": result.tokens,
        "finish_reason": result.finish_reason,
        "seed": result.seed,
        "prompt_tokens": result.prompt_tokens,
        "times": times,
        "stats": result.stats,
    }
    if result.logprobs is not None:
        pairs = zip(result.tokens, result.logprobs, strict=False)
        body["logprobs"] = [_logprob(token, p, tokenizer) for token, p in pairs]
    return body


def whole_report(body: dict[str, Any], run: Run, settings: Settings) -> dict[str, Any]:
    """The report of a run with one text: with the run's statistics and settings."""
    return {
        **body,
        "stats": {**run.stats.report(), **body["stats"]},
        "kernels": run.target.info.kernels or None,
        "settings": settings.as_json(),
    }


def _logprob(token: int, logprob: Logprob, tokenizer: Tokenizer | None) -> dict[str, Any]:
    return {**_token(token, logprob.value, tokenizer), "top": [_token(t, value, tokenizer) for t, value in logprob.top]}


def _token(token: int, logprob: float, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """text: its bytes decoded by themselves, U+FFFD for a part of a character; empty for a control token."""
    text = None if tokenizer is None else tokenizer.token_bytes(token).decode("utf-8", "replace")
    return {"token": token, "text": text, "logprob": logprob}


def plugin_summaries(run: Run) -> list[str]:
    """Summaries of the run so far by its plugins, each in a few words."""
    reports = run.stats.report()["reports"]
    return [f"{name}: {report['summary']}" for name, report in reports.items() if report.get("summary")]


def limit_of(generation: Generation, run: Run) -> str:
    """Which limit ended a text by length: the number of tokens that was asked for, or the model's context."""
    seq, context = generation.seq, run.target.info.context
    if generation.result.finish_reason != "length":
        return ""
    full = len(seq.tokens) >= context
    return f" (the context of {context} tokens is full)" if full else f" (-n {len(generation.result.tokens)})"


def describe_interruption(generation: Generation, watch: Watch, run: Run) -> str:
    """One line about a text that Ctrl-C ended."""
    seq = generation.seq
    count, stats = len(seq.tokens) - seq.prompt_len, run.stats.report()
    times = watch.times(seq, seq.prompt_len, count)
    return " · ".join([f"interrupted after {count} tokens", *speed_figures(stats, times)])


def summary(result: Result, times: dict[str, float | None], reports: Iterable[str] = (), limit: str = "") -> str:
    """One line: tokens, speed, tokens per step, acceptance, what plugins report, start-up.

    limit: what ended the text, in brackets.
    """
    head = f"{len(result.tokens)} tokens, finished by {result.finish_reason}{limit}"
    return " · ".join(
        [head, *speed_figures(result.stats, times), *reports, f"start-up {times['startup_seconds']:.2f} s"]
    )


def speed_figures(stats: Mapping[str, Any], times: dict[str, float | None]) -> list[str]:
    """Speed, tokens per step and acceptance."""
    parts = []
    if times["first_token_seconds"] is not None:
        parts.append(f"first after {times['first_token_seconds']:.2f} s")
    if times["tokens_per_second"] is not None:
        parts.append(f"then {times['tokens_per_second']:.1f} tokens/s")
    if stats["tokens_per_step"]:
        parts.append(f"{stats['tokens_per_step']:.2f} tokens per step")
    if stats["draft_acceptance"] is not None:
        parts.append(f"{stats['accepted']} of {stats['drafted']} drafted accepted ({stats['draft_acceptance']:.0%})")
    if stats["tv_distance"]:
        parts.append(f"total variation {stats['tv_distance']:.2f}")
    return parts
