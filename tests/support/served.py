"""A server of a test, in a thread of its own, and requests to it with what a run alone makes of them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import attrs
import httpx
from spec_grammar import JsonSchema
from spec_serve.app import create_app
from spec_serve.command import adapt_settings
from spec_serve.engine import Engine
from spec_serve.server import Server, listening_socket, start_listening
from spec_serve.server_config import ServerConfig
from spec_serve.settings import ServeSettings

from spec_core import Request, Run, RunSettings, Sampling, Target, load
from spec_core.commands import resolve_layers, setting_owners

SCHEMAS = (
    {"enum": ["red", "green", 17, [1, 2, 3]]},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 1, "maxItems": 4},
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"maxLength": 4, "type": "string"}}},
)
"""Schemas of constrained requests; their texts are short, or are cut at the length."""
PROMPTS = Path(__file__).parents[2] / "plugins" / "models" / "spec_zoo" / "prompts.jsonl"


@attrs.frozen
class Served:
    """A server that listens. url: without a slash at its end. thread: the id of its event loop's."""

    url: str
    engine: Engine
    server: Server
    client: httpx.Client = attrs.field(factory=lambda: httpx.Client(timeout=60))
    thread: int = 0

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        return self.client.post(self.url + path, json=body, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.client.get(self.url + path, **more)

    def events(self, path: str, body: dict[str, Any]) -> list[Any]:
        """Server-sent events of a streamed answer; the last, ``[DONE]``, as a text."""
        with self.client.stream("POST", self.url + path, json={**body, "stream": True}) as answer:
            assert answer.status_code == 200, answer.read()
            return [_event(line) for line in answer.iter_lines() if line.startswith("data: ")]


@contextmanager
def slowly(served: Served) -> Iterator[None]:
    """Every step takes a millisecond or more meanwhile: long texts are long on fast machines, too."""
    observers, look = served.engine.run._observers, lambda step: sleep(0.001)
    observers.append(look)
    try:
        yield
    finally:
        observers.remove(look)


def _event(line: str) -> Any:
    data = line.removeprefix("data: ")
    return data if data == "[DONE]" else json.loads(data)


@contextmanager
def serving(
    model: str | Target,
    methods: Sequence[Any] = (),
    limits: dict[str, Any] | None = None,
    rule: Any = None,
    **flags: Any,
) -> Iterator[Served]:
    """A server of this model. limits: of ServeSettings. rule: an instance. flags: settings of the run."""
    target = load(model) if isinstance(model, str) else model
    name = model if isinstance(model, str) else target.info.name
    named = [m for m in methods if isinstance(m, str)]
    settings = adapt_settings(
        resolve_layers({**flags, "model": name, "methods": tuple(named)}, {}, {}, setting_owners())
    )
    own = ServeSettings(**{"port": 0, **(limits or {})})
    with Run(
        target, methods=methods, rule=rule, control=settings["control"], settings=settings.build(RunSettings)
    ) as run:
        engine = Engine(run, own.queue)
        listener = listening_socket(own)
        url = start_listening(listener, own)  # before the thread: ``started`` is set a moment before it listens
        server = Server(create_app(engine, ServerConfig(run, name, own, settings)), engine, own)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                sleep(0.005)
            served = Served(url, engine, server, httpx.Client(timeout=60, verify=False), thread.ident or 0)
            with served.client:
                yield served
        finally:
            server.should_exit = True
            thread.join()


def prompts() -> list[str]:
    return [json.loads(line)["prompt"] for line in PROMPTS.read_text("utf-8").splitlines()]


@attrs.frozen
class Asked:
    """A request of a campaign. cut: events after which the client leaves; None is never. wait: seconds before it."""

    body: dict[str, Any]
    request: Request
    cut: int | None
    wait: float


def requests(seed: int, count: int, methods: Sequence[str]) -> list[Asked]:
    """Requests with random prompts, lengths, seeds, methods, schemas and cancels."""
    rng, texts = random.Random(seed), prompts()
    return [_request(rng, rng.choice(texts), methods) for _ in range(count)]


def _request(rng: random.Random, text: str, methods: Sequence[str]) -> Asked:
    shared = {"max_tokens": rng.randint(1, 40), "seed": rng.randrange(1 << 31)}
    drawn = {"temperature": rng.choice([0.0, 0.7, 1.0]), "top_p": rng.choice([1.0, 0.9])}
    stop = rng.choice([(), (), ("\n\n",), (" the", ")")])
    speculative = {"method": rng.sample(list(methods), rng.randint(0, len(methods)))} if rng.random() < 0.7 else {}
    speculative |= {"n_max": rng.choice([0, 1, 3, 16])} if rng.random() < 0.5 else {}
    speculative |= {"n_min": rng.choice([0, 2]), "p_min": rng.choice([0.0, 0.4])} if rng.random() < 0.3 else {}
    prompt = text[: rng.randint(1, len(text))] * rng.choice([1, 1, 3])
    asked = {"prompt": prompt, **shared, **drawn, "stop": list(stop), "speculative": speculative}
    asked |= {"cache_prompt": rng.random() < 0.8, "priority": rng.randint(-1, 1)}
    schema = rng.choice(SCHEMAS) if rng.random() < 0.3 else None
    asked |= {"json_schema": schema} if schema else {}
    constraint = JsonSchema(schema) if schema else None
    request = Request(prompt, **shared, stop=stop, sampling=Sampling(**drawn), constraint=constraint)
    return Asked(asked, request, rng.randint(0, 4) if rng.random() < 0.2 else None, rng.random() * 0.02)


@attrs.frozen
class Got:
    """Data that a client has when its stream ends, or when it leaves. finish: None where it left."""

    text: str
    finish: str | None
    usage: dict[str, Any] | None = None


async def _read(client: httpx.AsyncClient, url: str, asked: Asked) -> Got:
    text, finish, usage = "", None, None
    body = {**asked.body, "stream": True, "stream_options": {"include_usage": True}}
    await asyncio.sleep(asked.wait)
    async with client.stream("POST", f"{url}/v1/completions", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        at = 0
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            if asked.cut is not None and at >= asked.cut:
                return Got(text, None)
            at, event = at + 1, json.loads(line.removeprefix("data: "))
            assert "error" not in event, event
            for choice in event["choices"]:
                text, finish = text + choice["text"], choice["finish_reason"] or finish
            usage = event["usage"] or usage
    return Got(text, finish, usage)


async def _all(url: str, many: list[Asked], concurrency: int) -> list[Got]:
    places = asyncio.Semaphore(concurrency)

    async def one(asked: Asked) -> Got:
        async with places:
            return await _read(client, url, asked)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits, verify=False) as client:
        return await asyncio.gather(*(one(asked) for asked in many))


def answers(url: str, many: list[Asked], concurrency: int) -> list[Got]:
    """Answers that the clients of these requests got, ``concurrency`` of them at once."""
    return asyncio.run(_all(url, many, concurrency))


def alone(target: Target, asked: Asked) -> tuple[str, str]:
    """(text, finish_reason as the server says it) of a run alone."""
    with Run(target) as run:
        result = run.generate(asked.request).result
    return result.text, "stop" if result.finish_reason == "complete" else result.finish_reason


def wrong(target: Target, many: list[Asked], got: list[Got]) -> list[str]:
    """Requests whose text is not that of a run alone with its seed; of those who left, not its beginning."""
    wrong = []
    for at, (asked, own) in enumerate(zip(many, got, strict=True)):
        text, finish = alone(target, asked)
        same = own.text == text and own.finish == finish
        if asked.cut is not None and own.finish is None:
            same = text.startswith(own.text)
        if not same:
            wrong.append(f"{at}: {asked.body} gave {own}, alone {text!r} ({finish})")
    return wrong
