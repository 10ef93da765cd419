"""Pictures in requests: the three APIs, and what is refused before a picture is decoded."""

from __future__ import annotations

import base64
import io

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("anthropic", reason="needs anthropic's client")
pytest.importorskip("openai", reason="needs openai's client")
pytest.importorskip("transformers", reason="needs the extra vision")

import anthropic
import httpx
import openai
from PIL import Image

from spec_core import Run, load
from tests.support.golden import golden
from tests.support.served import serving

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


def test_a_model_of_text_refuses_pictures(server):
    status, message = refusal(server, in_chat(picture()))

    assert (status, message) == (400, "pico reads text alone, and a message has a picture (image_url)")
