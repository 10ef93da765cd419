"""``spec generate``: one text, streamed, coloured by who proposed it, or as JSON."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import attrs
import click

from spec_cli import common, prompt, show
from spec_core.errors import UsageError

if TYPE_CHECKING:
    from spec_core.contract.request import Result
    from spec_core.loop.generation import Generation
    from spec_core.loop.run import Run
    from spec_core.settings.resolve import Settings

REQUEST = [
    click.option("--logit-bias", "logit_bias", multiple=True, metavar="ID=B", help="Add B to the logit of a token."),
    click.option("--logprobs", type=int, help="With --json: log-probabilities, and those of so many best tokens."),
    click.option("--stop", multiple=True, help="A text that ends the output."),
    click.option("--stop-token", "stop_tokens", type=int, multiple=True, help="A token that ends the output."),
    click.option("--ignore-eos", is_flag=True, help="Do not stop at the model's own end tokens."),
]


@click.command()
@common.add(common.MODEL, common.METHODS, prompt.OPTIONS, common.SAMPLING, REQUEST)
@click.option("--show-drafts", is_flag=True, help="Colour each token by who proposed it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def generate(show_drafts: bool, as_json: bool, **flags: Any) -> None:
    """Generate a text. The methods change how fast it comes, never what it is."""
    began = perf_counter()
    places = common.take(flags, "prompt", "file", "tokens", "chat", "messages")
    asked = common.take(flags, "logit_bias", "logprobs", "stop", "stop_tokens", "ignore_eos")
    if asked["logprobs"] is not None and not as_json:
        raise UsageError("--logprobs shows in --json alone", mend="add --json, or leave --logprobs out")
    settings = common.settings_of(flags)
    text = prompt.given(**places)
    request = request_of(asked, settings)
    target = common.checked_target(settings, [settings["methods"]])
    run = common.run_of(target, settings)
    common.note_owners([run], settings)
    generation = run.generate(request, prompt=prompt.encoded(text, target))
    if run.stats.lossy:
        common.note(f"LOSSY: {run.stats.lossy}")
    clock = Clock(began)
    clock.follow(generation, _shower(run, show_drafts, as_json))
    if as_json:
        click.echo(common.as_json(report(generation.result, run.stats.report(), settings)))
    else:
        click.echo()
        common.note(summary(generation.result, clock))


def request_of(asked: dict[str, Any], settings: Settings) -> Any:
    """The request, still without its prompt: what is wrong in it is said before a model is loaded."""
    from spec_core.contract.request import Request

    biases = dict(_bias(text) for text in asked.pop("logit_bias"))
    sampling = common.sampling_of(settings, logit_bias=biases, logprobs=asked.pop("logprobs"))
    return Request([], n=settings["n"], seed=settings["seed"], sampling=sampling, **asked)


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError as error:
        raise UsageError(f"--logit-bias {text!r} is no ID=B", mend="write --logit-bias 42=-1.5") from error


def _shower(run: Run, show_drafts: bool, as_json: bool) -> show.Show:
    if as_json:
        return show.nothing
    return show.drafts(c.name for c in run.plugins if c.name in run.drafters) if show_drafts else show.plain


@attrs.define
class Clock:
    """Moments of a generation: the command's begin, the request's, its first token and its last."""

    began: float
    asked: float = attrs.field(factory=perf_counter)
    first: float | None = None
    last: float | None = None

    def follow(self, generation: Generation, show: show.Show) -> None:
        for event in generation:
            self.last = perf_counter()
            self.first = self.first or self.last
            show(event)


def report(result: Result, stats: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """What ``--json`` prints; names of ``stats`` as in docs/metrics.md."""
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


def summary(result: Result, clock: Clock) -> str:
    """One line: tokens, speed, tokens per step, acceptance, start-up."""
    n, stats = len(result.tokens), result.stats
    parts = [f"{n} tokens, finished by {result.finish_reason}"]
    if clock.first is not None and clock.last is not None:
        parts.append(f"first after {clock.first - clock.asked:.2f} s")
        if n > 1:
            parts.append(f"then {(n - 1) / max(clock.last - clock.first, 1e-9):.1f} tokens/s")
    if stats["tau_pooled"]:
        parts.append(f"{stats['tau_pooled']:.2f} tokens per step")
    if stats["draft_acceptance"] is not None:
        parts.append(f"{stats['accepted']} of {stats['drafted']} drafted accepted ({stats['draft_acceptance']:.0%})")
    if stats["tv_spent"]:
        parts.append(f"total variation {stats['tv_spent']:.2f} spent")
    return " · ".join([*parts, f"start-up {clock.asked - clock.began:.2f} s"])
