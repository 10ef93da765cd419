"""Pictures in requests: the three APIs, and what is refused before a picture is decoded."""

from __future__ import annotations

import base64
import gc
import io
import threading
from time import monotonic

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("anthropic", reason="needs anthropic's client")
pytest.importorskip("openai", reason="needs openai's client")
pytest.importorskip("transformers", reason="needs the extra vision")

import anthropic
import httpx
import openai
from PIL import Image
from spec_serve import command, memory
from spec_serve.settings import ServeSettings

from spec_core import Run, load
from tests.support.golden import golden
from tests.support.served import serving, slowly

MODEL = "vision-llava"
QUESTION = "What is this?"


@pytest.fixture(scope="module")
def target():
    return load(str(golden(MODEL) / "hf"))


@pytest.fixture(scope="module")
def seeing(target):
    with serving(target, ["ngram"]) as server:
        yield server


def picture(colour: str = "red") -> bytes:
    """A file; grey is a gradient."""
    grey = Image.linear_gradient("L").resize((40, 30)).convert("RGB")
    file = io.BytesIO()
    (grey if colour == "grey" else Image.new("RGB", (40, 30), colour)).save(file, "PNG")
    return file.getvalue()


def address(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def chat(*parts):
    return [{"role": "user", "content": [*parts, {"type": "text", "text": QUESTION}]}]


def in_chat(data: bytes) -> dict:
    return {"type": "image_url", "image_url": {"url": address(data), "detail": "low"}}


@pytest.fixture(scope="module")
def alone(target):
    """A function from pictures to the text of a run alone."""
    run = Run(target)

    def text(*pictures):
        messages = chat(*({"type": "image", "image": data} for data in pictures))
        return run.generate(messages, max_tokens=12).result.text

    return text


@pytest.fixture(scope="module")
def client(seeing):
    return openai.OpenAI(base_url=f"{seeing.url}/v1", api_key="none", max_retries=0)


def answer(client, *pictures):
    messages = chat(*map(in_chat, pictures))
    completion = client.chat.completions.create(model="any", messages=messages, max_tokens=12, temperature=0)
    return completion.choices[0].message.content, completion.usage


def test_a_chat_reads_its_pictures(client, alone):
    one, other = picture("red"), picture("grey")
    texts = {data: answer(client, data)[0] for data in (one, other)}

    assert texts == {one: alone(one), other: alone(other)}
    assert texts[one] != texts[other]
    assert answer(client, one, other)[0] == alone(one, other)


def test_a_picture_that_was_seen_is_not_evaluated_again_and_another_one_is(client):
    """Of the second prompt all rows but the last are there; of the third only those before the picture."""
    [same, again, other] = [answer(client, picture(colour))[1] for colour in ("blue", "blue", "grey")]

    assert again.prompt_tokens_details.cached_tokens == same.prompt_tokens - 1
    assert other.prompt_tokens_details.cached_tokens < 16


def test_responses_and_messages_read_the_same_picture(seeing, client, alone):
    data = picture("grey")
    parts = [{"type": "input_image", "image_url": address(data)}, {"type": "input_text", "text": QUESTION}]
    response = client.responses.create(
        model="any", input=[{"role": "user", "content": parts}], max_output_tokens=12, temperature=0
    )
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
    message = anthropic.Anthropic(base_url=seeing.url, api_key="none", max_retries=0).messages.create(
        model="any",
        messages=chat({"type": "image", "source": source}),
        max_tokens=12,
        extra_body={"temperature": 0},
    )

    assert response.output_text == message.content[0].text == alone(data)


def test_a_chat_without_pictures_is_one_of_text(client, target):
    completion = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": QUESTION}], max_tokens=12, temperature=0
    )

    assert completion.choices[0].message.content == Run(target).generate(chat(), max_tokens=12).result.text


def refusal(server, *parts):
    body = {"messages": chat(*parts), "max_tokens": 4}
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    return response.status_code, response.json()["error"]["message"]


@pytest.mark.parametrize(
    "url, reason",
    [
        ("https://example.org/a.png", "addresses are not fetched"),
        ("file:///etc/passwd", "addresses are not fetched"),
        ("data:text/html;base64,AAAA", "addresses are not fetched"),
        ("data:image/png;base64,@@@@", "is not base64"),
        ("data:image/png;base64,AAAA", "is none of PNG, JPEG, WEBP"),
    ],
)
def test_a_picture_that_cannot_be_read_is_refused(seeing, client, url, reason):
    status, message = refusal(seeing, {"type": "image_url", "image_url": {"url": url}})

    assert status == 400 and reason in message
    assert answer(client, picture())[0]


def test_too_many_pictures_are_refused(seeing):
    status, message = refusal(seeing, *[in_chat(picture())] * 65)

    assert status == 400 and "the prompt has 65 pictures" in message


def black(width: int, height: int) -> bytes:
    """A file of few bytes with many pixels."""
    file = io.BytesIO()
    Image.new("1", (width, height)).save(file, "PNG")
    return file.getvalue()


def test_pictures_are_never_read_in_the_event_loop(seeing, target, monkeypatch):
    """Every part of the way is in a thread, however few characters the conversation has."""
    threads = set()
    encoder = target.image_encoder
    original = type(encoder).encode_prompt

    def encode(self, *arguments, **keywords):
        threads.add(threading.get_ident())
        return original(self, *arguments, **keywords)

    monkeypatch.setattr(type(encoder), "encode_prompt", encode)
    body = {"messages": chat(in_chat(picture("green"))), "max_tokens": 1}
    for path in ("/v1/chat/completions", "/v1/chat/completions/input_tokens"):
        assert seeing.post(path, body).status_code == 200

    assert threads and seeing.thread not in threads


@pytest.mark.parametrize("count", [1, 2, 8])
def test_pixels_of_all_pictures_of_a_request_are_bounded(target, count):
    with serving(target, limits={"picture_pixels": 20_000}) as server:
        side = int((20_000 / count) ** 0.5)
        small, large = black(side, side), black(side + 30, side)
        assert server.post("/v1/chat/completions", body_of([small] * count)).status_code == 200
        answer = server.post("/v1/chat/completions", body_of([small] * (count - 1) + [large]))

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert "pixels, at most" in answer.json()["error"]["message"]


def body_of(pictures):
    return {"messages": chat(*map(in_chat, pictures)), "max_tokens": 1}


def test_seconds_of_the_pictures_of_a_request_are_bounded(target, monkeypatch):
    """Also within the tower, between its layers."""
    encoder = target.image_encoder
    encoder.load()
    _, tower = encoder._read_parts()
    layer = next(module for module in tower.model.modules() if not list(module.children()))
    slow = layer.register_forward_pre_hook(lambda *_: threading.Event().wait(0.4))
    try:
        with serving(target, limits={"picture_seconds": 0.2}) as server:
            answer = server.post("/v1/chat/completions", body_of([picture(colour) for colour in ("teal", "pink")]))
    finally:
        slow.remove()

    assert answer.status_code == 400 and "took more than 0.2 seconds" in answer.json()["error"]["message"]


def test_bytes_of_the_pictures_of_all_requests_are_bounded(target):
    """Requests that run hold their pictures; what they held returns with their end."""
    data = black(600, 600)  # 1,080,000 bytes of decoded pixels
    body = {**body_of([data]), "max_tokens": 200, "ignore_eos": True}
    with serving(target, limits={"picture_mib": 2}, max_sequences=4) as server, slowly(server):
        pictures = server.server.config.app.state.service.pictures
        with server.client.stream("POST", f"{server.url}/v1/chat/completions", json={**body, "stream": True}) as first:
            next(first.iter_lines())
            refused = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
        end = monotonic() + 20
        while pictures.held and monotonic() < end:
            gc.collect()
        answer = server.post("/v1/chat/completions", body)

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "busy")
    assert answer.status_code == 200


def test_pictures_that_never_fit_are_refused_for_good(target):
    with serving(target, limits={"picture_mib": 1}) as server:
        answer = server.post("/v1/chat/completions", body_of([black(800, 800)]))

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


@pytest.mark.repeats(6)
@pytest.mark.parametrize("size", [(2_000, 2), (1, 100_000), (33_554_432, 1), (3_000, 10), (1, 1), (1, 199)])
@pytest.mark.parametrize("name", ["vision-llava", "vision-qwen3vl"])
def test_odd_shapes_are_read_or_refused_by_the_field(name, size):
    with serving(load(str(golden(name) / "hf"))) as server:
        answer = server.post("/v1/chat/completions", body_of([black(*size)]))

    assert answer.status_code in (200, 400)
    if answer.status_code == 400:
        assert answer.json()["error"]["param"] == "messages" and " x " in answer.json()["error"]["message"]


def test_processor_and_tower_are_read_before_the_server_listens(monkeypatch):
    target = load(str(golden(MODEL) / "hf"))
    command._load_encoder(target)
    monkeypatch.setattr("spec_targets.pictures.tower.read_tower", None)

    assert target.image_encoder.encode_prompt("a", [picture()]).embeds


def test_pictures_are_part_of_the_memory_plan():
    target, limits = load(str(golden(MODEL) / "hf"), weights=False), ServeSettings()
    size = command._picture_bytes(target, limits)
    assert size > limits.picture_pixels * 3 + (limits.picture_mib << 20)
    fewer = command._picture_bytes(target, ServeSettings(picture_pixels=1 << 20))

    plan = memory.plan(target.info, [], 4, 0, pictures=size)
    assert fewer < size and plan.total - memory.plan(target.info, [], 4, 0).total == size
    assert any("pictures" in line for line in plan.lines())
    assert not any("pictures" in line for line in memory.plan(target.info, [], 4, 0).lines())


@pytest.mark.parametrize("name", ["self", "prompt", "pictures", "budget", "expand", "messages", "limits"])
def test_a_variable_of_the_template_may_have_any_name(seeing, name):
    answer = seeing.post("/v1/chat/completions", {**body_of([picture()]), "chat_template_kwargs": {name: 1}})

    assert answer.status_code in (200, 400), answer.text


def test_a_model_of_text_refuses_pictures(server):
    status, message = refusal(server, in_chat(picture()))

    assert (status, message) == (400, "pico reads text alone, and a message has a picture (image_url)")
