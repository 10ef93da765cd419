"""``spec generate``: one text, streamed, coloured by who proposed it, or as JSON."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from spec_core.commands import common
from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_core.request import Emitted, Request, Result
    from spec_core.settings import Settings
    from spec_core.target import Target

COLOURS = ("green", "cyan", "yellow", "magenta", "blue", "bright_green", "bright_cyan")


@click.command()
@common.add(common.MODEL, common.METHODS)
@click.option("-p", "--prompt", help="The prompt.")
@click.option("-f", "--file", help="A file with the prompt; - is standard input.")
@click.option("--tokens", help="The prompt as token ids: 1,2,3.")
@click.option("--chat", is_flag=True, help="Put the prompt through the model's chat template.")
@click.option("--messages", help="A JSON file of messages for the chat template.")
@common.add(common.SAMPLING)
@click.option("--logit-bias", "logit_bias", multiple=True, metavar="ID=B", help="Add B to the logit of a token.")
@click.option("--logprobs", type=int, help="Report log-probabilities, and those of so many best tokens.")
@click.option("--stop", multiple=True, help="A text that ends the output.")
@click.option("--stop-token", "stop_tokens", type=int, multiple=True, help="A token that ends the output.")
@click.option("--ignore-eos", is_flag=True, help="Do not stop at the model's own end tokens.")
@click.option("--show-drafts", is_flag=True, help="Colour each token by who proposed it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def generate(**flags: Any) -> None:
    """Generate a text. The methods change how fast it comes, never what it is."""
    began = perf_counter()
    own = (
        "prompt",
        "file",
        "tokens",
        "chat",
        "messages",
        "logit_bias",
        "logprobs",
        "stop",
        "stop_tokens",
        "ignore_eos",
    )
    asked = {name: flags.pop(name) for name in own}
    show, json_out = flags.pop("show_drafts"), flags.pop("as_json")
    settings = common.settings_of(flags)
    target = common.target_of(settings)
    run = common.run_of(target, settings)
    generation = run.generate(request_of(asked, settings, target))
    started = perf_counter() - began
    show_text = _nothing if json_out else (_coloured(run.drafters) if show else _plain)
    seconds = _stream(generation, show_text)
    result = generation.result
    if json_out:
        click.echo(common.as_json(report(result, run.stats.report(), settings)))
    else:
        click.echo()
        common.note(summary(result, seconds, started))


def request_of(asked: dict[str, Any], settings: Settings, target: Target) -> Request:
    from spec_core.request import Request

    sampling = common.sampling_of(settings, logit_bias=_biases(asked["logit_bias"], target), logprobs=asked["logprobs"])
    return Request(
        prompt_of(asked, target),
        n=settings["n"],
        sampling=sampling,
        seed=settings["seed"],
        stop=asked["stop"],
        stop_tokens=asked["stop_tokens"],
        ignore_eos=asked["ignore_eos"],
    )


def prompt_of(asked: dict[str, Any], target: Target) -> str | list[int]:
    """The prompt from the one place it was given in. Raises UsageError for none, or for two."""
    places = [name for name in ("prompt", "file", "tokens", "messages") if asked[name] is not None]
    if len(places) > 1:
        raise UsageError(f"the prompt is given by --{' and --'.join(places)}", mend="give it once")
    if asked["tokens"] is not None:
        return common.token_ids(asked["tokens"])
    if asked["messages"] is not None:
        return _chat(_messages(asked["messages"]), target)
    text = asked["prompt"]
    if text is None:
        if asked["file"] is None and sys.stdin.isatty():
            raise UsageError("no prompt is given", mend="give -p TEXT, -f FILE, --tokens IDS, or pipe a text in")
        text = common.read_text(asked["file"] or "-")
    return _chat([{"role": "user", "content": text}], target) if asked["chat"] else text


def _chat(messages: list[dict[str, Any]], target: Target) -> list[int]:
    if target.tokenizer is None:
        raise UsageError(f"{target.info.name} has no tokenizer", mend="give --tokens")
    return target.tokenizer.encode_chat(messages)


def _messages(path: str) -> list[dict[str, Any]]:
    import json

    try:
        messages = json.loads(common.read_text(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is no JSON: {str(error)[:80]}", mend='write [{"role": "user", "content": "..."}]'
        ) from error
    if not isinstance(messages, list) or not all(isinstance(m, dict) and "role" in m for m in messages):
        raise UsageError(f"{path} is no list of messages", mend='write [{"role": "user", "content": "..."}]')
    return messages


def _biases(texts: tuple[str, ...], target: Target) -> dict[int, float]:
    biases = {}
    for text in texts:
        token, equals, bias = text.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError as error:
            raise UsageError(f"--logit-bias {text!r} is no ID=B", mend="write --logit-bias 42=-1.5") from error
        if not equals or not 0 <= int(token) < target.info.vocab:
            raise UsageError(
                f"--logit-bias {text!r}: ids go from 0 to {target.info.vocab - 1}", mend="give an id inside"
            )
    return biases


def _stream(generation: Any, show: Any) -> float:
    began = perf_counter()
    for event in generation:
        show(event)
    return perf_counter() - began


def _nothing(event: Emitted) -> None:
    pass


def _plain(event: Emitted) -> None:
    if event.text:
        sys.stdout.write(event.text)
        sys.stdout.flush()


def _coloured(methods: frozenset[str]) -> Any:
    """Tokens of a method in its colour; where there are no colours, in brackets. The legend goes to standard error."""
    colour = dict(zip(sorted(methods), COLOURS * len(methods), strict=False))
    legend = ", ".join(click.style(name, fg=c) for name, c in colour.items())
    common.note(
        f"proposed by: {legend or 'nobody'}; the rest is the target's own choice; [..] where there is no colour"
    )

    def show(event: Emitted) -> None:
        if event.source is None or not event.text:
            click.echo(event.text, nl=False)
        elif sys.stdout.isatty():
            click.secho(event.text, fg=colour.get(event.source), nl=False)
        else:
            click.echo(f"[{event.text}]", nl=False)

    return show


def report(result: Result, stats: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """What ``--json`` prints."""
    body = {
        "text": result.text,
        "tokens": result.tokens,
        "finish_reason": result.finish_reason,
        "seed": result.seed,
        "prompt_tokens": result.prompt_tokens,
        "stats": {**stats, **result.stats},
        "settings": settings.as_json(),
    }
    if result.logprobs is not None:
        body["logprobs"] = [{"logprob": p.value, "top": p.top} for p in result.logprobs]
    return body


def summary(result: Result, seconds: float, started: float) -> str:
    """One line: tokens, speed, tokens per step, acceptance, start-up."""
    n, stats = len(result.tokens), result.stats
    parts = [f"{n} tokens", f"{n / seconds:.1f} tokens/s" if seconds else "", f"stopped by {result.finish_reason}"]
    if stats["tau_pooled"]:
        parts.append(f"{stats['tau_pooled']:.2f} tokens per step")
    if stats["draft_acceptance"] is not None:
        parts.append(f"{stats['draft_acceptance']:.0%} of {stats['drafted']} drafts accepted")
    return " · ".join(p for p in [*parts, f"start-up {started:.2f} s"] if p)
